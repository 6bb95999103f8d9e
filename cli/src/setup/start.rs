//! The plan of a run that is about to start: within its budget, and within what is free now.

use anyhow::anyhow;
use tightrope_core::Backend;
use tightrope_nn::{ModelConfig, Planned};

use super::plan_file::{self, PlanFile};
use super::{free_memory, planned_of, trainer_config_of};
use crate::devices::can_be_lost;
use crate::error::Failure;
use crate::progress::human_bytes;
use crate::settings::{Bytes, MicroBatch, Recompute, Settings};

/// Bytes that a run on this device can take now, where that's known: what it says is free, and of the processor what the
/// system has free.
pub fn free(target: &dyn Backend) -> Option<u64> {
    target.free_bytes().or_else(|| free_memory().filter(|_| !can_be_lost(target)))
}

/// The plan of a run of `model`, and what there is to say of it. The run's `own` plan comes first, then the one that
/// the settings name, then the fastest that fits. One that takes more than is `free` is replaced by one that doesn't.
///
/// # Errors
/// As [`planned_of`] and [`plan_file::planned`].
pub fn planned_now(
    settings: &Settings,
    model: &ModelConfig,
    own: Option<&PlanFile>,
    free: Option<u64>,
    target: &dyn Backend,
) -> Result<(Planned, Vec<String>), Failure> {
    let config = trainer_config_of(settings, model.clone())?;
    let asked = settings.memory.budget.map(|Bytes(bytes)| bytes);
    let free = free.unwrap_or(u64::MAX);
    let mut notes = vec![];
    if let Some(asked) = asked.filter(|&asked| asked > free) {
        let (asked, free) = (human_bytes(asked), human_bytes(free));
        notes.push(format!("--memory is {asked}, and {free} are free now"));
    }
    let again = own.and_then(|own| own.made(settings, &config, target).ok()?.ok());
    let is_own = again.is_some();
    let first = match (again, &settings.memory.plan) {
        (Some(again), _) => again,
        (None, Some(file)) => {
            let budget = asked.unwrap_or(u64::MAX);
            plan_file::planned(file, settings, &config, budget, target)?
        }
        (None, None) => planned_of(settings, config, target)?,
    };
    let bytes = first.plan.peak_bytes();
    if bytes <= free {
        return Ok((first, notes));
    }
    let mut tighter = settings.clone();
    tighter.memory.plan = None;
    tighter.memory.budget = Some(Bytes(free));
    let mut opened = vec![tighter.clone()];
    if is_own {
        // Its settings are what was chosen when it began. What is recomputed changes no number.
        tighter.memory.recompute = Recompute::Auto;
        opened.push(tighter.clone());
        tighter.train.micro_batch = MicroBatch::Auto;
        opened.push(tighter);
    }
    let mut refusal = Failure::failed(anyhow!("no memory is free"), "end other programs");
    for settings in &opened {
        match planned_of(settings, trainer_config_of(settings, model.clone())?, target) {
            Ok(planned) => {
                let (was, config) = (first.config(), planned.config());
                let mut note = format!(
                    "the plan takes {}, and {} are free now: it was made again for those",
                    human_bytes(bytes),
                    human_bytes(free)
                );
                if config.micro_batch != was.micro_batch {
                    note += &format!(
                        ", with micro-batches of {} instead of {}, which sum in another order",
                        config.micro_batch, was.micro_batch
                    );
                }
                notes.push(note);
                return Ok((planned, notes));
            }
            Err(failure @ Failure::DoesNotFit(_)) => refusal = failure,
            Err(failure) => return Err(failure),
        }
    }
    Err(refusal)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tightrope_backend_cpu::Cpu;

    use super::*;
    use crate::setup::plan_file::{Choices, MadeFor};
    use crate::setup::{fit, model_config};

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
    ) -> Result<(Planned, Vec<String>), Failure> {
        let model = model_config(settings).unwrap();
        planned_now(settings, &model, own, Some(free), &Cpu::new(1).unwrap())
    }

    fn file_of(planned: &Planned) -> PlanFile {
        let config = planned.config();
        let file =
            json!({ "made_for": MadeFor::of(config, "cpu"), "choices": Choices::of(config) });
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
        assert_eq!(refusal.code(), 3);
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
        let open = self::settings();
        let config = trainer_config_of(&open, model_config(&open).unwrap()).unwrap();
        let (_, least) = fit(&open, &config, 1, &Cpu::new(1).unwrap()).unwrap();
        let (parts, notes) = planned(&settings, Some(&own), least).unwrap();
        assert!(parts.config().micro_batch < began.config().micro_batch);
        assert!(notes[0].contains("with micro-batches of"), "{notes:?}");
        // What was asked for is not opened.
        assert_eq!(planned(&settings, None, bytes * 9 / 10).err().map(|it| it.code()), Some(3));
    }
}
