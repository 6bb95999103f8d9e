//! The plan of a run that is about to start: within its budget, and within what is free now.

use anyhow::anyhow;
use tightrope_core::{Backend, plan};
use tightrope_nn::{Planned, TrainerConfig};

use super::budget;
use super::file::{self, PlanFile};
use super::scope::Scope;
use crate::error::{Error, Kind, Result};
use crate::machine::limit_below_machine;
use crate::settings::Recompute;
use crate::units::human_bytes;

/// The plan of a run of `config`, and what there is to say of it. The run's `own` plan comes first, then the one that
/// the scope names, then the fastest that fits. One that takes more than is `free` is replaced by one that doesn't.
///
/// # Errors
/// As [`budget::planned`] and `file::planned`.
pub fn planned_now(
    scope: &Scope,
    config: &TrainerConfig,
    own: Option<&PlanFile>,
    free: Option<u64>,
    target: &dyn Backend,
) -> Result<(Planned, Vec<String>)> {
    let asked = scope.budget;
    let free = free.unwrap_or(u64::MAX);
    let mut notes = vec![];
    if let Some(asked) = asked.filter(|&asked| asked > free) {
        let (asked, free) = (human_bytes(asked), human_bytes(free));
        notes.push(format!("--memory is {asked}, and {free} are free now"));
    }
    let again = own.and_then(|own| own.made(scope, config, target).ok()?.ok());
    let is_own = again.is_some();
    let first = match (again, &scope.plan) {
        (Some(again), _) => again,
        (None, Some(path)) => {
            let budget = asked.unwrap_or(u64::MAX);
            file::planned(path, scope, config, budget, target)?
        }
        (None, None) => budget::planned(scope, config.clone(), target)?,
    };
    let bytes = first.plan.peak_bytes();
    if bytes <= free {
        return Ok((first, notes));
    }
    let mut tighter = scope.clone();
    tighter.plan = None;
    tighter.budget = Some(free);
    let mut opened = vec![(tighter.clone(), config.clone())];
    if is_own {
        // Its settings are what was chosen when it began. What is recomputed changes no number.
        let mut config = config.clone();
        tighter.recompute = Recompute::Auto;
        config.options.checkpoint = plan::Checkpoint::None;
        opened.push((tighter.clone(), config.clone()));
        tighter.micro_batch = !config.consume_gradients;
        config.micro_batch = config.own_batch();
        opened.push((tighter, config));
    }
    let mut refusal = None;
    for (scope, config) in opened {
        match budget::planned(&scope, config, target) {
            Ok(planned) => {
                let (was, config) = (first.config(), planned.config());
                let mut note = format!(
                    "the plan takes {}, and {} are free now: it was made again for those",
                    human_bytes(bytes),
                    human_bytes(free)
                );
                if let Some(limit) = limit_below_machine().filter(|_| !target.kind().can_be_lost())
                {
                    note += &format!(" ({limit})");
                }
                if config.micro_batch != was.micro_batch {
                    note += &format!(
                        ", with micro-batches of {} instead of {}, which sum in another order",
                        config.micro_batch, was.micro_batch
                    );
                }
                notes.push(note);
                return Ok((planned, notes));
            }
            // The first is what was asked for. The others are tried, and say no more than by how much they don't fit.
            Err(failure) if refusal.is_none() || failure.kind() == Kind::DoesNotFit => {
                refusal = Some(failure);
            }
            Err(_) => {}
        }
    }
    Err(refusal
        .unwrap_or_else(|| Error::failed(anyhow!("no memory is free"), "end other programs")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tightrope_backend_cpu::Cpu;
    use tightrope_core::DeviceKind;

    use super::*;
    use crate::plan::fit::fit;
    use crate::plan::{Choices, MadeFor};
    use crate::recipe::Step;
    use crate::settings::{Bytes, MicroBatch, Settings};

    fn settings() -> Settings {
        let mut settings = Settings::default();
        settings.model.preset = Some("tiny".to_owned());
        settings.model.layers = Some(4);
        settings.train.batch = Some(4);
        settings
    }

    fn planned(
        settings: &Settings,
        own: Option<&PlanFile>,
        free: u64,
    ) -> Result<(Planned, Vec<String>)> {
        let Step { config, scope, .. } = Step::of(settings).unwrap();
        planned_now(&scope, &config, own, Some(free), &Cpu::new(1).unwrap())
    }

    fn file_of(planned: &Planned) -> PlanFile {
        let config = planned.config();
        let file = json!({ "made_for": MadeFor::of(config, DeviceKind::Cpu), "choices": Choices::of(config) });
        serde_json::from_value(file).unwrap()
    }

    #[test]
    fn a_budget_above_what_is_free_is_planned_again() {
        let mut settings = settings();
        settings.memory.budget = Some(Bytes(1 << 40));
        let (whole, notes) = planned(&settings, None, 1 << 50).unwrap();
        assert!(notes.is_empty(), "{notes:?}");
        let bytes = whole.plan.peak_bytes();
        let (same, notes) = planned(&settings, None, bytes).unwrap();
        assert_eq!(same.plan.peak_bytes(), bytes);
        assert!(notes[0].contains("--memory is 1.00 TiB, and"), "{notes:?}");
        let free = bytes * 9 / 10;
        let (smaller, notes) = planned(&settings, None, free).unwrap();
        assert!(smaller.plan.peak_bytes() <= free);
        assert!(notes[1].contains("made again for those"), "{notes:?}");
        let refusal = planned(&settings, None, 1000).err().unwrap();
        assert_eq!(refusal.kind(), Kind::DoesNotFit);
    }

    #[test]
    fn a_run_goes_on_in_less_memory_than_it_began_with() {
        let (began, _) = planned(&settings(), None, 1 << 40).unwrap();
        let own = file_of(&began);
        // What the run's settings say after it began.
        let mut settings = settings();
        settings.train.micro_batch = MicroBatch::Size(began.config().micro_batch);
        settings.memory.recompute = Recompute::None;
        let bytes = began.plan.peak_bytes();
        let (again, notes) = planned(&settings, Some(&own), bytes).unwrap();
        let all = |planned: &Planned| format!("{:?}", planned.config());
        assert_eq!((all(&again), notes.len()), (all(&began), 0));
        let (recomputed, notes) = planned(&settings, Some(&own), bytes * 9 / 10).unwrap();
        assert!(recomputed.plan.peak_bytes() <= bytes * 9 / 10);
        assert_eq!(recomputed.config().micro_batch, began.config().micro_batch);
        assert!(!notes[0].contains("micro-batches"), "{notes:?}");
        let Step { config, scope, .. } = Step::of(&self::settings()).unwrap();
        let (_, least) = fit(&scope, &config, 1, &Cpu::new(1).unwrap()).unwrap();
        let (parts, notes) = planned(&settings, Some(&own), least).unwrap();
        assert!(parts.config().micro_batch < began.config().micro_batch);
        assert!(notes[0].contains("with micro-batches of"), "{notes:?}");
        // What was asked for is not opened.
        assert_eq!(
            planned(&settings, None, bytes * 9 / 10).err().map(|it| it.kind()),
            Some(Kind::DoesNotFit)
        );
    }
}
