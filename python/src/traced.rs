//! A model that was written in Python: its layers, and the ops that its `loss` and its `predict` asked for when they were
//! traced.

use std::sync::Arc;

use serde::Deserialize;
use tightrope::core::expr::{constant, input};
use tightrope::core::ops::{Channels, Concat, Map, Mask, Permute, Reshape};
use tightrope::core::{DType, Expr, Tensor};
use tightrope::nn::layers::{
    self, Activation, Attention, Conv2d, Dropout, Embedding, Layer, LayerNorm, Linear, RmsNorm,
};
use tightrope::nn::{Error, Input, Model, Parameter, Pass, Result};

/// What a trace says, as `tightrope/trace.py` writes it.
#[derive(Debug, Deserialize)]
struct Trace {
    inputs: Vec<TracedInput>,
    layers: Vec<Described>,
    loss: Function,
    predict: Option<Function>,
    /// Tokens of a sample, where samples are sequences.
    tokens: usize,
}

/// The ops of one of the model's functions, in order.
#[derive(Debug, Deserialize)]
struct Function {
    ops: Vec<Op>,
    /// The op that makes what it returns.
    output: usize,
}

#[derive(Debug, Deserialize)]
struct TracedInput {
    name: String,
    dtype: String,
    shape: Vec<usize>,
}

/// A layer with its place among the model's attributes.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Described {
    Linear {
        name: String,
        inputs: usize,
        outputs: usize,
        bias: bool,
    },
    Embedding {
        name: String,
        rows: usize,
        columns: usize,
    },
    LayerNorm {
        name: String,
        channels: usize,
    },
    RmsNorm {
        name: String,
        channels: usize,
    },
    Attention {
        name: String,
        channels: usize,
        heads: usize,
        causal: bool,
    },
    Conv2d {
        name: String,
        channels: usize,
        outputs: usize,
        kernel: [usize; 2],
        stride: [usize; 2],
        padding: [usize; 2],
        channels_first: bool,
    },
    Dropout {
        name: String,
        p: f64,
    },
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

#[derive(Debug, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
enum Does {
    Input,
    Layer { layer: usize, x: usize },
    Activation { kind: Activation, x: usize },
    Binary { kind: Binary, a: Operand, b: Operand },
    Reshape { x: usize, shape: Vec<usize> },
    Permute { x: usize, axes: Vec<usize> },
    Mean { x: usize, axis: usize },
    Concat { parts: Vec<usize>, axis: usize },
    CrossEntropy { scores: usize, labels: usize },
    LinearCrossEntropy { x: usize, layer: usize, targets: usize },
    MeanSquaredError { found: usize, expected: usize },
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Binary {
    Add,
    Subtract,
    Multiply,
    Divide,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(untagged)]
enum Operand {
    Tensor { tensor: usize },
    Number(f64),
}

/// A layer that can be applied.
#[derive(Debug)]
enum Applied {
    /// A linear layer whose output a cross-entropy takes: it makes it in f32.
    Head(Box<Linear>),
    Other(Box<dyn Layer>),
}

impl Applied {
    fn of(described: &Described, is_head: bool) -> Self {
        match described.clone() {
            Described::Linear { name, inputs, outputs, bias } => {
                let linear = Linear::new(&name, inputs, outputs);
                let linear = if bias { linear } else { linear.without_bias() };
                match is_head {
                    true => Self::Head(Box::new(linear.as_head())),
                    false => Self::Other(Box::new(linear)),
                }
            }
            Described::Embedding { name, rows, columns } => {
                Self::Other(Box::new(Embedding::new(&name, rows, columns)))
            }
            Described::LayerNorm { name, channels } => {
                Self::Other(Box::new(LayerNorm::new(&name, channels)))
            }
            Described::RmsNorm { name, channels } => {
                Self::Other(Box::new(RmsNorm::new(&name, channels)))
            }
            Described::Attention { name, channels, heads, causal } => {
                let mask = if causal { Mask::CAUSAL } else { Mask::NONE };
                Self::Other(Box::new(Attention::new(&name, channels, heads).with_mask(mask)))
            }
            Described::Conv2d {
                name,
                channels,
                outputs,
                kernel,
                stride,
                padding,
                channels_first,
            } => {
                let order = if channels_first { Channels::First } else { Channels::Last };
                let layer = Conv2d::new(&name, order, channels, outputs, kernel);
                Self::Other(Box::new(layer.with_stride(stride).with_padding(padding)))
            }
            Described::Dropout { name, p } => Self::Other(Box::new(Dropout::new(name, p))),
        }
    }

    fn layer(&self) -> &dyn Layer {
        match self {
            Self::Head(linear) => &**linear,
            Self::Other(layer) => &**layer,
        }
    }

    fn apply(&self, pass: &mut Pass<'_>, x: Tensor) -> Result<Tensor> {
        match self {
            Self::Head(linear) => linear.scores(pass, x),
            Self::Other(layer) => layer.apply(pass, x),
        }
    }
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

    /// Whether it gives more than its loss.
    pub fn predicts(&self) -> bool {
        self.trace.predict.is_some()
    }

    /// Appends an op; what those before it made is in `made`.
    fn append(&self, pass: &mut Pass<'_>, op: &Op, made: &[Tensor]) -> Result<Tensor> {
        let Op { name, does, .. } = op;
        match does {
            Does::Input => pass.input(name),
            Does::Layer { layer, x } => self.layers[*layer].apply(pass, made[*x]),
            Does::Activation { kind, x } => kind.apply(pass, made[*x], name),
            Does::Binary { kind, a, b } => {
                let mut tensors = vec![];
                let [a, b] = [a, b].map(|operand| operand.formula(made, &mut tensors));
                let formula = match kind {
                    Binary::Add => a + b,
                    Binary::Subtract => a - b,
                    Binary::Multiply => a * b,
                    Binary::Divide => a / b,
                };
                pass.map(formula, &tensors, name)
            }
            Does::Reshape { x, shape } => {
                let samples = pass.shape(made[*x])[0];
                let shape = [&[samples], &shape[..]].concat();
                pass.one(Reshape { shape }, &[made[*x]], name)
            }
            Does::Permute { x, axes } => {
                pass.one(Permute { axes: axes.clone() }, &[made[*x]], name)
            }
            Does::Mean { x, axis } => layers::mean(pass, made[*x], *axis, name),
            Does::Concat { parts, axis } => {
                let parts: Vec<Tensor> = parts.iter().map(|&part| made[part]).collect();
                pass.one(Concat { axis: *axis }, &parts, name)
            }
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

impl Does {
    /// The ops whose tensors it reads.
    fn reads(&self) -> Vec<usize> {
        match self {
            Self::Input => vec![],
            Self::Layer { x, .. }
            | Self::Activation { x, .. }
            | Self::Reshape { x, .. }
            | Self::Permute { x, .. }
            | Self::Mean { x, .. } => vec![*x],
            Self::Binary { a, b, .. } => [a, b].into_iter().filter_map(|it| it.tensor()).collect(),
            Self::Concat { parts, .. } => parts.clone(),
            Self::CrossEntropy { scores, labels } => vec![*scores, *labels],
            Self::LinearCrossEntropy { x, targets, .. } => vec![*x, *targets],
            Self::MeanSquaredError { found, expected } => vec![*found, *expected],
        }
    }

    /// The layer that it applies, or whose weight it reads.
    fn layer(&self) -> Option<usize> {
        match self {
            Self::Layer { layer, .. } | Self::LinearCrossEntropy { layer, .. } => Some(*layer),
            _ => None,
        }
    }
}

impl Operand {
    fn tensor(&self) -> Option<usize> {
        match self {
            Self::Tensor { tensor } => Some(*tensor),
            Self::Number(_) => None,
        }
    }

    /// It in a formula over `tensors`, to which it's added where it is one.
    fn formula(&self, made: &[Tensor], tensors: &mut Vec<Tensor>) -> Expr {
        match self {
            Self::Number(number) => constant(*number),
            Self::Tensor { tensor } => {
                let tensor = made[*tensor];
                let place = tensors.iter().position(|known| *known == tensor);
                let place = place.unwrap_or_else(|| {
                    tensors.push(tensor);
                    tensors.len() - 1
                });
                input(place)
            }
        }
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
        self.trace.inputs.iter().map(input).collect()
    }

    fn loss(&self, pass: &mut Pass<'_>) -> Result<Tensor> {
        self.appended(pass, &self.trace.loss)
    }

    fn logits(&self, pass: &mut Pass<'_>) -> Result<Option<Tensor>> {
        let Some(predict) = &self.trace.predict else { return Ok(None) };
        let output = self.appended(pass, predict)?;
        if pass.ty(output).dtype == DType::F32 {
            return Ok(Some(output));
        }
        pass.one(Map::cast(DType::F32), &[output], "output").map(Some)
    }

    fn tokens(&self) -> usize {
        self.trace.tokens
    }
}
