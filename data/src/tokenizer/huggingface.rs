//! `tokenizer.json`, through Hugging Face's library, which panics on some crafted files.

mod beside;
mod classes;
mod growth;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use tightrope_core::threads::side_by_side;
use xxhash_rust::xxh3::Xxh3;

use super::guarded::guarded;
use super::pairs::Pairs;
use crate::masking::Specials;
use crate::{Error, Result};

pub(super) const FILE: &str = "tokenizer.json";
/// Beside it, in published models: names special tokens, and tokens that it lacks.
pub(super) const CONFIG: &str = "tokenizer_config.json";
/// Special tokens by name, where the configuration doesn't list added tokens.
const SPECIAL_TOKENS_MAP: &str = "special_tokens_map.json";
/// Ids of added tokens, where the configuration doesn't list them.
const ADDED_TOKENS: &str = "added_tokens.json";
/// Files that are read beside a `tokenizer.json`.
pub(super) const BESIDE: [&str; 3] = [CONFIG, SPECIAL_TOKENS_MAP, ADDED_TOKENS];
/// Names the end-of-text token goes by, most specific first.
const EOS: [&str; 8] = [
    "<|endoftext|>",
    "<|end_of_text|>",
    "<｜end▁of▁sentence｜>",
    "</s>",
    "<eos>",
    "<|eos|>",
    "[EOS]",
    SEPARATOR,
];
/// What BERT calls the token that ends a text.
const SEPARATOR: &str = "[SEP]";
/// Keys of a `tokenizer_config.json`, and the names of those tokens where it has none of them.
const SPECIALS: [(&str, &str); 4] = [
    ("cls_token", "[CLS]"),
    ("sep_token", SEPARATOR),
    ("mask_token", "[MASK]"),
    ("pad_token", "[PAD]"),
];
/// A document is encoded in pieces of about this many bytes: an encoding in the library's form
/// takes some hundred bytes per token.
const PIECE: usize = 1 << 20;
/// Text on either side of a cut that is encoded to prove the cut harmless.
const MARGIN: usize = 256;
/// Cuts tried before a piece is left to grow by another [`PIECE`].
const CANDIDATES: usize = 16;

/// A tokenizer of Hugging Face's library and the files that it was read from.
pub struct HuggingFace {
    inner: tokenizers::Tokenizer,
    json: Vec<u8>,
    /// Names and bytes of those of [`BESIDE`] that there were.
    beside: Vec<(String, Vec<u8>)>,
    /// Where it came from, for messages.
    path: String,
    name: String,
    vocab_size: usize,
    /// Special tokens by transformers' names.
    named: BTreeMap<String, String>,
    eos: Option<u32>,
    bos: Option<u32>,
}

impl HuggingFace {
    /// Parses the bytes of a `tokenizer.json`, and of the `tokenizer_config.json` beside it.
    /// `path` is for messages only.
    ///
    /// # Errors
    /// As [`HuggingFace::with_files`].
    pub fn parse(path: &str, json: &[u8], config: Option<&[u8]>) -> Result<Self> {
        let config = config.map(|config| (CONFIG.to_owned(), config.to_vec()));
        Self::with_files(path, json, config.into_iter().collect())
    }

    /// Parses the bytes of a `tokenizer.json`, and of the files `beside` it, each a name and its bytes: `tokenizer_config.json`,
    /// `special_tokens_map.json` and `added_tokens.json`, from which transformers adds tokens. Truncation and padding that the file keeps
    /// are left out, as transformers does on every call. `path` is for messages only.
    ///
    /// # Errors
    /// What the library refuses or panics on, an empty vocabulary, ids of 2³¹ and more, and replacements that multiply a text.
    pub fn with_files(path: &str, json: &[u8], beside: Vec<(String, Vec<u8>)>) -> Result<Self> {
        Self::read(path, json, beside, false)
    }

    /// As [`HuggingFace::with_files`], of the `tokenizer.json` that was made of other files: it gets the tokens around a text that the files `beside` ask
    /// for.
    ///
    /// # Errors
    /// As there.
    pub(super) fn made(path: &str, json: &[u8], beside: Vec<(String, Vec<u8>)>) -> Result<Self> {
        Self::read(path, json, beside, true)
    }

    fn read(
        path: &str,
        json: &[u8],
        beside: Vec<(String, Vec<u8>)>,
        is_made: bool,
    ) -> Result<Self> {
        let broken = |problem: String| Error::Tokenizer { name: path.to_owned(), problem };
        let unusable =
            |e: String| broken(format!("not a usable tokenizer.json ({e}); fetch it again"));
        growth::check(json).map_err(unusable)?;
        let mut inner = guarded(|| tokenizers::Tokenizer::from_bytes(json))
            .and_then(|loaded| loaded.map_err(|e| e.to_string()))
            .map_err(unusable)?;
        let completed = guarded(|| {
            inner.with_padding(None).with_truncation(None).map_err(|e| e.to_string())?;
            beside::complete(&mut inner, &beside)
        });
        let beside::Beside { named, mut changed } =
            completed.and_then(|completed| completed).map_err(unusable)?;
        let mut json = json.to_vec();
        if is_made {
            let surrounded = guarded(|| beside::surround_as_asked(&mut inner, &beside, &named));
            if surrounded.and_then(|surrounded| surrounded).map_err(unusable)? {
                // With its own tokens and those around a text, so that it's the same wherever it's opened again.
                let written = guarded(|| inner.to_string(false).map_err(|e| e.to_string()));
                json = written.and_then(|text| text).map_err(unusable)?.into_bytes();
                changed = false;
            }
        }
        let (largest, eos, bos) = guarded(|| {
            let largest = inner.get_vocab(true).into_values().max();
            let [eos, bos] = ["eos_token", "bos_token"]
                .map(|key| named.get(key).and_then(|token| inner.token_to_id(token)));
            let eos = eos.or_else(|| EOS.iter().find_map(|token| inner.token_to_id(token)));
            (largest, eos, bos)
        })
        .map_err(broken)?;
        let largest = largest
            .filter(|&id| id <= i32::MAX as u32)
            .ok_or_else(|| broken("its vocabulary is empty or has ids beyond 2³¹".to_owned()))?;
        let mut hash = Xxh3::new();
        hash.update(&json);
        hash.update(&eos.map_or(u64::MAX, u64::from).to_le_bytes());
        if changed {
            beside.iter().for_each(|(_, bytes)| hash.update(bytes));
        }
        Ok(Self {
            inner,
            json,
            beside,
            path: path.to_owned(),
            name: format!("huggingface-{:016x}", hash.digest()),
            vocab_size: largest as usize + 1,
            named,
            eos,
            bos,
        })
    }

    pub(super) fn files(&self) -> Vec<(String, Vec<u8>)> {
        let json = (FILE.to_owned(), self.json.clone());
        std::iter::once(json).chain(self.beside.iter().cloned()).collect()
    }

    /// Special tokens by transformers' names, `bos_token` and so on.
    pub(super) fn named(&self) -> &BTreeMap<String, String> {
        &self.named
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    pub(super) fn eos(&self) -> Option<u32> {
        self.eos
    }

    pub(super) fn bos(&self) -> Option<u32> {
        self.bos
    }

    /// The token that fills up texts, where the files name one.
    pub(super) fn padding(&self) -> Option<u32> {
        let name = self.named.get("pad_token")?;
        guarded(|| self.inner.token_to_id(name)).ok().flatten()
    }

    pub(super) fn is_byte(&self, id: u32) -> bool {
        let name = guarded(|| self.inner.id_to_token(id)).ok().flatten().unwrap_or_default();
        let hex = name.strip_prefix("<0x").and_then(|name| name.strip_suffix('>'));
        hex.is_some_and(|hex| hex.len() == 2 && u8::from_str_radix(hex, 16).is_ok())
    }

    pub(super) fn decode(&self, ids: &[u32]) -> Result<String> {
        guarded(|| self.inner.decode(ids, false))
            .and_then(|text| text.map_err(|e| e.to_string()))
            .map_err(|e| self.error(format!("cannot decode ({e})")))
    }

    /// Long text goes through in pieces, on all cores, with the same result.
    pub(super) fn encode(&self, text: &str) -> Result<Vec<u32>> {
        let pieces = self.pieces(text)?;
        let workers = thread::available_parallelism().map_or(1, usize::from).min(pieces.len());
        if workers <= 1 {
            return pieces.first().map_or(Ok(Vec::new()), |piece| self.encode_piece(piece));
        }
        let next = AtomicUsize::new(0);
        let work = || {
            let mut done = Vec::new();
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(piece) = pieces.get(index) else { break };
                done.push((index, self.encode_piece(piece)));
            }
            done
        };
        let encoded = side_by_side(0..workers, |_| work());
        let mut encoded: Vec<_> = encoded.into_iter().flatten().collect();
        encoded.sort_unstable_by_key(|(index, _)| *index);
        let mut ids = Vec::with_capacity(text.len() / 3);
        for (_, piece) in encoded {
            ids.extend(piece?);
        }
        Ok(ids)
    }

    /// Ids with the bytes of `text` that each stands for. Those that are added at either end with `specials` stand for none.
    pub(super) fn encode_spans(
        &self,
        text: &str,
        specials: bool,
    ) -> Result<Vec<(u32, std::ops::Range<usize>)>> {
        let encoded = guarded(|| {
            let encoded = self.inner.encode(text, specials)?;
            let places = encoded.get_offsets().iter().map(|&(start, end)| start..end);
            Ok::<_, tokenizers::Error>(encoded.get_ids().iter().copied().zip(places).collect())
        });
        encoded
            .and_then(|ids| ids.map_err(|e| e.to_string()))
            .map_err(|e| self.error(format!("cannot encode the text ({e}); use another tokenizer")))
    }

    /// The ids that are added before a text and after it.
    pub(super) fn added(&self) -> Result<[Vec<u32>; 2]> {
        let encoded =
            guarded(|| self.inner.encode("a", true)).and_then(|it| it.map_err(|e| e.to_string()));
        let encoded = encoded.map_err(|e| {
            self.error(format!("cannot encode a text ({e}); use another tokenizer"))
        })?;
        let mut added = encoded.get_ids().iter().copied().zip(encoded.get_special_tokens_mask());
        let before =
            added.by_ref().map_while(|(id, &special)| (special != 0).then_some(id)).collect();
        let after = added.filter(|(_, special)| **special != 0).map(|(id, _)| id).collect();
        Ok([before, after])
    }

    /// The tokens that a sequence of an encoder has besides its text's.
    pub(super) fn specials(&self) -> Result<Specials> {
        let id = |(key, usual): (&str, &str)| {
            let name = self.named.get(key).map_or(usual, String::as_str);
            let id = guarded(|| self.inner.token_to_id(name)).ok().flatten();
            // Ids were seen to lie below 2³¹.
            id.map(u32::cast_signed).ok_or_else(|| {
                self.error(format!(
                    "it has no token `{name}`, which an encoder reads; name the tokenizer of a BERT"
                ))
            })
        };
        let [begin, end, mask, padding] = SPECIALS.map(id);
        Ok(Specials { begin: begin?, end: end?, mask: mask?, padding: padding? })
    }

    /// Encodes texts and pairs of texts for sequences of at most `most` tokens, cut at the side that `truncation_side` names.
    pub(super) fn pairs(&self, most: usize) -> Result<Pairs<'static>> {
        let config = self.config().and_then(|(_, text)| serde_json::from_slice(text).ok());
        let config: serde_json::Value = config.unwrap_or_default();
        let left = config["truncation_side"] == "left";
        Pairs::cut(&self.inner, most, left)
            .map_err(|e| self.error(format!("it can't cut texts to {most} tokens ({e})")))
    }

    pub(super) fn config(&self) -> Option<(&str, &[u8])> {
        let config = self.beside.iter().find(|(name, _)| name == CONFIG);
        config.map(|(name, text)| (name.as_str(), text.as_slice()))
    }

    fn encode_piece(&self, text: &str) -> Result<Vec<u32>> {
        guarded(|| self.inner.encode_fast(text, false).map(|e| e.get_ids().to_vec()))
            .and_then(|ids| ids.map_err(|e| e.to_string()))
            .map_err(|e| self.error(format!("cannot encode the text ({e}); use another tokenizer")))
    }

    /// Cuts `text` where encoding the parts gives the ids of the whole.
    fn pieces<'a>(&self, text: &'a str) -> Result<Vec<&'a str>> {
        let mut pieces = Vec::new();
        let mut start = 0;
        let mut from = PIECE;
        while from < text.len() {
            match self.cut(text, from)? {
                Some(cut) => {
                    pieces.push(&text[start..cut]);
                    start = cut;
                    from = cut + PIECE;
                }
                None => from += PIECE,
            }
        }
        if start < text.len() {
            pieces.push(&text[start..]);
        }
        Ok(pieces)
    }

    /// A line end after `from` at which the text can be cut. Many tokenizers treat the start of a
    /// text or a run of white space apart, so each candidate is tried on the text around it.
    fn cut(&self, text: &str, from: usize) -> Result<Option<usize>> {
        let bytes = text.as_bytes();
        let inside_line = |i: usize| bytes.get(i).is_some_and(|b| !b.is_ascii_whitespace());
        let candidates = (from..bytes.len().min(from + PIECE))
            .filter(|&i| bytes[i] == b'\n' && inside_line(i - 1) && inside_line(i + 1))
            .take(CANDIDATES);
        for end in candidates {
            let cut = end + 1;
            let left = &text[text.floor_char_boundary(cut - MARGIN)..cut];
            let right = &text[cut..text.floor_char_boundary(cut + MARGIN)];
            let mut parts = self.encode_piece(left)?;
            parts.extend(self.encode_piece(right)?);
            if parts == self.encode_piece(&format!("{left}{right}"))? {
                return Ok(Some(cut));
            }
        }
        Ok(None)
    }

    fn error(&self, problem: String) -> Error {
        Error::Tokenizer { name: self.path.clone(), problem }
    }
}

/// Whether a `tokenizer_config.json` of a BERT says that it tells cases apart.
pub(super) fn is_cased(config: &[u8]) -> bool {
    let config: Option<serde_json::Value> = serde_json::from_slice(config).ok();
    config.is_some_and(|config| config["do_lower_case"] == false)
}

#[cfg(test)]
mod tests;
