//! What 16 bits in place of 32 leave of published models: sequences of 2,048 tokens, one a step, with 8-bit optimizer state and
//! blocks recomputed.

use conformance::times::THREADS;
use tightrope_backend_cpu::Cpu;
use tightrope_core::plan::{Checkpoint, Options};
use tightrope_core::{Class, Life, Plan};
use tightrope_nn::{
    BuildOptions, Family, Gradients, Master, ModelConfig, Planned, Precision, StateBits, TableBits,
    TrainerConfig, preset,
};

const GIB: f64 = (1u64 << 30) as f64;

/// A step with bf16 weights and f32 gradients and masters, as it is by default.
fn wide(model: &ModelConfig) -> TrainerConfig {
    TrainerConfig {
        precision: Precision::BF16,
        optimizer_bits: StateBits::B8,
        build: BuildOptions { loss_chunk: 256, ..BuildOptions::default() },
        options: Options { checkpoint: Checkpoint::Block, ..Options::default() },
        ..TrainerConfig::new(model.build(2048).expect("a model"))
    }
}

/// The same with gradients in bf16, without masters, and with tables' state in 8 bits.
fn narrow(model: &ModelConfig) -> TrainerConfig {
    TrainerConfig {
        gradients: Gradients::BF16,
        master: Master::None,
        table_bits: TableBits::B8,
        ..wide(model)
    }
}

fn plan(config: &TrainerConfig) -> Plan {
    let cpu = Cpu::new(THREADS).expect("threads");
    Planned::new(config, &cpu).expect("a model that can be planned").plan
}

/// Bytes of a class of what lasts from step to step.
fn lasting(plan: &Plan, class: Class) -> u64 {
    let tensors = plan.graph.tensors.iter();
    let of_class = tensors.filter(|info| info.class == class && info.life == Life::Persistent);
    of_class.filter(|info| info.replaces.is_none()).map(|info| info.ty.bytes() as u64).sum()
}

/// Llama 2's, or Llama's, of 7B.
fn llama_7b() -> ModelConfig {
    let model = preset("tinyllama-1.1b").expect("a preset");
    ModelConfig {
        family: Family::Llama,
        layers: 32,
        channels: 4096,
        heads: 32,
        kv_heads: 32,
        hidden: 11_008,
        ..model
    }
}

#[test]
fn a_model_of_7_billion_parameters_trains_in_45_gib() {
    let model = llama_7b();
    assert_eq!(model.parameters(), 6_738_415_616);
    let [before, after] = [wide(&model), narrow(&model)].map(|config| plan(&config));
    let gib = |plan: &Plan| plan.peak_bytes() as f64 / GIB;
    println!("7B: {:.1} GiB, {:.1} GiB in 16 bits", gib(&before), gib(&after));
    assert!(gib(&after) <= 45.0, "{}", gib(&after));
    assert!(gib(&before) > 60.0, "{}", gib(&before));
    // Two bytes a weight, and two of 8-bit state with their scales.
    let weights = lasting(&after, Class::Weight);
    assert_eq!(weights, 2 * model.parameters());
    let state = lasting(&after, Class::Optimizer) as f64 / model.parameters() as f64;
    assert!((2.0..2.04).contains(&state), "{state} bytes of state a weight");
}

#[test]
fn a_model_of_1_5_billion_parameters_trains_in_10_gib() {
    let model = preset("qwen2.5-1.5b").expect("a preset");
    let consumed = TrainerConfig { consume_gradients: true, clip: None, ..narrow(&model) };
    let configs = [wide(&model), narrow(&model), consumed];
    let [before, held, consumed] = configs.map(|config| plan(&config).peak_bytes() as f64 / GIB);
    println!("1.5B: {before:.2} GiB, {held:.2} in 16 bits, {consumed:.2} of consumed gradients");
    assert!(held <= 10.0, "{held}");
    assert!(consumed <= 8.0, "{consumed}");
}

#[test]
fn state_of_gpt2_shrinks_by_three_quarters_with_its_tables() {
    let model = ModelConfig { context: 2048, ..preset("gpt2").expect("a preset") };
    let of = |optimizer_bits, table_bits| {
        let config = TrainerConfig { optimizer_bits, table_bits, ..wide(&model) };
        lasting(&plan(&config), Class::Optimizer) as f64
    };
    let all = of(StateBits::B32, TableBits::B32);
    let [without, with] = [TableBits::B32, TableBits::B8].map(|it| of(StateBits::B8, it) / all);
    println!(
        "GPT-2's state: {:.1} % less, {:.1} % with tables",
        100.0 - 100.0 * without,
        100.0 - 100.0 * with
    );
    assert!((0.48..0.52).contains(&without), "{without}");
    assert!(with < 0.26, "{with}");
}
