//! What is taken of an arena and when: the ranges that are taken during some steps, found in a few lists however many
//! buffers were placed.
//!
//! A tree stands over the steps, a leaf for some of them. A placed buffer is noted at the few nodes that together make up its
//! life, and above these as something that is there for a while. A node tells those below what they should know when one
//! of them is asked. So each knows all that is there during its steps, in which what touches is one range: stacks, of
//! which arenas consist, stay short lists.

use super::buffer::Buffer;

/// First offset and end.
pub type Taken = (u64, u64);

/// Births and deaths among the steps of a leaf, but where a single step has more.
const EVENTS: usize = 64;

/// The ranges that are taken, by step.
pub struct Tree {
    /// The leaf of each step.
    leaf_of: Vec<usize>,
    /// Leaves, a power of two. Node 1 is the root, node n is above nodes 2n and 2n + 1, and leaves come last.
    leaves: usize,
    nodes: Vec<Node>,
    /// What begins or ends among the steps of each leaf, by rising offset.
    parts: Vec<Vec<(Buffer, Taken)>>,
    /// What was taken at both ends of the life that was asked for last.
    found: [Ranges; 2],
}

/// A node of the tree, which stands for the steps of all leaves below it.
#[derive(Clone, Default)]
struct Node {
    /// Taken during one of its steps or more; what nodes above haven't told may be missing.
    taken: Ranges,
    /// Taken during all of its steps, and not told to the nodes below yet. A leaf has none below.
    untold: Ranges,
}

impl Tree {
    /// With none of these buffers taken up yet.
    pub fn new(buffers: &[Buffer]) -> Self {
        let steps = buffers.iter().map(|buffer| buffer.death + 1).max().unwrap_or(0);
        let mut events = vec![0; steps];
        for buffer in buffers {
            events[buffer.birth] += 1;
            events[buffer.death] += 1;
        }
        let (mut leaf, mut sum) = (0_usize, 0);
        let leaf_of = events.into_iter().map(|events| {
            sum += events;
            if sum > EVENTS && sum > events {
                (leaf, sum) = (leaf + 1, events);
            }
            leaf
        });
        let leaf_of = leaf_of.collect();
        let leaves = (leaf + 1).next_power_of_two();
        let (nodes, parts) = (vec![Node::default(); 2 * leaves], vec![vec![]; leaves]);
        Self { leaf_of, leaves, nodes, parts, found: Default::default() }
    }

    /// What is taken at some step of a buffer's life.
    pub fn during(&mut self, buffer: &Buffer) -> Merged<'_> {
        let [first, last] = [buffer.birth, buffer.death].map(|step| self.leaf_of[step]);
        let (mut low, mut high) = (first + self.leaves, last + self.leaves);
        for level in (1..=self.leaves.ilog2()).rev() {
            self.tell(low >> level);
            self.tell(high >> level);
        }
        let Self { nodes, parts, found, .. } = self;
        let meets =
            |part: &&(Buffer, Taken)| part.0.birth <= buffer.death && buffer.birth <= part.0.death;
        let ends = if first == last { &[first][..] } else { &[first, last] };
        // Both ends of the life, and the largest nodes that have all steps between.
        let mut merged = Merged { lists: vec![] };
        for (found, &leaf) in found.iter_mut().zip(ends) {
            found.gather(parts[leaf].iter().filter(meets).map(|&(_, range)| range));
            merged.add(found);
        }
        merged.add(&nodes[low].untold);
        if low != high {
            merged.add(&nodes[high].untold);
        }
        while high - low > 1 {
            if low.is_multiple_of(2) {
                merged.add(&nodes[low + 1].taken);
            }
            if !high.is_multiple_of(2) {
                merged.add(&nodes[high - 1].taken);
            }
            (low, high) = (low / 2, high / 2);
        }
        merged
    }

    /// Has a node tell the two below it.
    fn tell(&mut self, node: usize) {
        let untold = std::mem::take(&mut self.nodes[node].untold);
        if untold.0.is_empty() {
            return;
        }
        for below in [2 * node, 2 * node + 1] {
            self.nodes[below].taken.add_all(&untold);
            self.nodes[below].untold.add_all(&untold);
        }
    }

    /// Notes what is there during all steps of a node.
    fn note(&mut self, node: usize, range: Taken) {
        self.nodes[node].taken.add(range);
        self.nodes[node].untold.add(range);
    }

    /// Notes that a buffer has this range.
    pub fn insert(&mut self, buffer: &Buffer, range: Taken) {
        let leaf = |step: usize| self.leaf_of.get(step).copied();
        let [first, last] = [buffer.birth, buffer.death].map(|step| self.leaf_of[step]);
        let begins = buffer.birth > 0 && leaf(buffer.birth - 1) == Some(first);
        let ends = leaf(buffer.death + 1) == Some(last);
        let mut part = |leaf: usize| {
            let part = &mut self.parts[leaf];
            part.insert(part.partition_point(|(_, known)| known.0 < range.0), (*buffer, range));
        };
        if begins {
            part(first);
        }
        if ends && (first != last || !begins) {
            part(last);
        }
        for leaf in [first, last] {
            let mut node = leaf + self.leaves;
            // Nodes above one that knows it know it too.
            while node > 0 && self.nodes[node].taken.add(range) {
                node /= 2;
            }
        }
        let mut low = first + usize::from(begins) + self.leaves;
        let mut high = last + usize::from(!ends) + self.leaves;
        while low < high {
            if !low.is_multiple_of(2) {
                self.note(low, range);
                low += 1;
            }
            if !high.is_multiple_of(2) {
                high -= 1;
                self.note(high, range);
            }
            (low, high) = (low / 2, high / 2);
        }
    }
}

/// Ranges by rising offset that neither touch nor overlap.
#[derive(Clone, Default)]
struct Ranges(Vec<Taken>);

impl Ranges {
    /// Adds a range, and says whether it wasn't in one already.
    fn add(&mut self, (start, end): Taken) -> bool {
        let first = self.0.partition_point(|known| known.1 < start);
        let Some(&known) = self.0.get(first).filter(|known| known.0 <= end) else {
            self.0.insert(first, (start, end));
            return true;
        };
        if known.0 <= start && end <= known.1 {
            return false;
        }
        let touching = self.0[first..].partition_point(|known| known.0 <= end);
        let last = self.0[first + touching - 1];
        self.0[first] = (start.min(known.0), end.max(last.1));
        self.0.drain(first + 1..first + touching);
        true
    }

    /// Adds the ranges of another.
    fn add_all(&mut self, other: &Self) {
        if self.0.is_empty() {
            self.0.clone_from(&other.0);
        } else {
            other.0.iter().for_each(|&range| {
                self.add(range);
            });
        }
    }

    /// Becomes these ranges, which come by rising offset and may touch and overlap.
    fn gather(&mut self, ranges: impl Iterator<Item = Taken>) {
        self.0.clear();
        for range in ranges {
            match self.0.last_mut() {
                Some(last) if range.0 <= last.1 => last.1 = last.1.max(range.1),
                _ => self.0.push(range),
            }
        }
    }
}

/// Ranges of several lists, which may touch and overlap. Most often a few are enough, and what others cover is passed over.
pub struct Merged<'a> {
    lists: Vec<&'a [Taken]>,
}

impl<'a> Merged<'a> {
    fn add(&mut self, Ranges(list): &'a Ranges) {
        if !list.is_empty() {
            self.lists.push(list);
        }
    }

    /// The range with the lowest offset of those that end above `cursor`.
    pub fn above(&mut self, cursor: u64) -> Option<Taken> {
        self.lists.retain_mut(|list| {
            if list[0].1 <= cursor {
                *list = &list[1..];
                // Most often that is all.
                if list.first().is_some_and(|range| range.1 <= cursor) {
                    *list = &list[list.partition_point(|range| range.1 <= cursor)..];
                }
            }
            !list.is_empty()
        });
        self.lists.iter().map(|list| list[0]).min()
    }

    /// The range with the highest end of those that begin below `top`.
    pub fn below(&mut self, top: u64) -> Option<Taken> {
        self.lists.retain_mut(|list| {
            if list[list.len() - 1].0 >= top {
                *list = &list[..list.len() - 1];
                // Most often that is all.
                if list.last().is_some_and(|range| range.0 >= top) {
                    *list = &list[..list.partition_point(|range| range.0 < top)];
                }
            }
            !list.is_empty()
        });
        self.lists.iter().map(|list| list[list.len() - 1]).max_by_key(|range| range.1)
    }

    /// The end of all.
    pub fn end(&self) -> u64 {
        self.lists.iter().map(|list| list[list.len() - 1].1).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::buffer::tests::random_buffers;
    use super::*;

    #[test]
    fn what_is_taken_is_what_meets_a_life() {
        for steps in [1, 2, 5, 64, 1000] {
            let buffers = random_buffers(steps as u32, 400, steps);
            let mut tree = Tree::new(&buffers);
            let mut placed: Vec<(Buffer, Taken)> = vec![];
            for buffer in buffers {
                let mut bytes = vec![false; 500];
                let mut known = bytes.clone();
                let mark = |bytes: &mut [bool], (start, end): Taken| {
                    bytes[start as usize..end as usize].fill(true);
                };
                let (mut found, mut cursor) = (tree.during(&buffer), 0);
                while let Some(range) = found.above(cursor) {
                    mark(&mut known, range);
                    cursor = range.1;
                }
                let meets =
                    |other: &Buffer| other.birth <= buffer.death && buffer.birth <= other.death;
                let meeting = placed.iter().filter(|(other, _)| meets(other));
                meeting.for_each(|&(_, range)| mark(&mut bytes, range));
                assert_eq!(known, bytes, "{buffer:?} of {steps} steps");
                // Anywhere, also where something is.
                let offset = (placed.len() as u64 * 37) % 450;
                let range = (offset, offset + 1 + buffer.bytes / 256 % 20);
                tree.insert(&buffer, range);
                placed.push((buffer, range));
            }
        }
    }
}
