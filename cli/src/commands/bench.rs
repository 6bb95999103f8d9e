//! `tightrope bench`: every op of a training step and the step as a whole, against what the device was
//! measured to reach.

mod peak;
pub mod profile;

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::json;
use tightrope_nn::{Batch, Planned, Precision, Rates};

use crate::args::Bench;
use crate::error::Failure;
use crate::progress::{human_bytes, human_count};
use crate::rates::Store;
use crate::settings::Settings;
use crate::setup::plan_file::Choices;
use crate::{devices, output, setup};
use peak::Peaks;
use profile::{Row, profile};

/// Steps before the measured ones.
const COLD: usize = 2;
/// Shortest time that steps are measured for, and the fewest.
const LEAST: (Duration, usize) = (Duration::from_secs(5), 5);
/// Rows of the table whose shares matter.
const LEAST_SHARE: f64 = 0.001;

/// Measures and prints.
///
/// # Errors
/// Wrong settings, a step that doesn't fit the memory, and what the device refuses.
pub fn run(args: &Bench) -> Result<(), Failure> {
    let settings = args.settings.load(None)?;
    let mut device = devices::device(&settings)?;
    let threads = setup::threads(&settings);
    let name = device.name();
    if cfg!(debug_assertions) {
        eprintln!("this is a debug build, about half as fast as one made with --release");
    }
    eprintln!("measuring the peak of {name}");
    let peaks = Peaks::measure(threads);
    let planned = setup::planned(&settings, &*device)?;
    eprintln!("measuring each op");
    let config = planned.config();
    let plan = planned.plan.clone();
    let rows = profile(
        plan,
        setup::language(config).config(),
        config.accumulation(),
        &mut *device,
        &peaks,
    )
    .map_err(|error| setup::train_failure(error.into()))?;
    eprintln!("measuring rates for estimates");
    let known = Store::of_user().measure(&mut *device, planned.config().precision, threads);
    drop(device);
    eprintln!("measuring whole steps");
    let step = Step::measure(planned, &settings, &peaks, &known.rates)?;
    let found = Found { device: name, threads, peaks, rows, step };
    if args.json { output::print_json(&found.json()) } else { output::print(&found.text()) }
}

/// Made-up token ids below `vocab`, the same every time.
fn ids(vocab: usize) -> impl FnMut() -> i32 {
    let mut state = 1u64;
    move || {
        // Constants of Knuth's MMIX generator, whose upper bits are the good ones.
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) as usize % vocab) as i32
    }
}

/// Whole optimizer steps.
#[derive(Clone, Debug, Serialize)]
struct Step {
    /// Median seconds of a step.
    step_s: f64,
    steps: usize,
    tokens_per_s: f64,
    /// Model FLOP/s over the measured peak, with the count of [`tightrope_nn::ModelConfig::flops_per_token`].
    mfu: f64,
    model_gflop_s: f64,
    predicted_step_s: f64,
    peak_bytes: u64,
    choices: Choices,
}

impl Step {
    fn measure(
        planned: Planned,
        settings: &Settings,
        peaks: &Peaks,
        rates: &Rates,
    ) -> Result<Self, Failure> {
        let config = planned.config().clone();
        let device = devices::device(settings)?;
        let estimate = planned.estimate(rates);
        let mut trainer = setup::trainer(planned, device, settings)?;
        trainer.initialise().map_err(setup::train_failure)?;
        let model = setup::language(&config);
        let mut next = ids(model.config().vocab);
        let mut times = vec![];
        let mut start = Instant::now();
        for step in 0.. {
            if step == COLD {
                start = Instant::now();
            }
            if times.len() >= LEAST.1 && start.elapsed() >= LEAST.0 {
                break;
            }
            let mut ids = || -> Vec<i32> { (0..config.tokens()).map(|_| next()).collect() };
            let (tokens, targets) = (ids(), ids());
            let batch = Batch::text(&tokens, &targets);
            let start = Instant::now();
            trainer.step(step as u64, 1e-4, &batch).map_err(setup::train_failure)?;
            pollster::block_on(trainer.outcome()).map_err(setup::train_failure)?;
            if step >= COLD {
                times.push(start.elapsed().as_secs_f64());
            }
        }
        times.sort_by(f64::total_cmp);
        let step_s = times[times.len() / 2];
        let tokens_per_s = config.tokens() as f64 / step_s;
        let model_flops = tokens_per_s * model.config().flops_per_token(model.seq_len()) as f64;
        Ok(Self {
            step_s,
            steps: times.len(),
            tokens_per_s,
            mfu: model_flops / peaks.flops(config.precision == Precision::BF16),
            model_gflop_s: model_flops / 1e9,
            predicted_step_s: estimate.step_s,
            peak_bytes: trainer.allocated_bytes(),
            choices: Choices::of(&config),
        })
    }
}

/// Everything that is printed.
struct Found {
    device: String,
    threads: usize,
    peaks: Peaks,
    rows: Vec<Row>,
    step: Step,
}

impl Found {
    fn json(&self) -> serde_json::Value {
        json!({
            "device": self.device,
            "threads": self.threads,
            "peak": self.peaks,
            "ops": self.rows,
            "step": self.step,
        })
    }

    fn text(&self) -> String {
        let Self { device, peaks, rows, step, .. } = self;
        let mut text = String::new();
        let bf16 = peaks
            .flops_bf16
            .map_or_else(|| "none".to_owned(), |flops| format!("{:.0} GFLOP/s", flops / 1e9));
        // Writing to a String can't fail.
        let _ = writeln!(
            text,
            "{device}\npeak: f32 {:.0} GFLOP/s, bf16 {bf16}, memory {:.1} GB/s\n\n\
             {:<26}{:<26}{:>6}{:>10}{:>9}{:>7}{:>7}{:>7}",
            peaks.flops_f32 / 1e9,
            peaks.bytes / 1e9,
            "op",
            "shape",
            "runs",
            "ms",
            "GFLOP/s",
            "GB/s",
            "peak",
            "share"
        );
        for row in rows.iter().filter(|row| row.share >= LEAST_SHARE) {
            let _ = writeln!(
                text,
                "{:<26}{:<26}{:>6}{:>10.3}{:>9.1}{:>7.1}{:>6.0}%{:>6.1}%",
                row.op,
                row.shape,
                row.count,
                row.ms,
                row.gflop_s,
                row.gb_s,
                row.percent_of_peak,
                100.0 * row.share
            );
        }
        let _ = writeln!(
            text,
            "\nstep       {:.4} s (median of {}), estimated {:.4} s\ntokens/s   {}\n\
             MFU        {:.1}% ({:.0} GFLOP/s)\nmemory     {}",
            step.step_s,
            step.steps,
            step.predicted_step_s,
            human_count(step.tokens_per_s),
            100.0 * step.mfu,
            step.model_gflop_s,
            human_bytes(step.peak_bytes)
        );
        text
    }
}
