//! Two processes that go on with one run: one of them does, and the other is refused by name, or comes after it.

use std::time::Duration;

use crate::chamber::Case;
use crate::command::{Orders, PATIENCE};
use crate::configurations::RESUME;
use crate::results::{self, RUN};
use crate::tally::{Tally, Violation, Well, Wrong};

/// Two of them, begun within the time that one takes.
pub fn attempt(case: &mut Case<'_>) -> anyhow::Result<Tally> {
    let chamber = case.chamber;
    let configuration = case.draws.one_of(&chamber.configurations);
    case.half_way(configuration)?;
    let micros = configuration.rest.took.as_micros() as u64;
    let after = Duration::from_micros(case.draws.below(micros));
    let first = chamber.tightrope.start(&case.dir, RESUME, &Orders::none())?;
    std::thread::sleep(after.saturating_sub(first.begun.elapsed()));
    // Its output is apart from the other's.
    let other = case.dir.join("other");
    results::copy(&case.dir.join("cache"), &other.join("cache"))?;
    let run = format!("train --resume {}", case.dir.join(RUN).display());
    let data = format!("{run} --data {}", case.dir.join("text.txt").display());
    let second = chamber.tightrope.start(&other, &data, &Orders::none())?;
    let ended = [first.wait(PATIENCE)?, second.wait(PATIENCE)?];
    case.story.push(format!("{}: the second after {after:?}", configuration.kind.name));
    for ended in &ended {
        case.tell("train --resume …", ended);
        if let Err(violation) = ended.check() {
            return Ok(Tally::of(Err(violation)));
        }
        let named = ended.stderr.contains("is training in") && ended.code == Some(2);
        if !ended.is_done() && !named {
            let wrong = Violation::new(Wrong::Words, format!("refused, but: {}", ended.stderr));
            return Ok(Tally::of(Err(wrong)));
        }
    }
    if !ended.iter().any(|ended| ended.is_done()) {
        return Ok(Tally::of(Err(Violation::new(Wrong::Lost, "neither went on"))));
    }
    let said: String = ended.iter().map(|ended| ended.stderr.as_str()).collect();
    let held = configuration.results.hold(&case.dir, &said);
    Ok(Tally::of(held.map(|()| Well::Identical)))
}
