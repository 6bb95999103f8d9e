//! `tightrope export`.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::SettingArgs;

/// `tightrope export`
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  tightrope export runs/a models/a --precision bf16
  tightrope export runs/a models/a --best
  tightrope export runs/adapters models/merged --merge")]
pub struct Export {
    /// Run, checkpoint (directory or .tar) or Hugging Face directory
    #[arg(value_hint = ValueHint::AnyPath)]
    pub model: PathBuf,
    /// New directory
    #[arg(value_hint = ValueHint::DirPath)]
    pub out: PathBuf,
    /// Take the checkpoint of the run with the lowest held-out loss, which train --keep-best keeps
    #[arg(long)]
    pub best: bool,
    /// Add adapters to the weights that they are beside
    #[arg(long)]
    pub merge: bool,
    /// Settings: where weights and adapters lie, and the type of the numbers.
    #[command(flatten)]
    pub settings: SettingArgs,
}
