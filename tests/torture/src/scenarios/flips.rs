//! Bits that flip in the files of a run that was ended half-way, and in its cache: in each file, at its beginning, in its middle and at
//! its end. Then it goes on to the same numbers, or says what is damaged.

use std::fs;

use super::scattered;
use crate::chamber::Case;
use crate::configurations::HALF_WAY;
use crate::results::{RUN, files};
use crate::tally::{Tally, Violation, Well, Wrong};

/// Bytes at the beginning and at the end of a file that are hit as often as all between.
const EDGE: usize = 64;

/// A flip, or another kind of damage that disks do, in one of eight cases.
pub fn attempt(case: &mut Case<'_>) -> anyhow::Result<Tally> {
    let chamber = case.chamber;
    let configurations = &chamber.configurations;
    let which = scattered(case, configurations.len() as u64) as usize;
    let configuration = &configurations[which];
    case.half_way(configuration)?;
    let files = [files(&case.dir.join(RUN))?, files(&case.dir.join("cache"))?].concat();
    let file = case.draws.one_of(&files).clone();
    let mut bytes = fs::read(&file)?;
    let done = damage(case, &mut bytes);
    fs::write(&file, &bytes)?;
    let shown = file.strip_prefix(&case.dir).unwrap_or(&file).display();
    case.story.push(format!("{}: {shown}: {done}", configuration.kind.name));
    // Lines of metrics have no sums: what they say of steps before is as it's read.
    let is_metrics = file.file_name().is_some_and(|name| name == "metrics.jsonl");
    let since = if is_metrics { HALF_WAY } else { 0 };
    let mut verdict = case.goes_on_or_says_why(configuration, since)?;
    // Nothing in a cache may end a run.
    if file.starts_with(case.dir.join("cache")) && verdict == Ok(Well::Refused) {
        verdict = Err(Violation::new(Wrong::Lost, "a damaged cache ends a run"));
    }
    Ok(Tally::of(verdict))
}

/// Damages bytes, and says how.
fn damage(case: &mut Case<'_>, bytes: &mut Vec<u8>) -> String {
    let draws = &mut case.draws;
    let length = bytes.len();
    if length == 0 {
        bytes.push(draws.bits() as u8);
        return "a byte where there was none".to_owned();
    }
    let edge = EDGE.min(length);
    let at = match draws.below(3) {
        0 => draws.place(edge),
        1 => length - 1 - draws.place(edge),
        _ => draws.place(length),
    };
    match draws.below(24) {
        0 => {
            bytes.truncate(at);
            format!("cut to {at} of {length} bytes")
        }
        1 => {
            let end = length.min(at + 512);
            bytes[at..end].fill(0);
            format!("zeros from byte {at} to {end} of {length}")
        }
        2 => {
            bytes.clear();
            "emptied".to_owned()
        }
        _ => {
            let bit = draws.below(8);
            bytes[at] ^= 1 << bit;
            format!("bit {bit} of byte {at} of {length} flipped")
        }
    }
}
