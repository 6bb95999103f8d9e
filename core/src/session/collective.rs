//! Collectives of a session's programs: what it sends to the other ranks, and what comes from them.

use crate::graph::Node;
use crate::ops::{Collective, Part};

use super::{Session, SessionError};

impl Session {
    /// What each rank gives, in the order of ranks: equally many bytes of each, and this one's alone where there are no others.
    /// `what` is named where it fails.
    ///
    /// # Errors
    /// [`SessionError::Ranks`].
    pub fn gather_from_ranks(&mut self, what: &str, own: Vec<u8>) -> Result<Vec<u8>, SessionError> {
        let Some(ranks) = &mut self.ranks else { return Ok(own) };
        let ticket = ranks.begin_gather(what, own)?;
        Ok(ranks.finish(ticket)?)
    }

    /// Makes a collective, once the device has made what it reads.
    pub(super) async fn collective(
        &mut self,
        collective: &Collective,
        node: &Node,
    ) -> Result<(), SessionError> {
        let part = collective.part();
        let name = self.plan.graph.info(node.outputs[0]).name.clone();
        let joined = self.ranks.as_ref().map_or(1, |ranks| ranks.count());
        if joined != part.ranks {
            let planned = part.ranks;
            return Err(SessionError::OtherRanks { tensor: name, planned, joined });
        }
        match collective {
            Collective::Exchange(part) => self.exchange(part, node, &name).await,
            Collective::Gather(part) => self.gather(part, node, &name).await,
        }
    }

    async fn exchange(&mut self, part: &Part, node: &Node, name: &str) -> Result<(), SessionError> {
        let x = node.inputs[0];
        let size = self.plan.graph.dtype(x).size();
        let (_, whole) = self.place(x)?;
        let at = |element: usize| whole.start + (element * size) as u64;
        let read = at(part.elements.start)..at(part.elements.end);
        let mut parts = self.backend.read(std::slice::from_ref(&read)).await?;
        let shard = part.shard() * size;
        parts.resize(shard * part.ranks, 0);
        let received = match &mut self.ranks {
            Some(ranks) => {
                let ticket = ranks.begin_exchange(name, parts)?;
                ranks.finish(ticket)?
            }
            None => parts,
        };
        for (&output, bytes) in node.outputs.iter().zip(received.chunks_exact(shard)) {
            let (_, to) = self.place(output)?;
            self.backend.write(to.start, bytes)?;
        }
        Ok(())
    }

    async fn gather(&mut self, part: &Part, node: &Node, name: &str) -> Result<(), SessionError> {
        let [shard, x] = [node.inputs[0], node.outputs[0]];
        let size = self.plan.graph.dtype(x).size();
        let (_, own) = self.place(shard)?;
        let own = self.backend.read(std::slice::from_ref(&own)).await?;
        let mut all = self.gather_from_ranks(name, own)?;
        all.truncate(part.elements.len() * size);
        let (_, whole) = self.place(x)?;
        Ok(self.backend.write(whole.start + (part.elements.start * size) as u64, &all)?)
    }
}
