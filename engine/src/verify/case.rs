//! A recorded reference case: a Hugging Face model directory with a `case.safetensors` beside it.
//!
//! | tensor | holds |
//! |---|---|
//! | `tokens` | of a language model: ids, (S·A + 1, B, T + 1): one batch for the gradients, then those of S steps of A micro-batches |
//! | `tokens`, `types`, `documents` | of an encoder: ids, which of two texts each belongs to, and 1 for a token and 0 for padding, (S·A + 1, B, T) |
//! | `tokens`, `last` | of a decoder that classifies: ids, (S·A + 1, B, T), and where each text's last token other than padding is, (S·A + 1, B) |
//! | `targets` or `labels` | what it predicts: masked tokens, (S·A + 1, B, T), or classes, (S·A + 1, B) |
//! | `images`, `labels` | of a vision transformer: (S·A + 1, B, channels, height, width) and (S·A + 1, B) |
//! | `logits`, `loss`, `grad.*` | forward and backward pass over the first batch |
//! | `train.losses`, `train.grad_norms`, `after.*` | the AdamW run over the rest |
//!
//! Where a directory `adapters` of PEFT's is beside it, those are what was trained, and the model was frozen.

use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use anyhow::{Context as _, anyhow, bail, ensure};
use tightrope_core::Tensor;
use tightrope_data::{SafeTensors, Weights, files, limits};
use tightrope_nn::inputs::{DOCUMENTS, LAST, TARGETS, TOKENS, TYPES};
use tightrope_nn::{
    self as nn, AdjustLr, Architecture, IMAGES, Import, LABELS, Lora, Model, Optimizer, Trainer,
};

use crate::run::Samples;
use crate::weights::adapters::Adapters;

/// File with what was recorded.
const RECORD: &str = "case.safetensors";
/// Directory with adapters.
const ADAPTERS: &str = "adapters";

/// A case, read and checked for consistent extents.
pub struct Case {
    /// The model.
    pub model: Arc<dyn Model>,
    /// Extents of its logits, B first, without padding.
    pub logits: Vec<usize>,
    /// B: sequences or images of a micro-batch.
    pub batch: usize,
    /// S: optimizer steps of the run.
    pub steps: usize,
    /// A: micro-batches of a step.
    pub accumulation: usize,
    /// Learning rate of every step.
    pub lr: f64,
    /// Decay of tensors of two or more dimensions.
    pub weight_decay: f64,
    /// AdamW.
    pub optimizer: Optimizer,
    /// Largest gradient norm; `None` where nothing was clipped.
    pub clip: Option<f64>,
    weights: Weights,
    adapters: Option<Adapters>,
    record: SafeTensors,
    inputs: Recorded,
}

/// What the model reads, all batches one after the other.
enum Recorded {
    /// Ids, T + 1 of each of B sequences.
    Tokens { time: usize, ids: Vec<i32> },
    /// Ids, types and documents of B sequences, and what is to be predicted of them: masked tokens, or their classes.
    Encoded { ids: [Vec<i32>; 3], expected: Vec<i32> },
    /// Ids of B texts, where the last token of each is, and its class.
    Classified { ids: [Vec<i32>; 2], labels: Vec<i32> },
    /// Pixels of B images, and the class of each.
    Images { pixels: Vec<f32>, labels: Vec<i32> },
}

impl Case {
    /// Opens `model.safetensors`, `config.json` and `case.safetensors` in `dir`, and `adapters` where they are.
    ///
    /// # Errors
    /// A missing or broken file, metadata that is missing or isn't a number, and inputs of another
    /// shape than the metadata says.
    pub fn open(dir: &Path) -> anyhow::Result<Self> {
        let config = read_config(&dir.join("config.json"))?;
        let weights = Weights::open(dir)?;
        let adapters = dir.join(ADAPTERS);
        let mut adapters = adapters.exists().then(|| Adapters::open(&adapters)).transpose()?;
        let record = SafeTensors::open(dir.join(RECORD))?;
        let settings = Metadata(&record);
        if let Some(adapters) = &mut adapters {
            // Cases of before say nothing of bits.
            let named = record.metadata().contains_key("base_bits");
            let bits = named.then(|| settings.get::<u32>("base_bits", "a number of bits"));
            adapters.lora.base_bits = bits.transpose()?.into();
        }
        let batch = settings.size("batch")?;
        let (steps, accumulation) = (settings.size("steps")?, settings.size("accumulate")?);
        let optimizer = settings.optimizer()?;
        optimizer.check().with_context(|| settings.place())?;
        let clip = settings.number("clip")?;
        let (lr, weight_decay) = (settings.number("lr")?, settings.number("weight_decay")?);
        let batches = steps.checked_mul(accumulation).and_then(|batches| batches.checked_add(1));
        let batches = batches.unwrap_or(usize::MAX);
        let shaped = |name: &str, expected: &[usize]| {
            let found = record.require(name)?;
            ensure!(
                found.shape == expected,
                "{}, tensor \"{name}\": its shape is {:?} and the metadata makes it {expected:?}; \
                 record the case again",
                record.path().display(),
                found.shape
            );
            Ok(found)
        };
        let (seq_len, logits, inputs) = match &config {
            Architecture::Language(config) => {
                let time = settings.size("seq")?;
                let tokens = shaped("tokens", &[batches, batch, time.saturating_add(1)])?;
                ensure!(
                    time <= config.context,
                    "{}: its sequences of {time} tokens are longer than the context of {} in \
                     config.json; the two files are of different models",
                    record.path().display(),
                    config.context
                );
                let inputs = Recorded::Tokens { time, ids: tokens.to_i32()? };
                (time, vec![batch, time, config.vocab], inputs)
            }
            Architecture::Classifier(config) => {
                let time = settings.size("seq")?;
                let tokens = shaped("tokens", &[batches, batch, time])?.to_i32()?;
                let of_texts = |name| anyhow::Ok(shaped(name, &[batches, batch])?.to_i32()?);
                let (last, labels) = (of_texts("last")?, of_texts("labels")?);
                let inputs = Recorded::Classified { ids: [tokens, last], labels };
                (time, vec![batch, config.classes], inputs)
            }
            Architecture::Bert(config) => {
                let time = settings.size("seq")?;
                let ids = |name| anyhow::Ok(shaped(name, &[batches, batch, time])?.to_i32()?);
                let [tokens, types, documents] = ["tokens", "types", "documents"].map(ids);
                let (expected, logits) = match config.classes {
                    Some(classes) => (shaped("labels", &[batches, batch])?, vec![batch, classes]),
                    None => {
                        let targets = shaped("targets", &[batches, batch, time])?;
                        (targets, vec![batch, time, config.vocab])
                    }
                };
                let expected = expected.to_i32()?;
                (time, logits, Recorded::Encoded { ids: [tokens?, types?, documents?], expected })
            }
            Architecture::Vit(config) => {
                let [height, width] = config.image;
                let images = shaped("images", &[batches, batch, config.colors, height, width])?;
                let labels = shaped("labels", &[batches, batch])?;
                let (pixels, labels) = (images.to_f32()?, labels.to_i32()?);
                (1, vec![batch, config.classes], Recorded::Images { pixels, labels })
            }
        };
        let model = config.build(seq_len)?;
        let clip = (clip > 0.0).then_some(clip);
        Ok(Self {
            model,
            logits,
            batch,
            steps,
            accumulation,
            lr,
            weight_decay,
            optimizer,
            clip,
            weights,
            adapters,
            record,
            inputs,
        })
    }

    /// What the model reads in so many batches from `first` on; batch 0 is the one of the gradients.
    pub fn samples(&self, first: usize, batches: usize) -> Samples {
        let (first, count) = (first * self.batch, batches * self.batch);
        match &self.inputs {
            Recorded::Tokens { time, ids } => {
                let row = time + 1;
                let rows = ids[first * row..][..count * row].chunks_exact(row);
                let tokens: Vec<i32> =
                    rows.clone().flat_map(|row| &row[..*time]).copied().collect();
                let targets: Vec<i32> = rows.flat_map(|row| &row[1..]).copied().collect();
                Samples::new(targets.len()).with(TOKENS, tokens).with(TARGETS, targets)
            }
            Recorded::Encoded { ids, expected } => {
                let all = ids[0].len() / self.model.tokens();
                let part = |numbers: &[i32]| {
                    let each = numbers.len() / all;
                    numbers[first * each..][..count * each].to_vec()
                };
                let inputs = self.model.inputs();
                let of_classes = inputs.iter().any(|input| input.name == LABELS);
                let name = if of_classes { LABELS } else { TARGETS };
                let samples = Samples::new(count).with(name, part(expected));
                let names = [TOKENS, TYPES, DOCUMENTS].into_iter().zip(ids);
                names.fold(samples, |samples, (name, ids)| samples.with(name, part(ids)))
            }
            Recorded::Classified { ids: [tokens, last], labels } => {
                let time = self.model.tokens();
                let tokens = tokens[first * time..][..count * time].to_vec();
                let part = |numbers: &[i32]| numbers[first..][..count].to_vec();
                let samples = Samples::new(count).with(TOKENS, tokens).with(LAST, part(last));
                samples.with(LABELS, part(labels))
            }
            Recorded::Images { pixels, labels } => {
                let size = pixels.len() / labels.len();
                let pixels = pixels[first * size..][..count * size].to_vec();
                let labels = labels[first..][..count].to_vec();
                Samples::new(count).with(IMAGES, pixels).with(LABELS, labels)
            }
        }
    }

    /// What is trained in place of the model, if anything.
    pub fn lora(&self) -> Option<&Lora> {
        self.adapters.as_ref().map(|adapters| &adapters.lora)
    }

    /// The tensors of `weights` and their values before training, adapters included.
    ///
    /// # Errors
    /// A tensor that is missing, of another shape, or holds something infinite.
    pub fn initial(&self, weights: &nn::Weights) -> anyhow::Result<Vec<(Tensor, Vec<f32>)>> {
        let place = || self.weights_place();
        let import = Import::new(&*self.model, self.weights.names()).with_context(place)?;
        let mut get = |name: &str| Ok(self.weights.require(name)?.to_values()?);
        let mut initial = vec![];
        for (parameter, &weight) in weights.parameters().iter().zip(weights.tensors()) {
            initial.push((weight, import.read(parameter, &mut get).with_context(place)?));
        }
        if let Some(adapters) = &self.adapters {
            let (_, tensors) = weights.trained();
            initial.extend(tensors.iter().copied().zip(adapters.values(weights)?));
        }
        Ok(initial)
    }

    /// Sets every weight of `trainer` to what it was before training, adapters included.
    ///
    /// # Errors
    /// As [`Case::initial`], and those of the device.
    pub fn load(&self, trainer: &mut Trainer) -> anyhow::Result<()> {
        let mut get = |name: &str| Ok(self.weights.require(name)?.to_values()?);
        trainer
            .load_weights(self.weights.names(), &mut get)
            .with_context(|| self.weights_place())?;
        match &self.adapters {
            Some(adapters) => adapters.load(trainer),
            None => Ok(()),
        }
    }

    /// The recorded elements of `name`, which must be of this shape.
    ///
    /// # Errors
    /// A tensor that is missing, of another shape, or holds no floats.
    pub fn recorded(&self, name: &str, shape: &[usize]) -> anyhow::Result<Vec<f32>> {
        let tensor = self.record.require(name)?;
        ensure!(
            tensor.shape == shape,
            "{}, tensor \"{name}\": its shape is {:?} and the model makes it {shape:?}; record the \
             case again",
            self.record.path().display(),
            tensor.shape
        );
        Ok(tensor.to_f32()?)
    }

    fn weights_place(&self) -> String {
        let file = self.weights.files().first().map(|file| file.path().display().to_string());
        format!("can't read the model in `{}`", file.unwrap_or_default())
    }
}

fn read_config(path: &Path) -> anyhow::Result<Architecture> {
    let place = || format!("can't read `{}`", path.display());
    let text = files::read_text(path, limits::DESCRIPTION).with_context(place)?;
    let value = serde_json::from_str(&text).with_context(place)?;
    Architecture::from_hf(&value).with_context(place)
}

/// The settings of the recorded run, which the format keeps as text.
struct Metadata<'a>(&'a SafeTensors);

impl Metadata<'_> {
    fn place(&self) -> String {
        format!("{}, metadata", self.0.path().display())
    }

    fn get<T: FromStr>(&self, key: &str, kind: &str) -> anyhow::Result<T> {
        let Some(text) = self.0.metadata().get(key) else {
            bail!("{}: \"{key}\" is missing; record the case again", self.place());
        };
        text.parse().map_err(|_| anyhow!("{}: \"{key}\" is {text:?}, not {kind}", self.place()))
    }

    fn size(&self, key: &str) -> anyhow::Result<usize> {
        let size: usize = self.get(key, "a whole number, 1 or more")?;
        ensure!(size > 0, "{}: \"{key}\" is 0 and must be 1 or more", self.place());
        Ok(size)
    }

    /// The optimizer of the run: AdamW where none is named, as in cases of before.
    fn optimizer(&self) -> anyhow::Result<Optimizer> {
        let [beta1, beta2, eps] = ["beta1", "beta2", "eps"].map(|key| self.number(key));
        let (beta1, beta2, eps) = (beta1?, beta2?, eps?);
        match self.0.metadata().get("optimizer").map(String::as_str) {
            None | Some("adamw") => Ok(Optimizer::AdamW { beta1, beta2, eps }),
            Some("muon") => {
                let adjust: String = self.get("adjust_lr", "a word")?;
                let adjust = AdjustLr::named(&adjust)
                    .with_context(|| format!("{}: \"adjust_lr\" is {adjust:?}", self.place()))?;
                let momentum = self.number("momentum")?;
                Ok(Optimizer::Muon { momentum, adjust, beta1, beta2, eps })
            }
            Some(other) => {
                bail!("{}: \"optimizer\" is {other:?}, not adamw or muon", self.place())
            }
        }
    }

    fn number(&self, key: &str) -> anyhow::Result<f64> {
        let number: f64 = self.get(key, "a number")?;
        ensure!(
            number.is_finite() && number >= 0.0,
            "{}: \"{key}\" is {number} and must be 0 or more",
            self.place()
        );
        Ok(number)
    }
}

/// Folders with the repository's recorded cases, for tests.
#[cfg(test)]
pub fn recorded() -> Vec<std::path::PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/parity");
    let entries = std::fs::read_dir(&root).expect("the folder of recorded cases");
    let folders = entries.map(|entry| entry.unwrap().path());
    let mut cases: Vec<_> =
        folders.filter(|path| path.display().to_string().ends_with("-case")).collect();
    assert!(!cases.is_empty(), "{} holds no case", root.display());
    cases.sort();
    cases
}
