//! `cargo xtask oracle`: plans held against the optimum, which a solver of integer programs finds.
//!
//! HiGHS comes as a Python wheel, unpacked into a folder of the build. Nothing is installed.

use anyhow::ensure;

use crate::packages::{PACKAGES, words};
use crate::shell::Shell;
use crate::wheels;

/// HiGHS as a command.
const WHEELS: [&str; 1] = ["highsbox==1.15.1"];

/// Runs the tests, their solver unpacked.
///
/// # Errors
/// Where pip can't fetch the wheel, and on machines of another kind.
pub fn test(shell: &mut Shell) -> anyhow::Result<()> {
    ensure!(
        cfg!(all(target_arch = "x86_64", target_os = "linux")),
        "HiGHS is fetched for x86-64 Linux alone"
    );
    let home = wheels::unpacked(shell, "HiGHS", &WHEELS)?.join("highsbox/highs_dist");
    let mut command = words(&["test", "--test", "oracle"]);
    command
        .args(PACKAGES)
        .args(["--", "--ignored", "--nocapture"])
        .env("HIGHS", home.join("bin/highs"))
        .env("LD_LIBRARY_PATH", home.join("lib"));
    shell.run(&mut command)
}
