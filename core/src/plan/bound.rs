//! What no choice of the blocks betters: bytes and seconds that all plans of [`super::pareto`] need at least.
//!
//! Lists of plans grow block by block as there, but where a list gets too long, its plans make way for fewer that aren't
//! slower or larger than any of them. There are two ways, and both bound all plans:
//!
//! - of those in a cell of bytes, one with the fewest bytes and the fewest seconds. It's close where there are few blocks;
//! - the lower convex hull, in which a plan of the later blocks may be mixed from two. It's close where there are many,
//!   since in the end about one choice of one block is mixed.

use super::pareto::{Item, cells};

/// Most blocks for which cells are worth their time.
const FEW: usize = 16;

/// Bytes and seconds.
type Point = (f64, f64);

/// Bounds of all plans, within any budget.
pub struct Bound {
    /// No plan betters all of these, fastest first.
    steps: Vec<Point>,
    /// No plan is below this convex line, fastest first.
    hull: Vec<Point>,
}

impl Bound {
    /// As of [`super::pareto::ParetoFront::new`].
    pub fn new(blocks: &[Vec<Item>], gaps: &[u64]) -> Self {
        let end = vec![(gaps[blocks.len()] as f64, 0.0)];
        let backwards = || blocks.iter().zip(gaps).rev();
        let any = f64::INFINITY;
        let hull =
            backwards().fold(end.clone(), |rest, (items, &gap)| hull(items, gap, &rest, any));
        let cells = cells(blocks.len());
        let steps = match blocks.len() <= FEW {
            true => backwards().fold(end, |rest, (items, &gap)| steps(items, gap, &rest, cells)),
            false => vec![],
        };
        Self { steps, hull }
    }

    /// Seconds that no plan of at most so many bytes takes less than; without end where none is as small.
    pub fn seconds(&self, bytes: u64) -> f64 {
        let bytes = bytes as f64;
        let mixed = at(&self.hull, bytes);
        let after = self.steps.partition_point(|&(other, _)| other > bytes);
        let stepped = self.steps.get(after).map_or(0.0, |&(_, seconds)| seconds);
        mixed.max(stepped)
    }
}

/// As [`Bound::seconds`], closer to the plans and slower: only plans of the later blocks are mixed that all that the blocks
/// before them can save makes small enough.
pub fn closely(blocks: &[Vec<Item>], gaps: &[u64], bytes: u64) -> f64 {
    let most_saved = |items: &Vec<Item>| items.iter().map(|item| item.saved).max().unwrap_or(0);
    let mut most = vec![bytes];
    for items in blocks {
        most.push(most[most.len() - 1] + most_saved(items));
    }
    let end = gaps[blocks.len()];
    if end > most[blocks.len()] {
        return f64::INFINITY;
    }
    let backwards = blocks.iter().zip(gaps).zip(&most).rev();
    let hull = backwards.fold(vec![(end as f64, 0.0)], |rest, ((items, &gap), &most)| {
        hull(items, gap, &rest, most as f64)
    });
    at(&hull, bytes as f64)
}

/// Seconds of a convex line at so many bytes.
fn at(hull: &[Point], bytes: f64) -> f64 {
    let after = hull.partition_point(|&(other, _)| other > bytes);
    match (after.checked_sub(1).map(|at| hull[at]), hull.get(after)) {
        (None, first) => first.map_or(f64::INFINITY, |&(_, seconds)| seconds),
        (Some(before), Some(&after)) => between(before, after, bytes),
        (Some(_), None) => f64::INFINITY,
    }
}

/// Seconds at so many bytes on the line between two points, of which the first has more.
fn between(before: Point, after: Point, bytes: f64) -> f64 {
    before.1 + (after.1 - before.1) * (before.0 - bytes) / (before.0 - after.0)
}

/// What a choice makes of the later blocks: it saves so many bytes, but takes at least so many. Parameters count where no
/// later ones do besides, which is never too many.
fn saved_and_least(item: &Item, gap: u64) -> (f64, f64) {
    let parameters = item.parameters as f64;
    (item.saved as f64 - parameters, item.peak.max(gap) as f64 + parameters)
}

/// The lower convex hull of every choice with every mix of plans of the later blocks, up to the `most` bytes.
fn hull(items: &[Item], gap: u64, rest: &[Point], most: f64) -> Vec<Point> {
    let (mut hull, mut merged, mut curve): (Vec<Point>, Vec<Point>, Vec<Point>) =
        Default::default();
    for item in items {
        let (saved, least) = saved_and_least(item, gap);
        curve.clear();
        if least > most {
            continue;
        }
        for (index, &(bytes, seconds)) in rest.iter().enumerate() {
            let next = rest.get(index + 1);
            if let Some(&next) = next.filter(|next| bytes - saved > most && next.0 - saved < most) {
                let cut = between((bytes, seconds), next, most + saved);
                curve.push((most, cut + item.seconds));
            }
            if bytes - saved > most {
                continue;
            }
            if bytes - saved > least {
                curve.push((bytes - saved, seconds + item.seconds));
                continue;
            }
            // Further on there are no fewer bytes.
            let cut = match index.checked_sub(1) {
                Some(before) => between(rest[before], (bytes, seconds), least + saved),
                None => seconds,
            };
            curve.push((least, cut + item.seconds));
            break;
        }
        merged.clear();
        let (mut ours, mut theirs) =
            (hull.iter().copied().peekable(), curve.iter().copied().peekable());
        loop {
            let next = match (ours.peek(), theirs.peek()) {
                (Some(a), Some(b)) if larger(a, b) => ours.next(),
                (_, Some(_)) => theirs.next(),
                (Some(_), None) => ours.next(),
                (None, None) => break,
            };
            next.into_iter().for_each(|point| extend(&mut merged, point));
        }
        std::mem::swap(&mut hull, &mut merged);
    }
    hull
}

/// Whether a point comes before another along a hull: it has more bytes, or as many and fewer seconds.
fn larger(a: &Point, b: &Point) -> bool {
    a.0 > b.0 || (a.0 == b.0 && a.1 < b.1)
}

/// Extends a lower convex hull by a point of no more bytes than the last.
fn extend(hull: &mut Vec<Point>, point: Point) {
    // Of as many bytes, and no faster.
    if hull.last().is_some_and(|last| last.0 == point.0) {
        return;
    }
    while hull.last().is_some_and(|last| last.1 >= point.1) {
        hull.pop();
    }
    while let [.., a, b] = hull[..]
        && (b.1 - a.1) * (b.0 - point.0) >= (point.1 - b.1) * (a.0 - b.0)
    {
        hull.pop();
    }
    hull.push(point);
}

/// Every choice with every plan of the later blocks, those in a cell as one.
fn steps(items: &[Item], gap: u64, rest: &[Point], cells: usize) -> Vec<Point> {
    let each = |take: &mut dyn FnMut(Point)| {
        for item in items {
            let (saved, least) = saved_and_least(item, gap);
            for &(bytes, seconds) in rest {
                take(((bytes - saved).max(least), seconds + item.seconds));
                if bytes - saved <= least {
                    break;
                }
            }
        }
    };
    let (mut count, mut fewest, mut most) = (0, f64::INFINITY, 0.0f64);
    each(&mut |(bytes, _)| {
        count += 1;
        fewest = fewest.min(bytes);
        most = most.max(bytes);
    });
    let mut points: Vec<Point> = vec![];
    if count <= cells {
        each(&mut |point| points.push(point));
        points.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
    } else {
        let scale = cells as f64 / (most - fewest + 1.0);
        let mut least: Vec<Point> = vec![(f64::INFINITY, f64::INFINITY); cells];
        each(&mut |(bytes, seconds)| {
            let place = &mut least[(((bytes - fewest) * scale) as usize).min(cells - 1)];
            *place = (place.0.min(bytes), place.1.min(seconds));
        });
        points = least;
    }
    let mut quickest = f64::INFINITY;
    points.retain(|&(_, seconds)| {
        let better = seconds < quickest;
        quickest = quickest.min(seconds);
        better
    });
    points.reverse();
    points
}

#[cfg(test)]
mod tests {
    use super::super::pareto::ParetoFront;
    use super::*;

    /// Blocks of a few choices, each with what saves more at a higher price.
    fn blocks(seed: u32, count: u64, choices: u64) -> (Vec<Vec<Item>>, Vec<u64>) {
        let mut stream = 0;
        let mut next = |most: u64| {
            stream += 1;
            (crate::ops::uniform([seed, 0, 0, 0], 0, stream) * most as f64) as u64
        };
        let blocks = (0..count)
            .map(|block| {
                (0..choices)
                    .map(|choice| Item {
                        peak: 500 + 150 * block + next(150) * choice.min(1),
                        saved: 30 * choice + next(30) * choice.min(1),
                        seconds: (choice * (10 + next(10))) as f64,
                        parameters: choice,
                    })
                    .collect()
            })
            .collect();
        (blocks, (0..=count).map(|n| 400 + 150 * n).collect())
    }

    #[test]
    fn no_plan_betters_the_bound() {
        for seed in 0..20 {
            let (blocks, gaps) = blocks(seed, 6, 5);
            let (front, bound) = (ParetoFront::new(&blocks, &gaps), Bound::new(&blocks, &gaps));
            let mut known = 0.0;
            for bytes in 300..=1400 {
                let plan = front.first_within(bytes);
                let bound_s = bound.seconds(bytes);
                let closely_s = closely(&blocks, &gaps, bytes);
                let seconds = |plan: usize| -> f64 {
                    let choices = front.choices(plan).into_iter().zip(&blocks);
                    choices.map(|(choice, items)| items[choice].seconds).sum()
                };
                if plan < front.count() {
                    let found = seconds(plan);
                    assert!(
                        closely_s <= found * (1.0 + 1e-9),
                        "{bytes}: {closely_s} s of {found} s"
                    );
                    assert!(bound_s <= found * (1.0 + 1e-9), "{bytes}: {bound_s} s of {found} s");
                    known = f64::max(known, bound_s / found.max(1.0));
                }
            }
            assert!(known > 0.9, "{known}");
            assert_eq!([bound.seconds(1), closely(&blocks, &gaps, 1)], [f64::INFINITY; 2]);
        }
    }

    #[test]
    fn of_many_blocks_all_but_a_choice_is_known() {
        let (blocks, gaps) = blocks(1, 40, 8);
        let (front, bound) = (ParetoFront::new(&blocks, &gaps), Bound::new(&blocks, &gaps));
        for part in 1..20 {
            let bytes = gaps[40] * part / 20;
            let plan = front.first_within(bytes);
            if plan == front.count() {
                continue;
            }
            let choices = front.choices(plan).into_iter().zip(&blocks);
            let found: f64 = choices.map(|(choice, items)| items[choice].seconds).sum();
            let dearest = blocks.iter().flatten().map(|item| item.seconds).fold(0.0, f64::max);
            let bound_s = bound.seconds(bytes);
            assert!(
                (found - dearest..=found * (1.0 + 1e-9)).contains(&bound_s),
                "{bound_s} {found}"
            );
        }
    }
}
