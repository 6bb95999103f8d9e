//! Steps of training whose ops all have fast paths on a processor: those without take a hundred times as long, and nothing else shows it.

use std::sync::Arc;
use std::time::Duration;

use tightrope::backends::Cpu;
use tightrope::nn::{Family, Planned, Precision, UpdateRule};
use tightrope::recipe::Step;
use tightrope::settings::Settings;
use tightrope::timing;

/// Sizes of a model that has every op of its family in little.
const TINY: &str = "model.layers=2 model.channels=32 model.heads=4 model.context=24 model.vocab=67 data.tokenizer=byte \
    train.batch=3 run.device=cpu run.threads=2 model.dropout=0.1";

/// Settings of other steps: micro-batches, storage of less, recomputation, adapters.
const OTHERS: [&str; 12] = [
    "train.batch=4 train.micro_batch=2",
    "train.batch=4 train.micro_batch=2 train.gradient_sums=ordered",
    "memory.optimizer_bits=8",
    "memory.optimizer_bits=16 memory.master=none",
    "memory.gradients=bf16-kahan",
    "memory.attention=eager model.dropout=0",
    "memory.recompute=block memory.loss_chunk=5",
    "memory.consume_gradients=true train.clip=0",
    "lora.rank=2",
    "lora.rank=2 lora.dora=true lora.dropout=0.1",
    "lora.rank=2 lora.base_bits=4",
    "lora.rank=2 lora.base_bits=8",
];

/// Names of slow ops in one step of these settings; `None` where they are refused.
fn slow_ops(words: &str) -> Option<Vec<&'static str>> {
    let mut settings = Settings::default();
    for setting in words.split_whitespace() {
        settings.read_argument(setting).unwrap_or_else(|error| panic!("{setting}: {error}"));
    }
    let step = Step::of(&settings).ok()?;
    let mut cpu = Cpu::new(2).unwrap();
    let plan = Arc::new(Planned::new(&step.config, &cpu).ok()?.plan);
    timing::times(&plan, &*step.config.model, &mut cpu, (Duration::ZERO, 2))
        .unwrap_or_else(|error| panic!("{words}: {error}"));
    Some(cpu.slow_ops())
}

#[test]
fn no_op_of_a_step_runs_by_its_reference() {
    let mut steps = vec![];
    for (index, family) in Family::ALL.iter().enumerate() {
        for (turn, precision) in Precision::ALL.iter().enumerate() {
            let of = |more: &str| {
                format!(
                    "model.family={} run.precision={} {TINY} {more}",
                    family.name(),
                    precision.name()
                )
            };
            for rule in UpdateRule::ALL {
                steps.push(of(&format!("train.optimizer={}", rule.name())));
            }
            // Each of the others with some family in every precision.
            steps.extend(OTHERS.iter().skip((index + turn) % 3).step_by(3).map(|other| of(other)));
        }
    }
    for preset in ["vit-tiny", "bert-tiny"] {
        for precision in Precision::ALL {
            let precision = precision.name();
            steps.push(format!("model.preset={preset} run.precision={precision} train.batch=2"));
        }
    }
    let mut made = 0;
    let mut slow = vec![];
    for words in &steps {
        if let Some(found) = slow_ops(words) {
            made += 1;
            if !found.is_empty() {
                slow.push(format!("{found:?}: {words}"));
            }
        }
    }
    assert!(slow.is_empty(), "{} of {made} steps:\n{}", slow.len(), slow.join("\n"));
    assert!(made * 10 >= steps.len() * 8, "{made} of {} steps were made", steps.len());
}
