//! `Meeting`: where ranks meet, who may join them, and how each gets a connection to each other.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _};
use std::thread::{self, Builder};
use std::time::{Duration, Instant};

use super::greeting::{Card, Secret, greet, read, send};
use super::hall::{Arrived, GREETING, Hall, Ignored};

/// The time between two tries.
const PAUSE: Duration = Duration::from_millis(20);
/// The time between two tries after a greeting failed.
const LONG_PAUSE: Duration = Duration::from_millis(200);
/// The kind of an error that ends all tries. No connection fails by it.
const REFUSED: io::ErrorKind = io::ErrorKind::Unsupported;
/// The most bytes of a line of the list that rank 0 sends: an address, a space, a port and a newline.
const PLACE: usize = 64;

/// The place where ranks meet, and who may join them.
#[derive(Clone, Debug)]
pub struct Meeting {
    /// Name or address of rank 0's machine.
    pub host: String,
    /// The port at which rank 0 listens.
    pub port: u16,
    /// The address at which this process listens, where that isn't the one by which others know it.
    pub listen: Option<IpAddr>,
    /// A secret that all ranks know.
    pub secret: Option<Secret>,
    /// Ranks without a secret meet elsewhere than at the loopback address too.
    pub insecure: bool,
    /// The time that ranks have to find each other, from the first try to the last connection.
    pub limit: Duration,
}

/// Connections by rank, with none to this one, and whom this rank has ignored.
pub type Met = (Vec<Option<TcpStream>>, Ignored);

impl Meeting {
    /// The name of the variable that says [`Meeting::listen`].
    pub const LISTEN: &str = "TIGHTROPE_LISTEN";

    /// Meets the others.
    pub fn met(&self, rank: usize, count: usize) -> io::Result<Met> {
        let until = Instant::now() + self.limit;
        match rank {
            0 => self.first(count, until),
            _ => self.other(rank, count, until),
        }
    }

    /// Refuses addresses that others than this machine's processes reach, where nobody has to prove who they are.
    fn check(&self, addresses: &[SocketAddr]) -> io::Result<()> {
        let open = addresses.iter().find(|address| !address.ip().to_canonical().is_loopback());
        let Some(open) = open.filter(|_| self.secret.is_none() && !self.insecure) else {
            return Ok(());
        };
        let (address, variable) = (open.ip(), Secret::VARIABLE);
        let reason = format!(
            "{address} is no loopback address, and without a secret whoever reaches it could join the run. \
             Set {variable} to the same secret for every rank, as of `openssl rand -hex 32`, or pass \
             --insecure-ranks in a network where everybody is trusted"
        );
        Err(io::Error::new(REFUSED, reason))
    }

    /// The addresses of a host, once there are some.
    fn addresses(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let addresses: Vec<SocketAddr> = (host, port).to_socket_addrs()?.collect();
        self.check(&addresses)?;
        Ok(addresses)
    }

    /// Rank 0: hears where each rank listens, and tells all.
    fn first(&self, count: usize, until: Instant) -> io::Result<Met> {
        let listener = self.first_listener(until)?;
        let mut hall = Hall::new(listener, self.secret.as_ref(), (0, count))?;
        let arrived = hall.receive(0, until)?;
        let places =
            arrived.iter().map(|Arrived { address, port, .. }| format!("{address} {port}"));
        let list = places.collect::<Vec<_>>().join("\n");
        let mut streams = vec![None];
        for Arrived { stream, .. } in arrived {
            send(&stream, &(list.len() as u32).to_le_bytes(), until)?;
            send(&stream, list.as_bytes(), until)?;
            stream.set_write_timeout(None)?;
            streams.push(Some(stream));
        }
        Ok((streams, hall.ignored))
    }

    fn first_listener(&self, until: Instant) -> io::Result<TcpListener> {
        let addresses = match self.listen {
            Some(address) => {
                let addresses = vec![SocketAddr::new(address, self.port)];
                self.check(&addresses)?;
                addresses
            }
            None => tried(until, || self.addresses(&self.host, self.port))?,
        };
        TcpListener::bind(&addresses[..]).map_err(|error| match error.kind() {
            io::ErrorKind::AddrNotAvailable => {
                let variable = Self::LISTEN;
                let reason = format!(
                    "this machine has no such address: start rank 0 where MASTER_ADDR is, or say by {variable} at \
                     which of its own addresses it listens"
                );
                io::Error::new(error.kind(), reason)
            }
            kind => io::Error::new(kind, format!("can't listen there: {error}")),
        })
    }

    /// Another rank: connects with rank 0, with those before it, and waits for those after it.
    fn other(&self, rank: usize, count: usize, until: Instant) -> io::Result<Met> {
        let card = |port| Card { rank: rank as u32, count: count as u32, port };
        // Others reach this rank at the address from which it reaches rank 0.
        let mut listener = None;
        let first = self.reach((&self.host, self.port), 0, until, |stream| {
            let address = self.listen.unwrap_or(stream.local_addr()?.ip());
            let address = SocketAddr::new(address, 0);
            self.check(&[address])?;
            let own = TcpListener::bind(address)?;
            let port = own.local_addr()?.port();
            listener = Some(own);
            Ok(card(port))
        })?;
        let unbound = || io::Error::other("this rank doesn't listen");
        let listener = listener.ok_or_else(unbound)?;
        let own = card(listener.local_addr()?.port());
        let places = places(&first, count, until)?;
        // One that rank 0 sees on its own machine is there for all.
        let is_near = first.peer_addr()?.ip().to_canonical().is_loopback();
        let mut hall = Hall::new(listener, self.secret.as_ref(), (rank, count))?;
        let (before, after) = thread::scope(|scope| {
            let before = Builder::new().spawn_scoped(scope, || {
                let reach = |(peer, &(address, port)): (usize, &(IpAddr, u16))| {
                    let is_elsewhere = address.is_loopback() && !is_near;
                    let host = if is_elsewhere { self.host.clone() } else { address.to_string() };
                    self.reach((&host, port), peer, until, |_| Ok(own))
                };
                (1..rank).zip(&places).map(reach).collect::<io::Result<Vec<TcpStream>>>()
            })?;
            let after = hall.receive(rank, until);
            let ended = || io::Error::other("a thread has ended that connects with other ranks");
            io::Result::Ok((before.join().unwrap_or_else(|_| Err(ended())), after))
        })?;
        let (before, after) = (before?, after?);
        let after = after.into_iter().map(|arrived| Some(arrived.stream));
        let before = before.into_iter().map(Some);
        let streams = [Some(first)].into_iter().chain(before).chain([None]).chain(after);
        Ok((streams.collect(), hall.ignored))
    }

    /// Connects with a rank and greets it, as often as it takes.
    fn reach(
        &self,
        (host, port): (&str, u16),
        peer: usize,
        until: Instant,
        mut card: impl FnMut(&TcpStream) -> io::Result<Card>,
    ) -> io::Result<TcpStream> {
        let mut greeted = |address: &SocketAddr| {
            let end = until.min(Instant::now() + GREETING);
            let limit = end.saturating_duration_since(Instant::now());
            let stream = TcpStream::connect_timeout(address, limit.max(Duration::from_millis(1)))?;
            let card = card(&stream)?;
            let met = greet(&stream, self.secret.as_ref(), card, peer, end);
            met.inspect_err(|_| thread::sleep(LONG_PAUSE))?;
            Ok(stream)
        };
        let once = || {
            let mut failed = io::Error::from(io::ErrorKind::NotFound);
            for address in self.addresses(host, port)? {
                match greeted(&address) {
                    Ok(stream) => return Ok(stream),
                    Err(error) => failed = error,
                }
            }
            Err(failed)
        };
        tried(until, once).map_err(|error| {
            let reason = format!("rank {peer} isn't met at {host}:{port}: {error}");
            io::Error::new(error.kind(), reason)
        })
    }
}

/// Tries until a deadline, or until something is refused for good. At the deadline, nobody may listen any more, or an attempt be cut off: the
/// error is the last one before that which says more.
fn tried<T>(until: Instant, mut once: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let mut reason = None;
    loop {
        let error = match once() {
            Err(error) if error.kind() != REFUSED => error,
            done => return done,
        };
        let says_little =
            matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::TimedOut);
        if Instant::now() >= until {
            return Err(reason.filter(|_| says_little).unwrap_or(error));
        }
        if !says_little {
            reason = Some(error);
        }
        thread::sleep(PAUSE);
    }
}

/// Reads from rank 0 where the others listen, in the order of ranks.
fn places(first: &TcpStream, count: usize, until: Instant) -> io::Result<Vec<(IpAddr, u16)>> {
    let mut length = [0; 4];
    let waited = |error: io::Error| {
        let reason = format!("rank 0 didn't say where the others are: {error}");
        io::Error::new(error.kind(), reason)
    };
    read(first, &mut length, until).map_err(waited)?;
    let (length, most) = (u32::from_le_bytes(length) as usize, count * PLACE);
    if length > most {
        let reason = format!("rank 0 announced {length} bytes, where {most} are the most");
        return Err(io::Error::other(reason));
    }
    let mut list = vec![0; length];
    read(first, &mut list, until).map_err(waited)?;
    first.set_read_timeout(None)?;
    let list = String::from_utf8_lossy(&list);
    let place = |line: &str| {
        let (address, port) = line.split_once(' ')?;
        Some((address.parse().ok()?, port.parse().ok()?))
    };
    let places: Option<Vec<_>> = list.lines().map(place).collect();
    places
        .filter(|places| places.len() + 1 == count)
        .ok_or_else(|| io::Error::other(format!("rank 0 sent {list:?} instead of addresses")))
}
