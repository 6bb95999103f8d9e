//! A run that trains with other ranks.

use tightrope_core::Ranks;

use super::{Ended, Run};
use crate::error::Result;

impl Run<'_> {
    /// Trains with other ranks from now on, each of which has the same settings and data. One that is asked to stop stops all of them
    /// before their next step.
    ///
    /// # Errors
    /// A plan for another number of ranks, and a device that is lost again and again.
    pub async fn join_async(&mut self, ranks: Box<dyn Ranks>) -> Result<()> {
        self.joined = ranks.count() > 1;
        let mut ranks = Some(ranks);
        self.inner
            .attempt(async |_, trainer| {
                ranks.take().map_or(Ok(()), |ranks| Ok(trainer.join(ranks)?))
            })
            .await
    }

    /// How the run ends before its next step, where this rank's ends or any other was asked to stop.
    pub(super) async fn agreed(&mut self, own: Option<Ended>) -> Result<Option<Ended>> {
        if !self.joined {
            return Ok(own);
        }
        let stops = own.is_some() || (self.stop)();
        let stops = self.with_trainer(async |trainer| Ok(trainer.any_rank(stops)?)).await?;
        Ok(stops.then(|| own.unwrap_or(Ended::Interrupted)))
    }
}
