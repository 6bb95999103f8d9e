//! The tokenizer that a setting names.

use std::path::Path;

use tightrope_data::Tokenizer;

use crate::error::{Help as _, Result};

/// The tokenizer called `name`: "byte" or "bytes", a `tokenizer.json`, or a directory with one.
///
/// # Errors
/// A file that is missing or isn't a tokenizer.
pub fn named(name: &str) -> Result<Tokenizer> {
    if matches!(name, "byte" | "bytes") {
        return Ok(Tokenizer::Byte);
    }
    let path = Path::new(name);
    let path = if path.is_dir() { path.join("tokenizer.json") } else { path.to_owned() };
    Tokenizer::open(path).help(
        "`data.tokenizer` takes \"byte\", the path of a Hugging Face tokenizer.json, or a directory with one",
    )
}
