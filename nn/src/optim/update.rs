//! The ops of an update: one map over all parameters of a kind. A parameter whose state is
//! in 8 bits has ops of its own: its state becomes f32, goes through the map, and is quantized again, so that f32
//! state exists for one parameter at a time.

use std::collections::{BTreeMap, HashMap};

use tightrope_core::ops::Map;
use tightrope_core::{Class, DType, Graph, Phase, Tensor, Type};

use super::adafactor::Adafactor;
use super::muon::Muon;
use super::norm::{norm, squares};
use super::shared::{Blocks, Scalars, Shared, Streams, UpdateOptions};
use super::state::{State, StateBits, Stored, TableBits};
use super::trained::{Master, Rule, Trained};
use super::{LossScale, Optimizer, scalar};
use crate::error::{Result, ensure};

/// The tensors of an appended update.
#[derive(Clone, Debug)]
pub struct Update {
    /// What the host writes.
    pub scalars: Scalars,
    /// Norm of all gradients before clipping, without the loss scale, f32 (1).
    pub grad_norm: Tensor,
    /// 1 where norm and loss are finite, else 0 and the step was skipped, f32 (1).
    pub ok: Tensor,
    /// State of each parameter.
    pub state: Vec<State>,
    /// Number of updates so far, persistent f32 (1), if the rule depends on it: skipped steps aren't counted.
    pub updates: Option<Tensor>,
    /// The new weights that maps make, by the parameter's index.
    pub(crate) weights: BTreeMap<usize, Tensor>,
}

/// Appends the update of all `trained` parameters to the current program. `loss`, f32 (1), takes part in
/// the decision whether to skip the step; `loss_scale` is what the gradients are larger by, in f16 training.
/// A skipped step changes neither weights nor state nor the number of updates, but zeroes gradients.
///
/// # Errors
/// [`crate::Error::Setting`] where options are out of range or tensors don't fit each other.
pub fn append_update(
    graph: &mut Graph,
    optimizer: &Optimizer,
    options: &UpdateOptions,
    trained: &[Trained],
    loss: Tensor,
    loss_scale: Option<&LossScale>,
) -> Result<Update> {
    let first = graph.node_count();
    let update = append_sharing(graph, optimizer, options, trained, (loss, loss_scale), None)?;
    if options.consume {
        hoist(graph, first, &[]);
    }
    Ok(update)
}

/// As [`append_update`], with the state and the scalars of `shares`, another update of the same parameters, where that's given. Where
/// gradients are consumed, it's for the caller to [`hoist`] it.
pub(crate) fn append_sharing(
    graph: &mut Graph,
    optimizer: &Optimizer,
    options: &UpdateOptions,
    trained: &[Trained],
    (loss, loss_scale): (Tensor, Option<&LossScale>),
    shares: Option<&Update>,
) -> Result<Update> {
    optimizer.check()?;
    let UpdateOptions { weight_decay, clip, bits, key, .. } = *options;
    ensure(weight_decay.is_finite() && weight_decay >= 0.0, "weight_decay", || {
        format!("{weight_decay} must not be negative")
    })?;
    ensure(clip.is_none_or(|clip| clip > 0.0), "clip", || {
        format!("{} must be above 0, and none is no clipping", clip.unwrap_or_default())
    })?;
    ensure(key.is_some() || !bits.draws(optimizer), "optimizer_bits", || {
        "state in 16 bits is rounded by random numbers, which need a key".into()
    })?;
    let tables = options.table_bits == TableBits::B32 || bits == StateBits::B8;
    ensure(tables, "memory.table_bits", || {
        "is 8, which goes with memory.optimizer_bits = 8: set that too, or leave this out".into()
    })?;
    ensure(
        !options.consume || (clip.is_none() && loss_scale.is_none()),
        "memory.consume_gradients",
        || {
            "weights are updated before the norm of all gradients is known, so nothing can be clipped, and \
         no step of f16 skipped: set train.clip = 0, and f32 or bf16"
            .into()
        },
    )?;
    ensure(!trained.is_empty(), "trained", || "names no parameter to update".into())?;
    ensure(
        !optimizer.is_of_matrices() || trained.iter().any(|t| !t.matrices.is_empty()),
        "optimizer",
        || {
            "muon updates the weights of hidden linear layers, and none of them is trained (adapters are \
             factors of such weights): take adamw"
                .into()
        },
    )?;
    let elementwise = optimizer.is_elementwise();
    ensure(elementwise || trained.iter().all(|t| t.sharded.is_none()), "memory.shard", || {
        let name = optimizer.name();
        format!(
            "isn't supported yet by {name}, whose update takes whole matrices: set 0 or auto, or take adamw"
        )
    })?;
    ensure(optimizer.takes_fewer_bits() || bits == StateBits::B32, "optimizer_bits", || {
        "is for state of one number a weight, and adafactor's is of rows and columns: leave it at 32".into()
    })?;
    let masters: Vec<Master> = trained.iter().map(|t| t.check(graph)).collect::<Result<_>>()?;
    ensure(key.is_some() || !masters.contains(&Master::Rounded), "memory.master", || {
        "bf16 weights without a remainder are rounded by random numbers, which need a key".into()
    })?;

    let (scalars, updates) = match shares {
        Some(first) => (first.scalars, first.updates),
        None => {
            let updates = optimizer.counts().then(|| scalar(graph, "optim.updates"));
            (Scalars { lr: scalar(graph, "optim.lr") }, updates)
        }
    };
    let state: Vec<Vec<State>> = trained
        .iter()
        .enumerate()
        .map(|(index, trained)| match shares {
            Some(first) => {
                first.state.iter().filter(|state| state.parameter == index).cloned().collect()
            }
            None => State::declare(graph, optimizer, (bits, options.table_bits), index, trained),
        })
        .collect();

    graph.set_phase(Phase::Update);
    let squares = squares(graph, trained, options.consume)?;
    let [grad_norm, finite, factor] = norm(graph, squares, clip, loss, loss_scale)?;
    let (ok, factor) = match options.consume {
        false => (finite, factor),
        true => {
            let one = Map::fill(1.0, &Type::new(DType::F32, [1]));
            let one = graph.one(one, &[], "update.always")?;
            graph.info_mut(one).class = Class::Optimizer;
            (one, one)
        }
    };
    let corrections = match updates {
        Some(updates) => optimizer.append_corrections(graph, updates, ok)?,
        None => None,
    };
    let (optimizer_of_maps, streams) = (optimizer.elementwise(), Streams::new(graph));
    let shared = Shared {
        optimizer: optimizer_of_maps,
        options,
        scalars,
        corrections,
        ok,
        factor,
        key,
        streams,
    };

    // Parameters of a kind share a map, but where each has a time of its own.
    let mut groups: BTreeMap<(Rule, DType, Option<usize>), Vec<usize>> = BTreeMap::new();
    let (mut quantized, mut matrices, mut factored) = (vec![], vec![], vec![]);
    for (index, (trained, &master)) in trained.iter().zip(&masters).enumerate() {
        let kind = (trained.decay && weight_decay > 0.0, master);
        if *optimizer == Optimizer::Adafactor {
            factored.push((kind, index));
        } else if optimizer.is_of_matrices() && !trained.matrices.is_empty() {
            matrices.push((kind, index));
        } else if state[index].iter().any(|state| state.stored == Stored::Quantized) {
            quantized.push((kind, index));
        } else {
            let dtype = graph.dtype(trained.gradient);
            let alone = options.consume.then_some(index);
            groups.entry((kind, dtype, alone)).or_default().push(index);
        }
    }
    let own = |index: usize, state: &[Tensor]| -> Vec<Tensor> {
        let Trained { weight, remainder, gradient, .. } = trained[index];
        [weight]
            .into_iter()
            .chain(remainder)
            .chain([gradient])
            .chain(state.iter().copied())
            .collect()
    };
    let mut weights = BTreeMap::new();
    for ((kind, ..), members) in groups {
        let tensors = |&index: &usize| {
            own(index, &state[index].iter().map(|state| state.tensor).collect::<Vec<_>>())
        };
        let name = if kind.0 { "update.decayed" } else { "update.plain" };
        let own: Vec<_> = members.iter().map(tensors).collect();
        let outputs = shared.append(graph, kind, &own, false, name)?;
        let first = outputs.iter().step_by(outputs.len() / members.len());
        weights.extend(members.into_iter().zip(first.copied()));
    }
    // The largest last, when the gradients of the others have left room for its state in f32.
    quantized.sort_by_key(|&(_, index)| graph.ty(trained[index].weight).elements());
    for (kind, index) in quantized {
        let name = &trained[index].name;
        let blocks = Blocks::of(graph, &trained[index], &state[index]);
        let before = blocks.iter().map(|slot| slot.values(graph)).collect::<Result<Vec<_>>>()?;
        let own_tensors = [own(index, &before)];
        let outputs = shared.append(graph, kind, &own_tensors, true, &format!("update.{name}"))?;
        weights.insert(index, outputs[0]);
        // The map's outputs are in the order of its own tensors, but for the gradient.
        let first = own(index, &[]).len() - 1;
        for (slot, &after) in blocks.iter().zip(&outputs[first..]) {
            slot.store(graph, after, ok)?;
        }
    }
    if let Optimizer::Muon { momentum, adjust, .. } = *optimizer {
        let muon = Muon { shared: &shared, momentum, adjust };
        for (kind, index) in matrices {
            muon.append(graph, kind, &trained[index], &state[index])?;
        }
    }
    // The largest last, as above.
    factored.sort_by_key(|&(_, index)| graph.ty(trained[index].weight).elements());
    for (kind, index) in factored {
        let own: Vec<Tensor> = state[index].iter().map(|state| state.tensor).collect();
        Adafactor(&shared).append(graph, kind, &trained[index], &own)?;
    }
    if let Some(loss_scale) = loss_scale {
        loss_scale.append(graph, ok)?;
    }
    Ok(Update { scalars, grad_norm, ok: finite, state: state.concat(), updates, weights })
}

/// Moves each node of the current program from `first` on to where what it reads has been made, and what it writes over
/// is read no more. A node that reads nothing of this program, as one that dequantizes state, could run at any time: it
/// runs right before the first node that needs it, so that what it makes takes memory no longer than it has to.
///
/// Each of the `wholes` will be put together of its shard, the second of the two, wherever it's read: a shard isn't written over while
/// its whole is read.
pub(crate) fn hoist(graph: &mut Graph, first: usize, wholes: &[(Tensor, Tensor)]) {
    let storages = graph.storages();
    let shards: HashMap<Tensor, Tensor> = wholes.iter().copied().collect();
    let storage = |tensor: &Tensor| storages[shards.get(tensor).unwrap_or(tensor).index()];
    // The last position at which a storage is written, and at which it's touched at all.
    let (mut written, mut touched) = (HashMap::new(), HashMap::new());
    let Some(program) = graph.programs.last_mut() else { return };
    let mut placed = Vec::with_capacity(program.nodes.len());
    let mut independent = vec![];
    for (index, node) in std::mem::take(&mut program.nodes).into_iter().enumerate() {
        let reads = node.inputs.iter().filter_map(|tensor| written.get(&storage(tensor)));
        let writes = node.outputs.iter().filter_map(|tensor| touched.get(&storage(tensor)));
        let ready = reads.chain(writes).copied().max();
        let at = if index < first { index } else { ready.unwrap_or(0) };
        if index >= first && ready.is_none() {
            independent.push(index);
        }
        for tensor in &node.inputs {
            let last = touched.entry(storage(tensor)).or_insert(at);
            *last = at.max(*last);
        }
        for tensor in &node.outputs {
            written.insert(storage(tensor), at);
            touched.insert(storage(tensor), at);
        }
        placed.push((at, node));
    }
    // The first position at which a storage is touched by the nodes after the one that is looked at, and written.
    let (mut touched_first, mut written_first) = (HashMap::new(), HashMap::new());
    for index in (first..placed.len()).rev() {
        let (at, node) = &mut placed[index];
        if independent.last() == Some(&index) {
            independent.pop();
            let reads =
                node.outputs.iter().filter_map(|tensor| touched_first.get(&storage(tensor)));
            let writes =
                node.inputs.iter().filter_map(|tensor| written_first.get(&storage(tensor)));
            *at = reads.chain(writes).copied().min().unwrap_or(*at);
        }
        let earliest = |map: &mut HashMap<Tensor, usize>, tensor: &Tensor| {
            let earliest = map.entry(storage(tensor)).or_insert(*at);
            *earliest = (*at).min(*earliest);
        };
        node.inputs.iter().for_each(|tensor| earliest(&mut touched_first, tensor));
        for tensor in &node.outputs {
            earliest(&mut touched_first, tensor);
            earliest(&mut written_first, tensor);
        }
    }
    // Of what belongs to one position, the order stays.
    placed.sort_by_key(|&(at, _)| at);
    program.nodes = placed.into_iter().map(|(_, node)| node).collect();
}
