//! Memory that the ranks of an emulated communicator share: a file that each maps. Of each rank to each other there's a lane, through
//! which bytes go a piece at a time.

use std::cell::UnsafeCell;
use std::fs::{self, File};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};
use std::{env, io, process, thread};

use memmap2::MmapRaw;

/// Bytes that go through a lane at once.
const PIECE: usize = 16 << 10;
/// Bytes of what a call is part of, as errors name it.
pub const WORDS: usize = 112;
/// How long ranks may take to find each other.
const MEETING: Duration = Duration::from_secs(60);
/// Most ranks.
const RANKS: usize = 16;

/// What ranks share.
pub struct Shared {
    map: MmapRaw,
    /// How many there are.
    pub count: usize,
}

/// What there is once.
#[repr(C)]
struct Hall {
    /// How many ranks the first one said there are.
    count: AtomicU32,
    joined: AtomicU32,
    /// By rank: whether it has come.
    here: [AtomicU32; RANKS],
    /// By rank: whether others wait for its device.
    wanted: [AtomicU32; RANKS],
}

/// The way from one rank to another. Each half is written by one of them.
#[repr(C)]
pub struct Lane {
    pub sender: End,
    pub receiver: End,
    /// Bytes in the piece; none where it may be filled.
    filled: AtomicU32,
    piece: UnsafeCell<[u8; PIECE]>,
}

/// What a rank has come to at its end of a lane.
#[repr(C)]
pub struct End {
    /// Number of the call, counted from 1, once it's there.
    call: AtomicU64,
    bytes: AtomicU64,
    words: UnsafeCell<[u8; WORDS]>,
}

impl End {
    /// Comes to a call of so many bytes, part of `what`. Only its rank does.
    pub fn come_to(&self, call: u64, bytes: u64, what: &str) {
        let mut words = [0; WORDS];
        let known = &what.as_bytes()[..what.floor_char_boundary(WORDS)];
        words[..known.len()].copy_from_slice(known);
        // SAFETY: the other rank reads it after the call's number, which is written below, and isn't written again before both are done.
        unsafe { *self.words.get() = words };
        self.bytes.store(bytes, Ordering::Relaxed);
        self.call.store(call, Ordering::Release);
    }

    /// Its bytes and what they are part of, once the rank has come to a call.
    pub fn at(&self, call: u64) -> Option<(u64, String)> {
        if self.call.load(Ordering::Acquire) < call {
            return None;
        }
        // SAFETY: written before the number that was read above.
        let words = unsafe { *self.words.get() };
        let words = String::from_utf8_lossy(&words).trim_end_matches('\0').to_owned();
        Some((self.bytes.load(Ordering::Relaxed), words))
    }
}

impl Lane {
    /// Fills the piece with as many of these bytes as fit, where it's empty; how many they were.
    pub fn fill(&self, bytes: &[u8]) -> usize {
        let count = bytes.len().min(PIECE);
        if count == 0 || !self.is_empty() {
            return 0;
        }
        // SAFETY: the piece is the sender's while it's empty.
        let piece = unsafe { &mut *self.piece.get() };
        piece[..count].copy_from_slice(&bytes[..count]);
        self.filled.store(count as u32, Ordering::Release);
        count
    }

    /// Takes what is in the piece.
    pub fn take(&self, bytes: &mut Vec<u8>) -> bool {
        let count = self.filled.load(Ordering::Acquire) as usize;
        if count == 0 {
            return false;
        }
        // SAFETY: the piece is the receiver's while it's filled.
        let piece = unsafe { &*self.piece.get() };
        bytes.extend_from_slice(&piece[..count.min(PIECE)]);
        self.filled.store(0, Ordering::Release);
        true
    }

    /// Whether the receiver has taken what was in the piece.
    pub fn is_empty(&self) -> bool {
        self.filled.load(Ordering::Acquire) == 0
    }
}

impl Shared {
    /// A file for ranks to meet at, by its name in the folder of such files.
    pub fn name() -> io::Result<String> {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let name = format!("tightrope-nccl-{}-{}", process::id(), since.as_nanos());
        File::create_new(path(&name))?;
        Ok(name)
    }

    /// Waits for all ranks at a file.
    ///
    /// # Errors
    /// In words.
    pub fn join(name: &str, rank: usize, count: usize) -> Result<Self, String> {
        if rank >= count || count > RANKS {
            return Err(format!("rank {rank} of {count}, of at most {RANKS}"));
        }
        let path = path(name);
        let map = || {
            let file = File::options().read(true).write(true).open(&path)?;
            // As long for all, whoever comes first.
            file.set_len((size_of::<Hall>() + count * count * size_of::<Lane>()) as u64)?;
            MmapRaw::map_raw(&file)
        };
        let map = map().map_err(|error| format!("{}: {error}", path.display()))?;
        let shared = Self { map, count };
        let hall = shared.hall();
        let (own, none) = (count as u32, 0);
        let said = hall.count.compare_exchange(none, own, Ordering::SeqCst, Ordering::SeqCst);
        if let Err(other) = said
            && other != own
        {
            return Err(format!("{count} ranks here, and {other} there"));
        }
        if hall.here[rank].swap(1, Ordering::SeqCst) != 0 {
            return Err(format!("another one is rank {rank}"));
        }
        hall.joined.fetch_add(1, Ordering::SeqCst);
        let since = Instant::now();
        while hall.joined.load(Ordering::SeqCst) < own {
            if since.elapsed() > MEETING {
                return Err("not all ranks came".into());
            }
            thread::sleep(Duration::from_micros(200));
        }
        if rank == 0 {
            // All have mapped it.
            let _ = fs::remove_file(path);
        }
        Ok(shared)
    }

    /// Bytes that all ranks share.
    pub fn bytes(&self) -> usize {
        self.map.len()
    }

    fn hall(&self) -> &Hall {
        // SAFETY: the file begins with it, as many zeros at first; it holds atomic numbers alone.
        unsafe { &*self.map.as_ptr().cast::<Hall>() }
    }

    /// The way from one rank to another.
    pub fn lane(&self, from: usize, to: usize) -> &Lane {
        let at = size_of::<Hall>() + (from * self.count + to) * size_of::<Lane>();
        assert!(from < self.count && to < self.count && at < self.map.len());
        // SAFETY: the file has a lane there, aligned to 8 bytes as all before it are; what isn't atomic in it is used in turns.
        unsafe { &*self.map.as_ptr().add(at).cast::<Lane>() }
    }

    /// Says that a rank's device is waited for.
    pub fn want(&self, rank: usize) {
        self.hall().wanted[rank].store(1, Ordering::Release);
    }

    /// Whether a rank's device has been waited for since this was asked.
    pub fn was_wanted(&self, rank: usize) -> bool {
        self.hall().wanted[rank].swap(0, Ordering::AcqRel) != 0
    }
}

fn path(name: &str) -> PathBuf {
    let memory = PathBuf::from("/dev/shm");
    if memory.is_dir() { memory } else { env::temp_dir() }.join(name)
}
