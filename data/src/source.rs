//! Which data a run was trained on: names, lengths and content of its files, as a checkpoint remembers them.

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// Longest data of which every byte is hashed.
const WHOLE: usize = 1 << 30;
/// Bytes of a block of longer data.
const BLOCK: usize = 1 << 20;
/// Blocks of longer data that are hashed.
const BLOCKS: usize = 256;

/// One file of a corpus, as a checkpoint remembers it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// File name without its folder, or the name of an embedded document.
    pub name: String,
    /// Tokens of the stream, or images, that come from it.
    pub tokens: u64,
    /// [`content`] of its bytes. None where there are no bytes, and in checkpoints of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
}

impl Source {
    /// A source of which only name and length are known.
    pub fn new(name: impl Into<String>, tokens: u64) -> Self {
        Self { name: name.into(), tokens, content: None }
    }
}

/// A hash of bytes that says how it was made: `xxh3:` and XXH3-64 of all of them or, for more than 1 GiB,
/// `xxh3-sampled:` and that of 256 blocks of 1 MiB, evenly spread from the first to the last byte.
pub fn content(bytes: &[u8]) -> String {
    content_in(bytes, WHOLE, BLOCK)
}

fn content_in(bytes: &[u8], whole: usize, block: usize) -> String {
    if bytes.len() <= whole {
        return format!("xxh3:{:016x}", xxh3_64(bytes));
    }
    let mut hash = Xxh3::new();
    let last = bytes.len() - block;
    for index in 0..BLOCKS {
        let start = (last as u128 * index as u128 / (BLOCKS - 1) as u128) as usize;
        hash.update(&bytes[start..start + block]);
    }
    format!("xxh3-sampled:{:016x}", hash.digest())
}

/// A hash of names, lengths and contents, 16 hex digits: differs where other data would be resumed on.
pub fn fingerprint(sources: &[Source]) -> String {
    let mut hash = Xxh3::new();
    for Source { name, tokens, content } in sources {
        hash.update(&(name.len() as u64).to_le_bytes());
        hash.update(name.as_bytes());
        hash.update(&tokens.to_le_bytes());
        hash.update(content.as_deref().unwrap_or_default().as_bytes());
    }
    format!("{:016x}", hash.digest())
}

/// How data differs from what it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Difference {
    /// Other files, or files of other lengths.
    Files,
    /// The file of this name has the same length, and not the same content.
    Content(String),
}

/// How `now` differs from `was`; `None` where it's the same data. Contents that aren't known, as in checkpoints of earlier
/// versions, aren't compared.
pub fn difference(was: &[Source], now: &[Source]) -> Option<Difference> {
    let same_file =
        |(was, now): (&Source, &Source)| was.name == now.name && was.tokens == now.tokens;
    if was.len() != now.len() || !was.iter().zip(now).all(same_file) {
        return Some(Difference::Files);
    }
    let other = |(was, now): &(&Source, &Source)| {
        was.content.is_some() && now.content.is_some() && was.content != now.content
    };
    was.iter().zip(now).find(other).map(|(was, _)| Difference::Content(was.name.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_tell_names_lengths_and_contents_apart() {
        let base = fingerprint(&[Source::new("a", 1), Source::new("b", 2)]);
        assert_eq!(base.len(), 16);
        assert_eq!(base, fingerprint(&[Source::new("a", 1), Source::new("b", 2)]));
        let content = Some("xxh3:0".to_owned());
        for other in [
            vec![Source::new("a", 1)],
            vec![Source::new("b", 2), Source::new("a", 1)],
            vec![Source::new("a", 1), Source::new("b", 3)],
            vec![Source::new("a", 1), Source { content, ..Source::new("b", 2) }],
        ] {
            assert_ne!(base, fingerprint(&other));
        }
    }

    #[test]
    fn a_byte_that_changes_is_seen_and_long_data_says_that_it_was_sampled() {
        let bytes: Vec<u8> = (0..10_000_u32).map(|i| (i * i) as u8).collect();
        let flipped = |at: usize| {
            let mut bytes = bytes.clone();
            bytes[at] ^= 1;
            bytes
        };
        assert!(content(&bytes).starts_with("xxh3:"));
        assert_ne!(content(&flipped(5000)), content(&bytes));
        let sampled = |bytes: &[u8]| content_in(bytes, 9999, 16);
        assert!(sampled(&bytes).starts_with("xxh3-sampled:"));
        for seen in [0, 15, 9999] {
            assert_ne!(sampled(&flipped(seen)), sampled(&bytes), "{seen}");
        }
        assert_eq!(sampled(&flipped(20)), sampled(&bytes));
    }

    #[test]
    fn a_difference_names_the_file() {
        let of = |content: &str| Source { content: Some(content.into()), ..Source::new("a", 1) };
        let known = [of("xxh3:0")];
        assert_eq!(difference(&known, &known), None);
        assert_eq!(difference(&[Source::new("a", 1)], &known), None);
        assert_eq!(difference(&known, &[of("xxh3:1")]), Some(Difference::Content("a".into())));
        assert_eq!(difference(&known, &[Source::new("a", 2)]), Some(Difference::Files));
        assert_eq!(difference(&known, &[]), Some(Difference::Files));
    }
}
