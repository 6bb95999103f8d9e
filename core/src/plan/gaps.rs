//! Room between placed buffers: those that may be live together with another, by rising offset, and the gaps that they
//! leave.

use super::buffer::{Buffer, Page};

/// A placed buffer, or several that touch and are live as long as each other.
#[derive(Clone, Copy, Debug)]
pub struct Placed {
    pub offset: u64,
    pub end: u64,
    pub birth: usize,
    pub death: usize,
}

/// Steps of a window.
const WINDOW: usize = 64;

/// Placed buffers by rising offset, so that gaps are found in one sweep: all of them, and those live in each window
/// of steps, since most buffers live so shortly that few others matter.
pub struct Map {
    all: Vec<Placed>,
    windows: Vec<Vec<Placed>>,
    /// A step, and the end of all buffers, as long as they are live at that step and lie on each other without a gap.
    stacked: usize,
    top: Option<u64>,
}

impl Map {
    /// Of none of these buffers yet; those that are live at the step `stacked` may be a stack from the bottom.
    pub fn new(buffers: &[Buffer], stacked: usize) -> Self {
        let windows = buffers.iter().map(|b| b.death / WINDOW + 1).max().unwrap_or(0);
        let all = Vec::with_capacity(buffers.len());
        Self { all, windows: vec![vec![]; windows], stacked, top: Some(0) }
    }

    /// The first offset at which there may be room for `buffer`, and all from there on that may be live together with it.
    pub fn neighbours(&self, buffer: &Buffer) -> (u64, &[Placed]) {
        let window = buffer.birth / WINDOW;
        match self.top {
            Some(top) if buffer.is_live(self.stacked) => (top, &[]),
            _ if buffer.death / WINDOW == window => (0, &self.windows[window]),
            _ => (0, &self.all),
        }
    }

    /// Takes up a buffer in its place.
    pub fn insert(&mut self, placed: Placed) {
        for window in placed.birth / WINDOW..=placed.death / WINDOW {
            let (first, last) = (window * WINDOW, (window + 1) * WINDOW - 1);
            let (birth, death) = (placed.birth.max(first), placed.death.min(last));
            let list = &mut self.windows[window];
            let at = insert(list, Placed { birth, death, ..placed });
            // What stays for a whole window is one with what touches it.
            merge(list, at, [first, last]);
        }
        insert(&mut self.all, placed);
        let on_top = |&top: &u64| {
            placed.offset == top && (placed.birth..=placed.death).contains(&self.stacked)
        };
        self.top = self.top.filter(on_top).map(|_| placed.end);
    }
}

/// Inserts after all of no higher offset; where.
fn insert(list: &mut Vec<Placed>, placed: Placed) -> usize {
    let at = list.partition_point(|other| other.offset <= placed.offset);
    list.insert(at, placed);
    at
}

/// Makes one of what is at a place and its neighbours, where they touch and stay from the first to the last step.
fn merge(list: &mut Vec<Placed>, at: usize, steps: [usize; 2]) {
    for low in [at, at.wrapping_sub(1)] {
        if let Some(&[below, above]) = low.checked_add(1).and_then(|high| list.get(low..=high))
            && [below, above].iter().all(|placed| [placed.birth, placed.death] == steps)
            && below.end == above.offset
        {
            list[low].end = above.end;
            list.remove(low + 1);
        }
    }
}

/// Which gap a buffer takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    Lowest,
    Tightest,
    Highest,
}

/// No gap has room.
pub struct NoGap {
    /// The first offset above all.
    pub above: u64,
    /// Bytes that the largest gap is too small by.
    pub missing: u64,
}

/// The offset of a buffer from `lowest` to the ceiling, between others by rising offset of which some are live together
/// with it.
pub fn gap(
    lowest: u64,
    neighbours: &[Placed],
    buffer: &Buffer,
    want: Want,
    ceiling: u64,
    page: Page,
) -> Result<u64, NoGap> {
    let bytes = buffer.bytes;
    let (mut cursor, mut chosen, mut tightest, mut largest) = (lowest, None, u64::MAX, 0);
    let neighbours =
        neighbours.iter().filter(|it| it.birth <= buffer.death && buffer.birth <= it.death);
    let ends = neighbours.map(|other| (other.offset.min(ceiling), other.end)).chain([(ceiling, 0)]);
    for (top, end) in ends {
        let room = top.saturating_sub(cursor);
        largest = largest.max(room);
        if room >= bytes && want == Want::Highest {
            chosen = page.fit_below(top, bytes).filter(|&start| start >= cursor).or(chosen);
        } else if room >= bytes {
            let start = page.fit(cursor, bytes);
            let room = top.saturating_sub(start);
            if room >= bytes && want == Want::Lowest {
                return Ok(start);
            }
            if room >= bytes && room < tightest {
                (chosen, tightest) = (Some(start), room);
            }
        }
        cursor = cursor.max(end);
    }
    let full = || NoGap { above: page.fit(cursor, bytes), missing: bytes - largest.min(bytes) };
    chosen.ok_or_else(full)
}
