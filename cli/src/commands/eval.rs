//! `tightrope eval`: loss on held-out data, with perplexity of text and accuracy on images.

use serde_json::json;
use tightrope::generate::Scored;
use tightrope::model::Unit;

use super::load;
use crate::args::Eval;
use crate::failure::Failure;
use crate::output;

/// Scores the held-out part of the data, or all of it where nothing is held out. Prints loss, perplexity
/// and, for a model of bytes, bits per byte; with `--json`, one object with `loss, perplexity,
/// bits_per_byte, tokens, context, model`. Of images, loss and accuracy; the object has `loss, accuracy, images,
/// model`.
///
/// # Errors
/// A model or data that can't be read, and those of the device.
pub fn run(args: &Eval) -> Result<(), Failure> {
    let (loaded, device) = load(args.model.as_deref(), &args.settings)?;
    let dir = loaded.dir().to_owned();
    let Scored { evaluation, unit, of_bytes, seq_len } = loaded.evaluate(device)?;
    if unit != Unit::TOKEN {
        if args.json {
            let mut object = json!({ "loss": evaluation.loss, "model": dir });
            object[unit.many] = json!(evaluation.tokens);
            for (name, value) in &evaluation.metrics {
                object[name] = json!(value);
            }
            return output::print_json(&object);
        }
        let mut text = format!("{:<11}{:.4} nats per {}\n", "loss", evaluation.loss, unit.one);
        for (name, value) in &evaluation.metrics {
            text += &format!("{name:<11}{:.2}%\n", 100.0 * value);
        }
        return output::print(&format!("{text}{:<11}{}\n", unit.many, evaluation.tokens));
    }
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
