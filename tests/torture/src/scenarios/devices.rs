//! Devices that go away, at any call that a run makes of them: it's opened again, and no number changes.

use std::rc::Rc;

use crate::chamber::Case;
use crate::configurations::{KINDS, Kind};
use crate::device::Disturbance;
use crate::library;
use crate::tally::{Tally, Violation, Well, Wrong};

/// A processor, which pretends.
pub fn on_processor(case: &mut Case<'_>) -> anyhow::Result<Tally> {
    lost(case, false)
}

/// A GPU, which is destroyed.
pub fn on_gpu(case: &mut Case<'_>) -> anyhow::Result<Tally> {
    lost(case, true)
}

fn lost(case: &mut Case<'_>, gpu: bool) -> anyhow::Result<Tally> {
    let chamber = case.chamber;
    let kinds: Vec<Kind> = KINDS.into_iter().filter(|kind| kind.gpu == gpu).collect();
    let kind = *case.draws.one_of(&kinds);
    case.begin(&chamber.configurations[0])?;
    let undisturbed = chamber.undisturbed(kind, case)?;
    let (what, calls) = (Rc::<Disturbance>::default(), undisturbed.calls);
    let at = case.draws.below(calls);
    what.lose_at.set(Some(at));
    case.story.push(format!("{}: the device goes away at call {at} of {calls}", kind.name));
    let came = library::run(&kind, &case.dir, &what)?;
    case.story.extend(came.notes.iter().cloned());
    if let Some(error) = came.failed {
        return Ok(Tally::of(Err(Violation::new(Wrong::Lost, error))));
    }
    if what.lose_at.get().is_some() {
        return Ok(Tally::of(Err(Violation::new(Wrong::Words, "the device never went away"))));
    }
    if !came.notes.iter().any(|note| note.contains("was lost")) {
        return Ok(Tally::of(Err(Violation::new(Wrong::Silent, "nothing was said of it"))));
    }
    let held = undisturbed.results.hold(&case.dir, "");
    Ok(Tally::of(held.map(|()| Well::Identical)))
}
