//! Collectives as moves of bytes within the arena and to those of other ranks.

use tightrope_core::ops::Collective;
use tightrope_core::shards::Run;
use tightrope_core::{Node, Plan, Tensor};

/// What a rank does for one collective, in this order: bytes that become 0, copies, and what it sends and receives, all of that at once.
/// None of the ranges that are written shares a byte with another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moves {
    /// The tensor that is made, as errors name it.
    pub what: String,
    /// What becomes 0.
    pub zeros: Vec<Bytes>,
    /// From where to where, of equally many bytes.
    pub copies: Vec<(u64, Bytes)>,
    /// To which rank. What goes to one arrives in this order.
    pub sends: Vec<(usize, Bytes)>,
    /// From which rank.
    pub receives: Vec<(usize, Bytes)>,
}

/// So many bytes from an address on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes {
    /// Address of the first.
    pub start: u64,
    /// How many.
    pub count: u64,
}

impl Moves {
    /// What this rank does for a node that is a collective, whose tensors begin where `address` says.
    ///
    /// # Errors
    /// In words, where it is one of another number of ranks.
    pub fn new(
        collective: &Collective,
        node: &Node,
        plan: &Plan,
        address: impl Fn(Tensor) -> u64,
        (rank, count): (usize, usize),
    ) -> Result<Self, String> {
        let (shards, range) = (collective.shards(), collective.range());
        let what = plan.graph.info(node.outputs[0]).name.clone();
        let Some(among) = collective.among(rank, count) else {
            let planned = shards.ranks;
            return Err(format!(
                "`{what}` is shared by {planned} ranks, and this device is linked with {count}"
            ));
        };
        let size = plan.graph.dtype(node.outputs[0]).size() as u64;
        let bytes = |tensor, first: usize, len: usize| Bytes {
            start: address(tensor) + first as u64 * size,
            count: len as u64 * size,
        };
        // Elements of the whole tensor; and of a row of what has a shard's elements from the range's first on.
        let whole = |tensor, run: &Run| bytes(tensor, run.whole, run.len);
        let of_row = |tensor, row: usize, run: &Run| {
            bytes(tensor, row * range.len() + run.own - range.start, run.len)
        };
        let part = |tensor, run: &Run| of_row(tensor, 0, run);
        let runs: Vec<Vec<Run>> = (0..shards.ranks).map(|rank| shards.runs(rank, &range)).collect();
        let mut moves = Self { what, ..Self::default() };
        // What of the parts that this rank holds is beyond the tensor.
        let zeros = |output: Tensor, row: usize| {
            let ends = runs[rank].iter().map(|run| run.own + run.len);
            let starts = [range.start].into_iter().chain(ends);
            let nexts = runs[rank].iter().map(|run| run.own).chain([range.end]);
            let gaps = starts.zip(nexts).filter(|(start, next)| start < next);
            let first = row * range.len();
            let gap = |(start, next)| bytes(output, first + start - range.start, next - start);
            gaps.map(gap).collect::<Vec<Bytes>>()
        };
        match collective {
            Collective::Exchange(_) => {
                let [x, made] = [node.inputs[0], node.outputs[0]];
                for peer in 0..shards.ranks {
                    moves.zeros.extend(zeros(made, peer));
                    let row = runs[rank].iter().map(|run| (run, of_row(made, peer, run)));
                    if peer == rank {
                        moves.copies.extend(row.map(|(run, to)| (whole(x, run).start, to)));
                        continue;
                    }
                    moves.sends.extend(runs[peer].iter().map(|run| (peer, whole(x, run))));
                    moves.receives.extend(row.map(|(_, to)| (peer, to)));
                }
            }
            Collective::Own(_) => {
                let [x, shard] = [node.inputs[0], node.outputs[0]];
                moves.zeros = zeros(shard, 0);
                let own = runs[rank].iter().map(|run| (whole(x, run).start, part(shard, run)));
                moves.copies.extend(own);
            }
            Collective::Gather(_) | Collective::Assemble { .. } => {
                let [shard, all] = [node.inputs[0], node.outputs[0]];
                let own = runs[rank].iter().map(|run| (part(shard, run).start, whole(all, run)));
                moves.copies.extend(own);
                for peer in (0..count).filter(|&peer| peer != rank) {
                    moves.sends.extend(runs[rank].iter().map(|run| (peer, part(shard, run))));
                    moves.receives.extend(runs[peer].iter().map(|run| (peer, whole(all, run))));
                }
            }
            Collective::AllToAll(_) => {
                let [x, made] = [node.inputs[0], node.outputs[0]];
                for (peer, runs) in among.zip(&runs) {
                    for run in runs {
                        let (from, to) = (whole(x, run), whole(made, run));
                        if peer == rank {
                            moves.copies.push((from.start, to));
                        } else {
                            moves.sends.push((peer, from));
                            moves.receives.push((peer, to));
                        }
                    }
                }
            }
        }
        Ok(moves)
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        let Self { zeros, copies, sends, receives, .. } = self;
        zeros.is_empty() && copies.is_empty() && sends.is_empty() && receives.is_empty()
    }
}
