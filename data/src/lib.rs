//! What Tightrope reads and writes: text and token shards, tokenizers, images, batches, weights, checkpoints.
//!
//! Every file is treated as hostile: a broken one comes back as an [`Error`] that names the file,
//! the place in it and the remedy, never as a panic.
//!
//! ```
//! use tightrope_data::{Corpus, Loader, LoaderConfig, Tokenizer, Windows};
//!
//! let corpus = Corpus::from_bytes("abc", b"abcdefghij".repeat(100), &Tokenizer::Byte)?;
//! let (train, held) = corpus.split(0.1)?;
//! let config = LoaderConfig { batch: 4, context: 16, seed: 1337 };
//! let mut loader = Loader::new(train.clone(), config, 0)?;
//! loader.next()?;
//! let second = loader.next()?;
//! assert_eq!(second.inputs.len(), 4 * 16);
//!
//! // The position is all a resumed run needs.
//! assert_eq!(Loader::new(train, config, second.index)?.next()?, second);
//!
//! // Every held-out token but the first is scored once.
//! assert_eq!(Windows::new(held, 4, 16, None)?.scored(), 99);
//! # Ok::<(), tightrope_data::Error>(())
//! ```

mod arrow;
mod buckets;
mod built_in;
mod bytes;
#[cfg_attr(target_family = "wasm", allow(dead_code, reason = "a page reads no folders"))]
mod card;
mod chat;
pub mod checkpoint;
#[cfg(not(target_family = "wasm"))]
mod choices;
mod corpus;
mod entry;
mod error;
pub mod files;
pub mod hub;
mod images;
#[cfg(not(target_family = "wasm"))]
mod labelled;
pub mod limits;
mod loader;
mod masking;
mod packing;
mod permutation;
#[cfg(not(target_family = "wasm"))]
mod pipe;
pub mod safetensors;
mod scored;
mod source;
mod tokenizer;
mod tokens;
#[cfg(not(target_family = "wasm"))]
mod torch;
mod toy;

pub use buckets::{BucketCount, bucket_lengths};
#[cfg(not(target_family = "wasm"))]
pub use chat::{
    ChatTemplate, Chats, ChatsConfig, Counts, Rows, Sequences, TemplateFiles, documents, row_format,
};
pub use chat::{RowFormat, TrainOn};
pub use checkpoint::{Base, Best, Checkpoint, Contents, DataState, Evaluations, Manifest, Skipped};
#[cfg(not(target_family = "wasm"))]
pub use choices::{Question, is_white, questions};
pub use corpus::{Corpus, HeldOutSplit, held_out_split};
pub use error::{Error, Result};
pub use images::{
    ImageBatch, ImageBatches, ImageDataset, ImageFormat, ImageLoaderConfig, ImageShape, Images,
    Normalization, drawn_digit,
};
#[cfg(not(target_family = "wasm"))]
pub use labelled::{
    Classes, LabelledRows, LabelledTexts, PaddedTexts, TextBatch, TextReader, is_labelled,
};
pub use loader::{Batch, IGNORED, Loader, LoaderConfig, Windows, windows_in_epoch};
pub use masking::{MaskedBatch, Masking, Specials};
pub use packing::{Packing, RowBatch};
#[cfg(not(target_family = "wasm"))]
pub use pipe::{Pipe, Reached};
pub use safetensors::{Payload, SafeTensors, Tensor, TensorView, Weights, weights_fingerprint};
pub use scored::{Scored, scored_batch, sliding};
pub use source::{Difference, Source, content, difference, fingerprint};
#[cfg(not(target_family = "wasm"))]
pub use tokenizer::HuggingFace;
pub use tokenizer::{Gpt2, Tokenizer};
pub use tokens::Tokens;
pub use toy::{Problem, Toy, ToyTask};

/// The file of a chat template in a model directory.
pub const TEMPLATE_FILE: &str = "chat_template.jinja";
/// The folder of a model directory with its other chat templates: `tool_use.jinja` is that for conversations with tools.
pub const TEMPLATE_FOLDER: &str = "additional_chat_templates";
/// The file of a checkpoint, which has no folders, with the texts of [`TEMPLATE_FOLDER`] by name.
pub const PACKED_TEMPLATES: &str = "additional_chat_templates.json";
