//! Values as Python prints them.

use std::fmt::Write as _;

use super::value::{Kind, LARGEST, Outcome, Value};

/// A text that isn't too large.
pub(super) fn sized(text: String) -> Outcome<String> {
    match text.len() > LARGEST {
        true => Err(format!("a text becomes longer than {LARGEST} bytes")),
        false => Ok(text),
    }
}

/// Python's `str`.
///
/// # Errors
/// A text that becomes too large.
pub(super) fn text(value: &Value) -> Outcome<String> {
    match value {
        Value::Str(text) => Ok(text.to_string()),
        Value::Undefined(_) => Ok(String::new()),
        _ => {
            let mut text = String::new();
            represent(value, &mut text)?;
            Ok(text)
        }
    }
}

/// Python's `repr`.
///
/// # Errors
/// As [`text`].
pub(super) fn represent(value: &Value, to: &mut String) -> Outcome<()> {
    if to.len() > LARGEST {
        return Err(format!("a text becomes longer than {LARGEST} bytes"));
    }
    let mut list = |open: &str, items: &[Value], close: &str| -> Outcome<()> {
        to.push_str(open);
        for (at, item) in items.iter().enumerate() {
            to.push_str(if at > 0 { ", " } else { "" });
            represent(item, to)?;
        }
        to.push_str(close);
        Ok(())
    };
    match value {
        Value::Undefined(_) => to.push_str("Undefined"),
        Value::None => to.push_str("None"),
        Value::Bool(value) => to.push_str(if *value { "True" } else { "False" }),
        Value::Int(number) => drop(write!(to, "{number}")),
        Value::Float(number) => to.push_str(&float(*number)),
        Value::Str(text) => quoted(text, to),
        Value::Seq(seq) => match seq.kind {
            Kind::List => list("[", &seq.items, "]")?,
            Kind::Tuple => list("(", &seq.items, if seq.items.len() == 1 { ",)" } else { ")" })?,
            Kind::Keys => list("dict_keys([", &seq.items, "])")?,
            Kind::Values => list("dict_values([", &seq.items, "])")?,
            Kind::Items => list("dict_items([", &seq.items, "])")?,
            Kind::Range => {
                let end = seq.items.last().and_then(Value::as_int).map_or(0, |last| last + 1);
                let start = seq.items.first().and_then(Value::as_int).unwrap_or(0);
                let _ = write!(to, "range({start}, {end})");
            }
            Kind::Generator => return Err("a generator isn't printed; make it a list".to_owned()),
        },
        Value::Dict(dict) => {
            to.push('{');
            for (at, (key, value)) in dict.entries.iter().enumerate() {
                to.push_str(if at > 0 { ", " } else { "" });
                represent(key, to)?;
                to.push_str(": ");
                represent(value, to)?;
            }
            to.push('}');
        }
        _ => return Err(format!("a {} isn't printed", value.type_name())),
    }
    Ok(())
}

/// A text in quotes, as Python writes it.
fn quoted(text: &str, to: &mut String) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    to.push(quote);
    for c in text.chars() {
        match c {
            '\n' => to.push_str("\\n"),
            '\r' => to.push_str("\\r"),
            '\t' => to.push_str("\\t"),
            '\\' => to.push_str("\\\\"),
            c if c == quote => {
                to.push('\\');
                to.push(c);
            }
            c if is_printable(c) => to.push(c),
            c => {
                let code = u32::from(c);
                let _ = match code {
                    ..=0xff => write!(to, "\\x{code:02x}"),
                    0x100..=0xffff => write!(to, "\\u{code:04x}"),
                    _ => write!(to, "\\U{code:08x}"),
                };
            }
        }
    }
    to.push(quote);
}

/// Python's `str.isprintable` of a character, without unassigned ones.
pub(super) fn is_printable(c: char) -> bool {
    let code = u32::from(c);
    let hidden = c.is_control()
        || (c.is_whitespace() && c != ' ')
        || matches!(code, 0xad | 0x600..=0x605 | 0x61c | 0x6dd | 0x70f | 0x180e | 0x200b..=0x200f
            | 0x202a..=0x202e | 0x2060..=0x206f | 0xe000..=0xf8ff | 0xfeff | 0xfff0..=0xfffb | 0xe0000..=0xe0fff
            | 0xf0000..=0x10ffff)
        || code & 0xfffe == 0xfffe;
    !hidden
}

/// A float as Python writes it.
pub(super) fn float(number: f64) -> String {
    if number.is_nan() {
        return "nan".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        let plain = format!("{number}");
        return if plain.contains('.') { plain } else { plain + ".0" };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}
