//! The time of a run that takes more than a day, with changes that shorten it.

use serde_json::{Value, json};
use tightrope_nn::{self as nn, Rates, TrainerConfig};

use crate::error::Result;
use crate::recipe::Planned;
use crate::settings::LARGEST;

/// Seconds of a day.
const DAY: f64 = 86_400.0;
/// Tokens of the sequences that longer ones are compared with.
const SHORT: usize = 2048;

/// A run that takes more than a day.
#[derive(Clone, Debug, PartialEq)]
pub struct Outlook {
    /// Steps that are left.
    pub steps: u64,
    /// Predicted seconds of a step, a mean over the lengths of batches.
    pub step_s: f64,
    /// Tokens of a sequence.
    pub context: usize,
    /// A shorter context, and the predicted seconds of a step with it.
    pub shorter: Option<(usize, f64)>,
}

impl Outlook {
    /// The outlook of a run by these rates; `None` if the run takes at most a day.
    ///
    /// # Errors
    /// Settings that no graph can be built from.
    pub fn new(run: &Planned, rates: &Rates) -> Result<Option<Self>> {
        let Planned { recipe, step, device, .. } = run;
        let done = recipe.start.checkpoint().map_or(0, |checkpoint| checkpoint.manifest.step);
        let steps = recipe.step.rate.steps.saturating_sub(done);
        let of_lengths =
            if step.config().shorter().is_empty() { 1.0 } else { recipe.data.work_share() };
        let step_s = step.estimate(rates).step_s * of_lengths;
        // A program's own model trains as long as it's given batches, unless a number of steps is set.
        let is_endless = recipe.step.rate.steps == LARGEST as u64;
        if is_endless || steps as f64 * step_s <= DAY {
            return Ok(None);
        }
        let context = step.config().model.seq_len();
        let mut shorter = None;
        if context > SHORT
            && step.config().context_ranks == 1
            && let Some(model) = step.config().model.with_seq_len(SHORT)?
        {
            // With the choices of this plan, since a search would take longer than to read the answer.
            let config = TrainerConfig { model, shorter: vec![], ..step.config().clone() };
            let found = nn::Planned::new(&config, &**device);
            shorter = found.ok().map(|found| (SHORT, found.estimate(rates).step_s));
        }
        Ok(Some(Self { steps, step_s, context, shorter }))
    }

    /// For people.
    pub fn text(&self) -> String {
        let Self { steps, step_s, context, shorter } = self;
        let all = days(*steps as f64 * step_s);
        let mut text = format!("{steps} steps of {step_s:.1} s take about {all}");
        let in_a_day = (DAY / step_s) as u64;
        text += &match in_a_day {
            0 => "; a step takes more than a day".to_owned(),
            steps => format!("; --steps {steps} would take a day"),
        };
        if let Some((tokens, step_s)) = shorter {
            let all = days(*steps as f64 * step_s);
            text += &format!(", --context {tokens} in place of {context} about {all}");
        }
        text
    }

    /// For programs: `steps`, `step_s`, `seconds`, `context`, and `shorter` with a `context` and its `step_s`.
    pub fn json(&self) -> Value {
        let Self { steps, step_s, context, shorter } = self;
        let seconds = *steps as f64 * step_s;
        let shorter =
            shorter.map(|(context, step_s)| json!({ "context": context, "step_s": step_s }));
        json!({ "steps": steps, "step_s": step_s, "seconds": seconds, "context": context, "shorter": shorter })
    }
}

/// Seconds as days, for people.
fn days(seconds: f64) -> String {
    let days = seconds / DAY;
    if days < 9.95 { format!("{days:.1} days") } else { format!("{days:.0} days") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_run_says_how_many_steps_a_day_has() {
        let long = Outlook {
            steps: 1000,
            step_s: 27_129.6,
            context: 131_072,
            shorter: Some((2048, 90.0)),
        };
        assert_eq!(
            long.text(),
            "1000 steps of 27129.6 s take about 314 days; --steps 3 would take a day, --context 2048 in place of 131072 about 1.0 days"
        );
        assert_eq!(long.json()["shorter"]["context"], 2048);
        let longer = Outlook { step_s: 90_000.0, shorter: None, ..long };
        assert!(longer.text().ends_with("a step takes more than a day"), "{}", longer.text());
    }

    #[test]
    #[cfg(all(feature = "cpu", not(target_family = "wasm")))]
    fn a_run_of_a_moment_has_none() {
        let planned = |steps: u64| {
            let mut said = crate::settings::Settings::default();
            let steps = format!("train.steps={steps}");
            for word in ["model.preset=tiny", "run.device=cpu", "run.threads=1", steps.as_str()] {
                said.read_argument(word).unwrap();
            }
            let recipe = crate::recipe::Recipe::new(&said).unwrap();
            let device = crate::devices::Devices::default().open(&recipe.step.device).unwrap();
            recipe.plan(device).unwrap()
        };
        let outlook = |steps| {
            let planned = planned(steps);
            let known = planned.recipe.step.scope.rates.known(
                &*planned.device,
                planned.step.config().precision,
                1,
            );
            Outlook::new(&planned, &known.rates).unwrap()
        };
        assert_eq!(outlook(3), None);
        let long = outlook(900_000_000).unwrap();
        assert!(
            long.steps == 900_000_000 && long.text().contains("would take a day"),
            "{}",
            long.text()
        );
    }
}
