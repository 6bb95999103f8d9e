//! What the processor can do at most, measured: multiply-adds on registers alone, and bytes read, copied or changed, from what
//! its nearest caches hold to what none does.

use std::hint::black_box;
use std::time::Instant;

use tightrope_core::threads::side_by_side;

use crate::arena::Arena;
#[cfg(target_arch = "x86_64")]
use crate::fast::gemm::amx;

/// Bytes that are gone through again and again, of all threads together: most caches hold the first, and none the last.
const SIZES: [usize; 6] = [256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 384 << 20];
/// Bytes that are gone through in each repetition, or the size where that's more.
const MOVED: usize = 128 << 20;
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
    /// Bytes read and written a second, where they are [`SIZES`] in all.
    rates: [f64; SIZES.len()],
}

impl Peaks {
    /// Measures `threads` threads; takes about a second.
    pub fn measure(threads: usize) -> Self {
        Self {
            flops_f32: operations(threads, f32_kernel()),
            flops_bf16: bf16_kernel().map(|kernel| operations(threads, kernel)),
            rates: rates(threads),
        }
    }

    /// These, and no less than what was reached: `flops` a second of the given width, and so many bytes a second, of `size` bytes
    /// in all. Others who used the machine may have slowed the measurement.
    #[must_use]
    pub fn at_least(mut self, narrow: bool, flops: f64, bytes_s: f64, size: f64) -> Self {
        match &mut self.flops_bf16 {
            Some(peak) if narrow => *peak = peak.max(flops),
            _ => self.flops_f32 = self.flops_f32.max(flops),
        }
        let level = level(size);
        self.rates[..=level].iter_mut().for_each(|rate| *rate = rate.max(bytes_s));
        self
    }

    /// Bytes that memory gives and takes a second, where no cache holds them.
    pub fn bytes(&self) -> f64 {
        self.rates[SIZES.len() - 1]
    }

    /// The limit for an op that reads and writes so many bytes: of the caches that may hold them.
    pub fn bytes_of(&self, bytes: f64) -> f64 {
        self.rates[level(bytes)]
    }

    /// The limit for matmuls of the given width.
    pub fn flops(&self, narrow: bool) -> f64 {
        if narrow { self.flops_bf16.unwrap_or(self.flops_f32) } else { self.flops_f32 }
    }
}

/// Which of [`SIZES`] so many bytes are as fast as.
fn level(bytes: f64) -> usize {
    SIZES.partition_point(|&size| size as f64 <= bytes).saturating_sub(1)
}

/// A loop of multiply-adds, and the operations of one instruction.
type Kernel = (fn(usize) -> f32, usize);

/// Operations a second of `kernel` on all threads.
fn operations(threads: usize, (run, each): Kernel) -> f64 {
    let seconds = best(|| {
        side_by_side(0..threads, |_| black_box(run(black_box(ROUNDS))));
    });
    (threads * ROUNDS * CHAINS * each) as f64 / seconds
}

/// Bytes a second that all threads read, copy or change, whichever is fastest, of each of [`SIZES`] or more.
fn rates(threads: usize) -> [f64; SIZES.len()] {
    let bytes = SIZES[SIZES.len() - 1];
    // As the tensors of a plan lie: in huge pages where the system has them.
    let (arena, mut memory) = (Arena::new(bytes as u64), vec![]);
    let memory: &mut [u64] = match &arena {
        // SAFETY: nothing else uses the arena.
        Some(arena) => bytemuck::cast_slice_mut(unsafe { arena.scratch(0, bytes as u64) }),
        None => {
            memory.resize(bytes / size_of::<u64>(), 0);
            &mut memory
        }
    };
    memory.fill(1);
    let mut rates = SIZES.map(|size| {
        let memory = &mut memory[..size / size_of::<u64>()];
        read(memory, threads).max(copied(memory, threads)).max(changed(memory, threads))
    });
    // A cache is no slower than what is behind it; where it seems so, threads took longer to begin.
    for index in (1..rates.len()).rev() {
        rates[index - 1] = rates[index].max(rates[index - 1]);
    }
    rates
}

/// Times that so many bytes are gone through in a repetition.
fn rounds(memory: &[u64]) -> usize {
    MOVED.div_ceil(size_of_val(memory))
}

/// Bytes a second that all threads read.
fn read(memory: &[u64], threads: usize) -> f64 {
    let (sum, rounds) = (sum_kernel(), rounds(memory));
    let part = memory.len().div_ceil(threads);
    let seconds = best(|| {
        side_by_side(memory.chunks(part), |own| {
            (0..rounds).for_each(|_| _ = black_box(sum(black_box(own))));
        });
    });
    (rounds * size_of_val(memory)) as f64 / seconds
}

/// Bytes a second that all threads copy, from one half of the memory to the other, reads and writes both counted.
fn copied(memory: &mut [u64], threads: usize) -> f64 {
    let rounds = rounds(memory);
    let bytes = rounds * size_of_val(memory);
    let (from, to) = memory.split_at_mut(memory.len() / 2);
    let part = from.len().div_ceil(threads);
    let seconds = best(|| {
        side_by_side(to.chunks_mut(part).zip(from.chunks(part)), |(to, from)| {
            (0..rounds).for_each(|_| to.copy_from_slice(black_box(from)));
        });
    });
    bytes as f64 / seconds
}

/// Bytes a second that all threads change where they are, reads and writes both counted.
fn changed(memory: &mut [u64], threads: usize) -> f64 {
    let rounds = rounds(memory);
    let bytes = 2 * rounds * size_of_val(memory);
    let part = memory.len().div_ceil(threads);
    let seconds = best(|| {
        side_by_side(memory.chunks_mut(part), |own| {
            for _ in 0..rounds {
                black_box(&mut *own).iter_mut().for_each(|word| *word = word.wrapping_add(1));
            }
        });
    });
    bytes as f64 / seconds
}

/// What goes through all words.
type Sum = fn(&[u64]) -> u64;

fn sum(words: &[u64]) -> u64 {
    words.iter().fold(0, |sum, word| sum ^ word)
}

#[cfg(target_arch = "x86_64")]
fn sum_kernel() -> Sum {
    if is_x86_feature_detected!("avx512f") {
        // SAFETY: the feature was detected.
        return |words| unsafe { registers::sum_avx512(words) };
    }
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the feature was detected.
        return |words| unsafe { registers::sum_avx2(words) };
    }
    sum
}

#[cfg(not(target_arch = "x86_64"))]
fn sum_kernel() -> Sum {
    sum
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
    avx2_kernel().unwrap_or_else(portable)
}

#[cfg(target_arch = "x86_64")]
fn avx2_kernel() -> Option<Kernel> {
    let found = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
    // SAFETY: the features were detected.
    found.then_some((|rounds| unsafe { registers::avx2(rounds) }, 16))
}

/// Operations a second of multiply-adds of AVX2 on one thread, also where there are wider ones; `None` where there are none.
#[cfg(all(test, target_arch = "x86_64"))]
pub(crate) fn flops_of_avx2() -> Option<f64> {
    avx2_kernel().map(|kernel| operations(1, kernel))
}

#[cfg(target_arch = "x86_64")]
fn bf16_kernel() -> Option<Kernel> {
    if crate::isa::amx::usable() {
        // A round of vectors takes a twelfth of the time of one of tiles; there are as many multiplications here.
        const SHARE: usize = 16;
        let run = |rounds: usize| {
            // SAFETY: it's usable.
            unsafe { amx::work(rounds / SHARE) };
            0.0
        };
        return Some((run, amx::WORK / SHARE / CHAINS));
    }
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
    pub fn sum_avx512(words: &[u64]) -> u64 {
        words.iter().fold(0, |sum, word| sum ^ word)
    }

    #[target_feature(enable = "avx2")]
    pub fn sum_avx2(words: &[u64]) -> u64 {
        words.iter().fold(0, |sum, word| sum ^ word)
    }

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
        assert!(peaks.flops_f32 > 1e8 && peaks.bytes() > 1e7, "{peaks:?}");
        assert!(peaks.rates.is_sorted_by(|nearer, farther| nearer >= farther), "{peaks:?}");
        let limits = [1.0, SIZES[0] as f64, SIZES[1] as f64, 1e12].map(|all| peaks.bytes_of(all));
        let [first, second, .., last] = peaks.rates;
        assert_eq!(limits, [first, first, second, last]);
        let (portable, wide) = (operations(1, portable()), operations(1, f32_kernel()));
        assert!(wide > 0.5 * portable, "{wide} against {portable}");
        assert_eq!(peaks.flops(false), peaks.flops_f32);
        assert_eq!(peaks.flops(true), peaks.flops_bf16.unwrap_or(peaks.flops_f32));
    }

    #[test]
    fn what_was_reached_is_no_more_than_the_peak() {
        let measured = Peaks {
            flops_f32: 10.0,
            flops_bf16: Some(20.0),
            rates: [6.0, 5.0, 4.0, 3.0, 2.0, 1.0],
        };
        let raised = measured.at_least(false, 30.0, 4.5, SIZES[2] as f64);
        assert_eq!((raised.flops_f32, raised.flops_bf16), (30.0, Some(20.0)));
        assert_eq!(raised.rates, [6.0, 5.0, 4.5, 3.0, 2.0, 1.0]);
        let raised = raised.at_least(true, 40.0, 7.0, 1.0);
        assert_eq!((raised.flops_f32, raised.flops_bf16), (30.0, Some(40.0)));
        assert_eq!(raised.rates, [7.0, 5.0, 4.5, 3.0, 2.0, 1.0]);
        assert_eq!(raised.at_least(true, 1.0, 1.0, 1e12), raised);
        // Where there's no instruction for narrow numbers, wide ones make them.
        let wide = Peaks { flops_bf16: None, ..measured }.at_least(true, 30.0, 0.0, 0.0);
        assert_eq!(wide.flops(true), 30.0);
    }
}
