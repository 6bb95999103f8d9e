//! GPT-2's tokenizer (Radford et al. 2019): byte pairs, merged within words.
//!
//! Ids are those of the list of merges: 256 of single bytes, one of each merge in order, and the end of text. See
//! `data/assets/gpt2.mjs` for its origin.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};

use crate::{Error, Result};

/// Name, in settings and in checkpoints.
pub(super) const NAME: &str = "gpt2";
/// Tokens of GPT-2.
pub(super) const VOCAB: usize = 50_257;
/// The token between documents.
const END: &str = "<|endoftext|>";
/// Words after an apostrophe that are words of their own, in the order in which they are tried.
const CONTRACTIONS: [&str; 7] = ["s", "t", "re", "ve", "m", "ll", "d"];
/// Longest words whose tokens are remembered.
const REMEMBERED: usize = 32;
/// Characters that are alphabetic to Unicode, and neither letters nor numbers, in runs: see `data/assets/gpt2.mjs`.
const MARKS: &[u8] = include_bytes!("../../assets/gpt2/marks.bin");

/// GPT-2's tokenizer.
pub struct Gpt2 {
    /// The token that two neighbours become. The lower its id, the earlier they do.
    merges: HashMap<(u32, u32), u32>,
    /// Bytes of all tokens but the last, one after the other.
    bytes: Vec<u8>,
    /// Where each of them ends.
    ends: Vec<u32>,
    /// Token of each byte.
    of_byte: [u32; 256],
    /// First and last character of each run of marks.
    marks: Vec<(u32, u32)>,
}

impl Gpt2 {
    /// Reads a list of merges, `vocab.bpe` of GPT-2 or as its: a line each of two tokens, a character for each byte.
    ///
    /// # Errors
    /// Text that isn't such a list: of other tokens than are known in its line, or of another number of them.
    pub fn read(list: &[u8]) -> Result<Self> {
        let broken = |line: usize, what: &str| Error::Tokenizer {
            name: NAME.to_owned(),
            problem: format!("line {line} of its merges {what}; fetch the file again"),
        };
        let text = std::str::from_utf8(list).map_err(|_| broken(1, "is no UTF-8 text"))?;
        let order = byte_order();
        let mut of_byte = [0; 256];
        order.iter().enumerate().for_each(|(id, &byte)| of_byte[usize::from(byte)] = id as u32);
        let mut bytes = order.to_vec();
        let mut ends: Vec<u32> = (1..=256).collect();
        let mut ids: HashMap<Vec<u8>, u32> =
            order.iter().enumerate().map(|(id, &byte)| (vec![byte], id as u32)).collect();
        let mut merges = HashMap::with_capacity(VOCAB);
        let lines = text.lines().enumerate().filter(|(_, line)| !line.is_empty());
        for (number, line) in lines.filter(|(_, line)| !line.starts_with("#version")) {
            let token = |part: &str| -> Option<(Vec<u8>, u32)> {
                let bytes = part.chars().map(byte_of).collect::<Option<Vec<u8>>>()?;
                let id = *ids.get(&bytes)?;
                Some((bytes, id))
            };
            let parts = line.split_once(' ').and_then(|(a, b)| Some((token(a)?, token(b)?)));
            let Some(((mut merged, left), (more, right))) = parts else {
                return Err(broken(number + 1, "isn't of two tokens that the lines before made"));
            };
            merged.extend(more);
            let id = ends.len() as u32;
            bytes.extend(&merged);
            ends.push(bytes.len() as u32);
            if merges.insert((left, right), id).is_some() {
                return Err(broken(number + 1, "was there before"));
            }
            ids.insert(merged, id);
        }
        if ends.len() + 1 != VOCAB {
            let problem =
                format!("it makes {} tokens of {VOCAB}; fetch the file again", ends.len() + 1);
            return Err(Error::Tokenizer { name: NAME.to_owned(), problem });
        }
        Ok(Self { merges, bytes, ends, of_byte, marks: marks() })
    }

    /// The list that is compiled in. A page fetches it.
    ///
    /// # Errors
    /// None but a build that is damaged.
    #[cfg(not(target_family = "wasm"))]
    pub fn built_in() -> Result<Self> {
        use std::io::Read as _;
        const PACKED: &[u8] = include_bytes!("../../assets/gpt2/vocab.bpe.gz");
        let mut list = Vec::new();
        flate2::read::GzDecoder::new(PACKED)
            .read_to_end(&mut list)
            .map_err(Error::io("unpack", std::path::Path::new("vocab.bpe")))?;
        Self::read(&list)
    }

    /// True if `vocabulary` and `list` are the files that GPT-2 was published with.
    #[cfg(not(target_family = "wasm"))]
    pub(super) fn is_published(vocabulary: &[u8], list: &[u8]) -> bool {
        let own = Self::read(list).and_then(|read| read.files());
        let Ok([(_, own), _]) = own else { return false };
        let parsed = |json: &[u8]| serde_json::from_slice::<BTreeMap<String, u32>>(json).ok();
        parsed(&own).is_some_and(|own| parsed(vocabulary) == Some(own))
    }

    /// The end-of-text token.
    pub(super) fn end(&self) -> u32 {
        VOCAB as u32 - 1
    }

    /// Names and bytes of the files by which others know it: `vocab.json` and `merges.txt`.
    ///
    /// # Errors
    /// Never: text is always JSON.
    pub fn files(&self) -> Result<[(String, Vec<u8>); 2]> {
        let shown = shown_bytes();
        let token = |id: u32| -> String {
            self.decode(&[id]).iter().map(|&byte| shown[usize::from(byte)]).collect()
        };
        let ids = (0..self.end()).map(|id| (token(id), id));
        let vocabulary: BTreeMap<String, u32> = ids.chain([(END.to_owned(), self.end())]).collect();
        let mut merges: Vec<_> = self.merges.iter().map(|(pair, id)| (*id, *pair)).collect();
        merges.sort_unstable();
        let mut list = "#version: 0.2\n".to_owned();
        for (_, (left, right)) in merges {
            list += &format!("{} {}\n", token(left), token(right));
        }
        let vocabulary = serde_json::to_vec(&vocabulary).map_err(|error| Error::Tokenizer {
            name: NAME.to_owned(),
            problem: error.to_string(),
        })?;
        Ok([("vocab.json".to_owned(), vocabulary), ("merges.txt".to_owned(), list.into_bytes())])
    }

    pub(super) fn encode(&self, text: &str) -> Vec<u32> {
        let mut ids = Vec::with_capacity(text.len() / 3);
        let mut known: HashMap<&str, Vec<u32>> = HashMap::new();
        for (index, document) in text.split(END).enumerate() {
            if index > 0 {
                ids.push(self.end());
            }
            let mut rest = document;
            while !rest.is_empty() {
                let (word, after) = rest.split_at(self.word(rest));
                rest = after;
                if word.len() > REMEMBERED {
                    ids.extend(self.merged(word.as_bytes()));
                    continue;
                }
                ids.extend(
                    known.entry(word).or_insert_with(|| self.merged(word.as_bytes())).iter(),
                );
            }
        }
        ids
    }

    /// Bytes of the tokens, which must be in the vocabulary.
    pub(super) fn decode(&self, ids: &[u32]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(4 * ids.len());
        for &id in ids {
            let at = id as usize;
            let end = self.ends.get(at).map(|&end| end as usize);
            let start = at.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
            bytes.extend(end.map_or(END.as_bytes(), |end| &self.bytes[start..end]));
        }
        bytes
    }

    /// Bytes of the first word of a text that isn't empty, by the pattern
    /// `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`.
    fn word(&self, text: &str) -> usize {
        if let Some(rest) = text.strip_prefix('\'')
            && let Some(found) = CONTRACTIONS.iter().find(|word| rest.starts_with(**word))
        {
            return 1 + found.len();
        }
        let spaced = text.strip_prefix(' ').unwrap_or(text);
        let start = text.len() - spaced.len();
        let kind = |c: char| self.kind(c);
        match spaced.chars().next().map(kind) {
            Some(first) if first != Class::Space => {
                start + spaced.find(|c| kind(c) != first).unwrap_or(spaced.len())
            }
            // The last white space before a word stays with it, where it isn't alone.
            _ => match text.find(|c: char| !c.is_whitespace()) {
                None => text.len(),
                Some(end) => {
                    let last = text[..end].chars().next_back().map_or(0, char::len_utf8);
                    if end > last { end - last } else { end }
                }
            },
        }
    }

    fn kind(&self, c: char) -> Class {
        if c.is_ascii_alphabetic() {
            Class::Letter
        } else if c.is_whitespace() {
            Class::Space
        } else if c.is_numeric() {
            Class::Number
        } else if c.is_alphabetic() && !self.is_mark(c) {
            Class::Letter
        } else {
            Class::Other
        }
    }

    fn is_mark(&self, c: char) -> bool {
        let after = self.marks.partition_point(|&(first, _)| first <= u32::from(c));
        after.checked_sub(1).is_some_and(|at| u32::from(c) <= self.marks[at].1)
    }

    /// Tokens of a word: of all neighbours that make a token, those of the lowest are merged first, from the left.
    fn merged(&self, word: &[u8]) -> Vec<u32> {
        let mut ids: Vec<Option<u32>> =
            word.iter().map(|&byte| Some(self.of_byte[usize::from(byte)])).collect();
        let count = ids.len();
        // Places of the neighbours that are left.
        let mut next: Vec<usize> = (1..=count).collect();
        let mut before: Vec<Option<usize>> = (0..count).map(|at| at.checked_sub(1)).collect();
        let merge = |ids: &[Option<u32>], left: usize, right: usize| {
            let pair = (ids[left]?, (*ids.get(right)?)?);
            self.merges.get(&pair).map(|&id| Reverse((id, left, right)))
        };
        let mut due: BinaryHeap<_> =
            (1..count).filter_map(|right| merge(&ids, right - 1, right)).collect();
        while let Some(Reverse((id, left, right))) = due.pop() {
            // Neighbours that were merged meanwhile, with others.
            if merge(&ids, left, right) != Some(Reverse((id, left, right))) || next[left] != right {
                continue;
            }
            ids[left] = Some(id);
            ids[right] = None;
            next[left] = next[right];
            if let Some(after) = before.get_mut(next[left]) {
                *after = Some(left);
            }
            due.extend(merge(&ids, left, next[left]));
            due.extend(before[left].and_then(|before| merge(&ids, before, left)));
        }
        ids.into_iter().flatten().collect()
    }
}

/// What words are made of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Letter,
    Number,
    Space,
    Other,
}

/// Bytes that stand for themselves in the list of merges.
fn is_shown(byte: u8) -> bool {
    matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff)
}

/// The bytes in the order of their tokens: first those that stand for themselves.
fn byte_order() -> [u8; 256] {
    let mut order: [u8; 256] = std::array::from_fn(|byte| byte as u8);
    order.sort_by_key(|&byte| !is_shown(byte));
    order
}

/// The byte that a character of the list stands for: itself, or one of those that can't be shown, which are characters from
/// U+0100 on in their order.
fn byte_of(c: char) -> Option<u8> {
    const SHOWN: usize = 188;
    match u32::from(c) {
        code @ 0..=0xff => u8::try_from(code).ok().filter(|&byte| is_shown(byte)),
        code => byte_order().get(SHOWN + (code - 0x100) as usize).copied(),
    }
}

/// The character that stands for each byte, as [`byte_of`] reads it.
fn shown_bytes() -> [char; 256] {
    let mut shown = ['\0'; 256];
    for c in ('\0'..='\u{1ff}').filter(|&c| byte_of(c).is_some()) {
        byte_of(c).into_iter().for_each(|byte| shown[usize::from(byte)] = c);
    }
    shown
}

fn marks() -> Vec<(u32, u32)> {
    let mut numbers = Vec::new();
    let (mut number, mut shift) = (0, 0);
    for &byte in MARKS {
        number |= u32::from(byte & 0x7f) << shift;
        shift += 7;
        if byte < 0x80 {
            numbers.push(number);
            (number, shift) = (0, 0);
        }
    }
    let (pairs, _) = numbers.as_chunks::<2>();
    let mut at = 0;
    let mut run = |&[before, count]: &[u32; 2]| {
        let first = at + before;
        at = first + count;
        (first, at - 1)
    };
    pairs.iter().map(&mut run).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tokenizer of Hugging Face's library from the same list.
    fn reference() -> tokenizers::Tokenizer {
        use tokenizers::models::bpe::BPE;
        use tokenizers::pre_tokenizers::byte_level::ByteLevel;
        let own = Gpt2::built_in().unwrap();
        let shown: HashMap<u8, char> =
            (0..0x200).filter_map(char::from_u32).filter_map(|c| Some((byte_of(c)?, c))).collect();
        let text = |id: usize| -> String {
            own.decode(&[id as u32]).iter().map(|byte| shown[byte]).collect()
        };
        let vocab = (0..VOCAB - 1).map(|id| (text(id), id as u32)).collect();
        let mut merges: Vec<_> = own.merges.iter().map(|(&pair, &id)| (id, pair)).collect();
        merges.sort_unstable();
        let merges = merges.iter().map(|&(_, (a, b))| (text(a as usize), text(b as usize)));
        let model = BPE::builder()
            .vocab_and_merges::<tokenizers::models::bpe::Vocab>(vocab, merges.collect());
        let mut tokenizer = tokenizers::Tokenizer::new(model.build().unwrap());
        tokenizer.with_pre_tokenizer(Some(ByteLevel::new(false, true, true)));
        tokenizer.add_special_tokens(&[tokenizers::AddedToken::from(END, true)]);
        tokenizer
    }

    #[test]
    fn published_ids() {
        let gpt2 = Gpt2::built_in().unwrap();
        assert_eq!(gpt2.encode("Hello, world!"), [15496, 11, 995, 0]);
        assert_eq!(gpt2.encode("hello <|endoftext|>"), [31373, 220, 50256]);
        assert!(gpt2.encode("").is_empty());
        assert_eq!(gpt2.decode(&[50256]), END.as_bytes());
    }

    #[test]
    fn ids_are_those_of_the_tokenizers_library() {
        let (own, reference) = (Gpt2::built_in().unwrap(), reference());
        let plays = crate::Corpus::built_in_text().unwrap();
        let plays = String::from_utf8(plays).unwrap();
        // Of the large blocks, which hold letters alone or nothing, one of many.
        let codes = (0..0x3400).chain((0x3400..0x11_0000).step_by(257)).chain(0xa000..0xac00);
        let codes =
            codes.chain(0xd7a0..0x1_2600).chain(0x1_6000..0x1_7100).chain(0x1_a000..0x1_fc00);
        let every: String = codes.filter_map(char::from_u32).flat_map(|c| ['a', c]).collect();
        let long = "ab".repeat(3000) + &" ".repeat(700) + &"=".repeat(999);
        let sources = [
            include_str!("gpt2.rs"),
            include_str!("../../../README.md"),
            include_str!("../../../web/page/src/app.ts"),
            "I'll we've they'd 'tis it's '' 'll's DON'T  x   y\t\t z \r\n\n\n end \u{a0}\u{a0}n\u{3000}",
            "naïve café — “quoted” 日本語のテキスト 한국어 हिन्दी में ไทย עברית العربية ١٢٣ ⅷ ²³ Ⓐ 👩‍👩‍👧 🇩🇪\u{301}",
            "  leading, trailing   ",
            &long,
        ];
        for text in sources.into_iter().chain([&plays[..100_000], &every]) {
            let expected = reference.encode(text, false).unwrap();
            let found = own.encode(text);
            let off = found.iter().zip(expected.get_ids()).position(|(a, b)| a != b);
            assert_eq!((off, found.len()), (None, expected.get_ids().len()), "{:.60}", text);
            assert_eq!(own.decode(&found), text.as_bytes());
        }
    }

    #[test]
    fn the_list_of_merges_is_small() {
        let packed = include_bytes!("../../assets/gpt2/vocab.bpe.gz");
        assert!(packed.len() <= 300_000, "{}", packed.len());
    }

    #[test]
    fn lists_that_are_damaged_are_refused() {
        for (list, words) in [
            (&b"\xff"[..], "is no UTF-8"),
            (b"#version: 0.2\na b\nab c d\n", "line 3 of its merges isn't of two tokens"),
            (b"a b\na b\n", "line 2 of its merges was there before"),
            (b"a \xc8\x80", "line 1"),
            (b"a b\n", "it makes 258 tokens of 50257"),
            (b"", "it makes 257"),
        ] {
            let error = Gpt2::read(list).err().unwrap().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
