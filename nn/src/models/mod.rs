//! Model families, written against [`crate::layers`] as anybody's are.
//!
//! | file | holds |
//! |---|---|
//! | [`gpt2`], [`llama`], [`mistral`], [`qwen`], [`gemma`], [`phi3`], [`smollm3`], [`olmo2`] | what a family has of its own, in its layers and its `config.json` |
//! | [`decoder`] | the layers of all but GPT-2, and their Hugging Face names |
//! | [`language`], [`parts`] | what all share: embeddings, blocks, head, decoding |
//! | [`rope`], [`windows`] | scaled rotary frequencies, and which layers have a window, as files say it |
//! | [`vit`], [`bert`] | encoders of images and of text, their files and sizes |
//! | [`classifier`] | a decoder that classifies texts |
//! | [`scores`] | loss and output of classifiers |
//! | [`encoders`] | what files of encoders and classifiers share |
//! | [`architecture`] | all of them under one type |
//! | [`config`] | extents and their limits |
//! | [`huggingface`] | `config.json`, read and written |
//! | [`presets`] | sizes by name |

mod architecture;
mod bert;
mod classifier;
mod config;
mod decoder;
mod encoders;
mod gemma;
mod gpt2;
mod huggingface;
mod language;
mod llama;
mod mistral;
mod olmo2;
mod parts;
mod phi3;
mod presets;
mod qwen;
mod rope;
mod scores;
mod smollm3;
mod vit;
mod windows;

pub use architecture::{Architecture, ModelFamily};
pub use bert::{Bert, BertConfig, bert_presets};
pub use classifier::{Classifier, ClassifierConfig};
pub(crate) use config::padded_vocab;
pub use config::{Details, Family, ModelConfig};
pub use language::{LanguageModel, parameters};
pub use presets::{Preset, preset, presets};
pub use rope::RopeScaling;
pub use scores::LABELS;
pub use vit::{IMAGES, Pooling, Vit, VitConfig, vit_presets};
