//! The fastest plan of a training step within a budget, over its micro-batches and what is recomputed.

use tightrope_core::plan::{Found, Search, Seconds, Target};
use tightrope_core::{Graph, Node};

use crate::programs::{Built, Handles};
use crate::{Model, Planned, Result, TrainerConfig};

/// The plans of one training step. What doesn't depend on a budget is made once.
pub struct Planner<'a> {
    target: &'a dyn Target,
    seconds: Box<dyn Fn(&Graph, &Node) -> f64 + 'a>,
    /// Those that were built: the largest micro-batch, and smaller ones as far as they were asked for.
    choices: Vec<Choice<'a>>,
    /// The others, the largest last.
    waiting: Vec<TrainerConfig>,
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
        seconds: impl Fn(&Graph, &Node) -> f64 + 'a,
    ) -> Result<Self> {
        let micro_batches = (1..=config.batch)
            .filter(|n| config.batch.is_multiple_of(*n))
            .filter(|&n| free_micro_batch || n == config.micro_batch);
        let waiting = micro_batches.map(|n| TrainerConfig { micro_batch: n, ..config.clone() });
        let (seconds, waiting) = (Box::new(seconds), waiting.collect());
        let mut planner = Self { target, seconds, choices: vec![], waiting, smallest: None };
        planner.build()?;
        Ok(planner)
    }

    /// Builds the largest micro-batch that wasn't; whether there was one.
    fn build(&mut self) -> Result<bool> {
        let Some(config) = self.waiting.pop() else { return Ok(false) };
        self.choices.push(Choice::new(config, self.target, &*self.seconds)?);
        Ok(true)
    }

    /// Seconds that no micro-batch takes less than that wasn't built: a smaller one does the same work in more parts.
    fn unbuilt_s(&self) -> f64 {
        match (self.waiting.is_empty(), self.choices.last()) {
            (false, Some(smallest)) => smallest.least_s,
            (false, None) => 0.0,
            (true, _) => f64::INFINITY,
        }
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
        let mut views: Vec<Option<View>> = vec![];
        // Looking closer only ever makes a choice slower. So the one that looks fastest is looked at next, and the first
        // whose buffers have a place is the fastest of all.
        loop {
            let new = self.choices[views.len()..].iter();
            views.extend(new.map(|choice| Some(View::new(choice, budget))));
            let next = fastest(&views);
            let looks_s = next.and_then(|next| Some(views[next].as_ref()?.step_s));
            if looks_s.is_none_or(|looks_s| self.unbuilt_s() < looks_s) && self.build()? {
                continue;
            }
            let Some(next) = next else { return Ok(None) };
            let (choice, Some(view)) = (&mut self.choices[next], &mut views[next]) else {
                continue;
            };
            if !view.glanced {
                view.glanced = true;
                let recompute_s = choice.search.glanced_s(budget)?;
                view.step_s = choice.step_s(recompute_s);
                if view.step_s == f64::INFINITY {
                    views[next] = None;
                }
                continue;
            }
            let Some(found) = &view.found else {
                let mut found = choice.search.fastest(view.live)?;
                if found.is_none() && view.live < budget {
                    // The last plan to try, once what others leave between buffers is too much.
                    let smallest = choice.search.smallest()?;
                    found = Some(smallest).filter(|found| Some(found) != view.placed.as_ref());
                }
                match found.filter(|found| found.needs.bytes <= budget) {
                    Some(found) => {
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
            let bound_s = self.bound_s(budget, &views)?;
            let Choice { config, host, model, handles, .. } = &self.choices[next];
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
    }

    /// Seconds that no plan within `budget` bytes takes less than, where one was found.
    fn bound_s(&mut self, budget: u64, views: &[Option<View>]) -> Result<f64> {
        let mut bound_s = self.unbuilt_s();
        for (choice, view) in self.choices.iter_mut().zip(views) {
            let Some(view) = view else { continue };
            let looked = view.found.is_some() || view.placed.is_some();
            // What wasn't looked at is slower than what was found.
            let mut least_s = view.step_s;
            if looked {
                let recompute_s = choice.search.bound_s(budget)?;
                least_s = choice.step_s(recompute_s);
            }
            bound_s = bound_s.min(least_s);
        }
        Ok(bound_s)
    }

    /// The fewest bytes that a plan takes.
    fn smallest(&mut self) -> Result<u64> {
        if let Some(known) = self.smallest {
            return Ok(known);
        }
        while self.build()? {}
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

/// Budgets tried between the smallest plan and the fastest.
const BUDGETS: u64 = 16;

/// The plans of a step from the fastest to the smallest, where `within` gives the fastest plan that fits so many bytes, or
/// the fewest bytes that one takes.
///
/// # Errors
/// Those of `within`.
pub fn sweep<E>(
    mut within: impl FnMut(u64) -> std::result::Result<(Option<Planned>, u64), E>,
) -> std::result::Result<Vec<Planned>, E> {
    let (fastest, smallest) = (within(u64::MAX)?.0, within(1)?.1);
    let most = fastest.as_ref().map_or(smallest, |planned| planned.plan.peak_bytes());
    let mut plans: Vec<Planned> = fastest.into_iter().collect();
    for part in (0..BUDGETS).rev() {
        let budget = smallest + most.saturating_sub(smallest) * part / BUDGETS;
        let Some(planned) = within(budget)?.0 else { continue };
        let peak = planned.plan.peak_bytes();
        if plans.last().is_none_or(|known| known.plan.peak_bytes() != peak) {
            plans.push(planned);
        }
    }
    Ok(plans)
}

/// The one that looks fastest of those that are left.
fn fastest(views: &[Option<View>]) -> Option<usize> {
    let left = views.iter().enumerate();
    let left = left.filter_map(|(index, view)| Some((index, view.as_ref()?.step_s)));
    left.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(index, _)| index)
}

/// What is known of a micro-batch's plans within a budget.
struct View {
    /// Whether more is known than what it takes without recomputation.
    glanced: bool,
    /// Live bytes that a plan may have, to fit as placed.
    live: u64,
    /// The fastest plan with so many, once it's looked for.
    found: Option<Found>,
    /// The plan that was placed last, in more bytes than there are.
    placed: Option<Found>,
    /// Seconds of a step, as far as is known.
    step_s: f64,
}

impl View {
    fn new(choice: &Choice<'_>, budget: u64) -> Self {
        let step_s = choice.least_s;
        Self { glanced: false, live: budget, found: None, placed: None, step_s }
    }
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
