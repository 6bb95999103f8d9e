//! Where the weights of a run come from.

use anyhow::{Context as _, anyhow};
use tightrope_data::{Base, Checkpoint, Normalization};
use tightrope_nn::{Done, TrainError, Trainer};

use super::given::{self, Given};
use super::source::{Places, Source};
use super::teacher;
use crate::checkpoint::{done, load_optimizer, load_optimizer_of_both};
use crate::error::{Error, Help as _, Result};
use crate::settings::{Origin, Settings};

/// Where the weights come from.
pub enum Start {
    /// The seed.
    Seed,
    /// A model directory.
    Model(Box<Source>),
    /// A checkpoint of the run.
    Checkpoint(Box<Source>),
    /// Weights that the program gave its own model.
    Given(Given),
    /// A checkpoint of a run of the program's own model, and the weights that the program gave it.
    Own(Box<Checkpoint>, Option<Given>),
}

impl Start {
    /// Where frozen weights come from, for adapters beside them; `seed` is the run's.
    ///
    /// # Errors
    /// Weights that can't be read.
    pub(crate) fn base(&self, seed: u64) -> Result<Option<Base>> {
        Ok(match self {
            Self::Seed => Some(Base::Seed(seed)),
            Self::Model(source) => Some(Base::Model {
                path: source.dir.canonicalize().unwrap_or_else(|_| source.dir.clone()),
                fingerprint: source.fingerprint()?,
            }),
            Self::Checkpoint(source) => source.base().cloned(),
            Self::Given(given) => Some(given.base()),
            Self::Own(checkpoint, _) => checkpoint.manifest.base.clone(),
        })
    }

    /// What pixels of `channels` become before the model reads them; `None` where that is for the data to say.
    ///
    /// # Errors
    /// As [`Source::normalization`].
    pub(crate) fn normalization(&self, channels: usize) -> Result<Option<Normalization>> {
        match self {
            Self::Model(source) | Self::Checkpoint(source) => {
                source.normalization(channels).map(Some)
            }
            Self::Seed | Self::Given(_) | Self::Own(..) => Ok(None),
        }
    }

    /// Sets weights, a teacher's too, and optimizer state where there is any. Returns how far the run has come, which `steps` must
    /// allow.
    pub(crate) fn fill(&self, trainer: &mut Trainer, places: &Places, steps: u64) -> Result<Done> {
        teacher::fill(trainer, places)?;
        match self {
            Self::Seed => {
                if let Some(dir) = &places.adapters {
                    return Err(Error::usage(
                        anyhow!(
                            "the adapters in `{}` are beside the weights of a model, and none is \
                             named",
                            dir.display()
                        ),
                        "say with --init where that model is",
                    ));
                }
                trainer.initialise()?;
                Ok(Done::default())
            }
            Self::Model(source) => {
                source.start(trainer, places)?;
                Ok(Done::default())
            }
            Self::Checkpoint(source) => {
                source.load(trainer, places)?;
                match &source.checkpoint {
                    Some(checkpoint) => resumed(trainer, checkpoint, steps),
                    None => Ok(Done::default()),
                }
            }
            Self::Given(given) => {
                given.fill(trainer)?;
                Ok(Done::default())
            }
            Self::Own(checkpoint, given) => {
                given::load(trainer, checkpoint, given.as_ref())?;
                resumed(trainer, checkpoint, steps)
            }
        }
    }

    /// The model on disk that the weights come from, where it is of a known family.
    pub(crate) fn source(&self) -> Option<&Source> {
        match self {
            Self::Model(source) | Self::Checkpoint(source) => Some(source),
            Self::Seed | Self::Given(_) | Self::Own(..) => None,
        }
    }

    /// The checkpoint that a run goes on from.
    pub fn checkpoint(&self) -> Option<&Checkpoint> {
        match self {
            Self::Checkpoint(source) => source.checkpoint.as_ref(),
            Self::Own(checkpoint, _) => Some(checkpoint),
            Self::Seed | Self::Model(_) | Self::Given(_) => None,
        }
    }
}

/// Sets what the optimizer keeps, and says how far the run of `checkpoint` had come. If other weights were frozen, the state of those
/// that are trained in both is set.
fn resumed(trainer: &mut Trainer, checkpoint: &Checkpoint, steps: u64) -> Result<Done> {
    // In a browser no run freezes others than its checkpoint.
    let load = match !cfg!(target_family = "wasm") && freezes_others(trainer, checkpoint)? {
        true => load_optimizer_of_both,
        false => load_optimizer,
    };
    restore_optimizer(trainer, checkpoint, load)?;
    let done = done(&checkpoint.manifest);
    if done.steps > steps {
        return Err(Error::usage(
            anyhow!("the run has done {} steps, more than `train.steps` = {steps}", done.steps),
            format!("give --steps {} or more", done.steps),
        ));
    }
    Ok(done)
}

/// True if the run of `checkpoint` froze other weights than `trainer` does. A program that describes no settings says nothing of it.
fn freezes_others(trainer: &Trainer, checkpoint: &Checkpoint) -> Result<bool> {
    let is_described = checkpoint.manifest.settings.is_object();
    Ok(is_described && trained_with(checkpoint)?.train.freeze != trainer.config().frozen)
}

/// The settings of a checkpoint that decide numbers.
pub(crate) fn trained_with(checkpoint: &Checkpoint) -> Result<Settings> {
    let mut settings = Settings::default();
    let path = checkpoint.path.display().to_string();
    settings.read_json(&checkpoint.manifest.settings, &Origin::Checkpoint(path))?;
    Ok(settings)
}

/// Sets optimizer state and loss scale to those of a checkpoint.
///
/// # Errors
/// State of another optimizer or model, and those of the device.
fn restore_optimizer(
    trainer: &mut Trainer,
    checkpoint: &Checkpoint,
    load: fn(&mut Trainer, &Checkpoint) -> std::result::Result<(), TrainError>,
) -> Result<()> {
    load(trainer, checkpoint)
        .with_context(|| format!("can't resume from `{}`", checkpoint.path.display()))
        .help("resume with the optimizer and model that the run began with, or start a new run")
}
