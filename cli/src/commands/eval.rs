//! `tightrope eval`: loss and perplexity on held-out data.

use anyhow::anyhow;
use serde_json::json;
use tightrope_data::Tokenizer;
use tightrope_nn::{Offload, Optimizer, Trainer, TrainerConfig};

use crate::args::Eval;
use crate::error::Failure;
use crate::run::corpus::Data;
use crate::run::source::Source;
use crate::run::{directory, evaluate};
use crate::{devices, setup};

/// Scores the held-out part of the data, or all of it where nothing is held out. Prints loss, perplexity
/// and, for a model of bytes, bits per byte; with `--json`, one object with `loss, perplexity,
/// bits_per_byte, tokens, context, model`.
///
/// # Errors
/// A model or data that can't be read, and those of the device.
pub fn run(args: &Eval) -> Result<(), Failure> {
    let path = args.model.clone().map_or_else(directory::newest, Ok)?;
    let source = Source::open(&path)?;
    for note in &source.notes {
        eprintln!("note: {note}");
    }
    let settings = source.settings(&args.settings)?;
    let tokenizer = source.tokenizer(&settings)?;
    let data = Data::open(&settings, tokenizer, source.config.vocab, source.own_texts(&settings)?)?;
    let config = setup::trainer_config_of(&settings, source.config.clone())?;
    let device = devices::device(&settings)?;
    // Nothing is trained, so no optimizer state is kept.
    let optimizer = Optimizer::Sgd { momentum: 0.0 };
    let config = TrainerConfig { optimizer, decode: 0, offload: Offload::NONE, ..config };
    let planned = setup::planned_of(&settings, config, &*device)?;
    let mut trainer = Trainer::new(planned, device).map_err(setup::train_failure)?;
    source.load(&mut trainer, &settings)?;
    let tokens = if settings.data.holdout > 0.0 { &data.held_out } else { &data.train };
    let Some(evaluation) = evaluate::held_out(&mut trainer, tokens, None)? else {
        return Err(Failure::usage(
            anyhow!("nothing is held out: the held-out part has {} tokens", tokens.len()),
            "raise data.holdout, or give more --data",
        ));
    };
    let bytes = matches!(data.tokenizer, Tokenizer::Byte);
    if args.json {
        let object = json!({
            "loss": evaluation.loss,
            "perplexity": evaluation.perplexity(),
            "bits_per_byte": bytes.then(|| evaluation.bits()),
            "tokens": evaluation.tokens,
            "context": trainer.config().model.tokens(),
            "model": source.dir,
        });
        println!("{object}");
        return Ok(());
    }
    println!("loss           {:.4} nats per token", evaluation.loss);
    println!("perplexity     {:.3}", evaluation.perplexity());
    if bytes {
        println!("bits per byte  {:.4}", evaluation.bits());
    }
    println!("tokens         {}", evaluation.tokens);
    Ok(())
}
