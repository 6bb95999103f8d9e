//! Tokens that a model has no row for.

#[cfg(not(target_family = "wasm"))]
use anyhow::anyhow;
#[cfg(not(target_family = "wasm"))]
use tightrope_data::Tokenizer;

#[cfg(not(target_family = "wasm"))]
use crate::error::Error;

/// Help for a token of the data that the model has no row for.
pub(crate) const TOO_FEW_ROWS: &str = "take the token out of the data, or train on a row for each token of the tokenizer: --add-tokens with \
                                       --init, and --vocab for a new model";

/// The refusal of a token that a model of `vocab` tokens has no row for; `place` names where it is.
#[cfg(not(target_family = "wasm"))]
pub(crate) fn beyond_rows(tokenizer: &Tokenizer, id: u32, vocab: usize, place: &str) -> Error {
    let text = tokenizer.decode(&[id]).unwrap_or_default();
    Error::usage(
        anyhow!("{place}: the token `{text}` has the id {id}, and the model has {vocab} rows"),
        TOO_FEW_ROWS,
    )
}
