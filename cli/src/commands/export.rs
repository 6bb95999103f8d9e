//! `tightrope export MODEL DIR`.

use tightrope::export::{Form, export};

use crate::args::Export;
use crate::failure::Failure;

/// Writes the model, and says on stderr what loads it.
///
/// # Errors
/// A model that can't be read, and a directory that can't be written.
pub fn run(args: &Export) -> Result<(), Failure> {
    let said = args.settings.said()?;
    let form = Form { merge: args.merge, dtype: said.run.precision.storage.dtype() };
    export(&args.model, &said, form, &args.out)?;
    eprintln!("`{}` is a model that transformers' `from_pretrained` loads", args.out.display());
    Ok(())
}
