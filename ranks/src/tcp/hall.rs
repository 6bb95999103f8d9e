//! `Hall`: takes in the ranks that connect to this one, all connections at once, and passes over whoever isn't one.

use std::fmt::{self, Display, Formatter};
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use super::greeting::{
    CARD, Card, End, HELLO, NONCE, PROOF, Secret, Transcript, begins_hello, hello, nonce, nonce_of,
};

/// The time that a greeting has, however many bytes of it have come.
pub const GREETING: Duration = Duration::from_secs(5);
/// Connections that may be greeting at a time beyond one of each rank. The oldest is dropped for a new one.
const GUESTS: usize = 64;
/// Connections that are taken in between two looks at those that are there.
const BURST: usize = 64;
/// The time between two looks.
const TURN: Duration = Duration::from_millis(2);

/// Counts of connections that were passed over, by why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ignored {
    /// Connections of other programs, and those that didn't say all in time.
    pub strangers: usize,
    /// Connections that didn't prove that they know the secret.
    pub unproved: usize,
    /// Connections as a rank that was there already, that isn't awaited here, or that counts other ranks.
    pub misplaced: usize,
}

impl Ignored {
    /// True if nobody was passed over.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Display for Ignored {
    /// `3 connections were ignored (2 of another program or too slow, 1 without the secret of the run)`.
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let Self { strangers, unproved, misplaced } = *self;
        let kinds = [
            (strangers, "of another program or too slow"),
            (unproved, "without the secret of the run"),
            (misplaced, "as a rank that was there already or of another run"),
        ];
        let said: Vec<String> = kinds
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, kind)| format!("{count} {kind}"))
            .collect();
        let all = strangers + unproved + misplaced;
        let connections = if all == 1 { "connection was" } else { "connections were" };
        write!(formatter, "{all} {connections} ignored ({})", said.join(", "))
    }
}

/// A rank that has come.
pub struct Arrived {
    pub stream: TcpStream,
    /// Its address, and the port at which it listens.
    pub address: IpAddr,
    pub port: u16,
}

impl Arrived {
    /// True if the rank has closed its connection, as one does whose try took too long.
    fn has_left(&self) -> bool {
        let looked = self.stream.set_nonblocking(true).and_then(|()| self.stream.peek(&mut [0]));
        let restored = self.stream.set_nonblocking(false);
        restored.is_err()
            || match looked {
                Ok(bytes) => bytes == 0,
                Err(error) => error.kind() != io::ErrorKind::WouldBlock,
            }
    }
}

/// A listener, and who is greeting at it.
pub struct Hall<'a> {
    listener: TcpListener,
    secret: Option<&'a Secret>,
    rank: usize,
    count: usize,
    guests: Vec<Guest>,
    pub ignored: Ignored,
}

impl<'a> Hall<'a> {
    pub fn new(
        listener: TcpListener,
        secret: Option<&'a Secret>,
        (rank, count): (usize, usize),
    ) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let ignored = Ignored::default();
        Ok(Self { listener, secret, rank, count, guests: vec![], ignored })
    }

    /// Waits for the ranks after this number, and returns them in their order.
    ///
    /// # Errors
    /// A rank that hasn't come by the deadline.
    pub fn receive(&mut self, after: usize, until: Instant) -> io::Result<Vec<Arrived>> {
        let mut arrived: Vec<Option<Arrived>> = (after + 1..self.count).map(|_| None).collect();
        while let Some(missing) = arrived.iter().position(Option::is_none) {
            if Instant::now() > until {
                return Err(self.late(after + 1 + missing));
            }
            self.accept();
            self.hear(after, &mut arrived);
            thread::sleep(TURN);
        }
        self.ignored.strangers += self.guests.len();
        self.guests.clear();
        Ok(arrived.into_iter().flatten().collect())
    }

    fn late(&self, missing: usize) -> io::Error {
        let mut reason = format!("rank {missing} didn't come in time");
        if !self.ignored.is_empty() {
            reason += &format!("; {}", self.ignored);
        }
        if let Ok(own) = self.listener.local_addr()
            && own.ip().to_canonical().is_loopback()
        {
            reason += &format!("; this rank listens at {own}, which other machines don't reach");
        }
        io::Error::new(io::ErrorKind::TimedOut, reason)
    }

    /// Takes in who has connected. Where the system refuses, the next turn tries again.
    fn accept(&mut self) {
        for _ in 0..BURST {
            let Ok((stream, from)) = self.listener.accept() else { break };
            if self.guests.len() >= GUESTS + self.count {
                self.guests.remove(0);
                self.ignored.strangers += 1;
            }
            match Guest::new(stream, from.ip().to_canonical()) {
                Ok(guest) => self.guests.push(guest),
                Err(_) => self.ignored.strangers += 1,
            }
        }
    }

    /// Reads what guests have said, and takes those for ranks that prove it.
    fn hear(&mut self, after: usize, arrived: &mut [Option<Arrived>]) {
        let mut waiting = vec![];
        for mut guest in std::mem::take(&mut self.guests) {
            match guest.hear() {
                Ok(false) if guest.since.elapsed() < GREETING => waiting.push(guest),
                Ok(true) => self.seat(guest, after, arrived),
                Ok(false) | Err(_) => self.ignored.strangers += 1,
            }
        }
        self.guests = waiting;
    }

    /// Takes a guest that has said all for the rank that it proves to be.
    fn seat(&mut self, guest: Guest, after: usize, arrived: &mut [Option<Arrived>]) {
        let Some((transcript, proof)) = guest.transcript(self.rank) else {
            self.ignored.strangers += 1;
            return;
        };
        if !transcript.is_proved(self.secret, End::Connecting, proof) {
            self.ignored.unproved += 1;
            return;
        }
        let Card { rank, count, port } = transcript.card;
        let seat = (rank as usize).checked_sub(after + 1).and_then(|at| arrived.get_mut(at));
        let seat = seat.filter(|_| count as usize == self.count);
        let seat = seat.filter(|seat| seat.as_ref().is_none_or(Arrived::has_left));
        let Some(seat) = seat else {
            self.ignored.misplaced += 1;
            return;
        };
        let address = guest.address;
        match guest.answer(&transcript.proof(self.secret, End::Accepting)) {
            Ok(stream) => *seat = Some(Arrived { stream, address, port }),
            Err(_) => self.ignored.strangers += 1,
        }
    }
}

/// A connection that hasn't said all of its greeting.
struct Guest {
    stream: TcpStream,
    address: IpAddr,
    since: Instant,
    nonce: [u8; NONCE],
    said: [u8; HELLO + CARD + PROOF],
    filled: usize,
}

impl Guest {
    /// Says hello. Nothing waits for a guest: a few bytes go into the buffer of a new connection at once.
    fn new(mut stream: TcpStream, address: IpAddr) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        let nonce = nonce()?;
        stream.write_all(&hello(&nonce))?;
        let (since, said) = (Instant::now(), [0; HELLO + CARD + PROOF]);
        Ok(Self { stream, address, since, nonce, said, filled: 0 })
    }

    /// Reads what has come; true once that is all.
    ///
    /// # Errors
    /// Another program, and a connection that has ended.
    fn hear(&mut self) -> io::Result<bool> {
        while self.filled < self.said.len() {
            match self.stream.read(&mut self.said[self.filled..]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => self.filled += read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        match begins_hello(&self.said[..self.filled]) {
            true => Ok(self.filled == self.said.len()),
            false => Err(io::Error::other("another program")),
        }
    }

    /// The transcript of a greeting to this rank, and the guest's proof of it.
    fn transcript(&self, rank: usize) -> Option<(Transcript, &[u8])> {
        let (hello, rest) = self.said.split_at(HELLO);
        let (card, proof) = rest.split_first_chunk()?;
        let (connecting, card) = (nonce_of(hello)?, Card::from_bytes(*card));
        Some((Transcript { connecting, accepting: self.nonce, card, host: rank as u32 }, proof))
    }

    fn answer(mut self, proof: &[u8; PROOF]) -> io::Result<TcpStream> {
        self.stream.write_all(proof)?;
        self.stream.set_nonblocking(false)?;
        Ok(self.stream)
    }
}
