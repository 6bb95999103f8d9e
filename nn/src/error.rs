//! What can be wrong with a model's settings, its files or its training options.

use tightrope_core::batch::Mixed;

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong for whoever reads tensors for [`crate::Import`].
pub type ReadError = Box<dyn std::error::Error + Send + Sync>;

/// A mistake in settings or files, found before anything runs.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A setting of a model, optimizer or schedule is out of range.
    #[error("setting `{key}`: {problem}")]
    Setting {
        /// The setting.
        key: &'static str,
        /// What is wrong, and what would be right.
        problem: String,
    },
    /// A batch was to be cut whose loss mixes samples.
    #[error(
        "{mixed}, so that the loss of {passes} micro-batches isn't that of the batch: make the batch one micro-batch of one rank"
    )]
    Mixed {
        /// The op that mixes them.
        mixed: Mixed,
        /// Micro-batches of the batch.
        passes: usize,
    },
    /// A preset was named that doesn't exist.
    #[error("no preset `{name}`{}; presets: {known}", near(.nearest))]
    UnknownPreset {
        /// The name asked for.
        name: String,
        /// The most similar preset.
        nearest: Option<String>,
        /// All presets, separated by commas.
        known: String,
    },
    /// A settings file of Hugging Face's asks for something unsupported, or lacks something.
    #[error("{file}, key `{key}`: {problem}")]
    HuggingFace {
        /// Name of the file.
        file: &'static str,
        /// The key; nested keys are joined by dots.
        key: String,
        /// What is wrong, and what is supported.
        problem: String,
    },
    /// A model file lacks a tensor.
    #[error(
        "tensor `{name}` {shape:?} is missing; is the file of the model its config.json names?"
    )]
    MissingTensor {
        /// Hugging Face name.
        name: String,
        /// The shape it should have.
        shape: Vec<usize>,
    },
    /// A model file holds a tensor that the model doesn't have, or holds one twice.
    #[error("tensor `{name}` {problem}{}", near(.nearest))]
    UnexpectedTensor {
        /// Name in the file.
        name: String,
        /// Why it wasn't expected.
        problem: &'static str,
        /// The most similar tensor of the model.
        nearest: Option<String>,
    },
    /// A tensor of a model file has another shape than the model's.
    #[error(
        "tensor `{name}` has shape {found:?}, the model needs {expected:?}; does config.json belong \
         to this file?"
    )]
    TensorShape {
        /// Name in the file.
        name: String,
        /// Shape in the file.
        found: Vec<usize>,
        /// Shape of the model.
        expected: Vec<usize>,
    },
    /// A tensor of a model file holds an infinity or a NaN.
    #[error("tensor `{name}` holds {value} at element {index}; the file is damaged or diverged")]
    NotFinite {
        /// Name in the file.
        name: String,
        /// Element in row-major order of the file.
        index: usize,
        /// The value.
        value: f32,
    },
    /// A tensor couldn't be read.
    #[error("reading tensor `{name}`: {source}")]
    Read {
        /// Name in the file.
        name: String,
        /// What happened.
        source: ReadError,
    },
    /// An op was refused by the graph.
    #[error(transparent)]
    Graph(#[from] tightrope_core::Error),
}

fn near(nearest: &Option<String>) -> String {
    nearest.as_ref().map_or(String::new(), |name| format!("; did you mean `{name}`?"))
}

/// `Err` about setting `key` unless `condition`.
pub(crate) fn ensure(
    condition: bool,
    key: &'static str,
    problem: impl FnOnce() -> String,
) -> Result<()> {
    if condition { Ok(()) } else { Err(Error::Setting { key, problem: problem() }) }
}
