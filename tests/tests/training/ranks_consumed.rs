//! Ranks that update each weight as soon as its gradient is made.

use conformance::draw::Draw;
use tightrope_backend_cpu::Cpu;
use tightrope_core::plan::{Checkpoint, Options};
use tightrope_nn::{
    Family, Gradients, Master, Planned, Precision, Shard, StateBits, TrainerConfig,
};

use crate::ranks::{larger, run_all};

const SHARDS: [Shard; 4] = [Shard::Nothing, Shard::State, Shard::Gradients, Shard::Weights];

/// Bytes of the number of updates' two corrections and their factor, with what they're aligned to.
const CORRECTIONS: u64 = 3 * 256;

/// Ranks that hold gradients until the end of the step: of a weight, without clipping.
fn held(family: Family, ranks: usize, shard: Shard) -> TrainerConfig {
    TrainerConfig { clip: None, shard, ..larger(family, ranks, ranks) }
}

fn peak(config: &TrainerConfig) -> u64 {
    let cpu = Cpu::new(1).expect("threads");
    Planned::new(config, &cpu).expect("a plan").plan.peak_bytes()
}

#[test]
fn ranks_that_consume_gradients_have_the_bits_of_ranks_that_hold_them_in_fewer_bytes() {
    let mut cases = vec![];
    for family in [Family::Gpt2, Family::Llama] {
        for ranks in [2, 3] {
            for shard in SHARDS {
                let wide = held(family, ranks, shard);
                let narrow = TrainerConfig {
                    precision: Precision::BF16,
                    gradients: Gradients::BF16,
                    master: Master::None,
                    optimizer_bits: StateBits::B8,
                    ..wide.clone()
                };
                cases.extend([wide, narrow]);
            }
        }
    }
    for held in Draw::of_today().one_of(4, "ranks that consume gradients", cases) {
        let expected = run_all(&held, 3);
        for checkpoint in [Checkpoint::None, Checkpoint::Block] {
            let options = Options { checkpoint: checkpoint.clone(), ..Options::default() };
            let held = TrainerConfig { options, ..held.clone() };
            let consumed = TrainerConfig { consume_gradients: true, ..held.clone() };
            let what = format!("{:?}, {:?}, {checkpoint:?}", consumed.shard, consumed.precision);
            let (less, more) = (peak(&consumed), peak(&held));
            println!("{what}: {less} : {more} bytes");
            // Where all activations are kept, these are more than what gradients leave.
            let must = checkpoint == Checkpoint::Block && consumed.precision == Precision::F32;
            // Corrections of the biases, which updates read, live while gradients are made.
            let corrections = if must { 0 } else { CORRECTIONS };
            assert!(
                less < more || !must && less <= more + corrections,
                "{what}: {less} of {more} bytes"
            );
            assert!(run_all(&consumed, 3) == expected, "{what}: other bits");
        }
    }
}
