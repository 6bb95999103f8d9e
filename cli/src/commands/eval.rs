//! `tightrope eval`: loss on held-out data, with perplexity of text and accuracy on images.

use serde_json::json;
use tightrope::generate::Scored;
use tightrope::model::Unit;

use super::load;
use crate::args::Eval;
use crate::failure::Failure;
use crate::output;

/// Scores the held-out part of the data, or all of it where nothing is held out. Prints what was scored, loss, perplexity
/// and bits per byte of the text; with `--json`, one object with `loss, perplexity, bits_per_byte, tokens, context, data,
/// model`. Of images, loss and accuracy; the object has `loss, accuracy, images, data, model`.
///
/// # Errors
/// A model or data that can't be read, and those of the device.
pub fn run(args: &Eval) -> Result<(), Failure> {
    let (loaded, device) = load(args.model.as_deref(), &args.settings)?;
    let dir = loaded.dir().to_owned();
    let Scored { evaluation, unit, data, bits_per_byte, seq_len } = loaded.evaluate(device)?;
    if unit != Unit::TOKEN {
        if args.json {
            let mut object = json!({ "loss": evaluation.loss, "data": data, "model": dir });
            object[unit.many] = json!(evaluation.tokens);
            for (name, value) in &evaluation.metrics {
                object[name] = json!(value);
            }
            return output::print_json(&object);
        }
        let mut text = format!("{:<11}{data}\n", "data");
        text += &format!("{:<11}{:.4} nats per {}\n", "loss", evaluation.loss, unit.one);
        for (name, value) in &evaluation.metrics {
            text += &format!("{name:<11}{:.2}%\n", 100.0 * value);
        }
        return output::print(&format!("{text}{:<11}{}\n", unit.many, evaluation.tokens));
    }
    if args.json {
        return output::print_json(&json!({
            "loss": evaluation.loss,
            "perplexity": evaluation.perplexity(),
            "bits_per_byte": bits_per_byte,
            "tokens": evaluation.tokens,
            "context": seq_len,
            "data": data,
            "model": dir,
        }));
    }
    let mut text = format!(
        "data           {data}\nloss           {:.4} nats per token\nperplexity     {:.3}\n",
        evaluation.loss,
        evaluation.perplexity()
    );
    if let Some(bits) = bits_per_byte {
        text += &format!("bits per byte  {bits:.4}\n");
    }
    output::print(&format!("{text}tokens         {}\n", evaluation.tokens))
}
