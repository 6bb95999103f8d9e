//! What a trainer gives besides a batch's loss: logits, the loss of each sample, the next token's, and the tensors of a step that are watched.

use tightrope_core::Role;

use super::{TrainError, Trainer, lacking};
use crate::handles::LossesHandles;
use crate::import::{Exported, export};
use crate::inputs::Batch;
use crate::outputs::Decode;
use crate::watch::{GRADIENT, Watched};
use crate::weights::matches;

impl Trainer {
    /// The logits of a batch of micro-batch size, without dropout, and their shape: of a trainer that was planned with
    /// [`crate::TrainerConfig::logits`].
    ///
    /// # Errors
    /// [`TrainError::Batch`], a plan without logits, and those of the device.
    pub async fn logits(
        &mut self,
        batch: &Batch<'_>,
    ) -> Result<(Vec<f32>, Vec<usize>), TrainError> {
        let Some(logits) = self.handles.logits else {
            return Err(lacking("logits"));
        };
        let values = self.checked(batch, self.config().micro_batch)?;
        self.write_inputs(None, &values, 0)?;
        self.session.run(Role::Logits)?;
        let shape = self.session.plan().graph.ty(logits).shape.clone();
        Ok((self.session.read_values(logits).await?, shape))
    }

    /// The loss of each sample of a batch of micro-batch size, without dropout: of a trainer that was planned with
    /// [`crate::TrainerConfig::losses`].
    ///
    /// # Errors
    /// As [`Trainer::logits`].
    pub async fn losses(&mut self, batch: &Batch<'_>) -> Result<Vec<f32>, TrainError> {
        let Some(losses) = self.handles.losses else {
            return Err(lacking("losses"));
        };
        let samples = self.config().micro_batch;
        let refused = match self.checked(batch, samples) {
            Ok(values) => {
                self.write_inputs(None, &values, 0)?;
                self.session.run(Role::Losses)?;
                return Ok(self.session.read_values(losses).await?);
            }
            Err(refused) => refused,
        };
        let fitting = self.handles.shorter_losses.iter().find_map(|shorter| {
            let inputs = shorter.inputs.iter().map(|(input, _)| input);
            Some((shorter.clone(), batch.checked(inputs, samples).ok()?))
        });
        let Some((LossesHandles { program, inputs, losses }, values)) = fitting else {
            return Err(refused);
        };
        self.write_to(&inputs, &values, 0)?;
        self.session.run_at(program).await?;
        Ok(self.session.read_values(losses).await?)
    }

    /// Logits after `token` at `position`, given that all positions before it were decoded since the last
    /// step or evaluation. Real vocabulary only.
    ///
    /// # Errors
    /// [`TrainError::Batch`] where the position is past the cache, and those of the device.
    pub async fn decode(&mut self, token: i32, position: usize) -> Result<Vec<f32>, TrainError> {
        let Decode { logits, vocab, .. } = self.feed(token, position)?;
        let mut logits = self.session.read_values(logits).await?;
        logits.truncate(vocab);
        Ok(logits)
    }

    /// As [`Trainer::decode`], for a token whose logits nobody needs: doesn't wait for the device.
    pub(crate) fn feed(&mut self, token: i32, position: usize) -> Result<Decode, TrainError> {
        let capacity = self.config().decode;
        let Some(decode) = self.handles.decode.filter(|_| position < capacity) else {
            return Err(TrainError::Batch {
                expected: format!("positions below {capacity}"),
                got: position.to_string(),
            });
        };
        // The start is the training pass's too.
        self.ranges_written = false;
        self.session.write_ids(decode.tokens, &[token])?;
        self.session.write_ids(decode.start, &[position as i32])?;
        self.session.write_ids(decode.positions, &[position as i32])?;
        self.session.run(Role::Decode)?;
        Ok(decode)
    }

    /// What steps keep for the host: see [`crate::TrainerConfig::watch`].
    pub fn watched(&self) -> &[Watched] {
        self.handles.step.as_ref().map_or(&[], |step| &step.watched)
    }

    /// The values that the last step left in each tensor of [`Trainer::watched`]. What runs after the step takes their place.
    ///
    /// # Errors
    /// Those of the device.
    pub async fn watched_values(&mut self) -> Result<Vec<Vec<f32>>, TrainError> {
        let mut values = vec![];
        for index in 0..self.watched().len() {
            let tensor = self.watched()[index].tensor;
            values.push(self.session.read_values(tensor).await?);
        }
        Ok(values)
    }

    /// As [`Trainer::watched_values`], with gradients in the names, shapes and layouts that checkpoints have their weights in: only
    /// those that are asked for, of a parameter that several tensors of a checkpoint make up.
    ///
    /// # Errors
    /// Errors of the device.
    pub async fn watched_exported(&mut self) -> Result<Vec<Exported>, TrainError> {
        let all = self.watched_values().await?;
        let mut exported = vec![];
        for (Watched { name, shape, .. }, values) in self.watched().iter().zip(all) {
            let of = name.strip_prefix(GRADIENT);
            let parameter = of.and_then(|of| self.parameters().iter().find(|it| it.name == of));
            let Some(parameter) = parameter.filter(|it| !it.parts.is_empty()) else {
                let (name, shape) = (name.clone(), shape.clone());
                exported.push(Exported { name, shape, values });
                continue;
            };
            let is_asked = |part: &Exported| {
                let patterns = &self.config().watch;
                let mut names = [name, &part.name].into_iter();
                names.any(|name| patterns.iter().any(|it| matches(it.as_bytes(), name.as_bytes())))
            };
            let parts = export(parameter, &values).into_iter();
            let parts = parts.map(|it| Exported { name: format!("{GRADIENT}{}", it.name), ..it });
            exported.extend(parts.filter(is_asked));
        }
        Ok(exported)
    }
}
