//! Values of a template: those of Python that Jinja reaches.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::{Rc, Weak};
use std::sync::Arc;

/// Bytes of a text that a template makes at most.
pub(super) const LARGEST: usize = 1 << 23;
/// Items of a list that a template makes of a text at most.
pub(super) const LONGEST: usize = LARGEST / 64;
/// Values that a rendering compares at most. A value that two lists share is compared in each.
const COMPARED: u64 = 2_000_000;
/// Values within values that are followed at most, so that neither printing nor dropping one exhausts the stack.
const DEEPEST: u16 = 200;
/// Entries from which a dictionary has an index.
const INDEXED: usize = 8;

#[derive(Clone)]
pub(super) enum Value {
    /// A missing value, with its name for messages.
    Undefined(Arc<str>),
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    Str(Arc<str>),
    Seq(Rc<Seq>),
    Dict(Rc<Dict>),
    Namespace(Rc<RefCell<Dict>>),
    /// A method of a value.
    Method(Rc<(Value, String)>),
    /// A function of the environment.
    Function(&'static str),
    Macro(Rc<Macro>),
    Loop(Rc<LoopState>),
    Cycler(Rc<(Vec<Value>, Cell<usize>)>),
    Joiner(Rc<(Value, Cell<bool>)>),
}

/// Python's type of a sequence.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    List,
    Tuple,
    /// Handed out once.
    Generator,
    Range,
    Keys,
    Values,
    Items,
}

pub(super) struct Seq {
    pub kind: Kind,
    pub items: Vec<Value>,
    /// Names of the items as attributes.
    pub names: &'static [&'static str],
    depth: u16,
    shares: bool,
    used: Cell<bool>,
}

#[derive(Default)]
pub(super) struct Dict {
    pub entries: Vec<(Value, Value)>,
    index: Option<HashMap<Arc<str>, usize>>,
    depth: u16,
    shares: bool,
}

/// A macro, and the scope that it was defined in.
pub(super) struct Macro {
    pub number: usize,
    pub scope: Weak<Scope>,
}

pub(super) type Outcome<T> = Result<T, String>;

impl Value {
    pub fn undefined(name: &str) -> Self {
        Self::Undefined(name.into())
    }

    pub fn seq(kind: Kind, items: Vec<Self>) -> Outcome<Self> {
        Self::made(kind, items, &[])
    }

    /// A tuple whose items have these names.
    pub fn named(names: &'static [&'static str], items: Vec<Self>) -> Outcome<Self> {
        Self::made(Kind::Tuple, items, names)
    }

    fn made(kind: Kind, items: Vec<Self>, names: &'static [&'static str]) -> Outcome<Self> {
        let depth = deeper(items.iter())?;
        let shares = items.iter().any(Self::shares);
        Ok(Self::Seq(Rc::new(Seq { kind, items, names, depth, shares, used: Cell::new(false) })))
    }

    pub fn list(items: Vec<Self>) -> Outcome<Self> {
        Self::seq(Kind::List, items)
    }

    pub fn dict(entries: impl IntoIterator<Item = (Self, Self)>) -> Outcome<Self> {
        let mut dict = Dict::default();
        for (key, value) in entries {
            dict.insert(key, value)?;
        }
        Ok(Self::Dict(Rc::new(dict)))
    }

    pub fn is_undefined(&self) -> bool {
        matches!(self, Self::Undefined(_))
    }

    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::Str(text) => Some(text),
            _ => None,
        }
    }

    pub fn as_int(&self) -> Option<i128> {
        match self {
            Self::Int(number) => Some(*number),
            Self::Bool(value) => Some(i128::from(*value)),
            _ => None,
        }
    }

    pub fn as_float(&self) -> Option<f64> {
        match self {
            Self::Float(number) => Some(*number),
            _ => self.as_int().map(|number| number as f64),
        }
    }

    pub fn is_true(&self) -> bool {
        match self {
            Self::Undefined(_) | Self::None => false,
            Self::Bool(value) => *value,
            Self::Int(number) => *number != 0,
            Self::Float(number) => *number != 0.0,
            Self::Str(text) => !text.is_empty(),
            Self::Seq(seq) => seq.kind == Kind::Generator || !seq.items.is_empty(),
            Self::Dict(dict) => !dict.entries.is_empty(),
            _ => true,
        }
    }

    /// Python's name of the type.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Undefined(_) => "Undefined",
            Self::None => "NoneType",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Float(_) => "float",
            Self::Str(_) => "str",
            Self::Seq(seq) => match seq.kind {
                Kind::List => "list",
                Kind::Tuple => "tuple",
                Kind::Generator => "generator",
                Kind::Range => "range",
                Kind::Keys => "dict_keys",
                Kind::Values => "dict_values",
                Kind::Items => "dict_items",
            },
            Self::Dict(_) => "dict",
            Self::Namespace(_) => "Namespace",
            Self::Loop(_) => "LoopContext",
            Self::Macro(_) => "Macro",
            Self::Method(_) | Self::Function(_) => "function",
            Self::Cycler(_) => "Cycler",
            Self::Joiner(_) => "Joiner",
        }
    }

    fn depth(&self) -> u16 {
        match self {
            Self::Seq(seq) => seq.depth,
            Self::Dict(dict) => dict.depth,
            Self::Method(of) => of.0.depth(),
            _ => 0,
        }
    }

    /// True if it holds something that changes, which a namespace may therefore not hold: it could then hold itself.
    pub fn shares(&self) -> bool {
        match self {
            Self::Namespace(_)
            | Self::Loop(_)
            | Self::Macro(_)
            | Self::Cycler(_)
            | Self::Joiner(_) => true,
            Self::Seq(seq) => seq.shares,
            Self::Dict(dict) => dict.shares,
            Self::Method(of) => of.0.shares(),
            _ => false,
        }
    }

    /// The items that `for` walks.
    pub fn iterate(&self) -> Outcome<Vec<Self>> {
        Ok(match self {
            Self::Undefined(_) => Vec::new(),
            Self::Str(text) if text.chars().nth(LONGEST).is_some() => {
                return Err("a list becomes too long".to_owned());
            }
            Self::Str(text) => text.chars().map(|c| Self::from(c.to_string())).collect(),
            Self::Seq(seq) if seq.kind == Kind::Generator && seq.used.replace(true) => Vec::new(),
            Self::Seq(seq) => seq.items.clone(),
            Self::Dict(dict) => dict.entries.iter().map(|(key, _)| key.clone()).collect(),
            _ => return Err(format!("'{}' object is not iterable", self.type_name())),
        })
    }

    pub fn len(&self) -> Outcome<usize> {
        Ok(match self {
            Self::Undefined(_) => 0,
            Self::Str(text) => text.chars().count(),
            Self::Seq(seq) if seq.kind != Kind::Generator => seq.items.len(),
            Self::Dict(dict) => dict.entries.len(),
            _ => return Err(format!("object of type '{}' has no len()", self.type_name())),
        })
    }
}

impl<T: Into<Arc<str>>> From<T> for Value {
    fn from(text: T) -> Self {
        Self::Str(text.into())
    }
}

fn deeper<'a>(items: impl Iterator<Item = &'a Value>) -> Outcome<u16> {
    let depth = 1 + items.map(Value::depth).max().unwrap_or(0);
    if depth > DEEPEST {
        return Err(format!("a value holds values {DEEPEST} deep, which is the most"));
    }
    Ok(depth)
}

impl Dict {
    fn place(&self, key: &Value) -> Option<usize> {
        if let (Value::Str(key), Some(index)) = (key, &self.index) {
            return index.get(key).copied();
        }
        self.entries.iter().position(|(own, _)| equal(own, key))
    }

    pub fn get(&self, key: &Value) -> Option<&Value> {
        self.place(key).map(|at| &self.entries[at].1)
    }

    pub fn by_name(&self, name: &str) -> Option<&Value> {
        match &self.index {
            Some(index) => index.get(name).map(|&at| &self.entries[at].1),
            None => {
                self.entries.iter().find(|(key, _)| key.as_str() == Some(name)).map(|(_, it)| it)
            }
        }
    }

    pub fn insert(&mut self, key: Value, value: Value) -> Outcome<()> {
        if matches!(&key, Value::Dict(_))
            || matches!(&key, Value::Seq(seq) if seq.kind == Kind::List)
        {
            return Err(format!("unhashable type: '{}'", key.type_name()));
        }
        self.depth = self.depth.max(deeper([&key, &value].into_iter())?);
        self.shares |= value.shares();
        match self.place(&key) {
            Some(at) => self.entries[at].1 = value,
            None => {
                if let (Some(index), Value::Str(name)) = (&mut self.index, &key) {
                    index.insert(name.clone(), self.entries.len());
                }
                self.entries.push((key, value));
                if self.index.is_none() && self.entries.len() >= INDEXED {
                    let names = self.entries.iter().enumerate();
                    let names = names.filter_map(|(at, (key, _))| match key {
                        Value::Str(name) => Some((name.clone(), at)),
                        _ => None,
                    });
                    self.index = Some(names.collect());
                }
            }
        }
        Ok(())
    }
}

/// A row's value as a template sees it.
///
/// # Errors
/// Values too deep in each other.
pub(super) fn of_row(value: &minijinja::Value, depth: u16) -> Outcome<Value> {
    use minijinja::value::ValueKind;
    if depth > DEEPEST {
        return Err(format!("a value holds values {DEEPEST} deep, which is the most"));
    }
    Ok(match value.kind() {
        ValueKind::Undefined => Value::undefined(""),
        ValueKind::None => Value::None,
        ValueKind::Bool => Value::Bool(value.is_true()),
        ValueKind::Number if value.is_integer() => match i128::try_from(value.clone()) {
            Ok(number) => Value::Int(number),
            Err(_) => Value::Float(f64::try_from(value.clone()).unwrap_or(f64::NAN)),
        },
        ValueKind::Number => Value::Float(f64::try_from(value.clone()).unwrap_or(f64::NAN)),
        ValueKind::String => Value::from(value.as_str().unwrap_or_default()),
        ValueKind::Map => {
            let keys = value.try_iter().map_err(|error| error.to_string())?;
            let mut entries = Vec::new();
            for key in keys {
                let item = value.get_item(&key).map_err(|error| error.to_string())?;
                entries.push((of_row(&key, depth + 1)?, of_row(&item, depth + 1)?));
            }
            Value::dict(entries)?
        }
        _ => {
            let items = value.try_iter().map_err(|error| error.to_string())?;
            Value::list(items.map(|item| of_row(&item, depth + 1)).collect::<Outcome<_>>()?)?
        }
    })
}

thread_local! {
    static LEFT: Cell<u64> = const { Cell::new(COMPARED) };
}

/// Sets the number of comparisons that are left to [`COMPARED`].
pub(super) fn count_comparisons() {
    LEFT.set(COMPARED);
}

/// Returns true if more values were compared than may be. What [`equal`] said since then isn't so.
pub(super) fn compares_too_much() -> bool {
    LEFT.get() == 0
}

/// Counts a comparison, of texts by their length; `false` where none is left.
fn count_comparison(one: &Value) -> bool {
    let cost = 1 + one.as_str().map_or(0, str::len) as u64 / 64;
    let left = LEFT.get().saturating_sub(cost);
    LEFT.set(left);
    left > 0
}

/// Python's `==`.
pub(super) fn equal(one: &Value, other: &Value) -> bool {
    if !count_comparison(one) {
        return false;
    }
    if let (Some(one), Some(other)) = (one.as_int(), other.as_int()) {
        return one == other;
    }
    if let (Some(one), Some(other)) = (one.as_float(), other.as_float()) {
        return one == other;
    }
    match (one, other) {
        (Value::Undefined(_), Value::Undefined(_)) | (Value::None, Value::None) => true,
        (Value::Str(one), Value::Str(other)) => one == other,
        (Value::Seq(one), Value::Seq(other)) => {
            Rc::ptr_eq(one, other)
                || one.kind == other.kind
                    && !matches!(one.kind, Kind::Generator | Kind::Values)
                    && one.items.len() == other.items.len()
                    && one.items.iter().zip(&other.items).all(|(one, other)| equal(one, other))
        }
        (Value::Dict(one), Value::Dict(other)) => {
            one.entries.len() == other.entries.len()
                && one
                    .entries
                    .iter()
                    .all(|(key, value)| other.get(key).is_some_and(|other| equal(value, other)))
        }
        (Value::Namespace(one), Value::Namespace(other)) => Rc::ptr_eq(one, other),
        (Value::Macro(one), Value::Macro(other)) => Rc::ptr_eq(one, other),
        (Value::Loop(one), Value::Loop(other)) => Rc::ptr_eq(one, other),
        _ => false,
    }
}

/// Variables, and those around them.
#[derive(Default)]
pub(super) struct Scope {
    variables: RefCell<HashMap<Arc<str>, Value>>,
    outer: Option<Rc<Self>>,
}

impl Scope {
    pub fn within(outer: &Rc<Self>) -> Rc<Self> {
        Rc::new(Self { outer: Some(outer.clone()), ..Self::default() })
    }

    pub fn set(&self, name: &str, value: Value) {
        self.variables.borrow_mut().insert(name.into(), value);
    }

    pub fn get(&self, name: &str) -> Option<Value> {
        let mut scope = self;
        loop {
            if let Some(value) = scope.variables.borrow().get(name) {
                return Some(value.clone());
            }
            scope = scope.outer.as_deref()?;
        }
    }
}

/// The variable `loop`.
pub(super) struct LoopState {
    pub items: Rc<Vec<Value>>,
    pub index: Cell<usize>,
    pub depth: usize,
    pub changed: RefCell<Option<Vec<Value>>>,
    /// The number of a recursive loop, and the scope that it is in.
    pub recursive: Option<(usize, Weak<Scope>)>,
}

/// Sets an attribute of a namespace.
///
/// # Errors
/// Values that can change, since the namespace could then hold itself, and names that begin with an underscore.
pub(super) fn store(of: &RefCell<Dict>, name: &str, value: Value) -> Outcome<()> {
    if value.shares() {
        return Err(format!("a namespace can't hold a {} in '{name}'", value.type_name()));
    }
    if name.starts_with('_') {
        return Err(format!("a namespace can't store '{name}', which begins with an underscore"));
    }
    of.borrow_mut().insert(Value::from(name), value)
}
