//! What a model reads: described by the model, declared in a graph, and given as a batch.

use std::ops::Range;

use tightrope_core::graph::nearest;
use tightrope_core::ops::{Indices, Op, Rule as _};
use tightrope_core::{Class, DType, Graph, Tensor, Type};

use crate::error::{Error, Result, ensure};

/// Name of the input of token ids, I32.
pub const TOKENS: &str = "tokens";
/// Name of the input of ids to predict, I32; negative ones don't count.
pub const TARGETS: &str = "targets";
/// Name of the input of positions within a sequence, I32.
pub const POSITIONS: &str = "positions";
/// Name of the input of documents that tokens belong to, I32, of a model that reads several in one sequence. A position attends to those
/// of its own document alone.
pub const DOCUMENTS: &str = "documents";
/// Name of the input of which of two texts each token belongs to, I32, of an encoder: 0, and 1 in the second.
pub const TYPES: &str = "types";
/// Name of the input of the position of each text's last token that isn't padding, I32, of a decoder that classifies texts.
pub const LAST: &str = "last";
/// Name of the input of log-likelihoods under the reference model, F32, of a model that is trained on preferences: of the chosen and of the
/// rejected answer of each pair, sums over their tokens.
pub const REFERENCE: &str = "reference";
/// Name of the input of the first token's position, I32 (1).
pub const START: &str = "start";
/// Name of what the trainer writes before each pass of a step: its share of what counts in the step, F32 (1). Further factors of the pass
/// are called `share.2` and so on.
pub const SHARE: &str = "share";

/// An input of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Input {
    /// Name, by which a batch gives it.
    pub name: String,
    /// Dtype: F32 or I32.
    pub dtype: DType,
    /// Extents: of one sample where it's batched.
    pub shape: Vec<usize>,
    /// Whether the samples of a pass are its first axis; else a pass has one.
    pub batched: bool,
    /// The consecutive numbers that it always holds, where batches don't give it.
    pub range: Option<Range<i32>>,
}

impl Input {
    /// An input with a value for each sample, of this shape.
    pub fn new(name: impl Into<String>, dtype: DType, shape: &[usize]) -> Self {
        Self { name: name.into(), dtype, shape: shape.into(), batched: true, range: None }
    }

    /// An input of this shape that all samples share, such as a mask.
    pub fn shared(name: impl Into<String>, dtype: DType, shape: &[usize]) -> Self {
        Self { batched: false, ..Self::new(name, dtype, shape) }
    }

    /// An I32 input that always holds the numbers of `range`, such as positions.
    pub fn range(name: impl Into<String>, range: Range<i32>) -> Self {
        let numbers = [range.len()];
        Self { range: Some(range), ..Self::shared(name, DType::I32, &numbers) }
    }

    /// Dtype and shape for `batch` samples.
    pub fn ty(&self, batch: usize) -> Type {
        let samples = self.batched.then_some(batch);
        let shape: Vec<usize> = samples.into_iter().chain(self.shape.iter().copied()).collect();
        // A tensor has an axis: one number for all samples is a vector of it.
        let shape = if shape.is_empty() { vec![1] } else { shape };
        Type::new(self.dtype, shape)
    }
}

/// The inputs of a pass as tensors of a graph.
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    tensors: Vec<(String, Tensor)>,
}

impl Inputs {
    /// Declares a persistent tensor for each of `list`, with room for `batch` samples.
    ///
    /// # Errors
    /// [`Error::Setting`] for an input that can't be given.
    pub fn declare(graph: &mut Graph, list: &[Input], batch: usize) -> Result<Self> {
        let mut inputs = Self::default();
        for input in list {
            let name = &input.name;
            ensure(matches!(input.dtype, DType::F32 | DType::I32), "model", || {
                format!("the input `{name}` is {}; inputs are f32 or i32", input.dtype)
            })?;
            ensure(inputs.get(name).is_err(), "model", || {
                format!("two inputs are called `{name}`; give each a name of its own")
            })?;
            let ty = input.ty(batch);
            ensure(!ty.shape.contains(&0), name_of(name), || {
                format!("the input `{name}` is {ty}: give it at least one element")
            })?;
            inputs = inputs.with(name, graph.persistent(name, ty, Class::Input));
        }
        Ok(inputs)
    }

    /// Each input of `list` with its tensor.
    pub(crate) fn of(&self, list: Vec<Input>) -> Result<Vec<(Input, Tensor)>> {
        let with_tensor = |input: Input| {
            let tensor = self.get(&input.name)?;
            Ok((input, tensor))
        };
        list.into_iter().map(with_tensor).collect()
    }

    /// With another input.
    pub fn with(mut self, name: &str, tensor: Tensor) -> Self {
        self.tensors.push((name.to_owned(), tensor));
        self
    }

    /// The tensor of the input `name`.
    ///
    /// # Errors
    /// [`Error::Setting`], with the most similar name.
    pub fn get(&self, name: &str) -> Result<Tensor> {
        let found = self.tensors.iter().find(|(known, _)| known == name);
        found.map(|&(_, tensor)| tensor).ok_or_else(|| {
            let near = nearest(name, self.tensors.iter().map(|(name, _)| name.as_str()));
            let near = near.map_or(String::new(), |near| format!("; did you mean `{near}`?"));
            Error::Setting { key: "model", problem: format!("it has no input `{name}`{near}") }
        })
    }
}

/// Range of the ids of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ids {
    /// All are below this.
    end: usize,
    /// True if there may be negative ones, which stand for none.
    negative: bool,
}

impl Ids {
    /// Range of the ids that ops of `graph` read from `input`, itself or in another shape; `None` if none does.
    pub(crate) fn of(graph: &Graph, input: Tensor) -> Option<Self> {
        let mut found: Option<Self> = None;
        for program in &graph.programs {
            let mut same = vec![input];
            for node in &program.nodes {
                let (types, _) = graph.types(node);
                let reads = node.op.indices(&types).into_iter();
                let reads = reads.filter(|read| same.contains(&node.inputs[read.input]));
                for Indices { end, negative, .. } in reads {
                    found = Some(match found {
                        Some(ids) => {
                            Self { end: ids.end.min(end), negative: ids.negative && negative }
                        }
                        None => Self { end, negative },
                    });
                }
                let moves = matches!(node.op, Op::Reshape(_) | Op::Slice(_) | Op::Permute(_));
                if moves && same.contains(&node.inputs[0]) {
                    same.extend(&node.outputs);
                }
            }
        }
        found
    }

    /// Holds that `ids`, of which each sample has `each`, are such.
    ///
    /// # Errors
    /// What was expected of the input `name` and what was given, with its place.
    pub(crate) fn check(
        self,
        name: &str,
        ids: &[i32],
        each: usize,
    ) -> std::result::Result<(), [String; 2]> {
        let Self { end, negative } = self;
        let wrong = |&id: &i32| i64::from(id) >= end as i64 || id < 0 && !negative;
        let Some(at) = ids.iter().position(wrong) else { return Ok(()) };
        let (sample, place) = (at / each.max(1), at % each.max(1));
        let place = if each > 1 { format!(" at position {place}") } else { String::new() };
        let sign = if negative { "" } else { " and not negative" };
        let expected = format!("ids below {end}{sign} for `{name}`");
        Err([expected, format!("{} in sample {sample}{place}", ids[at])])
    }
}

/// The setting that an input without elements is named after.
fn name_of(input: &str) -> &'static str {
    if input == TOKENS { TOKENS } else { "model" }
}

/// Numbers of one input.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Values<'a> {
    /// Of an F32 input.
    F32(&'a [f32]),
    /// Of an I32 input.
    I32(&'a [i32]),
}

impl<'a> Values<'a> {
    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            Self::F32(values) => values.len(),
            Self::I32(values) => values.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Their dtype.
    pub fn dtype(&self) -> DType {
        match self {
            Self::F32(_) => DType::F32,
            Self::I32(_) => DType::I32,
        }
    }

    /// Their bytes, as devices hold them.
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        match self {
            Self::F32(values) => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
            Self::I32(values) => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
        }
    }

    /// Those within `range`, which is one of theirs.
    pub(crate) fn part(self, range: Range<usize>) -> Self {
        match self {
            Self::F32(values) => Self::F32(&values[range]),
            Self::I32(values) => Self::I32(&values[range]),
        }
    }
}

/// Numbers of one input in an order of their own.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Ordered {
    F32(Vec<f32>),
    I32(Vec<i32>),
}

impl Ordered {
    /// These ranges of numbers, one after the other.
    pub(crate) fn new(values: Values<'_>, ranges: impl Iterator<Item = Range<usize>>) -> Self {
        match values {
            Values::F32(values) => {
                Self::F32(ranges.flat_map(|range| values[range].iter().copied()).collect())
            }
            Values::I32(values) => {
                Self::I32(ranges.flat_map(|range| values[range].iter().copied()).collect())
            }
        }
    }

    pub(crate) fn values(&self) -> Values<'_> {
        match self {
            Self::F32(values) => Values::F32(values),
            Self::I32(values) => Values::I32(values),
        }
    }
}

impl<'a> From<&'a [f32]> for Values<'a> {
    fn from(values: &'a [f32]) -> Self {
        Self::F32(values)
    }
}

impl<'a> From<&'a [i32]> for Values<'a> {
    fn from(values: &'a [i32]) -> Self {
        Self::I32(values)
    }
}

impl<'a> From<&'a Vec<f32>> for Values<'a> {
    fn from(values: &'a Vec<f32>) -> Self {
        Self::F32(values)
    }
}

impl<'a> From<&'a Vec<i32>> for Values<'a> {
    fn from(values: &'a Vec<i32>) -> Self {
        Self::I32(values)
    }
}

/// The numbers of a batch of samples, by the names of the inputs that they're for. Samples follow each other in each.
///
/// ```
/// use tightrope_nn::Batch;
///
/// let (images, labels) = (vec![0.5; 2 * 64], vec![3, 7]);
/// let batch = Batch::new().with("images", &images).with("labels", &labels);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Batch<'a> {
    values: Vec<(&'a str, Values<'a>)>,
    padding: Option<&'a [bool]>,
}

impl<'a> Batch<'a> {
    /// A batch that gives no input.
    pub fn new() -> Self {
        Self::default()
    }

    /// With the numbers of the input `name`.
    pub fn with(mut self, name: &'a str, values: impl Into<Values<'a>>) -> Self {
        self.values.push((name, values.into()));
        self
    }

    /// With the positions of its sequences that are padding, one sequence after the other. None is without this.
    pub fn with_padding(self, padding: &'a [bool]) -> Self {
        Self { padding: Some(padding), ..self }
    }

    /// The positions of its sequences that are padding, if it says which.
    pub(crate) fn padding(&self) -> Option<&'a [bool]> {
        self.padding
    }

    /// The batch of a language model: token ids and the ids to predict, as many; negative ones of these don't count.
    pub fn text(tokens: &'a [i32], targets: &'a [i32]) -> Self {
        Self::new().with(TOKENS, tokens).with(TARGETS, targets)
    }

    /// The numbers of each of these inputs that batches give, where there are `samples` of them.
    ///
    /// # Errors
    /// What was expected and what was given, where they differ.
    pub(crate) fn checked<'b>(
        &self,
        inputs: impl Iterator<Item = &'b Input> + Clone,
        samples: usize,
    ) -> std::result::Result<Vec<(usize, Values<'a>)>, [String; 2]> {
        let given = || inputs.clone().enumerate().filter(|(_, input)| input.range.is_none());
        if let Some((unknown, _)) =
            self.values.iter().find(|(name, _)| given().all(|(_, input)| input.name != *name))
        {
            let names: Vec<String> =
                given().map(|(_, input)| format!("`{}`", input.name)).collect();
            return Err([names.join(", "), format!("`{unknown}`")]);
        }
        given()
            .map(|(index, input)| {
                let Input { name, dtype, .. } = input;
                let elements = input.ty(samples).elements();
                let expected = || format!("{elements} numbers of {dtype} for `{name}`");
                let mut found = self.values.iter().filter(|(other, _)| other == name);
                match (found.next(), found.next()) {
                    (None, _) => Err([expected(), "none".to_owned()]),
                    (Some(_), Some(_)) => Err([expected(), "them twice".to_owned()]),
                    (Some((_, values)), None) => {
                        if values.len() != elements || values.dtype() != *dtype {
                            let got = format!("{} of {}", values.len(), values.dtype());
                            return Err([expected(), got]);
                        }
                        Ok((index, *values))
                    }
                }
            })
            .collect()
    }
}
