//! `Trainer`: a planned training step on a device, one call a step.

mod evaluate;
mod explain;
mod outputs;
mod parts;
mod ranks;
mod state;
mod step;

use std::ops::Range;

use tightrope_core::{Backend, Cancel, DeviceError, Session, SessionError, Tensor};

use crate::error::ensure;
use crate::frozen::BLOCK;
use crate::handles::{Handles, ShorterHandles};
use crate::inputs::{Batch, Input, Values};
use crate::programs::{Planned, TrainerConfig};
use crate::weights::Weights;
use crate::{Lora, LossScale, Parameter, Precision, State, fill_initial, initial_values};

pub use evaluate::{Evaluation, Scored, Scores, Sum};
pub use explain::Cause;

/// Elements of a tensor that go to the device or come back at once, so that the host holds no copy of a whole one; whole
/// blocks of a quantized one.
pub(crate) const PIECE: usize = 1 << 20;
const _: () = assert!(PIECE.is_multiple_of(BLOCK));

/// What one optimizer step came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Mean loss over the step, nats a token where it's a language model's.
    pub loss: f32,
    /// Norm of all gradients before clipping.
    pub grad_norm: f32,
    /// Whether the update was made: loss and norm are finite.
    pub updated: bool,
    /// Factor on the loss in this step, of f16 training.
    pub loss_scale: Option<f32>,
    /// Tokens that it went over, padding included; samples, where they aren't sequences.
    pub tokens: usize,
    /// The model's figures by name, means over the step: see [`crate::Pass::figure`].
    pub metrics: Vec<(String, f32)>,
}

/// What went wrong while training.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// The device or a tensor's size.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// A batch that lacks an input or has another size, or a position outside a cache.
    #[error("a step takes {expected}, got {got}")]
    Batch {
        /// What a step takes.
        expected: String,
        /// What was given.
        got: String,
    },
    /// Saved tensors that don't fit.
    #[error(transparent)]
    Saved(#[from] crate::Error),
}

impl TrainError {
    /// True if somebody asked to stop.
    pub fn is_cancelled(&self) -> bool {
        matches!(self, Self::Session(SessionError::Device(DeviceError::Cancelled)))
    }
}

/// Whose elements are read of a tensor that ranks hold shards of.
#[derive(Clone, Copy)]
pub(crate) enum Of {
    /// Those of all, which ask for the same.
    All,
    /// This rank's.
    #[cfg(not(target_family = "wasm"))]
    Own,
}

/// A planned training step on a device.
pub struct Trainer {
    pub(crate) session: Session,
    config: TrainerConfig,
    /// Which of the ranks this is.
    rank: usize,
    pub(crate) weights: Weights,
    pub(crate) handles: Handles,
    /// Whether inputs that always hold the same numbers hold them: decoding has some of its own there.
    ranges_written: bool,
    /// Which of the passes over shorter sequences the last step made, if any.
    shorter: Option<usize>,
    /// Scales of the pieces so far of the frozen weight that is being written.
    scales_before: Vec<f32>,
    cancel: Cancel,
}

impl Trainer {
    /// Allocates the plan on `backend`. Weights are zeros until they're initialised or set.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`] and [`DeviceError::Compile`]; a plan of which the host keeps a part.
    pub fn new(planned: Planned, backend: Box<dyn Backend>) -> Result<Self, TrainError> {
        ensure(planned.host.is_none(), "memory.offload", || {
            "nothing was given to offload to".to_owned()
        })?;
        let session = Session::new(planned.plan, backend).map_err(SessionError::from)?;
        let Planned { config, weights, handles, .. } = planned;
        Self::of(session, config, weights, handles)
    }

    /// As [`Trainer::new`], of a plan of which `host` keeps a part.
    ///
    /// # Errors
    /// As [`Trainer::new`].
    pub fn offloading(
        planned: Planned,
        backend: Box<dyn Backend>,
        host: Box<dyn Backend + Send>,
    ) -> Result<Self, TrainError> {
        let Some(plan) = planned.host_plan(&*host)? else { return Self::new(planned, backend) };
        let Planned { plan: device, config, weights, handles, .. } = planned;
        let session = Session::offloading(device, backend, (plan, host));
        Self::of(session.map_err(SessionError::from)?, config, weights, handles)
    }

    fn of(
        session: Session,
        config: TrainerConfig,
        weights: Weights,
        handles: Handles,
    ) -> Result<Self, TrainError> {
        let mut trainer = Self {
            session,
            config,
            rank: 0,
            weights,
            handles,
            ranges_written: false,
            shorter: None,
            scales_before: vec![],
            cancel: Cancel::default(),
        };
        trainer.write_ranges()?;
        if let Some(scale) = trainer.handles.loss_scale() {
            trainer.session.write_values(scale.scale, &[LossScale::INITIAL])?;
        }
        Ok(trainer)
    }

    /// Stops what the device computes once `cancel` is requested: [`DeviceError::Cancelled`] says so. An update that has begun is finished.
    pub fn cancel_by(&mut self, cancel: Cancel) {
        self.session.cancel_by(cancel.clone());
        self.cancel = cancel;
    }

    /// What is trained and how.
    pub fn config(&self) -> &TrainerConfig {
        &self.config
    }

    /// The session, for its plan and device.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Parameters that steps change: those of the model that aren't frozen, or its adapters where it has any.
    pub fn parameters(&self) -> &[Parameter] {
        self.weights.trained().0
    }

    /// The parameters of the model and their tensors.
    pub fn weights(&self) -> &Weights {
        &self.weights
    }

    /// Fills every weight from the seed.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn initialise(&mut self) -> Result<(), TrainError> {
        self.initialise_from(self.config.seed)
    }

    /// As [`Trainer::initialise`], with frozen weights from another seed than the run's.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn initialise_from(&mut self, seed: u64) -> Result<(), TrainError> {
        for index in 0..self.weights.parameters().len() {
            if self.weights.trained_at(index).is_none() {
                let parameter = self.weights.parameters()[index].clone();
                in_pieces(&parameter, seed, |first, values| {
                    self.set_frozen_from(index, first, values)
                })?;
            }
        }
        self.initialise_trained()?;
        let learns_lengths = |lora: &Lora| lora.variant.dora;
        if self.config.lora.as_ref().is_some_and(learns_lengths) {
            for index in 0..self.weights.parameters().len() {
                let values = initial_values(&self.weights.parameters()[index], seed);
                self.set_first_lengths(index, &values)?;
            }
        }
        Ok(())
    }

    /// Fills what adapters consist of from the seed. Learned lengths of rows are set with the weight that they are of.
    pub(crate) fn initialise_adapters(&mut self) -> Result<(), TrainError> {
        for index in self.weights.of_adapters() {
            self.initialise_one(index)?;
        }
        Ok(())
    }

    /// Sets learned lengths of the rows of a frozen weight to those of its `values`.
    pub(crate) fn set_first_lengths(
        &mut self,
        index: usize,
        values: &[f32],
    ) -> Result<(), TrainError> {
        let Some(lora) = self.config.lora.clone().filter(|lora| lora.variant.dora) else {
            return Ok(());
        };
        let lengths = lora.first_lengths(self.weights.parameters(), index, values)?;
        for (name, lengths) in lengths {
            let place = self.parameters().iter().position(|parameter| parameter.name == name);
            if let Some(place) = place {
                self.set_weight(place, &lengths)?;
            }
        }
        Ok(())
    }

    /// Fills the weights that steps change from the seed.
    pub(crate) fn initialise_trained(&mut self) -> Result<(), TrainError> {
        (0..self.parameters().len()).try_for_each(|index| self.initialise_one(index))
    }

    fn initialise_one(&mut self, index: usize) -> Result<(), TrainError> {
        let parameter = self.parameters()[index].clone();
        in_pieces(&parameter, self.config.seed, |first, values| {
            self.set_weight_from(index, first, values)
        })
    }

    /// Sets a frozen weight, rounded to how it's stored.
    pub(crate) fn set_frozen(&mut self, index: usize, values: &[f32]) -> Result<(), TrainError> {
        check_length(&self.weights.parameters()[index], values)?;
        for (piece, values) in values.chunks(PIECE).enumerate() {
            self.set_frozen_from(index, piece * PIECE, values)?;
        }
        Ok(())
    }

    /// Sets the elements of a frozen weight from `first` on, which begins a block. Its pieces follow each other.
    fn set_frozen_from(
        &mut self,
        index: usize,
        first: usize,
        values: &[f32],
    ) -> Result<(), TrainError> {
        let weight = self.weights.tensors()[index];
        let Some(quantized) = self.weights.quantized(index) else {
            return Ok(self.session.write_values_from(weight, first, values)?);
        };
        let elements = self.weights.parameters()[index].elements();
        let written = quantized.written((first, elements), values, &mut self.scales_before);
        for (tensor, first, numbers) in written {
            self.session.write_values_from(tensor, first, &numbers)?;
        }
        Ok(())
    }

    /// Sets the f32 master of a weight that steps change.
    ///
    /// # Errors
    /// [`SessionError::Length`] and those of the device.
    pub fn set_weight(&mut self, parameter: usize, master: &[f32]) -> Result<(), TrainError> {
        check_length(&self.parameters()[parameter], master)?;
        for (piece, values) in master.chunks(PIECE).enumerate() {
            self.set_weight_from(parameter, piece * PIECE, values)?;
        }
        Ok(())
    }

    /// Sets the f32 master of a weight from element `first` on.
    fn set_weight_from(
        &mut self,
        parameter: usize,
        first: usize,
        master: &[f32],
    ) -> Result<(), TrainError> {
        let weight = self.weights.trained().1[parameter];
        let held = self.handles.remainders().get(parameter).copied();
        // Without a step, a weight is read as training with a master reads it.
        let splits = held.is_some() || self.handles.step.is_none();
        if self.config.precision == Precision::BF16 && splits {
            let halves = master.iter().map(|&x| tightrope_core::expr::split(x));
            let (high, low): (Vec<f32>, Vec<f32>) =
                halves.map(|(high, low)| (high.to_f32(), f32::from(low))).unzip();
            self.session.write_values_from(weight, first, &high)?;
            if let Some(remainder) = held {
                self.session.write_values_from(remainder, first, &low)?;
            }
            return Ok(());
        }
        self.session.write_values_from(weight, first, master)?;
        if let Some(held) = held {
            self.session.write_values_from(held, first, master)?;
        }
        Ok(())
    }

    /// The f32 master of a weight that steps change.
    ///
    /// # Errors
    /// Errors of the device.
    pub async fn weight(&mut self, parameter: usize) -> Result<Vec<f32>, TrainError> {
        let elements = self.parameters()[parameter].elements();
        self.weight_of(parameter, std::slice::from_ref(&(0..elements)), Of::All).await
    }

    /// These elements of the f32 master of a weight that steps change.
    pub(crate) async fn weight_of(
        &mut self,
        parameter: usize,
        elements: &[Range<usize>],
        of: Of,
    ) -> Result<Vec<f32>, TrainError> {
        let weight = self.weights.trained().1[parameter];
        match (self.config.precision, self.handles.remainders().get(parameter).copied()) {
            (Precision::BF16, Some(remainder)) => {
                let high = self.values_of(weight, elements, of).await?;
                let low = self.values_of(remainder, elements, of).await?;
                let join = tightrope_core::expr::Binary::JoinHalves;
                let joined = high.iter().zip(&low);
                Ok(joined.map(|(&h, &l)| join.apply(h.into(), l.into()) as f32).collect())
            }
            (_, Some(master)) => self.values_of(master, elements, of).await,
            (_, None) => self.values_of(weight, elements, of).await,
        }
    }

    /// These elements of a tensor.
    pub(crate) async fn values_of(
        &mut self,
        tensor: Tensor,
        elements: &[Range<usize>],
        of: Of,
    ) -> Result<Vec<f32>, TrainError> {
        Ok(match of {
            Of::All => self.session.read_values_of(tensor, elements).await?,
            #[cfg(not(target_family = "wasm"))]
            Of::Own => self.session.read_held_values_of(tensor, elements).await?,
        })
    }

    /// Optimizer state tensors.
    pub fn states(&self) -> &[State] {
        self.handles.states()
    }

    /// Values of the state tensor at `index` of [`Trainer::states`].
    ///
    /// # Errors
    /// Errors of the device.
    pub async fn state(&mut self, index: usize) -> Result<Vec<f32>, TrainError> {
        Ok(self.session.read_values(self.handles.states()[index].tensor).await?)
    }

    /// Sets the state tensor at `index` of [`Trainer::states`].
    ///
    /// # Errors
    /// [`SessionError::Length`] and those of the device.
    pub fn set_state(&mut self, index: usize, values: &[f32]) -> Result<(), TrainError> {
        Ok(self.session.write_values(self.handles.states()[index].tensor, values)?)
    }

    /// Gives the device back, for another plan.
    pub fn into_backend(self) -> Box<dyn Backend> {
        self.session.into_backend()
    }

    /// Loss scale and steps since its last change, of f16 training.
    ///
    /// # Errors
    /// Errors of the device.
    pub async fn loss_scale(&mut self) -> Result<Option<[f32; 2]>, TrainError> {
        let Some(LossScale { scale, steps, .. }) = self.handles.loss_scale() else {
            return Ok(None);
        };
        let scale = self.session.read_values(scale).await?[0];
        Ok(Some([scale, self.session.read_values(steps).await?[0]]))
    }

    /// Sets what [`Trainer::loss_scale`] gave.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn set_loss_scale(&mut self, [scale, steps]: [f32; 2]) -> Result<(), TrainError> {
        if let Some(tensors) = self.handles.loss_scale() {
            self.session.write_values(tensors.scale, &[scale])?;
            self.session.write_values(tensors.steps, &[steps])?;
        }
        Ok(())
    }

    /// Number of updates so far, if the optimizer depends on it: skipped steps aren't counted.
    ///
    /// # Errors
    /// Errors of the device.
    pub async fn updates(&mut self) -> Result<Option<u64>, TrainError> {
        let Some(updates) = self.handles.updates() else { return Ok(None) };
        Ok(Some(self.session.read_values(updates).await?[0] as u64))
    }

    /// The passes over shorter sequences.
    fn shorter(&self) -> &[ShorterHandles] {
        self.handles.step.as_ref().map_or(&[], |step| &step.shorter)
    }

    /// The inputs of a pass: of shorter sequences where it's one of theirs.
    fn inputs(&self, shorter: Option<usize>) -> &[(Input, Tensor)] {
        shorter.map_or(&self.handles.inputs, |index| &self.shorter()[index].inputs)
    }

    /// The numbers of each input that `batch` gives, checked to be those of `samples` samples.
    fn checked<'b>(
        &self,
        batch: &Batch<'b>,
        samples: usize,
    ) -> Result<Vec<(usize, Values<'b>)>, TrainError> {
        let inputs = self.handles.inputs.iter().map(|(input, _)| input);
        let values = batch.checked(inputs, samples).map_err(refused)?;
        self.check_ids(&values, samples)?;
        Ok(values)
    }

    /// Checks that ids are in the range that the model takes; an error names the first that isn't.
    fn check_ids(&self, values: &[(usize, Values<'_>)], samples: usize) -> Result<(), TrainError> {
        let whole = (samples / self.config.parts()).max(1);
        for &(index, values) in values {
            let input = &self.handles.inputs[index].0;
            if let (Some(ids), Values::I32(numbers)) = (self.handles.ids[index], values) {
                let each = if input.batched { numbers.len() / whole } else { numbers.len() };
                ids.check(&input.name, numbers, each).map_err(refused)?;
            }
        }
        Ok(())
    }

    /// Writes the model's inputs: of micro-batch `micro`.
    fn write_inputs(
        &mut self,
        shorter: Option<usize>,
        values: &[(usize, Values<'_>)],
        micro: usize,
    ) -> Result<(), TrainError> {
        if !self.ranges_written {
            self.write_ranges()?;
        }
        let inputs = self.inputs(shorter).to_vec();
        self.write_to(&inputs, values, micro)
    }

    /// Writes these inputs: of micro-batch `micro`.
    fn write_to(
        &mut self,
        inputs: &[(Input, Tensor)],
        values: &[(usize, Values<'_>)],
        micro: usize,
    ) -> Result<(), TrainError> {
        for &(index, values) in values {
            let (input, tensor) = &inputs[index];
            let part = match input.batched {
                true => {
                    let elements = input.ty(self.config.micro_batch).elements();
                    values.part(micro * elements..(micro + 1) * elements)
                }
                false => values,
            };
            match part {
                Values::F32(values) => self.session.write_values(*tensor, values)?,
                Values::I32(values) => self.session.write_ids(*tensor, values)?,
            }
        }
        Ok(())
    }

    /// Writes the inputs that always hold the same numbers.
    fn write_ranges(&mut self) -> Result<(), TrainError> {
        let shorter = self.handles.step.iter().flat_map(|step| &step.shorter);
        let of_losses = self.handles.shorter_losses.iter().map(|shorter| &shorter.inputs);
        let all = [&self.handles.inputs].into_iter().chain(shorter.map(|shorter| &shorter.inputs));
        let all = all.chain(of_losses);
        let first = self.first_position();
        for (input, tensor) in all.flatten() {
            if let Some(range) = input.range.clone() {
                let ids: Vec<i32> = range.map(|id| first + id).collect();
                self.session.write_ids(*tensor, &ids)?;
            }
        }
        self.ranges_written = true;
        Ok(())
    }

    /// Bytes that the backend holds for the plan, as [`Backend::allocated_bytes`] measures them.
    pub fn allocated_bytes(&self) -> u64 {
        self.session.backend().allocated_bytes()
    }
}

/// The refusal of a batch by what was expected and what was given.
fn refused([expected, got]: [String; 2]) -> TrainError {
    TrainError::Batch { expected, got }
}

/// The refusal of a program that isn't in the plan.
fn lacking(program: &str) -> TrainError {
    TrainError::Batch { expected: format!("a plan with {program}"), got: "one without".to_owned() }
}

/// Whether there are as many values as a parameter has elements.
fn check_length(parameter: &Parameter, values: &[f32]) -> Result<(), SessionError> {
    if values.len() == parameter.elements() {
        return Ok(());
    }
    let [expected, got] =
        [parameter.elements(), values.len()].map(|count| count * size_of::<f32>());
    Err(SessionError::Length { tensor: parameter.name.clone(), expected, got })
}

/// Each value with the name of its tensor.
fn named(tensors: &[(String, Tensor)], values: &[f32]) -> Vec<(String, f32)> {
    tensors.iter().zip(values).map(|((name, _), &value)| (name.clone(), value)).collect()
}

/// The values that a parameter begins with, a piece at a time with the index of its first element.
fn in_pieces(
    parameter: &Parameter,
    seed: u64,
    mut set: impl FnMut(usize, &[f32]) -> Result<(), TrainError>,
) -> Result<(), TrainError> {
    let elements = parameter.elements();
    let mut values = vec![0.0; elements.min(PIECE)];
    for first in (0..elements).step_by(PIECE) {
        let values = &mut values[..(elements - first).min(PIECE)];
        fill_initial(parameter, seed, first, values);
        set(first, values)?;
    }
    Ok(())
}

impl From<DeviceError> for TrainError {
    fn from(error: DeviceError) -> Self {
        Self::Session(error.into())
    }
}
