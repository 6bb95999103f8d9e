//! `tightrope plan`: what training would take, from the plan alone. Nothing runs, and no tensor is
//! allocated.

mod advice;
mod alive;
mod chart;
mod layers;
mod page;
pub mod step;
mod summary;
mod sweep;
mod trace;

use std::fs;
use std::path::Path;
use std::time::Instant;

use crate::args::Plan;
use crate::error::{Failure, Help as _};
use crate::profile::Profile;
use crate::rates::Store;
use crate::{devices, output, setup};
use advice::{Advice, Subject};
use anyhow::Context as _;
use step::ShownProgram;
use summary::Summary;
pub use summary::copied_text;
use sweep::Sweep;

/// Columns where stdout is no terminal, and at most.
const WIDTHS: (usize, usize) = (80, 160);

/// Plans the training step and prints what it would take.
///
/// # Errors
/// Wrong settings, a step that doesn't fit the memory, and a file that can't be written.
pub fn run(args: &Plan) -> Result<(), Failure> {
    let settings = args.settings.load(None)?;
    let profile = args.measured.as_deref().map(Profile::read).transpose()?;
    let device = devices::device(&settings)?;
    let (threads, precision) = (setup::threads(&settings), settings.run.precision.storage());
    let swept = || {
        let rates = Store::of_user().known(&*device, precision, threads).rates;
        Sweep::new(&settings, &*device, &rates)
    };
    if args.sweep {
        let sweep = swept()?;
        return if args.json {
            output::print_json(&sweep.json())
        } else {
            output::print(&sweep.text())
        };
    }
    let start = Instant::now();
    let planned = setup::planned(&settings, &*device)?;
    let plan_s = start.elapsed().as_secs_f64();
    if let Some(profile) = &profile {
        profile.check(&planned.plan)?;
    }
    let known = Store::of_user().known(&*device, planned.config().precision, threads);
    let summary =
        Summary::new(&planned, &*device, known, setup::budget(&settings, &*device), plan_s);
    let programs = step::programs(&planned.plan, planned.config().accumulation(), &known.rates);
    if let Some(file) = &args.perfetto {
        write_trace(file, &programs, profile.as_ref())?;
    }
    if let Some(file) = &args.html {
        write(file, &page::page(&summary, &programs, &swept()?, profile.as_ref()))?;
    }
    let budget = summary.budget;
    let (planned, device, rates) = (&planned, &*device, &known.rates);
    let subject = Subject { settings: &settings, planned, budget, device, rates };
    if args.json {
        let mut object = summary.json();
        object["advice"] = Advice::new(&subject)?.json();
        return output::print_json(&object);
    }
    let width = terminal_size::terminal_size().map_or(WIDTHS.0, |(width, _)| width.0.into());
    let mut text = summary.text(width.min(WIDTHS.1));
    if let Some(profile) = &profile {
        text += &format!("\nmeasured on {}\n{}", profile.device, profile.text());
    }
    // It's there to be read while a few more plans are made.
    output::print(&text)?;
    output::print(&Advice::new(&subject)?.text(planned, summary.estimate.step_s))
}

/// Writes the trace of a step, measured beside predicted.
///
/// # Errors
/// When the file can't be written.
pub fn write_trace(
    file: &Path,
    programs: &[ShownProgram],
    profile: Option<&Profile>,
) -> Result<(), Failure> {
    write(file, &trace::trace(programs, profile).to_string())
}

fn write(file: &Path, text: &str) -> Result<(), Failure> {
    fs::write(file, text)
        .with_context(|| format!("can't write `{}`", file.display()))
        .help("name a file in a folder that can be written")
}

#[cfg(test)]
mod tests;
