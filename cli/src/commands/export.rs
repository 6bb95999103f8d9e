//! `tightrope export MODEL DIR`.

use tightrope::export::{Form, export};
use tightrope::run::directory;
use tightrope::settings::Command;

use crate::args::Export;
use crate::failure::Failure;
use crate::output;

/// Writes the model, and says on stderr what loads it.
///
/// # Errors
/// A model that can't be read, and a directory that can't be written.
pub fn run(args: &Export) -> Result<(), Failure> {
    let said = super::said(&args.settings, Command::Export)?;
    let asked = said.is_said("run.precision").then(|| said.run.precision.storage.dtype());
    let form = Form { merge: args.merge, dtype: asked };
    let model = if args.best { directory::best(&args.model)? } else { args.model.clone() };
    export(&model, &said, form, &args.out)?;
    let out = args.out.display();
    output::note(&format!("`{out}` is a model that transformers' `from_pretrained` loads"));
    Ok(())
}
