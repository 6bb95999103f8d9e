//! What the page asks for. Every text is JSON.

use std::rc::Rc;

use serde_json::{Value, json};
use tightrope::settings::{MicroBatch, Recompute};
use tightrope_core::plan::Target;
use tightrope_core::{Backend, DeviceError};
use tightrope_data::Checkpoint;
use tightrope_nn::TrainerConfig;

use crate::checkpoint;
use crate::corpus::Data;
use crate::device::{Armed, Description, Moment, Opener};
use crate::error::{Error, Result};
use crate::planning;
use crate::run::Run;
pub use crate::run::{Record, Stats};
use crate::setup::Setup;

/// What a call that needs a run is told without one.
const NO_RUN: Error = Error::Refused("there is no run: start one first");

/// A device with at most one run on it.
pub struct Engine<O> {
    opener: Rc<O>,
    armed: Armed,
    description: Description,
    stats: Rc<Stats>,
    /// The device while there's no run.
    idle: Option<Box<dyn Backend>>,
    run: Option<Run<O>>,
    /// How much longer steps take here than was estimated.
    slowness: f64,
}

impl<O: Opener> Engine<O> {
    /// Opens a device. `armed` is what the opener's devices look at.
    ///
    /// # Errors
    /// Those of the device.
    pub async fn open(opener: O, armed: Armed) -> Result<Self> {
        let (device, description) = opener.open().await?;
        Ok(Self {
            opener: Rc::new(opener),
            armed,
            description,
            stats: Rc::default(),
            idle: Some(device),
            run: None,
            slowness: 1.0,
        })
    }

    /// Figures that can be read while a call is under way.
    pub fn stats(&self) -> Rc<Stats> {
        Rc::clone(&self.stats)
    }

    /// The device and the presets, those that fit first.
    ///
    /// # Errors
    /// As [`Setup::to_json`].
    pub fn info(&self) -> Result<Value> {
        let Description { device, name, reason, limits, comfortable, .. } = &self.description;
        let offers = planning::offers(*comfortable)?;
        let largest = offers.iter().rfind(|offer| offer.fits).map(|offer| offer.name);
        Ok(json!({
            "device": device,
            "name": name,
            "reason": reason,
            "limits": limits,
            "presets": offers,
            "largest_fitting_preset": largest,
        }))
    }

    /// The device's rules for plans.
    fn target(&self) -> Result<&dyn Target> {
        let device = self.run.as_ref().and_then(Run::backend).or(self.idle.as_deref());
        let device: &dyn Backend = device.ok_or(Error::Refused(
            "the device is gone: start a run to open it again, or reload the page",
        ))?;
        Ok(device)
    }

    /// What training with this setup would take. Touches no run.
    ///
    /// # Errors
    /// A setup that can't be.
    pub fn plan(&self, setup: &str) -> Result<planning::Shown> {
        let setup = Setup::from_json(setup)?;
        let (target, device) = (self.target()?, &self.description);
        let found = planning::find(&setup, device, target)?;
        found.show(&setup, device, self.slowness, target)
    }

    /// The setup that continues a checkpoint.
    ///
    /// # Errors
    /// A damaged checkpoint, and one with settings that the page has no means for.
    pub fn setup_of(&self, archive: Vec<u8>) -> Result<Value> {
        let checkpoint = Checkpoint::from_archive("checkpoint.tar", archive)?;
        Setup::of_checkpoint(&checkpoint)?.to_json()
    }

    /// Ends the run there is, and begins or continues another. What can be refused is refused before.
    ///
    /// # Errors
    /// Setups, data and checkpoints that can't be used; [`Error::DoesNotFit`]; those of the device.
    pub async fn start(
        &mut self,
        setup: &str,
        text: Option<Vec<u8>>,
        archive: Option<Vec<u8>>,
    ) -> Result<Value> {
        let mut setup = Setup::from_json(setup)?;
        let archive = archive.map(|bytes| Checkpoint::from_archive("checkpoint.tar", bytes));
        let archive = archive.transpose()?;
        if let Some(archive) = &archive {
            setup = checkpoint::with_model(setup, archive)?;
        }
        let data = Data::open(&setup, text, archive.as_ref())?;
        if self.target().is_err() {
            (self.idle, self.description) = {
                let (device, description) = self.opener.open().await?;
                (Some(device), description)
            };
        }
        let available = self.description.budget;
        let found = planning::find(&setup, &self.description, self.target()?)?;
        if !found.fits {
            let bytes = found.smallest_seen_bytes;
            return Err(planning::refusal(&setup, bytes, available, self.target()?)?);
        }
        let asked = setup.clone();
        let TrainerConfig { micro_batch, options, .. } = found.planned.config();
        setup.settings.train.micro_batch = MicroBatch::Size(*micro_batch);
        // A choice of single tensors has no short name: the planner makes it again.
        setup.settings.memory.recompute = Recompute::of(&options.checkpoint).unwrap_or_default();
        if let Some(device) = self.run.take().and_then(Run::into_backend) {
            self.idle = Some(device);
        }
        let Some(device) = self.idle.take() else { return Err(NO_RUN) };
        let first = (device, found.planned);
        let stats = (self.stats(), &self.description);
        let started =
            Run::start(Rc::clone(&self.opener), first, (setup, data), archive, stats).await;
        let run = match started {
            Ok(run) => run,
            Err(Error::Device(error @ DeviceError::OutOfMemory { .. })) => {
                return Err(self.out_of_memory(&asked, &error, found.smallest_seen_bytes).await?);
            }
            Err(error) => return Err(error),
        };
        let (tokens, held_out) = run.made().data.tokens();
        let started = json!({
            "step": run.done().steps,
            "predicted_bytes": self.stats.predicted_bytes.get(),
            "allocated_bytes": self.stats.allocated_bytes.get(),
            "vocab": run.made().setup.model.vocab,
            "tokens_in_data": tokens,
            "heldout_tokens": held_out,
        });
        self.run = Some(run);
        Ok(started)
    }

    /// The refusal of a setup whose plan the device turned out to have no room for.
    async fn out_of_memory(
        &mut self,
        setup: &Setup,
        error: &DeviceError,
        smallest_bytes: u64,
    ) -> Result<Error> {
        let (device, _) = self.opener.open().await?;
        let predicted = self.stats.predicted_bytes.get();
        let smaller = planning::nearest(setup, Some(predicted / 2), &*device)?;
        self.idle = Some(device);
        Ok(Error::DoesNotFit {
            what: error.to_string(),
            smallest_bytes,
            nearest: smaller.map(|setup| setup.to_json().map(Box::new)).transpose()?,
        })
    }

    /// Trains `count` steps, or those that are left. A record for each on the processor; on a GPU, where reading
    /// a loss waits for it, for the last.
    ///
    /// # Errors
    /// Without a run; a device that is lost again and again.
    pub async fn step(&mut self, count: u64) -> Result<Vec<Record>> {
        let run = self.run.as_mut().ok_or(NO_RUN)?;
        let records = run.step(count).await?;
        if let Some(last) = records.last()
            && run.estimate > 0.0
        {
            self.slowness = last.step_s / run.estimate;
        }
        Ok(records)
    }

    /// Loss on held-out data, nats a token.
    ///
    /// # Errors
    /// Without a run; a device that is lost again and again.
    pub async fn evaluate(&mut self) -> Result<f64> {
        self.run.as_mut().ok_or(NO_RUN)?.evaluate().await
    }

    /// Part of the held-out problems that are answered exactly.
    ///
    /// # Errors
    /// Without a run; a device that is lost again and again.
    pub async fn accuracy(&mut self) -> Result<f64> {
        self.run.as_mut().ok_or(NO_RUN)?.accuracy().await
    }

    /// What the model continues a prompt with.
    ///
    /// # Errors
    /// Without a run; a device that is lost again and again.
    pub async fn sample(
        &mut self,
        prompt: &str,
        tokens: usize,
        temperature: f64,
        seed: u64,
    ) -> Result<String> {
        self.run.as_mut().ok_or(NO_RUN)?.sample(prompt, tokens, temperature, seed).await
    }

    /// The run as one file.
    ///
    /// # Errors
    /// Without a run; a device that is lost again and again.
    pub async fn checkpoint(&mut self) -> Result<Vec<u8>> {
        if self.armed.get() == Some(Moment::Save) {
            self.armed.set(Some(Moment::Readback));
        }
        self.run.as_mut().ok_or(NO_RUN)?.checkpoint().await
    }
}
