//! Loss on held-out data.

use pollster::block_on;
use tightrope_data::{IGNORED, Tokens, Windows};
use tightrope_nn::{Batch, Trainer};

use crate::error::{Failure, Help as _};

/// What an evaluation came to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Evaluation {
    /// Mean over the tokens, nats a token.
    pub loss: f64,
    /// Tokens that were predicted.
    pub tokens: usize,
}

impl Evaluation {
    /// e to the loss.
    pub fn perplexity(&self) -> f64 {
        self.loss.exp()
    }

    /// The loss in bits, which for a model of bytes is bits per byte.
    pub fn bits(&self) -> f64 {
        self.loss / std::f64::consts::LN_2
    }
}

/// Mean loss over `tokens` in order, every one but the first predicted once, or over the first windows
/// that hold `most` of them. `None` where there is nothing to predict.
///
/// # Errors
/// Those of the device and of the files.
pub fn held_out(
    trainer: &mut Trainer,
    tokens: &Tokens,
    most: Option<usize>,
) -> Result<Option<Evaluation>, Failure> {
    if tokens.len() < 2 {
        return Ok(None);
    }
    let config = trainer.config();
    let (batch, time) = (config.micro_batch, config.model.tokens());
    let batches = most.map(|most| (most / (batch * time)).max(1));
    let windows = Windows::new(tokens.clone(), batch, time, batches).help("check data.holdout")?;
    let (mut sum, mut counted) = (0.0, 0);
    for batch in windows {
        let batch = batch.help("restore the data")?;
        let scored = batch.targets.iter().filter(|&&target| target != IGNORED).count();
        let found = block_on(trainer.evaluate(&Batch::text(&batch.inputs, &batch.targets)))
            .help("try again, or choose another device")?;
        sum += f64::from(found.loss) * scored as f64;
        counted += scored;
    }
    Ok(Some(Evaluation { loss: sum / counted.max(1) as f64, tokens: counted }))
}
