//! NVIDIA's GPUs by their published figures: to plan for one that isn't here, and for estimates until one is measured.
//!
//! ```
//! use tightrope::cards::Card;
//! use tightrope::nn::Precision;
//!
//! let card = Card::named("rtx-4090")?;
//! assert_eq!(card.capability, (8, 9));
//! assert!(card.rates(Precision::BF16, false).plausible());
//! assert!(Card::named("rtx-9090").is_err());
//! # Ok::<(), tightrope::Error>(())
//! ```

use anyhow::anyhow;
use tightrope_core::DType;
use tightrope_nn::{Peaks, Precision, Rates};

use crate::error::{Error, Result};

/// A GPU as NVIDIA's data sheets and architecture papers describe it. Rates of tensor cores are those of dense matrices
/// with sums in f32.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Card {
    /// What `--gpu` calls it.
    pub name: &'static str,
    /// Part of what its driver calls it.
    pub device: &'static str,
    /// Compute capability.
    pub capability: (i32, i32),
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// Memory as its driver counts it, MiB.
    pub memory_mib: u32,
    /// What connects it to the other GPUs of its node, as `--interconnect` calls it: its NVLink where servers have a switch of it, else
    /// its slot.
    pub link: &'static str,
    rates: Published,
}

/// What a data sheet says of a card's speed.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Published {
    /// TFLOP/s of tensor cores in 16 bits.
    half: f64,
    /// TFLOP/s of tensor cores in TF32; 0 where they don't multiply it.
    tf32: f64,
    /// TFLOP/s of f32 without tensor cores.
    single: f64,
    /// Memory, GB/s.
    memory: f64,
    /// PCI Express of its slot in one direction, GB/s.
    slot: f64,
}

/// PCI Express of 16 lanes, GB/s in one direction: its third, fourth and fifth generation.
const PCIE: [f64; 3] = [15.8, 31.5, 63.0];

/// Bytes that a CUDA context takes besides the plan, with room for the driver's own.
const OUTSIDE_BYTES: u64 = 640 << 20;

/// The cards; of those whose device names begin alike, the longer name comes first.
#[rustfmt::skip]
pub const CARDS: [Card; 19] = [
    card("b200",         "B200",              (10, 0), 148, 183359, "nvlink5", [2250.0, 1125.0, 75.0,  7700.0, PCIE[2]]),
    card("h200",         "H200",              (9, 0),  132, 143771, "nvlink4", [989.4,  494.7, 66.9,  4800.0, PCIE[2]]),
    card("h100-pcie",    "H100 PCIe",         (9, 0),  114,  81559, "pcie5", [756.4,  378.2, 51.2,  2039.0, PCIE[2]]),
    card("h100",         "H100",              (9, 0),  132,  81559, "nvlink4", [989.4,  494.7, 66.9,  3350.0, PCIE[2]]),
    card("a100-40gb",    "A100-SXM4-40GB",    (8, 0),  108,  40960, "nvlink3", [312.0,  156.0, 19.5,  1555.0, PCIE[1]]),
    card("a100",         "A100",              (8, 0),  108,  81920, "nvlink3", [312.0,  156.0, 19.5,  2039.0, PCIE[1]]),
    card("l40s",         "L40S",              (8, 9),  142,  46068, "pcie4", [362.0,  183.0, 91.6,   864.0, PCIE[1]]),
    card("l4",           "NVIDIA L4",         (8, 9),   58,  23034, "pcie4", [121.0,   60.0, 30.3,   300.0, PCIE[1]]),
    card("a10",          "A10",               (8, 6),   72,  23028, "pcie4", [125.0,   62.5, 31.2,   600.0, PCIE[1]]),
    card("t4",           "Tesla T4",          (7, 5),   40,  15360, "pcie3", [65.0,    0.0,  8.1,   320.0, PCIE[0]]),
    card("rtx-6000-ada", "RTX 6000 Ada",      (8, 9),  142,  49140, "pcie4", [364.0,  182.0, 91.1,   960.0, PCIE[1]]),
    card("rtx-pro-6000", "RTX PRO 6000",      (12, 0), 188,  97887, "pcie5", [503.8, 251.9, 126.0, 1792.0, PCIE[2]]),
    card("rtx-5090",     "RTX 5090",          (12, 0), 170,  32607, "pcie5", [209.5,  104.8, 104.8, 1792.0, PCIE[2]]),
    card("rtx-5080",     "RTX 5080",          (12, 0),  84,  16303, "pcie5", [112.6,   56.3, 56.3,   960.0, PCIE[2]]),
    card("rtx-4090",     "RTX 4090",          (8, 9),  128,  24564, "pcie4", [165.2,   82.6, 82.6,  1008.0, PCIE[1]]),
    card("rtx-4080",     "RTX 4080",          (8, 9),   76,  16376, "pcie4", [97.5,   48.7, 48.7,   717.0, PCIE[1]]),
    card("rtx-4060-ti",  "RTX 4060 Ti",       (8, 9),   34,  16380, "pcie4", [44.1,   22.1, 22.1,   288.0, PCIE[1] / 2.0]),
    card("rtx-3090",     "RTX 3090",          (8, 6),   82,  24576, "pcie4", [71.0,   35.6, 35.6,   936.0, PCIE[1]]),
    card("rtx-3060",     "RTX 3060",          (8, 6),   28,  12288, "pcie4", [25.6,   12.7, 12.7,   360.0, PCIE[1]]),
];

const fn card(
    name: &'static str,
    device: &'static str,
    capability: (i32, i32),
    multiprocessors: u32,
    memory_mib: u32,
    link: &'static str,
    [half, tf32, single, memory, slot]: [f64; 5],
) -> Card {
    let rates = Published { half, tf32, single, memory, slot };
    Card { name, device, capability, multiprocessors, memory_mib, link, rates }
}

impl Card {
    /// The card of this name, in small or capital letters.
    ///
    /// # Errors
    /// A name that isn't known, with those that are.
    pub fn named(name: &str) -> Result<&'static Self> {
        let found = CARDS.iter().find(|card| card.name.eq_ignore_ascii_case(name.trim()));
        found.ok_or_else(|| {
            let names: Vec<&str> = CARDS.iter().map(|card| card.name).collect();
            Error::usage(
                anyhow!("no figures of a GPU `{name}` are known"),
                format!("name one of {}, or `--memory` without it", names.join(", ")),
            )
        })
    }

    /// The card that a driver calls so.
    pub fn of_device(device: &str) -> Option<&'static Self> {
        let is = |card: &&Self| {
            let rest = device.split_once(card.device).map(|(_, rest)| rest);
            // An L4 is no L40.
            rest.is_some_and(|rest| !rest.starts_with(|next: char| next.is_ascii_digit()))
        };
        CARDS.iter().find(is)
    }

    /// The card that stands for others of a compute capability: the slowest of those that are known with the same one, or with the
    /// newest before it.
    pub fn of_capability(capability: (i32, i32)) -> &'static Self {
        let before = || CARDS.iter().filter(|card| card.capability <= capability);
        let oldest = CARDS.iter().min_by_key(|card| card.capability);
        let newest = before().map(|card| card.capability).max();
        let alike = before().filter(|card| Some(card.capability) == newest);
        let slowest = alike.min_by(|a, b| a.rates.half.total_cmp(&b.rates.half));
        slowest.or(oldest).unwrap_or(&CARDS[0])
    }

    /// What plans for it call it, where none is here.
    pub fn description(&self) -> String {
        format!("cuda ({}, by its published figures)", self.device)
    }

    /// Bytes that a plan may take. It's what the card has, without its context.
    pub fn free_bytes(&self) -> u64 {
        (u64::from(self.memory_mib) << 20) - OUTSIDE_BYTES
    }

    /// What connects it to others of its node, and its slot, which may have fewer lanes.
    pub fn links(&self) -> [&'static str; 2] {
        let slot = match PCIE.iter().position(|&rate| self.rates.slot <= rate) {
            Some(0) => "pcie3",
            Some(1) => "pcie4",
            _ => "pcie5",
        };
        [self.link, slot]
    }

    /// Rates for estimates: what kernels may reach of what is published.
    pub fn rates(&self, precision: Precision, in_tf32: bool) -> Rates {
        const TERA: f64 = 1e12;
        const GIGA: f64 = 1e9;
        let Published { half, tf32, single, memory, slot } = self.rates;
        // Tensor cores before Ampere's multiply f16 alone.
        let matmul = match precision.dtype() {
            DType::F16 => half,
            DType::BF16 if tf32 > 0.0 => half,
            DType::F32 if in_tf32 && tf32 > 0.0 => tf32,
            _ => single,
        };
        Rates::of_peaks(&Peaks {
            matmul: matmul * TERA,
            vector: single * TERA,
            bytes: memory * GIGA,
            link: slot * GIGA,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_s_name_finds_its_card() {
        for (device, name) in [
            ("NVIDIA H100 80GB HBM3", "h100"),
            ("NVIDIA H100 PCIe", "h100-pcie"),
            ("NVIDIA H200", "h200"),
            ("NVIDIA A100-SXM4-80GB", "a100"),
            ("NVIDIA A100-SXM4-40GB", "a100-40gb"),
            ("NVIDIA A10G", "a10"),
            ("NVIDIA L4", "l4"),
            ("NVIDIA L40S", "l40s"),
            ("Tesla T4", "t4"),
            ("NVIDIA GeForce RTX 4090", "rtx-4090"),
            ("NVIDIA GeForce RTX 5090", "rtx-5090"),
        ] {
            assert_eq!(Card::of_device(device).map(|card| card.name), Some(name), "{device}");
        }
        for unknown in ["NVIDIA GeForce GTX 1660", "NVIDIA L40"] {
            assert_eq!(Card::of_device(unknown), None);
        }
    }

    #[test]
    fn a_card_that_is_not_known_is_taken_for_a_slow_one_of_its_kind() {
        for (capability, name) in [
            ((7, 5), "t4"),
            ((8, 0), "a100-40gb"),
            ((8, 6), "rtx-3060"),
            ((8, 7), "rtx-3060"),
            ((8, 9), "rtx-4060-ti"),
            ((9, 0), "h100-pcie"),
            ((10, 3), "b200"),
            ((12, 1), "rtx-5080"),
            ((6, 1), "t4"),
        ] {
            assert_eq!(Card::of_capability(capability).name, name);
        }
        // And one of which not even that is known, for the slowest of all.
        for precision in [Precision::F32, Precision::F16] {
            let rates = Card::named("t4").unwrap().rates(precision, false);
            assert_eq!(Rates::of("cuda (a GPU)", precision, 1), rates);
        }
    }

    #[test]
    fn names_are_each_one_card_s() {
        for card in &CARDS {
            assert_eq!(Card::named(&card.name.to_uppercase()).unwrap(), card);
            for precision in [Precision::F32, Precision::BF16, Precision::F16] {
                assert!(card.rates(precision, true).plausible(), "{}", card.name);
            }
        }
        let said = Card::named("h1000").unwrap_err();
        assert!(said.help().is_some_and(|help| help.contains("h100-pcie, h100, ")), "{said}");
    }
}
