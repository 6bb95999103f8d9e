//! What the families of language models fill in, and parameters that they share.

use super::config::ModelConfig;
use crate::layers::{Block, Embedding, Layer};
use crate::params::{Init, Kind, Parameter};

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
