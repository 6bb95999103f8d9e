//! `tightrope data`: rows as training sees them, and texts as token ids.

use std::io::{self, IsTerminal as _};

use serde_json::json;
use tightrope::encode::{self, Shards};
use tightrope::rows::Shown;
use tightrope::settings::Command;

use super::plan::write;
use super::said;
use crate::args::{Data, DataShow, Tokenize};
use crate::failure::Failure;
use crate::output;

/// Runs one of them.
///
/// # Errors
/// Files that can't be read, and files that can't be written.
pub fn run(args: &Data) -> Result<(), Failure> {
    match args {
        Data::Show(args) => show(args),
        Data::Tokenize(args) => tokenize(args),
    }
}

fn show(args: &DataShow) -> Result<(), Failure> {
    let mut settings = said(&args.settings, Command::Show)?;
    settings.data.files.clone_from(&args.files);
    let shown = Shown::of(&settings, args.rows)?;
    shown.notes.iter().for_each(|note| output::note(&format!("note: {note}")));
    if let Some(file) = &args.html {
        write(file, &shown.html())?;
    }
    match (args.json, &args.html) {
        (true, _) => output::print_json(&shown.json()),
        (false, Some(file)) => output::print(&format!("wrote {}\n", file.display())),
        (false, None) => {
            let coloured = io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
            output::print_raw(&shown.text(coloured))
        }
    }
}

fn tokenize(args: &Tokenize) -> Result<(), Failure> {
    let mut settings = said(&args.settings, Command::Tokenize)?;
    settings.data.files.clone_from(&args.files);
    let Shards { files, tokens, tokenizer, vocab } = encode::shards(&settings, &args.out)?;
    if args.json {
        return output::print_json(&json!({
            "files": files,
            "tokens": tokens,
            "tokenizer": tokenizer,
            "vocab": vocab,
            "out": args.out,
        }));
    }
    output::print(&format!(
        "wrote {tokens} tokens of {tokenizer} into {} in {}\ntrain on them with: tightrope train --vocab {vocab} --data {}\n",
        tightrope::units::plural(files.len(), "file", "files"),
        args.out.display(),
        args.out.display(),
    ))
}
