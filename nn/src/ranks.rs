//! Several processes that train one model: each makes its micro-batches of a step, and all add up what they made.
//!
//! Everything is summed in the order of ranks, so that every rank makes the same update, with the bits of a process that sums
//! micro-batches one by one in that order.

use tightrope_core::ops::{Collective, Map, Part};
use tightrope_core::{Graph, Tensor};

use crate::error::Result;
use crate::share::Share;

/// Bytes of a tensor that ranks exchange at once: what arrives takes as much room.
const PIECE: usize = 1 << 24;

/// Appends the sum of `x` over all ranks, written over it, and gives its handle. Every rank gets the same bits.
///
/// # Errors
/// As [`Graph::push`].
pub(crate) fn sum_over_ranks(graph: &mut Graph, ranks: usize, x: Tensor) -> Result<Tensor> {
    let (elements, dtype) = (graph.ty(x).elements(), graph.dtype(x));
    let mut whole = x;
    for first in (0..elements).step_by(PIECE / dtype.size()) {
        let elements = first..elements.min(first + PIECE / dtype.size());
        let part = Part { ranks, elements };
        let shards = exchange(graph, &part, whole)?;
        let mut sum = shards[0];
        for &shard in &shards[1..] {
            sum = alike(graph, x, "shard", |graph, name| {
                graph.one(Map::add(dtype), &[sum, shard], name)
            })?;
        }
        whole = gather(graph, part, sum, whole)?;
    }
    Ok(whole)
}

/// As [`sum_over_ranks`], of each rank's share of `x`, f32 (1).
///
/// # Errors
/// As [`Graph::push`].
pub(crate) fn sum_of_shares(
    graph: &mut Graph,
    ranks: usize,
    share: Share,
    x: Tensor,
) -> Result<Tensor> {
    let part = Part { ranks, elements: 0..1 };
    let shards = exchange(graph, &part, x)?;
    let shares = match share {
        Share::Equal(_) => vec![share; ranks],
        Share::Counted { tensor, input } => {
            let exchanged = exchange(graph, &part, tensor)?;
            exchanged.into_iter().map(|tensor| Share::Counted { tensor, input }).collect()
        }
    };
    let mut sum = None;
    for (share, shard) in shares.into_iter().zip(shards) {
        sum = Some(alike(graph, x, "shard", |graph, name| match sum {
            None => share.of(graph, shard, name),
            Some(sum) => share.added(graph, sum, shard, name),
        })?);
    }
    gather(graph, part, sum.unwrap_or(x), x)
}

fn exchange(graph: &mut Graph, part: &Part, x: Tensor) -> Result<Vec<Tensor>> {
    let (name, class) = (format!("{}.of_rank", graph.info(x).name), graph.info(x).class);
    let shards = graph.push(Collective::Exchange(part.clone()), &[x], &name)?;
    shards.iter().for_each(|&shard| graph.info_mut(shard).class = class);
    Ok(shards)
}

fn gather(graph: &mut Graph, part: Part, shard: Tensor, x: Tensor) -> Result<Tensor> {
    let name = format!("{}.of_all", graph.info(x).name);
    Ok(graph.one(Collective::Gather(part), &[shard, x], &name)?)
}

/// Appends something of the same class as `x`, with a name of its own.
fn alike<E>(
    graph: &mut Graph,
    x: Tensor,
    what: &str,
    append: impl FnOnce(&mut Graph, &str) -> std::result::Result<Tensor, E>,
) -> std::result::Result<Tensor, E> {
    let (name, class) = (format!("{}.{what}", graph.info(x).name), graph.info(x).class);
    let made = append(graph, &name)?;
    graph.info_mut(made).class = class;
    Ok(made)
}
