//! The emulated device among those of other ranks, by what stands for NCCL. It goes on by itself where another rank waits for it, as a
//! GPU does, and never earlier.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::{self, Builder};

use tightrope_core::{DeviceError, Linked, Links};

use super::{Device, Emulated, PAUSE, WITHIN, locked};
use crate::collective::{Bytes, Moves};
use crate::driver::nccl::emulated::{self, Calls, Exchange, Memory, Stream};
use crate::driver::nccl::{Communicator, UniqueId};

/// The way to other ranks' devices.
pub struct Link {
    communicator: Communicator,
    calls: Calls,
}

/// Collectives that were begun and aren't done, in their order. Each is drawn to be made at its earliest, as it begins, or at its latest, as
/// it's waited for: so what is read too early shows, and what is overwritten too early.
pub struct Beside {
    waiting: VecDeque<(usize, Moves)>,
    /// The one that is beginning, and whether it's made at once.
    beginning: Option<(usize, bool)>,
    drawn: u64,
}

impl Beside {
    pub fn new(seed: u32) -> Self {
        Self { waiting: VecDeque::new(), beginning: None, drawn: seed.into() }
    }

    /// Takes a collective in, unless it's beginning already; whether it's made at once.
    pub fn begins(&mut self, number: usize, moves: &Moves) -> bool {
        if let Some((of, early)) = self.beginning
            && of == number
        {
            return early;
        }
        // The generator of Knuth's MMIX; its highest bit is its best.
        let next = self.drawn.wrapping_mul(6_364_136_223_846_793_005);
        self.drawn = next.wrapping_add(1_442_695_040_888_963_407);
        let early = self.drawn >> 63 == 1;
        self.beginning = Some((number, early));
        self.waiting.push_back((number, moves.clone()));
        early
    }

    pub fn begun(&mut self) {
        self.beginning = None;
    }

    /// Whether a collective isn't done.
    pub fn waits(&self, number: usize) -> bool {
        self.waiting.iter().any(|(of, _)| *of == number)
    }

    /// Forgets what wasn't done.
    pub fn clear(&mut self) {
        self.waiting.clear();
        self.beginning = None;
    }
}

/// A device's arena, as exchanges read and write it.
struct Arena {
    start: u64,
    bytes: u64,
}

impl Memory for Arena {
    fn bytes(&mut self, Bytes { start, count }: Bytes) -> &mut [u8] {
        assert!(self.start <= start && start + count <= self.start + self.bytes, "{WITHIN}");
        // SAFETY: the arena has these bytes, and the device that holds it does nothing else meanwhile.
        unsafe { std::slice::from_raw_parts_mut(start as *mut u8, count as usize) }
    }
}

impl Device {
    fn memory(&mut self) -> Arena {
        Arena { start: self.arena.as_mut_ptr() as u64, bytes: self.bytes as u64 }
    }

    /// Tells the link where the arena is.
    pub fn register(&mut self) {
        let Arena { start, bytes } = self.memory();
        if let Some(link) = &mut self.link {
            link.communicator.register(Bytes { start, count: bytes });
        }
    }

    /// Takes that back, before the arena goes.
    pub fn deregister(&mut self) -> Result<(), DeviceError> {
        let Arena { start, bytes } = self.memory();
        let Some(link) = &mut self.link else { return Ok(()) };
        link.communicator.deregister();
        // SAFETY: the communicator is the emulated one, and is held by the link.
        let comm = unsafe { emulated::comm(link.communicator.made()) };
        match bytes > 0 && comm.has(Bytes { start, count: bytes }) {
            true => Err(self.lost("memory is freed that other ranks were told of")),
            false => Ok(()),
        }
    }

    /// Makes collectives that were begun, as long as this holds of what is left; whether those are done.
    pub fn exchange_all(&mut self, goes_on: impl Fn(&Beside) -> bool) -> Result<bool, DeviceError> {
        while goes_on(&self.beside)
            && let Some((number, moves)) = self.beside.waiting.pop_front()
        {
            if !self.exchange(&moves)? {
                self.beside.waiting.push_front((number, moves));
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Begins a collective, or goes on with it; whether it's done.
    fn exchange(&mut self, moves: &Moves) -> Result<bool, DeviceError> {
        let mut memory = self.memory();
        if self.exchanging.is_none() {
            for &bytes in &moves.zeros {
                memory.bytes(bytes).fill(0);
            }
            for &(start, to) in &moves.copies {
                let from = memory.bytes(Bytes { start, count: to.count }).to_vec();
                memory.bytes(to).copy_from_slice(&from);
            }
            let link = self.link.as_ref().expect("a device is linked before it exchanges");
            let mut stream = Stream::new();
            let pointer = (&raw mut stream).cast();
            // SAFETY: the arena outlives the queue, and the stream is one as the emulated calls take it.
            let begun = unsafe { link.communicator.exchange(moves, pointer) };
            begun.map_err(|words| self.lost(words))?;
            let Some(group) = stream.pop() else { return Ok(true) };
            let begun = Exchange::new(&moves.what, &group);
            self.exchanging = Some(begun.map_err(|words| self.lost(words))?);
        }
        let (Some(exchange), Some(link)) = (&mut self.exchanging, &mut self.link) else {
            return Ok(true);
        };
        let advanced = exchange.advance(&mut link.calls, &mut memory);
        let is_done = advanced.map_err(|words| self.lost(words))?;
        if is_done {
            self.exchanging = None;
        }
        Ok(is_done)
    }
}

/// Has a device go on where others wait for it, until it's gone or leaves them.
fn go_on(device: &Weak<Mutex<Device>>, was_wanted: &dyn Fn() -> bool) {
    while let Some(device) = device.upgrade() {
        let mut device = device.lock().unwrap_or_else(PoisonError::into_inner);
        if device.link.is_none() {
            return;
        }
        if was_wanted()
            && let Err(error) = device.advance(&|_| false)
            && device.faulted.is_none()
        {
            // Whoever waits for it next is told.
            let DeviceError::Lost { reason, .. } = error else { continue };
            device.faulted = Some(reason);
        }
        drop(device);
        thread::sleep(PAUSE);
    }
}

impl Links for Emulated {
    fn invite(&mut self, rank: usize) -> Result<Vec<u8>, String> {
        match rank {
            0 => emulated::api().unique_id().map(|id| id.0.to_vec()),
            _ => Ok(vec![]),
        }
    }

    fn join(&mut self, invitation: &[u8], rank: usize, count: usize) -> Result<(), String> {
        let id =
            invitation.try_into().map_err(|_| "the invitation is none of NCCL's".to_owned())?;
        let api = Arc::new(emulated::api());
        let communicator = Communicator::new(&api, UniqueId(id), rank, count, Arc::new(|| Ok(())))?;
        // SAFETY: the communicator is the emulated one, and is held by the link.
        let comm = unsafe { emulated::comm(communicator.made()) };
        let shared = Arc::clone(&comm.shared);
        let mut device = self.device();
        let calls = Calls::new(comm, device.seed);
        device.link = Some(Link { communicator, calls });
        device.register();
        drop(device);
        let device = Arc::downgrade(&self.device);
        let go_on = move || go_on(&device, &|| shared.was_wanted(rank));
        Builder::new().spawn(go_on).map_err(|error| error.to_string())?;
        Ok(())
    }

    fn linked(&self) -> Option<Linked> {
        let device = self.device();
        let communicator = &device.link.as_ref()?.communicator;
        let ((rank, count), bytes) = (communicator.place(), communicator.bytes());
        Some(Linked { rank, count, carrier: format!("emulated {}", communicator.name()), bytes })
    }

    fn is_done(&mut self) -> Result<bool, DeviceError> {
        locked(&self.device).advance(&|_| false)
    }

    fn leave(&mut self) {
        let mut device = self.device();
        if let Some(link) = device.link.take() {
            device.queues.clear();
            device.beside.clear();
            (device.exchanging, device.replayed) = (None, 0);
            link.communicator.abort();
        }
    }
}
