//! Attention over sequences of which each of several ranks has a part (Jacobs et al. 2023, "DeepSpeed-Ulysses").   C ranks, B sequences,
//! T positions, t = T/C of them on each rank
//!
//! Everything but attention works on each position by itself. So a rank has all heads of its positions before attention, and after it;
//! for attention, ranks exchange them: each gets all positions of its heads. Sums over keys are those of one rank that has everything,
//! under any mask, and all ranks have equally much to do. Where there are fewer heads of keys and values than ranks, neighbours whose
//! queries share one get a copy of it each, and its gradient is the sum of theirs. Where ranks don't divide heads, heads of zeros make up
//! the number: nothing reads what they find.

use tightrope_core::ops::{self, Collective, Concat, Permute, Reshape, Slice, SliceGrad};
use tightrope_core::{Shards, Tensor};

use crate::error::{Result, ensure};
use crate::pass::Pass;

/// Heads as they are dealt to ranks: those of a model, and heads of zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Deal {
    ranks: usize,
    /// Heads of keys and values. Ranks divide them, or they divide ranks.
    groups: usize,
    /// Heads of queries that ask each.
    queries: usize,
}

impl Deal {
    /// The deal with the fewest heads of queries a rank, for G heads of keys and values with `queries` of queries each.
    fn new(kv_heads: usize, queries: usize, ranks: usize) -> Self {
        let whole = Self { ranks, groups: kv_heads.next_multiple_of(ranks), queries };
        let sharing = (kv_heads..=ranks).find(|&groups| ranks.is_multiple_of(groups));
        let shared = sharing.map(|groups| {
            let queries = queries.next_multiple_of(ranks / groups);
            Self { ranks, groups, queries }
        });
        [Some(whole), shared].into_iter().flatten().min_by_key(Self::heads).unwrap_or(whole)
    }

    fn of(op: &ops::Attention, ranks: usize) -> Self {
        Self::new(op.kv_heads, op.heads / op.kv_heads, ranks)
    }

    /// Heads of queries that a rank has.
    fn heads(&self) -> usize {
        self.groups * self.queries / self.ranks
    }

    /// Heads of keys and values that a rank has.
    fn kv_heads(&self) -> usize {
        (self.groups / self.ranks).max(1)
    }
}

/// What `op` is over a rank's heads.
///
/// # Errors
/// [`crate::Error::Setting`] where heads of keys and values don't divide those of queries.
pub(super) fn of_rank(op: &ops::Attention, ranks: usize) -> Result<ops::Attention> {
    let ops::Attention { heads, kv_heads, .. } = *op;
    ensure(kv_heads > 0 && heads.is_multiple_of(kv_heads), "kv_heads", || {
        format!("{kv_heads} key-value heads don't divide {heads} heads")
    })?;
    let deal = Deal::of(op, ranks);
    Ok(ops::Attention { heads: deal.heads(), kv_heads: deal.kv_heads(), ..op.clone() })
}

/// Packed projections of all positions for this rank's heads, H' of queries and G' of keys and values, (B, T, (H' + 2·G')·D), of those
/// of its positions for all heads, (B, t, (H + 2·G)·D).
pub(super) fn heads_of_rank(
    pass: &mut Pass<'_>,
    op: &ops::Attention,
    packed: Tensor,
    name: &str,
) -> Result<Tensor> {
    let named = |part: &str| format!("{name}.{part}");
    let ranks = pass.context_ranks();
    let deal = Deal::of(op, ranks);
    let [batch, positions] = [0, 1].map(|axis| pass.shape(packed)[axis]);
    let (groups, dim) = (op.kv_heads, op.head_dim);
    let sections = [
        ("queries", 0, op.heads / groups, deal.queries),
        ("keys", op.heads, 1, 1),
        ("values", op.heads + groups, 1, 1),
    ];
    let mut parts = vec![];
    for (section, first, heads, dealt) in sections {
        let part = |part: &str| named(&format!("{section}.{part}"));
        let slice = Slice { axis: 2, start: first * dim, len: groups * heads * dim };
        let mut x = pass.one(slice, &[packed], &named(section))?;
        if (deal.groups, dealt) != (groups, heads) {
            let shape = vec![batch * positions, groups, heads * dim];
            x = pass.one(Reshape { shape }, &[x], &part("groups"))?;
            x = widened(pass, x, 2, dealt * dim, &part("widened"))?;
            x = widened(pass, x, 1, deal.groups, &part("dealt"))?;
        }
        // Ranks that share a head have copies of it.
        let owners = if section == "queries" { ranks } else { ranks.min(deal.groups) };
        let own = deal.groups * dealt * dim / owners;
        let shape = vec![batch * positions, owners, own];
        x = pass.one(Reshape { shape }, &[x], &part("heads"))?;
        x = pass.one(Permute { axes: vec![1, 0, 2] }, &[x], &part("by_rank"))?;
        if owners < ranks {
            let copies = vec![x; ranks / owners];
            x = pass.one(Concat { axis: 1 }, &copies, &part("copies"))?;
            let shape = vec![ranks, batch * positions, own];
            x = pass.one(Reshape { shape }, &[x], &part("shared"))?;
        }
        parts.push(x);
    }
    let by_rank = pass.one(Concat { axis: 2 }, &parts, &named("qkv.by_rank"))?;
    let of_ranks = all_to_all(pass, by_rank, &named("qkv.of_ranks"))?;
    sequences(pass, of_ranks, [batch, positions], &named("qkv.of_all"))
}

/// `x` with zeros behind what it has along an axis.
fn widened(
    pass: &mut Pass<'_>,
    x: Tensor,
    axis: usize,
    extent: usize,
    name: &str,
) -> Result<Tensor> {
    let is_wide = pass.shape(x)[axis] == extent;
    if is_wide { Ok(x) } else { pass.one(SliceGrad { axis, start: 0, extent }, &[x], name) }
}

/// The first `len` of `x` along an axis.
fn narrowed(pass: &mut Pass<'_>, x: Tensor, axis: usize, len: usize, name: &str) -> Result<Tensor> {
    let is_narrow = pass.shape(x)[axis] == len;
    if is_narrow { Ok(x) } else { pass.one(Slice { axis, start: 0, len }, &[x], name) }
}

/// Values of this rank's positions for all heads, (B, t, H·D), of those of all positions for its heads, (B, T, H'·D).
pub(super) fn positions_of_rank(
    pass: &mut Pass<'_>,
    op: &ops::Attention,
    out: Tensor,
    name: &str,
) -> Result<Tensor> {
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
    let mut x = pass.one(Permute { axes: vec![1, 0, 2] }, &[x], &named("out.of_positions"))?;
    let (groups, queries) = (op.kv_heads, op.heads / op.kv_heads);
    let deal = Deal::of(op, ranks);
    if (deal.groups, deal.queries) != (groups, queries) {
        let shape = vec![batch * positions, deal.groups, deal.queries * op.head_dim];
        x = pass.one(Reshape { shape }, &[x], &named("out.dealt"))?;
        x = narrowed(pass, x, 1, groups, &named("out.groups"))?;
        x = narrowed(pass, x, 2, queries * op.head_dim, &named("out.queries"))?;
    }
    let shape = vec![batch, positions, op.heads * op.head_dim];
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_of_ranks_gets_whole_heads_and_few_of_zeros() {
        // Heads of keys and values, of queries each, and ranks; heads of both that a rank has, and of queries dealt in all.
        for (kv_heads, queries, ranks, expected) in [
            (12, 1, 4, (3, 3, 12)),
            (12, 1, 8, (2, 2, 16)),
            (12, 1, 24, (1, 1, 24)),
            (8, 4, 8, (4, 1, 32)),
            (8, 4, 16, (2, 1, 32)),
            // Qwen2.5 7B, 0.5B, Gemma 3 1B.
            (4, 7, 8, (4, 1, 32)),
            (2, 7, 4, (4, 1, 16)),
            (1, 4, 8, (1, 1, 8)),
            (3, 2, 2, (4, 2, 8)),
            (3, 5, 7, (5, 1, 35)),
        ] {
            let deal = Deal::new(kv_heads, queries, ranks);
            let all = deal.groups * deal.queries;
            let what = format!("{kv_heads} × {queries} to {ranks}");
            assert_eq!((deal.heads(), deal.kv_heads(), all), expected, "{what}");
        }
        for (kv_heads, queries, ranks) in
            (1..=9).flat_map(|g| (1..=5).flat_map(move |q| (1..=24).map(move |r| (g, q, r))))
        {
            let deal = Deal::new(kv_heads, queries, ranks);
            assert_eq!(deal.heads() * ranks, deal.groups * deal.queries);
            assert!(deal.groups >= kv_heads && deal.queries >= queries);
            assert!(deal.heads().is_multiple_of(deal.kv_heads()));
            // Nothing is added where ranks divide what there is.
            let is_even = kv_heads.is_multiple_of(ranks)
                || ranks.is_multiple_of(kv_heads) && (kv_heads * queries).is_multiple_of(ranks);
            assert_eq!(is_even, (deal.groups, deal.queries) == (kv_heads, queries), "{deal:?}");
        }
    }
}
