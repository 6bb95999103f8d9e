//! The failure of a step that doesn't fit: what it takes, and what would fit.

use anyhow::anyhow;
use serde_json::json;
use tightrope_core::Backend;
use tightrope_nn::{Precision, StateBits, TrainerConfig, presets};

use super::{exact_bytes, fit};
use crate::error::Failure;
use crate::progress::human_bytes;
use crate::settings::{Bytes, Checkpoint, MicroBatch, Settings};

/// A budget that every plan exceeds, so that the fewest bytes of all are found.
const NONE: u64 = 1;

/// What leaves all to the planner that changes no number.
const OPENING: &str = "--micro-batch auto --checkpoint auto";

/// A change of the settings.
struct Change {
    words: String,
    config: TrainerConfig,
}

/// The failure, with the first knob that fits `budget` and what it needs then, and the longest context and the
/// largest preset that fit. `smallest` is what the step takes as asked.
///
/// # Errors
/// Settings that no graph can be built from.
pub fn does_not_fit(
    settings: &Settings,
    config: &TrainerConfig,
    budget: u64,
    smallest: u64,
    target: &dyn Backend,
) -> Result<Failure, Failure> {
    let mut open = settings.clone();
    open.train.micro_batch = MicroBatch::Auto;
    open.memory.checkpoint = Checkpoint::Auto;
    // What else has to be left open for the changes to fit.
    let opening = if open == *settings { "" } else { OPENING };
    let mut cheapest = None;
    for Change { words, config } in knobs(config) {
        if let (Some(planned), _) = fit(&open, &config, budget, target)? {
            let (_, least) = fit(&open, &config, NONE, target)?;
            let bytes = least.min(planned.plan.peak_bytes());
            cheapest = Some((format!("{opening} {words}").trim().to_owned(), bytes));
            break;
        }
    }
    let fits = |config: &TrainerConfig| -> Result<bool, Failure> {
        Ok(fit(&open, config, budget, target)?.0.is_some())
    };
    let context = longest_context(config, settings.model.init.is_none(), &fits)?;
    // Weights that are given decide the model.
    let preset = match settings.model.init {
        Some(_) => None,
        None => largest_preset(config, config.model.parameters(), &fits)?,
    };
    let enough = format!("--memory {}", Bytes(smallest));
    let mut help = match &cheapest {
        Some((words, bytes)) => {
            format!("{words} fits, with {}; so does {enough}", human_bytes(*bytes))
        }
        None => format!("{enough} fits"),
    };
    if let Some(tokens) = context {
        let words = format!("{opening} --context {tokens}");
        help += &format!("; so does {}, the longest", words.trim_start());
    }
    if let Some(name) = preset {
        let words = format!("{opening} --preset {name}");
        help += &format!("; so does {}, the largest of fewer parameters", words.trim_start());
    }
    if cheapest.is_none() && context.is_none() && preset.is_none() {
        help += "; no shorter context and no smaller preset does";
    }
    let message = format!(
        "the training step takes {} at least, and {} are available",
        exact_bytes(smallest),
        exact_bytes(budget)
    );
    let knob = cheapest.map(|(words, bytes)| json!({ "words": words, "bytes": bytes }));
    Ok(Failure::does_not_fit(anyhow!(message), help).with_details(json!({
        "smallest_bytes": smallest,
        "budget_bytes": budget,
        "cheapest_knob": knob,
        "longest_context": context,
        "largest_preset": preset,
    })))
}

/// Knobs that leave the model and its data as they are, those that change numbers least first: the first is what
/// [`OPENING`] leaves to the planner, alone.
fn knobs(config: &TrainerConfig) -> Vec<Change> {
    let mut changes = vec![Change { words: String::new(), config: config.clone() }];
    for bits in [StateBits::B16, StateBits::B8] {
        if u32::from(bits) < u32::from(config.optimizer_bits) {
            changes.push(Change {
                words: format!("--set memory.optimizer_bits={}", u32::from(bits)),
                config: TrainerConfig { optimizer_bits: bits, ..config.clone() },
            });
        }
    }
    if config.precision == Precision::F32 {
        changes.push(Change {
            words: "--precision bf16".to_owned(),
            config: TrainerConfig { precision: Precision::BF16, ..config.clone() },
        });
    }
    changes
}

/// The longest context below that of `config` that fits. A `new` model has as many positions; one with weights
/// keeps its own.
fn longest_context(
    config: &TrainerConfig,
    new: bool,
    fits: &dyn Fn(&TrainerConfig) -> Result<bool, Failure>,
) -> Result<Option<usize>, Failure> {
    let fits_at = |time: usize| {
        let mut shorter = TrainerConfig { time, decode: time, ..config.clone() };
        if new {
            shorter.model.context = time;
        }
        fits(&shorter)
    };
    // Where weights and their states alone are too large, no length is tried but one.
    if config.time == 1 || !fits_at(1)? {
        return Ok(None);
    }
    let (mut below, mut above) = (1, config.time);
    while above > below + 1 {
        let time = usize::midpoint(below, above);
        if fits_at(time)? { below = time } else { above = time }
    }
    Ok(Some(below))
}

/// The preset with the most parameters of those with fewer than `below` that fit.
///
/// # Errors
/// Those of `fits`.
pub fn largest_preset(
    config: &TrainerConfig,
    below: u64,
    fits: &dyn Fn(&TrainerConfig) -> Result<bool, Failure>,
) -> Result<Option<&'static str>, Failure> {
    let mut smaller: Vec<_> = presets()
        .iter()
        .map(|preset| (preset.name, preset.config()))
        .filter(|(_, model)| model.parameters() < below && model.context >= config.time)
        .collect();
    smaller.sort_by_key(|(_, model)| std::cmp::Reverse(model.parameters()));
    for (name, model) in smaller {
        if fits(&TrainerConfig { model, ..config.clone() })? {
            return Ok(Some(name));
        }
    }
    Ok(None)
}
