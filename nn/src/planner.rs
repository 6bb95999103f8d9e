//! The fastest plan of a training step within a budget, over its micro-batches and what is recomputed.

use tightrope_core::Graph;
use tightrope_core::plan::{Found, Search, Seconds, Target};

use crate::programs::{Built, Handles};
use crate::{Model, Planned, Result, TrainerConfig};

/// The plans of one training step. What doesn't depend on a budget is made once.
pub struct Planner<'a> {
    choices: Vec<Choice<'a>>,
    /// The fewest bytes that a plan takes, once that's asked for.
    smallest: Option<u64>,
}

impl<'a> Planner<'a> {
    /// Of a step as `config` describes it, whose ops take `seconds`: over micro-batches (where `free_micro_batch`) and over
    /// what is recomputed.
    ///
    /// # Errors
    /// As [`Planned::new`].
    pub fn new(
        config: &TrainerConfig,
        free_micro_batch: bool,
        target: &'a dyn Target,
        seconds: Seconds<'_>,
    ) -> Result<Self> {
        let micro_batches = (1..=config.batch)
            .rev()
            .filter(|n| config.batch.is_multiple_of(*n))
            .filter(|&n| free_micro_batch || n == config.micro_batch);
        let choice = |micro_batch| {
            let config = TrainerConfig { micro_batch, ..config.clone() };
            Choice::new(config, target, seconds)
        };
        let choices = micro_batches.map(choice).collect::<Result<Vec<_>>>()?;
        Ok(Self { choices, smallest: None })
    }

    /// The fastest plan that fits `budget` bytes, and its bytes. `None` where none fits, and the fewest bytes that one takes.
    ///
    /// # Errors
    /// As [`Planned::new`].
    pub fn within(&mut self, budget: u64) -> Result<(Option<Planned>, u64)> {
        Ok(match self.fastest(budget)? {
            Some(planned) => {
                let bytes = planned.plan.peak_bytes();
                (Some(planned), bytes)
            }
            None => (None, self.smallest()?),
        })
    }

    /// The fastest plan that fits `budget` bytes.
    fn fastest(&mut self, budget: u64) -> Result<Option<Planned>> {
        let mut bound_s = f64::INFINITY;
        let least = |choice: &Choice<'_>| View {
            live: budget,
            found: None,
            placed: None,
            step_s: choice.least_s,
        };
        let mut views: Vec<Option<View>> = self.choices.iter().map(|c| Some(least(c))).collect();
        // Looking closer only ever makes a choice slower. So the one that looks fastest is looked at next, and the first
        // whose buffers have a place is the fastest of all.
        while let Some(next) = fastest(&views) {
            let (choice, Some(view)) = (&mut self.choices[next], &mut views[next]) else { break };
            let Some(found) = &view.found else {
                let mut found = choice.search.fastest(view.live)?;
                if found.is_none() && view.live < budget {
                    // The last plan to try, once what others leave between buffers is too much.
                    let smallest = choice.search.smallest()?;
                    found = Some(smallest).filter(|found| Some(found) != view.placed.as_ref());
                }
                match found.filter(|found| found.needs.bytes <= budget) {
                    Some(found) => {
                        let least_s = choice.search.bound_s(budget)?;
                        bound_s = bound_s.min(choice.step_s(least_s));
                        view.step_s = choice.step_s(found.needs.recompute_s);
                        view.found = Some(found);
                    }
                    None => views[next] = None,
                }
                continue;
            };
            let plan = choice.search.place(found)?;
            let bytes = plan.peak_bytes();
            if bytes > budget {
                // Offsets leave a gap over the live bytes, which have to be fewer by as much.
                let live = view.live.saturating_sub(bytes - budget);
                view.live = live.min(found.needs.bytes.saturating_sub(1));
                view.placed = view.found.take();
                continue;
            }
            let Choice { config, host, model, handles, .. } = choice;
            let planned = Planned {
                config: TrainerConfig { options: plan.options.clone(), ..config.clone() },
                plan,
                bound_s: Some(bound_s),
                host: host.clone(),
                model: model.clone(),
                handles: handles.clone(),
            };
            return Ok(Some(planned));
        }
        Ok(None)
    }

    /// The fewest bytes that a plan takes.
    fn smallest(&mut self) -> Result<u64> {
        if let Some(known) = self.smallest {
            return Ok(known);
        }
        let mut smallest = u64::MAX;
        for Choice { search, .. } in &mut self.choices {
            let found = search.smallest()?;
            if found.needs.bytes < smallest {
                smallest = search.place(&found)?.peak_bytes().min(smallest);
            }
        }
        // The plan with the fewest live bytes needn't be the one whose offsets leave the fewest gaps.
        while let Some(smaller) = self.fastest(smallest.saturating_sub(1))? {
            smallest = smaller.plan.peak_bytes();
        }
        self.smallest = Some(smallest);
        Ok(smallest)
    }
}

/// The one that looks fastest of those that are left.
fn fastest(views: &[Option<View>]) -> Option<usize> {
    let left = views.iter().enumerate();
    let left = left.filter_map(|(index, view)| Some((index, view.as_ref()?.step_s)));
    left.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(index, _)| index)
}

/// What is known of a micro-batch's plans within a budget.
struct View {
    /// Live bytes that a plan may have, to fit as placed.
    live: u64,
    /// The fastest plan with so many, once it's looked for.
    found: Option<Found>,
    /// The plan that was placed last, in more bytes than there are.
    placed: Option<Found>,
    /// Seconds of a step, as far as is known.
    step_s: f64,
}

/// A micro-batch.
struct Choice<'a> {
    config: TrainerConfig,
    host: Option<Graph>,
    model: Model,
    handles: Handles,
    search: Search<'a>,
    /// Seconds of a step without recomputation.
    least_s: f64,
}

impl<'a> Choice<'a> {
    fn new(config: TrainerConfig, target: &'a dyn Target, seconds: Seconds<'_>) -> Result<Self> {
        let Built { graph, host, model, handles } = Built::new(&config)?;
        let search = Search::new(graph, &config.options, target, seconds)?;
        let pass = search.seconds("train") + search.seconds("micro");
        let least_s = config.accumulation() as f64 * pass + search.seconds("update");
        Ok(Self { config, host, model, handles, search, least_s })
    }

    /// Seconds of a step of which each pass recomputes for so long.
    fn step_s(&self, recompute_s: f64) -> f64 {
        self.least_s + self.config.accumulation() as f64 * recompute_s
    }
}
