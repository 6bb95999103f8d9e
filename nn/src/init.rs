//! Initial values of parameters. Every value depends on the seed, the parameter's name and its own index
//! alone, so that neither order nor threads change a model.

use tightrope_core::ops::uniform;

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
    let stored = parameter.stored();
    for (index, value) in (first..).zip(out) {
        *value = match parameter.init {
            _ if index >= stored => 0.0,
            Init::Zeros => 0.0,
            Init::Ones => 1.0,
            Init::Normal { std } => {
                // Box and Muller (1958): two uniform numbers give elements 2k and 2k + 1.
                let pair = (index & !1) as u64;
                let radius = (-2.0 * (1.0 - uniform(key, STREAM, pair)).ln()).sqrt();
                let angle = std::f64::consts::TAU * uniform(key, STREAM, pair + 1);
                let turned = if index & 1 == 0 { angle.cos() } else { angle.sin() };
                (std * radius * turned) as f32
            }
        };
    }
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
        let parameter = Parameter::new("w", &[500, 400], Init::Normal { std: 0.02 }).whole("w");
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
        let parameter = Parameter::new("w", &[9, 7], Init::Normal { std: 1.0 }).whole("w");
        let whole = initial_values(&parameter, 1 << 40);
        let mut piece = vec![0.0; 20];
        fill_initial(&parameter, 1 << 40, 13, &mut piece);
        assert_eq!(whole[13..33], piece);
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
