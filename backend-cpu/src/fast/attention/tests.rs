use super::*;
use crate::fast::vmath::Storage;
use crate::isa::Isa;
use half::{bf16, f16};
use tightrope_core::ops::{Dropout, Mask};

fn dims(batch: usize, positions: usize, heads: usize, kv_heads: usize, head_dim: usize) -> Dims {
    Dims { batch, positions, heads, kv_heads, head_dim }
}

/// Uniform in ±size, the same on every run.
fn random<T: Storage>(n: usize, size: f32, seed: u64) -> Vec<T> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        T::from_f32(((state >> 40) as f32 / 8_388_608.0 - 1.0) * size)
    };
    std::iter::repeat_with(next).take(n).collect()
}

fn wide<T: Storage>(x: &[T]) -> Vec<f64> {
    x.iter().map(|x| f64::from(x.to_f32())).collect()
}

fn pool(threads: usize) -> rayon::ThreadPool {
    rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap()
}

/// Plain loops in f64: (out, lse).
fn reference(d: &Dims, scale: f64, qkv: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let (mut out, mut lse) = (vec![0.0; d.out_len()], vec![0.0; d.lse_len()]);
    for_each_query(d, |b, h, i, kv| {
        let at = |t: usize, column: usize| (b * d.positions + t) * d.packed() + column * d.head_dim;
        let score = |j: usize| -> f64 {
            (0..d.head_dim).map(|c| scale * qkv[at(i, h) + c] * qkv[at(j, d.heads + kv) + c]).sum()
        };
        let max = (0..=i).map(score).fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = (0..=i).map(|j| (score(j) - max).exp()).sum();
        lse[(b * d.heads + h) * d.positions + i] = max + sum.ln();
        for j in 0..=i {
            let p = (score(j) - max).exp() / sum;
            for c in 0..d.head_dim {
                out[(b * d.positions + i) * d.channels() + h * d.head_dim + c] +=
                    p * qkv[at(j, d.heads + d.kv_heads + kv) + c];
            }
        }
    });
    (out, lse)
}

/// Plain loops in f64 for dqkv.
fn reference_backward(d: &Dims, scale: f64, qkv: &[f64], dout: &[f64]) -> Vec<f64> {
    let (out, lse) = reference(d, scale, qkv);
    let mut dqkv = vec![0.0; d.qkv_len()];
    for_each_query(d, |b, h, i, kv| {
        let at = |t: usize, column: usize| (b * d.positions + t) * d.packed() + column * d.head_dim;
        let row = (b * d.positions + i) * d.channels() + h * d.head_dim;
        let delta: f64 = (row..row + d.head_dim).map(|at| out[at] * dout[at]).sum();
        for j in 0..=i {
            let (q, k, v) = (at(i, h), at(j, d.heads + kv), at(j, d.heads + d.kv_heads + kv));
            let score: f64 = (0..d.head_dim).map(|c| scale * qkv[q + c] * qkv[k + c]).sum();
            let p = (score - lse[(b * d.heads + h) * d.positions + i]).exp();
            let dp: f64 = (0..d.head_dim).map(|c| dout[row + c] * qkv[v + c]).sum();
            let ds = p * (dp - delta) * scale;
            for c in 0..d.head_dim {
                dqkv[v + c] += p * dout[row + c];
                dqkv[q + c] += ds * qkv[k + c];
                dqkv[k + c] += ds * qkv[q + c];
            }
        }
    });
    dqkv
}

/// Calls `f(batch, head, position, key-value head)`.
fn for_each_query(d: &Dims, mut f: impl FnMut(usize, usize, usize, usize)) {
    for b in 0..d.batch {
        for h in 0..d.heads {
            for i in 0..d.positions {
                f(b, h, i, h / d.group());
            }
        }
    }
}

fn assert_close(what: &str, got: &[f64], want: &[f64], tolerance: f64) {
    let size = want.iter().fold(1e-3, |m: f64, x| m.max(x.abs()));
    for (i, (a, b)) in got.iter().zip(want).enumerate() {
        assert!((a - b).abs() <= tolerance * size, "{what}[{i}] = {a}, not {b}");
    }
}

struct Run<T> {
    out: Vec<T>,
    lse: Vec<f32>,
    dqkv: Vec<T>,
}

fn run<T: Storage>(
    isa: Isa,
    d: &Dims,
    scoring: Scores,
    masked: &Masked<'_>,
    qkv: &[T],
    dout: &[T],
) -> Run<T> {
    let threads = rayon::current_num_threads();
    // What was in the buffers before must not show.
    let garbage = T::from_f32(f32::NAN);
    let (mut out, mut lse) = (vec![garbage; d.out_len()], vec![f32::NAN; d.lse_len()]);
    let mut scratch = vec![f32::NAN; forward_scratch::<T>(isa.level(), d, threads)];
    forward(isa, d, scoring, masked, qkv, &mut out, &mut lse, &mut scratch);
    let mut dqkv = vec![garbage; d.qkv_len()];
    let mut scratch = vec![f32::NAN; backward_scratch::<T>(isa.level(), d, threads)];
    let saved = Saved { qkv, out: &out, lse: &lse };
    backward(isa, d, scoring, masked, saved, dout, &mut dqkv, &mut scratch);
    Run { out, lse, dqkv }
}

fn check<T: Storage>(d: &Dims, size: f32, forward_tolerance: f64, backward_tolerance: f64) {
    let (qkv, dout) = (random::<T>(d.qkv_len(), size, 1), random::<T>(d.out_len(), 1.0, 2));
    let scale = 1.0 / (d.head_dim as f32).sqrt();
    let (out, lse) = reference(d, f64::from(scale), &wide(&qkv));
    let dqkv = reference_backward(d, f64::from(scale), &wide(&qkv), &wide(&dout));
    for isa in Isa::available() {
        let run = run(isa, d, Scores::scaled(scale), &Masked::CAUSAL, &qkv, &dout);
        let what = |name: &str| format!("{name} of {d:?} on {}", isa.name());
        assert_close(&what("out"), &wide(&run.out), &out, forward_tolerance);
        assert_close(&what("lse"), &wide(&run.lse), &lse, 1e-5);
        assert_close(&what("dqkv"), &wide(&run.dqkv), &dqkv, backward_tolerance);
    }
}

#[test]
fn agrees_with_plain_loops() {
    for (b, t, h, kv, d) in [
        (1, 1, 1, 1, 8),
        (2, 3, 2, 1, 1),
        (1, 37, 3, 3, 13),
        (2, 64, 2, 2, 64),
        (1, 129, 4, 2, 16),
        (1, 200, 6, 2, 33),
        (1, 257, 1, 1, 100),
        (1, 70, 2, 1, 256),
    ] {
        check::<f32>(&dims(b, t, h, kv, d), 1.0, 1e-5, 2e-5);
    }
}

#[test]
fn sixteen_bit_storage() {
    for (b, t, h, kv, d) in [(2, 70, 4, 2, 24), (1, 150, 2, 2, 64)] {
        check::<bf16>(&dims(b, t, h, kv, d), 1.0, 5e-3, 2e-2);
        check::<f16>(&dims(b, t, h, kv, d), 1.0, 1e-3, 3e-3);
    }
}

#[test]
fn gradient_agrees_with_central_differences() {
    let d = dims(1, 7, 4, 2, 5);
    let (qkv, dout) = (random::<f32>(d.qkv_len(), 1.0, 3), random::<f32>(d.out_len(), 1.0, 4));
    let scale = 0.4f32;
    let loss = |qkv: &[f64]| -> f64 {
        reference(&d, f64::from(scale), qkv).0.iter().zip(wide(&dout)).map(|(a, b)| a * b).sum()
    };
    let mut x = wide(&qkv);
    let differences: Vec<f64> = (0..x.len())
        .map(|i| {
            let (step, before) = (1e-5, x[i]);
            x[i] = before + step;
            let up = loss(&x);
            x[i] = before - step;
            let down = loss(&x);
            x[i] = before;
            (up - down) / (2.0 * step)
        })
        .collect();
    let run = run(Isa::detect(), &d, Scores::scaled(scale), &Masked::CAUSAL, &qkv, &dout);
    assert_close("dqkv", &wide(&run.dqkv), &differences, 1e-5);
}

#[test]
fn large_scores_stay_finite() {
    let d = dims(1, 140, 2, 1, 16);
    // Scores of up to about ±1e4.
    let (qkv, dout) = (random::<f32>(d.qkv_len(), 50.0, 5), random::<f32>(d.out_len(), 1.0, 6));
    let (out, lse) = reference(&d, 1.0, &wide(&qkv));
    assert!(lse.iter().any(|x| x.abs() > 1e4));
    for isa in Isa::available() {
        let run = run(isa, &d, Scores::scaled(1.0), &Masked::CAUSAL, &qkv, &dout);
        assert_close("out", &wide(&run.out), &out, 1e-2);
        assert_close("lse", &wide(&run.lse), &lse, 1e-5);
        assert!(run.dqkv.iter().all(|x| x.is_finite()));
    }
}

/// Masks of all kinds, over at most 333 positions of one or two sequences.
fn masks(documents: &[i32]) -> [Masked<'_>; 3] {
    let window = Mask { causal: false, window: Some(70), documents: true };
    let dropout = Some((Dropout { p: 0.1, stream: 5 }, [1, 2, 3, 4]));
    [
        Masked::CAUSAL,
        Masked { mask: Mask::NONE, ..Masked::CAUSAL },
        Masked { mask: window, documents: Some(documents), dropout },
    ]
}

fn documents() -> Vec<i32> {
    (0..333).map(|position| position / 100).collect()
}

/// Pairs of bf16 against f32, whatever the mask, with sizes that fill neither pairs nor tiles. What is stored may differ by a
/// unit in its last place, which is up to 1/128.
#[test]
fn instruction_sets_agree() {
    let documents = documents();
    for masked in masks(&documents) {
        for (b, t, h, kv, head) in [
            (2, 150, 4, 2, 33),
            (1, 333, 1, 1, 16),
            (1, 77, 3, 1, 7),
            (2, 51, 2, 2, 64),
            (1, 1, 1, 1, 3),
        ] {
            for cap in [None, Some(3.0)] {
                let d = dims(b, t, h, kv, head);
                let scoring = Scores { scale: 0.3, cap };
                let (qkv, dout) =
                    (random::<bf16>(d.qkv_len(), 2.0, 9), random::<bf16>(d.out_len(), 1.0, 10));
                let want = run(Isa::PORTABLE, &d, scoring, &masked, &qkv, &dout);
                for isa in Isa::available() {
                    let run = run(isa, &d, scoring, &masked, &qkv, &dout);
                    let what = |name| format!("{name} of {d:?}, {scoring:?} on {}", isa.name());
                    assert_close(&what("out"), &wide(&run.out), &wide(&want.out), 1e-2);
                    assert_close(&what("lse"), &wide(&run.lse), &wide(&want.lse), 1e-5);
                    assert_close(&what("dqkv"), &wide(&run.dqkv), &wide(&want.dqkv), 1e-2);
                }
            }
        }
    }
}

#[test]
fn threads_change_no_bit() {
    threads_change_no_bit_of::<f32>();
    threads_change_no_bit_of::<bf16>();
}

fn threads_change_no_bit_of<T: Storage>() {
    let documents = documents();
    for masked in masks(&documents) {
        for (b, t, h, kv, head) in [(2, 150, 4, 2, 40), (1, 333, 1, 1, 16)] {
            let d = dims(b, t, h, kv, head);
            let (qkv, dout) = (random::<T>(d.qkv_len(), 1.0, 7), random::<T>(d.out_len(), 1.0, 8));
            let results: Vec<_> = [1, 2, 3]
                .map(|threads| {
                    let scoring = Scores::scaled(0.3);
                    let run = || run(Isa::detect(), &d, scoring, &masked, &qkv, &dout);
                    let run = pool(threads).install(run);
                    let bits = |x: &[T]| bytemuck::cast_slice::<T, u8>(x).to_vec();
                    (
                        threads,
                        bits(&run.out),
                        run.lse.iter().map(|x| x.to_bits()).collect::<Vec<_>>(),
                        bits(&run.dqkv),
                    )
                })
                .into();
            for other in &results[1..] {
                assert!(results[0].1 == other.1, "out differs for {} threads", other.0);
                assert!(results[0].2 == other.2, "lse differs for {} threads", other.0);
                assert!(results[0].3 == other.3, "dqkv differs for {} threads", other.0);
            }
        }
    }
}

#[test]
fn decode_continues_forward() {
    for isa in Isa::available() {
        for (b, t, h, kv, head) in [(1, 1, 1, 1, 8), (2, 50, 6, 2, 20), (1, 33, 4, 4, 64)] {
            let d = dims(b, t, h, kv, head);
            let qkv = random::<f32>(d.qkv_len(), 1.0, 9);
            let scale = 0.25;
            let mut forward_out = vec![0.0; d.out_len()];
            let mut scratch = vec![f32::NAN; forward_scratch::<f32>(isa.level(), &d, 2)];
            let mut lse = vec![0.0; d.lse_len()];
            forward(
                isa,
                &d,
                Scores::scaled(scale),
                &Masked::CAUSAL,
                &qkv,
                &mut forward_out,
                &mut lse,
                &mut scratch,
            );

            // The cache is longer than what is in it, and its tail must not be read.
            let capacity = Dims { positions: t + 5, ..d };
            let row = kv * head;
            let mut keys = vec![f32::NAN; b * capacity.positions * row];
            let mut values = keys.clone();
            for i in 0..b {
                for j in 0..t {
                    let from = &qkv[(i * t + j) * d.packed() + h * head..];
                    let to = (i * capacity.positions + j) * row;
                    keys[to..to + row].copy_from_slice(&from[..row]);
                    values[to..to + row].copy_from_slice(&from[row..2 * row]);
                }
            }
            for new in [1, t.min(3)] {
                let position = t - new;
                let query = |i: usize, s: usize| (i * t + position + s) * d.packed();
                let rows = (0..b).flat_map(|i| (0..new).map(move |s| (i, s)));
                let q: Vec<f32> = rows
                    .clone()
                    .flat_map(|(i, s)| qkv[query(i, s)..][..d.channels()].to_vec())
                    .collect();
                let want: Vec<f32> = rows
                    .flat_map(|(i, s)| {
                        forward_out[(i * t + position + s) * d.channels()..][..d.channels()]
                            .to_vec()
                    })
                    .collect();
                let mut out = vec![f32::NAN; q.len()];
                let mut scratch = vec![f32::NAN; decode_scratch(&capacity, 2)];
                let cache = Cache { keys: &keys, values: &values };
                let place = Place { position, window: None };
                decode(
                    isa,
                    &capacity,
                    Scores::scaled(scale),
                    place,
                    &q,
                    cache,
                    &mut out,
                    &mut scratch,
                );
                assert_close("out", &wide(&out), &wide(&want), 1e-5);
            }
        }
    }
}
