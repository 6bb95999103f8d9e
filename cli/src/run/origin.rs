//! What a run is made from: its weights, its data, and where it opens a device.

use std::thread::sleep;
use std::time::Duration;

use anyhow::anyhow;
use tightrope_core::{Backend, DeviceError};
use tightrope_data::{Base, Batch, Loader};
use tightrope_nn::{self as nn, Done, LearningRate, TrainError, Trainer, TrainerConfig};

use super::corpus::Data;
use super::source::Source;
use super::{state, training};
use crate::error::{Failure, Help as _};
use crate::settings::Settings;
use crate::setup;

/// Opens the device that the settings name, and others in its place.
pub type Open<'a> = &'a mut dyn FnMut(&Settings) -> Result<Box<dyn Backend>, Failure>;

/// How often a device is asked for before it's given up, and the time between: a driver that resets doesn't
/// answer for some seconds.
const ASKED: (usize, Duration) = (5, Duration::from_secs(2));

/// Where the weights come from.
pub enum Start {
    /// The seed.
    Seed,
    /// A model directory.
    Model(Box<Source>),
    /// A checkpoint of the run.
    Checkpoint(Box<Source>),
}

impl Start {
    /// Where frozen weights come from, for adapters beside them.
    ///
    /// # Errors
    /// Weights that can't be read.
    pub fn base(&self, settings: &Settings) -> Result<Option<Base>, Failure> {
        if settings.lora.rank == 0 {
            return Ok(None);
        }
        Ok(match self {
            Self::Seed => Some(Base::Seed(settings.train.seed)),
            Self::Model(source) => Some(Base::Model {
                path: source.dir.canonicalize().unwrap_or_else(|_| source.dir.clone()),
                fingerprint: source.fingerprint()?,
            }),
            Self::Checkpoint(source) => source.base().cloned(),
        })
    }

    /// Sets weights, and optimizer state where there is any. Returns how far the run has come.
    fn fill(&self, trainer: &mut Trainer, settings: &Settings) -> Result<Done, Failure> {
        match self {
            Self::Seed => {
                if let Some(dir) = &settings.lora.init {
                    return Err(Failure::usage(
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
                source.load(trainer, settings)?;
                Ok(Done::default())
            }
            Self::Checkpoint(source) => {
                source.load(trainer, settings)?;
                let Some(checkpoint) = &source.checkpoint else { return Ok(Done::default()) };
                state::restore_optimizer(trainer, checkpoint)?;
                let manifest = &checkpoint.manifest;
                let done = Done {
                    steps: manifest.step,
                    samples: manifest.data.position,
                    tokens: manifest.tokens_seen,
                };
                let steps = settings.train.steps.unwrap_or_default();
                if done.steps > steps {
                    return Err(Failure::usage(
                        anyhow!(
                            "the run has done {} steps, more than `train.steps` = {steps}",
                            done.steps
                        ),
                        format!("give --steps {} or more", done.steps),
                    ));
                }
                Ok(done)
            }
        }
    }
}

/// What a run is made from.
pub struct Origin<'a> {
    /// Where its weights come from.
    pub start: Start,
    /// Its data.
    pub data: &'a Data,
    /// What there is to tell of devices that were lost.
    pub notes: Vec<String>,
    settings: Settings,
    rate: LearningRate,
    open: Open<'a>,
    loader: Option<Loader>,
}

impl<'a> Origin<'a> {
    /// A run of these settings.
    pub fn new(settings: &Settings, start: Start, data: &'a Data, open: Open<'a>) -> Self {
        let rate = settings.train.learning_rate();
        let settings = settings.clone();
        Self { start, data, notes: Vec::new(), settings, rate, open, loader: None }
    }

    /// Readies the batches that follow what is `done`.
    ///
    /// # Errors
    /// Data shorter than a window.
    pub fn seek(&mut self, config: &TrainerConfig, done: Done) -> Result<(), Failure> {
        if self.loader.as_ref().is_none_or(|loader| loader.position() != done.samples) {
            self.loader = None;
            self.loader = Some(training::loader(config, self.data, done.samples)?);
        }
        Ok(())
    }

    /// The batch that follows what is `done`.
    ///
    /// # Errors
    /// Those of the data.
    pub fn batch(&mut self, config: &TrainerConfig, done: Done) -> Result<Batch, Failure> {
        self.seek(config, done)?;
        let loader = self.loader.as_mut().expect("`seek` leaves one");
        loader.next().help("restore the data, then resume the run")
    }
}

impl nn::Origin for Origin<'_> {
    type Error = Failure;

    async fn open(&mut self) -> Result<Box<dyn Backend>, Failure> {
        for _ in 1..ASKED.0 {
            if let Ok(device) = (self.open)(&self.settings) {
                return Ok(device);
            }
            sleep(ASKED.1);
        }
        (self.open)(&self.settings)
    }

    fn host(&mut self) -> Result<Option<Box<dyn Backend + Send>>, Failure> {
        Ok(Some(Box::new(setup::host(&self.settings)?)))
    }

    fn fill(&mut self, trainer: &mut Trainer) -> Result<Done, Failure> {
        self.start.fill(trainer, &self.settings)
    }

    fn queue(&mut self, trainer: &mut Trainer, at: Done) -> Result<(), Failure> {
        let batch = self.batch(trainer.config(), at)?;
        let batch = nn::Batch::text(&batch.inputs, &batch.targets);
        Ok(trainer.step(at.steps, self.rate.lr_at(at.steps), &batch)?)
    }

    fn recovered(&mut self, lost: &DeviceError, again: u64) {
        let steps = training::plural(again as usize, "step", "steps");
        self.notes.push(format!("note: {lost}; it was opened again and {steps} made again"));
    }

    fn device_error(error: &Failure) -> Option<&DeviceError> {
        nn::device_error(error.error()?)
    }
}

impl From<TrainError> for Failure {
    fn from(error: TrainError) -> Self {
        setup::train_failure(error)
    }
}
