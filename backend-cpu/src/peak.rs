//! What the processor can do at most, measured: multiply-adds on registers alone, and a copy that no cache
//! holds.

use std::hint::black_box;
use std::time::Instant;

/// Bytes of each of the two buffers of the copy.
const BUFFER: usize = 192 << 20;
/// Times that each measurement is repeated; the best counts.
const REPEATS: usize = 5;
/// Multiply-adds in each chain of a repetition.
const ROUNDS: usize = 1 << 22;
/// Independent chains of one instruction: enough to hide its latency.
const CHAINS: usize = 12;

/// Measured limits of all threads together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Peaks {
    /// Floating-point operations a second in f32, a multiply-add counted as two.
    pub flops_f32: f64,
    /// Of bf16 pairs with sums in f32; `None` where there is no instruction for it.
    pub flops_bf16: Option<f64>,
    /// Bytes read and written a second.
    pub bytes: f64,
}

impl Peaks {
    /// Measures `threads` threads; takes about a second.
    pub fn measure(threads: usize) -> Self {
        Self {
            flops_f32: operations(threads, f32_kernel()),
            flops_bf16: bf16_kernel().map(|kernel| operations(threads, kernel)),
            bytes: copied(threads),
        }
    }

    /// The limit for matmuls of the given width.
    pub fn flops(&self, narrow: bool) -> f64 {
        if narrow { self.flops_bf16.unwrap_or(self.flops_f32) } else { self.flops_f32 }
    }
}

/// A loop of multiply-adds, and the operations of one instruction.
type Kernel = (fn(usize) -> f32, usize);

/// Operations a second of `kernel` on all threads.
fn operations(threads: usize, (run, each): Kernel) -> f64 {
    let seconds = best(|| {
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| black_box(run(black_box(ROUNDS))));
            }
        });
    });
    (threads * ROUNDS * CHAINS * each) as f64 / seconds
}

/// Bytes a second that all threads copy, reads and writes both counted.
fn copied(threads: usize) -> f64 {
    let from = vec![1u8; BUFFER];
    let mut to = vec![0u8; BUFFER];
    let part = BUFFER.div_ceil(threads);
    let seconds = best(|| {
        std::thread::scope(|scope| {
            for (to, from) in to.chunks_mut(part).zip(from.chunks(part)) {
                scope.spawn(|| to.copy_from_slice(black_box(from)));
            }
        });
    });
    black_box(&to);
    2.0 * BUFFER as f64 / seconds
}

/// Seconds of the fastest of a few runs.
fn best(mut run: impl FnMut()) -> f64 {
    (0..REPEATS)
        .map(|_| {
            let start = Instant::now();
            run();
            start.elapsed().as_secs_f64()
        })
        .fold(f64::INFINITY, f64::min)
}

#[cfg(target_arch = "x86_64")]
fn f32_kernel() -> Kernel {
    if is_x86_feature_detected!("avx512f") {
        // SAFETY: the feature was detected.
        return (|rounds| unsafe { registers::avx512(rounds) }, 32);
    }
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        // SAFETY: the features were detected.
        return (|rounds| unsafe { registers::avx2(rounds) }, 16);
    }
    portable()
}

#[cfg(target_arch = "x86_64")]
fn bf16_kernel() -> Option<Kernel> {
    let found = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bf16");
    // SAFETY: the features were detected.
    found.then_some((|rounds| unsafe { registers::avx512_bf16(rounds) }, 64))
}

#[cfg(not(target_arch = "x86_64"))]
fn f32_kernel() -> Kernel {
    portable()
}

#[cfg(not(target_arch = "x86_64"))]
fn bf16_kernel() -> Option<Kernel> {
    None
}

/// Products and sums of what the compiler makes of four lanes.
fn portable() -> Kernel {
    const LANES: usize = 4;
    fn run(rounds: usize) -> f32 {
        let (x, y) = (black_box(0.5f32), black_box(1e-9f32));
        let mut sums = [[0f32; LANES]; CHAINS];
        for _ in 0..rounds {
            for sum in sums.as_flattened_mut() {
                *sum = *sum * x + y;
            }
        }
        sums.as_flattened().iter().sum()
    }
    (run, 2 * LANES)
}

#[cfg(target_arch = "x86_64")]
mod registers {
    use std::arch::x86_64::{
        __m512bh, _mm256_cvtss_f32, _mm256_fmadd_ps, _mm256_set1_ps, _mm256_setzero_ps,
        _mm512_castsi512_ps, _mm512_dpbf16_ps, _mm512_fmadd_ps, _mm512_reduce_add_ps,
        _mm512_set1_epi32, _mm512_set1_ps, _mm512_setzero_ps,
    };

    use super::CHAINS;

    #[target_feature(enable = "avx512f")]
    pub fn avx512(rounds: usize) -> f32 {
        let (x, y) = (_mm512_set1_ps(0.5), _mm512_set1_ps(1e-9));
        let mut sums = [_mm512_setzero_ps(); CHAINS];
        for _ in 0..rounds {
            for sum in &mut sums {
                *sum = _mm512_fmadd_ps(x, y, *sum);
            }
        }
        sums.into_iter().map(|sum| _mm512_reduce_add_ps(sum)).sum()
    }

    #[target_feature(enable = "avx2,fma")]
    pub fn avx2(rounds: usize) -> f32 {
        let (x, y) = (_mm256_set1_ps(0.5), _mm256_set1_ps(1e-9));
        let mut sums = [_mm256_setzero_ps(); CHAINS];
        for _ in 0..rounds {
            for sum in &mut sums {
                *sum = _mm256_fmadd_ps(x, y, *sum);
            }
        }
        sums.into_iter().map(|sum| _mm256_cvtss_f32(sum)).sum()
    }

    #[target_feature(enable = "avx512f,avx512bf16")]
    pub fn avx512_bf16(rounds: usize) -> f32 {
        let pairs = _mm512_castsi512_ps(_mm512_set1_epi32(0x3f00_3f00));
        // SAFETY: both types are 512 plain bits.
        let x: __m512bh = unsafe { std::mem::transmute(pairs) };
        let mut sums = [_mm512_setzero_ps(); CHAINS];
        for _ in 0..rounds {
            for sum in &mut sums {
                *sum = _mm512_dpbf16_ps(*sum, x, x);
            }
        }
        sums.into_iter().map(|sum| _mm512_reduce_add_ps(sum)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wider_instructions_do_more() {
        let peaks = Peaks::measure(1);
        assert!(peaks.flops_f32 > 1e8 && peaks.bytes > 1e7, "{peaks:?}");
        let (portable, wide) = (operations(1, portable()), operations(1, f32_kernel()));
        assert!(wide > 0.5 * portable, "{wide} against {portable}");
        assert_eq!(peaks.flops(false), peaks.flops_f32);
        assert_eq!(peaks.flops(true), peaks.flops_bf16.unwrap_or(peaks.flops_f32));
    }
}
