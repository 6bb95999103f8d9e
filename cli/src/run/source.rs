//! Model directories: one of Hugging Face's, a checkpoint, or a run, of which the newest complete
//! checkpoint counts.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use tightrope_data::{Checkpoint, Tokenizer, Weights, checkpoint};
use tightrope_nn::{Import, ModelConfig, Trainer};

use crate::error::{Failure, Help as _};
use crate::settings::Settings;
use crate::setup;

const CONFIG: &str = "config.json";
const MANIFEST: &str = "manifest.json";
const TOKENIZER: &str = "tokenizer.json";
/// The settings of a run, in its directory.
pub const RUN_SETTINGS: &str = "run.toml";

const KINDS: &str = "name a run directory, a checkpoint in one (checkpoints/step-N), or a Hugging Face \
                     directory with config.json and model.safetensors";

/// A model on disk.
pub struct Source {
    /// The directory with the weights.
    pub dir: PathBuf,
    /// What the weights are of.
    pub config: ModelConfig,
    /// The checkpoint, where it is one.
    pub checkpoint: Option<Checkpoint>,
    /// Newer checkpoints that were passed over as damaged, one line each.
    pub notes: Vec<String>,
}

impl Source {
    /// Opens a model directory; a checkpoint's bytes are verified.
    ///
    /// # Errors
    /// A directory without a model, or with a damaged one.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        if is_run(path) {
            let (checkpoint, skipped) = checkpoint::latest_complete(path)
                .help("name another model, or train the run further first")?;
            let note = |skipped: &checkpoint::Skipped| {
                format!(
                    "{} is damaged and was passed over: {}",
                    skipped.path.display(),
                    skipped.reason
                )
            };
            let notes = skipped.iter().map(note).collect();
            return Self::of_checkpoint(checkpoint, notes);
        }
        if path.join(MANIFEST).exists() {
            let checkpoint = Checkpoint::open(path)
                .help("name the run directory to use its newest complete checkpoint")?;
            return Self::of_checkpoint(checkpoint, Vec::new());
        }
        let config = read_config(path)?;
        Ok(Self { dir: path.to_owned(), config, checkpoint: None, notes: Vec::new() })
    }

    fn of_checkpoint(checkpoint: Checkpoint, notes: Vec<String>) -> Result<Self, Failure> {
        let dir = checkpoint.path.clone();
        let model = checkpoint.manifest.model.clone();
        let config: ModelConfig = serde_json::from_value(model)
            .with_context(|| format!("the model in `{}` can't be read", dir.display()))
            .help("use the version of tightrope that wrote this checkpoint")?;
        config.check().map_err(setup::refused)?;
        Ok(Self { dir, config, checkpoint: Some(checkpoint), notes })
    }

    /// Sets every weight of `trainer`, which is one of this model.
    ///
    /// # Errors
    /// Weights that are missing, of another shape or dtype, not finite, or in a broken file.
    pub fn load(&self, trainer: &mut Trainer) -> Result<(), Failure> {
        self.load_weights(trainer)
            .with_context(|| format!("can't load the weights in `{}`", self.dir.display()))
            .help("fetch or copy the model again, or name another one")
    }

    fn load_weights(&self, trainer: &mut Trainer) -> anyhow::Result<()> {
        let weights = Weights::open(&self.dir)?;
        let import = Import::new(&self.config, weights.names())?;
        for index in 0..trainer.parameters().len() {
            let parameter = trainer.parameters()[index].clone();
            let values = import.read(&parameter, &mut |name| {
                let view = weights.require(name)?;
                Ok((view.shape.to_vec(), view.to_f32()?))
            })?;
            trainer.set_weight(index, &values)?;
        }
        Ok(())
    }

    /// The tokenizer: the settings', else the one beside the weights, else bytes where the vocabulary is
    /// theirs.
    ///
    /// # Errors
    /// A broken file, and no tokenizer to be found.
    pub fn tokenizer(&self, settings: &Settings) -> Result<Tokenizer, Failure> {
        let file = self.dir.join(TOKENIZER);
        let tokenizer = match &settings.data.tokenizer {
            Some(name) => setup::tokenizer(name)?,
            None if file.exists() => {
                Tokenizer::open(&file).help("name another one with --tokenizer")?
            }
            None if self.reads_bytes() => Tokenizer::Byte,
            None => {
                return Err(Failure::usage(
                    anyhow!("`{}` has no {TOKENIZER}", self.dir.display()),
                    "give --tokenizer FILE, or --tokenizer byte for a model of bytes",
                ));
            }
        };
        let (size, vocab) = (tokenizer.vocab_size(), self.config.vocab);
        if size > vocab {
            return Err(Failure::usage(
                anyhow!("the tokenizer has {size} tokens, and the model knows {vocab}"),
                "give the tokenizer that the model was trained with",
            ));
        }
        Ok(tokenizer)
    }

    /// The tokenizer that a checkpoint was written with: its own copy, so that the file the run began with
    /// may have gone.
    ///
    /// # Errors
    /// As [`Source::tokenizer`].
    pub fn own_tokenizer(&self, settings: &Settings) -> Result<Tokenizer, Failure> {
        if self.dir.join(TOKENIZER).exists() || self.reads_bytes() {
            let mut settings = settings.clone();
            settings.data.tokenizer = None;
            return self.tokenizer(&settings);
        }
        self.tokenizer(settings)
    }

    fn reads_bytes(&self) -> bool {
        match &self.checkpoint {
            Some(checkpoint) => checkpoint.manifest.data.tokenizer == Tokenizer::Byte.name(),
            None => self.config.vocab == Tokenizer::Byte.vocab_size(),
        }
    }

    /// The settings file of the run that the model belongs to.
    pub fn run_settings(&self) -> Option<PathBuf> {
        let run = self.checkpoint.as_ref()?.path.parent()?.parent()?;
        let file = run.join(RUN_SETTINGS);
        file.is_file().then_some(file)
    }
}

/// Whether `path` is the directory of a run.
pub fn is_run(path: &Path) -> bool {
    path.join(RUN_SETTINGS).exists() || path.join("checkpoints").exists()
}

/// The model that a model directory describes, without its weights.
///
/// # Errors
/// A directory without a readable `config.json`.
pub fn config_of(path: &Path) -> Result<ModelConfig, Failure> {
    if is_run(path) || path.join(MANIFEST).exists() {
        return Ok(Source::open(path)?.config);
    }
    read_config(path)
}

fn read_config(dir: &Path) -> Result<ModelConfig, Failure> {
    let file = dir.join(CONFIG);
    let text = std::fs::read(&file)
        .with_context(|| {
            format!("`{}` is no model directory: can't read `{CONFIG}`", dir.display())
        })
        .map_err(|error| Failure::usage(error, KINDS))?;
    let value = serde_json::from_slice(&text)
        .with_context(|| format!("`{}` is not JSON", file.display()))
        .help("fetch the file again")?;
    ModelConfig::from_hf(&value)
        .with_context(|| format!("the model in `{}` can't be used", dir.display()))
        .help("name a gpt2 or llama model")
}
