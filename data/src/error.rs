//! The one error type of the crate.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use crate::checkpoint::Skipped;

/// What can go wrong with a file. Each message says what, where and what to do next.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused.
    #[error("cannot {action} {}: {source}{}", path.display(), hint(source))]
    Io {
        /// What was being done, as a verb.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// A path that is a folder, a pipe or a device.
    #[error("{} is not a regular file", path.display())]
    NotAFile {
        /// The path as given.
        path: PathBuf,
    },
    /// Text with bytes that are not UTF-8.
    #[error(
        "{name} is not UTF-8 text at byte {offset}: convert it (iconv -t UTF-8), or pass token ids as .bin"
    )]
    NotUtf8 {
        /// The file.
        name: String,
        /// Offset of the first bad byte.
        offset: usize,
    },
    /// JSON that isn't objects with a text.
    #[error(
        "{name}, line {line}, column {column}: {problem}; each document must be an object with its text in \"{key}\""
    )]
    Json {
        /// The file.
        name: String,
        /// Line, from 1.
        line: usize,
        /// Column in bytes, from 1.
        column: usize,
        /// What the parser found.
        problem: String,
        /// The field that holds the text.
        key: String,
    },
    /// A format that isn't read.
    #[error(
        "{name} is {kind}, which isn't read: write its text as .jsonl, an object with a \"text\" on each line"
    )]
    Format {
        /// The file.
        name: String,
        /// What it is, with its article.
        kind: &'static str,
    },
    /// A file of Parquet or Arrow without such a column of text.
    #[error("{name}: {problem}")]
    Column {
        /// The file.
        name: String,
        /// What it has instead.
        problem: String,
    },
    /// A Parquet file that can't be read.
    #[error("{name} can't be read: {problem}; fetch it again")]
    Parquet {
        /// The file.
        name: String,
        /// What is wrong.
        problem: String,
    },
    /// A table of Arrow that can't be read.
    #[error("{name} can't be read as Arrow: {problem}; fetch or save it again")]
    Arrow {
        /// The file.
        name: String,
        /// The reason.
        problem: String,
    },
    /// A file that is packed in a way that isn't read.
    #[error(
        "{name} is packed by {by}, which isn't read; unpack it with `{with} FILE`, or pack it with gzip or Zstandard"
    )]
    PackedBy {
        /// The file.
        name: String,
        /// The packer.
        by: &'static str,
        /// The command that unpacks it.
        with: &'static str,
    },
    /// A file that can't be unpacked.
    #[error("{name} can't be unpacked: {problem}; fetch or pack it again")]
    Packed {
        /// The file.
        name: String,
        /// What the decoder found.
        problem: String,
    },
    /// A row of a data file that can't be trained on.
    #[error("{name}, row {row}: {problem}")]
    Row {
        /// The file.
        name: String,
        /// Number of the row, from 1.
        row: usize,
        /// What is wrong and what to do.
        problem: String,
    },
    /// A data file whose format can't be told, or that has no rows.
    #[error("{name}: {problem}")]
    RowFormat {
        /// The file.
        name: String,
        /// What is wrong and what to do.
        problem: String,
    },
    /// A chat template that can't be used.
    #[error("chat template {name}: {problem}")]
    Template {
        /// The file or the name.
        name: String,
        /// What is wrong and what to do.
        problem: String,
    },
    /// A folder or a glob without a file to read.
    #[error("{}: {problem}", path.display())]
    NoFiles {
        /// The folder or the glob.
        path: PathBuf,
        /// What is wrong and what to do.
        problem: String,
    },
    /// A .bin file that isn't token ids.
    #[error("{name} isn't a usable file of token ids: {problem}")]
    TokenIds {
        /// The file.
        name: String,
        /// What is wrong and what to do.
        problem: String,
    },
    /// A dataset of images, or a file of one, that can't be used.
    #[error("{name}: {problem}")]
    Images {
        /// The folder or file.
        name: String,
        /// What is wrong and what to do.
        problem: String,
    },
    /// No tokens at all, or a single one.
    #[error("{name} holds {tokens} token(s), and training needs at least 2: add text to it")]
    NoTokens {
        /// The file, or all files together.
        name: String,
        /// Tokens found.
        tokens: usize,
    },
    /// A token id the model has no embedding for.
    #[error("{name}, token {offset}: id {id} is outside the vocabulary of {vocab}: use the tokenizer that wrote this file, or a model of at least {} tokens", u64::from(*id) + 1)]
    TokenRange {
        /// The file.
        name: String,
        /// Position of the token in that file's stream.
        offset: usize,
        /// The id found there.
        id: u32,
        /// Ids must be below this.
        vocab: usize,
    },
    /// A file that became shorter while it was mapped.
    #[error(
        "{name} shrank from {expected} to {found} bytes while in use: restore it and resume from the last checkpoint"
    )]
    Shrank {
        /// The file.
        name: String,
        /// Bytes when it was opened.
        expected: u64,
        /// Bytes now.
        found: u64,
    },
    /// A stream shorter than one window.
    #[error(
        "the data holds {had} tokens, and one window of context {context} needs {needed}: add text, or lower model.context or data.holdout"
    )]
    TooShort {
        /// Tokens in the stream.
        had: usize,
        /// Tokens one window reads.
        needed: usize,
        /// Tokens the model sees at once.
        context: usize,
    },
    /// An argument outside its domain.
    #[error("{what} is {value}: it must be {domain}")]
    Setting {
        /// Name of the setting.
        what: &'static str,
        /// The value given.
        value: String,
        /// What is allowed.
        domain: &'static str,
    },
    /// A tokenizer file, text or id that the tokenizer cannot handle.
    #[error("{name}: {problem}")]
    Tokenizer {
        /// The file.
        name: String,
        /// What is wrong and what to do.
        problem: String,
    },
    /// A safetensors file, or an index of shards, whose structure is broken.
    #[error("{} is not a valid safetensors file: {problem}", path.display())]
    SafeTensors {
        /// The file.
        path: PathBuf,
        /// What is wrong and what to do.
        problem: String,
    },
    /// A file of `torch.save` that can't be read.
    #[error("{} can't be read as weights of PyTorch: {problem}", path.display())]
    Torch {
        /// The file.
        path: PathBuf,
        /// What is wrong and what to do.
        problem: String,
    },
    /// One tensor of a safetensors file.
    #[error("{}, tensor \"{tensor}\": {problem}", path.display())]
    Tensor {
        /// The file.
        path: PathBuf,
        /// Name of the tensor.
        tensor: String,
        /// What is wrong and what to do.
        problem: String,
    },
    /// A file of a checkpoint that isn't as it was written: damaged, or changed by somebody.
    #[error("{}: its bytes do not match the checksum in the manifest", place(path, tensor))]
    Altered {
        /// The file.
        path: PathBuf,
        /// Name of the first tensor that differs, if only tensors do.
        tensor: Option<String>,
    },
    /// A checkpoint folder that cannot be used, or not be written as asked.
    #[error("checkpoint {}: {problem}", path.display())]
    Checkpoint {
        /// The folder or the file in it.
        path: PathBuf,
        /// What is wrong and what to do.
        problem: String,
    },
    /// No checkpoint under a run folder can be loaded.
    #[error("no usable checkpoint in {}: {}", root.display(), skipped_list(skipped))]
    NoCheckpoint {
        /// The run folder.
        root: PathBuf,
        /// Those that were tried, newest first.
        skipped: Vec<Skipped>,
    },
    /// The prefetching thread has ended.
    #[error("the data loader has stopped: {problem}; make a new one at position {position}")]
    LoaderStopped {
        /// Why.
        problem: String,
        /// Windows consumed so far.
        position: u64,
    },
}

/// `Result` with the crate's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// For `map_err`: an I/O error with the action and path it belongs to.
    pub(crate) fn io(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { action, path, source }
    }
}

/// A file of a checkpoint, with the tensor in it that an error is about.
fn place(path: &Path, tensor: &Option<String>) -> String {
    match tensor {
        Some(tensor) => format!("{}, tensor \"{tensor}\"", path.display()),
        None => format!("checkpoint {}", path.display()),
    }
}

fn hint(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::NotFound => "; check the path",
        io::ErrorKind::PermissionDenied => "; check its permissions",
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; free some space or set run.out to another disk"
        }
        io::ErrorKind::ReadOnlyFilesystem => "; set run.out to a writable folder",
        _ => "",
    }
}

fn skipped_list(skipped: &[Skipped]) -> String {
    if skipped.is_empty() {
        return "there is none; start a run without resuming".to_owned();
    }
    let mut text = "every one is damaged; start again or restore one from a copy".to_owned();
    for Skipped { path, reason } in skipped {
        let _ = write!(text, "\n  {}: {reason}", path.display());
    }
    text
}
