//! Optimizers, appended to a graph as a gradient norm and one in-place map over all parameters.
//!
//!   norm   = √(Σ g²) / scale over all gradients
//!   ok     = norm and loss are finite
//!   factor = min(1, clip/(norm + 1e-6)) / scale               (torch.nn.utils.clip_grad_norm_)
//!   weight, state ← rule(weight, factor·g, state) where ok, else unchanged;   g ← 0
//!
//! `scale` is the loss scale of f16 training, else 1. Nothing here waits for the host.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tightrope_core::expr::{Binary, Unary, constant, input};
use tightrope_core::ops::{Map, Reduce, SquareSum};
use tightrope_core::{Class, DType, Expr, Graph, Phase, Tensor, Type};

use crate::error::{Error, Result, ensure};

/// An update rule.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Optimizer {
    /// Adam with decoupled weight decay (Loshchilov and Hutter 2019), as torch.optim.AdamW.
    AdamW {
        /// Decay of the first moment.
        beta1: f64,
        /// Decay of the second moment.
        beta2: f64,
        /// Added to the root of the second moment.
        eps: f64,
    },
    /// Stochastic gradient descent, as torch.optim.SGD: weight decay is added to the gradient.
    Sgd {
        /// Decay of the running sum of gradients; 0 keeps none.
        momentum: f64,
    },
    /// Sign of an interpolated momentum, with decoupled weight decay (Chen et al. 2023).
    Lion {
        /// Weight of the momentum in the sign.
        beta1: f64,
        /// Decay of the momentum.
        beta2: f64,
    },
}

/// How an update treats gradients and weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UpdateOptions {
    /// Weight decay of the parameters that decay.
    pub weight_decay: f64,
    /// Largest norm of all gradients together.
    pub clip: Option<f64>,
    /// Write 0 over every gradient, for the next step to add to.
    pub zero_gradients: bool,
}

/// A parameter to update.
#[derive(Clone, Debug)]
pub struct Trained {
    /// Name of its optimizer state.
    pub name: String,
    /// Weight as the model reads it: f32, bf16 or f16.
    pub weight: Tensor,
    /// With a bf16 weight the i16 remainder of its f32 master, with an f16 weight the f32 master (see
    /// [`crate::Precision::low`]).
    pub low: Option<Tensor>,
    /// Gradient, f32, of the weight's shape.
    pub gradient: Tensor,
    /// Weight decay applies.
    pub decay: bool,
}

/// Persistent f32 (1) tensors that the host writes before each update.
#[derive(Clone, Copy, Debug)]
pub struct Scalars {
    /// Learning rate.
    pub lr: Tensor,
    /// The two of [`Optimizer::corrections`], where the rule has them.
    pub corrections: Option<[Tensor; 2]>,
}

/// Optimizer state of one parameter: a persistent f32 tensor of its shape, 0 at the start.
#[derive(Clone, Copy, Debug)]
pub struct State {
    /// Index in the list of trained parameters.
    pub parameter: usize,
    /// Name of the state in torch.optim: `exp_avg`, `exp_avg_sq`, `momentum_buffer`.
    pub slot: &'static str,
    /// The tensor, named `optim.{parameter}.{slot}`.
    pub tensor: Tensor,
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

/// Dynamic loss scale of f16 training, adjusted on the device as torch.amp.GradScaler does: halved by a
/// skipped step, doubled after 2,000 steps without one.
#[derive(Clone, Copy, Debug)]
pub struct LossScale {
    /// Factor on the loss, persistent f32 (1); start with [`LossScale::INITIAL`]. The gradient that seeds
    /// the backward pass is this over the number of micro-steps.
    pub scale: Tensor,
    /// Steps since the last change, persistent f32 (1); starts with 0.
    pub steps: Tensor,
}

impl LossScale {
    /// First scale.
    pub const INITIAL: f32 = 65_536.0;
    const INTERVAL: f64 = 2000.0;
    const LIMITS: [f64; 2] = [1.0 / 16_777_216.0, 16_777_216.0];

    /// Declares both tensors.
    pub fn declare(graph: &mut Graph) -> Self {
        Self { scale: scalar(graph, "loss_scale.scale"), steps: scalar(graph, "loss_scale.steps") }
    }

    fn append(&self, graph: &mut Graph, ok: Tensor) -> Result<()> {
        let (ok_in, scale, steps) = (input(0), input(1), input(2));
        let next = steps + constant(1.0);
        let waits = next.clone().less(constant(Self::INTERVAL));
        let grown = waits.clone().select(scale.clone(), scale.clone() * constant(2.0));
        let scale = ok_in.clone().select(grown, scale * constant(0.5));
        let [low, high] = Self::LIMITS;
        let scale = scale.max(constant(low)).min(constant(high));
        let steps = ok_in.select(waits.select(next, constant(0.0)), constant(0.0));
        let map = Map {
            in_place: vec![(0, 1), (1, 2)],
            ..Map::several(vec![scale, steps], vec![DType::F32; 2])
        };
        graph.push(map, &[ok, self.scale, self.steps], "loss_scale.next")?;
        Ok(())
    }
}

/// What a rule's formulas read.
struct Terms<'a> {
    weight: Expr,
    gradient: Expr,
    state: &'a [Expr],
    lr: Expr,
    corrections: Option<[Expr; 2]>,
    weight_decay: f64,
}

impl Optimizer {
    /// Names of a parameter's state tensors, as in torch.optim.
    pub fn slots(&self) -> &'static [&'static str] {
        match *self {
            Self::AdamW { .. } => &["exp_avg", "exp_avg_sq"],
            Self::Sgd { momentum: 0.0 } => &[],
            Self::Sgd { .. } => &["momentum_buffer"],
            Self::Lion { .. } => &["exp_avg"],
        }
    }

    /// AdamW's bias corrections 1/(1 − β₁ᵗ) and 1/√(1 − β₂ᵗ) of update t, counted from 1; `None` where the
    /// rule has none.
    pub fn corrections(&self, t: u64) -> Option<[f64; 2]> {
        let Self::AdamW { beta1, beta2, .. } = *self else { return None };
        let t = t as f64;
        Some([1.0 / (1.0 - beta1.powf(t)), 1.0 / (1.0 - beta2.powf(t)).sqrt()])
    }

    /// # Errors
    /// [`crate::Error::Setting`] where a coefficient is out of range.
    pub fn check(&self) -> Result<()> {
        let decay = |key: &'static str, value: f64| {
            ensure((0.0..1.0).contains(&value), key, || {
                format!("{value} must be at least 0 and below 1")
            })
        };
        match *self {
            Self::AdamW { beta1, beta2, eps } => {
                decay("beta1", beta1)?;
                decay("beta2", beta2)?;
                ensure(eps.is_finite() && eps > 0.0, "eps", || format!("{eps} must be above 0"))
            }
            Self::Sgd { momentum } => decay("momentum", momentum),
            Self::Lion { beta1, beta2 } => {
                decay("beta1", beta1)?;
                decay("beta2", beta2)
            }
        }
    }

    /// The rule: new weight and new state.
    fn step(&self, terms: Terms<'_>) -> (Expr, Vec<Expr>) {
        let Terms { weight, gradient, state, lr, corrections, weight_decay } = terms;
        let decayed = || {
            let kept = constant(1.0) - lr.clone() * constant(weight_decay);
            if weight_decay == 0.0 { weight.clone() } else { weight.clone() * kept }
        };
        let mix = |before: &Expr, beta: f64, new: Expr| {
            constant(beta) * before.clone() + constant(1.0 - beta) * new
        };
        match *self {
            Self::AdamW { beta1, beta2, eps } => {
                let [first, second] = corrections.expect("AdamW has corrections");
                let m = mix(&state[0], beta1, gradient.clone());
                let v = mix(&state[1], beta2, gradient.clone() * gradient);
                let root = v.clone().sqrt() * second + constant(eps);
                (decayed() - lr.clone() * first * m.clone() / root, vec![m, v])
            }
            Self::Sgd { momentum } => {
                let gradient = gradient + constant(weight_decay) * weight.clone();
                match state.first() {
                    None => (weight - lr * gradient, vec![]),
                    Some(before) => {
                        let sum = constant(momentum) * before.clone() + gradient;
                        (weight - lr * sum.clone(), vec![sum])
                    }
                }
            }
            Self::Lion { beta1, beta2 } => {
                let direction = mix(&state[0], beta1, gradient.clone()).sign();
                let m = mix(&state[0], beta2, gradient);
                (decayed() - lr.clone() * direction, vec![m])
            }
        }
    }
}

/// Where the f32 value of a weight is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Master {
    /// The weight is f32.
    Weight,
    /// A bf16 weight and its i16 remainder.
    Halves,
    /// An f32 tensor beside an f16 weight.
    Beside,
}

impl Trained {
    fn check(&self, graph: &Graph) -> Result<Master> {
        let (weight, gradient) = (graph.ty(self.weight), graph.ty(self.gradient));
        let expected = weight.with_dtype(DType::F32);
        ensure(*gradient == expected, "gradient", || {
            format!("of `{}` is {gradient}, must be {expected}", self.name)
        })?;
        let low = self.low.map(|low| graph.ty(low));
        ensure(low.is_none_or(|low| low.shape == weight.shape), "low", || {
            format!("of `{}` has another shape than the weight {weight}", self.name)
        })?;
        match (weight.dtype, low.map(|low| low.dtype)) {
            (DType::F32, None) => Ok(Master::Weight),
            (DType::BF16, Some(DType::I16)) => Ok(Master::Halves),
            (DType::F16, Some(DType::F32)) => Ok(Master::Beside),
            (dtype, low) => {
                let low = low.map_or("nothing".into(), |dtype| dtype.to_string());
                let problem = format!(
                    "`{}` is {dtype} with {low} beside it; supported: f32 with nothing, bf16 with i16, \
                     f16 with f32",
                    self.name
                );
                Err(Error::Setting { key: "low", problem })
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
    let UpdateOptions { weight_decay, clip, .. } = *options;
    ensure(weight_decay.is_finite() && weight_decay >= 0.0, "weight_decay", || {
        format!("{weight_decay} must not be negative")
    })?;
    ensure(clip.is_none_or(|clip| clip > 0.0), "clip", || {
        format!("{} must be above 0; leave it out for none", clip.unwrap_or_default())
    })?;
    ensure(!trained.is_empty(), "trained", || "names no parameter to update".into())?;
    let masters: Vec<Master> = trained.iter().map(|t| t.check(graph)).collect::<Result<_>>()?;

    let corrections = optimizer
        .corrections(1)
        .map(|_| ["optim.correction1", "optim.correction2"].map(|name| scalar(graph, name)));
    let scalars = Scalars { lr: scalar(graph, "optim.lr"), corrections };
    let mut state = vec![];
    for (parameter, trained) in trained.iter().enumerate() {
        let ty = graph.ty(trained.weight).with_dtype(DType::F32);
        for &slot in optimizer.slots() {
            let name = format!("optim.{}.{slot}", trained.name);
            let tensor = graph.persistent(&name, ty.clone(), Class::Optimizer);
            state.push(State { parameter, slot, tensor });
        }
    }

    graph.set_phase(Phase::Update);
    let gradients: Vec<Tensor> = trained.iter().map(|trained| trained.gradient).collect();
    let [grad_norm, ok, factor] = norm(graph, &gradients, clip, loss, loss_scale)?;
    let shared = Shared { optimizer, options, scalars, ok, factor };

    let mut groups: BTreeMap<(bool, Master), Vec<usize>> = BTreeMap::new();
    for (index, (trained, master)) in trained.iter().zip(masters).enumerate() {
        let decays = trained.decay && weight_decay > 0.0;
        groups.entry((decays, master)).or_default().push(index);
    }
    for ((decays, master), members) in groups {
        let own: Vec<Vec<Tensor>> = members
            .into_iter()
            .map(|index| {
                let Trained { weight, low, gradient, .. } = trained[index];
                let slots = state.iter().filter(|state| state.parameter == index);
                let tensors = [weight].into_iter().chain(low).chain([gradient]);
                tensors.chain(slots.map(|state| state.tensor)).collect()
            })
            .collect();
        shared.append(graph, decays, master, &own)?;
    }
    if let Some(loss_scale) = loss_scale {
        loss_scale.append(graph, ok)?;
    }
    Ok(Update { scalars, grad_norm, ok, state })
}

/// Norm of all gradients, whether it and the loss are finite, and the factor on the gradients.
fn norm(
    graph: &mut Graph,
    gradients: &[Tensor],
    clip: Option<f64>,
    loss: Tensor,
    loss_scale: Option<&LossScale>,
) -> Result<[Tensor; 3]> {
    let slots = Type::new(DType::F32, [gradients.len()]);
    let mut squares = graph.one(Map::fill(0.0, &slots), &[], "grad_squares")?;
    for (slot, &gradient) in gradients.iter().enumerate() {
        squares = graph.one(SquareSum { slot }, &[gradient, squares], "grad_squares")?;
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
struct Shared<'a> {
    optimizer: &'a Optimizer,
    options: &'a UpdateOptions,
    scalars: Scalars,
    ok: Tensor,
    factor: Tensor,
}

impl Shared<'_> {
    /// Appends one map over parameters of one kind, each given as its weight, what is beside it, its gradient
    /// and its state.
    fn append(
        &self,
        graph: &mut Graph,
        decays: bool,
        master: Master,
        own: &[Vec<Tensor>],
    ) -> Result<()> {
        let mut inputs = vec![self.ok, self.factor, self.scalars.lr];
        inputs.extend(self.scalars.corrections.into_iter().flatten());
        let shared = inputs.len();
        inputs.extend(own.iter().flatten());

        let beside = usize::from(master != Master::Weight);
        let (weight, low, gradient) = (shared, shared + 1, shared + 1 + beside);
        let slots: Vec<usize> =
            (gradient + 1..gradient + 1 + self.optimizer.slots().len()).collect();
        let state: Vec<Expr> = slots.iter().map(|&slot| input(slot)).collect();
        let before = match master {
            Master::Weight => input(weight),
            Master::Halves => input(weight).binary(Binary::JoinHalves, input(low)),
            Master::Beside => input(low),
        };
        let (after, new_state) = self.optimizer.step(Terms {
            weight: before,
            gradient: input(gradient) * input(1),
            state: &state,
            lr: input(2),
            corrections: self.scalars.corrections.map(|_| [input(3), input(4)]),
            weight_decay: if decays { self.options.weight_decay } else { 0.0 },
        });

        // Each formula with the input that its output is written over.
        let mut written = match master {
            Master::Weight => vec![(weight, after)],
            Master::Halves => vec![
                (weight, after.clone().unary(Unary::HighHalf)),
                (low, after.unary(Unary::LowHalf)),
            ],
            Master::Beside => vec![(weight, after.clone()), (low, after)],
        };
        written.extend(slots.into_iter().zip(new_state));
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
        graph.push(map, &inputs, if decays { "update.decayed" } else { "update.plain" })?;
        Ok(())
    }
}

fn scalar(graph: &mut Graph, name: &str) -> Tensor {
    graph.persistent(name, Type::new(DType::F32, [1]), Class::Optimizer)
}
