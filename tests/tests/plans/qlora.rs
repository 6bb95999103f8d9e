//! What adapters beside 4-bit weights leave of a published model: sequences of 2,048 tokens, one a step.

use conformance::times::THREADS;
use tightrope_backend_cpu::Cpu;
use tightrope_core::plan::{Checkpoint, Options};
use tightrope_core::{Class, Life};
use tightrope_nn::lora::ALL_LINEAR;
use tightrope_nn::{
    BuildOptions, FrozenBits, Lora, Planned, Precision, StateBits, TrainerConfig, preset,
};

const GIB: f64 = (1u64 << 30) as f64;

#[test]
fn a_model_of_8_billion_parameters_is_adapted_in_8_gib() {
    let model = preset("llama-3.1-8b").expect("a preset");
    assert_eq!(model.parameters(), 8_030_261_248);
    let plan = |base_bits| {
        let targets = vec![ALL_LINEAR.to_owned()];
        let config = TrainerConfig {
            precision: Precision::BF16,
            optimizer_bits: StateBits::B8,
            lora: Some(Lora {
                rank: 16,
                alpha: 32.0,
                targets,
                dropout: 0.0,
                base_bits,
                variant: Default::default(),
            }),
            build: BuildOptions { loss_chunk: 256, ..BuildOptions::default() },
            options: Options { checkpoint: Checkpoint::Block, ..Options::default() },
            ..TrainerConfig::new(model.build(2048).expect("a model"))
        };
        let cpu = Cpu::new(THREADS).expect("threads");
        Planned::new(&config, &cpu).expect("a model that can be planned").plan
    };
    let [eight, four] = [FrozenBits::B8, FrozenBits::B4].map(plan);
    let gib = |bytes: u64| bytes as f64 / GIB;
    let (eight, peak) = (gib(eight.peak_bytes()), gib(four.peak_bytes()));
    println!("8B: {eight:.2} GiB beside 8 bits, {peak:.2} GiB beside 4");
    assert!(peak <= 8.0, "{peak}");
    assert!(eight > peak + 3.0, "{eight}");
    // Embeddings, head and norms in bf16; half a byte for each other weight, its scales, and a mean for each of seven a layer.
    let (tables, norms) = (2 * 128_256 * 4096, 65 * 4096);
    let others = 8_030_261_248 - tables - norms;
    let frozen = four.graph.tensors.iter().filter(|info| info.class == Class::Frozen);
    let frozen = frozen.filter(|info| info.life == Life::Persistent && info.replaces.is_none());
    let bytes: u64 = frozen.map(|info| info.ty.bytes() as u64).sum();
    let expected = 2 * (tables + norms) + others / 2 + others / 64 + others / 4096 + 32 * 7 * 4;
    assert_eq!(bytes, expected);
}
