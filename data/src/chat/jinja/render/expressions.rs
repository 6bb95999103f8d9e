//! Values of expressions.

use std::rc::Rc;

use super::super::ast::{Args, Expr, Literal, Operator};
use super::super::operators::{binary, compare, undefined};
use super::super::print::sized;
use super::super::value::{Kind, Macro, Outcome, Scope, Value};
use super::super::{filters, functions, methods, tested};
use super::{Called, Renderer, size};

impl Renderer<'_> {
    pub(super) fn args(&mut self, args: &Args, scope: &Rc<Scope>) -> Outcome<Called> {
        let mut called = Called::default();
        for expr in &args.list {
            called.list.push(self.eval(expr, scope)?);
        }
        for (name, expr) in &args.named {
            called.named.push((name.clone(), self.eval(expr, scope)?));
        }
        if let Some(list) = &args.more[0] {
            called.list.extend(self.eval(list, scope)?.iterate()?);
        }
        if let Some(named) = &args.more[1] {
            let Value::Dict(dict) = self.eval(named, scope)? else {
                return Err("argument after ** must be a mapping".to_owned());
            };
            for (name, value) in &dict.entries {
                let name = name.as_str().ok_or("keywords must be strings")?;
                called.named.push((name.to_owned(), value.clone()));
            }
        }
        Ok(called)
    }

    pub(super) fn filtered(
        &mut self,
        expr: &Expr,
        input: Value,
        scope: &Rc<Scope>,
    ) -> Outcome<Value> {
        match expr {
            Expr::Filter(inner, name, args) => {
                let input = match inner {
                    Some(inner) => self.filtered(inner, input, scope)?,
                    None => input,
                };
                let called = self.args(args, scope)?;
                filters::filter(self, name, input, called)
            }
            _ => Err("a filter is missing".to_owned()),
        }
    }

    pub(super) fn eval(&mut self, expr: &Expr, scope: &Rc<Scope>) -> Outcome<Value> {
        self.deeper(|own| own.value(expr, scope))
    }

    fn all(&mut self, exprs: &[Expr], scope: &Rc<Scope>) -> Outcome<Vec<Value>> {
        exprs.iter().map(|expr| self.eval(expr, scope)).collect()
    }

    fn value(&mut self, expr: &Expr, scope: &Rc<Scope>) -> Outcome<Value> {
        match expr {
            Expr::Literal(literal) => Ok(match literal {
                Literal::None => Value::None,
                Literal::Bool(value) => Value::Bool(*value),
                Literal::Int(number) => Value::Int(*number),
                Literal::Float(number) => Value::Float(*number),
                Literal::Str(text) => Value::Str(text.clone()),
            }),
            Expr::Name(name) => {
                Ok(scope.get(name).unwrap_or_else(|| match functions::named(name) {
                    Some(function) => Value::Function(function),
                    None => Value::undefined(name),
                }))
            }
            Expr::List(items) => Value::list(self.all(items, scope)?),
            Expr::Tuple(items) => Value::seq(Kind::Tuple, self.all(items, scope)?),
            Expr::Dict(entries) => {
                let mut made = Vec::with_capacity(entries.len());
                for (key, value) in entries {
                    made.push((self.eval(key, scope)?, self.eval(value, scope)?));
                }
                Value::dict(made)
            }
            Expr::Attribute(of, name) => methods::attribute(&self.eval(of, scope)?, name),
            Expr::Item(of, index) => {
                let of = self.eval(of, scope)?;
                methods::item(&of, &self.eval(index, scope)?)
            }
            Expr::Slice(of, parts) => {
                let of = self.eval(of, scope)?;
                let mut found = [None, None, None];
                for (place, part) in found.iter_mut().zip(parts.iter()) {
                    if let Some(part) = part {
                        *place = Some(self.eval(part, scope)?);
                    }
                }
                let made = methods::slice(&of, &found)?;
                self.step(made.len().unwrap_or(0) / 8)?;
                Ok(made)
            }
            Expr::Call(of, args) => {
                let of = self.eval(of, scope)?;
                let called = self.args(args, scope)?;
                self.call(&of, called)
            }
            Expr::Filter(of, name, args) => {
                let Some(of) = of else { return Err("a filter has no input".to_owned()) };
                let input = self.eval(of, scope)?;
                let called = self.args(args, scope)?;
                filters::filter(self, name, input, called)
            }
            Expr::Test(of, name, args, negated) => {
                let input = self.eval(of, scope)?;
                let called = self.args(args, scope)?;
                Ok(Value::Bool(tested::test(name, &input, &called.list)? != *negated))
            }
            Expr::Not(of) => Ok(Value::Bool(!self.eval(of, scope)?.is_true())),
            Expr::Negative(of) => match self.eval(of, scope)? {
                Value::Float(number) => Ok(Value::Float(-number)),
                Value::Undefined(name) => Err(undefined(&name)),
                other => match other.as_int().and_then(i128::checked_neg) {
                    Some(number) => Ok(Value::Int(number)),
                    None => Err(format!("bad operand type for unary -: '{}'", other.type_name())),
                },
            },
            Expr::Positive(of) => match self.eval(of, scope)? {
                Value::Float(number) => Ok(Value::Float(number)),
                Value::Undefined(name) => Err(undefined(&name)),
                other => match other.as_int() {
                    Some(number) => Ok(Value::Int(number)),
                    None => Err(format!("bad operand type for unary +: '{}'", other.type_name())),
                },
            },
            Expr::Binary(one, operator, other) => {
                let one = self.eval(one, scope)?;
                let other = self.eval(other, scope)?;
                self.operate(&one, *operator, &other)
            }
            Expr::And(one, other) => {
                let one = self.eval(one, scope)?;
                if one.is_true() { self.eval(other, scope) } else { Ok(one) }
            }
            Expr::Or(one, other) => {
                let one = self.eval(one, scope)?;
                if one.is_true() { Ok(one) } else { self.eval(other, scope) }
            }
            Expr::Compare(first, compared) => {
                let mut left = self.eval(first, scope)?;
                for (comparison, right) in compared {
                    let right = self.eval(right, scope)?;
                    self.step(size(&left).min(size(&right)) / 16)?;
                    if !compare(&left, *comparison, &right)? {
                        return Ok(Value::Bool(false));
                    }
                    left = right;
                }
                Ok(Value::Bool(true))
            }
            Expr::If(parts, otherwise) => {
                let [condition, then] = &**parts;
                if self.eval(condition, scope)?.is_true() {
                    return self.eval(then, scope);
                }
                match otherwise {
                    Some(otherwise) => self.eval(otherwise, scope),
                    None => Ok(Value::undefined("")),
                }
            }
        }
    }

    fn operate(&mut self, one: &Value, operator: Operator, other: &Value) -> Outcome<Value> {
        let made = binary(one, operator, other)?;
        self.produced(&made)?;
        Ok(made)
    }

    /// Counts a value that was made.
    pub fn produced(&mut self, value: &Value) -> Outcome<()> {
        match value {
            Value::Str(text) => self.account(text.len()),
            Value::Seq(seq) => self.step(seq.items.len() / 4),
            _ => Ok(()),
        }
    }

    /// Calls a function, a method or a macro.
    ///
    /// # Errors
    /// What can't be called, and those of what is called.
    pub fn call(&mut self, of: &Value, called: Called) -> Outcome<Value> {
        let made = match of {
            Value::Function(name) => functions::call(self, name, called),
            Value::Method(method) => methods::call(self, &method.0, &method.1, called),
            Value::Macro(of) => self.deeper(|own| own.call_macro(of, called)),
            Value::Loop(state) => {
                let Some((number, scope)) = &state.recursive else {
                    return Err("the loop isn't recursive".to_owned());
                };
                let scope = scope.upgrade().ok_or("the loop has ended")?;
                let [over] = called.by_name("loop", ["iterable"])?;
                let over = over.ok_or("loop needs what to walk")?;
                let (number, depth) = (*number, state.depth + 1);
                let text =
                    self.capture(|own| own.deeper(|own| own.walk(number, &over, &scope, depth)))?;
                Ok(Value::from(text))
            }
            Value::Joiner(joiner) => Ok(match joiner.1.replace(true) {
                true => joiner.0.clone(),
                false => Value::from(""),
            }),
            Value::Undefined(name) => Err(undefined(name)),
            other => Err(format!("'{}' object is not callable", other.type_name())),
        }?;
        self.produced(&made)?;
        Ok(made)
    }

    fn call_macro(&mut self, of: &Macro, called: Called) -> Outcome<Value> {
        let node = &self.tree.macros[of.number];
        let outer = of
            .scope
            .upgrade()
            .ok_or_else(|| format!("the macro '{}' is out of scope", node.name))?;
        let scope = Scope::within(&outer);
        let Called { list, mut named } = called;
        let mut list = list.into_iter();
        for (name, usual) in &node.parameters {
            let at = named.iter().position(|(own, _)| own == name);
            let value = match (list.next(), at) {
                (Some(_), Some(_)) => {
                    return Err(format!("macro '{}' got several values for '{name}'", node.name));
                }
                (Some(value), None) => value,
                (None, Some(at)) => named.swap_remove(at).1,
                (None, None) => match usual {
                    Some(usual) => self.eval(usual, &scope)?,
                    None => Value::undefined(name),
                },
            };
            scope.set(name, value);
        }
        let [varargs, kwargs, caller] = node.reads;
        let more: Vec<Value> = list.collect();
        if varargs {
            scope.set("varargs", Value::seq(Kind::Tuple, more)?);
        } else if !more.is_empty() {
            return Err(format!(
                "macro '{}' takes not more than {} argument(s)",
                node.name,
                node.parameters.len()
            ));
        }
        if let Some(at) = named.iter().position(|(name, _)| name == "caller") {
            let (_, block) = named.swap_remove(at);
            if !caller {
                return Err(format!(
                    "macro '{}' was invoked with a block, and has no caller",
                    node.name
                ));
            }
            scope.set("caller", block);
        } else if caller {
            scope.set("caller", Value::undefined("caller"));
        }
        if kwargs {
            let entries = named.into_iter().map(|(name, value)| (Value::from(name), value));
            scope.set("kwargs", Value::dict(entries)?);
        } else if let Some((name, _)) = named.first() {
            return Err(format!("macro '{}' takes no keyword argument '{name}'", node.name));
        }
        let line = self.line;
        let text = self.capture(|own| own.nodes(&node.body, &scope))?;
        self.line = line;
        Ok(Value::from(sized(text)?))
    }
}
