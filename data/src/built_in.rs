//! The text that is compiled in, for runs that name no data.

use std::io::{ErrorKind, Read as _};
use std::path::Path;

use crate::{Corpus, Error, Result, Source, Tokenizer};

/// See `data/assets/README.md` for its origin.
const PACKED: &[u8] = include_bytes!("../assets/tinyshakespeare.txt.bz2");
/// Name of the text, as checkpoints remember it.
const NAME: &str = "tinyshakespeare.txt";
/// Bytes of the text.
const BYTES: usize = 1_115_394;

impl Corpus {
    /// What [`Corpus::built_in`] is, in a few words.
    pub const BUILT_IN: &str = "Tiny Shakespeare";

    /// Tiny Shakespeare: 1.1 MB of plays, the same in every version, so that losses can be compared.
    ///
    /// # Errors
    /// As [`Corpus::from_bytes`], of the tokenizer.
    pub fn built_in(tokenizer: &Tokenizer) -> Result<Self> {
        Self::from_bytes(NAME, Self::built_in_text()?, tokenizer)
    }

    /// Whether a checkpoint's files are the built-in text, whatever its tokens.
    pub fn is_built_in(files: &[Source]) -> bool {
        matches!(files, [Source { name, .. }] if name == NAME)
    }

    pub(crate) fn built_in_text() -> Result<Vec<u8>> {
        let mut text = Vec::with_capacity(BYTES);
        bzip2::read::BzDecoder::new(PACKED)
            .read_to_end(&mut text)
            // It is whole; what its decoder calls invalid is memory that it didn't get.
            .map_err(|_| Error::io("unpack", Path::new(NAME))(ErrorKind::OutOfMemory.into()))?;
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_text_is_tiny_shakespeare() {
        let corpus = Corpus::built_in(&Tokenizer::Byte).unwrap();
        let tokens = corpus.tokens();
        assert_eq!(tokens.len(), BYTES);
        let mut ids = vec![0; BYTES];
        tokens.read(0..BYTES, &mut ids).unwrap();
        let bytes: Vec<u8> = ids.iter().map(|&id| u8::try_from(id).unwrap()).collect();
        assert!(
            bytes.starts_with(b"First Citizen:\nBefore we proceed any further, hear me speak.")
        );
        assert!(bytes.ends_with(b"Whiles thou art waking.\n"));
        assert_eq!(xxhash_rust::xxh3::xxh3_64(&bytes), 7_310_085_446_290_011_603);
    }
}
