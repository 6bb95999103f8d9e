//! `tightrope eval`.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::SettingArgs;

/// `tightrope eval`
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  tightrope eval runs/a
  tightrope eval runs/a --data other.txt --set data.holdout=0.5
  tightrope eval models/gpt2 --texts wiki.txt --stride 512
  tightrope eval models/gpt2 --choices hellaswag_val.jsonl
  tightrope eval runs/reviews --predict new.jsonl --text-key review")]
pub struct Eval {
    /// Run, checkpoint (directory or .tar) or Hugging Face directory; without it, the newest run
    #[arg(value_hint = ValueHint::AnyPath)]
    pub model: Option<PathBuf>,
    /// Take the checkpoint of the run with the lowest held-out loss, which train --keep-best keeps
    #[arg(long)]
    pub best: bool,
    /// Score every token of these texts once: perplexity by token, word and byte. A file is a document, as is a row of .jsonl,
    /// .json and .parquet
    #[arg(long, value_name = "FILES", num_args = 1.., value_hint = ValueHint::FilePath)]
    pub texts: Vec<PathBuf>,
    /// Tokens from a window of --texts to the next; without it, the context, so that windows don't overlap
    #[arg(long, value_name = "N", requires = "texts")]
    pub stride: Option<usize>,
    /// Score questions of multiple choice, in rows of HellaSwag or ARC
    #[arg(long, value_name = "FILES", num_args = 1.., conflicts_with = "texts", value_hint = ValueHint::FilePath)]
    pub choices: Vec<PathBuf>,
    /// Print the class of each of these texts, by a model that classifies them. A file is a text, as is a row of .jsonl, .json and .parquet
    #[arg(long, value_name = "FILES", num_args = 1.., conflicts_with_all = ["texts", "choices"], value_hint = ValueHint::FilePath)]
    pub predict: Vec<PathBuf>,
    /// Print the results as one JSON object on stdout
    #[arg(long)]
    pub json: bool,
    /// Settings, over those of the run.
    #[command(flatten)]
    pub settings: SettingArgs,
}
