//! Accuracy on questions of multiple choice.

use std::path::PathBuf;

use anyhow::anyhow;
use serde::Serialize;
use tightrope_core::Backend;
use tightrope_data::{Question, questions};

use crate::error::{Error, Result};
use crate::generate::Loaded;

/// What the questions of files came to.
#[derive(Clone, Debug, PartialEq)]
pub struct ChoiceScores {
    /// The questions.
    pub questions: Vec<Question>,
    /// Log-likelihood of each ending of each question, in nats.
    pub log_likelihoods: Vec<Vec<f64>>,
    /// Endings whose context was cut from the left.
    pub truncated: usize,
    /// Tokens that the model sees at once.
    pub context: usize,
}

/// A share of questions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Accuracy {
    /// Questions whose likeliest ending is right, of all.
    pub value: f64,
    /// Standard error of this mean; `None` of a single question.
    pub stderr: Option<f64>,
}

impl ChoiceScores {
    /// The likeliest ending is the one with the largest log-likelihood.
    pub fn acc(&self) -> Accuracy {
        self.by(|_| 1.0)
    }

    /// The likeliest ending is the one with the largest log-likelihood for each character, as in lm-evaluation-harness.
    pub fn acc_norm(&self) -> Accuracy {
        self.by(|ending| ending.chars().count() as f64)
    }

    /// The likeliest ending is the one with the largest log-likelihood for each byte of UTF-8.
    pub fn acc_bytes(&self) -> Accuracy {
        self.by(|ending| ending.len() as f64)
    }

    fn by(&self, length: impl Fn(&str) -> f64) -> Accuracy {
        let right = self.questions.iter().zip(&self.log_likelihoods).filter(|(question, found)| {
            let scores: Vec<f64> =
                question.endings.iter().zip(*found).map(|(end, sum)| sum / length(end)).collect();
            // Of equal ones the first.
            let likeliest = (1..scores.len())
                .fold(0, |best, at| if scores[at] > scores[best] { at } else { best });
            likeliest == question.label
        });
        Accuracy::of(right.count(), self.questions.len())
    }
}

impl Accuracy {
    fn of(right: usize, all: usize) -> Self {
        let value = right as f64 / all as f64;
        // Of a mean of zeros and ones, by the sample's variance.
        let variance = value * (1.0 - value) / (all as f64 - 1.0);
        Self { value, stderr: (all > 1).then(|| variance.sqrt()) }
    }
}

impl Loaded {
    /// Scores each ending of the questions of `files` under its context. Contexts that don't fit the model are cut from the left.
    ///
    /// # Errors
    /// A model that reads no text, files that can't be read, rows of neither format, an ending that is longer than the model's
    /// context, and those of the device.
    pub fn score_choices(
        self,
        device: Box<dyn Backend>,
        files: &[PathBuf],
    ) -> Result<ChoiceScores> {
        let (_, tokenizer, context) = self.language()?;
        let questions = questions(files)?;
        let (mut rows, mut truncated) = (Vec::new(), 0);
        for question in &questions {
            for (index, mut row) in question.rows(tokenizer)?.into_iter().enumerate() {
                if row.count > context {
                    let Question { file, row: number, .. } = question;
                    let (ending, count) = (index + 1, row.count);
                    return Err(Error::usage(
                        anyhow!(
                            "{file}, row {number}: ending {ending} has {count} tokens, and the model sees {context} at once"
                        ),
                        "shorten the ending or remove the row, or name a model with a longer context",
                    ));
                }
                truncated += usize::from(row.cut(context));
                rows.push(row);
            }
        }
        let found = self.log_likelihoods(device, &rows)?;
        let mut rest = &found[..];
        let log_likelihoods = questions.iter().map(|question| {
            let (own, others) = rest.split_at(question.endings.len());
            rest = others;
            own.to_vec()
        });
        Ok(ChoiceScores {
            log_likelihoods: log_likelihoods.collect(),
            questions,
            truncated,
            context,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standard_error_is_that_of_a_sample() {
        // statistics.stdev([1, 1, 0, 0, 0]) / 5 ** 0.5
        let found = Accuracy::of(2, 5);
        assert!((found.stderr.unwrap() - 0.244_948_974_278_317_8).abs() < 1e-15, "{found:?}");
        assert_eq!(Accuracy::of(1, 1).stderr, None);
    }

    #[test]
    fn the_likeliest_ending_is_by_sums_characters_or_bytes() {
        let of = |endings: [&str; 2], found: [f64; 2]| ChoiceScores {
            questions: vec![Question {
                file: String::new(),
                row: 1,
                context: String::new(),
                endings: endings.map(str::to_owned).into(),
                label: 0,
            }],
            log_likelihoods: vec![found.into()],
            truncated: 0,
            context: 8,
        };
        let right = |scores: &ChoiceScores| {
            [scores.acc(), scores.acc_norm(), scores.acc_bytes()]
                .map(|accuracy| accuracy.value == 1.0)
        };
        assert_eq!(right(&of(["abcd", "a"], [-4.0, -2.0])), [false, true, true]);
        // Two characters of three bytes each.
        assert_eq!(right(&of(["日本", "abc"], [-3.0, -2.0])), [false, false, true]);
        assert_eq!(right(&of(["a", "a"], [-1.0, -1.0])), [true, true, true]);
    }
}
