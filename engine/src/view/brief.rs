//! What is about to be trained, for people.

use std::fmt::Write as _;
use std::time::Duration;

use tightrope_core::Plan;
use tightrope_core::plan::Report;
use tightrope_nn::{FrozenBits, Shard};

use super::summary::copied_text;
use crate::model::{self, Unit};
use crate::rates::Known;
use crate::recipe::Planned;
use crate::units::{exact_bytes, human_bytes, human_count, human_rate, human_time, plural};

/// What is about to be allocated, in a line.
pub fn memory(plan: &Plan) -> String {
    let report = plan.report();
    format!("memory     {} as planned: {}", exact_bytes(report.peak_bytes), by_class(&report))
}

/// Bytes of each class that has any.
fn by_class(report: &Report) -> String {
    let some = report.by_class.iter().filter(|(_, bytes)| **bytes > 0);
    let classes: Vec<String> =
        some.map(|(class, bytes)| format!("{class} {}", human_bytes(*bytes))).collect();
    classes.join(", ")
}

/// What is about to be trained, a line each: model, data, training, memory, device, time.
pub fn brief(planned: &Planned, known: &Known) -> String {
    let checkpoint_copy = planned.checkpoint_copy();
    let Planned { recipe, step: planned, device, .. } = planned;
    let (rate, data) = (&recipe.step.rate, &recipe.data);
    let config = planned.config();
    let report = planned.plan.report();
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        // Writing to a String can't fail.
        let _ = writeln!(text, "{name:<11}{value}");
    };
    line("model", model::described(config));
    let parameters = human_count(model::parameters(config) as f64);
    match &config.lora {
        None if config.frozen.is_empty() => line("parameters", parameters),
        None => {
            let trained = human_count(model::trained(config) as f64);
            line("parameters", format!("{parameters}, {trained} of them trained"));
        }
        Some(lora) => line(
            "parameters",
            format!(
                "{parameters}, frozen{}; {} trained, in adapters of rank {} on {}",
                match lora.base_bits {
                    FrozenBits::Precision => "",
                    FrozenBits::B8 => ", in 8 bits",
                    FrozenBits::B4 => ", in 4 bits",
                },
                human_count(model::trained(config) as f64),
                lora.rank,
                lora.targets.join(", ")
            ),
        ),
    }
    line("data", data.describe());
    let steps = rate.steps;
    let tokens = config.tokens();
    let unit = Unit::of(config);
    let sequences = match unit {
        Unit::TOKEN => {
            let [one, many] = model::sample(config);
            plural(config.batch, one, many) + " "
        }
        _ => String::new(),
    };
    line(
        "training",
        format!(
            "{steps} steps of {tokens} {} ({} in all), {sequences}in {} of {}{}, {} with a peak learning rate of {}",
            unit.many,
            human_count(steps as f64 * tokens as f64),
            plural(config.accumulation(), "micro-batch", "micro-batches"),
            config.micro_batch,
            on_each(config.ranks),
            config.optimizer.name(),
            human_rate(rate.lr),
        ),
    );
    let (peak, classes) = (human_bytes(report.peak_bytes), by_class(&report));
    let each = on_each(config.ranks);
    line("memory", format!("peak {peak} as planned{each}: {classes}"));
    line("device", format!("{}, {:?}", device.name(), config.precision).to_lowercase());
    if device.kind().can_be_lost() {
        line("host", copied_text(planned.snapshot_bytes()));
    }
    if let Some(bytes) = checkpoint_copy {
        let bytes = human_bytes(bytes);
        // Where ranks hold no shards, the first one writes alone.
        let each = if config.shard == Shard::Nothing { "" } else { &each };
        line(
            "checkpoint",
            format!(
                "{bytes} more of the host's memory{each}, to be written while training goes on"
            ),
        );
    }
    let step_s = planned.estimate(&known.rates).step_s;
    let run = human_time(Duration::from_secs_f64(step_s * steps as f64));
    line("estimate", format!("{step_s:.3} s a step, {run} in all ({})", known.origin()));
    text.truncate(text.trim_end().len());
    text
}

/// Where several ranks do the same, that each does.
fn on_each(ranks: usize) -> String {
    if ranks > 1 { format!(" on each of {ranks} ranks") } else { String::new() }
}
