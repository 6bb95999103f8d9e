//! Text out of a model, token by token.

use tightrope_core::ops::uniform;

use crate::trainer::{TrainError, Trainer};

/// Stream of the random numbers of samples; those of a graph count from 1, so none is shared.
const STREAM: u32 = 0;

/// How the next token is drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Divides the logits; 0 takes the likeliest token.
    pub temperature: f64,
    /// Only this many of the likeliest tokens; 0 for all.
    pub top_k: usize,
    /// Only the likeliest tokens that together have this probability.
    pub top_p: f64,
    /// Key of the draw.
    pub seed: u64,
    /// Tells draws with the same seed apart.
    pub draw: u64,
}

impl Sampling {
    /// Always the likeliest token.
    pub const GREEDY: Self = Self { temperature: 0.0, top_k: 0, top_p: 1.0, seed: 0, draw: 0 };

    /// The token that follows, drawn with the `number`-th random number. Equally likely tokens count from
    /// the lowest id.
    ///
    /// # Panics
    /// Where there are no logits.
    pub fn choose(&self, logits: &[f32], number: u64) -> usize {
        let mut order: Vec<usize> = (0..logits.len()).collect();
        let likelier = |&a: &usize, &b: &usize| logits[b].total_cmp(&logits[a]).then(a.cmp(&b));
        if self.temperature == 0.0 {
            return *order.iter().min_by(|a, b| likelier(a, b)).expect("there are logits");
        }
        order.sort_by(likelier);
        if self.top_k > 0 {
            order.truncate(self.top_k);
        }
        let highest = f64::from(logits[order[0]]);
        let weight = |&id: &usize| ((f64::from(logits[id]) - highest) / self.temperature).exp();
        let weights: Vec<f64> = order.iter().map(weight).collect();
        let total: f64 = weights.iter().sum();
        let mut kept = 0.0;
        let mut count = 0;
        while count < weights.len() && (count == 0 || kept < self.top_p * total) {
            kept += weights[count];
            count += 1;
        }
        let words = |x: u64| [x as u32, (x >> 32) as u32];
        let ([a, b], [c, d]) = (words(self.seed), words(self.draw));
        let mut point = uniform([a, b, c, d], STREAM, number) * kept;
        for (&id, weight) in order.iter().zip(&weights[..count]) {
            point -= weight;
            if point < 0.0 {
                return id;
            }
        }
        order[count - 1]
    }
}

/// Why a text can't be continued.
#[derive(Debug, thiserror::Error)]
pub enum SampleError {
    /// There is nothing to continue.
    #[error("the prompt is empty")]
    EmptyPrompt,
    /// The weights have diverged.
    #[error("the model's output is not a number at position {0}")]
    NotANumber(usize),
    /// The device, or a token outside the model's vocabulary.
    #[error(transparent)]
    Train(#[from] TrainError),
}

/// Tokens that a text ends at and may consist of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleTokens<'a> {
    /// Only ids below this are drawn: the rest of the model's vocabulary has no text.
    pub vocab: usize,
    /// Each ends the text where it's drawn.
    pub ends: &'a [u32],
}

/// Continues `prompt` by at most `count` tokens and hands each to `show`, which says whether to go on. A prompt that is longer than
/// the cache is read from where the rest fills it. Once the cache is full, the later half of the text is read again and goes on
/// from there. Returns the new tokens.
///
/// # Errors
/// An empty prompt, one outside the model's vocabulary, and those of the device.
pub async fn generate<E: From<SampleError>>(
    trainer: &mut Trainer,
    tokens: SampleTokens<'_>,
    prompt: &[u32],
    count: usize,
    sampling: &Sampling,
    show: &mut dyn FnMut(u32) -> Result<bool, E>,
) -> Result<Vec<u32>, E> {
    let capacity = trainer.config().decode;
    let mut text = prompt.to_vec();
    // Text from here on is in the cache, or about to be.
    let mut start = text.len().saturating_sub(capacity);
    let mut position = 0;
    while text.len() - prompt.len() < count {
        if text.len() - start > capacity {
            start = text.len() - (capacity / 2).max(1);
            position = 0;
        }
        let (&last, before) =
            text[start + position..].split_last().ok_or(SampleError::EmptyPrompt)?;
        for &token in before {
            trainer.feed(token as i32, position).map_err(SampleError::from)?;
            position += 1;
        }
        let mut logits = trainer.decode(last as i32, position).await.map_err(SampleError::from)?;
        position += 1;
        if logits.iter().any(|logit| logit.is_nan()) {
            return Err(SampleError::NotANumber(text.len()).into());
        }
        // Logits of the padded rows mean nothing.
        let known = trainer.config().model.decoder().map_or(usize::MAX, |it| it.vocab());
        logits.truncate(tokens.vocab.min(known));
        let next = sampling.choose(&logits, (text.len() - prompt.len()) as u64) as u32;
        if tokens.ends.contains(&next) {
            break;
        }
        text.push(next);
        if !show(next)? {
            break;
        }
    }
    Ok(text.split_off(prompt.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Sampling = Sampling { temperature: 1.0, top_k: 0, top_p: 1.0, seed: 7, draw: 0 };

    fn shares(sampling: &Sampling, logits: &[f32]) -> Vec<f64> {
        const DRAWS: u64 = 20_000;
        let mut counts = vec![0.0; logits.len()];
        for number in 0..DRAWS {
            counts[sampling.choose(logits, number)] += 1.0 / DRAWS as f64;
        }
        counts
    }

    fn close(found: &[f64], expected: &[f64]) -> bool {
        found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 0.015)
    }

    #[test]
    fn draws_follow_the_softmax() {
        let logits = [0.1f64, 0.2, 0.4, 0.3].map(|p| p.ln() as f32);
        assert!(close(&shares(&PLAIN, &logits), &[0.1, 0.2, 0.4, 0.3]));
        let squared = Sampling { temperature: 0.5, ..PLAIN };
        let expected = [0.01, 0.04, 0.16, 0.09].map(|p| p / 0.3);
        assert!(close(&shares(&squared, &logits), &expected));
        let two = Sampling { top_k: 2, ..PLAIN };
        assert!(close(&shares(&two, &logits), &[0.0, 0.0, 4.0 / 7.0, 3.0 / 7.0]));
        let most = Sampling { top_p: 0.65, ..PLAIN };
        assert!(close(&shares(&most, &logits), &[0.0, 0.0, 4.0 / 7.0, 3.0 / 7.0]));
        let one = Sampling { top_p: 1e-9, ..PLAIN };
        assert!((0..99).all(|number| one.choose(&logits, number) == 2));
    }

    #[test]
    fn greedy_takes_the_likeliest_and_the_lowest_of_equals() {
        let greedy = Sampling { temperature: 0.0, ..PLAIN };
        assert_eq!(greedy.choose(&[0.0, 3.0, 3.0, -1.0], 0), 1);
    }

    #[test]
    fn the_same_draw_repeats_and_another_differs() {
        let logits = [0.0; 64];
        let ids = |sampling: &Sampling| -> Vec<usize> {
            (0..16).map(|number| sampling.choose(&logits, number)).collect()
        };
        assert_eq!(ids(&PLAIN), ids(&PLAIN));
        assert_ne!(ids(&PLAIN), ids(&Sampling { draw: 1, ..PLAIN }));
        assert_ne!(ids(&PLAIN), ids(&Sampling { seed: 8, ..PLAIN }));
    }
}
