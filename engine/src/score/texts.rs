//! Perplexity of texts.

use std::path::PathBuf;

use anyhow::anyhow;
use tightrope_core::Backend;
use tightrope_data::{Corpus, Scored, documents, is_white, sliding};

use crate::error::{Error, Result};
use crate::generate::Loaded;

/// What the texts of files came to.
#[derive(Clone, Debug, PartialEq)]
pub struct TextScores {
    /// Log-likelihood of all scored tokens, in nats.
    pub log_likelihood: f64,
    /// That of each document.
    pub of_documents: Vec<f64>,
    /// Documents: each is scored by itself.
    pub documents: usize,
    /// Tokens that were scored.
    pub tokens: usize,
    /// Words: what white space lies between.
    pub words: usize,
    /// Bytes of UTF-8. Without a token that texts are scored after, those of each document but its first token.
    pub bytes: usize,
    /// Tokens that the model sees at once.
    pub context: usize,
    /// Tokens from a window to the next.
    pub stride: usize,
}

impl TextScores {
    /// Mean over tokens, in nats.
    pub fn loss(&self) -> f64 {
        -self.log_likelihood / self.tokens as f64
    }

    /// e to the loss.
    pub fn perplexity(&self) -> f64 {
        self.loss().exp()
    }

    /// e to the nats of a word.
    pub fn word_perplexity(&self) -> f64 {
        (-self.log_likelihood / self.words as f64).exp()
    }

    /// e to the nats of a byte.
    pub fn byte_perplexity(&self) -> f64 {
        (-self.log_likelihood / self.bytes as f64).exp()
    }

    /// Bits that the model needs for a byte.
    pub fn bits_per_byte(&self) -> f64 {
        -self.log_likelihood / self.bytes as f64 / std::f64::consts::LN_2
    }
}

impl Loaded {
    /// Scores every token of the texts of `files` once, under the tokens before it in windows of the model's context that move by
    /// `stride` tokens, which is the context where it isn't given. A document begins after the tokenizer's
    /// [`prefix`](tightrope_data::Tokenizer::prefix); where there is none, its first token isn't scored.
    ///
    /// # Errors
    /// A model that reads no text, files that can't be read or hold nothing to score, a stride of 0 or longer than the context, and
    /// those of the device.
    pub fn score_texts(
        self,
        device: Box<dyn Backend>,
        files: &[PathBuf],
        stride: Option<usize>,
    ) -> Result<TextScores> {
        let (_, tokenizer, context) = self.language()?;
        let stride = stride.unwrap_or(context);
        if !(1..=context).contains(&stride) {
            return Err(Error::usage(
                anyhow!("the stride is {stride}, and the model sees {context} tokens at once"),
                format!("give --stride 1 to {context}"),
            ));
        }
        let prefix = tokenizer.prefix();
        let (mut rows, mut counts) = (Vec::new(), Vec::new());
        let (mut words, mut bytes) = (0, 0);
        let key = self.settings.data.text_key.as_deref().unwrap_or(Corpus::TEXT_KEY);
        documents(files, key, &mut |text| {
            if text.is_empty() {
                return Ok(());
            }
            let encoded = tokenizer.encode_with_specials(text)?;
            let given = match (prefix, encoded.first()) {
                (None, Some(&first)) => tokenizer.decode(&[first])?.len().min(text.len()),
                _ => 0,
            };
            let ids: Vec<u32> = prefix.into_iter().chain(encoded).collect();
            let before = rows.len();
            let windows = sliding(ids.len(), context, stride);
            rows.extend(windows.map(|window| Scored::of(&ids, window)));
            counts.push(rows.len() - before);
            words += words_of(text);
            bytes += text.len() - given;
            Ok(())
        })?;
        let tokens: usize = rows.iter().map(|row: &Scored| row.count).sum();
        if tokens == 0 {
            return Err(Error::usage(
                anyhow!("the texts hold no token to score"),
                "name files with more text",
            ));
        }
        let found = self.log_likelihoods(device, &rows)?;
        let mut rest = &found[..];
        let of_documents: Vec<f64> = counts
            .iter()
            .map(|&count| {
                let (own, others) = rest.split_at(count);
                rest = others;
                own.iter().sum()
            })
            .collect();
        Ok(TextScores {
            log_likelihood: of_documents.iter().sum(),
            documents: of_documents.len(),
            of_documents,
            tokens,
            words,
            bytes,
            context,
            stride,
        })
    }
}

/// Parts of a text that white space is between, as lm-evaluation-harness counts them: an empty one at either end counts.
fn words_of(text: &str) -> usize {
    let mut white = false;
    let gaps = text.chars().filter(|&c| {
        let begins = is_white(c) && !white;
        white = is_white(c);
        begins
    });
    gaps.count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_the_harness() {
        // len(re.split(r"\s+", text))
        for (text, count) in [("a", 1), ("a b", 2), (" a  b\n", 4), ("\n", 2), ("a\u{2003}b", 2)] {
            assert_eq!(words_of(text), count, "{text:?}");
        }
    }
}
