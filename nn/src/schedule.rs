//! Learning rate by step: warm-up, then one of three curves.

use serde::{Deserialize, Serialize};

use crate::error::{Result, ensure};

/// Curve of the learning rate after warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Schedule {
    /// Half a cosine wave (Loshchilov and Hutter 2017).
    Cosine,
    /// A straight line.
    Linear,
    /// No change.
    Constant,
}

impl Schedule {
    /// Every curve.
    pub const ALL: &'static [Self] = &[Self::Cosine, Self::Linear, Self::Constant];

    /// Lower-case name, as in settings.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cosine => "cosine",
            Self::Linear => "linear",
            Self::Constant => "constant",
        }
    }
}

/// Learning rate of every step of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LearningRate {
    /// Curve after warm-up.
    pub schedule: Schedule,
    /// Largest rate, reached at the end of warm-up.
    pub lr: f64,
    /// Rate of the last step; a constant schedule doesn't use it.
    pub min_lr: f64,
    /// Steps of linear warm-up.
    pub warmup: u64,
    /// Steps of the run.
    pub steps: u64,
}

impl LearningRate {
    /// # Errors
    /// [`crate::Error::Setting`] where a rate is negative or not finite, or rates or steps are in the
    /// wrong order.
    pub fn check(&self) -> Result<()> {
        let Self { lr, min_lr, warmup, steps, .. } = *self;
        ensure(lr.is_finite() && lr >= 0.0, "lr", || format!("{lr} must be 0 or more"))?;
        ensure((0.0..=lr).contains(&min_lr), "min_lr", || {
            format!("{min_lr} must lie between 0 and lr = {lr}")
        })?;
        ensure(warmup <= steps, "warmup", || {
            format!("{warmup} steps of warm-up don't fit a run of {steps}")
        })
    }

    /// Rate of `step`, counted from 0: `lr·(step + 1)/warmup` during warm-up; `lr` at the first step
    /// after it, `min_lr` at the last of the run and beyond.
    pub fn lr_at(&self, step: u64) -> f64 {
        let Self { lr, min_lr, warmup, steps, .. } = *self;
        if step < warmup {
            return lr * (step + 1) as f64 / warmup as f64;
        }
        let (done, span) = (step - warmup, steps.saturating_sub(warmup.saturating_add(1)));
        let progress = if span == 0 { 0.0 } else { (done as f64 / span as f64).min(1.0) };
        let left = match self.schedule {
            Schedule::Cosine => 0.5 * (1.0 + (std::f64::consts::PI * progress).cos()),
            Schedule::Linear => 1.0 - progress,
            Schedule::Constant => 1.0,
        };
        min_lr + (lr - min_lr) * left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(schedule: Schedule, warmup: u64, steps: u64) -> LearningRate {
        LearningRate { schedule, lr: 1.0, min_lr: 0.1, warmup, steps }
    }

    #[test]
    fn corners() {
        for schedule in [Schedule::Cosine, Schedule::Linear] {
            let rate = rate(schedule, 4, 105);
            assert_eq!([0, 1, 3, 4].map(|step| rate.lr_at(step)), [0.25, 0.5, 1.0, 1.0]);
            assert!((rate.lr_at(54) - 0.55).abs() < 1e-12, "half way: {}", rate.lr_at(54));
            assert!((rate.lr_at(104) - 0.1).abs() < 1e-12, "last step: {}", rate.lr_at(104));
            assert_eq!(rate.lr_at(104), rate.lr_at(100_000));
        }
        assert!(
            rate(Schedule::Cosine, 4, 105).lr_at(20) > rate(Schedule::Linear, 4, 105).lr_at(20)
        );
        assert_eq!(rate(Schedule::Constant, 2, 9).lr_at(8), 1.0);
    }

    #[test]
    fn without_room() {
        assert_eq!(rate(Schedule::Cosine, 0, 1).lr_at(0), 1.0);
        assert_eq!(rate(Schedule::Cosine, 0, 2).lr_at(0), 1.0);
        assert!((rate(Schedule::Cosine, 0, 2).lr_at(1) - 0.1).abs() < 1e-12);
        assert_eq!(rate(Schedule::Linear, 5, 5).lr_at(4), 1.0);
        assert_eq!(rate(Schedule::Linear, u64::MAX, u64::MAX).lr_at(u64::MAX), 1.0);
    }

    #[test]
    fn refuses_the_impossible() {
        let good = rate(Schedule::Cosine, 1, 10);
        assert!(good.check().is_ok());
        for bad in [
            LearningRate { lr: -1.0, ..good },
            LearningRate { lr: f64::NAN, ..good },
            LearningRate { min_lr: 2.0, ..good },
            LearningRate { min_lr: -0.1, ..good },
            LearningRate { warmup: 11, ..good },
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
    }
}
