//! What a run is trained on.

use tightrope_data::{
    self as data, DataState, IGNORED, ImageBatch, ImageFormat, MaskedBatch, RowBatch, Tokenizer,
    ToyTask,
};
use tightrope_nn::inputs::{DOCUMENTS, LAST, POSITIONS, REFERENCE, TARGETS, TOKENS, TYPES};
use tightrope_nn::{Batch, Done, IMAGES, LABELS, TrainerConfig, Values};

use crate::error::Result;

/// Numbers of one input.
#[derive(Clone, Debug, PartialEq)]
pub enum Numbers {
    /// Of an F32 input.
    F32(Vec<f32>),
    /// Of an I32 input.
    I32(Vec<i32>),
}

impl From<Vec<f32>> for Numbers {
    fn from(numbers: Vec<f32>) -> Self {
        Self::F32(numbers)
    }
}

impl From<Vec<i32>> for Numbers {
    fn from(numbers: Vec<i32>) -> Self {
        Self::I32(numbers)
    }
}

/// Samples by the names of a model's inputs, one after the other in each.
///
/// ```
/// use tightrope::run::Samples;
///
/// let two = Samples::new(2).with("images", vec![0.5; 2 * 64]).with("labels", vec![3, 7]);
/// assert_eq!(two.counted, 2);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Samples {
    /// What counts in the loss: samples, pairs of sequences, or tokens that are predicted.
    pub counted: usize,
    pub(super) numbers: Vec<(String, Numbers)>,
    /// Positions of sequences that are padding; none is said of sequences without.
    padding: Option<Vec<bool>>,
}

impl Samples {
    /// So many samples that give no input yet.
    pub fn new(counted: usize) -> Self {
        Self { counted, numbers: Vec::new(), padding: None }
    }

    /// With the numbers of the input `name`.
    pub fn with(mut self, name: &str, numbers: impl Into<Numbers>) -> Self {
        self.numbers.push((name.to_owned(), numbers.into()));
        self
    }

    /// With the positions of its sequences that are padding.
    fn with_padding(self, padding: Vec<bool>) -> Self {
        Self { padding: Some(padding), ..self }
    }

    /// Sequences of rows. A model of `packed` ones reads the row and the position of each token. Sequences with numbers are pairs, and
    /// the numbers their log-likelihoods under the reference.
    pub fn of_rows(batch: RowBatch, packed: bool) -> Self {
        let RowBatch { tokens, targets, documents, positions, numbers } = batch;
        let padding: Vec<bool> = documents.iter().map(|&it| it == RowBatch::PADDING).collect();
        if !numbers.is_empty() {
            let pairs = targets.chunks((2 * targets.len() / numbers.len()).max(1));
            let pairs = pairs.filter(|pair| counted(pair) > 0).count();
            let samples = Self::new(pairs).with(TOKENS, tokens).with(TARGETS, targets);
            return samples.with(REFERENCE, numbers).with_padding(padding);
        }
        let samples = Self::new(counted(&targets)).with(TOKENS, tokens).with(TARGETS, targets);
        let samples = samples.with_padding(padding);
        match packed {
            true => samples.with(DOCUMENTS, documents).with(POSITIONS, positions),
            false => samples,
        }
    }

    /// The numbers of each input, by its name.
    pub fn numbers(&self) -> impl Iterator<Item = (&str, &Numbers)> {
        self.numbers.iter().map(|(name, numbers)| (name.as_str(), numbers))
    }

    /// As the trainer takes them.
    pub fn batch(&self) -> Batch<'_> {
        let mut batch = Batch::new();
        if let Some(padding) = &self.padding {
            batch = batch.with_padding(padding);
        }
        for (name, numbers) in &self.numbers {
            let values = match numbers {
                Numbers::F32(numbers) => Values::F32(numbers),
                Numbers::I32(numbers) => Values::I32(numbers),
            };
            batch = batch.with(name, values);
        }
        batch
    }
}

impl From<data::Batch> for Samples {
    /// The windows of a text.
    fn from(batch: data::Batch) -> Self {
        Self::new(counted(&batch.targets)).with(TOKENS, batch.inputs).with(TARGETS, batch.targets)
    }
}

impl From<ImageBatch> for Samples {
    /// Labelled images.
    fn from(batch: ImageBatch) -> Self {
        Self::new(counted(&batch.labels)).with(IMAGES, batch.images).with(LABELS, batch.labels)
    }
}

impl From<MaskedBatch> for Samples {
    /// Sequences with masked tokens, each of one text.
    fn from(batch: MaskedBatch) -> Self {
        let MaskedBatch { tokens, documents, targets } = batch;
        let types = vec![0; tokens.len()];
        let padding = documents.iter().map(|&it| it == 0).collect();
        let samples = Self::new(counted(&targets)).with(TOKENS, tokens).with(TYPES, types);
        samples.with(DOCUMENTS, documents).with(TARGETS, targets).with_padding(padding)
    }
}

#[cfg(not(target_family = "wasm"))]
impl From<data::TextBatch> for Samples {
    /// Labelled texts.
    fn from(batch: data::TextBatch) -> Self {
        let data::TextBatch { tokens, types, documents, last, labels } = batch;
        let samples = Self::new(counted(&labels)).with(LABELS, labels);
        if last.is_empty() {
            let padding = documents.iter().map(|&it| it == 0).collect();
            let samples = samples.with(TOKENS, tokens).with(TYPES, types);
            return samples.with(DOCUMENTS, documents).with_padding(padding);
        }
        // Positions behind the last token of a text.
        let positions = tokens.len() / last.len();
        let behind = |&last: &i32| (0..positions).map(move |position| position as i32 > last);
        let padding = last.iter().flat_map(behind).collect();
        samples.with(TOKENS, tokens).with(LAST, last).with_padding(padding)
    }
}

/// How many of `targets` have a loss.
fn counted(targets: &[i32]) -> usize {
    targets.iter().filter(|&&target| target != IGNORED).count()
}

/// Held-out samples in order, of which each item has one or several. They follow from data, seed and settings: evaluation makes passes
/// of them, whatever the micro-batch.
pub type HeldOut = Box<dyn Iterator<Item = Result<Samples>>>;

/// One pass over what a run is trained on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epoch {
    /// Its samples: those that `train.batch` counts.
    pub samples: u64,
    /// The word for one sample, and for several.
    pub unit: [&'static str; 2],
}

impl Epoch {
    /// Unit of a text's windows.
    pub const WINDOWS: [&str; 2] = ["window", "windows"];

    /// Steps of `batch` samples that `epochs` passes take: those that reach their end. A number that rounding alone puts above a whole one
    /// is that one.
    pub fn steps(&self, epochs: f64, batch: usize) -> f64 {
        let exact = epochs * self.samples as f64 / batch.max(1) as f64;
        (exact * (1.0 - 1e-12)).ceil().max(1.0)
    }
}

/// The beginning of a conversation, which a model answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Tokens up to where the assistant's turn begins.
    pub tokens: Vec<u32>,
    /// Text that ends that turn; empty if none does.
    pub end: String,
}

/// Whether a batch can be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// It's there.
    Over,
    /// It isn't there yet.
    Longer,
    /// It will not come: the data ends before.
    Ended,
}

/// What a run is trained on: batches that follow from how far the run has come, so that a resumed run and one on
/// another device go on with the same ones.
pub trait Batches {
    /// Readies the batches that follow what is done, so that what they lack shows early.
    ///
    /// # Errors
    /// Data that is too short for a batch.
    fn seek(&mut self, config: &TrainerConfig, at: Done) -> Result<()> {
        let _ = (config, at);
        Ok(())
    }

    /// Says which samples of each batch are a rank's `own`: no others need to be read from now on.
    #[cfg(not(target_family = "wasm"))]
    fn share(&mut self, own: Vec<bool>) {
        let _ = own;
    }

    /// Waits for the batch that follows what is done, for as long as a run may not be asked whether to end: a tenth of a second.
    ///
    /// # Errors
    /// Data that can't be read any more.
    fn wait(&mut self, config: &TrainerConfig, at: Done) -> Result<Wait> {
        let _ = (config, at);
        Ok(Wait::Over)
    }

    /// The batch that follows what is done: the same one each time it is asked for.
    ///
    /// # Errors
    /// Data that can't be read any more.
    fn batch(&mut self, config: &TrainerConfig, at: Done) -> Result<Samples>;

    /// One pass over what is trained on; `None` if it has no end that is known.
    ///
    /// # Errors
    /// Sequences without room for a token.
    fn epoch(&self, config: &TrainerConfig) -> Result<Option<Epoch>> {
        let _ = config;
        Ok(None)
    }

    /// Lengths of sequences below the model's that its batches may have, where the plan has passes of these.
    fn shorter(&self) -> Vec<usize> {
        Vec::new()
    }

    /// Positions of its batches, padding included, over those of batches of whole sequences: less than 1 if some are padded to
    /// [`Batches::shorter`] lengths.
    fn work_share(&self) -> f64 {
        1.0
    }

    /// Samples of which it has to know the log-likelihood of each sequence, under the model before its first step. Asked again after
    /// each [`Batches::refer_to`], until it's `None`: it knows them all, or needs none.
    ///
    /// # Errors
    /// Sequences of no tokens.
    fn unreferenced(&self, config: &TrainerConfig) -> Result<Option<HeldOut>> {
        let _ = config;
        Ok(None)
    }

    /// Takes the log-likelihoods of what [`Batches::unreferenced`] gave, in order.
    ///
    /// # Errors
    /// Log-likelihoods that aren't finite.
    fn refer_to(&mut self, config: &TrainerConfig, log_likelihoods: Vec<f32>) -> Result<()> {
        let _ = (config, log_likelihoods);
        Ok(())
    }

    /// What is held out, or the first of it that holds `most` tokens or images. Which samples these are doesn't depend on
    /// [`TrainerConfig::micro_batch`], which a plan chooses.
    ///
    /// # Errors
    /// Data that can't be read.
    fn held_out(&self, config: &TrainerConfig, most: Option<usize>) -> Result<HeldOut> {
        let _ = (config, most);
        Ok(Box::new(std::iter::empty()))
    }

    /// The first `most` questions of conversations that are held out, or of all if none are: samples are answers to them. None of other data.
    fn questions(&self, most: usize) -> Vec<Question> {
        let _ = most;
        Vec::new()
    }

    /// What is trained on, in order, or the first of it that holds `most` tokens: for a run that is evaluated on it.
    ///
    /// # Errors
    /// Data that can't be read.
    #[cfg(not(target_family = "wasm"))]
    fn in_order(&self, config: &TrainerConfig, most: Option<usize>) -> Result<HeldOut> {
        let _ = (config, most);
        Ok(Box::new(std::iter::empty()))
    }

    /// What a checkpoint remembers after so many `samples`: a run goes on only where all but the position is the same.
    fn state(&self, samples: u64) -> DataState;

    /// Files that a checkpoint brings along.
    fn files(&self) -> Vec<(String, Vec<u8>)> {
        Vec::new()
    }

    /// How its tokens are read as text, where they are text.
    fn tokenizer(&self) -> Option<&Tokenizer> {
        None
    }

    /// The classes of its texts, where it is texts with labels.
    #[cfg(not(target_family = "wasm"))]
    fn classes(&self) -> Option<&data::Classes> {
        None
    }

    /// How its images are read and what their classes are, where it is images.
    fn images(&self) -> Option<&ImageFormat> {
        None
    }

    /// The problems of a run of `config`, where it is problems with known answers.
    ///
    /// # Errors
    /// Sequences that no problem fits.
    fn problems(&self, config: &TrainerConfig) -> Result<Option<ToyTask>> {
        let _ = config;
        Ok(None)
    }

    /// What it is, in a few words.
    fn describe(&self) -> String;
}
