//! How a rank waits for messages: at first eagerly, then with sleep between looks, so that others get the processor.

use std::thread;
use std::time::Duration;

/// Turns that give the processor to whoever wants it, and come back at once where nobody does.
const EAGER: u32 = 2000;
/// Of eager turns, how many there are to one that does more than to look for bytes.
const EACH: u32 = 64;
const SHORTEST: Duration = Duration::from_micros(20);
const LONGEST: Duration = Duration::from_micros(500);

/// A wait.
pub struct Pause {
    turns: u32,
    sleep: Duration,
}

impl Pause {
    pub fn new() -> Self {
        Self { turns: 0, sleep: SHORTEST }
    }

    /// Waits for a moment; whether nothing needs to be looked at but the bytes that are waited for.
    pub fn turn(&mut self) -> bool {
        if self.turns < EAGER {
            self.turns += 1;
            thread::yield_now();
            return !self.turns.is_multiple_of(EACH);
        }
        thread::sleep(self.sleep);
        self.sleep = (self.sleep * 2).min(LONGEST);
        false
    }
}
