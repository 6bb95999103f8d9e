//! Text out of a model, as it comes.

use pollster::block_on;
use tightrope_data::Tokenizer;
use tightrope_nn::{SampleError, SampleTokens, Sampling, Trainer};

use crate::error::{Failure, Help as _};

/// Continues `prompt` by at most `count` tokens and hands each new piece of text to `show`, which says
/// whether to go on. The end-of-text token ends it. Returns the new tokens.
///
/// # Errors
/// An empty prompt, one outside the model's vocabulary, and those of the device.
pub fn generate(
    trainer: &mut Trainer,
    tokenizer: &Tokenizer,
    prompt: &[u32],
    count: usize,
    sampling: &Sampling,
    show: &mut dyn FnMut(&str) -> bool,
) -> Result<Vec<u32>, Failure> {
    let mut pieces = Pieces::new(tokenizer, prompt);
    let tokens = SampleTokens { vocab: tokenizer.vocab_size(), end: tokenizer.eos() };
    let mut piece = |id: u32| Ok::<bool, Failure>(show(&pieces.push(id)?));
    let text = tightrope_nn::generate(trainer, tokens, prompt, count, sampling, &mut piece);
    let text = block_on(text)?;
    show(&pieces.finish()?);
    Ok(text)
}

impl From<SampleError> for Failure {
    fn from(error: SampleError) -> Self {
        match error {
            SampleError::EmptyPrompt => Self::usage(error, "give --prompt some text to continue"),
            SampleError::NotANumber(_) => {
                Self::failed(error, "the weights have diverged: use an earlier checkpoint")
            }
            SampleError::Train(_) => {
                Self::failed(error, "give a --prompt of the model's vocabulary")
            }
        }
    }
}

/// Tokens to text as they come. A character of several tokens appears with its last.
struct Pieces<'a> {
    tokenizer: &'a Tokenizer,
    ids: Vec<u32>,
    /// Decoding starts here, so that the first shown token has its neighbour before it.
    context: usize,
    /// Tokens before this have been shown.
    shown: usize,
}

/// What a tokenizer shows for bytes that are no character, or not one yet.
const INCOMPLETE: char = '\u{fffd}';

impl<'a> Pieces<'a> {
    fn new(tokenizer: &'a Tokenizer, prompt: &[u32]) -> Self {
        let ids: Vec<u32> = prompt.last().copied().into_iter().collect();
        let shown = ids.len();
        Self { tokenizer, ids, context: 0, shown }
    }

    fn push(&mut self, id: u32) -> Result<String, Failure> {
        self.ids.push(id);
        let text = self.unseen()?;
        if text.is_empty() || text.ends_with(INCOMPLETE) {
            return Ok(String::new());
        }
        self.context = self.shown;
        self.shown = self.ids.len();
        Ok(text)
    }

    fn finish(&mut self) -> Result<String, Failure> {
        let text = self.unseen()?;
        self.shown = self.ids.len();
        Ok(text)
    }

    fn unseen(&self) -> Result<String, Failure> {
        let decode = |ids: &[u32]| {
            self.tokenizer.decode(ids).help("give the tokenizer that the model was trained with")
        };
        let before = decode(&self.ids[self.context..self.shown])?;
        let all = decode(&self.ids[self.context..])?;
        Ok(all.get(before.len()..).unwrap_or_default().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_character_of_several_tokens_appears_whole() {
        let text = "a—é\u{1f600}z";
        let mut pieces = Pieces::new(&Tokenizer::Byte, b"\n".map(u32::from).as_slice());
        let mut shown: Vec<String> =
            text.bytes().map(|byte| pieces.push(byte.into()).unwrap()).collect();
        shown.push(pieces.finish().unwrap());
        shown.retain(|piece| !piece.is_empty());
        assert_eq!(shown, ["a", "—", "é", "\u{1f600}", "z"]);
    }

    #[test]
    fn bytes_that_are_no_text_are_shown_in_the_end() {
        let mut pieces = Pieces::new(&Tokenizer::Byte, &[]);
        assert_eq!(pieces.push(0xe6).unwrap(), "");
        assert_eq!(pieces.finish().unwrap(), "\u{fffd}");
    }
}
