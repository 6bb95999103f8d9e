//! Processes that end as by SIGKILL: before and after each call of the system, and at any time; while they train, save, remove old
//! checkpoints, and go on after another.

use std::time::Duration;

use rustix::process::Signal;

use super::scattered;
use crate::chamber::Case;
use crate::command::{Orders, PATIENCE};
use crate::configurations::{Configuration, Extent, RESUME};
use crate::protocol::Order;
use crate::tally::{Tally, Violation, Wrong};

/// A part of a run that is disturbed: the whole of a new one, or the rest of one that was ended half-way.
pub struct Part<'a> {
    pub configuration: &'a Configuration,
    pub extent: &'a Extent,
    pub words: String,
    resumes: bool,
}

impl<'a> Part<'a> {
    /// Both parts of each configuration.
    pub fn all(configurations: &'a [Configuration]) -> Vec<Self> {
        let parts = |configuration: &'a Configuration| {
            let (whole, rest) = (&configuration.whole, &configuration.rest);
            [(whole, configuration.kind.fresh(), false), (rest, RESUME.to_owned(), true)]
                .map(|(extent, words, resumes)| Self { configuration, extent, words, resumes })
        };
        configurations.iter().flat_map(parts).collect()
    }

    /// The part with the `place`-th of things of which each has so `many`, and its number there.
    pub fn at(parts: &[Self], mut place: u64, many: impl Fn(&Self) -> u64) -> (&Self, u64) {
        for part in parts {
            if place < many(part) {
                return (part, place);
            }
            place -= many(part);
        }
        (&parts[0], 0)
    }

    /// Fills the folder of a case with what it begins with.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn begin(&self, case: &Case<'_>) -> anyhow::Result<()> {
        if self.resumes {
            case.half_way(self.configuration)
        } else {
            case.begin(self.configuration)
        }
    }
}

/// A kill before or after a call; then another in what goes on, in one of three cases.
pub fn at_calls(case: &mut Case<'_>) -> anyhow::Result<Tally> {
    let chamber = case.chamber;
    at_calls_of(case, &chamber.configurations)
}

/// The same with a GPU.
pub fn on_gpu(case: &mut Case<'_>) -> anyhow::Result<Tally> {
    let chamber = case.chamber;
    at_calls_of(case, chamber.on_gpu()?)
}

fn at_calls_of(case: &mut Case<'_>, configurations: &[Configuration]) -> anyhow::Result<Tally> {
    let parts = Part::all(configurations);
    let orders = |part: &Part<'_>| 2 * part.extent.calls;
    let place = scattered(case, parts.iter().map(orders).sum());
    let (part, place) = Part::at(&parts, place, orders);
    part.begin(case)?;
    let order = if place.is_multiple_of(2) { Order::KillBefore } else { Order::KillAfter };
    case.story.push(format!("{}: {order:?} call {}", part.configuration.kind.name, place / 2));
    let mut ended = case.run(&part.words, &Orders::at(order, place / 2))?;
    let mut said = ended.stderr.clone();
    let mut kills = 1;
    while ended.is_killed() && kills < 4 && case.draws.one_in(3) {
        let call = case.draws.below(part.configuration.rest.calls * 5 / 4);
        ended = case.run(RESUME, &Orders::at(Order::KillAfter, call))?;
        said += &ended.stderr;
        kills += 1;
    }
    if let Err(violation) = ended.check() {
        return Ok(Tally::of(Err(violation)));
    }
    Ok(Tally::of(case.goes_on(part.configuration, &said)?))
}

/// A kill at a time that is drawn.
pub fn at_any_time(case: &mut Case<'_>) -> anyhow::Result<Tally> {
    let chamber = case.chamber;
    let parts = Part::all(&chamber.configurations);
    let part = case.draws.one_of(&parts);
    part.begin(case)?;
    let micros = part.extent.took.as_micros() as u64;
    let after = Duration::from_micros(case.draws.below(micros * 5 / 4));
    let running = chamber.tightrope.start(&case.dir, &part.words, &Orders::none())?;
    std::thread::sleep(after.saturating_sub(running.begun.elapsed()));
    running.signal(Signal::KILL);
    let ended = running.wait(PATIENCE)?;
    case.story.push(format!("{}: killed after {after:?}", part.configuration.kind.name));
    case.tell(&part.words, &ended);
    if !ended.is_killed() && !ended.is_done() {
        let wrong = Violation::new(Wrong::Words, format!("it failed before: {}", ended.stderr));
        return Ok(Tally::of(Err(wrong)));
    }
    Ok(Tally::of(case.goes_on(part.configuration, &ended.stderr)?))
}
