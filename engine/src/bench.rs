//! Every op of a training step and the step as a whole, against what the device was
//! measured to reach.
//!
//! ```no_run
//! use tightrope::bench::{Effort, bench};
//! use tightrope::recipe::Step;
//! use tightrope::settings::Settings;
//!
//! let step = Step::of(&Settings::default())?;
//! let figures = bench(&step, Effort::Thorough, &mut |what| eprintln!("{what}"))?;
//! println!("{}", figures.text());
//! # Ok::<(), tightrope::Error>(())
//! ```

mod ops;

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use serde::Serialize;
use serde_json::json;
use tightrope_backend_cpu::peak::Peaks;
use tightrope_core::Backend;
use tightrope_nn::{LanguageModel, Model as _, Outcome, Planned, Precision, Rates};

use crate::block_on;
use crate::check;
use crate::devices::Devices;
use crate::error::{Error, Result};
use crate::plan::Choices;
use crate::recipe::{self, trainer};
use crate::run::Samples;
use crate::timing::{ids, made_up};
use crate::units::{human_bytes, human_count};
use ops::{Row, profile};

/// Steps before the measured ones.
const COLD: usize = 2;
/// Shortest time that something is measured for, and the fewest runs of it.
type Least = (Duration, usize);
/// Rows of the table whose shares matter.
const LEAST_SHARE: f64 = 0.001;

/// How long is measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Effort {
    /// As long as figures take that are to be compared.
    #[default]
    Thorough,
    /// As short as can be. Rates for estimates stay as they are.
    Quick,
}

impl Effort {
    /// For whole steps.
    fn steps(self) -> Least {
        match self {
            Self::Thorough => (Duration::from_secs(5), 5),
            Self::Quick => (Duration::ZERO, 3),
        }
    }

    /// For all ops, one after the other.
    fn ops(self) -> Least {
        match self {
            Self::Thorough => (Duration::from_secs(2), 3),
            Self::Quick => (Duration::ZERO, 2),
        }
    }
}

/// Measures the step: its ops, rates for estimates (which are kept), and whole steps on a device of their own. `tell` hears
/// what is measured next.
///
/// # Errors
/// A step that doesn't fit the memory, and what the device refuses.
pub fn bench(step: &recipe::Step, effort: Effort, tell: &mut dyn FnMut(&str)) -> Result<Figures> {
    let mut devices = Devices::default();
    let mut device = devices.open(&step.device)?;
    devices.notes.iter().for_each(|note| tell(note));
    let (name, threads) = (device.name(), step.scope.threads);
    tell(&format!("measuring the peak of {name}"));
    let mut peaks = Peaks::measure(threads);
    let planned = check::planned(&step.device, &mut device, &mut |device| step.plan(device))?;
    tell("measuring each op");
    let config = planned.config();
    let plan = planned.plan.clone();
    let (model, accumulation) = (&*config.model, config.accumulation());
    let rows = profile(plan, model, accumulation, &mut *device, &mut peaks, effort.ops())?;
    let known = match effort {
        Effort::Thorough => {
            tell("measuring rates for estimates");
            step.scope.rates.measure(&mut *device, config.precision, threads)
        }
        Effort::Quick => step.scope.rates.known(&*device, config.precision, threads),
    };
    drop(device);
    tell("measuring whole steps");
    let device = devices.open(&step.device)?;
    let step = Whole::measure(planned, device, threads, &peaks, &known.rates, effort.steps())?;
    Ok(Figures { device: name, threads, peaks, rows, step })
}

/// Whole optimizer steps.
#[derive(Clone, Debug, Serialize)]
pub struct Whole {
    /// Median seconds of a step.
    step_s: f64,
    steps: usize,
    tokens_per_s: f64,
    /// Model FLOP/s over the measured peak, with the count of [`tightrope_nn::ModelConfig::flops_per_token`].
    mfu: f64,
    model_gflop_s: f64,
    predicted_step_s: f64,
    peak_bytes: u64,
    /// Losses of the first step and of the last, on random tokens.
    losses: [f32; 2],
    choices: Choices,
}

impl Whole {
    fn measure(
        planned: Planned,
        device: Box<dyn Backend>,
        threads: usize,
        peaks: &Peaks,
        rates: &Rates,
        least: Least,
    ) -> Result<Self> {
        let config = planned.config().clone();
        let estimate = planned.estimate(rates);
        let mut trainer = trainer(planned, device, threads)?;
        trainer.initialise()?;
        let Some(language) = LanguageModel::of(&*config.model) else {
            return Err(Error::usage(
                anyhow!("the model isn't one of language"),
                "name a preset of one, such as gpt2",
            ));
        };
        let (mut next, inputs) = (ids(language.config().vocab), language.inputs());
        let (mut times, mut losses) = (vec![], vec![]);
        let mut start = Instant::now();
        for step in 0.. {
            if step == COLD {
                start = Instant::now();
            }
            if times.len() >= least.1 && start.elapsed() >= least.0 {
                break;
            }
            let inputs = inputs.iter().filter(|input| input.range.is_none());
            let samples = inputs.fold(Samples::new(config.tokens()), |samples, input| {
                let elements = 0..input.ty(config.batch).elements();
                let numbers = elements.map(|index| made_up(input, index, &mut next) as i32);
                samples.with(&input.name, numbers.collect::<Vec<i32>>())
            });
            let start = Instant::now();
            trainer.step(step as u64, 1e-4, &samples.batch())?;
            let outcome = block_on(trainer.outcome())?;
            let took = start.elapsed();
            losses.push(checked(step, &outcome, config.precision)?);
            if step >= COLD {
                times.push(took.as_secs_f64());
            }
        }
        times.sort_by(f64::total_cmp);
        let step_s = times[times.len() / 2];
        let tokens_per_s = config.tokens() as f64 / step_s;
        let model_flops =
            tokens_per_s * language.config().flops_per_token(language.seq_len()) as f64;
        Ok(Self {
            step_s,
            steps: times.len(),
            tokens_per_s,
            mfu: model_flops / peaks.flops(config.precision == Precision::BF16),
            model_gflop_s: model_flops / 1e9,
            predicted_step_s: estimate.step_s,
            peak_bytes: trainer.allocated_bytes(),
            losses: [losses[0], losses[losses.len() - 1]],
            choices: Choices::of(&config),
        })
    }
}

/// The loss of a step, if it's a number, as is all that the step updated. In f16, a step is left out where its loss scale is
/// too large.
///
/// # Errors
/// A device that computes something else: how fast it does means nothing.
fn checked(step: usize, outcome: &Outcome, precision: Precision) -> Result<f32> {
    let &Outcome { loss, grad_norm, updated, .. } = outcome;
    if loss.is_finite() && (updated || precision == Precision::F16) {
        return Ok(loss);
    }
    Err(Error::failed(
        anyhow!(
            "step {step} has a loss of {loss} and a gradient norm of {grad_norm}: its speed means nothing"
        ),
        "try --device cpu; if that gives numbers, report the device and this command",
    ))
}

/// What a benchmark came to.
pub struct Figures {
    device: String,
    threads: usize,
    peaks: Peaks,
    rows: Vec<Row>,
    step: Whole,
}

impl Figures {
    /// The figures for machines: `device, threads, peak, ops, step`.
    pub fn json(&self) -> serde_json::Value {
        json!({
            "device": self.device,
            "threads": self.threads,
            "peak": {
                "flops_f32": self.peaks.flops_f32,
                "flops_bf16": self.peaks.flops_bf16,
                "bytes": self.peaks.bytes(),
            },
            "ops": self.rows,
            "step": self.step,
        })
    }

    /// The figures for people, in tables.
    pub fn text(&self) -> String {
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
            peaks.bytes() / 1e9,
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
             MFU        {:.1}% ({:.0} GFLOP/s)\nmemory     {}\nloss       {:.4} at first, {:.4} at last",
            step.step_s,
            step.steps,
            step.predicted_step_s,
            human_count(step.tokens_per_s),
            100.0 * step.mfu,
            step.model_gflop_s,
            human_bytes(step.peak_bytes),
            step.losses[0],
            step.losses[1]
        );
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_without_numbers_has_no_speed() {
        let outcome = |loss, updated| Outcome {
            loss,
            grad_norm: 1.0,
            updated,
            loss_scale: None,
            tokens: 8,
            metrics: vec![],
        };
        let check = |loss, updated, precision| checked(3, &outcome(loss, updated), precision);
        assert_eq!(check(2.5, true, Precision::BF16).unwrap(), 2.5);
        // What a loss scale overflowed is tried again with a smaller one.
        assert_eq!(check(2.5, false, Precision::F16).unwrap(), 2.5);
        for (loss, updated, precision) in [
            (f32::NAN, true, Precision::F32),
            (f32::INFINITY, false, Precision::F16),
            (2.5, false, Precision::BF16),
        ] {
            let message = check(loss, updated, precision).unwrap_err().message();
            assert!(message.starts_with("step 3 has a loss of"), "{message}");
        }
    }
}
