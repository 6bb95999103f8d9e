//! `Trainer`: a planned training step on a device, one call a step.

mod outputs;

use std::ops::Range;

use tightrope_core::{Backend, DeviceError, NonFinite, Role, Session, SessionError, Tensor, now};

use crate::error::ensure;
use crate::inputs::{Batch, Values};
use crate::lora::BLOCK;
use crate::programs::{Handles, Planned, TrainerConfig};
use crate::weights::Weights;
use crate::{LossScale, Parameter, Precision, State, fill_initial, lora};

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
    /// The model's figures by name, means over the step: see [`crate::Pass::figure`].
    pub metrics: Vec<(String, f32)>,
}

/// What evaluating a batch gave.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evaluation {
    /// Mean loss over what counts in it.
    pub loss: f32,
    /// The model's metrics by name: see [`crate::Pass::metric`].
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

/// A planned training step on a device.
pub struct Trainer {
    pub(crate) session: Session,
    config: TrainerConfig,
    pub(crate) weights: Weights,
    pub(crate) handles: Handles,
    /// Whether inputs that always hold the same numbers hold them: decoding has some of its own there.
    ranges_written: bool,
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
        let mut trainer = Self { session, config, weights, handles, ranges_written: false };
        trainer.write_ranges()?;
        if let Some(scale) = trainer.handles.loss_scale {
            trainer.session.write_values(scale.scale, &[LossScale::INITIAL])?;
        }
        Ok(trainer)
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
    /// Those of the device.
    pub fn initialise(&mut self) -> Result<(), TrainError> {
        self.initialise_from(self.config.seed)
    }

    /// As [`Trainer::initialise`], with frozen weights from another seed than the run's.
    ///
    /// # Errors
    /// Those of the device.
    pub fn initialise_from(&mut self, seed: u64) -> Result<(), TrainError> {
        for index in 0..self.weights.parameters().len() {
            if self.weights.trained_at(index).is_none() {
                let parameter = self.weights.parameters()[index].clone();
                in_pieces(&parameter, seed, |first, values| {
                    self.set_frozen_from(index, first, values)
                })?;
            }
        }
        self.initialise_trained()
    }

    /// Fills the weights that steps change from the seed.
    pub(crate) fn initialise_trained(&mut self) -> Result<(), TrainError> {
        for index in 0..self.parameters().len() {
            let parameter = self.parameters()[index].clone();
            in_pieces(&parameter, self.config.seed, |first, values| {
                self.set_weight_from(index, first, values)
            })?;
        }
        Ok(())
    }

    /// Sets a frozen weight, rounded to how it's stored.
    pub(crate) fn set_frozen(&mut self, index: usize, values: &[f32]) -> Result<(), TrainError> {
        self.check_length(self.weights.tensors()[index], values)?;
        for (piece, values) in values.chunks(PIECE).enumerate() {
            self.set_frozen_from(index, piece * PIECE, values)?;
        }
        Ok(())
    }

    /// Sets the elements of a frozen weight from `first` on, which begins a block.
    fn set_frozen_from(
        &mut self,
        index: usize,
        first: usize,
        values: &[f32],
    ) -> Result<(), TrainError> {
        let weight = self.weights.tensors()[index];
        let Some(scales) = self.weights.scales(index) else {
            return Ok(self.session.write_values_from(weight, first, values)?);
        };
        let (quantized, scale) = lora::quantize(lora::CODEBOOK, values);
        self.session.write_values_from(weight, first, &quantized)?;
        Ok(self.session.write_values_from(scales, first / BLOCK, &scale)?)
    }

    /// Sets the f32 master of a weight that steps change.
    ///
    /// # Errors
    /// [`SessionError::Length`] and those of the device.
    pub fn set_weight(&mut self, parameter: usize, master: &[f32]) -> Result<(), TrainError> {
        self.check_length(self.weights.trained().1[parameter], master)?;
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
        match (self.config.precision, self.handles.remainders.get(parameter)) {
            (Precision::BF16, Some(&remainder)) => {
                let halves = master.iter().map(|&x| tightrope_core::expr::split(x));
                let (high, low): (Vec<f32>, Vec<f32>) =
                    halves.map(|(high, low)| (high.to_f32(), f32::from(low))).unzip();
                self.session.write_values_from(weight, first, &high)?;
                self.session.write_values_from(remainder, first, &low)?;
            }
            (_, held) => {
                self.session.write_values_from(weight, first, master)?;
                if let Some(&held) = held {
                    self.session.write_values_from(held, first, master)?;
                }
            }
        }
        Ok(())
    }

    /// Whether there are as many values as a tensor has elements.
    fn check_length(&self, tensor: Tensor, values: &[f32]) -> Result<(), SessionError> {
        let info = self.session.plan().graph.info(tensor);
        let (elements, size) = (info.ty.elements(), info.ty.dtype.size());
        if values.len() == elements {
            return Ok(());
        }
        let (expected, got) = (elements * size, values.len() * size);
        Err(SessionError::Length { tensor: info.name.clone(), expected, got })
    }

    /// The f32 master of a weight that steps change.
    ///
    /// # Errors
    /// Those of the device.
    pub async fn weight(&mut self, parameter: usize) -> Result<Vec<f32>, TrainError> {
        let elements = self.parameters()[parameter].elements();
        self.weight_of(parameter, std::slice::from_ref(&(0..elements))).await
    }

    /// These elements of the f32 master of a weight that steps change.
    pub(crate) async fn weight_of(
        &mut self,
        parameter: usize,
        elements: &[Range<usize>],
    ) -> Result<Vec<f32>, TrainError> {
        let weight = self.weights.trained().1[parameter];
        match (self.config.precision, self.handles.remainders.get(parameter).copied()) {
            (Precision::BF16, Some(remainder)) => {
                let high = self.session.read_values_of(weight, elements).await?;
                let low = self.session.read_values_of(remainder, elements).await?;
                let join = tightrope_core::expr::Binary::JoinHalves;
                let joined = high.iter().zip(&low);
                Ok(joined.map(|(&h, &l)| join.apply(h.into(), l.into()) as f32).collect())
            }
            (_, Some(master)) => Ok(self.session.read_values_of(master, elements).await?),
            (_, None) => Ok(self.session.read_values_of(weight, elements).await?),
        }
    }

    /// Optimizer state tensors.
    pub fn states(&self) -> &[State] {
        &self.handles.update.state
    }

    /// Values of the state tensor at `index` of [`Trainer::states`].
    ///
    /// # Errors
    /// Those of the device.
    pub async fn state(&mut self, index: usize) -> Result<Vec<f32>, TrainError> {
        Ok(self.session.read_values(self.handles.update.state[index].tensor).await?)
    }

    /// Sets the state tensor at `index` of [`Trainer::states`].
    ///
    /// # Errors
    /// [`SessionError::Length`] and those of the device.
    pub fn set_state(&mut self, index: usize, values: &[f32]) -> Result<(), TrainError> {
        Ok(self.session.write_values(self.handles.update.state[index].tensor, values)?)
    }

    /// Gives the device back, for another plan.
    pub fn into_backend(self) -> Box<dyn Backend> {
        self.session.into_backend()
    }

    /// Loss scale and steps since its last change, of f16 training.
    ///
    /// # Errors
    /// Those of the device.
    pub async fn loss_scale(&mut self) -> Result<Option<[f32; 2]>, TrainError> {
        let Some(LossScale { scale, steps }) = self.handles.loss_scale else { return Ok(None) };
        let scale = self.session.read_values(scale).await?[0];
        Ok(Some([scale, self.session.read_values(steps).await?[0]]))
    }

    /// Sets what [`Trainer::loss_scale`] gave.
    ///
    /// # Errors
    /// Those of the device.
    pub fn set_loss_scale(&mut self, [scale, steps]: [f32; 2]) -> Result<(), TrainError> {
        if let Some(tensors) = self.handles.loss_scale {
            self.session.write_values(tensors.scale, &[scale])?;
            self.session.write_values(tensors.steps, &[steps])?;
        }
        Ok(())
    }

    /// Queues one optimizer step, counted from 0, at learning rate `lr`, over the samples of `batch`: as many as a step
    /// takes, of which each micro-step takes its part.
    ///
    /// # Errors
    /// [`TrainError::Batch`] and those of the device.
    pub fn step(&mut self, step: u64, lr: f64, batch: &Batch<'_>) -> Result<(), TrainError> {
        now(self.step_async(step, lr, batch))
    }

    /// As [`Trainer::step`], also where a browser's device is offloaded from: it waits for what comes to the host.
    ///
    /// # Errors
    /// As [`Trainer::step`].
    pub async fn step_async(
        &mut self,
        step: u64,
        lr: f64,
        batch: &Batch<'_>,
    ) -> Result<(), TrainError> {
        self.step_unless(step, lr, batch, &mut || false).await.map(|_| ())
    }

    /// As [`Trainer::step_async`], but asks `stop` before every micro-batch. Once it says so, the step is
    /// abandoned and the trainer is as before it, and `false` comes back.
    ///
    /// # Errors
    /// As [`Trainer::step`].
    pub async fn step_unless(
        &mut self,
        step: u64,
        lr: f64,
        batch: &Batch<'_>,
        stop: &mut dyn FnMut() -> bool,
    ) -> Result<bool, TrainError> {
        let values = self.checked(batch, self.config.batch)?;
        self.write_scalars(step, lr)?;
        let program = if self.handles.loss_sum.is_some() { Role::Micro } else { Role::Train };
        for micro in 0..self.config.accumulation() {
            if stop() {
                self.clear_gradients()?;
                return Ok(false);
            }
            self.write_inputs(&values, micro)?;
            self.write_key(step, micro)?;
            self.session.run_async(program).await?;
        }
        if self.handles.loss_sum.is_some() {
            self.session.run_async(Role::Update).await?;
        }
        if self.config.clears() {
            self.session.run(Role::Clear)?;
        }
        Ok(true)
    }

    /// Sets the sums of gradients to 0, as the update leaves them.
    fn clear_gradients(&mut self) -> Result<(), TrainError> {
        for index in 0..self.handles.accumulators.len() {
            let tensor = self.handles.accumulators[index];
            let bytes = vec![0; self.session.plan().graph.ty(tensor).bytes()];
            self.session.write(tensor, &bytes)?;
        }
        Ok(())
    }

    fn write_scalars(&mut self, step: u64, lr: f64) -> Result<(), TrainError> {
        let scalars = self.handles.update.scalars;
        self.session.write_values(scalars.lr, &[lr as f32])?;
        let corrections = self.config.optimizer.corrections(step + 1);
        if let (Some(tensors), Some(values)) = (scalars.corrections, corrections) {
            for (tensor, value) in tensors.into_iter().zip(values) {
                self.session.write_values(tensor, &[value as f32])?;
            }
        }
        if let Some(sum) = self.handles.loss_sum {
            self.session.write_values(sum, &[0.0])?;
            for &(_, sum) in &self.handles.step_metrics {
                self.session.write_values(sum, &[0.0])?;
            }
        }
        Ok(())
    }

    /// The numbers of each input that `batch` gives, checked to be those of `samples` samples.
    fn checked<'b>(
        &self,
        batch: &Batch<'b>,
        samples: usize,
    ) -> Result<Vec<(usize, Values<'b>)>, TrainError> {
        let inputs = self.handles.inputs.iter().map(|(input, _)| input);
        let of_error = |[expected, got]: [String; 2]| TrainError::Batch { expected, got };
        batch.checked(inputs, samples).map_err(of_error)
    }

    /// Writes what the pass over micro-batch `micro` of a batch reads.
    fn write_inputs(
        &mut self,
        values: &[(usize, Values<'_>)],
        micro: usize,
    ) -> Result<(), TrainError> {
        if !self.ranges_written {
            self.write_ranges()?;
        }
        for &(index, values) in values {
            let (input, tensor) = &self.handles.inputs[index];
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
        for (input, tensor) in &self.handles.inputs {
            if let Some(range) = input.range.clone() {
                self.session.write_ids(*tensor, &range.collect::<Vec<_>>())?;
            }
        }
        self.ranges_written = true;
        Ok(())
    }

    fn write_key(&mut self, step: u64, micro: usize) -> Result<(), TrainError> {
        if let Some(key) = self.handles.key {
            let seed = self.config.seed;
            let words = [seed as u32, (seed >> 32) as u32, step as u32, micro as u32];
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            self.session.write(key, &bytes)?;
        }
        Ok(())
    }

    /// Waits for the last step and says what it came to.
    ///
    /// # Errors
    /// Those of the device.
    pub async fn outcome(&mut self) -> Result<Outcome, TrainError> {
        let Handles { loss, ref update, step_metrics: ref metrics, .. } = self.handles;
        let mut read = vec![loss, update.grad_norm, update.ok];
        read.extend(metrics.iter().map(|&(_, figure)| figure));
        let scalars = self.session.read_scalars(&read).await?;
        Ok(Outcome {
            loss: scalars[0],
            grad_norm: scalars[1],
            updated: scalars[2] != 0.0,
            metrics: named(metrics, &scalars[3..]),
        })
    }

    /// Runs a step that wasn't updated again, op by op, and names the first output that isn't finite.
    ///
    /// # Errors
    /// Those of the device.
    pub async fn explain(
        &mut self,
        step: u64,
        batch: &Batch<'_>,
    ) -> Result<Option<NonFinite>, TrainError> {
        let values = self.checked(batch, self.config.batch)?;
        let program = match self.handles.loss_sum {
            Some(sum) => {
                // The sum still holds what went wrong.
                self.session.write_values(sum, &[0.0])?;
                Role::Micro
            }
            None => Role::Train,
        };
        for micro in 0..self.config.accumulation() {
            self.write_inputs(&values, micro)?;
            self.write_key(step, micro)?;
            if let Some(found) = self.session.first_non_finite(program).await? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// The loss and metrics of one batch of micro-batch size, without dropout.
    ///
    /// # Errors
    /// [`TrainError::Batch`] and those of the device.
    pub async fn evaluate(&mut self, batch: &Batch<'_>) -> Result<Evaluation, TrainError> {
        let values = self.checked(batch, self.config.micro_batch)?;
        self.write_inputs(&values, 0)?;
        self.session.run(Role::Eval)?;
        let Handles { eval_loss, ref metrics, .. } = self.handles;
        let read: Vec<Tensor> =
            [eval_loss].into_iter().chain(metrics.iter().map(|&(_, figure)| figure)).collect();
        let figures = self.session.read_scalars(&read).await?;
        Ok(Evaluation { loss: figures[0], metrics: named(metrics, &figures[1..]) })
    }

    /// Bytes that the backend holds for the plan, as [`Backend::allocated_bytes`] measures them.
    pub fn allocated_bytes(&self) -> u64 {
        self.session.backend().allocated_bytes()
    }
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
