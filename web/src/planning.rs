//! A plan within a budget, and what the page shows of it.

use std::collections::HashMap;

use serde::Serialize;
use serde_json::Value;
use tightrope::settings::{self, Chunk, MicroBatch, Recompute};
use tightrope_core::plan::{ByClass, Checkpoint, Options, Target};
use tightrope_core::{Class, Graph, Life, Node, Phase, Plan, Role, Rule as _, Tensor};
use tightrope_nn::{Free, ModelConfig, Planned, Precision, Preset, Rates, TrainerConfig, presets};

use crate::clock;
use crate::device::Description;
use crate::error::{Error, Result};
use crate::setup::Setup;

/// A plan that was found for a setup.
pub struct Found {
    /// The fastest plan that fits, or the smallest where none does.
    pub planned: Planned,
    /// Whether it fits.
    pub fits: bool,
    /// Bytes of the smallest plan that was seen on the way: where none fits, of the smallest there is.
    pub smallest_seen_bytes: u64,
    /// Seconds it took.
    pub seconds: f64,
}

/// The plan of a setup for a device, on which plans may take what it has where the setup names no budget.
///
/// # Errors
/// Settings that make no plan.
pub fn find(setup: &Setup, device: &Description, target: &dyn Target) -> Result<Found> {
    let start = clock::now();
    let budget = setup.budget().or(device.budget).unwrap_or(u64::MAX);
    let config = setup.trainer()?;
    let free = Free {
        micro_batch: setup.micro_batch().is_none(),
        loss_chunk: setup.settings.memory.loss_chunk == Chunk::Auto,
    };
    let rates = rates(device, config.precision);
    let seconds = |graph: &Graph, node: &Node| rates.seconds(graph, node);
    let within = |budget| match setup.settings.memory.recompute.choice() {
        None => Ok(Planned::within(&config, budget, free, target, &seconds)?),
        Some(_) => largest_micro_batch(&config, budget, free.micro_batch, target),
    };
    let (found, smallest) = within(budget)?;
    let fits = found.is_some();
    let planned = match found {
        Some(planned) => planned,
        None => match within(smallest)? {
            (Some(planned), _) => planned,
            (None, _) => self::smallest(setup, &config, target)?,
        },
    };
    let smallest_seen_bytes = smallest.min(planned.plan.peak_bytes());
    Ok(Found { planned, fits, smallest_seen_bytes, seconds: clock::now() - start })
}

/// As [`Planned::within`], for one choice of what is recomputed.
fn largest_micro_batch(
    config: &TrainerConfig,
    budget: u64,
    free: bool,
    target: &dyn Target,
) -> Result<(Option<Planned>, u64)> {
    let mut smallest = u64::MAX;
    let divisors = (1..=config.batch).rev().filter(|n| config.batch.is_multiple_of(*n));
    for micro_batch in divisors.filter(|&n| free || n == config.micro_batch) {
        let planned = Planned::new(&TrainerConfig { micro_batch, ..config.clone() }, target)?;
        smallest = smallest.min(planned.plan.peak_bytes());
        if planned.plan.peak_bytes() <= budget {
            return Ok((Some(planned), smallest));
        }
    }
    Ok((None, smallest))
}

/// The smallest of the plans that the setup leaves open.
fn smallest(setup: &Setup, config: &TrainerConfig, target: &dyn Target) -> Result<Planned> {
    let open = [Checkpoint::Block, Checkpoint::Sqrt];
    let fixed = setup.settings.memory.recompute.choice();
    let choices = match &fixed {
        Some(fixed) => std::slice::from_ref(fixed),
        None => &open[..],
    };
    let micro_batch = setup.micro_batch().unwrap_or(1);
    let mut best: Option<Planned> = None;
    for checkpoint in choices {
        let options = Options { checkpoint: checkpoint.clone(), ..config.options.clone() };
        let config = TrainerConfig { micro_batch, options, ..config.clone() };
        let planned = Planned::new(&config, target)?;
        let smaller = |best: &Planned| planned.plan.peak_bytes() < best.plan.peak_bytes();
        if best.as_ref().is_none_or(smaller) {
            best = Some(planned);
        }
    }
    Ok(best.expect("there is a choice"))
}

/// The first of a few changes of a setup that makes it fit.
pub fn nearest(
    setup: &Setup,
    available: Option<u64>,
    target: &dyn Target,
) -> Result<Option<Setup>> {
    let Some(budget) = setup.budget().or(available) else { return Ok(None) };
    let mut open = setup.clone();
    open.settings.train.micro_batch = MicroBatch::Auto;
    open.settings.memory.recompute = Recompute::Auto;
    open.settings.memory.loss_chunk = Chunk::Auto;
    let smaller = |length: usize, depth: usize| {
        let ModelConfig { context, layers, .. } = setup.model;
        let (context, layers) = ((context / length).max(1), (layers / depth).max(1));
        open.with_model(ModelConfig { context, layers, ..setup.model.clone() })
    };
    let mut narrow = open.clone();
    narrow.settings.run.precision = settings::Precision::of(Precision::BF16);
    let sizes =
        [(2, 1), (4, 1), (1, 2), (2, 2), (4, 4)].map(|(length, depth)| smaller(length, depth));
    for changed in [open.clone(), narrow].into_iter().chain(sizes) {
        let config = changed.trainer()?;
        if smallest(&changed, &config, target)?.plan.peak_bytes() <= budget {
            return Ok(Some(changed));
        }
    }
    Ok(None)
}

/// The error of a setup that doesn't fit.
///
/// # Errors
/// Settings that make no plan.
pub fn refusal(
    setup: &Setup,
    smallest_bytes: u64,
    available: Option<u64>,
    target: &dyn Target,
) -> Result<Error> {
    let budget = setup.budget().or(available).unwrap_or(u64::MAX);
    let nearest = nearest(setup, available, target)?;
    Ok(Error::DoesNotFit {
        what: format!(
            "the training step takes {smallest_bytes} bytes at least, and {budget} are available"
        ),
        smallest_bytes,
        nearest: nearest.map(|setup| setup.to_json().map(Box::new)).transpose()?,
    })
}

/// A model by name, for the page to offer.
#[derive(Clone, Debug, Serialize)]
pub struct Offer {
    /// Name of the preset.
    pub name: &'static str,
    /// Its setup.
    pub setup: Value,
    /// Whether its smallest plan stays comfortable on this device.
    #[serde(skip)]
    pub fits: bool,
}

/// All presets, those that fit first; largest models last within each group.
///
/// # Errors
/// As [`Setup::to_json`].
pub fn offers(comfortable: u64) -> Result<Vec<Offer>> {
    let offer = |preset: &Preset| -> Result<_> {
        let (fits, parameters) = (least_bytes(preset) <= comfortable, preset.config().parameters());
        let setup = Setup::of_model(preset.config()).to_json()?;
        Ok((fits, parameters, Offer { name: preset.name, setup, fits }))
    };
    let mut offers = presets().iter().map(offer).collect::<Result<Vec<_>>>()?;
    offers.sort_by_key(|&(fits, parameters, _)| (!fits, parameters));
    Ok(offers.into_iter().map(|(_, _, offer)| offer).collect())
}

/// What training a preset takes at least, without a plan: weights, gradients and two states of 4 bytes, and
/// the activations of one block and of each block's input for one sequence.
fn least_bytes(preset: &Preset) -> u64 {
    /// Weight, gradient, two moments.
    const PER_PARAMETER: u64 = 16;
    /// Elements of a block per channel and token: norms, projections, the four-fold hidden layer.
    const PER_CHANNEL: usize = 32;
    let config = preset.config();
    let activations = 4 * config.context * config.channels * (PER_CHANNEL + config.layers);
    PER_PARAMETER * config.parameters() + activations as u64
}

/// One op of the program that is shown.
#[derive(Clone, Debug, Serialize)]
pub struct ShownStep {
    op: &'static str,
    name: String,
    phase: Phase,
    flops: u64,
    reads: Vec<usize>,
    writes: Vec<usize>,
}

/// A range of the arena: a persistent tensor, or what lives in one place for a while.
#[derive(Clone, Debug, Serialize)]
pub struct ShownTensor {
    name: String,
    #[serde(rename = "type")]
    ty: String,
    class: Class,
    offset: u64,
    bytes: u64,
    birth: usize,
    death: usize,
    persistent: bool,
    made_by: Option<usize>,
    read_by: Vec<usize>,
    recompute_flops: Option<u64>,
}

/// The planner's choices.
#[derive(Clone, Debug, Serialize)]
pub struct Choices {
    micro_batch: usize,
    accumulation: usize,
    checkpoint: String,
    loss_chunk: usize,
}

/// Everything the page shows of a plan.
#[derive(Clone, Debug, Serialize)]
pub struct Shown {
    peak_bytes: u64,
    lower_bound_bytes: u64,
    persistent_bytes: u64,
    /// Parameters of launches and staging: part of the peak, outside of the arena.
    fixed_bytes: u64,
    budget_bytes: Option<u64>,
    by_class: ByClass,
    plan_ms: f64,
    predicted_step_s: f64,
    parameters: u64,
    choices: Choices,
    fits: bool,
    smallest_seen_bytes: u64,
    nearest: Option<Value>,
    program: Role,
    steps: Vec<ShownStep>,
    timeline: Vec<u64>,
    tensors: Vec<ShownTensor>,
}

impl Found {
    /// What the page shows. `slowness` is how much longer steps take on this device than was estimated.
    ///
    /// # Errors
    /// Settings that make no plan.
    pub fn show(
        &self,
        setup: &Setup,
        device: &Description,
        slowness: f64,
        target: &dyn Target,
    ) -> Result<Shown> {
        let available = device.budget;
        let (plan, config) = (&self.planned.plan, self.planned.config());
        let nearest = if self.fits { None } else { nearest(setup, available, target)? };
        let report = plan.report();
        let program = shown_program(plan);
        let (steps, tensors) = program_map(plan, program);
        Ok(Shown {
            peak_bytes: report.peak_bytes,
            lower_bound_bytes: report.lower_bound_bytes,
            persistent_bytes: plan.persistent_bytes,
            fixed_bytes: plan.fixed_bytes,
            budget_bytes: setup.budget().or(available),
            by_class: report.by_class,
            plan_ms: 1000.0 * self.seconds,
            predicted_step_s: slowness * estimate(&self.planned, device),
            parameters: setup.model.parameters(),
            choices: Choices {
                micro_batch: config.micro_batch,
                accumulation: config.accumulation(),
                checkpoint: config.options.checkpoint.to_string(),
                loss_chunk: config.build.loss_chunk,
            },
            fits: self.fits,
            smallest_seen_bytes: self.smallest_seen_bytes,
            nearest: nearest.map(|setup| setup.to_json()).transpose()?,
            program: plan.graph.programs[program].role,
            steps,
            timeline: plan.programs[program].timeline.clone(),
            tensors,
        })
    }
}

/// Seconds of a step on a device.
pub fn estimate(planned: &Planned, device: &Description) -> f64 {
    let config = planned.config();
    let rates = rates(device, config.precision);
    planned.estimate(&rates).step_s
}

/// The rates of a device: what it was measured at, else the default ones of one thread.
fn rates(device: &Description, precision: Precision) -> Rates {
    let default = Rates::of(&device.name, precision, 1);
    device.rate.map_or(default, |rate| default.scaled_to(rate))
}

/// The program with the most live bytes; of equals, the first.
fn shown_program(plan: &Plan) -> usize {
    let peak = |index: &usize| plan.programs[*index].timeline.iter().copied().max();
    (0..plan.programs.len()).rev().max_by_key(peak).unwrap_or(0)
}

/// The steps of a program, and the ranges of the arena that it uses.
fn program_map(plan: &Plan, program: usize) -> (Vec<ShownStep>, Vec<ShownTensor>) {
    let (graph, planned) = (&plan.graph, &plan.programs[program]);
    let nodes = &graph.programs[program].nodes;
    let flops = |step: usize| {
        let (inputs, outputs) = graph.types(&nodes[step]);
        nodes[step].op.cost(&inputs, &outputs).flops
    };
    let mut shown: Vec<ShownTensor> = vec![];
    let mut index_of: HashMap<Tensor, usize> = HashMap::new();
    for (tensor, offset) in persistent(plan) {
        let info = graph.info(tensor);
        index_of.insert(tensor, shown.len());
        shown.push(ShownTensor {
            name: info.name.clone(),
            ty: info.ty.to_string(),
            class: info.class,
            offset,
            bytes: info.ty.bytes() as u64,
            birth: 0,
            death: nodes.len().saturating_sub(1),
            persistent: true,
            made_by: None,
            read_by: vec![],
            recompute_flops: None,
        });
    }
    for resident in &planned.allocations {
        let first = resident.tensors.first();
        let info = first.map(|&(tensor, _)| graph.info(tensor));
        let class = info.map_or(Class::Workspace, |info| info.class);
        for &(tensor, _) in &resident.tensors {
            index_of.insert(tensor, shown.len());
        }
        let scratch =
            || format!("scratch of {}", graph.info(nodes[resident.birth].outputs[0]).name);
        shown.push(ShownTensor {
            name: info.map_or_else(scratch, |info| info.name.clone()),
            ty: info.map_or_else(|| format!("u8[{}]", resident.bytes), |info| info.ty.to_string()),
            class,
            offset: resident.offset,
            bytes: resident.bytes,
            birth: resident.birth,
            death: resident.death,
            persistent: false,
            made_by: Some(first.map_or(resident.birth, |&(_, born)| born)),
            read_by: vec![],
            recompute_flops: (class == Class::Activation).then(|| flops(resident.birth)),
        });
    }
    let place = |tensor: &Tensor| index_of.get(&graph.storage(*tensor)).copied();
    let mut steps = vec![];
    for (step, node) in nodes.iter().enumerate() {
        let places = |tensors: &[Tensor]| {
            let mut places: Vec<usize> = tensors.iter().filter_map(place).collect();
            places.sort_unstable();
            places.dedup();
            places
        };
        let (reads, writes) = (places(&node.inputs), places(&node.outputs));
        for &read in &reads {
            shown[read].read_by.push(step);
        }
        steps.push(ShownStep {
            op: node.op.name(),
            name: graph.info(node.outputs[0]).name.clone(),
            phase: node.phase,
            flops: flops(step),
            reads,
            writes,
        });
    }
    (steps, shown)
}

/// Tensors that are kept between programs, with their offsets.
fn persistent(plan: &Plan) -> Vec<(Tensor, u64)> {
    let programs = plan.graph.programs.iter().flat_map(|program| &program.nodes);
    let used = programs.flat_map(|node| node.inputs.iter().chain(&node.outputs));
    let mut found: Vec<(Tensor, u64)> = used
        .map(|&tensor| plan.graph.storage(tensor))
        .filter(|&tensor| plan.graph.info(tensor).life == Life::Persistent)
        .filter_map(|tensor| Some((tensor, plan.range(tensor)?.0)))
        .collect();
    found.sort_by_key(|&(tensor, offset)| (offset, tensor));
    found.dedup();
    found
}
