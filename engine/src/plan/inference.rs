//! The plan of programs that read a model: those of the largest micro-batch that fits.

use anyhow::anyhow;
use serde_json::json;
use tightrope_core::Backend;
use tightrope_nn::{FrozenBits, Kind, Planned, Precision, Programs, TrainerConfig};

use super::budget::available_bytes;
use super::scope::Scope;
use crate::error::{Error, Result};
use crate::settings::Bytes;
use crate::units::{exact_bytes, human_bytes};

/// The plan of the programs of `config`, which train nothing. Micro-batches are as large as they can be where the scope leaves
/// them open.
///
/// # Errors
/// [`Kind::DoesNotFit`](crate::error::Kind) with the smallest plan and a change that fits, and settings that no graph can be built
/// from.
pub fn inference(scope: &Scope, config: &TrainerConfig, target: &dyn Backend) -> Result<Planned> {
    let budget = available_bytes(scope, target).unwrap_or(u64::MAX);
    let (found, smallest) = within(scope, config, budget, target)?;
    if let Some(planned) = found {
        return Ok(planned);
    }
    let enough = format!("--memory {}", Bytes(smallest).rounded_up());
    let (mut help, mut knob) = (format!("{enough} fits"), None);
    for (words, config) in smaller(config) {
        // A change that can't be planned is no help.
        if let Ok((Some(planned), _)) = within(scope, &config, budget, target) {
            let bytes = planned.plan.peak_bytes();
            help = format!("{words} fits, with {}; so does {enough}", human_bytes(bytes));
            knob = Some(json!({ "words": words, "bytes": bytes }));
            break;
        }
    }
    let message = format!(
        "reading the model takes {} at least, and {} are available",
        exact_bytes(smallest),
        exact_bytes(budget)
    );
    let details =
        json!({ "smallest_bytes": smallest, "budget_bytes": budget, "cheapest_knob": knob });
    Err(Error::does_not_fit(anyhow!(message), help).with_details(details))
}

/// The plan of the largest micro-batch within `budget`, if any, and the fewest bytes of those that were seen.
fn within(
    scope: &Scope,
    config: &TrainerConfig,
    budget: u64,
    target: &dyn Backend,
) -> Result<(Option<Planned>, u64)> {
    let mut smallest = u64::MAX;
    for micro_batch in (1..=config.batch).rev().filter(|n| config.batch.is_multiple_of(*n)) {
        if !scope.micro_batch && micro_batch != config.micro_batch {
            continue;
        }
        let planned = Planned::new(&TrainerConfig { micro_batch, ..config.clone() }, target)?;
        let bytes = planned.plan.peak_bytes();
        smallest = smallest.min(bytes);
        if bytes <= budget {
            return Ok((Some(planned), smallest));
        }
    }
    Ok((None, smallest))
}

/// The configuration in fewer bits, in words of the command line: the one that changes numbers least comes first.
fn smaller(config: &TrainerConfig) -> Vec<(&'static str, TrainerConfig)> {
    let Programs::Inference { loss, weight_bits } = config.programs else { return vec![] };
    let with = |precision, weight_bits| {
        let programs = Programs::Inference { loss, weight_bits };
        TrainerConfig { precision, programs, ..config.clone() }
    };
    let half = config.precision == Precision::F32;
    let linear = config.model.parameters().iter().any(|parameter| parameter.kind == Kind::Linear);
    let mut found = vec![];
    if half {
        found.push(("--precision bf16", with(Precision::BF16, weight_bits)));
    }
    if weight_bits == FrozenBits::Precision && linear && config.lora.is_none() {
        for (alone, both, bits) in [
            ("--weight-bits 8", "--precision bf16 --weight-bits 8", FrozenBits::B8),
            ("--weight-bits 4", "--precision bf16 --weight-bits 4", FrozenBits::B4),
        ] {
            found.push((alone, with(config.precision, bits)));
            if half {
                found.push((both, with(Precision::BF16, bits)));
            }
        }
    }
    found
}
