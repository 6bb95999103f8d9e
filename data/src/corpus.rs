//! Training data: text, JSON lines and token shards, as one stream of token ids.

use std::borrow::Cow;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;

use crate::bytes::Bytes;
use crate::source::{Source, content};
use crate::tokens::{Ids, Segment, Stream};
use crate::{Error, Result, Tokenizer, Tokens};

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
/// Bytes before the ids of a token shard: 256 little-endian i32.
const SHARD_HEADER: usize = 1024;
/// First word of a shard of 16-bit ids, as llm.c's `dev/data/data_common.py` writes it.
const MAGIC_16: i32 = 20240520;
/// First word of a shard of 32-bit ids, same source.
const MAGIC_32: i32 = 20240801;

/// An opened corpus: the token streams of its files, one after the other.
pub struct Corpus {
    stream: Arc<Stream>,
    sources: Vec<Source>,
}

impl Corpus {
    /// Opens files by extension: `.bin` is a token shard (llm.c's layout, ids taken as they are),
    /// `.jsonl` and `.ndjson` hold an object with a "text" string per line, anything else is UTF-8 text.
    ///
    /// Text for the byte tokenizer and shards are read from the mapped file; other text is encoded
    /// into memory here. With a Hugging Face tokenizer each text file and each JSON line ends in
    /// the end-of-text token; JSON lines as bytes end in a newline.
    ///
    /// # Errors
    /// A missing or unreadable file, a folder, text that is not UTF-8, a line that is not such an
    /// object, a broken shard, and less than 2 tokens, in a single file that has none or in all.
    pub fn open<P: AsRef<Path>>(files: &[P], tokenizer: &Tokenizer) -> Result<Self> {
        let mut segments = Vec::with_capacity(files.len());
        for file in files {
            let path = file.as_ref();
            let bytes = Bytes::open(path)?;
            let name = path.display().to_string();
            let content = content(&bytes);
            let extension = path.extension().and_then(|e| e.to_str()).unwrap_or("");
            let ids = match extension.to_ascii_lowercase().as_str() {
                "bin" => shard(&name, bytes)?,
                "jsonl" | "ndjson" => json_lines(&name, &bytes, tokenizer)?,
                _ => text(&name, bytes, tokenizer)?,
            };
            let short = path.file_name().map_or(name.clone(), |n| n.to_string_lossy().into_owned());
            segments.push((short, content, Segment { name, ids }));
        }
        Self::new(segments)
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
    let valid = utf8(name, &bytes)?;
    if matches!(tokenizer, Tokenizer::Byte) {
        return Ok(Ids::Text { bytes, skip });
    }
    let mut encoder = Encoder::new(tokenizer);
    encoder.document(&valid[skip..])?;
    Ok(encoder.finish())
}

fn utf8<'a>(name: &str, bytes: &'a [u8]) -> Result<&'a str> {
    std::str::from_utf8(bytes)
        .map_err(|e| Error::NotUtf8 { name: name.to_owned(), offset: e.valid_up_to() })
}

/// An object with a "text" string on each line; lines of white space are passed over.
fn json_lines(name: &str, bytes: &[u8], tokenizer: &Tokenizer) -> Result<Ids> {
    #[derive(Deserialize)]
    struct Line {
        text: String,
    }
    let valid = utf8(name, bytes)?;
    let valid = valid.strip_prefix('\u{feff}').unwrap_or(valid);
    let mut encoder = Encoder::new(tokenizer);
    for (index, line) in valid.lines().enumerate() {
        if line.trim_ascii().is_empty() {
            continue;
        }
        let refused = |column, problem: &str| Error::JsonLine {
            name: name.to_owned(),
            line: index + 1,
            column,
            problem: problem.to_owned(),
        };
        // Derived structs also read arrays.
        if !line.trim_ascii_start().starts_with('{') {
            return Err(refused(1, "not an object"));
        }
        let Line { text } = serde_json::from_str(line).map_err(|e| {
            let message = e.to_string();
            let (problem, _place) = message.split_once(" at line ").unwrap_or((&message, ""));
            refused(e.column(), problem)
        })?;
        encoder.document(&text)?;
    }
    Ok(encoder.finish())
}

/// Encodes documents into one vector, as narrow as the vocabulary allows.
struct Encoder<'a> {
    tokenizer: &'a Tokenizer,
    ids: Encoded,
}

enum Encoded {
    Bytes(Vec<u8>),
    Narrow(Vec<u16>),
    Wide(Vec<u32>),
}

impl<'a> Encoder<'a> {
    fn new(tokenizer: &'a Tokenizer) -> Self {
        let ids = if matches!(tokenizer, Tokenizer::Byte) {
            Encoded::Bytes(Vec::new())
        } else if tokenizer.vocab_size() <= 1 << 16 {
            Encoded::Narrow(Vec::new())
        } else {
            Encoded::Wide(Vec::new())
        };
        Self { tokenizer, ids }
    }

    /// Appends a document and its end; an empty document adds nothing.
    fn document(&mut self, text: &str) -> Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        let encode = || Ok(self.tokenizer.encode(text)?.into_iter().chain(self.tokenizer.eos()));
        match &mut self.ids {
            Encoded::Bytes(ids) => {
                ids.extend_from_slice(text.as_bytes());
                ids.push(b'\n');
            }
            // Every id is below the vocabulary's size, which fits.
            Encoded::Narrow(ids) => ids.extend(encode()?.map(|id| id as u16)),
            Encoded::Wide(ids) => ids.extend(encode()?),
        }
        Ok(())
    }

    fn finish(self) -> Ids {
        match self.ids {
            Encoded::Bytes(ids) => Ids::Text { bytes: ids.into(), skip: 0 },
            Encoded::Narrow(ids) => Ids::Memory16(ids),
            Encoded::Wide(ids) => Ids::Memory32(ids),
        }
    }
}

/// A token shard: magic, version 1 and token count in the header, then exactly that many ids.
fn shard(name: &str, bytes: Bytes) -> Result<Ids> {
    let broken = |problem: String| Error::Shard { name: name.to_owned(), problem };
    let Some((header, body)) = bytes.split_at_checked(SHARD_HEADER) else {
        return Err(broken(format!(
            "it has {} bytes and the header alone takes {SHARD_HEADER}; fetch or write it again",
            bytes.len()
        )));
    };
    let (words, _) = header.as_chunks();
    let word = |index: usize| i32::from_le_bytes(words[index]);
    let (magic, version, count) = (word(0), word(1), word(2));
    let width = match magic {
        MAGIC_16 => 2,
        MAGIC_32 => 4,
        _ => {
            return Err(broken(format!(
                "it starts with {magic}, not {MAGIC_16} (16-bit ids) or {MAGIC_32} (32-bit ids); \
                 write it with llm.c's data scripts, or rename text to .txt"
            )));
        }
    };
    if version != 1 {
        return Err(broken(format!("its version is {version} and only 1 is known")));
    }
    let expected = u64::try_from(count).ok().map(|count| count * width);
    if expected != Some(body.len() as u64) {
        return Err(broken(format!(
            "its header counts {count} tokens of {width} bytes and {} bytes follow; fetch or write it again",
            body.len()
        )));
    }
    let skip = SHARD_HEADER;
    Ok(if width == 2 { Ids::Shard16 { bytes, skip } } else { Ids::Shard32 { bytes, skip } })
}

#[cfg(test)]
mod tests;
