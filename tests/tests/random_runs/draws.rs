//! Numbers, settings and ids of a run, drawn by its number alone.

use conformance::language::language;
use conformance::values::uniform;
use tightrope_core::plan::{Checkpoint, Options};
use tightrope_nn::lora::ALL_LINEAR;
use tightrope_nn::{
    BuildOptions, Details, Family, FrozenBits, Gradients, Lora, Master, ModelConfig, Optimizer,
    Precision, StateBits, TableBits, TrainerConfig,
};

/// Numbers of one run, drawn one after the other.
pub struct Draws {
    pub run: u64,
    drawn: u64,
}

impl Draws {
    pub fn of(run: u64) -> Self {
        Self { run, drawn: 0 }
    }

    pub fn unit(&mut self) -> f64 {
        self.drawn += 1;
        uniform(self.run, self.drawn)
    }

    /// A whole number from 1 to `most`.
    pub fn up_to(&mut self, most: usize) -> usize {
        1 + (self.unit() * most as f64) as usize
    }

    pub fn one_of<T: Clone>(&mut self, list: &[T]) -> T {
        list[self.up_to(list.len()) - 1].clone()
    }

    pub fn chance(&mut self, part: f64) -> bool {
        self.unit() < part
    }

    /// A probability of dropping something, more often than not 0.
    fn dropout(&mut self) -> f64 {
        if self.chance(0.3) { 0.1 } else { 0.0 }
    }

    fn model(&mut self) -> ModelConfig {
        // Half of them are the first two families, whose layers the others share.
        let family = match self.chance(0.5) {
            true => self.one_of(&[Family::Gpt2, Family::Llama]),
            false => self.one_of(Family::ALL),
        };
        let heads = self.one_of(&[1, 2, 3, 4]);
        let kv_heads = match family {
            Family::Gpt2 => heads,
            _ => self.one_of(&[1, heads]),
        };
        let width = match family {
            Family::Gpt2 => self.up_to(12),
            _ => 2 * self.up_to(6),
        };
        let name = if family == Family::Gpt2 { "tiny" } else { "llama-tiny" };
        let preset = tightrope_nn::preset(name).expect("a preset");
        let layers = self.up_to(4);
        let of_family = family.details(layers);
        let details = Details {
            window: of_family.window.map(|_| self.up_to(20)),
            head_dim: (family != Family::Gpt2 && self.chance(0.3)).then(|| 2 * self.up_to(6)),
            ..of_family
        };
        ModelConfig {
            family,
            details,
            layers,
            channels: heads * width,
            heads,
            kv_heads,
            hidden: self.up_to(90),
            context: self.up_to(40),
            vocab: self.up_to(150),
            tied: self.chance(0.5),
            dropout: self.dropout(),
            ..preset
        }
    }

    fn lora(&mut self, model: &ModelConfig) -> Lora {
        let layers: &[&str] = match model.family {
            Family::Gpt2 => &[ALL_LINEAR, "c_attn", "mlp.c_proj"],
            Family::Phi3 => &[ALL_LINEAR, "qkv_proj", "gate_up_proj", "down_proj"],
            _ => &[ALL_LINEAR, "q_proj", "v_proj", "down_proj"],
        };
        Lora {
            rank: self.up_to(model.hidden.max(model.channels).min(6)),
            alpha: 8.0,
            targets: vec![self.one_of(layers).into()],
            dropout: self.dropout(),
            base_bits: self.one_of(&[FrozenBits::Precision, FrozenBits::B8, FrozenBits::B4]),
            variant: Default::default(),
        }
    }

    pub fn config(&mut self) -> TrainerConfig {
        let model = self.model();
        let batch = self.up_to(6);
        let parts: Vec<usize> = (1..=batch).filter(|n| batch.is_multiple_of(*n)).collect();
        let optimizers = [
            Optimizer::AdamW { beta1: 0.9, beta2: 0.95, eps: 1e-8 },
            Optimizer::Sgd { momentum: 0.0 },
            Optimizer::Sgd { momentum: 0.9 },
            Optimizer::Lion { beta1: 0.9, beta2: 0.99 },
            Optimizer::Adafactor,
        ];
        let lora = self.chance(0.4).then(|| self.lora(&model));
        // Muon is for whole weights.
        let optimizer = match lora.is_none() && self.chance(0.2) {
            true => Optimizer::muon(0.9, 0.95, 1e-8),
            false => self.one_of(&optimizers),
        };
        let seq_len = self.up_to(model.context);
        let precision = self.one_of(&[Precision::F32, Precision::BF16, Precision::F16]);
        let optimizer_bits = match optimizer {
            Optimizer::Adafactor => StateBits::B32,
            _ => self.one_of(&[StateBits::B32, StateBits::B16, StateBits::B8]),
        };
        TrainerConfig {
            precision,
            gradients: self.one_of(Gradients::ALL),
            master: match precision {
                Precision::BF16 => self.one_of(Master::ALL),
                _ => Master::F32,
            },
            batch,
            micro_batch: self.one_of(&parts),
            build: BuildOptions {
                loss_chunk: self.one_of(&[0, 1, 7, 32]),
                ..BuildOptions::default()
            },
            optimizer,
            optimizer_bits,
            table_bits: match optimizer_bits {
                StateBits::B8 => self.one_of(&[TableBits::B32, TableBits::B8]),
                _ => TableBits::B32,
            },
            clip: self.chance(0.7).then_some(1.0),
            options: Options {
                checkpoint: Checkpoint::None,
                fusion: self.chance(0.8),
                in_place: self.chance(0.8),
                ..Options::default()
            },
            seed: self.run,
            decode: if self.chance(0.3) { self.up_to(model.context) } else { 0 },
            lora,
            ..TrainerConfig::new(model.build(seq_len).expect("a model"))
        }
    }

    /// The activation checkpointing of a run; `None` where the search chooses it.
    pub fn checkpoint(&mut self) -> Option<Checkpoint> {
        let kinds = [Checkpoint::None, Checkpoint::Block, Checkpoint::Every(2), Checkpoint::Sqrt];
        self.chance(0.25).then(|| self.one_of(&kinds))
    }

    /// A batch of ids of which few targets don't count, but the first of a sequence always.
    pub fn ids(&mut self, config: &TrainerConfig) -> (Vec<i32>, Vec<i32>) {
        let (count, model) = (config.tokens(), language(config));
        let (vocab, seq_len) = (model.config().vocab, model.seq_len());
        let tokens = (0..count).map(|_| self.up_to(vocab) as i32 - 1).collect();
        let mut target = |at: usize| {
            let id = self.up_to(vocab) as i32 - 1;
            if !at.is_multiple_of(seq_len) && self.chance(0.1) { -1 } else { id }
        };
        (tokens, (0..count).map(&mut target).collect())
    }
}
