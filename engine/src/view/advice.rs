//! What a plan could be instead: what more bytes would buy and fewer would cost, and how large a batch, a context and
//! a model the memory has room for.

use std::fmt::Write as _;
use std::time::Instant;

use serde_json::{Value, json};
use tightrope_core::Backend;
use tightrope_nn::{LanguageModel, Master, ModelConfig, Planned, Rates, TrainerConfig};

use super::summary::words;
use crate::model::{language, parameters};
use crate::plan::refusal::{self, Change};
use crate::plan::{Choices, Scope, Trial, is_deep};
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
    largest_preset: Option<Preset>,
    seconds: f64,
}

/// A preset that there is room for.
struct Preset {
    name: &'static str,
    /// Words of the command line that train it.
    words: String,
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
    pub fn soon(subject: &Subject<'_>) -> Option<Self> {
        let deep = is_deep(&subject.planned.plan.graph);
        (!deep).then(|| Self::new(subject))
    }

    /// Plans some thirty times. What can't be planned isn't offered.
    pub fn new(subject: &Subject<'_>) -> Self {
        let start = Instant::now();
        let (ladder, allowed) = (subject.ladder(), subject.allowed());
        let budget = subject.budget;
        let (largest_batch, longest_context, largest_preset) = (
            budget.and_then(|budget| subject.largest_batch(budget)),
            budget.and_then(|budget| subject.longest_context(budget)),
            budget.and_then(|budget| subject.largest_preset(budget)),
        );
        let seconds = start.elapsed().as_secs_f64();
        Self { ladder, allowed, largest_batch, longest_context, largest_preset, seconds }
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
            let _ = write!(text, "  {words}: {other_s:.3} s at {}", human_bytes(bytes));
            if faster.abs() >= SEEN {
                let _ = write!(text, ", {:.1}% {speed}", faster.abs());
            }
            let less = peak.saturating_sub(bytes);
            if less as f64 >= SEEN / 100.0 * peak as f64 {
                let _ = write!(text, ", {} less", human_bytes(less));
            }
            text.push('\n');
        }
        let mut room = vec![];
        room.extend(self.largest_batch.map(|batch| format!("--batch {batch} in one pass")));
        room.extend(self.longest_context.map(|context| format!("--context {context}")));
        room.extend(self.largest_preset.as_ref().map(|preset| preset.words.clone()));
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
            "largest_preset": self.largest_preset.as_ref().map(|preset| preset.name),
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

    fn trial(&self) -> Trial<'_> {
        Trial { scope: self.scope, device: self.device }
    }

    /// Plans with more bytes, which are faster, and with fewer.
    fn ladder(&self) -> Vec<Rung> {
        let config = self.config();
        let Some(mut fits) = self.trial().within(&config) else { return vec![] };
        let peak = self.planned.plan.peak_bytes();
        let step_s = self.planned.estimate(self.rates).step_s;
        // What there is now: a budget counts where it is what keeps the plan from being faster.
        let now = self.budget.map_or(peak, |budget| budget.max(peak));
        let first = 1 << (peak / FIRST).max(1).ilog2();
        let rung = |change: i64, planned: Planned| {
            let step_s = planned.estimate(self.rates).step_s;
            Rung { change, planned, step_s }
        };
        let mut rungs: Vec<Rung> = vec![];
        if let Some((Some(fastest), _)) = fits(u64::MAX) {
            let most = fastest.plan.peak_bytes();
            for change in (0..RUNGS).map(|step| first << step) {
                if now + change < most
                    && let Some((Some(planned), _)) = fits(now + change)
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
        for change in (0..RUNGS).map(|step| first << step) {
            match fits(peak.saturating_sub(change).max(1)) {
                Some((Some(planned), _)) => rungs.push(rung(-(change as i64), planned)),
                Some((None, least)) => {
                    smallest = Some(least);
                    break;
                }
                None => break,
            }
        }
        if let Some(least) = smallest.filter(|&least| least < peak)
            && let Some((Some(planned), _)) = fits(least)
        {
            rungs.push(rung(-((peak - planned.plan.peak_bytes()) as i64), planned));
        }
        // More bytes are for a faster step. Fewer bytes are what they say, and the plan itself is no rung.
        rungs.retain(|Rung { change, planned, step_s: other_s }| match *change > 0 {
            true => *other_s <= (1.0 - SEEN / 100.0) * step_s,
            false => planned.plan.peak_bytes() < peak,
        });
        // Several budgets can have one plan.
        let of = |rung: &Rung| (rung.planned.plan.peak_bytes(), rung.step_s.to_bits());
        rungs.dedup_by(|next, kept| {
            let same = of(next) == of(kept);
            // The fewest bytes that buy it, the most that it frees.
            if same && next.change > 0 {
                kept.change = next.change;
            }
            same
        });
        rungs
    }

    /// The plan with each knob that changes numbers or leaves more to the host, where it's faster or smaller and takes no more bytes. Where
    /// there is a budget for more, the words name a smaller one.
    fn allowed(&self) -> Vec<Allowed> {
        let config = self.config();
        let peak = self.planned.plan.peak_bytes();
        let now = self.budget.map_or(u64::MAX, |budget| budget.max(peak));
        let within = |config: &TrainerConfig| {
            let planned = self.trial().fitting(config, now)?;
            if planned.plan.peak_bytes() <= peak {
                return Some((String::new(), planned));
            }
            let planned = self.trial().fitting(config, peak)?;
            Some((format!(" --memory {peak}"), planned))
        };
        let step_s = self.planned.estimate(self.rates).step_s;
        let [_, offloaded, one, ..] = refusal::knobs(&config, self.device);
        let mut allowed = vec![];
        for Change { words, config } in offloaded.into_iter().chain(one) {
            let Some((memory, planned)) = within(&config) else { continue };
            let words = words + &memory;
            let Scope { rates, threads, .. } = self.scope;
            let known = rates.known(self.device, config.precision, *threads);
            let other_s = planned.estimate(&known.rates).step_s;
            let peak_bytes = planned.plan.peak_bytes();
            let least = SEEN / 100.0;
            if 1.0 - other_s / step_s >= least || 1.0 - peak_bytes as f64 / peak as f64 >= least {
                allowed.push(Allowed { words, planned, step_s: other_s });
            }
        }
        allowed
    }

    /// Whether a plan of `config` fits `budget`. Of all micro-batches, one sequence takes the fewest bytes, or all of
    /// them, which need no sums of gradients between passes.
    fn fits(&self, config: &TrainerConfig, budget: u64) -> bool {
        // Half bytes that a weight takes at least.
        let weight = match (&config.lora, config.master) {
            (Some(_), _) => 1,
            (None, Master::None) => 4,
            (None, Master::F32) => 8,
        };
        if parameters(config) / 2 * weight > budget {
            return false;
        }
        let sizes = match self.scope.micro_batch {
            true if config.own_batch() > 1 => vec![1, config.own_batch()],
            true => vec![1],
            false => vec![config.micro_batch],
        };
        let scope = Scope { micro_batch: false, ..self.scope.clone() };
        let trial = Trial { scope: &scope, device: self.device };
        sizes.into_iter().any(|micro_batch| {
            let config = TrainerConfig { micro_batch, ..config.clone() };
            trial.fitting(&config, budget).is_some()
        })
    }

    /// The largest batch that fits in one pass of each rank, of up to [`TIMES`] as many sequences; `None` if it isn't larger than the
    /// one that is planned.
    fn largest_batch(&self, budget: u64) -> Option<usize> {
        let config = self.config();
        let scope = Scope { micro_batch: false, ..self.scope.clone() };
        let trial = Trial { scope: &scope, device: self.device };
        let planned = self.planned.config().micro_batch;
        let shares = (config.ranks / config.context_ranks.max(1)).max(1);
        let own = largest(planned, 1, planned.saturating_mul(TIMES), &mut |micro_batch| {
            let batch = micro_batch.saturating_mul(shares);
            let config = TrainerConfig { batch, micro_batch, ..config.clone() };
            trial.fitting(&config, budget).is_some()
        })?;
        Some(own * shares).filter(|&batch| batch > config.batch)
    }

    /// The longest sequences that fit, of up to [`TIMES`] as long; `None` if they aren't longer than those that are planned. A new model has
    /// as many positions; one with weights keeps its own.
    fn longest_context(&self, budget: u64) -> Option<usize> {
        let config = self.config();
        let new = self.scope.new_model;
        let model = language(&config)?;
        let longest = if new { ModelConfig::LONGEST_CONTEXT } else { model.context };
        let taught = LanguageModel::of(&*config.model).and_then(LanguageModel::taught_context);
        let longest = longest.min(taught.unwrap_or(usize::MAX));
        let seq_len = config.model.seq_len();
        let most = longest.min(seq_len.saturating_mul(TIMES));
        // Ranks that share sequences have equal parts of them.
        let step = (seq_len / PARTS).max(1).next_multiple_of(config.context_ranks.max(1));
        let found = largest(seq_len, step, most, &mut |seq_len| {
            refusal::with_seq_len(&config, seq_len, new)
                .is_some_and(|config| self.fits(&config, budget))
        })?;
        Some(found).filter(|&found| found > seq_len)
    }

    /// The known model with the most parameters that fits; `None` if it has no more of them than the one that is planned.
    fn largest_preset(&self, budget: u64) -> Option<Preset> {
        // Weights that are given decide the model.
        if !self.scope.new_model {
            return None;
        }
        let config = self.config();
        let own = parameters(&config);
        let fits = |config: &TrainerConfig| parameters(config) > own && self.fits(config, budget);
        let name = refusal::largest_preset(self.scope, &config, u64::MAX, &fits)?;
        Some(Preset { name, words: self.scope.preset_words(name, &config) })
    }
}

/// The largest number up to `most` that fits, in steps of `step` from `start` on, or of [`TOLD`] parts where that is more.
/// `None` where `start` doesn't.
fn largest(
    start: usize,
    step: usize,
    most: usize,
    fits: &mut dyn FnMut(usize) -> bool,
) -> Option<usize> {
    if !fits(start) {
        return None;
    }
    let mut below = start;
    let mut above = loop {
        let next = below.saturating_mul(2).min(most);
        if next == below {
            return Some(below);
        }
        if !fits(next) {
            break next;
        }
        below = next;
    };
    let step = step.max(below / TOLD);
    while above > below + step {
        let middle = below + ((above - below) / 2 / step).max(1) * step;
        if fits(middle) { below = middle } else { above = middle }
    }
    Some(below)
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
                n <= limit
            });
            let found = found.unwrap();
            let (limit, step) = (limit.min(most), step.max(found / TOLD));
            assert!(found <= limit && found + step > limit, "{found}");
            assert!(tries <= 12, "{tries}");
        }
        assert_eq!(largest(8, 1, 9, &mut |n| n < 8), None);
    }
}
