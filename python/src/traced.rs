//! A model that was written in Python: its layers, and the ops that its `loss` and its `predict` asked for when they were
//! traced.

mod applied;
mod formula;
mod ops;

use std::sync::Arc;

use serde::Deserialize;
use tightrope::core::ops::{Map, Slice};
use tightrope::core::{DType, Tensor};
use tightrope::nn::inputs::START;
use tightrope::nn::layers::{self, Dropout, Layer as _};
use tightrope::nn::{Error, Input, Model, Parameter, Pass, Result};

use applied::{Applied, Described};
use ops::Does;

/// What a trace says, as `tightrope/trace.py` writes it.
#[derive(Debug, Deserialize)]
struct Trace {
    inputs: Vec<TracedInput>,
    /// Arrays that the functions read, which are given with each batch.
    constants: Vec<Constant>,
    layers: Vec<Described>,
    loss: Function,
    predict: Option<Function>,
    /// Tokens of a sample, where samples are sequences.
    tokens: usize,
    /// Descriptions of the inputs and of the ops of the loss, for checkpoints.
    described: Vec<String>,
}

/// The ops of one of the model's functions, in order.
#[derive(Debug, Deserialize)]
struct Function {
    ops: Vec<Op>,
    /// The op that makes what it returns.
    output: usize,
}

#[derive(Debug, Deserialize)]
struct Constant {
    name: String,
    shape: Vec<usize>,
}

#[derive(Debug, Deserialize)]
struct TracedInput {
    name: String,
    dtype: String,
    shape: Vec<usize>,
}

/// An op of the trace; tensors are named by the op that makes them.
#[derive(Debug, Deserialize)]
struct Op {
    name: String,
    /// The repeated block that it's in.
    block: Option<usize>,
    #[serde(flatten)]
    does: Does,
}

/// A model that was traced.
#[derive(Debug)]
pub struct Traced {
    trace: Trace,
    layers: Vec<Applied>,
}

impl Traced {
    /// Of a trace in JSON.
    ///
    /// # Errors
    /// What isn't one, in words.
    pub fn read(text: &str) -> std::result::Result<Arc<Self>, String> {
        let trace: Trace = serde_json::from_str(text).map_err(|error| error.to_string())?;
        for function in [&trace.loss].into_iter().chain(&trace.predict) {
            function.check(trace.layers.len())?;
        }
        let layers = trace.layers.iter().enumerate();
        let layers = layers.map(|(index, it)| Applied::of(it, trace.loss.is_head(index))).collect();
        Ok(Arc::new(Self { trace, layers }))
    }

    /// Names and shapes of its weights, as checkpoints hold them.
    pub fn weights(&self) -> Vec<(String, Vec<usize>)> {
        let list = self.parameters();
        let parts = list.iter().flat_map(|of| of.parts.iter().map(move |part| (of, part)));
        parts.map(|(of, part)| (part.name.clone(), of.part_shape(part))).collect()
    }

    /// Whether it gives more than its loss.
    pub fn predicts(&self) -> bool {
        self.trace.predict.is_some()
    }

    /// True if it reads the position of the first row.
    fn is_rotary(&self) -> bool {
        let functions = [&self.trace.loss].into_iter().chain(&self.trace.predict);
        let mut ops = functions.flat_map(|function| &function.ops);
        ops.any(|op| matches!(op.does, Does::Rope { .. }))
            || self.trace.layers.iter().any(Described::is_rotary)
    }

    /// Appends an op; what those before it made is in `made`.
    fn append(&self, pass: &mut Pass<'_>, op: &Op, made: &[Tensor]) -> Result<Tensor> {
        let Op { name, does, .. } = op;
        match does {
            Does::Input => pass.input(name),
            Does::Layer { layer, x } => self.layers[*layer].apply(pass, made[*x]),
            Does::Activation { kind, x } => kind.apply(pass, made[*x], name),
            Does::Map { formula, operands, figure } => {
                ops::mapped(pass, (*formula, operands), *figure, made, name)
            }
            Does::Dropout { x, p } => Dropout::new(name.as_str(), *p).apply(pass, made[*x]),
            Does::Reshape { x, extents } => ops::reshaped(pass, made[*x], extents, name),
            Does::Permute { x, axes } => ops::permuted(pass, made[*x], axes, name),
            Does::Expand { x, axis, extent } => {
                ops::expanded(pass, (made[*x], *axis), *extent, made, name)
            }
            Does::Slice { x, axis, start, len } => {
                let slice = Slice { axis: *axis, start: *start, len: *len };
                pass.one(slice, &[made[*x]], name)
            }
            Does::Concat { parts, axis } => {
                let parts: Vec<Tensor> = parts.iter().map(|&part| made[part]).collect();
                ops::concat(pass, &parts, *axis, name)
            }
            Does::Reduce { x, axes, mean } => ops::reduced(pass, made[*x], axes, *mean, name),
            Does::Extreme { x, axis, largest } => {
                ops::extreme(pass, (made[*x], *axis), *largest, name)
            }
            Does::Softmax { x } => ops::softmax(pass, made[*x], name),
            Does::Matmul { a, b, stacked } => {
                ops::matmul(pass, [made[*a], made[*b]], *stacked, name)
            }
            Does::Rope { x, head_dim, theta } => {
                ops::rotated(pass, made[*x], (*head_dim, *theta), name)
            }
            Does::Attention(attention) => attention.append(pass, made, name),
            Does::CrossEntropy { scores, labels } => {
                layers::cross_entropy(pass, made[*scores], made[*labels])
            }
            Does::LinearCrossEntropy { x, layer, targets } => {
                let parameters = self.layers[*layer].layer().parameters();
                let Some(head) = parameters.first() else {
                    return Err(refused("the head of the loss has no weight"));
                };
                let vocab = head.shape[0];
                layers::linear_cross_entropy(pass, made[*x], head, made[*targets], vocab)
            }
            Does::MeanSquaredError { found, expected } => {
                layers::mean_squared_error(pass, made[*found], made[*expected])
            }
        }
    }

    /// Appends a function, and gives what it returns.
    fn appended(&self, pass: &mut Pass<'_>, function: &Function) -> Result<Tensor> {
        let mut made = Vec::with_capacity(function.output + 1);
        for op in &function.ops[..=function.output] {
            let tensor = match op.block {
                None => self.append(pass, op, &made)?,
                Some(block) => pass.block(block, |pass| self.append(pass, op, &made))?,
            };
            made.push(tensor);
        }
        Ok(made[function.output])
    }
}

impl Function {
    /// Holds that every op reads what ops before it made, and one of so many layers.
    fn check(&self, layers: usize) -> std::result::Result<(), String> {
        if self.output >= self.ops.len() {
            return Err("what a function returns isn't an op of its trace".to_owned());
        }
        for (index, op) in self.ops.iter().enumerate() {
            if let Does::Map { formula, operands, .. } = &op.does
                && operands.len() != formula.arity()
            {
                return Err(format!("`{}` takes {} operands", op.name, formula.arity()));
            }
            let fine = op.does.reads().into_iter().all(|read| read < index)
                && op.does.layer().is_none_or(|layer| layer < layers);
            if !fine {
                return Err(format!("`{}` reads what isn't there yet", op.name));
            }
        }
        Ok(())
    }

    /// Whether a cross-entropy takes the output of layer `index`.
    fn is_head(&self, index: usize) -> bool {
        self.ops.iter().any(|op| match op.does {
            Does::CrossEntropy { scores, .. } => self.ops[scores].does.layer() == Some(index),
            _ => false,
        })
    }
}

/// A tensor in f32.
fn single(pass: &mut Pass<'_>, x: Tensor, name: &str) -> Result<Tensor> {
    match pass.ty(x).dtype {
        DType::F32 => Ok(x),
        _ => pass.one(Map::cast(DType::F32), &[x], name),
    }
}

fn refused(problem: &str) -> Error {
    Error::Setting { key: "model", problem: problem.to_owned() }
}

impl Model for Traced {
    fn parameters(&self) -> Vec<Parameter> {
        layers::parameters(self.layers.iter().map(Applied::layer))
    }

    fn inputs(&self) -> Vec<Input> {
        let input = |TracedInput { name, dtype, shape }: &TracedInput| {
            let dtype = if dtype == "i32" { DType::I32 } else { DType::F32 };
            Input::new(name, dtype, shape)
        };
        let constant = |it: &Constant| Input::shared(&it.name, DType::F32, &it.shape);
        let inputs = self.trace.inputs.iter().map(input);
        let constants = self.trace.constants.iter().map(constant);
        let start = self.is_rotary().then(|| Input::range(START, 0..1));
        inputs.chain(constants).chain(start).collect()
    }

    fn loss(&self, pass: &mut Pass<'_>) -> Result<Tensor> {
        let loss = self.appended(pass, &self.trace.loss)?;
        single(pass, loss, "loss.single")
    }

    fn logits(&self, pass: &mut Pass<'_>) -> Result<Option<Tensor>> {
        let Some(predict) = &self.trace.predict else { return Ok(None) };
        let output = self.appended(pass, predict)?;
        single(pass, output, "output").map(Some)
    }

    fn tokens(&self) -> usize {
        self.trace.tokens
    }

    fn ops(&self) -> Vec<String> {
        self.trace.described.clone()
    }
}
