//! Batches that a program hands over, one before each step.

use std::sync::{Arc, Mutex, PoisonError};

use tightrope::Result;
use tightrope::data::{DataState, Source};
use tightrope::nn::{Done, TrainerConfig};
use tightrope::run::{Batches, Samples};

/// Where the next batch is put.
#[derive(Clone, Debug, Default)]
pub struct Slot(Arc<Mutex<Option<Samples>>>);

impl Slot {
    /// Puts the batch of the next step there.
    pub fn put(&self, batch: Samples) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(batch);
    }
}

/// What is put into a slot.
pub struct Fed(pub Slot);

impl Batches for Fed {
    fn batch(&mut self, _: &TrainerConfig, _: Done) -> Result<Samples> {
        let slot = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A step without a batch names the input that it lacks.
        Ok(slot.clone().unwrap_or_else(|| Samples::new(0)))
    }

    fn state(&self, samples: u64) -> DataState {
        let program = Source::new("the program", 0);
        DataState::new(samples, &[program], "none", 0.0)
    }

    fn describe(&self) -> String {
        "what the program gives".to_owned()
    }
}
