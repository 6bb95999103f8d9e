//! What can be wrong with a graph or a plan, in the words of the person who wrote it.

use crate::role::Role;
use crate::types::Type;

/// Result of graph building and planning.
pub type Result<T> = std::result::Result<T, Error>;

/// A mistake found before anything runs.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// An op was given inputs that it does not take.
    #[error("{op} `{name}`: {problem}; inputs: {}", list(.inputs))]
    Shape {
        /// Family of the op.
        op: &'static str,
        /// Name of the op's first output in the graph.
        name: String,
        /// What does not fit.
        problem: String,
        /// Types of all inputs.
        inputs: Vec<Type>,
    },
    /// The gradient of an op was asked for that has none.
    #[error("{op} `{name}` has no gradient with respect to input {input}")]
    NoGradient {
        /// Family of the op.
        op: &'static str,
        /// Name of the op's first output in the graph.
        name: String,
        /// Index of the input.
        input: usize,
    },
    /// A tensor is read after an op overwrote its storage in place.
    #[error("`{reader}` reads `{tensor}` after `{writer}` overwrote it in place")]
    Overwritten {
        /// Name of the stale tensor.
        tensor: String,
        /// Name of the output that took over the storage.
        writer: String,
        /// Name of the later reader.
        reader: String,
    },
    /// A program was asked for that the graph does not have.
    #[error("this graph has no program `{0}`")]
    NoProgram(Role),
    /// A tensor was named that the graph does not have.
    #[error("no {kind} `{name}` in this graph{}", near(.nearest))]
    Unknown {
        /// "tensor" or "activation".
        kind: &'static str,
        /// The name asked for.
        name: String,
        /// The most similar name there is.
        nearest: Option<String>,
    },
    /// A setting of the planner or of a model is out of range.
    #[error("{0}")]
    Setting(String),
}

fn list(types: &[Type]) -> String {
    types.iter().map(Type::to_string).collect::<Vec<_>>().join(", ")
}

fn near(nearest: &Option<String>) -> String {
    nearest.as_ref().map_or(String::new(), |name| format!("; did you mean `{name}`?"))
}
