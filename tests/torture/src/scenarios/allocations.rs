//! Memory that runs out: each allocation of a run and of going on with one fails once. The process ends with words then, or does
//! without; and nothing is lost.

use super::kills::Part;
use crate::chamber::{Case, Chamber};
use crate::command::Orders;
use crate::power::log;
use crate::protocol::{ALLOCATION, Order, SURVIVED, Word};
use crate::tally::{Tally, Verdict, Violation, Well, Wrong};

/// Allocations of one case: each ends a copy of the process, which takes about a millisecond.
const SLICE: u64 = 1000;

/// A case for each slice of each part's allocations.
pub fn cases(chamber: &Chamber) -> Option<u64> {
    Some(Part::all(&chamber.configurations).iter().map(slices).sum())
}

fn slices(part: &Part<'_>) -> u64 {
    part.extent.allocations.div_ceil(SLICE)
}

/// Fails each allocation of a slice.
pub fn attempt(case: &mut Case<'_>) -> anyhow::Result<Tally> {
    let chamber = case.chamber;
    let parts = Part::all(&chamber.configurations);
    let place = super::scattered(case, parts.iter().map(slices).sum());
    let (part, slice) = Part::at(&parts, place, slices);
    part.begin(case)?;
    let (from, kind) = (slice * SLICE, part.configuration.kind.name);
    let end = (from + SLICE).min(part.extent.allocations);
    case.story.push(format!("{kind}: allocations {from} to {end} of {}", part.words));
    let log = case.dir.join("allocations");
    let orders = Orders::at(Order::FailEachAllocation, from).with(Word::End, end).logged(&log);
    // Each has the time of a command.
    let patience = crate::command::PATIENCE * 30;
    let ended = chamber.tightrope.start(&case.dir, &part.words, &orders)?.wait(patience)?;
    case.tell(&part.words, &ended);
    let mut tally =
        Tally { tries: end - from, refused: ended.word(Word::Refused), ..Tally::default() };
    // The process itself goes on undisturbed.
    let whole =
        ended.check().and_then(|()| part.configuration.results.hold(&case.dir, &ended.stderr));
    tally.violations.extend(whole.err());
    let entries = log::read(&log)?;
    for entry in entries.iter().filter(|entry| entry.what == ALLOCATION) {
        let [status, hangs] = entry.numbers.map(|number| number as i32);
        let said = String::from_utf8_lossy(&entry.data);
        let what = || format!("allocation {}: {}", entry.result, said.trim_end());
        let code = libc::WEXITSTATUS(status);
        let verdict: Verdict = match (libc::WIFEXITED(status), code) {
            _ if hangs != 0 => alone(case, part, entry.result as u64)?,
            (true, SURVIVED | 0) => alone(case, part, entry.result as u64)?,
            (true, _) if !said.contains("panicked") => {
                Err(Violation::new(Wrong::Words, format!("code {code}, {}", what())))
            }
            _ => Err(Violation::new(Wrong::Panic, format!("status {status}, {}", what()))),
        };
        match verdict {
            Ok(Well::Identical) => tally.identical += 1,
            Ok(Well::Refused) => tally.refused += 1,
            Err(violation) => tally.violations.push(violation),
        }
    }
    Ok(tally)
}

/// Fails one allocation of a process, which goes on, to see what comes of it.
fn alone(case: &mut Case<'_>, part: &Part<'_>, allocation: u64) -> anyhow::Result<Verdict> {
    case.dir = crate::chamber::emptied(&case.dir.clone(), "alone")?;
    let verdict = alone_here(case, part, allocation);
    case.dir.pop();
    verdict
}

fn alone_here(case: &mut Case<'_>, part: &Part<'_>, allocation: u64) -> anyhow::Result<Verdict> {
    part.begin(case)?;
    case.story.push(format!("allocation {allocation} fails"));
    let ended = case.run(&part.words, &Orders::at(Order::FailAllocation, allocation))?;
    if let Err(violation) = ended.check() {
        return Ok(Err(violation));
    }
    if ended.is_done() {
        let held = part.configuration.results.hold(&case.dir, &ended.stderr);
        return Ok(held.map(|()| Well::Identical));
    }
    Ok(case.goes_on(part.configuration, &ended.stderr)?.map(|_| Well::Refused))
}
