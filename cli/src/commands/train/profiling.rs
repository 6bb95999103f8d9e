//! `tightrope train --profile` and `--perfetto`: the ops of the step one by one, before the run.

use std::path::{Path, PathBuf};

use anyhow::anyhow;
use serde_json::json;
use tightrope_core::Backend;
use tightrope_nn::{Planned, Rates};

use crate::args::Train;
use crate::commands::plan::step::{ShownProgram, programs};
use crate::commands::plan::write_trace;
use crate::error::Failure;
use crate::profile::{FILE, Profile};
use crate::run::directory;
use crate::setup;

/// What was measured, and where it goes.
pub struct Profiling {
    profile: Profile,
    programs: Vec<ShownProgram>,
    trace: Option<PathBuf>,
}

impl Profiling {
    /// Measures, where the command asks for it. The device's plan is gone after that.
    ///
    /// # Errors
    /// Those of the device.
    pub fn asked(
        args: &Train,
        planned: &Planned,
        rates: &Rates,
        device: &mut dyn Backend,
    ) -> Result<Option<Self>, Failure> {
        if !args.profile && args.perfetto.is_none() {
            return Ok(None);
        }
        let profile = Profile::measure(planned, rates, device)
            .map_err(|error| setup::train_failure(error.into()))?;
        let programs = programs(&planned.plan, planned.config().accumulation(), rates);
        Ok(Some(Self { profile, programs, trace: args.perfetto.clone() }))
    }

    /// Writes what is known so far: `profile.json` in the run's directory, and the trace. `step_s` is what a step of
    /// the run took.
    ///
    /// # Errors
    /// When a file can't be written.
    pub fn write(&mut self, dir: &Path, step_s: Option<f64>) -> Result<(), Failure> {
        self.profile.step_s = step_s;
        let text = serde_json::to_string(&json!(self.profile)).map_err(|error| {
            Failure::from(anyhow!(error).context("the profile doesn't fit JSON"))
        })?;
        directory::write(&dir.join(FILE), text.as_bytes())?;
        let trace = self.trace.as_deref();
        trace.map_or(Ok(()), |file| write_trace(file, &self.programs, Some(&self.profile)))
    }

    /// Measured beside predicted, in tables.
    pub fn text(&self) -> String {
        self.profile.text()
    }
}
