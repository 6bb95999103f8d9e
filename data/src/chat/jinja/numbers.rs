//! Numbers as Python reads and rounds them.

use super::methods::texts::is_space;
use super::value::{Outcome, Value};

/// Decimal digits after the point that any number has at most.
const DIGITS: i32 = 1074;

/// A number as Python's `float` reads it.
pub(super) fn number(text: &str) -> Option<f64> {
    let text = text.trim_matches(is_space).replace('_', "");
    let plain = text.trim_start_matches(['+', '-']).to_ascii_lowercase();
    match plain.as_str() {
        "inf" | "infinity" | "nan" => plain
            .replace("infinity", "inf")
            .parse()
            .ok()
            .map(|number: f64| if text.starts_with('-') { -number } else { number }),
        _ => plain
            .starts_with(|c: char| c.is_ascii_digit() || c == '.')
            .then(|| text.parse().ok())?,
    }
}

/// A whole number as Python's `int` reads it.
pub(super) fn integer(text: &str, base: u32) -> Option<i128> {
    let text = text.trim_matches(is_space).replace('_', "");
    let prefix = match base {
        2 => "0b",
        8 => "0o",
        16 => "0x",
        _ => "",
    };
    let (sign, digits) = match text.strip_prefix(['+', '-']) {
        Some(digits) => (&text[..1], digits),
        None => ("", &text[..]),
    };
    let digits = digits.strip_prefix(prefix).unwrap_or(digits);
    i128::from_str_radix(&format!("{sign}{digits}"), base).ok()
}

/// The whole part of a number; `None` if it's too large.
pub(super) fn truncated(number: f64) -> Option<i128> {
    (number.is_finite() && number.abs() < 1e38).then(|| number.trunc() as i128)
}

/// A number as Jinja's `round` rounds it.
pub(super) fn rounded(input: &Value, number: f64, precision: i32, method: &str) -> Outcome<Value> {
    let scale = 10_f64.powi(precision);
    match method {
        "ceil" => Ok(Value::Float((number * scale).ceil() / scale)),
        "floor" => Ok(Value::Float((number * scale).floor() / scale)),
        "common" => Ok(match input.as_int() {
            Some(whole) if precision >= 0 => Value::Int(whole),
            Some(_) => Value::Int(((number * scale).round_ties_even() / scale) as i128),
            // As Python rounds: the decimal digits of the number itself, ties to even.
            None if precision >= 0 => {
                let digits = precision.min(DIGITS) as usize;
                Value::Float(format!("{number:.digits$}").parse().unwrap_or(number))
            }
            None => Value::Float((number * scale).round_ties_even() / scale),
        }),
        _ => Err("method must be common, ceil or floor".to_owned()),
    }
}
