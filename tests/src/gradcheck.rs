//! Symbolic gradients against central differences, both in f64.
//!
//!   L(x) = Σ wᵢ·outᵢ(x), w fixed and random;   ∂L/∂x by [`grad`] must equal its difference quotient
//!
//! Difference quotients are of fourth order (Fornberg 1988): (8·(L₁ − L₋₁) − (L₂ − L₋₂)) / 12h with
//! Lₖ = L(x + k·h). Differences are taken output by output before they are weighed and summed, so that
//! outputs that don't change add no rounding.

use tightrope_core::expr::input;
use tightrope_core::ops::{Case, Map, Reduce, Sample};
use tightrope_core::{Class, DType, Error, Graph, Op, Role, Rule, Tensor, Type, grad};

use crate::cases::{self, floats, retyped, widened};
use crate::reference::Interpreter;
use crate::values;

/// Ops without a gradient, by [`label`], and why they have none. A case with such a label must be refused by
/// [`grad`]; any other must have a right gradient.
pub const WITHOUT_GRADIENT: &[(&str, &str)] = &[
    ("Accumulate", "sums of gradients over ranks"),
    ("Accumulate in place", "sums of gradients over ranks"),
    ("AttentionGrad", "first derivatives only"),
    ("CachedAttention", "generation only; overwrites its caches"),
    ("CrossEntropyGrad", "first derivatives only"),
    ("CrossEntropyRows", "evaluation only"),
    ("Dequantize", "storage of optimizer state and frozen weights"),
    ("DequantizeNf4", "storage of frozen weights"),
    ("EmbeddingGrad", "first derivatives only"),
    ("EmbeddingGrad in place", "first derivatives only"),
    ("FusedMatMul", "made by fusion, after gradients"),
    ("FusedMatMul in place", "made by fusion, after gradients"),
    ("LayerNormGrad", "first derivatives only"),
    ("LinearCrossEntropyGrad", "first derivatives only"),
    ("LinearCrossEntropyGrad in place", "first derivatives only"),
    ("LinearCrossEntropyRows", "evaluation only"),
    ("LinearDistillationGrad", "first derivatives only"),
    ("LinearDistillationGrad in place", "first derivatives only"),
    ("Map in segments", "optimizer rules"),
    ("MatMul in place", "sums of gradients"),
    ("Quantize", "storage of optimizer state; a step function"),
    ("Quantize in place", "storage of optimizer state; a step function"),
    ("RmsNormGrad", "first derivatives only"),
    ("SoftmaxGrad", "first derivatives only"),
    ("SquareSum in place", "gradient norm"),
];

/// Inputs of ops, by family, that have no gradient where others have: asked for, they must be refused.
pub const CONSTANTS: &[(&str, &[usize], &str)] =
    &[("LinearDistillation", &[3, 4], "a teacher isn't trained")];

/// The inputs of an op that have no gradient.
pub fn constants(op: &Op) -> &'static [usize] {
    let family = op.family();
    CONSTANTS.iter().find(|(name, ..)| *name == family).map_or(&[], |(_, inputs, _)| inputs)
}

/// A case's entry in [`WITHOUT_GRADIENT`]: its family, and whether it's applied in place or in segments.
pub fn label(op: &Op) -> String {
    let segments = matches!(op, Op::Map(map) if map.segments > 1);
    let way = match op {
        _ if segments => " in segments",
        // Its caches are its purpose, not a variant.
        Op::CachedAttention(_) => "",
        _ if op.overwrites().is_empty() => "",
        _ => " in place",
    };
    format!("{}{way}", op.family())
}

/// Largest error of a gradient relative to the gradient's own size.
pub const TOLERANCE: f64 = 1e-5;

/// Gradients below this are compared as if they had this size; the rounding of a difference quotient of
/// numbers near 1 is about 1e-11.
const SMALLEST: f64 = 1e-6;

/// Step of the difference quotients, times the element's size where that is above 1.
const STEP: f64 = 2e-5;

/// Elements checked one by one in a tensor that has more.
const ELEMENTS: usize = 40;

/// How far the gradient of one input is from its difference quotients.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Deviation {
    /// Index of the input.
    pub input: usize,
    /// Number of elements checked one by one.
    pub elements: usize,
    /// L2 norm of the error over these elements, relative to the gradient's.
    pub l2: f64,
    /// Largest error of an element, relative to the largest gradient.
    pub largest: f64,
    /// Error of the derivative along one random direction through all elements, relative to the L2 norm of
    /// the whole gradient.
    pub directional: f64,
}

impl Deviation {
    /// Whether every error is at most [`TOLERANCE`]; not so where one is NaN.
    pub fn passes(&self) -> bool {
        [self.l2, self.largest, self.directional].iter().all(|&error| error <= TOLERANCE)
    }
}

/// Why a gradient can't be compared.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// A graph couldn't be built.
    #[error(transparent)]
    Graph(#[from] Error),
    /// The gradient doesn't have its input's dtype and shape.
    #[error("the gradient of input {input} is {gradient}, the input is {ty}")]
    Type {
        /// Index of the input.
        input: usize,
        /// Type of the input.
        ty: Type,
        /// Type of its gradient.
        gradient: Type,
    },
}

/// Appends ops that work on the given tensors, and gives the outputs that make up the loss.
pub type Build<'a> = &'a dyn Fn(&mut Graph, &[Tensor]) -> Result<Vec<Tensor>, Error>;

/// Checks the gradients of all float inputs of a case but [`constants`], its dtypes widened to f64.
///
/// # Errors
/// [`Problem`], in particular [`Error::NoGradient`].
pub fn check_case(case: &Case) -> Result<Vec<Deviation>, Problem> {
    let case = retyped(case, &widened);
    let op = case.op.clone();
    check_all_but(&case.inputs, constants(&case.op), &move |graph, inputs| {
        let outputs = graph.push(op.clone(), inputs, "output")?;
        // Statistics kept for the backward pass carry no gradient.
        Ok(outputs.into_iter().take(op.differentiable()).collect())
    })
}

/// Checks the gradients of what `build` appends, with respect to every float input.
///
/// # Errors
/// [`Problem`].
pub fn check(inputs: &[Sample], build: Build<'_>) -> Result<Vec<Deviation>, Problem> {
    check_all_but(inputs, &[], build)
}

fn check_all_but(
    inputs: &[Sample],
    constants: &[usize],
    build: Build<'_>,
) -> Result<Vec<Deviation>, Problem> {
    let bytes = values::samples(inputs);
    let forward = Forward::new(inputs, &bytes, build)?;
    let wanted = |&index: &usize| inputs[index].ty.dtype.is_float() && !constants.contains(&index);
    let wanted: Vec<usize> = (0..inputs.len()).filter(wanted).collect();
    let gradients = gradients((inputs, wanted), &bytes, build, &forward.weights)?;
    let interpreter = Interpreter::new(&forward.graph);
    let mut deviations = vec![];
    for (index, gradient) in gradients {
        forward.restore(&interpreter, &bytes);
        deviations.push(forward.deviation(&interpreter, index, &gradient));
    }
    Ok(deviations)
}

/// Gradients of the wanted ones of the inputs of what `build` appends, by [`grad`]. An input that the loss doesn't depend
/// on has a gradient of zeros.
fn gradients(
    (inputs, wanted): (&[Sample], Vec<usize>),
    bytes: &[Vec<u8>],
    build: Build<'_>,
    weights: &[Vec<f64>],
) -> Result<Vec<(usize, Vec<f64>)>, Problem> {
    let mut graph = Graph::new();
    let tensors = declare(&mut graph, inputs);
    graph.begin(Role::Main);
    let outputs = build(&mut graph, &tensors)?;
    let mut constants = vec![];
    let mut loss: Option<Tensor> = None;
    for (index, (&output, weights)) in floating(&graph, &outputs).iter().zip(weights).enumerate() {
        let ty = graph.ty(output).clone();
        let weight = graph.persistent(&format!("weight.{index}"), ty, Class::Input);
        constants.push((weight, values::encode(DType::F64, weights.iter().copied())));
        let product = Map::new(input(0) * input(1), DType::F64);
        let product = graph.one(product, &[output, weight], &format!("product.{index}"))?;
        let sum = Reduce::to_suffix(vec![], DType::F64);
        let term = graph.one(sum, &[product], &format!("term.{index}"))?;
        loss = Some(match loss {
            None => term,
            Some(before) => graph.one(Map::add(DType::F64), &[before, term], "loss")?,
        });
    }
    let scalar = Type::new(DType::F64, []);
    let seed = graph.persistent("seed", scalar, Class::Input);
    constants.push((seed, values::encode(DType::F64, [1.0])));
    let found = match loss {
        Some(loss) => {
            let wanted: Vec<_> = wanted.iter().map(|&index| tensors[index].into()).collect();
            grad(&mut graph, loss, seed, &wanted)?
        }
        None => vec![None; wanted.len()],
    };
    graph.check_in_place()?;

    let interpreter = Interpreter::new(&graph);
    tensors.iter().zip(bytes).for_each(|(&tensor, bytes)| interpreter.write(tensor, bytes));
    constants.iter().for_each(|(tensor, bytes)| interpreter.write(*tensor, bytes));
    interpreter.run(0);
    let mut gradients = vec![];
    for (input, gradient) in wanted.into_iter().zip(found) {
        let ty = &inputs[input].ty;
        gradients.push(match gradient {
            None => (input, vec![0.0; ty.elements()]),
            Some(tensor) if graph.ty(tensor) == ty => (input, interpreter.values(tensor)),
            Some(tensor) => {
                let gradient = graph.ty(tensor).clone();
                return Err(Problem::Type { input, ty: ty.clone(), gradient });
            }
        });
    }
    Ok(gradients)
}

fn declare(graph: &mut Graph, inputs: &[Sample]) -> Vec<Tensor> {
    let mut tensor = |(index, entry): (usize, &Sample)| {
        graph.persistent(&format!("input.{index}"), entry.ty.clone(), Class::Weight)
    };
    inputs.iter().enumerate().map(&mut tensor).collect()
}

fn floating(graph: &Graph, tensors: &[Tensor]) -> Vec<Tensor> {
    tensors.iter().copied().filter(|&tensor| graph.dtype(tensor).is_float()).collect()
}

/// The ops without their gradient, to be run at shifted inputs.
struct Forward {
    graph: Graph,
    inputs: Vec<Tensor>,
    outputs: Vec<Tensor>,
    /// Weights of the loss, for each output.
    weights: Vec<Vec<f64>>,
}

impl Forward {
    fn new(inputs: &[Sample], bytes: &[Vec<u8>], build: Build<'_>) -> Result<Self, Error> {
        let mut graph = Graph::new();
        let tensors = declare(&mut graph, inputs);
        graph.begin(Role::Main);
        let outputs = build(&mut graph, &tensors)?;
        let outputs = floating(&graph, &outputs);
        let streams = bytes.len() as u64..;
        let weights = streams.zip(&outputs).map(|(stream, &output)| {
            let shape = &graph.ty(output).shape;
            let entry = floats(DType::F64, shape, -1.0, 1.0);
            values::decode(DType::F64, &values::sample(&entry, stream))
        });
        let weights = weights.collect();
        Ok(Self { graph, inputs: tensors, outputs, weights })
    }

    fn restore(&self, interpreter: &Interpreter<'_>, bytes: &[Vec<u8>]) {
        self.inputs.iter().zip(bytes).for_each(|(&tensor, bytes)| interpreter.write(tensor, bytes));
    }

    /// The loss's derivative along `direction`, given as (element, slope) of one input.
    fn quotient(
        &self,
        interpreter: &Interpreter<'_>,
        tensor: Tensor,
        at: &[f64],
        direction: &[(usize, f64)],
        step: f64,
    ) -> f64 {
        let outputs = |steps: f64| -> Vec<Vec<f64>> {
            for &(element, slope) in direction {
                interpreter.set(tensor, element, at[element] + steps * step * slope);
            }
            interpreter.run(0);
            self.outputs.iter().map(|&output| interpreter.values(output)).collect()
        };
        let [far_below, below, above, far_above] = [-2.0, -1.0, 1.0, 2.0].map(outputs);
        for &(element, _) in direction {
            interpreter.set(tensor, element, at[element]);
        }
        let mut sum = 0.0;
        for (output, weights) in self.weights.iter().enumerate() {
            for (i, weight) in weights.iter().enumerate() {
                let near = above[output][i] - below[output][i];
                let far = far_above[output][i] - far_below[output][i];
                sum += weight * (8.0 * near - far);
            }
        }
        sum / (12.0 * step)
    }

    fn deviation(
        &self,
        interpreter: &Interpreter<'_>,
        input: usize,
        gradient: &[f64],
    ) -> Deviation {
        let tensor = self.inputs[input];
        let at = interpreter.values(tensor);
        let picked = spread(at.len());
        let (mut errors, mut own) = (vec![], vec![]);
        for &element in &picked {
            let step = STEP * at[element].abs().max(1.0);
            let quotient = self.quotient(interpreter, tensor, &at, &[(element, 1.0)], step);
            errors.push(quotient - gradient[element]);
            own.push(gradient[element]);
        }
        let direction: Vec<(usize, f64)> = (0..at.len())
            .map(|element| (element, values::uniform(u64::MAX, element as u64) * 2.0 - 1.0))
            .collect();
        let quotient = self.quotient(interpreter, tensor, &at, &direction, STEP);
        let along: f64 = direction.iter().map(|&(element, slope)| gradient[element] * slope).sum();
        Deviation {
            input,
            elements: picked.len(),
            l2: norm(&errors) / norm(&own).max(SMALLEST),
            largest: largest(&errors) / largest(&own).max(SMALLEST),
            directional: (quotient - along).abs() / norm(gradient).max(SMALLEST),
        }
    }
}

/// All elements, or one at random from each of [`ELEMENTS`] ranges of equal length.
fn spread(len: usize) -> Vec<usize> {
    if len <= ELEMENTS {
        return (0..len).collect();
    }
    let pick = |range: usize| {
        let (start, end) = (range * len / ELEMENTS, (range + 1) * len / ELEMENTS);
        start + (values::uniform(len as u64, range as u64) * (end - start) as f64) as usize
    };
    (0..ELEMENTS).map(pick).collect()
}

fn norm(values: &[f64]) -> f64 {
    values.iter().map(|value| value * value).sum::<f64>().sqrt()
}

/// Largest magnitude; NaN where there is one.
fn largest(values: &[f64]) -> f64 {
    values.iter().fold(
        0.0,
        |max: f64, value| {
            if max.is_nan() || value.abs() <= max { max } else { value.abs() }
        },
    )
}

/// The cases whose gradients are checked: each that is different in f64, apart from step functions and
/// from shapes that only try a device's dispatch.
pub fn candidates() -> Vec<Case> {
    let long = |entry: &Sample| entry.ty.shape.contains(&cases::MANY_ROWS);
    let apt = |case: &Case| !cases::splits_bits(&case.op) && !case.inputs.iter().any(long);
    let cases = cases::all().into_iter().filter(apt);
    cases::distinct(cases.map(|case| retyped(&case, &widened)).collect())
}

#[cfg(test)]
mod tests {
    use tightrope_core::expr::constant;

    use super::*;

    #[test]
    fn a_right_gradient_passes_and_a_wrong_one_does_not() {
        let inputs = [floats(DType::F64, &[5], 0.5, 2.0)];
        let build: Build<'_> = &|graph, inputs| {
            Ok(vec![graph.one(Map::new(input(0).exp(), DType::F64), inputs, "e")?])
        };
        let bytes = values::samples(&inputs);
        let forward = Forward::new(&inputs, &bytes, build).unwrap();
        let interpreter = Interpreter::new(&forward.graph);
        forward.restore(&interpreter, &bytes);
        let weights = &forward.weights[0];
        let at = interpreter.values(forward.inputs[0]);
        let right: Vec<f64> = weights.iter().zip(&at).map(|(w, x)| w * x.exp()).collect();
        assert!(forward.deviation(&interpreter, 0, &right).passes());
        let mut wrong = right.clone();
        wrong[3] *= 1.001;
        assert!(!forward.deviation(&interpreter, 0, &wrong).passes());
        wrong[3] = f64::NAN;
        assert!(!forward.deviation(&interpreter, 0, &wrong).passes());
    }

    #[test]
    fn a_loss_that_does_not_depend_on_an_input_has_no_slope_there() {
        let inputs = [floats(DType::F64, &[3], 0.5, 2.0), floats(DType::F64, &[3], 0.5, 2.0)];
        let build: Build<'_> = &|graph, inputs| {
            let formula = input(0) * constant(2.0);
            Ok(vec![graph.one(Map::new(formula, DType::F64), &inputs[..1], "twice")?])
        };
        let deviations = check(&inputs, build).unwrap();
        assert_eq!(deviations.len(), 2);
        assert!(deviations.iter().all(Deviation::passes), "{deviations:?}");
    }

    #[test]
    fn elements_are_spread_over_the_whole_tensor() {
        assert_eq!(spread(7), [0, 1, 2, 3, 4, 5, 6]);
        let picked = spread(10_000);
        assert_eq!(picked.len(), ELEMENTS);
        assert!(picked.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(picked[0] < 250 && picked[ELEMENTS - 1] >= 9750);
    }
}
