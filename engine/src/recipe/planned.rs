//! A recipe with its plan: what a run is started from.

#[cfg(not(target_family = "wasm"))]
use std::path::PathBuf;

#[cfg(not(target_family = "wasm"))]
use anyhow::anyhow;
use serde_json::{Value, json};
use tightrope_core::Backend;
#[cfg(not(target_family = "wasm"))]
use tightrope_core::Ranks;
use tightrope_nn::{self as nn, Architecture, TrainerConfig};
#[cfg(not(target_family = "wasm"))]
use tightrope_ranks::Launched;

use super::{OPS, Recipe};
#[cfg(not(target_family = "wasm"))]
use crate::check;
#[cfg(not(target_family = "wasm"))]
use crate::devices::Spec;
#[cfg(not(target_family = "wasm"))]
use crate::error::Error;
use crate::error::{Help as _, Result};
#[cfg(not(target_family = "wasm"))]
use crate::plan::room_for_copy;
use crate::plan::{Choices, MadeFor, checkpoint_copy, free, planned_now};
use crate::run::{Described, Parts, Reopen};
#[cfg(not(target_family = "wasm"))]
use crate::run::{Home, Opening, Run, directory};
use crate::settings::{MicroBatch, Recompute, Settings};
use crate::units::json_text;
use crate::weights::{Source, companions};

/// A recipe with its plan, and what it was chosen from.
pub struct Planned {
    /// The recipe.
    pub recipe: Recipe,
    /// The planned step.
    pub step: nn::Planned,
    /// The device that it was planned for.
    pub device: Box<dyn Backend>,
    /// The way to the ranks that it trains with.
    #[cfg(not(target_family = "wasm"))]
    pub ranks: Option<Box<dyn Ranks>>,
}

impl Planned {
    /// On a device whose kernels are right for it, or on another.
    #[cfg(not(target_family = "wasm"))]
    pub(super) fn of(mut recipe: Recipe, mut device: Box<dyn Backend>) -> Result<Self> {
        let mut notes = vec![];
        let step = check::planned(&recipe.step.device, &mut device, &mut |device| {
            let planned;
            (planned, notes) = Self::now(&recipe, device)?;
            Ok(planned)
        })?;
        recipe.notes.extend(notes);
        Ok(Self::with(recipe, step, device))
    }

    #[cfg(target_family = "wasm")]
    pub(super) fn of(mut recipe: Recipe, device: Box<dyn Backend>) -> Result<Self> {
        let (step, notes) = Self::now(&recipe, &*device)?;
        recipe.notes.extend(notes);
        Ok(Self::with(recipe, step, device))
    }

    fn now(recipe: &Recipe, device: &dyn Backend) -> Result<(nn::Planned, Vec<String>)> {
        let (scope, config) = (&recipe.step.scope, &recipe.step.config);
        planned_now(scope, config, recipe.own.as_ref(), free(device), device)
    }

    pub(super) fn with(mut recipe: Recipe, step: nn::Planned, device: Box<dyn Backend>) -> Self {
        chosen(&mut recipe.record, step.config());
        Self {
            recipe,
            step,
            device,
            #[cfg(not(target_family = "wasm"))]
            ranks: None,
        }
    }

    /// The plan's report, and the choices that made it: `plan.json` of a run.
    ///
    /// # Errors
    /// None that is known: a report is numbers and names.
    pub fn json(&self) -> Result<Value> {
        let config = self.step.config();
        let mut value = serde_json::to_value(self.step.plan.report())
            .help("the plan doesn't fit JSON: report it")?;
        value["budget_bytes"] = json!(self.recipe.step.scope.budget);
        value["made_for"] = json!(MadeFor::of(config, self.device.kind()));
        value["choices"] = json!(Choices::of(config));
        value["checkpoint_copy_bytes"] = json!(self.checkpoint_copy());
        Ok(value)
    }

    /// Bytes of the host's memory for a copy, of what this rank writes, that checkpoints are written from while training goes on; `None` where there's no
    /// room for it, or nothing to save on the way.
    pub fn checkpoint_copy(&self) -> Option<u64> {
        let saves = self.recipe.every.save > 0 || self.recipe.retention.best;
        saves.then(|| checkpoint_copy(&self.recipe.step.scope, &self.step, &*self.device))?
    }

    /// What the run is started from, where `reopen` opens a device in place of one that was lost.
    ///
    /// # Errors
    /// Settings that can't be written: a path that isn't valid Unicode.
    pub fn parts(self, reopen: Reopen<'_>) -> Result<Parts<'_>> {
        let room_beside = self.checkpoint_copy().is_some();
        #[cfg(not(target_family = "wasm"))]
        let room_for_all = {
            let all = self.step.checkpoint_bytes();
            room_for_copy(&self.recipe.step.scope, &self.step, &*self.device, all).then_some(all)
        };
        let Self { recipe, step, device, .. } = self;
        let model = Architecture::of(&*step.config().model);
        let source = recipe.start.source();
        let mut files = source.map(Source::companions).transpose()?.unwrap_or_default();
        let ends = source.map(Source::generation).transpose()?.unwrap_or_default();
        companions::keep_tokenizer_of(&mut files, &recipe.data.files());
        if let Some(model) = &model {
            let original = source.map(Source::config_file).transpose()?.flatten();
            let text = json_text(&companions::config(original.as_ref(), model))?;
            files.insert("config.json".to_owned(), text);
        }
        let described = Described {
            settings: recipe.record.to_json(|setting| !setting.passing)?,
            model: match (&model, step.config().model.ops()) {
                (None, ops) if !ops.is_empty() => json!({ OPS: ops }),
                _ => serde_json::to_value(model).help("the model doesn't fit JSON: report it")?,
            },
            files: files.into_iter().collect(),
        };
        Ok(Parts {
            planned: step,
            device,
            reopen,
            threads: recipe.step.scope.threads,
            start: recipe.start,
            places: recipe.places,
            data: recipe.data,
            rate: recipe.step.rate,
            every: recipe.every,
            retention: recipe.retention,
            explains_skips: recipe.record.run.detect_anomaly,
            room_beside,
            #[cfg(not(target_family = "wasm"))]
            room_for_all,
            described,
            ends: ends.ends,
            #[cfg(not(target_family = "wasm"))]
            ranks: self.ranks,
        })
    }

    /// Starts the run: allocates and fills the plan. Where the device is lost, `devices` opens it again. Nothing is written
    /// before `Started::begin`.
    ///
    /// # Errors
    /// Weights that don't fit, a failure of the device, and a process of a multi-process launch that isn't connected to the others.
    #[cfg(not(target_family = "wasm"))]
    pub fn start<'a>(
        mut self,
        mut devices: impl FnMut(&Spec) -> Result<Box<dyn Backend>> + 'a,
    ) -> Result<Started<'a>> {
        if self.ranks.is_none() {
            refuse_unconnected_rank(&self.recipe.record)?;
        }
        let plan = self.json()?;
        let spec = self.recipe.step.device.clone();
        let record = self.recipe.record.clone();
        let (out, resumes) = (self.recipe.out.take(), self.recipe.resumes.take());
        let texts = std::mem::take(&mut self.recipe.texts);
        let reopen = Box::new(move || Box::pin(std::future::ready(devices(&spec))) as Opening<'a>);
        let run = Run::start(self.parts(reopen)?)?;
        Ok(Started { run, record, plan, out, resumes, texts })
    }
}

/// Refuses a process that was launched as one of several and isn't connected with the others: each would train the same model by itself.
/// `run.ranks = 1` says that it is to train its own.
#[cfg(not(target_family = "wasm"))]
fn refuse_unconnected_rank(settings: &Settings) -> Result<()> {
    let launched = Launched::from_env().help("launch every process alike")?;
    let trains_its_own = settings.is_said("run.ranks") && settings.run.ranks == 1;
    match launched.filter(|launched| launched.count > 1 && !trains_its_own) {
        None => Ok(()),
        Some(Launched { rank, count, .. }) => Err(Error::usage(
            anyhow!(
                "this process was launched as rank {rank} of {count}, and would train by itself"
            ),
            "train together by `tightrope train`, or say run.ranks = 1 where each process is to train a model of its own",
        )),
    }
}

/// A run that is ready to train, and has no directory yet: nothing is left to refuse, so that a mistake leaves no
/// directory behind, and a run as it was.
#[cfg(not(target_family = "wasm"))]
pub struct Started<'a> {
    run: Run<'a>,
    record: Settings,
    plan: Value,
    out: Option<PathBuf>,
    resumes: Option<PathBuf>,
    texts: Vec<(String, Vec<u8>)>,
}

#[cfg(not(target_family = "wasm"))]
impl<'a> Started<'a> {
    /// The run without a directory: it writes nothing unless it's told where.
    pub fn alone(self) -> Run<'a> {
        self.run
    }

    /// Makes the directory of a new run, which begins with a copy of the checkpoint it goes on from and of the text that
    /// it brought along, or takes up that of a run that goes on. Writes `run.toml` and `plan.json`, and records the run there.
    ///
    /// # Errors
    /// A directory that can't be written, or that another process trains in.
    pub fn begin(self) -> Result<(Run<'a>, PathBuf)> {
        let Self { mut run, mut record, plan, out, resumes, texts } = self;
        let new = resumes.is_none();
        let dir = match resumes {
            Some(dir) => dir,
            None => directory::create(out.as_deref())?,
        };
        let mut home = if new { Home::take_new(&dir)? } else { Home::take(&dir)? };
        if let Some(checkpoint) = run.continues().filter(|_| new) {
            for (name, text) in texts {
                let file = dir.join(directory::DATA).join(name);
                directory::write(&file, &text)?;
                record.data.files.push(file);
            }
            const NEXT: &str = "free some space, or give --out a directory on another disk";
            tightrope_data::checkpoint::unpack(checkpoint, &dir).help(NEXT)?;
        }
        home.describe(record, plan)?;
        home.set_failed(false);
        run.settle(home)?;
        Ok((run, dir))
    }
}

/// Writes the planner's choices into the settings: a run that is repeated or resumed from them makes the same ones,
/// whatever memory is free then.
fn chosen(settings: &mut Settings, config: &TrainerConfig) {
    // The run's own plan.json says the same.
    settings.memory.plan = None;
    let TrainerConfig { micro_batch, precision, options, .. } = config;
    // A run goes on with any number of ranks.
    (settings.run.ranks, settings.run.context_ranks) = (1, 1);
    settings.train.micro_batch = MicroBatch::Size(*micro_batch);
    settings.memory.gradients = config.gradients;
    settings.memory.master = config.master;
    settings.memory.optimizer_bits = config.optimizer_bits;
    settings.memory.table_bits = config.table_bits;
    settings.run.precision = settings.run.precision.stored_in(*precision);
    if let Some(recompute) = Recompute::of(&options.checkpoint) {
        settings.memory.recompute = recompute;
    }
}
