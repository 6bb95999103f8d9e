//! Offsets: dynamic storage allocation for buffers whose lifetimes are known.
//!
//! No arrangement can be smaller than the largest sum of live bytes, so that bound tells how good one is. A training
//! step fills up with activations and empties again while gradients take their place: two stacks that grow towards
//! each other, activations from the bottom and gradients from the top, meet the bound or all but do. Where they don't,
//! eight greedy variants (four orders × first or best fit) are run too and then a search, and the best is kept.

/// A buffer to place: bytes, and the steps in which it's live, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// Size, a multiple of the alignment.
    pub bytes: u64,
    /// First step that needs it.
    pub birth: usize,
    /// Last step that needs it.
    pub death: usize,
}

impl Buffer {
    fn is_live(&self, step: usize) -> bool {
        (self.birth..=self.death).contains(&step)
    }
}

/// Where buffers were placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Offset of each buffer.
    pub offsets: Vec<u64>,
    /// End of the highest buffer.
    pub bytes: u64,
}

/// Cuts that no buffer may lie across: multiples of `bytes` in an arena that these buffers follow `base`
/// bytes into.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    /// Arena offset of the first buffer.
    pub base: u64,
    /// Bytes between two cuts.
    pub bytes: u64,
}

impl Page {
    /// No cuts.
    pub const UNCUT: Self = Self { base: 0, bytes: u64::MAX };

    /// The first offset from `offset` on at which `size` bytes lie across no cut; buffers larger than a page
    /// lie across some whatever their offset, and start at one.
    fn fit(self, offset: u64, size: u64) -> u64 {
        let (start, last) = (self.base + offset, self.base + offset + size.saturating_sub(1));
        if start / self.bytes == last / self.bytes {
            offset
        } else {
            start.next_multiple_of(self.bytes) - self.base
        }
    }

    /// The last offset at which `size` bytes end at `end` or before and lie across no cut.
    fn fit_below(self, end: u64, size: u64) -> Option<u64> {
        let start = self.base + end.checked_sub(size)?;
        let cut = (self.base + end.saturating_sub(1)) / self.bytes * self.bytes;
        let start = match () {
            () if start >= cut => start,
            () if size <= self.bytes => cut - size,
            () => start / self.bytes * self.bytes,
        };
        start.checked_sub(self.base)
    }
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
        let short = 2 * (buffer.death - buffer.birth) <= self.last - buffer.birth;
        let lies = self.low && short && buffer.birth > self.fullest;
        !(lies || buffer.is_live(self.fullest))
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

/// Live bytes at every step; the largest is the lower bound of any placement.
pub fn live_bytes(buffers: &[Buffer], steps: usize) -> Vec<u64> {
    let mut change = vec![0i64; steps + 1];
    for buffer in buffers {
        change[buffer.birth] += buffer.bytes as i64;
        change[buffer.death + 1] -= buffer.bytes as i64;
    }
    let mut live = 0;
    change[..steps]
        .iter()
        .map(|step| {
            live += step;
            live as u64
        })
        .collect()
}

/// Rounds of a search for a better order, and how often all searches together may look at a placed buffer. Fixed
/// numbers, so that the same buffers always get the same places; the second is some hundredths of a second's work.
const ROUNDS: usize = 60;
const LOOKS: usize = 3_000_000;
/// Most arrangements that are each stacked around a step.
const TRIES: usize = 8;
/// What is as good as the most live bytes, once they were not enough: above them by one in so many.
const SLACK: u64 = 65_536;
/// Part of the most live bytes that makes a step a full one.
const NEARLY: f64 = 0.98;
/// Times what is enough from which on the greedy variants may better an arrangement.
const FAR: f64 = 1.05;

/// The best arrangement that was found. `enough` bytes, at least the largest sum of live bytes, are as good as fewer.
pub fn place(buffers: &[Buffer], enough: u64, page: Page) -> Placement {
    let best = Placement { offsets: vec![], bytes: u64::MAX };
    let mut search = Arrangements { buffers, enough, page, looks: 0, best };
    // What is live at the fullest step is stacked from the bottom, what lives longest around it lowest, so that it
    // leaves from the top. Everything else is before or after and hangs from the ceiling, the long-lived highest: in
    // a backward pass gradients fill from the top what activations leave.
    let around = |order: Order, step: usize| {
        let mut order = order.sorted(buffers);
        order.sort_by_key(|&index| !buffers[index].is_live(step));
        order
    };
    let full = Full::of(buffers);
    let (first, fullest) = (full.first(), full.fullest());
    let mut best: Option<(u64, Vec<usize>, Choice)> = None;
    let mut tries =
        vec![(fullest, false), (fullest, true), (first, true), (first, false), (first, true)];
    let exact = tries.len() - 1;
    let mut next = 0;
    while let Some(&(step, low)) = tries.get(next) {
        next += 1;
        if next > exact {
            search.enough = enough + full.slack(buffers);
        }
        let last = full.live.len().saturating_sub(1);
        let choice = Choice::Ends(Ends { fullest: step, last, ceiling: search.enough, low });
        let order = around(Order::Lifetime, step);
        search.arrange(&order, choice);
        if best.as_ref().is_none_or(|&(bytes, ..)| search.best.bytes < bytes) {
            best = Some((search.best.bytes, order, choice));
        }
        // What is too high shows which step to stack around instead.
        let more = next == tries.len() && next < TRIES;
        if let Some(step) = search.too_high(&full.live).filter(|_| more)
            && tries.iter().all(|&(known, _)| known != step)
        {
            tries.push((step, true));
        }
    }
    if let Some((_, order, choice)) = best {
        search.improve(order, choice, LOOKS / 2);
    }
    let orders = [Order::Size, Order::Area, Order::Lifetime, Order::Birth];
    for order in orders {
        for choice in [Choice::First, Choice::Best] {
            if search.looks <= LOOKS || search.is_far() {
                search.arrange(&order.sorted(buffers), choice);
            }
        }
    }
    for order in orders {
        search.improve(around(order, fullest), Choice::First, LOOKS);
    }
    search.best
}

/// Live bytes by step.
struct Full {
    live: Vec<u64>,
    most: u64,
}

impl Full {
    fn of(buffers: &[Buffer]) -> Self {
        let steps = buffers.iter().map(|buffer| buffer.death + 1).max().unwrap_or(0);
        let live = live_bytes(buffers, steps);
        Self { most: live.iter().copied().max().unwrap_or(0), live }
    }

    /// A small part of the most bytes, as aligned as buffers are: what small ones leave unused here and there shall not
    /// make an arrangement too high by a large one.
    fn slack(&self, buffers: &[Buffer]) -> u64 {
        let aligned = buffers.iter().fold(0, |all, buffer| all | buffer.bytes).trailing_zeros();
        (self.most / SLACK).next_multiple_of(1_u64.checked_shl(aligned).unwrap_or(1))
    }

    /// The last step with the most.
    fn fullest(&self) -> usize {
        self.live.iter().rposition(|&bytes| bytes == self.most).unwrap_or(0)
    }

    /// The first step with [`NEARLY`] as many.
    fn first(&self) -> usize {
        let nearly = |&bytes: &u64| bytes as f64 >= NEARLY * self.most as f64;
        self.live.iter().position(nearly).unwrap_or(0)
    }
}

/// Arrangements tried of the same buffers.
struct Arrangements<'a> {
    buffers: &'a [Buffer],
    enough: u64,
    page: Page,
    /// Placed buffers that were looked at.
    looks: usize,
    best: Placement,
}

impl Arrangements<'_> {
    /// The fullest step of the buffers that end higher in the best than is enough.
    fn too_high(&self, live: &[u64]) -> Option<usize> {
        let placed = self.buffers.iter().zip(&self.best.offsets);
        let high = placed.filter(|(buffer, offset)| **offset + buffer.bytes > self.enough);
        high.flat_map(|(buffer, _)| buffer.birth..=buffer.death).max_by_key(|&step| live[step])
    }

    /// Whether the best is [`FAR`] from what is enough.
    fn is_far(&self) -> bool {
        self.best.bytes as f64 > FAR * self.enough as f64
    }

    /// Places buffers in this order, unless that can't better the best. What ends highest.
    fn arrange(&mut self, order: &[usize], choice: Choice) -> Option<usize> {
        if self.best.bytes <= self.enough {
            return None;
        }
        let placed = place_in(self.buffers, order, choice, self.page, &mut self.looks);
        let ends = |index: usize| placed.offsets[index] + self.buffers[index].bytes;
        let highest = order.iter().position(|&index| ends(index) == placed.bytes);
        if placed.bytes < self.best.bytes {
            self.best = placed;
        }
        highest
    }

    /// Over and over, whatever ends highest is placed earlier the next time, up to so many looks in all.
    fn improve(&mut self, mut order: Vec<usize>, choice: Choice, looks: usize) {
        for _ in 0..ROUNDS {
            if self.looks > looks {
                return;
            }
            let Some(at) = self.arrange(&order, choice) else { return };
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

/// Offset and index of a placed buffer.
type Placed = (u64, usize);

/// Steps of a window.
const WINDOW: usize = 64;

/// Placed buffers by rising offset, so that gaps are found in one sweep: all of them, and those live in each window
/// of steps, since most buffers live so shortly that few others matter.
struct Map {
    all: Vec<Placed>,
    windows: Vec<Vec<Placed>>,
}

impl Map {
    fn new(buffers: &[Buffer]) -> Self {
        let windows = buffers.iter().map(|b| b.death / WINDOW + 1).max().unwrap_or(0);
        Self { all: Vec::with_capacity(buffers.len()), windows: vec![vec![]; windows] }
    }

    /// All that may be live together with `buffer`.
    fn beside(&self, buffer: &Buffer) -> &[Placed] {
        let window = buffer.birth / WINDOW;
        if buffer.death / WINDOW == window { &self.windows[window] } else { &self.all }
    }

    fn insert(&mut self, buffer: &Buffer, placed: Placed) {
        let own = buffer.birth / WINDOW..=buffer.death / WINDOW;
        for list in self.windows[own].iter_mut().chain([&mut self.all]) {
            let at = list.partition_point(|&(offset, _)| offset <= placed.0);
            list.insert(at, placed);
        }
    }
}

/// Places buffers one by one, each in a gap between those placed before or above them.
fn place_in(
    buffers: &[Buffer],
    order: &[usize],
    choice: Choice,
    page: Page,
    looks: &mut usize,
) -> Placement {
    let mut offsets = vec![0; buffers.len()];
    let mut map = Map::new(buffers);
    let mut end = 0;
    for &index in order {
        let buffer = &buffers[index];
        let from_top = match choice {
            Choice::Ends(ends) if ends.hangs(buffer) => Some(ends.ceiling),
            _ => None,
        };
        let (mut cursor, mut chosen, mut tightest) = (0, None, u64::MAX);
        let beside = map.beside(buffer);
        *looks += beside.len();
        for &(offset, other) in beside {
            let other = &buffers[other];
            if other.death < buffer.birth || buffer.death < other.birth {
                continue;
            }
            if let Some(ceiling) = from_top {
                let place = page.fit_below(offset.min(ceiling), buffer.bytes);
                chosen = place.filter(|&start| start >= cursor).or(chosen);
            } else {
                let start = page.fit(cursor, buffer.bytes);
                let gap = offset.saturating_sub(start);
                if gap >= buffer.bytes && gap < tightest {
                    chosen = Some(start);
                    tightest = gap;
                    if !matches!(choice, Choice::Best) {
                        break;
                    }
                }
            }
            cursor = cursor.max(offset + other.bytes);
        }
        if let Some(ceiling) = from_top {
            let place = page.fit_below(ceiling, buffer.bytes);
            chosen = place.filter(|&start| start >= cursor).or(chosen);
        }
        let offset = chosen.unwrap_or_else(|| page.fit(cursor, buffer.bytes));
        offsets[index] = offset;
        end = end.max(offset + buffer.bytes);
        map.insert(buffer, (offset, index));
    }
    Placement { offsets, bytes: end }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random_buffers(seed: u32, count: usize, steps: usize) -> Vec<Buffer> {
        let draw = |stream, i| crate::ops::uniform([seed, 0, 0, 0], stream, i as u64);
        (0..count)
            .map(|i| {
                let birth = (draw(0, i) * steps as f64) as usize;
                let length = (draw(1, i).powi(3) * (steps - birth) as f64) as usize;
                Buffer {
                    bytes: 256 * (1 + (draw(2, i) * 64.0) as u64),
                    birth,
                    death: birth + length,
                }
            })
            .collect()
    }

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
