//! Supervised fine-tuning data: rows of conversations, chat templates, and which tokens are trained on.
//!
//! A file holds rows of one [`RowFormat`]. [`Chats`] reads them, renders each by a [`ChatTemplate`], encodes the text and
//! marks the tokens that [`TrainOn`] names. A [`Loader`](crate::Loader) draws padded batches of them.

#[cfg(not(target_family = "wasm"))]
mod built_in;
#[cfg(not(target_family = "wasm"))]
mod dataset;
#[cfg(not(target_family = "wasm"))]
mod detect;
#[cfg(not(target_family = "wasm"))]
mod documents;
#[cfg(not(target_family = "wasm"))]
pub(crate) mod files;
mod format;
#[cfg(not(target_family = "wasm"))]
mod jinja;
#[cfg(not(target_family = "wasm"))]
mod mask;
#[cfg(not(target_family = "wasm"))]
mod named;
#[cfg(not(target_family = "wasm"))]
pub(crate) mod parquet;
#[cfg(not(target_family = "wasm"))]
mod preference;
#[cfg(not(target_family = "wasm"))]
mod question;
#[cfg(not(target_family = "wasm"))]
pub(crate) mod row;
#[cfg(not(target_family = "wasm"))]
mod sampler;
#[cfg(not(target_family = "wasm"))]
mod sequences;
#[cfg(not(target_family = "wasm"))]
mod template;

#[cfg(not(target_family = "wasm"))]
pub use dataset::{Chats, ChatsConfig, Counts, Rows};
#[cfg(not(target_family = "wasm"))]
pub use detect::row_format;
#[cfg(not(target_family = "wasm"))]
pub use documents::documents;
#[cfg(not(target_family = "wasm"))]
pub(crate) use files::Layout;
pub use format::{RowFormat, TrainOn};
#[cfg(not(target_family = "wasm"))]
pub use named::TemplateFiles;
#[cfg(not(target_family = "wasm"))]
pub(crate) use row::{Problem, field, kind, text};
#[cfg(not(target_family = "wasm"))]
pub use sequences::Sequences;
#[cfg(not(target_family = "wasm"))]
pub use template::ChatTemplate;

/// Takes a row with its number, from 1, and says whether to go on.
#[cfg(not(target_family = "wasm"))]
pub(crate) type Each<'a> =
    &'a mut dyn FnMut(usize, minijinja::Value) -> crate::Result<std::ops::ControlFlow<()>>;

/// The refusal of a row.
#[cfg(not(target_family = "wasm"))]
pub(crate) fn refused(name: &str, row: usize, problem: impl Into<String>) -> crate::Error {
    crate::Error::Row { name: name.to_owned(), row, problem: problem.into() }
}

#[cfg(all(test, not(target_family = "wasm")))]
mod tests;
