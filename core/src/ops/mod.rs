//! `Op`: one family of work. Every facet of a family is in its one file; the only list is here.

use std::cell::Cell;

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::launch::{Launched, Limits};
use crate::tensor::Tensor;
use crate::types::{DType, Type};

mod accumulate;
mod attention;
mod collective;
mod cross_entropy;
mod distillation;
mod gather;
mod layout;
mod loss;
mod map;
mod matmul;
mod node;
mod norm;
mod quant;
mod reduce;
mod rope;
mod rows;
mod softmax;
mod transfer;
mod unfold;
mod windows;

pub use crate::cost::{Cost, Work};
pub use accumulate::Accumulate;
pub use attention::{Attention, AttentionGrad, CachedAttention, Dropout, Mask};
pub use collective::{Collective, Part};
pub use cross_entropy::{CrossEntropy, CrossEntropyGrad, CrossEntropyRows};
pub use distillation::{LinearDistillation, LinearDistillationGrad};
pub use gather::{Embedding, EmbeddingGrad};
pub use layout::{Concat, Expand, Permute, Reshape, Slice, SliceGrad};
pub use loss::{LOSS_ROWS, LinearCrossEntropy, LinearCrossEntropyGrad, LinearCrossEntropyRows};
pub use map::Map;
pub(crate) use map::convert;
pub use matmul::{Epilogue, FusedMatMul, Gemm, MatMul, Matrices, Stored};
pub use node::{Node, Tape};
pub use norm::{LayerNorm, LayerNormGrad, RmsNorm, RmsNormGrad};
pub use quant::{
    Codebook, DECADES, Dequantize, DequantizeNf4, LEVELS, NF4_BLOCK, NF4_SCALES, Nf4, Nf4Scales,
    Quantize, nf4_bytes,
};
pub use reduce::{Axes, Reduce, SquareSum};
pub use rope::{Kept, Rope, Stretch};
pub use softmax::{Softmax, SoftmaxGrad};
pub use transfer::{Direction, Transfer};
pub use unfold::{Channels, Extents as UnfoldExtents, Unfold, UnfoldGrad};

pub use crate::random::{KEY_WORDS, RandomKey, SHARD_KEY_WORDS, fill_uniform, uniform};

/// Output types, or a sentence on what doesn't fit; the graph adds the op, the name and all types.
pub type Inferred = std::result::Result<Vec<Type>, String>;

/// Every facet of one family of work.
pub trait Rule {
    /// Name of the family, unique in the list.
    fn name(&self) -> &'static str;

    /// Types of the outputs for inputs of these types.
    ///
    /// # Errors
    /// Where the op doesn't take them.
    fn infer(&self, inputs: &[&Type]) -> Inferred;

    /// Outputs that are written over an input's storage, as (output, input).
    fn overwrites(&self) -> Vec<(usize, usize)> {
        vec![]
    }

    /// Whether a backward pass runs the op again for an output that it reads, so that none is held for it from the
    /// forward pass on: for ops on persistent tensors that cost next to nothing.
    fn made_again(&self) -> bool {
        false
    }

    /// Outputs that may take over an input's storage where that input dies here, as (output, input):
    /// each element is read before it's written, and nowhere else.
    fn may_overwrite(&self) -> Vec<(usize, usize)> {
        vec![]
    }

    /// Inputs that hold indices. They come from outside the graph, so a backend checks them before they become addresses.
    fn indices(&self, inputs: &[&Type]) -> Vec<Indices> {
        let _ = inputs;
        vec![]
    }

    /// How many of the outputs, from the first on, carry a gradient. The others are statistics for the backward pass or for a
    /// reader.
    fn differentiable(&self) -> usize {
        usize::MAX
    }

    /// Replaces every dtype in the op's attributes by `with(dtype)`.
    fn retype(&mut self, with: &dyn Fn(DType) -> DType) {
        let _ = with;
    }

    /// Appends the ops that turn the gradients of the outputs into those of the inputs. `None` stands
    /// for a gradient of zero, in `outputs` and in the result. `wanted` says which inputs' gradients
    /// are used.
    ///
    /// # Errors
    /// From pushing ops, and [`crate::Error::NoGradient`] where the family has none.
    fn grad(
        &self,
        graph: &mut dyn Tape,
        node: &Node,
        outputs: &[Option<Tensor>],
        wanted: &[bool],
    ) -> Result<Vec<Option<Tensor>>> {
        let _ = outputs;
        match wanted.iter().position(|&wanted| wanted) {
            None => Ok(vec![None; node.inputs.len()]),
            Some(input) => Err(crate::Error::NoGradient {
                op: self.name(),
                name: graph.info(node.outputs[0]).name.clone(),
                input,
            }),
        }
    }

    /// Arithmetic and traffic of one run.
    fn cost(&self, inputs: &[&Type], outputs: &[&Type]) -> Cost {
        Cost { flops: 0, bytes: traffic(inputs, outputs) }
    }

    /// Rows and elements of one run: those of the outputs, unless the op computes others.
    fn work(&self, inputs: &[&Type], outputs: &[&Type]) -> Work {
        let _ = inputs;
        Work::on(outputs)
    }

    /// What a device with these limits runs for it.
    ///
    /// # Errors
    /// In words, where there's no kernel for these types.
    fn launch(&self, limits: &Limits, inputs: &[&Type], outputs: &[&Type]) -> Launched {
        let _ = (limits, inputs, outputs);
        Err(format!("{} has no kernel", self.name()))
    }

    /// What the op means: plain loops in f64, rounded once where an output is stored.
    fn reference(&self, inputs: &[Array<'_>], outputs: &[Array<'_>]);
}

/// An input that holds indices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Indices {
    /// Position of the input.
    pub input: usize,
    /// Every index is below this.
    pub end: usize,
    /// Whether there may be negative ones, which stand for none.
    pub negative: bool,
}

/// Bytes of all inputs and outputs.
pub fn traffic(inputs: &[&Type], outputs: &[&Type]) -> u64 {
    inputs.iter().chain(outputs).map(|ty| ty.bytes() as u64).sum()
}

/// A tensor's bytes as a reference sees them. Cells, because an op in place reads and writes one range.
#[derive(Clone, Copy, Debug)]
pub struct Array<'a> {
    ty: &'a Type,
    bytes: &'a [Cell<u8>],
}

impl<'a> Array<'a> {
    /// A view of `bytes` as `ty`.
    ///
    /// # Panics
    /// Where the length isn't that of the type.
    pub fn new(ty: &'a Type, bytes: &'a [Cell<u8>]) -> Self {
        assert_eq!(ty.bytes(), bytes.len(), "{ty} has another size");
        Self { ty, bytes }
    }

    /// Dtype and shape.
    pub fn ty(&self) -> &'a Type {
        self.ty
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.ty.elements()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Element `index` in row-major order.
    #[inline]
    pub fn get(&self, index: usize) -> f64 {
        // Of a known size, so that each is one load.
        fn element<const N: usize>(bytes: &[Cell<u8>], index: usize) -> [u8; N] {
            let cells = bytes[index * N..].first_chunk::<N>().expect("an element's bytes");
            std::array::from_fn(|byte| cells[byte].get())
        }
        let dtype = self.ty.dtype;
        match dtype.size() {
            8 => dtype.read(&element::<8>(self.bytes, index)),
            4 => dtype.read(&element::<4>(self.bytes, index)),
            2 => dtype.read(&element::<2>(self.bytes, index)),
            _ => dtype.read(&element::<1>(self.bytes, index)),
        }
    }

    /// All elements in row-major order.
    pub fn values(&self) -> Vec<f64> {
        (0..self.len()).map(|index| self.get(index)).collect()
    }

    /// Element `index` as an index; negative where it marks "none".
    pub fn index(&self, index: usize) -> i64 {
        self.get(index) as i64
    }

    /// Stores `value` at `index`, rounded to the dtype.
    pub fn set(&self, index: usize, value: f64) {
        let size = self.ty.dtype.size();
        let mut element = [0; 8];
        self.ty.dtype.write(&mut element, value);
        for (byte, cell) in element.iter().zip(&self.bytes[index * size..][..size]) {
            cell.set(*byte);
        }
    }

    /// Adds `value` to element `index`.
    pub fn add(&self, index: usize, value: f64) {
        self.set(index, self.get(index) + value);
    }

    /// Sets every element to `value`.
    pub fn fill(&self, value: f64) {
        (0..self.len()).for_each(|index| self.set(index, value));
    }
}

/// Defines [`Op`] and everything that goes over all families.
macro_rules! ops {
    ($($family:ident),+ $(,)?) => {
        /// An op with its attributes.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        pub enum Op {
            $(#[doc = concat!("See [`", stringify!($family), "`].")] $family($family),)+
            /// See [`Transfer`]: what the session does itself, and no device has a kernel for.
            Transfer(Transfer),
            /// See [`Collective`]: as above.
            Collective(Collective),
        }

        impl Op {
            fn rule(&self) -> &dyn Rule {
                match self { $(Self::$family(op) => op,)+ Self::Transfer(op) => op, Self::Collective(op) => op }
            }

            fn rule_mut(&mut self) -> &mut dyn Rule {
                match self { $(Self::$family(op) => op,)+ Self::Transfer(op) => op, Self::Collective(op) => op }
            }

            /// Bytes of scratch that the op's launches share, and how many launches there are once the long ones are
            /// cut, without making them: on a slow device a large op is thousands. 0 of both where it has no kernel.
            pub fn launch_needs(
                &self,
                limits: &Limits,
                inputs: &[&Type],
                outputs: &[&Type],
            ) -> (u64, usize) {
                let whole = self.rule().launch(limits, inputs, outputs).unwrap_or_default();
                (whole.scratch_bytes, whole.count(limits))
            }

            /// One set of test cases of every family, in the order of the list.
            pub fn all_cases() -> Vec<Case> {
                let mut cases = vec![];
                $(cases.extend($family::cases());)+
                cases
            }

            /// Families with kernels, to hold that each has cases.
            pub const FAMILIES: &'static [&'static str] = &[$(stringify!($family)),+];

            /// This op's variant in [`Op::FAMILIES`].
            pub fn family(&self) -> &'static str {
                match self {
                    $(Self::$family(_) => stringify!($family),)+
                    Self::Transfer(_) => "Transfer",
                    Self::Collective(_) => "Collective",
                }
            }
        }

        $(impl From<$family> for Op {
            fn from(op: $family) -> Self { Self::$family(op) }
        })+

        impl From<Transfer> for Op {
            fn from(op: Transfer) -> Self { Self::Transfer(op) }
        }

        impl From<Collective> for Op {
            fn from(op: Collective) -> Self { Self::Collective(op) }
        }
    };
}

ops![
    Map,
    MatMul,
    FusedMatMul,
    Attention,
    AttentionGrad,
    CachedAttention,
    LayerNorm,
    LayerNormGrad,
    RmsNorm,
    RmsNormGrad,
    LinearCrossEntropy,
    LinearCrossEntropyGrad,
    LinearCrossEntropyRows,
    LinearDistillation,
    LinearDistillationGrad,
    CrossEntropy,
    CrossEntropyGrad,
    CrossEntropyRows,
    Embedding,
    EmbeddingGrad,
    Rope,
    Softmax,
    SoftmaxGrad,
    Reduce,
    SquareSum,
    Accumulate,
    Permute,
    Reshape,
    Expand,
    Slice,
    SliceGrad,
    Concat,
    Unfold,
    UnfoldGrad,
    Quantize,
    Dequantize,
    DequantizeNf4,
];

impl Rule for Op {
    fn name(&self) -> &'static str {
        self.rule().name()
    }
    fn infer(&self, inputs: &[&Type]) -> Inferred {
        self.rule().infer(inputs)
    }
    fn overwrites(&self) -> Vec<(usize, usize)> {
        self.rule().overwrites()
    }
    fn made_again(&self) -> bool {
        self.rule().made_again()
    }
    fn may_overwrite(&self) -> Vec<(usize, usize)> {
        self.rule().may_overwrite()
    }
    fn indices(&self, inputs: &[&Type]) -> Vec<Indices> {
        self.rule().indices(inputs)
    }
    fn differentiable(&self) -> usize {
        self.rule().differentiable()
    }
    fn retype(&mut self, with: &dyn Fn(DType) -> DType) {
        self.rule_mut().retype(with);
    }
    fn grad(
        &self,
        graph: &mut dyn Tape,
        node: &Node,
        outputs: &[Option<Tensor>],
        wanted: &[bool],
    ) -> Result<Vec<Option<Tensor>>> {
        self.rule().grad(graph, node, outputs, wanted)
    }
    fn cost(&self, inputs: &[&Type], outputs: &[&Type]) -> Cost {
        self.rule().cost(inputs, outputs)
    }
    fn work(&self, inputs: &[&Type], outputs: &[&Type]) -> Work {
        self.rule().work(inputs, outputs)
    }
    fn launch(&self, limits: &Limits, inputs: &[&Type], outputs: &[&Type]) -> Launched {
        self.rule().launch(limits, inputs, outputs)?.fit(limits)
    }
    fn reference(&self, inputs: &[Array<'_>], outputs: &[Array<'_>]) {
        self.rule().reference(inputs, outputs);
    }
}

/// An op with the inputs to try it on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Case {
    /// The op with its attributes.
    pub op: Op,
    /// One entry an input.
    pub inputs: Vec<Sample>,
}

/// How a case's input is filled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Dtype and shape.
    pub ty: Type,
    /// Values.
    pub fill: Fill,
}

/// Values of a case's input, from a counter-based generator.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Fill {
    /// Uniform in [low, high).
    Uniform(f64, f64),
    /// Whole numbers in [low, high).
    Whole(i64, i64),
}

impl Case {
    /// A case with float inputs uniform in [−1, 1); replace what needs other values.
    pub fn new(op: impl Into<Op>, inputs: Vec<Sample>) -> Self {
        Self { op: op.into(), inputs }
    }
}

/// A float input uniform in [−1, 1).
pub(crate) fn unit(dtype: DType, shape: &[usize]) -> Sample {
    range(dtype, shape, -1.0, 1.0)
}

/// A float input uniform in [low, high).
pub(crate) fn range(dtype: DType, shape: &[usize], low: f64, high: f64) -> Sample {
    Sample { ty: Type::new(dtype, shape), fill: Fill::Uniform(low, high) }
}

/// An integer input, whole numbers in [low, high).
pub(crate) fn whole(dtype: DType, shape: &[usize], low: i64, high: i64) -> Sample {
    Sample { ty: Type::new(dtype, shape), fill: Fill::Whole(low, high) }
}

/// `Err(message)` unless `condition`; shortens type rules.
pub(crate) fn ensure(
    condition: bool,
    message: impl FnOnce() -> String,
) -> std::result::Result<(), String> {
    if condition { Ok(()) } else { Err(message()) }
}

/// The inputs, where there are exactly `N`.
pub(crate) fn arity<'a, const N: usize>(
    inputs: &[&'a Type],
) -> std::result::Result<[&'a Type; N], String> {
    inputs.try_into().map_err(|_| format!("takes {N} inputs, got {}", inputs.len()))
}

/// `Err` unless `ty` holds real numbers.
pub(crate) fn float(what: &str, ty: &Type) -> std::result::Result<(), String> {
    ensure(ty.dtype.is_float(), || format!("{what} must hold floats, is {ty}"))
}

/// `Err` unless `ty` is the expected type.
pub(crate) fn typed(what: &str, ty: &Type, expected: &Type) -> std::result::Result<(), String> {
    ensure(ty == expected, || format!("{what} must be {expected}, is {ty}"))
}

/// `Err` unless `ty` has the expected shape.
pub(crate) fn shaped(what: &str, ty: &Type, shape: &[usize]) -> std::result::Result<(), String> {
    ensure(ty.shape == shape, || format!("{what} must have shape {shape:?}, is {ty}"))
}
