//! Packages of the system that the checks run on, installed where they're missing.

use std::path::Path;
use std::process::Command;

use anyhow::Context as _;

use crate::shell::Shell;

/// Installs what the tests run on, where it's missing: Chromium, a Vulkan driver, a C++ compiler, and what makes networks.
///
/// # Errors
/// Where that can't be done.
pub fn prepare(shell: &mut Shell) -> anyhow::Result<()> {
    let missing: Vec<&str> = [
        ("/usr/bin/chromium", "chromium"),
        // CUDA kernels are compiled for the processor.
        ("/usr/bin/g++", "g++"),
        // Networks that tests cut.
        ("/sbin/ip", "iproute2"),
        ("/usr/share/vulkan/icd.d", "mesa-vulkan-drivers"),
        ("/usr/lib/x86_64-linux-gnu/libvulkan.so.1", "libvulkan1"),
    ]
    .into_iter()
    .filter(|(path, _)| !Path::new(path).exists())
    .map(|(_, package)| package)
    .collect();
    if missing.is_empty() { Ok(()) } else { install(shell, &missing) }
}

/// Installs packages of the system where that's possible without asking.
pub fn install(shell: &mut Shell, packages: &[&str]) -> anyhow::Result<()> {
    shell.say(format_args!("installing {}", packages.join(", ")));
    // A machine that never asked has no list of packages; where this fails, the next says why.
    let _ = shell.run(Command::new("apt-get").arg("update"));
    let mut install = Command::new("apt-get");
    install.args(["install", "--yes"]).args(packages).env("DEBIAN_FRONTEND", "noninteractive");
    shell.run(&mut install).with_context(|| {
        let packages = packages.join(", ");
        format!("these packages are needed: {packages}; install them, e.g. with apt-get as root")
    })
}
