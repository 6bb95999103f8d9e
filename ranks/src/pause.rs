//! How a rank waits for messages: at first eagerly, then with sleep between looks, so that others get the processor.

use std::thread;
use std::time::{Duration, Instant};

/// How long turns only give the processor to whoever wants it, and come back at once where nobody does. MPI moves a part of a message
/// each time that it's called, so that long ones take many turns.
const EAGER: Duration = Duration::from_millis(50);
/// Of eager turns, how many there are to one that does more than to look for bytes.
const EACH: u32 = 64;
const SHORTEST: Duration = Duration::from_micros(20);
const LONGEST: Duration = Duration::from_micros(500);

/// A wait.
pub struct Pause {
    since: Instant,
    turns: u32,
    sleep: Duration,
}

impl Pause {
    pub fn new() -> Self {
        Self { since: Instant::now(), turns: 0, sleep: SHORTEST }
    }

    /// Waits for a moment; whether nothing needs to be looked at but the bytes that are waited for.
    pub fn turn(&mut self) -> bool {
        self.turns = self.turns.wrapping_add(1);
        if !self.turns.is_multiple_of(EACH) && self.sleep == SHORTEST {
            thread::yield_now();
            return true;
        }
        if self.since.elapsed() > EAGER {
            thread::sleep(self.sleep);
            self.sleep = (self.sleep * 2).min(LONGEST);
        }
        false
    }
}
