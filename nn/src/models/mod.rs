//! Model families, written against [`crate::layers`] as anybody's are.
//!
//! | file | holds |
//! |---|---|
//! | [`gpt2`], [`llama`] | the layers of a family and their Hugging Face names |
//! | [`language`] | what both share: embeddings, blocks, head, decoding |
//! | [`config`] | extents and their limits |
//! | [`huggingface`] | `config.json`, read and written |
//! | [`presets`] | sizes by name |

mod config;
mod gpt2;
mod huggingface;
mod language;
mod llama;
mod presets;

pub(crate) use config::padded_vocab;
pub use config::{Family, ModelConfig};
pub use language::{LanguageModel, parameters};
pub use presets::{Preset, preset, presets};
