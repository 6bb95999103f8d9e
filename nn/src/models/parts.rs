//! What the families of language models fill in, and parameters that they share.

use tightrope_core::Tensor;
use tightrope_core::expr::{constant, input};

use super::config::ModelConfig;
use crate::error::Result;
use crate::inputs::POSITIONS;
use crate::layers::{Block, Embedding, Layer};
use crate::params::{Init, Kind, Parameter};
use crate::pass::Pass;

/// The layers of a language model.
#[derive(Debug)]
pub(super) struct Parts {
    /// Tokens.
    pub wte: Embedding,
    /// Positions, where they are learned.
    pub wpe: Option<Embedding>,
    /// Factor on the embedding of tokens.
    pub scale: f64,
    pub blocks: Vec<Block>,
    pub norm_f: Box<dyn Layer>,
    /// Where it isn't the embedding.
    pub head: Option<Parameter>,
}

impl Parts {
    /// Values of the last block for token ids (B, T), (B, T, C), whose embeddings are dropped with probability `dropout`.
    pub fn hidden(&self, pass: &mut Pass<'_>, tokens: Tensor, dropout: f64) -> Result<Tensor> {
        let mut x = self.embed(pass, tokens, dropout)?;
        for (index, block) in self.blocks.iter().enumerate() {
            x = pass.block(index, |pass| block.apply(pass, x))?;
        }
        Ok(x)
    }

    fn embed(&self, pass: &mut Pass<'_>, tokens: Tensor, dropout: f64) -> Result<Tensor> {
        let token = self.wte.apply(pass, tokens)?;
        // As in transformers 5, whose embeddings of Gemma scale themselves: the noise isn't scaled.
        let token = pass.noised(token, 1.0 / self.scale)?;
        let scaled = match self.scale {
            1.0 => input(0),
            scale => input(0) * constant(scale),
        };
        let Some(wpe) = &self.wpe else {
            let formula = pass.dropped(dropout, scaled);
            if formula == input(0) {
                return Ok(token);
            }
            return pass.map(formula, &[token], "embedding");
        };
        let positions = pass.input(POSITIONS)?;
        let position = wpe.apply(pass, positions)?;
        let formula = pass.dropped(dropout, scaled + input(1));
        pass.map(formula, &[token, position], "embedding")
    }
}

/// The embedding or head: (padded vocabulary, C), held by `name` without the padding.
pub(super) fn vocab_rows(own: &str, name: &str, config: &ModelConfig) -> Parameter {
    let shape = [config.padded_vocab(), config.channels];
    let rows = Parameter::new(own, &shape, Init::Normal { std: 0.02 }).of_kind(Kind::Head);
    rows.stored_in([(name.to_owned(), config.vocab)])
}

/// Standard deviation of the weights that end a residual branch, 0.02/√(2L): the stream's variance then
/// doesn't grow with depth (Radford et al. 2019).
pub(super) fn residual_init(config: &ModelConfig) -> Init {
    Init::Normal { std: 0.02 / (2.0 * config.layers as f64).sqrt() }
}
