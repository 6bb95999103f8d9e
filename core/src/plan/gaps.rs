//! Room between placed buffers: those that may be live together with another, by rising offset, and the gaps that they
//! leave.

use std::iter;

use super::buffer::{Buffer, Page};
use super::taken::{Merged, Taken, Tree};

/// A placed buffer, or several that touch and are live as long as each other.
#[derive(Clone, Copy, Debug)]
pub struct Placed {
    pub offset: u64,
    pub end: u64,
    pub birth: usize,
    pub death: usize,
}

impl Placed {
    /// Its range, where it's live together with `buffer`.
    pub fn taken_during(&self, buffer: &Buffer) -> Option<Taken> {
        let meets = self.birth <= buffer.death && buffer.birth <= self.death;
        meets.then_some((self.offset, self.end))
    }
}

/// Placed buffers, of which those are found that may be live together with another.
pub enum Map {
    /// For any number of buffers.
    Tree(Tree),
    /// For few, and to count how many others are looked at.
    Lists(Lists),
}

impl Map {
    /// Of none of these buffers yet, in lists where these are `counted`.
    pub fn new(buffers: &[Buffer], counted: bool) -> Self {
        match counted {
            true => Self::Lists(Lists::new(buffers)),
            false => Self::Tree(Tree::new(buffers)),
        }
    }

    /// Takes up a buffer in its place.
    pub fn insert(&mut self, buffer: &Buffer, (offset, end): Taken) {
        let Buffer { birth, death, .. } = *buffer;
        match self {
            Self::Tree(tree) => tree.insert(buffer, (offset, end)),
            Self::Lists(lists) => lists.insert(Placed { offset, end, birth, death }),
        }
    }
}

/// Steps of a window.
const WINDOW: usize = 64;

/// Whether a buffer lives in one window of steps alone.
pub fn is_short(buffer: &Buffer) -> bool {
    buffer.birth / WINDOW == buffer.death / WINDOW
}

/// Placed buffers by rising offset, so that gaps are found in one sweep: all of them, and those live in each window
/// of steps, since most buffers live so shortly that few others matter.
pub struct Lists {
    all: Vec<Placed>,
    windows: Vec<Vec<Placed>>,
}

impl Lists {
    fn new(buffers: &[Buffer]) -> Self {
        let windows = buffers.iter().map(|b| b.death / WINDOW + 1).max().unwrap_or(0);
        let all = Vec::with_capacity(buffers.len());
        Self { all, windows: vec![vec![]; windows] }
    }

    /// All that may be live together with `buffer`.
    pub fn neighbours(&self, buffer: &Buffer) -> &[Placed] {
        if is_short(buffer) { &self.windows[buffer.birth / WINDOW] } else { &self.all }
    }

    fn insert(&mut self, placed: Placed) {
        for window in placed.birth / WINDOW..=placed.death / WINDOW {
            let (first, last) = (window * WINDOW, (window + 1) * WINDOW - 1);
            let (birth, death) = (placed.birth.max(first), placed.death.min(last));
            let list = &mut self.windows[window];
            let at = insert(list, Placed { birth, death, ..placed });
            // What stays for a whole window is one with what touches it.
            merge(list, at, [first, last]);
        }
        insert(&mut self.all, placed);
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

/// A gap to find: for so many bytes, below the ceiling.
pub struct Gap {
    pub bytes: u64,
    pub want: Want,
    pub ceiling: u64,
    pub page: Page,
}

impl Gap {
    /// Its offset from `lowest` on, between what is taken, by rising offset.
    pub fn find(self, lowest: u64, taken: impl Iterator<Item = Taken>) -> Result<u64, NoGap> {
        let Self { bytes, want, ceiling, page } = self;
        let (mut cursor, mut chosen, mut tightest, mut largest) = (lowest, None, u64::MAX, 0);
        let ends = taken.map(|(offset, end)| (offset.min(ceiling), end)).chain([(ceiling, 0)]);
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

    /// As [`Gap::find`] from 0 on. The highest is looked for from above.
    pub fn find_among(self, mut taken: Merged<'_>) -> Result<u64, NoGap> {
        let Self { bytes, want, ceiling, page } = self;
        if want != Want::Highest {
            let mut cursor = 0;
            let rising = iter::from_fn(|| {
                let range = taken.above(cursor)?;
                cursor = range.1;
                Some(range)
            });
            return self.find(0, rising);
        }
        let (mut top, mut largest, end) = (ceiling, 0, taken.end());
        loop {
            let next = taken.below(top);
            let (offset, cursor) = next.unwrap_or_default();
            let room = top.saturating_sub(cursor);
            largest = largest.max(room);
            if room >= bytes
                && let Some(start) = page.fit_below(top, bytes).filter(|&start| start >= cursor)
            {
                return Ok(start);
            }
            if next.is_none() {
                let missing = bytes - largest.min(bytes);
                return Err(NoGap { above: page.fit(end, bytes), missing });
            }
            top = offset;
        }
    }
}
