//! The plan of a run: the fastest within a budget, over what the settings leave open.

use anyhow::anyhow;
use tightrope_core::{Backend, Graph, Node, Phase, plan};
use tightrope_nn::{Free, Planned, Planner, Precision, StateBits, TrainerConfig};

use super::{plan_file, refusal, refused, threads, trainer_config};
use crate::devices::can_be_lost;
use crate::error::{Failure, Help as _};
use crate::rates::Store;
use crate::settings::{Allow, Bytes, Chunk, MicroBatch, Recompute, Settings};

/// Bytes that a plan may take: `memory.budget`, else what the device has free, or the machine where the device says
/// nothing; `None` where none of them is known.
pub fn budget(settings: &Settings, device: &dyn Backend) -> Option<u64> {
    let named = settings.memory.budget.map(|Bytes(bytes)| bytes);
    named.or_else(|| device.free_bytes()).or_else(free_memory)
}

/// Bytes of memory that the system could hand out now, as Linux estimates it.
pub fn free_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// The plan of the training step: the fastest of those that fit the budget, within the choices that the
/// settings leave open.
///
/// # Errors
/// As [`trainer_config`]; [`Failure::DoesNotFit`] with the smallest arena found and a change that fits.
pub fn planned(settings: &Settings, target: &dyn Backend) -> Result<Planned, Failure> {
    planned_of(settings, trainer_config(settings)?, target)
}

/// As [`planned`], of a trainer that is configured already.
///
/// # Errors
/// As [`planned`].
pub fn planned_of(
    settings: &Settings,
    config: TrainerConfig,
    target: &dyn Backend,
) -> Result<Planned, Failure> {
    if config.offload.any() && !can_be_lost(target) {
        return Err(Failure::usage(
            anyhow!("`memory.offload` is set, and the device is the cpu"),
            "the cpu's memory is the host's, so nothing is gained; leave the setting out",
        ));
    }
    let budget = budget(settings, target).unwrap_or(u64::MAX);
    if let Some(file) = &settings.memory.plan {
        return plan_file::planned(file, settings, &config, budget, target);
    }
    let mut smallest = u64::MAX;
    for config in allowed(settings, &config, target) {
        let (found, least) = fit(settings, &config, budget, target)?;
        if let Some(planned) = found {
            return Ok(planned);
        }
        smallest = smallest.min(least);
    }
    Err(refusal::does_not_fit(settings, &config, budget, smallest, target)?)
}

/// The configuration, and those with the changes that `memory.allow` names, in the order in
/// which they are preferred.
pub(super) fn allowed(
    settings: &Settings,
    config: &TrainerConfig,
    target: &dyn Backend,
) -> Vec<TrainerConfig> {
    let allow = |what| settings.memory.allow.contains(&what);
    let mut precisions = vec![config.precision];
    precisions.extend(
        (allow(Allow::Precision) && config.precision == Precision::F32).then_some(Precision::BF16),
    );
    let mut bits = vec![config.optimizer_bits];
    bits.extend([StateBits::B16, StateBits::B8].into_iter().filter(|&fewer| {
        allow(Allow::OptimizerBits) && u32::from(fewer) < u32::from(config.optimizer_bits)
    }));
    let mut offloads = vec![config.offload];
    if allow(Allow::Offload) && can_be_lost(target) {
        offloads.extend(config.offload.further());
    }
    let mut found = vec![];
    for &precision in &precisions {
        for &optimizer_bits in &bits {
            // What the host keeps changes no number, so it comes before what does.
            found.extend(offloads.iter().map(|&offload| TrainerConfig {
                precision,
                optimizer_bits,
                offload,
                ..config.clone()
            }));
        }
    }
    found
}

/// The fastest plan within `budget` over what the settings leave open, if any, and the fewest bytes of those that
/// were seen.
///
/// # Errors
/// Settings that no graph can be built from.
pub fn fit(
    settings: &Settings,
    config: &TrainerConfig,
    budget: u64,
    target: &dyn Backend,
) -> Result<(Option<Planned>, u64), Failure> {
    fits(settings, config, target)?(budget)
}

/// What [`fit`] gives, by the budget.
pub type Fits<'a> = Box<dyn FnMut(u64) -> Result<(Option<Planned>, u64), Failure> + 'a>;

/// As [`fit`], for many budgets: what they share is made once.
///
/// # Errors
/// Settings that no graph can be built from.
pub fn fits<'a>(
    settings: &'a Settings,
    config: &'a TrainerConfig,
    target: &'a dyn Backend,
) -> Result<Fits<'a>, Failure> {
    if settings.memory.recompute != Recompute::Auto {
        return Ok(Box::new(move |budget| fit_as_asked(settings, config, budget, target)));
    }
    let known = Store::of_user().known(target, config.precision, threads(settings));
    let seconds = move |graph: &Graph, node: &Node| known.rates.seconds(graph, node);
    let planner = Planner::new(config, free(settings), target, seconds);
    let mut planner = planner.map_err(refused)?;
    Ok(Box::new(move |budget| planner.within(budget).map_err(refused)))
}

/// What the settings leave to the planner. Gradients that are consumed are of one pass.
fn free(settings: &Settings) -> Free {
    let Settings { train, memory, .. } = settings;
    Free {
        micro_batch: train.micro_batch == MicroBatch::Auto && !memory.consume_gradients,
        loss_chunk: memory.loss_chunk == Chunk::Auto,
    }
}

/// As [`fit`], where the settings say what is recomputed: the largest micro-batch is the fastest.
fn fit_as_asked(
    settings: &Settings,
    config: &TrainerConfig,
    budget: u64,
    target: &dyn Backend,
) -> Result<(Option<Planned>, u64), Failure> {
    let free_micro_batch = free(settings).micro_batch;
    let mut smallest = u64::MAX;
    for micro_batch in (1..=config.batch).rev().filter(|n| config.batch.is_multiple_of(*n)) {
        if !free_micro_batch && micro_batch != config.micro_batch {
            continue;
        }
        let mut config = TrainerConfig { micro_batch, ..config.clone() };
        if let Recompute::AllBut(names) = &settings.memory.recompute {
            config.options.checkpoint = all_but(names, &config, target)?;
        }
        for config in config.ways(target) {
            let planned = Planned::new(&config, target).map_err(refused)?;
            smallest = smallest.min(planned.plan.peak_bytes());
            if planned.plan.peak_bytes() <= budget {
                return Ok((Some(planned), smallest));
            }
        }
    }
    Ok((None, smallest))
}

/// Recomputation of every activation inside a block but those of these names.
pub(super) fn all_but(
    names: &[String],
    config: &TrainerConfig,
    target: &dyn Backend,
) -> Result<plan::Checkpoint, Failure> {
    let graph = Planned::new(config, target).map_err(refused)?.plan.graph;
    for name in names {
        graph.find(name).help("name activations as `tightrope plan` lists them")?;
    }
    let mut dropped = Vec::new();
    for program in &graph.programs {
        if !program.nodes.iter().any(|node| node.phase == Phase::Backward) {
            continue;
        }
        let forward = program.nodes.iter().filter(|node| node.phase == Phase::Forward);
        for &tensor in forward.filter(|node| node.block.is_some()).flat_map(|node| &node.outputs) {
            let info = graph.info(tensor);
            let kept = names.contains(&info.name) || program.results.contains(&tensor);
            if !kept && info.replaces.is_none() {
                dropped.push(info.name.clone());
            }
        }
    }
    Ok(plan::Checkpoint::Tensors(dropped))
}
