//! The failure of a step that doesn't fit: what it takes, and what would fit.

use std::sync::Arc;

use anyhow::anyhow;
use serde_json::json;
use tightrope_core::Backend;
use tightrope_nn::{
    BertConfig, ClassifierConfig, Gradients, LanguageModel, Master, Model, ModelConfig, Planned,
    Precision, StateBits, TableBits, TrainerConfig, VitConfig, bert_presets, presets, vit_presets,
};

use super::fit::{is_deep, sharded};
use super::scope::Scope;
use super::trial::Trial;
use crate::error::Error;
use crate::machine::limit_below_machine;
use crate::model::{classifier, encoder, language, parameters, reads_text, vision};
use crate::settings::{Bytes, Recompute};
use crate::units::{exact_bytes, human_bytes};

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
pub fn does_not_fit(
    scope: &Scope,
    config: &TrainerConfig,
    budget: u64,
    smallest: u64,
    device: &dyn Backend,
) -> Error {
    let mut open = scope.clone();
    open.micro_batch = !config.consume_gradients;
    open.recompute = Recompute::Auto;
    // What else has to be left open for the changes to fit.
    let opening = if open == *scope { "" } else { OPENING };
    let trial = Trial { scope: &open, device };
    let whole = TrainerConfig { shorter: vec![], ..config.clone() };
    let asked = trial.as_is(&whole);
    let deep = asked.as_ref().is_some_and(|planned| is_deep(&planned.plan.graph));
    let cheapest = if deep { None } else { cheapest(trial, config, budget) };
    let cheapest = cheapest.map(|(Change { words, config }, planned)| {
        let bytes = planned.plan.peak_bytes();
        let bytes = trial.fewest_bytes(&config).map_or(bytes, |least| least.min(bytes));
        (format!("{opening} {words}").trim().to_owned(), bytes)
    });
    // Any stage will do where the planner chooses it. The last mostly takes the fewest bytes, so it's tried first.
    let fits = |config: &TrainerConfig| {
        let stages = sharded(scope, config);
        stages.iter().rev().any(|config| trial.fitting(config, budget).is_some())
    };
    let (batch, context) = match deep {
        true => (None, None),
        false => (largest_batch(config, &fits), longest_context(config, scope.new_model, &fits)),
    };
    // Weights that are given decide the model.
    let preset = match scope.new_model {
        false => None,
        true => largest_preset(scope, config, parameters(config), &fits),
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
        preset.map(|name| {
            let words = scope.preset_words(name, config);
            format!("{words} (the largest of fewer parameters)")
        }),
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
        help += match (reads_text(config), vision(config)) {
            (true, _) => "; no smaller batch, no shorter context and no smaller preset does",
            (false, Some(_)) => "; no smaller batch and no smaller preset does",
            (false, None) => "; no smaller batch does",
        };
    }
    let uncut = asked.as_ref().and_then(Planned::mixed).map_or(String::new(), |mixed| {
        format!(": {mixed}, so that it isn't cut into micro-batches")
    });
    let is_hosts = scope.budget.is_none() && device.free_bytes().is_none();
    let limit = is_hosts.then(limit_below_machine).flatten();
    let limit = limit.map_or(String::new(), |limit| format!(" ({limit})"));
    let message = format!(
        "the training step takes {} at least, and {} are available{limit}{uncut}",
        exact_bytes(smallest),
        exact_bytes(budget)
    );
    let knob = cheapest.map(|(words, bytes)| json!({ "words": words, "bytes": bytes }));
    Error::does_not_fit(anyhow!(message), help).with_details(json!({
        "smallest_bytes": smallest,
        "budget_bytes": budget,
        "cheapest_knob": knob,
        "largest_batch": batch,
        "longest_context": context,
        "largest_preset": preset,
    }))
}

/// The change after which the fastest plan within `budget` takes the least time, with that plan. One that changes no
/// number comes before all others, and one knob before two.
fn cheapest(trial: Trial<'_>, config: &TrainerConfig, budget: u64) -> Option<(Change, Planned)> {
    let Trial { scope, device } = trial;
    for changes in knobs(config, device) {
        let mut best: Option<(f64, Change, Planned)> = None;
        for change in changes {
            let Some(planned) = trial.fitting(&change.config, budget) else { continue };
            let precision = planned.config().precision;
            let rates = scope.rates.known(device, precision, scope.threads).rates;
            let step_s = planned.estimate(&rates).step_s;
            if best.as_ref().is_none_or(|(best_s, ..)| step_s < *best_s) {
                best = Some((step_s, change, planned));
            }
        }
        if let Some((_, change, planned)) = best {
            return Some((change, planned));
        }
    }
    None
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

/// The largest batch below that of `config` that fits: one that its ranks share evenly.
fn largest_batch(config: &TrainerConfig, fits: &dyn Fn(&TrainerConfig) -> bool) -> Option<usize> {
    let shares = (config.ranks / config.context_ranks.max(1)).max(1);
    let own = most_below(config.batch / shares, &|own| {
        fits(&TrainerConfig { batch: own * shares, micro_batch: own, ..config.clone() })
    })?;
    Some(own * shares)
}

/// The largest number below `limit` that fits.
fn most_below(limit: usize, fits: &dyn Fn(usize) -> bool) -> Option<usize> {
    // Where weights and their states alone are too large, no other number is tried.
    if limit <= 1 || !fits(1) {
        return None;
    }
    let (mut below, mut above) = (1, limit);
    while above > below + 1 {
        let middle = usize::midpoint(below, above);
        if fits(middle) { below = middle } else { above = middle }
    }
    Some(below)
}

/// The longest context below that of `config` that fits. A `new` model has as many positions; one with weights
/// keeps its own.
fn longest_context(
    config: &TrainerConfig,
    new: bool,
    fits: &dyn Fn(&TrainerConfig) -> bool,
) -> Option<usize> {
    if !reads_text(config) {
        return None;
    }
    // Ranks that share sequences have equal parts of them.
    let parts = config.context_ranks.max(1);
    let most = most_below(config.model.seq_len() / parts, &|part| {
        with_seq_len(config, part * parts, new).is_some_and(|config| fits(&config))
    })?;
    Some(most * parts)
}

/// The same step on sequences of `seq_len` tokens, where its model reads text. A `new` model has as many positions. `None` if the
/// model can't have such sequences.
pub fn with_seq_len(config: &TrainerConfig, seq_len: usize, new: bool) -> Option<TrainerConfig> {
    if let Some(mut model) = encoder(config).cloned() {
        if new {
            model.context = seq_len;
        }
        return Some(TrainerConfig { model: model.build(seq_len).ok()?, ..config.clone() });
    }
    if let Some(mut model) = classifier(config).cloned() {
        if new {
            model.decoder.context = seq_len;
        }
        return Some(TrainerConfig { model: model.build(seq_len).ok()?, ..config.clone() });
    }
    let Some(mut model) = language(config).cloned() else { return Some(config.clone()) };
    if new {
        model.context = seq_len;
    }
    Some(TrainerConfig {
        model: alike(config, &model, seq_len)?,
        decode: seq_len,
        ..config.clone()
    })
}

/// A model of these settings, with samples as those of `config`. `None` if it can't have such samples.
fn alike(config: &TrainerConfig, model: &ModelConfig, seq_len: usize) -> Option<Arc<dyn Model>> {
    Some(match LanguageModel::of(&*config.model) {
        Some(own) => Arc::new(own.with_settings(model, seq_len).ok()?),
        None => model.build(seq_len).ok()?,
    })
}

/// The preset with the most parameters of those with fewer than `below` that fit.
pub fn largest_preset(
    scope: &Scope,
    config: &TrainerConfig,
    below: u64,
    fits: &dyn Fn(&TrainerConfig) -> bool,
) -> Option<&'static str> {
    let mut smaller: Vec<(u64, &'static str, Arc<dyn Model>)> = vec![];
    let classes = classifier(config);
    if let Some(own) = language(config).or(classes.map(|model| &model.decoder)) {
        let seq_len = config.model.seq_len();
        for preset in presets() {
            let of_preset = preset.config();
            let vocab = if scope.is_own_vocab() { own.vocab } else { of_preset.vocab };
            let model = ModelConfig { vocab, ..of_preset };
            // An address space of 32 bits doesn't hold them all.
            let exists = model.check().is_ok();
            if exists && model.parameters() < below && model.context >= seq_len {
                let parameters = model.parameters();
                let alike = match classes {
                    None => alike(config, &model, seq_len),
                    Some(own) => {
                        ClassifierConfig { decoder: model, ..own.clone() }.build(seq_len).ok()
                    }
                };
                smaller.extend(alike.map(|alike| (parameters, preset.name, alike)));
            }
        }
    } else if let Some(own) = vision(config) {
        for (name, model) in vit_presets() {
            let reads = (model.image, model.colors) == (own.image, own.colors);
            let labels = own.labels.clone();
            let model = VitConfig { classes: own.classes, labels, ..model };
            if reads && model.parameters() < below {
                let built = model.build().ok();
                smaller.extend(built.map(|built| (model.parameters(), name, built)));
            }
        }
    }
    if let Some(own) = encoder(config) {
        let seq_len = config.model.tokens();
        for (name, model) in bert_presets() {
            let (classes, labels) = (own.classes, own.labels.clone());
            let vocab = if scope.is_own_vocab() { own.vocab } else { model.vocab };
            let model = BertConfig { vocab, classes, labels, ..model };
            if model.parameters() < below && model.context >= seq_len {
                let built = model.build(seq_len).ok();
                smaller.extend(built.map(|built| (model.parameters(), name, built)));
            }
        }
    }
    smaller.sort_by_key(|(parameters, ..)| std::cmp::Reverse(*parameters));
    let fits = |model: Arc<dyn Model>| fits(&TrainerConfig { model, ..config.clone() });
    smaller.into_iter().find_map(|(_, name, model)| fits(model).then_some(name))
}
