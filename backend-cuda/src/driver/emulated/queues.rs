//! What the emulated device was asked for and hasn't done: queues that wait for each other's events.
//!
//! Each asynchronous copy is drawn to be made at its earliest, before any kernel that may run, or at its latest, when
//! no kernel can run before it. So what is read too early shows, and what is overwritten too early.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use tightrope_core::DeviceError;

use super::{Emulated, Work, pages, until};
use crate::driver::{CopyQueues, Event, Pinned, Queue, Wait};

/// Something in a queue.
pub enum Entry {
    /// Of the queue's own kind.
    Work(Work),
    /// A place that an event marks, the so-manieth of the event.
    Mark(Event, usize),
    /// What comes after waits for that place.
    Follow(Event, usize),
}

/// An asynchronous copy.
pub struct Copy {
    pub memory: Arc<Pinned>,
    /// Offset in the arena.
    pub at: u64,
    pub bytes: usize,
    pub direction: Queue,
    early: bool,
}

/// How often an event was asked to mark a place, and how many of these places were passed.
#[derive(Clone, Default)]
struct Marks {
    asked: usize,
    passed: usize,
}

#[derive(Default)]
pub struct Queues {
    kernels: VecDeque<Entry>,
    loads: VecDeque<Entry>,
    stores: VecDeque<Entry>,
    events: Vec<Marks>,
    drawn: u64,
}

impl Queues {
    /// Draws when copies are made from a seed.
    pub fn new(seed: u32) -> Self {
        Self { drawn: seed.into(), ..Self::default() }
    }

    fn of(&self, queue: Queue) -> &VecDeque<Entry> {
        match queue {
            Queue::Kernels => &self.kernels,
            Queue::Loads => &self.loads,
            Queue::Stores => &self.stores,
        }
    }

    fn of_mut(&mut self, queue: Queue) -> &mut VecDeque<Entry> {
        match queue {
            Queue::Kernels => &mut self.kernels,
            Queue::Loads => &mut self.loads,
            Queue::Stores => &mut self.stores,
        }
    }

    pub fn event(&mut self) -> Event {
        self.events.push(Marks::default());
        Event(self.events.len() - 1)
    }

    pub fn mark(&mut self, event: Event, queue: Queue) {
        let marks = &mut self.events[event.0];
        marks.asked += 1;
        let asked = marks.asked;
        self.of_mut(queue).push_back(Entry::Mark(event, asked));
    }

    pub fn follow(&mut self, queue: Queue, event: Event) {
        let asked = self.asked(event);
        self.of_mut(queue).push_back(Entry::Follow(event, asked));
    }

    pub fn push(&mut self, work: Work) {
        self.kernels.push_back(Entry::Work(work));
    }

    /// An asynchronous copy.
    pub fn copy(&mut self, direction: Queue, memory: &Arc<Pinned>, at: u64, bytes: usize) {
        // The generator of Knuth's MMIX; its highest bit is its best.
        let next = self.drawn.wrapping_mul(6_364_136_223_846_793_005);
        self.drawn = next.wrapping_add(1_442_695_040_888_963_407);
        let early = self.drawn >> 63 == 1;
        let copy = Copy { memory: Arc::clone(memory), at, bytes, direction, early };
        self.of_mut(direction).push_back(Entry::Work(Work::AsyncCopy(copy)));
    }

    /// How often an event was asked to mark a place.
    pub fn asked(&self, event: Event) -> usize {
        self.events[event.0].asked
    }

    /// Whether an event's place of this number was passed.
    pub fn passed(&self, event: Event, number: usize) -> bool {
        self.events[event.0].passed >= number
    }

    pub fn is_empty(&self, queue: Queue) -> bool {
        self.of(queue).is_empty()
    }

    /// Passes every mark that is reached, and what waited for it.
    pub fn settle(&mut self) {
        let mut moved = true;
        while std::mem::take(&mut moved) {
            for queue in [Queue::Kernels, Queue::Loads, Queue::Stores] {
                while let Some(entry) = self.of_mut(queue).pop_front() {
                    match entry {
                        Entry::Mark(event, number) => self.events[event.0].passed = number,
                        Entry::Follow(event, number) if self.passed(event, number) => {}
                        other => {
                            self.of_mut(queue).push_front(other);
                            break;
                        }
                    }
                    moved = true;
                }
            }
        }
    }

    /// The next work to do, of queues that are settled. `None` where nothing is left.
    pub fn next(&mut self) -> Option<Work> {
        let turns = [
            (Queue::Loads, true),
            (Queue::Stores, true),
            (Queue::Kernels, false),
            (Queue::Loads, false),
            (Queue::Stores, false),
        ];
        let ready = |(queue, early): &(Queue, bool)| match self.of(*queue).front() {
            Some(Entry::Work(Work::AsyncCopy(copy))) => copy.early == *early,
            Some(Entry::Work(_)) => true,
            _ => false,
        };
        let (queue, _) = turns.into_iter().find(ready)?;
        match self.of_mut(queue).pop_front() {
            Some(Entry::Work(work)) => Some(work),
            _ => None,
        }
    }

    /// Gives back what came from the queue of kernels and isn't done.
    pub fn put_back(&mut self, work: Work) {
        self.kernels.push_front(Entry::Work(work));
    }

    /// Forgets what wasn't done, as if it had been.
    pub fn clear(&mut self) {
        for queue in [Queue::Kernels, Queue::Loads, Queue::Stores] {
            self.of_mut(queue).clear();
        }
        self.events.iter_mut().for_each(|marks| marks.passed = marks.asked);
    }
}

impl CopyQueues for Emulated {
    fn pinned(&mut self, bytes: usize) -> Result<Pinned, DeviceError> {
        Ok(pages(bytes))
    }

    fn event(&mut self) -> Result<Event, DeviceError> {
        Ok(self.device().queues.event())
    }

    fn mark_event(&mut self, event: Event, queue: Queue) -> Result<(), DeviceError> {
        self.device().queues.mark(event, queue);
        Ok(())
    }

    fn follow(&mut self, queue: Queue, event: Event) -> Result<(), DeviceError> {
        self.device().queues.follow(queue, event);
        Ok(())
    }

    fn waiter(&self, event: Event) -> Wait {
        let (device, number) = (Arc::clone(&self.device), self.device().queues.asked(event));
        Box::new(move || until(&device, &|queues| queues.passed(event, number)))
    }

    fn load_async(&mut self, from: &Arc<Pinned>, to: Range<u64>) -> Result<(), DeviceError> {
        let bytes = (to.end - to.start) as usize;
        self.device().queues.copy(Queue::Loads, from, to.start, bytes);
        Ok(())
    }

    fn store_async(&mut self, from: Range<u64>, to: &Arc<Pinned>) -> Result<(), DeviceError> {
        let bytes = (from.end - from.start) as usize;
        self.device().queues.copy(Queue::Stores, to, from.start, bytes);
        Ok(())
    }
}
