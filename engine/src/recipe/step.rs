//! A training step before it is planned: defaults filled in, contradictions refused.

use std::sync::Arc;

use anyhow::anyhow;
use tightrope_core::Backend;
use tightrope_core::plan::Options;
use tightrope_nn::{
    Architecture, BuildOptions, LearningRate, Model, ModelConfig, Planned, TrainerConfig, Vit,
    defaults,
};

use super::model;
use crate::devices::Spec;
use crate::error::{Error, Result};
use crate::plan::{Scope, planned};
use crate::settings::{self, Chunk, Device, LARGEST, LIST, MicroBatch, Schedule, Settings};
use crate::weights::adapters;

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

impl Step {
    /// The step that the settings describe, of the model that they describe.
    ///
    /// # Errors
    /// An unknown preset, a model directory or images that can't be read, and settings that don't fit each other or the
    /// model.
    pub fn of(settings: &Settings) -> Result<Self> {
        Self::of_model(settings, model::described(settings)?.model)
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
                Self::with_model(settings, model.build(context)?, Some((sizes, context)))
            }
            Architecture::Vit(_) => Self::with_model(settings, model.build(1)?, None),
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

    /// By settings that are filled in. `text` is the sizes of a language model and the length of its sequences.
    fn with_model(
        settings: &Settings,
        model: Arc<dyn Model>,
        text: Option<(&ModelConfig, usize)>,
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

    /// The fastest plan of the step that fits its budget on `device`.
    ///
    /// # Errors
    /// [`Kind::DoesNotFit`](crate::error::Kind) with what would fit, and settings that no graph can be built from.
    pub fn plan(&self, device: &dyn Backend) -> Result<Planned> {
        planned(&self.scope, self.config.clone(), device)
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
    match model {
        Architecture::Language(model) => {
            let context = settings.model.context.unwrap_or(model.context);
            if context > model.context {
                return Err(Error::usage(
                    anyhow!(
                        "`model.context` is {context}, and the model has {} positions",
                        model.context
                    ),
                    format!("give --context {} or less", model.context),
                ));
            }
            settings.model.fill(model);
            settings.model.context = Some(context);
            settings.train.fill(defaults::BATCH, defaults::STEPS, defaults::lr(model));
        }
        Architecture::Vit(model) => {
            settings.model.fill_vit(model);
            settings.train.fill(defaults::IMAGES, defaults::STEPS, defaults::vit_lr(model));
        }
    }
    if let (0, Some(dir)) = (settings.lora.rank, &settings.lora.init) {
        let found =
            adapters::config_of(dir).map_err(|error| Error::usage(error, adapters::KIND))?;
        let own = &mut settings.lora;
        own.rank = found.rank;
        own.alpha.get_or_insert(found.alpha);
        if own.targets == settings::Lora::default().targets {
            own.targets = found.targets;
        }
    }
    filled_adapters(&mut settings, &*model.build(1)?)?;
    settings.check()?;
    Ok(settings)
}

/// The settings of a run of the program's own model, with every count and rate filled in.
///
/// # Errors
/// As [`Step::of_own`].
pub(crate) fn filled_own(settings: &Settings, model: &dyn Model) -> Result<Settings> {
    let keys = LIST.iter().map(|setting| setting.key);
    if let Some(key) =
        keys.filter(|key| key.starts_with("model.")).find(|key| settings.is_said(key))
    {
        let message = format!("`{key}` describes a model, and the program brings its own");
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

/// What the trainer is to do, before the planner's choices, by settings that are filled in. `text` is the sizes of a language
/// model and the length of its sequences.
fn trainer_config(
    settings: &Settings,
    model: Arc<dyn Model>,
    text: Option<(&ModelConfig, usize)>,
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
        (Chunk::Auto, Some((sizes, _))) => defaults::loss_chunk(sizes),
    };
    let config = TrainerConfig {
        precision: settings.run.precision.storage,
        batch,
        micro_batch: match train.micro_batch {
            MicroBatch::Auto => batch,
            MicroBatch::Size(size) => size,
        },
        build: BuildOptions { loss_chunk },
        optimizer,
        optimizer_bits: memory.optimizer_bits,
        weight_decay: train.weight_decay,
        clip: (train.clip > 0.0).then_some(train.clip),
        options: Options {
            checkpoint: memory.recompute.choice().unwrap_or_default(),
            ..Options::default()
        },
        seed: train.seed,
        // As many positions in a decoder's cache as a sequence has.
        decode: text.map_or(0, |(_, context)| context),
        offload: memory.offload,
        consume_gradients: memory.consume_gradients,
        frozen: train.freeze.clone(),
        lora: settings.lora.adapters(),
        watch: vec![],
        // Scores of classes are what an image is classified by.
        logits: text.is_none() && Vit::of(&*model).is_some(),
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
