//! Rewrites for ranks: weights of which each has a shard are put together where ops read them, and gradients are added up a block after they
//! left.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::graph::{Graph, Life, Node, Phase, Sharded, Tensor, TensorInfo};
use crate::ops::{Collective, Op};
use crate::shards::Shards;

/// Smallest weight that is cut, bytes: below it there's less to save than it costs to put together.
pub const SMALLEST: usize = 1 << 16;

/// Has every program put each of these weights, given with its shard, together before the ops that read it: once for neighbours of one
/// block and phase, so that it makes way for others in between. The weights themselves are nowhere after that.
pub fn assemble_weights(graph: &mut Graph, shards: &BTreeMap<Tensor, Tensor>) {
    for index in 0..graph.programs.len() {
        let nodes = std::mem::take(&mut graph.programs[index].nodes);
        let mut assembled: BTreeMap<Tensor, Tensor> = BTreeMap::new();
        let (mut placed, mut place) = (Vec::with_capacity(nodes.len()), None);
        for mut node in nodes {
            // What is sent as soon as it's made stands between a block's ops.
            if node.phase != Phase::Update && place != Some((node.phase, node.block)) {
                place = Some((node.phase, node.block));
                assembled.clear();
            }
            let Node { phase, block, .. } = node;
            for input in &mut node.inputs {
                let Some(&shard) = shards.get(input) else { continue };
                *input = *assembled.entry(*input).or_insert_with(|| {
                    let node = assembly(graph, shard, (phase, block));
                    let tensor = node.outputs[0];
                    placed.push(node);
                    tensor
                });
            }
            placed.push(node);
        }
        graph.programs[index].nodes = placed;
    }
    for &whole in shards.keys() {
        graph.info_mut(whole).life = Life::Transient;
    }
}

/// Has every program exchange gradients, and add up what came, at the end of the next block's ops instead of among those of the block that
/// makes them: so that they are on their way while those run.
pub fn exchange_late(graph: &mut Graph) {
    for program in &mut graph.programs {
        let passes = program.nodes.iter().rposition(|node| node.phase != Phase::Update);
        let Some(last) = passes else { continue };
        let mut nodes = std::mem::take(&mut program.nodes);
        let update = nodes.split_off(last + 1);
        let mut placed = Vec::with_capacity(nodes.len() + update.len());
        // What waits, by the block that made it, and what that makes.
        let mut waiting: VecDeque<Vec<Node>> = VecDeque::from([vec![]]);
        let (mut late, mut place) = (BTreeSet::new(), None);
        for node in nodes {
            if node.phase != Phase::Update {
                if place.is_some_and(|place| place != (node.phase, node.block)) {
                    if waiting.len() > 1 {
                        placed.extend(waiting.pop_front().unwrap_or_default());
                    }
                    waiting.push_back(vec![]);
                }
                place = Some((node.phase, node.block));
                placed.push(node);
                continue;
            }
            let is_exchange = matches!(node.op.collective(), Some(Collective::Exchange(_)));
            if is_exchange || node.inputs.iter().any(|input| late.contains(input)) {
                late.extend(node.outputs.iter().copied());
                if let Some(of_block) = waiting.back_mut() {
                    of_block.push(node);
                }
            } else {
                placed.push(node);
            }
        }
        placed.extend(waiting.into_iter().flatten().chain(update));
        program.nodes = placed;
    }
}

/// What puts a weight together, of a shard.
fn assembly(graph: &mut Graph, shard: Tensor, (phase, block): (Phase, Option<usize>)) -> Node {
    let (of, sharded) = (graph.info(shard), graph.sharded.get(&shard));
    let (shards, ty) = match sharded {
        Some(Sharded { shards, whole }) => (shards.clone(), whole.clone()),
        None => (Shards::of(of.ty.elements(), 1, 1), of.ty.clone()),
    };
    let name = format!("{}.of_all", of.name);
    let info =
        TensorInfo { name, ty: ty.clone(), class: of.class, life: Life::Transient, replaces: None };
    let outputs = vec![graph.add(info)];
    let op = Op::from(Collective::Assemble { shards, ty });
    Node { op, inputs: vec![shard], outputs, phase, block }
}
