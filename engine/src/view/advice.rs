//! What a plan could be instead: what more bytes would buy and fewer would cost, and how large a batch, a context and
//! a model the memory has room for.

use std::fmt::Write as _;
use std::time::Instant;

use serde_json::{Value, json};
use tightrope_core::Backend;
use tightrope_nn::{LanguageModel, Master, ModelConfig, Planned, Rates, TrainerConfig};

use super::summary::words;
use crate::error::Result;
use crate::model::{language, parameters};
use crate::plan::refusal::{self, Change};
use crate::plan::{self, Choices, Scope, is_deep};
use crate::units::human_bytes;

/// Rungs each way, each twice as far as the one before, besides the fastest and the smallest plan.
const RUNGS: u32 = 3;
/// The first rung is the power of two that is nearest below this part of the peak.
const FIRST: u64 = 16;
/// Batches and contexts are told to this part of them.
const TOLD: usize = 16;
/// Batches and contexts are tried up to so many times those that are planned: more is no plan for a machine, and on a GPU it
/// would be cut into more launches than can be listed in a moment.
const TIMES: usize = 1 << 10;
/// Percent of time or bytes from which on a difference is told.
const SEEN: f64 = 0.1;
/// Contexts are tried to this part of the one that is planned.
const PARTS: usize = 8;

/// Another plan.
struct Rung {
    /// Bytes more, or fewer, than there are now.
    change: i64,
    planned: Planned,
    step_s: f64,
}

/// The plan after a change of the settings.
struct Allowed {
    words: String,
    planned: Planned,
    step_s: f64,
}

/// Advice on a plan.
pub struct Advice {
    /// Fastest first, the plan itself apart.
    ladder: Vec<Rung>,
    /// What a change buys that nobody asked for.
    allowed: Vec<Allowed>,
    largest_batch: Option<usize>,
    longest_context: Option<usize>,
    largest_preset: Option<&'static str>,
    seconds: f64,
}

/// What advice is about.
pub struct Subject<'a> {
    /// What was asked for, before the planner's choices.
    pub config: &'a TrainerConfig,
    /// What the planner may choose.
    pub scope: &'a Scope,
    /// The plan.
    pub planned: &'a Planned,
    /// Bytes that there are, where that's known.
    pub budget: Option<u64>,
    /// The device.
    pub device: &'a dyn Backend,
    /// Its rates.
    pub rates: &'a Rates,
}

impl Advice {
    /// As [`Advice::new`], where that takes no longer than to wait for. `None` for deep models, unless it's asked for.
    ///
    /// # Errors
    /// As [`Advice::new`].
    pub fn soon(subject: &Subject<'_>) -> Result<Option<Self>> {
        let deep = is_deep(&subject.planned.plan.graph);
        (!deep).then(|| Self::new(subject)).transpose()
    }

    /// Plans some thirty times.
    ///
    /// # Errors
    /// Settings that no graph can be built from.
    pub fn new(subject: &Subject<'_>) -> Result<Self> {
        let start = Instant::now();
        let (ladder, allowed) = (subject.ladder()?, subject.allowed()?);
        let (largest_batch, longest_context, largest_preset) = match subject.budget {
            Some(budget) => (
                subject.largest_batch(budget)?,
                subject.longest_context(budget)?,
                subject.largest_preset(budget)?,
            ),
            None => (None, None, None),
        };
        let seconds = start.elapsed().as_secs_f64();
        Ok(Self { ladder, allowed, largest_batch, longest_context, largest_preset, seconds })
    }

    /// Lines for people, of what to do instead of `planned`.
    pub fn text(&self, planned: &Planned, step_s: f64) -> String {
        let mut text = "\nwhat memory buys".to_owned();
        let TrainerConfig { ranks, shard, .. } = *planned.config();
        if ranks > 1 {
            // Writing to a String can't fail.
            let _ = write!(text, " with shard {}", u32::from(shard));
        }
        text.push('\n');
        for Rung { change, planned: other, step_s: other_s } in &self.ladder {
            let amount = human_bytes(change.unsigned_abs());
            let percent = 100.0 * (other_s / step_s - 1.0);
            let (more, fewer) = (-percent, percent);
            let what = if *change > 0 {
                format!("the next {amount} buys {more:.1}%")
            } else {
                format!("freeing {amount} costs {fewer:.1}%")
            };
            let _ = writeln!(
                text,
                "  {what}: {other_s:.3} s at {} by {}",
                human_bytes(other.plan.peak_bytes()),
                words(other.config(), planned.config())
            );
        }
        if self.ladder.is_empty() {
            text += "  nothing: it is the fastest plan and the smallest\n";
        } else if self.ladder.iter().all(|rung| rung.change < 0) {
            text += "  more buys nothing: it is the fastest plan\n";
        } else if self.ladder.iter().all(|rung| rung.change > 0) {
            text += "  nothing can be freed: it is the smallest plan\n";
        }
        let peak = planned.plan.peak_bytes();
        for Allowed { words, planned, step_s: other_s } in &self.allowed {
            let (bytes, faster) = (planned.plan.peak_bytes(), 100.0 * (1.0 - other_s / step_s));
            let speed = if faster < 0.0 { "slower" } else { "faster" };
            let (amount, size) = (human_bytes(bytes), if bytes > peak { "more" } else { "less" });
            let _ = write!(text, "  {words}: {other_s:.3} s at {amount}");
            if faster.abs() >= SEEN {
                let _ = write!(text, ", {:.1}% {speed}", faster.abs());
            }
            if bytes.abs_diff(peak) as f64 >= SEEN / 100.0 * peak as f64 {
                let _ = write!(text, ", {} {size}", human_bytes(bytes.abs_diff(peak)));
            }
            text.push('\n');
        }
        let mut room = vec![];
        room.extend(self.largest_batch.map(|batch| format!("--batch {batch} in one pass")));
        room.extend(self.longest_context.map(|context| format!("--context {context}")));
        room.extend(self.largest_preset.map(|preset| format!("--preset {preset}")));
        if !room.is_empty() {
            let _ = writeln!(text, "  there is room for {}, each alone", room.join(", "));
        }
        text
    }

    /// The same for machines.
    pub fn json(&self) -> Value {
        let rung = |Rung { change, planned, step_s }: &Rung| {
            json!({
                "change_bytes": change,
                "peak_bytes": planned.plan.peak_bytes(),
                "predicted_step_s": step_s,
                "choices": Choices::of(planned.config()),
            })
        };
        let allowed = |Allowed { words, planned, step_s }: &Allowed| {
            json!({
                "words": words,
                "peak_bytes": planned.plan.peak_bytes(),
                "predicted_step_s": step_s,
            })
        };
        json!({
            "allowed": self.allowed.iter().map(allowed).collect::<Vec<_>>(),
            "ladder": self.ladder.iter().map(rung).collect::<Vec<_>>(),
            "largest_batch": self.largest_batch,
            "longest_context": self.longest_context,
            "largest_preset": self.largest_preset,
            "advice_s": self.seconds,
        })
    }
}

impl Subject<'_> {
    /// What was asked for, with the numerics of the plan, and cut among ranks as it is.
    fn config(&self) -> TrainerConfig {
        let TrainerConfig {
            precision,
            gradients,
            master,
            optimizer_bits,
            table_bits,
            offload,
            shard,
            ..
        } = *self.planned.config();
        TrainerConfig {
            precision,
            gradients,
            master,
            optimizer_bits,
            table_bits,
            offload,
            shard,
            ..self.config.clone()
        }
    }

    fn ladder(&self) -> Result<Vec<Rung>> {
        let config = self.config();
        let mut fits = plan::fits(self.scope, &config, self.device)?;
        // The fastest plan within so many bytes, or the fewest bytes of one.
        let mut within = |bytes: u64| -> Result<std::result::Result<Planned, u64>> {
            let (found, least) = fits(bytes)?;
            Ok(found.ok_or(least))
        };
        let peak = self.planned.plan.peak_bytes();
        // What there is now: a budget counts where it is what keeps the plan from being faster.
        let now = self.budget.map_or(peak, |budget| budget.max(peak));
        let first = 1 << (peak / FIRST).max(1).ilog2();
        let rung = |change: i64, planned: Planned| {
            let step_s = planned.estimate(self.rates).step_s;
            Rung { change, planned, step_s }
        };
        let mut rungs: Vec<Rung> = vec![];
        if let Ok(fastest) = within(u64::MAX)? {
            let most = fastest.plan.peak_bytes();
            for step in 0..RUNGS {
                let change = first << step;
                if now + change < most
                    && let Ok(planned) = within(now + change)?
                {
                    rungs.push(rung(change as i64, planned));
                }
            }
            if most > now {
                rungs.push(rung((most - now) as i64, fastest));
            }
        }
        rungs.reverse();
        let mut smallest = None;
        for step in 0..RUNGS {
            let change = first << step;
            match within(peak.saturating_sub(change).max(1))? {
                Ok(planned) => rungs.push(rung(-(change as i64), planned)),
                Err(least) => {
                    smallest = Some(least);
                    break;
                }
            }
        }
        if let Some(least) = smallest.filter(|&least| least < peak)
            && let Ok(planned) = within(least)?
        {
            rungs.push(rung(-((peak - planned.plan.peak_bytes()) as i64), planned));
        }
        // Several budgets can have one plan, and the plan itself is no rung.
        let of = |rung: &Rung| (rung.planned.plan.peak_bytes(), rung.step_s.to_bits());
        rungs.retain(|rung| rung.planned.plan.peak_bytes() != peak);
        rungs.dedup_by(|next, kept| {
            let same = of(next) == of(kept);
            // The fewest bytes that buy it, the most that it frees.
            if same && next.change > 0 {
                kept.change = next.change;
            }
            same
        });
        Ok(rungs)
    }

    /// What each knob would come to that changes numbers or leaves more to the host, where that is faster or smaller.
    fn allowed(&self) -> Result<Vec<Allowed>> {
        let config = self.config();
        let peak = self.planned.plan.peak_bytes();
        let now = self.budget.map_or(peak, |budget| budget.max(peak));
        let step_s = self.planned.estimate(self.rates).step_s;
        let [_, offloaded, one, ..] = refusal::knobs(&config, self.device);
        let mut allowed = vec![];
        for Change { words, config } in offloaded.into_iter().chain(one) {
            let fitting = plan::fitting(self.scope, &config, now, self.device)?;
            let Some(planned) = fitting else { continue };
            let Scope { rates, threads, .. } = self.scope;
            let known = rates.known(self.device, config.precision, *threads);
            let other_s = planned.estimate(&known.rates).step_s;
            let peak_bytes = planned.plan.peak_bytes();
            let least = SEEN / 100.0;
            if 1.0 - other_s / step_s >= least || 1.0 - peak_bytes as f64 / peak as f64 >= least {
                allowed.push(Allowed { words, planned, step_s: other_s });
            }
        }
        Ok(allowed)
    }

    /// Whether a plan of `config` fits `budget`. Of all micro-batches, one sequence takes the fewest bytes, or all of
    /// them, which need no sums of gradients between passes.
    fn fits(&self, config: &TrainerConfig, budget: u64) -> Result<bool> {
        // Half bytes that a weight takes at least.
        let weight = match (&config.lora, config.master) {
            (Some(_), _) => 1,
            (None, Master::None) => 4,
            (None, Master::F32) => 8,
        };
        if parameters(config) / 2 * weight > budget {
            return Ok(false);
        }
        let sizes = match self.scope.micro_batch {
            true if config.own_batch() > 1 => vec![1, config.own_batch()],
            true => vec![1],
            false => vec![config.micro_batch],
        };
        let scope = Scope { micro_batch: false, ..self.scope.clone() };
        for micro_batch in sizes {
            let config = TrainerConfig { micro_batch, ..config.clone() };
            if plan::fitting(&scope, &config, budget, self.device)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The most sequences that fit in one pass, of up to [`TIMES`] as many.
    fn largest_batch(&self, budget: u64) -> Result<Option<usize>> {
        let config = self.config();
        let scope = Scope { micro_batch: false, ..self.scope.clone() };
        let planned = self.planned.config().micro_batch;
        largest(planned, 1, planned.saturating_mul(TIMES), &mut |micro_batch| {
            let batch = micro_batch.saturating_mul(config.ranks / config.context_ranks.max(1));
            let config = TrainerConfig { batch, micro_batch, ..config.clone() };
            Ok(plan::fitting(&scope, &config, budget, self.device)?.is_some())
        })
    }

    /// The longest sequences that fit, of up to [`TIMES`] as long. A new model has as many positions; one with weights keeps its own.
    fn longest_context(&self, budget: u64) -> Result<Option<usize>> {
        let config = self.config();
        let new = self.scope.new_model;
        let Some(model) = language(&config) else { return Ok(None) };
        let longest = if new { ModelConfig::LONGEST_CONTEXT } else { model.context };
        let taught = LanguageModel::of(&*config.model).and_then(LanguageModel::taught_context);
        let longest = longest.min(taught.unwrap_or(usize::MAX));
        let seq_len = config.model.seq_len();
        let most = longest.min(seq_len.saturating_mul(TIMES));
        // Ranks that share sequences have equal parts of them.
        let step = (seq_len / PARTS).max(1).next_multiple_of(config.context_ranks.max(1));
        largest(seq_len, step, most, &mut |seq_len| {
            self.fits(&refusal::with_seq_len(&config, seq_len, new)?, budget)
        })
    }

    /// The known model with the most parameters that fits.
    fn largest_preset(&self, budget: u64) -> Result<Option<&'static str>> {
        // Weights that are given decide the model.
        if !self.scope.new_model {
            return Ok(None);
        }
        let fits = |config: &TrainerConfig| self.fits(config, budget);
        refusal::largest_preset(&self.config(), u64::MAX, &fits)
    }
}

/// The largest number up to `most` that fits, in steps of `step` from `start` on, or of [`TOLD`] parts where that is more.
/// `None` where `start` doesn't.
fn largest(
    start: usize,
    step: usize,
    most: usize,
    fits: &mut dyn FnMut(usize) -> Result<bool>,
) -> Result<Option<usize>> {
    if !fits(start)? {
        return Ok(None);
    }
    let mut below = start;
    let mut above = loop {
        let next = below.saturating_mul(2).min(most);
        if next == below {
            return Ok(Some(below));
        }
        if !fits(next)? {
            break next;
        }
        below = next;
    };
    let step = step.max(below / TOLD);
    while above > below + step {
        let middle = below + ((above - below) / 2 / step).max(1) * step;
        if fits(middle)? { below = middle } else { above = middle }
    }
    Ok(Some(below))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_is_found_in_few_tries() {
        for (limit, start, step, most) in
            [(23, 4, 1, usize::MAX), (1, 1, 1, 9), (100_000, 64, 8, 640), (77, 64, 8, 1 << 20)]
        {
            let mut tries = 0;
            let found = largest(start, step, most, &mut |n| {
                tries += 1;
                Ok(n <= limit)
            });
            let found = found.unwrap().unwrap();
            let (limit, step) = (limit.min(most), step.max(found / TOLD));
            assert!(found <= limit && found + step > limit, "{found}");
            assert!(tries <= 12, "{tries}");
        }
        assert_eq!(largest(8, 1, 9, &mut |n| Ok(n < 8)).unwrap(), None);
    }
}
