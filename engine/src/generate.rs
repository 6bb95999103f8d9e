//! Text from a model on disk, and the loss of one on text or images.
//!
//! ```
//! use tightrope::devices::Devices;
//! use tightrope::generate::{Asked, Loaded};
//! use tightrope::settings::Settings;
//!
//! # let folder = tempfile::tempdir()?;
//! # let dir = folder.path().join("run");
//! # let mut said = Settings::default();
//! # for words in ["model.preset=tiny", "model.context=16", "train.steps=1", "run.device=cpu"] {
//! #     said.read_argument(words)?;
//! # }
//! # said.read_argument(&format!("run.out={}", dir.display()))?;
//! # let recipe = tightrope::recipe::Recipe::new(&said)?;
//! # let device = Devices::default().open(&recipe.step.device)?;
//! # let (mut run, _) = recipe.plan(device)?.start(|spec| Devices::default().open(spec))?.begin()?;
//! # (&mut run).try_for_each(|step| step.map(drop))?;
//!
//! // A run directory, a checkpoint, or a directory of Hugging Face.
//! let loaded = Loaded::open(&dir, &Settings::default())?;
//! let device = Devices::default().open(loaded.device())?;
//! let mut text = String::new();
//! let asked = Asked { prompt: "To be", max_tokens: 10, temperature: 0.8, top_k: 0, top_p: 1.0 };
//! let tokens = loaded.generator(device)?.generate(&asked, &mut |piece| {
//!     text += piece;
//!     true
//! })?;
//! assert_eq!(tokens.len(), 10);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::path::Path;

use anyhow::anyhow;
use tightrope_core::Backend;
use tightrope_data::Tokenizer;
use tightrope_nn::{Architecture, Offload, Optimizer, Planned, Sampling, Trainer, TrainerConfig};

use crate::block_on;
use crate::devices::Spec;
use crate::error::{Error, Help as _, Result};
use crate::model::Unit;
use crate::recipe::{LabelledImages, Step, Text, windows};
use crate::run::{self, Evaluation, evaluate};
use crate::settings::Settings;
use crate::weights::{Places, Source};

/// A model on disk, with what was said over the settings that it was trained with.
pub struct Loaded {
    source: Source,
    settings: Settings,
    step: Step,
    /// `None` of a model that reads no text.
    tokenizer: Option<Tokenizer>,
    notes: Vec<String>,
}

impl Loaded {
    /// Opens a run, a checkpoint, an archive of one or a Hugging Face directory.
    ///
    /// # Errors
    /// A model that can't be read, and settings that don't fit it.
    pub fn open(path: &Path, said: &Settings) -> Result<Self> {
        let source = Source::open(path)?;
        let settings = source.settings(said)?;
        let asked = settings.data.tokenizer.as_deref();
        let tokenizer = match &source.config {
            Architecture::Language(_) => Some(source.tokenizer(asked)?),
            Architecture::Vit(_) => None,
        };
        let step = Step::of_model(&settings, source.config.clone())?;
        let notes = [source.notes.clone(), settings.notes()].concat();
        Ok(Self { source, settings, step, tokenizer, notes })
    }

    /// The directory with the weights, or the archive.
    pub fn dir(&self) -> &Path {
        &self.source.dir
    }

    /// What there is to tell: newer checkpoints that were passed over as damaged, and retired settings.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The device that is asked for.
    pub fn device(&self) -> &Spec {
        &self.step.device
    }

    /// The model on `device`, to continue text: the smallest training step there is, of which only the decoder is replayed.
    ///
    /// # Errors
    /// A model that reads no text, weights that can't be read, and those of the device.
    pub fn generator(self, device: Box<dyn Backend>) -> Result<Generator> {
        let Some(tokenizer) = self.tokenizer else {
            let (shown, family) = (self.source.dir.display(), self.source.config.family().name());
            return Err(Error::usage(
                anyhow!("`{shown}` holds a model of the family {family}, which continues no text"),
                "name a language model, or score this one with `tightrope eval`",
            ));
        };
        let config = TrainerConfig {
            batch: 1,
            micro_batch: 1,
            model: self.source.config.build(1)?,
            optimizer: Optimizer::Sgd { momentum: 0.0 },
            offload: Offload::NONE,
            ..self.step.config.clone()
        };
        let planned = Planned::new(&config, &*device)?;
        let trainer = loaded(&self.source, &self.settings, planned, device)?;
        Ok(Generator { trainer, tokenizer, seed: self.step.config.seed })
    }

    /// The loss on what is held out, or on everything where nothing is, and the sequence length that it was scored with.
    ///
    /// # Errors
    /// Data that can't be read, and those of the device.
    pub fn evaluate(self, device: Box<dyn Backend>) -> Result<Scored> {
        let source = &self.source;
        let mut data = self.settings.data.clone();
        if data.holdout == 1.0 {
            // Splits leave something to train on, of which there is no need here.
            data.holdout = 0.0;
        }
        let scored = match (&source.config, self.tokenizer) {
            (Architecture::Vit(model), _) => {
                let normalization = Some(source.normalization(model.colors)?);
                Data::Images(Box::new(LabelledImages::open(&data, model, None, normalization)?))
            }
            (Architecture::Language(model), tokenizer) => {
                let texts = if data.files.is_empty() { source.own_texts()? } else { Vec::new() };
                let tokenizer = tokenizer.unwrap_or(Tokenizer::Byte);
                Data::Text(Box::new(Text::open(&data, tokenizer, model.vocab, texts)?))
            }
        };
        // Nothing is trained, so no optimizer state is kept.
        let optimizer = Optimizer::Sgd { momentum: 0.0 };
        let step = Step {
            config: TrainerConfig {
                optimizer,
                decode: 0,
                offload: Offload::NONE,
                ..self.step.config.clone()
            },
            ..self.step.clone()
        };
        let planned = step.plan(&*device)?;
        let mut trainer = loaded(&self.source, &self.settings, planned, device)?;
        let (batches, count) = match &scored {
            Data::Images(images) => images.scored(trainer.config())?,
            Data::Text(text) => {
                (windows(text.scored(), trainer.config(), None)?, text.scored().len())
            }
        };
        let unit = Unit::of(trainer.config());
        let Some(evaluation) = block_on(evaluate(&mut trainer, batches))? else {
            return Err(Error::usage(
                anyhow!("nothing is held out: the held-out part has {count} {}", unit.many),
                "raise data.holdout, or give more --data",
            ));
        };
        let (bytes, origin) = match &scored {
            Data::Images(images) => (None, images.origin()),
            Data::Text(text) => (text.predicted_bytes()?, text.origin()),
        };
        let nats = evaluation.loss * evaluation.tokens as f64;
        let bits_per_byte = bytes.map(|bytes| nats / std::f64::consts::LN_2 / bytes as f64);
        let part = match data.holdout {
            0.0 => "all".to_owned(),
            part => format!("the held-out {} %", (100.0 * part * 1e4).round() / 1e4),
        };
        let seq_len = trainer.config().model.tokens();
        Ok(Scored { evaluation, unit, data: format!("{part} of {origin}"), bits_per_byte, seq_len })
    }
}

/// What a model is scored on.
enum Data {
    Text(Box<Text>),
    Images(Box<LabelledImages>),
}

/// The model of `source` in a trainer of `planned`.
fn loaded(
    source: &Source,
    settings: &Settings,
    planned: Planned,
    device: Box<dyn Backend>,
) -> Result<Trainer> {
    let mut trainer = Trainer::new(planned, device)?;
    source.load(&mut trainer, &Places::of(settings))?;
    Ok(trainer)
}

/// What scoring a model came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Scored {
    /// The loss.
    pub evaluation: Evaluation,
    /// What was scored.
    pub unit: Unit,
    /// The data, in words: which part of which files.
    pub data: String,
    /// Bits that the model needs for a byte of the text; `None` of images, and of ids whose tokenizer isn't known.
    pub bits_per_byte: Option<f64>,
    /// Sequence length.
    pub seq_len: usize,
}

/// What is asked of a [`Generator`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Asked<'a> {
    /// Text to continue; not empty.
    pub prompt: &'a str,
    /// Most tokens to generate.
    pub max_tokens: usize,
    /// Randomness; 0 always takes the likeliest token.
    pub temperature: f64,
    /// Draw from so many of the likeliest tokens; 0 is all of them.
    pub top_k: usize,
    /// Draw from the likeliest tokens that together have this probability.
    pub top_p: f64,
}

/// A model that continues text.
pub struct Generator {
    trainer: Trainer,
    tokenizer: Tokenizer,
    seed: u64,
}

impl Generator {
    /// Continues a prompt, and hands each new piece of text to `show`, which says whether to go on. Returns the new tokens.
    ///
    /// # Errors
    /// An empty prompt or one that the model doesn't know, and those of the device.
    pub fn generate(
        &mut self,
        asked: &Asked<'_>,
        show: &mut dyn FnMut(&str) -> bool,
    ) -> Result<Vec<u32>> {
        let Asked { temperature, top_k, top_p, .. } = *asked;
        let prompt = self.tokenizer.encode(asked.prompt).help("give another --prompt")?;
        if prompt.is_empty() {
            return Err(Error::usage(
                anyhow!("the prompt is empty"),
                "give --prompt some text to continue, or leave it out",
            ));
        }
        let sampling = Sampling { temperature, top_k, top_p, seed: self.seed, draw: 0 };
        let (trainer, tokenizer) = (&mut self.trainer, &self.tokenizer);
        block_on(run::generate(trainer, tokenizer, &prompt, asked.max_tokens, &sampling, show))
    }
}
