//! The page's setup: settings as an object of tables, with what to train on. What is missing or null takes the command
//! line's default.

use serde_json::Value;
use tightrope::settings::{Chunk, LIST, MicroBatch, Origin, Precision, Settings};
use tightrope_core::graph::nearest;
use tightrope_core::plan::Options;
use tightrope_data::{Checkpoint, Corpus, Tokenizer, Toy};
use tightrope_nn::{
    BuildOptions, Family, ModelConfig, ModelFamily, TrainerConfig, defaults, preset,
};

use crate::error::{Error, Result};

/// Where the tokens come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The project's own text.
    BuiltIn,
    /// A text that the page gives.
    Text,
    /// Problems with known answers.
    Toy(Toy),
}

impl Kind {
    /// As in a setup.
    pub fn name(self) -> &'static str {
        match self {
            Self::BuiltIn => "built-in",
            Self::Text => "text",
            Self::Toy(toy) => toy.name(),
        }
    }

    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::BuiltIn,
        Self::Text,
        Self::Toy(Toy::Sort),
        Self::Toy(Toy::Reverse),
        Self::Toy(Toy::Add),
    ];

    fn of_name(name: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|kind| kind.name() == name);
        found.ok_or_else(|| {
            let known = Self::ALL.map(Self::name);
            let near = nearest(name, known.into_iter());
            let near = near.map_or(String::new(), |near| format!("; did you mean `{near}`?"));
            Error::Setup(format!(
                "`data.kind` must be one of {}, not \"{name}\"{near}",
                known.join(", ")
            ))
        })
    }
}

/// Everything that decides what a run computes and what it may take.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    /// The model; its context is the length of sequences.
    pub model: ModelConfig,
    /// The settings, the model's sizes, step count and rates filled in.
    pub settings: Settings,
    /// What to train on.
    pub kind: Kind,
}

impl Setup {
    /// Reads a setup.
    ///
    /// # Errors
    /// Unknown keys, with the nearest known one, and values that can't be or don't hold together.
    pub fn from_json(text: &str) -> Result<Self> {
        let mut json: Value = serde_json::from_str(text)
            .map_err(|error| Error::Setup(format!("the setup isn't JSON: {error}")))?;
        let kind = json.get_mut("data").and_then(Value::as_object_mut);
        let kind = kind.and_then(|data| data.remove("kind")).filter(|kind| !kind.is_null());
        let kind = match &kind {
            Some(Value::String(name)) => Kind::of_name(name)?,
            Some(other) => return Err(Error::Setup(format!("`data.kind` is a word, not {other}"))),
            None => Kind::BuiltIn,
        };
        let mut settings = Settings::default();
        settings.read_json(&json, &Origin::Caller)?;
        let foreign = LIST.iter().filter(|setting| setting.page.is_none());
        for setting in foreign {
            if *settings.origin(setting.key) != Origin::Default {
                return Err(Error::Setup(format!(
                    "`{}` is a setting that the page lacks",
                    setting.key
                )));
            }
        }
        let base = match settings.model.family {
            Some(ModelFamily::Language(Family::Llama)) => preset(defaults::LLAMA)?,
            _ => defaults::MODEL,
        };
        let setup = Self { kind, ..Self::filled(settings.model.sizes().over(&base), settings) };
        setup.check()?;
        Ok(setup)
    }

    /// The defaults for a model.
    pub fn of_model(model: ModelConfig) -> Self {
        Self::filled(model, Settings::default())
    }

    /// The same of another model.
    #[must_use]
    pub fn with_model(&self, model: ModelConfig) -> Self {
        let mut settings = self.settings.clone();
        settings.model.fill(&model);
        Self { model, settings, kind: self.kind }
    }

    fn filled(model: ModelConfig, mut settings: Settings) -> Self {
        settings.model.fill(&model);
        settings.train.fill(defaults::BATCH, defaults::STEPS, defaults::lr(&model));
        Self { model, settings, kind: Kind::BuiltIn }
    }

    fn check(&self) -> Result<()> {
        self.settings.check()?;
        self.model.check()?;
        self.settings.train.learning_rate().check()?;
        Ok(self.settings.train.rule().check()?)
    }

    /// Sequences of a step.
    pub fn batch(&self) -> usize {
        self.settings.train.batch.unwrap_or(defaults::BATCH)
    }

    /// Sequences of one pass; `None` leaves them to the planner.
    pub fn micro_batch(&self) -> Option<usize> {
        match self.settings.train.micro_batch {
            MicroBatch::Auto => None,
            MicroBatch::Size(size) => Some(size),
        }
    }

    /// Bytes that the plan may take; `None` for what the device has.
    pub fn budget(&self) -> Option<u64> {
        self.settings.memory.budget.map(|bytes| bytes.0)
    }

    /// What the trainer is to do, before the planner's choices.
    ///
    /// # Errors
    /// A model that [`ModelConfig::check`] refuses.
    pub fn trainer(&self) -> Result<TrainerConfig> {
        let Settings { train, memory, run, .. } = &self.settings;
        let loss_chunk = match memory.loss_chunk {
            Chunk::Auto => defaults::loss_chunk(&self.model),
            Chunk::None => 0,
            Chunk::Rows(rows) => rows,
        };
        let batch = self.batch();
        Ok(TrainerConfig {
            precision: run.precision.storage,
            batch,
            micro_batch: self.micro_batch().unwrap_or(batch),
            build: BuildOptions { loss_chunk },
            optimizer: train.rule(),
            optimizer_bits: memory.optimizer_bits,
            weight_decay: train.weight_decay,
            clip: (train.clip > 0.0).then_some(train.clip),
            options: Options {
                checkpoint: memory.recompute.choice().unwrap_or_default(),
                ..Options::default()
            },
            seed: train.seed,
            decode: self.model.context,
            ..TrainerConfig::new(self.model.build(self.model.context)?)
        })
    }

    /// The setup as an object, every key filled in.
    ///
    /// # Errors
    /// A number that JSON can't hold.
    pub fn to_json(&self) -> Result<Value> {
        let mut json = self.settings.to_json(|setting| setting.page.is_some())?;
        json["memory"]["budget"] = self.budget().into();
        json["data"]["kind"] = self.kind.name().into();
        Ok(json)
    }

    /// The settings as the command line writes them into a checkpoint.
    ///
    /// # Errors
    /// As [`Setup::to_json`].
    pub fn to_settings(&self) -> Result<Value> {
        Ok(self.settings.to_json(|setting| !setting.passing)?)
    }

    /// The setup that continues a checkpoint, whoever wrote it.
    ///
    /// # Errors
    /// A checkpoint of adapters, and one of a model that was trained on shorter sequences than it has positions.
    pub fn of_checkpoint(checkpoint: &Checkpoint) -> Result<Self> {
        let manifest = &checkpoint.manifest;
        if manifest.base.is_some() {
            return Err(Error::Setup(
                "the checkpoint holds adapters, which the page doesn't train; continue it with \
                 `tightrope train --resume`"
                    .to_owned(),
            ));
        }
        let kind = match manifest.data.toy() {
            Some(toy) => Kind::Toy(toy),
            None => match manifest.data.files.as_slice() {
                files if files == Corpus::built_in(&Tokenizer::Byte)?.sources() => Kind::BuiltIn,
                [_] => Kind::Text,
                _ => Kind::BuiltIn,
            },
        };
        let mut whole = Settings::default();
        whole.read_json(
            &manifest.settings,
            &Origin::Checkpoint(checkpoint.path.display().to_string()),
        )?;
        // The budget is that of another device, and so is how its f32 is multiplied.
        whole.memory.budget = None;
        whole.run.precision = Precision::of(whole.run.precision.storage);
        let mut shown = whole.to_json(|setting| setting.page.is_some())?;
        shown["data"]["kind"] = kind.name().into();
        let setup = Self::from_json(&shown.to_string())?;
        let model: ModelConfig =
            serde_json::from_value(manifest.model.clone()).map_err(|error| {
                Error::Setup(format!("the checkpoint's model can't be read: {error}"))
            })?;
        model.check()?;
        let context = setup.model.context;
        if context != model.context {
            return Err(Error::Setup(format!(
                "the checkpoint's model has {} positions and was trained on {context}; the page trains on all \
                 of them",
                model.context
            )));
        }
        Ok(Self { model, ..setup })
    }
}
