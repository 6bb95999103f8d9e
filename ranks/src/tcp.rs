//! Ranks that are processes, over TCP: what carries bytes where a launcher, such as torchrun, brings nothing that does. Each rank has a
//! connection to each other, whose two threads put messages in and take them out of the channels that ranks of one process have too.

mod greeting;
mod hall;
mod meeting;
#[cfg(test)]
mod tests;

use std::io::{self, BufReader, BufWriter, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, Builder, JoinHandle};
use std::time::{Duration, Instant};

pub use greeting::Secret;
pub use hall::Ignored;
pub use meeting::Meeting;

use crate::carrier::{Carrier, carried};
use crate::inflow::Inflow;
use crate::threads::{Channels, Message};
use crate::transport::Tag;

/// The time between two looks at threads that end.
const PAUSE: Duration = Duration::from_millis(20);
/// How long messages may take to leave at the end, and others to end: a rank that has stopped never does.
const PARTING: Duration = Duration::from_secs(2);
/// Room that is made for a message before its bytes are there, where nobody has asked for it yet.
const UNASKED: usize = 1 << 16;

/// A rank among processes that meet at an address of the first one.
pub struct Tcp(Carrier<Channels>, Vec<JoinHandle<()>>, Vec<Arc<Inflow>>, Ignored);

/// Why ranks can't meet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("rank {rank} of {count} can't meet the others at {address}: {reason}")]
pub struct TcpError {
    /// This rank.
    pub rank: usize,
    /// How many there are.
    pub count: usize,
    /// Where rank 0 is.
    pub address: String,
    /// What is wrong.
    pub reason: String,
}

impl Tcp {
    /// Meets the other ranks. No rank is waited for longer than `time_out` later on; zero sets no limit.
    ///
    /// # Errors
    /// [`TcpError`].
    pub fn meet(
        (rank, count): (usize, usize),
        meeting: &Meeting,
        time_out: Duration,
    ) -> Result<Self, TcpError> {
        let failed = |error: io::Error| TcpError {
            rank,
            count,
            address: format!("{}:{}", meeting.host, meeting.port),
            reason: error.to_string(),
        };
        let (streams, ignored) = meeting.met(rank, count).map_err(failed)?;
        Self::of(rank, streams, ignored, time_out).map_err(failed)
    }

    /// Counts of connections that were passed over while ranks met.
    #[must_use]
    pub fn ignored(&self) -> Ignored {
        self.3
    }

    /// Of connections, by rank; none to itself.
    fn of(
        rank: usize,
        streams: Vec<Option<TcpStream>>,
        ignored: Ignored,
        time_out: Duration,
    ) -> io::Result<Self> {
        let (mut to, mut from, mut threads, mut inflows) = (vec![], vec![], vec![], vec![]);
        for stream in streams {
            let (sender, leaving) = channel();
            let (coming, receiver) = channel();
            let inflow = Arc::new(Inflow::default());
            if let Some(stream) = stream {
                stream.set_nodelay(true)?;
                let reading = stream.try_clone()?;
                let inflow = Arc::clone(&inflow);
                threads.push(Builder::new().spawn(move || write(&stream, &leaving))?);
                threads.push(Builder::new().spawn(move || read(reading, &coming, &inflow))?);
            }
            to.push(sender);
            from.push(receiver);
            inflows.push(inflow);
        }
        let channels = Channels::new(rank, to, from).within(&inflows);
        Ok(Self(Carrier::new(channels, time_out), threads, inflows, ignored))
    }
}

carried!(Tcp);

impl Drop for Tcp {
    fn drop(&mut self) {
        self.0.end();
        // Writers end once there is nothing left to write, and readers when the other rank ends. A connection that closes with bytes
        // that nobody has read takes what was sent last with it.
        self.0.transport.close();
        self.2.iter().for_each(|inflow| inflow.close());
        let since = Instant::now();
        while !self.1.iter().all(JoinHandle::is_finished) && since.elapsed() < PARTING {
            thread::sleep(PAUSE);
        }
    }
}

/// Writes messages as they come: the tag, the length, and the bytes.
fn write(stream: &TcpStream, messages: &Receiver<Message>) {
    let mut to = BufWriter::new(stream);
    let mut send = |(tag, bytes): Message| {
        to.write_all(&[tag as u8])?;
        to.write_all(&(bytes.len() as u64).to_le_bytes())?;
        to.write_all(&bytes)?;
        to.flush()
    };
    // A receiver that is gone has said why, or is missed when this rank receives.
    while let Ok(message) = messages.recv()
        && send(message).is_ok()
    {}
    let _ = stream.shutdown(std::net::Shutdown::Write);
}

/// Reads messages until the other rank ends, or this one.
fn read(stream: TcpStream, messages: &Sender<Message>, inflow: &Inflow) {
    let mut from = BufReader::new(stream);
    loop {
        let message = match message(&mut from, inflow) {
            Ok(Some(message)) => message,
            Err(Refusal::Peer(reason)) => return inflow.refuse(reason),
            Ok(None) | Err(Refusal::Ended) => return,
        };
        if messages.send(message).is_err() {
            return;
        }
    }
}

/// Why a message isn't read.
enum Refusal {
    /// The connection has ended.
    Ended,
    /// The peer sends what no rank does.
    Peer(String),
}

impl From<io::Error> for Refusal {
    fn from(_: io::Error) -> Self {
        Self::Ended
    }
}

/// The next message; `None` once this rank takes no more.
fn message(from: &mut impl Read, inflow: &Inflow) -> Result<Option<Message>, Refusal> {
    let (mut tag, mut length) = ([0], [0; 8]);
    from.read_exact(&mut tag)?;
    from.read_exact(&mut length)?;
    let unknown =
        || Refusal::Peer(format!("it sent a message of kind {}, which isn't known", tag[0]));
    let tag = [Tag::Header, Tag::Data, Tag::Control].get(usize::from(tag[0])).copied();
    let tag = tag.ok_or_else(unknown)?;
    let length = u64::from_le_bytes(length);
    let Some(length) = inflow.admit(tag, length).map_err(Refusal::Peer)? else {
        io::copy(from, &mut io::sink())?;
        return Ok(None);
    };
    let mut bytes = Vec::with_capacity(length.min(UNASKED));
    match from.take(length as u64).read_to_end(&mut bytes)? == length {
        true => Ok(Some((tag, bytes))),
        false => Err(Refusal::Ended),
    }
}
