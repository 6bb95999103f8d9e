//! `tightrope generate`.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::SettingArgs;

/// `tightrope generate`
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  tightrope generate runs/a --prompt 'Once upon a time' --max-tokens 200
  tightrope generate runs/a --best --prompt 'Once upon a time'
  tightrope generate models/gpt2 --prompt Hello --temperature 0
  tightrope generate models/gpt2 --weight-bits 4 --dry-run
  tightrope generate models/llama-3-instruct --chat 'Why is the sky blue?'
  tightrope generate models/llama-3-instruct --chat - < conversation.json")]
pub struct Generate {
    /// Run, checkpoint (directory or .tar) or Hugging Face directory; without it, the newest run
    #[arg(value_hint = ValueHint::AnyPath)]
    pub model: Option<PathBuf>,
    /// Take the checkpoint of the run with the lowest held-out loss, which train --keep-best keeps
    #[arg(long)]
    pub best: bool,
    /// Text to continue; - reads it from standard input
    #[arg(long, value_name = "TEXT", default_value = "\n", hide_default_value = true)]
    pub prompt: String,
    /// Text to answer: written by the model's chat template as what a user says; or a conversation in JSON, as rows of data have it: '[{"role":
    /// "user", "content": "Hi"}]'; - reads it from standard input
    #[arg(long, value_name = "TEXT", conflicts_with = "prompt")]
    pub chat: Option<String>,
    /// Tokens to generate
    #[arg(long, value_name = "N", default_value_t = 256)]
    pub max_tokens: usize,
    /// Randomness; 0 always takes the likeliest token [default: that of the model's generation_config.json, else 0.8]
    #[arg(long, value_name = "X", value_parser = temperature)]
    pub temperature: Option<f64>,
    /// Draw from the K likeliest tokens only; 0 is all of them [default: that of generation_config.json, else 0]
    #[arg(long, value_name = "K")]
    pub top_k: Option<usize>,
    /// Draw from the likeliest tokens that together have this probability [default: that of generation_config.json, else 1]
    #[arg(long, value_name = "P", value_parser = probability)]
    pub top_p: Option<f64>,
    /// Show the memory that it would take, and run nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Print the text as one JSON object on stdout
    #[arg(long)]
    pub json: bool,
    /// Settings, over those of the run. `--seed` is the seed of the draw.
    #[command(flatten)]
    pub settings: SettingArgs,
}

fn temperature(text: &str) -> Result<f64, String> {
    let value = text.parse::<f64>().ok().filter(|x| x.is_finite() && *x >= 0.0);
    value.ok_or_else(|| "must be a number, 0 or more".to_owned())
}

fn probability(text: &str) -> Result<f64, String> {
    let value = text.parse::<f64>().ok().filter(|x| *x > 0.0 && *x <= 1.0);
    value.ok_or_else(|| "must be a number above 0 and at most 1".to_owned())
}
