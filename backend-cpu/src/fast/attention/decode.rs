//! Attention of a few new tokens over a cache of keys and values, for generation.

use std::ops::Range;

use super::{Dims, Scores};
use crate::fast::vmath::parallel::{Disjoint, for_each_task};
use crate::fast::vmath::reduce::{dot, exponentiate, maximum};
use crate::fast::vmath::{LANES, Simd, Storage, dispatched};
use crate::isa::Isa;

/// Keys and values of the tokens so far, both (B, T, KV·D) with T the capacity, [`Dims::positions`].
#[derive(Clone, Copy, Debug)]
pub struct Cache<'a, T> {
    /// Keys, rotated where the model rotates them.
    pub keys: &'a [T],
    /// Values.
    pub values: &'a [T],
}

/// Where new tokens are, and how far they see.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The position of the first of them.
    pub position: usize,
    /// The number of the last positions that each reads; none for all.
    pub window: Option<usize>,
}

/// f32 of scratch of a worker: one row of scores, one query, one output.
fn worker_scratch(dims: &Dims) -> usize {
    dims.positions.next_multiple_of(LANES) + 2 * dims.width(1)
}

/// f32 of scratch that [`decode`] needs on `threads` threads.
pub fn decode_scratch(dims: &Dims, threads: usize) -> usize {
    threads.max(1) * worker_scratch(dims)
}

/// out (B, S, H·D) of the queries q (B, S, H·D) of S new tokens at positions `position` ..
/// `position + S`, whose own keys and values are in the cache already; each reads the cache up to its
/// own position, or the last ones within the window.
///
/// # Panics
/// If the lengths do not agree, the tokens exceed the cache, or `scratch` is shorter than
/// [`decode_scratch`] for one thread.
#[expect(clippy::too_many_arguments, reason = "the inputs and outputs of attention")]
pub fn decode<T: Storage>(
    isa: Isa,
    dims: &Dims,
    scoring: Scores,
    Place { position, window }: Place,
    q: &[T],
    cache: Cache<T>,
    out: &mut [T],
    scratch: &mut [f32],
) {
    dims.check();
    let cached = dims.batch * dims.positions * dims.kv_heads * dims.head_dim;
    assert_eq!(cache.keys.len(), cached, "keys are not (B, T, KV·D) of {dims:?}");
    assert_eq!(cache.values.len(), cached, "values are not (B, T, KV·D) of {dims:?}");
    assert_eq!(q.len(), out.len(), "q and out differ in length");
    if q.is_empty() {
        return;
    }
    let row = dims.batch * dims.channels();
    assert_eq!(q.len() % row, 0, "q is not (B, S, H·D) of {dims:?}");
    let tokens = q.len() / row;
    assert!(
        position + tokens <= dims.positions,
        "{tokens} tokens from position {position} on exceed the cache of {}",
        dims.positions
    );
    let out = Disjoint::new(out);
    let tasks = dims.batch * tokens * dims.heads;
    for_each_task(tasks, scratch, worker_scratch(dims), |task, scratch| {
        let (b, token, head) =
            (task / (tokens * dims.heads), task / dims.heads % tokens, task % dims.heads);
        // SAFETY: one task per D elements of out.
        let out = unsafe { out.part(task * dims.head_dim, dims.head_dim) };
        let q = &q[task * dims.head_dim..][..dims.head_dim];
        let end = position + token + 1;
        let seen = window.map_or(0, |window| end.saturating_sub(window))..end;
        task_on(isa, dims, scoring, (b, head, seen), q, cache, out, scratch);
    });
}

dispatched!(fn task_on<T>(
    dims: &Dims, scoring: Scores, task: (usize, usize, Range<usize>), q: &[T], cache: Cache<'_, T>,
    out: &mut [T], scratch: &mut [f32],
) = task_body);

/// One query of head `head` of sequence `b` over the positions `seen`.
#[inline(always)]
fn task_body<S: Simd, T: Storage>(
    dims: &Dims,
    scoring: Scores,
    (b, head, seen): (usize, usize, Range<usize>),
    q: &[T],
    cache: Cache<T>,
    out: &mut [T],
    scratch: &mut [f32],
) {
    let (d, stride) = (dims.head_dim, dims.kv_heads * dims.head_dim);
    let start = (b * dims.positions + seen.start) * stride + head / dims.group() * d;
    let seen = seen.len();
    let (query, rest) = scratch.split_at_mut(dims.width(1));
    let (sum, scores) = rest.split_at_mut(dims.width(1));
    T::load(q, query);
    for (score, at) in scores[..seen].iter_mut().zip((start..).step_by(stride)) {
        *score = dot::<S, f32, T>(&query[..d], &cache.keys[at..][..d]);
    }
    scoring.of_products::<S>(&mut scores[..seen]);
    let scores = &mut scores[..seen.next_multiple_of(LANES)];
    let max = maximum(&scores[..seen]);
    let total = exponentiate::<S>(scores, seen, max);
    let sum = &mut sum[..d];
    sum.fill(0.0);
    for (&p, at) in scores[..seen].iter().zip((start..).step_by(stride)) {
        for (sum, v) in sum.iter_mut().zip(&cache.values[at..][..d]) {
            *sum = S::mul_add(p, v.to_f32(), *sum);
        }
    }
    for x in sum.iter_mut() {
        *x /= total;
    }
    T::store(sum, out);
}
