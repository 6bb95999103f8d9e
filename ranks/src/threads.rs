//! Ranks that are threads of one process: messages go through channels.

use std::collections::HashMap;
use std::mem;
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::Duration;

use crate::carrier::{Carrier, carried};
use crate::inflow::Inflow;
use crate::transport::{Fault, Pieces, Tag, Transfer, Transport};

/// A rank among threads of one process: for tests, and for one machine without a launcher.
pub struct Threads(pub(crate) Carrier<Channels>);

impl Threads {
    /// As many ranks as asked for, in order; each goes to a thread of its own. None waits longer than `time_out` for another; zero sets
    /// no limit.
    #[must_use]
    pub fn group(count: usize, time_out: Duration) -> Vec<Self> {
        let mut senders: Vec<Vec<Sender<Message>>> = (0..count).map(|_| vec![]).collect();
        let mut receivers: Vec<Vec<Receiver<Message>>> = (0..count).map(|_| vec![]).collect();
        for from in &mut senders {
            for to in &mut receivers {
                let (sender, receiver) = channel();
                from.push(sender);
                to.push(receiver);
            }
        }
        let ends = senders.into_iter().zip(receivers).enumerate();
        ends.map(|(rank, (to, from))| Self(Carrier::new(Channels::new(rank, to, from), time_out)))
            .collect()
    }
}

carried!(Threads);

impl Drop for Threads {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// A message on its way.
pub type Message = (Tag, Vec<u8>);

/// What one rank has sent to this one.
struct Inbox {
    channel: Receiver<Message>,
    /// By tag: how many have arrived.
    arrived: [u64; Tag::COUNT],
    /// By tag: how many have been asked for. The first that is asked for is the first that arrives, whatever is waited for first.
    asked: [u64; Tag::COUNT],
    /// What has arrived and hasn't been taken.
    waiting: HashMap<(Tag, u64), Vec<u8>>,
    /// The sender is gone.
    closed: bool,
    /// Bounds what a sender that is another process may send.
    inflow: Option<Arc<Inflow>>,
}

impl Inbox {
    fn new(channel: Receiver<Message>) -> Self {
        let none = [0; Tag::COUNT];
        let waiting = HashMap::new();
        Self { channel, arrived: none, asked: none, waiting, closed: false, inflow: None }
    }

    /// The number of the next message of this tag, which is to have this length.
    fn ask(&mut self, tag: Tag, length: usize) -> u64 {
        let number = self.asked[tag as usize];
        self.asked[tag as usize] += 1;
        if let Some(inflow) = &self.inflow {
            inflow.ask(tag, number, length);
        }
        number
    }

    /// Why the sender is gone.
    fn why(&self) -> String {
        let fault = self.inflow.as_ref().and_then(|inflow| inflow.fault());
        fault.unwrap_or_else(|| "it has ended".to_owned())
    }

    /// The message of this number, where it has arrived.
    fn take(&mut self, tag: Tag, number: u64) -> Option<Vec<u8>> {
        while !self.closed {
            match self.channel.try_recv() {
                Ok((tag, bytes)) => {
                    self.waiting.insert((tag, self.arrived[tag as usize]), bytes);
                    self.arrived[tag as usize] += 1;
                }
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => self.closed = true,
            }
        }
        let bytes = self.waiting.remove(&(tag, number))?;
        if let Some(inflow) = &self.inflow {
            inflow.take(tag, bytes.len());
        }
        Some(bytes)
    }

    fn control(&mut self) -> Option<Vec<u8>> {
        let bytes = self.take(Tag::Control, self.asked[Tag::Control as usize])?;
        self.ask(Tag::Control, bytes.len());
        Some(bytes)
    }
}

/// A rank's ends of the channels, by rank.
pub struct Channels {
    rank: usize,
    to: Vec<Sender<Message>>,
    from: Vec<Inbox>,
}

impl Channels {
    /// To each rank and from each, in their order.
    pub fn new(rank: usize, to: Vec<Sender<Message>>, from: Vec<Receiver<Message>>) -> Self {
        Self { rank, to, from: from.into_iter().map(Inbox::new).collect() }
    }

    /// These channels, of peers that each send within bounds.
    pub fn within(mut self, inflows: &[Arc<Inflow>]) -> Self {
        for (inbox, inflow) in self.from.iter_mut().zip(inflows) {
            inbox.inflow = Some(Arc::clone(inflow));
        }
        self
    }

    /// Sends no more.
    pub fn close(&mut self) {
        self.to.clear();
    }
}

/// What is sent has been copied already; what is received comes piece by piece.
pub struct Copies {
    bytes: Vec<u8>,
    tag: Tag,
    /// Who sends which message, and where it goes.
    missing: Vec<(usize, u64, Range<usize>)>,
}

impl Transfer for Copies {
    fn missing(&self) -> Vec<usize> {
        self.missing.iter().map(|(rank, ..)| *rank).collect()
    }

    fn arrived(&self, piece: Range<usize>) -> Option<Vec<u8>> {
        let missing = self.missing.iter().any(|(_, _, range)| *range == piece);
        (!missing).then(|| self.bytes[piece].to_vec())
    }

    fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

impl Transport for Channels {
    type Transfer = Copies;
    const ENDS_TOGETHER: bool = false;

    fn rank(&self) -> usize {
        self.rank
    }

    fn count(&self) -> usize {
        self.from.len()
    }

    fn send(&mut self, tag: Tag, bytes: Vec<u8>, pieces: &Pieces) -> Result<Copies, Fault> {
        for (rank, range) in pieces {
            // A receiver that is gone has said why, or is missed when this rank receives.
            let _ = self.to.get(*rank).map(|to| to.send((tag, bytes[range.clone()].to_vec())));
        }
        Ok(Copies { bytes, tag, missing: vec![] })
    }

    fn receive(&mut self, tag: Tag, bytes: Vec<u8>, pieces: &Pieces) -> Result<Copies, Fault> {
        let ask = |(rank, range): &(usize, Range<usize>)| {
            (*rank, self.from[*rank].ask(tag, range.len()), range.clone())
        };
        let missing = pieces.iter().map(ask).collect();
        Ok(Copies { bytes, tag, missing })
    }

    fn advance(&mut self, transfer: &mut Copies) -> Result<(), Fault> {
        let mut fault = None;
        for (rank, number, range) in mem::take(&mut transfer.missing) {
            let place = &mut transfer.bytes[range.clone()];
            match self.from[rank].take(transfer.tag, number) {
                Some(bytes) if bytes.len() == place.len() => place.copy_from_slice(&bytes),
                Some(bytes) => {
                    let lengths = (bytes.len(), place.len());
                    let reason =
                        format!("it sent {} bytes where {} are expected", lengths.0, lengths.1);
                    fault = fault.or(Some(Fault::of(rank, reason)));
                }
                None => {
                    if self.from[rank].closed {
                        fault = fault.or_else(|| Some(Fault::of(rank, self.from[rank].why())));
                    }
                    transfer.missing.push((rank, number, range));
                }
            }
        }
        fault.map_or(Ok(()), Err)
    }

    fn control(&mut self) -> Result<Option<(usize, Vec<u8>)>, Fault> {
        let mut found = self.from.iter_mut().enumerate();
        Ok(found.find_map(|(rank, inbox)| Some((rank, inbox.control()?))))
    }
}
