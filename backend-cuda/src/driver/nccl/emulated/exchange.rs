//! A group on its way: its calls go on a piece at a time, as ranks come to them.

use std::collections::VecDeque;
use std::sync::Arc;

use super::shared::WORDS;
use super::{Call, Comm, Shared};
use crate::collective::Bytes;

/// How far a rank is with each lane, and its draws.
pub struct Calls {
    shared: Arc<Shared>,
    rank: usize,
    /// By the other rank: calls that were begun.
    sent: Vec<u64>,
    received: Vec<u64>,
    drawn: u64,
}

/// A group whose calls aren't all done.
pub struct Exchange {
    what: String,
    sides: Vec<Side>,
    /// What has come, to be written once all of it has.
    received: Vec<(Bytes, Vec<u8>)>,
}

/// The calls of a group to one rank, or from one.
struct Side {
    sends: bool,
    peer: usize,
    calls: VecDeque<Bytes>,
    /// The first call's number, once this rank has come to it, and what of it has been sent or received.
    begun: Option<u64>,
    /// Whether the other rank has come to the same call. It may have come to the next since, once it has the bytes.
    met: bool,
    sent: usize,
    received: Vec<u8>,
}

/// Memory of a device that calls send from and receive into.
pub trait Memory {
    /// These bytes of it.
    fn bytes(&mut self, range: Bytes) -> &mut [u8];
}

impl Calls {
    /// Of a communicator.
    pub fn new(comm: &Comm, seed: u32) -> Self {
        let none = vec![0; comm.shared.count];
        let shared = Arc::clone(&comm.shared);
        Self { shared, rank: comm.rank, sent: none.clone(), received: none, drawn: seed.into() }
    }

    fn draw(&mut self, of: usize) -> usize {
        // The generator of Knuth's MMIX; its highest bits are its best.
        let next = self.drawn.wrapping_mul(6_364_136_223_846_793_005);
        self.drawn = next.wrapping_add(1_442_695_040_888_963_407);
        (self.drawn >> 33) as usize % of.max(1)
    }
}

impl Exchange {
    /// A group, which is part of `what`.
    ///
    /// # Errors
    /// In words, where a byte is received into that is received into or sent otherwise.
    pub fn new(what: &str, group: &[Call]) -> Result<Self, String> {
        let mut sides: Vec<Side> = vec![];
        for (index, call) in group.iter().enumerate() {
            let shares = |other: &Call| {
                let [a, b] = [call.bytes, other.bytes];
                (!call.sends || !other.sends)
                    && a.start < b.start + b.count
                    && b.start < a.start + a.count
            };
            if let Some(other) = group[..index].iter().find(|other| shares(other)) {
                return Err(format!("{what}: {call:?} shares bytes with {other:?}"));
            }
            let alike = |side: &&mut Side| (side.sends, side.peer) == (call.sends, call.peer);
            match sides.iter_mut().find(alike) {
                Some(side) => side.calls.push_back(call.bytes),
                None => sides.push(Side {
                    sends: call.sends,
                    peer: call.peer,
                    calls: [call.bytes].into(),
                    begun: None,
                    met: false,
                    sent: 0,
                    received: vec![],
                }),
            }
        }
        let what = what[..what.floor_char_boundary(WORDS)].to_owned();
        Ok(Self { what, sides, received: vec![] })
    }

    /// Goes on as far as other ranks have come; whether all is done.
    ///
    /// # Errors
    /// In words, where another rank does something else.
    pub fn advance(&mut self, calls: &mut Calls, memory: &mut dyn Memory) -> Result<bool, String> {
        let mut waiting = 0;
        while !self.sides.is_empty() && waiting <= 4 * self.sides.len() {
            let index = calls.draw(self.sides.len());
            let side = &mut self.sides[index];
            match side.advance(&self.what, calls, memory)? {
                Moved::Nothing => waiting += 1,
                Moved::Some => waiting = 0,
                Moved::Received(bytes, received) => {
                    self.received.push((bytes, received));
                    waiting = 0;
                }
            }
            if self.sides[index].calls.is_empty() {
                self.sides.swap_remove(index);
            }
        }
        if !self.sides.is_empty() {
            self.sides.iter().for_each(|side| calls.shared.want(side.peer));
            return Ok(false);
        }
        for (bytes, received) in self.received.drain(..) {
            memory.bytes(bytes).copy_from_slice(&received);
        }
        Ok(true)
    }
}

/// What came of a side.
enum Moved {
    Nothing,
    Some,
    Received(Bytes, Vec<u8>),
}

impl Side {
    /// # Errors
    /// In words, where the two ranks do something else.
    fn compare(
        &self,
        what: &str,
        count: u64,
        theirs: (u64, &str),
        [rank, peer]: [usize; 2],
    ) -> Result<(), String> {
        if theirs == (count, what) {
            return Ok(());
        }
        let [does, would] = if self.sends { ["sends", "receive"] } else { ["receives", "send"] };
        let (other, theirs) = theirs;
        Err(format!(
            "rank {rank} {does} {count} bytes of `{what}`, where rank {peer} would {would} {other} bytes of `{theirs}`"
        ))
    }

    fn advance(
        &mut self,
        what: &str,
        calls: &mut Calls,
        memory: &mut dyn Memory,
    ) -> Result<Moved, String> {
        let Some(&bytes) = self.calls.front() else { return Ok(Moved::Nothing) };
        let (rank, peer) = (calls.rank, self.peer);
        let shared = Arc::clone(&calls.shared);
        let lane = if self.sends { shared.lane(rank, peer) } else { shared.lane(peer, rank) };
        let (own, other) = match self.sends {
            true => (&lane.sender, &lane.receiver),
            false => (&lane.receiver, &lane.sender),
        };
        let Some(number) = self.begun else {
            let begun = if self.sends { &mut calls.sent } else { &mut calls.received };
            begun[peer] += 1;
            self.begun = Some(begun[peer]);
            own.come_to(begun[peer], bytes.count, what);
            return Ok(Moved::Some);
        };
        if !self.met {
            let Some((count, theirs)) = other.at(number) else { return Ok(Moved::Nothing) };
            self.compare(what, bytes.count, (count, &theirs), [rank, peer])?;
            self.met = true;
        }
        let moved = if self.sends {
            let sent = lane.fill(&memory.bytes(bytes)[self.sent..]);
            self.sent += sent;
            sent > 0
        } else {
            lane.take(&mut self.received)
        };
        let is_done = match self.sends {
            true => self.sent as u64 == bytes.count && lane.is_empty(),
            false => self.received.len() as u64 == bytes.count,
        };
        if !is_done {
            return Ok(if moved { Moved::Some } else { Moved::Nothing });
        }
        self.calls.pop_front();
        (self.begun, self.met, self.sent) = (None, false, 0);
        let received = std::mem::take(&mut self.received);
        Ok(if self.sends { Moved::Some } else { Moved::Received(bytes, received) })
    }
}
