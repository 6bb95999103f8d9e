//! Attention over sequences of which each of several ranks has a part (Jacobs et al. 2023, "DeepSpeed-Ulysses").   C ranks, B sequences,
//! T positions, t = T/C of them on each rank
//!
//! Everything but attention works on each position by itself. So a rank has all heads of its positions before attention, and after it;
//! for attention, ranks exchange them: each gets all positions of its heads. Sums over keys are those of one rank that has everything,
//! under any mask, and all ranks have equally much to do. Where there are fewer heads of keys and values than ranks, neighbours whose
//! queries share one get a copy of it each, and its gradient is the sum of theirs.

use std::ops::Range;

use tightrope_core::ops::{self, Collective, Concat, Permute, Reshape, Slice};
use tightrope_core::{Shards, Tensor};

use crate::error::{Result, ensure};
use crate::pass::Pass;

/// Whether ranks share so many heads of queries and of keys and values evenly: each rank has as many, and of keys and values those that
/// its queries ask.
pub(crate) fn are_shared(heads: usize, kv_heads: usize, ranks: usize) -> bool {
    heads.is_multiple_of(ranks)
        && (kv_heads.is_multiple_of(ranks) || ranks.is_multiple_of(kv_heads))
}

/// What `op` is over a rank's heads.
///
/// # Errors
/// [`crate::Error::Setting`] where ranks don't share them evenly.
pub(super) fn of_rank(op: &ops::Attention, ranks: usize) -> Result<ops::Attention> {
    let ops::Attention { heads, kv_heads, .. } = *op;
    ensure(are_shared(heads, kv_heads, ranks), "run.context_ranks", || {
        let evenly = (1..=heads).filter(|&ranks| are_shared(heads, kv_heads, ranks));
        let evenly: Vec<_> = evenly.map(|ranks| ranks.to_string()).collect();
        format!(
            "{ranks} ranks don't share {heads} heads, and {kv_heads} of keys and values, evenly; these numbers do: {}",
            evenly.join(", ")
        )
    })?;
    Ok(ops::Attention { heads: heads / ranks, kv_heads: (kv_heads / ranks).max(1), ..op.clone() })
}

/// Packed projections of all positions for this rank's heads, (B, T, (H + 2·G)·D/C), of those of its positions for all heads,
/// (B, t, (H + 2·G)·D). Where G is less than C, a rank has one head of keys and one of values: (B, T, (H/C + 2)·D).
pub(super) fn heads_of_rank(
    pass: &mut Pass<'_>,
    op: &ops::Attention,
    packed: Tensor,
    name: &str,
) -> Result<Tensor> {
    let named = |part: &str| format!("{name}.{part}");
    let ranks = pass.context_ranks();
    let [batch, positions] = [0, 1].map(|axis| pass.shape(packed)[axis]);
    // Columns of queries, keys and values, each cut among ranks.
    let columns = |heads: Range<usize>| heads.start * op.head_dim..heads.end * op.head_dim;
    let (heads, kv_heads) = (op.heads, op.kv_heads);
    let sections = [
        ("queries", columns(0..heads)),
        ("keys", columns(heads..heads + kv_heads)),
        ("values", columns(heads + kv_heads..heads + 2 * kv_heads)),
    ];
    let mut parts = vec![];
    for (section, columns) in sections {
        let slice = Slice { axis: 2, start: columns.start, len: columns.len() };
        let x = pass.one(slice, &[packed], &named(section))?;
        // Ranks that share a head have copies of it.
        let owners = ranks.min(columns.len() / op.head_dim);
        let own = columns.len() / owners;
        let shape = vec![batch * positions, owners, own];
        let x = pass.one(Reshape { shape }, &[x], &named(&format!("{section}.heads")))?;
        let by_rank = Permute { axes: vec![1, 0, 2] };
        let mut x = pass.one(by_rank, &[x], &named(&format!("{section}.by_rank")))?;
        if owners < ranks {
            let copies = vec![x; ranks / owners];
            x = pass.one(Concat { axis: 1 }, &copies, &named(&format!("{section}.copies")))?;
            let shape = vec![ranks, batch * positions, own];
            x = pass.one(Reshape { shape }, &[x], &named(&format!("{section}.shared")))?;
        }
        parts.push(x);
    }
    let by_rank = pass.one(Concat { axis: 2 }, &parts, &named("qkv.by_rank"))?;
    let of_ranks = all_to_all(pass, by_rank, &named("qkv.of_ranks"))?;
    sequences(pass, of_ranks, [batch, positions], &named("qkv.of_all"))
}

/// Values of this rank's positions for all heads, (B, t, H·D), of those of all positions for its heads, (B, T, H·D/C).
pub(super) fn positions_of_rank(pass: &mut Pass<'_>, out: Tensor, name: &str) -> Result<Tensor> {
    let named = |part: &str| format!("{name}.{part}");
    let ranks = pass.context_ranks();
    let [batch, all, columns] = [0, 1, 2].map(|axis| pass.shape(out)[axis]);
    let positions = all / ranks;
    let shape = vec![batch, ranks, positions, columns];
    let mut x = pass.one(Reshape { shape }, &[out], &named("out.positions"))?;
    if batch > 1 {
        x = pass.one(Permute { axes: vec![1, 0, 2, 3] }, &[x], &named("out.by_rank"))?;
    }
    let of_ranks = all_to_all(pass, x, &named("out.of_ranks"))?;
    let shape = vec![ranks, batch * positions, columns];
    let x = pass.one(Reshape { shape }, &[of_ranks], &named("out.heads"))?;
    let x = pass.one(Permute { axes: vec![1, 0, 2] }, &[x], &named("out.of_positions"))?;
    let shape = vec![batch, positions, ranks * columns];
    pass.one(Reshape { shape }, &[x], &named("out.of_all"))
}

/// The documents of all positions, (B, T), of those of this rank's, (B, t). They are exchanged once a pass.
pub(super) fn documents_of_all(pass: &mut Pass<'_>, documents: Tensor) -> Result<Tensor> {
    if let Some(known) = pass.documents {
        return Ok(known);
    }
    let name = |part: &str| format!("documents.{part}");
    let ranks = pass.context_ranks();
    let [batch, positions] = [0, 1].map(|axis| pass.shape(documents)[axis]);
    // Every rank is sent all that this one has.
    let shape = vec![1, batch * positions, 1];
    let own = pass.one(Reshape { shape }, &[documents], &name("own"))?;
    let for_all = pass.one(Concat { axis: 0 }, &vec![own; ranks], &name("for_all"))?;
    let of_ranks = all_to_all(pass, for_all, &name("of_ranks"))?;
    let whole = sequences(pass, of_ranks, [batch, positions], &name("sequences"))?;
    let shape = vec![batch, ranks * positions];
    let whole = pass.one(Reshape { shape }, &[whole], &name("of_all"))?;
    pass.documents = Some(whole);
    Ok(whole)
}

/// What each rank of a context has for this one, of what this one has for each: their order is the first axis.
fn all_to_all(pass: &mut Pass<'_>, x: Tensor, name: &str) -> Result<Tensor> {
    let shards = Shards::of(pass.ty(x).elements(), pass.context_ranks(), 1);
    pass.one(Collective::AllToAll(shards), &[x], name)
}

/// Whole sequences, (B, T, columns), of those parts of them that ranks have, (C, B·t, columns).
fn sequences(
    pass: &mut Pass<'_>,
    of_ranks: Tensor,
    [batch, positions]: [usize; 2],
    name: &str,
) -> Result<Tensor> {
    let (ranks, columns) = (pass.context_ranks(), pass.shape(of_ranks)[2]);
    let mut x = of_ranks;
    if batch > 1 {
        let shape = vec![ranks, batch, positions, columns];
        x = pass.one(Reshape { shape }, &[x], &format!("{name}.apart"))?;
        x = pass.one(Permute { axes: vec![1, 0, 2, 3] }, &[x], &format!("{name}.in_order"))?;
    }
    let shape = vec![batch, ranks * positions, columns];
    pass.one(Reshape { shape }, &[x], name)
}
