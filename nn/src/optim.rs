//! Optimizers, appended to a graph as a gradient norm and in-place maps over the parameters.
//!
//!   norm   = √(Σ g²) / scale over all gradients
//!   ok     = norm and loss are finite
//!   factor = min(1, clip/(norm + 1e-6)) / scale               (torch.nn.utils.clip_grad_norm_)
//!   weight, state ← rule(weight, factor·g, state) where ok, else unchanged;   g ← 0
//!
//! `scale` is the loss scale of f16 training, else 1. Nothing here waits for the host, which counts steps: updates are counted here.
//!
//! | module | holds |
//! |---|---|
//! | this one | the rules, and f16 training's loss scale |
//! | [`adafactor`] | the rule of Adafactor, whose second moment is factored |
//! | [`bias`] | the number of updates, and what rules take from it |
//! | [`muon`] | the rule of Muon, which is made of matmuls |
//! | [`norm`] | the norm of all gradients |
//! | [`shared`] | what the ops of every rule read |
//! | [`state`] | how many bits the state takes, and its tensors |
//! | [`trained`] | a parameter that an update changes |
//! | [`update`] | the ops of an update |

mod adafactor;
mod bias;
mod muon;
mod norm;
mod shared;
mod state;
mod trained;
mod update;

use serde::{Deserialize, Serialize};
use tightrope_core::expr::{constant, input};
use tightrope_core::ops::Map;
use tightrope_core::{Class, DType, Expr, Graph, Tensor, Type};

use crate::error::{Result, ensure};

pub use muon::AdjustLr;
pub use shared::{Scalars, UpdateOptions};
pub use state::{State, StateBits, Stored, TableBits};
pub use trained::Trained;
pub use update::{Update, append_update};
pub(crate) use update::{append_sharing, hoist};

/// An update rule by name, as settings choose it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UpdateRule {
    /// [`Optimizer::AdamW`].
    #[default]
    AdamW,
    /// [`Optimizer::Sgd`].
    Sgd,
    /// [`Optimizer::Lion`].
    Lion,
    /// [`Optimizer::Muon`].
    Muon,
    /// [`Optimizer::Adafactor`].
    Adafactor,
}

impl UpdateRule {
    /// Every rule.
    pub const ALL: &'static [Self] =
        &[Self::AdamW, Self::Sgd, Self::Lion, Self::Muon, Self::Adafactor];

    /// Lower-case name, as in settings.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AdamW => "adamw",
            Self::Sgd => "sgd",
            Self::Lion => "lion",
            Self::Muon => "muon",
            Self::Adafactor => "adafactor",
        }
    }

    /// The rule with AdamW's coefficients, of which it takes those that it has. SGD's momentum is `beta1`.
    pub fn with(self, beta1: f64, beta2: f64, eps: f64) -> Optimizer {
        match self {
            Self::AdamW => Optimizer::AdamW { beta1, beta2, eps },
            Self::Sgd => Optimizer::Sgd { momentum: beta1 },
            Self::Lion => Optimizer::Lion { beta1, beta2 },
            Self::Muon => Optimizer::muon(beta1, beta2, eps),
            Self::Adafactor => Optimizer::Adafactor,
        }
    }
}

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
    /// Orthogonalized momentum for the weights of hidden linear layers, as torch.optim.Muon, and AdamW for everything else
    /// (see `muon.rs`).
    Muon {
        /// Decay of the momentum.
        momentum: f64,
        /// Factor on the learning rate of a matrix.
        adjust: AdjustLr,
        /// AdamW's decay of the first moment.
        beta1: f64,
        /// AdamW's decay of the second moment.
        beta2: f64,
        /// Added by AdamW to the root of the second moment.
        eps: f64,
    },
    /// A second moment that is factored into rows and columns, without a first one (see `adafactor.rs`).
    Adafactor,
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
    /// Factor on the loss in the last step, persistent f32 (1).
    pub used: Tensor,
}

impl LossScale {
    /// First scale.
    pub const INITIAL: f32 = 65_536.0;
    const INTERVAL: f64 = 2000.0;
    const LIMITS: [f64; 2] = [1.0 / 16_777_216.0, 16_777_216.0];

    /// Declares both tensors.
    pub fn declare(graph: &mut Graph) -> Self {
        let [scale, steps, used] =
            ["scale", "steps", "used"].map(|name| scalar(graph, &format!("loss_scale.{name}")));
        Self { scale, steps, used }
    }

    fn append(&self, graph: &mut Graph, ok: Tensor) -> Result<()> {
        let (ok_in, scale, steps) = (input(0), input(1), input(2));
        // A map reads what it writes over, and nothing is less than itself.
        let used = input(3).less(input(3)).select(input(3), scale.clone());
        let next = steps + constant(1.0);
        let waits = next.clone().less(constant(Self::INTERVAL));
        let grown = waits.clone().select(scale.clone(), scale.clone() * constant(2.0));
        let scale = ok_in.clone().select(grown, scale * constant(0.5));
        let [low, high] = Self::LIMITS;
        let scale = scale.max(constant(low)).min(constant(high));
        let steps = ok_in.select(waits.select(next, constant(0.0)), constant(0.0));
        let map = Map {
            in_place: vec![(0, 1), (1, 2), (2, 3)],
            ..Map::several(vec![scale, steps, used], vec![DType::F32; 3])
        };
        graph.push(map, &[ok, self.scale, self.steps, self.used], "loss_scale.next")?;
        Ok(())
    }
}

/// The slot of the second moment.
const SQUARES: &str = "exp_avg_sq";

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
    /// Muon as PyTorch has it by default, at rates of AdamW: see [`AdjustLr::MatchRmsAdamw`]. The arguments are AdamW's.
    pub fn muon(beta1: f64, beta2: f64, eps: f64) -> Self {
        Self::Muon { momentum: 0.95, adjust: AdjustLr::default(), beta1, beta2, eps }
    }

    /// The rule without its coefficients.
    pub const fn rule(&self) -> UpdateRule {
        match self {
            Self::AdamW { .. } => UpdateRule::AdamW,
            Self::Sgd { .. } => UpdateRule::Sgd,
            Self::Lion { .. } => UpdateRule::Lion,
            Self::Muon { .. } => UpdateRule::Muon,
            Self::Adafactor => UpdateRule::Adafactor,
        }
    }

    /// Its name in settings.
    pub const fn name(&self) -> &'static str {
        self.rule().name()
    }

    /// Whether its state may be stored in fewer than 32 bits: Adafactor's is small as it is.
    pub fn takes_fewer_bits(&self) -> bool {
        *self != Self::Adafactor
    }

    /// Whether its update is of each element by itself, so that ranks can make it of their shards.
    pub fn is_elementwise(&self) -> bool {
        !self.is_of_matrices() && *self != Self::Adafactor
    }

    /// Whether matrices have another rule than everything else.
    pub(crate) fn is_of_matrices(&self) -> bool {
        matches!(self, Self::Muon { .. })
    }

    /// The rule for a parameter that isn't a matrix of Muon's.
    pub(crate) fn elementwise(&self) -> Self {
        match *self {
            Self::Muon { beta1, beta2, eps, .. } => Self::AdamW { beta1, beta2, eps },
            other => other,
        }
    }

    /// Names of a parameter's state tensors, as in torch.optim; those of a matrix where it's Muon or Adafactor.
    pub fn slots(&self) -> &'static [&'static str] {
        match *self {
            Self::AdamW { .. } => &["exp_avg", SQUARES],
            Self::Sgd { momentum: 0.0 } => &[],
            Self::Sgd { .. } | Self::Muon { .. } => &["momentum_buffer"],
            Self::Lion { .. } => &["exp_avg"],
            Self::Adafactor => &state::FACTORS,
        }
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
            Self::Adafactor => Ok(()),
            Self::Sgd { momentum } => decay("momentum", momentum),
            Self::Lion { beta1, beta2 } => {
                decay("beta1", beta1)?;
                decay("beta2", beta2)
            }
            Self::Muon { momentum, .. } => {
                decay("momentum", momentum)?;
                self.elementwise().check()
            }
        }
    }

    /// The rule: new weight and new state. That of [`Optimizer::elementwise`].
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
            Self::AdamW { beta1, beta2, eps } | Self::Muon { beta1, beta2, eps, .. } => {
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
            Self::Adafactor => unreachable!("it isn't elementwise, and has ops of its own"),
        }
    }
}

fn scalar(graph: &mut Graph, name: &str) -> Tensor {
    graph.persistent(name, Type::new(DType::F32, [1]), Class::Optimizer)
}
