//! Python's operators, and how it prints values.

use std::cmp::Ordering;

use super::ast::{Comparison, Operator};
use super::format;
use super::print::{sized, text};
use super::value::{Kind, LARGEST, Outcome, Value, equal};

/// Python's order of two values.
///
/// # Errors
/// Values that Python doesn't order.
pub(super) fn order(one: &Value, other: &Value, symbol: &str) -> Outcome<Option<Ordering>> {
    if let (Some(one), Some(other)) = (one.as_int(), other.as_int()) {
        return Ok(Some(one.cmp(&other)));
    }
    if let (Some(one), Some(other)) = (one.as_float(), other.as_float()) {
        return Ok(one.partial_cmp(&other));
    }
    match (one, other) {
        (Value::Str(one), Value::Str(other)) => Ok(Some(one.cmp(other))),
        (Value::Seq(one), Value::Seq(other))
            if one.kind == other.kind && matches!(one.kind, Kind::List | Kind::Tuple) =>
        {
            for (one, other) in one.items.iter().zip(&other.items) {
                if !equal(one, other) {
                    return order(one, other, symbol);
                }
            }
            Ok(Some(one.items.len().cmp(&other.items.len())))
        }
        (Value::Undefined(name), _) | (_, Value::Undefined(name)) => Err(undefined(name)),
        _ => Err(format!(
            "'{symbol}' not supported between instances of '{}' and '{}'",
            one.type_name(),
            other.type_name()
        )),
    }
}

pub(super) fn undefined(name: &str) -> String {
    match name {
        "" => "the value is undefined".to_owned(),
        name => format!("'{name}' is undefined"),
    }
}

pub(super) fn compare(one: &Value, comparison: Comparison, other: &Value) -> Outcome<bool> {
    Ok(match comparison {
        Comparison::Equal => equal(one, other),
        Comparison::NotEqual => !equal(one, other),
        Comparison::Less => order(one, other, "<")? == Some(Ordering::Less),
        Comparison::LessEqual => {
            matches!(order(one, other, "<=")?, Some(Ordering::Less | Ordering::Equal))
        }
        Comparison::Greater => order(one, other, ">")? == Some(Ordering::Greater),
        Comparison::GreaterEqual => {
            matches!(order(one, other, ">=")?, Some(Ordering::Greater | Ordering::Equal))
        }
        Comparison::In => contains(other, one)?,
        Comparison::NotIn => !contains(other, one)?,
    })
}

/// Python's `item in of`.
///
/// # Errors
/// What holds no items, and a text that is asked for something else than a text.
pub(super) fn contains(of: &Value, item: &Value) -> Outcome<bool> {
    match of {
        Value::Str(text) => match item {
            Value::Str(part) => Ok(text.contains(&**part)),
            Value::Undefined(name) => Err(undefined(name)),
            _ => Err(format!(
                "'in <string>' requires string as left operand, not {}",
                item.type_name()
            )),
        },
        Value::Dict(dict) => Ok(dict.get(item).is_some()),
        Value::Undefined(_) => Ok(false),
        Value::Seq(_) => Ok(of.iterate()?.iter().any(|own| equal(own, item))),
        _ => Err(format!("argument of type '{}' is not iterable", of.type_name())),
    }
}

/// A binary operator.
///
/// # Errors
/// Types that Python has no such operator for, numbers of more than 127 bits, and values that are too large.
pub(super) fn binary(one: &Value, operator: Operator, other: &Value) -> Outcome<Value> {
    if operator == Operator::Concatenate {
        let mut joined = text(one)?;
        joined.push_str(&text(other)?);
        return Ok(Value::from(sized(joined)?));
    }
    if let Value::Undefined(name) = one {
        return Err(undefined(name));
    }
    if let (Value::Str(pattern), Operator::Remainder) = (one, operator) {
        return format::percent(pattern, other).map(Value::from);
    }
    if let Value::Undefined(name) = other {
        return Err(undefined(name));
    }
    if let (Some(one), Some(other)) = (one.as_int(), other.as_int()) {
        return integers(one, operator, other);
    }
    if let (Some(one), Some(other)) = (one.as_float(), other.as_float()) {
        return floats(one, operator, other);
    }
    match (one, operator, other) {
        (Value::Str(one), Operator::Add, Value::Str(other)) => {
            let mut text = String::with_capacity(one.len() + other.len());
            text.push_str(one);
            text.push_str(other);
            return Ok(Value::from(sized(text)?));
        }
        (Value::Seq(a), Operator::Add, Value::Seq(b))
            if a.kind == b.kind && matches!(a.kind, Kind::List | Kind::Tuple) =>
        {
            if a.items.len() + b.items.len() > LARGEST / 64 {
                return Err("a list becomes too long".to_owned());
            }
            return Value::seq(a.kind, [&a.items[..], &b.items[..]].concat());
        }
        (Value::Str(text), Operator::Multiply, times)
        | (times, Operator::Multiply, Value::Str(text)) => {
            if let Some(times) = times.as_int() {
                let times = usize::try_from(times).unwrap_or(0);
                if text.len().saturating_mul(times) > LARGEST {
                    return Err("a text becomes too long".to_owned());
                }
                return Ok(Value::from(text.repeat(times)));
            }
        }
        (Value::Seq(seq), Operator::Multiply, times)
        | (times, Operator::Multiply, Value::Seq(seq)) => {
            if let Some(times) =
                times.as_int().filter(|_| matches!(seq.kind, Kind::List | Kind::Tuple))
            {
                let times = usize::try_from(times).unwrap_or(0);
                if seq.items.len().saturating_mul(times) > LARGEST / 64 {
                    return Err("a list becomes too long".to_owned());
                }
                return Value::seq(
                    seq.kind,
                    (0..times).flat_map(|_| seq.items.iter().cloned()).collect(),
                );
            }
        }
        _ => {}
    }
    let symbol = match operator {
        Operator::Add => match (one, other) {
            (Value::Str(_), _) => {
                return Err(format!(
                    "can only concatenate str (not \"{}\") to str",
                    other.type_name()
                ));
            }
            _ => "+",
        },
        Operator::Subtract => "-",
        Operator::Multiply => "*",
        Operator::Divide => "/",
        Operator::FloorDivide => "//",
        Operator::Remainder => "%",
        Operator::Power => "** or pow()",
        Operator::Concatenate => "~",
    };
    Err(format!(
        "unsupported operand type(s) for {symbol}: '{}' and '{}'",
        one.type_name(),
        other.type_name()
    ))
}

fn integers(one: i128, operator: Operator, other: i128) -> Outcome<Value> {
    let zero = || "division by zero".to_owned();
    let large = || "a number becomes larger than 127 bits".to_owned();
    let made = match operator {
        Operator::Add => one.checked_add(other),
        Operator::Subtract => one.checked_sub(other),
        Operator::Multiply => one.checked_mul(other),
        Operator::Divide => {
            return if other == 0 {
                Err(zero())
            } else {
                Ok(Value::Float(one as f64 / other as f64))
            };
        }
        Operator::FloorDivide if other == 0 => return Err(zero()),
        Operator::Remainder if other == 0 => return Err(zero()),
        Operator::FloorDivide => one.checked_div(other).map(|quotient| {
            if one % other != 0 && (one < 0) != (other < 0) { quotient - 1 } else { quotient }
        }),
        Operator::Remainder => one
            .checked_rem(other)
            .map(|rest| if rest != 0 && (rest < 0) != (other < 0) { rest + other } else { rest }),
        Operator::Power if other < 0 => return floats(one as f64, operator, other as f64),
        Operator::Power => u32::try_from(other).ok().and_then(|other| one.checked_pow(other)),
        Operator::Concatenate => None,
    };
    made.map(Value::Int).ok_or_else(large)
}

fn floats(one: f64, operator: Operator, other: f64) -> Outcome<Value> {
    let divides =
        matches!(operator, Operator::Divide | Operator::FloorDivide | Operator::Remainder);
    if divides && other == 0.0 {
        return Err("float division by zero".to_owned());
    }
    Ok(Value::Float(match operator {
        Operator::Add => one + other,
        Operator::Subtract => one - other,
        Operator::Multiply => one * other,
        Operator::Divide => one / other,
        Operator::FloorDivide => (one / other).floor(),
        Operator::Remainder => {
            let rest = one % other;
            if rest != 0.0 && (rest < 0.0) != (other < 0.0) { rest + other } else { rest }
        }
        Operator::Power => one.powf(other),
        Operator::Concatenate => return Err("a number isn't a text".to_owned()),
    }))
}
