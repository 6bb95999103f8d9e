//! The fastest plan of a training step within a budget, over its micro-batches and what is recomputed.

use tightrope_core::graph::Program;
use tightrope_core::ops::Collective;
use tightrope_core::plan::{Found, ProgramPlan, Search, Seconds, Target};
use tightrope_core::{Graph, Node, Phase, Plan, Role};

use crate::cost::{Lanes, run_seconds};
use crate::handles::Handles;
use crate::programs::Built;
use crate::weights::Weights;
use crate::{Error, Planned, Precision, Rates, Result, TrainerConfig};

/// Seconds that an op takes.
type OpSeconds<'a> = Box<dyn Fn(&Graph, &Node) -> f64 + 'a>;

/// What a planner may choose, in addition to what is recomputed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Free {
    /// The sequences of one pass: any number that divides those of a step.
    pub micro_batch: bool,
    /// Rows of a loss chunk: as many as are configured, or fewer.
    pub loss_chunk: bool,
}

impl Free {
    /// All of it.
    pub const ALL: Self = Self { micro_batch: true, loss_chunk: true };
    /// None of it.
    pub const NONE: Self = Self { micro_batch: false, loss_chunk: false };
}

/// The plans of one training step. What doesn't depend on a budget is made once.
pub struct Planner<'a> {
    target: &'a dyn Target,
    seconds: OpSeconds<'a>,
    free: Free,
    /// Those that were built: the largest micro-batch, and smaller ones as far as they were asked for.
    choices: Vec<Choice<'a>>,
    /// The others, the largest last.
    waiting: Vec<TrainerConfig>,
    /// Ways to make the transfers of each micro-batch, the faster one first.
    ways: usize,
    /// Error of the largest micro-batch that no graph can be built from.
    refused: Option<Error>,
    /// The smallest plan, once that's asked for.
    smallest: Option<Planned>,
    /// The fewest bytes of a plan, once a budget was too small.
    fewest_bytes: Option<u64>,
}

impl<'a> Planner<'a> {
    /// A planner of the step of `config`, whose ops take `seconds`: over what is `free` and over what is recomputed. Free micro-batches that
    /// no graph can be built from are left out.
    ///
    /// # Errors
    /// As [`Planned::new`] of the largest micro-batch, where none can be built.
    pub fn new(
        config: &TrainerConfig,
        free: Free,
        target: &'a dyn Target,
        seconds: impl Fn(&Graph, &Node) -> f64 + 'a,
    ) -> Result<Self> {
        // Ranks make equally many passes.
        let own = config.own_batch();
        let divisors = (1..=own).filter(|n| own.is_multiple_of(*n));
        let micro_batches: Vec<usize> = match free.micro_batch && own > 0 {
            true => divisors.collect(),
            false => vec![config.micro_batch],
        };
        let ways = config.ways(target);
        let of = |micro_batch| {
            let ways = ways.iter().rev().cloned();
            ways.map(move |config| TrainerConfig { micro_batch, ..config })
        };
        let waiting = micro_batches.into_iter().flat_map(of).collect();
        let ways = ways.len();
        let (seconds, choices) = (Box::new(seconds), vec![]);
        let (refused, smallest, fewest_bytes) = (None, None, None);
        let mut planner =
            Self { target, seconds, free, choices, waiting, ways, refused, smallest, fewest_bytes };
        match planner.build() {
            true => Ok(planner),
            false => Err(planner.refused.expect("a planner has a micro-batch")),
        }
    }

    /// Builds the largest micro-batch that wasn't and that can be. Returns `false` if there is none.
    fn build(&mut self) -> bool {
        while let Some(config) = self.waiting.pop() {
            match Choice::new(config, self.free, self.target, &*self.seconds) {
                Ok(choice) => {
                    self.choices.push(choice);
                    return true;
                }
                Err(error) => _ = self.refused.get_or_insert(error),
            }
        }
        false
    }

    /// Lower bound on the seconds of a step with a micro-batch that wasn't built: a smaller micro-batch does the same work in
    /// more parts.
    fn unbuilt_s(&self) -> f64 {
        if self.waiting.is_empty() {
            return f64::INFINITY;
        }
        let smallest = self.choices.iter().rev().take(self.ways);
        smallest.map(|choice| choice.least_s(0.0)).reduce(f64::min).unwrap_or(0.0)
    }

    /// The fastest plan that fits `budget` bytes, and its bytes. `None` where none fits, and the fewest bytes that one
    /// takes: at most those that a plan takes however fast ops are.
    ///
    /// # Errors
    /// As [`Planned::new`].
    pub fn within(&mut self, budget: u64) -> Result<(Option<Planned>, u64)> {
        if let Some(planned) = self.fitting(budget)? {
            let bytes = planned.plan.peak_bytes();
            return Ok((Some(planned), bytes));
        }
        let bytes = self.smallest()?.plan.peak_bytes();
        Ok((None, self.fewest_bytes(bytes)?))
    }

    /// The fastest plan that fits `budget` bytes. `None` where none fits, which takes less time than to say how many bytes
    /// would be enough.
    ///
    /// # Errors
    /// As [`Planned::new`].
    pub fn fitting(&mut self, budget: u64) -> Result<Option<Planned>> {
        if let Some(planned) = self.fastest(budget)? {
            return Ok(Some(planned));
        }
        // All micro-batches were built by now.
        if self.choices.iter().all(|choice| choice.search.least_bytes() > budget) {
            return Ok(None);
        }
        let smallest = self.smallest()?;
        if smallest.plan.peak_bytes() > budget {
            return Ok(None);
        }
        // The faster plans have alignment gaps that take them over the budget.
        let mut planned = smallest.clone();
        let bound_s = self.bound_s(budget, &[])?;
        planned.bound_s = Some(bound_s.min(self.step_s(&planned)));
        Ok(Some(planned))
    }

    /// Seconds of a planned step.
    fn step_s(&self, planned: &Planned) -> f64 {
        let plan = &planned.plan;
        let of = |(program, planned_as): (&Program, &ProgramPlan)| -> f64 {
            let runs = program.role.runs_per_step(planned.config.accumulation());
            runs as f64 * run_seconds(plan, (program, planned_as), 0.0, &*self.seconds)
        };
        plan.graph.programs.iter().zip(&plan.programs).map(of).sum()
    }

    /// The fastest plan that fits `budget` bytes.
    fn fastest(&mut self, budget: u64) -> Result<Option<Planned>> {
        let mut views: Vec<Option<View>> = vec![];
        // Each closer look can only raise a micro-batch's lower bound, at last to the seconds of a plan within the budget. So the one with
        // the lowest bound is refined next, and the first of these that has a plan is the fastest of all.
        loop {
            let new = self.choices[views.len()..].iter();
            views.extend(new.map(|choice| Some(View::new(choice, budget))));
            let next = fastest(&views);
            let looks_s = next.and_then(|next| Some(views[next].as_ref()?.step_s));
            if looks_s.is_none_or(|looks_s| self.unbuilt_s() < looks_s) && self.build() {
                continue;
            }
            let Some(next) = next else { return Ok(None) };
            if let Some(mut planned) = views[next].as_mut().and_then(|view| view.planned.take()) {
                planned.bound_s = Some(self.bound_s(budget, &views)?);
                return Ok(Some(planned));
            }
            let (choice, Some(view)) = (&mut self.choices[next], &mut views[next]) else {
                continue;
            };
            if !view.glanced {
                view.glanced = true;
                view.extra_s = choice.search.glanced_s(budget)?;
                view.step_s = choice.step_s(view.extra_s);
                if view.step_s == f64::INFINITY {
                    views[next] = None;
                }
                continue;
            }
            let Some(found) = &view.found else {
                let mut found = choice.search.fastest(view.live)?;
                if found.is_none() && view.live < budget {
                    // The last plans to try: the alignment gaps of the others exceed the budget.
                    let smallest = choice.search.smallest()?.into_iter().take(LAST);
                    let fits = |found: &Found| found.needs.bytes <= budget;
                    found = smallest.filter(fits).find(|found| !view.placed.contains(found));
                }
                match found {
                    Some(found) => {
                        view.extra_s = found.needs.extra_s;
                        view.step_s = choice.step_s(view.extra_s);
                        view.found = Some(found);
                    }
                    None => views[next] = None,
                }
                continue;
            };
            let (plan, rows) = (choice.search.place(found)?, choice.search.rows(found));
            let bytes = plan.peak_bytes();
            if bytes > budget {
                // The arena exceeds the live bytes by its alignment gaps, so fewer live bytes are asked for.
                let live = view.live.saturating_sub(bytes - budget);
                view.live = live.min(found.needs.bytes.saturating_sub(1));
                view.placed.extend(view.found.take());
                continue;
            }
            let planned = choice.planned(plan, rows, None);
            view.step_s = view.step_s.max(self.step_s(&planned));
            view.planned = Some(planned);
        }
    }

    /// Lower bound on the seconds of any plan with live bytes within `budget`, given what `views` have found.
    fn bound_s(&mut self, budget: u64, views: &[Option<View>]) -> Result<f64> {
        let mut bound_s = self.unbuilt_s();
        for (index, choice) in self.choices.iter_mut().enumerate() {
            let extra_s = match views.get(index).and_then(Option::as_ref) {
                // What wasn't looked at is slower than what was found.
                Some(view) if view.found.is_none() && view.placed.is_empty() => view.extra_s,
                _ => choice.search.bound_s(budget)?,
            };
            bound_s = bound_s.min(choice.least_s(extra_s));
        }
        Ok(bound_s)
    }

    /// The fewest bytes of any plan, given that one takes `bytes`. The device's own rates lead the search to plans that the
    /// reference rates miss, and some are smaller.
    fn fewest_bytes(&mut self, bytes: u64) -> Result<u64> {
        if let Some(known) = self.fewest_bytes {
            return Ok(known);
        }
        let mut fewest = bytes;
        while let Some(smaller) = self.fastest(fewest.saturating_sub(1))? {
            fewest = smaller.plan.peak_bytes();
        }
        self.fewest_bytes = Some(fewest);
        Ok(fewest)
    }

    /// The smallest plan, as it is where ops take [`reference_s`].
    fn smallest(&mut self) -> Result<&Planned> {
        if self.smallest.is_none() {
            while self.build() {}
            self.smallest = Some(self.fewest()?);
        }
        Ok(self.smallest.as_ref().expect("it was just made"))
    }

    /// The plan of the fewest bytes, of the micro-batches that were built.
    fn fewest(&mut self) -> Result<Planned> {
        let mut choices: Vec<&Choice<'_>> = self.choices.iter().collect();
        choices.sort_by_key(|choice| choice.search.least_bytes());
        let mut planner = Planner {
            target: self.target,
            seconds: Box::new(reference_s),
            free: self.free,
            choices: vec![],
            waiting: vec![],
            ways: self.ways,
            refused: None,
            smallest: None,
            fewest_bytes: None,
        };
        let (mut fewest, mut live): (Option<Planned>, u64) = (None, u64::MAX);
        for choice in choices {
            let less =
                |bytes: u64| fewest.as_ref().is_none_or(|fewest| bytes < fewest.plan.peak_bytes());
            if !less(choice.search.least_bytes()) {
                break;
            }
            let mut choice = choice.retimed(self.target, &reference_s);
            let found = choice.search.smallest()?.swap_remove(0);
            live = live.min(found.needs.bytes);
            if less(found.needs.bytes) {
                let plan = choice.search.place(&found)?;
                if less(plan.peak_bytes()) {
                    fewest = Some(choice.planned(plan, choice.search.rows(&found), None));
                }
                planner.choices.push(choice);
            }
        }
        let mut fewest = fewest.expect("a planner has a micro-batch");
        // The plan with the fewest live bytes may have more alignment gaps than another.
        let gap = |fewest: &Planned| fewest.plan.peak_bytes().saturating_sub(live);
        while gap(&fewest) > live / NEAR
            && let Some(smaller) = planner.fastest(fewest.plan.peak_bytes().saturating_sub(1))?
        {
            fewest = smaller;
        }
        Ok(fewest)
    }
}

impl Planned {
    /// The fastest plan that fits `budget` bytes when ops take `seconds`, over what is `free` and over what is recomputed, and
    /// its bytes. `None` where none fits, and the fewest bytes that one takes.
    ///
    /// # Errors
    /// As [`Planned::new`].
    pub fn within(
        config: &TrainerConfig,
        budget: u64,
        free: Free,
        target: &dyn Target,
        seconds: Seconds<'_>,
    ) -> Result<(Option<Self>, u64)> {
        Planner::new(config, free, target, seconds)?.within(budget)
    }
}

/// Seconds of an op on a processor of which nothing is known.
fn reference_s(graph: &Graph, node: &Node) -> f64 {
    Rates::of("cpu", Precision::F32, 1).seconds(graph, node)
}

/// The search for the smallest plan ends at one whose arena exceeds its fewest live bytes by less than this fraction of
/// them: one part in 65,536.
const NEAR: u64 = 1 << 16;
/// How many of a micro-batch's smallest plans are tried, once the alignment gaps of all faster ones exceed the budget.
const LAST: usize = 3;
/// Budgets tried between the smallest plan and the fastest.
const BUDGETS: u64 = 16;

/// The Pareto front of a step: its plans from the fastest to the smallest. `within` gives the fastest plan that fits a budget
/// in bytes, and the fewest bytes of any plan.
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
    /// Whether `step_s` includes an estimate of recomputation.
    glanced: bool,
    /// The most live bytes of a plan that may still fit once its buffers have offsets.
    live: u64,
    /// The fastest plan with at most `live` live bytes, once it was searched for.
    found: Option<Found>,
    /// Plans whose arenas turned out larger than the budget.
    placed: Vec<Found>,
    /// The plan that was found within the budget.
    planned: Option<Planned>,
    /// Lower bound on what each pass takes longer than with everything kept, from what is known so far, seconds.
    extra_s: f64,
    /// Lower bound on the seconds of a step with it.
    step_s: f64,
}

impl View {
    fn new(choice: &Choice<'_>, budget: u64) -> Self {
        let step_s = choice.step_s(0.0);
        Self {
            glanced: false,
            live: budget,
            found: None,
            placed: vec![],
            planned: None,
            extra_s: 0.0,
            step_s,
        }
    }
}

/// A micro-batch.
struct Choice<'a> {
    config: TrainerConfig,
    host: Option<Graph>,
    weights: Weights,
    handles: Handles,
    search: Search<'a>,
    /// Seconds of a pass without recomputation: of its ops alone where transfers overlap them.
    pass_s: f64,
    /// Seconds of the transfers that overlap a pass.
    overlapped_s: f64,
    /// Seconds of the update.
    update_s: f64,
}

impl<'a> Choice<'a> {
    fn new(
        config: TrainerConfig,
        free: Free,
        target: &'a dyn Target,
        seconds: Seconds<'_>,
    ) -> Result<Self> {
        // What is chosen is that of whole sequences, which take the most.
        let config = TrainerConfig { shorter: vec![], ..config };
        let Built { graph, host, weights, handles } = Built::new(&config)?;
        let moves = Moves::new(&config, &graph, target);
        let overlapped_s = moves.seconds(&graph, seconds);
        let own = moves.own_seconds(seconds);
        let search = Search::new(graph, &config.options, free.loss_chunk, target, &own)?;
        Ok(Self::timed(config, host, weights, handles, search, overlapped_s))
    }

    /// The same micro-batch where ops take other `seconds`.
    fn retimed(&self, target: &dyn Target, seconds: Seconds<'_>) -> Self {
        let Self { config, host, weights, handles, .. } = self;
        let moves = Moves::new(config, self.search.graph(), target);
        let overlapped_s = moves.seconds(self.search.graph(), seconds);
        let search = self.search.retimed(&moves.own_seconds(seconds));
        let (config, host) = (config.clone(), host.clone());
        let (weights, handles) = (weights.clone(), handles.clone());
        Self::timed(config, host, weights, handles, search, overlapped_s)
    }

    fn timed(
        config: TrainerConfig,
        host: Option<Graph>,
        weights: Weights,
        handles: Handles,
        search: Search<'a>,
        overlapped_s: f64,
    ) -> Self {
        let pass_s = search.seconds(Role::Train) + search.seconds(Role::Micro);
        let update_s = search.seconds(Role::Update) + search.seconds(Role::Clear);
        Self { config, host, weights, handles, search, pass_s, overlapped_s, update_s }
    }

    /// The step with this plan, whose loss chunks have `rows` rows.
    fn planned(&self, plan: Plan, rows: Option<usize>, bound_s: Option<f64>) -> Planned {
        let Self { config, host, weights, handles, .. } = self;
        let mut config = TrainerConfig { options: plan.options.clone(), ..config.clone() };
        config.build.loss_chunk = rows.unwrap_or(config.build.loss_chunk);
        Planned {
            config,
            plan,
            bound_s,
            host: host.clone(),
            weights: weights.clone(),
            handles: handles.clone(),
        }
    }

    /// Lower bound on [`Choice::step_s`] once activations are made by matmuls: of what ran once and of what runs again.
    fn least_s(&self, extra_s: f64) -> f64 {
        let fused_s = self.search.fused_s();
        self.step_s((extra_s - fused_s).max(0.0) - fused_s)
    }

    /// Seconds of a step of which each pass takes so much longer.
    fn step_s(&self, extra_s: f64) -> f64 {
        let pass_s = (self.pass_s + extra_s).max(self.overlapped_s);
        self.config.accumulation() as f64 * pass_s + self.update_s
    }
}

/// What moves bytes beside other ops of a pass.
#[derive(Clone, Copy)]
struct Moves {
    /// Transfers between device and host.
    transfers: bool,
    /// What puts weights together.
    assemblies: bool,
    /// Exchanges of gradients.
    exchanges: bool,
}

impl Moves {
    fn new(config: &TrainerConfig, graph: &Graph, target: &dyn Target) -> Self {
        let assemblies = config.options.exchanges_beside_in(graph, target);
        Self {
            transfers: config.options.overlaps(target),
            assemblies,
            exchanges: assemblies && config.gradients_leave(),
        }
    }

    /// Whether a collective is beside other ops.
    fn is_across(self, node: &Node) -> bool {
        // A browser's tab has no others to train with.
        if cfg!(target_family = "wasm") {
            return false;
        }
        match node.op.collective() {
            Some(Collective::Assemble { .. }) => self.assemblies && node.phase != Phase::Update,
            Some(Collective::Exchange(_)) => self.exchanges,
            _ => false,
        }
    }

    /// Seconds that an op occupies the device: none of what goes beside the others.
    fn own_seconds(self, seconds: Seconds<'_>) -> OpSeconds<'_> {
        Box::new(move |graph, node| {
            let is_transfer = self.transfers && node.op.transfer().is_some();
            if is_transfer || self.is_across(node) { 0.0 } else { seconds(graph, node) }
        })
    }

    /// Seconds of what goes beside the ops of a pass: to the device, from it, or across, which takes longest.
    fn seconds(self, graph: &Graph, seconds: Seconds<'_>) -> f64 {
        let passes = graph.programs.iter().filter(|p| [Role::Train, Role::Micro].contains(&p.role));
        let of = |program: &Program| {
            let lanes = Lanes { ops: 0.0, ..Lanes::of(graph, program, seconds) };
            let transfers_s = if self.transfers { lanes.seconds(true) } else { 0.0 };
            // A browser's tab has no others to train with.
            if cfg!(target_family = "wasm") {
                return transfers_s;
            }
            let across = program.nodes.iter().filter(|node| self.is_across(node));
            f64::max(transfers_s, across.map(|node| seconds(graph, node)).sum())
        };
        passes.map(of).sum()
    }
}
