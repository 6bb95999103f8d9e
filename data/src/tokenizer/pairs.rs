//! Texts and pairs of texts as the tokens of one sequence.

use tokenizers::{TruncationDirection, TruncationParams};

use super::Tokenizer;
use super::guarded::guarded;

/// Encodes texts and pairs of texts, with the tokens that begin and end them. The longer text is cut where they are too long.
pub enum Pairs<'a> {
    /// By Hugging Face's library.
    HuggingFace(Box<tokenizers::Tokenizer>),
    /// By a tokenizer that adds no tokens, for sequences of at most this number of them.
    Plain(&'a Tokenizer, usize),
}

impl<'a> Pairs<'a> {
    /// By a copy of `inner`, for sequences of at most `most` tokens, of which the first are left out where `left`.
    ///
    /// # Errors
    /// A message of the library, which refuses or panics.
    pub(super) fn cut(
        inner: &tokenizers::Tokenizer,
        most: usize,
        left: bool,
    ) -> Result<Self, String> {
        let mut inner = inner.clone();
        let direction = if left { TruncationDirection::Left } else { TruncationDirection::Right };
        let cut = TruncationParams { max_length: most, direction, ..TruncationParams::default() };
        guarded(|| inner.with_padding(None).with_truncation(Some(cut)).map(drop))
            .and_then(|cut| cut.map_err(|e| e.to_string()))?;
        Ok(Self::HuggingFace(Box::new(inner)))
    }

    /// Ids, each with whether it belongs to the second text, and whether something was cut.
    ///
    /// # Errors
    /// A message of the library, which refuses or panics.
    pub(crate) fn encode(
        &self,
        text: &str,
        second: Option<&str>,
    ) -> Result<(Vec<(u32, bool)>, bool), String> {
        let inner = match self {
            Self::HuggingFace(inner) => inner,
            Self::Plain(tokenizer, most) => {
                let encode = |text: &str| tokenizer.encode(text).map_err(|e| e.to_string());
                let ids = [encode(text)?, second.map_or(Ok(Vec::new()), encode)?];
                return Ok(joined(&ids, *most));
            }
        };
        let encoded = guarded(|| match second {
            None => inner.encode(text, true),
            Some(second) => inner.encode((text, second), true),
        });
        let encoded = encoded.and_then(|encoded| encoded.map_err(|e| e.to_string()))?;
        let cut = !encoded.get_overflowing().is_empty();
        let types = encoded.get_type_ids().iter().map(|&id| id != 0);
        Ok((encoded.get_ids().iter().copied().zip(types).collect(), cut))
    }
}

/// Two texts, the longer cut first where they have more than `most` tokens, as Hugging Face's library does.
fn joined([first, second]: &[Vec<u32>; 2], most: usize) -> (Vec<(u32, bool)>, bool) {
    let (shorter, longer) = (first.len().min(second.len()), first.len().max(second.len()));
    let (shorter, longer) = match shorter + longer <= most {
        true => (shorter, longer),
        false if 2 * shorter <= most => (shorter, most - shorter),
        false => (most / 2, most - most / 2),
    };
    let lengths = if first.len() <= second.len() { [shorter, longer] } else { [longer, shorter] };
    let part = |ids: &[u32], length: usize, is_second: bool| -> Vec<(u32, bool)> {
        ids[..length].iter().map(|&id| (id, is_second)).collect()
    };
    let kept = [part(first, lengths[0], false), part(second, lengths[1], true)].concat();
    let cut = kept.len() < first.len() + second.len();
    (kept, cut)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_two_texts_are_cut_as_the_library_cuts() {
        let lengths = |first: &str, second: Option<&str>, most: usize| {
            let pairs = Tokenizer::Byte.pairs(most).unwrap();
            let (ids, cut) = pairs.encode(first, second).unwrap();
            let seconds = ids.iter().filter(|(_, second)| *second).count();
            (ids.len() - seconds, seconds, cut)
        };
        assert_eq!(lengths("abcdef", None, 8), (6, 0, false));
        assert_eq!(lengths("abcdef", None, 4), (4, 0, true));
        assert_eq!(lengths("abcdef", Some("ab"), 8), (6, 2, false));
        assert_eq!(lengths("abcdef", Some("ab"), 7), (5, 2, true));
        assert_eq!(lengths("ab", Some("abcdef"), 7), (2, 5, true));
        // The second of two texts of one length gets the odd token.
        assert_eq!(lengths("abcdef", Some("abcdef"), 7), (3, 4, true));
        assert_eq!(lengths("abcdefg", Some("abcdef"), 7), (4, 3, true));
    }
}
