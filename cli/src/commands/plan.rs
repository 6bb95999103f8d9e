//! `tightrope plan`: what training would take, from the plan alone. Nothing runs, and no tensor is
//! allocated.

use std::path::Path;
use std::time::Instant;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Value, json};
use tightrope::cards::Card;
use tightrope::core::Backend;
use tightrope::data::files;
use tightrope::devices::Devices;
use tightrope::error::Kind;
use tightrope::nn::Planned;
use tightrope::plan;
use tightrope::plan::scale::{GPUS, Scale};
use tightrope::plan::stages::Stages;
use tightrope::plan::techniques::Techniques;
use tightrope::profile::Profile;
use tightrope::recipe::Step;
use tightrope::settings::Command;
use tightrope::view::advice::{Advice, Subject};
use tightrope::view::summary::Summary;
use tightrope::view::sweep::Sweep;
use tightrope::view::{page, ranks, scale, step, techniques, trace};

use crate::args::Plan;
use crate::failure::Failure;
use crate::output;

/// Columns where stdout is no terminal, and at most.
const WIDTHS: (usize, usize) = (80, 160);

/// Plans the training step and prints what it would take. Where no plan fits, that is the smallest, before the error.
///
/// # Errors
/// Wrong settings, a step that doesn't fit the memory, and a file that can't be written.
pub fn run(args: &Plan) -> Result<(), Failure> {
    let card = args.gpu.as_deref().map(Card::named).transpose()?;
    let asked = super::asked(&args.settings, Command::Plan, card)?;
    let Step { config, scope, .. } = &asked;
    let profile = args.measured.as_deref().map(Profile::read).transpose()?;
    let mut devices = Devices::default();
    let device = devices.open(&asked.device)?;
    devices.notes.iter().for_each(|note| output::note(note));
    let swept = || {
        let rates = scope.rates.known(&*device, config.precision, scope.threads).rates;
        Sweep::new(scope, config, &*device, &rates)
    };
    if args.sweep {
        let sweep = swept()?;
        return if args.json {
            output::print_json(&sweep.json())
        } else {
            output::print(&sweep.text())
        };
    }
    if args.techniques {
        let found = Techniques::new(scope, config, &*device)?;
        return if args.json {
            output::print_json(&techniques::json(&found))
        } else {
            output::print(&techniques::text(&found))
        };
    }
    if args.scale {
        let found = Scale::new(scope, config, &*device, &GPUS, &mut planned_shown())?;
        return if args.json {
            output::print_json(&scale::json(&found))
        } else {
            output::print(&scale::text(&found, config))
        };
    }
    let start = Instant::now();
    let (planned, refusal) = fitting_or_smallest(&asked, &*device)?;
    let plan_s = start.elapsed().as_secs_f64();
    if let Some(profile) = &profile {
        profile.check(&planned.plan)?;
    }
    let known = scope.rates.known(&*device, planned.config().precision, scope.threads);
    let budget = plan::budget(scope, &*device);
    let summary = Summary::new(&planned, &*device, known, budget, plan_s);
    let programs = step::programs(&planned.plan, planned.config().accumulation(), &known.rates);
    if let Some(file) = &args.perfetto {
        write(file, &trace::trace(&programs, profile.as_ref()).to_string())?;
    }
    if let Some(file) = &args.html {
        write(file, &page::page(&summary, &programs, &swept()?, profile.as_ref()))?;
    }
    let (planned, device, rates) = (&planned, &*device, &known.rates);
    let subject = Subject { config, scope, planned, budget, device, rates };
    let cut = scope.shard && config.ranks > 1;
    let stages = || cut.then(|| Stages::new(scope, config, device));
    let advice = || match args.advice {
        true => Some(Advice::new(&subject)),
        false => Advice::soon(&subject),
    };
    if args.json {
        if let Some(refusal) = refusal {
            return Err(refusal.with_detail("smallest", summary.json()).into());
        }
        let mut object = summary.json();
        if let Some(stages) = stages() {
            object["stages"] = ranks::stages_json(&stages);
        }
        object["advice"] = advice().map_or(Value::Null, |advice| advice.json());
        if let Some(profile) = &profile {
            object["measured"] = json!(profile);
        }
        return output::print_json(&object);
    }
    let width = terminal_size::terminal_size().map_or(WIDTHS.0, |(width, _)| width.0.into());
    let mut text = summary.text(width.min(WIDTHS.1));
    if let Some(profile) = &profile {
        text += &format!("\nmeasured on {}\n{}", profile.device, profile.text());
    }
    if let Some(refusal) = refusal {
        output::print(&format!("no plan fits; this is the smallest\n\n{text}\n"))?;
        return Err(refusal.into());
    }
    // It's there to be read while a few more plans are made.
    output::print(&text)?;
    if let Some(stages) = stages() {
        output::print(&ranks::stages_text(&stages))?;
    }
    match advice() {
        Some(advice) => output::print(&advice.text(planned, summary.estimate.step_s)),
        None => output::print(
            "\nwhat memory buys takes some thirty plans to say: `--advice` makes them\n",
        ),
    }
}

/// Shows on a terminal how many of how many plans are made.
fn planned_shown() -> impl FnMut(usize, usize) {
    const TEMPLATE: &str = "{percent:>3}% {pos}/{len} numbers of GPUs planned";
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
        bar.set_style(style);
    }
    move |done, all| {
        bar.set_length(all as u64);
        bar.set_position(done as u64);
        if done == all {
            bar.finish_and_clear();
        }
    }
}

/// The plan that is asked for; where none fits, the smallest and what refuses it.
fn fitting_or_smallest(
    asked: &Step,
    device: &dyn Backend,
) -> Result<(Planned, Option<tightrope::Error>), Failure> {
    let Step { config, scope, .. } = asked;
    match asked.plan(device) {
        Err(refusal) if refusal.kind() == Kind::DoesNotFit && scope.plan.is_none() => {
            let budget = plan::budget(scope, device).unwrap_or(u64::MAX);
            let smallest = plan::closest(scope, config, budget, device)?.planned;
            Ok((smallest, Some(refusal)))
        }
        planned => Ok((planned?, None)),
    }
}

/// Writes a file that a flag names.
///
/// # Errors
/// When it can't be written.
pub fn write(file: &Path, text: &str) -> Result<(), Failure> {
    files::write(file, text).map_err(|error| Failure::Output {
        error: anyhow::Error::new(error).context(format!("can't write `{}`", file.display())),
        help: Some("name a file in a folder that can be written"),
    })
}
