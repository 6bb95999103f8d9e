//! The page's setup: an object of tables and keys, as in a settings file. What is missing or null takes the
//! command line's default.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use tightrope_core::graph::nearest;
use tightrope_core::plan::{self, Options};
use tightrope_data::{Checkpoint, Toy};
use tightrope_nn::defaults::{self, Sizes};
use tightrope_nn::lora::ALL_LINEAR;
use tightrope_nn::{
    BuildOptions, Family, LearningRate, ModelConfig, Optimizer, Precision, Schedule, StateBits,
    TrainerConfig, preset,
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

    fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// Everything that decides what a run computes and what it may take.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    /// The model; its context is the length of sequences.
    pub model: ModelConfig,
    /// Sequences of a step.
    pub batch: usize,
    /// Sequences of one pass; `None` leaves them to the planner.
    pub micro_batch: Option<usize>,
    /// Learning rate of every step, and how many there are.
    pub rate: LearningRate,
    /// Update rule.
    pub optimizer: Optimizer,
    /// Decay of matrices.
    pub weight_decay: f64,
    /// Largest gradient norm; 0 for none.
    pub clip: f64,
    /// Seed of weights, dropout and data.
    pub seed: u64,
    /// Bytes that the plan may take; `None` for what the device has.
    pub budget: Option<u64>,
    /// Which activations are recomputed; `None` leaves it to the planner.
    pub checkpoint: Option<plan::Checkpoint>,
    /// Rows of logits at once, 0 for all; `None` for the default.
    pub loss_chunk: Option<usize>,
    /// Bits of each number of optimizer state.
    pub optimizer_bits: StateBits,
    /// What to train on.
    pub kind: Kind,
    /// Part of the data that is kept for evaluation.
    pub holdout: f64,
    /// Storage of weights and activations.
    pub precision: Precision,
    /// Coefficients of the optimizer as given, those included that its rule doesn't use.
    pub(crate) coefficients: [f64; 3],
}

const ADAMW: &str = "adamw";
const SGD: &str = "sgd";
const LION: &str = "lion";
/// The command line's f32 with products that may round what they multiply.
const TF32: &str = "tf32";
/// Written for a choice that is the planner's.
const AUTO: &str = "auto";
/// Written for all rows at once.
const NONE: &str = "none";
/// Largest seed that settings files can hold.
const SEEDS: u64 = i64::MAX as u64;

/// Takes keys out of a setup, so that what is left is unknown.
struct Reader {
    tables: Map<String, Value>,
    known: Vec<(&'static str, &'static str)>,
}

impl Reader {
    fn new(text: &str) -> Result<Self> {
        match serde_json::from_str(text) {
            Ok(Value::Object(tables)) => Ok(Self { tables, known: Vec::new() }),
            Ok(_) => Err(Error::Setup("the setup isn't an object of tables".to_owned())),
            Err(error) => Err(Error::Setup(format!("the setup isn't JSON: {error}"))),
        }
    }

    fn get<T: DeserializeOwned>(
        &mut self,
        table: &'static str,
        key: &'static str,
    ) -> Result<Option<T>> {
        self.known.push((table, key));
        let found = match self.tables.get_mut(table) {
            Some(Value::Object(keys)) => keys.remove(key).filter(|value| !value.is_null()),
            Some(_) => return Err(Error::Setup(format!("`{table}` isn't an object of keys"))),
            None => None,
        };
        let wrong = |error| Error::Setup(format!("`{table}.{key}`: {error}"));
        found.map(|value| serde_json::from_value(value).map_err(wrong)).transpose()
    }

    /// A choice that may be "auto", and is then `None`.
    fn auto<T: DeserializeOwned>(
        &mut self,
        table: &'static str,
        key: &'static str,
    ) -> Result<Option<T>> {
        if let Some(Value::Object(keys)) = self.tables.get_mut(table)
            && keys.get(key).is_some_and(|value| value == AUTO)
        {
            keys.remove(key);
        }
        self.get(table, key)
    }

    /// Rows of logits at once, 0 for all; `None` for "auto".
    fn rows(&mut self) -> Result<Option<usize>> {
        let (table, key) = ("memory", "loss_chunk");
        let none = self.tables.get(table).and_then(|keys| keys.get(key));
        if none.is_some_and(|value| value == NONE) {
            self.get::<String>(table, key)?;
            return Ok(Some(0));
        }
        match self.auto(table, key)? {
            Some(0) => Err(Error::Setup(format!("`{table}.{key}` must be at least 1"))),
            rows => Ok(rows),
        }
    }

    /// # Errors
    /// The first key that nothing asked for, with the nearest that something did.
    fn finish(&self) -> Result<()> {
        for (table, keys) in &self.tables {
            let names = || self.known.iter().filter(|(of, _)| of == table).map(|&(_, key)| key);
            if names().next().is_none() {
                let near = nearest(table, self.known.iter().map(|&(table, _)| table));
                return Err(Error::Setup(unknown("table", table, near)));
            }
            if let Some(key) = keys.as_object().and_then(|keys| keys.keys().next()) {
                let near = nearest(key, names()).map(|near| format!("{table}.{near}"));
                return Err(Error::Setup(unknown("setting", &format!("{table}.{key}"), near)));
            }
        }
        Ok(())
    }
}

fn unknown(what: &str, name: &str, near: Option<String>) -> String {
    let near = near.map_or(String::new(), |near| format!("; did you mean `{near}`?"));
    format!("unknown {what} `{name}`{near}")
}

impl Setup {
    /// Reads a setup.
    ///
    /// # Errors
    /// Unknown keys, with the nearest known one, and values that can't be or don't hold together.
    pub fn from_json(text: &str) -> Result<Self> {
        let mut read = Reader::new(text)?;
        let sizes = Sizes {
            family: read.get("model", "family")?,
            layers: read.get("model", "layers")?,
            channels: read.get("model", "channels")?,
            heads: read.get("model", "heads")?,
            kv_heads: read.get("model", "kv_heads")?,
            hidden: read.get("model", "hidden")?,
            context: read.get("model", "context")?,
            vocab: read.get("model", "vocab")?,
            tied: read.get("model", "tied")?,
            dropout: read.get("model", "dropout")?,
        };
        let base = match sizes.family {
            Some(Family::Llama) => preset(defaults::LLAMA)?,
            _ => defaults::MODEL,
        };
        let default = Self::of_model(sizes.over(&base));
        let steps = read.get("train", "steps")?.unwrap_or(default.rate.steps);
        let lr = read.get("train", "lr")?.unwrap_or(default.rate.lr);
        let rate = LearningRate {
            schedule: read.get("train", "schedule")?.unwrap_or(default.rate.schedule),
            lr,
            min_lr: read.get("train", "min_lr")?.unwrap_or_else(|| defaults::min_lr(lr)),
            warmup: read.get("train", "warmup")?.unwrap_or_else(|| defaults::warmup(steps)),
            steps,
        };
        let [mut beta1, mut beta2, mut eps] = default.coefficients;
        for (key, value) in [("beta1", &mut beta1), ("beta2", &mut beta2), ("eps", &mut eps)] {
            *value = read.get("train", key)?.unwrap_or(*value);
        }
        let rule: Option<String> = read.get("train", "optimizer")?;
        let optimizer = match rule.as_deref() {
            None | Some(ADAMW) => Optimizer::AdamW { beta1, beta2, eps },
            Some(SGD) => Optimizer::Sgd { momentum: beta1 },
            Some(LION) => Optimizer::Lion { beta1, beta2 },
            Some(other) => return Err(no_word("train.optimizer", other, &[ADAMW, SGD, LION])),
        };
        let checkpoint: Option<String> = read.auto("memory", "checkpoint")?;
        let checkpoint = checkpoint.map(|word| word.parse::<plan::Checkpoint>());
        let kind: Option<String> = read.get("data", "kind")?;
        let kind = kind.map_or(Ok(default.kind), |name| {
            let known = Kind::ALL.map(Kind::name);
            Kind::of_name(&name).ok_or_else(|| no_word("data.kind", &name, &known))
        })?;
        let setup = Self {
            batch: read.get("train", "batch")?.unwrap_or(default.batch),
            micro_batch: read.auto("train", "micro_batch")?,
            rate,
            optimizer,
            weight_decay: read.get("train", "weight_decay")?.unwrap_or(default.weight_decay),
            clip: read.get("train", "clip")?.unwrap_or(default.clip),
            seed: read.get("train", "seed")?.unwrap_or(default.seed),
            budget: read.get("memory", "budget")?,
            checkpoint: checkpoint.transpose().map_err(tightrope_nn::Error::from)?,
            loss_chunk: read.rows()?,
            optimizer_bits: read.get("memory", "optimizer_bits")?.unwrap_or_default(),
            kind,
            holdout: read.get("data", "holdout")?.unwrap_or(default.holdout),
            precision: read.get("run", "precision")?.unwrap_or(default.precision),
            coefficients: [beta1, beta2, eps],
            model: default.model,
        };
        read.finish()?;
        setup.check()?;
        Ok(setup)
    }

    /// The defaults for a model.
    pub fn of_model(model: ModelConfig) -> Self {
        let (lr, steps) = (defaults::lr(&model), defaults::STEPS);
        let (beta1, beta2, eps) = (defaults::BETA1, defaults::BETA2, defaults::EPS);
        Self {
            batch: defaults::BATCH,
            micro_batch: None,
            rate: LearningRate {
                schedule: Schedule::Cosine,
                lr,
                min_lr: defaults::min_lr(lr),
                warmup: defaults::warmup(steps),
                steps,
            },
            optimizer: Optimizer::AdamW { beta1, beta2, eps },
            weight_decay: defaults::WEIGHT_DECAY,
            clip: defaults::CLIP,
            seed: defaults::SEED,
            budget: None,
            checkpoint: None,
            loss_chunk: None,
            optimizer_bits: StateBits::default(),
            kind: Kind::BuiltIn,
            holdout: defaults::HOLDOUT,
            precision: Precision::F32,
            coefficients: [beta1, beta2, eps],
            model,
        }
    }

    fn check(&self) -> Result<()> {
        self.model.check()?;
        self.rate.check()?;
        self.optimizer.check()?;
        let divides = |n: usize| n > 0 && self.batch.is_multiple_of(n);
        let refusals = [
            (self.batch == 0, "`train.batch` must be at least 1"),
            (self.rate.steps == 0, "`train.steps` must be at least 1"),
            (!self.micro_batch.is_none_or(divides), "`train.micro_batch` must divide the batch"),
            (self.seed > SEEDS, "`train.seed` must be below 2⁶³"),
            (
                !(self.weight_decay.is_finite() && self.weight_decay >= 0.0),
                "`train.weight_decay` must be 0 or more",
            ),
            (!(self.clip.is_finite() && self.clip >= 0.0), "`train.clip` must be 0 or more"),
            (!(0.0..1.0).contains(&self.holdout), "`data.holdout` must be at least 0 and below 1"),
        ];
        match refusals.iter().find(|(wrong, _)| *wrong) {
            Some((_, problem)) => Err(Error::Setup((*problem).to_owned())),
            None => Ok(()),
        }
    }

    /// What the trainer is to do, before the planner's choices.
    ///
    /// # Errors
    /// A model that [`ModelConfig::check`] refuses.
    pub fn trainer(&self) -> Result<TrainerConfig> {
        let Self { batch, weight_decay, clip, seed, .. } = *self;
        let loss_chunk = self.loss_chunk.unwrap_or_else(|| defaults::loss_chunk(&self.model));
        Ok(TrainerConfig {
            precision: self.precision,
            batch,
            micro_batch: self.micro_batch.unwrap_or(batch),
            build: BuildOptions { loss_chunk, attention_chunk: 0 },
            optimizer: self.optimizer,
            optimizer_bits: self.optimizer_bits,
            weight_decay,
            clip: (clip > 0.0).then_some(clip),
            options: Options {
                checkpoint: self.checkpoint.clone().unwrap_or_default(),
                ..Options::default()
            },
            seed,
            decode: self.model.context,
            ..TrainerConfig::new(self.model.build(self.model.context)?)
        })
    }

    /// The setup as an object, every key filled in.
    pub fn to_json(&self) -> Value {
        let ModelConfig { layers, channels, heads, kv_heads, hidden, context, vocab, .. } =
            self.model;
        json!({
            "model": {
                "family": self.model.family, "layers": layers, "channels": channels, "heads": heads,
                "kv_heads": kv_heads, "hidden": hidden, "context": context, "vocab": vocab,
                "tied": self.model.tied, "dropout": self.model.dropout,
            },
            "train": self.train_json(),
            "memory": {
                "budget": self.budget,
                "checkpoint": self.checkpoint_word(),
                "loss_chunk": match self.loss_chunk {
                    Some(0) => NONE.into(),
                    rows => or_auto(rows),
                },
                "optimizer_bits": self.optimizer_bits,
            },
            "data": { "kind": self.kind.name(), "holdout": self.holdout },
            "run": { "precision": self.precision },
        })
    }

    /// The settings as the command line writes them into a checkpoint.
    pub fn to_settings(&self) -> Value {
        let mut settings = self.to_json();
        settings["model"]["preset"] = Value::Null;
        settings["lora"] = json!({
            "rank": 0, "alpha": null, "targets": [ALL_LINEAR], "dropout": 0.0, "base_bits": null,
        });
        let memory = &mut settings["memory"];
        memory["attention_chunk"] = AUTO.into();
        memory["offload"] = json!([]);
        memory["consume_gradients"] = false.into();
        memory["allow"] = json!([]);
        settings["data"] = json!({ "holdout": self.holdout });
        settings["run"]["device"] = AUTO.into();
        settings["run"]["products"] = AUTO.into();
        settings
    }

    /// The setup that continues a checkpoint, whoever wrote it.
    ///
    /// # Errors
    /// Settings of the command line that the page has no means for.
    pub fn of_checkpoint(checkpoint: &Checkpoint) -> Result<Self> {
        let manifest = &checkpoint.manifest;
        let mut settings = manifest.settings.clone();
        if manifest.base.is_some() {
            return Err(Error::Setup(
                "the checkpoint holds adapters, which the page doesn't train; continue it with \
                 `tightrope train --resume`"
                    .to_owned(),
            ));
        }
        let kind = match manifest.data.toy() {
            Some(toy) => Kind::Toy(toy),
            None if manifest.data.files.len() == 1 => Kind::Text,
            None => Kind::BuiltIn,
        };
        for (table, key) in [
            ("model", "preset"),
            ("memory", "budget"),
            ("memory", "attention_chunk"),
            ("memory", "offload"),
            ("memory", "consume_gradients"),
            ("memory", "allow"),
            ("run", "device"),
            ("run", "products"),
        ] {
            if let Some(keys) = settings.get_mut(table).and_then(Value::as_object_mut) {
                keys.remove(key);
            }
        }
        if let Some(tables) = settings.as_object_mut() {
            tables.remove("lora");
        }
        if let Some(precision) = settings.pointer_mut("/run/precision")
            && precision == TF32
        {
            // What is stored is f32, and so are the products of every GPU but NVIDIA's.
            *precision = json!(Precision::F32);
        }
        if let Some(data) = settings.get_mut("data").and_then(Value::as_object_mut) {
            data.insert("kind".to_owned(), kind.name().into());
        }
        let setup = Self::from_json(&settings.to_string())?;
        let model: ModelConfig =
            serde_json::from_value(manifest.model.clone()).map_err(|error| {
                Error::Setup(format!("the checkpoint's model can't be read: {error}"))
            })?;
        model.check()?;
        let time = setup.model.context;
        if time != model.context {
            return Err(Error::Setup(format!(
                "the checkpoint's model has {} positions and was trained on {time}; the page trains on all \
                 of them",
                model.context
            )));
        }
        Ok(Self { model, ..setup })
    }

    fn train_json(&self) -> Value {
        let LearningRate { schedule, lr, min_lr, warmup, steps } = self.rate;
        let [beta1, beta2, eps] = self.coefficients;
        let rule = match self.optimizer {
            Optimizer::AdamW { .. } => ADAMW,
            Optimizer::Sgd { .. } => SGD,
            Optimizer::Lion { .. } => LION,
        };
        json!({
            "batch": self.batch, "micro_batch": or_auto(self.micro_batch), "steps": steps,
            "optimizer": rule, "lr": lr, "min_lr": min_lr, "warmup": warmup, "schedule": schedule,
            "weight_decay": self.weight_decay, "beta1": beta1, "beta2": beta2, "eps": eps,
            "clip": self.clip, "seed": self.seed,
        })
    }

    fn checkpoint_word(&self) -> String {
        self.checkpoint.as_ref().map_or_else(|| AUTO.to_owned(), ToString::to_string)
    }
}

fn or_auto(value: Option<usize>) -> Value {
    value.map_or_else(|| AUTO.into(), Into::into)
}

fn no_word(key: &str, word: &str, known: &[&str]) -> Error {
    let near = nearest(word, known.iter().copied());
    let near = near.map_or(String::new(), |near| format!("; did you mean \"{near}\"?"));
    Error::Setup(format!("`{key}` is \"{word}\", not one of {}{near}", known.join(", ")))
}
