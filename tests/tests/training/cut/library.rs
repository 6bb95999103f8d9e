//! Models of the library with drawn extents, and numbers for any of them by its inputs.

use std::sync::Arc;

use conformance::values::uniform;
use tightrope_core::DType;
use tightrope_nn::{
    Architecture, Batch, ClassifierConfig, Details, Family, Input, LanguageModel, Model,
    ModelConfig, preset,
};

/// Tokens and classes of labels.
const VOCAB: usize = 40;
const CLASSES: usize = 5;
/// Tokens of a sequence.
const LENGTH: usize = 9;

/// A model by the stream of draws `draw`: every family of decoders, with documents, packed documents, pairs of answers or classes of texts,
/// encoders with masked tokens or classes, and classifiers of images.
pub(super) fn drawn(draw: impl Fn(u64) -> f64) -> Arc<dyn Model> {
    let pick = |stream: u64, of: usize| (draw(stream) * of as f64) as usize;
    let families = Family::ALL.len();
    // Half of the models are of one family each, the others of three kinds that share a place each.
    let kind = pick(20, families + 3);
    let (heads, width) = (2, 4 + 2 * pick(21, 4));
    if kind < families {
        return language(Family::ALL[kind], heads, heads * width, [22, 23, 24].map(&draw));
    }
    let built_in = |name: &str| Architecture::preset(name).expect("a preset");
    match built_in(if kind == families { "vit-tiny" } else { "bert-tiny" }) {
        Architecture::Vit(mut config) => {
            (config.layers, config.heads, config.channels) = (1, heads, heads * width);
            (config.hidden, config.classes, config.dropout) = (24, CLASSES, 0.0);
            config.build()
        }
        Architecture::Bert(mut config) => {
            (config.layers, config.heads, config.channels) = (1, heads, heads * width);
            (config.hidden, config.vocab, config.context) = (24, VOCAB, LENGTH);
            (config.dropout, config.attention_dropout) = (0.0, 0.0);
            config.classes = (kind == families + 1).then_some(CLASSES);
            config.build(LENGTH)
        }
        Architecture::Language(_) | Architecture::Classifier(_) => {
            unreachable!("neither is a decoder")
        }
    }
    .expect("a model")
}

fn language(
    family: Family,
    heads: usize,
    channels: usize,
    [tied, grouped, sample]: [f64; 3],
) -> Arc<dyn Model> {
    let layers = 2;
    let of_family = family.details(layers);
    let config = ModelConfig {
        family,
        details: Details { window: of_family.window.map(|_| 4), ..of_family },
        layers,
        channels,
        heads,
        kv_heads: if family != Family::Gpt2 && grouped < 0.5 { 1 } else { heads },
        hidden: 24,
        context: LENGTH,
        vocab: VOCAB,
        tied: tied < 0.5,
        dropout: 0.0,
        ..preset(if family == Family::Gpt2 { "tiny" } else { "llama-tiny" }).expect("a preset")
    };
    if sample >= 0.8 {
        let of_classes =
            ClassifierConfig { decoder: config, classes: CLASSES, labels: vec![], padding: None };
        return of_classes.build(LENGTH).expect("a model");
    }
    let model = LanguageModel::new(&config, LENGTH).expect("a model");
    match sample {
        x if x < 0.2 => Arc::new(model.packed()),
        x if x < 0.4 => Arc::new(model.of_pairs(0.3).expect("a β above 0")),
        _ => Arc::new(model),
    }
}

/// The numbers of a batch.
pub(super) struct ByInput(Vec<(String, Numbers)>);

enum Numbers {
    F32(Vec<f32>),
    I32(Vec<i32>),
}

impl ByInput {
    /// For `samples` samples of `model`. Of ids to predict, `kept` count.
    pub(super) fn new(model: &dyn Model, seed: u64, samples: usize, kept: f64) -> Self {
        let given = model.inputs().into_iter().filter(|input| input.range.is_none());
        let numbers = |(at, input): (usize, Input)| {
            let count = input.ty(samples).elements();
            let draw = |i: usize| uniform(seed * 131 + at as u64, i as u64);
            let counts = |i: usize| uniform(seed * 131 + at as u64, (count + i) as u64) < kept;
            let below = |i: usize, limit: usize| (draw(i) * limit as f64) as i32;
            let expected = |i: usize, limit: usize| if counts(i) { below(i, limit) } else { -1 };
            let number = |i: usize| match input.name.as_str() {
                "targets" => expected(i, VOCAB),
                "labels" => expected(i, CLASSES),
                "types" => below(i, 2),
                "last" => below(i, LENGTH),
                // A sequence has two documents, whose positions begin anew.
                "documents" => i32::from(i % LENGTH >= 4),
                "positions" => (i % LENGTH % 4) as i32,
                _ => below(i, VOCAB),
            };
            let numbers = match input.dtype {
                DType::I32 => Numbers::I32((0..count).map(number).collect()),
                _ => Numbers::F32((0..count).map(|i| draw(i) as f32 - 0.5).collect()),
            };
            (input.name.clone(), numbers)
        };
        Self(given.enumerate().map(numbers).collect())
    }

    pub(super) fn batch(&self) -> Batch<'_> {
        self.0.iter().fold(Batch::new(), |batch, (name, numbers)| match numbers {
            Numbers::F32(values) => batch.with(name, values),
            Numbers::I32(values) => batch.with(name, values),
        })
    }
}
