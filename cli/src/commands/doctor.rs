//! `tightrope doctor`: what this machine has, and the largest preset that fits it.

use tightrope::doctor::Findings;

use crate::args::Doctor;
use crate::failure::Failure;
use crate::output;

/// Looks at the machine, plans every preset, and prints what was found.
///
/// # Errors
/// When the CPU refuses its threads, or a preset can't be planned.
pub fn run(args: &Doctor) -> Result<(), Failure> {
    let found = Findings::look()?;
    if args.json { output::print_json(&found.json()) } else { output::print(&found.text()) }
}
