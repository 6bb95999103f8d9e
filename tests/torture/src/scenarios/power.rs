//! Power that goes away at any moment of a run: what a file system may have kept by then is made, and the run goes on with it.

use super::kills::Part;
use super::scattered;
use crate::chamber::Case;
use crate::power::disk::{Habit, Record};
use crate::power::log;
use crate::results::saved;
use crate::tally::{Tally, Violation, Wrong};

/// What is found after one of the changes of a run, with one of the habits.
pub fn attempt(case: &mut Case<'_>) -> anyhow::Result<Tally> {
    let chamber = case.chamber;
    let parts = Part::all(&chamber.configurations);
    // Every part comes as often, however much it writes.
    let which = scattered(case, (parts.len() * Habit::ALL.len()) as u64) as usize;
    let (part, habit) = (&parts[which / Habit::ALL.len()], Habit::ALL[which % Habit::ALL.len()]);
    let record = part.record()?;
    let count = case.draws.place(record.changes.len() + 1);
    let dir = case.dir.clone();
    record.found(count, habit, &mut case.draws, &dir)?;
    let last = record.changes.get(count.wrapping_sub(1));
    let last = last.map_or_else(|| "none".to_owned(), |change| format!("{change:.64?}"));
    let (name, all) = (part.configuration.kind.name, record.changes.len());
    case.story.push(format!(
        "{name}, {}: {habit:?} of {count} changes of {all}; the last: {}",
        part.words,
        last.chars().take(100).collect::<String>()
    ));
    let (promised, newest) = (record.promised(count), saved(&dir).last().copied());
    if promised > newest {
        let what =
            format!("the checkpoint of step {promised:?} was flushed, and {newest:?} is found");
        return Ok(Tally::of(Err(Violation::new(Wrong::Lost, what))));
    }
    Ok(Tally::of(case.goes_on(part.configuration, "")?))
}

impl Part<'_> {
    /// What it changes on a disk.
    fn record(&self) -> anyhow::Result<Record> {
        let log = log::read(&self.extent.log)?;
        Record::new(&self.extent.from, &self.extent.dir, &log)
    }
}
