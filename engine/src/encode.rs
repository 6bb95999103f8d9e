//! Tokenizers from texts, and texts as token ids.
//!
//! ```
//! # let folder = tempfile::tempdir()?;
//! # let (text, dir) = (folder.path().join("book.txt"), folder.path().join("tokenizer"));
//! std::fs::write(&text, "to be or not to be, ".repeat(100))?;
//! let learnt = tightrope::encode::tokenizer(&[text], "text", 264, &dir)?;
//! assert_eq!(learnt.vocab, 264);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::path::{Path, PathBuf};

use anyhow::anyhow;
use tightrope_data::{Corpus, RowFormat, Tokenizer, documents, row_format};

use crate::error::{Error, Help as _, Result};
use crate::settings::Settings;
use crate::weights::Source;
use crate::weights::tokenizer as tokenizers;

/// Ids of a file.
const SHARD: usize = 100_000_000;

/// A tokenizer that was learnt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Learnt {
    /// The `tokenizer.json`.
    pub file: PathBuf,
    /// Its tokens.
    pub vocab: usize,
    /// Bytes of the texts.
    pub bytes: u64,
}

/// Learns a tokenizer of `vocab` tokens from texts or conversations, which are read into memory, and writes it into the new
/// directory `out`.
///
/// # Errors
/// Files that can't be read or hold no text, a vocabulary that is too small, and a directory that can't be written.
pub fn tokenizer(files: &[PathBuf], text_key: &str, vocab: usize, out: &Path) -> Result<Learnt> {
    let (mut texts, mut bytes) = (Vec::new(), 0);
    documents(files, text_key, &mut |document| {
        bytes += document.len() as u64;
        texts.push(document.to_owned());
        Ok(())
    })?;
    let (file, vocab) = Tokenizer::train(&texts, vocab, out)?;
    Ok(Learnt { file, vocab, bytes })
}

/// Texts as token ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shards {
    /// The files.
    pub files: Vec<PathBuf>,
    /// Tokens in all of them.
    pub tokens: usize,
    /// The tokenizer.
    pub tokenizer: String,
    /// Tokens that the tokenizer knows.
    pub vocab: usize,
}

/// Encodes the files of the settings and writes them into the new directory `out`, as shards that `data.files` reads. The
/// tokenizer is `data.tokenizer`, else that of `model.init`.
///
/// # Errors
/// No tokenizer, files of conversations, files that can't be read, and a directory that can't be written.
pub fn shards(settings: &Settings, out: &Path) -> Result<Shards> {
    settings.check()?;
    let data = &settings.data;
    let tokenizer = match (&data.tokenizer, &settings.model.init) {
        (Some(name), _) => tokenizers::named(name)?,
        (None, Some(init)) => Source::open(init)?.tokenizer(None)?,
        (None, None) => {
            return Err(Error::usage(
                anyhow!("no tokenizer is named"),
                "name one with --tokenizer, or a model's directory with --init",
            ));
        }
    };
    let format =
        row_format(&data.files, data.format.unwrap_or_default(), data.text_key.as_deref())?;
    if format != RowFormat::Text {
        return Err(Error::usage(
            anyhow!(
                "the files hold {} rows, and token ids alone don't say which of them are trained on",
                format.name()
            ),
            "train on the conversations themselves, which are encoded when a run begins",
        ));
    }
    let key = data.text_key.as_deref().unwrap_or(Corpus::TEXT_KEY);
    let corpus = Corpus::open(&data.files, key, &tokenizer)?;
    let tokens = corpus.tokens();
    let vocab = tokenizer.vocab_size();
    let files = tokens.write_shards(vocab, out, SHARD).help("give --out a new directory")?;
    Ok(Shards { files, tokens: tokens.len(), tokenizer: tokenizer.name().to_owned(), vocab })
}
