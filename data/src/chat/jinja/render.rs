//! Renders a template's tree, within bounds on time, depth and size.

mod expressions;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use chrono::NaiveDate;

use super::ast::{Expr, Node, NodeKind, Target, Tree};
use super::print::text;
use super::value::{
    Dict, LARGEST, LoopState, Macro, Outcome, Scope, Value, compares_too_much, count_comparisons,
    equal, store,
};
use super::{Error, MARKS};

/// Steps that a rendering may take, so that it ends.
const STEPS: u64 = 2_000_000;
/// Expressions and statements that are evaluated within each other at most.
const DEEPEST: usize = 2500;

enum Flow {
    Next,
    Break,
    Continue,
}

/// Arguments of a call.
#[derive(Default)]
pub(super) struct Called {
    pub list: Vec<Value>,
    pub named: Vec<(String, Value)>,
}

impl Called {
    /// The arguments by the names of parameters; undefined ones are missing.
    ///
    /// # Errors
    /// More than there are parameters, and names that aren't known.
    pub fn by_name<const N: usize>(
        self,
        of: &str,
        names: [&str; N],
    ) -> Outcome<[Option<Value>; N]> {
        let mut found = [const { None }; N];
        if self.list.len() > N {
            return Err(format!(
                "{of} takes at most {N} arguments, and {} are given",
                self.list.len()
            ));
        }
        for (place, value) in found.iter_mut().zip(self.list) {
            *place = Some(value);
        }
        for (name, value) in self.named {
            match names.iter().position(|own| *own == name) {
                Some(at) if found[at].is_none() => found[at] = Some(value),
                Some(_) => return Err(format!("{of} got several values for '{name}'")),
                None => return Err(format!("{of} has no argument '{name}'")),
            }
        }
        Ok(found)
    }
}

/// A rendered template.
pub(super) struct Rendered {
    pub text: String,
    /// Of each message that a loop walked, its number, and the bytes that the loop wrote for it.
    pub parts: Vec<(usize, std::ops::Range<usize>)>,
}

/// Renders `tree` with these variables.
///
/// # Errors
/// What the template refuses, and bounds that it exceeds.
pub(super) fn render(
    tree: &Tree,
    variables: Vec<(String, Value)>,
    date: NaiveDate,
) -> Result<Rendered, Error> {
    let mut messages = HashMap::new();
    let root = Rc::new(Scope::default());
    for (name, value) in variables {
        if let (Value::Seq(seq), "messages") = (&value, name.as_str()) {
            for (number, message) in seq.items.iter().enumerate() {
                if let Value::Dict(dict) = message {
                    messages.insert(Rc::as_ptr(dict), number);
                }
            }
        }
        root.set(&name, value);
    }
    let steps = STEPS + 20_000 * messages.len() as u64;
    let mut renderer = Renderer {
        tree,
        date,
        out: String::new(),
        captured: 0,
        steps,
        made: 0,
        depth: 0,
        line: 1,
        messages,
        parts: Vec::new(),
    };
    count_comparisons();
    match renderer.nodes(&tree.nodes, &root).and_then(|_| renderer.step(0)) {
        Ok(()) => Ok(Rendered { text: renderer.out, parts: renderer.parts }),
        Err(message) => Err(Error { message, line: renderer.line }),
    }
}

pub(super) struct Renderer<'a> {
    tree: &'a Tree,
    pub date: NaiveDate,
    out: String,
    /// Blocks around, whose text is a value.
    captured: usize,
    steps: u64,
    /// Bytes of texts that were made so far.
    made: usize,
    depth: usize,
    line: usize,
    messages: HashMap<*const Dict, usize>,
    parts: Vec<(usize, std::ops::Range<usize>)>,
}

impl Renderer<'_> {
    /// Counts steps, and refuses more than a rendering may take.
    pub fn step(&mut self, count: usize) -> Outcome<()> {
        match self.steps.checked_sub(count as u64) {
            Some(left) if !compares_too_much() => {
                self.steps = left;
                Ok(())
            }
            _ => Err("the template takes too many steps".to_owned()),
        }
    }

    fn write(&mut self, text: &str) -> Outcome<()> {
        self.step(text.len() / 64)?;
        if self.out.len() + text.len() > LARGEST {
            return Err(format!("it writes more than {LARGEST} bytes"));
        }
        self.out.push_str(text);
        Ok(())
    }

    fn deeper<T>(&mut self, work: impl FnOnce(&mut Self) -> Outcome<T>) -> Outcome<T> {
        self.step(1)?;
        if self.depth >= DEEPEST {
            return Err(format!("more than {DEEPEST} expressions are within each other"));
        }
        self.depth += 1;
        let result = work(self);
        self.depth -= 1;
        result
    }

    fn nodes(&mut self, nodes: &[Node], scope: &Rc<Scope>) -> Outcome<Flow> {
        for node in nodes {
            self.line = node.line;
            match self.deeper(|own| own.node(&node.kind, scope))? {
                Flow::Next => {}
                other => return Ok(other),
            }
        }
        Ok(Flow::Next)
    }

    fn node(&mut self, node: &NodeKind, scope: &Rc<Scope>) -> Outcome<Flow> {
        match node {
            NodeKind::Text(text) => self.write(text)?,
            NodeKind::Print(expr) => {
                let value = self.eval(expr, scope)?;
                match &value {
                    Value::Str(text) => self.write(text)?,
                    value => self.write(&text(value)?)?,
                }
            }
            NodeKind::If(branches, otherwise) => {
                for (condition, nodes) in branches {
                    if self.eval(condition, scope)?.is_true() {
                        return self.nodes(nodes, scope);
                    }
                }
                return self.nodes(otherwise, scope);
            }
            NodeKind::For(number) => {
                let looped = &self.tree.loops[*number];
                let over = self.eval(&looped.over, scope)?;
                self.walk(*number, &over, scope, 0)?;
            }
            NodeKind::Set(target, expr) => {
                let value = self.eval(expr, scope)?;
                self.assign(target, value, scope)?;
            }
            NodeKind::SetBlock(target, filters, body) => {
                let inner = Scope::within(scope);
                let text = self.capture(|own| own.nodes(body, &inner))?;
                let value = match filters {
                    None => Value::from(text),
                    Some(filters) => self.filtered(filters, Value::from(text), scope)?,
                };
                self.assign(target, value, scope)?;
            }
            NodeKind::Macro(number) => {
                let value =
                    Value::Macro(Rc::new(Macro { number: *number, scope: Rc::downgrade(scope) }));
                scope.set(&self.tree.macros[*number].name, value);
            }
            NodeKind::Call(call, number) => {
                let Expr::Call(of, args) = call else { return Err("a call is missing".to_owned()) };
                let of = self.eval(of, scope)?;
                let mut called = self.args(args, scope)?;
                let block =
                    Value::Macro(Rc::new(Macro { number: *number, scope: Rc::downgrade(scope) }));
                called.named.push(("caller".to_owned(), block));
                let value = self.call(&of, called)?;
                self.write(&text(&value)?)?;
            }
            NodeKind::FilterBlock(filters, body) => {
                let inner = Scope::within(scope);
                let text_of = self.capture(|own| own.nodes(body, &inner))?;
                let value = self.filtered(filters, Value::from(text_of), scope)?;
                self.write(&text(&value)?)?;
            }
            NodeKind::With(targets, body) => {
                let inner = Scope::within(scope);
                for (target, expr) in targets {
                    let value = self.eval(expr, scope)?;
                    self.assign(target, value, &inner)?;
                }
                return self.nodes(body, &inner);
            }
            NodeKind::Scoped(body) => return self.nodes(body, &Scope::within(scope)),
            NodeKind::Generation(body) => {
                let inner = Scope::within(scope);
                let text = self.capture(|own| own.nodes(body, &inner))?;
                self.write(&format!("{}{text}{}", MARKS[0], MARKS[1]))?;
            }
            NodeKind::Break => return Ok(Flow::Break),
            NodeKind::Continue => return Ok(Flow::Continue),
        }
        Ok(Flow::Next)
    }

    /// The text that `work` writes.
    fn capture<T>(&mut self, work: impl FnOnce(&mut Self) -> Outcome<T>) -> Outcome<String> {
        let before = std::mem::take(&mut self.out);
        self.captured += 1;
        let result = work(self);
        self.captured -= 1;
        let text = std::mem::replace(&mut self.out, before);
        result?;
        self.account(text.len())?;
        Ok(text)
    }

    /// Counts the bytes of a text that was made.
    fn account(&mut self, bytes: usize) -> Outcome<()> {
        self.made = self.made.saturating_add(bytes);
        self.step(bytes / 16)
    }

    fn assign(&mut self, target: &Target, value: Value, scope: &Rc<Scope>) -> Outcome<()> {
        match target {
            Target::Name(name) => scope.set(name, value),
            Target::Attribute(name, attribute) => {
                let Some(Value::Namespace(of)) = scope.get(name) else {
                    return Err(format!(
                        "cannot assign attribute on '{name}', which is no namespace"
                    ));
                };
                store(&of, attribute, value)?;
            }
            Target::Tuple(targets) => {
                let values = value.iterate()?;
                if values.len() != targets.len() {
                    return Err(format!(
                        "expected {} values to unpack, got {}",
                        targets.len(),
                        values.len()
                    ));
                }
                for (target, value) in targets.iter().zip(values) {
                    self.assign(target, value, scope)?;
                }
            }
        }
        Ok(())
    }

    fn walk(
        &mut self,
        number: usize,
        over: &Value,
        scope: &Rc<Scope>,
        depth: usize,
    ) -> Outcome<()> {
        let looped = &self.tree.loops[number];
        let mut items = over.iterate()?;
        self.step(items.len())?;
        if let Some(filter) = &looped.filter {
            let mut kept = Vec::new();
            for item in items {
                let inner = Scope::within(scope);
                self.assign(&looped.target, item.clone(), &inner)?;
                if self.eval(filter, &inner)?.is_true() {
                    kept.push(item);
                }
            }
            items = kept;
        }
        if items.is_empty() {
            self.nodes(&looped.otherwise, &Scope::within(scope))?;
            return Ok(());
        }
        let items = Rc::new(items);
        let recursive = looped.recursive.then(|| (number, Rc::downgrade(scope)));
        let state = Rc::new(LoopState {
            items: items.clone(),
            index: Cell::new(0),
            depth,
            changed: RefCell::new(None),
            recursive,
        });
        let mut result = Ok(());
        for (index, item) in items.iter().enumerate() {
            state.index.set(index);
            let inner = Scope::within(scope);
            inner.set("loop", Value::Loop(state.clone()));
            let message = match item {
                Value::Dict(dict) if self.captured == 0 => {
                    self.messages.get(&Rc::as_ptr(dict)).copied()
                }
                _ => None,
            };
            let start = self.out.len();
            let flow = self
                .assign(&looped.target, item.clone(), &inner)
                .and_then(|()| self.nodes(&looped.body, &inner));
            if let Some(message) = message {
                self.parts.push((message, start..self.out.len()));
            }
            match flow {
                Ok(Flow::Break) => break,
                Ok(_) => {}
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        result
    }
}

fn size(value: &Value) -> usize {
    match value {
        Value::Str(text) => text.len(),
        Value::Seq(seq) => 16 * seq.items.len(),
        Value::Dict(dict) => 16 * dict.entries.len(),
        _ => 0,
    }
}

/// True if two rows of values are the same.
pub(super) fn alike(one: &[Value], other: &[Value]) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(one, other)| equal(one, other))
}
