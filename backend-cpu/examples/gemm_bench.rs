//! Matmuls of a training step: GFLOP/s here, in the `gemm` crate, and as a share of the peak.
//!
//! `cargo run --release -p tightrope-backend-cpu --example gemm_bench [threads [rows]]`
//!
//! R = 4096 tokens (`rows`), C channels; `nt` multiplies by a weight stored out×in (forward), `nn` by the same
//! weight for dx, `tn` makes dW. The contestants take turns and each keeps its best time. The peak is what a
//! loop of multiply-adds on registers reaches on as many threads, as another contestant.

use std::hint::black_box;
use std::time::Instant;

use half::bf16;
use tightrope_backend_cpu::fast::gemm::{
    Element, Gemm, Mat, MatMut, Sizes, gemm, kernel_name, scratch_bytes,
};
use tightrope_backend_cpu::isa::{Isa, IsaError};

#[derive(Clone, Copy)]
enum Kind {
    Nt,
    Nn,
    Tn,
}

fn shapes(r: usize) -> Vec<(Kind, usize, usize, usize)> {
    let mut shapes = Vec::new();
    for c in [384, 768] {
        for (out, inner) in [(3 * c, c), (c, c), (4 * c, c), (c, 4 * c)] {
            shapes.push((Kind::Nt, r, out, inner));
            shapes.push((Kind::Nn, r, inner, out));
            shapes.push((Kind::Tn, out, inner, r));
        }
    }
    let (c, v) = (384, 50304);
    shapes.extend([(Kind::Nt, r, v, c), (Kind::Nn, r, c, v), (Kind::Tn, v, c, r)]);
    shapes
}

/// Seconds of one call, the best of several over at least a quarter of a second, taking turns.
fn best<const N: usize>(mut contestants: [&mut dyn FnMut(); N]) -> [f64; N] {
    let mut best = [f64::INFINITY; N];
    let begin = Instant::now();
    let mut rounds = 0;
    while rounds < 3 || begin.elapsed().as_secs_f64() < 0.25 * N as f64 {
        for (best, run) in best.iter_mut().zip(&mut contestants) {
            let start = Instant::now();
            run();
            *best = best.min(start.elapsed().as_secs_f64());
        }
        rounds += 1;
    }
    best
}

fn numbers(len: usize, seed: u32) -> Vec<f32> {
    let mut state = seed;
    let next = || {
        state = state.wrapping_mul(1664525).wrapping_add(1013904223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    std::iter::repeat_with(next).take(len).collect()
}

fn as_bytes<T>(values: &[T]) -> *const u8 {
    values.as_ptr().cast()
}

fn main() -> Result<(), IsaError> {
    let isa = Isa::chosen()?;
    let number = |at: usize| std::env::args().nth(at).and_then(|a| a.parse().ok());
    let (threads, rows): (usize, usize) = (number(1).unwrap_or(2), number(2).unwrap_or(4096));
    println!("{threads} threads, GFLOP/s");
    println!(
        "kernels: f32 {}, bf16 {}\n",
        kernel_name(isa.level(), Element::F32, Element::F32),
        kernel_name(isa.level(), Element::Bf16, Element::Bf16)
    );
    println!(
        "{:20} {:>8} {:>8} {:>7} {:>8} {:>7} | {:>8} {:>8} {:>7}",
        "m×n×k", "f32", "crate", "ratio", "peak", "% peak", "bf16", "peak", "% peak"
    );
    for (kind, m, n, k) in shapes(rows) {
        row(isa, kind, Sizes { m, n, k }, threads);
    }
    Ok(())
}

fn row(isa: Isa, kind: Kind, sizes: Sizes, threads: usize) {
    let Sizes { m, n, k } = sizes;
    let (a, b) = (numbers(m * k, 1), numbers(k * n, 2));
    let narrow = |v: &[f32]| v.iter().map(|&x| bf16::from_f32(x)).collect::<Vec<_>>();
    let (a16, b16) = (narrow(&a), narrow(&b));
    let (mut out, mut out_crate) = (vec![0f32; m * n], vec![0f32; m * n]);
    let mut out16 = vec![bf16::ZERO; m * n];
    let view = |a: *const u8, b: *const u8, element| {
        let transpose = |ptr, rows| Mat::rows(ptr, element, rows).transposed();
        match kind {
            Kind::Nt => (Mat::rows(a, element, k), transpose(b, k)),
            Kind::Nn => (Mat::rows(a, element, k), Mat::rows(b, element, n)),
            Kind::Tn => (transpose(a, m), Mat::rows(b, element, n)),
        }
    };
    let matmul = |(lhs, rhs): (Mat, Mat), out: MatMut| Gemm {
        m,
        n,
        k,
        lhs,
        rhs,
        out,
        accumulate: false,
        bias: None,
        scale: 1.0,
    };
    let operands = view(as_bytes(&a), as_bytes(&b), Element::F32);
    let wide = matmul(operands, MatMut::rows(out.as_mut_ptr().cast(), Element::F32, n));
    let operands = view(as_bytes(&a16), as_bytes(&b16), Element::Bf16);
    let short = matmul(operands, MatMut::rows(out16.as_mut_ptr().cast(), Element::Bf16, n));
    let scratch = |e| vec![0u8; scratch_bytes(isa.level(), sizes, e, e, threads)];
    let (mut scratch_f32, mut scratch_bf16) = (scratch(Element::F32), scratch(Element::Bf16));

    let mut own_f32 = || {
        // SAFETY: the views cover the vectors above, which outlive them and don't overlap.
        unsafe { gemm(isa, &wide, threads, &mut scratch_f32) }.expect("enough scratch");
    };
    let mut own_bf16 = || {
        // SAFETY: as above.
        unsafe { gemm(isa, &short, threads, &mut scratch_bf16) }.expect("enough scratch");
    };
    let mut crate_f32 = || {
        let parallelism = ::gemm::Parallelism::Rayon(threads);
        let (l, r) = (wide.lhs, wide.rhs);
        let dst = out_crate.as_mut_ptr();
        // SAFETY: as above.
        unsafe {
            #[rustfmt::skip]
            ::gemm::gemm(
                m, n, k, dst, 1, n as isize, false,
                l.ptr.cast::<f32>(), l.col_stride, l.row_stride,
                r.ptr.cast::<f32>(), r.col_stride, r.row_stride,
                0.0, 1.0, false, false, false, parallelism,
            );
        }
    };
    let flops = 2.0 * m as f64 * n as f64 * k as f64;
    let (mut f32_work, mut bf16_work) = (f64::NAN, f64::NAN);
    let mut f32_chains = || f32_work = chains(false, threads);
    let mut bf16_chains = || bf16_work = chains(true, threads);
    let [f32_time, crate_time, bf16_time, f32_chain, bf16_chain] =
        best([&mut own_f32, &mut crate_f32, &mut own_bf16, &mut f32_chains, &mut bf16_chains]);
    let [f32_rate, crate_rate, bf16_rate] =
        [f32_time, crate_time, bf16_time].map(|t| flops / t / 1e9);
    let (f32_peak, bf16_peak) = (f32_work / f32_chain / 1e9, bf16_work / bf16_chain / 1e9);
    println!(
        "{:20} {f32_rate:8.1} {crate_rate:8.1} {:7.2} {f32_peak:8.1} {:7.1} | \
         {bf16_rate:8.1} {bf16_peak:8.1} {:7.1}",
        format!("{} {m}×{n}×{k}", ["nt", "nn", "tn"][kind as usize]),
        f32_rate / crate_rate,
        100.0 * f32_rate / f32_peak,
        100.0 * bf16_rate / bf16_peak,
    );
    black_box((&out, &out_crate, &out16));
}

/// Runs multiply-adds on registers alone, on as many threads; returns how many operations that was, NaN
/// where there is no such instruction.
fn chains(bf16: bool, threads: usize) -> f64 {
    #[cfg(target_arch = "x86_64")]
    {
        let rounds = 1 << 20;
        let on_all = |work: fn(usize) -> f32, operations: usize| {
            std::thread::scope(|scope| {
                for _ in 0..threads {
                    scope.spawn(move || black_box(work(rounds)));
                }
            });
            (threads * rounds * registers::CHAINS * operations) as f64
        };
        if bf16 && is_x86_feature_detected!("avx512bf16") {
            // SAFETY: the feature was detected.
            return on_all(|rounds| unsafe { registers::bf16_chains(rounds) }, 64);
        }
        if !bf16 && is_x86_feature_detected!("avx512f") {
            // SAFETY: the feature was detected.
            return on_all(|rounds| unsafe { registers::f32_chains(rounds) }, 32);
        }
        if !bf16 && is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            // SAFETY: the features were detected.
            return on_all(|rounds| unsafe { registers::f32_chains_avx2(rounds) }, 16);
        }
    }
    let _ = (bf16, threads);
    f64::NAN
}

/// Independent chains of one instruction, enough of them to hide its latency.
#[cfg(target_arch = "x86_64")]
mod registers {
    use std::arch::x86_64::*;

    pub const CHAINS: usize = 12;

    #[target_feature(enable = "avx512f")]
    pub fn f32_chains(rounds: usize) -> f32 {
        let (x, y) = (_mm512_set1_ps(0.5), _mm512_set1_ps(1e-9));
        let mut sums = [_mm512_setzero_ps(); CHAINS];
        for _ in 0..rounds {
            for sum in &mut sums {
                *sum = _mm512_fmadd_ps(x, y, *sum);
            }
        }
        sums.into_iter().map(|s| _mm512_reduce_add_ps(s)).sum()
    }

    #[target_feature(enable = "avx2,fma")]
    pub fn f32_chains_avx2(rounds: usize) -> f32 {
        let (x, y) = (_mm256_set1_ps(0.5), _mm256_set1_ps(1e-9));
        let mut sums = [_mm256_setzero_ps(); CHAINS];
        for _ in 0..rounds {
            for sum in &mut sums {
                *sum = _mm256_fmadd_ps(x, y, *sum);
            }
        }
        sums.into_iter().map(|s| _mm256_cvtss_f32(s)).sum()
    }

    #[target_feature(enable = "avx512f,avx512bf16")]
    pub fn bf16_chains(rounds: usize) -> f32 {
        let pair = _mm512_set1_epi32(0x3f00_3f00);
        // SAFETY: both types are 512 plain bits.
        let x: __m512bh = unsafe { std::mem::transmute(pair) };
        let mut sums = [_mm512_setzero_ps(); CHAINS];
        for _ in 0..rounds {
            for sum in &mut sums {
                *sum = _mm512_dpbf16_ps(*sum, x, x);
            }
        }
        sums.into_iter().map(|s| _mm512_reduce_add_ps(s)).sum()
    }
}
