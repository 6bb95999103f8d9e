//! out, lse = attention(qkv).
//!
//! One task is a key-value head of one sequence: it packs the keys, transposed, and the values once,
//! and then takes the tiles of queries of its group one by one. With few heads the tiles of a head
//! are dealt to several tasks, each of which packs the keys it needs.

use super::mask::{KEYS, Tile};
use super::operands::{Operands, operated};
use super::panel::{Left, PANEL};
use super::tile::multiply;
use super::{Dims, Masked, Scores, depth, tile_rows};
use crate::fast::vmath::parallel::{Disjoint, for_each_task};
use crate::fast::vmath::reduce::{exponentiate, maximum};
use crate::fast::vmath::{LANES, Storage, exp, ln};
use crate::isa::{Isa, Level};
use crate::threads;

/// Distance of two rows of scores; off a power of two, so that they do not share cache sets.
const SCORES_ROW: usize = KEYS + LANES;

/// f32 of scratch of each of the four buffers of a worker: keys, values, queries with output and
/// scores, per-query sums and maxima; with `depth` elements in a lane of an operand.
fn sizes(dims: &Dims, depth: usize) -> [usize; 4] {
    let (width, keys) = (dims.width(depth), dims.positions.next_multiple_of(PANEL));
    let (rows, lanes) = (tile_rows(dims.positions), width / depth);
    // Keys are converted in a panel's worth of rows, which the tiles of queries have no use for yet.
    let tiles = (rows * (lanes + width + SCORES_ROW)).max(PANEL * lanes);
    [keys * lanes, keys * lanes, tiles, 2 * rows]
}

/// f32 of scratch that [`forward`] of tensors of `T` needs on `threads` threads.
pub fn forward_scratch<T: Storage>(level: Level, dims: &Dims, threads: usize) -> usize {
    threads.max(1) * sizes(dims, depth::<T>(level)).iter().sum::<usize>()
}

/// out (B, T, H·D) and lse (B, H, T), the natural logarithm of the sum of exp(score) over the
/// keys that each query attends to, from packed qkv (B, T, (H + 2·KV)·D).
///
/// # Panics
/// If the lengths do not agree with `dims`, or `scratch` is shorter than [`forward_scratch`] for one
/// thread (with room for fewer workers than the pool has threads, fewer run).
#[expect(clippy::too_many_arguments, reason = "the inputs and outputs of attention")]
pub fn forward<T: Storage>(
    isa: Isa,
    dims: &Dims,
    scoring: Scores,
    masked: &Masked<'_>,
    qkv: &[T],
    out: &mut [T],
    lse: &mut [f32],
    scratch: &mut [f32],
) {
    dims.check();
    assert_eq!(qkv.len(), dims.qkv_len(), "qkv is not (B, T, (H + 2·KV)·D) of {dims:?}");
    assert_eq!(out.len(), dims.out_len(), "out is not (B, T, H·D) of {dims:?}");
    assert_eq!(lse.len(), dims.lse_len(), "lse is not (B, H, T) of {dims:?}");
    if out.is_empty() {
        return;
    }
    let units = dims.batch * dims.kv_heads;
    let tiles = dims.positions.div_ceil(tile_rows(dims.positions));
    let wanted = 2 * threads::current();
    let pieces = wanted.div_ceil(units).min(tiles);
    let (out, lse) = (Disjoint::new(out), Disjoint::new(lse));
    let per_worker = sizes(dims, depth::<T>(isa.level())).iter().sum();
    for_each_task(units * pieces, scratch, per_worker, |task, scratch| {
        let piece = (task % pieces, pieces);
        task_on(isa, dims, scoring, masked, (task / pieces, piece), qkv, &out, &lse, scratch);
    });
}

operated!(fn task_on<T>(
    dims: &Dims, scoring: Scores, masked: &Masked<'_>, task: (usize, (usize, usize)), qkv: &[T],
    out: &Disjoint<'_, T>, lse: &Disjoint<'_, f32>, scratch: &mut [f32],
) = task_body);

/// Tiles `piece`, `piece + pieces`, … of every query head of key-value head `unit`.
#[expect(clippy::too_many_arguments, reason = "`forward` and its task")]
#[inline(always)]
fn task_body<O: Operands, T: Storage>(
    dims: &Dims,
    scoring: Scores,
    masked: &Masked<'_>,
    (unit, (piece, pieces)): (usize, (usize, usize)),
    qkv: &[T],
    out: &Disjoint<'_, T>,
    lse: &Disjoint<'_, f32>,
    scratch: &mut [f32],
) {
    let (d, width, packed) = (dims.head_dim, dims.width(O::DEPTH), dims.packed());
    let lanes = width / O::DEPTH;
    let (b, kv) = (unit / dims.kv_heads, unit % dims.kv_heads);
    let rows = tile_rows(dims.positions);
    let [keys_len, values_len, tiles_len, _] = sizes(dims, O::DEPTH);
    let (keys, rest) = scratch.split_at_mut(keys_len);
    let (values, rest) = rest.split_at_mut(values_len);
    let (tiles, statistics) = rest.split_at_mut(tiles_len);

    let sequence = &qkv[b * dims.positions * packed..][..dims.positions * packed];
    let key_columns = &sequence[(dims.heads + kv) * d..];
    let value_columns = &sequence[(dims.heads + dims.kv_heads + kv) * d..];
    let last_tile = (dims.positions.div_ceil(rows) - 1 - piece) / pieces * pieces + piece;
    let count = rows.min(dims.positions - last_tile * rows);
    let needed = masked.keys(last_tile * rows, count, dims).end;
    for start in (0..needed).step_by(PANEL) {
        let count = PANEL.min(needed - start);
        let panel = &mut keys[start * lanes..];
        O::panel(&key_columns[start * packed..], packed, (count, d), tiles, panel, lanes);
    }
    O::right(value_columns, packed, (needed, d), values, width);

    let (queries, tiles) = tiles.split_at_mut(rows * lanes);
    let (output, scores) = tiles.split_at_mut(rows * width);
    let (maxima, sums) = statistics.split_at_mut(rows);
    for head in kv * dims.group()..(kv + 1) * dims.group() {
        for first in (piece * rows..dims.positions).step_by(pieces * rows) {
            let count = rows.min(dims.positions - first);
            let source = &sequence[first * packed + head * d..];
            O::left(source, packed, (count, d), queries, lanes);
            maxima.fill(f32::NEG_INFINITY);
            sums.fill(0.0);
            for (index, tile) in masked.tiles(first, count, dims).enumerate() {
                score_tile::<O>(tile, (d, lanes), queries, keys, scores, SCORES_ROW);
                for r in 0..count {
                    let row = &mut scores[r * SCORES_ROW..][..KEYS];
                    scoring.of_products::<O::Simd>(&mut row[..tile.end - tile.start]);
                    let valid = masked.hide(dims, b, r, &tile, row);
                    let row = &mut row[..(tile.end - tile.start).next_multiple_of(LANES)];
                    let max = maximum(&row[..valid]);
                    let max = if max > maxima[r] { max } else { maxima[r] };
                    if max == f32::NEG_INFINITY {
                        // No key that counts has come yet.
                        row.fill(0.0);
                        continue;
                    }
                    let sum = exponentiate::<O::Simd>(row, valid, max);
                    let decay = exp::<O::Simd>(maxima[r] - max);
                    if index > 0 && decay != 1.0 {
                        for x in &mut output[r * width..][..width] {
                            *x *= decay;
                        }
                    }
                    sums[r] = sums[r] * decay + sum;
                    maxima[r] = max;
                    let query = (b * dims.heads + head) * dims.positions + first + r;
                    if let Some(kept) = masked.kept(dims, query, &tile, &mut [0.0; KEYS]) {
                        // The factor is left for the end: weights of 1 stay what they are in 16 bits.
                        let pairs = row.iter_mut().zip(kept).filter(|(_, kept)| **kept == 0.0);
                        pairs.for_each(|(weight, _)| *weight = 0.0);
                    }
                    O::narrow(row);
                }
                let weights = Left { data: scores, row: SCORES_ROW, step: 1 };
                weigh::<O>(tile, weights, values, output, width, index > 0);
            }
            // SAFETY: this head and these positions belong to this task alone.
            let lse = unsafe { lse.part((b * dims.heads + head) * dims.positions + first, count) };
            for r in 0..count {
                lse[r] = maxima[r] + ln::<O::Simd>(sums[r]);
                let row = &mut output[r * width..][..d];
                let inverse = masked.kept_scale() / sums[r];
                for x in row.iter_mut() {
                    *x *= inverse;
                }
                let at = (b * dims.positions + first + r) * dims.channels() + head * d;
                // SAFETY: as above.
                T::store(row, unsafe { out.part(at, d) });
            }
        }
    }
}

/// scores (count, end − start) = queries · keysᵀ, skipping what lies wholly after the diagonal.
/// `keys` is all panels of the head, of `lanes` lanes each.
#[inline(always)]
pub(super) fn score_tile<O: Operands>(
    tile: Tile,
    (d, lanes): (usize, usize),
    queries: &[f32],
    keys: &[f32],
    scores: &mut [f32],
    scores_row: usize,
) {
    for panel in (tile.start..tile.end).step_by(PANEL) {
        // The first query that sees a key of this panel.
        let skip = tile.before(panel);
        multiply::<O>(
            (tile.count - skip, PANEL, d.div_ceil(O::DEPTH)),
            Left { data: &queries[skip * lanes..], row: lanes, step: 1 },
            &keys[panel * lanes..],
            PANEL,
            &mut scores[skip * scores_row + panel - tile.start..],
            scores_row,
            false,
        );
    }
}

/// out (count, width) (+)= weights · rows[start .. end]. Where the tile is causal, each query reads the keys up to its own
/// position only, rounded up to a strip: the weights beyond are 0.
#[inline(always)]
pub(super) fn weigh<O: Operands>(
    tile: Tile,
    weights: Left,
    rows: &[f32],
    out: &mut [f32],
    width: usize,
    accumulate: bool,
) {
    let Tile { first, count, start, end, causal } = tile;
    let strip = tile.strip(count);
    for r in (0..count).step_by(strip) {
        let height = strip.min(count - r);
        let last = if causal { (first + r + height).min(end) } else { end };
        multiply::<O>(
            (height, width, last.saturating_sub(start).div_ceil(O::DEPTH)),
            Left { data: &weights.data[r * weights.row..], ..weights },
            &rows[start / O::DEPTH * width..],
            width,
            &mut out[r * width..],
            width,
            accumulate,
        );
    }
}
