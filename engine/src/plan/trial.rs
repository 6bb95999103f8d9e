//! Plans of changes that nobody asked for.
//!
//! Refusals, advice and tables change the settings of a step and plan it again. What was asked for may rule a change out: then no graph can
//! be built from it, and the change is left out. The error is about settings that nobody gave. So it ends here: a [`Trial`] returns
//! options, and who tries changes has no error to pass on.

use tightrope_core::Backend;
use tightrope_nn::{Planned, TrainerConfig};

use super::fit::{self, Closest};
use super::scope::Scope;

/// A scope and a device to plan changed steps for.
#[derive(Clone, Copy)]
pub struct Trial<'a> {
    /// The choices of the planner.
    pub scope: &'a Scope,
    /// The device.
    pub device: &'a dyn Backend,
}

impl<'a> Trial<'a> {
    /// The plan of `config` without a search; `None` if no graph can be built from it.
    pub fn as_is(self, config: &TrainerConfig) -> Option<Planned> {
        Planned::new(config, self.device).ok()
    }

    /// The fastest plan of `config` within `budget` bytes; `None` if none fits or no graph can be built from it.
    pub fn fitting(self, config: &TrainerConfig, budget: u64) -> Option<Planned> {
        fit::fitting(self.scope, config, budget, self.device).ok().flatten()
    }

    /// The fastest plan of `config` within `budget` bytes, else its smallest; `None` if no graph can be built from it.
    pub fn closest(self, config: &TrainerConfig, budget: u64) -> Option<Closest> {
        fit::closest(self.scope, config, budget, self.device).ok()
    }

    /// The fewest bytes of a plan of `config`; `None` if no graph can be built from it.
    pub fn fewest_bytes(self, config: &TrainerConfig) -> Option<u64> {
        fit::fit(self.scope, config, 1, self.device).ok().map(|(_, fewest)| fewest)
    }

    /// As [`Trial::fitting`] with the fewest bytes of a plan, for many budgets: what they share is made once.
    pub fn within(
        self,
        config: &'a TrainerConfig,
    ) -> Option<impl FnMut(u64) -> Option<(Option<Planned>, u64)> + 'a> {
        let mut fits = fit::fits(self.scope, config, self.device).ok()?;
        Some(move |budget| fits(budget).ok())
    }
}
