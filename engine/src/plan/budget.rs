//! The plan of a run: the fastest within a budget, over what its scope leaves open.

use tightrope_core::Backend;
use tightrope_nn::{Planned, TrainerConfig};

use super::fit::{allowed, closest, fit, offloads, sharded};
use super::scope::Scope;
use super::shorter::with_shorter;
use super::trial::Trial;
use super::{file, refusal};
use crate::error::Result;
use crate::machine::free_memory;

/// Copies of what steps change that a run holds at most, should its device go away.
const COPIES: u64 = 3;

/// Part of a step's time within which two plans are as fast.
pub(super) const ALIKE: f64 = 0.001;

/// Bytes that a plan may take: the budget, else what the device has free, or the machine where the device says
/// nothing; `None` where none of them is known.
pub fn budget(scope: &Scope, device: &dyn Backend) -> Option<u64> {
    scope.budget.or_else(|| device.free_bytes()).or_else(free_memory)
}

/// Bytes that a plan may take and that are free now; `None` where neither is known.
pub(super) fn available_bytes(scope: &Scope, device: &dyn Backend) -> Option<u64> {
    let free = free(device);
    scope.budget.map_or(free, |budget| Some(free.map_or(budget, |free| free.min(budget))))
}

/// Bytes that a run on this device can take now, where that's known: what it says is free, and of the processor what the
/// system has free.
pub fn free(target: &dyn Backend) -> Option<u64> {
    target.free_bytes().or_else(|| free_memory().filter(|_| !target.kind().can_be_lost()))
}

/// The plan of the training step of `config`: the fastest of those that fit the budget, within the choices that are open.
///
/// # Errors
/// A device that can't offload; [`Kind::DoesNotFit`](crate::error::Kind) with the smallest plan found and a change that
/// fits.
pub fn planned(scope: &Scope, config: TrainerConfig, target: &dyn Backend) -> Result<Planned> {
    offloads(&config, target)?;
    let budget = budget(scope, target).unwrap_or(u64::MAX);
    if let Some(path) = &scope.plan {
        return file::planned(path, scope, &config, budget, target);
    }
    let mut smallest = u64::MAX;
    for config in allowed(scope, &config, target) {
        let mut refused = None;
        let mut fastest: Option<(Planned, TrainerConfig)> = None;
        for config in sharded(scope, &config) {
            let (found, least) = match fit(scope, &config, budget, target) {
                Ok(fit) => fit,
                Err(error) => {
                    refused.get_or_insert(error);
                    continue;
                }
            };
            smallest = smallest.min(least);
            let Some(found) = found else { continue };
            let known = scope.rates.known(target, config.precision, scope.threads);
            let seconds = |planned: &Planned| planned.estimate(&known.rates).step_s;
            // Of those that are as fast, the one whose ranks depend least on each other.
            let faster = |before: &Planned| seconds(&found) < (1.0 - ALIKE) * seconds(before);
            if fastest.as_ref().is_none_or(|(before, _)| faster(before)) {
                fastest = Some((found, config));
            }
        }
        if let Some((planned, config)) = fastest {
            return with_shorter(planned, (scope, &config), budget, target);
        }
        // The first configuration is the one that was asked for. Errors of the others, which are tried, are dropped.
        if let (u64::MAX, Some(error)) = (smallest, refused) {
            return Err(error);
        }
    }
    Err(refusal::does_not_fit(scope, &config, budget, smallest, target))
}

/// Bytes of the host's memory for a copy of what a rank writes of a checkpoint, where there's room for it beside the plan.
pub fn checkpoint_copy(scope: &Scope, planned: &Planned, device: &dyn Backend) -> Option<u64> {
    let bytes = planned.given_bytes();
    room_for_copy(scope, planned, device, bytes).then_some(bytes)
}

/// Returns `true` if the host has room for a copy of this number of bytes beside the plan: within what the plan may take and is free, or on a device
/// with memory of its own, what the host has free.
pub(crate) fn room_for_copy(
    scope: &Scope,
    planned: &Planned,
    device: &dyn Backend,
    bytes: u64,
) -> bool {
    let (taken, room) = match device.kind().can_be_lost() {
        true => (COPIES * planned.snapshot_bytes(), free_memory()),
        false => (planned.plan.peak_bytes(), available_bytes(scope, device)),
    };
    room.is_some_and(|room| taken + bytes <= room)
}

/// The fewest bytes that [`planned`] finds a plan for.
///
/// # Errors
/// Settings that no graph can be built from.
pub fn fewest_bytes(scope: &Scope, config: &TrainerConfig, target: &dyn Backend) -> Result<u64> {
    let asked = closest(scope, config, 1, target)?.fewest_bytes;
    let all = allowed(scope, config, target);
    let changed = all.iter().skip(1).flat_map(|config| sharded(scope, config));
    let trial = Trial { scope, device: target };
    let fewest = changed.filter_map(|config| trial.fewest_bytes(&config));
    Ok(fewest.fold(asked, u64::min))
}

#[cfg(test)]
mod tests {
    use tightrope_backend_cpu::Cpu;

    use super::*;
    use crate::error::Kind;
    use crate::recipe::Step;
    use crate::settings::Settings;

    #[test]
    fn a_budget_beyond_what_is_free_makes_no_room() {
        let Step { mut scope, .. } = Step::of(&Settings::default()).unwrap();
        let cpu = Cpu::new(1).unwrap();
        for (budget, most) in [(u64::MAX, u64::MAX - 1), (1, 1)] {
            scope.budget = Some(budget);
            assert!(available_bytes(&scope, &cpu).unwrap() <= most, "{budget}");
        }
    }

    #[test]
    fn the_fewest_bytes_fit_and_one_less_does_not() {
        for allow in ["[]", "[\"optimizer_bits\"]"] {
            let mut settings = Settings::default();
            for words in ["model.preset=tiny", "train.batch=4", &format!("memory.allow={allow}")] {
                settings.read_argument(words).unwrap();
            }
            let Step { config, mut scope, .. } = Step::of(&settings).unwrap();
            let cpu = Cpu::new(1).unwrap();
            let fewest = fewest_bytes(&scope, &config, &cpu).unwrap();
            scope.budget = Some(fewest);
            let smallest = planned(&scope, config.clone(), &cpu).unwrap();
            assert!(smallest.plan.peak_bytes() <= fewest);
            scope.budget = Some(fewest - 1);
            let refused = planned(&scope, config, &cpu).err().unwrap();
            assert_eq!(refused.kind(), Kind::DoesNotFit);
        }
    }
}
