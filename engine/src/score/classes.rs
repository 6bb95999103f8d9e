//! The classes of texts.

use std::path::PathBuf;

use anyhow::anyhow;
use tightrope_core::Backend;
use tightrope_data::{Corpus, TextBatch, documents};
use tightrope_nn::{Architecture, TrainerConfig};

use crate::block_on;
use crate::check;
use crate::classifies::Classifies;
use crate::error::{Error, Help as _, Result};
use crate::generate::Loaded;
use crate::recipe::Step;
use crate::run::{Samples, softmax};
use crate::settings::{MicroBatch, Settings};

/// The most texts of a batch.
const TEXTS: usize = 32;

/// What a model takes texts for.
#[derive(Clone, Debug, PartialEq)]
pub struct Classified {
    /// Names of the classes; their numbers, where they have none.
    pub classes: Vec<String>,
    /// The texts.
    pub texts: Vec<String>,
    /// The probability of each class, for each text.
    pub probabilities: Vec<Vec<f32>>,
}

impl Classified {
    /// The likeliest class of each text, of equal ones the first, and its probability.
    pub fn likeliest(&self) -> impl Iterator<Item = (&str, f32)> {
        self.probabilities.iter().map(|found| {
            let best = (1..found.len())
                .fold(0, |best, at| if found[at] > found[best] { at } else { best });
            (self.classes[best].as_str(), found[best])
        })
    }
}

impl Loaded {
    /// Classifies each text of `files`: a file of text, or a row of others. Texts are cut to the model's context.
    ///
    /// # Errors
    /// A model that doesn't classify texts, files that can't be read or hold no text, and those of the device.
    pub fn classify_texts(
        self,
        mut device: Box<dyn Backend>,
        files: &[PathBuf],
    ) -> Result<Classified> {
        let shown = self.dir().display();
        let (classifies, tokenizer) = match (&self.source.config, &self.tokenizer) {
            (Architecture::Bert(model), _) if model.classes.is_none() => {
                return Err(Error::usage(
                    anyhow!("`{shown}` predicts masked tokens, and knows no classes"),
                    "train it on rows with labels: `tightrope train --init` on it, with --data",
                ));
            }
            (config, Some(tokenizer)) => (Classifies::of(config), Some(tokenizer)),
            (_, None) => (None, None),
        };
        let (Some(Classifies { classes, reader }), Some(tokenizer)) = (classifies, tokenizer)
        else {
            return Err(Error::usage(
                anyhow!("`{shown}` doesn't classify texts"),
                "name a model that was trained on texts with labels",
            ));
        };
        let count = classes.count;
        let key = self.settings.data.text_key.as_deref().unwrap_or(Corpus::TEXT_KEY);
        let mut texts = Vec::new();
        documents(files, key, &mut |text| {
            texts.push(text.trim().to_owned());
            Ok(())
        })?;
        texts.retain(|text| !text.is_empty());
        if texts.is_empty() {
            return Err(Error::usage(anyhow!("the files hold no text"), "name files with texts"));
        }
        let mut settings = Settings::clone(&self.settings);
        settings.train.batch = Some(texts.len().min(TEXTS));
        settings.train.micro_batch = MicroBatch::Auto;
        let step = Step::of_model(&settings, self.source.config.clone())?;
        let mut step = step.inference(false, settings.memory.weight_bits);
        step.config = TrainerConfig { decode: 0, logits: true, ..step.config };
        let planned = check::planned(&step.device, &mut device, &mut |device| step.plan(device))?;
        let mut trainer = self.started(planned, device)?;
        let (context, batch) = (trainer.config().model.tokens(), trainer.config().micro_batch);
        let mut probabilities = Vec::with_capacity(texts.len());
        for part in texts.chunks(batch) {
            let part: Vec<(&str, Option<&str>)> =
                part.iter().map(|text| (text.as_str(), None)).collect();
            let samples = TextBatch::of(&part, (tokenizer, reader), context, batch);
            let samples: Samples = samples.help("give other texts")?.into();
            let (scores, shape) = block_on(trainer.logits(&samples.batch()))?;
            let row = shape.last().copied().unwrap_or(count).max(1);
            let rows = scores.chunks_exact(row).take(part.len());
            probabilities.extend(rows.map(|scores| softmax(&scores[..count.min(row)])));
            self.tell(probabilities.len(), texts.len());
        }
        let classes = match classes.names.is_empty() {
            true => (0..count).map(|class| class.to_string()).collect(),
            false => classes.names,
        };
        Ok(Classified { classes, texts, probabilities })
    }
}
