//! `tightrope tokenizer`: makes tokenizers.

use serde_json::json;
use tightrope::encode::{self, Learnt};

use crate::args::{Tokenizer, TokenizerTrain};
use crate::failure::Failure;
use crate::output;

/// Learns a tokenizer and writes it. With `--json`, one object with `vocab, bytes, tokenizer`.
///
/// # Errors
/// Texts that can't be read, a vocabulary that is too small, and a directory that can't be written.
pub fn run(args: &Tokenizer) -> Result<(), Failure> {
    let Tokenizer::Train(TokenizerTrain { files, vocab, out, text_key, json }) = args;
    let Learnt { file, vocab: learnt, bytes } = encode::tokenizer(files, text_key, *vocab, out)?;
    if *json {
        return output::print_json(&json!({ "vocab": learnt, "bytes": bytes, "tokenizer": file }));
    }
    if learnt < *vocab {
        output::note(&format!(
            "note: the texts have no more than {learnt} tokens of {vocab}: give more of them"
        ));
    }
    output::print(&format!("wrote {} with {learnt} tokens\n", file.display()))
}
