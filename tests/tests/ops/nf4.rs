//! 4-bit NormalFloat against what bitsandbytes recorded (`tests/parity/record_nf4.py`): every code, and the values that come back.

use serde_json::Value;
use tightrope_core::ops::{NF4_BLOCK, Nf4, Nf4Scales};

/// Element `i` of the weights, as the script draws it.
fn weight(i: u64) -> f32 {
    let drawn = (i.wrapping_mul(2_654_435_761) % (1 << 32)) >> 16;
    match i {
        64..128 => 0.0,
        130 => 3.0,
        _ => (drawn as f32 - 32_768.0) * (1 + i / 64 % 7) as f32 / 4_194_304.0,
    }
}

fn hex(value: &Value) -> Vec<u8> {
    let text = value.as_str().expect("hex").as_bytes();
    let byte = |pair: &[u8]| {
        let pair = std::str::from_utf8(pair).expect("ASCII");
        u8::from_str_radix(pair, 16).expect("hex")
    };
    text.chunks(2).map(byte).collect()
}

fn floats(value: &Value) -> Vec<f32> {
    let list = value.as_array().expect("a list");
    list.iter().map(|x| x.as_f64().expect("a number") as f32).collect()
}

#[test]
fn codes_are_those_of_bitsandbytes() {
    let recorded: Value =
        serde_json::from_str(include_str!("../../parity/nf4-case.json")).expect("JSON");
    let cases = recorded["cases"].as_array().expect("cases");
    assert_eq!(cases.len(), 4);
    for case in cases {
        let count = case["count"].as_u64().expect("a count");
        let weights: Vec<f32> = (0..count).map(weight).collect();
        let found = Nf4::of(&weights);
        let theirs = Nf4 {
            bytes: hex(&case["bytes"]),
            scales: Nf4Scales {
                codes: hex(&case["scales"]),
                scales: floats(&case["scales_of_scales"]),
                offset: case["offset"].as_f64().expect("a number") as f32,
            },
        };
        assert_eq!(found.bytes, theirs.bytes, "{count}");
        assert_eq!(found.scales.scales, theirs.scales.scales, "{count}");
        assert_eq!(found.scales.offset, theirs.scales.offset, "{count}");
        // The numbers of their codebook are sums in f32, whose last bit may differ.
        let recorded = floats(&case["dequantized"]);
        for (ours, recorded) in theirs.values(weights.len()).iter().step_by(31).zip(recorded) {
            assert!((ours - recorded).abs() <= 4e-7 * recorded.abs(), "{ours} and {recorded}");
        }
        // On a processor, bitsandbytes finds a scale's code in a table that is coarser than the codes, and so misses some.
        let mut missed = 0;
        let scales = weights.chunks(NF4_BLOCK).map(|block| block.iter().fold(0.0, largest));
        for ((scale, ours), theirs) in scales.zip(found.scales.values()).zip(theirs.scales.values())
        {
            assert!((ours - scale).abs() <= (theirs - scale).abs(), "{scale}: {ours} and {theirs}");
            missed += usize::from(ours != theirs);
        }
        assert!(
            missed <= found.scales.codes.len() / 50,
            "{missed} of {}",
            found.scales.codes.len()
        );
    }
}

fn largest(so_far: f32, x: &f32) -> f32 {
    so_far.max(x.abs())
}
