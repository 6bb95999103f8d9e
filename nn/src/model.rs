//! `Model`: what a network says of itself, and nothing of how it's trained.

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

use tightrope_core::Tensor;

use crate::error::Result;
use crate::inputs::Input;
use crate::params::Parameter;
use crate::pass::Pass;

/// A network that can be trained. It lists its parameters and inputs, and appends its loss to a graph through
/// [`crate::layers`]; planning, training, checkpoints, adapters and offloading follow from that.
///
/// ```
/// use tightrope_core::{DType, Tensor};
/// use tightrope_nn::layers::{self, Activation, Layer, Linear};
/// use tightrope_nn::{Input, Model, Parameter, Pass, Result};
///
/// #[derive(Debug)]
/// struct Curve {
///     up: Linear,
///     down: Linear,
/// }
///
/// impl Model for Curve {
///     fn parameters(&self) -> Vec<Parameter> {
///         layers::parameters([&self.up as &dyn Layer, &self.down])
///     }
///
///     fn inputs(&self) -> Vec<Input> {
///         vec![Input::new("x", DType::F32, &[1]), Input::new("y", DType::F32, &[1])]
///     }
///
///     fn loss(&self, pass: &mut Pass<'_>) -> Result<Tensor> {
///         let (x, y) = (pass.input("x")?, pass.input("y")?);
///         let hidden = self.up.apply(pass, x)?;
///         let hidden = Activation::Gelu.apply(pass, hidden, "active")?;
///         let found = self.down.apply(pass, hidden)?;
///         layers::mean_squared_error(pass, found, y)
///     }
/// }
///
/// let curve = Curve { up: Linear::new("up", 1, 32), down: Linear::new("down", 32, 1) };
/// assert_eq!(curve.parameters().iter().map(Parameter::elements).sum::<usize>(), 97);
/// ```
pub trait Model: Any + Debug + Send + Sync {
    /// Its parameters, each under a name of its own, in an order that stays.
    fn parameters(&self) -> Vec<Parameter>;

    /// What a pass reads.
    fn inputs(&self) -> Vec<Input>;

    /// Appends the loss of a batch, f32 (1).
    ///
    /// A batch is cut into passes, of several ranks or within a budget, where the loss is a sum over samples: means over rows or over labels
    /// that count, sums of several such with weights, and what doesn't depend on the batch. How passes add up follows from the graph, so that
    /// no number depends on the plan. What mixes samples otherwise, such as a square of a mean, isn't cut.
    ///
    /// # Errors
    /// Ops that don't take their inputs, and layers whose parameters aren't listed.
    fn loss(&self, pass: &mut Pass<'_>) -> Result<Tensor>;

    /// Appends the scores that the loss is about, f32, for whoever compares them; `None` where it has none.
    ///
    /// # Errors
    /// As [`Model::loss`].
    fn logits(&self, _pass: &mut Pass<'_>) -> Result<Option<Tensor>> {
        Ok(None)
    }

    /// Appends the loss of each sample, f32 (B): means over what counts in it, 0 where nothing does. `None` where it has none to tell
    /// apart.
    ///
    /// # Errors
    /// As [`Model::loss`].
    fn losses(&self, _pass: &mut Pass<'_>) -> Result<Option<Tensor>> {
        Ok(None)
    }

    /// The model as one that continues a sequence of tokens, where it is one.
    fn decoder(&self) -> Option<&dyn Decoder> {
        None
    }

    /// Tokens of a sample, which throughput is counted in; 1 where samples aren't sequences.
    fn tokens(&self) -> usize {
        1
    }

    /// Tokens of a sequence, where a sample is several: else those of a sample.
    fn seq_len(&self) -> usize {
        self.tokens()
    }

    /// This model over sequences of so many tokens, with the same parameters; `None` where it has no sequences.
    ///
    /// # Errors
    /// Sequences that are empty, or longer than it takes.
    fn with_seq_len(&self, _seq_len: usize) -> Result<Option<Arc<dyn Model>>> {
        Ok(None)
    }

    /// This model over the parts of sequences that each of so many ranks has, with the same parameters: positions meet each other in
    /// [`crate::layers::Attention`] alone, and the inputs that batches don't give are positions. `None` where it isn't so.
    ///
    /// # Errors
    /// Sequences that can't be cut into so many equal parts.
    fn with_context_ranks(&self, _ranks: usize) -> Result<Option<Arc<dyn Model>>> {
        Ok(None)
    }

    /// The model that it learns of while it's trained, by [`Pass::teacher`]. Its weights are frozen and in no checkpoint. It reads
    /// the same inputs.
    fn teacher(&self) -> Option<&dyn Model> {
        None
    }

    /// What names in other checkpoints may begin with, and may lack.
    fn prefix(&self) -> &str {
        ""
    }

    /// The name of a tensor that other checkpoints call `name`, where older ones call it otherwise.
    fn renamed(&self, _name: &str) -> Option<String> {
        None
    }

    /// Whether a run that starts from another checkpoint may make the tensor of this name there anew, where the checkpoint lacks it:
    /// that of a head for another purpose.
    fn made_anew(&self, _name: &str) -> bool {
        false
    }

    /// The name of the tensor that `name` in another checkpoint is the same as, where a checkpoint may hold either: of weights that are shared.
    /// The tensor of this name is passed over where the other is there.
    fn shared_with(&self, _name: &str) -> Option<&str> {
        None
    }

    /// Whether a tensor of this name in another checkpoint, of which the model has no parameter, may be passed over.
    fn passes_over(&self, _name: &str) -> bool {
        false
    }

    /// Descriptions of the inputs and of the ops of its loss, one line each. Checkpoints hold them, and a run goes on only with the
    /// same ones. Empty if the model describes none, as where settings do.
    fn ops(&self) -> Vec<String> {
        vec![]
    }
}

/// A model that continues a sequence of tokens, over caches of keys and values.
pub trait Decoder {
    /// Tokens that may follow.
    fn vocab(&self) -> usize;

    /// Appends a pass over S new positions, whose keys and values join the caches, and gives the logits after the last of
    /// them, f32 (B, 1, at least the vocabulary).
    ///
    /// The pass has three inputs: [`crate::inputs::TOKENS`], I32 (B, S), [`crate::inputs::POSITIONS`], I32 (S), and
    /// [`crate::inputs::START`], the position of the first of them, I32 (1).
    ///
    /// # Errors
    /// As [`Model::loss`], and more positions in the caches than the model has.
    fn decode(&self, pass: &mut Pass<'_>) -> Result<Tensor>;
}
