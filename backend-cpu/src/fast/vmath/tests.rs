use super::slices::*;
use super::*;
use crate::isa::Isa;
use half::{bf16, f16};

/// Error in units in the last place of the exact value, the exact value being nonzero and normal.
fn ulps(got: f32, exact: f64) -> f64 {
    let exponent = (exact.abs().log2().floor() as i32).max(-126);
    (f64::from(got) - exact).abs() / 2f64.powi(exponent - 23)
}

/// A dense sweep of the f32 in [low, high] by bit pattern, both signs where `low` is 0.
fn sweep(low: f32, high: f32, count: u32) -> Vec<f32> {
    let (a, b) = (low.to_bits(), high.to_bits());
    let step = ((b - a) / count).max(1);
    let up = (a..=b).step_by(step as usize).map(f32::from_bits);
    if low == 0.0 { up.flat_map(|x| [x, -x]).collect() } else { up.collect() }
}

type OnSlice = fn(Isa, &[f32], &mut [f32]);

fn check(name: &str, on: OnSlice, exact: fn(f64) -> f64, xs: &[f32], limit: f64) {
    for isa in Isa::available() {
        let mut ys = vec![0.0; xs.len()];
        on(isa, xs, &mut ys);
        let (mut worst, mut at) = (0.0, 0.0);
        for (&x, &y) in xs.iter().zip(&ys) {
            let want = exact(f64::from(x));
            if want.abs() < f64::from(f32::MIN_POSITIVE) * 1.000_001 {
                assert!(f64::from(y.abs()) <= 1.2e-38, "{name}({x:e}) = {y:e}, exact {want:e}");
            } else if want.abs() < f64::from(f32::MAX) && ulps(y, want) > worst {
                (worst, at) = (ulps(y, want), x);
            }
        }
        println!("{name} on {}: {worst:.2} ulp at {at:e}", isa.name());
        assert!(worst <= limit, "{name} on {}: {worst:.2} ulp at {at:e}", isa.name());
    }
}

/// erf by its Taylor series, whose terms stay small enough for f64 below 3, and by the continued
/// fraction of erfc above.
fn erf_exact(x: f64) -> f64 {
    let a = x.abs();
    let y = if a < 3.0 {
        let (mut term, mut sum) = (a, a);
        for k in 1..120 {
            term *= -a * a / f64::from(k);
            sum += term / f64::from(2 * k + 1);
        }
        sum * 2.0 / std::f64::consts::PI.sqrt()
    } else {
        let mut f = 0.0;
        for k in (1..60).rev() {
            f = 0.5 * f64::from(k) / (a + f);
        }
        1.0 - (-a * a).exp() / std::f64::consts::PI.sqrt() / (a + f)
    };
    y.copysign(x)
}

#[test]
fn functions_are_accurate() {
    let wide = sweep(0.0, 3e38, 400_000);
    let moderate = sweep(0.0, 100.0, 400_000);
    let linear: Vec<f32> = (-1_000_000..1_000_000).map(|i| i as f32 * 9.1e-5).collect();
    let angles: Vec<f32> = sweep(0.0, 1_048_576.0, 1_000_000);
    let quarters: Vec<f32> =
        (0..600_000).map(|i| (f64::from(i) * std::f64::consts::FRAC_PI_2) as f32).collect();
    let positive = sweep(f32::from_bits(1), 3e38, 1_000_000);
    let near_one = sweep(0.5, 2.0, 1_000_000);
    for xs in [&moderate, &linear, &wide] {
        check("exp", exp_on, f64::exp, xs, 2.0);
        check("tanh", tanh_on, f64::tanh, xs, 2.0);
        check("sigmoid", sigmoid_on, |x| 1.0 / (1.0 + (-x).exp()), xs, 3.0);
        check("erf", erf_on, erf_exact, xs, 2.0);
    }
    for xs in [&positive, &near_one] {
        check("ln", ln_on, f64::ln, xs, 2.0);
    }
    for xs in [&angles, &quarters] {
        check("sin", sin_on, f64::sin, xs, 2.0);
        check("cos", cos_on, f64::cos, xs, 2.0);
    }
}

#[test]
fn special_values() {
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    let cases: [(OnSlice, &[(f32, f32)]); 7] = [
        (
            exp_on,
            &[
                (0.0, 1.0),
                (-0.0, 1.0),
                (inf, inf),
                (-inf, 0.0),
                (nan, nan),
                (-1e30, 0.0),
                (89.0, inf),
            ],
        ),
        (
            ln_on,
            &[
                (0.0, -inf),
                (-0.0, -inf),
                (1.0, 0.0),
                (inf, inf),
                (-inf, nan),
                (-1.0, nan),
                (nan, nan),
            ],
        ),
        (tanh_on, &[(0.0, 0.0), (-0.0, -0.0), (inf, 1.0), (-inf, -1.0), (nan, nan), (1e30, 1.0)]),
        (sigmoid_on, &[(0.0, 0.5), (inf, 1.0), (-inf, 0.0), (nan, nan), (-1e30, 0.0)]),
        (erf_on, &[(0.0, 0.0), (-0.0, -0.0), (inf, 1.0), (-inf, -1.0), (nan, nan), (9.0, 1.0)]),
        (sin_on, &[(0.0, 0.0), (-0.0, -0.0), (inf, nan), (-inf, nan), (nan, nan)]),
        (cos_on, &[(0.0, 1.0), (-0.0, 1.0), (inf, nan), (-inf, nan), (nan, nan)]),
    ];
    for isa in Isa::available() {
        for (which, (on, pairs)) in cases.iter().enumerate() {
            // Repeated, so that the vector body and the tail both see every value.
            let xs: Vec<f32> = pairs.iter().cycle().take(16 * pairs.len()).map(|p| p.0).collect();
            let mut ys = vec![7.0; xs.len()];
            on(isa, &xs, &mut ys);
            for (i, &y) in ys.iter().enumerate() {
                let (x, want) = pairs[i % pairs.len()];
                let same = y.to_bits() == want.to_bits() || (y.is_nan() && want.is_nan());
                assert!(same, "function {which} on {}: f({x}) = {y}, not {want}", isa.name());
            }
        }
    }
}

#[test]
fn pow_agrees_with_f64() {
    let inf = f32::INFINITY;
    let mut pairs = Vec::new();
    let special =
        [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 3.0, -3.0, 1e10, 8_388_609.0, inf, -inf];
    for x in special.into_iter().chain([f32::NAN]) {
        for y in special.into_iter().chain([f32::NAN]) {
            pairs.push((x, y));
        }
    }
    for &x in &sweep(f32::from_bits(1), 3e38, 3000) {
        for y in [-3.0, -1.0, -0.75, 0.1, 0.5, 0.9, 0.999, 2.0, 2.5, 7.0, 33.3] {
            pairs.extend([(x, y), (-x, y)]);
        }
    }
    for i in 0..100_000 {
        pairs.push((0.95 + 1e-6 * i as f32, 1000.0));
        pairs.push((0.999, i as f32));
    }
    let (xs, es): (Vec<f32>, Vec<f32>) = pairs.iter().copied().unzip();
    for isa in Isa::available() {
        let mut ys = vec![0.0; xs.len()];
        pow_on(isa, &xs, &es, &mut ys);
        for (&(x, e), &y) in pairs.iter().zip(&ys) {
            let exact = f64::from(x).powf(f64::from(e));
            let want = exact as f32;
            let ok = if exact.is_nan() {
                y.is_nan()
            } else if exact.abs() < f64::from(f32::MIN_POSITIVE) * 1.000_001 {
                y.abs() <= 1.2e-38 && y.is_sign_negative() == want.is_sign_negative()
            } else if want.is_infinite() {
                y == want
            } else {
                ulps(y, exact) <= 1.0
            };
            assert!(ok, "pow({x:e}, {e:e}) = {y:e} on {}, exact {exact:e}", isa.name());
        }
    }
}

#[test]
fn conversions_agree_with_half() {
    let mut xs: Vec<f32> = (0..=u16::MAX)
        .flat_map(|h| {
            // Every 16-bit value, its neighbours in f32, and the ties between two of them.
            let bits = u32::from(h) << 16;
            [bits, bits + 1, bits + 0x7fff, bits + 0x8000, bits + 0x8001].map(f32::from_bits)
        })
        .collect();
    for h in 0..=u16::MAX {
        let x = f16::from_bits(h).to_f32();
        let bits = x.to_bits();
        xs.extend([bits, bits ^ 0x1000, bits ^ 0x0fff, bits ^ 0x1001].map(f32::from_bits));
        xs.push(0.5 * (x + f16::from_bits(h ^ 1).to_f32()));
    }
    for isa in Isa::available() {
        let (mut b, mut h) = (vec![bf16::ZERO; xs.len()], vec![f16::ZERO; xs.len()]);
        store_on(isa, &xs, &mut b);
        store_on(isa, &xs, &mut h);
        let (mut from_b, mut from_h) = (vec![0.0; xs.len()], vec![0.0; xs.len()]);
        load_on(isa, &b, &mut from_b);
        load_on(isa, &h, &mut from_h);
        for (i, &x) in xs.iter().enumerate() {
            if x.is_nan() {
                assert!(b[i].is_nan() && h[i].is_nan() && from_b[i].is_nan());
                assert!(from_h[i].is_nan());
                continue;
            }
            assert_eq!(b[i].to_bits(), bf16::from_f32(x).to_bits(), "bf16 of {x:e}");
            assert_eq!(h[i].to_bits(), f16::from_f32(x).to_bits(), "f16 of {x:e}");
            assert_eq!(from_b[i].to_bits(), b[i].to_f32().to_bits(), "{:e} from bf16", b[i]);
            assert_eq!(from_h[i].to_bits(), h[i].to_f32().to_bits(), "{:e} from f16", h[i]);
        }
    }
}

#[test]
fn every_task_runs_once() {
    for (tasks, room, threads) in [(0, 1, 1), (1, 1, 2), (7, 2, 2), (100, 3, 2), (5, 9, 3)] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let mut seen = vec![0u8; tasks];
        let shared = parallel::Disjoint::new(&mut seen);
        pool.install(|| {
            parallel::for_each_task(tasks, &mut vec![0.0; room * 4], 4, |task, scratch| {
                assert_eq!(scratch.len(), 4);
                // SAFETY: one element per task.
                unsafe { shared.part(task, 1)[0] += 1 };
            });
        });
        assert_eq!(seen, vec![1; tasks]);
    }
}
