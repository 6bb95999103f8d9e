//! What waits in host memory, so that a device needn't hold it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Lora;
use crate::error::ensure;

/// What the host keeps for a device. Transfers change no number; where gradients are summed on the host, those of
/// several micro-batches are added in another order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<String>", into = "Vec<String>")]
pub struct Offload {
    /// Optimizer state and masters of weights; the host makes the update.
    pub optimizer: bool,
    /// Sums of gradients: each gradient goes to the host as soon as it's made.
    pub gradients: bool,
    /// What each block begins with, from the forward to the backward pass.
    pub activations: bool,
    /// Weights of blocks, which come to the device for the ops that read them.
    pub weights: bool,
}

impl Offload {
    /// Nothing.
    pub const NONE: Self =
        Self { optimizer: false, gradients: false, activations: false, weights: false };

    /// What else the host could keep, from the least to the most. Each takes more bytes off the device, and more time.
    pub fn further(self) -> Vec<Self> {
        let optimizer = Self { optimizer: true, ..self };
        let gradients = Self { gradients: true, ..optimizer };
        let activations = Self { activations: true, ..gradients };
        let mut all =
            vec![optimizer, gradients, activations, Self { weights: true, ..activations }];
        all.dedup();
        all.retain(|other| *other != self);
        all
    }

    /// What it names, each with whether it's offloaded.
    pub fn named(self) -> [(&'static str, bool); 4] {
        let Self { optimizer, gradients, activations, weights } = self;
        [
            ("optimizer", optimizer),
            ("gradients", gradients),
            ("activations", activations),
            ("weights", weights),
        ]
    }

    /// Whether tensors come and go while a pass runs.
    pub fn transfers(self) -> bool {
        self.gradients || self.activations || self.weights
    }

    /// Whether the host keeps anything.
    pub fn any(self) -> bool {
        self != Self::NONE
    }

    /// # Errors
    /// [`crate::Error::Setting`] where the update would have to reach over to the host.
    pub(crate) fn check(self, lora: Option<&Lora>) -> crate::Result<()> {
        ensure(self.optimizer || !self.gradients, "memory.offload", || {
            "gradients on the host are for an update there: name `optimizer` too".into()
        })?;
        ensure(self.optimizer || lora.is_some() || !self.weights, "memory.offload", || {
            "trained weights on the host are updated there: name `optimizer` too".into()
        })
    }
}

impl From<Offload> for Vec<String> {
    fn from(offload: Offload) -> Self {
        let kept = offload.named().into_iter().filter(|&(_, kept)| kept);
        kept.map(|(name, _)| name.to_owned()).collect()
    }
}

impl TryFrom<Vec<String>> for Offload {
    type Error = String;

    fn try_from(names: Vec<String>) -> Result<Self, String> {
        let known = Self::NONE.named().map(|(name, _)| name);
        if let Some(unknown) = names.iter().find(|name| !known.contains(&name.as_str())) {
            return Err(format!("`{unknown}` can't be offloaded; {} can", known.join(", ")));
        }
        let has = |name: &str| names.iter().any(|other| other == name);
        let [optimizer, gradients, activations, weights] = known.map(has);
        Ok(Self { optimizer, gradients, activations, weights })
    }
}

impl fmt::Display for Offload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &Vec::from(*self)[..] {
            [] => f.write_str("nothing"),
            names => f.write_str(&names.join(", ")),
        }
    }
}
