//! In-flight transfers: from which step to which each is on its way, overlapped with the ops between.
//!
//! | | begins | ends |
//! |---|---|---|
//! | load | where the load of the same place in the block before ends | before the first op that reads it |
//! | store | after the op that makes its tensor | where the store of the same place in the next block begins |
//! | across | at its step | there too |
//!
//! So a copy has the time of a block, and what is on its way takes the room of one block. Both ends are places in the
//! program: how fast copies are changes when a step is done, and never who has which bytes. A pass begins and ends with none
//! on its way, so that nothing more is held while the loss is computed.

use std::ops::Range;

use super::outline::Outline;
use super::remat::Turn;
use crate::graph::Phase;
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
    across: Vec<usize>,
}

impl Outline {
    /// The transfers of these turns, in their order.
    pub fn in_flight(&self, turns: &[Turn]) -> Vec<InFlight> {
        if self.nodes.iter().all(|node| node.transfer.is_none()) {
            return vec![];
        }
        if !self.overlap {
            let at = |step: usize| {
                let direction = self.direction(&turns[step])?;
                Some(InFlight { direction, step, begin: step, end: step })
            };
            return (0..turns.len()).filter_map(at).collect();
        }
        let runs = self.runs(turns);
        let mut in_flight = vec![];
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
            let direction = Direction::Across;
            let at = |&step: &usize| InFlight { direction, step, begin: step, end: step };
            in_flight.extend(run.across.iter().map(at));
        }
        in_flight.sort_by_key(|transfer| transfer.step);
        in_flight
    }

    /// Which way a turn moves a tensor, if it does: what was stored is loaded where it's made again.
    fn direction(&self, turn: &Turn) -> Option<Direction> {
        let direction = self.nodes[turn.node].transfer?;
        Some(if turn.again { Direction::Load } else { direction })
    }

    fn runs(&self, turns: &[Turn]) -> Vec<Run> {
        let mut runs: Vec<Run> = vec![];
        for (step, turn) in turns.iter().enumerate() {
            let node = &self.nodes[turn.node];
            let (block, forward) = (node.block, node.phase == Phase::Forward && !turn.again);
            if runs.last().is_none_or(|run| (run.block, run.forward) != (block, forward)) {
                let steps = step..step;
                let (loads, stores, across) = (vec![], vec![], vec![]);
                runs.push(Run { block, forward, steps, loads, stores, across });
            }
            let Some(run) = runs.last_mut() else { continue };
            run.steps.end = step + 1;
            match self.direction(turn) {
                Some(Direction::Load) => run.loads.push(step),
                Some(Direction::Store) => run.stores.push(step),
                Some(Direction::Across) => run.across.push(step),
                None => {}
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
    use super::Direction::{Load, Store};
    use super::Event::{Begin, End};
    use super::*;
    use crate::graph::{Class, Graph, Role, Tensor};
    use crate::ops::{Map, Op};
    use crate::plan::offload::{load_block_weights, store_block_inputs};
    use crate::plan::{Options, Plan, Target};
    use crate::types::{DType, Type};

    /// A device, and whether it has queues for copies.
    struct Device(bool);

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
    }

    fn planned(graph: &Graph, queues: bool) -> Plan {
        let options = Options { fusion: false, ..Options::default() };
        Plan::new(graph.clone(), &options, &Device(queues)).unwrap()
    }

    /// A matrix that is large enough to be moved.
    fn matrix(graph: &mut Graph, name: &str, class: Class) -> Tensor {
        graph.persistent(name, Type::new(DType::F32, [128, 128]), class)
    }

    fn sum(graph: &mut Graph, block: usize, a: Tensor, b: Tensor) -> Tensor {
        let sum = |graph: &mut Graph| graph.one(Map::add(DType::F32), &[a, b], "sum");
        graph.in_block(block, sum).unwrap()
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
