//! `cargo xtask cooperative`: the WebGPU matmuls by cooperative matrices, on a lavapipe that has them.
//!
//! Debian 12's has not, so the packages of a later Debian are unpacked into a folder of the build, with their own
//! C library, and only the test runs with them. Nothing is installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::packages::{PACKAGES, words};
use crate::root;
use crate::shell::Shell;

/// The Debian whose Mesa has VK_KHR_cooperative_matrix in lavapipe.
const SUITE: &str = "forky";
/// What the test loads besides itself; what these depend on comes along.
const DRIVER: [&str; 4] = ["mesa-vulkan-drivers", "libvulkan1", "libc6", "libgcc-s1"];
/// Debian's folder of libraries on this kind of machine.
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";

/// Runs the test, its driver unpacked.
///
/// # Errors
/// Where apt can't fetch the packages, and on machines of another kind.
pub fn test(shell: &mut Shell) -> anyhow::Result<()> {
    ensure!(
        cfg!(all(target_arch = "x86_64", target_os = "linux")),
        "lavapipe with cooperative matrices is fetched for x86-64 Linux alone"
    );
    let mesa = unpacked(shell)?;
    let loader = mesa.join("usr/lib64/ld-linux-x86-64.so.2");
    let libraries = mesa.join(LIBRARIES);
    let runner = [loader.as_path(), Path::new("--library-path"), &libraries];
    let runner = runner.map(|word| format!("'{}'", word.display())).join(", ");
    let mut command = words(&["--config", &format!("target.'cfg(unix)'.runner = [{runner}]")]);
    command
        .args(["test", "--test", "wgpu"])
        .args(PACKAGES)
        .args(["--", "--ignored"])
        .env("VK_DRIVER_FILES", mesa.join("usr/share/vulkan/icd.d/lvp_icd.json"));
    shell.run(&mut command)
}

/// The folder that the packages are in; they are fetched once.
fn unpacked(shell: &mut Shell) -> anyhow::Result<PathBuf> {
    let folder = root().join("target").join("mesa");
    let files = folder.join("files");
    if files.exists() {
        return Ok(files);
    }
    shell.say(format_args!("fetching Mesa from Debian {SUITE}"));
    for part in ["lists/partial", "archives/partial"] {
        fs::create_dir_all(folder.join(part))?;
    }
    // An apt of its own, which knows no installed package and so fetches all that's needed.
    fs::write(folder.join("status"), "")?;
    let source = format!(
        "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] \
         http://deb.debian.org/debian {SUITE} main\n"
    );
    fs::write(folder.join("sources.list"), source)?;
    apt(shell, &folder, &["update"])?;
    let install = ["--yes", "--no-install-recommends", "--download-only", "install"];
    apt(shell, &folder, &[&install[..], &DRIVER].concat())?;
    let begun = folder.join("begun");
    for package in fs::read_dir(folder.join("archives"))? {
        let package = package?.path();
        if package.extension().is_some_and(|extension| extension == "deb") {
            shell.run(Command::new("dpkg").arg("--extract").arg(&package).arg(&begun))?;
        }
    }
    fs::rename(begun, &files).context("the packages hold no files")?;
    Ok(files)
}

/// Runs apt-get with all that it knows and keeps in `folder`.
fn apt(shell: &mut Shell, folder: &Path, words: &[&str]) -> anyhow::Result<()> {
    let mut command = Command::new("apt-get");
    command.arg("--quiet=2");
    for (key, place) in [
        ("Dir::State", ""),
        ("Dir::State::lists", "lists"),
        ("Dir::State::status", "status"),
        ("Dir::Cache", ""),
        ("Dir::Cache::archives", "archives"),
        ("Dir::Etc::sourcelist", "sources.list"),
    ] {
        command.arg("-o").arg(format!("{key}={}", folder.join(place).display()));
    }
    for fixed in ["Dir::Etc::sourceparts=/dev/null", "Dir::Etc::parts=/dev/null"] {
        command.args(["-o", fixed]);
    }
    shell.run(command.args(words))
}
