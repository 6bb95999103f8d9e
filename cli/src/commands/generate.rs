//! `tightrope generate`: text from a model.

use std::io::{self, IsTerminal as _, Read as _, Write as _};
use std::time::Instant;

use anyhow::{Context as _, anyhow};
use serde_json::json;
use tightrope::data::limits;
use tightrope::generate::Asked;
use tightrope::plain;
use tightrope::settings::Command;
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
    let reader = if args.chat.is_some() { Command::Answer } else { Command::Generate };
    let (loaded, device) = load((args.model.as_deref(), args.best), &args.settings, reader)?;
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
    let prompt = text_of(args.chat.as_deref().unwrap_or(&args.prompt))?;
    let defaults = loaded.generation()?;
    if !defaults.ignored.is_empty() {
        let ignored = defaults.ignored.join(", ");
        output::note(&format!(
            "note: the model's generation_config.json asks for {ignored}, which isn't applied"
        ));
    }
    let mut generator = loaded.generator(device)?;
    let started = Instant::now();
    let (mut text, mut begun) = (String::new(), false);
    let mut out = io::stdout().lock();
    let is_terminal = out.is_terminal();
    // A reader that has closed the pipe has seen enough.
    let mut show = |piece: &str| {
        text.push_str(piece);
        if args.json {
            return true;
        }
        // A prompt goes on in the text; a question doesn't.
        let before = if begun || args.chat.is_some() { "" } else { prompt.as_str() };
        begun = true;
        // A file or a pipe gets the text itself.
        let shown = match is_terminal {
            true => plain::escaped(piece),
            false => piece.into(),
        };
        write!(out, "{before}{shown}").and_then(|()| out.flush()).is_ok()
    };
    let asked = Asked {
        prompt: &prompt,
        max_tokens: args.max_tokens,
        temperature: args.temperature.or(defaults.temperature).unwrap_or(0.8),
        top_k: args.top_k.or(defaults.top_k).unwrap_or(0),
        top_p: args.top_p.or(defaults.top_p).unwrap_or(1.0),
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
            format!("{}\n", plain::escaped_json(&object))
        }
    };
    // As above.
    let _ = out.write_all(end.as_bytes());
    Ok(())
}

/// The text that a flag gives. `-` is standard input, without the line break at its end.
fn text_of(said: &str) -> Result<String, Failure> {
    if said != "-" {
        return Ok(said.to_owned());
    }
    let mut text = String::new();
    let most = limits::DESCRIPTION;
    let read = io::stdin().lock().take(most + 1).read_to_string(&mut text);
    read.context("can't read the text from standard input")?;
    if text.len() as u64 > most {
        return Err(anyhow!("standard input has more than {} MiB", most >> 20).into());
    }
    let text = text.strip_suffix('\n').unwrap_or(&text);
    Ok(text.strip_suffix('\r').unwrap_or(text).to_owned())
}
