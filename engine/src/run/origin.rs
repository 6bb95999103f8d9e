//! What a run is made from: its weights, its data, and where it opens a device.

use std::future::Future;
use std::pin::Pin;

#[cfg(not(target_family = "wasm"))]
use tightrope_core::Ranks;
use tightrope_core::{Backend, DeviceError};
#[cfg(not(target_family = "wasm"))]
use tightrope_nn::SavedTensor;
use tightrope_nn::{self as nn, Done, LearningRate, Trainer};

use super::Batches;
use crate::devices;
use crate::error::{Error, Result};
use crate::units::plural;
use crate::weights::source::Places;
use crate::weights::start::Start;

/// A device that is being opened.
pub type Opening<'a> = Pin<Box<dyn Future<Output = Result<Box<dyn Backend>>> + 'a>>;

/// Opens a device in place of one that was lost.
pub type Reopen<'a> = Box<dyn FnMut() -> Opening<'a> + 'a>;

/// What a run is made from.
pub(super) struct Origin<'a> {
    pub(super) start: Start,
    pub(super) places: Places,
    pub(super) data: Box<dyn Batches>,
    pub(super) rate: LearningRate,
    pub(super) reopen: Reopen<'a>,
    pub(super) threads: usize,
    /// Frozen weights that the program set, which no copy of what steps change holds.
    #[cfg(not(target_family = "wasm"))]
    pub(super) replaced: Vec<(SavedTensor, Vec<f32>)>,
    /// Ids that end a text besides the tokenizer's own.
    pub(super) ends: Vec<u32>,
    /// What there is to tell of devices that were lost.
    pub(super) notes: Vec<String>,
    /// The way to other ranks, until the first trainer has it.
    #[cfg(not(target_family = "wasm"))]
    pub(super) ranks: Option<Box<dyn Ranks>>,
}

impl nn::Origin for Origin<'_> {
    type Error = Error;

    async fn open(&mut self) -> Result<Box<dyn Backend>> {
        // A driver that resets doesn't answer for some seconds.
        #[cfg(not(target_family = "wasm"))]
        for _ in 1..ASKED.0 {
            if let Ok(device) = (self.reopen)().await {
                return Ok(device);
            }
            std::thread::sleep(ASKED.1);
        }
        (self.reopen)().await
    }

    fn host(&mut self) -> Result<Option<Box<dyn Backend + Send>>> {
        devices::host(self.threads).map(Some)
    }

    fn fill(&mut self, trainer: &mut Trainer) -> Result<Done> {
        #[cfg(not(target_family = "wasm"))]
        if let Some(ranks) = self.ranks.take() {
            trainer.join(ranks)?;
            self.data.share(trainer.own_samples());
        }
        let done = self.start.fill(trainer, &self.places, self.rate.steps)?;
        #[cfg(not(target_family = "wasm"))]
        for (saved, values) in &self.replaced {
            crate::block_on(trainer.set_saved(saved, values))?;
        }
        Ok(done)
    }

    async fn queue(&mut self, trainer: &mut Trainer, at: Done) -> Result<()> {
        let batch = self.data.batch(trainer.config(), at)?;
        Ok(trainer.step_async(at.steps, self.rate.lr_at(at.steps), &batch.batch()).await?)
    }

    fn recovered(&mut self, lost: &DeviceError, again: u64) {
        let steps = plural(again as usize, "step", "steps");
        self.notes.push(format!("note: {lost}; it was opened again and {steps} made again"));
    }

    fn device_error(error: &Error) -> Option<&DeviceError> {
        error.device()
    }
}

/// How often a device is asked for before it's given up, and the time between.
#[cfg(not(target_family = "wasm"))]
const ASKED: (usize, std::time::Duration) = (5, std::time::Duration::from_secs(2));
