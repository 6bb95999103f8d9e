//! Training data: text, JSON and token ids, as one stream of token ids.

#[cfg(not(target_family = "wasm"))]
mod configurations;
mod documents;
mod encoder;
mod files;
#[cfg(not(target_family = "wasm"))]
pub(crate) mod footer;
mod ids;
mod json;
#[cfg(not(target_family = "wasm"))]
pub(crate) mod lenient;
mod packed;
#[cfg(not(target_family = "wasm"))]
pub(crate) mod pages;
mod parquet;
mod saved;
mod shards;
mod splits;
#[cfg(not(target_family = "wasm"))]
pub(crate) mod table;
#[cfg(not(target_family = "wasm"))]
mod thrift;

use std::borrow::Cow;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

pub(crate) use documents::of_rows;
use encoder::Encoder;
pub use files::held_out_split;
pub(crate) use files::{InputFile, extension, named};
#[cfg(not(target_family = "wasm"))]
pub(crate) use json::without_place;
pub(crate) use packed::unpacked;
#[cfg(not(target_family = "wasm"))]
pub(crate) use parquet::is as is_parquet;
pub(crate) use saved::is_saved;
pub use splits::HeldOutSplit;

use crate::bytes::Bytes;
use crate::source::{Source, content};
use crate::tokens::{Ids, Segment, Stream};
use crate::{Error, Result, Tokenizer, Tokens};

pub(crate) const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Takes a document.
pub(crate) type Each<'a> = &'a mut dyn FnMut(&str) -> Result<()>;

/// An opened corpus: the token streams of its files, one after the other.
pub struct Corpus {
    stream: Arc<Stream>,
    sources: Vec<Source>,
}

impl Corpus {
    /// The field that holds the text of an object in JSON, where no other is named.
    pub const TEXT_KEY: &str = "text";
    /// What standard input is called among files.
    pub const PIPE: &str = "-";

    /// Opens files, folders of files and globs (`texts/**/*.md`), in the order given and by name within a folder or a glob. What a
    /// file holds is told by its extension:
    ///
    /// | extension | holds |
    /// |---|---|
    /// | `.bin` | token ids, taken as they are: llm.c's shards, or nanoGPT's 16-bit ids without a header |
    /// | `.jsonl`, `.ndjson` | a JSON object per line, with its text in the field `text_key` |
    /// | `.json` | an array of such objects or of strings, or objects one after the other |
    /// | `.parquet`, `.arrow`, `.csv`, `.tsv` | a document per row, in the column `text_key` |
    /// | any other | UTF-8 text |
    ///
    /// A folder that `save_to_disk` of the `datasets` library wrote gives the shards that it names, in their order. A file that gzip or Zstandard has packed is unpacked into memory; its name without `.gz` or `.zst` counts. Text for the byte
    /// tokenizer and ids are read from the mapped file; other text is encoded into memory here. With a Hugging Face tokenizer
    /// each text file and each document ends in the end-of-text token; documents of JSON, Parquet and Arrow as bytes end in a newline.
    ///
    /// # Errors
    /// A missing or unreadable file, a folder or glob without files, text that isn't UTF-8, an object without that field, broken
    /// ids, a format that isn't read, and less than 2 tokens, in a single file that has none or in all.
    pub fn open<P: AsRef<Path>>(
        files: &[P],
        text_key: &str,
        tokenizer: &Tokenizer,
    ) -> Result<Self> {
        let mut segments = Vec::with_capacity(files.len());
        for InputFile { path, source } in named(files)? {
            let bytes = Bytes::open(&path)?;
            let name = path.display().to_string();
            let content = content(&bytes);
            let mut bytes = unpacked(&name, bytes)?;
            let mut encoder = Encoder::new(tokenizer)?;
            let mut each = |document: &str| encoder.document(document);
            let ids = if of_rows(&name, &path, &mut bytes, text_key, &mut each)? {
                encoder.finish()
            } else if extension(&path) == "bin" {
                ids::read(&name, bytes)?
            } else {
                text(&name, bytes, tokenizer)?
            };
            segments.push((source, content, Segment { name, ids }));
        }
        Self::new(segments)
    }

    /// Whether these are files of token ids alone, so that no tokenizer is needed to read them.
    ///
    /// # Errors
    /// A folder that can't be read, or that has no files, and a glob that nothing matches.
    pub fn is_of_ids<P: AsRef<Path>>(files: &[P]) -> Result<bool> {
        if files.iter().any(|file| file.as_ref() == Path::new(Self::PIPE)) {
            return Ok(false);
        }
        let files = named(files)?;
        Ok(!files.is_empty() && files.iter().all(|file| extension(&file.path) == "bin"))
    }

    /// A corpus of one document in memory: a `Vec<u8>`, or text embedded with `include_bytes!`.
    ///
    /// # Errors
    /// As [`Corpus::open`].
    pub fn from_bytes(
        name: &str,
        text: impl Into<Cow<'static, [u8]>>,
        tokenizer: &Tokenizer,
    ) -> Result<Self> {
        Self::from_documents([(name, text)], tokenizer)
    }

    /// A corpus of named documents in memory, in the order given.
    ///
    /// # Errors
    /// As [`Corpus::open`].
    pub fn from_documents<N: Into<String>, B: Into<Cow<'static, [u8]>>>(
        documents: impl IntoIterator<Item = (N, B)>,
        tokenizer: &Tokenizer,
    ) -> Result<Self> {
        let mut segments = Vec::new();
        for (name, bytes) in documents {
            let name = name.into();
            let bytes: Bytes = bytes.into().into();
            let content = content(&bytes);
            let ids = text(&name, bytes, tokenizer)?;
            segments.push((name.clone(), content, Segment { name, ids }));
        }
        Self::new(segments)
    }

    /// From segments with the names that their sources go by, and the hashes of their contents.
    fn new(named: Vec<(String, String, Segment)>) -> Result<Self> {
        let mut sources = Vec::with_capacity(named.len());
        let mut segments = Vec::with_capacity(named.len());
        for (name, content, segment) in named {
            let tokens = segment.ids.len() as u64;
            if tokens == 0 {
                return Err(Error::NoTokens { name: segment.name, tokens: 0 });
            }
            sources.push(Source { name, tokens, content: Some(content) });
            segments.push(segment);
        }
        let stream = Arc::new(Stream::new(segments));
        if stream.len() < 2 {
            let name = match stream.segments() {
                [one] => one.name.clone(),
                _ => "the corpus".to_owned(),
            };
            return Err(Error::NoTokens { name, tokens: stream.len() });
        }
        Ok(Self { stream, sources })
    }

    /// The files or documents, in the order of the stream.
    pub fn sources(&self) -> &[Source] {
        &self.sources
    }

    /// The whole stream.
    pub fn tokens(&self) -> Tokens {
        Tokens::new(self.stream.clone(), 0..self.stream.len())
    }

    /// Errors at the first id that is not below `vocab`, naming its file and offset.
    ///
    /// # Errors
    /// As [`Tokens::check_vocab`].
    pub fn check_vocab(&self, vocab: usize) -> Result<()> {
        self.tokens().check_vocab(vocab)
    }

    /// The stream without its last `holdout` (a fraction, e.g. 0.1), and that last part.
    ///
    /// # Errors
    /// Where `holdout` is not in [0, 1).
    pub fn split(&self, holdout: f64) -> Result<(Tokens, Tokens)> {
        check_holdout(holdout)?;
        let len = self.stream.len();
        let train = ((len as f64 * (1.0 - holdout)) as usize).min(len);
        let view = |range| Tokens::new(self.stream.clone(), range);
        Ok((view(0..train), view(train..len)))
    }
}

impl fmt::Debug for Corpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Corpus").field("sources", &self.sources).finish_non_exhaustive()
    }
}

/// Refuses a fraction that leaves nothing to train on.
pub(crate) fn check_holdout(holdout: f64) -> Result<()> {
    if (0.0..1.0).contains(&holdout) {
        return Ok(());
    }
    Err(Error::Setting {
        what: "data.holdout",
        value: holdout.to_string(),
        domain: "at least 0 and less than 1",
    })
}

/// UTF-8 text behind an optional byte-order mark.
fn text(name: &str, bytes: Bytes, tokenizer: &Tokenizer) -> Result<Ids> {
    let skip = if bytes.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len() } else { 0 };
    if matches!(tokenizer, Tokenizer::Byte) {
        bytes.check_text(name)?;
        return Ok(Ids::Text { bytes, skip });
    }
    let mut encoder = Encoder::new(tokenizer)?;
    encoder.document(&bytes.text(name)?[skip..])?;
    Ok(encoder.finish())
}

#[cfg(test)]
mod tests;
