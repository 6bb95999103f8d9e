//! Text out of a model, as it comes.

use anyhow::anyhow;
use tightrope_data::Tokenizer;
use tightrope_nn::{SampleTokens, Sampling, Trainer};

use super::turn::Turn;
use super::{Question, Run, unless_cancelled};
use crate::error::{Error, Help as _, Result};

/// Tokens of a sample.
const SAMPLED: usize = 400;
/// Held-out questions that the sample of a run on conversations answers, and most tokens of each answer.
const QUESTIONS: usize = 3;
const ANSWERED: usize = 200;
/// Characters of a question that are shown: its last.
const SHOWN: usize = 400;

/// Continues `prompt` by at most `count` tokens and hands each new piece of text to `show`, which
/// returns false to stop. The end-of-text token and each of `ends` end it. Returns the new tokens.
///
/// # Errors
/// An empty prompt, one outside the model's vocabulary, and those of the device.
pub async fn generate(
    trainer: &mut Trainer,
    tokenizer: &Tokenizer,
    (prompt, ends): (&[u32], &[u32]),
    count: usize,
    sampling: &Sampling,
    show: &mut dyn FnMut(&str) -> bool,
) -> Result<Vec<u32>> {
    let mut pieces = Pieces::new(tokenizer, prompt);
    let ends: Vec<u32> = ends.iter().copied().chain(tokenizer.eos()).collect();
    let tokens = SampleTokens { vocab: tokenizer.vocab_size(), ends: &ends };
    let mut piece = |id: u32| Ok::<bool, Error>(show(&pieces.push(id)?));
    let generated = tightrope_nn::generate(trainer, tokens, prompt, count, sampling, &mut piece);
    let text = generated.await?;
    show(&pieces.finish()?);
    Ok(text)
}

impl Run<'_> {
    /// Continues `prompt` by at most `count` tokens and hands each new piece of text to `show`, which says whether to go on.
    ///
    /// # Errors
    /// A run whose data isn't text, an empty prompt, one outside the model's vocabulary, and those of the device.
    pub async fn generate_async(
        &mut self,
        prompt: &str,
        count: usize,
        sampling: &Sampling,
        show: &mut dyn FnMut(&str) -> bool,
    ) -> Result<()> {
        let mut shown = 0;
        let attempt = self.inner.attempt(async |origin, trainer| {
            let Some(tokenizer) = origin.data.tokenizer() else {
                return Err(Error::usage(
                    anyhow!("the run's data isn't text"),
                    "train on text, or name the tokenizer that its ids are of",
                ));
            };
            if !continues(trainer) {
                return Err(Error::usage(
                    anyhow!("the model is an encoder, which continues no text"),
                    "train a language model",
                ));
            }
            let prompt = tokenizer.encode_with_specials(prompt).help("give another prompt")?;
            // On a device that took the place of a lost one it begins again, with pieces that were shown.
            let mut made = 0;
            let mut piece = |piece: &str| {
                made += 1;
                made <= shown || {
                    shown = made;
                    show(piece)
                }
            };
            generate(trainer, tokenizer, (&prompt, &origin.ends), count, sampling, &mut piece)
                .await
                .map(drop)
        });
        attempt.await
    }

    /// A sample of the model as it is, up to where the run is asked to stop: answers to questions that are held out, of a run on conversations,
    /// or a text. `None` if its data isn't text.
    ///
    /// # Errors
    /// Errors of the device and of the tokenizer.
    pub async fn sample_async(&mut self) -> Result<Option<String>> {
        if self.lacks_samples() {
            return Ok(None);
        }
        let step = self.done().steps;
        let attempt = self.inner.attempt(async |origin, trainer| match origin.data.tokenizer() {
            Some(tokenizer) if continues(trainer) => {
                let questions = origin.data.questions(QUESTIONS);
                let (ends, questions) = (&origin.ends, questions.as_slice());
                match questions {
                    [] => sample(trainer, tokenizer, ends, step).await.map(Some),
                    _ => answers(trainer, tokenizer, (ends, questions), step).await.map(Some),
                }
            }
            _ => Ok(None),
        });
        attempt.await
    }
}

/// Whether a model of text continues it: an encoder doesn't.
pub(super) fn continues(trainer: &Trainer) -> bool {
    trainer.config().model.decoder().is_some()
}

/// A sample of the model after `step`: a new line, or a new document, continued up to one of `ends`. It ends early where the trainer is
/// [stopped](Trainer::cancel_by).
///
/// # Errors
/// Those of the device and the tokenizer.
pub async fn sample(
    trainer: &mut Trainer,
    tokenizer: &Tokenizer,
    ends: &[u32],
    step: u64,
) -> Result<String> {
    const HELP: &str = "give another --tokenizer";
    let [begin, _] = tokenizer.around_texts().help(HELP)?;
    let prompt = match tokenizer.eos() {
        _ if !begin.is_empty() => begin,
        Some(end) => vec![end],
        None => tokenizer.encode("\n").help(HELP)?,
    };
    let seed = trainer.config().seed;
    let sampling = Sampling { temperature: 0.8, top_k: 0, top_p: 1.0, seed, draw: step };
    let mut text = String::new();
    let mut show = |piece: &str| {
        text.push_str(piece);
        true
    };
    let made = generate(trainer, tokenizer, (&prompt, ends), SAMPLED, &sampling, &mut show).await;
    unless_cancelled(made)?;
    Ok(text)
}

/// The questions, each with the model's answer after `step`, which ends with its turn. They end early where the trainer is stopped.
async fn answers(
    trainer: &mut Trainer,
    tokenizer: &Tokenizer,
    (ends, questions): (&[u32], &[Question]),
    step: u64,
) -> Result<String> {
    let (seed, capacity) = (trainer.config().seed, trainer.config().decode);
    let mut text = String::new();
    for (index, Question { tokens, end }) in questions.iter().enumerate() {
        let asked = tokenizer.decode(tokens).help("give another --tokenizer")?;
        let hidden = asked.chars().count().saturating_sub(SHOWN);
        text += if index > 0 { "\n\n" } else { "" };
        text += if hidden > 0 { "…" } else { "" };
        text.extend(asked.chars().skip(hidden));
        let draw = step.wrapping_mul(QUESTIONS as u64).wrapping_add(index as u64);
        let sampling = Sampling { temperature: 0.8, top_k: 0, top_p: 1.0, seed, draw };
        let most = ANSWERED.min(capacity.saturating_sub(tokens.len()).max(1));
        let mut turn = Turn::new(end.clone());
        let mut show = |piece: &str| {
            let (said, more) = turn.push(piece);
            text += &said;
            more
        };
        let given = (tokens.as_slice(), ends);
        let made = generate(trainer, tokenizer, given, most, &sampling, &mut show).await;
        let made = unless_cancelled(made)?;
        text += &turn.rest();
        if made.is_none() {
            break;
        }
    }
    Ok(text)
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
        /// Tokens back from the prompt's end in which a character that it ends with begins.
        const MOST: usize = 64;
        let is_inside = |start: usize| {
            let text = tokenizer.decode(&prompt[start..]).unwrap_or_default();
            tokenizer.is_byte(prompt[start]) || text.starts_with(INCOMPLETE)
        };
        let mut start = prompt.len().saturating_sub(1);
        while start > prompt.len().saturating_sub(MOST) && is_inside(start) {
            start -= 1;
        }
        let ids = prompt[start..].to_vec();
        let shown = ids.len();
        Self { tokenizer, ids, context: 0, shown }
    }

    fn push(&mut self, id: u32) -> Result<String> {
        self.ids.push(id);
        // Bytes are decoded together with those behind them.
        if self.tokenizer.is_byte(id) {
            return Ok(String::new());
        }
        let text = self.unseen()?;
        if text.is_empty() || text.ends_with(INCOMPLETE) {
            return Ok(String::new());
        }
        self.context = self.shown;
        self.shown = self.ids.len();
        Ok(text)
    }

    fn finish(&mut self) -> Result<String> {
        let text = self.unseen()?;
        self.shown = self.ids.len();
        Ok(text)
    }

    fn unseen(&self) -> Result<String> {
        let decode = |ids: &[u32]| {
            self.tokenizer.decode(ids).help("give the tokenizer that the model was trained with")
        };
        let before = decode(&self.ids[self.context..self.shown])?;
        let all = decode(&self.ids[self.context..])?;
        // The prompt's last bytes are another text where they are followed by what completes them.
        let rest = || all.chars().skip(before.chars().count()).collect();
        Ok(all.strip_prefix(&before).map_or_else(rest, str::to_owned))
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

    /// Tokens of a SentencePiece model, and bytes for what it lacks.
    fn with_bytes() -> Tokenizer {
        let mut vocab = serde_json::Map::new();
        for byte in 0..256 {
            vocab.insert(format!("<0x{byte:02X}>"), byte.into());
        }
        vocab.insert("▁the".to_owned(), 256.into());
        vocab.insert("▁".to_owned(), 257.into());
        let json = serde_json::json!({
            "version": "1.0",
            "decoder": {"type": "Sequence", "decoders": [
                {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                {"type": "ByteFallback"}, {"type": "Fuse"},
            ]},
            "model": {"type": "BPE", "byte_fallback": true, "merges": [], "vocab": vocab},
        });
        Tokenizer::parse("t", json.to_string().as_bytes(), None).unwrap()
    }

    #[test]
    fn bytes_among_tokens_are_shown_as_they_are_decoded_together() {
        let tokenizer = with_bytes();
        let bytes = |text: &str| text.bytes().map(u32::from).collect::<Vec<_>>();
        for (prompt, ids) in [
            (vec![256], [bytes("\n"), vec![0xe2, 256, 256]].concat()),
            ([vec![256], bytes("\u{1f600}")].concat(), [bytes("\u{1f601}"), vec![256]].concat()),
            ([vec![256], bytes("é")[..1].to_vec()].concat(), vec![0xa9, 256]),
            (vec![], bytes("\u{1f600}\n")),
        ] {
            let mut pieces = Pieces::new(&tokenizer, &prompt);
            let mut text: String = ids.iter().map(|&id| pieces.push(id).unwrap()).collect();
            text += &pieces.finish().unwrap();
            let [before, all] =
                [&prompt, &[&prompt[..], &ids].concat()].map(|ids| tokenizer.decode(ids).unwrap());
            let shown: String = all.chars().skip(before.chars().count()).collect();
            assert_eq!(text, shown, "{prompt:?} {ids:?}");
            assert!(text.ends_with(" the") || text.ends_with('\n'), "{text:?}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_shown_in_the_end() {
        let mut pieces = Pieces::new(&Tokenizer::Byte, &[]);
        assert_eq!(pieces.push(0xe6).unwrap(), "");
        assert_eq!(pieces.finish().unwrap(), "\u{fffd}");
    }
}
