//! `cargo xtask widget`: the module that notebooks load, built from the page's TypeScript into the package for Python, which ships
//! it as it is checked in, so that `pip install` needs no Node.js.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::shell::Shell;
use crate::{python, root};

/// Name of the module.
const MODULE: &str = "widget.js";
/// What the tests run in, of fixed versions.
const NOTEBOOKS: [&str; 3] = ["jupyterlab==4.6.6", "anywidget==0.11.0", "nbconvert==7.17.2"];
/// What shows saved widgets where there's no JupyterLab, by the folder that each is unpacked in.
const HOST: [(&str, &str); 2] =
    [("html-manager", "@jupyter-widgets/html-manager@1.0.15"), ("requirejs", "requirejs@2.3.7")];

/// Builds the module into the package.
///
/// # Errors
/// Where Node.js is missing, or the module doesn't build.
pub fn run() -> anyhow::Result<bool> {
    let shell = &mut Shell::live();
    let page = root().join("web").join("page");
    npm(shell, &page, &["ci", "--no-audit", "--no-fund"], None)?;
    build(shell, &shipped())?;
    Ok(true)
}

/// Holds the module that is checked in against one that is built now, with the page's tools, and tests it in JupyterLab.
///
/// # Errors
/// Where they differ, a tool is missing, or a test fails.
pub fn test(shell: &mut Shell) -> anyhow::Result<()> {
    let built = root().join("target").join("widget");
    build(shell, &built)?;
    let same = fs::read(built.join(MODULE))? == fs::read(shipped().join(MODULE))?;
    ensure!(same, "{MODULE} isn't what its sources make: `cargo xtask widget` builds it");
    python::install(shell, &NOTEBOOKS)?;
    let mut node = Command::new("node");
    node.arg("tests/jupyter.mjs").current_dir(sources());
    node.env("PYTHON", python::python().get_program()).env("HOST", host(shell)?);
    shell.run(&mut node)
}

/// Fetches the packages of [`HOST`] alone: nothing that they depend on is loaded. Gives their folder.
fn host(shell: &mut Shell) -> anyhow::Result<PathBuf> {
    let folder = root().join("target").join("widget-host");
    for (name, package) in HOST {
        let at = folder.join(name);
        if at.join("package.json").exists() {
            continue;
        }
        fs::create_dir_all(&at)?;
        npm(shell, &at, &["pack", package], None)?;
        let mut tar = Command::new("sh");
        tar.args(["-c", "tar xzf *.tgz --strip-components=1"]).current_dir(&at);
        shell.run(&mut tar)?;
    }
    Ok(folder)
}

fn sources() -> PathBuf {
    root().join("web").join("widget")
}

/// The folder that the package ships.
fn shipped() -> PathBuf {
    root().join("python").join("tightrope").join("static")
}

fn build(shell: &mut Shell, folder: &Path) -> anyhow::Result<()> {
    npm(shell, &sources(), &["run", "build"], Some(folder))
}

fn npm(shell: &mut Shell, at: &Path, words: &[&str], out: Option<&Path>) -> anyhow::Result<()> {
    let mut npm = Command::new("npm");
    npm.args(words).current_dir(at);
    if let Some(out) = out {
        npm.env("WIDGET_OUT", out);
    }
    shell
        .run(&mut npm)
        .context("the widget is built by Node.js with npm (Debian's packages nodejs and npm)")
}
