//! Masked tokens to predict (Devlin et al. 2019).
//!
//! A window of a text becomes a sequence between the tokens that begin and end one. Of its tokens 15 % are to be predicted: of
//! these, 80 % are replaced by the mask, 10 % by a token drawn from all, and 10 % stay. What is drawn follows from the seed and the
//! number of windows before it alone, so that a resumed run goes on with the same masks, and each epoch has its own.

use tightrope_core::ops::uniform;

use crate::loader::{Batch, IGNORED};

/// Part of a window's tokens that is to be predicted.
const PREDICTED: f64 = 0.15;
/// Part of those that the mask replaces, and that where another token may.
const MASKED: f64 = 0.8;
const REPLACED: f64 = 0.9;
/// Stream of random numbers that no graph draws from: graphs count theirs from 1.
const STREAM: u32 = u32::MAX;
/// Seed of the masks of what is held out: the same for every run, so that runs score the same tokens.
const HELD_OUT: u64 = 0x6d61_736b;

/// Ids of the tokens that a sequence of an encoder has besides its text's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Specials {
    /// Begins a sequence.
    pub begin: i32,
    /// Ends a text.
    pub end: i32,
    /// Stands for a token that is to be predicted.
    pub mask: i32,
    /// Fills a sequence up.
    pub padding: i32,
}

/// B sequences of T tokens, as an encoder reads them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MaskedBatch {
    /// Token ids, (B, T) row-major.
    pub tokens: Vec<i32>,
    /// 1 for each token and 0 for padding, (B, T).
    pub documents: Vec<i32>,
    /// The token to predict where one is, else [`IGNORED`], (B, T).
    pub targets: Vec<i32>,
}

/// Masks windows.
#[derive(Clone, Copy, Debug)]
pub struct Masking {
    specials: Specials,
    vocab: usize,
    seed: u64,
}

impl Masking {
    /// Tokens that a sequence has besides those of its window.
    pub const AROUND: usize = 2;

    /// Of a run of this seed, with a tokenizer of `vocab` tokens.
    pub fn new(specials: Specials, vocab: usize, seed: u64) -> Self {
        Self { specials, vocab, seed }
    }

    /// Of what is held out.
    pub fn held_out(self) -> Self {
        Self { seed: HELD_OUT, ..self }
    }

    /// The sequences of the windows of `context` tokens in `batch`, [`Masking::AROUND`] longer.
    pub fn apply(&self, batch: &Batch, context: usize) -> MaskedBatch {
        let seq_len = context + Self::AROUND;
        let [tokens, documents, targets] = [(); 3].map(|()| Vec::new());
        let mut masked = MaskedBatch { tokens, documents, targets };
        let windows = batch.inputs.chunks(context).zip(batch.targets.chunks(context));
        for ((window, next), position) in windows.zip(batch.index..) {
            // Windows that score a text end where nothing follows.
            let length = next.iter().filter(|&&target| target != IGNORED).count();
            let end = masked.tokens.len() + seq_len;
            if length > 0 {
                self.push(&window[..length], position, &mut masked);
            }
            masked.tokens.resize(end, self.specials.padding);
            masked.documents.resize(end, 0);
            masked.targets.resize(end, IGNORED);
        }
        masked
    }

    /// Appends the sequence of a window, before which there were `position` windows.
    fn push(&self, window: &[i32], position: u64, to: &mut MaskedBatch) {
        let halves = |value: u64| [value as u32, (value >> 32) as u32];
        let ([low, high], [first, second]) = (halves(self.seed), halves(position));
        let draw = |element: u64| uniform([low, high, first, second], STREAM, element);
        let count = window.len();
        let mut order: Vec<(f64, usize)> = (0..count).map(|at| (draw(at as u64), at)).collect();
        order.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
        let predicted = ((PREDICTED * count as f64).round() as usize).max(1);
        let start = to.tokens.len() + 1;
        to.tokens.push(self.specials.begin);
        to.tokens.extend(window);
        to.tokens.push(self.specials.end);
        to.documents.resize(to.tokens.len(), 1);
        to.targets.resize(to.tokens.len(), IGNORED);
        for &(_, at) in &order[..predicted.min(count)] {
            to.targets[start + at] = window[at];
            // Two numbers of each token, behind those of the order.
            let element = (count + 2 * at) as u64;
            let kind = draw(element);
            if kind < MASKED {
                to.tokens[start + at] = self.specials.mask;
            } else if kind < REPLACED {
                to.tokens[start + at] = (draw(element + 1) * self.vocab as f64) as i32;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Corpus, Loader, LoaderConfig, Tokenizer, Windows};

    const SPECIALS: Specials = Specials { begin: 256, end: 257, mask: 258, padding: 259 };
    const CONTEXT: usize = 62;

    fn masking(seed: u64) -> Masking {
        Masking::new(SPECIALS, 256, seed)
    }

    fn text() -> Corpus {
        let bytes: Vec<u8> = (0..40_000u32).map(|n| b'a' + (n * n % 23) as u8).collect();
        Corpus::from_bytes("text", bytes, &Tokenizer::Byte).unwrap()
    }

    fn training(position: u64) -> Loader {
        let config = LoaderConfig { batch: 8, context: CONTEXT, seed: 5 };
        Loader::new(text().tokens(), config, position).unwrap()
    }

    #[test]
    fn shares_are_those_of_the_paper() {
        let mut loader = training(0);
        let [mut predicted, mut masked, mut other] = [0.0; 3];
        let batches = 100;
        for _ in 0..batches {
            let batch = loader.next().unwrap();
            let found = masking(5).apply(&batch, CONTEXT);
            assert_eq!(found.tokens.len(), 8 * 64);
            for (sequence, window) in found.tokens.chunks(64).zip(batch.inputs.chunks(CONTEXT)) {
                assert_eq!((sequence[0], sequence[63]), (SPECIALS.begin, SPECIALS.end));
                assert_eq!(sequence.len() - 2, window.len());
            }
            let windows = batch.inputs.chunks(CONTEXT).flat_map(|window| {
                [0].iter().chain(window).chain(&[0]).copied().collect::<Vec<i32>>()
            });
            for ((&token, &target), own) in found.tokens.iter().zip(&found.targets).zip(windows) {
                if target == IGNORED {
                    assert!(token == own || token == SPECIALS.begin || token == SPECIALS.end);
                    continue;
                }
                assert_eq!(target, own);
                predicted += 1.0;
                masked += f64::from(u8::from(token == SPECIALS.mask));
                other += f64::from(u8::from(token != SPECIALS.mask && token != own));
            }
        }
        // Nine of 62 in each.
        assert_eq!(predicted, f64::from(9 * 8 * batches));
        assert!((masked / predicted - 0.8).abs() < 0.02, "{}", masked / predicted);
        // One of 256 replacements is the token itself.
        assert!((other / predicted - 0.1).abs() < 0.015, "{}", other / predicted);
    }

    #[test]
    fn masks_follow_from_seed_and_position() {
        let mut loader = training(0);
        let batches: Vec<Batch> = (0..3).map(|_| loader.next().unwrap()).collect();
        let resumed = training(16).next().unwrap();
        let of = |seed, batch: &Batch| masking(seed).apply(batch, CONTEXT);
        assert_eq!(of(5, &resumed), of(5, &batches[2]));
        assert_ne!(of(6, &batches[2]).targets, of(5, &batches[2]).targets);
        // The same windows in another epoch.
        let later = Batch { index: batches[2].index + 640, ..batches[2].clone() };
        assert_ne!(of(5, &later).targets, of(5, &batches[2]).targets);
    }

    #[test]
    fn held_out_masks_are_the_same_for_every_seed_and_padding_is_no_document() {
        let windows =
            || Windows::new(text().tokens(), 7, CONTEXT, None).unwrap().map(Result::unwrap);
        let all = |seed: u64| -> Vec<MaskedBatch> {
            windows().map(|batch| masking(seed).held_out().apply(&batch, CONTEXT)).collect()
        };
        let found = all(1);
        assert_eq!(found, all(2));
        let last = found.last().unwrap();
        // 39,999 tokens that another follows are 645 windows and 9 tokens, in 92 batches of 7 windows and one of 2.
        assert_eq!(found.len(), 93);
        assert_eq!(last.documents[64..128].iter().sum::<i32>(), 9 + 2);
        assert_eq!(last.targets[64..128].iter().filter(|&&target| target != IGNORED).count(), 1);
        let none = &last.tokens[128..];
        assert_eq!(none.len(), 5 * 64);
        assert!(none.iter().all(|&token| token == SPECIALS.padding));
        assert!(last.documents[128..].iter().all(|&document| document == 0));
    }
}
