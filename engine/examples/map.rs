//! Two plans of one step, drawn side by side: everything kept, and the same step within a budget.
//!
//! `cargo run --release -p tightrope --example map > docs/plan.svg`

use std::error::Error;

use tightrope::devices::Devices;
use tightrope::plan::budget;
use tightrope::recipe::Step;
use tightrope::settings::Settings;
use tightrope::view::map::{Panel, svg};
use tightrope::view::step::{ShownPlan, programs};

const STEP: [&str; 4] = ["model.preset=gpt2", "train.batch=4", "run.device=cpu", "run.threads=2"];
const PANELS: [(&str, &[&str]); 2] = [
    ("everything kept", &["memory.budget=64GiB", "memory.recompute=none", "train.micro_batch=4"]),
    ("the same step in 2200 MiB", &["memory.budget=2200MiB"]),
];

/// The plan of the step with these settings, and what was chosen for it.
fn planned(words: &[&str]) -> Result<(ShownPlan, String), Box<dyn Error>> {
    let mut said = Settings::default();
    STEP.iter().chain(words).try_for_each(|words| said.read_argument(words))?;
    let step = Step::of(&said)?;
    let device = Devices::default().open(&step.device)?;
    let planned = step.plan(&*device)?;
    let (config, report) = (planned.config(), planned.plan.report());
    let rates = step.scope.rates.known(&*device, config.precision, step.scope.threads).rates;
    let programs = programs(&planned.plan, config.accumulation(), &rates);
    let seconds = planned.estimate(&rates).step_s;
    let chosen = format!(
        "micro-batch {} × {}, {} of {} ops recompute",
        config.micro_batch,
        config.accumulation(),
        report.recomputed,
        report.steps
    );
    let within = budget(&step.scope, &*device);
    Ok((ShownPlan::new(&planned.plan, &report, within, seconds, programs), chosen))
}

fn main() -> Result<(), Box<dyn Error>> {
    let plans = PANELS.map(|(title, words)| planned(words).map(|plan| (title, plan)));
    let plans = plans.into_iter().collect::<Result<Vec<_>, _>>()?;
    let panels = plans.iter().map(|(title, (plan, subtitle))| Panel { title, subtitle, plan });
    print!("{}", svg(&panels.collect::<Vec<_>>()));
    Ok(())
}
