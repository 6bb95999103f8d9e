//! `Transport`: messages between ranks, as threads and MPI carry them. What a run needs of them is built on it once, in `carrier`.

use std::ops::Range;

/// Which messages match: those of one tag arrive in the order in which they were sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tag {
    /// What is about to be sent.
    Header,
    /// Bytes of tensors.
    Data,
    /// [`Control`](crate::message::Control).
    Control,
}

impl Tag {
    pub const COUNT: usize = 3;
}

/// Ranges of a buffer, each with the rank that it goes to or comes from.
pub type Pieces = Vec<(usize, Range<usize>)>;

/// Why messages don't arrive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The rank that is at fault, where that's known.
    pub rank: Option<usize>,
    pub reason: String,
}

impl Fault {
    pub fn new(reason: impl Into<String>) -> Self {
        Self { rank: None, reason: reason.into() }
    }

    pub fn of(rank: usize, reason: impl Into<String>) -> Self {
        Self { rank: Some(rank), reason: reason.into() }
    }
}

/// Sends and receives without blocking.
pub trait Transport: Send + 'static {
    /// A buffer, and which of its pieces are under way.
    type Transfer: Transfer;
    /// Whether ranks end together.
    const ENDS_TOGETHER: bool;

    fn rank(&self) -> usize;

    fn count(&self) -> usize;

    /// Begins to send pieces of `bytes`.
    fn send(&mut self, tag: Tag, bytes: Vec<u8>, pieces: &Pieces) -> Result<Self::Transfer, Fault>;

    /// Begins to receive into pieces of `bytes`.
    fn receive(
        &mut self,
        tag: Tag,
        bytes: Vec<u8>,
        pieces: &Pieces,
    ) -> Result<Self::Transfer, Fault>;

    /// Notes which pieces have arrived.
    fn advance(&mut self, transfer: &mut Self::Transfer) -> Result<(), Fault>;

    /// How the process of a rank ended, where whoever launched it tells.
    fn ended(&self, rank: usize) -> Option<String> {
        let _ = rank;
        None
    }

    /// A control message that has arrived, and who sent it.
    fn control(&mut self) -> Result<Option<(usize, Vec<u8>)>, Fault>;
}

/// A buffer that is being sent or received.
pub trait Transfer: Send {
    /// The ranks that pieces still go to or come from, one entry a piece.
    fn missing(&self) -> Vec<usize>;

    /// A copy of one piece, unless it's missing.
    fn arrived(&self, piece: Range<usize>) -> Option<Vec<u8>>;

    /// The buffer. Whoever asks has seen that nothing is missing.
    fn into_bytes(self) -> Vec<u8>;
}
