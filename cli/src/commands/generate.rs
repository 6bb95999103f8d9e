//! `tightrope generate`: text from a model.

use std::io::{self, Write as _};
use std::time::Instant;

use serde_json::json;
use tightrope::generate::Asked;

use super::load;
use crate::args::Generate;
use crate::failure::Failure;

/// Prints the prompt and what the model continues it with, as it comes; with `--json`, one object with
/// `prompt, text, tokens, seconds, tokens_per_s, model`.
///
/// # Errors
/// A model that can't be read, a prompt that it doesn't know, and those of the device.
pub fn run(args: &Generate) -> Result<(), Failure> {
    let (loaded, device) = load(args.model.as_deref(), &args.settings)?;
    let dir = loaded.dir().to_owned();
    let mut generator = loaded.generator(device)?;
    let started = Instant::now();
    let (mut text, mut begun) = (String::new(), false);
    let mut out = io::stdout().lock();
    // A reader that has closed the pipe has seen enough.
    let mut show = |piece: &str| {
        text.push_str(piece);
        if args.json {
            return true;
        }
        let prompt = if begun { "" } else { args.prompt.as_str() };
        begun = true;
        write!(out, "{prompt}{piece}").and_then(|()| out.flush()).is_ok()
    };
    let asked = Asked {
        prompt: &args.prompt,
        max_tokens: args.max_tokens,
        temperature: args.temperature,
        top_k: args.top_k,
        top_p: args.top_p,
    };
    let tokens = generator.generate(&asked, &mut show)?;
    let seconds = started.elapsed().as_secs_f64();
    let end = match args.json {
        false => "\n".to_owned(),
        true => {
            let object = json!({
                "prompt": args.prompt,
                "text": text,
                "tokens": tokens.len(),
                "seconds": seconds,
                "tokens_per_s": tokens.len() as f64 / seconds.max(1e-9),
                "model": dir,
            });
            format!("{object}\n")
        }
    };
    // As above.
    let _ = out.write_all(end.as_bytes());
    Ok(())
}
