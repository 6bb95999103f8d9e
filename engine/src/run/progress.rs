//! Progress of a checkpoint that takes long to write.

use std::cell::RefCell;
use std::time::Duration;

use tightrope_nn::Trainer;
use web_time::Instant;

use crate::units::human_bytes;

/// Time between two lines.
const BETWEEN: Duration = Duration::from_secs(5);

/// The bytes of a checkpoint, as they're written.
pub(super) struct Progress<'a> {
    step: u64,
    /// Bytes of all tensors.
    all: u64,
    state: RefCell<State<'a>>,
}

struct State<'a> {
    written: u64,
    told: Instant,
    tell: &'a mut dyn FnMut(&str),
}

impl<'a> Progress<'a> {
    /// Of the checkpoint of `step`, told to `tell` from now on.
    pub fn new(trainer: &Trainer, step: u64, tell: &'a mut dyn FnMut(&str)) -> Self {
        let saved = trainer.saved_weights().into_iter().chain(trainer.saved_states());
        let all = saved.map(|tensor| tensor.ty.bytes() as u64).sum();
        Self { step, all, state: RefCell::new(State { written: 0, told: Instant::now(), tell }) }
    }

    /// Counts bytes that were written.
    pub fn add(&self, bytes: usize) {
        let state = &mut *self.state.borrow_mut();
        state.written += bytes as u64;
        if state.told.elapsed() >= BETWEEN {
            state.told = Instant::now();
            let [written, all] = [state.written, self.all].map(human_bytes);
            (state.tell)(&format!("checkpoint of step {}: {written} of {all}", self.step));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_long_is_told() {
        let mut lines = vec![];
        let mut tell = |line: &str| lines.push(line.to_owned());
        let state = State { written: 0, told: Instant::now(), tell: &mut tell };
        let progress = Progress { step: 7, all: 4 << 20, state: RefCell::new(state) };
        progress.add(1 << 20);
        progress.state.borrow_mut().told = Instant::now() - BETWEEN;
        progress.add(1 << 20);
        progress.add(1 << 20);
        assert_eq!(lines, ["checkpoint of step 7: 2.00 MiB of 4.00 MiB"]);
    }
}
