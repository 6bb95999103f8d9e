//! Several processes that train one model: each makes its micro-batches of a step, and all add up their gradients.
//!
//! Gradients are summed in the order of ranks, so that every rank makes the same update, with the bits of a process that sums them one by
//! one in that order.

use tightrope_core::ops::{Collective, Map, Part};
use tightrope_core::{Graph, Tensor};

use crate::error::Result;

/// Bytes of a tensor that ranks exchange at once: what arrives takes as much room.
const PIECE: usize = 1 << 24;

/// Appends the sum of `x` over all ranks, written over it, and gives its handle. Every rank gets the same bits.
///
/// # Errors
/// As [`Graph::push`].
pub(crate) fn sum_over_ranks(graph: &mut Graph, ranks: usize, x: Tensor) -> Result<Tensor> {
    if ranks == 1 {
        return Ok(x);
    }
    let (name, class, dtype) = {
        let info = graph.info(x);
        (info.name.clone(), info.class, info.ty.dtype)
    };
    let elements = graph.ty(x).elements();
    let mut whole = x;
    for first in (0..elements).step_by(PIECE / dtype.size()) {
        let elements = first..elements.min(first + PIECE / dtype.size());
        let part = Part { ranks, elements };
        let shards =
            graph.push(Collective::Exchange(part.clone()), &[whole], &format!("{name}.of_rank"))?;
        shards.iter().for_each(|&shard| graph.info_mut(shard).class = class);
        let mut sum = shards[0];
        for &shard in &shards[1..] {
            sum = graph.one(Map::add(dtype), &[sum, shard], &format!("{name}.shard"))?;
            graph.info_mut(sum).class = class;
        }
        whole = graph.one(Collective::Gather(part), &[sum, whole], &format!("{name}.of_all"))?;
    }
    Ok(whole)
}
