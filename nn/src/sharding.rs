//! What of a training step's state each rank holds alone (Rajbhandari et al. 2020, "ZeRO").
//!
//! | shard | each rank holds of all ranks' | and what is sent |
//! |---|---|---|
//! | 0 | nothing less | sums of gradients |
//! | 1 | its shard of the optimizer's state and of masters | as many bytes: gradients go to who has their shard, new weights come back |
//! | 2 | and of gradients, which leave as soon as they're made | the same, with each pass |
//! | 3 | and of weights, frozen ones too, which come for the block that reads them | half as many more: weights come for each pass, forward and backward |
//!
//! A shard is of a parameter's elements in row-major order, in whole blocks of [`SquareSum::BLOCK`]: so the norm of gradients has the same
//! bits however they're cut. A parameter of fewer is the first rank's.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tightrope_core::graph::{Sharded, TensorInfo};
use tightrope_core::ops::{Collective, SquareSum};
use tightrope_core::plan::sharding::{SMALLEST, assemble_weights};
use tightrope_core::{Class, Graph, Node, Rule as _, Shards, Tensor};

use crate::error::Result;
use crate::optim::{Trained, Update};
use crate::params::{Kind, Parameter};
use crate::ranks::{gather_shards, own};
use crate::weights::Weights;
use crate::{Planned, Rates, TableBits, TrainerConfig};

/// What each rank holds a shard of, each including those before.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(try_from = "u32", into = "u32")]
pub enum Shard {
    /// Nothing: all ranks hold everything.
    #[default]
    Nothing,
    /// Optimizer state and masters of weights.
    State,
    /// Gradients.
    Gradients,
    /// Weights.
    Weights,
}

impl Shard {
    /// From the least to the most.
    pub const ALL: &'static [Self] = &[Self::Nothing, Self::State, Self::Gradients, Self::Weights];
}

impl From<Shard> for u32 {
    fn from(shard: Shard) -> Self {
        shard as u32
    }
}

impl TryFrom<u32> for Shard {
    type Error = String;

    fn try_from(stage: u32) -> std::result::Result<Self, String> {
        let found = Self::ALL.get(stage as usize).copied();
        found.ok_or_else(|| format!("must be 0, 1, 2 or 3, not {stage}"))
    }
}

impl TrainerConfig {
    /// What each of several ranks holds a shard of.
    pub(crate) fn sharded(&self) -> Shard {
        // A browser's tab has no others to train with.
        if cfg!(target_family = "wasm") || self.ranks == 1 { Shard::Nothing } else { self.shard }
    }

    /// Whether gradients go to who has their shard as soon as they're made.
    pub(crate) fn gradients_leave(&self) -> bool {
        self.sharded() >= Shard::Gradients
    }

    /// Whether losses and figures are summed over ranks with each pass: where gradients are, and where passes are one of each rank, so that
    /// all are added up as one process does.
    pub(crate) fn figures_leave(&self) -> bool {
        let is_alone = cfg!(target_family = "wasm") || self.ranks == 1;
        !is_alone && (self.gradients_leave() || self.accumulation() == 1)
    }

    /// How a parameter is cut among ranks; `None` where all have all of it.
    pub(crate) fn shards_of(&self, parameter: &Parameter) -> Option<Shards> {
        if self.sharded() == Shard::Nothing {
            return None;
        }
        // Rows of a table have a scale each, where its state is in 8 bits.
        let of_rows = parameter.kind == Kind::Table && self.table_bits == TableBits::B8;
        let granule = match of_rows {
            true => least_common_multiple(SquareSum::BLOCK, parameter.columns()),
            false => SquareSum::BLOCK,
        };
        Some(Shards::of(parameter.elements(), self.ranks, granule))
    }
}

impl Planned {
    /// Bytes that each rank sends the others in a step, by collective.
    pub fn sent_bytes(&self) -> BTreeMap<&'static str, u64> {
        let sent = self.by_collective(self.graphs(), |graph, node| {
            let (inputs, outputs) = graph.types(node);
            node.op.cost(&inputs, &outputs).bytes as f64
        });
        // Bytes are far fewer than a f64 counts exactly.
        sent.into_iter().map(|(name, bytes)| (name, bytes as u64)).collect()
    }

    /// Seconds of a step in which each rank sends and receives, by collective.
    pub fn sent_s(&self, rates: &Rates) -> BTreeMap<&'static str, f64> {
        self.by_collective(self.graphs(), |graph, node| rates.seconds(graph, node))
    }

    /// Seconds of a step in which hosts send and receive what is offloaded to them.
    pub(crate) fn sent_by_hosts_s(&self, rates: &Rates) -> f64 {
        self.by_collective(self.host.iter(), |graph, node| rates.seconds(graph, node))
            .values()
            .sum()
    }

    /// What devices run, and hosts.
    fn graphs(&self) -> impl Iterator<Item = &Graph> {
        [&self.plan.graph].into_iter().chain(&self.host)
    }

    /// Sums over what ranks send in a step, by collective.
    fn by_collective<'a>(
        &self,
        graphs: impl Iterator<Item = &'a Graph>,
        of: impl Fn(&Graph, &Node) -> f64,
    ) -> BTreeMap<&'static str, f64> {
        let mut sums = BTreeMap::new();
        for (graph, program) in
            graphs.flat_map(|graph| graph.programs.iter().map(move |it| (graph, it)))
        {
            let times = program.role.runs_per_step(self.config().accumulation()) as f64;
            let sends = |node: &&Node| node.op.collective().is_some_and(Collective::sends);
            for node in program.nodes.iter().filter(sends) {
                if times > 0.0 {
                    *sums.entry(node.op.name()).or_default() += times * of(graph, node);
                }
            }
        }
        sums
    }
}

fn least_common_multiple(a: usize, b: usize) -> usize {
    let (mut divisor, mut rest) = (a.max(1), b.max(1));
    while rest > 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    a.max(1) / divisor * b.max(1)
}

/// Declares this rank's shard of each trained weight, where weights are cut and it's large enough.
pub(crate) fn declare_weights(
    graph: &mut Graph,
    config: &TrainerConfig,
    weights: &Weights,
) -> Vec<Option<Tensor>> {
    let (parameters, tensors) = weights.trained();
    let declare = |(parameter, &tensor): (&Parameter, &Tensor)| {
        let shards = config.shards_of(parameter)?;
        let ty = graph.ty(tensor).clone();
        let kept = config.sharded() == Shard::Weights && ty.bytes() >= SMALLEST;
        kept.then(|| graph.persistent_shard(&parameter.name, ty, shards, Class::Weight))
    };
    parameters.iter().zip(tensors).map(declare).collect()
}

/// Has every program put weights together of which this rank keeps its shard alone: those that are trained, by their position, and what is
/// frozen of the model, or of its teacher, and large enough. The weights' tensors are the shards after that.
pub(crate) fn keep_weight_shards(
    graph: &mut Graph,
    config: &TrainerConfig,
    models: [Option<&mut Weights>; 2],
    trained: &[Option<Tensor>],
) {
    let mut models: Vec<&mut Weights> = models.into_iter().flatten().collect();
    let mut kept = BTreeMap::new();
    if let Some(model) = models.first() {
        let wholes = model.trained().1.iter().zip(trained);
        kept.extend(wholes.filter_map(|(&whole, shard)| Some((whole, (*shard)?))));
    }
    for whole in models.iter().flat_map(|model| model.frozen()) {
        let TensorInfo { name, ty, class, .. } = graph.info(whole).clone();
        if ty.bytes() >= SMALLEST {
            let shards = Shards::of(ty.elements(), config.ranks, SquareSum::BLOCK);
            kept.insert(whole, graph.persistent_shard(&name, ty, shards, class));
        }
    }
    assemble_weights(graph, &kept);
    models.iter_mut().for_each(|model| model.keep_shards(&kept));
}

/// Has an update change this rank's shards of weights: those that it keeps, and copies of others. Gives the weights that those are of,
/// which all ranks have, by position among what is trained.
///
/// # Errors
/// As [`Graph::push`].
pub(crate) fn take_shards(
    graph: &mut Graph,
    config: &TrainerConfig,
    weights: &Weights,
    kept: &[Option<Tensor>],
    trained: &mut [Trained],
) -> Result<Vec<(usize, Tensor)>> {
    let mut wholes = vec![];
    for (index, (trained, parameter)) in trained.iter_mut().zip(weights.trained().0).enumerate() {
        let Some(shards) = config.shards_of(parameter) else { continue };
        let whole = graph.ty(trained.weight).clone();
        trained.weight = match kept[index] {
            Some(shard) => shard,
            None => {
                wholes.push((index, trained.weight));
                own(graph, &shards, trained.weight)?
            }
        };
        trained.sharded = Some(Sharded { shards, whole });
    }
    Ok(wholes)
}

/// Appends the weights that all ranks have, as their shards are after `update`.
///
/// # Errors
/// As [`Graph::push`].
pub(crate) fn give_shards(
    graph: &mut Graph,
    trained: &[Trained],
    update: &Update,
    wholes: &[(usize, Tensor)],
) -> Result<()> {
    for &(index, whole) in wholes {
        if let (Some(sharded), Some(&shard)) = (&trained[index].sharded, update.weights.get(&index))
        {
            gather_shards(graph, &sharded.shards, shard, whole)?;
        }
    }
    Ok(())
}
