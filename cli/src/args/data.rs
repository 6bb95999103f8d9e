//! `tightrope data` and `tightrope tokenizer`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

use super::SettingArgs;

/// `tightrope data`
#[derive(Debug, Subcommand)]
pub enum Data {
    /// Show rows of conversations as training sees them: which tokens are trained on, lengths, rows that are cut or left out
    Show(DataShow),
    /// Write texts as files of token ids, which --data reads without encoding them again
    Tokenize(Tokenize),
}

/// `tightrope data show`
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  tightrope data show chats.jsonl --init models/llama-3-instruct
  tightrope data show chats.jsonl --chat-template chatml --rows 20 --html chats.html")]
pub struct DataShow {
    /// Files, folders and globs of conversations
    #[arg(required = true, value_name = "FILES", value_hint = ValueHint::FilePath)]
    pub files: Vec<PathBuf>,
    /// Rows to show
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub rows: usize,
    /// Write them as a page, which needs no network, and not on stdout
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub html: Option<PathBuf>,
    /// Print them as one JSON object on stdout
    #[arg(long)]
    pub json: bool,
    /// Settings.
    #[command(flatten)]
    pub settings: SettingArgs,
}

/// `tightrope data tokenize`
#[derive(Debug, Args)]
#[command(after_long_help = "Example:
  tightrope data tokenize books/ --tokenizer gpt2 --out shards
  tightrope train --preset gpt2 --data shards")]
pub struct Tokenize {
    /// Files, folders and globs of texts
    #[arg(required = true, value_name = "FILES", value_hint = ValueHint::FilePath)]
    pub files: Vec<PathBuf>,
    /// New directory
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub out: PathBuf,
    /// Print the results as one JSON object on stdout
    #[arg(long)]
    pub json: bool,
    /// Settings.
    #[command(flatten)]
    pub settings: SettingArgs,
}

/// `tightrope tokenizer`
#[derive(Debug, Subcommand)]
pub enum Tokenizer {
    /// Learn the byte pairs of texts, and write them as a tokenizer.json
    Train(TokenizerTrain),
}

/// `tightrope tokenizer train`
#[derive(Debug, Args)]
#[command(after_long_help = "Example:
  tightrope tokenizer train books/ --vocab 16384 --out tokenizers/books
  tightrope train --tokenizer tokenizers/books --data books/")]
pub struct TokenizerTrain {
    /// Files, folders and globs of texts or conversations
    #[arg(required = true, value_name = "FILES", value_hint = ValueHint::FilePath)]
    pub files: Vec<PathBuf>,
    /// Tokens of the vocabulary: 256 bytes, the end of text, and what is learnt
    #[arg(long, value_name = "N")]
    pub vocab: usize,
    /// New directory
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub out: PathBuf,
    /// Field or column that holds the text in .jsonl, .json and .parquet files
    #[arg(long, value_name = "NAME", default_value = "text")]
    pub text_key: String,
    /// Print the results as one JSON object on stdout
    #[arg(long)]
    pub json: bool,
}
