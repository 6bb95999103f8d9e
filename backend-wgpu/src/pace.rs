//! How long work takes on this device, so that no submission runs long: a browser or a driver resets a device
//! that doesn't answer.

use tightrope_core::launch::operations;
use tightrope_core::ops::Cost;
use web_time::Instant;

/// Seconds that one submission may take.
pub const SUBMISSION_S: f64 = 0.05;
/// Seconds that one launch may take, several to a submission.
pub const LAUNCH_S: f64 = 0.02;
/// Seconds for starting a launch, however small.
const LAUNCH_OVERHEAD_S: f64 = 10e-6;
/// A device that has not been measured: slower than any processor's emulation of one.
const UNKNOWN: f64 = 1e9;

/// A device's speed as seen so far, operations a second.
pub struct Pace {
    rate: f64,
    queued: f64,
    /// When the first and the last work since the last wait was queued.
    since: Option<(Instant, Instant)>,
    /// When the wait for it began.
    waiting: Option<Instant>,
}

impl Default for Pace {
    fn default() -> Self {
        Self { rate: UNKNOWN, queued: 0.0, since: None, waiting: None }
    }
}

impl Pace {
    /// Seconds that a launch is expected to take.
    pub fn seconds(&self, cost: Cost) -> f64 {
        LAUNCH_OVERHEAD_S + operations(cost) as f64 / self.rate
    }

    /// Operations a second, as seen so far.
    pub fn rate(&self) -> f64 {
        self.rate
    }

    /// Takes a rate from a measurement.
    pub fn set_rate(&mut self, rate: f64) {
        self.rate = rate;
    }

    /// Notes that work was queued.
    pub fn queue(&mut self, cost: Cost) {
        let now = Instant::now();
        self.since = Some((self.since.map_or(now, |(first, _)| first), now));
        self.queued += operations(cost) as f64;
    }

    /// Notes that the host waits for everything queued.
    pub fn wait(&mut self) {
        self.waiting = Some(Instant::now());
    }

    /// Notes that everything queued is done. The device is as fast as it did that, if it was enough to tell
    /// and the host did nothing else meanwhile.
    pub fn done(&mut self) {
        let queued = std::mem::take(&mut self.queued);
        let (Some((first, last)), Some(waiting)) = (self.since.take(), self.waiting.take()) else {
            return;
        };
        let seconds = first.elapsed().as_secs_f64();
        let idle = waiting.duration_since(last).as_secs_f64();
        if seconds > SUBMISSION_S / 5.0 && idle < seconds / 10.0 && queued > 0.0 {
            // Halfway to what was seen: one interruption by another program isn't believed whole.
            self.rate = (self.rate * (queued / seconds)).sqrt();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_work_tells_nothing() {
        let mut pace = Pace::default();
        pace.queue(Cost { flops: 1, bytes: 0 });
        pace.done();
        assert_eq!(pace.rate, UNKNOWN);
    }

    #[test]
    fn the_larger_of_arithmetic_and_traffic_counts() {
        let pace = Pace::default();
        let arithmetic = pace.seconds(Cost { flops: 1_000_000_000, bytes: 1 });
        let traffic = pace.seconds(Cost { flops: 1, bytes: 250_000_000 });
        assert!((arithmetic - 1.0).abs() < 1e-3 && (traffic - 1.0).abs() < 1e-3);
    }
}
