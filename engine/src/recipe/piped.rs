//! A text on standard input as the data of a run: each token is trained on once, in the order in which it comes.

use std::io::{self, IsTerminal as _, Read, Stdin};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use tightrope_data::{Corpus, DataState, Pipe, Reached, Source, Tokenizer};
use tightrope_nn::inputs::{TARGETS, TOKENS};
use tightrope_nn::{Done, LanguageModel, TrainerConfig};

use super::rows::beyond_rows;
use crate::error::{Error, Help as _, Result};
use crate::run::{Batches, Samples, Wait};

/// What messages call it.
const CALLED: &str = "standard input";
const NEXT: &str = "pipe a text into it, or name a file with --data";
/// How long the run waits before it asks again whether to end.
const PATIENCE: Duration = Duration::from_millis(100);
/// Ids that are kept of steps before, for a device in place of one that was lost.
const KEPT: u64 = 4 << 20;

/// Whether these files are standard input.
pub(super) fn is(files: &[PathBuf]) -> bool {
    matches!(files, [file] if file == Path::new(Corpus::PIPE))
}

/// Standard input, which isn't a terminal.
fn input() -> Result<Stdin> {
    let input = io::stdin();
    if input.is_terminal() {
        let message = anyhow!("`--data -` reads {CALLED}, and that is a terminal");
        return Err(Error::usage(message, NEXT));
    }
    Ok(input)
}

/// All of standard input as a corpus, for what reads its data more than once.
///
/// # Errors
/// A terminal, and what isn't UTF-8 text of two tokens.
pub(super) fn whole(tokenizer: &Tokenizer) -> Result<Corpus> {
    let mut text = Vec::new();
    input()?.read_to_end(&mut text).map_err(anyhow::Error::new).help(NEXT)?;
    Corpus::from_bytes(CALLED, text, tokenizer).help(NEXT)
}

/// A text that is read while it's trained on. Nothing of it is held out.
pub(super) struct Piped {
    pipe: Pipe,
    tokenizer: Arc<Tokenizer>,
}

impl Piped {
    /// Standard input.
    ///
    /// # Errors
    /// An empty one, one that can't be read, and a terminal.
    pub fn open(tokenizer: Tokenizer) -> Result<Self> {
        Self::of(input()?, tokenizer)
    }

    fn of(text: impl Read + Send + 'static, tokenizer: Tokenizer) -> Result<Self> {
        let tokenizer = Arc::new(tokenizer);
        let pipe = Pipe::new(CALLED, text, Arc::clone(&tokenizer));
        Ok(Self { pipe: pipe.help(NEXT)?, tokenizer })
    }

    /// Numbers of the first token of a batch and of the one after its last target.
    fn span(config: &TrainerConfig, at: Done) -> (u64, u64) {
        let tokens = config.model.tokens() as u64;
        (at.samples * tokens, (at.samples + config.batch as u64) * tokens + 1)
    }
}

impl Batches for Piped {
    fn wait(&mut self, config: &TrainerConfig, at: Done) -> Result<Wait> {
        let (first, end) = Self::span(config, at);
        self.pipe.forget(first.saturating_sub(KEPT));
        Ok(match self.pipe.reach(end, PATIENCE).help("pipe UTF-8 text, and start again")? {
            Reached::Yes => Wait::Over,
            Reached::NotYet => Wait::Longer,
            Reached::Ended => Wait::Ended,
        })
    }

    fn batch(&mut self, config: &TrainerConfig, at: Done) -> Result<Samples> {
        while self.wait(config, at)? == Wait::Longer {}
        let ((first, end), tokens) = (Self::span(config, at), config.model.tokens());
        let Some(ids) = self.pipe.ids(first, (end - first) as usize) else {
            return Err(Error::failed(
                anyhow!("the tokens from {first} on aren't at hand: {CALLED} is read once"),
                "resume the run from its checkpoint, with the same text from its start",
            ));
        };
        if let Some(model) = LanguageModel::of(&*config.model) {
            let vocab = model.config().vocab;
            if let Some(id) = ids.iter().find(|&&id| id.cast_unsigned() as usize >= vocab) {
                return Err(beyond_rows(&self.tokenizer, id.cast_unsigned(), vocab, CALLED));
            }
        }
        let windows = |shift: usize| -> Vec<i32> {
            (0..config.batch)
                .flat_map(|row| &ids[shift + row * tokens..][..tokens])
                .copied()
                .collect()
        };
        let (inputs, targets) = (windows(0), windows(1));
        Ok(Samples::new(targets.len()).with(TOKENS, inputs).with(TARGETS, targets))
    }

    fn state(&self, samples: u64) -> DataState {
        let content = Some(self.pipe.content().to_owned());
        let source = Source { content, ..Source::new(Corpus::PIPE, 0) };
        DataState::new(samples, &[source], self.tokenizer.name(), 0.0)
    }

    fn files(&self) -> Vec<(String, Vec<u8>)> {
        self.tokenizer.files()
    }

    fn tokenizer(&self) -> Option<&Tokenizer> {
        Some(&self.tokenizer)
    }

    fn describe(&self) -> String {
        format!("{CALLED}, read as it comes, {}; nothing held out", self.tokenizer.name())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use tightrope_nn::preset;

    use super::*;

    #[test]
    fn each_token_is_trained_on_once_and_in_order() {
        let text: Vec<u8> = (0..200).map(|n| b'a' + n % 26).collect();
        let mut piped = Piped::of(Cursor::new(text.clone()), Tokenizer::Byte).unwrap();
        let config = TrainerConfig {
            batch: 3,
            ..TrainerConfig::new(preset("tiny").unwrap().build(16).unwrap())
        };
        let at = |samples| Done { steps: samples / 3, samples, tokens: samples * 16 };
        for step in 0..4 {
            assert_eq!(piped.wait(&config, at(3 * step)).unwrap(), Wait::Over);
            let samples = piped.batch(&config, at(3 * step)).unwrap();
            let first = 48 * step as usize;
            let ids = |shift: usize| -> Vec<i32> {
                text[first + shift..][..48].iter().map(|&byte| byte.into()).collect()
            };
            let expected = Samples::new(48).with(TOKENS, ids(0)).with(TARGETS, ids(1));
            assert_eq!(samples, expected, "step {step}");
        }
        assert_eq!(piped.wait(&config, at(12)).unwrap(), Wait::Ended);
        assert!(piped.batch(&config, at(12)).is_err());
    }
}
