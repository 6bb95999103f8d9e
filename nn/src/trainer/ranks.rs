//! What a trainer tells the ranks that it trains with, and hears of them.

#[cfg(not(target_family = "wasm"))]
use std::time::Duration;

#[cfg(not(target_family = "wasm"))]
use tightrope_core::{Ranks, Wait};

use super::{TrainError, Trainer};
#[cfg(not(target_family = "wasm"))]
use crate::error::ensure;

impl Trainer {
    /// Gives the trainer its way to the ranks that it trains with.
    ///
    /// # Errors
    /// [`crate::Error::Setting`] where the plan is for another number of them.
    #[cfg(not(target_family = "wasm"))]
    pub fn join(&mut self, ranks: Box<dyn Ranks>) -> Result<(), TrainError> {
        let (planned, joined) = (self.config.ranks, ranks.count());
        ensure(planned == joined, "ranks", || {
            format!("the plan is for {planned} ranks, and {joined} have come")
        })?;
        self.rank = ranks.rank();
        self.session.join(ranks);
        // Which positions a rank has depends on its place.
        self.ranges_written = false;
        Ok(())
    }

    /// The figures that each rank gives, in the order of ranks: equally many of each, and this one's alone where there are no others.
    /// `what` is named where it fails.
    ///
    /// # Errors
    /// A rank that doesn't answer.
    #[cfg_attr(target_family = "wasm", expect(unused_variables, reason = "a tab has no others"))]
    pub fn figures_of_ranks(
        &mut self,
        what: &str,
        own: Vec<f64>,
    ) -> Result<Vec<Vec<f64>>, TrainError> {
        #[cfg(not(target_family = "wasm"))]
        if self.config.ranks > 1 {
            let bytes = own.iter().flat_map(|figure| figure.to_le_bytes()).collect();
            let said = self.session.gather_from_ranks(what, bytes)?;
            let (figures, _) = said.as_chunks();
            let figures: Vec<f64> =
                figures.iter().map(|&bytes| f64::from_le_bytes(bytes)).collect();
            return Ok(figures.chunks(own.len().max(1)).map(<[f64]>::to_vec).collect());
        }
        Ok(vec![own])
    }

    /// The bytes that each rank gives, in the order of ranks, as [`Trainer::figures_of_ranks`]: of one not as many as of another.
    ///
    /// # Errors
    /// A rank that doesn't answer.
    #[cfg(not(target_family = "wasm"))]
    pub fn bytes_of_ranks(
        &mut self,
        what: &str,
        mut own: Vec<u8>,
    ) -> Result<Vec<Vec<u8>>, TrainError> {
        let lengths = self.figures_of_ranks(what, vec![own.len() as f64])?.concat();
        let most = lengths.iter().fold(0.0, |most: f64, &length| most.max(length)) as usize;
        own.resize(most, 0);
        let said = self.session.gather_from_ranks(what, own)?;
        let each = said.chunks(most.max(1)).zip(lengths);
        Ok(each.map(|(bytes, length)| bytes[..length as usize].to_vec()).collect())
    }

    /// Tells the other ranks why this one ends.
    #[cfg(not(target_family = "wasm"))]
    pub fn tell_failed(&mut self, reason: &str) {
        self.session.tell_failed(reason);
    }

    /// Keeps each time in which this rank waits for the others, until [`Trainer::take_waits`] takes them.
    #[cfg(not(target_family = "wasm"))]
    pub fn keep_waits(&mut self) {
        self.session.keep_waits();
    }

    /// How long this rank has waited for the others since this was last asked; and each time, where they are kept.
    #[cfg(not(target_family = "wasm"))]
    pub fn take_waits(&mut self) -> (Duration, Vec<Wait>) {
        self.session.take_waits()
    }

    /// Which one of the ranks that train together this is.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Whether any rank says so: all are asked at the same point, and hear the same.
    ///
    /// # Errors
    /// A rank that doesn't answer.
    pub fn any_rank(&mut self, own: bool) -> Result<bool, TrainError> {
        let said = self.figures_of_ranks("whether to stop", vec![f64::from(u8::from(own))])?;
        Ok(said.concat().iter().any(|&figure| figure != 0.0))
    }
}
