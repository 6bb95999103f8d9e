//! The `tightrope` command: reads the command line, runs one command, prints what went wrong.

mod args;
mod commands;
mod failure;
#[cfg(feature = "hub")]
mod fetched;
#[cfg(unix)]
mod memory;
mod output;
mod progress;
mod signals;

use std::process::ExitCode;

use clap::Parser as _;
use tightrope::check::{self, Checker, Program};
#[cfg(target_os = "linux")]
use tightrope::data::files::is_private;
use tightrope::settings;

/// What this program is called with to run kernels that may take it down. Nobody types it.
const CHECKS: &str = "check-kernels";

fn main() -> ExitCode {
    #[cfg(unix)]
    memory::trace_panics_alone();
    #[cfg(unix)]
    if let Err(error) = memory::listen() {
        output::note(&format!("note: running out of memory will end in an abort: {error}"));
    }
    #[cfg(target_os = "linux")]
    name_a_runtime_folder();
    if std::env::args_os().nth(1).is_some_and(|first| first == CHECKS) {
        return match check::serve_stdin() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                output::note(&error.to_string());
                ExitCode::FAILURE
            }
        };
    }
    #[cfg(unix)]
    if let Some(code) = tightrope::ranks::stand_by() {
        return ExitCode::from(code);
    }
    check_kernels();
    #[cfg(feature = "hub")]
    tightrope::hub::enable(Box::new(fetched::told()));
    let cli = match args::Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return failure::print_usage(&error),
    };
    #[cfg(unix)]
    memory::speak_json(cli.command.json());
    match commands::run(&cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.print(cli.command.json());
            // Other ranks may wait for this one.
            tightrope::ranks::exit(failure.code().into())
        }
    }
}

/// Has kernels checked that a device wasn't seen with.
fn check_kernels() {
    match std::env::current_exe() {
        Ok(path) => {
            let program = Program { path, arguments: vec![CHECKS.into()] };
            check::enable(Checker::new(program, output::note));
        }
        Err(error) => {
            output::note(&format!("kernels go unchecked: this program isn't found again: {error}"))
        }
    }
}

/// Sets `XDG_RUNTIME_DIR` where it's unset or another user can write to it. Vulkan's loader looks there for a Wayland display, and its library
/// prints an error where no folder is set. The cache holds no display, nor does `/proc`.
#[cfg(target_os = "linux")]
fn name_a_runtime_folder() {
    const FOLDER: &str = "XDG_RUNTIME_DIR";
    let named = std::env::var_os(FOLDER).map(std::path::PathBuf::from);
    if named.is_some_and(|folder| is_private(&folder)) {
        return;
    }
    let folder = tightrope::machine::cache_folder().unwrap_or_else(|| "/proc".into());
    // SAFETY: the program has one thread yet.
    unsafe { std::env::set_var(FOLDER, folder) };
}
