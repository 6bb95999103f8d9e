//! Text out of a model, token by token.

use pollster::block_on;
use tightrope_core::ops::uniform;
use tightrope_data::Tokenizer;
use tightrope_nn::Trainer;

use crate::error::{Failure, Help as _};

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

/// Continues `prompt` by at most `count` tokens and hands each new piece of text to `show`, which says
/// whether to go on. The end-of-text token ends it. Once the cache is full, the later half of the text is
/// read again and goes on from there. Returns the new tokens.
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
    let capacity = trainer.config().decode;
    let mut text = prompt.to_vec();
    let mut pieces = Pieces::new(tokenizer, prompt);
    // Text from here on is in the cache, or about to be.
    let mut start = text.len() - kept(text.len(), capacity);
    let mut position = 0;
    while text.len() - prompt.len() < count {
        if text.len() - start > capacity {
            start = text.len() - kept(capacity, capacity);
            position = 0;
        }
        let mut logits = Vec::new();
        for &token in &text[start + position..] {
            logits = block_on(trainer.decode(token as i32, position))
                .help("give a --prompt of the model's vocabulary")?;
            position += 1;
        }
        if logits.is_empty() {
            return Err(Failure::usage(
                anyhow::anyhow!("the prompt is empty"),
                "give --prompt some text to continue",
            ));
        }
        if logits.iter().any(|logit| logit.is_nan()) {
            return Err(Failure::failed(
                anyhow::anyhow!("the model's output is not a number at position {}", text.len()),
                "the weights have diverged: use an earlier checkpoint",
            ));
        }
        // Where the vocabulary is larger than the tokenizer's, the rest has no text.
        logits.truncate(tokenizer.vocab_size());
        let next = sampling.choose(&logits, (text.len() - prompt.len()) as u64) as u32;
        if Some(next) == tokenizer.eos() {
            break;
        }
        text.push(next);
        if !show(&pieces.push(next)?) {
            break;
        }
    }
    show(&pieces.finish()?);
    Ok(text.split_off(prompt.len()))
}

/// Tokens of a text of `length` that are read before the first new one: all that leave room for it, else
/// half of what the cache holds.
fn kept(length: usize, capacity: usize) -> usize {
    if length < capacity { length } else { (capacity / 2).max(1) }
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
