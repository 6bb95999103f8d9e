//! Attributes, items and slices of values, and the methods of Python's texts, lists and dictionaries.

pub(super) mod texts;

use std::rc::Rc;

use super::operators::undefined;
use super::print::represent;
use super::render::{Called, Renderer, alike};
use super::value::{Dict, Kind, LoopState, Outcome, Seq, Value, equal};
use texts::of_text;

const OF_TEXTS: [&str; 47] = [
    "capitalize",
    "casefold",
    "center",
    "count",
    "encode",
    "endswith",
    "expandtabs",
    "find",
    "format",
    "format_map",
    "index",
    "isalnum",
    "isalpha",
    "isascii",
    "isdecimal",
    "isdigit",
    "isidentifier",
    "islower",
    "isnumeric",
    "isprintable",
    "isspace",
    "istitle",
    "isupper",
    "join",
    "ljust",
    "lower",
    "lstrip",
    "maketrans",
    "partition",
    "removeprefix",
    "removesuffix",
    "replace",
    "rfind",
    "rindex",
    "rjust",
    "rpartition",
    "rsplit",
    "rstrip",
    "split",
    "splitlines",
    "startswith",
    "strip",
    "swapcase",
    "title",
    "translate",
    "upper",
    "zfill",
];
const OF_DICTS: [&str; 11] = [
    "get",
    "items",
    "keys",
    "values",
    "copy",
    "pop",
    "popitem",
    "update",
    "setdefault",
    "clear",
    "fromkeys",
];
const OF_LISTS: [&str; 11] = [
    "index", "count", "copy", "append", "extend", "insert", "pop", "remove", "clear", "reverse",
    "sort",
];
/// Methods that would change a value, which transformers' sandbox refuses too.
const CHANGING: [&str; 11] = [
    "append",
    "extend",
    "insert",
    "pop",
    "popitem",
    "remove",
    "clear",
    "reverse",
    "sort",
    "update",
    "setdefault",
];

/// `of.name`.
///
/// # Errors
/// An undefined value, and names that begin with two underscores.
pub(super) fn attribute(of: &Value, name: &str) -> Outcome<Value> {
    if let Value::Undefined(own) = of {
        return Err(undefined(own));
    }
    if name.starts_with("__") {
        return Err(format!("access to attribute '{name}' is unsafe"));
    }
    if let Some(found) = own_attribute(of, name)? {
        return Ok(found);
    }
    Ok(match of {
        Value::Dict(dict) => dict.by_name(name).cloned().unwrap_or_else(|| Value::undefined(name)),
        _ => Value::undefined(name),
    })
}

/// An attribute that isn't an item.
fn own_attribute(of: &Value, name: &str) -> Outcome<Option<Value>> {
    let method = |names: &[&str]| {
        names.contains(&name).then(|| Value::Method(Rc::new((of.clone(), name.to_owned()))))
    };
    Ok(match of {
        Value::Str(_) => method(&OF_TEXTS),
        Value::Dict(_) => method(&OF_DICTS),
        Value::Seq(seq) => match seq.kind {
            Kind::List => method(&OF_LISTS),
            Kind::Tuple if seq.names.contains(&name) => {
                let at = seq.names.iter().position(|own| *own == name);
                at.and_then(|at| seq.items.get(at).cloned())
            }
            Kind::Tuple | Kind::Range => method(&["index", "count"]),
            _ => None,
        },
        Value::Int(_) | Value::Bool(_) => method(&["bit_length", "is_integer"]),
        Value::Float(_) => method(&["is_integer"]),
        Value::Namespace(of) => of.borrow().by_name(name).cloned(),
        Value::Loop(state) => of_loop(state, of, name)?,
        Value::Cycler(cycler) => match name {
            "current" => cycler.0.get(cycler.1.get()).cloned(),
            _ => method(&["next", "reset"]),
        },
        _ => None,
    })
}

fn of_loop(state: &Rc<LoopState>, of: &Value, name: &str) -> Outcome<Option<Value>> {
    let (index, count) = (state.index.get(), state.items.len());
    let int = |number: usize| Some(Value::Int(number as i128));
    let neighbour = |at: Option<usize>, name| {
        let found = at.and_then(|at| state.items.get(at)).cloned();
        Some(found.unwrap_or_else(|| Value::undefined(name)))
    };
    Ok(match name {
        "index" => int(index + 1),
        "index0" => int(index),
        "revindex" => int(count - index),
        "revindex0" => int(count - index - 1),
        "first" => Some(Value::Bool(index == 0)),
        "last" => Some(Value::Bool(index + 1 == count)),
        "length" => int(count),
        "depth" => int(state.depth + 1),
        "depth0" => int(state.depth),
        "previtem" => neighbour(index.checked_sub(1), "there is no previous item"),
        "nextitem" => neighbour(Some(index + 1), "there is no next item"),
        "cycle" | "changed" => Some(Value::Method(Rc::new((of.clone(), name.to_owned())))),
        _ => None,
    })
}

/// The place of a Python index in `length` items.
fn place(index: i128, length: usize) -> Option<usize> {
    let index = if index < 0 { index + length as i128 } else { index };
    usize::try_from(index).ok().filter(|&index| index < length)
}

/// `of[index]`.
///
/// # Errors
/// An undefined value.
pub(super) fn item(of: &Value, index: &Value) -> Outcome<Value> {
    let found = match (of, index.as_int()) {
        (Value::Undefined(name), _) => return Err(undefined(name)),
        (Value::Dict(dict), _) => dict.get(index).cloned(),
        (Value::Seq(seq), Some(at))
            if matches!(seq.kind, Kind::List | Kind::Tuple | Kind::Range) =>
        {
            place(at, seq.items.len()).map(|at| seq.items[at].clone())
        }
        (Value::Str(text), Some(at)) => match usize::try_from(at) {
            Ok(at) => text.chars().nth(at),
            Err(_) => {
                let back = usize::try_from(-1 - at).unwrap_or(usize::MAX);
                text.chars().rev().nth(back)
            }
        }
        .map(|c| Value::from(c.to_string())),
        _ => None,
    };
    if let Some(found) = found {
        return Ok(found);
    }
    let Some(name) = index.as_str() else { return Ok(Value::undefined("")) };
    if name.starts_with("__") {
        return Err(format!("access to attribute '{name}' is unsafe"));
    }
    Ok(own_attribute(of, name)?.unwrap_or_else(|| Value::undefined(name)))
}

/// `of[start:stop:step]`.
///
/// # Errors
/// Values without slices, and bounds that aren't integers.
pub(super) fn slice(of: &Value, parts: &[Option<Value>; 3]) -> Outcome<Value> {
    let mut bounds = [None; 3];
    for (place, part) in bounds.iter_mut().zip(parts) {
        *place = match part {
            None | Some(Value::None) => None,
            Some(value) => Some(
                value
                    .as_int()
                    .ok_or("slice indices must be integers or None or have an __index__ method")?,
            ),
        };
    }
    let step = bounds[2].unwrap_or(1);
    if step == 0 {
        return Err("slice step cannot be zero".to_owned());
    }
    let places = |length: usize| -> Vec<usize> {
        let length = length as i128;
        let (least, most) = if step > 0 { (0, length) } else { (-1, length - 1) };
        let bound = |bound: Option<i128>, usual: i128| match bound {
            None => usual,
            Some(bound) => {
                (if bound < 0 { bound.saturating_add(length) } else { bound }).clamp(least, most)
            }
        };
        let (first, last) = if step > 0 { (0, length) } else { (length - 1, -1) };
        let (mut at, stop) = (bound(bounds[0], first), bound(bounds[1], last));
        let mut found = Vec::new();
        while (step > 0 && at < stop) || (step < 0 && at > stop) {
            found.push(at as usize);
            at = at.saturating_add(step);
        }
        found
    };
    match of {
        Value::Undefined(name) => Err(undefined(name)),
        Value::Str(text) => {
            let chars: Vec<char> = text.chars().collect();
            Ok(Value::from(places(chars.len()).into_iter().map(|at| chars[at]).collect::<String>()))
        }
        Value::Seq(seq) if matches!(seq.kind, Kind::List | Kind::Tuple | Kind::Range) => {
            let kind = if seq.kind == Kind::Range { Kind::List } else { seq.kind };
            let items = places(seq.items.len()).into_iter().map(|at| seq.items[at].clone());
            Value::seq(kind, items.collect())
        }
        // Jinja takes what can't be sliced for undefined.
        _ => Ok(Value::undefined("")),
    }
}

/// Calls a method.
///
/// # Errors
/// Methods that aren't supported or would change a value, and arguments that Python refuses.
pub(super) fn call(
    renderer: &mut Renderer<'_>,
    of: &Value,
    name: &str,
    called: Called,
) -> Outcome<Value> {
    if !matches!(of, Value::Str(_)) && CHANGING.contains(&name) {
        return Err(format!(
            "'{name}' of a {} isn't allowed: templates change no values",
            of.type_name()
        ));
    }
    match of {
        Value::Str(text) => {
            renderer.step(text.len() / 64)?;
            of_text(text, name, called)
        }
        Value::Dict(dict) => of_dict(dict, name, called),
        Value::Seq(seq) => of_list(seq, name, called),
        Value::Loop(state) if name == "cycle" => match called.list.len() {
            0 => Err("no items for cycling given".to_owned()),
            count => Ok(called.list[state.index.get() % count].clone()),
        },
        Value::Loop(state) => {
            let mut before = state.changed.borrow_mut();
            let same = before.as_ref().is_some_and(|before| alike(before, &called.list));
            *before = Some(called.list);
            Ok(Value::Bool(!same))
        }
        Value::Cycler(cycler) => {
            let at = cycler.1.get();
            cycler.1.set(if name == "next" { (at + 1) % cycler.0.len() } else { 0 });
            Ok(if name == "next" { cycler.0[at].clone() } else { Value::None })
        }
        Value::Float(number) => Ok(Value::Bool(number.fract() == 0.0)),
        other if name == "is_integer" => Ok(Value::Bool(other.as_int().is_some())),
        other => {
            let size = other.as_int().unwrap_or(0).unsigned_abs();
            Ok(Value::Int(i128::from(u128::BITS - size.leading_zeros())))
        }
    }
}

fn of_dict(dict: &Rc<Dict>, name: &str, called: Called) -> Outcome<Value> {
    let keys = || dict.entries.iter().map(|(key, _)| key.clone());
    let values = || dict.entries.iter().map(|(_, value)| value.clone());
    match name {
        "get" => {
            let [key, usual] = called.by_name("get", ["key", "default"])?;
            let found = dict.get(&key.ok_or("get expected at least 1 argument, got 0")?).cloned();
            Ok(found.or(usual).unwrap_or(Value::None))
        }
        "items" => {
            let pairs = dict
                .entries
                .iter()
                .map(|(key, value)| Value::seq(Kind::Tuple, vec![key.clone(), value.clone()]));
            Value::seq(Kind::Items, pairs.collect::<Outcome<_>>()?)
        }
        "keys" => Value::seq(Kind::Keys, keys().collect()),
        "values" => Value::seq(Kind::Values, values().collect()),
        "copy" => Ok(Value::Dict(dict.clone())),
        other => Err(format!("the method '{other}' of a dict isn't supported")),
    }
}

fn of_list(seq: &Rc<Seq>, name: &str, called: Called) -> Outcome<Value> {
    match name {
        "copy" => Ok(Value::Seq(seq.clone())),
        "count" => {
            let [item] = called.by_name("count", ["value"])?;
            let item = item.ok_or("count() takes exactly one argument (0 given)")?;
            Ok(Value::Int(seq.items.iter().filter(|own| equal(own, &item)).count() as i128))
        }
        "index" => {
            let [item, start, stop] = called.by_name("index", ["value", "start", "stop"])?;
            let item = item.ok_or("index expected at least 1 argument, got 0")?;
            let bound = |bound: Option<Value>, usual: usize| {
                let length = seq.items.len() as i128;
                bound.and_then(|it| it.as_int()).map_or(usual, |it| {
                    (if it < 0 { it + length } else { it }).clamp(0, length) as usize
                })
            };
            let (start, stop) = (bound(start, 0), bound(stop, seq.items.len()));
            let found = (start..stop).find(|&at| equal(&seq.items[at], &item));
            found.map(|at| Value::Int(at as i128)).ok_or_else(|| {
                let mut shown = String::new();
                let _ = represent(&item, &mut shown);
                format!("{shown:.100} is not in list")
            })
        }
        other => Err(format!(
            "the method '{other}' of a {} isn't supported",
            Value::Seq(seq.clone()).type_name()
        )),
    }
}
