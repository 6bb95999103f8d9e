//! A run that trains with other ranks.

use super::{Ended, Run};
use crate::error::Result;

impl Run<'_> {
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
