//! `tojson`, as Python's `json.dumps` writes it.

use std::fmt::Write as _;

use super::operators::{order, undefined};
use super::print::float;
use super::value::{Kind, LARGEST, Outcome, Value};

/// Options of written JSON.
pub(super) struct Options {
    pub ascii: bool,
    pub indent: Option<String>,
    pub separators: [String; 2],
    pub sorted: bool,
}

/// A value as JSON, `level` deep.
///
/// # Errors
/// What JSON doesn't have, and a text that becomes too large.
pub(super) fn write(
    value: &Value,
    options: &Options,
    level: usize,
    to: &mut String,
) -> Outcome<()> {
    if to.len() > LARGEST {
        return Err(format!("a text becomes longer than {LARGEST} bytes"));
    }
    let line = |level: usize, to: &mut String| {
        if let Some(indent) = &options.indent {
            to.push('\n');
            to.push_str(&indent.repeat(level));
        }
    };
    match value {
        Value::None => to.push_str("null"),
        Value::Bool(value) => to.push_str(if *value { "true" } else { "false" }),
        Value::Int(number) => drop(write!(to, "{number}")),
        Value::Float(number) => to.push_str(&number_text(*number)),
        Value::Str(text) => string(text, options.ascii, to),
        Value::Seq(seq) if matches!(seq.kind, Kind::List | Kind::Tuple) => {
            to.push('[');
            for (at, item) in seq.items.iter().enumerate() {
                to.push_str(if at > 0 { &options.separators[0] } else { "" });
                line(level + 1, to);
                write(item, options, level + 1, to)?;
            }
            if !seq.items.is_empty() {
                line(level, to);
            }
            to.push(']');
        }
        Value::Dict(dict) => {
            to.push('{');
            let mut entries: Vec<&(Value, Value)> = dict.entries.iter().collect();
            if options.sorted {
                let mut failed = None;
                entries.sort_by(|(one, _), (other, _)| {
                    order(one, other, "<")
                        .unwrap_or_else(|error| {
                            failed.get_or_insert(error);
                            None
                        })
                        .unwrap_or(std::cmp::Ordering::Equal)
                });
                if let Some(error) = failed {
                    return Err(error);
                }
            }
            for (at, (key, item)) in entries.into_iter().enumerate() {
                to.push_str(if at > 0 { &options.separators[0] } else { "" });
                line(level + 1, to);
                let key = match key {
                    Value::Str(text) => text.to_string(),
                    Value::Bool(true) => "true".to_owned(),
                    Value::Bool(false) => "false".to_owned(),
                    Value::None => "null".to_owned(),
                    Value::Int(number) => number.to_string(),
                    Value::Float(number) => number_text(*number),
                    other => {
                        return Err(format!(
                            "keys must be str, int, float, bool or None, not {}",
                            other.type_name()
                        ));
                    }
                };
                string(&key, options.ascii, to);
                to.push_str(&options.separators[1]);
                write(item, options, level + 1, to)?;
            }
            if !dict.entries.is_empty() {
                line(level, to);
            }
            to.push('}');
        }
        Value::Undefined(name) => return Err(undefined(name)),
        other => {
            return Err(format!("Object of type {} is not JSON serializable", other.type_name()));
        }
    }
    Ok(())
}

fn number_text(number: f64) -> String {
    match number {
        _ if number.is_nan() => "NaN".to_owned(),
        f64::INFINITY => "Infinity".to_owned(),
        f64::NEG_INFINITY => "-Infinity".to_owned(),
        _ => float(number),
    }
}

fn string(text: &str, ascii: bool, to: &mut String) {
    to.push('"');
    for c in text.chars() {
        match c {
            '"' => to.push_str("\\\""),
            '\\' => to.push_str("\\\\"),
            '\n' => to.push_str("\\n"),
            '\r' => to.push_str("\\r"),
            '\t' => to.push_str("\\t"),
            '\x08' => to.push_str("\\b"),
            '\x0c' => to.push_str("\\f"),
            c if u32::from(c) < 0x20 || (ascii && u32::from(c) >= 0x7f && c != '\x7f') => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    let _ = write!(to, "\\u{unit:04x}");
                }
            }
            c => to.push(c),
        }
    }
    to.push('"');
}
