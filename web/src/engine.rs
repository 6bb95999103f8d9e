//! What the page asks for. Every text is JSON.

use std::cell::Cell;
use std::rc::Rc;

use serde_json::{Value, json};
use tightrope::core::{Backend, DeviceError};
use tightrope::data::Checkpoint;
use tightrope::nn::{Done, Planned, TrainError};
use tightrope::plan::Closest;
use tightrope::recipe::Recipe;
use tightrope::run::{Opening, Reopen, Run, Stepped};

use crate::device::{Armed, Description, Moment, Opener};
use crate::error::{Error, Result};
use crate::planning;
use crate::running::Running;
use crate::setup::{Files, Setup};

/// What a call that needs a run is told without one.
const NO_RUN: Error = Error::Refused("there is no run: start one first");

/// Figures that can be read while a call is under way.
#[derive(Debug, Default)]
pub struct Stats {
    /// The plan's peak.
    pub predicted_bytes: Cell<u64>,
    /// What the device allocated.
    pub allocated_bytes: Cell<u64>,
    /// Copies of weights and optimizer state in the host's memory.
    pub host_copy_bytes: Cell<u64>,
    /// How often a device took the place of a lost one.
    pub recoveries: Cell<u32>,
}

/// A device with at most one run on it.
pub struct Engine<O> {
    opener: Rc<O>,
    armed: Armed,
    description: Description,
    stats: Rc<Stats>,
    /// The device while there's no run.
    idle: Option<Box<dyn Backend>>,
    run: Option<Running>,
    /// How much longer steps take here than was estimated.
    slowness: f64,
    /// What the page fetched.
    files: Files,
}

impl<O: Opener + 'static> Engine<O> {
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
            files: Files::default(),
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
        let Description { device, name, reason, comfortable, .. } = &self.description;
        let offers = planning::offers(*comfortable)?;
        let largest = offers.iter().rfind(|offer| offer.fits).map(|offer| offer.name);
        Ok(json!({
            "device": device,
            "name": name,
            "reason": reason,
            "presets": offers,
            "largest_fitting_preset": largest,
        }))
    }

    /// The device, where it isn't lost.
    fn device(&self) -> Result<&dyn Backend> {
        let device = self.run.as_ref().and_then(|running| running.run.backend());
        device.or(self.idle.as_deref()).ok_or(Error::Refused(
            "the device is gone: start a run to open it again, or reload the page",
        ))
    }

    /// What training with this setup would take. Touches no run.
    ///
    /// # Errors
    /// A setup that can't be.
    pub fn plan(&self, setup: &str) -> Result<Value> {
        let setup = Setup::from_json(setup)?;
        planning::show(&setup, &self.description, self.slowness, self.device()?)
    }

    /// Names of the files that a run of this setup needs and that weren't given yet.
    ///
    /// # Errors
    /// A setup that can't be.
    pub fn needs(&self, setup: &str) -> Result<Vec<&'static str>> {
        let needs = Setup::from_json(setup)?.needs().iter().copied();
        Ok(needs.filter(|name| !self.files.contains_key(*name)).collect())
    }

    /// Takes a file that setups need.
    pub fn give(&mut self, name: String, file: Vec<u8>) {
        self.files.insert(name, file);
    }

    /// The setup that continues a checkpoint.
    ///
    /// # Errors
    /// A damaged checkpoint, and one of adapters.
    pub fn setup_of(&self, archive: Vec<u8>) -> Result<Value> {
        Setup::of_checkpoint(&read(archive)?)?.to_json()
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
        let setup = Setup::from_json(setup)?;
        let mut recipe = setup.recipe(text, &self.files, archive.map(read).transpose()?)?;
        recipe.data.seek(&recipe.step.config, Done::default())?;
        if self.device().is_err() {
            let (device, description) = self.opener.open().await?;
            (self.idle, self.description) = (Some(device), description);
        }
        self.description.fill(&mut recipe.step.scope);
        let (device, budget) = (self.device()?, recipe.step.scope.budget);
        let Closest { planned, fits, fewest_bytes } = planning::find(&recipe.step, device)?;
        if !fits {
            let available = budget.unwrap_or_default();
            let what = format!(
                "the training step takes {fewest_bytes} bytes at least, and {available} are available"
            );
            let nearest = planning::nearest(&setup, budget, &self.description, device);
            return Err(planning::refusal(what, fewest_bytes, budget, nearest)?);
        }
        let estimate = planning::estimate(&recipe.step, &planned, device);
        self.stats.predicted_bytes.set(planned.plan.peak_bytes());
        if let Some(device) = self.run.take().and_then(|running| running.run.into_backend()) {
            self.idle = Some(device);
        }
        let Some(device) = self.idle.take() else { return Err(NO_RUN) };
        let run = match self.run(recipe, planned, device).await {
            Err(error) if is_full(&error) => {
                return Err(self.out_of_memory(&setup, error, fewest_bytes).await?);
            }
            run => run?,
        };
        let step = run.done().steps;
        let running = self.run.insert(Running { run, estimate });
        count(&self.stats, &running.run);
        Ok(json!({
            "step": step,
            "predicted_bytes": self.stats.predicted_bytes.get(),
            "allocated_bytes": self.stats.allocated_bytes.get(),
            "vocab": setup.settings.model.vocab,
        }))
    }

    /// The run of a recipe, without the checkpoint that it goes on from.
    async fn run(
        &self,
        recipe: Recipe,
        planned: Planned,
        device: Box<dyn Backend>,
    ) -> tightrope::Result<Run<'static>> {
        let parts = recipe.with_plan(planned, device).parts(self.reopen())?;
        let mut run = Run::start_async(parts).await?;
        run.release_checkpoint_async().await?;
        Ok(run)
    }

    /// Opens a device in place of one that was lost.
    fn reopen(&self) -> Reopen<'static> {
        let (opener, stats) = (Rc::clone(&self.opener), self.stats());
        Box::new(move || -> Opening<'static> {
            let (opener, stats) = (Rc::clone(&opener), Rc::clone(&stats));
            Box::pin(async move {
                stats.recoveries.set(stats.recoveries.get() + 1);
                Ok(opener.open().await.map_err(TrainError::from)?.0)
            })
        })
    }

    /// The refusal of a setup whose plan the device turned out to have no room for.
    async fn out_of_memory(
        &mut self,
        setup: &Setup,
        error: tightrope::Error,
        smallest_bytes: u64,
    ) -> Result<Error> {
        let (device, _) = self.opener.open().await?;
        let device = self.idle.insert(device);
        let half = Some(self.stats.predicted_bytes.get() / 2);
        let nearest = planning::nearest(setup, half, &self.description, &**device);
        planning::refusal(Error::from(error).to_string(), smallest_bytes, None, nearest)
    }

    /// Does `work` with the run, and reads its figures.
    ///
    /// # Errors
    /// Without a run, and those of `work`.
    pub async fn with_run<T>(
        &mut self,
        work: impl AsyncFnOnce(&mut Running) -> Result<T>,
    ) -> Result<T> {
        let running = self.run.as_mut().ok_or(NO_RUN)?;
        let result = work(running).await;
        count(&self.stats, &running.run);
        result
    }

    /// Trains `count` steps, or those that are left. A record for each on the processor; on a GPU, where reading
    /// a loss waits for it, for the last.
    ///
    /// # Errors
    /// Without a run; a device that is lost again and again.
    pub async fn step(&mut self, count: u64) -> Result<Vec<Stepped>> {
        let reads_for_free = self.description.reads_for_free;
        let records =
            self.with_run(async |running| running.step(count, reads_for_free).await).await?;
        let estimate = self.run.as_ref().map_or(0.0, |running| running.estimate);
        if let Some(last) = records.last().filter(|_| estimate > 0.0) {
            self.slowness = last.step_s / estimate;
        }
        Ok(records)
    }

    /// The run as one file.
    ///
    /// # Errors
    /// Without a run; a device that is lost again and again.
    pub async fn checkpoint(&mut self) -> Result<Vec<u8>> {
        if self.armed.get() == Some(Moment::Save) {
            self.armed.set(Some(Moment::Readback));
        }
        self.with_run(async |running| Ok(running.run.archive_async().await?)).await
    }
}

/// A checkpoint in one file.
fn read(archive: Vec<u8>) -> Result<Checkpoint> {
    Ok(Checkpoint::from_archive("checkpoint.tar", archive)?)
}

/// Sets the figures that can be read meanwhile.
fn count(stats: &Stats, run: &Run<'_>) {
    stats.allocated_bytes.set(run.allocated_bytes());
    stats.host_copy_bytes.set(run.copied_bytes());
}

/// Whether a device has no room for a plan.
fn is_full(error: &tightrope::Error) -> bool {
    matches!(error.device(), Some(DeviceError::OutOfMemory { .. }))
}
