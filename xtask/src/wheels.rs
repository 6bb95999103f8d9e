//! Programs that come as Python wheels, unpacked into folders of the build. Nothing is installed.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Context as _;

use crate::root;
use crate::shell::Shell;

/// The folder that these wheels of `name` are in; they are fetched once.
///
/// # Errors
/// Where pip can't fetch them.
pub fn unpacked(shell: &mut Shell, name: &str, wheels: &[&str]) -> anyhow::Result<PathBuf> {
    let folder = root().join("target").join(name.to_lowercase());
    let list = folder.join("versions");
    if fs::read_to_string(&list).is_ok_and(|versions| versions == wheels.join("\n")) {
        return Ok(folder);
    }
    shell.say(format_args!("fetching {name}"));
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("can't remove another {name}"))?;
    }
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]);
    shell.run(pip.arg("--target").arg(&folder).args(wheels))?;
    // Written last: what was begun and not ended is fetched again.
    fs::write(list, wheels.join("\n"))?;
    Ok(folder)
}
