//! The list of memory techniques: an entry each, from which plans, tables and documentation are made.

use tightrope_core::Backend;
use tightrope_core::plan::Checkpoint;
use tightrope_nn::layers::AttentionKind;
use tightrope_nn::{
    FrozenBits, Gradients, Master, Offload, Precision, StateBits, TableBits, TrainerConfig,
    defaults,
};

use crate::model::{encoder, language};

/// What a technique does to the numbers of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numerics {
    /// Nothing: every bit is the same.
    Same,
    /// Nothing, where an activation has the same bits wherever it's made; otherwise last bits.
    Activations,
    /// Sums in another order, which last bits show.
    Order,
    /// Fewer bits, or another update; with what was recorded of the loss.
    Changed(&'static str),
}

impl Numerics {
    /// Whether a run computes the same, but for the order of sums.
    pub const fn same(self) -> bool {
        !matches!(self, Self::Changed(_))
    }

    /// The same on a device.
    fn on(self, device: &dyn Backend) -> Self {
        match self {
            Self::Activations if device.exact_activations() => Self::Same,
            Self::Activations => Self::Order,
            other => other,
        }
    }
}

/// A memory technique.
#[derive(Debug)]
pub struct Technique {
    /// What it's called.
    pub name: &'static str,
    /// The setting that asks for it.
    pub setting: &'static str,
    /// What it does to the numbers.
    pub numerics: Numerics,
    /// Why a step can't have it, given what it has so far, what was asked for, and the device.
    pub refused: fn(&TrainerConfig, &TrainerConfig, &dyn Backend) -> Option<&'static str>,
    /// Gives it to a step, as what was asked for says where that says more.
    pub apply: fn(&mut TrainerConfig, &TrainerConfig),
}

impl Technique {
    /// What it does to the numbers on a device.
    pub fn numerics_on(&self, device: &dyn Backend) -> Numerics {
        self.numerics.on(device)
    }
}

/// Where what is recorded is from.
pub const RECORDED: &str = "docs/figures.md";

const UNRECORDED: &str = "no difference recorded";
const SLIGHT: &str = "held-out loss −1e-4 nats";

/// Every technique. Together, each is applied after the ones above it.
pub const LIST: &[Technique] = &[
    Technique {
        name: "fused attention",
        setting: "memory.attention = \"fused\"",
        numerics: Numerics::Order,
        refused: |_, _, _| None,
        apply: |config, _| config.build.attention = AttentionKind::Fused,
    },
    Technique {
        name: "loss in chunks",
        setting: "memory.loss_chunk",
        numerics: Numerics::Order,
        refused: |config, asked, _| match rows(config, asked) {
            None => Some("the scores of its loss are too few to be made in parts"),
            Some(rows) if rows >= config.batch * config.model.seq_len() => {
                Some("one chunk takes all rows of the logits")
            }
            Some(_) => None,
        },
        apply: |config, asked| config.build.loss_chunk = rows(config, asked).unwrap_or(0),
    },
    Technique {
        name: "recomputed blocks",
        setting: "memory.recompute = \"block\"",
        numerics: Numerics::Activations,
        refused: |_, _, _| None,
        apply: |config, _| config.options.checkpoint = Checkpoint::Block,
    },
    Technique {
        name: "accumulation",
        setting: "train.micro_batch = 1",
        numerics: Numerics::Order,
        refused: |config, _, _| (config.batch == 1).then_some("a step is of one sample"),
        apply: |config, _| config.micro_batch = 1,
    },
    Technique {
        name: "optimizer on the host",
        setting: "memory.offload = [\"optimizer\"]",
        numerics: Numerics::Same,
        refused: |config, _, device| needs_state(config).or_else(|| needs_gpu(device)),
        apply: |config, _| config.offload.optimizer = true,
    },
    Technique {
        name: "and gradients",
        setting: "memory.offload = [\"optimizer\", \"gradients\"]",
        numerics: Numerics::Order,
        refused: |_, _, device| needs_gpu(device),
        apply: |config, _| {
            config.offload = Offload { optimizer: true, gradients: true, ..config.offload };
        },
    },
    Technique {
        name: "block inputs on the host",
        setting: "memory.offload = [\"activations\"]",
        numerics: Numerics::Same,
        refused: |_, _, device| needs_gpu(device),
        apply: |config, _| config.offload.activations = true,
    },
    Technique {
        name: "optimizer and weights on the host",
        setting: "memory.offload = [\"optimizer\", \"weights\"]",
        numerics: Numerics::Same,
        refused: |_, _, device| needs_gpu(device),
        apply: |config, _| {
            config.offload = Offload { optimizer: true, weights: true, ..config.offload };
        },
    },
    Technique {
        name: "16-bit weights and activations",
        setting: "run.precision = \"bf16\"",
        numerics: Numerics::Changed("held-out loss −3e-3 nats"),
        refused: |_, _, _| None,
        apply: |config, asked| config.precision = narrow(asked),
    },
    Technique {
        name: "bf16 without masters",
        setting: "memory.master = \"none\", run.precision = \"bf16\"",
        numerics: Numerics::Changed("held-out loss 0 nats from that of bf16"),
        refused: |_, asked, _| {
            let f16 = asked.precision == Precision::F16;
            f16.then_some("weights in f16 need their f32 master")
        },
        apply: |config, _| (config.precision, config.master) = (Precision::BF16, Master::None),
    },
    Technique {
        name: "gradients in bf16",
        setting: "memory.gradients = \"bf16\"",
        numerics: Numerics::Changed(SLIGHT),
        refused: |_, _, _| None,
        apply: |config, _| config.gradients = Gradients::BF16,
    },
    Technique {
        name: "optimizer state in 16 bits",
        setting: "memory.optimizer_bits = 16",
        numerics: Numerics::Changed(UNRECORDED),
        refused: |config, _, _| needs_state(config),
        apply: |config, _| config.optimizer_bits = StateBits::B16,
    },
    Technique {
        name: "optimizer state in 8 bits",
        setting: "memory.optimizer_bits = 8",
        numerics: Numerics::Changed(SLIGHT),
        refused: |config, _, _| needs_state(config),
        apply: |config, _| config.optimizer_bits = StateBits::B8,
    },
    Technique {
        name: "that of tables too",
        setting: "memory.table_bits = 8, memory.optimizer_bits = 8",
        numerics: Numerics::Changed("held-out loss −9e-4 nats"),
        refused: |config, _, _| needs_state(config),
        apply: |config, _| {
            (config.optimizer_bits, config.table_bits) = (StateBits::B8, TableBits::B8);
        },
    },
    Technique {
        name: "frozen weights in 8 bits",
        setting: "lora.base_bits = 8",
        numerics: Numerics::Changed(UNRECORDED),
        refused: |config, _, _| needs_adapters(config),
        apply: |config, _| freeze_in(config, FrozenBits::B8),
    },
    Technique {
        name: "frozen weights in 4 bits",
        setting: "lora.base_bits = 4",
        numerics: Numerics::Changed(UNRECORDED),
        refused: |config, _, _| needs_adapters(config),
        apply: |config, _| freeze_in(config, FrozenBits::B4),
    },
    Technique {
        name: "updates as gradients are made",
        setting: "memory.consume_gradients = true, train.clip = 0",
        numerics: Numerics::Changed("gradients aren't clipped"),
        refused: |config, _, _| {
            if config.accumulates() {
                Some("several passes, or the host, sum gradients before the update")
            } else if config.precision == Precision::F16 {
                Some("f16 scales its loss, and looks at all gradients before the update")
            } else {
                None
            }
        },
        apply: |config, _| (config.consume_gradients, config.clip) = (true, None),
    },
];

/// Rows of logits at once: those that are asked for, else as many as a run takes by itself. `None` where the loss has
/// no logits of a vocabulary.
fn rows(config: &TrainerConfig, asked: &TrainerConfig) -> Option<usize> {
    let encoder = encoder(config).filter(|model| model.classes.is_none());
    let vocab = language(config).map(|model| model.vocab).or(encoder.map(|model| model.vocab))?;
    Some(match asked.build.loss_chunk {
        0 => defaults::loss_rows(vocab),
        rows => rows,
    })
}

/// The 16-bit type that is asked for, else bf16.
fn narrow(asked: &TrainerConfig) -> Precision {
    if asked.precision == Precision::F16 { Precision::F16 } else { Precision::BF16 }
}

fn freeze_in(config: &mut TrainerConfig, bits: FrozenBits) {
    if let Some(lora) = &mut config.lora {
        lora.base_bits = bits;
    }
}

fn needs_gpu(device: &dyn Backend) -> Option<&'static str> {
    let apart = device.kind().can_be_lost();
    (!apart).then_some("the device is the processor, whose memory is the host's")
}

fn needs_state(config: &TrainerConfig) -> Option<&'static str> {
    config.optimizer.slots().is_empty().then_some("the optimizer has no state")
}

fn needs_adapters(config: &TrainerConfig) -> Option<&'static str> {
    config.lora.is_none().then_some("all weights are trained: `--lora-rank N` freezes them")
}
