//! Embeddings and heads with rows for added tokens, as `resize_token_embeddings` of transformers makes them.
//!
//! transformers draws each new row from a normal distribution with the mean of the old rows and 1e-9 of their covariance, which is a spread of 3e-5
//! of theirs, and takes the mean itself where that covariance isn't positive definite. Here new rows are the mean. With `mean_resizing` off, both draw
//! them with a mean of 0 and the standard deviation `initializer_range` of `config.json`.

use serde_json::Value;
use tightrope_nn::{Architecture, Classifier, LanguageModel, Model, Parameter, initial_values};

use super::{Places, Source};
use crate::error::Result;

/// Ends of the names of tensors that have a row for each token.
const ROWS: [&str; 3] = ["embed_tokens.weight", "wte.weight", "lm_head.weight"];
/// Standard deviation of a new model's embedding, of which drawn rows are multiples.
const STD: f32 = 0.02;
/// `initializer_range` where a file names none.
const RANGE: f64 = 0.02;

/// Rows that a model has more than the file of its weights.
pub(crate) struct Grown {
    /// Rows in the file.
    from: usize,
    /// Rows of the model; as many as `from` if none are added.
    to: usize,
    /// New rows by their tensor, where they are drawn.
    drawn: Option<Vec<Parameter>>,
    /// Standard deviation of drawn rows.
    std: f32,
}

impl Source {
    /// The rows that `model`, a model of these weights, has more than they.
    ///
    /// # Errors
    /// A `config.json` that can't be read.
    pub(crate) fn grown(&self, model: &dyn Model, places: &Places) -> Result<Grown> {
        let from = match &self.config {
            Architecture::Language(config) => config.vocab,
            Architecture::Classifier(config) => config.decoder.vocab,
            Architecture::Bert(_) | Architecture::Vit(_) => 0,
        };
        let of_classifier = || Classifier::of(model).map(|model| model.config().decoder.vocab);
        let of_model = LanguageModel::of(model).map(|model| model.config().vocab);
        let to = of_model.or_else(of_classifier).map_or(from, |vocab| vocab.max(from));
        let drawn = (places.draws_rows && to > from).then(|| model.parameters());
        let config = if drawn.is_some() { self.config_file()? } else { None };
        let range = config.as_ref().and_then(|file: &Value| file["initializer_range"].as_f64());
        Ok(Grown { from, to, drawn, std: range.unwrap_or(RANGE) as f32 })
    }
}

impl Grown {
    /// The number of rows that the model has more.
    #[cfg(not(target_family = "wasm"))]
    pub(crate) fn count(&self) -> usize {
        self.to - self.from
    }

    /// A tensor's shape and values, with the rows that it lacks.
    pub(crate) fn extend(
        &self,
        name: &str,
        (mut shape, mut values): (Vec<usize>, Vec<f32>),
    ) -> (Vec<usize>, Vec<f32>) {
        let has_rows = ROWS.iter().any(|end| name.ends_with(end));
        let &[from, columns] = shape.as_slice() else { return (shape, values) };
        if !has_rows || from != self.from || self.to <= from {
            return (shape, values);
        }
        match self.drawn_rows(name, from * columns..self.to * columns) {
            Some(rows) => values.extend(rows),
            None => {
                let mut sums = vec![0.0_f64; columns];
                for row in values.chunks(columns) {
                    sums.iter_mut().zip(row).for_each(|(sum, &value)| *sum += f64::from(value));
                }
                let mean: Vec<f32> = sums.iter().map(|sum| (sum / from as f64) as f32).collect();
                (from..self.to).for_each(|_| values.extend(&mean));
            }
        }
        shape[0] = self.to;
        (shape, values)
    }

    /// Elements of new rows, where they are drawn: the same ones each time.
    fn drawn_rows(&self, name: &str, elements: std::ops::Range<usize>) -> Option<Vec<f32>> {
        let parameters = self.drawn.as_ref()?.iter();
        let mut found =
            parameters.filter(|it| it.parts.iter().any(|part| part.name.ends_with(name)));
        let values = initial_values(found.next()?, 0);
        Some(values.get(elements)?.iter().map(|value| value / STD * self.std).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_rows_are_the_mean_of_the_old_ones() {
        let grown = Grown { from: 2, to: 4, drawn: None, std: 0.02 };
        let tensor = (vec![2, 3], vec![1.0, 2.0, 3.0, 3.0, 0.0, 5.0]);
        let (shape, values) = grown.extend("model.embed_tokens.weight", tensor.clone());
        assert_eq!(shape, [4, 3]);
        assert_eq!(values[6..], [2.0, 1.0, 4.0, 2.0, 1.0, 4.0]);
        assert_eq!(grown.extend("model.norm.weight", tensor.clone()), tensor);
    }
}
