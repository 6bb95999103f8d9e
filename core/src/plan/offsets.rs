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

/// In which order buffers are placed, and which gap each takes.
#[derive(Clone, Copy, Debug)]
struct Variant {
    order: Order,
    best_fit: bool,
}

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

/// The best of the eight variants; stops at one that meets `lower_bound`.
pub fn place(buffers: &[Buffer], lower_bound: u64) -> Placement {
    let mut best: Option<Placement> = None;
    for order in [Order::Size, Order::Area, Order::Lifetime, Order::Birth] {
        for best_fit in [false, true] {
            let placed = greedy(buffers, Variant { order, best_fit });
            if best.as_ref().is_none_or(|best| placed.bytes < best.bytes) {
                best = Some(placed);
            }
            if best.as_ref().is_some_and(|best| best.bytes <= lower_bound) {
                break;
            }
        }
    }
    best.unwrap_or(Placement { offsets: vec![], bytes: 0 })
}

fn greedy(buffers: &[Buffer], variant: Variant) -> Placement {
    let mut order: Vec<usize> = (0..buffers.len()).collect();
    let length = |b: &Buffer| (b.death - b.birth + 1) as u64;
    order.sort_by_key(|&index| {
        let b = &buffers[index];
        let first = match variant.order {
            Order::Size => u64::MAX - b.bytes,
            Order::Area => u64::MAX - b.bytes.saturating_mul(length(b)),
            Order::Lifetime => u64::MAX - length(b),
            Order::Birth => b.birth as u64,
        };
        (first, u64::MAX - b.bytes, b.birth, index)
    });
    let mut offsets = vec![0; buffers.len()];
    // Placed buffers by rising offset, so that gaps are found in one sweep.
    let mut placed: Vec<(u64, usize)> = Vec::with_capacity(buffers.len());
    let mut end = 0;
    for index in order {
        let buffer = &buffers[index];
        let (mut cursor, mut chosen, mut tightest) = (0, None, u64::MAX);
        for &(offset, other) in &placed {
            let other = &buffers[other];
            if other.death < buffer.birth || buffer.death < other.birth {
                continue;
            }
            let gap = offset.saturating_sub(cursor);
            if gap >= buffer.bytes && gap < tightest {
                chosen = Some(cursor);
                tightest = gap;
                if !variant.best_fit {
                    break;
                }
            }
            cursor = cursor.max(offset + other.bytes);
        }
        let offset = chosen.unwrap_or(cursor);
        offsets[index] = offset;
        end = end.max(offset + buffer.bytes);
        let at = placed.partition_point(|&(other, _)| other <= offset);
        placed.insert(at, (offset, index));
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
            let placement = place(&buffers, bound);
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
    fn nothing_to_place_needs_nothing() {
        assert_eq!(place(&[], 0).bytes, 0);
    }

    #[test]
    fn live_bytes_count_both_ends() {
        let buffers =
            [Buffer { bytes: 3, birth: 0, death: 1 }, Buffer { bytes: 5, birth: 1, death: 1 }];
        assert_eq!(live_bytes(&buffers, 3), [3, 8, 0]);
    }
}
