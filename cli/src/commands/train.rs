//! `tightrope train`: a run from its settings to its last checkpoint.

mod profiling;

use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::anyhow;
use pollster::block_on;
use serde_json::{Value, json};
use tightrope_core::Backend;
use tightrope_data::checkpoint;
use tightrope_nn::{ModelConfig, Planned, Precision, Recovering, TrainerConfig};

use super::plan::copied_text;
use crate::args::{SettingArgs, Train};
use crate::devices::{Devices, can_be_lost};
use crate::error::{Failure, Help as _};
use crate::metrics::MetricsFile;
use crate::progress::{Progress, human_bytes, human_count, human_time};
use crate::rates::{Known, Store};
use crate::run::corpus::{self, Data};
use crate::run::evaluate::{self, Evaluation};
use crate::run::figures::{resident, resident_peak};
use crate::run::origin::{Open, Origin, Start};
use crate::run::source::{self, RUN_SETTINGS, Source};
use crate::run::state::{self, Saved};
use crate::run::training::{Ended, Outputs, Training};
use crate::run::{directory, training};
use crate::settings::{MicroBatch, Recompute, Settings};
use crate::setup::plan_file::{Choices, MadeFor, PlanFile};
use crate::setup::start;
use crate::signals::Interrupt;
use crate::tensorboard::EventWriter;
use crate::{profile, setup};
use profiling::Profiling;

/// The file of a run with its plan.
const PLAN: &str = "plan.json";

/// Trains, then prints the held-out loss and a sample; with `--json`, one object at the end.
///
/// # Errors
/// Wrong settings, data or files; a step that doesn't fit; a loss that isn't finite; a full disk.
/// [`Failure::Interrupted`] after SIGINT or SIGTERM.
pub fn run(args: &Train) -> Result<(), Failure> {
    let interrupt = Interrupt::install()?;
    let progress = |steps, done| Progress::new(steps, done, args.json);
    let mut devices = Devices::default();
    let mut open = |settings: &Settings| devices.open(settings);
    let store = Store::of_user();
    let world = World {
        open: &mut open,
        rates: &|device, precision, threads| store.measured(device, precision, threads),
        stop: &mut || interrupt.requested(),
        progress: &progress,
        out: &mut io::stdout().lock(),
    };
    train(args, world)
}

/// What a run meets.
struct World<'a> {
    /// Opens devices.
    open: Open<'a>,
    /// The rates of a device.
    rates: &'a dyn Fn(&mut dyn Backend, Precision, usize) -> Known,
    /// Asked before every micro-batch whether to end.
    stop: &'a mut dyn FnMut() -> bool,
    /// Shows the progress of so many steps, of which so many are done.
    progress: &'a dyn Fn(u64, u64) -> Progress,
    /// Where results go.
    out: &'a mut dyn Write,
}

/// As [`run`], in this world.
fn train(args: &Train, world: World<'_>) -> Result<(), Failure> {
    let World { open, rates, stop, progress, out } = world;
    let prepared = prepare(args, open)?;
    let Prepared { resumed, mut settings, model, data, planned, start, notes, .. } = prepared;
    let mut device = prepared.device;
    let threads = setup::threads(&settings);
    let known = rates(&mut *device, planned.config().precision, threads);
    let predicted_step_s = planned.estimate(&known.rates).step_s;
    let predicted = planned.plan.peak_bytes();
    let table = table(&settings, &model, &data, &planned, &*device);
    let table = format!("{table}\n{}", estimated(predicted_step_s, steps_of(&settings), &known));
    let plan = plan_json(&settings, &planned, &device.name())?;
    let mut profiling = Profiling::asked(args, &planned, &known.rates, &mut *device)?;
    let resident_start = resident();
    let origin = Origin::new(&settings, start, &data, open);
    let copies = can_be_lost(&*device);
    let mut run = block_on(Recovering::start(origin, (device, planned), copies))?;
    let (config, done) = (run.config().clone(), run.done());
    run.origin.seek(&config, done)?;
    let base = run.origin.start.base(&settings)?;
    // Only now is nothing left to refuse: a mistake leaves no directory behind, and a run as it was.
    let dir = match resumed {
        Some(dir) => dir,
        None => begin(&mut settings, &run.origin.start)?,
    };
    settings.run.out = Some(dir.clone());
    settings
        .write(&dir.join(RUN_SETTINGS))
        .help("free some space, or give --out a directory that can be written")?;
    directory::write(&dir.join(PLAN), format!("{plan:#}\n").as_bytes())?;
    if let Some(profiling) = &mut profiling {
        profiling.write(&dir, None)?;
    }
    let steps = steps_of(&settings);
    let metrics = match done.steps {
        0 => MetricsFile::create(&dir)?,
        step => MetricsFile::resume(&dir, step)?,
    };
    let events = EventWriter::create(&dir)?;
    let mut progress = progress(steps, done.steps);
    for note in &notes {
        progress.note(&format!("note: {note}"));
    }
    progress.note(&format!("{table}\n{:<11}{}", "run", dir.display()));
    let saved = Saved { dir: &dir, settings: &settings, model: &model, data: &data, base };
    let mut outputs = Outputs { metrics, events, progress };
    let mut training = Training::new(saved, &mut run);
    let ended = training.train(&mut outputs, stop)?;
    let summary = training.summary();
    outputs.progress.finish();
    if ended == Ended::Interrupted {
        let done = summary.done.steps;
        outputs.progress.note(&format!(
            "stopped after step {done} of {steps}; its checkpoint is written\n\
             continue with: tightrope train --resume {}",
            dir.display()
        ));
        if args.json {
            let object =
                json!({ "interrupted": true, "steps": done, "run": dir, "exit_code": 130 });
            print(out, &format!("{object}\n"));
        }
        return Err(Failure::Interrupted);
    }
    let (evaluation, sample) = block_on(run.attempt(async |_, trainer| {
        let evaluation = evaluate::held_out(trainer, &data.held_out, None)?;
        Ok((evaluation, training::sample(trainer, &data, &settings, steps)?))
    }))?;
    for note in run.origin.notes.drain(..) {
        outputs.progress.note(&note);
    }
    let step_s = summary.times.median();
    if let Some(step_s) = step_s {
        outputs.progress.note(&format!(
            "a step took {step_s:.4} s (median), and {predicted_step_s:.4} s were predicted"
        ));
    }
    if let Some(profiling) = &mut profiling {
        profiling.write(&dir, step_s)?;
        outputs.progress.note(profiling.text().trim_end());
    }
    let outside = run.backend().and_then(Backend::outside_bytes);
    if let Some(bytes) = outside {
        outputs.progress.note(&format!(
            "besides the plan, the device takes {} for its context and its kernels' code",
            human_bytes(bytes)
        ));
    }
    outputs.finish(steps, evaluation.as_ref(), sample.as_deref(), &dir)?;
    if args.json {
        let tokens = config.tokens() as f64;
        let object = json!({
            "steps": summary.done.steps,
            "tokens": summary.done.tokens,
            "first_loss": summary.first_loss,
            "last_loss": summary.last_loss,
            "step_s": step_s,
            "predicted_step_s": predicted_step_s,
            "tokens_per_s": step_s.map(|seconds| tokens / seconds),
            "heldout_loss": evaluation.map(|evaluation| evaluation.loss),
            "heldout_tokens": evaluation.map(|evaluation| evaluation.tokens),
            "predicted_peak_bytes": predicted,
            "measured_peak_bytes": run.allocated_bytes(),
            "outside_bytes": outside,
            "resident_start_bytes": resident_start,
            "resident_peak_bytes": resident_peak(),
            "parameters": model.parameters(),
            "trained_parameters": trained(&config),
            "skipped_steps": summary.skipped,
            "profile": profiling.map(|_| dir.join(profile::FILE)),
            "run": dir,
        });
        print(out, &format!("{object}\n"));
    } else {
        print(out, &ending(&dir, evaluation.as_ref(), sample.as_deref(), &data));
    }
    Ok(())
}

/// A run that is ready to train, or to go on.
struct Prepared {
    /// The directory of a run that goes on.
    resumed: Option<PathBuf>,
    settings: Settings,
    model: ModelConfig,
    data: Data,
    planned: Planned,
    device: Box<dyn Backend>,
    start: Start,
    notes: Vec<String>,
}

/// Everything up to the first byte of the plan. Writes nothing.
fn prepare(args: &Train, open: Open<'_>) -> Result<Prepared, Failure> {
    let Some(named) = &args.resume else {
        let mut settings = args.settings.load(None)?;
        if let Some(out) = &settings.run.out {
            directory::refuse_run(out)?;
        }
        let start = match &settings.model.init {
            Some(init) => Start::Model(Box::new(Source::open_whole(init)?)),
            None => Start::Seed,
        };
        let model = setup::model_config(&settings)?;
        settings = setup::filled(&settings, &model)?;
        let tokenizer = corpus::tokenizer(&settings, model.vocab)?;
        let data = Data::open(&settings, tokenizer, model.vocab, Vec::new())?;
        let mut notes = match &start {
            Start::Model(source) => source.notes.clone(),
            _ => Vec::new(),
        };
        let (device, planned) = plan_of(&mut settings, &model, None, &mut notes, open)?;
        return Ok(Prepared {
            resumed: None,
            settings,
            model,
            data,
            planned,
            device,
            start,
            notes,
        });
    };
    if let Some(path) = named.as_deref().filter(|path| source::is_checkpoint(path)) {
        return prepare_checkpoint(args, path, open);
    }
    let out = args.settings.load(None)?.run.out;
    let dir = directory::existing(named.as_deref(), out.as_deref())?;
    let mut settings = args.settings.load(Some(&dir.join(RUN_SETTINGS)))?;
    let mut notes = Vec::new();
    let (start, model) = if checkpoint::list(&dir).help("check the run directory")?.is_empty() {
        notes.push("the run has no checkpoint yet and starts from the beginning".to_owned());
        let model = setup::model_config(&settings)?;
        match &settings.model.init {
            Some(init) => (Start::Model(Box::new(Source::open_whole(init)?)), model),
            None => (Start::Seed, model),
        }
    } else {
        let source = Source::open(&dir)?;
        source.keeps_adapters(&args.settings)?;
        notes.extend(source.notes.iter().cloned());
        let model = source.config.clone();
        setup::agrees(&settings, &model, &source.dir)?;
        (Start::Checkpoint(Box::new(source)), model)
    };
    settings = setup::filled(&settings, &model)?;
    let tokenizer = match &start {
        Start::Checkpoint(source) => source.own_tokenizer(&settings)?,
        _ => corpus::tokenizer(&settings, model.vocab)?,
    };
    let texts = match &start {
        Start::Checkpoint(source) => source.own_texts(&settings)?,
        _ => Vec::new(),
    };
    let data = Data::open(&settings, tokenizer, model.vocab, texts)?;
    if let Start::Checkpoint(source) = &start
        && let Some(checkpoint) = &source.checkpoint
    {
        state::check_continues(checkpoint, &settings, &data)?;
    }
    let before = SettingArgs::default().load(Some(&dir.join(RUN_SETTINGS)))?;
    let unchanged =
        before.memory == settings.memory && before.train.micro_batch == settings.train.micro_batch;
    let own = if unchanged { PlanFile::read(&dir.join(PLAN)).ok() } else { None };
    let (device, planned) = plan_of(&mut settings, &model, own.as_ref(), &mut notes, open)?;
    Ok(Prepared { resumed: Some(dir), settings, model, data, planned, device, start, notes })
}

/// As [`prepare`], of a new run that goes on from a checkpoint.
fn prepare_checkpoint(args: &Train, path: &Path, open: Open<'_>) -> Result<Prepared, Failure> {
    let source = Source::open(path)?;
    let mut settings = source.settings(&args.settings)?;
    if let Some(out) = &settings.run.out {
        directory::refuse_run(out)?;
    }
    let model = source.config.clone();
    setup::agrees(&settings, &model, &source.dir)?;
    settings = setup::filled(&settings, &model)?;
    let tokenizer = source.own_tokenizer(&settings)?;
    let data = Data::open(&settings, tokenizer, model.vocab, source.own_texts(&settings)?)?;
    if let Some(checkpoint) = &source.checkpoint {
        state::check_continues(checkpoint, &settings, &data)?;
    }
    let mut notes = Vec::new();
    let (device, planned) = plan_of(&mut settings, &model, None, &mut notes, open)?;
    let start = Start::Checkpoint(Box::new(source));
    Ok(Prepared { resumed: None, settings, model, data, planned, device, start, notes })
}

/// Makes the directory of a new run. One that goes on from a checkpoint begins with a copy of it, and of the
/// text it brought along.
fn begin(settings: &mut Settings, start: &Start) -> Result<PathBuf, Failure> {
    let dir = directory::create(settings.run.out.as_deref())?;
    let Start::Checkpoint(source) = start else { return Ok(dir) };
    let Some(checkpoint) = &source.checkpoint else { return Ok(dir) };
    for (name, text) in source.own_texts(settings)? {
        let file = dir.join(directory::DATA).join(name);
        directory::write(&file, &text)?;
        settings.data.files.push(file);
    }
    checkpoint::unpack(checkpoint, &dir)
        .help("free some space, or give --out a directory on another disk")?;
    Ok(dir)
}

/// Plans the step, and writes the choices into the settings: a run that is repeated or resumed from them
/// makes the same ones, whatever memory is free then. Those of its `own` plan come first.
fn plan_of(
    settings: &mut Settings,
    model: &ModelConfig,
    own: Option<&PlanFile>,
    notes: &mut Vec<String>,
    open: Open<'_>,
) -> Result<(Box<dyn Backend>, Planned), Failure> {
    let device = open(settings)?;
    let free = start::free(&*device);
    let (planned, more) = start::planned_now(settings, model, own, free, &*device)?;
    notes.extend(more);
    // The run's own plan.json says the same.
    settings.memory.plan = None;
    let TrainerConfig { micro_batch, precision, optimizer_bits, options, .. } = planned.config();
    settings.train.micro_batch = MicroBatch::Size(*micro_batch);
    settings.memory.optimizer_bits = *optimizer_bits;
    settings.run.precision = settings.run.precision.stored_in(*precision);
    if let Some(chosen) = Recompute::of(&options.checkpoint) {
        settings.memory.recompute = chosen;
    }
    Ok((device, planned))
}

/// The plan's report, and the choices that made it.
fn plan_json(settings: &Settings, planned: &Planned, device: &str) -> Result<Value, Failure> {
    let config = planned.config();
    let mut value = serde_json::to_value(planned.plan.report())
        .map_err(|error| Failure::from(anyhow!(error).context("the plan doesn't fit JSON")))?;
    value["budget_bytes"] = json!(settings.memory.budget.map(|bytes| bytes.0));
    value["made_for"] = json!(MadeFor::of(config, device));
    value["choices"] = json!(Choices::of(config));
    Ok(value)
}

/// What is about to be trained, a line each.
fn table(
    settings: &Settings,
    model: &ModelConfig,
    data: &Data,
    planned: &Planned,
    device: &dyn Backend,
) -> String {
    let config = planned.config();
    let report = planned.plan.report();
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        // Writing to a String can't fail.
        let _ = writeln!(text, "{name:<11}{value}");
    };
    let ModelConfig { layers, channels, heads, vocab, .. } = *model;
    line(
        "model",
        format!(
            "{}: {layers} layers of {channels} channels, {heads} heads, context {}, vocabulary {vocab}",
            model.family.name(),
            config.model.tokens()
        ),
    );
    let parameters = human_count(model.parameters() as f64);
    match &config.lora {
        None => line("parameters", parameters),
        Some(lora) => line(
            "parameters",
            format!(
                "{parameters}, frozen{}; {} trained, in adapters of rank {} on {}",
                if lora.quantized { ", in 8 bits" } else { "" },
                human_count(trained(config) as f64),
                lora.rank,
                lora.targets.join(", ")
            ),
        ),
    }
    line("data", data.describe(settings));
    let steps = steps_of(settings);
    let tokens = config.tokens();
    line(
        "training",
        format!(
            "{steps} steps of {tokens} tokens ({} in all), {} sequences in {} of {}, {:?}",
            human_count(steps as f64 * tokens as f64),
            config.batch,
            training::plural(config.accumulation(), "micro-batch", "micro-batches"),
            config.micro_batch,
            settings.train.optimizer,
        ),
    );
    let classes: Vec<String> = report
        .by_class
        .iter()
        .filter(|(_, bytes)| **bytes > 0)
        .map(|(class, bytes)| format!("{class} {}", human_bytes(*bytes)))
        .collect();
    line(
        "memory",
        format!("peak {} as planned: {}", human_bytes(report.peak_bytes), classes.join(", ")),
    );
    line("device", format!("{}, {:?}", device.name(), config.precision).to_lowercase());
    if can_be_lost(device) {
        line("host", copied_text(planned.snapshot_bytes()));
    }
    text.truncate(text.trim_end().len());
    text
}

/// Numbers that steps change.
fn trained(config: &TrainerConfig) -> u64 {
    let all = || setup::language(config).config().parameters();
    config.lora.as_ref().map_or_else(all, |lora| lora.trained(&config.model.parameters()))
}

/// The predicted time of a step and of a run of `steps`.
fn estimated(step_s: f64, steps: u64, known: &Known) -> String {
    let run = human_time(Duration::from_secs_f64(step_s * steps as f64));
    format!("{:<11}{step_s:.3} s a step, {run} in all ({})", "estimate", known.source())
}

fn steps_of(settings: &Settings) -> u64 {
    settings.train.steps.unwrap_or_default()
}

/// What a run ends with on the terminal.
fn ending(
    dir: &Path,
    evaluation: Option<&Evaluation>,
    sample: Option<&str>,
    data: &Data,
) -> String {
    let mut text = String::new();
    if let Some(evaluation) = evaluation {
        let Evaluation { loss, tokens } = *evaluation;
        let _ = write!(text, "held-out loss {loss:.4} nats per token over {tokens} tokens");
        let _ = match data.tokenizer {
            tightrope_data::Tokenizer::Byte if data.is_text => {
                writeln!(text, " ({:.3} bits per byte)", evaluation.bits())
            }
            _ => writeln!(text, " (perplexity {:.2})", evaluation.perplexity()),
        };
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

/// Writes a result. A closed pipe leaves nobody to tell.
fn print(out: &mut dyn Write, text: &str) {
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

#[cfg(test)]
mod tests;
