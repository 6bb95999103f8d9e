//! The ops of an update: the gradient norm, and one map over all parameters of a kind. A parameter whose state is
//! in 8 bits has ops of its own: its state becomes f32, goes through the map, and is quantized again, so that f32
//! state exists for one parameter at a time.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use tightrope_core::expr::{Binary, Unary, constant, input, random};
use tightrope_core::ops::{Dequantize, Map, Quantize, Reduce, SquareSum};
use tightrope_core::{Class, DType, Expr, Graph, Node, Phase, Tensor, Type};

use super::muon::Muon;
use super::state::{BLOCK, State, StateBits, Stored, code};
use super::{LossScale, Optimizer, SQUARES, Terms, scalar};
use crate::error::{Error, Result, ensure};
use crate::params::Kind;

/// How an update treats gradients and weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UpdateOptions {
    /// Weight decay of the parameters that decay.
    pub weight_decay: f64,
    /// Largest norm of all gradients together.
    pub clip: Option<f64>,
    /// Write 0 over every gradient, for the next step to add to.
    pub zero_gradients: bool,
    /// Update each parameter as soon as its gradient is made, so that few gradients exist at once: without clipping, and
    /// whether or not the step turns out to be finite.
    pub consume: bool,
    /// Bits of each number of state.
    pub bits: StateBits,
    /// Key of random numbers, U32 (4), where [`StateBits::draws`].
    pub key: Option<Tensor>,
}

/// A parameter to update.
#[derive(Clone, Debug)]
pub struct Trained {
    /// Name of its optimizer state.
    pub name: String,
    /// Weight as the model reads it: f32, bf16 or f16.
    pub weight: Tensor,
    /// With a bf16 weight the i16 remainder of its f32 master, with an f16 weight the f32 master (see
    /// [`crate::Precision::remainder`]).
    pub remainder: Option<Tensor>,
    /// Gradient, f32, of the weight's shape.
    pub gradient: Tensor,
    /// Weight decay applies.
    pub decay: bool,
    /// What it is: the state of a table isn't stored in 8 bits.
    pub kind: Kind,
    /// Rows that are a matrix each, where it's the weight of a hidden linear layer; none otherwise. Muon updates them.
    pub matrices: Vec<Range<usize>>,
}

/// Persistent f32 (1) tensors that the host writes before each update.
#[derive(Clone, Copy, Debug)]
pub struct Scalars {
    /// Learning rate.
    pub lr: Tensor,
    /// The two of [`Optimizer::corrections`], where the rule has them.
    pub corrections: Option<[Tensor; 2]>,
}

/// The tensors of an appended update.
#[derive(Clone, Debug)]
pub struct Update {
    /// What the host writes.
    pub scalars: Scalars,
    /// Norm of all gradients before clipping, without the loss scale, f32 (1).
    pub grad_norm: Tensor,
    /// 1 where norm and loss are finite, else 0 and the step was skipped, f32 (1).
    pub ok: Tensor,
    /// All optimizer state.
    pub state: Vec<State>,
}

/// Where the f32 value of a weight is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Master {
    /// The weight is f32.
    Weight,
    /// A bf16 weight and its i16 remainder.
    Halves,
    /// A tensor of its own, with an f16 weight.
    Separate,
}

impl Master {
    /// The f32 value of a weight that is formula input `at`, what belongs to it being the next.
    pub fn value(self, at: usize) -> Expr {
        match self {
            Self::Weight => input(at),
            Self::Halves => input(at).binary(Binary::JoinHalves, input(at + 1)),
            Self::Separate => input(at + 1),
        }
    }

    /// Formulas of the new tensors, each with the input that it's written over.
    pub fn written(self, at: usize, after: Expr) -> Vec<(usize, Expr)> {
        match self {
            Self::Weight => vec![(at, after)],
            Self::Halves => vec![
                (at, after.clone().unary(Unary::HighHalf)),
                (at + 1, after.unary(Unary::LowHalf)),
            ],
            Self::Separate => vec![(at, after.clone()), (at + 1, after)],
        }
    }
}

/// Parameters that one map can update: whether they decay, and where their f32 values are.
pub(super) type Rule = (bool, Master);

impl Trained {
    fn check(&self, graph: &Graph) -> Result<Master> {
        let (weight, gradient) = (graph.ty(self.weight), graph.ty(self.gradient));
        let expected = weight.with_dtype(DType::F32);
        ensure(*gradient == expected, "gradient", || {
            format!("of `{}` is {gradient}, must be {expected}", self.name)
        })?;
        let remainder = self.remainder.map(|tensor| graph.ty(tensor));
        ensure(remainder.is_none_or(|ty| ty.shape == weight.shape), "remainder", || {
            format!("of `{}` has another shape than the weight {weight}", self.name)
        })?;
        match (weight.dtype, remainder.map(|ty| ty.dtype)) {
            (DType::F32, None) => Ok(Master::Weight),
            (DType::BF16, Some(DType::I16)) => Ok(Master::Halves),
            (DType::F16, Some(DType::F32)) => Ok(Master::Separate),
            (dtype, remainder) => {
                let remainder = remainder.map_or("nothing".into(), |dtype| dtype.to_string());
                let problem = format!(
                    "`{}` is {dtype} with a remainder in {remainder}; supported: f32 with nothing, bf16 with i16, \
                     f16 with f32",
                    self.name
                );
                Err(Error::Setting { key: "remainder", problem })
            }
        }
    }
}

/// Appends the update of all `trained` parameters to the current program. `loss`, f32 (1), takes part in
/// the decision whether to skip the step; `loss_scale` is what the gradients are larger by, in f16 training.
/// A skipped step leaves weights and state as they are, but zeroes gradients; the host's count t of
/// [`Optimizer::corrections`] goes on.
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
    optimizer.check()?;
    let UpdateOptions { weight_decay, clip, bits, key, .. } = *options;
    ensure(weight_decay.is_finite() && weight_decay >= 0.0, "weight_decay", || {
        format!("{weight_decay} must not be negative")
    })?;
    ensure(clip.is_none_or(|clip| clip > 0.0), "clip", || {
        format!("{} must be above 0; leave it out for none", clip.unwrap_or_default())
    })?;
    ensure(key.is_some() || !bits.draws(optimizer), "optimizer_bits", || {
        "state in 16 bits is rounded by random numbers, which need a key".into()
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
    let masters: Vec<Master> = trained.iter().map(|t| t.check(graph)).collect::<Result<_>>()?;

    let corrections = optimizer
        .corrections(1)
        .map(|_| ["optim.correction1", "optim.correction2"].map(|name| scalar(graph, name)));
    let scalars = Scalars { lr: scalar(graph, "optim.lr"), corrections };
    let state: Vec<Vec<State>> = trained
        .iter()
        .enumerate()
        .map(|(index, trained)| State::declare(graph, optimizer, bits, index, trained))
        .collect();

    graph.set_phase(Phase::Update);
    let first = graph.node_count();
    let mut gradients: Vec<(usize, Tensor)> =
        trained.iter().map(|trained| trained.gradient).enumerate().collect();
    if options.consume {
        // Squares are summed in the order in which gradients are made, so that none waits for another.
        let made = made(graph.nodes(0..first));
        gradients.sort_by_key(|(_, gradient)| made.get(gradient).copied());
    }
    let [grad_norm, finite, factor] =
        norm(graph, &gradients, options.consume, clip, loss, loss_scale)?;
    let key = key.filter(|_| bits.draws(optimizer));
    let (ok, factor) = match options.consume {
        false => (finite, factor),
        true => {
            let one = Map::fill(1.0, &Type::new(DType::F32, [1]));
            let one = graph.one(one, &[], "update.always")?;
            graph.info_mut(one).class = Class::Optimizer;
            (one, one)
        }
    };
    let shared = Shared { optimizer: optimizer.elementwise(), options, scalars, ok, factor, key };

    // Parameters of a kind share a map, but where each has a time of its own.
    let mut groups: BTreeMap<(Rule, Option<usize>), Vec<usize>> = BTreeMap::new();
    let (mut quantized, mut matrices) = (vec![], vec![]);
    for (index, (trained, &master)) in trained.iter().zip(&masters).enumerate() {
        let kind = (trained.decay && weight_decay > 0.0, master);
        if optimizer.is_of_matrices() && !trained.matrices.is_empty() {
            matrices.push((kind, index));
        } else if state[index].iter().any(|state| state.stored == Stored::Quantized) {
            quantized.push((kind, index));
        } else {
            groups.entry((kind, options.consume.then_some(index))).or_default().push(index);
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
    for ((kind, _), members) in groups {
        let tensors = |&index: &usize| {
            own(index, &state[index].iter().map(|state| state.tensor).collect::<Vec<_>>())
        };
        let name = if kind.0 { "update.decayed" } else { "update.plain" };
        let own: Vec<_> = members.iter().map(tensors).collect();
        shared.append(graph, kind, &own, false, name)?;
    }
    for (kind, index) in quantized {
        let name = &trained[index].name;
        let blocks = Blocks::of(name, &state[index]);
        let before = blocks.iter().map(|slot| slot.values(graph)).collect::<Result<Vec<_>>>()?;
        let own_tensors = [own(index, &before)];
        let outputs = shared.append(graph, kind, &own_tensors, true, &format!("update.{name}"))?;
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
    if let Some(loss_scale) = loss_scale {
        loss_scale.append(graph, ok)?;
    }
    if options.consume {
        hoist(graph, first);
    }
    Ok(Update { scalars, grad_norm, ok: finite, state: state.concat() })
}

/// The position of the node that makes each tensor.
fn made(nodes: &[Node]) -> HashMap<Tensor, usize> {
    let nodes = nodes.iter().enumerate();
    nodes.flat_map(|(at, node)| node.outputs.iter().map(move |&tensor| (tensor, at))).collect()
}

/// Moves each node of the current program from `first` on to where what it reads has been made, and what it writes over
/// is read no more. A node that reads nothing of this program, as one that dequantizes state, could run at any time: it
/// runs right before the first node that needs it, so that what it makes takes memory no longer than it has to.
fn hoist(graph: &mut Graph, first: usize) {
    let storages = graph.storages();
    let storage = |tensor: &Tensor| storages[tensor.index()];
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

/// One slot of a parameter's state, in 8 bits.
pub(super) struct Blocks<'a> {
    parameter: &'a str,
    slot: &'static str,
    codes: Tensor,
    scales: Tensor,
}

impl<'a> Blocks<'a> {
    /// The slots of a parameter whose state is quantized, in codes and their scales.
    pub fn of(parameter: &'a str, state: &[State]) -> Vec<Self> {
        let pairs = state.as_chunks::<2>().0.iter();
        pairs
            .map(|[codes, scales]| Self {
                parameter,
                slot: codes.slot,
                codes: codes.tensor,
                scales: scales.tensor,
            })
            .collect()
    }

    /// Appends the state in f32.
    pub fn values(&self, graph: &mut Graph) -> Result<Tensor> {
        let op = Dequantize { block: BLOCK, code: code(self.slot), dtype: DType::F32 };
        let name = format!("update.{}.{}", self.parameter, self.slot);
        let values = graph.one(op, &[self.codes, self.scales], &name)?;
        graph.info_mut(values).class = Class::Optimizer;
        Ok(values)
    }

    /// Appends the quantized new state over the old one, where `ok`.
    pub fn store(&self, graph: &mut Graph, values: Tensor, ok: Tensor) -> Result<()> {
        let op = Quantize { block: BLOCK, code: code(self.slot), update: true };
        let name = format!("update.{}.{}.codes", self.parameter, self.slot);
        graph.push(op, &[values, self.codes, self.scales, ok], &name)?;
        Ok(())
    }
}

/// Norm of all gradients, each with its slot among their squares, and `consumed` at a time of its own or not; whether it and the loss are finite, and the factor on the gradients.
fn norm(
    graph: &mut Graph,
    gradients: &[(usize, Tensor)],
    consumed: bool,
    clip: Option<f64>,
    loss: Tensor,
    loss_scale: Option<&LossScale>,
) -> Result<[Tensor; 3]> {
    let slots = Type::new(DType::F32, [gradients.len()]);
    let mut squares = graph.one(Map::fill(0.0, &slots), &[], "grad_squares")?;
    // All at once where they are there at once: neighbours are in the slots' order then.
    let together = if consumed { 1 } else { gradients.len() };
    for gradients in gradients.chunks(together) {
        let slot = gradients[0].0;
        let tensors = gradients.iter().map(|&(_, gradient)| gradient);
        let inputs: Vec<Tensor> = [squares].into_iter().chain(tensors).collect();
        squares = graph.one(SquareSum { slot }, &inputs, "grad_squares")?;
    }
    let sum = graph.one(Reduce::to_suffix(vec![1], DType::F32), &[squares], "grad_square")?;
    let mut inputs = vec![sum, loss];
    inputs.extend(loss_scale.map(|loss_scale| loss_scale.scale));
    let scale = if loss_scale.is_some() { input(2) } else { constant(1.0) };
    let norm = input(0).sqrt() / scale.clone();
    let finite = |value: Expr| value.unary(Unary::IsFinite);
    let ok = finite(norm.clone()) * finite(input(1));
    let clipped = match clip {
        None => constant(1.0),
        Some(clip) => (constant(clip) / (norm.clone() + constant(1e-6))).min(constant(1.0)),
    };
    let map = Map::several(vec![norm, ok, clipped / scale], vec![DType::F32; 3]);
    let outputs = graph.push(map, &inputs, "grad_norm")?;
    let outputs = [outputs[0], outputs[1], outputs[2]];
    for (&tensor, name) in outputs.iter().zip(["grad_norm", "update.ok", "update.factor"]) {
        let info = graph.info_mut(tensor);
        (info.name, info.class) = (name.into(), Class::Optimizer);
    }
    Ok(outputs)
}

/// What all groups of parameters read.
pub(super) struct Shared<'a> {
    /// The rule of what is updated by maps.
    optimizer: Optimizer,
    pub options: &'a UpdateOptions,
    pub scalars: Scalars,
    pub ok: Tensor,
    pub factor: Tensor,
    /// Key of random numbers, where new state is rounded by them.
    pub key: Option<Tensor>,
}

impl Shared<'_> {
    /// New state as it's stored: rounded by random numbers where there's a key for them.
    pub fn rounded(&self, graph: &mut Graph, new: Expr) -> Expr {
        match self.key {
            Some(_) => new.binary(Binary::StochasticHalf, random(graph.new_stream())),
            None => new,
        }
    }

    /// Appends one map over parameters of one kind, each given as its weight, its remainder, its gradient
    /// and its state. Gives the new weight, remainder and state of each. With `rooted`, the state holds roots of
    /// squares.
    fn append(
        &self,
        graph: &mut Graph,
        (decays, master): Rule,
        own: &[Vec<Tensor>],
        rooted: bool,
        name: &str,
    ) -> Result<Vec<Tensor>> {
        let mut inputs = vec![self.ok, self.factor, self.scalars.lr];
        inputs.extend(self.scalars.corrections.into_iter().flatten());
        let shared = inputs.len();
        inputs.extend(own.iter().flatten());

        let remainders = usize::from(master != Master::Weight);
        let (weight, gradient) = (shared, shared + 1 + remainders);
        let slots: Vec<usize> =
            (gradient + 1..gradient + 1 + self.optimizer.slots().len()).collect();
        let is_root = |position: usize| rooted && self.optimizer.slots()[position] == SQUARES;
        let value = |(position, &slot): (usize, &usize)| match is_root(position) {
            true => input(slot) * input(slot),
            false => input(slot),
        };
        let state: Vec<Expr> = slots.iter().enumerate().map(value).collect();
        let (after, new_state) = self.optimizer.step(Terms {
            weight: master.value(weight),
            gradient: input(gradient) * input(1),
            state: &state,
            lr: input(2),
            corrections: self.scalars.corrections.map(|_| [input(3), input(4)]),
            weight_decay: if decays { self.options.weight_decay } else { 0.0 },
        });

        // Each formula with the input that its output is written over.
        let mut written = master.written(weight, after);
        let new_state = new_state.into_iter().enumerate();
        let new_state = new_state.map(|(at, new)| if is_root(at) { new.sqrt() } else { new });
        written.extend(
            slots.into_iter().zip(new_state).map(|(slot, new)| (slot, self.rounded(graph, new))),
        );
        let mut formulas: Vec<Expr> =
            written.iter().map(|(over, new)| input(0).select(new.clone(), input(*over))).collect();
        let mut over: Vec<usize> = written.into_iter().map(|(over, _)| over).collect();
        if self.options.zero_gradients {
            formulas.push(constant(0.0));
            over.push(gradient);
        }
        let dtypes = over.iter().map(|&index| graph.dtype(inputs[index])).collect();
        let map = Map {
            shared,
            segments: own.len(),
            in_place: over.into_iter().enumerate().collect(),
            ..Map::several(formulas, dtypes)
        };
        inputs.extend(self.key);
        Ok(graph.push(map, &inputs, name)?)
    }
}
