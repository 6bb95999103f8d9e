//! Documents to token ids, in memory.

use crate::tokens::Ids;
use crate::{Result, Tokenizer};

/// Encodes documents into one vector, as narrow as the vocabulary allows.
pub(super) struct Encoder<'a> {
    tokenizer: &'a Tokenizer,
    ids: Encoded,
}

enum Encoded {
    Bytes(Vec<u8>),
    Narrow(Vec<u16>),
    Wide(Vec<u32>),
}

impl<'a> Encoder<'a> {
    pub fn new(tokenizer: &'a Tokenizer) -> Self {
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
    pub fn document(&mut self, text: &str) -> Result<()> {
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

    pub fn finish(self) -> Ids {
        match self.ids {
            Encoded::Bytes(ids) => Ids::Text { bytes: ids.into(), skip: 0 },
            Encoded::Narrow(ids) => Ids::Memory16(ids),
            Encoded::Wide(ids) => Ids::Memory32(ids),
        }
    }
}
