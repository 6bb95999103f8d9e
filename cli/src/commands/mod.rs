//! The commands, one file each.

mod bench;
mod completions;
mod data;
mod doctor;
mod eval;
mod export;
mod generate;
#[cfg(unix)]
mod launch;
mod man;
mod plan;
mod schema;
mod tokenizer;
mod train;
mod verify;

use std::path::Path;

use tightrope::cards::Card;
use tightrope::core::Backend;
use tightrope::devices::Devices;
use tightrope::generate::Loaded;
use tightrope::recipe::Step;
use tightrope::run::directory;
use tightrope::settings::{Command as Reader, Device, Settings};
use tightrope::view::brief;

use crate::args::{Command, SettingArgs};
use crate::failure::Failure;
use crate::output;

/// Settings for a command, with notes of them on stderr.
fn said(settings: &SettingArgs, reader: Reader) -> Result<Settings, Failure> {
    let (settings, notes) = settings.said(reader)?;
    notes.iter().for_each(|note| output::note(&format!("note: {note}")));
    Ok(settings)
}

/// The model in `dir`, or of the newest run, from its checkpoint with the lowest held-out loss if that is asked for; and the device that it's
/// asked to run on.
fn load(
    (dir, best): (Option<&Path>, bool),
    settings: &SettingArgs,
    reader: Reader,
) -> Result<(Loaded, Box<dyn Backend>), Failure> {
    let said = said(settings, reader)?;
    let path = dir.map_or_else(directory::newest, |dir| Ok(dir.to_owned()))?;
    let path = if best { directory::best(&path)? } else { path };
    let loaded = Loaded::open(&path, &said)?.hearing(|plan| output::note(&brief::memory(plan)));
    let mut devices = Devices::default();
    let device = devices.open(loaded.device())?;
    loaded.notes().iter().for_each(|note| output::note(&format!("note: {note}")));
    devices.notes.iter().for_each(|note| output::note(note));
    Ok((loaded, device))
}

/// The training step that is asked for, on a GPU that isn't here where it's for a `card`.
fn asked(
    settings: &SettingArgs,
    reader: Reader,
    card: Option<&'static Card>,
) -> Result<Step, Failure> {
    let mut settings = said(settings, reader)?;
    settings.check()?;
    settings.notes().iter().for_each(|note| output::note(&format!("note: {note}")));
    if card.is_some() {
        settings.run.device = Device::Cuda(0);
    }
    let mut step = Step::of(&settings)?;
    step.device.card = card;
    Ok(step)
}

/// Runs one command.
///
/// # Errors
/// When the settings are wrong, or the command fails.
pub fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Completions(args) => completions::run(args),
        Command::Man(args) => man::run(args),
        Command::Schema => schema::run(),
        Command::Train(args) => train::run(args),
        #[cfg(unix)]
        Command::Launch(args) => launch::run(args),
        Command::Generate(args) => generate::run(args),
        Command::Eval(args) => eval::run(args),
        Command::Export(args) => export::run(args),
        Command::Verify(args) => verify::run(args),
        Command::Plan(args) => plan::run(args),
        Command::Bench(args) => bench::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Data(args) => data::run(args),
        Command::Tokenizer(args) => tokenizer::run(args),
    }
}
