//! `tightrope train`: a run from its settings to its last checkpoint.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use serde_json::json;
use tightrope::core::{Backend, Cancel};
use tightrope::data::{Best, Evaluations, Tokenizer};
use tightrope::devices::{Devices, Spec};
use tightrope::machine::{Load, resident, resident_peak};
use tightrope::model::{self, Unit};
use tightrope::nn::{Precision, Rates};
use tightrope::profile::{self, Profile};
use tightrope::ranks::{Together, refuse_alone};
use tightrope::rates::{Known, Store};
use tightrope::recipe::{Planned, Recipe};
use tightrope::run::{Batches, Ended, Evaluation, Run, Stepped, describe_ranks, directory};
use tightrope::settings::Command;
use tightrope::units::{human_bytes, plural};
use tightrope::view::brief::brief;
use tightrope::view::outlook::Outlook;
use tightrope::view::step::{ShownProgram, programs};
use tightrope::view::trace::trace;

use super::plan::write;
use crate::args::Train;
use crate::failure::Failure;
use crate::output::{note, print_json_to, print_to};
use crate::progress::{Progress, Readings, StepInfo};
use crate::signals::Interrupt;

/// Trains, then prints the held-out loss and a sample; with `--json`, one object at the end.
///
/// # Errors
/// Wrong settings, data or files; a step that doesn't fit; a loss that isn't finite; a full disk.
/// [`Failure::Interrupted`] after SIGINT or SIGTERM.
pub fn run(args: &Train) -> Result<(), Failure> {
    let interrupt = Interrupt::default();
    let together = Together::connect(&args.settings.said(Command::Train)?.0)?;
    // Each rank says whom it has ignored.
    together.iter().filter_map(|together| together.note.as_ref()).for_each(|said| note(said));
    // Of several ranks, one speaks.
    let speaks = together.as_ref().is_none_or(Together::is_first);
    let progress = |steps, done| match args.quiet || !speaks {
        true => Progress::silent(steps),
        false => Progress::new(steps, done, args.json),
    };
    let mut devices = Devices::default();
    let mut open = |spec: &Spec| {
        let device = devices.open(spec);
        let notes = devices.notes.drain(..);
        notes.filter(|_| speaks).for_each(|said| note(&said));
        device
    };
    let store = Store::of_user();
    let (mut stdout, mut nowhere) = (io::stdout().lock(), io::sink());
    let world = World {
        open: &mut open,
        rates: &|device, precision, threads| store.measured(device, precision, threads),
        compare: &|device, precision, seconds, waited| {
            store.compare(device, precision, seconds, waited)
        },
        listen: &|| interrupt.listen(),
        cancel: interrupt.cancel(),
        progress: &progress,
        out: if speaks { &mut stdout } else { &mut nowhere },
        together,
    };
    train(args, world)
}

/// Opens a device.
type Open<'a> = &'a mut dyn FnMut(&Spec) -> tightrope::Result<Box<dyn Backend>>;

/// Compares predicted and measured seconds of a step, given the part of the time that the run waited for a processor.
type Compare<'a> = &'a dyn Fn(&dyn Backend, Precision, (f64, f64), Option<f64>) -> Option<String>;

/// What a run meets.
struct World<'a> {
    /// Opens devices.
    open: Open<'a>,
    /// The rates of a device.
    rates: &'a dyn Fn(&mut dyn Backend, Precision, usize) -> Known,
    /// Returns a note for the user if the two differ too much.
    compare: Compare<'a>,
    /// Asks for signals. Until then they end the process, which has nothing to lose before the run begins.
    listen: &'a dyn Fn() -> anyhow::Result<()>,
    /// Ends the run once it's requested.
    cancel: Cancel,
    /// Shows the progress of so many steps, of which so many are done.
    progress: &'a dyn Fn(u64, u64) -> Progress,
    /// Where results go.
    out: &'a mut dyn Write,
    /// The ranks that train with this one.
    together: Option<Together>,
}

/// As [`run`], in this world.
fn train(args: &Train, world: World<'_>) -> Result<(), Failure> {
    let World { open, rates, compare, listen, cancel, progress, out, mut together } = world;
    let (mut said, own_notes) = args.settings.said(Command::Train)?;
    match &together {
        Some(together) => together.describe(&mut said)?,
        None => refuse_alone(&said)?,
    }
    let mut recipe = match &args.resume {
        None if args.auto_resume => Recipe::new_or_resumed(&said)?,
        None => Recipe::new(&said)?,
        Some(named) => Recipe::resume(&said, named.as_deref())?,
    };
    if let Some(together) = &mut together {
        together.agree(&recipe)?;
    }
    let device = open(&recipe.step.device)?;
    if let Some(together) = &mut together {
        together.agree_on_overlap(&mut recipe, &*device)?;
    }
    let mut planned = recipe.plan(device)?;
    let threads = planned.recipe.step.scope.threads;
    let known = rates(&mut *planned.device, planned.step.config().precision, threads);
    let predicted_step_s = planned.step.estimate(&known.rates).step_s;
    let predicted = planned.step.plan.peak_bytes();
    let checkpoint_copy = planned.checkpoint_copy();
    let table = brief(&planned, &known);
    let mut notes = planned.recipe.notes.clone();
    notes.extend(own_notes);
    notes.extend(Outlook::new(&planned, &known.rates)?.map(|outlook| outlook.text()));
    let steps = planned.recipe.step.rate.steps;
    let mut profiling = Profiling::asked(args, &mut planned, &known.rates)?;
    let resident_start = resident();
    let writes = together.as_ref().is_none_or(Together::is_first);
    let is_alone = together.is_none();
    if let Some(mut together) = together {
        together.agree_on_plan(&planned)?;
        notes.extend(together.link(&mut *planned.device)?);
        planned.ranks = Some(together.into_ranks());
    }
    let started = planned.start(open)?;
    listen()?;
    let (mut run, dir) = match writes {
        true => started.begin()?,
        false => (started.alone(), PathBuf::new()),
    };
    if let Some(profiling) = profiling.as_ref().filter(|_| writes) {
        profiling.write(&dir)?;
    }
    if profiling.is_some() {
        run.keep_waits()?;
    }
    let config = run.config().clone();
    let (unit, scored) = (Unit::of(&config), Unit::scored(&config));
    let progress = Rc::new(RefCell::new(progress(steps, run.done().steps)));
    for note in &notes {
        progress.borrow_mut().note(&format!("note: {note}"));
    }
    progress.borrow_mut().note(&format!("{table}\n{:<11}{}", "run", dir.display()));
    run.cancel_by(cancel);
    let shown = Rc::clone(&progress);
    run.tell_by(move |words| shown.borrow_mut().note(words));
    let load = Load::now();
    for stepped in &mut run {
        show(&mut progress.borrow_mut(), &stepped?, [unit, scored]);
    }
    progress.borrow_mut().finish();
    let waited = load.waited();
    run.take_notes().iter().for_each(|note| progress.borrow_mut().note(note));
    let summary = run.summary().clone();
    if run.ended() == Some(Ended::Interrupted) {
        let done = summary.done.steps;
        progress.borrow_mut().note(&format!(
            "stopped after step {done} of {steps}; its checkpoint is written\n\
             continue with: tightrope train --resume {}",
            dir.display()
        ));
        return interrupted(args, out, &dir, done);
    }
    if run.ended() == Some(Ended::OutOfPatience) {
        progress.borrow_mut().note(&stopped_early(&run, &dir));
    }
    let (evaluation, sample) = run.finish()?;
    run.take_notes().iter().for_each(|note| progress.borrow_mut().note(note));
    if run.ended() == Some(Ended::Interrupted) {
        progress.borrow_mut().note(&format!(
            "stopped after {} of {steps} steps, before the held-out data was scored; the checkpoint is written\n\
             score it with: tightrope eval {}",
            summary.done.steps,
            dir.display()
        ));
        return interrupted(args, out, &dir, summary.done.steps);
    }
    let step_s = summary.times.median();
    if let Some(step_s) = step_s {
        progress.borrow_mut().note(&format!(
            "a step took {step_s:.4} s (median), and {predicted_step_s:.4} s were predicted"
        ));
        // Ranks wait for each other too.
        let device = run.backend().filter(|_| is_alone);
        let seconds = (predicted_step_s, step_s);
        let note = device.and_then(|device| compare(device, config.precision, seconds, waited));
        note.iter().for_each(|note| progress.borrow_mut().note(&format!("note: {note}")));
    }
    let ranks = run.rank_times();
    if let Some(line) = describe_ranks(&ranks) {
        progress.borrow_mut().note(&line);
    }
    if let Some(profiling) = &mut profiling {
        let profile = &mut profiling.profile;
        (profile.step_s, profile.ranks) = (step_s, run.rank_steps()?);
        progress.borrow_mut().note(profile.text().trim_end());
        // What others would write is in this one's.
        if writes {
            profiling.write(&dir)?;
        }
    }
    let best = run.evaluations().and_then(|it| it.best).zip(run.best_checkpoint());
    let outside = run.backend().and_then(Backend::outside_bytes);
    if let Some(bytes) = outside {
        progress.borrow_mut().note(&format!(
            "besides the plan, the device takes {} for its context and its kernels' code",
            human_bytes(bytes)
        ));
    }
    if args.json {
        let mut object = json!({
            "steps": summary.done.steps,
            "tokens": summary.done.tokens,
            "first_loss": summary.first_loss,
            "last_loss": summary.last_loss,
            "step_s": step_s,
            "predicted_step_s": predicted_step_s,
            "rates": known.source.name(),
            "waited_for_processor": waited,
            "tokens_per_s": summary.speeds.median(),
            "heldout_loss": evaluation.as_ref().map(|evaluation| evaluation.loss),
            "heldout_tokens": evaluation.as_ref().map(|evaluation| evaluation.tokens),
            "predicted_peak_bytes": predicted,
            "checkpoint_copy_bytes": checkpoint_copy,
            "measured_peak_bytes": run.allocated_bytes(),
            "outside_bytes": outside,
            "resident_start_bytes": resident_start,
            "resident_peak_bytes": resident_peak(),
            "parameters": model::parameters(&config),
            "trained_parameters": model::trained(&config),
            "skipped_steps": summary.skipped,
            "stopped_early": run.ended() == Some(Ended::OutOfPatience),
            "best": best.as_ref().map(|(best, path)| json!({
                "step": best.step,
                "heldout_loss": best.loss,
                "checkpoint": path,
            })),
            "profile": profiling.map(|_| dir.join(profile::FILE)),
            "run": dir,
        });
        if !ranks.is_empty() {
            object["ranks"] = json!(ranks);
        }
        for (name, value) in &summary.last_metrics {
            object[name] = json!(value);
        }
        for (name, value) in evaluation.iter().flat_map(|evaluation| &evaluation.metrics) {
            object[format!("heldout_{name}")] = json!(value);
        }
        print_json_to(out, &object)
    } else {
        let mut text = ending(&dir, scored, evaluation.as_ref(), sample.as_deref(), run.data());
        if let Some((Best { step, loss }, path)) = best {
            let (path, dir) = (path.display(), dir.display());
            let _ = writeln!(
                text,
                "the lowest held-out loss was {loss:.4}, of step {step}, which is kept as `{path}`: tightrope generate {dir} --best"
            );
        }
        print_to(out, &text)
    }
}

/// Reason that a run ended before its last step, or that one which had ended so doesn't go on.
fn stopped_early(run: &Run<'_>, dir: &Path) -> String {
    let (summary, steps) = (run.summary(), run.steps());
    let Evaluations { best, since, .. } = run.evaluations().copied().unwrap_or_default();
    let lowest = match best {
        Some(Best { step, loss }) => format!("below the {loss:.4} of step {step}"),
        None => "that is finite".to_owned(),
    };
    let (done, dir) = (summary.done.steps, dir.display());
    let had = if summary.last_loss.is_some() { "stopped" } else { "the run had stopped" };
    let evaluations = plural(since as usize, "evaluation", "evaluations");
    format!(
        "{had} early after step {done} of {steps}: {evaluations} in a row had no held-out loss {lowest}\n\
         go on with: tightrope train --resume {dir} --patience {}, or 0 for no end before the last step",
        2 * since
    )
}

/// The end of a run that was asked to stop, after `steps`.
fn interrupted(args: &Train, out: &mut dyn Write, dir: &Path, steps: u64) -> Result<(), Failure> {
    if args.json {
        let object = json!({ "interrupted": true, "steps": steps, "run": dir, "exit_code": 130 });
        print_json_to(out, &object)?;
    }
    Err(Failure::Interrupted)
}

/// The figure of models that tell classes apart.
const ACCURACY: &str = "accuracy";

/// Shows a step, and what came of it besides. It reads so many of one unit, and its loss is a mean over the other.
fn show(progress: &mut Progress, stepped: &Stepped, [unit, scored]: [Unit; 2]) {
    for note in &stepped.notes {
        progress.note(note);
    }
    let readings = Readings {
        loss: stepped.loss.into(),
        accuracy: stepped.metrics.get(ACCURACY).copied(),
        grad_norm: stepped.grad_norm.into(),
    };
    progress.step(&StepInfo {
        step: stepped.step,
        readings: stepped.logged.then_some(readings),
        lr: stepped.lr,
        tokens: stepped.step_tokens,
        unit: unit.short,
        memory: stepped.allocated_bytes,
    });
    if let Some(evaluation) = &stepped.evaluation {
        let Evaluation { loss, tokens, metrics } = evaluation;
        let (step, many) = (stepped.step, scored.many);
        let accuracy =
            metrics.get(ACCURACY).map(|share| format!(", accuracy {:.1}%", 100.0 * share));
        let accuracy = accuracy.unwrap_or_default();
        progress.note(&format!("step {step}: held-out loss {loss:.4}{accuracy} ({tokens} {many})"));
    }
}

/// `--profile` and `--perfetto`: the ops of the step one by one, before the run.
struct Profiling {
    profile: Profile,
    programs: Vec<ShownProgram>,
    trace: Option<PathBuf>,
}

impl Profiling {
    /// Measures, where the command asks for it. The device's plan is gone after that.
    fn asked(args: &Train, planned: &mut Planned, rates: &Rates) -> Result<Option<Self>, Failure> {
        if !args.profile && args.perfetto.is_none() {
            return Ok(None);
        }
        let Planned { step, device, .. } = planned;
        let profile = Profile::measure(step, rates, &mut **device)?;
        let programs = programs(&step.plan, step.config().accumulation(), rates);
        Ok(Some(Self { profile, programs, trace: args.perfetto.clone() }))
    }

    /// Writes what is known so far: `profile.json` in the run's directory, and the trace.
    fn write(&self, dir: &Path) -> Result<(), Failure> {
        directory::write(&dir.join(profile::FILE), json!(self.profile).to_string().as_bytes())?;
        self.trace.as_deref().map_or(Ok(()), |file| {
            write(file, &trace(&self.programs, Some(&self.profile)).to_string())
        })
    }
}

/// What a run ends with on the terminal.
fn ending(
    dir: &Path,
    unit: Unit,
    evaluation: Option<&Evaluation>,
    sample: Option<&str>,
    data: &dyn Batches,
) -> String {
    let mut text = String::new();
    if let Some(evaluation) = evaluation {
        let Evaluation { loss, tokens, metrics } = evaluation;
        let Unit { one, many, .. } = unit;
        let _ = write!(text, "held-out loss {loss:.4} nats per {one} over {tokens} {many}");
        let _ = match data.tokenizer() {
            _ if unit != Unit::TOKEN => {
                let figure = |(name, value): (&String, &f64)| {
                    format!(", {} {}", model::words(name), model::figure(name, *value))
                };
                writeln!(text, "{}", metrics.iter().map(figure).collect::<String>())
            }
            Some(Tokenizer::Byte) => {
                writeln!(text, " ({:.3} bits per byte)", evaluation.bits())
            }
            _ => writeln!(text, " (perplexity {:.2})", evaluation.perplexity()),
        };
    }
    // An encoder of text has no sample.
    if unit != Unit::TOKEN || (sample.is_none() && data.tokenizer().is_some()) {
        let _ = writeln!(text, "score it again with: tightrope eval {}", dir.display());
        return text;
    }
    match sample {
        Some(sample) => {
            let _ = write!(text, "\nsample:\n{}\n\n", sample.trim_matches('\n'));
        }
        None => text += "no sample: the data is token ids, and no tokenizer was named\n",
    }
    let _ = writeln!(text, "more with: tightrope generate {}", dir.display());
    text
}

#[cfg(test)]
mod tests;
