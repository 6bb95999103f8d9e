//! Initial values of parameters. Every value depends on the seed, the parameter's name and its own index
//! alone, so that neither order nor threads change a model.

use tightrope_core::ops::{RandomKey, uniform};

use crate::params::{Init, Parameter};

/// Stream of random numbers that no op of a graph draws from: a graph counts its streams from 1.
const STREAM: u32 = 0;

/// Initial values of `parameter`, padding included.
pub fn initial_values(parameter: &Parameter, seed: u64) -> Vec<f32> {
    let mut values = vec![0.0; parameter.elements()];
    fill_initial(parameter, seed, 0, &mut values);
    values
}

/// Initial values of `parameter` from element `first` on, for filling a large parameter piece by piece or
/// on several threads. Elements in its padding become 0.
pub fn fill_initial(parameter: &Parameter, seed: u64, first: usize, out: &mut [f32]) {
    let hash = fnv1a(&parameter.name);
    let key = [seed as u32, (seed >> 32) as u32, hash as u32, (hash >> 32) as u32];
    let kept = parameter.stored().saturating_sub(first).min(out.len());
    let (values, padding) = out.split_at_mut(kept);
    padding.fill(0.0);
    match parameter.init {
        Init::Zeros => values.fill(0.0),
        Init::Ones => values.fill(1.0),
        Init::Uniform { bound } => {
            for (element, value) in (first as u64..).zip(values) {
                *value = (bound * (2.0 * uniform(key, STREAM, element) - 1.0)) as f32;
            }
        }
        Init::Normal { std } => {
            // A pair of uniform numbers gives elements 2k and 2k + 1; a piece may begin or end within one.
            let (head, pairs) = values.split_at_mut(kept.min(first & 1));
            for value in head {
                *value = (std * normal_pair(key, first as u64 - 1)[1]) as f32;
            }
            for (pair, values) in
                (first.next_multiple_of(2) as u64..).step_by(2).zip(pairs.chunks_mut(2))
            {
                for (value, normal) in values.iter_mut().zip(normal_pair(key, pair)) {
                    *value = (std * normal) as f32;
                }
            }
        }
    }
}

/// Two standard normal numbers from uniform numbers `pair` and `pair + 1` (Box and Muller 1958).
fn normal_pair(key: RandomKey, pair: u64) -> [f64; 2] {
    let radius = (-2.0 * (1.0 - uniform(key, STREAM, pair)).ln()).sqrt();
    let (sin, cos) = (std::f64::consts::TAU * uniform(key, STREAM, pair + 1)).sin_cos();
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
