//! Weights that a program sets by their names in checkpoints, between two steps.

use std::slice;

use super::{Of, TrainError, Trainer, check_length};
use crate::error::ensure;
use crate::import::Matched;
use crate::model::Model;
use crate::saved::{Place, SavedTensor};
use crate::transpose::transpose;

impl Trainer {
    /// Matches the names of a state dict to [`Trainer::saved_weights`]. Names may be those that other checkpoints of the model have.
    pub fn matched<S: AsRef<str>>(&self, names: impl IntoIterator<Item = S>) -> Matched {
        let own: Vec<String> = self.saved_weights().into_iter().map(|saved| saved.name).collect();
        let model: &dyn Model = &*self.config().model;
        Matched::new((!self.weights.has_adapters()).then_some(model), &own, names)
    }

    /// Sets one of [`Trainer::saved_weights`] to `values`, in the order of its elements in a checkpoint. Optimizer state stays.
    ///
    /// # Errors
    /// Another number of values, a tensor that is no weight or is stored in fewer bits, and errors of the device.
    pub async fn set_saved(
        &mut self,
        saved: &SavedTensor,
        values: &[f32],
    ) -> Result<(), TrainError> {
        let (trained, index, part) = match saved.place {
            Place::Trained { parameter, part } => (true, parameter, part),
            Place::Frozen { parameter, part } => (false, parameter, part),
            Place::State(_) | Place::Updates(_) => {
                return Err(refused(format!("`{}` is optimizer state", saved.name)));
            }
        };
        let list = if trained { self.parameters() } else { self.weights.parameters() };
        let description = list[index].clone();
        let (columns, part) = (description.columns(), description.parts[part].clone());
        let within = part.rows.start * columns..part.rows.end * columns;
        ensure(values.len() == within.len(), "model", || {
            format!("`{}` has {} elements, not {}", saved.name, within.len(), values.len())
        })?;
        let is_quantized = !trained && self.weights.quantized(index).is_some();
        ensure(!is_quantized, "model", || {
            format!("`{}` is stored in fewer bits and can't be set by itself", saved.name)
        })?;
        let mut all = match (within.len() == description.elements(), trained) {
            (true, _) => vec![0.0; within.len()],
            (false, true) => self.weight(index).await?,
            (false, false) => {
                let tensor = self.weights.tensors()[index];
                let whole = 0..description.elements();
                self.values_of(tensor, slice::from_ref(&whole), Of::All).await?
            }
        };
        match part.transposed {
            true => transpose(values, part.rows.len(), &mut all[within], columns),
            false => all[within].copy_from_slice(values),
        }
        check_length(&description, &all)?;
        match trained {
            true => self.set_weight(index, &all),
            false => self.set_frozen(index, &all),
        }
    }
}

fn refused(problem: String) -> TrainError {
    TrainError::Saved(crate::Error::Setting { key: "model", problem })
}
