//! Initial values of parameters. Every value depends on the seed, the parameter's name and its own index
//! alone, so that neither order nor threads change a model.

use std::num::NonZero;
use std::thread;

use tightrope_core::ops::{RandomKey, fill_uniform};
use tightrope_core::threads::side_by_side;

use crate::params::{Init, Parameter};

/// Stream of random numbers that no op of a graph draws from: a graph counts its streams from 1.
const STREAM: u32 = 0;

/// Initial values of `parameter`, padding included.
pub fn initial_values(parameter: &Parameter, seed: u64) -> Vec<f32> {
    let mut values = vec![0.0; parameter.elements()];
    fill_initial(parameter, seed, 0, &mut values);
    values
}

/// Initial values of `parameter` from element `first` on, for filling a large parameter piece by piece, on as many threads
/// as are worth it. Elements in its padding become 0.
pub fn fill_initial(parameter: &Parameter, seed: u64, first: usize, out: &mut [f32]) {
    let threads = match parameter.init {
        // What draws nothing is bound by memory.
        Init::Zeros | Init::Ones => 1,
        Init::Uniform { .. } | Init::Normal { .. } => threads(out.len()),
    };
    fill_on(threads, parameter, seed, first, out);
}

/// Threads that fill so many elements: a processor's, of a target that has any, and each with enough to do.
fn threads(elements: usize) -> usize {
    if cfg!(target_family = "wasm") {
        return 1;
    }
    thread::available_parallelism().map_or(1, NonZero::get).min(elements / LEAST_OF_THREAD).max(1)
}

/// Elements for which a thread is worth beginning: it draws as many in about a millisecond.
const LEAST_OF_THREAD: usize = 1 << 15;

/// [`fill_initial`] on so many threads.
fn fill_on(threads: usize, parameter: &Parameter, seed: u64, first: usize, out: &mut [f32]) {
    if threads < 2 {
        return fill(parameter, seed, first, out);
    }
    let share = out.len().div_ceil(threads);
    side_by_side(out.chunks_mut(share).enumerate(), |(index, out)| {
        fill(parameter, seed, first + index * share, out);
    });
}

fn fill(parameter: &Parameter, seed: u64, first: usize, out: &mut [f32]) {
    let hash = fnv1a(&parameter.name);
    let key = [seed as u32, (seed >> 32) as u32, hash as u32, (hash >> 32) as u32];
    let kept = parameter.stored().saturating_sub(first).min(out.len());
    let (values, padding) = out.split_at_mut(kept);
    padding.fill(0.0);
    match parameter.init {
        Init::Zeros => values.fill(0.0),
        Init::Ones => values.fill(1.0),
        Init::Uniform { bound } => {
            from_uniform(key, first, values, |pair| pair.map(|u| bound * (2.0 * u - 1.0)));
        }
        Init::Normal { std } => {
            from_uniform(key, first, values, |pair| normal_pair(pair).map(|normal| std * normal));
        }
    }
}

/// Elements whose random numbers are drawn side by side.
const DRAWN: usize = 256;

/// Values of the elements from `first` on, of which `pair` makes elements 2k and 2k + 1 from their uniform numbers.
fn from_uniform(
    key: RandomKey,
    first: usize,
    values: &mut [f32],
    pair: impl Fn([f64; 2]) -> [f64; 2],
) {
    let mut drawn = [0.0; DRAWN];
    let mut done = 0;
    while done < values.len() {
        // A piece may begin or end within a pair, and within what is drawn at once.
        let from = (first + done) / DRAWN * DRAWN;
        fill_uniform(key, STREAM, from as u64, &mut drawn);
        for both in drawn.chunks_exact_mut(2) {
            let made = pair([both[0].into(), both[1].into()]);
            both.iter_mut().zip(made).for_each(|(to, value)| *to = value as f32);
        }
        let own = &drawn[first + done - from..];
        let count = own.len().min(values.len() - done);
        values[done..done + count].copy_from_slice(&own[..count]);
        done += count;
    }
}

/// Two standard normal numbers from two uniform ones (Box and Muller 1958).
fn normal_pair([radius, angle]: [f64; 2]) -> [f64; 2] {
    let radius = (-2.0 * (1.0 - radius).ln()).sqrt();
    let (sin, cos) = (std::f64::consts::TAU * angle).sin_cos();
    [radius * cos, radius * sin]
}

/// 64-bit FNV-1a hash (Fowler, Noll and Vo).
fn fnv1a(text: &str) -> u64 {
    text.bytes().fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3)
    })
}

#[cfg(test)]
mod tests {
    use tightrope_core::ops::uniform;

    use super::*;
    use crate::{ModelConfig, parameters, preset};

    #[test]
    fn moments_of_the_normal_distribution() {
        let parameter = Parameter::new("w", &[500, 400], Init::Normal { std: 0.02 });
        let values = initial_values(&parameter, 7);
        let n = values.len() as f64;
        let moment =
            |power| values.iter().map(|&x| (f64::from(x) / 0.02).powi(power)).sum::<f64>() / n;
        for (power, expected, within) in
            [(1, 0.0, 0.01), (2, 1.0, 0.02), (3, 0.0, 0.04), (4, 3.0, 0.15)]
        {
            let found = moment(power);
            assert!((found - expected).abs() < within, "moment {power} is {found}");
        }
        let next: f64 = values.windows(2).map(|w| f64::from(w[0] * w[1]) / 0.0004).sum();
        assert!((next / n).abs() < 0.01, "neighbours correlate: {}", next / n);
    }

    #[test]
    fn neither_order_nor_pieces_matter() {
        let parameter = Parameter::new("w", &[9, 7], Init::Normal { std: 1.0 });
        let whole = initial_values(&parameter, 1 << 40);
        for (first, end) in [(13, 33), (12, 33), (13, 14), (0, 5), (62, 63), (40, 40)] {
            let mut piece = vec![f32::NAN; end - first];
            fill_initial(&parameter, 1 << 40, first, &mut piece);
            assert_eq!(whole[first..end], piece, "{first}..{end}");
        }
        assert_ne!(whole, initial_values(&parameter, 1 << 41));
        let other = Parameter { name: "v".into(), ..parameter };
        assert_ne!(whole, initial_values(&other, 1 << 40));
    }

    #[test]
    fn numbers_are_those_of_each_element_by_itself() {
        let parameter = Parameter::new("w", &[70, 11], Init::Normal { std: 0.02 });
        let hash = fnv1a("w");
        let key = [5, 0, hash as u32, (hash >> 32) as u32];
        let alone = |element: u64| {
            let pair = element & !1;
            let drawn = [pair, pair + 1].map(|element| uniform(key, STREAM, element));
            (0.02 * normal_pair(drawn)[(element & 1) as usize]) as f32
        };
        let expected: Vec<f32> = (0..770).map(alone).collect();
        assert_eq!(initial_values(&parameter, 5), expected);
        let uniformly = Parameter { init: Init::Uniform { bound: 0.5 }, ..parameter };
        let alone = |element| (0.5 * (2.0 * uniform(key, STREAM, element) - 1.0)) as f32;
        assert_eq!(initial_values(&uniformly, 5), (0..770).map(alone).collect::<Vec<_>>());
    }

    #[test]
    fn threads_draw_the_same_bits() {
        for init in [Init::Normal { std: 0.02 }, Init::Uniform { bound: 0.5 }] {
            let parameter = Parameter::new("w", &[257, 33], init);
            let bits = |values: &[f32]| values.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            let alone = |first: usize, end: usize| {
                let mut values = vec![f32::NAN; end - first];
                fill_on(1, &parameter, 9, first, &mut values);
                bits(&values)
            };
            for threads in [2, 3, 16] {
                for (first, end) in [(0, parameter.elements()), (1, 8192), (5, 7)] {
                    let mut values = vec![f32::NAN; end - first];
                    fill_on(threads, &parameter, 9, first, &mut values);
                    assert_eq!(bits(&values), alone(first, end), "{threads}, {first}..{end}");
                }
            }
        }
        assert_eq!(threads(LEAST_OF_THREAD), 1);
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        assert_eq!(threads(usize::MAX), cores);
    }

    #[test]
    fn padding_is_zero_and_residual_branches_begin_small() {
        let config = ModelConfig { vocab: 100, layers: 8, ..preset("tiny").unwrap() };
        let list = parameters(&config);
        let of = |name: &str| list.iter().find(|p| p.name == name).unwrap();
        let wte = initial_values(of("wte.weight"), 3);
        assert!(wte[100 * 64..].iter().all(|&x| x == 0.0) && wte[100 * 64 - 1] != 0.0);
        assert!(initial_values(of("norm_f.weight"), 3).iter().all(|&x| x == 1.0));
        assert!(initial_values(of("h.7.mlp.down.bias"), 3).iter().all(|&x| x == 0.0));
        assert_eq!(of("h.0.attn.proj.weight").init, Init::Normal { std: 0.005 });
        assert_eq!(of("h.0.mlp.up.weight").init, Init::Normal { std: 0.02 });
    }
}
