//! Runs in this process, on devices that are disturbed.

use std::path::Path;
use std::rc::Rc;

use anyhow::Context as _;
use tightrope::backends::Cpu;
use tightrope::core::Backend;
use tightrope::devices::{Adapter, Devices};
use tightrope::recipe::Recipe;
use tightrope::settings::{LIST, Settings};

use crate::configurations::Kind;
use crate::device::{Disturbance, Disturbed};
use crate::results::RUN;

/// What a run came to in this process.
pub struct Came {
    /// What went wrong, with what to do about it.
    pub failed: Option<String>,
    /// What there was to tell, line by line.
    pub notes: Vec<String>,
}

/// The settings of a run in `dir`, as the command line gives them.
fn settings(kind: &Kind, dir: &Path) -> anyhow::Result<Settings> {
    let mut said = Settings::default();
    let mut flags = kind.flags();
    while let Some(word) = flags.next() {
        let value = flags.next().with_context(|| format!("{word} has no value"))?;
        let name = word.trim_start_matches('-');
        if name == "set" {
            said.read_argument(value)?;
            continue;
        }
        let found = LIST.iter().find(|setting| setting.flag.is_some_and(|flag| flag.name == name));
        let setting = found.with_context(|| format!("no setting has the flag {word}"))?;
        let value =
            if name == "data" { dir.join(value).display().to_string() } else { value.to_owned() };
        said.read_flag(setting, &[value])?;
    }
    said.run.out = Some(dir.join(RUN));
    Ok(said)
}

/// A run of this kind in `dir`, to its end.
///
/// # Errors
/// Settings and devices that would fail without any disturbance.
pub fn run(kind: &Kind, dir: &Path, what: &Rc<Disturbance>) -> anyhow::Result<Came> {
    let said = settings(kind, dir)?;
    let mut devices = Devices::default();
    let gpu = kind.gpu;
    let mut open = || -> tightrope::Result<Box<dyn Backend>> {
        if !gpu {
            return Ok(Disturbed::before(
                Box::new(Cpu::new(1).map_err(anyhow::Error::from)?),
                None,
                what,
            ));
        }
        let opened = tightrope::block_on(devices.wgpu_async(&Adapter::default()));
        let opened = opened.map_err(anyhow::Error::from)?;
        let lose = Box::new(opened.loser());
        Ok(Disturbed::before(Box::new(opened), Some(lose), what))
    };
    let mut notes = vec![];
    let mut train = || -> tightrope::Result<()> {
        let recipe = Recipe::new(&said)?;
        let planned = recipe.plan(open()?)?;
        let (mut run, _) = planned.start(|_| open())?.begin()?;
        for step in &mut run {
            notes.extend(step?.notes);
        }
        run.finish()?;
        notes.extend(run.take_notes());
        Ok(())
    };
    let failed = train().err().map(|error| {
        let causes = error.causes().join("; ");
        format!("error: {}; {causes}; help: {}", error.message(), error.help().unwrap_or("none"))
    });
    Ok(Came { failed, notes })
}

/// Whether wgpu finds a GPU, or a driver that is one in software.
///
/// # Errors
/// Why not.
pub fn has_gpu() -> Result<(), String> {
    let opened = tightrope::block_on(Devices::default().wgpu_async(&Adapter::default()));
    opened.map(drop).map_err(|error| format!("{error}; install mesa-vulkan-drivers"))
}
