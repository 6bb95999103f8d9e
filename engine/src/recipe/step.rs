//! A training step before it is planned: defaults filled in, contradictions refused.

use std::sync::Arc;

use anyhow::anyhow;
use tightrope_core::Backend;
use tightrope_core::plan::Options;
use tightrope_nn::{
    Architecture, BuildOptions, LanguageModel, LearningRate, Model, Offload, Planned, Programs,
    Shard, TrainerConfig, defaults,
};

#[cfg(not(target_family = "wasm"))]
use super::layout::Layout;
use super::model;
use crate::devices::Spec;
use crate::error::{Error, Result};
use crate::plan::{Scope, inference, planned};
use crate::settings::{
    Chunk, Device, LARGEST, LIST, MicroBatch, RowFormat, Schedule, Settings, Sharding,
};
use crate::weights::{adapters, teacher};

/// What is trained and how, what a planner may choose of it, and where it runs.
#[derive(Clone, Debug)]
pub struct Step {
    /// What the trainer is to do, before the planner's choices.
    pub config: TrainerConfig,
    /// What a planner may choose.
    pub scope: Scope,
    /// Where it runs.
    pub device: Spec,
    /// The learning rate of every step, and how many there are.
    pub rate: LearningRate,
}

/// What a model that predicts tokens chooses from, and how many positions it continues text over.
#[derive(Clone, Copy)]
struct Predicted {
    vocab: usize,
    /// 0 of an encoder.
    decode: usize,
}

impl Step {
    /// The step that the settings describe, of the model that they describe. Where they name rows that have lengths of their own, its
    /// context is that of a run on these.
    ///
    /// # Errors
    /// An unknown preset, a model directory, images or rows that can't be read, and settings that don't fit each other or the
    /// model.
    pub fn of(settings: &Settings) -> Result<Self> {
        let described = model::described(settings)?;
        #[cfg(target_family = "wasm")]
        return Self::of_model(settings, described.model);
        #[cfg(not(target_family = "wasm"))]
        {
            let Layout { settings, model, shorter } = Layout::of(settings, described)?;
            let mut step = Self::of_model(&settings, model)?;
            step.config.shorter = shorter;
            Ok(step)
        }
    }

    /// The step that the settings describe, of a model that is known already. Its context is the number of
    /// positions that it has, of which a step may use fewer.
    ///
    /// # Errors
    /// Settings that don't fit each other or the model.
    pub fn of_model(settings: &Settings, model: Architecture) -> Result<Self> {
        Self::of_filled(&filled(settings, &model)?, model)
    }

    pub(crate) fn of_filled(settings: &Settings, model: Architecture) -> Result<Self> {
        match &model {
            Architecture::Language(sizes) => {
                let context = settings.model.context.unwrap_or(sizes.context);
                let text = Predicted { vocab: sizes.vocab, decode: context };
                let model = LanguageModel::new(sizes, context)?;
                let model = match settings.data.format {
                    Some(RowFormat::Preference) => model.of_pairs(settings.train.dpo_beta)?,
                    _ if settings.data.packing => model.packed(),
                    _ => model,
                };
                let model = match teacher::described(settings)? {
                    Some((teacher, how)) => model.taught_by(&teacher, how)?,
                    None => model,
                };
                Self::with_model(settings, Arc::new(model), Some(text))
            }
            Architecture::Classifier(sizes) => {
                let context = settings.model.context.unwrap_or(sizes.decoder.context);
                Self::with_model(settings, model.build(context)?, None)
            }
            Architecture::Vit(_) => Self::with_model(settings, model.build(1)?, None),
            Architecture::Bert(sizes) => {
                let context = settings.model.context.unwrap_or(sizes.context);
                let masked = Predicted { vocab: sizes.vocab, decode: 0 };
                let text = sizes.classes.is_none().then_some(masked);
                Self::with_model(settings, model.build(context)?, text)
            }
        }
    }

    /// The step that the settings describe, of the program's own model.
    ///
    /// # Errors
    /// Settings that don't fit each other or the model, and those of the table `[model]`.
    pub fn of_own(settings: &Settings, model: Arc<dyn Model>) -> Result<Self> {
        Self::of_filled_own(&filled_own(settings, &*model)?, model)
    }

    pub(crate) fn of_filled_own(settings: &Settings, model: Arc<dyn Model>) -> Result<Self> {
        Self::with_model(settings, model, None)
    }

    /// By settings that are filled in. `text` is of a model that predicts tokens.
    fn with_model(
        settings: &Settings,
        model: Arc<dyn Model>,
        text: Option<Predicted>,
    ) -> Result<Self> {
        let mut scope = Scope::of(settings);
        // Scores of classes are too few to be made in parts.
        scope.loss_chunk &= text.is_some();
        Ok(Self {
            config: trainer_config(settings, model, text)?,
            scope,
            device: Spec::of(settings),
            rate: settings.train.learning_rate(),
        })
    }

    /// The step's model alone, as it's read: with the loss where `loss`, with what the configuration asks for, and with nothing to
    /// train it. Weights of linear layers are in `weight_bits` where those are given.
    pub fn inference(mut self, loss: bool, weight_bits: Option<u32>) -> Self {
        self.config.programs = Programs::Inference { loss, weight_bits: weight_bits.into() };
        self.config.offload = Offload::NONE;
        self
    }

    /// The fastest plan of the step that fits its budget on `device`.
    ///
    /// # Errors
    /// [`Kind::DoesNotFit`](crate::error::Kind) with what would fit, and settings that no graph can be built from.
    pub fn plan(&self, device: &dyn Backend) -> Result<Planned> {
        match self.config.programs {
            Programs::Training => planned(&self.scope, self.config.clone(), device),
            Programs::Inference { .. } => inference(&self.scope, &self.config, device),
        }
    }
}

/// The settings of a run of `model`, with every size, step count and rate filled in. Filling in twice
/// changes nothing.
///
/// # Errors
/// Settings that don't fit each other or the model.
pub(crate) fn filled(settings: &Settings, model: &Architecture) -> Result<Settings> {
    model::check_keys(settings, model)?;
    let mut settings = settings.clone();
    if let (0, Some(dir)) = (settings.lora.rank, &settings.lora.init) {
        let found =
            adapters::config_of(dir).map_err(|error| Error::usage(error, adapters::KIND))?;
        let dropout = found.dropout;
        settings.lora.take_on(found);
        if !settings.is_said("lora.dropout") {
            settings.lora.dropout = dropout;
        }
    }
    match model {
        Architecture::Language(model) => {
            let context = context_within(&settings, model.context)?;
            settings.model.fill(model);
            settings.model.context = Some(context);
        }
        Architecture::Classifier(model) => {
            let context = context_within(&settings, model.decoder.context)?;
            settings.model.fill_classifier(model);
            settings.model.context = Some(context);
        }
        Architecture::Vit(model) => settings.model.fill_vit(model),
        Architecture::Bert(model) => {
            let context = context_within(&settings, model.context)?;
            settings.model.fill_bert(model);
            settings.model.context = Some(context);
        }
    }
    let batch = match model {
        Architecture::Language(_) => defaults::BATCH,
        Architecture::Classifier(_) | Architecture::Bert(_) => defaults::TEXTS,
        Architecture::Vit(_) => defaults::IMAGES,
    };
    let lr = peak_rate(&settings, model);
    settings.train.fill(batch, defaults::STEPS, lr);
    train_head_of_classes(&mut settings, model);
    filled_adapters(&mut settings, &*model.build(1)?)?;
    settings.check()?;
    Ok(settings)
}

/// A note on entries of adapters' settings that are of no layer, as PEFT warns of them.
///
/// # Errors
/// A pattern that is no regular expression.
pub(super) fn note_on_adapters(config: &TrainerConfig) -> Result<Option<String>> {
    let Some(lora) = &config.lora else { return Ok(None) };
    let found = lora.unmatched(&config.model.parameters())?;
    let shown: Vec<String> =
        found.iter().map(|(key, entry)| format!("`{entry}` of `{key}`")).collect();
    Ok((!found.is_empty()).then(|| format!("no layer with an adapter has {}", shown.join(", "))))
}

/// Peak learning rate of a run that names none: by width from random weights, else that of fine-tuning.
pub(super) fn peak_rate(settings: &Settings, model: &Architecture) -> f64 {
    if settings.model.init.is_none() {
        return match model {
            Architecture::Language(model) => defaults::lr(model),
            Architecture::Classifier(model) => defaults::lr(&model.decoder),
            Architecture::Vit(model) => defaults::vit_lr(model),
            Architecture::Bert(model) => defaults::bert_lr(model),
        };
    }
    let whole = match model {
        Architecture::Vit(_) | Architecture::Bert(_) => defaults::TUNED_ENCODER_LR,
        _ if settings.data.format == Some(RowFormat::Preference) => defaults::DPO_LR,
        Architecture::Language(_) | Architecture::Classifier(_) => defaults::TUNED_LR,
    };
    if settings.lora.rank > 0 { whole * defaults::ADAPTER_LR_FACTOR } else { whole }
}

/// Has the head of classes trained whole beside adapters, as PEFT does for the task type SEQ_CLS. Adapters to start from say themselves what is
/// trained whole, and so does an empty list on the command line or in the settings of a run.
fn train_head_of_classes(settings: &mut Settings, model: &Architecture) {
    const HEADS: [&str; 2] = ["classifier", "score"];
    let classifies = match model {
        Architecture::Classifier(_) => true,
        Architecture::Bert(model) => model.classes.is_some(),
        Architecture::Language(_) | Architecture::Vit(_) => false,
    };
    let is_said = settings.is_said("lora.modules_to_save");
    let lora = &mut settings.lora;
    let saved = &mut lora.modules_to_save;
    let says_none = is_said && saved.is_empty();
    if classifies && lora.rank > 0 && lora.init.is_none() && !says_none {
        for head in HEADS {
            if !saved.iter().any(|known| known == head) {
                saved.push(head.to_owned());
            }
        }
    }
}

/// The length of sequences, which a model has `positions` for.
fn context_within(settings: &Settings, positions: usize) -> Result<usize> {
    let context = settings.model.context.unwrap_or(positions);
    if context > positions {
        return Err(Error::usage(
            anyhow!("`model.context` is {context}, and the model has {positions} positions"),
            format!("give --context {positions} or less"),
        ));
    }
    Ok(context)
}

/// The settings of a run of the program's own model, with every count and rate filled in.
///
/// # Errors
/// As [`Step::of_own`].
pub(crate) fn filled_own(settings: &Settings, model: &dyn Model) -> Result<Settings> {
    for setting in LIST {
        let key = setting.key;
        let message = match setting.table() {
            "model" if settings.is_changed(key) => {
                format!("`{key}` describes a model, and the program brings its own")
            }
            "data" if settings.is_changed(key) => {
                format!("`{key}` is of data, and the program brings its own batches")
            }
            _ if key == "train.epochs" && settings.is_changed(key) => {
                format!(
                    "`{key}` counts passes over data, and the program hands over its own batches"
                )
            }
            _ if setting.reads.is_some() && settings.is_changed(key) => {
                format!("`{key}` is of the models of this library, and the program brings its own")
            }
            _ => continue,
        };
        return Err(settings.error(&[key], message, &format!("leave `{key}` out")).into());
    }
    let mut settings = settings.clone();
    if settings.train.steps.is_none() {
        // As many as it's given batches for: the rate has no end to fall to, nor a part of the steps to rise in.
        settings.train.steps = Some(LARGEST as u64);
        settings.train.warmup.get_or_insert(0);
        if !settings.is_said("train.schedule") {
            settings.train.schedule = Schedule::Constant;
        }
    }
    settings.train.fill(defaults::IMAGES, defaults::STEPS, defaults::OWN_LR);
    filled_adapters(&mut settings, model)?;
    settings.check()?;
    Ok(settings)
}

/// Fills in what is said of adapters, which must fit the model.
fn filled_adapters(settings: &mut Settings, model: &dyn Model) -> Result<()> {
    if let Some((key, entry)) = settings.lora.malformed() {
        let message = format!("`{key}` has `{entry}`, which isn't what it takes");
        let help = "patterns are as v_proj=2, and layers are numbers";
        return Err(settings.error(&[key], message, help).into());
    }
    if let Some(lora) = settings.lora.adapters() {
        lora.check(&model.parameters())?;
        settings.lora.alpha = Some(lora.alpha);
    }
    Ok(())
}

/// The settings of a new run with every size, step count and rate filled in.
///
/// # Errors
/// As [`Step::of`].
pub fn complete(settings: &Settings) -> Result<Settings> {
    filled(settings, &model::described(settings)?.model)
}

/// What the trainer is to do, before the planner's choices, by settings that are filled in. `text` is of a model that predicts
/// tokens.
fn trainer_config(
    settings: &Settings,
    model: Arc<dyn Model>,
    text: Option<Predicted>,
) -> Result<TrainerConfig> {
    let Settings { train, memory, .. } = settings;
    let optimizer = train.rule();
    optimizer.check()?;
    train.learning_rate().check()?;
    let batch = train.batch.unwrap_or(defaults::BATCH);
    let loss_chunk = match (memory.loss_chunk, text) {
        (Chunk::None, _) | (_, None) => 0,
        (Chunk::Rows(rows), _) => rows,
        (Chunk::Auto, _) if matches!(settings.run.device, Device::Cuda(_)) => {
            defaults::CUDA_LOSS_ROWS
        }
        (Chunk::Auto, Some(text)) => defaults::loss_rows(text.vocab),
    };
    let config = TrainerConfig {
        precision: settings.run.precision.storage,
        batch,
        micro_batch: match train.micro_batch {
            MicroBatch::Auto => (batch / settings.contexts()).max(1),
            MicroBatch::Size(size) => size,
        },
        ranks: settings.run.ranks,
        context_ranks: settings.run.context_ranks,
        shard: match memory.shard {
            Sharding::Auto => Shard::Nothing,
            Sharding::Of(shard) => shard,
        },
        build: BuildOptions { loss_chunk, attention: memory.attention },
        optimizer,
        gradients: memory.gradients,
        gradient_sums: train.gradient_sums,
        master: memory.master,
        optimizer_bits: memory.optimizer_bits,
        table_bits: memory.table_bits,
        weight_decay: train.weight_decay,
        clip: (train.clip > 0.0).then_some(train.clip),
        neftune: train.neftune,
        options: Options {
            checkpoint: memory.recompute.choice().unwrap_or_default(),
            ..Options::default()
        },
        seed: train.seed,
        // As many positions in a decoder's cache as a sequence has.
        decode: text.map_or(0, |text| text.decode),
        offload: memory.offload,
        consume_gradients: memory.consume_gradients,
        frozen: train.freeze.clone(),
        lora: settings.lora.adapters(),
        watch: vec![],
        // Scores of classes are what an image or a text is classified by.
        logits: text.is_none()
            && !matches!(Architecture::of(&*model), None | Some(Architecture::Language(_))),
        // Of the reference.
        losses: LanguageModel::of(&*model).is_some_and(LanguageModel::is_of_pairs),
        programs: Programs::Training,
        // The data says which are worthwhile.
        shorter: vec![],
        model,
    };
    // A pattern that no parameter matches is refused here, before anything is planned.
    config.parameters()?;
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frozen_parameters_are_named_by_patterns() {
        let mut settings = Settings::default();
        settings.model.preset = Some("vit-tiny".to_owned());
        settings.read_argument("train.freeze=[\"patches.*\", \"h.0.*\"]").unwrap();
        let step = Step::of(&settings).unwrap();
        let frozen = step.config.parameters().unwrap().iter().filter(|it| it.frozen).count();
        // Weight and bias of the patches; of a block two norms, attention and MLP of two linear layers each.
        assert_eq!(frozen, 2 + 12);
        assert_eq!((step.config.batch, step.config.decode), (defaults::IMAGES, 0));
        assert!(!step.scope.loss_chunk);
        settings.train.freeze = vec!["patch.*".to_owned()];
        let error = Step::of(&settings).err().unwrap();
        assert_eq!(error.kind(), crate::error::Kind::Usage);
        assert!(
            error.message().contains("`train.freeze`: no parameter is called `patch.*`"),
            "{}",
            error.message()
        );
    }

    #[test]
    fn a_gpu_takes_more_rows_of_logits_at_once() {
        let mut settings = Settings::default();
        settings.model.preset = Some("gpt2".to_owned());
        let rows = |settings: &Settings| Step::of(settings).unwrap().config.build.loss_chunk;
        let of_cpu = rows(&settings);
        settings.run.device = Device::Cuda(0);
        assert!(rows(&settings) > of_cpu);
        settings.memory.loss_chunk = Chunk::Rows(256);
        assert_eq!(rows(&settings), 256);
    }
}
