//! The failure of a step that doesn't fit: what it takes, and what would fit.

use std::sync::Arc;

use anyhow::anyhow;
use serde_json::json;
use tightrope_core::Backend;
use tightrope_nn::{
    BertConfig, Gradients, LanguageModel, Master, Model, ModelConfig, Planned, Precision,
    StateBits, TableBits, TrainerConfig, VitConfig, bert_presets, presets, vit_presets,
};

use super::fit::{fit, fitting, graph, is_deep, sharded};
use super::scope::Scope;
use crate::error::{Error, Result};
use crate::model::{encoder, language, parameters, vision};
use crate::settings::{Bytes, Recompute};
use crate::units::{exact_bytes, human_bytes};

/// A budget that every plan exceeds, so that the fewest bytes of all are found.
const NONE: u64 = 1;

/// What leaves all to the planner that changes no number.
const OPENING: &str = "--micro-batch auto --recompute auto";

/// A change of the settings.
pub struct Change {
    /// What to write on the command line.
    pub words: String,
    /// What is trained then.
    pub config: TrainerConfig,
}

/// The failure, with the cheapest knob that fits `budget` and what it needs then, and the largest batch, the longest
/// context and the largest preset that fit. `smallest` is what the step takes as asked. Of a deep model, which takes long to plan,
/// that's the preset alone.
///
/// # Errors
/// Settings that no graph can be built from.
pub fn does_not_fit(
    scope: &Scope,
    config: &TrainerConfig,
    budget: u64,
    smallest: u64,
    target: &dyn Backend,
) -> Result<Error> {
    let mut open = scope.clone();
    open.micro_batch = !config.consume_gradients;
    open.recompute = Recompute::Auto;
    // What else has to be left open for the changes to fit.
    let opening = if open == *scope { "" } else { OPENING };
    let deep = is_deep(&graph(config, target)?);
    let cheapest = if deep { None } else { cheapest(&open, config, budget, target)? };
    let cheapest = match cheapest {
        Some((Change { words, config }, planned)) => {
            let (_, least) = fit(&open, &config, NONE, target)?;
            let bytes = least.min(planned.plan.peak_bytes());
            Some((format!("{opening} {words}").trim().to_owned(), bytes))
        }
        None => None,
    };
    // Any stage will do where the planner chooses it. The last mostly takes the fewest bytes, so it's tried first.
    let fits = |config: &TrainerConfig| -> Result<bool> {
        for config in sharded(scope, config).iter().rev() {
            if fitting(&open, config, budget, target)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    };
    let (batch, context) = match deep {
        true => (None, None),
        false => (largest_batch(config, &fits)?, longest_context(config, scope.new_model, &fits)?),
    };
    // Weights that are given decide the model.
    let preset = match scope.new_model {
        false => None,
        true => largest_preset(config, parameters(config), &fits)?,
    };
    let enough = format!("--memory {}", Bytes(smallest).rounded_up());
    let mut help = match &cheapest {
        Some((words, bytes)) => {
            format!("{words} fits, with {}; so does {enough}", human_bytes(*bytes))
        }
        None => format!("{enough} fits"),
    };
    let smaller: Vec<String> = [
        batch.map(|batch| format!("--batch {batch} (the largest)")),
        context.map(|tokens| format!("--context {tokens} (the longest)")),
        preset.map(|name| format!("--preset {name} (the largest of fewer parameters)")),
    ]
    .into_iter()
    .flatten()
    .collect();
    if !smaller.is_empty() {
        let with = if opening.is_empty() { String::new() } else { format!("with {opening}, ") };
        let each = if smaller.len() > 1 { "each of " } else { "" };
        help += &format!("; {with}so does {each}{}", smaller.join(", "));
    }
    if !deep && cheapest.is_none() && batch.is_none() && context.is_none() && preset.is_none() {
        let reads_text = language(config).is_some() || encoder(config).is_some();
        help += match (reads_text, vision(config)) {
            (true, _) => "; no smaller batch, no shorter context and no smaller preset does",
            (false, Some(_)) => "; no smaller batch and no smaller preset does",
            (false, None) => "; no smaller batch does",
        };
    }
    let message = format!(
        "the training step takes {} at least, and {} are available",
        exact_bytes(smallest),
        exact_bytes(budget)
    );
    let knob = cheapest.map(|(words, bytes)| json!({ "words": words, "bytes": bytes }));
    Ok(Error::does_not_fit(anyhow!(message), help).with_details(json!({
        "smallest_bytes": smallest,
        "budget_bytes": budget,
        "cheapest_knob": knob,
        "largest_batch": batch,
        "longest_context": context,
        "largest_preset": preset,
    })))
}

/// The change after which the fastest plan within `budget` takes the least time, with that plan. One that changes no
/// number comes before all others, and one knob before two.
fn cheapest(
    open: &Scope,
    config: &TrainerConfig,
    budget: u64,
    target: &dyn Backend,
) -> Result<Option<(Change, Planned)>> {
    for changes in knobs(config, target) {
        let mut best: Option<(f64, Change, Planned)> = None;
        for change in changes {
            let Some(planned) = fitting(open, &change.config, budget, target)? else { continue };
            let precision = planned.config().precision;
            let rates = open.rates.known(target, precision, open.threads).rates;
            let step_s = planned.estimate(&rates).step_s;
            if best.as_ref().is_none_or(|(best_s, ..)| step_s < *best_s) {
                best = Some((step_s, change, planned));
            }
        }
        if let Some((_, change, planned)) = best {
            return Ok(Some((change, planned)));
        }
    }
    Ok(None)
}

/// Knobs that leave the model and its data as they are: what [`OPENING`] leaves to the planner, alone; what the host may
/// keep for a device; one that changes numbers; two; all of them.
pub fn knobs(config: &TrainerConfig, target: &dyn Backend) -> [Vec<Change>; 5] {
    let fewer = [StateBits::B16, StateBits::B8].into_iter();
    let fewer = fewer.filter(|_| config.optimizer.takes_fewer_bits());
    let fewer = fewer.filter(|&bits| u32::from(bits) < u32::from(config.optimizer_bits));
    // 16 bits are of all state.
    let fewer = fewer.filter(|&bits| config.table_bits == TableBits::B32 || bits == StateBits::B8);
    let with_bits = |bits: StateBits, words: &str, config: &TrainerConfig| Change {
        words: format!("{words} --set memory.optimizer_bits={}", u32::from(bits)).trim().to_owned(),
        config: TrainerConfig { optimizer_bits: bits, ..config.clone() },
    };
    let mut one: Vec<Change> = fewer.clone().map(|bits| with_bits(bits, "", config)).collect();
    let mut two = vec![];
    if config.precision == Precision::F32 {
        let narrow = TrainerConfig { precision: Precision::BF16, ..config.clone() };
        const WORDS: &str = "--precision bf16";
        two.extend(fewer.map(|bits| with_bits(bits, WORDS, &narrow)));
        one.push(Change { words: WORDS.to_owned(), config: narrow });
    }
    if config.gradients == Gradients::F32 {
        let config = TrainerConfig { gradients: Gradients::BF16, ..config.clone() };
        one.push(Change { words: "--gradients bf16".to_owned(), config });
    }
    if config.precision == Precision::BF16 && config.master == Master::F32 {
        let config = TrainerConfig { master: Master::None, ..config.clone() };
        one.push(Change { words: "--master none".to_owned(), config });
    }
    let all = (config.precision != Precision::F16).then(|| narrowest(config));
    let further = match target.kind().can_be_lost() {
        true => config.offload.further(),
        false => vec![],
    };
    let offloaded = further.into_iter().map(|offload| Change {
        words: format!("--offload {}", Vec::from(offload).join(",")),
        config: TrainerConfig { offload, ..config.clone() },
    });
    let as_asked = Change { words: String::new(), config: config.clone() };
    [vec![as_asked], offloaded.collect(), one, two, all.into_iter().collect()]
}

/// Every choice of fewer bits at once.
fn narrowest(config: &TrainerConfig) -> Change {
    let (optimizer_bits, table_bits) = match config.optimizer.takes_fewer_bits() {
        true => (StateBits::B8, TableBits::B8),
        false => (config.optimizer_bits, config.table_bits),
    };
    let narrow = TrainerConfig {
        precision: Precision::BF16,
        gradients: Gradients::BF16,
        master: Master::None,
        optimizer_bits,
        table_bits,
        ..config.clone()
    };
    let words = [
        (config.precision != narrow.precision, "--precision bf16"),
        (config.gradients != narrow.gradients, "--gradients bf16"),
        (config.master != narrow.master, "--master none"),
        (config.optimizer_bits != narrow.optimizer_bits, "--set memory.optimizer_bits=8"),
        (config.table_bits != narrow.table_bits, "--set memory.table_bits=8"),
    ];
    let words: Vec<&str> =
        words.into_iter().filter_map(|(new, word)| new.then_some(word)).collect();
    Change { words: words.join(" "), config: narrow }
}

/// The largest batch below that of `config` that fits.
fn largest_batch(
    config: &TrainerConfig,
    fits: &dyn Fn(&TrainerConfig) -> Result<bool>,
) -> Result<Option<usize>> {
    most_below(config.batch, &|batch| {
        fits(&TrainerConfig { batch, micro_batch: batch, ..config.clone() })
    })
}

/// The largest number below `limit` that fits.
fn most_below(limit: usize, fits: &dyn Fn(usize) -> Result<bool>) -> Result<Option<usize>> {
    // Where weights and their states alone are too large, no other number is tried.
    if limit == 1 || !fits(1)? {
        return Ok(None);
    }
    let (mut below, mut above) = (1, limit);
    while above > below + 1 {
        let middle = usize::midpoint(below, above);
        if fits(middle)? { below = middle } else { above = middle }
    }
    Ok(Some(below))
}

/// The longest context below that of `config` that fits. A `new` model has as many positions; one with weights
/// keeps its own.
fn longest_context(
    config: &TrainerConfig,
    new: bool,
    fits: &dyn Fn(&TrainerConfig) -> Result<bool>,
) -> Result<Option<usize>> {
    if language(config).is_none() && encoder(config).is_none() {
        return Ok(None);
    }
    // Ranks that share sequences have equal parts of them.
    let parts = config.context_ranks.max(1);
    let most = most_below(config.model.seq_len() / parts, &|part| {
        fits(&with_seq_len(config, part * parts, new)?)
    })?;
    Ok(most.map(|part| part * parts))
}

/// The same step on sequences of `seq_len` tokens, where its model reads text. A `new` model has as many positions.
///
/// # Errors
/// A sequence longer than the model's context.
pub fn with_seq_len(config: &TrainerConfig, seq_len: usize, new: bool) -> Result<TrainerConfig> {
    if let Some(mut model) = encoder(config).cloned() {
        if new {
            model.context = seq_len;
        }
        return Ok(TrainerConfig { model: model.build(seq_len)?, ..config.clone() });
    }
    let Some(mut model) = language(config).cloned() else { return Ok(config.clone()) };
    if new {
        model.context = seq_len;
    }
    Ok(TrainerConfig { model: alike(config, &model, seq_len)?, decode: seq_len, ..config.clone() })
}

/// A model of these settings, with samples as those of `config`.
fn alike(config: &TrainerConfig, model: &ModelConfig, seq_len: usize) -> Result<Arc<dyn Model>> {
    Ok(match LanguageModel::of(&*config.model) {
        Some(own) => Arc::new(own.with_settings(model, seq_len)?),
        None => model.build(seq_len)?,
    })
}

/// The preset with the most parameters of those with fewer than `below` that fit.
///
/// # Errors
/// Those of `fits`.
pub fn largest_preset(
    config: &TrainerConfig,
    below: u64,
    fits: &dyn Fn(&TrainerConfig) -> Result<bool>,
) -> Result<Option<&'static str>> {
    let mut smaller: Vec<(u64, &'static str, Arc<dyn Model>)> = vec![];
    if language(config).is_some() {
        let seq_len = config.model.seq_len();
        for preset in presets() {
            let model = preset.config();
            // An address space of 32 bits doesn't hold them all.
            let exists = model.check().is_ok();
            if exists && model.parameters() < below && model.context >= seq_len {
                smaller.push((model.parameters(), preset.name, alike(config, &model, seq_len)?));
            }
        }
    } else if let Some(own) = vision(config) {
        for (name, model) in vit_presets() {
            let reads = (model.image, model.colors) == (own.image, own.colors);
            let labels = own.labels.clone();
            let model = VitConfig { classes: own.classes, labels, ..model };
            if reads && model.parameters() < below {
                smaller.push((model.parameters(), name, model.build()?));
            }
        }
    }
    if let Some(own) = encoder(config) {
        let seq_len = config.model.tokens();
        for (name, model) in bert_presets() {
            let (classes, labels) = (own.classes, own.labels.clone());
            let model = BertConfig { vocab: own.vocab, classes, labels, ..model };
            if model.parameters() < below && model.context >= seq_len {
                smaller.push((model.parameters(), name, model.build(seq_len)?));
            }
        }
    }
    smaller.sort_by_key(|(parameters, ..)| std::cmp::Reverse(*parameters));
    for (_, name, model) in smaller {
        if fits(&TrainerConfig { model, ..config.clone() })? {
            return Ok(Some(name));
        }
    }
    Ok(None)
}
