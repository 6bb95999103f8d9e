//! A parsed template.

use std::sync::Arc;

/// A literal.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Literal {
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    Str(Arc<str>),
}

/// Arguments of a call.
#[derive(Debug, Default)]
pub(super) struct Args {
    pub list: Vec<Expr>,
    pub named: Vec<(String, Expr)>,
    /// `*list` and `**dictionary`.
    pub more: [Option<Box<Expr>>; 2],
}

#[derive(Debug)]
pub(super) enum Expr {
    Literal(Literal),
    Name(String),
    List(Vec<Self>),
    Tuple(Vec<Self>),
    Dict(Vec<(Self, Self)>),
    /// An attribute, or else an item.
    Attribute(Box<Self>, Arc<str>),
    /// An item, or else an attribute.
    Item(Box<Self>, Box<Self>),
    Slice(Box<Self>, Box<[Option<Self>; 3]>),
    Call(Box<Self>, Box<Args>),
    /// `None` for the input of a filter block.
    Filter(Option<Box<Self>>, String, Box<Args>),
    Test(Box<Self>, String, Box<Args>, bool),
    Not(Box<Self>),
    Negative(Box<Self>),
    Positive(Box<Self>),
    Binary(Box<Self>, Operator, Box<Self>),
    And(Box<Self>, Box<Self>),
    Or(Box<Self>, Box<Self>),
    Compare(Box<Self>, Vec<(Comparison, Self)>),
    /// `then if condition else otherwise`.
    If(Box<[Self; 2]>, Option<Box<Self>>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    FloorDivide,
    Remainder,
    Power,
    Concatenate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    In,
    NotIn,
}

/// The target of an assignment.
#[derive(Debug)]
pub(super) enum Target {
    Name(String),
    /// An attribute of a namespace.
    Attribute(String, String),
    Tuple(Vec<Self>),
}

#[derive(Debug)]
pub(super) struct Loop {
    pub target: Target,
    pub over: Expr,
    pub filter: Option<Expr>,
    pub recursive: bool,
    pub body: Vec<Node>,
    pub otherwise: Vec<Node>,
}

#[derive(Debug)]
pub(super) struct MacroNode {
    pub name: String,
    pub parameters: Vec<(String, Option<Expr>)>,
    pub body: Vec<Node>,
    /// True where the body reads `varargs`, `kwargs` and `caller`, in this order.
    pub reads: [bool; 3],
}

/// A template.
#[derive(Debug, Default)]
pub(super) struct Tree {
    pub nodes: Vec<Node>,
    pub macros: Vec<MacroNode>,
    pub loops: Vec<Loop>,
    /// True if it marks what the assistant says.
    pub marks: bool,
    /// True if it may call itself, or has much within each other.
    pub recurs: bool,
}

/// A statement and its line.
#[derive(Debug)]
pub(super) struct Node {
    pub line: usize,
    pub kind: NodeKind,
}

#[derive(Debug)]
pub(super) enum NodeKind {
    Text(String),
    Print(Expr),
    If(Vec<(Expr, Vec<Node>)>, Vec<Node>),
    /// The number of a loop.
    For(usize),
    Set(Target, Expr),
    /// The block's text, through filters.
    SetBlock(Target, Option<Expr>, Vec<Node>),
    /// The number of a macro.
    Macro(usize),
    /// A call with a block, which is the macro of this number.
    Call(Expr, usize),
    FilterBlock(Expr, Vec<Node>),
    With(Vec<(Target, Expr)>, Vec<Node>),
    Scoped(Vec<Node>),
    /// A `generation` block: words of the assistant.
    Generation(Vec<Node>),
    Break,
    Continue,
}
