//! In-flight transfers: from which step to which each is on its way, overlapped with the ops between.
//!
//! | | begins | ends |
//! |---|---|---|
//! | load | where the load of the same place in the block before ends | before the first op that reads it |
//! | store | after the op that makes its tensor | where the store of the same place in the next block begins |
//! | across: what puts a weight together | where that of the same place in the block before ends | before the first op that reads it |
//! | across: what exchanges a gradient | once it's made | before it's added up, a block later |
//! | across: all else, and where ranks don't exchange beside other ops | at its step | there too |
//!
//! So a copy has the time of a block, and what is on its way takes the room of one block. Both ends are places in the
//! program: how fast copies are changes when a step is done, and never who has which bytes. A pass begins and ends with none
//! on its way, so that nothing more is held while the loss is computed.

use std::ops::Range;

use super::outline::{Begins, Outline};
use super::remat::Turn;
use crate::graph::{Phase, Tensor};
use crate::ops::Direction;

/// A transfer with the steps during which it is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InFlight {
    /// Which way.
    pub direction: Direction,
    /// The transfer's own step: where a load ends and a store begins.
    pub step: usize,
    /// The first step at which its bytes on the device are its own.
    pub begin: usize,
    /// The last such step, but for those of what reads it.
    pub end: usize,
}

/// What a session does between two steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The transfer of this step begins.
    Begin(Direction, usize),
    /// What comes after waits for the transfer of this step.
    End(Direction, usize),
}

/// Steps of one block in one pass, one after the other.
struct Run {
    block: Option<usize>,
    forward: bool,
    steps: Range<usize>,
    loads: Vec<usize>,
    stores: Vec<usize>,
}

impl Outline {
    /// The transfers of these turns, in their order.
    pub fn in_flight(&self, turns: &[Turn]) -> Vec<InFlight> {
        if self.nodes.iter().all(|node| node.transfer.is_none()) {
            return vec![];
        }
        // A browser's tab has no others to train with.
        let is_alone = cfg!(target_family = "wasm");
        let mut in_flight = if is_alone { vec![] } else { self.across(turns) };
        if !self.overlap {
            let at = |step: usize| {
                let direction = self.direction(&turns[step])?;
                Some(InFlight { direction, step, begin: step, end: step })
            };
            let moved = (0..turns.len()).filter_map(at);
            in_flight.extend(moved.filter(|moved| moved.direction != Direction::Across));
        }
        let runs = if self.overlap { self.runs(turns) } else { vec![] };
        for (index, run) in runs.iter().enumerate() {
            let alike = |other: &&Run| other.forward == run.forward;
            let before = index.checked_sub(1).map(|index| &runs[index]).filter(alike);
            let after = runs.get(index + 1).filter(alike);
            let ahead = |place: usize| {
                let loads = before.map_or(&[][..], |run| &run.loads);
                loads.get(place).or(loads.last()).copied().unwrap_or(run.steps.start)
            };
            let behind = |place: usize| {
                let stores = after.map_or(&[][..], |run| &run.stores);
                stores.get(place).or(stores.last()).copied().unwrap_or(run.steps.end - 1)
            };
            let direction = Direction::Load;
            in_flight.extend(run.loads.iter().enumerate().map(|(place, &step)| InFlight {
                direction,
                step,
                begin: ahead(place),
                end: step,
            }));
            let direction = Direction::Store;
            in_flight.extend(run.stores.iter().enumerate().map(|(place, &step)| InFlight {
                direction,
                step,
                begin: step,
                end: behind(place),
            }));
        }
        in_flight.sort_by_key(|transfer| transfer.step);
        in_flight
    }

    /// What ranks exchange in these turns.
    fn across(&self, turns: &[Turn]) -> Vec<InFlight> {
        let direction = Direction::Across;
        let mut in_flight = vec![];
        // The step after the last that wrote each storage, and the number of its block.
        let mut made = vec![(0, 0); self.tensors.len()];
        let mut number = 0;
        let root = |tensor: &Tensor| self.tensors[tensor.index()].root.index();
        // Steps at which what comes for a block has come: in the block before, and in this one, which is of a pass.
        let (mut before, mut now, mut place): (Vec<usize>, Vec<usize>, _) = (vec![], vec![], None);
        for (step, turn) in turns.iter().enumerate() {
            let node = &self.nodes[turn.node];
            // What leaves as soon as it's made stands between a block's ops.
            if node.phase != Phase::Update {
                let forward = node.phase == Phase::Forward && !turn.again;
                let here = (node.block, forward);
                if place.is_some_and(|place| place != here) {
                    number += 1;
                    let alike = place.is_some_and(|(_, other)| other == forward);
                    before = if alike { std::mem::take(&mut now) } else { vec![] };
                    now.clear();
                }
                place = Some(here);
            }
            if node.transfer == Some(direction) {
                let ready = node.reads(turn).iter().map(|tensor| made[root(tensor)]).max();
                let (ready, of_block) = ready.unwrap_or_default();
                let begin = match node.begins {
                    // What was made longer ago wasn't to leave at once.
                    Begins::WhenMade if self.beside && of_block + 1 >= number => ready,
                    Begins::ABlockAhead if self.beside => {
                        let ahead = before.get(now.len()).or(before.last()).copied();
                        now.push(step);
                        ready.max(ahead.unwrap_or(step))
                    }
                    _ => step,
                };
                in_flight.push(InFlight { direction, step, begin, end: step });
            }
            node.outputs.iter().for_each(|tensor| made[root(tensor)] = (step + 1, number));
        }
        in_flight
    }

    /// Which way a turn moves a tensor, if it does: what was stored is loaded where it's made again.
    fn direction(&self, turn: &Turn) -> Option<Direction> {
        let direction = self.nodes[turn.node].transfer?;
        let stored = turn.again && direction == Direction::Store;
        Some(if stored { Direction::Load } else { direction })
    }

    fn runs(&self, turns: &[Turn]) -> Vec<Run> {
        let mut runs: Vec<Run> = vec![];
        for (step, turn) in turns.iter().enumerate() {
            let node = &self.nodes[turn.node];
            let (block, forward) = (node.block, node.phase == Phase::Forward && !turn.again);
            if runs.last().is_none_or(|run| (run.block, run.forward) != (block, forward)) {
                let steps = step..step;
                let (loads, stores) = (vec![], vec![]);
                runs.push(Run { block, forward, steps, loads, stores });
            }
            let Some(run) = runs.last_mut() else { continue };
            run.steps.end = step + 1;
            match self.direction(turn) {
                Some(Direction::Load) => run.loads.push(step),
                Some(Direction::Store) => run.stores.push(step),
                Some(Direction::Across) | None => {}
            }
        }
        runs
    }
}

/// What a session does for these transfers, each before a step or after the last one: stores end first, so that loads may
/// take their bytes.
pub fn events(in_flight: &[InFlight]) -> Vec<(usize, Event)> {
    let mut events = vec![];
    for transfer in in_flight {
        let &InFlight { direction, step, begin, end } = transfer;
        let (begin, end) = match direction {
            Direction::Load => ((begin, 1), (step, 2)),
            Direction::Store => ((step, 2), (end + 1, 0)),
            Direction::Across => ((begin, 1), (step, 2)),
        };
        events.push((begin, Event::Begin(direction, step)));
        events.push((end, Event::End(direction, step)));
    }
    // Of one direction, what begins first ends first: the order of transfers is kept.
    events.sort_by_key(|&(order, _)| order);
    events.into_iter().map(|((at, _), event)| (at, event)).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::Direction::{Across, Load, Store};
    use super::Event::{Begin, End};
    use super::*;
    use crate::graph::{Class, Graph, Role};
    use crate::ops::{Accumulate, Collective, Map, Op, Part, Rule as _};
    use crate::plan::offload::{load_block_weights, store_block_inputs};
    use crate::plan::sharding::assemble_weights;
    use crate::plan::{Options, Plan, Target};
    use crate::shards::Shards;
    use crate::types::{DType, Type};

    /// A device, and whether it has queues for copies, and exchanges beside other ops.
    struct Device(bool, bool);

    impl Target for Device {
        fn alignment(&self) -> u64 {
            64
        }
        fn workspace(&self, _op: &Op, _inputs: &[&Type], _outputs: &[&Type]) -> u64 {
            0
        }
        fn in_place(&self, _op: &Op) -> bool {
            true
        }
        fn copy_queues(&self) -> bool {
            self.0
        }
        fn links_overlap(&self) -> bool {
            self.1
        }
    }

    fn planned(graph: &Graph, queues: bool) -> Plan {
        let options = Options { fusion: false, ..Options::default() };
        Plan::new(graph.clone(), &options, &Device(queues, false)).unwrap()
    }

    /// A matrix that is large enough to be moved.
    fn matrix(graph: &mut Graph, name: &str, class: Class) -> Tensor {
        graph.persistent(name, Type::new(DType::F32, [128, 128]), class)
    }

    fn sum(graph: &mut Graph, block: usize, a: Tensor, b: Tensor) -> Tensor {
        let sum = |graph: &mut Graph| graph.one(Map::add(DType::F32), &[a, b], "sum");
        graph.in_block(block, sum).unwrap()
    }

    /// Three blocks of a rank of two that has shards of their weights: forward and back, where each block's gradient is exchanged and added
    /// up at once.
    fn of_ranks() -> Graph {
        let mut graph = Graph::new();
        let mut x = matrix(&mut graph, "x", Class::Input);
        let weights = [0, 1, 2].map(|_| matrix(&mut graph, "weight", Class::Weight));
        let shards = Shards::of(128 * 128, 2, 1);
        graph.begin(Role::Train);
        for (block, weight) in weights.into_iter().enumerate() {
            x = sum(&mut graph, block, x, weight);
        }
        let part = Part { shards: shards.clone(), range: 0..shards.shard() };
        for (block, weight) in weights.into_iter().enumerate().rev() {
            graph.set_phase(Phase::Backward);
            x = sum(&mut graph, block, x, weight);
            graph.set_phase(Phase::Update);
            let parts = graph.one(Collective::Exchange(part.clone()), &[x], "gradient").unwrap();
            let sum = Accumulate { begun: false };
            let gradient = graph.one(sum, &[parts], "gradient").unwrap();
            graph.result(gradient);
        }
        let mut cut = BTreeMap::new();
        for whole in weights {
            let ty = graph.ty(whole).clone();
            let shard = graph.persistent_shard("weight", ty, shards.clone(), Class::Weight);
            cut.insert(whole, shard);
        }
        assemble_weights(&mut graph, &cut);
        graph
    }

    #[test]
    fn weights_come_a_block_ahead_and_gradients_are_added_up_a_block_later() {
        let plan = |links| {
            let options = Options { fusion: false, ..Options::default() };
            Plan::new(of_ranks(), &options, &Device(false, links)).unwrap()
        };
        let names = |plan: &Plan| -> Vec<&str> {
            plan.graph.programs[0].nodes.iter().map(|node| node.op.name()).collect()
        };
        let forward = ["assemble", "map"].repeat(3);
        let in_turn = plan(false);
        let back = ["assemble", "map", "exchange", "accumulate"].repeat(3);
        assert_eq!(names(&in_turn), [&forward[..], &back[..]].concat());
        let both = |step| [(step, Begin(Across, step)), (step, End(Across, step))];
        let steps = [0, 2, 4, 6, 8, 10, 12, 14, 16];
        assert_eq!(in_turn.programs[0].events, steps.map(both).concat());
        assert!(!in_turn.options.overlap);

        let beside = plan(true);
        let back = [
            &["assemble", "map"].repeat(2)[..],
            &["exchange", "accumulate", "assemble", "map"],
            &["exchange", "accumulate"].repeat(2)[..],
        ];
        assert_eq!(names(&beside), [&forward[..], &back.concat()].concat());
        assert_eq!(
            beside.programs[0].events,
            [
                (0, Begin(Across, 0)),
                (0, Begin(Across, 2)),
                (0, End(Across, 0)),
                (2, Begin(Across, 4)),
                (2, End(Across, 2)),
                (4, End(Across, 4)),
                // The way back begins with nothing on its way.
                (6, Begin(Across, 6)),
                (6, Begin(Across, 8)),
                (6, End(Across, 6)),
                (8, Begin(Across, 10)),
                (8, Begin(Across, 12)),
                (8, End(Across, 8)),
                (10, Begin(Across, 14)),
                (10, End(Across, 10)),
                (12, End(Across, 12)),
                (14, Begin(Across, 16)),
                (14, End(Across, 14)),
                (16, End(Across, 16)),
            ]
        );
        assert!(beside.options.overlap);
        assert!(beside.programs[0].transient_bytes > in_turn.programs[0].transient_bytes);
    }

    #[test]
    fn a_block_loads_what_the_next_one_reads() {
        let mut graph = Graph::new();
        let mut x = matrix(&mut graph, "x", Class::Input);
        graph.begin(Role::Main);
        for block in 0..3 {
            let weight = matrix(&mut graph, "weight", Class::Weight);
            x = sum(&mut graph, block, x, weight);
        }
        graph.result(x);
        load_block_weights(&mut graph);
        // A load and a sum of each block. Nothing comes before the first weight for its load to overlap.
        let overlapped = planned(&graph, true);
        assert_eq!(
            overlapped.programs[0].events,
            [
                (0, Begin(Load, 0)),
                (0, Begin(Load, 2)),
                (0, End(Load, 0)),
                (2, Begin(Load, 4)),
                (2, End(Load, 2)),
                (4, End(Load, 4)),
            ]
        );
        let in_turn = planned(&graph, false);
        let both = |step| [(step, Begin(Load, step)), (step, End(Load, step))];
        assert_eq!(in_turn.programs[0].events, [0, 2, 4].map(both).concat());
        assert!(overlapped.options.overlap && !in_turn.options.overlap);
        let matrix = 128 * 128 * 4;
        assert_eq!(
            overlapped.programs[0].transient_bytes,
            in_turn.programs[0].transient_bytes + matrix
        );
    }

    #[test]
    fn what_blocks_begin_with_leaves_and_comes_while_others_run() {
        let mut graph = Graph::new();
        let first = matrix(&mut graph, "x", Class::Input);
        graph.begin(Role::Train);
        let mut inputs = vec![first];
        for block in 0..3 {
            let x = inputs[block];
            inputs.push(sum(&mut graph, block, x, first));
        }
        graph.set_phase(Phase::Backward);
        let mut gradient = inputs[3];
        for block in [2, 1] {
            gradient = sum(&mut graph, block, gradient, inputs[block]);
        }
        graph.result(gradient);
        store_block_inputs(&mut graph);
        // Blocks 1 and 2 store and sum at 1 to 4, and load and sum at 5 to 8. Nothing is on its way between the passes.
        assert_eq!(
            planned(&graph, true).programs[0].events,
            [
                (1, Begin(Store, 1)),
                (3, Begin(Store, 3)),
                (4, End(Store, 1)),
                (5, End(Store, 3)),
                (5, Begin(Load, 5)),
                (5, Begin(Load, 7)),
                (5, End(Load, 5)),
                (7, End(Load, 7)),
            ]
        );
    }
}
