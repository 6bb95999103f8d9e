//! Flights: from which step to which a transfer is on its way, beside the ops between.
//!
//! | | begins | ends |
//! |---|---|---|
//! | load | where the load of the same place in the block before ends | before the first op that reads it |
//! | store | after the op that makes its tensor | where the store of the same place in the next block begins |
//!
//! So a copy has the time of a block, and what is on its way takes the room of one block. Both ends are places in the
//! program: how fast copies are changes when a step is done, and never who has which bytes. A pass begins and ends with none
//! on its way, so that nothing more is held while the loss is computed.

use std::ops::Range;

use super::liveness::Outline;
use super::remat::Turn;
use crate::graph::Phase;
use crate::ops::Transfer;

/// Which way a transfer goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To the device.
    Load,
    /// To the host.
    Store,
}

impl Direction {
    /// Of a transfer.
    pub fn of(transfer: &Transfer) -> Self {
        match transfer {
            Transfer::Load { .. } => Self::Load,
            Transfer::Store { .. } => Self::Store,
        }
    }
}

/// A transfer on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flight {
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
    pub fn flights(&self, turns: &[Turn]) -> Vec<Flight> {
        if self.nodes.iter().all(|node| node.transfer.is_none()) {
            return vec![];
        }
        if !self.overlap {
            let at = |step: usize| {
                let direction = self.direction(&turns[step])?;
                Some(Flight { direction, step, begin: step, end: step })
            };
            return (0..turns.len()).filter_map(at).collect();
        }
        let runs = self.runs(turns);
        let mut flights = vec![];
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
            flights.extend(run.loads.iter().enumerate().map(|(place, &step)| Flight {
                direction,
                step,
                begin: ahead(place),
                end: step,
            }));
            let direction = Direction::Store;
            flights.extend(run.stores.iter().enumerate().map(|(place, &step)| Flight {
                direction,
                step,
                begin: step,
                end: behind(place),
            }));
        }
        flights.sort_by_key(|flight| flight.step);
        flights
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
            if !runs.last().is_some_and(|run| (run.block, run.forward) == (block, forward)) {
                let (loads, stores) = (vec![], vec![]);
                runs.push(Run { block, forward, steps: step..step, loads, stores });
            }
            let Some(run) = runs.last_mut() else { continue };
            run.steps.end = step + 1;
            match self.direction(turn) {
                Some(Direction::Load) => run.loads.push(step),
                Some(Direction::Store) => run.stores.push(step),
                None => {}
            }
        }
        runs
    }
}

/// What a session does with these flights, each before a step or after the last one: stores end first, so that loads may
/// take their bytes.
pub fn events(flights: &[Flight]) -> Vec<(usize, Event)> {
    let mut events = vec![];
    for flight in flights {
        let &Flight { direction, step, begin, end } = flight;
        let (begin, end) = match direction {
            Direction::Load => ((begin, 1), (step, 2)),
            Direction::Store => ((step, 2), (end + 1, 0)),
        };
        events.push((begin, Event::Begin(direction, step)));
        events.push((end, Event::End(direction, step)));
    }
    // Of one direction, what begins first ends first: the order of flights is kept.
    events.sort_by_key(|&(order, _)| order);
    events.into_iter().map(|((at, _), event)| (at, event)).collect()
}
