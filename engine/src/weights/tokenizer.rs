//! The tokenizer that a setting names.

use std::path::Path;

use tightrope_data::Tokenizer;

use crate::error::{Help as _, Result};

/// Tokens of the tokenizer called `name`.
///
/// # Errors
/// As [`named`].
pub fn vocab_size(name: &str) -> Result<usize> {
    // Known without its list of merges, which a page fetches later.
    if name == Tokenizer::GPT2 {
        return Ok(Tokenizer::GPT2_VOCAB);
    }
    Ok(named(name)?.vocab_size())
}

/// The token that fills up texts: the tokenizer's padding, else the one that ends a text.
#[cfg(not(target_family = "wasm"))]
pub(crate) fn padding_id(tokenizer: &Tokenizer) -> Option<usize> {
    tokenizer.padding().or(tokenizer.eos()).map(|id| id as usize)
}

/// The folder of the files of the tokenizer called `name`; `None` for one that is built in.
pub fn folder(name: &str) -> Option<&Path> {
    let path = Path::new(name);
    if path.is_dir() { Some(path) } else { path.parent().filter(|_| path.is_file()) }
}

/// The tokenizer called `name`: "byte" or "bytes", "gpt2", a `tokenizer.json` or a `vocab.txt`, or a directory with one.
///
/// # Errors
/// A file that is missing or isn't a tokenizer.
pub fn named(name: &str) -> Result<Tokenizer> {
    if matches!(name, "byte" | "bytes") {
        return Ok(Tokenizer::Byte);
    }
    const HELP: &str = "`data.tokenizer` takes \"byte\", \"gpt2\", the path of a Hugging Face tokenizer.json or of BERT's vocab.txt, or a directory with one";
    let path = Path::new(name);
    if name == Tokenizer::GPT2 && !path.exists() {
        return Tokenizer::gpt2().help(HELP);
    }
    let path = if path.is_dir() { Tokenizer::file_in(path) } else { path.to_owned() };
    Tokenizer::open(path).help(HELP)
}
