//! `tightrope verify DIR…`: checks a device against recorded reference cases.

use tightrope::devices::Spec;
use tightrope::settings::Settings;
use tightrope::verify::Verification;

use crate::args::Verify;
use crate::failure::Failure;
use crate::output;

/// Runs the cases and prints how far the device is from each.
///
/// # Errors
/// When a case can't be read, the device isn't there, or a figure is beyond its tolerance.
pub fn run(args: &Verify) -> Result<(), Failure> {
    let mut settings = Settings::default();
    settings.run.device = args.device;
    let mut verification = Verification::on(Spec::of(&settings))?;
    for dir in &args.cases {
        let verdict = verification.check(dir)?;
        if !args.json {
            output::print(&verdict.text())?;
        }
    }
    let report = verification.finish()?;
    if args.json { output::print_json(&report) } else { Ok(()) }
}
