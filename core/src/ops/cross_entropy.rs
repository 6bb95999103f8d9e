//! Softmax cross-entropy over classes, of logits that a model has made.   R rows, V classes
//!
//!   loss       = mean over rows with label ≥ 0 of  log Σᵥ exp(logits[r,v]) − logits[r,label[r]]
//!   accuracy   = share of these rows whose largest logit, the first of equal ones, is the label's
//!   dlogits[r,v] = (exp(logits[r,v]) / Σᵤ exp(logits[r,u]) − [v = label[r]]) · dloss / rows that count,  0 where label[r] < 0
//!
//! For a vocabulary, whose logits would be larger than all else, there is [`super::LinearCrossEntropy`].

use serde::{Deserialize, Serialize};

use super::reduce::{THREADS, lanes};
use super::windows::{part, windows_with_vectors};
use super::{
    Array, Case, Cost, Indices, Inferred, Rule, Sample, Work, arity, ensure, float, range, traffic,
    typed, unit, whole,
};
use crate::error::Result;
use crate::launch::{Launch, Launched, Launches, Limits, Operand, Place};
use crate::ops::{Node, Tape};
use crate::tensor::Tensor;
use crate::types::{DType, Type};

/// Loss and accuracy. Inputs: logits (…, V), labels (I32, one a row; negative ones don't count). Outputs: loss (1) and accuracy
/// (1) in f32. Where no row counts, both are 0.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CrossEntropy;

/// Gradient of [`CrossEntropy`]'s loss. Inputs: logits, labels, gradient of the loss (1). Output: gradient of the logits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CrossEntropyGrad;

/// The terms of [`CrossEntropy`]'s means. Inputs: as there. Output: (2, R) in f32, the loss of each row, then 1 where its largest
/// logit is the label's and else 0; both are 0 where the row doesn't count.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CrossEntropyRows;

/// Operations of a logit, for the cost.
const FLOPS: u64 = 6;

/// Names that the kernel file has for tensors.
const OPERANDS: [&str; 7] = ["logits", "labels", "sums", "loss", "accuracy", "dloss", "dlogits"];

fn check(logits: &Type, labels: &Type) -> std::result::Result<(), String> {
    float("the logits", logits)?;
    ensure(!logits.shape.is_empty(), || "the logits need an axis of classes".into())?;
    ensure(labels.dtype == DType::I32 && labels.elements() == logits.rows(), || {
        format!("labels must be i32, one for each of {} rows, are {labels}", logits.rows())
    })
}

fn samples(dtype: DType) -> Vec<Vec<Sample>> {
    let of = |shape: &[usize], rows: &[usize]| {
        let classes = shape[shape.len() - 1] as i64;
        let lowest = if rows.iter().product::<usize>() > 4 { -1 } else { 0 };
        vec![range(dtype, shape, -4.0, 4.0), whole(DType::I32, rows, lowest, classes)]
    };
    vec![
        of(&[1, 1], &[1]),
        of(&[3, 10], &[3]),
        of(&[67, 5], &[67]),
        of(&[2, 7, 1031], &[2, 7]),
        of(&[130, 12], &[130]),
    ]
}

/// Logits and labels of one launch, and where its rows are among all.
struct Rows {
    logits: Place,
    labels: Place,
    rows: u64,
    columns: u64,
}

impl Rows {
    fn new(inputs: &[&Type]) -> Self {
        let (logits, labels) = (Place::input(0, inputs[0]), Place::input(1, inputs[1]));
        Self { logits, labels, rows: inputs[0].rows() as u64, columns: inputs[0].last() as u64 }
    }

    /// A launch of `entry` in teams of `lanes` threads, that binds `operands` over `count` rows: `first` is where their labels
    /// begin, `sum` where their sums do.
    fn launch(
        &self,
        limits: &Limits,
        entry: &'static str,
        lanes: u64,
        (first, sum, count): (u64, u64, u64),
        operands: &[(&'static str, Place)],
    ) -> Launch {
        let workgroup = THREADS.min(limits.workgroup);
        // A team that is a whole workgroup goes over all rows by itself.
        let groups = match entry {
            "score_rows" | "gradients" => count.div_ceil(u64::from(workgroup) / lanes),
            _ => 1,
        };
        let mut launch = Launch::new("classes", entry, workgroup, groups)
            .constant("LANES", lanes)
            .constant("SUBGROUP", limits.webgpu().subgroup_threads())
            .param("rows", count)
            .param("columns", self.columns)
            .param("first", first)
            .param("sum", sum)
            .param("all", self.rows);
        let aligned = self.columns.is_multiple_of(4);
        for &(name, place) in operands {
            let wide = name.ends_with("logits");
            launch = launch.bind_four(name, place, wide && aligned);
        }
        // What an entry doesn't name is bound as something it does, which takes no further binding.
        for name in OPERANDS {
            if !launch.operands.iter().any(|operand| operand.name == name) {
                let like = launch.operands[0].clone();
                launch.operands.push(Operand { name: name.into(), ..like });
            }
        }
        launch.costing(FLOPS * count * self.columns)
    }

    /// Appends launches of `entry` over rows of the logits, and where it makes some, of their gradient.
    fn push(
        &self,
        limits: &Limits,
        launches: &mut Launches,
        entry: &'static str,
        sums: Place,
        dlogits: Option<Place>,
    ) {
        let lanes = lanes(self.columns, THREADS.min(limits.workgroup));
        let matrices: Vec<(DType, u64)> = [Some(self.logits), dlogits]
            .into_iter()
            .flatten()
            .map(|place| (place.dtype, self.columns))
            .collect();
        let vectors = [(self.labels.dtype, 1)];
        for range in windows_with_vectors(limits, self.rows, &matrices, &vectors) {
            let window =
                |place: Place| place.window(range.start * self.columns..range.end * self.columns);
            let (labels, first) = part(limits, self.labels, range.clone());
            let mut operands = vec![("logits", window(self.logits)), ("labels", labels)];
            operands.push(("sums", sums));
            operands.extend(dlogits.map(|dlogits| ("dlogits", window(dlogits))));
            let rows = (first, range.start, range.end - range.start);
            launches.push(self.launch(limits, entry, lanes, rows, &operands));
        }
    }

    /// A launch in which one workgroup goes over all rows' numbers.
    fn over_all(
        &self,
        limits: &Limits,
        entry: &'static str,
        operands: &[(&'static str, Place)],
    ) -> Launch {
        let threads = THREADS.min(limits.workgroup).into();
        self.launch(limits, entry, threads, (0, 0, self.rows), operands).costing(4 * self.rows)
    }
}

/// Rows that count, at least 1.
fn counted(labels: &Array<'_>) -> f64 {
    (0..labels.len()).filter(|&r| labels.index(r) >= 0).count().max(1) as f64
}

/// Of row `r`: its logits, and the log of the sum of their exponentials.
fn row(logits: &Array<'_>, r: usize) -> (Vec<f64>, f64) {
    let columns = logits.ty().last();
    let row: Vec<f64> = (0..columns).map(|c| logits.get(r * columns + c)).collect();
    let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let normaliser = max + row.iter().map(|x| (x - max).exp()).sum::<f64>().ln();
    (row, normaliser)
}

fn labels_of(inputs: &[&Type]) -> Vec<Indices> {
    vec![Indices { input: 1, end: inputs[0].last(), negative: true }]
}

impl CrossEntropy {
    /// Cases of this family.
    pub fn cases() -> Vec<Case> {
        let dtypes = [DType::F32, DType::BF16].into_iter();
        let mut cases: Vec<Case> =
            dtypes.flat_map(samples).map(|inputs| Case::new(Self, inputs)).collect();
        // Logits in the hundreds, whose exponentials no f32 holds; and equal ones, of which the first is the largest.
        let labels = || whole(DType::I32, &[9], 0, 4);
        let large = vec![range(DType::F32, &[9, 4], -300.0, 300.0), labels()];
        let equal = vec![range(DType::F32, &[9, 4], 0.5, 0.5), labels()];
        cases.extend([large, equal].map(|inputs| Case::new(Self, inputs)));
        cases
    }
}

impl Rule for CrossEntropy {
    fn name(&self) -> &'static str {
        "cross_entropy"
    }

    fn infer(&self, inputs: &[&Type]) -> Inferred {
        let [logits, labels] = arity(inputs)?;
        check(logits, labels)?;
        let number = Type::new(logits.dtype.statistics(), [1]);
        Ok(vec![number.clone(), number])
    }

    fn indices(&self, inputs: &[&Type]) -> Vec<Indices> {
        labels_of(inputs)
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
        let (Some(dloss), true) = (outputs[0], wanted[0]) else { return Ok(vec![None; 2]) };
        let (logits, labels) = (node.inputs[0], node.inputs[1]);
        let name = format!("grad.{}", graph.info(logits).name);
        Ok(vec![Some(graph.one(CrossEntropyGrad, &[logits, labels, dloss], &name)?), None])
    }

    fn cost(&self, inputs: &[&Type], outputs: &[&Type]) -> Cost {
        let flops = FLOPS * inputs[0].elements() as u64;
        Cost { flops, bytes: traffic(inputs, outputs) }
    }

    fn work(&self, inputs: &[&Type], _outputs: &[&Type]) -> Work {
        Work::on(&inputs[..1])
    }

    fn launch(&self, limits: &Limits, inputs: &[&Type], outputs: &[&Type]) -> Launched {
        let rows = Rows::new(inputs);
        let mut launches = Launches::new();
        // Each row's loss, and after these whether its largest logit is the label's.
        let sums = launches.scratch(DType::F32, 2 * rows.rows);
        rows.push(limits, &mut launches, "score_rows", sums, None);
        let [loss, accuracy] = [0, 1].map(|index| Place::output(index, outputs[index]));
        let operands =
            [("labels", rows.labels), ("sums", sums), ("loss", loss), ("accuracy", accuracy)];
        launches.push(rows.over_all(limits, "add_scores", &operands));
        Ok(launches)
    }

    fn reference(&self, inputs: &[Array<'_>], outputs: &[Array<'_>]) {
        let labels = inputs[1];
        let scores = (0..labels.len()).map(|r| score(inputs, r));
        let [loss, hits] =
            scores.fold([0.0; 2], |sums, [loss, hit]| [sums[0] + loss, sums[1] + hit]);
        outputs[0].set(0, loss / counted(&labels));
        outputs[1].set(0, hits / counted(&labels));
    }
}

/// The loss of row `r`, and 1 where its largest logit, the first of equal ones, is the label's; zeros where it doesn't count.
fn score(inputs: &[Array<'_>], r: usize) -> [f64; 2] {
    let Ok(label) = usize::try_from(inputs[1].index(r)) else { return [0.0; 2] };
    let (row, normaliser) = row(&inputs[0], r);
    let first = row
        .iter()
        .enumerate()
        .all(|(v, &logit)| if v < label { logit < row[label] } else { logit <= row[label] });
    [normaliser - row[label], f64::from(u8::from(first))]
}

impl CrossEntropyRows {
    /// Cases of this family.
    pub fn cases() -> Vec<Case> {
        let dtypes = [DType::F32, DType::BF16].into_iter();
        dtypes.flat_map(samples).map(|inputs| Case::new(Self, inputs)).collect()
    }
}

impl Rule for CrossEntropyRows {
    fn name(&self) -> &'static str {
        "cross_entropy_rows"
    }

    fn infer(&self, inputs: &[&Type]) -> Inferred {
        let [logits, labels] = arity(inputs)?;
        check(logits, labels)?;
        Ok(vec![Type::new(logits.dtype.statistics(), [2, logits.rows()])])
    }

    fn indices(&self, inputs: &[&Type]) -> Vec<Indices> {
        labels_of(inputs)
    }

    fn cost(&self, inputs: &[&Type], outputs: &[&Type]) -> Cost {
        CrossEntropy.cost(inputs, outputs)
    }

    fn launch(&self, limits: &Limits, inputs: &[&Type], outputs: &[&Type]) -> Launched {
        let mut launches = Launches::new();
        let sums = Place::output(0, outputs[0]);
        Rows::new(inputs).push(limits, &mut launches, "score_rows", sums, None);
        Ok(launches)
    }

    fn reference(&self, inputs: &[Array<'_>], outputs: &[Array<'_>]) {
        let rows = inputs[1].len();
        for r in 0..rows {
            let [loss, hit] = score(inputs, r);
            outputs[0].set(r, loss);
            outputs[0].set(rows + r, hit);
        }
    }
}

impl CrossEntropyGrad {
    /// Cases of this family.
    pub fn cases() -> Vec<Case> {
        let mut cases = vec![];
        for dtype in [DType::F32, DType::BF16] {
            for mut inputs in samples(dtype) {
                inputs.push(unit(DType::F32, &[1]));
                cases.push(Case::new(Self, inputs));
            }
        }
        cases
    }
}

impl Rule for CrossEntropyGrad {
    fn name(&self) -> &'static str {
        "cross_entropy_grad"
    }

    fn infer(&self, inputs: &[&Type]) -> Inferred {
        let [logits, labels, dloss] = arity(inputs)?;
        check(logits, labels)?;
        let number = Type::new(logits.dtype.statistics(), [1]);
        typed("the gradient of the loss", dloss, &number)?;
        Ok(vec![logits.clone()])
    }

    fn indices(&self, inputs: &[&Type]) -> Vec<Indices> {
        labels_of(inputs)
    }

    fn may_overwrite(&self) -> Vec<(usize, usize)> {
        vec![(0, 0)]
    }

    fn cost(&self, inputs: &[&Type], outputs: &[&Type]) -> Cost {
        let flops = FLOPS * inputs[0].elements() as u64;
        Cost { flops, bytes: traffic(inputs, outputs) }
    }

    fn work(&self, inputs: &[&Type], _outputs: &[&Type]) -> Work {
        Work::on(&inputs[..1])
    }

    fn launch(&self, limits: &Limits, inputs: &[&Type], outputs: &[&Type]) -> Launched {
        let rows = Rows::new(inputs);
        let mut launches = Launches::new();
        // The gradient of one row's loss.
        let slope = launches.scratch(DType::F32, 1);
        let dloss = Place::input(2, inputs[2]);
        let operands = [("labels", rows.labels), ("dloss", dloss), ("sums", slope)];
        launches.push(rows.over_all(limits, "find_slope", &operands));
        let dlogits = Place::output(0, outputs[0]);
        launches.by_rows(limits, dlogits, rows.columns, false, |launches, dlogits| {
            rows.push(limits, launches, "gradients", slope, Some(dlogits));
        });
        Ok(launches)
    }

    fn reference(&self, inputs: &[Array<'_>], outputs: &[Array<'_>]) {
        let (logits, labels, dloss) = (inputs[0], inputs[1], inputs[2].get(0));
        let columns = logits.ty().last();
        for r in 0..labels.len() {
            let label = labels.index(r);
            let (row, normaliser) = row(&logits, r);
            for (v, logit) in row.iter().enumerate() {
                let hit = f64::from(u8::from(v as i64 == label));
                let slope = ((logit - normaliser).exp() - hit) * dloss / counted(&labels);
                outputs[0].set(r * columns + v, if label < 0 { 0.0 } else { slope });
            }
        }
    }
}
