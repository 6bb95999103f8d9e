//! Training by the instruction sets that a processor has wider ones than: `tests` runs the widest alone.

use std::process::Command;

use anyhow::{Context as _, ensure};
use serde_json::Value;

use crate::packages::{self, PACKAGES, words};
use crate::shell::Shell;

/// The tests of a file run by each of these instruction sets one day of this many times their number.
const DAYS: u64 = 3;

/// Tests that train, by each instruction set but the widest; files of tests are drawn by the date. An instruction set that the
/// processor lacks is named.
///
/// # Errors
/// Where a test fails or none runs, and where `tightrope doctor` doesn't name instruction sets.
pub fn test(shell: &mut Shell) -> anyhow::Result<()> {
    let binary = packages::binary(shell)?;
    let doctor = shell.output(Command::new(binary).args(["doctor", "--json"]))?;
    let found: Value = serde_json::from_str(&doctor).context("`tightrope doctor --json`")?;
    let sets = found["devices"][0]["instruction_sets"].as_array();
    let sets = sets.context("`tightrope doctor --json` names no instruction sets")?;
    let (has, lacks): (Vec<&Value>, Vec<&Value>) =
        sets.iter().partition(|set| set["available"] == true);
    let name = |set: &Value| set["name"].as_str().unwrap_or_default().to_owned();
    let of_those = |set: &&Value| format!("tests by {}, which this processor lacks", name(set));
    shell.not_run.extend(lacks.iter().map(of_those));
    let narrower: Vec<String> = has.iter().rev().skip(1).map(|set| name(set)).collect();
    let (files, sets) = (packages::test_files("tests/tests/training")?, narrower.len() as u64);
    for (set, which) in narrower.iter().zip(0..) {
        let drawn: Vec<&String> = (files.iter().zip(0..))
            .filter(|&(_, file)| shell.draw.takes_a_day_of(DAYS * sets, file * sets + which))
            .map(|(name, _)| name)
            .collect();
        if drawn.is_empty() {
            continue;
        }
        shell.say(format!("== by {set} =="));
        let mut tests = words(&["test", "--test", "training"]);
        tests.args(PACKAGES).arg("--").args(drawn).env("TIGHTROPE_ISA", set);
        shell.run(&mut tests)?;
    }
    ensure!(narrower.is_empty() || shell.counts.runners > 0, "no test ran");
    Ok(())
}
