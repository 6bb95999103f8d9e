//! Signals that ask a run to end, at any time: it saves, says so, and goes on later to the same numbers. One that stops it for a
//! while changes nothing.

use std::time::Duration;

use rustix::process::Signal;

use super::kills::Part;
use crate::chamber::Case;
use crate::command::{Orders, PATIENCE};
use crate::tally::{Tally, Violation, Well, Wrong};

/// What asks a run to end, what may come twice, and what stops it.
const SIGNALS: [Signal; 5] = [Signal::TERM, Signal::INT, Signal::HUP, Signal::USR1, Signal::XCPU];

/// One signal, two, or a pause.
pub fn attempt(case: &mut Case<'_>) -> anyhow::Result<Tally> {
    let chamber = case.chamber;
    let parts = Part::all(&chamber.configurations);
    let part = case.draws.one_of(&parts);
    part.begin(case)?;
    let signal = *case.draws.one_of(&SIGNALS);
    let micros = part.extent.took.as_micros() as u64;
    let after = Duration::from_micros(case.draws.below(micros));
    let running = chamber.tightrope.start(&case.dir, &part.words, &Orders::none())?;
    std::thread::sleep(after.saturating_sub(running.begun.elapsed()));
    let pauses = case.draws.one_in(6);
    if pauses {
        running.signal(Signal::STOP);
        std::thread::sleep(Duration::from_millis(20));
        running.signal(Signal::CONT);
    } else {
        running.signal(signal);
        if case.draws.one_in(3) {
            running.signal(*case.draws.one_of(&SIGNALS));
        }
    }
    let ended = running.wait(PATIENCE)?;
    let what = if pauses { Signal::STOP } else { signal };
    case.story.push(format!("{}: {what:?} after {after:?}", part.configuration.kind.name));
    case.tell(&part.words, &ended);
    // Before a run begins, signals end a process, which has nothing to lose.
    let early = !pauses && ended.code.is_none() && !ended.stderr.contains("\nrun ");
    if early {
        return Ok(Tally::of(case.goes_on(part.configuration, &ended.stderr)?));
    }
    if let Err(violation) = ended.check() {
        return Ok(Tally::of(Err(violation)));
    }
    if ended.is_done() {
        let held = part.configuration.results.hold(&case.dir, &ended.stderr);
        return Ok(Tally::of(held.map(|()| Well::Identical)));
    }
    if ended.code != Some(130) {
        let wrong =
            Violation::new(Wrong::Words, format!("code {:?}: {}", ended.code, ended.stderr));
        return Ok(Tally::of(Err(wrong)));
    }
    Ok(Tally::of(case.goes_on(part.configuration, &ended.stderr)?))
}
