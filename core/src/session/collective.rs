//! Collectives of a session's programs, of those on the host too: what it sends to the other ranks, and what comes from them; and tensors
//! of which each rank has a shard.

use std::ops::Range;
use std::slice;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::graph::{Node, Sharded};
use crate::ops::Collective;
use crate::plan::{Event, Plan};
use crate::ranks::Ticket;
use crate::shards::{Part, Shards};
use crate::tensor::Tensor;

use super::{Session, SessionError};

/// Bytes of a shard that are sent at once: the host holds as many of each rank.
const PIECE: usize = 1 << 22;

/// Whose memory a collective reads and writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// That of the device.
    Device,
    /// That of the host, for what is offloaded to it.
    Host,
}

/// A time in which a session waited for the other ranks, or for what they sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// What came: the name of a tensor, or of a setting that is compared.
    pub what: String,
    /// When it began to wait.
    pub since: Instant,
    /// How long.
    pub took: Duration,
}

/// What a session has waited for since it was last asked.
#[derive(Debug, Default)]
pub(super) struct Waits {
    took: Duration,
    /// One by one, where they are kept.
    kept: Option<Vec<Wait>>,
}

impl Session {
    /// Keeps each time in which the session waits for the other ranks, until [`Session::take_waits`] takes them.
    pub fn keep_waits(&mut self) {
        self.waits.kept.get_or_insert_default();
    }

    /// How long the session has waited for the other ranks since this was last asked; and each time, where they are kept.
    pub fn take_waits(&mut self) -> (Duration, Vec<Wait>) {
        let kept = self.waits.kept.as_mut().map(std::mem::take);
        (std::mem::take(&mut self.waits.took), kept.unwrap_or_default())
    }

    /// Waits for what was begun with the other ranks.
    fn finish(&mut self, what: &str, ticket: Ticket) -> Result<Vec<u8>, SessionError> {
        let Some(ranks) = &mut self.ranks else { return Ok(vec![]) };
        let since = Instant::now();
        let received = ranks.finish(ticket)?;
        let took = since.elapsed();
        self.waits.took += took;
        if let Some(kept) = &mut self.waits.kept {
            kept.push(Wait { what: what.to_owned(), since, took });
        }
        Ok(received)
    }

    /// Tells the other ranks why this one ends. Whoever launched them ends none before all have said what they have to say.
    #[cfg(not(target_family = "wasm"))]
    pub fn tell_failed(&mut self, reason: &str) {
        if let Some(ranks) = &mut self.ranks {
            ranks.fail(reason);
        }
    }

    /// What each rank gives, in the order of ranks: equally many bytes of each, and this one's alone where there are no others.
    /// `what` is named where it fails.
    ///
    /// # Errors
    /// [`SessionError::Ranks`].
    pub fn gather_from_ranks(&mut self, what: &str, own: Vec<u8>) -> Result<Vec<u8>, SessionError> {
        let Some(ranks) = &mut self.ranks else { return Ok(own) };
        let ticket = ranks.begin_gather(what, own)?;
        self.finish(what, ticket)
    }

    /// This rank's place among as many as `shards` are for; `name` is of what they are shards of.
    ///
    /// # Errors
    /// [`SessionError::OtherRanks`].
    fn rank_of(&self, shards: &Shards, name: &str) -> Result<usize, SessionError> {
        let (rank, joined) = self.joined();
        match joined == shards.ranks {
            true => Ok(rank),
            false => Err(self.other_ranks(shards, name)),
        }
    }

    /// Which rank this is, and how many there are.
    fn joined(&self) -> (usize, usize) {
        self.ranks.as_ref().map_or((0, 1), |ranks| (ranks.rank(), ranks.count()))
    }

    fn other_ranks(&self, shards: &Shards, name: &str) -> SessionError {
        let (tensor, planned, (_, joined)) = (name.to_owned(), shards.ranks, self.joined());
        SessionError::OtherRanks { tensor, planned, joined }
    }

    /// Runs a program of the host up to its last collective, with what ranks exchange. Gives the first step that's left.
    pub(super) async fn run_to_last_collective(
        &mut self,
        program: usize,
    ) -> Result<usize, SessionError> {
        let plan = Arc::clone(self.plan_of(Side::Host));
        let (nodes, mut first) = (&plan.graph.programs[program].nodes, 0);
        // A device that makes collectives of its own makes none of these.
        for (at, event) in plan.programs[program].events_of(false) {
            let Event::End(_, step) = event else { continue };
            let Some(collective) = nodes[step].op.collective() else { continue };
            if let Some(host) = self.host.as_ref().filter(|_| first < at) {
                host.worker.run(program, first..at)?;
                first = at;
            }
            self.collective(collective, &nodes[step], Side::Host).await?;
        }
        Ok(first)
    }

    /// Makes a collective, once what it reads has been made.
    pub(super) async fn collective(
        &mut self,
        collective: &Collective,
        node: &Node,
        side: Side,
    ) -> Result<(), SessionError> {
        let name = self.plan_of(side).graph.info(node.outputs[0]).name.clone();
        let (rank, joined) = self.joined();
        let Some(among) = collective.among(rank, joined) else {
            return Err(self.other_ranks(collective.shards(), &name));
        };
        match collective {
            Collective::Exchange(part) => self.exchange(part, node, side, &name).await,
            Collective::Own(shards) => self.own(shards, node, side, rank).await,
            Collective::Gather(part) => {
                let tensors = [node.inputs[0], node.outputs[0]];
                self.collect((&part.shards, &part.range), tensors, side, &name).await
            }
            Collective::Assemble { shards, .. } => {
                let tensors = [node.inputs[0], node.outputs[0]];
                self.collect((shards, &(0..shards.shard())), tensors, side, &name).await
            }
            Collective::AllToAll(shards) => {
                let tensors = [node.inputs[0], node.outputs[0]];
                self.all_to_all((shards, among), tensors, side, &name).await
            }
        }
    }

    /// The plan of a side; the device's where the host has none.
    fn plan_of(&self, side: Side) -> &Arc<Plan> {
        let host = self.host.as_ref().filter(|_| side == Side::Host);
        host.map_or(&self.plan, |host| &host.plan)
    }

    /// The bytes of a tensor in the arena of a side.
    fn bytes_of_side(&self, side: Side, tensor: Tensor) -> Result<Range<u64>, SessionError> {
        let plan = self.plan_of(side);
        let name = || plan.graph.info(tensor).name.clone();
        let (offset, bytes) = plan.range(tensor).ok_or_else(|| SessionError::NoPlace(name()))?;
        Ok(offset..offset + bytes)
    }

    /// Bytes of elements of a tensor in the arena of a side.
    fn bytes_at(
        &self,
        side: Side,
        tensor: Tensor,
        elements: Range<usize>,
    ) -> Result<Range<u64>, SessionError> {
        let start = self.bytes_of_side(side, tensor)?.start;
        let size = self.plan_of(side).graph.dtype(tensor).size();
        let at = |element: usize| start + (element * size) as u64;
        Ok(at(elements.start)..at(elements.end))
    }

    /// Bytes of the arena of a side.
    async fn read_side(&mut self, side: Side, range: Range<u64>) -> Result<Vec<u8>, SessionError> {
        let ranges = slice::from_ref(&range);
        Ok(match (side, &self.host) {
            (Side::Host, Some(host)) => host.worker.read(ranges)?,
            _ => self.backend.read(ranges).await?,
        })
    }

    /// Sets bytes of the arena of a side.
    fn write_side(&mut self, side: Side, at: u64, bytes: &[u8]) -> Result<(), SessionError> {
        match (side, &self.host) {
            (Side::Host, Some(host)) => host.worker.write(at, bytes.to_vec())?,
            _ => self.backend.write(at, bytes)?,
        }
        Ok(())
    }

    async fn exchange(
        &mut self,
        part: &Part,
        node: &Node,
        side: Side,
        name: &str,
    ) -> Result<(), SessionError> {
        let x = node.inputs[0];
        let Part { shards, range } = part;
        let size = self.plan_of(side).graph.dtype(x).size();
        let bytes = range.len() * size;
        let mut parts = vec![0; bytes * shards.ranks];
        for (rank, part) in parts.chunks_exact_mut(bytes).enumerate() {
            for run in shards.runs(rank, range) {
                let at = self.bytes_at(side, x, run.whole..run.whole + run.len)?;
                let read = self.read_side(side, at).await?;
                part[(run.own - range.start) * size..][..read.len()].copy_from_slice(&read);
            }
        }
        let received = self.exchanged(name, 0..shards.ranks, parts)?;
        let to = self.bytes_of_side(side, node.outputs[0])?;
        self.write_side(side, to.start, &received)
    }

    /// What each of these ranks has for this one, of what this one has for each.
    fn exchanged(
        &mut self,
        name: &str,
        among: Range<usize>,
        parts: Vec<u8>,
    ) -> Result<Vec<u8>, SessionError> {
        let Some(ranks) = &mut self.ranks else { return Ok(parts) };
        let ticket = ranks.begin_exchange(name, among, parts)?;
        self.finish(name, ticket)
    }

    /// Sends each of these ranks its shard of `x`, and puts theirs of this rank's next to each other.
    async fn all_to_all(
        &mut self,
        (shards, among): (&Shards, Range<usize>),
        [x, made]: [Tensor; 2],
        side: Side,
        name: &str,
    ) -> Result<(), SessionError> {
        let (size, shard) = (self.plan_of(side).graph.dtype(x).size(), shards.shard());
        let step = (PIECE / size).max(1);
        for first in (0..shard).step_by(step) {
            let piece = first..shard.min(first + step);
            let of = |rank: usize| rank * shard + piece.start..rank * shard + piece.end;
            let mut parts = vec![];
            for rank in 0..among.len() {
                let at = self.bytes_at(side, x, of(rank))?;
                parts.extend(self.read_side(side, at).await?);
            }
            let received = self.exchanged(name, among.clone(), parts)?;
            for (rank, bytes) in received.chunks_exact(piece.len() * size).enumerate() {
                let to = self.bytes_at(side, made, of(rank))?;
                self.write_side(side, to.start, bytes)?;
            }
        }
        Ok(())
    }

    async fn own(
        &mut self,
        shards: &Shards,
        node: &Node,
        side: Side,
        rank: usize,
    ) -> Result<(), SessionError> {
        let [x, shard] = [node.inputs[0], node.outputs[0]];
        let runs = shards.runs(rank, &(0..shards.shard()));
        if runs.iter().map(|run| run.len).sum::<usize>() < shards.shard() {
            let all = self.bytes_of_side(side, shard)?;
            self.write_side(side, all.start, &vec![0; (all.end - all.start) as usize])?;
        }
        for run in runs {
            let from = self.bytes_at(side, x, run.whole..run.whole + run.len)?;
            let to = self.bytes_at(side, shard, run.own..run.own + run.len)?;
            let bytes = self.read_side(side, from).await?;
            self.write_side(side, to.start, &bytes)?;
        }
        Ok(())
    }

    /// Puts everybody's elements `range` of a shard into the tensor that it's of.
    async fn collect(
        &mut self,
        (shards, range): (&Shards, &Range<usize>),
        [shard, whole]: [Tensor; 2],
        side: Side,
        name: &str,
    ) -> Result<(), SessionError> {
        let size = self.plan_of(side).graph.dtype(whole).size();
        let mut first = range.start;
        while first < range.end {
            let piece = first..range.end.min(first + (PIECE / size).max(1));
            // A piece of a shard is given from its beginning on.
            let own = piece.start - range.start..piece.end - range.start;
            let own = self.bytes_at(side, shard, own)?;
            let own = self.read_side(side, own).await?;
            let all = self.gather_from_ranks(name, own)?;
            for (rank, bytes) in all.chunks_exact(piece.len() * size).enumerate() {
                for run in shards.runs(rank, &piece) {
                    let to = self.bytes_at(side, whole, run.whole..run.whole + run.len)?;
                    let bytes = &bytes[(run.own - piece.start) * size..][..run.len * size];
                    self.write_side(side, to.start, bytes)?;
                }
            }
            first = piece.end;
        }
        Ok(())
    }

    /// Sets bytes of a tensor from `first` on, of which this rank has a shard: what it holds of them.
    pub(super) fn write_to_shard(
        &mut self,
        tensor: Tensor,
        sharded: &Sharded,
        first: usize,
        bytes: &[u8],
    ) -> Result<(), SessionError> {
        let (size, expected) = (sharded.whole.dtype.size(), sharded.whole.bytes());
        let elements = first / size..(first + bytes.len()) / size;
        if elements.end * size > expected {
            return Err(self.length(tensor, expected, elements.end * size));
        }
        let rank = self.rank_of(&sharded.shards, &self.plan.graph.info(tensor).name)?;
        for run in sharded.shards.held(rank, &elements) {
            let part = &bytes[(run.whole - elements.start) * size..][..run.len * size];
            self.write_from(tensor, run.own * size, part)?;
        }
        Ok(())
    }

    /// These elements of a tensor as f32, one range after the other, which this rank has: all of it, or its shard. No other rank is asked.
    ///
    /// # Errors
    /// [`SessionError::Length`] for elements that this rank hasn't, and as [`Session::read`].
    pub async fn read_held_values_of(
        &mut self,
        tensor: Tensor,
        elements: &[Range<usize>],
    ) -> Result<Vec<f32>, SessionError> {
        let plan = Arc::clone(&self.plan);
        let Some(Sharded { shards, whole }) = plan.graph.sharded.get(&tensor) else {
            return self.read_values_of(tensor, elements).await;
        };
        let rank = self.rank_of(shards, &plan.graph.info(tensor).name)?;
        let size = whole.dtype.size();
        let (_, place) = self.place(tensor)?;
        let at = |element: usize| place.start + (element * size) as u64;
        let mut places = Vec::with_capacity(elements.len());
        for range in elements {
            let first = places.len();
            let held = shards.held(rank, range).into_iter();
            places.extend(held.map(|run| (false, at(run.own)..at(run.own + run.len))));
            let found = places[first..].iter().map(|(_, place)| (place.end - place.start) as usize);
            let (found, expected) = (found.sum::<usize>(), range.len() * size);
            if found != expected {
                return Err(self.length(tensor, expected, found));
            }
        }
        let bytes = self.read_places(&places).await?;
        Ok(whole.dtype.values(&bytes))
    }

    /// These elements of a tensor of which each rank has a shard, as f32. All ranks ask for the same.
    pub(super) async fn read_from_shards(
        &mut self,
        tensor: Tensor,
        sharded: &Sharded,
        elements: &[Range<usize>],
    ) -> Result<Vec<f32>, SessionError> {
        let plan = Arc::clone(&self.plan);
        let name = &plan.graph.info(tensor).name;
        let Sharded { shards, whole } = sharded;
        let (rank, dtype) = (self.rank_of(shards, name)?, whole.dtype);
        if let Some(outside) = elements.iter().find(|range| range.end > whole.elements()) {
            let [expected, got] = [whole.elements(), outside.end].map(|n| n * dtype.size());
            return Err(self.length(tensor, expected, got));
        }
        let held = |rank: usize| elements.iter().flat_map(move |range| shards.held(rank, range));
        let count = |rank: usize| held(rank).map(|run| run.len).sum::<usize>();
        let most = (0..shards.ranks).map(count).max().unwrap_or(0);
        let (with_host, place) = self.place(tensor)?;
        let at = |element: usize| place.start + (element * dtype.size()) as u64;
        let own: Vec<_> =
            held(rank).map(|run| (with_host, at(run.own)..at(run.own + run.len))).collect();
        let mut own = self.read_places(&own).await?;
        own.resize(most * dtype.size(), 0);
        let all = self.gather_from_ranks(name, own)?;
        // Each range is of the ranks that hold it, in their order.
        let mut next: Vec<usize> = (0..shards.ranks).map(|rank| rank * most).collect();
        let all = dtype.values(&all);
        let mut values = vec![];
        for range in elements {
            for (rank, next) in next.iter_mut().enumerate() {
                for run in shards.held(rank, range) {
                    values.extend_from_slice(&all[*next..*next + run.len]);
                    *next += run.len;
                }
            }
        }
        Ok(values)
    }
}
