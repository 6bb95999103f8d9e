//! The `tightrope` command: reads the command line, runs one command, prints what went wrong.

mod args;
mod commands;
mod failure;
#[cfg(unix)]
mod memory;
mod output;
mod progress;
mod signals;

use std::process::ExitCode;

use clap::Parser as _;
use tightrope::settings;

fn main() -> ExitCode {
    #[cfg(unix)]
    if let Err(error) = memory::listen() {
        eprintln!("note: running out of memory will end in an abort: {error}");
    }
    #[cfg(target_os = "linux")]
    name_a_runtime_folder();
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

/// Vulkan's loader asks for a Wayland display, whose library complains on stderr where nobody is logged in. A folder without a
/// display is the same answer in silence.
#[cfg(target_os = "linux")]
fn name_a_runtime_folder() {
    const FOLDER: &str = "XDG_RUNTIME_DIR";
    if std::env::var_os(FOLDER).is_none() {
        // SAFETY: the program has one thread yet.
        unsafe { std::env::set_var(FOLDER, std::env::temp_dir()) };
    }
}
