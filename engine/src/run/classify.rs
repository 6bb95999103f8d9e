//! What a model takes images and texts for.

use anyhow::anyhow;
use serde::Serialize;
use tightrope_data::{IGNORED, drawn_digit};
#[cfg(not(target_family = "wasm"))]
use tightrope_data::{TextBatch, TextReader};
#[cfg(not(target_family = "wasm"))]
use tightrope_nn::Architecture;
use tightrope_nn::TrainerConfig;

use super::{Run, Samples};
#[cfg(not(target_family = "wasm"))]
use crate::classifies::Classifies;
use crate::error::{Error, Help as _, Result};

impl Run<'_> {
    /// Probability of each class for each image, the classes in the order of [`ImageFormat::classes`]. An image is bytes:
    /// planes of rows, one plane a channel, in the size that the run trains on.
    ///
    /// [`ImageFormat::classes`]: tightrope_data::ImageFormat::classes
    ///
    /// # Errors
    /// A run whose data isn't images, images of another size, and a device that is lost again and again.
    pub async fn classify_async(&mut self, images: &[&[u8]]) -> Result<Vec<Vec<f32>>> {
        let Some(format) = self.data().images() else {
            return Err(Error::usage(
                anyhow!("the run's data isn't images"),
                "train a vision transformer, on images",
            ));
        };
        let read = |image: &&[u8]| format.read(image).help("give images of the size that it reads");
        let read = images.iter().map(read).collect::<Result<Vec<_>>>()?;
        let classes = format.classes.len();
        let mut found = Vec::with_capacity(read.len());
        for part in read.chunks(self.config().micro_batch) {
            let samples = samples(part, self.config());
            found.extend(self.probabilities(&samples, part.len(), classes).await?);
        }
        Ok(found)
    }

    /// Probability of each class for each text, or pair of texts, the classes in the order of [`Classes::names`]. Texts are cut to the
    /// run's context.
    ///
    /// [`Classes::names`]: tightrope_data::Classes::names
    ///
    /// # Errors
    /// A run whose data isn't labelled texts, a text that can't be encoded, and a device that is lost again and again.
    #[cfg(not(target_family = "wasm"))]
    pub async fn classify_texts_async(
        &mut self,
        texts: &[(&str, Option<&str>)],
    ) -> Result<Vec<Vec<f32>>> {
        let mut found = Vec::with_capacity(texts.len());
        for part in texts.chunks(self.config().micro_batch) {
            let (Some(classes), Some(tokenizer)) = (self.data().classes(), self.data().tokenizer())
            else {
                return Err(Error::usage(
                    anyhow!("the run's data isn't texts with labels"),
                    "train an encoder, or a decoder with classes, on rows with a text and a label",
                ));
            };
            let (config, classes) = (self.config(), classes.count);
            let (context, batch) = (config.model.tokens(), config.micro_batch);
            let reader = reader_of(config);
            let batch = TextBatch::of(part, (tokenizer, reader), context, batch);
            let samples = batch.help("give other texts")?.into();
            found.extend(self.probabilities(&samples, part.len(), classes).await?);
        }
        Ok(found)
    }

    /// Probability of each of so many `classes` for the first `count` samples of a pass.
    async fn probabilities(
        &mut self,
        samples: &Samples,
        count: usize,
        classes: usize,
    ) -> Result<Vec<Vec<f32>>> {
        let work = async |trainer: &mut tightrope_nn::Trainer| {
            Ok(trainer.logits(&samples.batch()).await?)
        };
        let (scores, shape) = self.with_trainer(work).await?;
        let row = shape.last().copied().unwrap_or(0).max(1);
        let rows = scores.chunks_exact(row).take(count);
        Ok(rows.map(|scores| softmax(&scores[..classes.min(row)])).collect())
    }

    /// What the model takes a drawn digit for: rows of `width` places, 0 where nothing is drawn. The drawing becomes an image as
    /// [`drawn_digit`] makes it. `None` where nothing is drawn.
    ///
    /// # Errors
    /// As [`Run::classify_async`].
    pub async fn recognise_async(&mut self, ink: &[u8], width: usize) -> Result<Option<Seen>> {
        let Some(pixels) = drawn_digit(ink, width) else { return Ok(None) };
        let found = self.classify_async(&[&pixels]).await?;
        let Some(format) = self.data().images() else { return Ok(None) };
        let classes = format.classes.iter().cloned().zip(found.into_iter().flatten()).collect();
        Ok(Some(Seen { width: format.shape.width, pixels, classes }))
    }
}

/// A drawing as a model sees it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Seen {
    /// Pixels of a row.
    pub width: usize,
    /// Rows of pixels, 0 to 255.
    pub pixels: Vec<u8>,
    /// The classes, and the probability of each.
    pub classes: Vec<(String, f32)>,
}

/// Layout of a batch of texts for the model of `config`.
#[cfg(not(target_family = "wasm"))]
fn reader_of(config: &TrainerConfig) -> TextReader {
    let classifies = Architecture::of(&*config.model).as_ref().and_then(Classifies::of);
    classifies.map_or(TextReader::Encoder, |classifies| classifies.reader)
}

/// A pass's samples of these images; those that it lacks are black.
fn samples(images: &[Vec<f32>], config: &TrainerConfig) -> Samples {
    let mut pixels = images.concat();
    let each = pixels.len() / images.len().max(1);
    pixels.resize(each * config.micro_batch, 0.0);
    let labels = vec![IGNORED; config.micro_batch];
    Samples::new(images.len()).with(tightrope_nn::IMAGES, pixels).with(tightrope_nn::LABELS, labels)
}

/// Probabilities of scores.
pub(crate) fn softmax(scores: &[f32]) -> Vec<f32> {
    let most = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let powers: Vec<f32> = scores.iter().map(|score| (score - most).exp()).collect();
    let sum: f32 = powers.iter().sum();
    powers.iter().map(|power| power / sum).collect()
}
