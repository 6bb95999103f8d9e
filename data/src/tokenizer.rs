//! Text to token ids and back.

use std::path::Path;

use crate::masking::Specials;
use crate::{Error, Result};
#[cfg(not(target_family = "wasm"))]
use crate::{files, limits};

#[cfg(not(target_family = "wasm"))]
mod byte_level;
mod gpt2;
#[cfg(not(target_family = "wasm"))]
mod guarded;
#[cfg(not(target_family = "wasm"))]
mod huggingface;
#[cfg(not(target_family = "wasm"))]
mod pairs;
#[cfg(not(target_family = "wasm"))]
mod train;
#[cfg(not(target_family = "wasm"))]
mod wordpiece;
#[cfg(not(target_family = "wasm"))]
pub use huggingface::HuggingFace;

pub use gpt2::Gpt2;
#[cfg(not(target_family = "wasm"))]
pub(crate) use pairs::Pairs;

/// A map between text and token ids.
pub enum Tokenizer {
    /// Ids are the UTF-8 bytes; vocabulary 256, any text is representable.
    Byte,
    /// GPT-2's byte pairs.
    Gpt2(Box<Gpt2>),
    /// A `tokenizer.json` of Hugging Face's library; not in the browser build.
    #[cfg(not(target_family = "wasm"))]
    HuggingFace(Box<HuggingFace>),
}

impl Tokenizer {
    /// Name of [`Tokenizer::Gpt2`].
    pub const GPT2: &str = gpt2::NAME;
    /// Tokens of [`Tokenizer::Gpt2`].
    pub const GPT2_VOCAB: usize = gpt2::VOCAB;

    /// GPT-2's tokenizer, compiled in.
    ///
    /// # Errors
    /// As [`Gpt2::built_in`].
    #[cfg(not(target_family = "wasm"))]
    pub fn gpt2() -> Result<Self> {
        Ok(Self::Gpt2(Box::new(Gpt2::built_in()?)))
    }

    /// Always an error: a page fetches the list of merges, for [`Gpt2::read`].
    ///
    /// # Errors
    /// Always.
    #[cfg(target_family = "wasm")]
    pub fn gpt2() -> Result<Self> {
        let problem = "its list of merges isn't compiled in; give it".to_owned();
        Err(Error::Tokenizer { name: Self::GPT2.to_owned(), problem })
    }

    /// Reads a `tokenizer.json`, BERT's `vocab.txt`, or GPT-2's `vocab.json` with the `merges.txt` beside it. The files
    /// `tokenizer_config.json`, `special_tokens_map.json` and `added_tokens.json` in its folder name special tokens, and tokens that it
    /// lacks.
    ///
    /// # Errors
    /// A missing file, or one that the library refuses or panics on.
    #[cfg(not(target_family = "wasm"))]
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let read = |path: &Path| files::read(path, limits::TOKENS).map_err(Error::io("read", path));
        let bytes = read(path)?;
        let mut beside = std::collections::BTreeMap::new();
        for name in huggingface::BESIDE.into_iter().chain([byte_level::MERGES, "config.json"]) {
            let file = path.with_file_name(name);
            if file.exists() {
                beside.insert(name, read(&file)?);
            }
        }
        let name = path.display().to_string();
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        Self::read(&name, &file, &bytes, &|file| beside.get(file).cloned())
    }

    /// Reads the bytes of the file that is called `file`, as [`Tokenizer::open`] does; `beside` gives those of the files beside it, and `name` is
    /// for messages.
    ///
    /// # Errors
    /// As [`Tokenizer::open`].
    #[cfg(not(target_family = "wasm"))]
    pub fn read(
        name: &str,
        file: &str,
        bytes: &[u8],
        beside: &dyn Fn(&str) -> Option<Vec<u8>>,
    ) -> Result<Self> {
        let files = huggingface::BESIDE.iter();
        let mut files: Vec<(String, Vec<u8>)> =
            files.filter_map(|file| Some(((*file).to_owned(), beside(file)?))).collect();
        let broken = |problem: String| Error::Tokenizer { name: name.to_owned(), problem };
        let json = match file {
            wordpiece::VOCAB => {
                let config = files.iter().find(|(file, _)| file == huggingface::CONFIG);
                let cased = config.is_some_and(|(_, config)| huggingface::is_cased(config));
                wordpiece::json(bytes, !cased).map(String::into_bytes).map_err(|problem| {
                    broken(format!("not a usable vocab.txt ({problem}); fetch it again"))
                })?
            }
            byte_level::VOCAB => {
                let merges = beside(byte_level::MERGES).ok_or_else(|| {
                    broken("it has no merges.txt beside it; fetch that file too".to_owned())
                })?;
                if files.is_empty() && Gpt2::is_published(bytes, &merges) {
                    return Ok(Self::Gpt2(Box::new(Gpt2::read(&merges)?)));
                }
                let model = beside("config.json");
                let json = byte_level::json(bytes, &merges, model.as_deref(), &mut files);
                let made = HuggingFace::made(name, &json.map_err(broken)?, files)?;
                return Ok(Self::HuggingFace(Box::new(made)));
            }
            _ => bytes.to_vec(),
        };
        Ok(Self::HuggingFace(Box::new(HuggingFace::with_files(name, &json, files)?)))
    }

    /// The file of a directory that [`Tokenizer::open`] reads: its `tokenizer.json`, or else its `vocab.txt`, or its `vocab.json` with
    /// `merges.txt`, where it has them.
    #[cfg(not(target_family = "wasm"))]
    pub fn file_in(dir: &Path) -> std::path::PathBuf {
        let file = |name: &str| dir.join(name);
        let json = file(huggingface::FILE);
        if json.exists() {
            return json;
        }
        if file(wordpiece::VOCAB).exists() {
            return file(wordpiece::VOCAB);
        }
        let both = [byte_level::VOCAB, byte_level::MERGES].iter().all(|name| file(name).exists());
        if both { file(byte_level::VOCAB) } else { json }
    }

    /// Always the `tokenizer.json`, which the browser build doesn't read.
    #[cfg(target_family = "wasm")]
    pub fn file_in(dir: &Path) -> std::path::PathBuf {
        dir.join("tokenizer.json")
    }

    /// Reads the bytes of a `tokenizer.json`, and of the `tokenizer_config.json` that lies beside it; `name`
    /// is for messages.
    ///
    /// # Errors
    /// What the library refuses or panics on.
    #[cfg(not(target_family = "wasm"))]
    pub fn parse(name: &str, json: &[u8], config: Option<&[u8]>) -> Result<Self> {
        Ok(Self::HuggingFace(Box::new(HuggingFace::parse(name, json, config)?)))
    }

    /// Always an error: the browser build reads no `tokenizer.json`.
    #[cfg(target_family = "wasm")]
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Err(Error::Tokenizer {
            name: path.as_ref().display().to_string(),
            problem:
                "this build has the tokenizers byte and gpt2 alone; encode the text beforehand"
                    .to_owned(),
        })
    }

    /// Token ids of `text`; no token is added at either end.
    ///
    /// # Errors
    /// Where a Hugging Face tokenizer can't represent the text.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        match self {
            Self::Byte => Ok(text.bytes().map(u32::from).collect()),
            Self::Gpt2(tokenizer) => Ok(tokenizer.encode(text)),
            #[cfg(not(target_family = "wasm"))]
            Self::HuggingFace(tokenizer) => tokenizer.encode(text),
        }
    }

    /// Token ids of `text` with the bytes of it that each stands for; with `specials`, those that the tokenizer adds at either
    /// end come too, and stand for none.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    #[cfg(not(target_family = "wasm"))]
    pub(crate) fn encode_spans(
        &self,
        text: &str,
        specials: bool,
    ) -> Result<Vec<(u32, std::ops::Range<usize>)>> {
        match self {
            Self::Byte => {
                Ok(text.bytes().enumerate().map(|(at, byte)| (byte.into(), at..at + 1)).collect())
            }
            Self::Gpt2(tokenizer) => {
                let mut end = 0;
                let spans = tokenizer.encode(text).into_iter().map(|id| {
                    let start = end;
                    end += tokenizer.decode(&[id]).len();
                    (id, start..end)
                });
                Ok(spans.collect())
            }
            Self::HuggingFace(tokenizer) => tokenizer.encode_spans(text, specials),
        }
    }

    /// Name and text of the `tokenizer_config.json` that it came with.
    #[cfg(not(target_family = "wasm"))]
    pub(crate) fn config(&self) -> Option<(&str, &[u8])> {
        match self {
            Self::Byte | Self::Gpt2(_) => None,
            Self::HuggingFace(tokenizer) => tokenizer.config(),
        }
    }

    /// Text of `ids`, special tokens included. Bytes that are not UTF-8 become U+FFFD.
    ///
    /// # Errors
    /// An id outside the vocabulary.
    pub fn decode(&self, ids: &[u32]) -> Result<String> {
        if let Some(position) = ids.iter().position(|&id| id as usize >= self.vocab_size()) {
            return Err(Error::TokenRange {
                name: format!("tokens decoded with {}", self.name()),
                offset: position,
                id: ids[position],
                vocab: self.vocab_size(),
            });
        }
        match self {
            Self::Byte => {
                let bytes: Vec<u8> = ids.iter().map(|&id| id as u8).collect();
                Ok(String::from_utf8_lossy(&bytes).into_owned())
            }
            Self::Gpt2(tokenizer) => {
                Ok(String::from_utf8_lossy(&tokenizer.decode(ids)).into_owned())
            }
            #[cfg(not(target_family = "wasm"))]
            Self::HuggingFace(tokenizer) => tokenizer.decode(ids),
        }
    }

    /// True if a token is a byte that is decoded together with such tokens around it: `<0x0A>` of a SentencePiece model.
    #[cfg(not(target_family = "wasm"))]
    pub fn is_byte(&self, id: u32) -> bool {
        match self {
            Self::Byte | Self::Gpt2(_) => false,
            Self::HuggingFace(tokenizer) => tokenizer.is_byte(id),
        }
    }

    /// No token of a page's tokenizers is one.
    #[cfg(target_family = "wasm")]
    pub fn is_byte(&self, _: u32) -> bool {
        false
    }

    /// Rows an embedding needs: one more than the largest id.
    pub fn vocab_size(&self) -> usize {
        match self {
            Self::Byte => 256,
            Self::Gpt2(_) => Self::GPT2_VOCAB,
            #[cfg(not(target_family = "wasm"))]
            Self::HuggingFace(tokenizer) => tokenizer.vocab_size(),
        }
    }

    /// The end-of-text token, put between documents, where there is one.
    pub fn eos(&self) -> Option<u32> {
        match self {
            Self::Byte => None,
            Self::Gpt2(tokenizer) => Some(tokenizer.end()),
            #[cfg(not(target_family = "wasm"))]
            Self::HuggingFace(tokenizer) => tokenizer.eos(),
        }
    }

    /// The token that a text by itself is scored after, so that its first token has one before it: the one that begins a text, else
    /// the one that ends it, as in lm-evaluation-harness. None for bytes.
    pub fn prefix(&self) -> Option<u32> {
        match self {
            #[cfg(not(target_family = "wasm"))]
            Self::HuggingFace(tokenizer) => tokenizer.bos().or(tokenizer.eos()),
            _ => self.eos(),
        }
    }

    /// As [`Tokenizer::encode`], with the tokens that the tokenizer adds at either end, such as one that begins a text. A text that
    /// begins with [`Tokenizer::prefix`] gets none.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn encode_with_specials(&self, text: &str) -> Result<Vec<u32>> {
        let ids = self.encode(text)?;
        let [before, after] = self.added()?;
        if before.is_empty() && after.is_empty() {
            return Ok(ids);
        }
        let prefix = self.prefix().map(|id| self.decode(&[id])).transpose()?;
        if prefix.is_some_and(|prefix| !prefix.is_empty() && text.starts_with(&prefix)) {
            return Ok(ids);
        }
        Ok([before, ids, after].concat())
    }

    /// The tokens that the tokenizer adds before a text and after it.
    ///
    /// # Errors
    /// A Hugging Face tokenizer that can't encode a text.
    pub fn added(&self) -> Result<[Vec<u32>; 2]> {
        match self {
            #[cfg(not(target_family = "wasm"))]
            Self::HuggingFace(tokenizer) => tokenizer.added(),
            Self::Byte | Self::Gpt2(_) => Ok([Vec::new(), Vec::new()]),
        }
    }

    /// The tokens around each text that is trained on: those that the tokenizer adds, and the end-of-text token behind, once. Of a
    /// tokenizer for encoders the end-of-text token alone, as an encoder's sequences get theirs when they are masked.
    ///
    /// # Errors
    /// As [`Tokenizer::added`].
    pub fn around_texts(&self) -> Result<[Vec<u32>; 2]> {
        let end = self.eos();
        if self.specials().is_ok() {
            return Ok([Vec::new(), end.into_iter().collect()]);
        }
        let [before, mut after] = self.added()?;
        if after.last().copied() != end {
            after.extend(end);
        }
        Ok([before, after])
    }

    /// Special tokens by transformers' names, `bos_token` and so on, as the files beside a `tokenizer.json` have them.
    #[cfg(not(target_family = "wasm"))]
    pub(crate) fn named(&self) -> std::collections::BTreeMap<String, String> {
        match self {
            Self::Byte | Self::Gpt2(_) => std::collections::BTreeMap::new(),
            Self::HuggingFace(tokenizer) => tokenizer.named().clone(),
        }
    }

    /// The tokens that a sequence of an encoder has besides its text's.
    ///
    /// # Errors
    /// A tokenizer that lacks one.
    pub fn specials(&self) -> Result<Specials> {
        match self {
            #[cfg(not(target_family = "wasm"))]
            Self::HuggingFace(tokenizer) => tokenizer.specials(),
            Self::Byte | Self::Gpt2(_) => Err(self.of_no_encoder()),
        }
    }

    /// Encodes texts and pairs of texts for sequences of at most `most` tokens.
    ///
    /// # Errors
    /// Sequences without room for the tokens that begin and end them.
    #[cfg(not(target_family = "wasm"))]
    pub(crate) fn pairs(&self, most: usize) -> Result<Pairs<'_>> {
        match self {
            Self::HuggingFace(tokenizer) => tokenizer.pairs(most),
            Self::Byte | Self::Gpt2(_) => Ok(Pairs::Plain(self, most)),
        }
    }

    /// The token that fills up texts, where one is named.
    #[cfg(not(target_family = "wasm"))]
    pub fn padding(&self) -> Option<u32> {
        match self {
            Self::HuggingFace(tokenizer) => tokenizer.padding(),
            Self::Byte | Self::Gpt2(_) => None,
        }
    }

    fn of_no_encoder(&self) -> Error {
        let problem = "it has no tokens [CLS], [SEP] and [MASK], which an encoder reads; name the \
                       tokenizer.json of a BERT";
        Error::Tokenizer { name: self.name().to_owned(), problem: problem.to_owned() }
    }

    /// "byte", "gpt2", or "huggingface-" and a hash of file and end-of-text token: equal names encode equally.
    pub fn name(&self) -> &str {
        match self {
            Self::Byte => "byte",
            Self::Gpt2(_) => Self::GPT2,
            #[cfg(not(target_family = "wasm"))]
            Self::HuggingFace(tokenizer) => tokenizer.name(),
        }
    }

    /// Names and bytes of the files that [`Tokenizer::open`] read, to be kept in a checkpoint's
    /// folder so that it can be opened there; none for bytes and for GPT-2's.
    pub fn files(&self) -> Vec<(String, Vec<u8>)> {
        match self {
            Self::Byte | Self::Gpt2(_) => Vec::new(),
            #[cfg(not(target_family = "wasm"))]
            Self::HuggingFace(tokenizer) => tokenizer.files(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_round_trip_and_bad_ids_are_refused() {
        let text = "naïve — 文";
        let ids = Tokenizer::Byte.encode(text).unwrap();
        assert_eq!(ids.len(), text.len());
        assert_eq!(Tokenizer::Byte.decode(&ids).unwrap(), text);
        assert_eq!(Tokenizer::Byte.decode(&[0xe6, 0x96]).unwrap(), "\u{fffd}");
        assert!(matches!(
            Tokenizer::Byte.decode(&[65, 256]),
            Err(Error::TokenRange { offset: 1, id: 256, vocab: 256, .. })
        ));
    }
}
