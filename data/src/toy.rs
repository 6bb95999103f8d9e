//! Tasks with known answers, made and not read: sort letters, reverse them, add numbers.
//!
//! A problem is a line of bytes such as `hbd>bdh`. Problem and order follow from the seed and a position
//! alone, so training resumes anywhere; a hash of the question decides which problems are held out.

use std::ops::RangeInclusive;

use xxhash_rust::xxh3::xxh3_64;

use crate::loader::{Batch, IGNORED, LoaderConfig};
use crate::permutation::mix;
use crate::{DataState, Error, Result, Source, Tokenizer};

/// Letters of a problem to sort or reverse.
const LETTERS: usize = 6;
/// Operands of a sum are below this.
const OPERANDS: u64 = 100;
/// What may be held out, where anything is: enough problems for each stream.
const HELD_OUT_SHARES: RangeInclusive<f64> = 0.01..=0.5;
/// Keys of the two streams of problems.
const TRAINED: u64 = 0x7472_6169_6e65_6421;
const HELD_OUT: u64 = 0x6865_6c64_206f_7574;

/// A kind of problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Toy {
    /// `hbdabc>abbcdh`
    Sort,
    /// `hbdabc>cbadbh`
    Reverse,
    /// `07+95=102`
    Add,
}

/// A question with its one right answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Up to the sign that asks for the answer.
    pub question: String,
    /// What follows.
    pub answer: String,
}

impl Toy {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Sort, Self::Reverse, Self::Add];

    /// Lower-case name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sort => "sort",
            Self::Reverse => "reverse",
            Self::Add => "add",
        }
    }

    /// What a checkpoint calls it among its sources.
    pub fn source(self) -> String {
        format!("toy:{}", self.name())
    }

    /// What a checkpoint remembers after `position` rows, with a fraction `holdout` of the problems held out.
    pub fn state(self, position: u64, holdout: f64) -> DataState {
        let source = Source::new(self.source(), 0);
        DataState::new(position, &[source], Tokenizer::Byte.name(), holdout)
    }

    /// Bytes of a problem with its line end.
    pub fn length(self) -> usize {
        let Problem { question, answer } = self.problem(0);
        question.len() + answer.len() + 1
    }

    /// The problem that belongs to `key`, which is taken apart digit by digit.
    fn problem(self, key: u64) -> Problem {
        let mut rest = key;
        let mut digit = |base: u64| {
            let digit = rest % base;
            rest /= base;
            digit
        };
        match self {
            Self::Sort | Self::Reverse => {
                let letters: Vec<u8> = (0..LETTERS).map(|_| b'a' + digit(26) as u8).collect();
                let mut answer = letters.clone();
                match self {
                    Self::Sort => answer.sort_unstable(),
                    _ => answer.reverse(),
                }
                let text = |letters: Vec<u8>| letters.into_iter().map(char::from).collect();
                let question: String = text(letters);
                Problem { question: question + ">", answer: text(answer) }
            }
            Self::Add => {
                let (a, b) = (digit(OPERANDS), digit(OPERANDS));
                Problem { question: format!("{a:02}+{b:02}="), answer: format!("{:03}", a + b) }
            }
        }
    }
}

/// A stream of problems to train on, and one that is held out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ToyTask {
    toy: Toy,
    config: LoaderConfig,
    holdout: f64,
}

impl ToyTask {
    /// Problems of one kind in batches of `config`, a fraction `holdout` of them held out.
    ///
    /// # Errors
    /// A batch of 0, a context that no problem fits, a holdout that leaves too few problems.
    pub fn new(toy: Toy, config: LoaderConfig, holdout: f64) -> Result<Self> {
        if holdout != 0.0 && !HELD_OUT_SHARES.contains(&holdout) {
            return Err(Error::Setting {
                what: "data.holdout",
                value: holdout.to_string(),
                domain: "0, or from 0.01 to 0.5 for a task with known answers",
            });
        }
        if config.context < toy.length() {
            return Err(Error::Setting {
                what: "model.context",
                value: config.context.to_string(),
                domain: "long enough for a problem: 14 for sort and reverse, 10 for add",
            });
        }
        if config.batch == 0 || config.batch.checked_mul(config.context).is_none() {
            return Err(Error::Setting {
                what: "train.batch",
                value: config.batch.to_string(),
                domain: "at least 1, and small enough for a batch to fit the address space",
            });
        }
        Ok(Self { toy, config, holdout })
    }

    /// The batch after `position` rows to train on: each row is full of problems, and only the bytes of
    /// answers are targets.
    pub fn batch(&self, position: u64) -> Batch {
        self.rows(TRAINED, position)
    }

    /// A batch of held-out problems.
    pub fn held_out_batch(&self, position: u64) -> Batch {
        self.rows(HELD_OUT, position)
    }

    /// The held-out problem at `index`. Where nothing is held out, one that may have been trained on.
    pub fn held_out(&self, index: u64) -> Problem {
        self.nth(HELD_OUT, index)
    }

    fn rows(&self, stream: u64, position: u64) -> Batch {
        let LoaderConfig { batch, context, .. } = self.config;
        let per_row = (context + 1).div_ceil(self.toy.length()) as u64;
        let (mut inputs, mut targets) =
            (Vec::with_capacity(batch * context), Vec::with_capacity(batch * context));
        for row in 0..batch as u64 {
            let first = position.wrapping_add(row).wrapping_mul(per_row);
            let (mut text, mut scored) = (Vec::new(), Vec::new());
            for number in 0..per_row {
                let Problem { question, answer } = self.nth(stream, first.wrapping_add(number));
                text.extend(question.bytes().chain(answer.bytes()).map(i32::from));
                text.push(b'\n'.into());
                scored.resize(scored.len() + question.len(), false);
                scored.resize(scored.len() + answer.len(), true);
                scored.push(false);
            }
            inputs.extend_from_slice(&text[..context]);
            let next = text[1..=context].iter().zip(&scored[1..=context]);
            targets.extend(next.map(|(&id, &scored)| if scored { id } else { IGNORED }));
        }
        Batch { inputs, targets, index: position }
    }

    fn nth(&self, stream: u64, index: u64) -> Problem {
        let mut key = mix(mix(self.config.seed ^ stream) ^ mix(index));
        loop {
            let problem = self.toy.problem(key);
            let held_out = self.is_held_out(&problem.question);
            if self.holdout == 0.0 || held_out == (stream == HELD_OUT) {
                return problem;
            }
            // Ends: both kinds have a share of all questions.
            key = mix(key);
        }
    }

    fn is_held_out(&self, question: &str) -> bool {
        // 53 bits make a number in [0, 1).
        let point = (xxh3_64(question.as_bytes()) >> 11) as f64 / (1u64 << 53) as f64;
        point < self.holdout
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const CONFIG: LoaderConfig = LoaderConfig { batch: 4, context: 32, seed: 7 };

    fn task(toy: Toy) -> ToyTask {
        ToyTask::new(toy, CONFIG, 0.1).unwrap()
    }

    #[test]
    fn answers_are_right() {
        for index in 0..200 {
            let Problem { question, answer } = task(Toy::Sort).held_out(index);
            let mut letters: Vec<char> = question.trim_end_matches('>').chars().collect();
            letters.sort_unstable();
            assert!(letters.iter().copied().eq(answer.chars()), "{question}{answer}");
            let Problem { question, answer } = task(Toy::Reverse).held_out(index);
            let letters = question.trim_end_matches('>');
            assert_eq!(letters.chars().rev().collect::<String>(), answer);
            let Problem { question, answer } = task(Toy::Add).held_out(index);
            let (a, b) = question.trim_end_matches('=').split_once('+').unwrap();
            let sum: u64 = a.parse::<u64>().unwrap() + b.parse::<u64>().unwrap();
            assert_eq!((sum, 3), (answer.parse().unwrap(), answer.len()));
        }
    }

    #[test]
    fn only_answers_are_targets() {
        for toy in Toy::ALL {
            let batch = task(toy).batch(12);
            assert_eq!((batch.inputs.len(), batch.targets.len()), (4 * 32, 4 * 32));
            let row: String = batch.inputs[..32].iter().map(|&id| id as u8 as char).collect();
            let (mut scored, mut asked) = (0, false);
            for (at, &target) in batch.targets[..32].iter().enumerate() {
                let byte = row.as_bytes()[at];
                asked = byte == b'>' || byte == b'=' || (asked && byte != b'\n');
                // The last byte of an answer is followed by a line end, which isn't scored.
                let next = row.as_bytes().get(at + 1).copied();
                if target == IGNORED {
                    assert!(!asked || next.is_none_or(|next| next == b'\n'), "{row:?} at {at}");
                } else {
                    assert!(asked && next.is_none_or(|next| i32::from(next) == target));
                    scored += 1;
                }
            }
            assert!(scored >= 6, "{row:?}");
        }
    }

    #[test]
    fn batches_follow_from_their_position() {
        for toy in Toy::ALL {
            let (whole, task) =
                (ToyTask { config: LoaderConfig { batch: 8, ..CONFIG }, ..task(toy) }, task(toy));
            let (first, second) = (task.batch(0), task.batch(4));
            assert_eq!(whole.batch(0).inputs, [first.inputs.clone(), second.inputs].concat());
            assert_ne!(first, task.held_out_batch(0));
            let other = ToyTask { config: LoaderConfig { seed: 8, ..CONFIG }, ..task };
            assert_ne!(first, other.batch(0));
        }
    }

    #[test]
    fn what_is_held_out_is_not_trained_on() {
        for toy in Toy::ALL {
            let task = task(toy);
            let held: BTreeSet<String> = (0..300).map(|i| task.held_out(i).question).collect();
            assert!((0..20_000).all(|i| !held.contains(&task.nth(TRAINED, i).question)));
        }
        let none = ToyTask { holdout: 0.0, ..task(Toy::Add) };
        assert_eq!(none.held_out(0).answer.len(), 3);
    }

    #[test]
    fn refusals() {
        assert!(ToyTask::new(Toy::Sort, LoaderConfig { context: 13, ..CONFIG }, 0.1).is_err());
        assert!(ToyTask::new(Toy::Sort, LoaderConfig { context: 14, ..CONFIG }, 0.1).is_ok());
        assert_eq!((Toy::Sort.length(), Toy::Reverse.length(), Toy::Add.length()), (14, 14, 10));
        assert!(ToyTask::new(Toy::Sort, LoaderConfig { batch: 0, ..CONFIG }, 0.1).is_err());
        assert!(ToyTask::new(Toy::Sort, CONFIG, 0.6).is_err());
        assert!(ToyTask::new(Toy::Add, CONFIG, 1e-9).is_err());
        assert!(ToyTask::new(Toy::Sort, CONFIG, f64::NAN).is_err());
    }
}
