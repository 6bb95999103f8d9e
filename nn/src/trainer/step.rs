//! A step of a trainer: its passes over micro-batches, its update, and what it came to.

use tightrope_core::{DeviceError, Role, SessionError, Tensor, now};

use super::parts::in_order;
use super::{Outcome, TrainError, Trainer, lacking, named};
use crate::handles::{ShorterHandles, StepHandles};
use crate::inputs::{Batch, Values};
use crate::noise::{self, Noise};
use crate::share::{Factors, Turn};

impl Trainer {
    /// Queues one optimizer step, counted from 0, at learning rate `lr`, over the samples of `batch`: as many as a step
    /// takes, of which each micro-step of each rank takes its part. Random numbers are those of `step`; bias corrections are of the
    /// number of updates, which the device counts.
    ///
    /// # Errors
    /// [`TrainError::Batch`] and those of the device.
    pub fn step(&mut self, step: u64, lr: f64, batch: &Batch<'_>) -> Result<(), TrainError> {
        now(self.step_async(step, lr, batch))
    }

    /// As [`Trainer::step`], also where a browser's device is offloaded from: it waits for copies to the host. A step that
    /// [stops](Trainer::cancel_by) before its update has begun is dropped: the trainer is in the state before it.
    ///
    /// # Errors
    /// As [`Trainer::step`].
    pub async fn step_async(
        &mut self,
        step: u64,
        lr: f64,
        batch: &Batch<'_>,
    ) -> Result<(), TrainError> {
        let done = self.passes_and_update(step, lr, batch).await;
        if done.as_ref().is_err_and(TrainError::is_cancelled) {
            self.clear_gradients()?;
        }
        done
    }

    async fn passes_and_update(
        &mut self,
        step: u64,
        lr: f64,
        batch: &Batch<'_>,
    ) -> Result<(), TrainError> {
        let (shorter, values) = self.of_length(batch)?;
        let ordered = self.by_pass(&values);
        let values = in_order(&values, &ordered);
        let sums = self.step_handles()?.loss_sum.is_some();
        let factors = self.factors(shorter, &values)?;
        let noise = self.noise_of(shorter, batch)?;
        self.write_scalars(step, lr)?;
        let program = self.pass_program(shorter, sums)?;
        self.shorter = shorter;
        for micro in self.own_passes() {
            self.cancel.check().map_err(DeviceError::from)?;
            self.write_pass(step, (shorter, &values), (&factors, &noise), micro)?;
            self.session.run_at(program).await?;
        }
        if sums {
            self.session.run_async(Role::Update).await?;
        }
        if self.config.clears() {
            self.session.run(Role::Clear)?;
        }
        Ok(())
    }

    /// Which of a step's micro-batches this rank takes: ranks take turns, so that all of them add up in their order where each pass is
    /// summed over ranks.
    pub(super) fn own_passes(&self) -> impl Iterator<Item = usize> + use<> {
        (self.rank..self.config.passes()).step_by(self.config.ranks.max(1))
    }

    /// Which samples of a batch this rank takes, or has its part of.
    pub fn own_samples(&self) -> Vec<bool> {
        let mut own = vec![false; self.config.batch];
        for pass in self.own_passes() {
            let first = pass / self.config.parts() * self.config.micro_batch;
            own[first..first + self.config.micro_batch].fill(true);
        }
        own
    }

    /// Sets the sums of gradients to 0, as the update leaves them.
    fn clear_gradients(&mut self) -> Result<(), TrainError> {
        let Some(step) = &self.handles.step else { return Ok(()) };
        for &tensor in &step.accumulators {
            let bytes = vec![0; self.session.plan().graph.ty(tensor).bytes()];
            self.session.write(tensor, &bytes)?;
        }
        Ok(())
    }

    fn write_scalars(&mut self, step: u64, lr: f64) -> Result<(), TrainError> {
        let Some(handles) = &self.handles.step else { return Ok(()) };
        let scalars = handles.update.scalars;
        self.session.write_values(scalars.lr, &[lr as f32])?;
        let update_key = handles.update_key;
        if let Some(sum) = handles.loss_sum {
            self.session.write_values(sum, &[0.0])?;
            for &(_, sum) in &handles.metrics {
                self.session.write_values(sum, &[0.0])?;
            }
        }
        // As one process has it that takes all passes: by the last.
        let last = self.config.passes().saturating_sub(1);
        self.write_key(update_key, step, [last, self.rank()])
    }

    /// The tensors of a training step.
    pub(super) fn step_handles(&self) -> Result<&StepHandles, TrainError> {
        self.handles.step.as_ref().ok_or_else(|| lacking("a training step"))
    }

    /// Factors of the passes over a batch with these numbers.
    pub(super) fn factors(
        &self,
        shorter: Option<usize>,
        values: &[(usize, Values<'_>)],
    ) -> Result<Factors, TrainError> {
        let shares = match shorter {
            Some(index) => &self.shorter()[index].shares,
            None => &self.step_handles()?.shares,
        };
        Ok(shares.of_batch(values)?)
    }

    /// Index of the program of a pass, which adds to `sums` or is a whole step.
    pub(super) fn pass_program(
        &self,
        shorter: Option<usize>,
        sums: bool,
    ) -> Result<usize, TrainError> {
        let role = if sums { Role::Micro } else { Role::Train };
        Ok(match shorter {
            Some(index) => self.shorter()[index].program,
            None => self.session.plan().graph.program(role).map_err(SessionError::from)?,
        })
    }

    /// The numbers of a step's batch, and the pass over shorter sequences that they are for, if any.
    #[expect(clippy::type_complexity, reason = "a pass and what it reads")]
    pub(super) fn of_length<'b>(
        &self,
        batch: &Batch<'b>,
    ) -> Result<(Option<usize>, Vec<(usize, Values<'b>)>), TrainError> {
        let samples = self.config.batch * self.config.parts();
        let whole = self.checked(batch, samples);
        let Err(refused) = whole else { return whole.map(|values| (None, values)) };
        let found = self.shorter().iter().enumerate().find_map(|(index, shorter)| {
            let inputs = shorter.inputs.iter().map(|(input, _)| input);
            Some((Some(index), batch.checked(inputs, samples).ok()?))
        });
        let (shorter, values) = found.ok_or(refused)?;
        self.check_ids(&values, samples)?;
        Ok((shorter, values))
    }

    /// Writes what the pass over micro-batch `micro` of a step reads.
    pub(super) fn write_pass(
        &mut self,
        step: u64,
        (shorter, values): (Option<usize>, &[(usize, Values<'_>)]),
        (factors, noise): (&Factors, &[f32]),
        micro: usize,
    ) -> Result<(), TrainError> {
        self.write_inputs(shorter, values, micro)?;
        let (size, passes) = (self.config.micro_batch, self.config.passes());
        let turn = Turn { samples: micro * size..(micro + 1) * size, times: 1, passes };
        for (tensor, values) in factors.written(&turn) {
            self.session.write_values(tensor, &values)?;
        }
        if let Some(Noise { key, bounds }) = self.step_handles()?.noise {
            let own = self.session.plan().graph.ty(bounds).elements();
            self.session.write_values(bounds, &noise[micro * own..(micro + 1) * own])?;
            // Numbers are counted through the passes of the step.
            self.write_key(Some(key), step, [0, micro])?;
        }
        self.write_key(self.step_handles()?.key, step, [micro, self.rank()])
    }

    /// Bounds of the noise on each sequence of `batch`; none without noise.
    pub(super) fn noise_of(
        &self,
        shorter: Option<usize>,
        batch: &Batch<'_>,
    ) -> Result<Vec<f32>, TrainError> {
        let handles = self.step_handles()?;
        if handles.noise.is_none() {
            return Ok(vec![]);
        }
        let tokens =
            shorter.map_or(self.config.model.tokens(), |index| handles.shorter[index].tokens);
        let each = self.config.sequences();
        let shape = [self.config.batch * each, tokens / each];
        Ok(noise::bounds(self.config.neftune, batch, shape))
    }

    /// Writes the `key` of random numbers of a step, where there is one: in a micro-batch, of a rank's shard.
    fn write_key(
        &mut self,
        key: Option<Tensor>,
        step: u64,
        [micro, shard]: [usize; 2],
    ) -> Result<(), TrainError> {
        if let Some(key) = key {
            let seed = self.config.seed;
            let words = [seed as u32, (seed >> 32) as u32, step as u32, micro as u32, shard as u32];
            let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            bytes.truncate(self.session.plan().graph.ty(key).bytes());
            self.session.write(key, &bytes)?;
        }
        Ok(())
    }

    /// Waits for the last step and says what it came to.
    ///
    /// # Errors
    /// Those of the device.
    pub async fn outcome(&mut self) -> Result<Outcome, TrainError> {
        let step = self.step_handles()?;
        let (scalars, tokens, metrics) = match self.shorter {
            Some(index) => {
                let ShorterHandles { loss, grad_norm, ok, tokens, ref metrics, .. } =
                    step.shorter[index];
                ([loss, grad_norm, ok], self.config.batch * tokens, metrics)
            }
            None => {
                let scalars = [step.loss, step.update.grad_norm, step.update.ok];
                (scalars, self.config.tokens(), &step.metrics)
            }
        };
        let (mut read, metrics) = (scalars.to_vec(), metrics.clone());
        read.extend(metrics.iter().map(|&(_, figure)| figure));
        let loss_scale = self.handles.loss_scale();
        read.extend(loss_scale.map(|scale| scale.used));
        let scalars = self.session.read_scalars(&read).await?;
        Ok(Outcome {
            loss: scalars[0],
            grad_norm: scalars[1],
            updated: scalars[2] != 0.0,
            loss_scale: loss_scale.and_then(|_| scalars.last().copied()),
            tokens,
            metrics: named(&metrics, &scalars[3..]),
        })
    }
}
