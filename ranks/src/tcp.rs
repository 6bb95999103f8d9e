//! Ranks that are processes, over TCP: what carries bytes where a launcher, such as torchrun, brings nothing that does. Each rank has a
//! connection to each other, whose two threads put messages in and take them out of the channels that ranks of one process have too.

use std::io::{self, BufReader, BufWriter, Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::carrier::{Carrier, carried};
use crate::threads::{Channels, Message};
use crate::transport::Tag;

/// How long ranks may take to find each other.
const MEETING: Duration = Duration::from_secs(60);
/// How long it is between two tries.
const PAUSE: Duration = Duration::from_millis(20);
/// How long messages may take to leave at the end, and others to end: a rank that has stopped never does.
const PARTING: Duration = Duration::from_secs(2);
/// What a rank says first, so that no other program is taken for one.
const GREETING: [u8; 8] = *b"tightrp\x01";

/// A rank among processes that meet at an address of the first one.
pub struct Tcp(Carrier<Channels>, Vec<JoinHandle<()>>);

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
    /// Meets the other ranks at this host and port, where rank 0 listens. No rank is waited for longer than `time_out` later on; zero
    /// sets no limit.
    ///
    /// # Errors
    /// [`TcpError`].
    pub fn meet(
        (rank, count): (usize, usize),
        (host, port): (&str, u16),
        time_out: Duration,
    ) -> Result<Self, TcpError> {
        let failed = |error: io::Error| TcpError {
            rank,
            count,
            address: format!("{host}:{port}"),
            reason: error.to_string(),
        };
        let until = Instant::now() + MEETING;
        let streams = match rank {
            0 => first(count, port, until),
            _ => other(rank, count, (host, port), until),
        };
        Self::of(rank, streams.map_err(failed)?, time_out).map_err(failed)
    }

    /// Of connections, by rank; none to itself.
    fn of(rank: usize, streams: Vec<Option<TcpStream>>, time_out: Duration) -> io::Result<Self> {
        let (mut to, mut from, mut threads) = (vec![], vec![], vec![]);
        for stream in streams {
            let (sender, leaving) = channel();
            let (coming, receiver) = channel();
            if let Some(stream) = stream {
                stream.set_nodelay(true)?;
                let reading = stream.try_clone()?;
                threads.push(thread::spawn(move || write(&stream, &leaving)));
                threads.push(thread::spawn(move || read(reading, &coming)));
            }
            to.push(sender);
            from.push(receiver);
        }
        Ok(Self(Carrier::new(Channels::new(rank, to, from), time_out), threads))
    }
}

carried!(Tcp);

impl Drop for Tcp {
    fn drop(&mut self) {
        self.0.end();
        // Writers end once there is nothing left to write, and readers when the other rank ends. A connection that closes with bytes
        // that nobody has read takes what was sent last with it.
        self.0.transport.close();
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
fn read(stream: TcpStream, messages: &Sender<Message>) {
    let mut from = BufReader::new(stream);
    let mut message = || -> io::Result<Option<Message>> {
        let (mut tag, mut length) = ([0], [0; 8]);
        from.read_exact(&mut tag)?;
        from.read_exact(&mut length)?;
        let length = u64::from_le_bytes(length);
        let mut bytes = vec![];
        let read = (&mut from).take(length).read_to_end(&mut bytes)?;
        let tag = [Tag::Header, Tag::Data, Tag::Control].get(usize::from(tag[0])).copied();
        Ok(tag.filter(|_| read as u64 == length).map(|tag| (tag, bytes)))
    };
    while let Ok(Some(message)) = message()
        && messages.send(message).is_ok()
    {}
}

/// Rank 0: hears where each rank listens, and tells all.
fn first(count: usize, port: u16, until: Instant) -> io::Result<Vec<Option<TcpStream>>> {
    let listener = TcpListener::bind(("0.0.0.0", port))?;
    let mut streams: Vec<Option<TcpStream>> = (0..count).map(|_| None).collect();
    let mut places = vec![String::new(); count];
    while streams.iter().skip(1).any(Option::is_none) {
        let missing = || streams.iter().skip(1).position(Option::is_none).map_or(0, |at| at + 1);
        let late = format!("rank {} didn't come within {} s", missing(), MEETING.as_secs());
        let (mut stream, from) = accept(&listener, until, &late)?;
        // Another program is not answered.
        let Ok((rank, port)) = greeted(&mut stream) else { continue };
        if rank == 0 || rank >= count || streams[rank].is_some() {
            let words = format!("{} came as rank {rank} of {count}", from);
            return Err(io::Error::other(words));
        }
        places[rank] = format!("{from} {port}");
        streams[rank] = Some(stream);
    }
    let list = places[1..].join("\n");
    for stream in streams.iter_mut().flatten() {
        stream.write_all(&(list.len() as u32).to_le_bytes())?;
        stream.write_all(list.as_bytes())?;
    }
    Ok(streams)
}

/// Another rank: connects with rank 0, with those before it, and waits for those after it.
fn other(
    rank: usize,
    count: usize,
    (host, port): (&str, u16),
    until: Instant,
) -> io::Result<Vec<Option<TcpStream>>> {
    let listener = TcpListener::bind(("0.0.0.0", 0))?;
    let own = listener.local_addr()?.port();
    let mut first = connect((host, port), until)?;
    greet(&mut first, rank, own)?;
    let mut length = [0; 4];
    first.read_exact(&mut length)?;
    let mut list = String::new();
    (&mut first).take(u32::from_le_bytes(length).into()).read_to_string(&mut list)?;
    let unread = || io::Error::other(format!("rank 0 sent {list:?}"));
    let mut streams: Vec<Option<TcpStream>> = (0..count).map(|_| None).collect();
    for (peer, place) in (1..rank).zip(list.lines()) {
        let (address, port) = place.split_once(' ').ok_or_else(unread)?;
        let port = port.parse().map_err(|_| unread())?;
        // One that rank 0 sees on its own machine is there for all.
        let is_local = address.parse().is_ok_and(|address: IpAddr| address.is_loopback());
        let mut stream = connect((if is_local { host } else { address }, port), until)?;
        greet(&mut stream, rank, own)?;
        streams[peer] = Some(stream);
    }
    while let Some(missing) = (rank + 1..count).find(|&peer| streams[peer].is_none()) {
        let late = format!("rank {missing} didn't come within {} s", MEETING.as_secs());
        let (mut stream, _) = accept(&listener, until, &late)?;
        let Ok((peer, _)) = greeted(&mut stream) else { continue };
        if peer > rank && peer < count {
            streams[peer] = Some(stream);
        }
    }
    streams[0] = Some(first);
    Ok(streams)
}

/// Says who this is, and where it listens.
fn greet(stream: &mut TcpStream, rank: usize, port: u16) -> io::Result<()> {
    let mut greeting = GREETING.to_vec();
    greeting.extend((rank as u32).to_le_bytes());
    greeting.extend(port.to_le_bytes());
    stream.write_all(&greeting)
}

/// Who the other is, and where it listens.
fn greeted(stream: &mut TcpStream) -> io::Result<(usize, u16)> {
    let (mut greeting, mut rank, mut port) = ([0; 8], [0; 4], [0; 2]);
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.read_exact(&mut greeting)?;
    stream.read_exact(&mut rank)?;
    stream.read_exact(&mut port)?;
    stream.set_read_timeout(None)?;
    match greeting == GREETING {
        true => Ok((u32::from_le_bytes(rank) as usize, u16::from_le_bytes(port))),
        false => Err(io::Error::other("another program")),
    }
}

fn accept(listener: &TcpListener, until: Instant, late: &str) -> io::Result<(TcpStream, IpAddr)> {
    listener.set_nonblocking(true)?;
    loop {
        match listener.accept() {
            Ok((stream, from)) => {
                stream.set_nonblocking(false)?;
                return Ok((stream, from.ip()));
            }
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
            Err(_) if Instant::now() > until => {
                return Err(io::Error::new(io::ErrorKind::TimedOut, late));
            }
            Err(_) => thread::sleep(PAUSE),
        }
    }
}

/// Connects, once somebody listens there.
fn connect(address: (&str, u16), until: Instant) -> io::Result<TcpStream> {
    loop {
        match TcpStream::connect(address) {
            Ok(stream) => return Ok(stream),
            Err(error) if Instant::now() > until => return Err(error),
            Err(_) => thread::sleep(PAUSE),
        }
    }
}

#[cfg(test)]
mod tests {
    use tightrope_core::Ranks as _;

    use super::*;

    /// A port that nobody listens at now.
    fn port() -> u16 {
        TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
    }

    #[test]
    fn ranks_meet_in_any_order_and_bytes_arrive_as_they_were_sent() {
        const COUNT: usize = 4;
        let port = port();
        thread::scope(|scope| {
            for rank in (0..COUNT).rev() {
                scope.spawn(move || {
                    let place = ("127.0.0.1", port);
                    let mut ranks =
                        Tcp::meet((rank, COUNT), place, Duration::from_secs(30)).unwrap();
                    assert_eq!((ranks.rank(), ranks.count()), (rank, COUNT));
                    for length in [1, 1000, 3_000_000] {
                        let byte = |from: usize, to: usize| (7 * from + to + length) as u8;
                        let parts = (0..COUNT).flat_map(|to| vec![byte(rank, to); length]);
                        let ticket =
                            ranks.begin_exchange("x", 0..ranks.count(), parts.collect()).unwrap();
                        let found = ranks.finish(ticket).unwrap();
                        let expected = (0..COUNT).flat_map(|from| vec![byte(from, rank); length]);
                        assert!(found == expected.collect::<Vec<u8>>(), "{length} bytes");
                    }
                });
            }
        });
    }

    #[test]
    fn a_rank_that_is_gone_is_named_and_so_is_its_reason() {
        let port = port();
        thread::scope(|scope| {
            for rank in 0..3 {
                scope.spawn(move || {
                    let place = ("127.0.0.1", port);
                    let mut ranks = Tcp::meet((rank, 3), place, Duration::from_secs(30)).unwrap();
                    if rank == 1 {
                        ranks.fail("no space is left");
                        return;
                    }
                    let ticket = ranks.begin_gather("x", vec![1]).unwrap();
                    let error = ranks.finish(ticket).unwrap_err();
                    assert_eq!(error.rank, Some(1), "{error}");
                    assert!(error.reason.contains("no space is left"), "{error}");
                });
            }
        });
    }

    #[test]
    fn another_program_is_no_rank() {
        let port = port();
        thread::scope(|scope| {
            scope.spawn(move || {
                let mut stream = connect(("127.0.0.1", port), Instant::now() + MEETING).unwrap();
                let _ = stream.write_all(b"GET / HTTP/1.1\r\n\r\n");
                Tcp::meet((1, 2), ("127.0.0.1", port), Duration::ZERO).unwrap();
            });
            scope.spawn(move || Tcp::meet((0, 2), ("127.0.0.1", port), Duration::ZERO).unwrap());
        });
    }
}
