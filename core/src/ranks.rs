//! `Ranks`: the other processes of a run, as a session talks to them. Whoever carries the bytes from host to host implements it: threads,
//! MPI. What carries them from device to device is [`Links`](crate::Links).

use std::ops::Range;
use std::time::Instant;

/// One of the processes of a run, and its way to the others.
///
/// Every rank begins the same calls in the same order. Bytes arrive as they were sent, in the order of ranks: nobody on the way adds
/// anything up, so that results don't depend on who carries them.
pub trait Ranks: Send {
    /// Which one this is, counted from 0.
    fn rank(&self) -> usize;

    /// How many there are.
    fn count(&self) -> usize;

    /// Begins to send `parts`, which are equally long, to the ranks `among`, of which this is one: the first to the first. Each receives
    /// one part from every one of them. `what` is named where it fails.
    ///
    /// # Errors
    /// [`RanksError`].
    fn begin_exchange(
        &mut self,
        what: &str,
        among: Range<usize>,
        parts: Vec<u8>,
    ) -> Result<Ticket, RanksError>;

    /// Begins to send `own` to everybody, which is equally long on all ranks.
    ///
    /// # Errors
    /// [`RanksError`].
    fn begin_gather(&mut self, what: &str, own: Vec<u8>) -> Result<Ticket, RanksError>;

    /// Waits for what was begun: what each rank sent to this one, one after the other.
    ///
    /// # Errors
    /// [`RanksError`].
    fn finish(&mut self, ticket: Ticket) -> Result<Vec<u8>, RanksError>;

    /// Hears the others while this rank waits for something else than their bytes, as its device, since this moment: answers those that
    /// ask, and asks those that say nothing for as long as a rank is waited for.
    ///
    /// # Errors
    /// A rank that has ended or doesn't answer.
    fn watch(&mut self, what: &str, since: Instant) -> Result<(), RanksError> {
        let _ = (what, since);
        Ok(())
    }

    /// Tells the others why this rank ends, so that they name it and its reason. What they wait for fails. Does nothing where they can't be
    /// told.
    fn fail(&mut self, reason: &str) {
        let _ = reason;
    }
}

/// What was begun and isn't finished, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// Why ranks can't go on together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{reason}; this rank waited for {what}", of(*rank))]
pub struct RanksError {
    /// The rank that is at fault, where that's known.
    pub rank: Option<usize>,
    /// What this rank was doing: the name of a tensor, or of a setting that is compared.
    pub what: String,
    /// What is wrong.
    pub reason: String,
}

fn of(rank: Option<usize>) -> String {
    rank.map_or(String::new(), |rank| format!("rank {rank}: "))
}
