//! Models whose losses are of several terms, and numbers for them.

use conformance::values::uniform;
use tightrope_core::expr::{Expr, constant, input};
use tightrope_core::ops::{Map, MatMul, Permute, Reduce, Reshape, Softmax};
use tightrope_core::{DType, Tensor};
use tightrope_nn::layers::{self, Activation, Embedding, Layer, LayerNorm, Linear};
use tightrope_nn::{Batch, Init, Input, Model, Parameter, Pass, Result};

/// Numbers of a sample, of the hidden layer, and classes of labels.
pub(super) const NUMBERS: usize = 6;
pub(super) const WIDTH: usize = 8;
pub(super) const CLASSES: usize = 5;
/// Positions of a sample's tokens, and how many tokens there are.
pub(super) const POSITIONS: usize = 3;
pub(super) const TOKENS: usize = 11;

/// A term of a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Term {
    /// Cross-entropy over labels, of which some don't count.
    Labels,
    /// As before, over other labels.
    OtherLabels,
    /// Linear cross-entropy over the positions of tokens.
    Positions,
    /// Mean of squares.
    Squares,
    /// Mean over what a mask of the inputs leaves, by a count that the model makes.
    Masked,
    /// A sum of squares of weights.
    Penalty,
    /// Mean square of the logarithm of the normaliser of scores.
    Normaliser,
    /// A sum over samples, not a mean.
    Sum,
    /// A sum over samples of what each was divided by their number.
    Divided,
    /// A sum over samples that is divided by their number.
    DividedSum,
    /// Labels' loss with a learned weight (Kendall et al. 2018).
    Learned,
}

pub(super) const TERMS: [Term; 11] = [
    Term::Labels,
    Term::OtherLabels,
    Term::Positions,
    Term::Squares,
    Term::Masked,
    Term::Penalty,
    Term::Normaliser,
    Term::Sum,
    Term::Divided,
    Term::DividedSum,
    Term::Learned,
];

/// A loss that mixes samples.
#[derive(Clone, Copy, Debug)]
pub(super) enum Mixing {
    /// The square of a mean.
    SquareOfMean,
    /// Scores of each sample against all others.
    Negatives,
    /// Differences from the batch's mean.
    Centered,
    /// A softmax over samples.
    OverSamples,
    /// A product of two means.
    Product,
    /// A mean by a sum that depends on weights.
    LearnedCount,
}

#[derive(Debug)]
pub(super) struct Drawn {
    up: Linear,
    norm: LayerNorm,
    head: Linear,
    other: Linear,
    table: Embedding,
    vocabulary: Parameter,
    balance: Parameter,
    terms: Vec<(Term, f64)>,
    mixing: Option<Mixing>,
}

impl Drawn {
    pub(super) fn new(terms: Vec<(Term, f64)>, mixing: Option<Mixing>) -> Self {
        let normal = Init::Normal { std: 0.5 };
        Self {
            up: Linear::new("up", NUMBERS, WIDTH),
            norm: LayerNorm::new("norm", WIDTH),
            head: Linear::new("head", WIDTH, CLASSES).as_head(),
            other: Linear::new("other", WIDTH, CLASSES).as_head(),
            table: Embedding::new("table", TOKENS, WIDTH),
            vocabulary: Parameter::new("vocabulary", &[TOKENS, WIDTH], normal),
            balance: Parameter::new("balance", &[1], normal),
            terms,
            mixing,
        }
    }

    fn has(&self, terms: &[Term]) -> bool {
        self.terms.iter().any(|(term, _)| terms.contains(term))
    }

    fn reads_hidden(&self) -> bool {
        self.mixing.is_some() || self.terms.iter().any(|(term, _)| *term != Term::Positions)
    }

    /// A term, f32 (1), of hidden values (B, C).
    fn term(&self, pass: &mut Pass<'_>, term: Term, hidden: Tensor) -> Result<Tensor> {
        let samples = pass.shape(hidden)[0] as f64;
        let all = |scale: f64| Reduce { scale, ..Reduce::to_suffix(vec![1], DType::F32) };
        let square = || input(0) * input(0);
        match term {
            Term::Labels => {
                let (scores, labels) = (self.head.scores(pass, hidden)?, pass.input("labels")?);
                layers::cross_entropy(pass, scores, labels)
            }
            Term::OtherLabels => {
                let (scores, labels) = (self.other.scores(pass, hidden)?, pass.input("others")?);
                layers::cross_entropy(pass, scores, labels)
            }
            Term::Positions => {
                let (tokens, targets) = (pass.input("tokens")?, pass.input("targets")?);
                let x = self.table.apply(pass, tokens)?;
                layers::linear_cross_entropy(pass, x, &self.vocabulary, targets, TOKENS)
            }
            Term::Squares => {
                let (found, expected) = (self.up_again(pass, hidden)?, pass.input("x")?);
                layers::mean_squared_error(pass, found, expected)
            }
            Term::Masked => {
                let mask = pass.input("mask")?;
                let each = pass.one(Map::new(square(), DType::F32), &[hidden], "masked.squares")?;
                let each = pass.one(Reduce::last(DType::F32), &[each], "masked.each")?;
                let kept = Map::new(input(0) * input(1), DType::F32);
                let kept = pass.one(kept, &[each, mask], "masked.kept")?;
                let sum = pass.one(all(1.0), &[kept], "masked.sum")?;
                let count = pass.one(all(1.0), &[mask], "masked.count")?;
                let mean = Map::new(input(0) / input(1).max(constant(1.0)), DType::F32);
                pass.one(mean, &[sum, count], "masked.mean")
            }
            Term::Penalty => {
                let weight = pass.parameter("up.weight")?;
                let squares =
                    pass.one(Map::new(square(), DType::F32), &[weight], "penalty.each")?;
                pass.one(all(1.0), &[squares], "penalty")
            }
            Term::Normaliser => {
                let scores = self.head.scores(pass, hidden)?;
                let each = pass.one(Map::new(input(0).exp(), DType::F32), &[scores], "z.exp")?;
                let each = pass.one(Reduce::last(DType::F32), &[each], "z.sums")?;
                let squares = Map::new(input(0).ln() * input(0).ln(), DType::F32);
                let each = pass.one(squares, &[each], "z.squares")?;
                pass.one(all(1.0 / samples), &[each], "z")
            }
            Term::Sum => {
                let each = pass.one(Map::new(square(), DType::F32), &[hidden], "sum.each")?;
                pass.one(all(0.1), &[each], "sum")
            }
            Term::Divided => {
                let share = Map::new(input(0).tanh() * constant(1.0 / samples), DType::F32);
                let each = pass.one(share, &[hidden], "divided.each")?;
                pass.one(all(1.0), &[each], "divided")
            }
            Term::DividedSum => {
                let each = pass.one(Map::new(square(), DType::F32), &[hidden], "half.each")?;
                let sum = pass.one(all(1.0), &[each], "half.sum")?;
                let mean = Map::new(input(0) * constant(1.0 / samples), DType::F32);
                pass.one(mean, &[sum], "half")
            }
            Term::Learned => {
                let loss = self.term(pass, Term::OtherLabels, hidden)?;
                let balance = pass.parameter("balance")?;
                let formula = (-input(1)).exp() * input(0) + input(1);
                pass.one(Map::new(formula, DType::F32), &[loss, balance], "learned")
            }
        }
    }

    /// Hidden values times the first layer's weight, (B, N).
    fn up_again(&self, pass: &mut Pass<'_>, hidden: Tensor) -> Result<Tensor> {
        let weight = pass.parameter("up.weight")?;
        pass.one(MatMul::new(DType::F32), &[hidden, weight], "found")
    }

    fn mixed(&self, pass: &mut Pass<'_>, mixing: Mixing, hidden: Tensor) -> Result<Tensor> {
        let samples = pass.shape(hidden)[0] as f64;
        let f32_map = |formula: Expr| Map::new(formula, DType::F32);
        let mean = |scale: f64| Reduce { scale, ..Reduce::to_suffix(vec![1], DType::F32) };
        let each = pass.one(Reduce::last(DType::F32), &[hidden], "each")?;
        let of_batch = pass.one(mean(1.0 / samples), &[each], "of_batch")?;
        let square = f32_map(input(0) * input(0));
        match mixing {
            Mixing::SquareOfMean => pass.one(square, &[of_batch], "squared_mean"),
            Mixing::Product => {
                let others = pass.one(f32_map(input(0).tanh()), &[each], "others")?;
                let others = pass.one(mean(1.0 / samples), &[others], "of_others")?;
                pass.one(f32_map(input(0) * input(1)), &[of_batch, others], "product_of_means")
            }
            Mixing::LearnedCount => {
                let counts = pass.one(f32_map(input(0).sigmoid()), &[each], "counts")?;
                let count = pass.one(mean(1.0), &[counts], "count")?;
                pass.one(f32_map(input(0) / input(1)), &[of_batch, count], "mean_by_weights")
            }
            Mixing::Negatives => {
                let scores = MatMul { transpose_rhs: true, ..MatMul::new(DType::F32) };
                let scores = pass.one(scores, &[hidden, hidden], "similarity")?;
                let labels = pass.input("labels")?;
                let rows = pass.shape(scores)[0];
                let shape = Reshape { shape: vec![rows, rows] };
                let scores = pass.one(shape, &[scores], "scores")?;
                layers::cross_entropy(pass, scores, labels)
            }
            Mixing::Centered => {
                let centered =
                    pass.one(f32_map(input(0) - input(1)), &[each, of_batch], "centered")?;
                let squares = pass.one(square, &[centered], "squares")?;
                pass.one(mean(1.0 / samples), &[squares], "variance")
            }
            Mixing::OverSamples => {
                let turned = pass.one(Permute { axes: vec![1, 0] }, &[hidden], "turned")?;
                let shares = pass.one(Softmax, &[turned], "over_samples")?;
                let squares = pass.one(square, &[shares], "squares")?;
                pass.one(mean(1.0), &[squares], "attended")
            }
        }
    }
}

impl Model for Drawn {
    fn parameters(&self) -> Vec<Parameter> {
        let mut list = vec![];
        if self.reads_hidden() {
            list.extend(layers::parameters([&self.up as &dyn Layer, &self.norm]));
        }
        if self.has(&[Term::Labels, Term::Normaliser]) {
            list.extend(self.head.parameters());
        }
        if self.has(&[Term::OtherLabels, Term::Learned]) {
            list.extend(self.other.parameters());
        }
        if self.has(&[Term::Positions]) {
            list.extend(self.table.parameters());
            list.push(self.vocabulary.clone());
        }
        if self.has(&[Term::Learned]) {
            list.push(self.balance.clone());
        }
        list
    }

    fn inputs(&self) -> Vec<Input> {
        let ids = |name: &str, shape: &[usize]| Input::new(name, DType::I32, shape);
        vec![
            ids("others", &[]),
            Input::new("x", DType::F32, &[NUMBERS]),
            ids("labels", &[]),
            ids("tokens", &[POSITIONS]),
            ids("targets", &[POSITIONS]),
            Input::new("mask", DType::F32, &[]),
        ]
    }

    fn loss(&self, pass: &mut Pass<'_>) -> Result<Tensor> {
        let mut hidden = pass.input("x")?;
        if self.reads_hidden() {
            hidden = self.up.apply(pass, hidden)?;
            hidden = self.norm.apply(pass, hidden)?;
            hidden = Activation::GeluTanh.apply(pass, hidden, "active")?;
        }
        let mut found = vec![];
        for &(term, weight) in &self.terms {
            found.push((self.term(pass, term, hidden)?, weight));
        }
        if let Some(mixing) = self.mixing {
            found.push((self.mixed(pass, mixing, hidden)?, 1.0));
        }
        // A loss of one term is that term itself.
        if let [(loss, 1.0)] = found[..] {
            return Ok(loss);
        }
        let mut sum = constant(0.0);
        for (index, (_, weight)) in found.iter().enumerate() {
            sum = sum + input(index) * constant(*weight);
        }
        let found: Vec<Tensor> = found.into_iter().map(|(tensor, _)| tensor).collect();
        pass.one(Map::new(sum, DType::F32), &found, "loss")
    }
}

/// The numbers of a batch.
pub(super) struct Numbers {
    x: Vec<f32>,
    pub(super) labels: Vec<i32>,
    pub(super) others: Vec<i32>,
    tokens: Vec<i32>,
    targets: Vec<i32>,
    mask: Vec<f32>,
}

impl Numbers {
    /// Of which some labels don't count: `kept` of them do.
    pub(super) fn new(seed: u64, samples: usize, kept: f64) -> Self {
        let draw = |stream: u64, at: usize| uniform(seed * 31 + stream, at as u64);
        let ids = |stream: u64, count: usize, below: usize, kept: f64| -> Vec<i32> {
            let id = |at| (draw(stream, at) * below as f64) as i32;
            (0..count).map(|at| if draw(stream + 1, at) < kept { id(at) } else { -1 }).collect()
        };
        let (all, rows) = (samples * NUMBERS, samples * POSITIONS);
        Self {
            x: (0..all).map(|at| 2.0 * draw(0, at) as f32 - 1.0).collect(),
            labels: ids(1, samples, CLASSES, kept),
            others: ids(3, samples, CLASSES, 1.0 - kept),
            tokens: ids(5, rows, TOKENS, 1.0),
            targets: ids(7, rows, TOKENS, kept),
            mask: (0..samples).map(|at| f32::from(u8::from(draw(9, at) < kept))).collect(),
        }
    }

    pub(super) fn batch(&self) -> Batch<'_> {
        let Self { x, labels, others, tokens, targets, mask } = self;
        let ids = Batch::new().with("labels", labels).with("others", others);
        ids.with("tokens", tokens).with("targets", targets).with("x", x).with("mask", mask)
    }
}
