//! `tightrope eval`: loss and perplexity on held-out data.

use serde_json::json;
use tightrope::generate::Scored;

use super::load;
use crate::args::Eval;
use crate::failure::Failure;
use crate::output;

/// Scores the held-out part of the data, or all of it where nothing is held out. Prints loss, perplexity
/// and, for a model of bytes, bits per byte; with `--json`, one object with `loss, perplexity,
/// bits_per_byte, tokens, context, model`.
///
/// # Errors
/// A model or data that can't be read, and those of the device.
pub fn run(args: &Eval) -> Result<(), Failure> {
    let (loaded, device) = load(args.model.as_deref(), &args.settings)?;
    let dir = loaded.dir().to_owned();
    let Scored { evaluation, of_bytes, seq_len } = loaded.evaluate(device)?;
    if args.json {
        return output::print_json(&json!({
            "loss": evaluation.loss,
            "perplexity": evaluation.perplexity(),
            "bits_per_byte": of_bytes.then(|| evaluation.bits()),
            "tokens": evaluation.tokens,
            "context": seq_len,
            "model": dir,
        }));
    }
    let mut text = format!(
        "loss           {:.4} nats per token\nperplexity     {:.3}\n",
        evaluation.loss,
        evaluation.perplexity()
    );
    if of_bytes {
        text += &format!("bits per byte  {:.4}\n", evaluation.bits());
    }
    output::print(&format!("{text}tokens         {}\n", evaluation.tokens))
}
