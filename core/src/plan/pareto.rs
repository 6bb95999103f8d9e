//! Which choice each block takes: the plans that no other betters in bytes and seconds.
//!
//! While a block runs, forward or backward, the blocks before it hold what they keep, and those after it hold nothing.
//! So with P(b) the most live bytes from the first step of block b to its last, as though the blocks before it dropped
//! nothing,
//!
//!   P(b) = max(own peak of the choice, P(b + 1) − bytes that the choice saves)
//!
//! and seconds add up. Both only grow with those of the later blocks, so the best plans of all blocks consist of
//! best plans of the last ones (Bellman): a list of them grows block by block, from the last to the first.

/// What a choice of a block comes to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Item {
    /// Most live bytes at the block's own steps, where no block before it drops anything.
    pub peak: u64,
    /// Bytes that the block holds no longer from forward to backward.
    pub saved: u64,
    /// Recomputation.
    pub seconds: f64,
    /// Bytes that the device keeps for ops that run again.
    pub parameters: u64,
}

/// Cells of bytes in which the fastest plan alone is kept, and the smallest of all, once there are more plans: so many
/// in all blocks' lists together, and in one of them.
const CELLS: usize = 24_576;
const FEWEST: usize = 384;
const MOST: usize = 4096;

/// A plan of the last blocks.
#[derive(Clone, Copy, Debug)]
struct Label {
    peak: u64,
    parameters: u64,
    seconds: f64,
    /// The choice of its first block.
    item: u32,
    /// The plan of the blocks after it.
    rest: u32,
}

impl Label {
    fn bytes(&self) -> u64 {
        self.peak + self.parameters
    }

    /// Fastest first, of equals the smallest.
    fn order(&self) -> (f64, u64) {
        (self.seconds, self.bytes())
    }
}

/// The plans of all blocks, fastest first: each takes fewer bytes than the one before.
pub struct ParetoFront {
    /// Plans of the last blocks, by the first of them.
    lists: Vec<Vec<Label>>,
}

impl ParetoFront {
    /// Of blocks with these choices, the first of which drops nothing. `gaps[n]` bytes are live besides at steps where
    /// the first n blocks hold what they keep.
    pub fn new(blocks: &[Vec<Item>], gaps: &[u64]) -> Self {
        let cells = cells(blocks.len());
        let end = gaps[blocks.len()];
        let last = Label { peak: end, parameters: 0, seconds: 0.0, item: 0, rest: 0 };
        let mut lists = vec![vec![last]];
        for (block, (items, &gap)) in blocks.iter().zip(gaps).enumerate().rev() {
            let grown = Grown { items, gap, rest: &lists[lists.len() - 1] };
            // The plans of all blocks go on to nothing.
            lists.push(grown.best(if block > 0 { cells } else { usize::MAX }));
        }
        lists.reverse();
        Self { lists }
    }

    /// How many plans there are.
    pub fn count(&self) -> usize {
        self.lists[0].len()
    }

    /// The first plan that takes at most so many bytes; the number of plans where none does.
    pub fn first_within(&self, bytes: u64) -> usize {
        self.lists[0].partition_point(|label| label.bytes() > bytes)
    }

    /// Bytes of a plan.
    pub fn bytes(&self, plan: usize) -> u64 {
        self.lists[0][plan].bytes()
    }

    /// The choice of each block in a plan.
    pub fn choices(&self, plan: usize) -> Vec<usize> {
        let mut index = plan;
        let blocks = self.lists.iter().take(self.lists.len() - 1);
        blocks
            .map(|list| {
                let label = list[index];
                index = label.rest as usize;
                label.item as usize
            })
            .collect()
    }
}

/// No plan of these blocks takes fewer bytes, as of [`ParetoFront::new`].
pub fn fewest_bytes(blocks: &[Vec<Item>], gaps: &[u64]) -> u64 {
    let backwards = blocks.iter().zip(gaps).rev();
    backwards.fold(gaps[blocks.len()], |rest, (items, &gap)| {
        let peak = |item: &Item| rest.saturating_sub(item.saved).max(item.peak).max(gap);
        items.iter().map(peak).min().unwrap_or(rest)
    })
}

/// How many cells a list has where there are so many blocks.
pub fn cells(blocks: usize) -> usize {
    (CELLS / blocks.max(1)).clamp(FEWEST, MOST)
}

/// Every choice of a block with every plan of the blocks after it.
struct Grown<'a> {
    items: &'a [Item],
    /// Bytes that are live besides before the block.
    gap: u64,
    rest: &'a [Label],
}

impl Grown<'_> {
    /// Takes every label.
    fn each(&self, mut take: impl FnMut(Label)) {
        for (item, choice) in self.items.iter().enumerate() {
            let least = choice.peak.max(self.gap);
            for (index, label) in self.rest.iter().enumerate() {
                let peak = label.peak.saturating_sub(choice.saved);
                take(Label {
                    peak: peak.max(least),
                    parameters: label.parameters + choice.parameters,
                    seconds: label.seconds + choice.seconds,
                    item: item as u32,
                    rest: index as u32,
                });
                // Slower ones take no fewer bytes.
                if peak <= least {
                    break;
                }
            }
        }
    }

    /// About the fewest and the most bytes of a label.
    fn range(&self) -> [u64; 2] {
        let ends = || self.rest.first().into_iter().chain(self.rest.last());
        let bytes = |(choice, label): (&Item, &Label)| {
            let peak = label.peak.saturating_sub(choice.saved);
            peak.max(choice.peak).max(self.gap) + label.parameters + choice.parameters
        };
        let all = || self.items.iter().flat_map(|item| ends().map(move |label| (item, label)));
        let (least, most) = (all().map(bytes).min(), all().map(bytes).max());
        [least.unwrap_or(0), most.unwrap_or(0)]
    }

    /// The plans that no other betters, fastest first; where there are more than there are cells, the fastest alone of
    /// those in one cell, and the smallest of all, so that no seconds decide how small a plan can be.
    fn best(&self, cells: usize) -> Vec<Label> {
        let mut labels: Vec<Label> = vec![];
        let by_bytes =
            |a: &Label, b: &Label| a.bytes().cmp(&b.bytes()).then(a.seconds.total_cmp(&b.seconds));
        if self.items.len().saturating_mul(self.rest.len()) <= cells {
            self.each(|label| labels.push(label));
            labels.sort_by(by_bytes);
        } else {
            let [least, most] = self.range();
            let scale = cells as f64 / (most - least + 1) as f64;
            let mut fastest: Vec<Option<Label>> = vec![None; cells];
            let mut smallest: Option<Label> = None;
            self.each(|label| {
                let cell = (label.bytes().saturating_sub(least) as f64 * scale) as usize;
                let place = &mut fastest[cell.min(cells - 1)];
                if place.is_none_or(|known| label.order() < known.order()) {
                    *place = Some(label);
                }
                if smallest.is_none_or(|known| by_bytes(&label, &known).is_lt()) {
                    smallest = Some(label);
                }
            });
            labels.extend(smallest.into_iter().chain(fastest.into_iter().flatten()));
        }
        let mut quickest = f64::INFINITY;
        labels.retain(|label| {
            let better = label.seconds < quickest;
            quickest = quickest.min(label.seconds);
            better
        });
        labels.reverse();
        labels
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draw(seed: u32, stream: u32, most: u64) -> u64 {
        (crate::ops::uniform([seed, 0, 0, 0], 0, u64::from(stream)) * most as f64) as u64
    }

    /// Bytes and seconds of a plan, step by step.
    fn simulated(blocks: &[Vec<Item>], gaps: &[u64], choices: &[usize]) -> (u64, f64) {
        let (mut peak, mut saved, mut seconds, mut parameters) = (gaps[0], 0, 0.0, 0);
        for (block, (items, &choice)) in blocks.iter().zip(choices).enumerate() {
            let item = items[choice];
            peak = peak.max(item.peak.saturating_sub(saved));
            saved += item.saved;
            peak = peak.max(gaps[block + 1].saturating_sub(saved));
            seconds += item.seconds;
            parameters += item.parameters;
        }
        (peak + parameters, seconds)
    }

    #[test]
    fn no_plan_betters_one_of_the_list() {
        const CHOICES: usize = 5;
        for seed in 0..20 {
            let mut stream = 0;
            let mut next = |most| {
                stream += 1;
                draw(seed, stream, most)
            };
            let nothing = |peak| Item { peak, saved: 0, seconds: 0.0, parameters: 0 };
            let mut item = |choice| match choice {
                0 => nothing(1000),
                _ => Item {
                    peak: 900 + next(150),
                    saved: next(200),
                    seconds: (1 + next(40)) as f64,
                    parameters: 0,
                },
            };
            let blocks: Vec<Vec<Item>> =
                (0..4).map(|_| (0..CHOICES).map(&mut item).collect()).collect();
            let gaps: Vec<u64> = (0..5).map(|n| 500 + 150 * n).collect();
            let front = ParetoFront::new(&blocks, &gaps);
            let all: Vec<(u64, f64)> = (0..CHOICES.pow(4))
                .map(|number| {
                    let choices = (0..4).map(|b| number / CHOICES.pow(b) % CHOICES);
                    simulated(&blocks, &gaps, &choices.collect::<Vec<_>>())
                })
                .collect();
            for plan in 0..front.count() {
                let (bytes, seconds) = simulated(&blocks, &gaps, &front.choices(plan));
                assert_eq!(front.first_within(bytes), plan);
                let fits = all.iter().filter(|other| other.0 <= bytes);
                assert!(fits.clone().all(|other| other.1 >= seconds), "{bytes} bytes, {seconds} s");
            }
            let fewest = all.iter().map(|other| other.0).min().expect("plans");
            assert_eq!(fewest_bytes(&blocks, &gaps), fewest);
            assert_eq!(front.first_within(fewest), front.count() - 1);
        }
    }

    #[test]
    fn the_list_of_many_blocks_stays_short_and_near_the_best() {
        // Ten units of a thousand bytes each, the next always dearer than the one before.
        let item = |units: u64| Item {
            peak: 1_000_000,
            saved: 1000 * units,
            seconds: (units * (units + 1)) as f64,
            parameters: 0,
        };
        let blocks = vec![(0..=10).map(item).collect::<Vec<_>>(); 60];
        let mut gaps = vec![0; 61];
        gaps[60] = 1_600_000;
        let front = ParetoFront::new(&blocks, &gaps);
        let longest = front.lists[1..].iter().map(Vec::len).max();
        assert!(longest.is_some_and(|longest| longest <= FEWEST.max(CELLS / 60) + 1));
        for part in 1..10 {
            // The first units of all blocks, then the second ones.
            let seconds: f64 = (1..=part).map(|unit| 60.0 * 2.0 * unit as f64).sum();
            let plan = front.first_within(1_600_000 - 60_000 * part);
            let choices = front.choices(plan);
            let found: f64 = choices.iter().map(|&choice| blocks[0][choice].seconds).sum();
            // Within one unit of one block.
            let unit = 2.0 * part as f64;
            assert!(found <= seconds + unit, "{found} s against {seconds} s");
        }
    }
}
