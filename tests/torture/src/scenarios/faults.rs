//! Calls of the system that fail: each with each of its errors; a disk that is full from one moment on; and reading and writing that
//! are interrupted.

use super::kills::Part;
use super::scattered;
use crate::chamber::Case;
use crate::command::Orders;
use crate::protocol::{Order, Word, call};
use crate::tally::{Tally, Well};

/// The most errors that a call has.
const ERRORS: u64 = 5;

/// A call that fails. What was refused goes on afterwards; what wasn't has come to the same.
pub fn attempt(case: &mut Case<'_>) -> anyhow::Result<Tally> {
    let chamber = case.chamber;
    let parts = Part::all(&chamber.configurations);
    let faults = |part: &Part<'_>| ERRORS * part.extent.calls;
    let place = scattered(case, parts.iter().map(faults).sum());
    let (part, place) = Part::at(&parts, place, faults);
    part.begin(case)?;
    let order = match case.draws.below(12) {
        0 => Order::Full,
        1 => Order::Stutter,
        _ => Order::Fail,
    };
    let (at, error) = (place / ERRORS, place % ERRORS);
    let ended = case.run(&part.words, &Orders::at(order, at).with(Word::Draw, error))?;
    let (failed, error) = (call(ended.word(Word::Call)), ended.word(Word::Error));
    let kind = part.configuration.kind.name;
    case.story.insert(0, format!("{kind}: {order:?} at call {at}, {failed:?}, with {error}"));
    if let Err(violation) = ended.check() {
        return Ok(Tally::of(Err(violation)));
    }
    if ended.is_done() {
        let held = part.configuration.results.hold(&case.dir, &ended.stderr);
        return Ok(Tally::of(held.map(|()| Well::Identical)));
    }
    Ok(Tally::of(case.goes_on(part.configuration, &ended.stderr)?))
}
