//! The parameters of a model, and where checkpoints of other libraries keep them.
//!
//! A parameter is stored as the kernels read it: linear weights as (out, in), the projections of attention
//! packed as queries, keys, values, the embedding with its rows padded. Each [`Part`] says which of its rows
//! one tensor of a checkpoint holds. The same mapping serves weights, gradients and optimizer moments.

use std::ops::Range;

/// How a parameter's values begin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    /// Normal with mean 0.
    Normal {
        /// Standard deviation.
        std: f64,
    },
    /// Uniform between −bound and bound.
    Uniform {
        /// Largest magnitude.
        bound: f64,
    },
    /// All 0.
    Zeros,
    /// All 1.
    Ones,
}

impl Init {
    /// How `torch.nn.Linear` begins a layer of so many inputs, weight and bias alike: uniform within 1/√inputs.
    pub fn linear(inputs: usize) -> Self {
        Self::Uniform { bound: 1.0 / (inputs as f64).sqrt() }
    }
}

/// What a parameter is to the layer that reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Weight of a hidden linear layer, (out, in). Adapters are for these, and so are 8-bit frozen weights and Muon.
    Linear,
    /// Weight of the linear layer that makes the model's output, (out, in).
    Head,
    /// A table whose rows are looked up by id or position.
    Table,
    /// The factor of a norm.
    Gain,
    /// What a layer adds to its output.
    Bias,
    /// Anything else.
    Other,
}

/// A parameter of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// Name of its tensor in the graph.
    pub name: String,
    /// Extents in memory, padding included.
    pub shape: Vec<usize>,
    /// How its values begin.
    pub init: Init,
    /// What it is.
    pub kind: Kind,
    /// Weight decay applies.
    pub decay: bool,
    /// Training leaves it as it is: no gradient, no master remainder, no optimizer state.
    pub frozen: bool,
    /// The tensors of a checkpoint that hold it; rows in none of them are padding and 0.
    pub parts: Vec<Part>,
    /// Rows on which the loss doesn't depend, often none: a bias of keys adds one number to all scores of a query, which
    /// leaves their softmax as it is. Their gradient is rounding noise, which Adam scales up, so two correct runs differ
    /// there.
    pub without_gradient: Range<usize>,
}

/// A tensor of a checkpoint that holds some rows of a parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// Name in the checkpoint.
    pub name: String,
    /// Rows of the parameter: indices of its first axis.
    pub rows: Range<usize>,
    /// Stored as (in, out), as GPT-2's `Conv1D` does.
    pub transposed: bool,
    /// Its extents in the checkpoint, where they aren't those of the rows.
    pub shape: Option<Vec<usize>>,
}

impl Parameter {
    /// A parameter that a checkpoint holds under its own name. Weight decay applies where it has two or more dimensions.
    pub fn new(name: impl Into<String>, shape: &[usize], init: Init) -> Self {
        let name = name.into();
        let rows = 0..shape.first().copied().unwrap_or(0);
        let whole = Part { name: name.clone(), rows, transposed: false, shape: None };
        Self {
            name,
            shape: shape.into(),
            init,
            kind: Kind::Other,
            decay: shape.len() >= 2,
            frozen: false,
            parts: vec![whole],
            without_gradient: 0..0,
        }
    }

    /// With another kind.
    pub fn of_kind(self, kind: Kind) -> Self {
        Self { kind, ..self }
    }

    /// Held by one tensor of this name in a checkpoint, stored the same way.
    pub fn stored_as(mut self, name: impl Into<String>) -> Self {
        let rows = 0..self.shape[0];
        self.parts = vec![Part { name: name.into(), rows, transposed: false, shape: None }];
        self
    }

    /// Held by one tensor of this name in a checkpoint, stored transposed.
    pub fn stored_transposed_as(self, name: impl Into<String>) -> Self {
        let mut parameter = self.stored_as(name);
        parameter.parts[0].transposed = true;
        parameter
    }

    /// Held by one tensor of this name in a checkpoint, with other extents that have as many elements in the same order.
    pub fn stored_shaped_as(self, name: impl Into<String>, shape: &[usize]) -> Self {
        let mut parameter = self.stored_as(name);
        parameter.parts[0].shape = Some(shape.into());
        parameter
    }

    /// Held by tensors of these names in a checkpoint, each with so many rows. Rows that are left are padding.
    pub fn stored_in(mut self, parts: impl IntoIterator<Item = (String, usize)>) -> Self {
        let mut end = 0;
        let part = |(name, count): (String, usize)| {
            let start = end;
            end += count;
            Part { name, rows: start..end, transposed: false, shape: None }
        };
        self.parts = parts.into_iter().map(part).collect();
        self
    }

    /// Name of the layer that it's the weight of.
    pub fn layer(&self) -> &str {
        self.name.strip_suffix(".weight").unwrap_or(&self.name)
    }

    /// Rows that are a matrix each, as a checkpoint has them, of the weight of a hidden linear layer; none of anything else.
    pub fn matrices(&self) -> Vec<Range<usize>> {
        match self.kind {
            Kind::Linear => self.parts.iter().map(|part| part.rows.clone()).collect(),
            _ => vec![],
        }
    }

    /// Elements in memory, padding included.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Elements of one row.
    pub fn columns(&self) -> usize {
        self.shape.iter().skip(1).product()
    }

    /// Elements of the leading rows that a checkpoint holds; what follows is padding.
    pub fn stored(&self) -> usize {
        self.parts.iter().map(|part| part.rows.len() * self.columns()).sum()
    }

    /// Shape of `part` in a checkpoint.
    pub fn part_shape(&self, part: &Part) -> Vec<usize> {
        if let Some(shape) = &part.shape {
            return shape.clone();
        }
        let mut shape = self.shape.clone();
        shape[0] = part.rows.len();
        if part.transposed {
            shape.reverse();
        }
        shape
    }

    /// Rows of the checkpoint's tensor `name` on which the loss doesn't depend: see [`Parameter::without_gradient`].
    pub fn rows_without_gradient(&self, name: &str) -> Range<usize> {
        let Some(part) = self.parts.iter().find(|part| part.name == name) else { return 0..0 };
        let within = |row: usize| row.clamp(part.rows.start, part.rows.end) - part.rows.start;
        within(self.without_gradient.start)..within(self.without_gradient.end)
    }
}
