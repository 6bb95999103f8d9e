//! What each block of a model takes: bytes by class, and seconds by phase.

use std::collections::HashSet;

use serde::Serialize;
use tightrope_core::{Class, Phase, Plan};

use super::step::ShownProgram;

/// What one block, or blocks that take the same, come to.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Layer {
    /// First and last block; `None` for what is outside of blocks.
    pub blocks: Option<(usize, usize)>,
    /// Bytes of weights, of one of these blocks; frozen ones too.
    pub weight: u64,
    /// Bytes of their gradients.
    pub gradient: u64,
    /// Bytes of optimizer state.
    pub optimizer: u64,
    /// Bytes of activations that the forward pass keeps for the backward pass.
    pub kept: u64,
    /// Predicted seconds of a step's forward passes.
    pub forward_s: f64,
    /// Of its backward passes.
    pub backward_s: f64,
    /// Of computing activations again.
    pub recompute_s: f64,
    /// Of the update.
    pub update_s: f64,
}

/// Rows in the order of the blocks, what is outside of them last.
pub fn layers(plan: &Plan, programs: &[ShownProgram]) -> Vec<Layer> {
    let names = Names::of(plan);
    let mut rows = vec![Layer::default(); names.blocks + 1];
    let outside = names.blocks;
    for (index, program) in programs.iter().enumerate() {
        let nodes = plan.graph.programs.iter().find(|known| known.role == program.role);
        let nodes = nodes.map_or(&[][..], |known| &known.nodes);
        for (node, op) in nodes.iter().zip(&program.ops) {
            let row = &mut rows[node.block.or_else(|| names.block(&op.name)).unwrap_or(outside)];
            let seconds = program.repeats as f64 * op.seconds;
            match op.phase {
                Phase::Forward => row.forward_s += seconds,
                Phase::Backward => row.backward_s += seconds,
                Phase::Recompute => row.recompute_s += seconds,
                Phase::Update => row.update_s += seconds,
            }
        }
        for tensor in &program.tensors {
            let row = &mut rows[names.block(&tensor.name).unwrap_or(outside)];
            let crosses =
                |op: usize| program.ops.get(op).is_some_and(|op| op.phase == Phase::Forward);
            match tensor.class {
                // Programs share what is kept between steps.
                _ if tensor.kept && index > 0 => {}
                Class::Weight | Class::Frozen if tensor.kept => row.weight += tensor.bytes,
                Class::Optimizer if tensor.kept => row.optimizer += tensor.bytes,
                Class::Gradient => row.gradient += tensor.bytes,
                Class::Activation if crosses(tensor.birth) && !crosses(tensor.death) => {
                    row.kept += tensor.bytes;
                }
                _ => {}
            }
        }
    }
    for (block, row) in rows.iter_mut().enumerate().take(names.blocks) {
        row.blocks = Some((block, block));
    }
    let mut merged: Vec<Layer> = vec![];
    for row in rows {
        match merged.last_mut() {
            Some(last) if same(last, &row) => {
                last.blocks = last.blocks.zip(row.blocks).map(|(first, next)| (first.0, next.1));
            }
            _ => merged.push(row),
        }
    }
    merged
}

/// Whether two blocks take the same. Seconds that differ by rounding alone are the same.
fn same(a: &Layer, b: &Layer) -> bool {
    const ROUNDING: f64 = 1e-9;
    let seconds = |row: &Layer| [row.forward_s, row.backward_s, row.recompute_s, row.update_s];
    let near = |(a, b): (f64, f64)| (a - b).abs() <= ROUNDING * a.max(b);
    let bytes = |row: &Layer| [row.weight, row.gradient, row.optimizer, row.kept];
    a.blocks.is_some()
        && b.blocks.is_some()
        && bytes(a) == bytes(b)
        && seconds(a).into_iter().zip(seconds(b)).all(near)
}

/// How names tell the block that something belongs to: `h` is followed by its number.
struct Names {
    before: HashSet<String>,
    blocks: usize,
}

impl Names {
    /// Learnt from what is in a block.
    fn of(plan: &Plan) -> Self {
        let (mut before, mut blocks) = (HashSet::new(), 0);
        for node in plan.graph.programs.iter().flat_map(|program| &program.nodes) {
            let Some(block) = node.block else { continue };
            blocks = blocks.max(block + 1);
            for &tensor in &node.outputs {
                let words: Vec<&str> = plan.graph.info(tensor).name.split('.').collect();
                let named = words.windows(2).find(|pair| pair[1].parse() == Ok(block));
                before.extend(named.map(|pair| pair[0].to_owned()));
            }
        }
        Self { before, blocks }
    }

    fn block(&self, name: &str) -> Option<usize> {
        let words: Vec<&str> = name.split('.').collect();
        let named = words.windows(2).find(|pair| {
            self.before.contains(pair[0]) && pair[1].bytes().all(|byte| byte.is_ascii_digit())
        });
        named.and_then(|pair| pair[1].parse().ok()).filter(|&block| block < self.blocks)
    }
}
