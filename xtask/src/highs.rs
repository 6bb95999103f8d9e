//! `cargo xtask oracle`: plans held against the optimum, which a solver of integer programs finds.
//!
//! HiGHS comes as a Python wheel, unpacked into a folder of the build. Nothing is installed.

use std::process::Command;

use anyhow::ensure;

use crate::{cargo, root, wheels};

/// HiGHS as a command.
const WHEELS: [&str; 1] = ["highsbox==1.15.1"];

/// The command that runs the tests, their solver unpacked.
///
/// # Errors
/// Where pip can't fetch the wheel, and on machines of another kind.
pub fn tests() -> anyhow::Result<Command> {
    ensure!(
        cfg!(all(target_arch = "x86_64", target_os = "linux")),
        "HiGHS is fetched for x86-64 Linux alone"
    );
    let home = wheels::unpacked("HiGHS", &WHEELS)?.join("highsbox/highs_dist");
    let mut command = Command::new(cargo());
    command
        .args(["test", "--workspace", "--test", "oracle", "--locked"])
        .args(["--", "--ignored", "--nocapture"])
        .env("HIGHS", home.join("bin/highs"))
        .env("LD_LIBRARY_PATH", home.join("lib"))
        .current_dir(root());
    Ok(command)
}
