//! The programs of what a model gives besides its loss: the logits of a batch, and those of one more token of a text.

use tightrope_core::{Class, DType, Graph, Role, Tensor, Type};

use crate::error::{Error, Result};
use crate::inputs::{Inputs, POSITIONS, START, TOKENS};
use crate::model::Model;
use crate::pass::{BuildOptions, Pass};
use crate::weights::Weights;

/// Tensors of the `decode` program that the host writes and reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decode {
    pub(crate) tokens: Tensor,
    pub(crate) positions: Tensor,
    pub(crate) start: Tensor,
    pub(crate) logits: Tensor,
    /// Tokens that may follow.
    pub(crate) vocab: usize,
}

/// Appends the program of one more token, over caches of so many `positions`.
pub(crate) fn decoding(
    graph: &mut Graph,
    model: &dyn Model,
    weights: &Weights,
    inputs: &Inputs,
    positions: usize,
) -> Result<Decode> {
    let Some(decoder) = model.decoder() else {
        let problem = "the model doesn't continue sequences of tokens".to_owned();
        return Err(Error::Setting { key: "decode", problem });
    };
    graph.begin(Role::Decode);
    let mut ids = |name: &str, shape: &[usize]| {
        graph.persistent(name, Type::new(DType::I32, shape), Class::Input)
    };
    let tokens = ids("decode.tokens", &[1, 1]);
    let decode_positions = ids("decode.positions", &[1]);
    let start = inputs.get(START)?;
    let inputs =
        Inputs::default().with(TOKENS, tokens).with(POSITIONS, decode_positions).with(START, start);
    let logits = graph.scope("decode", |graph| {
        decoder.decode(&mut Pass::decoding(graph, weights, inputs, positions))
    })?;
    graph.result(logits);
    Ok(Decode { tokens, positions: decode_positions, start, logits, vocab: decoder.vocab() })
}

/// Appends the program of a batch's logits.
pub(crate) fn logits(
    graph: &mut Graph,
    model: &dyn Model,
    build: BuildOptions,
    weights: &Weights,
    inputs: &Inputs,
) -> Result<Tensor> {
    graph.begin(Role::Logits);
    let logits = graph.scope("logits", |graph| {
        let mut pass = Pass::evaluation(graph, weights, inputs.clone(), build);
        model.logits(&mut pass)
    })?;
    let logits = logits.ok_or_else(|| Error::Setting {
        key: "model",
        problem: "it has a loss alone, and no logits".to_owned(),
    })?;
    graph.result(logits);
    Ok(logits)
}
