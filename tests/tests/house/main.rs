//! The repository itself: who depends on whom, how long files are, and what a reader can run.

mod arrows;
mod circles;
mod examples;
mod files;
mod stranger;

use std::process::Command;

/// The cargo that runs the tests, without the variables that tell a test its package: crates whose build scripts read them would
/// be compiled again, and the files of tests that run meanwhile be replaced.
fn cargo() -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if ["CARGO_MANIFEST_", "CARGO_PKG_"].iter().any(|prefix| text.starts_with(prefix)) {
            cargo.env_remove(&name);
        }
    }
    cargo
}
