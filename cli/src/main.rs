//! The `tightrope` command: reads the command line, runs one command, prints what went wrong.

mod args;
mod commands;
#[cfg_attr(not(test), expect(dead_code, reason = "for the commands that can fail"))]
mod error;
#[cfg_attr(not(test), expect(dead_code, reason = "for the commands that train"))]
mod metrics;
#[cfg_attr(not(test), expect(dead_code, reason = "for the commands that train"))]
mod progress;
#[cfg_attr(not(test), expect(dead_code, reason = "for the commands that read settings"))]
mod settings;
#[cfg_attr(not(test), expect(dead_code, reason = "for the commands that train"))]
mod signals;
#[cfg_attr(not(test), expect(dead_code, reason = "for the commands that train"))]
mod tensorboard;

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    let cli = match args::Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return error::print_usage(&error),
    };
    match commands::run(&cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.print(cli.command.json()),
    }
}
