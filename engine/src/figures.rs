//! Times of steps, on one rank or each of several, and the one in the middle.
//!
//! ```
//! use tightrope::figures::{StepTimes, median};
//!
//! assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
//! let mut times = StepTimes::default();
//! // The first steps touch memory for the first time: they don't count where there are others.
//! for seconds in [9.0, 5.0, 4.0, 1.0, 2.0] {
//!     times.push(seconds);
//! }
//! assert_eq!((times.count(), times.median()), (5, Some(1.5)));
//! ```

use serde::{Deserialize, Serialize};

/// Times of the steps of a run.
#[derive(Clone, Debug, Default)]
pub struct StepTimes(Vec<f64>);

impl StepTimes {
    /// Steps that touch memory for the first time and fill caches.
    const COLD: usize = 3;

    /// Adds the seconds of the next step.
    pub fn push(&mut self, seconds: f64) {
        self.0.push(seconds);
    }

    /// How many steps there were.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Median seconds of a step, the first ones apart where there are others.
    pub fn median(&self) -> Option<f64> {
        let warm = self.0.get(Self::COLD..).filter(|warm| !warm.is_empty()).unwrap_or(&self.0);
        median(warm)
    }
}

/// What steps take on one of the ranks that train together, on average.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RankTimes {
    /// Seconds of a step, from where all begin it together.
    pub step_s: f64,
    /// Seconds of it in which the rank waits for others, and for what they send.
    pub waited_s: f64,
}

impl RankTimes {
    /// Seconds of a step in which the rank computes.
    pub fn computes_s(&self) -> f64 {
        (self.step_s - self.waited_s).max(0.0)
    }
}

/// The last step of one rank.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RankStep {
    /// What steps of the run took on it, on average.
    pub mean: RankTimes,
    /// The seconds of this one, from where all begin it together.
    pub step_s: f64,
    /// When it waits for the others.
    pub waits: Vec<RankWait>,
}

/// A time in which a rank waits for others, or for what they send.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RankWait {
    /// For what: the name of a tensor.
    pub what: String,
    /// Seconds from the beginning of the step.
    pub begin_s: f64,
    /// Seconds.
    pub took_s: f64,
}

/// The value in the middle, or between the two there.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_steps_do_not_count() {
        let mut times = StepTimes::default();
        assert_eq!(times.median(), None);
        times.push(9.0);
        assert_eq!(times.median(), Some(9.0));
        for seconds in [9.0, 9.0, 1.0, 2.0] {
            times.push(seconds);
        }
        assert_eq!(times.median(), Some(1.5));
    }
}
