//! `Role`: what a program of a graph is for.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What a program is for. A training step and what belongs to it have a role each; a graph that is something else has
/// one program, [`Role::Main`].
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Forward and backward pass and update of a step of one micro-batch.
    Train,
    /// Forward and backward pass of one of several micro-batches. Adds to the sums of loss and gradients.
    Micro,
    /// What `train` or `micro` does, over shorter samples. Steps are of one or the other, so it runs in none of those that times are
    /// told of.
    Shorter,
    /// The gradient norm and the optimizer, after the last micro-batch.
    Update,
    /// Zeroes the sums of gradients, where the update is not on the device and cannot.
    Clear,
    /// Adds gradients that arrive on the host to their sums, an op each.
    Add,
    /// The loss of a batch, without a backward pass.
    Eval,
    /// The logits of a batch.
    Logits,
    /// The loss of each sample of a batch.
    Losses,
    /// The logits of one position, from cached keys and values.
    Decode,
    /// The only program of a graph that is no training step.
    #[default]
    Main,
}

impl Role {
    /// Lower-case name, as in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Micro => "micro",
            Self::Shorter => "shorter",
            Self::Update => "update",
            Self::Clear => "clear",
            Self::Add => "add",
            Self::Eval => "eval",
            Self::Logits => "logits",
            Self::Losses => "losses",
            Self::Decode => "decode",
            Self::Main => "main",
        }
    }

    /// Runs in an optimizer step of `accumulation` micro-batches; 0 where the step has no such program.
    pub const fn runs_per_step(self, accumulation: usize) -> usize {
        match self {
            Self::Train | Self::Update | Self::Clear => 1,
            Self::Micro | Self::Add => accumulation,
            Self::Shorter
            | Self::Eval
            | Self::Logits
            | Self::Losses
            | Self::Decode
            | Self::Main => 0,
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
