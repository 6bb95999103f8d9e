use super::*;
use half::{bf16, f16};

/// Uniform in offset ± 1, the same on every run.
fn random<T: Storage>(n: usize, offset: f32, seed: u64) -> Vec<T> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        T::from_f32((state >> 40) as f32 / 8_388_608.0 - 1.0 + offset)
    };
    std::iter::repeat_with(next).take(n).collect()
}

fn wide<T: Storage>(x: &[T]) -> Vec<f64> {
    x.iter().map(|x| f64::from(x.to_f32())).collect()
}

fn assert_close(what: &str, got: &[f64], want: &[f64], tolerance: f64) {
    let size = want.iter().fold(1e-3, |m: f64, x| m.max(x.abs()));
    for (i, (a, b)) in got.iter().zip(want).enumerate() {
        assert!((a - b).abs() <= tolerance * size, "{what}[{i}] = {a}, not {b}");
    }
}

const EPS: f32 = 1e-5;

/// Plain loops in f64: y (R, C).
fn reference(x: &[f64], weight: &[f64], bias: &[f64], center: bool) -> Vec<f64> {
    let c = weight.len();
    let row = |x: &[f64]| {
        let mean = if center { x.iter().sum::<f64>() / c as f64 } else { 0.0 };
        let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / c as f64;
        let rstd = 1.0 / (variance + f64::from(EPS)).sqrt();
        (0..c).map(|i| (x[i] - mean) * rstd * weight[i] + bias[i]).collect::<Vec<_>>()
    };
    x.chunks(c).flat_map(row).collect()
}

/// Central differences of Σ dy·f over the elements of `x`.
fn differences(x: &mut [f64], dy: &[f64], f: impl Fn(&[f64]) -> Vec<f64>) -> Vec<f64> {
    let loss = |x: &[f64]| f(x).iter().zip(dy).map(|(a, b)| a * b).sum::<f64>();
    (0..x.len())
        .map(|i| {
            let (step, before) = (1e-5, x[i]);
            x[i] = before + step;
            let up = loss(x);
            x[i] = before - step;
            let down = loss(x);
            x[i] = before;
            (up - down) / (2.0 * step)
        })
        .collect()
}

struct Run<X> {
    y: Vec<X>,
    dx: Vec<X>,
    dweight: Vec<f32>,
    dbias: Vec<f32>,
}

fn run<X: Storage, W: Storage>(
    isa: Isa,
    x: &[X],
    weight: &[W],
    bias: &[W],
    dy: &[X],
    center: bool,
    accumulate: bool,
) -> Run<X> {
    let (c, garbage) = (weight.len(), X::from_f32(f32::NAN));
    let rows = x.len() / c;
    let (mut y, mut dx) = (vec![garbage; x.len()], vec![garbage; x.len()]);
    let (mut mean, mut rstd) = (vec![f32::NAN; rows], vec![f32::NAN; rows]);
    let start = if accumulate { 0.5 } else { f32::NAN };
    let (mut dweight, mut dbias) = (vec![start; c], vec![start; c]);
    let mut scratch = vec![f32::NAN; norm_backward_scratch(rows, c)];
    let to_bias = center.then_some(&mut dbias[..]);
    let grads = Some(ParameterGrads { weight: &mut dweight, bias: to_bias, accumulate });
    if center {
        layer_norm(isa, x, weight, Some(bias), EPS, &mut y, &mut mean, &mut rstd);
        layer_norm_backward(isa, x, weight, &mean, &rstd, Some(dy), &mut dx, grads, &mut scratch);
    } else {
        rms_norm(isa, x, weight, EPS, &mut y, &mut rstd);
        rms_norm_backward(isa, x, weight, &rstd, Some(dy), &mut dx, grads, &mut scratch);
    }
    Run { y, dx, dweight, dbias }
}

fn check<X: Storage, W: Storage>(isa: Isa, rows: usize, c: usize, tolerance: f64) {
    for center in [true, false] {
        let (x, dy) = (random::<X>(rows * c, 0.3, 1), random::<X>(rows * c, 0.0, 2));
        let weight = random::<W>(c, 1.0, 3);
        let bias = if center { random(c, 0.0, 4) } else { vec![W::from_f32(0.0); c] };
        let (mut x64, mut w64, mut b64) = (wide(&x), wide(&weight), wide(&bias));
        let dy64 = wide(&dy);
        let y = reference(&x64, &w64, &b64, center);
        let run = run(isa, &x, &weight, &bias, &dy, center, true);
        let what = |name: &str| format!("{name} of ({rows}, {c}), center {center}");
        assert_close(&what("y"), &wide(&run.y), &y, tolerance);
        let fixed = (x64.clone(), w64.clone(), b64.clone());
        let dx = differences(&mut x64, &dy64, |x| reference(x, &fixed.1, &fixed.2, center));
        assert_close(&what("dx"), &wide(&run.dx), &dx, tolerance.max(1e-4));
        let dw = differences(&mut w64, &dy64, |w| reference(&fixed.0, w, &fixed.2, center));
        let dw: Vec<f64> = dw.iter().map(|x| x + 0.5).collect();
        assert_close(&what("dweight"), &wide(&run.dweight), &dw, 1e-4);
        if center {
            let db = differences(&mut b64, &dy64, |b| reference(&fixed.0, &fixed.1, b, center));
            let db: Vec<f64> = db.iter().map(|x| x + 0.5).collect();
            assert_close(&what("dbias"), &wide(&run.dbias), &db, 1e-4);
        }
    }
}

#[test]
fn agrees_with_plain_loops_and_differences() {
    for isa in Isa::available() {
        for (rows, c) in [(1, 1), (1, 17), (3, 16), (5, 31), (2, 64), (40, 3)] {
            check::<f32, f32>(isa, rows, c, 1e-5);
        }
        check::<bf16, f32>(isa, 3, 33, 1e-2);
        check::<bf16, bf16>(isa, 3, 48, 1e-2);
        check::<f16, f32>(isa, 3, 33, 2e-3);
    }
}

#[test]
fn overwrites_where_it_does_not_accumulate() {
    for isa in Isa::available() {
        let (rows, c) = (37, 19);
        let (x, dy) = (random::<f32>(rows * c, 0.0, 5), random::<f32>(rows * c, 0.0, 6));
        let (weight, bias) = (random::<f32>(c, 1.0, 7), random::<f32>(c, 0.0, 8));
        let added = run(isa, &x, &weight, &bias, &dy, true, true);
        let written = run(isa, &x, &weight, &bias, &dy, true, false);
        for (a, b) in added.dweight.iter().zip(&written.dweight) {
            assert!((a - 0.5 - b).abs() < 1e-5);
        }
        for (a, b) in added.dbias.iter().zip(&written.dbias) {
            assert!((a - 0.5 - b).abs() < 1e-5);
        }
    }
}

#[test]
fn in_place_has_the_same_bits() {
    for isa in Isa::available() {
        let (rows, c) = (37, 19);
        let (x, dy) = (random::<bf16>(rows * c, 0.0, 5), random::<bf16>(rows * c, 0.0, 6));
        let weight = random::<bf16>(c, 1.0, 7);
        let apart = run(isa, &x, &weight, &weight, &dy, false, false);
        let (mut y, mut rstd, mut dx) = (x.clone(), vec![0.0; rows], dy.clone());
        let (mut dweight, mut scratch) = (vec![0.0; c], vec![0.0; norm_backward_scratch(rows, c)]);
        rms_norm(isa, &x, &weight, EPS, &mut y, &mut rstd);
        let grads = Some(ParameterGrads { weight: &mut dweight, bias: None, accumulate: false });
        rms_norm_backward(isa, &x, &weight, &rstd, None, &mut dx, grads, &mut scratch);
        assert!(dx == apart.dx && dweight == apart.dweight);
        let mut frozen = vec![bf16::ZERO; x.len()];
        rms_norm_backward(isa, &x, &weight, &rstd, Some(&dy), &mut frozen, None, &mut scratch);
        assert!(frozen == apart.dx, "a frozen weight changes dx");
    }
}

#[test]
fn a_large_mean_does_not_cancel() {
    for isa in Isa::available() {
        let (rows, c) = (4, 301);
        let x = random::<f32>(rows * c, 1e4, 9);
        let (weight, bias) = (vec![1.0f32; c], vec![0.0f32; c]);
        let run = run(isa, &x, &weight, &bias, &x, true, false);
        let y = reference(&wide(&x), &wide(&weight), &wide(&bias), true);
        assert_close("y", &wide(&run.y), &y, 1e-2);
        assert!(run.dx.iter().all(|x| x.is_finite()));
    }
}

#[test]
fn threads_change_no_bit() {
    for isa in Isa::available() {
        let (rows, c) = (1111, 70);
        let (x, dy) = (random::<f32>(rows * c, 0.0, 10), random::<f32>(rows * c, 0.0, 11));
        let (weight, bias) = (random::<f32>(c, 1.0, 12), random::<f32>(c, 0.0, 13));
        let results = [1, 2, 3].map(|threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let run = pool.install(|| run(isa, &x, &weight, &bias, &dy, true, false));
            [run.y, run.dx, run.dweight, run.dbias].map(|x| x.iter().map(|x| x.to_bits()).collect())
        });
        let [one, two, three]: [[Vec<u32>; 4]; 3] = results;
        assert!(one == two && one == three);
    }
}
