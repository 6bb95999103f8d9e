//! `tightrope bench`: every op of a training step and the step as a whole, against what the device was
//! measured to reach.

use tightrope::bench::{Effort, bench};
use tightrope::settings::Command;

use crate::args::Bench;
use crate::failure::Failure;
use crate::output;

/// Measures and prints.
///
/// # Errors
/// Wrong settings, a step that doesn't fit the memory, and what the device refuses.
pub fn run(args: &Bench) -> Result<(), Failure> {
    let step = super::asked(&args.settings, Command::Bench, None)?;
    if cfg!(debug_assertions) {
        output::note("this is a debug build, about half as fast as one made with --release");
    }
    let effort = if args.quick { Effort::Quick } else { Effort::Thorough };
    let figures = bench(&step, effort, &mut |note| output::note(note))?;
    if args.json { output::print_json(&figures.json()) } else { output::print(&figures.text()) }
}
