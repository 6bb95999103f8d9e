//! Model families, written against [`crate::layers`] as anybody's are.
//!
//! | file | holds |
//! |---|---|
//! | [`gpt2`], [`llama`] | the layers of a family and their Hugging Face names |
//! | [`language`], [`parts`] | what both share: embeddings, blocks, head, decoding |
//! | [`vit`] | vision transformers, their files and sizes |
//! | [`architecture`] | all of them under one type |
//! | [`config`] | extents and their limits |
//! | [`huggingface`] | `config.json`, read and written |
//! | [`presets`] | sizes by name |

mod architecture;
mod config;
mod gpt2;
mod huggingface;
mod language;
mod llama;
mod parts;
mod presets;
mod vit;

pub use architecture::{Architecture, ModelFamily};
pub(crate) use config::padded_vocab;
pub use config::{Family, ModelConfig};
pub use language::{LanguageModel, parameters};
pub use presets::{Preset, preset, presets};
pub use vit::{IMAGES, LABELS, Pooling, Vit, VitConfig, vit_presets};
