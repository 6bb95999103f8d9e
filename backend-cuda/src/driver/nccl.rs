//! NCCL: NVIDIA's library by which GPUs send to each other. It carries bytes and adds nothing up: its reductions have an order of
//! their own, which depends on how many ranks there are and how much is reduced.
//!
//! Facts are those of NVIDIA's `nccl.h` and user guide: what is sent to one rank arrives in its order; calls of a group progress
//! independently; a group can be captured in a graph, whose launch then is an operation of all ranks; a communicator of which a rank
//! is lost never completes, and has to be aborted.

mod api;
#[cfg(any(test, feature = "emulation"))]
pub mod emulated;

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::{self, Builder};
use std::time::Duration;

pub use api::{Api, Made, UniqueId};
use api::{BYTE, Status};

use crate::collective::{Bytes, Moves};

/// How long ranks may take to find each other.
const MEETING: Duration = Duration::from_secs(60);
/// How long they may take to part: whoever ends alone doesn't wait for others that have other troubles.
const PARTING: Duration = Duration::from_secs(5);

/// Makes the device current on a thread, for what the library does there.
pub type Begin = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// A communicator: the way to the GPUs of all ranks.
pub struct Communicator {
    api: Arc<Api>,
    made: Made,
    rank: usize,
    count: usize,
    registered: Option<Made>,
    begin: Begin,
}

// SAFETY: a communicator may be used by any thread, by one at a time.
unsafe impl Send for Communicator {}

/// What a thread gives back that a communicator was made or ended on.
struct Sent(Made);

// SAFETY: as above.
unsafe impl Send for Sent {}

impl Communicator {
    /// Meets all ranks that have this id.
    ///
    /// # Errors
    /// In words, also where a rank doesn't come.
    pub fn new(
        api: &Arc<Api>,
        id: UniqueId,
        rank: usize,
        count: usize,
        begin: Begin,
    ) -> Result<Self, String> {
        let number = |number: usize| i32::try_from(number).map_err(|error| error.to_string());
        let [rank_number, count_number] = [number(rank)?, number(count)?];
        let (sender, receiver) = channel();
        let (calls, on_thread) = (Arc::clone(api), Arc::clone(&begin));
        // The call waits for all ranks, however long they take.
        let meet = move || {
            let met = on_thread().and_then(|()| {
                let mut made = std::ptr::null_mut();
                // SAFETY: a handle is written; the device is current.
                let status = unsafe { (calls.init)(&mut made, count_number, id, rank_number) };
                calls.checked(status, "ncclCommInitRank").map(|()| Sent(made))
            });
            // Nobody hears it where it took too long.
            let _ = sender.send(met);
        };
        Builder::new().spawn(meet).map_err(|error| format!("no thread starts: {error}"))?;
        let late = |_| format!("{}: not all {count} ranks came within 60 s", api.name());
        let Sent(made) = receiver.recv_timeout(MEETING).map_err(late)??;
        Ok(Self { api: Arc::clone(api), made, rank, count, registered: None, begin })
    }

    /// Which rank this is, and how many there are.
    pub fn place(&self) -> (usize, usize) {
        (self.rank, self.count)
    }

    /// Name and version of the library.
    pub fn name(&self) -> String {
        self.api.name()
    }

    /// Bytes of the device that it holds, where the library says.
    pub fn bytes(&self) -> Option<u64> {
        self.api.bytes(self.made)
    }

    /// The library's own handle.
    #[cfg(any(test, feature = "emulation"))]
    pub fn made(&self) -> Made {
        self.made
    }

    /// Tells the library which memory is sent from and received into, so that it needn't copy it first. Works without where the library
    /// doesn't take it.
    pub fn register(&mut self, Bytes { start, count }: Bytes) {
        let mut handle = std::ptr::null_mut();
        // SAFETY: the memory is the device's, and is deregistered before it's freed.
        let status =
            unsafe { (self.api.register)(self.made, start as Made, count as usize, &mut handle) };
        self.registered = (status == 0).then_some(handle);
    }

    /// Takes that back, before the memory is freed.
    pub fn deregister(&mut self) {
        if let Some(handle) = self.registered.take() {
            // SAFETY: the library gave the handle for this communicator; nothing is on its way.
            unsafe { (self.api.deregister)(self.made, handle) };
        }
    }

    /// Gives the sends and receives of a collective to a stream, all at once.
    ///
    /// # Errors
    /// The library's words.
    ///
    /// # Safety
    /// All ranges lie in memory of the device that outlives what is on the stream, and none that is received into shares a byte with
    /// another.
    pub unsafe fn exchange(&self, moves: &Moves, stream: Made) -> Result<(), String> {
        let Moves { sends, receives, .. } = moves;
        if sends.is_empty() && receives.is_empty() {
            return Ok(());
        }
        let Self { api, made, .. } = self;
        // SAFETY: begins a group of this thread, which ends below in any case.
        api.checked(unsafe { (api.group_start)() }, "ncclGroupStart")?;
        // The next rank's come first, so that not all send to one at a time.
        let turn = |peer: usize| (peer + self.count - self.rank) % self.count;
        let call = |list: &[(usize, Bytes)], name, call: &dyn Fn(Bytes, i32) -> Status| {
            let mut list = list.to_vec();
            list.sort_by_key(|&(peer, _)| turn(peer));
            list.into_iter().try_for_each(|(peer, bytes)| {
                let peer = i32::try_from(peer).map_err(|error| error.to_string())?;
                api.checked(call(bytes, peer), name)
            })
        };
        let sent = call(sends, "ncclSend", &|Bytes { start, count }, peer| {
            // SAFETY: the caller's promise.
            unsafe { (api.send)(start as Made, count as usize, BYTE, peer, *made, stream) }
        });
        let received = sent.and_then(|()| {
            call(receives, "ncclRecv", &|Bytes { start, count }, peer| {
                // SAFETY: the caller's promise.
                unsafe { (api.receive)(start as Made, count as usize, BYTE, peer, *made, stream) }
            })
        });
        // SAFETY: ends the group that was begun above.
        let ended = api.checked(unsafe { (api.group_end)() }, "ncclGroupEnd");
        received.and(ended)
    }

    /// What has gone wrong with what is on its way.
    ///
    /// # Errors
    /// The library's words.
    pub fn error(&self) -> Result<(), String> {
        let mut status = 0;
        // SAFETY: a number is written.
        let asked = unsafe { (self.api.async_error)(self.made, &mut status) };
        self.api.checked(asked, "ncclCommGetAsyncError")?;
        self.api.checked(status, "what is on its way")
    }

    /// Gives up what is on its way.
    pub fn abort(mut self) {
        self.end(self.api.abort);
    }

    /// Has the library take the communicator back. Some of its calls wait for the other ranks.
    fn end(&mut self, end: api::End) {
        let made = Sent(std::mem::replace(&mut self.made, std::ptr::null_mut()));
        let (sender, receiver) = channel();
        let (begin, api) = (Arc::clone(&self.begin), Arc::clone(&self.api));
        let take_back = move || {
            let Sent(made) = { made };
            if begin().is_ok() {
                // SAFETY: the library made it, and nothing uses it any more.
                unsafe { end(made) };
            }
            drop(api);
            let _ = sender.send(());
        };
        // One that is late, or that no thread starts for, is left to the end of the process.
        let _ = Builder::new().spawn(take_back);
        let _ = receiver.recv_timeout(PARTING);
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        if self.made.is_null() {
            return;
        }
        self.deregister();
        self.end(if thread::panicking() { self.api.abort } else { self.api.destroy });
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Barrier;
    use std::time::Instant;

    use super::*;
    use emulated::{Calls, Exchange, Memory, Stream};

    /// What it says of itself and of what it's asked, on a machine that may have no GPU.
    #[test]
    #[ignore = "needs NCCL: `cargo xtask kernels` brings it"]
    fn the_library_has_every_call_and_its_errors_are_named() {
        let api = Arc::new(Api::open().expect("NCCL"));
        let name = api.name();
        assert!(name.starts_with("NCCL 2."), "{name}");
        assert!(api.memory_stats.is_some(), "{name} says nothing of its memory");
        let [first, second] = [(); 2].map(|()| api.unique_id().expect("an id").0);
        assert!(first != second && first != [0; UniqueId::BYTES]);
        // Without a GPU no rank is met, and with one there is no rank 2 of 2.
        let begin: Begin = Arc::new(|| Ok(()));
        let said = Communicator::new(&api, UniqueId(first), 2, 2, begin).err().expect("no rank");
        println!("{said}");
        assert!(said.contains(&format!("{name} refuses ncclCommInitRank: ")), "{said}");
        let has_gpu = Path::new("/dev/nvidiactl").exists();
        assert!(
            has_gpu || said.contains("CUDA driver") || said.contains("invalid argument"),
            "{said}"
        );
    }

    /// Memory of the host as that of a device.
    struct Host;

    impl Memory for Host {
        fn bytes(&mut self, Bytes { start, count }: Bytes) -> &mut [u8] {
            // SAFETY: every test gives ranges of vectors that live until its end.
            unsafe { std::slice::from_raw_parts_mut(start as *mut u8, count as usize) }
        }
    }

    /// A rank of so many, with as many bytes of memory, all of them registered.
    fn rank(id: UniqueId, rank: usize, count: usize, memory: &mut [u8]) -> (Communicator, Bytes) {
        let api = Arc::new(emulated::api());
        let begin: Begin = Arc::new(|| Ok(()));
        let mut made = Communicator::new(&api, id, rank, count, begin).expect("all ranks");
        let bytes = Bytes { start: memory.as_mut_ptr() as u64, count: memory.len() as u64 };
        made.register(bytes);
        (made, bytes)
    }

    /// What two ranks come to at the same time.
    fn on_two<T: Send>(run: impl Fn(usize, Communicator, Bytes) -> T + Sync) -> [T; 2] {
        let id = emulated::api().unique_id().expect("an id");
        let run = &run;
        thread::scope(|scope| {
            let ranks = [0, 1].map(|index| {
                scope.spawn(move || {
                    let mut memory = vec![index as u8 + 1; 200_000];
                    let (made, bytes) = rank(id, index, 2, &mut memory);
                    run(index, made, bytes)
                })
            });
            ranks.map(|rank| rank.join().expect("a rank that ends"))
        })
    }

    /// The group of what a rank sends to the other and receives from it.
    fn group(made: &Communicator, send: Bytes, receive: Bytes) -> Result<Exchange, String> {
        let (rank, _) = made.place();
        let moves = Moves {
            what: "x".into(),
            sends: vec![(1 - rank, send)],
            receives: vec![(1 - rank, receive)],
            ..Moves::default()
        };
        let mut stream = Stream::new();
        // SAFETY: the memory outlives the test, and the stream is one as the emulated calls take it.
        unsafe { made.exchange(&moves, (&raw mut stream).cast()) }?;
        Exchange::new("x", &stream.concat())
    }

    fn part(bytes: Bytes, first: u64, count: u64) -> Bytes {
        Bytes { start: bytes.start + first, count }
    }

    #[test]
    fn nothing_is_read_before_the_other_rank_has_come_nor_written_before_all_has() {
        let has_seen = Barrier::new(2);
        let found = on_two(|rank, made, bytes| {
            // SAFETY: the communicator is the emulated one, and lives.
            let mut calls = Calls::new(unsafe { emulated::comm(made.made()) }, 3);
            let (send, receive) = (part(bytes, 0, 90_000), part(bytes, 100_000, 90_000));
            let mut exchange = group(&made, send, receive).expect("a group");
            if rank == 1 {
                has_seen.wait();
            } else {
                assert_eq!(exchange.advance(&mut calls, &mut Host), Ok(false));
                // What is sent may be wrong until now, and nobody sees it.
                Host.bytes(send).fill(7);
                has_seen.wait();
            }
            let since = Instant::now();
            loop {
                let before = Host.bytes(receive).to_vec();
                let is_done = exchange.advance(&mut calls, &mut Host).expect("a piece");
                if is_done {
                    return Host.bytes(receive).to_vec();
                }
                assert!(before.iter().all(|byte| usize::from(*byte) == rank + 1), "written early");
                assert!(since.elapsed() < MEETING, "the other rank is late");
            }
        });
        assert!(found[0].iter().all(|&byte| byte == 2) && found[1].iter().all(|&byte| byte == 7));
    }

    #[test]
    fn what_nccl_leaves_undefined_is_refused() {
        let said = on_two(|_, made, bytes| {
            let outside = group(&made, part(bytes, 199_990, 20), part(bytes, 0, 20));
            let twice = group(&made, part(bytes, 0, 20), part(bytes, 10, 20));
            [outside, twice].map(|made| made.err().expect("a refusal"))
        });
        for [outside, twice] in said {
            assert!(outside.contains("lie in no registered memory"), "{outside}");
            assert!(outside.contains("refuses ncclSend: invalid argument"), "{outside}");
            assert!(twice.contains("shares bytes with"), "{twice}");
        }
    }
}
