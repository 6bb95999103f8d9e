//! Losses of ten steps, recorded once: a change that moves them moves training.

use conformance::values::uniform;
use pollster::block_on;
use tightrope_backend_cpu::Cpu;
use tightrope_backend_cpu::isa::Level;
use tightrope_nn::{
    Batch, BuildOptions, Family, Optimizer, Planned, Precision, Trainer, TrainerConfig,
};

/// Ten losses of a two-block model on a text that repeats with noise.
fn losses(family: Family, precision: Precision, optimizer: Optimizer, lr: f64) -> Vec<f32> {
    let mut model = tightrope_nn::preset("tiny").expect("a preset");
    model.family = family;
    (model.layers, model.channels, model.heads, model.kv_heads) = (2, 48, 3, 3);
    (model.hidden, model.context, model.vocab) = (96, 32, 50);
    if family == Family::Gpt2 {
        model.hidden = 4 * model.channels;
    }
    let config = TrainerConfig {
        precision,
        batch: 8,
        micro_batch: 4,
        build: BuildOptions { loss_chunk: 64, ..BuildOptions::default() },
        optimizer,
        seed: 3,
        ..TrainerConfig::new(model.build(32).expect("a model"))
    };
    let cpu = Cpu::new(2).expect("threads");
    let planned = Planned::new(&config, &cpu).expect("a plan");
    let mut trainer = Trainer::new(planned, Box::new(cpu)).expect("memory");
    trainer.initialise().expect("weights");
    let token = |i: usize| {
        let noisy = uniform(9, i as u64) < 0.1;
        if noisy { (uniform(10, i as u64) * 50.0) as i32 } else { (i % 7 * 5) as i32 }
    };
    (0..10)
        .map(|step| {
            let text: Vec<i32> = (0..8 * 32 + 1).map(|i| token(step as usize * 256 + i)).collect();
            trainer.step(step, lr, &Batch::text(&text[..8 * 32], &text[1..])).expect("a step");
            block_on(trainer.outcome()).expect("an outcome").loss
        })
        .collect()
}

fn check(name: &str, found: &[f32], golden: [f32; 10], tolerance: f32) {
    let worst = found.iter().zip(golden).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(worst <= tolerance, "{name}: off by {worst}; now {found:?}");
}

const ADAMW: Optimizer = Optimizer::AdamW { beta1: 0.9, beta2: 0.95, eps: 1e-8 };

#[test]
fn ten_losses_are_the_recorded_ones() {
    let run = losses;
    check("gpt2 f32", &run(Family::Gpt2, Precision::F32, ADAMW, 3e-3), GPT2, 1e-4);
    // Processors that multiply bf16 sum in another order than the rest, which shows in the last bit of some activations. Those that
    // multiply pairs of it round attention's weights too.
    let gpt2_bf16 = if multiplies_pairs() { GPT2_BF16_PAIRS } else { GPT2_BF16 };
    check("gpt2 bf16", &run(Family::Gpt2, Precision::BF16, ADAMW, 3e-3), gpt2_bf16, 3e-4);
    // Portable code rounds each product before it's added, which shows in f16's last bits.
    let gpt2_f16 = if level() == Level::Portable { GPT2_F16_PORTABLE } else { GPT2_F16 };
    check("gpt2 f16", &run(Family::Gpt2, Precision::F16, ADAMW, 3e-3), gpt2_f16, 2e-5);
    check("llama f32", &run(Family::Llama, Precision::F32, ADAMW, 3e-3), LLAMA, 1e-4);
    let llama_bf16 = if multiplies_pairs() { LLAMA_BF16_PAIRS } else { LLAMA_BF16 };
    check("llama bf16", &run(Family::Llama, Precision::BF16, ADAMW, 3e-3), llama_bf16, 3e-4);
    let sgd = Optimizer::Sgd { momentum: 0.9 };
    check("gpt2 sgd", &run(Family::Gpt2, Precision::F32, sgd, 3e-2), SGD, 1e-4);
    let lion = Optimizer::Lion { beta1: 0.9, beta2: 0.99 };
    check("gpt2 lion", &run(Family::Gpt2, Precision::F32, lion, 5e-4), LION, 1e-4);
}

const GPT2: [f32; 10] = [
    3.955753, 3.5013037, 3.2886581, 3.1624432, 2.997797, 2.839085, 2.681781, 2.5880523, 2.4609249,
    2.3099146,
];
const LLAMA: [f32; 10] = [
    3.9560916, 3.6157184, 3.3814533, 3.2436094, 3.0473306, 2.9248939, 2.7311225, 2.6424456,
    2.5155983, 2.3528557,
];
const SGD: [f32; 10] = [
    3.955753, 3.8456516, 3.6607456, 3.53161, 3.3944921, 3.2381082, 3.0414097, 2.8989758, 2.707528,
    2.5107563,
];
const LION: [f32; 10] = [
    3.955753, 3.8065658, 3.6487556, 3.5600424, 3.4912748, 3.422918, 3.347709, 3.3032303, 3.24403,
    3.1773946,
];
/// The instruction set that is forced, or the processor's widest.
fn level() -> Level {
    Cpu::new(1).expect("a thread").isa().level()
}

/// `true` if that multiplies pairs of bf16.
fn multiplies_pairs() -> bool {
    level() >= Level::Avx512Bf16
}

const GPT2_BF16_PAIRS: [f32; 10] = [
    3.955656, 3.5022664, 3.287271, 3.1632109, 2.9995413, 2.8374348, 2.6823583, 2.5898972, 2.459713,
    2.3112025,
];
const LLAMA_BF16_PAIRS: [f32; 10] = [
    3.9560556, 3.616757, 3.3809185, 3.2443929, 3.049642, 2.9243755, 2.7319648, 2.644157, 2.514656,
    2.3540616,
];
const GPT2_BF16: [f32; 10] = [
    3.9556515, 3.5022974, 3.287047, 3.1631348, 2.9995527, 2.8375297, 2.682495, 2.5899363,
    2.4598346, 2.3115444,
];
const GPT2_F16: [f32; 10] = [
    3.955768, 3.5012608, 3.2886758, 3.1623871, 2.9978924, 2.839035, 2.6816752, 2.5880065,
    2.4608307, 2.3099046,
];
const GPT2_F16_PORTABLE: [f32; 10] = [
    3.955768, 3.5012608, 3.2886744, 3.1623855, 2.9978995, 2.8390398, 2.6816816, 2.588006, 2.460853,
    2.3099127,
];
const LLAMA_BF16: [f32; 10] = [
    3.9560518, 3.6167326, 3.38094, 3.2444103, 3.0496824, 2.924265, 2.7318983, 2.6441288, 2.5146189,
    2.354045,
];
