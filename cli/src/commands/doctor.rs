//! `tightrope doctor`: what this machine has, and the largest preset that fits it.

use tightrope::check;
use tightrope::doctor::Findings;

use crate::args::Doctor;
use crate::failure::Failure;
use crate::output;

/// Looks at the machine, plans every preset, and prints what was found, with `--check` also of every kernel.
///
/// # Errors
/// When the CPU refuses its threads, or a preset can't be planned.
pub fn run(args: &Doctor) -> Result<(), Failure> {
    let mut found = Findings::look()?;
    if args.check {
        found.gpus().into_iter().try_for_each(check::variants::check_all)?;
        found = Findings::look()?;
    }
    if args.json { output::print_json(&found.json()) } else { output::print(&found.text()) }
}
