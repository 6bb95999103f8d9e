//! Settings as the values that models, plans and optimizers take.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;

use tightrope_core::plan;
use tightrope_nn as nn;
use tightrope_nn::defaults::{self, Sizes};
use tightrope_nn::lora::Variant;
use tightrope_nn::{
    BertConfig, ClassifierConfig, LearningRate, ModelConfig, ModelFamily, VitConfig,
};

use super::{Extents, Lora, Model, Recompute, Train};

impl Model {
    /// The sizes of a language model that are set.
    pub fn sizes(&self) -> Sizes {
        Sizes {
            family: match self.family {
                Some(ModelFamily::Language(family)) => Some(family),
                Some(ModelFamily::Vit | ModelFamily::Bert) | None => None,
            },
            layers: self.layers,
            channels: self.channels,
            heads: self.heads,
            kv_heads: self.kv_heads,
            hidden: self.hidden,
            context: self.context,
            vocab: self.vocab,
            tied: self.tied,
            dropout: self.dropout,
        }
    }

    /// Sets every size to that of `model`.
    pub fn fill(&mut self, model: &ModelConfig) {
        self.family = Some(ModelFamily::Language(model.family));
        self.layers = Some(model.layers);
        self.channels = Some(model.channels);
        self.heads = Some(model.heads);
        self.kv_heads = Some(model.kv_heads);
        self.hidden = Some(model.hidden);
        self.context = Some(model.context);
        self.vocab = Some(model.vocab);
        self.tied = Some(model.tied);
        self.dropout = Some(model.dropout);
    }

    /// Sets every size to that of a decoder that classifies texts.
    pub fn fill_classifier(&mut self, model: &ClassifierConfig) {
        self.fill(&model.decoder);
        self.classes = Some(model.classes);
    }

    /// Sets every size to that of an encoder of text.
    pub fn fill_bert(&mut self, model: &BertConfig) {
        self.family = Some(ModelFamily::Bert);
        self.layers = Some(model.layers);
        self.channels = Some(model.channels);
        self.heads = Some(model.heads);
        self.hidden = Some(model.hidden);
        self.context = Some(model.context);
        self.vocab = Some(model.vocab);
        self.dropout = Some(model.dropout);
        self.classes = model.classes;
    }

    /// Sets every size to that of a vision transformer.
    pub fn fill_vit(&mut self, model: &VitConfig) {
        self.family = Some(ModelFamily::Vit);
        self.layers = Some(model.layers);
        self.channels = Some(model.channels);
        self.heads = Some(model.heads);
        self.hidden = Some(model.hidden);
        self.dropout = Some(model.dropout);
        self.image_size = Some(Extents(model.image));
        self.patch_size = Some(Extents(model.patch));
        self.image_channels = Some(model.colors);
        self.classes = Some(model.classes);
    }
}

impl Train {
    /// Fills what is unset: `batch` in sequences or images, `steps` and the peak learning rate `lr` from
    /// the arguments, `warmup` as a twentieth of the steps. `min_lr` stays unset, so that it follows a rate that is changed later.
    /// Steps take the place of `epochs`, which only data turns into their number.
    pub fn fill(&mut self, batch: usize, steps: u64, lr: f64) {
        self.batch.get_or_insert(batch);
        let steps = match self.epochs.take() {
            Some(_) => steps.max(self.warmup.unwrap_or(0)),
            None => steps,
        };
        let steps = *self.steps.get_or_insert(steps);
        self.lr.get_or_insert(lr);
        self.warmup.get_or_insert(defaults::warmup(steps));
    }

    /// The learning rate of every step. What is unset is [filled](Train::fill) first.
    pub fn learning_rate(&self) -> LearningRate {
        let lr = self.lr.unwrap_or(1e-3);
        LearningRate {
            schedule: self.schedule,
            lr,
            min_lr: self.min_lr.unwrap_or_else(|| defaults::min_lr(lr)),
            warmup: self.warmup.unwrap_or(0),
            steps: self.steps.unwrap_or(defaults::STEPS),
        }
    }

    /// The update rule with its coefficients.
    pub fn rule(&self) -> nn::Optimizer {
        self.optimizer.with(self.beta1, self.beta2, self.eps)
    }
}

impl Lora {
    /// The adapters that are trained, if any. What isn't a number in a pattern was refused by [`Lora::malformed`].
    pub fn adapters(&self) -> Option<nn::Lora> {
        let Self { rank, alpha, targets, dropout, base_bits, .. } = self;
        (*rank > 0).then(|| nn::Lora {
            rank: *rank,
            alpha: alpha.unwrap_or(2.0 * *rank as f64),
            targets: targets.clone(),
            dropout: *dropout,
            base_bits: (*base_bits).into(),
            variant: Variant {
                rslora: self.rslora,
                dora: self.dora,
                ranks: numbers(&self.rank_pattern).collect(),
                alphas: numbers(&self.alpha_pattern).collect(),
                layers: (!self.layers.is_empty())
                    .then(|| self.layers.iter().filter_map(|layer| layer.parse().ok()).collect()),
                layers_pattern: self.layers_pattern.clone(),
                exclude: self.exclude.clone(),
                saved: self.modules_to_save.clone(),
                bias: self.bias,
            },
        })
    }

    /// Sets rank, alpha, targets and variant to those of `found`. An alpha and targets that are set stay.
    pub fn take_on(&mut self, found: nn::Lora) {
        let nn::Lora { rank, alpha, targets, variant, .. } = found;
        self.rank = rank;
        self.alpha.get_or_insert(alpha);
        if self.targets == Self::default().targets {
            self.targets = targets;
        }
        let Variant { rslora, dora, ranks, alphas, layers, layers_pattern, exclude, saved, bias } =
            variant;
        self.bias = bias;
        (self.rslora, self.dora) = (rslora, dora);
        self.rank_pattern = texts(ranks);
        self.alpha_pattern = texts(alphas);
        self.layers = layers.unwrap_or_default().iter().map(usize::to_string).collect();
        (self.layers_pattern, self.exclude, self.modules_to_save) =
            (layers_pattern, exclude, saved);
    }

    /// The first entry of a list that doesn't say a number: its key, and the entry.
    pub fn malformed(&self) -> Option<(&'static str, &str)> {
        let rank = |entry: &&String| number::<usize>(entry).is_none();
        let alpha = |entry: &&String| number::<f64>(entry).is_none();
        let layer = |entry: &&String| entry.parse::<usize>().is_err();
        let ranks = self.rank_pattern.iter().find(rank).map(|entry| ("lora.rank_pattern", entry));
        let alphas =
            || self.alpha_pattern.iter().find(alpha).map(|entry| ("lora.alpha_pattern", entry));
        let layers = || self.layers.iter().find(layer).map(|entry| ("lora.layers", entry));
        let found = ranks.or_else(alphas).or_else(layers);
        found.map(|(key, entry)| (key, entry.as_str()))
    }
}

/// A pattern and the number behind its last `=`.
fn number<T: FromStr>(entry: &str) -> Option<(String, T)> {
    let (pattern, number) = entry.rsplit_once('=')?;
    Some((pattern.to_owned(), number.parse().ok()?))
}

fn numbers<T: FromStr>(list: &[String]) -> impl Iterator<Item = (String, T)> {
    list.iter().filter_map(|entry| number(entry))
}

fn texts<T: Display>(numbers: BTreeMap<String, T>) -> Vec<String> {
    numbers.into_iter().map(|(pattern, number)| format!("{pattern}={number}")).collect()
}

impl Recompute {
    /// The choice that a plan made, unless it is one of single tensors, which has no short name.
    pub fn of(choice: &plan::Checkpoint) -> Option<Self> {
        match choice {
            plan::Checkpoint::None => Some(Self::None),
            plan::Checkpoint::Block => Some(Self::Block),
            plan::Checkpoint::Every(blocks) => Some(Self::Every(*blocks)),
            plan::Checkpoint::Sqrt => Some(Self::Sqrt),
            plan::Checkpoint::Tensors(_) => None,
        }
    }

    /// The choice, where it's neither the planner's nor one of single tensors.
    pub fn choice(&self) -> Option<plan::Checkpoint> {
        match self {
            Self::Auto | Self::AllBut(_) => None,
            Self::None => Some(plan::Checkpoint::None),
            Self::Block => Some(plan::Checkpoint::Block),
            Self::Every(blocks) => Some(plan::Checkpoint::Every(*blocks)),
            Self::Sqrt => Some(plan::Checkpoint::Sqrt),
        }
    }
}
