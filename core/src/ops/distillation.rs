//! Linear layer and distillation's loss in one op (Hinton et al. 2015, "Distilling the Knowledge in a Neural Network"), so that
//! full logits of neither model exist.   R rows; C channels and V columns of the student's head, C' and V' of the teacher's
//!
//!   s[r,v] = Σ_c x[r,c]·w[v,c],  t[r,v] = Σ_c teacher_x[r,c]·teacher_w[v,c],  each capped as its model caps logits
//!   p = softmax(s / T),  q = softmax(t / T),  over the first `taught` columns, which both have
//!   hard   = mean over rows with target ≥ 0 of  log Σᵥ exp(s[r,v]) − s[r,target[r]],  over all columns of the student
//!   soft   = mean over the same rows of  Σᵥ q[v]·log(q[v] / p[v])
//!   loss   = (1 − share)·hard + share·T²·soft
//!   dloss/ds[r,v] = ((1 − share)·(softmax(s)[v] − [v = target]) + share·T·(p[v] − q[v])) / rows that count
//!
//! T² keeps the soft loss's gradient of one size whatever T is. Backends hold chunks of logits, of as many rows of both models.

use serde::{Deserialize, Serialize};

use super::loss::{
    Chunks, Head, Scratch, THREADS, counted, gradient_cases, gradient_types, logits, set_gradients,
};
use super::{
    Array, Case, Cost, Indices, Inferred, LinearCrossEntropy, Rule, Sample, Work, arity, ensure,
    float, range, traffic, unit, whole,
};
use crate::dialect::Dialect;
use crate::error::Result;
use crate::launch::{Launch, Launched, Launches, Limits, Place};
use crate::ops::{Node, Tape};
use crate::tensor::Tensor;
use crate::types::{DType, Type};

/// Loss alone. Inputs: x (…, C), w (V, C), targets (I32, one a row), the teacher's x (…, C') and head (V', C'). Outputs: loss (1),
/// and its parts (2), hard and soft. The teacher's inputs have no gradient.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinearDistillation {
    /// The student's loss against targets.
    pub student: LinearCrossEntropy,
    /// Columns that both models have, from the first on.
    pub taught: usize,
    /// What the teacher's logits stay below in size, where they are capped.
    pub teacher_cap: Option<f64>,
    /// What logits are divided by, T.
    pub temperature: f64,
    /// Share of the soft loss, from 0 to 1.
    pub share: f64,
}

/// Loss and its gradients in one pass over the logits. Inputs: those of the loss, gradient of the loss (1), and where `accumulate`
/// the gradient of w to add to. Outputs: loss (1), its parts (2), dx, and where `weight` dw.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinearDistillationGrad {
    /// The loss.
    pub loss: LinearDistillation,
    /// Whether dw is made; that of a frozen head isn't.
    pub weight: bool,
    /// dw is added to the last input, in place.
    pub accumulate: bool,
}

/// Operations of a logit of either model, for the cost.
const FLOPS: u64 = 20;

impl LinearDistillation {
    fn check(&self, inputs: &[&Type; 5]) -> std::result::Result<(), String> {
        let [x, w, targets, teacher_x, teacher_w] = inputs;
        self.student.check(x, w, targets)?;
        float("the teacher's x", teacher_x)?;
        float("the teacher's head", teacher_w)?;
        ensure(teacher_w.shape.len() == 2 && teacher_w.last() == teacher_x.last(), || {
            format!("the teacher's head must be (V, {}), is {teacher_w}", teacher_x.last())
        })?;
        ensure(teacher_x.rows() == x.rows(), || {
            format!("the teacher has {} rows, the student {}", teacher_x.rows(), x.rows())
        })?;
        let most = self.student.vocab.min(teacher_w.shape[0]);
        ensure(0 < self.taught && self.taught <= most, || {
            format!("{} columns are compared, of which both have {most}", self.taught)
        })?;
        ensure(
            [self.teacher_cap.unwrap_or(1.0), self.temperature]
                .iter()
                .all(|x| x.is_finite() && *x > 0.0),
            || format!("temperature {} and a cap of logits must be above 0", self.temperature),
        )?;
        ensure((0.0..=1.0).contains(&self.share), || {
            format!("the share of the soft loss is from 0 to 1, not {}", self.share)
        })
    }

    fn samples(dtype: DType) -> Vec<(Self, Vec<Sample>)> {
        let of = |[rows, columns, vocab, padded, teacher, teacher_padded]: [usize; 6],
                  taught: usize,
                  chunk: usize,
                  caps: [Option<f64>; 2],
                  [temperature, share]: [f64; 2]| {
            let student = LinearCrossEntropy { vocab, chunk, cap: caps[0] };
            let lowest = if rows > 4 { -1 } else { 0 };
            let inputs = vec![
                unit(dtype, &[rows, columns]),
                unit(dtype, &[padded, columns]),
                whole(DType::I32, &[rows], lowest, vocab as i64),
                unit(dtype, &[rows, teacher]),
                unit(dtype, &[teacher_padded, teacher]),
            ];
            (Self { student, taught, teacher_cap: caps[1], temperature, share }, inputs)
        };
        let none = [None; 2];
        vec![
            of([1, 1, 1, 1, 1, 1], 1, 1, none, [1.0, 1.0]),
            of([6, 5, 11, 16, 7, 11], 11, 4, none, [2.0, 0.5]),
            of([33, 17, 101, 128, 9, 97], 97, 16, none, [3.0, 0.25]),
            of([20, 8, 64, 64, 24, 80], 64, 256, none, [1.0, 0.0]),
            of([33, 17, 101, 128, 8, 128], 101, 16, [Some(0.8), Some(1.5)], [0.5, 0.7]),
        ]
    }

    /// Cases of this family.
    pub fn cases() -> Vec<Case> {
        let dtypes = [DType::F32, DType::BF16].into_iter();
        let samples = dtypes.flat_map(Self::samples);
        let mut cases: Vec<Case> = samples.map(|(op, inputs)| Case::new(op, inputs)).collect();
        // Logits in the hundreds: a softmax without the maximum taken out would overflow.
        let large = |shape: &[usize]| range(DType::F32, shape, -20.0, 20.0);
        let targets = whole(DType::I32, &[5], 0, 7);
        let inputs = vec![large(&[5, 4]), large(&[8, 4]), targets, large(&[5, 3]), large(&[8, 3])];
        let student = LinearCrossEntropy { vocab: 7, chunk: 2, cap: None };
        let op = Self { student, taught: 7, teacher_cap: None, temperature: 4.0, share: 0.5 };
        cases.push(Case::new(op, inputs));
        cases
    }

    /// The teacher's logits of a row, as a loss against no target reads them.
    fn teacher(&self) -> LinearCrossEntropy {
        LinearCrossEntropy { vocab: self.taught, chunk: 1, cap: self.teacher_cap }
    }

    /// Of row `r`: the student's logits, their normaliser, both softmaxes over the temperature, and hard and soft loss. None where it
    /// doesn't count.
    fn row(&self, inputs: &[Array<'_>], r: usize) -> Option<Row> {
        let target = usize::try_from(inputs[2].index(r)).ok()?;
        let (logits, normaliser, _) = self.student.row(inputs, r);
        let (taught, ..) = self.teacher().row(&[inputs[3], inputs[4], inputs[2]], r);
        let log_softmax = |logits: &[f64]| -> Vec<f64> {
            let over: Vec<f64> = logits.iter().map(|x| x / self.temperature).collect();
            let max = over.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let sum = max + over.iter().map(|x| (x - max).exp()).sum::<f64>().ln();
            over.iter().map(|x| x - sum).collect()
        };
        let (p, q) = (log_softmax(&logits[..self.taught]), log_softmax(&taught));
        let soft = q.iter().zip(&p).map(|(q, p)| q.exp() * (q - p)).sum();
        Some(Row { hard: normaliser - logits[target], target, logits, normaliser, p, q, soft })
    }

    /// The loss of these parts, means over rows.
    pub fn of(&self, [hard, soft]: [f64; 2]) -> f64 {
        (1.0 - self.share) * hard + self.share * self.temperature.powi(2) * soft
    }

    /// Sets the loss and its parts from sums over rows.
    fn set(&self, inputs: &[Array<'_>], outputs: &[Array<'_>], sums: [f64; 2]) {
        let means = sums.map(|sum| sum / counted(&inputs[2]));
        outputs[0].set(0, self.of(means));
        means.into_iter().enumerate().for_each(|(part, mean)| outputs[1].set(part, mean));
    }

    fn cost_of(&self, inputs: &[&Type], outputs: &[&Type], matmuls: u64) -> Cost {
        let matmul = |x: &Type, w: &Type| 2 * (x.elements() * w.shape[0]) as u64;
        let flops = matmuls * matmul(inputs[0], inputs[1]) + matmul(inputs[3], inputs[4]);
        Cost { flops, bytes: traffic(inputs, outputs) }
    }

    /// Logits of the student and of the teacher.
    fn work_of(inputs: &[&Type]) -> Work {
        let [student, teacher] = [0, 3].map(|x| logits(inputs[x], inputs[x + 1]));
        Work { rows: student.rows, elements: student.elements + teacher.elements }
    }
}

/// What the loss of a row reads.
struct Row {
    logits: Vec<f64>,
    normaliser: f64,
    target: usize,
    /// Logs of softmaxes over the temperature: the student's and the teacher's.
    p: Vec<f64>,
    q: Vec<f64>,
    hard: f64,
    soft: f64,
}

impl Row {
    /// Its loss's gradient of the student's logits.
    fn slopes(&self, op: &LinearDistillation) -> Vec<f64> {
        let slope = |(v, logit): (usize, &f64)| {
            let hard = (logit - self.normaliser).exp() - f64::from(u8::from(v == self.target));
            let soft = self.p.get(v).zip(self.q.get(v)).map_or(0.0, |(p, q)| p.exp() - q.exp());
            let capped = op.student.cap.map_or(1.0, |cap| 1.0 - (logit / cap).powi(2));
            capped * ((1.0 - op.share) * hard + op.share * op.temperature * soft)
        };
        self.logits.iter().enumerate().map(slope).collect()
    }
}

/// Launches of the loss: the student's, and the teacher's logits beside.
struct Taught<'a> {
    op: &'a LinearDistillation,
    student: Chunks<'a>,
    parts: Place,
    head: Head,
}

impl<'a> Taught<'a> {
    fn new(
        op: &'a LinearDistillation,
        limits: &'a Limits,
        inputs: &[&Type],
        outputs: &[&Type],
    ) -> Self {
        let student = Chunks::new(&op.student, limits, inputs, outputs);
        let padded = inputs[4].shape[0] as u64;
        let widest = padded.max(student.padded);
        Self {
            student: student.of_rows(op.student.chunk as u64, widest),
            parts: Place::output(1, outputs[1]),
            head: Head {
                x: Place::input(3, inputs[3]),
                w: Place::input(4, inputs[4]),
                columns: inputs[3].last() as u64,
                padded,
            },
            op,
        }
    }

    fn append(&self, launches: &mut Launches) {
        let student = &self.student;
        let (rows, limits) = (student.rows, student.limits);
        let threads = THREADS.min(limits.workgroup);
        // Each row's hard loss, and after these its soft one.
        let losses = launches.scratch(DType::F32, 2 * rows);
        let scratch = student.scratch(launches, losses);
        let teacher = launches.scratch(DType::F32, student.chunk.min(rows) * self.head.padded);
        let count = student.bound(&scratch, "count", threads, 1, rows);
        launches.push(count.param("first", 0u32).param("rows", rows));
        let mut start = 0;
        while start < rows {
            let held = student.chunk.min(rows - start);
            student.logits(start, held, scratch.logits, launches);
            self.head.logits(limits, start, held, teacher, launches);
            let flops = FLOPS * held * (student.padded + self.head.padded);
            let distil = ("distil", student.threads(), held, flops);
            launches.push(self.launch(&scratch, teacher, distil).param("first", start));
            student.gradients(start, held, scratch.gradient, launches);
            start += held;
        }
        let total = self.launch(&scratch, teacher, ("total", threads, 1, 2 * rows));
        launches.push(total.param("first", 0u32));
    }

    /// A launch of an entry with so many threads, workgroups and operations.
    fn launch(
        &self,
        &Scratch { scale, losses, logits, gradient }: &Scratch,
        teacher: Place,
        (entry, threads, groups, flops): (&'static str, u32, u64, u64),
    ) -> Launch {
        let (student, op) = (&self.student, self.op);
        let four = |columns: u64| columns.is_multiple_of(4);
        // What an entry doesn't read or write is bound as something it does, which takes no further binding.
        let sums = entry == "total";
        let (targets, logits, teacher) =
            if sums { (losses, losses, losses) } else { (student.targets, logits, teacher) };
        let (loss, parts) = if sums { (student.loss, self.parts) } else { (losses, losses) };
        let launch = Launch::new("distillation", entry, threads, groups)
            .constant("GRADIENT", student.grad.is_some())
            .constant("CAPPED", student.cap.is_some())
            .constant("TEACHER_CAPPED", op.teacher_cap.is_some())
            .constant("LANES", threads)
            .constant("SUBGROUP", student.limits.webgpu().subgroup_threads())
            .param("vocab", op.student.vocab as u64)
            .param("taught", op.taught as u64)
            .param("padded", student.padded)
            .param("teacher_padded", self.head.padded)
            .real("cap", student.cap.unwrap_or_default())
            .real("teacher_cap", op.teacher_cap.unwrap_or_default())
            .real("temperature", op.temperature)
            .real("share", op.share)
            .param("rows", student.rows)
            .bind("targets", targets)
            .bind("scale", scale)
            .bind("losses", losses)
            .bind_four("logits", logits, four(student.padded))
            .bind_four("teacher", teacher, four(self.head.padded))
            .bind("parts", parts)
            .bind("loss", loss)
            .costing(flops);
        match student.limits.dialect() {
            Dialect::Cuda if sums => launch.bind_four("gradient", losses, false),
            Dialect::Cuda => launch.bind_four("gradient", gradient, four(student.padded)),
            Dialect::Wgsl => launch,
        }
    }
}

impl Rule for LinearDistillation {
    fn name(&self) -> &'static str {
        "linear_distillation"
    }

    fn infer(&self, inputs: &[&Type]) -> Inferred {
        let inputs = arity(inputs)?;
        self.check(&inputs)?;
        let sum = inputs[0].dtype.statistics();
        Ok(vec![Type::new(sum, [1]), Type::new(sum, [2])])
    }

    fn indices(&self, _inputs: &[&Type]) -> Vec<Indices> {
        vec![Indices { input: 2, end: self.student.vocab, negative: true }]
    }

    fn differentiable(&self) -> usize {
        1
    }

    fn grad(
        &self,
        graph: &mut dyn Tape,
        node: &Node,
        outputs: &[Option<Tensor>],
        wanted: &[bool],
    ) -> Result<Vec<Option<Tensor>>> {
        if let Some(input) = [3, 4].into_iter().find(|&input| wanted[input]) {
            let name = graph.info(node.outputs[0]).name.clone();
            return Err(crate::Error::NoGradient { op: self.name(), name, input });
        }
        let Some(dloss) = outputs[0] else { return Ok(vec![None; 5]) };
        let mut inputs = node.inputs.clone();
        inputs.push(dloss);
        let op =
            LinearDistillationGrad { loss: self.clone(), weight: wanted[1], accumulate: false };
        let name = format!("grad.{}", graph.info(node.outputs[0]).name);
        let pushed = graph.push(op, &inputs, &name)?;
        Ok(vec![Some(pushed[2]), pushed.get(3).copied(), None, None, None])
    }

    fn cost(&self, inputs: &[&Type], outputs: &[&Type]) -> Cost {
        self.cost_of(inputs, outputs, 1)
    }

    fn work(&self, inputs: &[&Type], _outputs: &[&Type]) -> Work {
        Self::work_of(inputs)
    }

    fn launch(&self, limits: &Limits, inputs: &[&Type], outputs: &[&Type]) -> Launched {
        let mut launches = Launches::new();
        Taught::new(self, limits, inputs, outputs).append(&mut launches);
        Ok(launches)
    }

    fn reference(&self, inputs: &[Array<'_>], outputs: &[Array<'_>]) {
        let rows = (0..inputs[2].len()).filter_map(|r| self.row(inputs, r));
        let sums = rows.fold([0.0; 2], |[hard, soft], row| [hard + row.hard, soft + row.soft]);
        self.set(inputs, outputs, sums);
    }
}

impl LinearDistillationGrad {
    /// Cases of this family.
    pub fn cases() -> Vec<Case> {
        gradient_cases(LinearDistillation::samples, |loss, weight, accumulate| Self {
            loss,
            weight,
            accumulate,
        })
    }
}

impl Rule for LinearDistillationGrad {
    fn name(&self) -> &'static str {
        "linear_distillation_grad"
    }

    fn infer(&self, inputs: &[&Type]) -> Inferred {
        gradient_types(&self.loss, 5, inputs, self.weight, self.accumulate)
    }

    fn overwrites(&self) -> Vec<(usize, usize)> {
        if self.accumulate { vec![(3, 6)] } else { vec![] }
    }

    fn may_overwrite(&self) -> Vec<(usize, usize)> {
        vec![(2, 0)]
    }

    fn indices(&self, inputs: &[&Type]) -> Vec<Indices> {
        self.loss.indices(inputs)
    }

    fn cost(&self, inputs: &[&Type], outputs: &[&Type]) -> Cost {
        self.loss.cost_of(inputs, outputs, if self.weight { 3 } else { 2 })
    }

    fn work(&self, inputs: &[&Type], _outputs: &[&Type]) -> Work {
        LinearDistillation::work_of(inputs)
    }

    fn launch(&self, limits: &Limits, inputs: &[&Type], outputs: &[&Type]) -> Launched {
        let mut taught = Taught::new(&self.loss, limits, inputs, outputs);
        let (dloss, dx) = (Place::input(5, inputs[5]), Place::output(2, outputs[2]));
        let dw = outputs.get(3).map(|dw| Place::output(3, dw));
        let columns = taught.student.columns_of(dx);
        let mut launches = Launches::new();
        launches.by_rows(limits, dx, columns, false, |launches, dx| {
            taught.student.grad = Some((dloss, dx, dw, self.accumulate));
            taught.append(launches);
        });
        Ok(launches)
    }

    fn reference(&self, inputs: &[Array<'_>], outputs: &[Array<'_>]) {
        let dloss = inputs[5].get(0) / counted(&inputs[2]);
        let mut sums = [0.0; 2];
        let of_logits = |r| {
            let Some(row) = self.loss.row(inputs, r) else { return vec![] };
            sums = [sums[0] + row.hard, sums[1] + row.soft];
            row.slopes(&self.loss).into_iter().map(|slope| slope * dloss).collect()
        };
        set_gradients(inputs, &outputs[2], outputs.get(3), self.accumulate, of_logits);
        self.loss.set(inputs, outputs, sums);
    }
}
