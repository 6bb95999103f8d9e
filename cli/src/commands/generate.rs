//! `tightrope generate`: text from a model.

use std::io::{self, Write as _};
use std::time::Instant;

use serde_json::json;
use tightrope::generate::Asked;
use tightrope::view::brief;

use super::load;
use crate::args::Generate;
use crate::failure::Failure;
use crate::output;

/// Prints the prompt and what the model continues it with, or its answer, as it comes; with `--json`, one object with
/// `prompt, text, tokens, seconds, tokens_per_s, peak_bytes, model`. With `--dry-run`, the plan's bytes alone.
///
/// # Errors
/// A model that can't be read, a prompt that it doesn't know, and those of the device.
pub fn run(args: &Generate) -> Result<(), Failure> {
    let (loaded, device) = load(args.model.as_deref(), &args.settings)?;
    let dir = loaded.dir().to_owned();
    if args.dry_run {
        let plan = loaded.plan_generator(&*device)?.plan;
        return match args.json {
            true => output::print_json(&json!({
                "peak_bytes": plan.peak_bytes(),
                "by_class": plan.report().by_class,
                "model": dir,
            })),
            false => output::print(&format!("{}\n", brief::memory(&plan))),
        };
    }
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
        // A prompt goes on in the text; a question doesn't.
        let prompt = if begun || args.chat.is_some() { "" } else { args.prompt.as_str() };
        begun = true;
        write!(out, "{prompt}{piece}").and_then(|()| out.flush()).is_ok()
    };
    let prompt = args.chat.as_deref().unwrap_or(&args.prompt);
    let asked = Asked {
        prompt,
        max_tokens: args.max_tokens,
        temperature: args.temperature,
        top_k: args.top_k,
        top_p: args.top_p,
    };
    let tokens = match args.chat {
        Some(_) => generator.answer(&asked, &mut show)?,
        None => generator.generate(&asked, &mut show)?,
    };
    let seconds = started.elapsed().as_secs_f64();
    let end = match args.json {
        false => "\n".to_owned(),
        true => {
            let object = json!({
                "prompt": prompt,
                "text": text,
                "tokens": tokens.len(),
                "seconds": seconds,
                "tokens_per_s": tokens.len() as f64 / seconds.max(1e-9),
                "peak_bytes": generator.peak_bytes(),
                "model": dir,
            });
            format!("{object}\n")
        }
    };
    // As above.
    let _ = out.write_all(end.as_bytes());
    Ok(())
}
