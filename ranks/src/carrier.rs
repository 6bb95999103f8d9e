//! `Carrier`: what a run needs of the other ranks, made of messages. It finds out who is late, and tells the others why a rank ends.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};
use std::{mem, thread};

use tightrope_core::{RanksError, Ticket};

use crate::message::{CONTROL, Control, HEADER, Header, Kind};
use crate::pause::Pause;
use crate::transport::{Fault, Pieces, Tag, Transfer, Transport};

/// The longest message. MPI counts bytes in 32 bits, and progress is seen message by message.
pub const MESSAGE: usize = 64 << 20;
/// How long a rank may take to answer what it does.
const ANSWER: Duration = Duration::from_secs(1);
/// How long bytes may arrive after the word that their sender has ended.
const BEHIND: Duration = Duration::from_millis(500);
/// How long it is between looks at whether processes have ended.
const EACH_LOOK: Duration = Duration::from_millis(100);
/// How often ranks that are late may answer that they wait themselves.
const RENEWALS: u32 = 3;
/// Bytes that ranks have to exchange within a second, beyond the time that they may be waited for.
const SLOWEST: u64 = 1 << 20;

/// Implements [`Ranks`](tightrope_core::Ranks) for a struct whose first field is a [`Carrier`].
macro_rules! carried {
    ($name:ty) => {
        impl tightrope_core::Ranks for $name {
            fn rank(&self) -> usize {
                self.0.rank()
            }

            fn count(&self) -> usize {
                self.0.count()
            }

            fn begin_exchange(
                &mut self,
                what: &str,
                among: std::ops::Range<usize>,
                parts: Vec<u8>,
            ) -> Result<tightrope_core::Ticket, tightrope_core::RanksError> {
                self.0.begin(crate::message::Kind::Exchange, what, among, parts)
            }

            fn begin_gather(
                &mut self,
                what: &str,
                own: Vec<u8>,
            ) -> Result<tightrope_core::Ticket, tightrope_core::RanksError> {
                let all = 0..self.0.count();
                self.0.begin(crate::message::Kind::Gather, what, all, own)
            }

            fn finish(
                &mut self,
                ticket: tightrope_core::Ticket,
            ) -> Result<Vec<u8>, tightrope_core::RanksError> {
                self.0.finish(ticket)
            }

            fn watch(
                &mut self,
                what: &str,
                since: std::time::Instant,
            ) -> Result<(), tightrope_core::RanksError> {
                self.0.watch(what, since)
            }

            fn fail(&mut self, reason: &str) {
                self.0.fail(reason);
            }
        }
    };
}
pub(crate) use carried;

/// One rank, over messages.
pub struct Carrier<T: Transport> {
    pub transport: T,
    /// How long a rank may be waited for; zero sets no limit.
    time_out: Duration,
    /// The longest message; at least a header.
    message: usize,
    tickets: u64,
    in_flight: BTreeMap<u64, InFlight<T::Transfer>>,
    /// Control messages that aren't sent yet.
    telling: Vec<T::Transfer>,
    /// By rank.
    peers: Vec<Peer>,
    /// The rank that is at fault, once this one has told why it can't go on.
    culprit: Option<usize>,
    /// How long the others have been watched, since the moment from which they are.
    watched: Option<(Instant, Watch)>,
}

/// What a rank has said of itself.
#[derive(Clone, Default)]
struct Peer {
    end: Option<End>,
    /// What it waits for, where it was asked and has answered.
    waits: Option<String>,
    exits: bool,
}

#[derive(Clone)]
enum End {
    Done,
    Failed(Fault),
}

/// What was begun and isn't finished.
struct InFlight<T> {
    what: String,
    header: Header,
    /// By rank: whether its header has been compared, or none is awaited.
    compared: Vec<bool>,
    headers: T,
    headers_sent: T,
    sent: T,
    received: T,
}

impl<T: Transfer> InFlight<T> {
    /// Ranks that something still goes to or comes from, an entry for each message.
    fn missing(&self) -> Vec<usize> {
        let all = [&self.headers, &self.received, &self.headers_sent, &self.sent];
        all.into_iter().flat_map(Transfer::missing).collect()
    }
}

impl<T: Transport> Carrier<T> {
    pub fn new(transport: T, time_out: Duration) -> Self {
        let peers = vec![Peer::default(); transport.count()];
        Self {
            transport,
            time_out,
            message: MESSAGE,
            tickets: 0,
            in_flight: BTreeMap::new(),
            telling: vec![],
            peers,
            culprit: None,
            watched: None,
        }
    }

    pub fn rank(&self) -> usize {
        self.transport.rank()
    }

    pub fn count(&self) -> usize {
        self.transport.count()
    }

    /// Begins to exchange parts, or to send all bytes to everybody, among these ranks.
    pub fn begin(
        &mut self,
        kind: Kind,
        what: &str,
        among: Range<usize>,
        bytes: Vec<u8>,
    ) -> Result<Ticket, RanksError> {
        let (rank, count) = (self.rank(), among.len());
        let of = |fault: Fault| RanksError {
            rank: fault.rank,
            what: what.to_owned(),
            reason: fault.reason,
        };
        if !among.contains(&rank) || among.end > self.count() {
            let reason = format!("it isn't among ranks {} to {}", among.start, among.end);
            return Err(of(Fault::of(rank, reason)));
        }
        let length = match kind {
            Kind::Exchange if !bytes.len().is_multiple_of(count) => {
                let reason = format!("{} bytes can't be cut into {count} equal parts", bytes.len());
                return Err(of(Fault::of(rank, reason)));
            }
            Kind::Exchange => bytes.len() / count,
            Kind::Gather => bytes.len(),
        };
        let too_long = || of(Fault::of(rank, format!("{count} times {length} bytes are too many")));
        let mut received = vec![0; length.checked_mul(count).ok_or_else(too_long)?];
        let part = |of: usize| {
            let place = of - among.start;
            place * length..(place + 1) * length
        };
        let source = |to| match kind {
            Kind::Exchange => part(to),
            Kind::Gather => 0..length,
        };
        received[part(rank)].copy_from_slice(&bytes[source(rank)]);
        let ticket = self.tickets;
        let header = Header::new(kind, length, ticket, what);
        let headers = self.pieces(&among, |of| of * HEADER..(of + 1) * HEADER);
        let all = self.pieces(&among, |_| 0..HEADER);
        let (from, to) = (self.pieces(&among, part), self.pieces(&among, source));
        let transport = &mut self.transport;
        let transfers = || {
            // What is received into is known before anything is sent, so that bytes needn't be kept on their way.
            let room = vec![0; HEADER * transport.count()];
            let headers = transport.receive(Tag::Header, room, &headers)?;
            let received = transport.receive(Tag::Data, received, &from)?;
            let headers_sent = transport.send(Tag::Header, header.to_bytes(), &all)?;
            let sent = transport.send(Tag::Data, bytes, &to)?;
            Ok((headers, received, headers_sent, sent))
        };
        let begun = transfers();
        let (headers, received, headers_sent, sent) = begun.map_err(|fault| {
            self.tell_failed(&fault);
            of(fault)
        })?;
        let compared = (0..self.count()).map(|peer| peer == rank || !among.contains(&peer));
        let compared = compared.collect();
        let what = what.to_owned();
        let in_flight = InFlight { what, header, compared, headers, headers_sent, sent, received };
        self.in_flight.insert(ticket, in_flight);
        self.tickets += 1;
        Ok(Ticket(ticket))
    }

    /// Ranges for the others of these ranks, cut into messages. The next rank's comes first, so that not all send to one at a time.
    fn pieces(&self, among: &Range<usize>, range: impl Fn(usize) -> Range<usize>) -> Pieces {
        let rank = self.rank();
        let mut pieces = vec![];
        for peer in (rank + 1..among.end).chain(among.start..rank) {
            let Range { start, end } = range(peer);
            let starts = (start..end).step_by(self.message);
            pieces.extend(starts.map(|start| (peer, start..end.min(start + self.message))));
        }
        pieces
    }

    /// Waits for what was begun.
    pub fn finish(&mut self, ticket: Ticket) -> Result<Vec<u8>, RanksError> {
        let Some(mut transfer) = self.in_flight.remove(&ticket.0) else {
            let what = format!("transfer {}", ticket.0);
            let reason = "this rank has finished it, or never began it".to_owned();
            return Err(RanksError { rank: Some(self.rank()), what, reason });
        };
        match self.wait(&mut transfer) {
            Ok(()) => Ok(transfer.received.into_bytes()),
            Err(fault) => {
                let fault = self.explained(fault, &transfer.what);
                self.tell_failed(&fault);
                Err(RanksError { rank: fault.rank, what: transfer.what, reason: fault.reason })
            }
        }
    }

    fn wait(&mut self, transfer: &mut InFlight<T::Transfer>) -> Result<(), Fault> {
        let mut pause = Pause::new();
        let mut missing = usize::MAX;
        let mut watch = Watch::new(self.time_out);
        let mut ended = None;
        let (since, most) = (Instant::now(), self.longest(transfer));
        loop {
            self.advance(transfer)?;
            let late = transfer.missing();
            if late.is_empty() {
                return Ok(());
            }
            if late.len() < missing {
                missing = late.len();
                pause = Pause::new();
                watch = Watch::new(self.time_out);
            }
            if pause.turn() {
                continue;
            }
            self.listen(Some(&transfer.what))?;
            if let Some(fault) = self.failed() {
                return Err(fault);
            }
            let is_done = |&&rank: &&usize| self.peers[rank].end.is_some();
            if let Some(rank) = late.iter().find(is_done) {
                let since: &mut Instant = ended.get_or_insert_with(Instant::now);
                if since.elapsed() > BEHIND {
                    return Err(Fault::of(*rank, "it has ended"));
                }
            }
            self.look(&mut watch, &late)?;
            if most.is_some_and(|most| since.elapsed() > most) {
                let (left, waited) = (late.len(), since.elapsed().as_secs());
                let reason = format!("{left} messages are still on their way after {waited} s");
                return Err(Fault::of(late[0], reason));
            }
        }
    }

    /// The longest time that a transfer may take, even if a message of it arrives now and then; `None` without a limit.
    fn longest(&self, transfer: &InFlight<T::Transfer>) -> Option<Duration> {
        let peers = transfer.compared.len() as u64;
        let bytes = transfer.header.length.saturating_mul(2 * peers);
        let waits = (self.time_out + ANSWER) * (RENEWALS + 1);
        (!self.time_out.is_zero()).then(|| waits + Duration::from_secs(bytes / SLOWEST))
    }

    /// The first of the ranks that are late whose process has ended.
    fn lost(&self, late: &[usize]) -> Result<(), Fault> {
        let lost =
            late.iter().filter_map(|&rank| Some(Fault::of(rank, self.transport.ended(rank)?)));
        lost.min_by_key(|fault| fault.rank).map_or(Ok(()), Err)
    }

    /// Finds a rank that is lost among those that are late, by its process or by asking what they do.
    fn look(&mut self, watch: &mut Watch, late: &[usize]) -> Result<(), Fault> {
        let mut late = late.to_vec();
        late.sort_unstable();
        late.dedup();
        if watch.looked.elapsed() >= EACH_LOOK {
            watch.looked = Instant::now();
            self.lost(&late)?;
        }
        let Some(limit) = watch.limit else { return Ok(()) };
        match watch.asked {
            None if watch.since.elapsed() >= limit => {
                for &rank in &late {
                    self.peers[rank].waits = None;
                }
                self.tell(&late, &Control::Ask);
                watch.asked = Some(Instant::now());
            }
            None => {}
            Some(asked) => {
                let mut silent = late.clone();
                silent.retain(|&rank| self.peers[rank].waits.is_none());
                if let [first, others @ ..] = &silent[..] {
                    if asked.elapsed() >= ANSWER {
                        let mut reason = format!("no answer within {} s", limit.as_secs_f64());
                        for rank in others {
                            reason += &format!(", nor from rank {rank}");
                        }
                        return Err(Fault::of(*first, reason));
                    }
                } else if watch.renewals == RENEWALS {
                    let waits = self.peers[late[0]].waits.clone().unwrap_or_default();
                    return Err(Fault::of(late[0], format!("it waits for {waits} itself")));
                } else {
                    // Whoever they wait for is named by them.
                    *watch = Watch { renewals: watch.renewals + 1, ..Watch::new(limit) };
                }
            }
        }
        Ok(())
    }

    /// Hears the others while this rank waits for `what` since then, and finds one that is lost.
    pub fn watch(&mut self, what: &str, since: Instant) -> Result<(), RanksError> {
        let known = self.watched.take().filter(|(from, _)| *from == since);
        let (_, mut watch) = known.unwrap_or_else(|| (since, Watch::new(self.time_out)));
        let others = self.others();
        let mut heard = || {
            self.listen(Some(what))?;
            self.failed().map_or(Ok(()), Err)?;
            self.look(&mut watch, &others)
        };
        let heard = heard();
        // Others may compute for as long as they like, as long as they answer.
        watch.renewals = 0;
        self.watched = Some((since, watch));
        heard.map_err(|fault| {
            let fault = self.explained(fault, what);
            self.tell_failed(&fault);
            RanksError { rank: fault.rank, what: what.to_owned(), reason: fault.reason }
        })
    }

    fn advance(&mut self, transfer: &mut InFlight<T::Transfer>) -> Result<(), Fault> {
        let transport = &mut self.transport;
        let mut done = transport.advance(&mut transfer.headers);
        for part in [&mut transfer.received, &mut transfer.headers_sent, &mut transfer.sent] {
            done = done.and(transport.advance(part));
        }
        // A rank that began something else sends something else, which is why its bytes don't fit.
        let compared = transfer.compared.iter_mut().enumerate().filter(|(_, compared)| !**compared);
        for (rank, compared) in compared {
            let piece = rank * HEADER..(rank + 1) * HEADER;
            let Some(bytes) = transfer.headers.arrived(piece) else { continue };
            *compared = true;
            let header =
                Header::from_bytes(&bytes).map_err(|fault| Fault::of(rank, fault.reason))?;
            if header != transfer.header {
                let (theirs, own) = (header.said(), transfer.header.said());
                let reason = format!("it began to {theirs}, where this rank began to {own}");
                return Err(Fault::of(rank, reason));
            }
        }
        done
    }

    /// The reason that the rank at fault gave itself, where it did.
    fn explained(&mut self, fault: Fault, what: &str) -> Fault {
        // A transport that is broken has told why already.
        let _ = self.listen(Some(what));
        self.failed().unwrap_or(fault)
    }

    /// Why a rank has said that it can't go on.
    fn failed(&self) -> Option<Fault> {
        self.peers.iter().find_map(|peer| match &peer.end {
            Some(End::Failed(fault)) => Some(fault.clone()),
            _ => None,
        })
    }

    /// Reads what ranks say of themselves, and answers that this one waits for `what`.
    fn listen(&mut self, what: Option<&str>) -> Result<(), Fault> {
        let count = self.count();
        while let Some((rank, bytes)) = self.transport.control()? {
            let control =
                Control::from_bytes(&bytes).map_err(|fault| Fault::of(rank, fault.reason))?;
            let peer = &mut self.peers[rank];
            match control {
                Control::Ask => {
                    let what = what.unwrap_or("the end of the run").to_owned();
                    self.tell(&[rank], &Control::Waits { what });
                }
                Control::Waits { what } => peer.waits = Some(what),
                Control::Done => peer.end = Some(End::Done),
                Control::Failed { rank: named, reason } => {
                    // A rank that there isn't was named by a rank that is at fault itself.
                    let named = if named < count { named } else { rank };
                    peer.end = Some(End::Failed(Fault::of(named, reason)));
                }
                Control::Exits => peer.exits = true,
            }
        }
        let mut telling = mem::take(&mut self.telling);
        telling.retain_mut(|transfer| {
            // One that can't be told is missed by itself.
            self.transport.advance(transfer).is_ok() && !transfer.missing().is_empty()
        });
        self.telling.extend(telling);
        Ok(())
    }

    fn tell(&mut self, ranks: &[usize], control: &Control) {
        let pieces = ranks.iter().map(|&rank| (rank, 0..CONTROL)).collect();
        // One that can't be told is missed by itself.
        if let Ok(transfer) = self.transport.send(Tag::Control, control.to_bytes(), &pieces) {
            self.telling.push(transfer);
        }
    }

    fn others(&self) -> Vec<usize> {
        (0..self.count()).filter(|&rank| rank != self.rank()).collect()
    }

    fn tell_failed(&mut self, fault: &Fault) {
        if self.culprit.is_none() {
            let rank = fault.rank.unwrap_or_else(|| self.rank());
            self.culprit = Some(rank);
            let reason = fault.reason.clone();
            self.tell(&self.others(), &Control::Failed { rank, reason });
        }
    }

    /// Tells the others why this rank ends.
    pub fn fail(&mut self, reason: &str) {
        self.tell_failed(&Fault::of(self.rank(), reason));
    }

    /// Ends; whether all ranks do so in order.
    pub fn end(&mut self) -> bool {
        if thread::panicking() {
            self.fail("it panicked");
        } else if let Some(transfer) = self.in_flight.values().next() {
            let reason = format!("it has ended without {}", transfer.what);
            self.fail(&reason);
        }
        if self.culprit.is_none() {
            self.tell(&self.others(), &Control::Done);
        }
        let orderly = self.culprit.is_none();
        let others = self.others();
        if orderly && T::ENDS_TOGETHER {
            // As long as it takes: one may write a checkpoint yet, and is ended by a launcher where this process ends first.
            self.until(Duration::MAX, |carrier| {
                let has_ended = |&rank: &usize| carrier.peers[rank].end.is_some();
                others.iter().all(has_ended)
                    || carrier.failed().is_some()
                    || carrier.lost(&others).is_err()
            });
        }
        self.culprit = self.culprit.or_else(|| self.failed()?.rank);
        // Words that are said arrive.
        self.until(BEHIND, |carrier| carrier.telling.is_empty());
        orderly && others.iter().all(|&rank| matches!(self.peers[rank].end, Some(End::Done)))
    }

    /// What is left of it after [`Carrier::end`], and no more.
    #[cfg(unix)]
    pub fn ended(&mut self) -> Self
    where
        T: Clone,
    {
        let peers = mem::take(&mut self.peers);
        Self { peers, culprit: self.culprit, ..Self::new(self.transport.clone(), self.time_out) }
    }

    /// Waits until all ranks have said to their users all that they have to say, but for the one at fault. After that a launcher may end
    /// all.
    #[cfg(unix)]
    pub fn part(&mut self, limit: Duration) {
        let others = self.others();
        self.tell(&others, &Control::Exits);
        self.until(limit, |carrier| {
            let said = |&rank: &usize| Some(rank) == carrier.culprit || carrier.peers[rank].exits;
            others.iter().all(said)
        });
    }

    /// Listens until something is so, or the limit has passed.
    fn until(&mut self, limit: Duration, is_so: impl Fn(&Self) -> bool) {
        let since = Instant::now();
        let mut pause = Pause::new();
        while self.listen(None).is_ok() && !is_so(self) && since.elapsed() < limit {
            pause.turn();
        }
    }
}

/// How long ranks have been waited for.
struct Watch {
    limit: Option<Duration>,
    /// When the last message arrived.
    since: Instant,
    /// When it was last looked whether processes of late ranks have ended.
    looked: Instant,
    /// When those that are late were asked what they do.
    asked: Option<Instant>,
    /// How often they have answered that they wait too.
    renewals: u32,
}

impl Watch {
    fn new(time_out: Duration) -> Self {
        let limit = (!time_out.is_zero()).then_some(time_out);
        let now = Instant::now();
        Self { limit, since: now, looked: now, asked: None, renewals: 0 }
    }
}

#[cfg(test)]
mod tests;
