//! dqkv = backward of attention, from qkv, out, lse and dout.
//!
//! With s = scale·q·k, p = exp(s − lse) and δ = Σ dout∘out per query; where s is capped, ds is multiplied by 1 − (s/cap)²:
//!
//! ```text
//! dv[j] = Σᵢ p[i,j]·dout[i]                dp[i,j] = dout[i]·v[j]
//! ds[i,j] = p[i,j]·(dp[i,j] − δ[i])        dq[i] = scale·Σⱼ ds[i,j]·k[j]
//! dk[j] = scale·Σᵢ ds[i,j]·q[i]
//! ```
//!
//! One task is a key-value head of one sequence and owns its dk and dv, which collect the query heads
//! of the group in order. Queries go in the outer loop, so that dq is complete after each of its tiles.

use super::forward::{score_tile, weigh};
use super::mask::{KEYS, Tile};
use super::operands::{Operands, operated};
use super::panel::{Left, PANEL};
use super::tile::multiply;
use super::{Dims, Masked, Scores, depth, tile_rows};
use crate::fast::vmath::parallel::{Disjoint, for_each_task};
use crate::fast::vmath::reduce::dot;
use crate::fast::vmath::{LANES, Storage, exp, prefetch};
use crate::isa::{Isa, Level};

/// Distance of two rows of scores; off a power of two, so that they do not share cache sets.
const SCORES_ROW: usize = KEYS + LANES;

/// f32 of scratch of the buffers of a worker: an operand over the keys (keys and values as panels, and keys), sums over
/// the keys (dk and dv), one array over the queries of a tile (q, dout and dq), one tile of scores (p and ds), and the two
/// statistics of the queries; with `depth` elements in a lane of an operand.
fn sizes(dims: &Dims, depth: usize) -> [usize; 5] {
    let (width, keys) = (dims.width(depth), dims.positions.next_multiple_of(PANEL));
    let rows = tile_rows(dims.positions);
    // Keys and values are converted in a panel's worth of rows, in the space of q and dout.
    let queries = (rows.next_multiple_of(depth) * width).max(PANEL * width / 2);
    [keys * width / depth, keys * width, queries, rows * SCORES_ROW, rows]
}

fn worker_scratch(dims: &Dims, depth: usize) -> usize {
    let [operand, sums, queries, scores, rows] = sizes(dims, depth);
    3 * operand + 2 * sums + 3 * queries + 2 * scores + 2 * rows
}

/// f32 of scratch that [`backward`] of tensors of `T` needs on `threads` threads.
pub fn backward_scratch<T: Storage>(level: Level, dims: &Dims, threads: usize) -> usize {
    threads.max(1) * worker_scratch(dims, depth::<T>(level))
}

/// What [`backward`] reads; see there for the shapes.
#[derive(Clone, Copy, Debug)]
pub struct Saved<'a, T> {
    /// The input of forward, packed (B, T, (H + 2·KV)·D).
    pub qkv: &'a [T],
    /// The output of forward, (B, T, H·D).
    pub out: &'a [T],
    /// The log-sum-exp of forward, (B, H, T).
    pub lse: &'a [f32],
}

/// dqkv, packed as qkv, from what forward read and wrote and `dout` (B, T, H·D), with forward's
/// scores and mask.
///
/// # Panics
/// If the lengths do not agree with `dims`, or `scratch` is shorter than [`backward_scratch`] for one
/// thread (with room for fewer workers than the pool has threads, fewer run).
#[expect(clippy::too_many_arguments, reason = "the inputs and outputs of attention")]
pub fn backward<T: Storage>(
    isa: Isa,
    dims: &Dims,
    scoring: Scores,
    masked: &Masked<'_>,
    saved: Saved<T>,
    dout: &[T],
    dqkv: &mut [T],
    scratch: &mut [f32],
) {
    dims.check();
    assert_eq!(saved.qkv.len(), dims.qkv_len(), "qkv is not (B, T, (H + 2·KV)·D) of {dims:?}");
    assert_eq!(saved.out.len(), dims.out_len(), "out is not (B, T, H·D) of {dims:?}");
    assert_eq!(saved.lse.len(), dims.lse_len(), "lse is not (B, H, T) of {dims:?}");
    assert_eq!(dout.len(), dims.out_len(), "dout is not (B, T, H·D) of {dims:?}");
    assert_eq!(dqkv.len(), dims.qkv_len(), "dqkv is not (B, T, (H + 2·KV)·D) of {dims:?}");
    if dout.is_empty() {
        return;
    }
    let units = dims.batch * dims.kv_heads;
    let dqkv = Disjoint::new(dqkv);
    for_each_task(
        units,
        scratch,
        worker_scratch(dims, depth::<T>(isa.level())),
        |unit, scratch| {
            task_on(isa, dims, scoring, masked, unit, saved, dout, &dqkv, scratch);
        },
    );
}

operated!(fn task_on<T>(
    dims: &Dims, scoring: Scores, masked: &Masked<'_>, unit: usize, saved: Saved<'_, T>, dout: &[T],
    dqkv: &Disjoint<'_, T>, scratch: &mut [f32],
) = task_body);

#[expect(clippy::too_many_arguments, reason = "`backward` and its task")]
#[inline(always)]
fn task_body<O: Operands, T: Storage>(
    dims: &Dims,
    scoring: Scores,
    masked: &Masked<'_>,
    unit: usize,
    saved: Saved<T>,
    dout: &[T],
    dqkv: &Disjoint<'_, T>,
    scratch: &mut [f32],
) {
    let (d, width, packed, channels) =
        (dims.head_dim, dims.width(O::DEPTH), dims.packed(), dims.channels());
    let lanes = width / O::DEPTH;
    let (b, kv) = (unit / dims.kv_heads, unit % dims.kv_heads);
    let rows = tile_rows(dims.positions);
    let [operand_len, sums_len, queries_len, scores_len, _] = sizes(dims, O::DEPTH);
    let (keys_t, rest) = scratch.split_at_mut(operand_len);
    let (values_t, rest) = rest.split_at_mut(operand_len);
    let (keys, rest) = rest.split_at_mut(operand_len);
    let (dk, rest) = rest.split_at_mut(sums_len);
    let (dv, rest) = rest.split_at_mut(sums_len);
    let (tiles, rest) = rest.split_at_mut(3 * queries_len);
    let (p, rest) = rest.split_at_mut(scores_len);
    let (ds, statistics) = rest.split_at_mut(scores_len);

    let first_row = b * dims.positions;
    let sequence = &saved.qkv[first_row * packed..][..dims.positions * packed];
    let key_column = (dims.heads + kv) * d;
    let value_column = (dims.heads + dims.kv_heads + kv) * d;
    let (key_columns, value_columns) = (&sequence[key_column..], &sequence[value_column..]);
    for start in (0..dims.positions).step_by(PANEL) {
        let size = (PANEL.min(dims.positions - start), d);
        for (columns, panels) in [(key_columns, &mut *keys_t), (value_columns, &mut *values_t)] {
            let panel = &mut panels[start * lanes..];
            O::panel(&columns[start * packed..], packed, size, tiles, panel, lanes);
        }
    }
    O::right(key_columns, packed, (dims.positions, d), keys, width);
    dk.fill(0.0);
    dv.fill(0.0);

    let (queries, tiles) = tiles.split_at_mut(queries_len);
    let (douts, dq) = tiles.split_at_mut(queries_len);
    let (lse, delta) = statistics.split_at_mut(rows);
    for head in kv * dims.group()..(kv + 1) * dims.group() {
        for first in (0..dims.positions).step_by(rows) {
            let count = rows.min(dims.positions - first);
            let source = &sequence[first * packed + head * d..];
            let (q, q_right) = O::both(source, packed, (count, d), queries, width);
            let out_at = (first_row + first) * channels + head * d;
            let of_out = &dout[out_at..];
            // What the next tile begins with; rows are far apart.
            for row in first + rows..(first + 2 * rows).min(dims.positions) {
                let at = (first_row + row) * channels + head * d;
                prefetch(sequence.as_ptr().wrapping_add(row * packed + head * d), d);
                prefetch(dout.as_ptr().wrapping_add(at), d);
                prefetch(saved.out.as_ptr().wrapping_add(at), d);
            }
            let (dout, dout_right) = O::both(of_out, channels, (count, d), douts, width);
            for r in 0..count {
                let out = &saved.out[out_at + r * channels..][..d];
                delta[r] = dot::<O::Simd, T, T>(&of_out[r * channels..][..d], out);
            }
            lse[..count].copy_from_slice(
                &saved.lse[(b * dims.heads + head) * dims.positions + first..][..count],
            );
            for (index, tile) in masked.tiles(first, count, dims).enumerate() {
                score_tile::<O>(tile, (d, lanes), q, keys_t, p, SCORES_ROW);
                score_tile::<O>(tile, (d, lanes), dout, values_t, ds, SCORES_ROW);
                let columns = (tile.end - tile.start).next_multiple_of(LANES);
                for r in 0..count {
                    let p = &mut p[r * SCORES_ROW..][..columns];
                    let ds = &mut ds[r * SCORES_ROW..][..columns];
                    scoring.of_products::<O::Simd>(p);
                    let mut of_scores = [0.0; KEYS];
                    let slopes = scoring.slopes(p, &mut of_scores);
                    let valid = masked.hide(dims, b, r, &tile, p);
                    p[valid..].fill(f32::NEG_INFINITY);
                    ds[valid..].fill(0.0);
                    let query = (b * dims.heads + head) * dims.positions + first + r;
                    let mut factors = [0.0; KEYS];
                    let kept = masked.kept(dims, query, &tile, &mut factors);
                    if let Some(kept) = kept {
                        ds.iter_mut().zip(kept).for_each(|(dp, kept)| *dp *= kept);
                    }
                    let pairs = ds.as_chunks_mut::<LANES>().0.iter_mut();
                    for (ds, p) in pairs.zip(p.as_chunks_mut::<LANES>().0) {
                        for (ds, p) in ds.iter_mut().zip(p) {
                            *p = exp::<O::Simd>(*p - lse[r]);
                            *ds = *p * (*ds - delta[r]);
                        }
                    }
                    if let Some(slopes) = slopes {
                        // Beyond them, what a slope was made of isn't a score.
                        ds[..valid].iter_mut().zip(slopes).for_each(|(ds, slope)| *ds *= slope);
                    }
                    if let Some(kept) = kept {
                        p.iter_mut().zip(kept).for_each(|(p, kept)| *p *= kept);
                    }
                }
                O::by_columns(p, (count, columns), SCORES_ROW);
                collect::<O>(tile, p, dout_right, dv, width);
                // No one needs p any more.
                let by_rows = O::by_rows(ds, (count, columns), SCORES_ROW, p);
                weigh::<O>(tile, by_rows, keys, dq, width, index > 0);
                O::by_columns(ds, (count, columns), SCORES_ROW);
                collect::<O>(tile, ds, q_right, dk, width);
            }
            for r in 0..count {
                let row = &mut dq[r * width..][..d];
                for x in row.iter_mut() {
                    *x *= scoring.scale;
                }
                let at = (first_row + first + r) * packed + head * d;
                // SAFETY: query columns of this head, which this task alone writes.
                T::store(row, unsafe { dqkv.part(at, d) });
            }
        }
    }
    dk.iter_mut().for_each(|x| *x *= scoring.scale);
    for position in 0..dims.positions {
        let at = (first_row + position) * packed;
        // SAFETY: columns of this key-value head, which this task alone writes.
        unsafe {
            T::store(&dk[position * width..][..d], dqkv.part(at + key_column, d));
            T::store(&dv[position * width..][..d], dqkv.part(at + value_column, d));
        }
    }
}

/// out[start .. end] += weightsᵀ · rows: what the queries of a tile add to each key. Where the tile is causal, strip by strip
/// of keys, leaving out the queries before a strip.
#[inline(always)]
fn collect<O: Operands>(tile: Tile, weights: &[f32], rows: &[f32], out: &mut [f32], width: usize) {
    let Tile { count, start, end, .. } = tile;
    let strip = tile.strip(end - start);
    for key in (start..end).step_by(strip) {
        let height = strip.min(end - key);
        // A strip begins at an even key where lanes are pairs.
        let skip = tile.before(key);
        multiply::<O>(
            (height, width, (count - skip).div_ceil(O::DEPTH)),
            Left {
                data: &weights[skip * SCORES_ROW + key - start..],
                row: 1,
                step: O::DEPTH * SCORES_ROW,
            },
            &rows[skip / O::DEPTH * width..],
            width,
            &mut out[key * width..],
            width,
            true,
        );
    }
}
