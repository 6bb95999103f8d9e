//! Memory that runs out: each allocation of a run and of going on with one fails once. The process ends with words then, or does
//! without; and nothing is lost.

use super::kills::Part;
use crate::chamber::{Case, Chamber};
use crate::command::Orders;
use crate::power::log;
use crate::protocol::{ALLOCATION, Order, Word};
use crate::tally::{Tally, Verdict, Violation, Well};

/// Allocations of one case: each ends a copy of the process, which takes about a millisecond.
const SLICE: u64 = 1000;
/// Allocations of a slice that may be those of Rust's runtime, before the program begins and where threads do: it aborts before
/// the command can say more than it does.
const RUNTIME: usize = 16;

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
    let mut tally = Tally { refused: ended.word(Word::Refused), ..Tally::default() };
    // The process itself goes on undisturbed.
    let whole =
        ended.check().and_then(|()| part.configuration.results.hold(&case.dir, &ended.stderr));
    tally.violations.extend(whole.err());
    // What ended otherwise may be so because it's a copy, which lacks the threads of the process. It's tried again, as a process.
    for entry in log::read(&log)?.iter().filter(|entry| entry.what == ALLOCATION) {
        match alone(case, part, entry.result as u64)? {
            Ok(Well::Identical) => tally.identical += 1,
            Ok(Well::Refused) => tally.refused += 1,
            Err(violation) => tally.violations.push(violation),
        }
    }
    let aborts =
        |violation: &Violation| violation.what.contains("signal 6 ended it: memory allocation");
    let aborted = tally.violations.iter().filter(|violation| aborts(violation)).count();
    if aborted <= RUNTIME {
        tally.violations.retain(|violation| !aborts(violation));
        tally.refused += aborted as u64;
    }
    tally.tries = tally.identical + tally.refused + tally.violations.len() as u64;
    Ok(tally)
}

/// Fails one allocation of a process by itself.
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
    // The C library ends a process itself where it can't note what a thread leaves behind; it says so.
    if ended.stderr.starts_with("Fatal glibc error: ") && ended.stderr.contains("out of memory") {
        return Ok(case.goes_on(part.configuration, "")?.map(|_| Well::Refused));
    }
    if let Err(mut violation) = ended.check() {
        violation.what = format!("allocation {allocation}: {}", violation.what);
        return Ok(Err(violation));
    }
    if ended.is_done() {
        let held = part.configuration.results.hold(&case.dir, &ended.stderr);
        return Ok(held.map(|()| Well::Identical));
    }
    Ok(case.goes_on(part.configuration, &ended.stderr)?.map(|_| Well::Refused))
}
