//! Passes over shorter sequences, in the arena of a plan that was chosen for whole ones.

use tightrope_core::Backend;
use tightrope_nn::{Planned, TrainerConfig};

use super::scope::Scope;
use super::trial::Trial;
use crate::error::Result;

/// How often a plan is chosen again in which the rest has room too.
const TRIES: usize = 3;

/// `planned`, with passes over the shorter sequences of `config`. They share its arena, and take bytes of their own for their inputs and
/// launches alone; where those exceed `budget`, another plan is chosen that has room for them. Where none is found, `planned` is left
/// as it is, and its batches are padded to whole sequences.
///
/// # Errors
/// Settings that no graph can be built from.
pub(super) fn with_shorter(
    planned: Planned,
    (scope, config): (&Scope, &TrainerConfig),
    budget: u64,
    target: &dyn Backend,
) -> Result<Planned> {
    if config.shorter().is_empty() {
        return Ok(planned);
    }
    let trial = Trial { scope, device: target };
    let (mut planned, mut room) = (planned, budget);
    for _ in 0..TRIES {
        let with = planned.with_shorter(config.shorter(), target)?;
        let bytes = with.plan.peak_bytes();
        if bytes <= budget {
            return Ok(with);
        }
        room = room.saturating_sub(bytes - budget);
        match trial.fitting(config, room) {
            Some(smaller) => planned = smaller,
            None => break,
        }
    }
    Ok(planned)
}
