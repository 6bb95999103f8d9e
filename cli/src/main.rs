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
    let cli = match args::Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return failure::print_usage(&error),
    };
    #[cfg(unix)]
    memory::speak_json(cli.command.json());
    match commands::run(&cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.print(cli.command.json()),
    }
}
