//! `tightrope generate`: text from a model.

use std::io::{self, Write as _};
use std::time::Instant;

use anyhow::anyhow;
use serde_json::json;
use tightrope_nn::{Offload, Optimizer, Planned, Sampling, Trainer, TrainerConfig};

use crate::args::Generate;
use crate::error::{Failure, Help as _};
use crate::run::source::Source;
use crate::run::{directory, sample};
use crate::{devices, setup};

/// Prints the prompt and what the model continues it with, as it comes; with `--json`, one object with
/// `prompt, text, tokens, seconds, tokens_per_s, model`.
///
/// # Errors
/// A model that can't be read, a prompt that it doesn't know, and those of the device.
pub fn run(args: &Generate) -> Result<(), Failure> {
    let path = args.model.clone().map_or_else(directory::newest, Ok)?;
    let source = Source::open(&path)?;
    for note in &source.notes {
        eprintln!("note: {note}");
    }
    let settings = source.settings(&args.settings)?;
    let tokenizer = source.tokenizer(&settings)?;
    let config = setup::trainer_config_of(&settings, source.config.clone())?;
    let device = devices::device(&settings)?;
    // The smallest training step there is, without optimizer state: only `decode` is replayed.
    let config = TrainerConfig {
        batch: 1,
        micro_batch: 1,
        model: source.config.build(1).map_err(setup::refused)?,
        optimizer: Optimizer::Sgd { momentum: 0.0 },
        offload: Offload::NONE,
        ..config
    };
    let planned = Planned::new(&config, &*device).map_err(setup::refused)?;
    let mut trainer = Trainer::new(planned, device).map_err(setup::train_failure)?;
    source.load(&mut trainer, &settings)?;
    let prompt = tokenizer.encode(&args.prompt).help("give another --prompt")?;
    if prompt.is_empty() {
        return Err(Failure::usage(
            anyhow!("the prompt is empty"),
            "give --prompt some text to continue, or leave it out",
        ));
    }
    let sampling = Sampling {
        temperature: args.temperature,
        top_k: args.top_k,
        top_p: args.top_p,
        seed: settings.train.seed,
        draw: 0,
    };
    let started = Instant::now();
    let mut text = String::new();
    let mut out = io::stdout().lock();
    // A reader that has closed the pipe has seen enough.
    let mut write = |piece: &str| {
        args.json || out.write_all(piece.as_bytes()).and_then(|()| out.flush()).is_ok()
    };
    let count = if write(&args.prompt) { args.max_tokens } else { 0 };
    let mut show = |piece: &str| {
        text.push_str(piece);
        write(piece)
    };
    let tokens = sample::generate(&mut trainer, &tokenizer, &prompt, count, &sampling, &mut show)?;
    write("\n");
    let seconds = started.elapsed().as_secs_f64();
    if args.json {
        let object = json!({
            "prompt": args.prompt,
            "text": text,
            "tokens": tokens.len(),
            "seconds": seconds,
            "tokens_per_s": tokens.len() as f64 / seconds.max(1e-9),
            "model": source.dir,
        });
        // As above.
        let _ = writeln!(out, "{object}");
    }
    Ok(())
}
