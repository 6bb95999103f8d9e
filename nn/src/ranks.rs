//! Several processes that train one model: each makes its micro-batches of a step, and all add up what they made.
//!
//! Everything is summed in the order of ranks, so that every rank makes the same update, with the bits of a process that sums
//! micro-batches one by one in that order, whichever shards of what it's made of are whose.

use tightrope_core::expr::input;
use tightrope_core::ops::{Accumulate, Collective, Concat, Map, Part, Slice, SquareSum, Transfer};
use tightrope_core::shards::Segment;
use tightrope_core::{Class, DType, Graph, Shards, Tensor, Type};

use crate::error::Result;
use crate::share::Share;

/// Bytes of a tensor that ranks exchange at once, of all together and of each at least: what arrives takes as much room.
const PIECE: [usize; 2] = [1 << 24, 1 << 20];

/// Appends the sum of `x` over all ranks, written over it, and gives its handle. Every rank gets the same bits.
///
/// # Errors
/// As [`Graph::push`].
pub(crate) fn sum_over_ranks(graph: &mut Graph, ranks: usize, x: Tensor) -> Result<Tensor> {
    let shards = Shards::of(graph.ty(x).elements(), ranks, 1);
    let mut whole = x;
    for part in parts(graph, &shards, x) {
        let sum = exchanged_sum(graph, &part, whole, None)?;
        whole = gather(graph, part, sum, whole)?;
    }
    Ok(whole)
}

/// Appends this rank's shard of the sum of `x` over all ranks; added to `sum`, its shard of such a sum, where that's given.
///
/// # Errors
/// As [`Graph::push`].
pub(crate) fn sum_to_shard(
    graph: &mut Graph,
    shards: &Shards,
    x: Tensor,
    sum: Option<Tensor>,
) -> Result<Tensor> {
    let parts = parts(graph, shards, x);
    if let [part] = &parts[..] {
        return exchanged_sum(graph, part, x, sum);
    }
    let mut made = vec![];
    for part in parts {
        let before = sum.map(|sum| {
            let slice = Slice { axis: 0, start: part.range.start, len: part.range.len() };
            alike(graph, x, "sum", |graph, name| graph.one(slice, &[sum], name))
        });
        let before = before.transpose()?;
        made.push(exchanged_sum(graph, &part, x, before)?);
    }
    let all = joined(graph, x, &made)?;
    sum.map_or(Ok(all), |sum| write_over(graph, sum, all))
}

/// Appends `x`, written over `to`.
///
/// # Errors
/// As [`Graph::push`].
pub(crate) fn write_over(graph: &mut Graph, to: Tensor, x: Tensor) -> Result<Tensor> {
    let copy = Map { in_place: vec![(0, 0)], ..Map::new(input(1), graph.dtype(to)) };
    Ok(graph.one(copy, &[to, x], "sum.of_all")?)
}

/// Has the host keep this rank's shard of the sum of `x` over all ranks, in the parts in which it's exchanged: tensors of the host, named by
/// `name`. Where it `adds`, what they hold comes to the device for that and goes back, so that everything is added up in the order of
/// passes and ranks.
///
/// # Errors
/// As [`Graph::push`].
pub(crate) fn sum_to_host(
    graph: &mut Graph,
    shards: &Shards,
    x: Tensor,
    name: &str,
    adds: bool,
) -> Result<Vec<Tensor>> {
    let mut held = vec![];
    for (index, part) in parts(graph, shards, x).iter().enumerate() {
        let ty = Type::new(graph.dtype(x), [part.range.len()]);
        let host = graph.persistent(&format!("{name}.part.{index}"), ty.clone(), Class::Gradient);
        let load = Transfer::Load { from: host, ty };
        let load = |graph: &mut Graph, name: &str| graph.one(load, &[], name);
        let before = adds.then(|| alike(graph, x, "before", load)).transpose()?;
        let sum = exchanged_sum(graph, part, x, before)?;
        alike(graph, x, "sent", |graph, name| {
            graph.one(Transfer::Store { to: host }, &[sum], name)
        })?;
        held.push(host);
    }
    Ok(held)
}

/// Appends a shard of `x` of its parts.
///
/// # Errors
/// As [`Graph::push`].
pub(crate) fn joined(graph: &mut Graph, x: Tensor, parts: &[Tensor]) -> Result<Tensor> {
    match *parts {
        [one] => Ok(one),
        _ => {
            Ok(alike(graph, x, "shard", |graph, name| graph.one(Concat { axis: 0 }, parts, name))?)
        }
    }
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
    let shares = shares(graph, ranks, share, x)?;
    let sum = accumulated(graph, x, shares, None)?;
    gather(graph, single(ranks), sum, x)
}

/// Adds each rank's share of `figure` to `sum`, both f32 (1), in the order of ranks: the first rank's is the sum of all.
///
/// # Errors
/// As [`Graph::push`].
pub(crate) fn add_shares(
    graph: &mut Graph,
    ranks: usize,
    share: Share,
    (sum, figure): (Tensor, Tensor),
) -> Result<Tensor> {
    let shares = shares(graph, ranks, share, figure)?;
    accumulated(graph, figure, shares, Some(sum))
}

/// Appends the first rank's `x`, f32 (1), written over everybody's.
///
/// # Errors
/// As [`Graph::push`].
pub(crate) fn of_first(graph: &mut Graph, ranks: usize, x: Tensor) -> Result<Tensor> {
    gather(graph, single(ranks), x, x)
}

/// A tensor of one element, which is the first rank's.
fn single(ranks: usize) -> Part {
    Part { shards: Shards::of(1, ranks, 1), range: 0..1 }
}

/// Appends the share of each rank's `x` on the first rank, f32 (ranks, 1).
fn shares(graph: &mut Graph, ranks: usize, share: Share, x: Tensor) -> Result<Tensor> {
    let figures = exchange(graph, &single(ranks), x)?;
    let share = match share {
        Share::Equal(_) => share,
        Share::Written(tensor) => Share::Written(exchange(graph, &single(ranks), tensor)?),
    };
    alike(graph, x, "shares", |graph, name| share.of(graph, figures, name))
}

/// Appends this rank's shard of a weight that all ranks have alike, for an update that is written over it.
///
/// # Errors
/// As [`Graph::push`].
pub(crate) fn own(graph: &mut Graph, shards: &Shards, x: Tensor) -> Result<Tensor> {
    Ok(alike(graph, x, "own", |graph, name| {
        graph.one(Collective::Own(shards.clone()), &[x], name)
    })?)
}

/// Appends `x` with the shards of all ranks written over it.
///
/// # Errors
/// As [`Graph::push`].
pub(crate) fn gather_shards(
    graph: &mut Graph,
    shards: &Shards,
    shard: Tensor,
    x: Tensor,
) -> Result<Tensor> {
    let part = Part { shards: shards.clone(), range: 0..shards.shard() };
    gather(graph, part, shard, x)
}

/// Appends the sums of squares of all ranks' blocks, where `squares` are those of this rank's shards of tensors that are cut like `sharded`;
/// none where nothing is cut.
///
/// # Errors
/// As [`Graph::push`].
pub(crate) fn of_all_ranks(
    graph: &mut Graph,
    sharded: &[&Shards],
    squares: Tensor,
) -> Result<Tensor> {
    let Some(&&Shards { ranks, .. }) = sharded.first() else { return Ok(squares) };
    let segments = |shards: &&Shards| shards.of_blocks(SquareSum::BLOCK).segments;
    let segments: Vec<Segment> = sharded.iter().flat_map(segments).collect();
    let shards = Shards { ranks, segments };
    let ty = Type::new(DType::F32, [shards.elements()]);
    let all = graph.one(Collective::Assemble { shards, ty }, &[squares], "grad_squares.of_all")?;
    graph.info_mut(all).class = Class::Optimizer;
    Ok(all)
}

/// A shard in parts that are small enough to be exchanged at once.
fn parts(graph: &Graph, shards: &Shards, x: Tensor) -> Vec<Part> {
    let [together, each] = PIECE;
    let step = (together / shards.ranks).max(each) / graph.dtype(x).size();
    let shard = shards.shard();
    let part =
        |first: usize| Part { shards: shards.clone(), range: first..shard.min(first + step) };
    (0..shard).step_by(step).map(part).collect()
}

/// Appends the sum of a part of this rank's shard over all ranks, begun with `sum` where that's given and then written over it.
fn exchanged_sum(graph: &mut Graph, part: &Part, x: Tensor, sum: Option<Tensor>) -> Result<Tensor> {
    let shards = exchange(graph, part, x)?;
    accumulated(graph, x, shards, sum)
}

/// Appends the sum of `rows`, a row of each rank, in the order of ranks: added to `sum` and written over it where that's given. The sum has the
/// class of `x`.
fn accumulated(graph: &mut Graph, x: Tensor, rows: Tensor, sum: Option<Tensor>) -> Result<Tensor> {
    let add = Accumulate { begun: sum.is_some() };
    let inputs: Vec<Tensor> = sum.into_iter().chain([rows]).collect();
    alike(graph, x, "sum", |graph, name| Ok(graph.one(add, &inputs, name)?))
}

/// Appends this part of this rank's shard of `x` as each rank has it, (ranks, elements).
fn exchange(graph: &mut Graph, part: &Part, x: Tensor) -> Result<Tensor> {
    let exchange = Collective::Exchange(part.clone());
    Ok(alike(graph, x, "of_ranks", |graph, name| graph.one(exchange, &[x], name))?)
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
