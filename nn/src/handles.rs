//! The tensors of a plan that the host writes and reads.

use tightrope_core::Tensor;
use tightrope_core::batch::Mixed;

use crate::figure::Figure;
use crate::inputs::{Ids, Input};
use crate::noise::Noise;
use crate::outputs::Decode;
use crate::share::Shares;
use crate::watch::Watched;
use crate::weights::Weights;
use crate::{LossScale, State, Update};

/// Tensors that the host writes and reads.
#[derive(Clone, Debug)]
pub(crate) struct Handles {
    /// The model's inputs, each with its tensor.
    pub(crate) inputs: Vec<(Input, Tensor)>,
    /// Range of the ids of each input; `None` for an input that no op reads as ids.
    pub(crate) ids: Vec<Option<Ids>>,
    /// Those of a training step, where there is one.
    pub(crate) step: Option<StepHandles>,
    /// Those of the loss alone, where there is its program.
    pub(crate) eval: Option<EvalHandles>,
    pub(crate) decode: Option<Decode>,
    pub(crate) logits: Option<Tensor>,
    pub(crate) losses: Option<Tensor>,
    /// Those of losses of shorter sequences, where nothing is trained.
    pub(crate) shorter_losses: Vec<LossesHandles>,
}

/// Tensors of a training step.
#[derive(Clone, Debug)]
pub(crate) struct StepHandles {
    /// Key of random numbers, where a step draws any.
    pub(crate) key: Option<Tensor>,
    /// That of the update, where several ranks draw the same numbers.
    pub(crate) update_key: Option<Tensor>,
    /// Noise on embeddings, where there is some.
    pub(crate) noise: Option<Noise>,
    /// Shares of the passes of a step.
    pub(crate) shares: Shares,
    pub(crate) loss: Tensor,
    pub(crate) loss_sum: Option<Tensor>,
    /// What a step reads besides the loss, by name: sums where the loss is one.
    pub(crate) metrics: Vec<(String, Tensor)>,
    /// Gradients that micro-steps add to; none where a step is one micro-batch.
    pub(crate) accumulators: Vec<Tensor>,
    /// Master remainders of what is trained; none in f32.
    pub(crate) remainders: Vec<Tensor>,
    pub(crate) update: Update,
    pub(crate) loss_scale: Option<LossScale>,
    /// What steps keep for the host.
    pub(crate) watched: Vec<Watched>,
    /// Weights of the model's teacher.
    pub(crate) teacher: Option<Weights>,
    /// Those of passes over shorter sequences.
    pub(crate) shorter: Vec<ShorterHandles>,
}

/// Tensors of a pass over shorter sequences.
#[derive(Clone, Debug)]
pub(crate) struct ShorterHandles {
    /// Index of its program.
    pub(crate) program: usize,
    /// The model's inputs, each with its tensor.
    pub(crate) inputs: Vec<(Input, Tensor)>,
    /// Tokens of a sample.
    pub(crate) tokens: usize,
    /// As in [`StepHandles`].
    pub(crate) shares: Shares,
    /// As in [`StepHandles`].
    pub(crate) loss: Tensor,
    pub(crate) metrics: Vec<(String, Tensor)>,
    /// As in [`Update`].
    pub(crate) grad_norm: Tensor,
    pub(crate) ok: Tensor,
}

/// Tensors of the loss of each of a batch of shorter sequences.
#[derive(Clone, Debug)]
pub(crate) struct LossesHandles {
    /// Index of its program.
    pub(crate) program: usize,
    /// The model's inputs, each with its tensor.
    pub(crate) inputs: Vec<(Input, Tensor)>,
    pub(crate) losses: Tensor,
}

/// Tensors of the loss alone.
#[derive(Clone, Debug)]
pub(crate) struct EvalHandles {
    /// How passes add up to what is evaluated, or what mixes its samples. Figures by row add up by themselves.
    pub(crate) shares: Result<Shares, Mixed>,
    pub(crate) loss: Figure,
    /// What is read besides the loss, by name.
    pub(crate) metrics: Vec<(String, Figure)>,
}

impl Handles {
    /// Optimizer state; none where nothing is trained.
    pub(crate) fn states(&self) -> &[State] {
        self.step.as_ref().map_or(&[], |step| &step.update.state)
    }

    /// Number of updates so far, if the optimizer depends on it.
    pub(crate) fn updates(&self) -> Option<Tensor> {
        self.step.as_ref().and_then(|step| step.update.updates)
    }

    /// Master remainders of what is trained; none in f32, and where nothing is trained.
    pub(crate) fn remainders(&self) -> &[Tensor] {
        self.step.as_ref().map_or(&[], |step| &step.remainders)
    }

    /// The loss scale of f16 training.
    pub(crate) fn loss_scale(&self) -> Option<LossScale> {
        self.step.as_ref().and_then(|step| step.loss_scale)
    }
}
