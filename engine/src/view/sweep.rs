//! `tightrope plan --sweep`: what bytes buy, from the fastest plan to the smallest.

use std::fmt::Write as _;
use std::time::Instant;

use serde_json::{Value, json};
use tightrope_core::Backend;
use tightrope_nn::{Estimate, Planned, Rates, TrainerConfig, sweep};

use crate::error::Result;
use crate::plan::{self, Choices, Scope};
use crate::units::human_bytes;

/// Columns of the longest bar.
const BAR: f64 = 30.0;

/// One plan of the sweep.
struct Point {
    planned: Planned,
    estimate: Estimate,
    bound_s: Option<f64>,
}

/// The plans of a step over budgets, fastest first.
pub struct Sweep {
    points: Vec<Point>,
    seconds: f64,
}

impl Sweep {
    /// Plans the step of `config` for every budget.
    ///
    /// # Errors
    /// Settings that no graph can be built from.
    pub fn new(
        scope: &Scope,
        config: &TrainerConfig,
        device: &dyn Backend,
        rates: &Rates,
    ) -> Result<Self> {
        let start = Instant::now();
        let plans = sweep(plan::fits(scope, config, device)?)?;
        let point = |planned: Planned| {
            let (estimate, bound_s) = (planned.estimate(rates), planned.step_bound_s(rates));
            Point { planned, estimate, bound_s }
        };
        let points = plans.into_iter().map(point).collect();
        Ok(Self { points, seconds: start.elapsed().as_secs_f64() })
    }

    /// A line a plan: bytes, time, and what was chosen.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let Some(fastest) = self.points.first() else { return text };
        let (most, least_s) = (fastest.planned.plan.peak_bytes() as f64, fastest.estimate.step_s);
        let _ =
            writeln!(text, "{:>9} {:>10} {:>8}  micro-batch, recomputed", "peak", "step", "slower");
        for Point { planned, estimate, .. } in &self.points {
            let (bytes, config) = (planned.plan.peak_bytes(), planned.config());
            let bar = "█".repeat((BAR * bytes as f64 / most).round() as usize);
            let _ = writeln!(
                text,
                "{:>9} {:>8.3} s {:>7.1}%  {} × {}, {}\n{:>9} {bar}",
                human_bytes(bytes),
                estimate.step_s,
                100.0 * (estimate.step_s / least_s - 1.0),
                config.micro_batch,
                config.accumulation(),
                config.options.checkpoint,
                "",
            );
        }
        let _ = writeln!(text, "{} plans in {:.3} s", self.points.len(), self.seconds);
        text
    }

    /// The same for machines.
    pub fn json(&self) -> Value {
        let of = |Point { planned, estimate, bound_s }: &Point| {
            json!({
                "peak_bytes": planned.plan.peak_bytes(),
                "predicted_step_s": estimate.step_s,
                "step_bound_s": bound_s,
                "recomputed_share": estimate.recomputed(),
                "choices": Choices::of(planned.config()),
            })
        };
        json!({ "plans": self.points.iter().map(of).collect::<Vec<_>>(), "sweep_s": self.seconds })
    }
}
