//! What a run is made from.

#[cfg(not(target_family = "wasm"))]
use std::path::Path;

use anyhow::anyhow;
use tightrope_core::Backend;
#[cfg(not(target_family = "wasm"))]
use tightrope_core::Ranks;
#[cfg(not(target_family = "wasm"))]
use tightrope_data::checkpoint::{latest_complete, list};
use tightrope_nn::{LearningRate, Planned};

use super::batches::Batches;
#[cfg(not(target_family = "wasm"))]
use super::continues;
use super::origin::Reopen;
use super::saved::Described;
use crate::checkpoint::KEPT;
#[cfg(not(target_family = "wasm"))]
use crate::error::Help as _;
use crate::error::{Error, Result};
use crate::settings;
use crate::weights::{Places, Start};

/// Steps between what a run does besides training; 0 for never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Every {
    /// Logged losses; at least 1.
    pub log: u64,
    /// Evaluations.
    pub evaluate: u64,
    /// Samples.
    pub sample: u64,
    /// Checkpoints.
    pub save: u64,
}

impl Every {
    /// Those of the settings.
    pub fn of(run: &settings::Run) -> Self {
        Self {
            log: run.log_every,
            evaluate: run.eval_every,
            sample: run.sample_every,
            save: run.save_every,
        }
    }
}

/// Rules for the checkpoints that stay, and for the run's end by its held-out loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Newest checkpoints that stay; at least 1.
    pub newest: usize,
    /// True if the one with the lowest held-out loss stays too.
    pub best: bool,
    /// Evaluations in a row without a lower loss that end the run; 0 for no end.
    pub patience: u64,
}

impl Retention {
    /// The rules that the settings say.
    pub fn of(settings: &settings::Settings) -> Self {
        let settings::Run { keep, keep_best, .. } = settings.run;
        Self { newest: keep, best: keep_best, patience: settings.train.patience }
    }
}

impl Default for Retention {
    fn default() -> Self {
        Self { newest: KEPT, best: false, patience: 0 }
    }
}

/// What a run is made from.
pub struct Parts<'a> {
    /// The planned step.
    pub planned: Planned,
    /// The device that it was planned for.
    pub device: Box<dyn Backend>,
    /// Opens a device in place of one that was lost.
    pub reopen: Reopen<'a>,
    /// Threads of the host, for what is offloaded to it.
    pub threads: usize,
    /// Where the weights come from.
    pub start: Start,
    /// Where weights lie that a checkpoint doesn't hold.
    pub places: Places,
    /// What is trained on.
    pub data: Box<dyn Batches>,
    /// The learning rate of every step, and how many there are.
    pub rate: LearningRate,
    /// When it logs, evaluates, samples and saves.
    pub every: Every,
    /// Rules for the checkpoints that stay, and for its end by the held-out loss.
    pub retention: Retention,
    /// Whether a step that f16 skips is made again to tell which op's output isn't finite.
    pub explains_skips: bool,
    /// Whether the host has room for a copy of what this rank writes of a checkpoint, from which it's written while training goes on.
    pub room_beside: bool,
    /// Bytes of a copy of what all ranks hold, where the host has room for it: for ranks that don't see the run's directory.
    #[cfg(not(target_family = "wasm"))]
    pub room_for_all: Option<u64>,
    /// What a checkpoint says of the settings and the model.
    pub described: Described,
    /// Ids that end a text besides the tokenizer's own: those that the model's files name.
    pub ends: Vec<u32>,
    /// The way to the ranks that it trains with, which have the same settings and data. One that is asked to stop stops all of them
    /// before their next step.
    #[cfg(not(target_family = "wasm"))]
    pub ranks: Option<Box<dyn Ranks>>,
}

impl<'a> Parts<'a> {
    /// A run of a model and data of one's own, from the seed on, that saves at its end. Where the device is lost, the run
    /// ends; [`Parts::reopen`] can open another.
    pub fn new(
        planned: Planned,
        device: Box<dyn Backend>,
        data: impl Batches + 'static,
        rate: LearningRate,
    ) -> Self {
        let kind = device.kind();
        let gone = move || -> Result<Box<dyn Backend>> {
            let message = anyhow!("the {} is gone", kind.name());
            Err(Error::failed(message, "resume the run once the device answers again"))
        };
        Self {
            planned,
            device,
            reopen: Box::new(move || Box::pin(std::future::ready(gone()))),
            threads: 0,
            start: Start::Seed,
            places: Places::default(),
            data: Box::new(data),
            rate,
            every: Every { log: 1, ..Every::default() },
            retention: Retention::default(),
            explains_skips: false,
            room_beside: false,
            #[cfg(not(target_family = "wasm"))]
            room_for_all: None,
            described: Described::default(),
            ends: vec![],
            #[cfg(not(target_family = "wasm"))]
            ranks: None,
        }
    }

    /// Goes on from the newest complete checkpoint in the run directory `dir`, where there is one.
    ///
    /// # Errors
    /// Checkpoints of which none can be read, and one of another seed or other data.
    #[cfg(not(target_family = "wasm"))]
    pub fn resume(self, dir: &Path) -> Result<Self> {
        if list(dir).help("check the run directory")?.is_empty() {
            return Ok(self);
        }
        let (found, _) = latest_complete(dir).help("name another run, or start a new one")?;
        continues::check(&found, self.planned.config().seed, &*self.data)?;
        Ok(Self { start: Start::Own(Box::new(found), None), ..self })
    }
}
