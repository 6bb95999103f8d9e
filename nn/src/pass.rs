//! `Pass`: what a model appends its ops to.

use serde::{Deserialize, Serialize};
use tightrope_core::expr::{constant, input, random};
use tightrope_core::graph::nearest;
use tightrope_core::ops::{Map, Op};
use tightrope_core::{Class, DType, Expr, Graph, Tensor, Type};

use crate::error::{Error, Result};
use crate::figure::{Figure, RowMean};
use crate::inputs::Inputs;
use crate::noise::Noise;
use crate::share::Shares;
use crate::weights::{Adapter, Weights};

/// How attention over whole sequences is computed. Both give the same numbers, but for the order of sums and for which
/// probabilities dropout drops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AttentionKind {
    /// One op, which never stores more scores than a tile (Dao et al. 2022).
    #[default]
    Fused,
    /// A matmul, a mask, a softmax and a matmul. The probabilities, (B, H, T, T) in every layer, wait for the backward pass.
    Eager,
}

impl AttentionKind {
    /// Every one.
    pub const ALL: &'static [Self] = &[Self::Fused, Self::Eager];

    /// Lower-case name, as in settings.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fused => "fused",
            Self::Eager => "eager",
        }
    }
}

/// What trades memory for time and leaves results as they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BuildOptions {
    /// Rows of logits held at a time; 0 for all.
    pub loss_chunk: usize,
    /// How attention is computed.
    pub attention: AttentionKind,
}

/// Keys and values of one attention layer's past positions, each (B, positions, key-value heads · D).
#[derive(Clone, Copy, Debug)]
pub struct Cache {
    /// Keys, rotated where positions are rotary.
    pub keys: Tensor,
    /// Values.
    pub values: Tensor,
}

/// What a pass is for.
#[derive(Clone, Copy, Debug)]
enum Purpose {
    /// Its gradient: it drops what dropout says, where there is a key.
    Training { key: Option<Tensor> },
    /// Its loss and metrics.
    Evaluation,
    /// What a trained model learns of.
    Teaching,
    /// The next token, with caches of so many positions.
    Decoding { positions: usize },
}

/// What tensors of a teacher are named after.
const TEACHER: &str = "teacher";

/// The name of a teacher's parameter in a graph.
pub(crate) fn of_teacher(name: &str) -> String {
    format!("{TEACHER}.{name}")
}

/// One pass over a batch, as it's appended to a graph: the model's inputs and weights, and where ops go.
#[derive(Debug)]
pub struct Pass<'a> {
    graph: &'a mut Graph,
    weights: &'a Weights,
    /// Those of the model's teacher.
    teacher: Option<&'a Weights>,
    inputs: Inputs,
    build: BuildOptions,
    purpose: Purpose,
    context_ranks: usize,
    /// Shares of the passes of its batch, and the number of nodes of its program that aren't the model's: nodes before it, and of shares.
    shares: Option<&'a Shares>,
    others: usize,
    /// Documents of whole sequences, once ranks that have parts of them have exchanged them.
    pub(crate) documents: Option<Tensor>,
    drew: bool,
    /// Noise on embeddings.
    noise: Option<Noise>,
    /// True once the noise is added.
    noised: bool,
    metrics: Vec<(String, Tensor)>,
    /// True if losses are made by row: those of an evaluation.
    by_row: bool,
    means: Vec<RowMean>,
    caches: Vec<(String, Cache)>,
}

impl<'a> Pass<'a> {
    fn new(
        graph: &'a mut Graph,
        weights: &'a Weights,
        inputs: Inputs,
        build: BuildOptions,
        purpose: Purpose,
    ) -> Self {
        let (drew, metrics, caches) = (false, vec![], vec![]);
        let (teacher, context_ranks, documents) = (None, 1, None);
        let (shares, others) = (None, graph.node_count());
        Self {
            graph,
            weights,
            teacher,
            inputs,
            build,
            purpose,
            context_ranks,
            shares,
            others,
            documents,
            drew,
            noise: None,
            noised: false,
            metrics,
            by_row: false,
            means: vec![],
            caches,
        }
    }

    /// A pass that is trained. `key` is that of random numbers, U32 (4): seed (low, high), step and micro-step. Without it
    /// nothing is dropped.
    pub fn training(
        graph: &'a mut Graph,
        weights: &'a Weights,
        inputs: Inputs,
        build: BuildOptions,
        key: Option<Tensor>,
    ) -> Self {
        Self::new(graph, weights, inputs, build, Purpose::Training { key })
    }

    /// With the weights of the model's teacher, where it has one.
    pub(crate) fn taught(self, teacher: Option<&'a Weights>) -> Self {
        Self { teacher, ..self }
    }

    /// With noise on embeddings, where there is some.
    pub(crate) fn with_noise(self, noise: Option<Noise>) -> Self {
        Self { noise, ..self }
    }

    /// Over parts of sequences, of which each of so many ranks has one.
    pub(crate) fn with_context_ranks(self, context_ranks: usize) -> Self {
        Self { context_ranks, ..self }
    }

    /// As one of the passes that add up to a batch.
    pub(crate) fn with_shares(self, shares: &'a Shares) -> Self {
        Self { shares: Some(shares), ..self }
    }

    /// Shares of the passes of its batch, and the index of the model's next node; `None` for a pass that is alone.
    pub(crate) fn next_node(&self) -> Option<(&'a Shares, usize)> {
        Some((self.shares?, self.graph.node_count() - self.others))
    }

    /// Notes that the last node is none of the model's.
    pub(crate) fn added_node(&mut self) {
        self.others += 1;
    }

    pub(crate) fn graph(&mut self) -> &mut Graph {
        self.graph
    }

    /// A pass whose loss and metrics are read: nothing is dropped.
    pub fn evaluation(
        graph: &'a mut Graph,
        weights: &'a Weights,
        inputs: Inputs,
        build: BuildOptions,
    ) -> Self {
        Self::new(graph, weights, inputs, build, Purpose::Evaluation)
    }

    /// With losses and figures made by row.
    pub(crate) fn by_row(self) -> Self {
        Self { by_row: true, ..self }
    }

    /// Returns `true` if losses are made by row.
    pub(crate) fn is_by_row(&self) -> bool {
        self.by_row
    }

    /// Runs `build`, whose losses aren't those of the pass: they are means over all of their rows.
    pub(crate) fn without_rows<R>(&mut self, build: impl FnOnce(&mut Self) -> R) -> R {
        let by_row = std::mem::replace(&mut self.by_row, false);
        let built = build(self);
        self.by_row = by_row;
        built
    }

    /// Has evaluation read the rows of a mean.
    pub(crate) fn keep_rows(&mut self, mean: RowMean) {
        self.means.push(mean);
    }

    /// A pass over the next positions of sequences, with caches of so many `positions`.
    pub fn decoding(
        graph: &'a mut Graph,
        weights: &'a Weights,
        inputs: Inputs,
        positions: usize,
    ) -> Self {
        Self::new(graph, weights, inputs, BuildOptions::default(), Purpose::Decoding { positions })
    }

    /// The tensor of an input.
    ///
    /// # Errors
    /// [`Error::Setting`] where the model lists none of this name, with the most similar.
    pub fn input(&self, name: &str) -> Result<Tensor> {
        self.inputs.get(name)
    }

    /// The tensor of an input that a model may have or not.
    pub fn optional_input(&self, name: &str) -> Option<Tensor> {
        self.inputs.get(name).ok()
    }

    /// The tensor of a parameter, dequantized where it's stored in fewer bits.
    ///
    /// # Errors
    /// [`Error::Setting`] where the model lists none of this name, with the most similar.
    pub fn parameter(&mut self, name: &str) -> Result<Tensor> {
        let teachers = matches!(self.purpose, Purpose::Teaching).then(|| of_teacher(name));
        let name = teachers.as_deref().unwrap_or(name);
        let Some(index) = self.weights.position(name) else {
            let names = self.weights.parameters().iter().map(|parameter| parameter.name.as_str());
            let near = nearest(name, names);
            let near = near.map_or(String::new(), |near| format!("; did you mean `{near}`?"));
            let problem = format!("it reads a parameter `{name}` that it doesn't list{near}");
            return Err(Error::Setting { key: "model", problem });
        };
        self.weights.read(self.graph, index, self.dtype())
    }

    /// The adapters of a parameter, in the order of its rows.
    pub(crate) fn adapters(&self, name: &str) -> &'a [Adapter] {
        self.weights.adapters(name)
    }

    /// Storage of activations.
    pub fn dtype(&self) -> DType {
        self.weights.precision().dtype()
    }

    /// What trades memory for time.
    pub fn options(&self) -> BuildOptions {
        self.build
    }

    /// How many ranks have a part of each sequence: the model's are those of this one.
    pub fn context_ranks(&self) -> usize {
        // A browser's tab has no others to train with.
        if cfg!(target_family = "wasm") { 1 } else { self.context_ranks }
    }

    /// Dtype and shape of a tensor.
    pub fn ty(&self, tensor: Tensor) -> &Type {
        self.graph.ty(tensor)
    }

    /// Extents of a tensor.
    pub fn shape(&self, tensor: Tensor) -> &[usize] {
        &self.graph.ty(tensor).shape
    }

    /// Appends an op and gives its outputs.
    ///
    /// # Errors
    /// Inputs that the op doesn't take.
    pub fn push(
        &mut self,
        op: impl Into<Op>,
        inputs: &[Tensor],
        name: &str,
    ) -> Result<Vec<Tensor>> {
        self.push_part(op.into(), inputs, name)
    }

    /// Appends an op and gives its first output.
    ///
    /// # Errors
    /// Inputs that the op doesn't take.
    pub fn one(&mut self, op: impl Into<Op>, inputs: &[Tensor], name: &str) -> Result<Tensor> {
        Ok(self.push(op, inputs, name)?[0])
    }

    /// Appends `formula` over the elements of `inputs`, stored as activations are.
    ///
    /// # Errors
    /// Shapes that don't repeat into each other.
    pub fn map(&mut self, formula: Expr, inputs: &[Tensor], name: &str) -> Result<Tensor> {
        let map = Map::new(formula, self.dtype());
        let mut inputs = inputs.to_vec();
        inputs.extend(self.key().filter(|_| map.is_random()));
        self.one(map, &inputs, name)
    }

    /// `x` stored as activations are: itself where it is.
    ///
    /// # Errors
    /// A tensor that holds no numbers.
    pub fn activation(&mut self, x: Tensor, name: &str) -> Result<Tensor> {
        if self.graph.dtype(x) == self.dtype() { Ok(x) } else { self.map(input(0), &[x], name) }
    }

    /// `formula` with dropout of probability `p`, where this pass drops anything (Srivastava et al. 2014).
    pub fn dropped(&mut self, p: f64, formula: Expr) -> Expr {
        if self.key().is_none() || p == 0.0 {
            return formula;
        }
        self.drew = true;
        let dropped = random(self.graph.new_stream()).less(constant(p));
        dropped.select(constant(0.0), formula * constant(1.0 / (1.0 - p)))
    }

    /// A stream of random numbers and their key, where this pass drops anything with probability `p`: what ops with dropout of
    /// their own read.
    pub fn stream(&mut self, p: f64) -> Option<(u32, Tensor)> {
        let key = self.key().filter(|_| p > 0.0)?;
        self.drew = true;
        Some((self.graph.new_stream(), key))
    }

    /// `x`, embeddings of tokens (sequences, positions, C), with NEFTune's noise where this pass is trained with some: uniform within
    /// ±`factor`·α/√(tokens·C).
    ///
    /// # Errors
    /// [`Error::Setting`] for a tensor of other axes.
    pub fn noised(&mut self, x: Tensor, factor: f64) -> Result<Tensor> {
        let trains = matches!(self.purpose, Purpose::Training { .. });
        let Some(noise) = self.noise.filter(|_| trains) else { return Ok(x) };
        let (dtype, before) = (self.dtype(), self.graph.node_count());
        let noised = noise.add(self.graph, x, factor, dtype)?;
        // A pass that is recorded has none of these nodes.
        self.others += self.graph.node_count() - before;
        self.noised = true;
        Ok(noised)
    }

    /// `x` plus what a branch adds to it, of which elements are dropped with probability `p`.
    ///
    /// # Errors
    /// As [`Pass::map`].
    pub fn residual(&mut self, x: Tensor, branch: Tensor, p: f64, name: &str) -> Result<Tensor> {
        let kept = self.dropped(p, input(1));
        self.map(input(0) + kept, &[x, branch], name)
    }

    /// Runs `build`, which reads the weights of the model's [teacher](crate::Model::teacher), where this pass is trained and has one.
    /// Nothing is dropped, and nothing that it makes is kept for the backward pass but what the loss reads.
    ///
    /// # Errors
    /// Those of `build`.
    pub fn teacher<R>(&mut self, build: impl FnOnce(&mut Self) -> Result<R>) -> Result<Option<R>> {
        let Some(weights) = self.teacher else { return Ok(None) };
        self.graph.enter(TEACHER);
        let own = std::mem::replace(&mut self.weights, weights);
        let purpose = std::mem::replace(&mut self.purpose, Purpose::Teaching);
        let built = build(self);
        (self.weights, self.purpose) = (own, purpose);
        self.graph.leave();
        built.map(Some)
    }

    /// Runs `build`, whose ops are repeated block `index`: the planner decides for whole blocks what to recompute and what
    /// waits on the host.
    pub fn block<R>(&mut self, index: usize, build: impl FnOnce(&mut Self) -> R) -> R {
        // The planner's blocks are those of the model that is trained.
        let index = (!matches!(self.purpose, Purpose::Teaching)).then_some(index);
        let before = self.graph.set_block(index);
        let result = build(self);
        self.graph.set_block(before);
        result
    }

    /// Appends a figure that evaluation reads besides the loss, f32 (1): a mean over what counts in the batch. Training
    /// passes leave it out; [`Pass::figure`] is for what they make anyway.
    ///
    /// # Errors
    /// Those of `build`.
    pub fn metric(
        &mut self,
        name: &str,
        build: impl FnOnce(&mut Self) -> Result<Tensor>,
    ) -> Result<()> {
        if matches!(self.purpose, Purpose::Evaluation) {
            let figure = build(self)?;
            self.metrics.push((name.to_owned(), figure));
        }
        Ok(())
    }

    /// Names a figure that the pass makes on its way to the loss, f32 (1): a mean over what counts in the batch. Training reads
    /// it as evaluation does.
    pub fn figure(&mut self, name: &str, figure: Tensor) {
        if matches!(self.purpose, Purpose::Training { .. } | Purpose::Evaluation) {
            self.metrics.push((name.to_owned(), figure));
        }
    }

    /// The caches of the attention layer `layer`, whose keys have so many `columns`, in a pass that appends to them:
    /// declared where they are first asked for.
    pub fn cache(&mut self, layer: &str, batch: usize, columns: usize) -> Option<Cache> {
        let Purpose::Decoding { positions } = self.purpose else { return None };
        if let Some((_, cache)) = self.caches.iter().find(|(known, _)| known == layer) {
            return Some(*cache);
        }
        let ty = Type::new(self.dtype(), [batch, positions, columns]);
        let mut held =
            |part| self.graph.held(&format!("{layer}.{part}"), ty.clone(), Class::Activation);
        let cache = Cache { keys: held("keys"), values: held("values") };
        self.caches.push((layer.to_owned(), cache));
        Some(cache)
    }

    /// Positions of the caches, in a pass that appends to them.
    pub fn cached_positions(&self) -> Option<usize> {
        match self.purpose {
            Purpose::Decoding { positions } => Some(positions),
            _ => None,
        }
    }

    /// Figures that an evaluation reads: its `loss`, then the others by name.
    pub(crate) fn into_figures(self, loss: Tensor) -> (Figure, Vec<(String, Figure)>) {
        let figure = |tensor| Figure::of(tensor, &self.means);
        let metrics = self.metrics.iter().map(|(name, tensor)| (name.clone(), figure(*tensor)));
        (figure(loss), metrics.collect())
    }

    /// Returns `true` if noise was added.
    pub(crate) fn is_noised(&self) -> bool {
        self.noised
    }

    /// What is read besides the loss, by name.
    pub(crate) fn into_metrics(self) -> Vec<(String, Tensor)> {
        self.metrics
    }

    /// Whether anything drew random numbers.
    pub(crate) fn drew(&self) -> bool {
        self.drew
    }

    fn key(&self) -> Option<Tensor> {
        match self.purpose {
            Purpose::Training { key } => key,
            _ => None,
        }
    }
}
