//! Offsets: dynamic storage allocation for buffers whose lifetimes are known.
//!
//! No arrangement can be smaller than the largest sum of live bytes, so that bound tells how good one is. A training
//! step fills up with activations and empties again while gradients take their place: two stacks that grow towards
//! each other, activations from the bottom and gradients from the top, meet the bound or all but do. Where they don't,
//! eight greedy variants (four orders × first or best fit) are run too and then a search, and the best is kept.

use std::cmp::Reverse;
use std::iter;

use super::buffer::{Buffer, Page};
use super::full::Full;
use super::gaps::{Gap, Map, Want, is_short};

/// Where buffers were placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Offset of each buffer.
    pub offsets: Vec<u64>,
    /// End of the highest buffer.
    pub bytes: u64,
}

/// Which of the places that have room a buffer takes.
#[derive(Clone, Copy, Debug)]
enum Choice {
    /// The lowest.
    First,
    /// The tightest.
    Best,
    /// By [`Ends`].
    Ends(Ends),
}

/// A stack from the bottom of what is live at the step `fullest`. The rest hangs from the `ceiling`, but for what comes
/// later and goes before half of the steps after it, up to the last: where `low`, that lies on the stack.
#[derive(Clone, Copy, Debug)]
struct Ends {
    fullest: usize,
    last: usize,
    ceiling: u64,
    low: bool,
}

impl Ends {
    fn hangs(&self, buffer: &Buffer) -> bool {
        !(self.low && self.passes(buffer) || buffer.is_live(self.fullest))
    }

    /// Whether a buffer comes later than the fullest step and goes soon.
    fn passes(&self, buffer: &Buffer) -> bool {
        let short = 2 * (buffer.death - buffer.birth) <= self.last - buffer.birth;
        short && buffer.birth > self.fullest
    }
}

/// In which order buffers are placed.
#[derive(Clone, Copy, Debug)]
enum Order {
    Size,
    Area,
    Lifetime,
    Birth,
}

/// Rounds of a search for a better order, and how often all searches together may look at a placed buffer. Fixed
/// numbers, so that the same buffers always get the same places; the second is some hundredths of a second's work.
const ROUNDS: usize = 60;
const LOOKS: usize = 1_000_000;
/// Most arrangements that are each stacked around a step.
const TRIES: usize = 8;
/// How often in all what found no room is placed before its neighbours: those that live at most so many times as long.
const SETTLED: usize = 8;
const NEIGHBOURS: usize = 4;
/// What is as good as the most live bytes, once they were not enough: above them by one in so many. And the arrangements of
/// which what hangs is raised by so much.
const SLACK: u64 = 1024;
const RAISED: usize = 3;
/// Times what is enough from which on the greedy variants may better an arrangement.
const FAR: f64 = 1.05;

/// The best arrangement that was found. `enough` bytes, at least the largest sum of live bytes, are as good as fewer.
pub fn place(buffers: &[Buffer], enough: u64, page: Page) -> Placement {
    let best = Placement { offsets: vec![], bytes: u64::MAX };
    let (counted, looks, settled) = (false, 0, 0);
    let mut search = Arrangements { buffers, enough, page, counted, looks, settled, best };
    let full = Full::of(buffers);
    let (first, fullest) = (full.first(), full.fullest());
    let last = full.live().len().saturating_sub(1);
    // What is live at the fullest step is stacked from the bottom, what stays longest lowest, so that it leaves from the
    // top. Everything else is before or after and hangs from the ceiling, the long-lived highest: in a backward pass
    // gradients fill from the top what activations leave. What only passes then is stacked in between in the same way,
    // around the fullest step of each.
    let long = Order::Lifetime.sorted(buffers);
    let stacked = |(step, low): (usize, bool), ceiling: u64| {
        let ends = Ends { fullest: step, last, ceiling, low };
        let mut order = long.clone();
        order.sort_by_cached_key(|&index| {
            let buffer = &buffers[index];
            if buffer.is_live(step) {
                return (0, Reverse(0), 0, Reverse(buffer.death));
            }
            if !ends.passes(buffer) {
                return (1, Reverse(0), 0, Reverse(0));
            }
            let peak = full.peak(buffer);
            (2, Reverse(full.live()[peak]), peak, Reverse(buffer.death))
        });
        (order, Choice::Ends(ends))
    };
    let mut tries = vec![(first, true), (fullest, false), (fullest, true), (first, false)];
    // Most are done with the first arrangement. The search that follows goes on for so many looks.
    let (order, choice) = stacked(tries[0], enough);
    let mut begun = search.arrange(&order, choice, u64::MAX);
    if search.is_done() {
        return search.best;
    }
    if search.looks <= LOOKS {
        (search.counted, search.looks, begun) = (true, 0, None);
    }
    // Stacks by the bytes that are missing below the ceiling.
    let mut known: Vec<(u64, (usize, bool))> = vec![];
    let mut next = 0;
    while let Some(&stack) = tries.get(next) {
        next += 1;
        let most = known.iter().map(|&(missing, _)| missing).min().unwrap_or(u64::MAX);
        let (order, choice) = stacked(stack, enough);
        let arranged = begun.take().or_else(|| search.arrange(&order, choice, most));
        if let Some(arranged) = arranged {
            known.push((arranged.missing, stack));
            search.settle(order, choice, arranged);
        }
        // What is too high shows which step to stack around instead.
        let more = next == tries.len() && next < TRIES;
        if let Some(step) = search.too_high(&full).filter(|_| more)
            && tries.iter().all(|&(known, _)| known != step)
        {
            tries.push((step, true));
        }
    }
    known.sort_unstable();
    // What hangs a little higher leaves room for what lies in between.
    for &(missing, stack) in known.iter().take(RAISED) {
        let (mut slack, mut missing) = (0, missing);
        while missing > 0 && slack + missing <= full.most / SLACK {
            slack += missing;
            search.enough = enough + slack;
            let (order, choice) = stacked(stack, search.enough);
            let Some(arranged) = search.arrange(&order, choice, missing) else { break };
            if arranged.missing == missing {
                break;
            }
            missing = arranged.missing;
        }
    }
    if let Some(&(_, stack)) = known.first() {
        let (order, choice) = stacked(stack, search.enough);
        search.improve(order, choice, LOOKS / 2);
    }
    let orders = [Order::Size, Order::Area, Order::Lifetime, Order::Birth];
    for order in orders {
        for choice in [Choice::First, Choice::Best] {
            if search.is_done() {
                return search.best;
            }
            if search.looks <= LOOKS || search.is_far() {
                search.arrange(&order.sorted(buffers), choice, u64::MAX);
            }
        }
    }
    for order in orders {
        let mut order = order.sorted(buffers);
        order.sort_by_key(|&index| !buffers[index].is_live(fullest));
        search.improve(order, Choice::First, LOOKS);
    }
    search.best
}

/// Arrangements tried of the same buffers.
struct Arrangements<'a> {
    buffers: &'a [Buffer],
    enough: u64,
    page: Page,
    /// Whether `looks` is exact: it is what they are at least where there are too many.
    counted: bool,
    /// Placed buffers that were looked at.
    looks: usize,
    /// Arrangements of [`Arrangements::settle`].
    settled: usize,
    best: Placement,
}

impl Arrangements<'_> {
    /// The fullest step of the buffers that end higher in the best than is enough.
    fn too_high(&self, full: &Full) -> Option<usize> {
        let placed = self.buffers.iter().zip(&self.best.offsets);
        let high = placed.filter(|(buffer, offset)| **offset + buffer.bytes > self.enough);
        full.last_peak(high.map(|(buffer, _)| buffer))
    }

    /// Whether the best is as good as any.
    fn is_done(&self) -> bool {
        self.best.bytes <= self.enough
    }

    /// Whether the best is [`FAR`] from what is enough.
    fn is_far(&self) -> bool {
        self.best.bytes as f64 > FAR * self.enough as f64
    }

    /// Places buffers in this order, unless that can't better the best, or more than `most` bytes are missing.
    fn arrange(&mut self, order: &[usize], choice: Choice, most: u64) -> Option<Arranged> {
        if self.is_done() {
            return None;
        }
        let Self { buffers, page, counted, looks, .. } = self;
        let arranged = place_in(buffers, order, choice, *page, most, *counted, looks)?;
        if arranged.placement.bytes < self.best.bytes {
            self.best = arranged.placement.clone();
        }
        Some(arranged)
    }

    /// Arranges a few times again, where what found no room in this order's arrangement is placed before its neighbours: as
    /// long as that changes how much is missing.
    fn settle(&mut self, mut order: Vec<usize>, choice: Choice, mut arranged: Arranged) {
        let missed = |arranged: &Arranged| (arranged.missing, arranged.missed.len());
        while !arranged.missed.is_empty() && self.settled < SETTLED {
            self.settled += 1;
            for &missed in &arranged.missed {
                self.promote(&mut order, missed, choice);
            }
            let Some(again) = self.arrange(&order, choice, u64::MAX) else { break };
            if missed(&again) == missed(&arranged) {
                break;
            }
            arranged = again;
        }
    }

    /// Moves a buffer that hangs before the first other that does, is live together with it and about as shortly.
    fn promote(&self, order: &mut [usize], index: usize, choice: Choice) {
        let Choice::Ends(ends) = choice else { return };
        let steps = |buffer: &Buffer| buffer.death - buffer.birth + 1;
        let buffer = &self.buffers[index];
        let is_neighbour = |other: &Buffer| {
            let meets = other.birth <= buffer.death && buffer.birth <= other.death;
            meets && !other.is_live(ends.fullest) && steps(other) <= NEIGHBOURS * steps(buffer)
        };
        let neighbour = order.iter().position(|&other| is_neighbour(&self.buffers[other]));
        let at = order.iter().position(|&other| other == index);
        if let Some((to, at)) = neighbour.zip(at) {
            order[to.min(at)..=at].rotate_right(1);
        }
    }

    /// Over and over, whatever ends highest is placed earlier the next time, up to so many looks in all.
    fn improve(&mut self, mut order: Vec<usize>, choice: Choice, looks: usize) {
        for _ in 0..ROUNDS {
            if self.looks > looks {
                return;
            }
            let Some(Arranged { placement, .. }) = self.arrange(&order, choice, u64::MAX) else {
                return;
            };
            let ends = |index: usize| placement.offsets[index] + self.buffers[index].bytes;
            let highest = order.iter().position(|&index| ends(index) == placement.bytes);
            let Some(at) = highest else { return };
            let moved = order.remove(at);
            // Half way forward: a large step for what came late, and in the end the front.
            order.insert(at / 2, moved);
        }
    }
}

impl Order {
    fn sorted(self, buffers: &[Buffer]) -> Vec<usize> {
        let mut order: Vec<usize> = (0..buffers.len()).collect();
        let length = |b: &Buffer| (b.death - b.birth + 1) as u64;
        order.sort_by_key(|&index| {
            let b = &buffers[index];
            let first = match self {
                Order::Size => u64::MAX - b.bytes,
                Order::Area => u64::MAX - b.bytes.saturating_mul(length(b)),
                Order::Lifetime => u64::MAX - length(b),
                Order::Birth => b.birth as u64,
            };
            (first, u64::MAX - b.bytes, b.birth, index)
        });
        order
    }
}

/// An order's arrangement.
struct Arranged {
    placement: Placement,
    /// Bytes by which the ceiling was too low for a buffer.
    missing: u64,
    /// The buffers that it was too low for.
    missed: Vec<usize>,
}

/// Places buffers one by one, each in a gap between those placed before or above them. `None` once more than `most` bytes
/// are missing below the ceiling.
fn place_in(
    buffers: &[Buffer],
    order: &[usize],
    choice: Choice,
    page: Page,
    most: u64,
    counted: bool,
    looks: &mut usize,
) -> Option<Arranged> {
    let mut offsets = vec![0; buffers.len()];
    let mut map = Map::new(buffers, counted);
    let (mut bytes, mut missing, mut missed) = (0, 0, vec![]);
    // The end of all buffers, as long as they are live at one step and lie on each other without a gap.
    let stacked = if let Choice::Ends(ends) = choice { ends.fullest } else { 0 };
    let mut top = Some(0);
    for (placed, &index) in order.iter().enumerate() {
        let buffer = &buffers[index];
        let (want, ceiling) = match choice {
            Choice::First => (Want::Lowest, u64::MAX),
            Choice::Best => (Want::Tightest, u64::MAX),
            Choice::Ends(ends) if ends.hangs(buffer) => (Want::Highest, ends.ceiling),
            Choice::Ends(ends) => (Want::Lowest, ends.ceiling),
        };
        let wanted = Gap { bytes: buffer.bytes, want, ceiling, page };
        let found = match (top.filter(|_| buffer.is_live(stacked)), &mut map) {
            (Some(top), _) => wanted.find(top, iter::empty()),
            (None, Map::Tree(tree)) => {
                // Lists have all that was placed, and of what is short an unknown part.
                *looks += if is_short(buffer) { 0 } else { placed };
                wanted.find_among(tree.during(buffer))
            }
            (None, Map::Lists(lists)) => {
                let neighbours = lists.neighbours(buffer);
                *looks += neighbours.len();
                wanted.find(0, neighbours.iter().filter_map(|other| other.taken_during(buffer)))
            }
        };
        let offset = found.unwrap_or_else(|full| {
            missing = missing.max(full.missing);
            missed.push(index);
            full.above
        });
        if missing > most {
            return None;
        }
        offsets[index] = offset;
        let end = offset + buffer.bytes;
        bytes = bytes.max(end);
        map.insert(buffer, (offset, end));
        let on_top = |&top: &u64| offset == top && buffer.is_live(stacked);
        top = top.filter(on_top).map(|_| end);
    }
    Some(Arranged { placement: Placement { offsets, bytes }, missing, missed })
}

#[cfg(test)]
mod tests {
    use super::super::buffer::live_bytes;
    use super::super::buffer::tests::random_buffers;
    use super::*;

    #[test]
    fn live_buffers_never_overlap() {
        for seed in 0..50 {
            let buffers = random_buffers(seed, 120, 60);
            let bound = live_bytes(&buffers, 60).into_iter().max().unwrap_or(0);
            let placement = place(&buffers, bound, Page::UNCUT);
            assert!(placement.bytes >= bound);
            assert!(placement.bytes as f64 <= bound as f64 * 1.15, "far from the bound");
            for (i, a) in buffers.iter().enumerate() {
                for (j, b) in buffers.iter().enumerate().skip(i + 1) {
                    let in_time = a.birth <= b.death && b.birth <= a.death;
                    let (x, y) = (placement.offsets[i], placement.offsets[j]);
                    assert!(
                        !in_time || x + a.bytes <= y || y + b.bytes <= x,
                        "{i} and {j} overlap"
                    );
                }
            }
        }
    }

    #[test]
    fn no_buffer_lies_across_a_cut() {
        let page = Page { base: 256 * 5, bytes: 256 * 70 };
        for seed in 0..50 {
            let buffers = random_buffers(seed, 120, 60);
            let bound = live_bytes(&buffers, 60).into_iter().max().unwrap_or(0);
            for (buffer, offset) in buffers.iter().zip(place(&buffers, bound, page).offsets) {
                let (start, end) = (page.base + offset, page.base + offset + buffer.bytes);
                assert_eq!(start / page.bytes, (end - 1) / page.bytes);
            }
        }
    }

    #[test]
    fn nothing_to_place_needs_nothing() {
        assert_eq!(place(&[], 0, Page::UNCUT).bytes, 0);
    }

    #[test]
    fn live_bytes_count_both_ends() {
        let buffers =
            [Buffer { bytes: 3, birth: 0, death: 1 }, Buffer { bytes: 5, birth: 1, death: 1 }];
        assert_eq!(live_bytes(&buffers, 3), [3, 8, 0]);
    }
}
