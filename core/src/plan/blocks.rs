//! Repeated blocks: what each choice of dropped activations comes to.
//!
//! Blocks that look alike are solved once. Every subset of the activations that a block keeps for its backward
//! pass is tried on that block alone, by liveness: the bytes it holds from forward to backward, what is live at each
//! of its steps, and the seconds of recomputation. What no other choice betters in all of these is left.

use std::cmp::Reverse;
use std::ops::Range;

use super::liveness::Live;
use super::outline::Outline;
use super::pareto::Item;
use super::{live_bytes, remat};
use crate::graph::{Phase, Tensor};

/// Most activations of a block that are chosen one by one; smaller ones go with all of these alone.
const CHOSEN: usize = 10;

/// What is dropped of a block, and what that comes to.
struct Choice {
    /// In the numbers of the block's part.
    dropped: Vec<Tensor>,
    /// Bytes that the block holds no longer from the forward to the backward pass.
    saved: u64,
    /// Recomputation.
    seconds: f64,
    /// Bytes that the device keeps for ops that run again.
    parameters: u64,
    levels: Levels,
}

/// Live bytes by node.
struct Levels {
    /// While it runs.
    during: Vec<u64>,
    /// The most before it: while ops run again for it, or between two nodes.
    before: Vec<u64>,
}

/// One block of a program.
struct Block {
    /// Index among the looks of blocks.
    kind: usize,
    /// Positions of its nodes.
    positions: Vec<usize>,
    /// The tensors of its part.
    handles: Vec<Tensor>,
}

/// The blocks of a program, and what each may drop.
pub struct Blocks {
    blocks: Vec<Block>,
    /// What the choices of each kind of block drop. The first drops nothing.
    drops: Vec<Vec<Vec<Tensor>>>,
    /// What the choices come to, by block.
    pub items: Vec<Vec<Item>>,
    /// Most live bytes outside of the blocks' own steps and of the loss, by how many blocks hold activations then.
    pub gaps: Vec<u64>,
}

impl Blocks {
    /// Weighs the choices of every block of a program, whose nodes are of these blocks and take so many seconds. Those at
    /// `losses` are weighed elsewhere.
    pub fn new(
        program: &Outline,
        block_of: &[Option<usize>],
        seconds: &[f64],
        losses: &[usize],
    ) -> Self {
        let (blocks, parts) = parts(program, block_of, seconds);
        let whole = levels(&program.live(&program.turns(), &[]), program.nodes.len());
        let outside = |step: &usize| block_of[*step].is_none() && !losses.contains(step);
        let gaps = gaps(program, &blocks, outside, &whole.during);
        let mut items = vec![vec![]; blocks.len()];
        let mut drops = vec![];
        for (kind, (part, seconds)) in parts.iter().enumerate() {
            let own = levels(&part.live(&part.turns(), &[]), part.nodes.len());
            let alike: Vec<usize> = (0..blocks.len()).filter(|&b| blocks[b].kind == kind).collect();
            let forward = part.nodes.iter().take_while(|n| n.phase == Phase::Forward).count();
            let peaks = |block: usize, choice: &Choice| {
                let of = |nodes: Range<usize>| {
                    let positions = &blocks[block].positions[nodes.clone()];
                    peak([&whole, &own, &choice.levels], positions, nodes)
                };
                [of(0..forward), of(forward..part.nodes.len())]
            };
            let item = |block: usize, choice: &Choice| Item {
                peak: peaks(block, choice).into_iter().max().unwrap_or(0),
                saved: choice.saved,
                seconds: choice.seconds,
                parameters: choice.parameters,
            };
            let ends = [alike[0], alike[alike.len() - 1]];
            let weighed = choices(part, seconds).into_iter();
            let weighed = weighed.map(|choice| (ends.map(|block| peaks(block, &choice)), choice));
            let best = undominated(weighed.collect());
            for &block in &alike {
                items[block] = best.iter().map(|choice| item(block, choice)).collect();
            }
            drops.push(best.into_iter().map(|choice| choice.dropped).collect());
        }
        Self { blocks, drops, items, gaps }
    }

    /// The tensors of the program that a choice of a block drops, but for those that only the forward pass reads.
    pub fn dropped(&self, block: usize, choice: usize) -> impl Iterator<Item = Tensor> {
        let Block { kind, handles, .. } = &self.blocks[block];
        self.drops[*kind][choice].iter().map(|tensor| handles[tensor.index()])
    }
}

/// A look of blocks: what they are, and the seconds of their nodes.
type Look = (Outline, Vec<f64>);

/// The blocks of a program, and their looks.
fn parts(
    program: &Outline,
    block_of: &[Option<usize>],
    seconds: &[f64],
) -> (Vec<Block>, Vec<Look>) {
    let count = block_of.iter().flatten().max().map_or(0, |last| last + 1);
    let mut positions = vec![vec![]; count];
    for (position, block) in block_of.iter().enumerate() {
        block.iter().for_each(|&block| positions[block].push(position));
    }
    let leaves = leaving(program, block_of);
    let mut numbers = vec![None; program.tensors.len()];
    let (mut blocks, mut looks): (Vec<Block>, Vec<Look>) = (vec![], vec![]);
    for positions in positions {
        let (part, handles) = program.part(&positions, &leaves, &mut numbers);
        let look = (part, positions.iter().map(|&position| seconds[position]).collect());
        let kind = looks.iter().position(|known| *known == look).unwrap_or(looks.len());
        if kind == looks.len() {
            looks.push(look);
        }
        blocks.push(Block { kind, positions, handles });
    }
    (blocks, looks)
}

/// Which storages are read by another block than one that writes them, or by none.
fn leaving(program: &Outline, block_of: &[Option<usize>]) -> Vec<bool> {
    let mut maker = vec![None; program.tensors.len()];
    let mut leaves = vec![false; program.tensors.len()];
    let root = |tensor: Tensor| program.tensors[tensor.index()].root.index();
    for (node, block) in program.nodes.iter().zip(block_of) {
        for &tensor in node.inputs.iter().chain(&node.outputs) {
            let maker = maker[root(tensor)].get_or_insert(*block);
            leaves[root(tensor)] |= maker != block;
        }
    }
    leaves
}

/// Most live bytes of steps that are `outside`, by how many blocks hold activations then.
fn gaps(
    program: &Outline,
    blocks: &[Block],
    outside: impl Fn(&usize) -> bool,
    during: &[u64],
) -> Vec<u64> {
    let forward = |position: &&usize| program.nodes[**position].phase == Phase::Forward;
    // The steps at which a block and all before it hold: after the last step of their forward passes and before the first
    // of their backward passes. Of more blocks that are fewer steps.
    let mut together = 0..usize::MAX;
    let mut holding = vec![];
    for Block { positions, .. } in blocks {
        let began = positions.iter().rfind(forward).map_or(usize::MAX, |&last| last + 1);
        let ends = positions.iter().find(|p| !forward(p)).copied().unwrap_or(0);
        together = together.start.max(began)..together.end.min(ends);
        holding.push(together.clone());
    }
    let mut gaps = vec![0; blocks.len() + 1];
    for step in (0..during.len()).filter(outside) {
        let holding = holding.partition_point(|steps| steps.contains(&step));
        gaps[holding] = during[step].max(gaps[holding]);
    }
    gaps
}

/// Live bytes of steps that are nodes, and between them.
fn levels(live: &Live, nodes: usize) -> Levels {
    let during = live_bytes(&live.buffers, nodes);
    let mut before = during.clone();
    live.buffers.iter().for_each(|buffer| before[buffer.birth] -= buffer.bytes);
    Levels { during, before }
}

/// The most live bytes at the positions that these nodes of a block have in the program, by the levels of the whole program
/// and of the block without a choice, and of the block with one.
fn peak([whole, own, choice]: [&Levels; 3], positions: &[usize], nodes: Range<usize>) -> u64 {
    let at = |whole: &[u64], own: &[u64], choice: &[u64]| {
        let levels = positions.iter().zip(own.iter().zip(choice));
        let sums = levels.map(|(&at, (own, choice))| (whole[at] + choice).saturating_sub(*own));
        sums.max().unwrap_or(0)
    };
    let during = at(&whole.during, &own.during[nodes.clone()], &choice.during[nodes.clone()]);
    during.max(at(&whole.before, &own.before[nodes.clone()], &choice.before[nodes]))
}

/// Every choice of a block.
fn choices(part: &Outline, seconds: &[f64]) -> Vec<Choice> {
    let read_again = |tensor: &Tensor| {
        let later = part.nodes.iter().filter(|node| node.phase != Phase::Forward);
        later.flat_map(|node| &node.inputs).any(|input| input == tensor)
    };
    let (mut chosen, mut rest) = (vec![], vec![]);
    for node in part.nodes.iter().filter(|node| node.phase == Phase::Forward) {
        let stays = |tensor: &Tensor| {
            let stored = &part.tensors[tensor.index()];
            stored.result || stored.root != *tensor
        };
        if node.outputs.iter().any(stays) {
            continue;
        }
        // What is only read in the forward pass is made again where a dropped activation needs it.
        if node.outputs.iter().any(read_again) {
            chosen.push(node.outputs.clone());
        } else {
            rest.extend(node.outputs.clone());
        }
    }
    let bytes = |tensors: &Vec<Tensor>| -> u64 {
        tensors.iter().map(|tensor| part.tensors[tensor.index()].bytes).sum()
    };
    chosen.sort_by_key(|tensors| Reverse(bytes(tensors)));
    let small = chosen.split_off(chosen.len().min(CHOSEN));
    let subsets = 1usize << chosen.len();
    let subset = |subset: usize| {
        let picked = chosen.iter().enumerate().filter(|(bit, _)| subset >> bit & 1 == 1);
        let mut dropped: Vec<Tensor> = picked.flat_map(|(_, tensors)| tensors).copied().collect();
        if subset + 1 == subsets {
            dropped.extend(small.iter().flatten());
        }
        dropped
    };
    let whole = held(part, &part.live(&part.turns(), &[]));
    (0..subsets).map(|index| choice(part, seconds, whole, subset(index), &rest)).collect()
}

/// What dropping these tensors of a block comes to, which holds so many bytes without, and with them `between`, which
/// only the forward pass reads.
fn choice(
    part: &Outline,
    seconds: &[f64],
    whole: u64,
    dropped: Vec<Tensor>,
    between: &[Tensor],
) -> Choice {
    let mut flags = vec![false; part.tensors.len()];
    if !dropped.is_empty() {
        dropped.iter().chain(between).for_each(|tensor| flags[tensor.index()] = true);
    }
    let turns = remat::turns(&part.nodes, &flags);
    let live = part.live(&turns, &flags);
    let saved = whole.saturating_sub(held(part, &live));
    let (mut during, mut before) = (vec![], vec![0]);
    let (mut again_s, mut parameters) = (0.0, 0);
    for (turn, bytes) in turns.iter().zip(live_bytes(&live.buffers, turns.len())) {
        if turn.again {
            let most = before.last_mut().expect("a place before every node");
            *most = bytes.max(*most);
            again_s += seconds[turn.node];
            parameters += part.nodes[turn.node].parameters;
        } else {
            during.push(bytes);
            before.push(0);
        }
    }
    Choice { dropped, saved, seconds: again_s, parameters, levels: Levels { during, before } }
}

/// Bytes that a block holds from the forward to the backward pass.
fn held(part: &Outline, live: &Live) -> u64 {
    let forward = part.nodes.iter().take_while(|node| node.phase == Phase::Forward).count();
    let held = live.buffers.iter().filter(|b| b.birth < forward && b.death >= forward);
    held.map(|buffer| buffer.bytes).sum()
}

/// The most live bytes at a block's steps of the forward pass, and at those after it.
type Peaks = [u64; 2];

/// The choices that no other betters in time, in bytes saved and in their peaks at two places, fastest first. From block to
/// block all steps of a pass have as many more live bytes, so that what betters at both places does between them.
fn undominated(mut weighed: Vec<([Peaks; 2], Choice)>) -> Vec<Choice> {
    let key = |(peaks, choice): &([Peaks; 2], Choice)| (Reverse(choice.saved), *peaks);
    weighed.sort_by(|a, b| a.1.seconds.total_cmp(&b.1.seconds).then(key(a).cmp(&key(b))));
    let mut best: Vec<([Peaks; 2], Choice)> = vec![];
    for (peaks, choice) in weighed {
        let betters = |(known, other): &([Peaks; 2], Choice)| {
            let lower = known.iter().flatten().zip(peaks.iter().flatten()).all(|(a, b)| a <= b);
            lower && other.saved >= choice.saved && other.parameters <= choice.parameters
        };
        if !best.iter().any(betters) {
            best.push((peaks, choice));
        }
    }
    best.into_iter().map(|(_, choice)| choice).collect()
}
