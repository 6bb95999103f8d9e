//! The programs of what a model gives besides its loss: the logits of a batch, the loss of each of its samples, and the logits of one
//! more token of a text.

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
    // A model of packed sequences reads the place of each token, and no start.
    let start = inputs.get(START).unwrap_or_else(|_| ids("decode.start", &[1]));
    let inputs =
        Inputs::default().with(TOKENS, tokens).with(POSITIONS, decode_positions).with(START, start);
    let logits = graph.scope("decode", |graph| {
        decoder.decode(&mut Pass::decoding(graph, weights, inputs, positions))
    })?;
    graph.result(logits);
    Ok(Decode { tokens, positions: decode_positions, start, logits, vocab: decoder.vocab() })
}

/// What of a batch a program gives.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Output {
    /// [`Model::logits`].
    Logits,
    /// [`Model::losses`].
    Losses,
}

impl Output {
    /// Appends the program that gives it.
    pub(crate) fn program(
        self,
        graph: &mut Graph,
        model: &dyn Model,
        build: BuildOptions,
        weights: &Weights,
        inputs: &Inputs,
    ) -> Result<Tensor> {
        let (role, lacks) = match self {
            Self::Logits => (Role::Logits, "it has a loss alone, and no logits"),
            Self::Losses => (Role::Losses, "its loss is of whole batches, and not of each sample"),
        };
        graph.begin(role);
        let found = graph.scope(role.name(), |graph| {
            let mut pass = Pass::evaluation(graph, weights, inputs.clone(), build);
            match self {
                Self::Logits => model.logits(&mut pass),
                Self::Losses => model.losses(&mut pass),
            }
        })?;
        let problem = lacks.to_owned();
        let found = found.ok_or(Error::Setting { key: "model", problem })?;
        graph.result(found);
        Ok(found)
    }
}
