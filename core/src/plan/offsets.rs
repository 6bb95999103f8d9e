//! Offsets: dynamic storage allocation for buffers whose lifetimes are known.
//!
//! Eight greedy variants (four orders × first or best fit) are run and the best is kept. No arrangement can
//! be smaller than the largest sum of live bytes, so that bound tells how good the best one is. For uniform
//! transformer graphs it's met exactly.

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

/// Rounds of the search that follows the greedy variants where they leave a gap, and how often all of them may look at
/// a placed buffer. Fixed numbers, so that the same buffers always get the same places; the second is a fraction of
/// a second's work.
const ROUNDS: usize = 60;
const LOOKS: usize = 20_000_000;

/// The best of the eight variants, improved by a search where it takes more than `enough` bytes, which is at least
/// the largest sum of live bytes.
pub fn place(buffers: &[Buffer], enough: u64, page: Page) -> Placement {
    let mut best = Placement { offsets: vec![], bytes: u64::MAX };
    let orders = [Order::Size, Order::Area, Order::Lifetime, Order::Birth];
    let mut looks = 0;
    for order in orders {
        for best_fit in [false, true] {
            let placed = place_in(buffers, &order.sorted(buffers), best_fit, page, &mut looks);
            if placed.bytes < best.bytes {
                best = placed;
            }
            if best.bytes <= enough {
                return best;
            }
        }
    }
    looks = 0;
    for order in orders {
        improve(buffers, &mut best, order.sorted(buffers), enough, page, &mut looks);
    }
    best
}

/// Buffers that are live at the fullest step come first, since together they leave no room there. Then,
/// over and over, whatever ends highest is placed earlier the next time. The best is kept.
fn improve(
    buffers: &[Buffer],
    best: &mut Placement,
    mut order: Vec<usize>,
    enough: u64,
    page: Page,
    looks: &mut usize,
) {
    let steps = buffers.iter().map(|buffer| buffer.death + 1).max().unwrap_or(0);
    let live = live_bytes(buffers, steps);
    let most = live.iter().copied().max();
    let fullest = live.iter().rposition(|&bytes| Some(bytes) == most).unwrap_or(0);
    order.sort_by_key(|&index| !(buffers[index].birth..=buffers[index].death).contains(&fullest));
    for _ in 0..ROUNDS {
        if best.bytes <= enough || *looks > LOOKS {
            return;
        }
        let placed = place_in(buffers, &order, false, page, looks);
        let ends = |index: usize| placed.offsets[index] + buffers[index].bytes;
        let Some(at) = order.iter().position(|&index| ends(index) == placed.bytes) else { return };
        let moved = order.remove(at);
        // Half way forward: a large step for what came late, and in the end the front.
        order.insert(at / 2, moved);
        if placed.bytes < best.bytes {
            *best = placed;
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

/// Places buffers one by one, each at the first or the tightest gap between those placed before.
fn place_in(
    buffers: &[Buffer],
    order: &[usize],
    best_fit: bool,
    page: Page,
    looks: &mut usize,
) -> Placement {
    let mut offsets = vec![0; buffers.len()];
    let mut map = Map::new(buffers);
    let mut end = 0;
    for &index in order {
        let buffer = &buffers[index];
        let (mut cursor, mut chosen, mut tightest) = (0, None, u64::MAX);
        let beside = map.beside(buffer);
        *looks += beside.len();
        for &(offset, other) in beside {
            let other = &buffers[other];
            if other.death < buffer.birth || buffer.death < other.birth {
                continue;
            }
            let start = page.fit(cursor, buffer.bytes);
            let gap = offset.saturating_sub(start);
            if gap >= buffer.bytes && gap < tightest {
                chosen = Some(start);
                tightest = gap;
                if !best_fit {
                    break;
                }
            }
            cursor = cursor.max(offset + other.bytes);
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
