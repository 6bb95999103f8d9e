//! Linear layer and cross-entropy in one op, so that full logits never exist.   R rows, C channels,
//! V columns of the head of which the first `vocab` are real
//!
//!   logits[r,v] = Σ_c x[r,c]·w[v,c],  v < vocab;  cap · tanh(that / cap) where logits are capped (Gemma Team 2024)
//!   loss        = mean over rows with target ≥ 0 of  log Σᵥ exp(logits[r,v]) − logits[r,target[r]]
//!
//! Rows with a negative target don't count. Backends hold `chunk` rows of logits at a time (Wijmans et al.
//! 2024 describe the saving). The loss is summed apart from the chunks, in the order of the rows.

mod gradient;
mod rows;

use std::iter;

pub use gradient::LinearCrossEntropyGrad;
pub(super) use gradient::{gradient_cases, gradient_types, set_gradients};
pub use rows::LinearCrossEntropyRows;

use serde::{Deserialize, Serialize};

use super::matmul::{Gemm, Stored};
use super::{
    Array, Case, Cost, Indices, Inferred, Matrices, Op, Rule, Sample, Work, arity, ensure, float,
    range, traffic, unit, whole,
};
use crate::dialect::Dialect;
use crate::error::Result;
use crate::launch::{Launch, Launched, Launches, Limits, Place};
use crate::ops::{Node, Tape};
use crate::tensor::Tensor;
use crate::types::{DType, Type};

/// Loss alone. Inputs: x (…, C), w (V, C), targets (I32, one a row). Output: loss (1).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinearCrossEntropy {
    /// Real columns of the head; the rest is padding with probability 0.
    pub vocab: usize,
    /// Rows of logits held at a time.
    pub chunk: usize,
    /// What logits stay below in size, where they are capped.
    pub cap: Option<f64>,
}

/// Multiples of so many rows at a time sum in the same order; with fewer, matmuls no longer fill a processor.
pub const LOSS_ROWS: usize = 256;
/// A planner makes no more chunks: each is a dozen launches, and longer sequences hold more bytes elsewhere than their logits.
const MOST_CHUNKS: usize = 512;

impl Op {
    /// The loss, of an op that computes one.
    pub fn loss(&self) -> Option<&LinearCrossEntropy> {
        match self {
            Self::LinearCrossEntropy(loss) => Some(loss),
            Self::LinearCrossEntropyRows(LinearCrossEntropyRows(loss)) => Some(loss),
            Self::LinearCrossEntropyGrad(op) => Some(&op.loss),
            Self::LinearDistillation(op) => Some(&op.student),
            Self::LinearDistillationGrad(op) => Some(&op.loss.student),
            _ => None,
        }
    }

    /// Bytes that chunks of logits after a step's first move once more, of a loss: the head for each matmul with it, and its
    /// gradient; and a teacher's head.
    pub fn again_bytes(&self, inputs: &[&Type], outputs: &[&Type]) -> u64 {
        let (Some(loss), [x, head, ..]) = (self.loss(), inputs) else { return 0 };
        let (adds, figures) = match self {
            Self::LinearCrossEntropyGrad(op) => (op.accumulate, 1),
            Self::LinearDistillationGrad(op) => (op.accumulate, 2),
            _ => (false, outputs.len()),
        };
        let teacher = match self {
            Self::LinearDistillation(_) | Self::LinearDistillationGrad(_) => inputs[4].bytes(),
            _ => 0,
        };
        let chunks = x.rows().div_ceil(loss.chunk).saturating_sub(usize::from(!adds));
        let matmuls = if outputs.len() > figures { 2 } else { 1 };
        let summed = outputs.get(figures + 1).map_or(0, |gradient| 2 * gradient.bytes());
        (chunks * (matmuls * head.bytes() + summed + teacher)) as u64
    }

    /// As [`Op::loss`], to be changed.
    pub fn loss_mut(&mut self) -> Option<&mut LinearCrossEntropy> {
        match self {
            Self::LinearCrossEntropy(loss) => Some(loss),
            Self::LinearCrossEntropyRows(LinearCrossEntropyRows(loss)) => Some(loss),
            Self::LinearCrossEntropyGrad(op) => Some(&mut op.loss),
            Self::LinearDistillation(op) => Some(&mut op.student),
            Self::LinearDistillationGrad(op) => Some(&mut op.loss.student),
            _ => None,
        }
    }
}

impl LinearCrossEntropy {
    /// Fewer rows of logits at a time than now, of `all` that there are, from the most to the fewest: each takes half of the
    /// scratch or less, and goes over the head more often.
    pub fn fewer_rows(&self, all: usize) -> Vec<usize> {
        let doubled = iter::successors(Some(LOSS_ROWS), |rows| rows.checked_mul(2));
        let few = doubled.skip_while(|rows| all.div_ceil(*rows) > MOST_CHUNKS);
        let mut fewer: Vec<usize> = few.take_while(|&rows| rows < self.chunk).collect();
        fewer.reverse();
        fewer
    }

    pub(super) fn check(
        &self,
        x: &Type,
        w: &Type,
        targets: &Type,
    ) -> std::result::Result<(), String> {
        float("x", x)?;
        float("the head", w)?;
        ensure(self.chunk > 0, || "a chunk needs at least one row".into())?;
        ensure(w.shape.len() == 2 && w.last() == x.last(), || {
            format!("the head must be (V, {}), is {w}", x.last())
        })?;
        ensure(self.cap.is_none_or(|cap| cap.is_finite() && cap > 0.0), || {
            format!("logits are capped above 0, not at {}", self.cap.unwrap_or_default())
        })?;
        ensure(0 < self.vocab && self.vocab <= w.shape[0], || {
            format!("vocabulary {} doesn't fit the head's {} rows", self.vocab, w.shape[0])
        })?;
        ensure(targets.dtype == DType::I32 && targets.elements() == x.rows(), || {
            format!("targets must be i32, one for each of {} rows, are {targets}", x.rows())
        })
    }

    fn samples(dtype: DType) -> Vec<(Self, Vec<Sample>)> {
        let sizes =
            [(1, 1, 1, 1, 1), (6, 5, 11, 16, 4), (33, 17, 101, 128, 16), (20, 8, 64, 64, 256)];
        let plain = sizes.into_iter().map(|size| (size, None));
        let capped = [sizes[1], sizes[2]].map(|size| (size, Some(0.8)));
        plain
            .chain(capped)
            .map(|((rows, columns, vocab, padded, chunk), cap)| {
                let targets =
                    whole(DType::I32, &[rows], if rows > 4 { -1 } else { 0 }, vocab as i64);
                let inputs =
                    vec![unit(dtype, &[rows, columns]), unit(dtype, &[padded, columns]), targets];
                (Self { vocab, chunk, cap }, inputs)
            })
            .collect()
    }

    /// Cases of this family.
    pub fn cases() -> Vec<Case> {
        let mut cases: Vec<Case> = [DType::F32, DType::BF16]
            .into_iter()
            .flat_map(Self::samples)
            .map(|(op, inputs)| Case::new(op, inputs))
            .collect();
        // Logits in the hundreds: a softmax without the maximum taken out would overflow.
        let targets = whole(DType::I32, &[5], 0, 7);
        let large = vec![
            range(DType::F32, &[5, 4], -20.0, 20.0),
            range(DType::F32, &[8, 4], -20.0, 20.0),
            targets,
        ];
        cases.push(Case::new(Self { vocab: 7, chunk: 2, cap: None }, large));
        cases
    }

    /// Logits of one row, its normaliser, and its target.
    pub(super) fn row(&self, inputs: &[Array<'_>], r: usize) -> (Vec<f64>, f64, i64) {
        let (x, w) = (inputs[0], inputs[1]);
        let columns = x.ty().last();
        let row: Vec<f64> = (0..columns).map(|c| x.get(r * columns + c)).collect();
        let logits: Vec<f64> = (0..self.vocab)
            .map(|v| row.iter().zip(v * columns..).map(|(x, at)| x * w.get(at)).sum())
            .map(|logit: f64| self.cap.map_or(logit, |cap| cap * (logit / cap).tanh()))
            .collect();
        let max = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let normaliser = max + logits.iter().map(|l| (l - max).exp()).sum::<f64>().ln();
        (logits, normaliser, inputs[2].index(r))
    }
}

/// Threads of a workgroup that goes over a row of logits, by the row's length, and of the one that counts and sums.
const SHORT_ROW: u64 = 4096;
const SHORT_ROW_THREADS: u32 = 64;
pub(super) const THREADS: u32 = 256;

/// Fours of a row that a thread's registers hold where it is read once, of as many threads as a multiprocessor has registers for, and
/// of whom that is asked of rows that are longer than the usual number of them holds.
const MOST_HELD: u64 = 26;
const HOLDING_THREADS: u32 = 512;

/// Rows of a chunk are a multiple of this, so that sums over rows group them in the same way whatever the chunk; and
/// where tensor cores sum, which take as many at once.
const CHUNK_GRANULE: u64 = 4;
const TENSOR_GRANULE: u64 = 16;

/// What launches of a loss share.
pub(super) struct Scratch {
    /// The number of rows that count, and the gradient of each one's loss.
    pub scale: Place,
    /// Each row's.
    pub losses: Place,
    /// A chunk of logits.
    pub logits: Place,
    /// The gradient of these.
    pub gradient: Place,
}

/// Launches of a loss, with or without gradients.
pub(super) struct Chunks<'a> {
    pub(super) limits: &'a Limits,
    vocab: u64,
    pub(super) cap: Option<f64>,
    x: Place,
    w: Place,
    pub(super) targets: Place,
    pub(super) loss: Place,
    /// Gradient of the loss, dx, dw where it's made, and whether dw is added to.
    pub(super) grad: Option<(Place, Place, Option<Place>, bool)>,
    pub(super) rows: u64,
    columns: u64,
    pub(super) padded: u64,
    pub(super) chunk: u64,
}

impl<'a> Chunks<'a> {
    pub(super) fn new(
        loss: &LinearCrossEntropy,
        limits: &'a Limits,
        inputs: &[&Type],
        outputs: &[&Type],
    ) -> Self {
        let (x, w) = (inputs[0], inputs[1]);
        let padded = w.shape[0] as u64;
        Self {
            limits,
            vocab: loss.vocab as u64,
            cap: loss.cap,
            x: Place::input(0, x),
            w: Place::input(1, w),
            targets: Place::input(2, inputs[2]),
            loss: Place::output(0, outputs[0]),
            grad: None,
            rows: x.rows() as u64,
            columns: x.last() as u64,
            padded,
            chunk: 0,
        }
        .of_rows(loss.chunk as u64, padded)
    }

    /// With this many rows of logits at a time, or fewer, so that a binding holds those of `columns` columns.
    pub(super) fn of_rows(self, rows: u64, columns: u64) -> Self {
        // In f32, and as their gradient, which may take their place in the operands' dtype.
        let bytes = |dtype: DType| self.limits.binding_elements(dtype) * dtype.size() as u64;
        let held =
            bytes(DType::F32).min(bytes(self.x.dtype)) / (columns * DType::F32.size() as u64);
        let cuda = self.limits.dialect() == Dialect::Cuda;
        let granule = if cuda { TENSOR_GRANULE } else { CHUNK_GRANULE };
        let whole = held / granule * granule;
        let most = if whole > 0 { whole } else { held.max(1) };
        Self { chunk: rows.next_multiple_of(granule).min(most), ..self }
    }

    pub(super) fn threads(&self) -> u32 {
        let threads = if self.padded <= SHORT_ROW { SHORT_ROW_THREADS } else { THREADS };
        threads.min(self.limits.workgroup)
    }

    /// Fours of a row of logits that each of so many threads holds, or 0 where they read it twice.
    fn held(&self, threads: u32) -> u64 {
        let fours = self.padded.div_ceil(4 * u64::from(threads));
        let pays = self.grad.is_some() && self.cap.is_none();
        if pays && fours <= MOST_HELD { fours } else { 0 }
    }

    /// Threads that make the gradient of a row of logits.
    fn normalising_threads(&self) -> u32 {
        let usual = self.threads();
        let more =
            self.limits.dialect() == Dialect::Cuda && HOLDING_THREADS <= self.limits.workgroup;
        if more && self.held(usual) == 0 && self.held(HOLDING_THREADS) > 0 {
            HOLDING_THREADS
        } else {
            usual
        }
    }

    fn append(&self, launches: &mut Launches) {
        let threads = THREADS.min(self.limits.workgroup);
        let losses = launches.scratch(DType::F32, self.rows);
        let scratch = self.scratch(launches, losses);
        let count = self.bound(&scratch, "count", threads, 1, self.rows);
        launches.push(count.param("first", 0u32).param("rows", self.rows));
        self.append_rows(&scratch, launches);
        let total = self.bound(&scratch, "total", threads, 1, self.rows);
        launches.push(total.param("first", 0u32).param("rows", self.rows));
    }

    /// Launches that leave the loss of each row, chunk by chunk, and add its part of the gradients.
    fn append_rows(&self, scratch: &Scratch, launches: &mut Launches) {
        let mut start = 0;
        while start < self.rows {
            let rows = self.chunk.min(self.rows - start);
            self.logits(start, rows, scratch.logits, launches);
            let flops = 10 * rows * self.padded;
            let normalise =
                self.bound(scratch, "normalise", self.normalising_threads(), rows, flops);
            launches.push(normalise.param("first", start).param("rows", rows));
            self.gradients(start, rows, scratch.gradient, launches);
            start += rows;
        }
    }

    /// Scratch for a chunk of logits. `losses` holds the loss of each row.
    pub(super) fn scratch(&self, launches: &mut Launches, losses: Place) -> Scratch {
        let scale = launches.scratch(DType::F32, 2);
        let logits = launches.scratch(DType::F32, self.chunk.min(self.rows) * self.padded);
        Scratch { scale, losses, logits, gradient: self.gradient(logits) }
    }

    /// A launch of `entry`, but for which rows it's for.
    pub(super) fn bound(
        &self,
        scratch: &Scratch,
        entry: &'static str,
        threads: u32,
        groups: u64,
        flops: u64,
    ) -> Launch {
        let &Scratch { scale, losses, logits, gradient } = scratch;
        let aligned = self.padded.is_multiple_of(4);
        // What an entry doesn't read is bound as something it does, which takes no further binding.
        let dloss = self.grad.map_or(scale, |(dloss, ..)| dloss);
        let launch = Launch::new("cross_entropy", entry, threads, groups)
            .constant("GRADIENT", self.grad.is_some())
            .constant("CAPPED", self.cap.is_some())
            .constant("LANES", threads)
            .constant("SUBGROUP", self.limits.webgpu().subgroup_threads())
            .param("vocab", self.vocab)
            .param("padded", self.padded)
            .real("cap", self.cap.unwrap_or_default())
            .bind("targets", self.targets)
            .bind("scale", scale)
            .bind("losses", losses)
            .bind_four("logits", logits, aligned)
            .bind("dloss", dloss)
            .bind("loss", self.loss)
            .costing(flops);
        match self.limits.dialect() {
            Dialect::Cuda => {
                launch.constant("HELD", self.held(threads)).bind_four("gradient", gradient, aligned)
            }
            Dialect::Wgsl => launch,
        }
    }

    /// Where the gradient of logits takes their place. That of operands that tensor cores multiply is stored as they are,
    /// each row where the row of logits begins.
    fn gradient(&self, logits: Place) -> Place {
        let dtype = self.x.dtype;
        let narrow = self.limits.cuda().tensor_cores.contains(&dtype) && self.w.dtype == dtype;
        if !narrow {
            return logits;
        }
        let times = (logits.dtype.size() / dtype.size()) as u64;
        let (first, elements) = (times * logits.first, times * logits.elements);
        Place { dtype, first, elements, ..logits }
    }

    /// The gradient of a chunk of logits as a matrix.
    fn rows_of(&self, gradient: Place) -> Stored {
        let row = self.padded * (DType::F32.size() / gradient.dtype.size()) as u64;
        Self::stored(gradient, row, 0)
    }

    /// Matrices with rows of `columns` elements, from row `start` on.
    fn stored(place: Place, columns: u64, start: u64) -> Stored {
        Stored::stack(place, 1, columns as usize).from(start * columns)
    }

    fn extents(m: u64, n: u64, k: u64) -> Matrices {
        Matrices { batch: 1, m: m as usize, n: n as usize, k: k as usize }
    }

    /// The logits of some rows.
    pub(super) fn logits(&self, start: u64, rows: u64, logits: Place, launches: &mut Launches) {
        let head = Head { x: self.x, w: self.w, columns: self.columns, padded: self.padded };
        head.logits(self.limits, start, rows, logits, launches);
    }

    /// dx = dlogits · w, where dx holds all rows.
    fn dx(&self, dx: Place, start: u64, rows: u64, gradient: Place) -> Gemm {
        let matmul = Gemm::new(
            self.rows_of(gradient),
            Self::stored(self.w, self.columns, 0),
            Self::stored(dx, self.columns, start),
            Self::extents(rows, self.columns, self.padded),
        );
        Gemm { in_order: true, ..matmul }
    }

    /// Elements of a row of `dx` that are stored together; `None` where several launches add to them.
    pub(super) fn columns_of(&self, dx: Place) -> Option<u64> {
        let cut =
            dx.dtype != DType::F32 && self.w.elements > self.limits.binding_elements(self.w.dtype);
        (!cut).then_some(self.columns)
    }

    /// dw += dlogitsᵀ · x, which begins with the first rows where it isn't added to.
    pub(super) fn gradients(
        &self,
        start: u64,
        rows: u64,
        gradient: Place,
        launches: &mut Launches,
    ) {
        let Some((_, dx, dw, accumulate)) = self.grad else { return };
        self.dx(dx, start, rows, gradient).push(self.limits, launches);
        let Some(dw) = dw else { return };
        let matmul = Gemm::new(
            self.rows_of(gradient).transposed(true),
            Self::stored(self.x, self.columns, start),
            Self::stored(dw, self.columns, 0),
            Self::extents(self.padded, self.columns, rows),
        );
        Gemm { accumulate: accumulate || start > 0, in_order: true, ..matmul }
            .push(self.limits, launches);
    }
}

/// A model's head, and what it reads.
pub(super) struct Head {
    pub x: Place,
    pub w: Place,
    pub columns: u64,
    pub padded: u64,
}

impl Head {
    /// logits = x · wᵀ for some rows.
    pub(super) fn logits(
        &self,
        limits: &Limits,
        start: u64,
        rows: u64,
        logits: Place,
        launches: &mut Launches,
    ) {
        let matmul = Gemm::new(
            Chunks::stored(self.x, self.columns, start),
            Chunks::stored(self.w, self.columns, 0).transposed(true),
            Chunks::stored(logits, self.padded, 0),
            Chunks::extents(rows, self.padded, self.columns),
        );
        Gemm { in_order: true, ..matmul }.push(limits, launches);
    }
}

/// Logits of the rows of `x`, (…, C), by the weight `w`, (V, C).
pub(super) fn logits(x: &Type, w: &Type) -> Work {
    Work { rows: x.rows() as u64, elements: (x.rows() * w.shape[0]) as u64 }
}

/// Rows that count.
pub(super) fn counted(targets: &Array<'_>) -> f64 {
    (0..targets.len()).filter(|&r| targets.index(r) >= 0).count().max(1) as f64
}

impl Rule for LinearCrossEntropy {
    fn name(&self) -> &'static str {
        "linear_cross_entropy"
    }

    fn infer(&self, inputs: &[&Type]) -> Inferred {
        let [x, w, targets] = arity(inputs)?;
        self.check(x, w, targets)?;
        Ok(vec![Type::new(x.dtype.statistics(), [1])])
    }

    fn indices(&self, _inputs: &[&Type]) -> Vec<Indices> {
        vec![Indices { input: 2, end: self.vocab, negative: true }]
    }

    fn grad(
        &self,
        graph: &mut dyn Tape,
        node: &Node,
        outputs: &[Option<Tensor>],
        wanted: &[bool],
    ) -> Result<Vec<Option<Tensor>>> {
        let Some(dloss) = outputs[0] else { return Ok(vec![None; 3]) };
        let inputs = [node.inputs[0], node.inputs[1], node.inputs[2], dloss];
        let op =
            LinearCrossEntropyGrad { loss: self.clone(), weight: wanted[1], accumulate: false };
        let name = format!("grad.{}", graph.info(node.outputs[0]).name);
        let pushed = graph.push(op, &inputs, &name)?;
        Ok(vec![Some(pushed[1]), pushed.get(2).copied(), None])
    }

    fn cost(&self, inputs: &[&Type], outputs: &[&Type]) -> Cost {
        let flops = 2 * (inputs[0].elements() * inputs[1].shape[0]) as u64;
        Cost { flops, bytes: traffic(inputs, outputs) }
    }

    fn work(&self, inputs: &[&Type], _outputs: &[&Type]) -> Work {
        logits(inputs[0], inputs[1])
    }

    fn launch(&self, limits: &Limits, inputs: &[&Type], outputs: &[&Type]) -> Launched {
        let mut launches = Launches::new();
        Chunks::new(self, limits, inputs, outputs).append(&mut launches);
        Ok(launches)
    }

    fn reference(&self, inputs: &[Array<'_>], outputs: &[Array<'_>]) {
        let targets = inputs[2];
        let total: f64 = (0..targets.len())
            .map(|r| self.row(inputs, r))
            .filter(|&(.., target)| target >= 0)
            .map(|(logits, normaliser, target)| normaliser - logits[target as usize])
            .sum();
        outputs[0].set(0, total / counted(&targets));
    }
}
