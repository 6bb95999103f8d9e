//! Whether a checkpoint continues with the seed and the data that a run goes on with.

use anyhow::anyhow;
use tightrope_data::{Checkpoint, DataState, Difference};

use super::Batches;
use crate::error::{Error, Result};

/// Whether a checkpoint continues with this seed and this data.
///
/// # Errors
/// A changed seed, corpus, tokenizer or split.
pub(crate) fn check(checkpoint: &Checkpoint, seed: u64, data: &dyn Batches) -> Result<()> {
    let manifest = &checkpoint.manifest;
    if manifest.seed != seed {
        return changed("`train.seed`", manifest.seed.to_string(), seed.to_string());
    }
    let (was, now) = (&manifest.data, data.state(manifest.data.position));
    if was.tokenizer != now.tokenizer {
        return changed("the tokenizer", was.tokenizer.clone(), now.tokenizer);
    }
    match was.difference(&now) {
        None => {}
        Some(Difference::Files) => return changed("the data", described(was), described(&now)),
        Some(Difference::Content(file)) => return Err(other_content(&file)),
    }
    if was.holdout != now.holdout {
        return changed("`data.holdout`", was.holdout.to_string(), now.holdout.to_string());
    }
    Ok(())
}

/// The refusal of a file that isn't what it was.
fn other_content(file: &str) -> Error {
    Error::usage(
        anyhow!(
            "`{file}` isn't the file that the run began with: it's as long, but its content differs"
        ),
        "resume with the data that the run began with, or start a new run with --init on this checkpoint",
    )
}

/// The refusal of a checkpoint that began with something else.
pub(crate) fn changed(what: &str, was: String, now: String) -> Result<()> {
    Err(Error::usage(
        anyhow!("{what} was {was} when the run began, and is {now}"),
        "resume with what the run began with, or start a new run with --init on this checkpoint",
    ))
}

fn described(data: &DataState) -> String {
    if let Some(toy) = data.toy() {
        return format!("the task `{}`", toy.name());
    }
    let what = if data.tokenizer == DataState::IMAGES { "images" } else { "tokens" };
    let tokens: u64 = data.files.iter().map(|file| file.tokens).sum();
    let names: Vec<&str> = data.files.iter().take(3).map(|file| file.name.as_str()).collect();
    let more = if data.files.len() > names.len() { ", …" } else { "" };
    format!("{tokens} {what} of {}{more}", names.join(", "))
}
