//! The fastest plan of a step that fits so many bytes.

use anyhow::anyhow;
use tightrope_core::{Backend, Graph, Node, Phase, plan};
use tightrope_nn::{
    GradientSums, Gradients, Master, Planned, Planner, Precision, Shard, StateBits, TableBits,
    TrainerConfig,
};

use super::scope::Scope;
use crate::error::{Error, Help as _, Result};
use crate::settings::{Allow, Recompute};

/// Steps of more ops are planned a few times, not some thirty times: that would take longer than to wait for. This is about 200
/// layers.
const OPS: usize = 10_000;

/// Whether some thirty plans of such a step take longer than to wait for.
pub(crate) fn is_deep(graph: &Graph) -> bool {
    graph.programs.iter().map(|program| program.nodes.len()).sum::<usize>() > OPS
}

/// Whether the device has memory apart from the host's, where something is to be offloaded.
pub(super) fn offloads(config: &TrainerConfig, target: &dyn Backend) -> Result<()> {
    if config.offload.any() && !target.kind().can_be_lost() {
        return Err(Error::usage(
            anyhow!(
                "`memory.offload` is set, and the device is the cpu, whose memory is the host's"
            ),
            "leave the setting out: nothing is gained",
        ));
    }
    Ok(())
}

/// The configuration, and those with the changes that `memory.allow` names, in the order in
/// which they are preferred.
pub(super) fn allowed(
    scope: &Scope,
    config: &TrainerConfig,
    target: &dyn Backend,
) -> Vec<TrainerConfig> {
    let allow = |what| scope.allow.contains(&what);
    let mut precisions = vec![config.precision];
    precisions.extend(
        (allow(Allow::Precision) && config.precision == Precision::F32).then_some(Precision::BF16),
    );
    let mut states = vec![(config.optimizer_bits, config.table_bits)];
    states.extend([StateBits::B16, StateBits::B8].into_iter().filter_map(|fewer| {
        let allowed = allow(Allow::OptimizerBits)
            && config.optimizer.takes_fewer_bits()
            && u32::from(fewer) < u32::from(config.optimizer_bits)
            && (config.table_bits == TableBits::B32 || fewer == StateBits::B8);
        allowed.then_some((fewer, config.table_bits))
    }));
    let narrowest = states.last().copied();
    states.extend(narrowest.and_then(|(bits, tables)| {
        let allowed = allow(Allow::TableBits) && bits == StateBits::B8 && tables == TableBits::B32;
        allowed.then_some((bits, TableBits::B8))
    }));
    let mut offloads = vec![config.offload];
    if allow(Allow::Offload) && target.kind().can_be_lost() {
        offloads.extend(config.offload.further());
    }
    let mut found = vec![];
    for &precision in &precisions {
        for &(optimizer_bits, table_bits) in &states {
            for (gradients, master) in narrower(scope, config, precision) {
                // What the host keeps changes no number, so it comes before what does.
                found.extend(offloads.iter().map(|&offload| TrainerConfig {
                    precision,
                    gradients,
                    master,
                    optimizer_bits,
                    table_bits,
                    offload,
                    ..config.clone()
                }));
            }
        }
    }
    found
}

/// The configuration with each thing that ranks may hold a shard of, where that's open: they change no number of a step of one pass.
pub(super) fn sharded(scope: &Scope, config: &TrainerConfig) -> Vec<TrainerConfig> {
    if !scope.shard || config.ranks == 1 || !config.optimizer.is_elementwise() {
        return vec![config.clone()];
    }
    // Sums of gradients with their rounding errors are a rank's own.
    let most = if config.gradients == Gradients::Kahan { Shard::State } else { Shard::Weights };
    // Sums in the order of micro-batches are made by all ranks together, where each has several.
    let ordered = config.gradient_sums == GradientSums::Ordered && config.accumulation() > 1;
    let least = if ordered { Shard::Gradients } else { Shard::Nothing };
    let all = Shard::ALL.iter().filter(|&shard| (least..=most).contains(shard));
    all.map(|&shard| TrainerConfig { shard, ..config.clone() }).collect()
}

/// Gradients and masters as they are asked for, then without what `memory.allow` lets the planner leave out, gradients first:
/// their rounding is of one step, that of weights of all.
fn narrower(
    scope: &Scope,
    config: &TrainerConfig,
    precision: Precision,
) -> Vec<(Gradients, Master)> {
    let allow = |what| scope.allow.contains(&what);
    let mut found = vec![(config.gradients, config.master)];
    if allow(Allow::Gradients) && config.gradients == Gradients::F32 {
        found.push((Gradients::BF16, config.master));
    }
    if allow(Allow::Master) && config.master == Master::F32 && precision == Precision::BF16 {
        let gradients = found.last().map_or(config.gradients, |&(gradients, _)| gradients);
        found.push((gradients, Master::None));
    }
    found
}

/// The fastest plan within `budget` over what the scope leaves open, if any, and the fewest bytes of those that
/// were seen.
///
/// # Errors
/// Settings that no graph can be built from.
pub(super) fn fit(
    scope: &Scope,
    config: &TrainerConfig,
    budget: u64,
    target: &dyn Backend,
) -> Result<(Option<Planned>, u64)> {
    fits(scope, config, target)?(budget)
}

/// The plan of [`fit`] alone, where there is one: `None` too of micro-batches that the batch can't be cut into.
///
/// # Errors
/// Settings that no graph can be built from.
pub(super) fn fitting(
    scope: &Scope,
    config: &TrainerConfig,
    budget: u64,
    target: &dyn Backend,
) -> Result<Option<Planned>> {
    let found = match scope.recompute {
        Recompute::Auto => {
            planner(scope, config, target).and_then(|mut planner| Ok(planner.fitting(budget)?))
        }
        _ => fit_as_asked(scope, config, budget, target).map(|(found, _)| found),
    };
    match found {
        Err(error) if error.is_mixed() => Ok(None),
        found => found,
    }
}

/// The fastest plan within a budget, if one fits, and the bytes of the smallest.
pub type Fits<'a> = Box<dyn FnMut(u64) -> Result<(Option<Planned>, u64)> + 'a>;

/// Plans within many budgets: work that they share is done once.
///
/// # Errors
/// Settings that no graph can be built from.
pub fn fits<'a>(
    scope: &'a Scope,
    config: &'a TrainerConfig,
    target: &'a dyn Backend,
) -> Result<Fits<'a>> {
    if scope.recompute != Recompute::Auto {
        return Ok(Box::new(move |budget| fit_as_asked(scope, config, budget, target)));
    }
    let mut planner = planner(scope, config, target)?;
    Ok(Box::new(move |budget| planner.within(budget).map_err(Error::from)))
}

fn planner<'a>(
    scope: &Scope,
    config: &TrainerConfig,
    target: &'a dyn Backend,
) -> Result<Planner<'a>> {
    let known = scope.rates.known(target, config.precision, scope.threads);
    let seconds = move |graph: &Graph, node: &Node| known.rates.seconds(graph, node);
    Planner::new(config, scope.free(), target, seconds).map_err(Error::from)
}

/// The fastest plan within a budget; where none fits, the smallest.
pub struct Closest {
    /// The plan.
    pub planned: Planned,
    /// Whether it fits.
    pub fits: bool,
    /// The fewest bytes of the plans that were seen: where none fits, of all.
    pub fewest_bytes: u64,
}

/// The fastest plan within `budget` over what the scope leaves open; where none fits, the smallest.
///
/// # Errors
/// Settings that no graph can be built from, and a device that can't offload.
pub fn closest(
    scope: &Scope,
    config: &TrainerConfig,
    budget: u64,
    target: &dyn Backend,
) -> Result<Closest> {
    offloads(config, target)?;
    let (mut smallest, mut refused): (Option<Closest>, _) = (None, None);
    for config in sharded(scope, config) {
        match closest_of(scope, &config, budget, target) {
            Ok(next) if next.fits => return Ok(next),
            Ok(next) => {
                let least = smallest.as_ref().map_or(u64::MAX, |before| before.fewest_bytes);
                if next.fewest_bytes < least {
                    smallest = Some(next);
                }
            }
            Err(error) => _ = refused.get_or_insert(error),
        }
    }
    let nothing = || Error::failed(anyhow!("nothing is left to choose from"), "report it");
    smallest.ok_or_else(|| refused.unwrap_or_else(nothing))
}

/// As [`closest`], of one thing that ranks hold a shard of.
fn closest_of(
    scope: &Scope,
    config: &TrainerConfig,
    budget: u64,
    target: &dyn Backend,
) -> Result<Closest> {
    let mut fits = fits(scope, config, target)?;
    match fits(budget)? {
        (Some(planned), fewest_bytes) => Ok(Closest { planned, fits: true, fewest_bytes }),
        (None, fewest_bytes) => {
            let (smallest, _) = fits(fewest_bytes)?;
            let lost = || anyhow!("no plan takes the {fewest_bytes} bytes that one took before");
            let planned = smallest.ok_or_else(|| Error::failed(lost(), "report it"))?;
            Ok(Closest { planned, fits: false, fewest_bytes })
        }
    }
}

/// As [`fit`], where the scope says what is recomputed: the largest micro-batch is the fastest.
fn fit_as_asked(
    scope: &Scope,
    config: &TrainerConfig,
    budget: u64,
    target: &dyn Backend,
) -> Result<(Option<Planned>, u64)> {
    let (mut smallest, mut refused) = (u64::MAX, None);
    let own = config.own_batch();
    let micro_batches: Vec<usize> = match scope.micro_batch && own > 0 {
        true => (1..=own).rev().filter(|n| own.is_multiple_of(*n)).collect(),
        false => vec![config.micro_batch],
    };
    for micro_batch in micro_batches {
        let mut config = TrainerConfig { micro_batch, shorter: vec![], ..config.clone() };
        if let Recompute::AllBut(names) = &scope.recompute {
            match all_but(names, &config, target) {
                Ok(checkpoint) => config.options.checkpoint = checkpoint,
                Err(error) => {
                    refused.get_or_insert(error);
                    continue;
                }
            }
        }
        for config in config.ways(target) {
            match Planned::new(&config, target) {
                Ok(planned) => {
                    smallest = smallest.min(planned.plan.peak_bytes());
                    if planned.plan.peak_bytes() <= budget {
                        return Ok((Some(planned), smallest));
                    }
                }
                Err(error) => _ = refused.get_or_insert(error.into()),
            }
        }
    }
    match refused {
        Some(error) if smallest == u64::MAX => Err(error),
        _ => Ok((None, smallest)),
    }
}

/// A step on sequences of its full length.
///
/// # Errors
/// Settings that no graph can be built from.
pub(super) fn whole(config: &TrainerConfig, target: &dyn Backend) -> Result<Planned> {
    let whole = TrainerConfig { shorter: vec![], ..config.clone() };
    Ok(Planned::new(&whole, target)?)
}

/// Recomputation of every activation inside a block but those of these names.
pub(super) fn all_but(
    names: &[String],
    config: &TrainerConfig,
    target: &dyn Backend,
) -> Result<plan::Checkpoint> {
    let graph = whole(config, target)?.plan.graph;
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

#[cfg(test)]
mod tests {
    use tightrope_backend_cpu::Cpu;

    use super::*;
    use crate::recipe::Step;
    use crate::settings::Settings;

    #[test]
    fn the_closest_plan_is_the_smallest_where_none_fits() {
        for recompute in ["auto", "block", "none"] {
            let mut settings = Settings::default();
            let recompute = format!("memory.recompute={recompute}");
            for words in ["model.preset=tiny", "train.batch=4", &recompute] {
                settings.read_argument(words).unwrap();
            }
            let Step { config, scope, .. } = Step::of(&settings).unwrap();
            let cpu = Cpu::new(1).unwrap();
            let found = |budget| closest(&scope, &config, budget, &cpu).unwrap();
            let (fastest, smallest) = (found(u64::MAX), found(1));
            assert!(fastest.fits && !smallest.fits);
            let bytes = smallest.planned.plan.peak_bytes();
            assert_eq!(bytes, smallest.fewest_bytes);
            assert!(bytes < fastest.planned.plan.peak_bytes());
            let exact = found(bytes);
            assert!(exact.fits && exact.planned.plan.peak_bytes() == bytes);
            assert!(!found(bytes - 1).fits);
        }
    }
}
