//! Documents to token ids, in memory.

use crate::tokens::Ids;
use crate::{Result, Tokenizer};

/// Encodes documents into one vector, as narrow as the vocabulary allows.
pub(super) struct Encoder<'a> {
    tokenizer: &'a Tokenizer,
    /// Tokens before and behind each document.
    around: [Vec<u32>; 2],
    ids: Encoded,
}

enum Encoded {
    Bytes(Vec<u8>),
    Narrow(Vec<u16>),
    Wide(Vec<u32>),
}

impl<'a> Encoder<'a> {
    /// # Errors
    /// As [`Tokenizer::around_texts`].
    pub fn new(tokenizer: &'a Tokenizer) -> Result<Self> {
        let ids = if matches!(tokenizer, Tokenizer::Byte) {
            Encoded::Bytes(Vec::new())
        } else if tokenizer.vocab_size() <= 1 << 16 {
            Encoded::Narrow(Vec::new())
        } else {
            Encoded::Wide(Vec::new())
        };
        Ok(Self { tokenizer, around: tokenizer.around_texts()?, ids })
    }

    /// Appends a document with the tokens around it, of which it may have the first or the last itself; an empty document adds nothing.
    pub fn document(&mut self, text: &str) -> Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        if let Encoded::Bytes(ids) = &mut self.ids {
            ids.extend_from_slice(text.as_bytes());
            ids.push(b'\n');
            return Ok(());
        }
        let ids = self.tokenizer.encode(text)?;
        let [before, after] = &self.around;
        let before: &[u32] = if ids.starts_with(before) { &[] } else { before };
        let after: &[u32] = if ids.ends_with(after) { &[] } else { after };
        for part in [before, &ids, after] {
            match &mut self.ids {
                Encoded::Bytes(_) => {}
                // Every id is below the vocabulary's size, which fits.
                Encoded::Narrow(all) => all.extend(part.iter().map(|&id| id as u16)),
                Encoded::Wide(all) => all.extend(part),
            }
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
