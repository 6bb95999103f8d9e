//! What transformers adds to Jinja for chat templates.

use std::fmt::Write as _;

use chrono::NaiveDate;
use chrono::format::{Item, StrftimeItems};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Environment, Error, ErrorKind, Output, State, Value};
use serde::Serialize;
use serde_json::ser::{Formatter, PrettyFormatter};

/// Name of a chat template in its environment.
pub(super) const CHAT: &str = "chat";
/// Characters that stand where a marked part begins and ends. Unicode never assigns them.
pub(super) const MARKS: [char; 2] = ['\u{fdd0}', '\u{fdd1}'];
/// The tags of a marked part, and the templates that stand in for them.
const TAGS: [(&str, &str); 2] = [("generation", "mark-begin"), ("endgeneration", "mark-end")];
/// Instructions that a rendering may take, so that a template ends.
const FUEL: u64 = 20_000_000;

/// An environment as transformers makes it, which takes today for `date`.
///
/// # Errors
/// None that is known.
pub(super) fn environment(date: NaiveDate) -> Result<Environment<'static>, Error> {
    let mut env = Environment::new();
    env.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    env.set_fuel(Some(FUEL));
    env.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    env.set_formatter(print);
    env.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    env.add_filter("tojson", to_json);
    // To Python, null isn't iterable: `tools is iterable` asks whether there are tools.
    env.add_test("iterable", |value: &Value| !value.is_none() && value.try_iter().is_ok());
    env.add_function("raise_exception", |message: String| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, message))
    });
    env.add_function("strftime_now", move |format: String| now(date, &format));
    Ok(env)
}

/// Adds the template `source`, whose line ends become newlines as in Jinja. Says whether it marks what the assistant says.
///
/// # Errors
/// Syntax that isn't Jinja's.
pub(super) fn add(env: &mut Environment<'static>, source: &str) -> Result<bool, Error> {
    for ((_, name), mark) in TAGS.iter().zip(MARKS) {
        env.add_template_owned(*name, mark.to_string())?;
    }
    let source = source.replace("\r\n", "\n").replace('\r', "\n");
    let replaced = marked(&source);
    let marks = replaced != source;
    env.add_template_owned(CHAT, replaced)?;
    Ok(marks)
}

/// `source` with an inclusion for each tag of a marked part: also a tag, so that white space around it is trimmed alike.
fn marked(source: &str) -> String {
    let mut text = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let inner = start + 2;
        let Some(end) = rest[inner..].find("%}").map(|end| inner + end) else { break };
        let inner = &rest[inner..end];
        let name = inner.trim_matches(['-', '+']).trim();
        text += &rest[..start];
        match TAGS.iter().find(|(tag, _)| *tag == name) {
            Some((_, include)) => {
                let begins = if inner.starts_with(['-', '+']) { &inner[..1] } else { "" };
                let ends = if inner.ends_with(['-', '+']) { &inner[inner.len() - 1..] } else { "" };
                let _ = write!(text, "{{%{begins} include '{include}' {ends}%}}");
            }
            None => text += &rest[start..end + 2],
        }
        rest = &rest[end + 2..];
    }
    text + rest
}

/// Prints values as Python does, where a template may come to print one that isn't text.
fn print(out: &mut Output<'_>, state: &mut State<'_, '_>, value: &Value) -> Result<(), Error> {
    match value.kind() {
        ValueKind::Bool => Ok(out.write_str(if value.is_true() { "True" } else { "False" })?),
        ValueKind::None => Ok(out.write_str("None")?),
        _ => minijinja::escape_formatter(out, state, value),
    }
}

/// `strftime_now`.
fn now(date: NaiveDate, format: &str) -> Result<String, Error> {
    if StrftimeItems::new(format).any(|item| matches!(item, Item::Error)) {
        let message = format!("strftime_now doesn't know the format {format:?}");
        return Err(Error::new(ErrorKind::InvalidOperation, message));
    }
    let mut text = String::new();
    let time = date.and_time(chrono::NaiveTime::MIN);
    write!(text, "{}", time.format(format)).map_err(|_| {
        Error::new(ErrorKind::InvalidOperation, "strftime_now was asked for a time zone")
    })?;
    Ok(text)
}

/// `tojson`, as Python's `json.dumps` writes it.
fn to_json(value: &Value, options: Kwargs) -> Result<String, Error> {
    let indent: Option<usize> = options.get("indent")?;
    let sorted: Option<bool> = options.get("sort_keys")?;
    let ascii: Option<bool> = options.get("ensure_ascii")?;
    options.assert_all_used()?;
    let failed = |error: serde_json::Error| {
        Error::new(
            ErrorKind::InvalidOperation,
            format!("a value can't be written as JSON: {error}"),
        )
    };
    let mut text = Vec::new();
    if sorted == Some(true) {
        // An object of this type has its keys in order.
        let value = serde_json::to_value(value).map_err(failed)?;
        write_json(&value, indent, &mut text).map_err(failed)?;
    } else {
        write_json(value, indent, &mut text).map_err(failed)?;
    }
    let text = String::from_utf8(text)
        .map_err(|error| Error::new(ErrorKind::InvalidOperation, error.to_string()))?;
    Ok(if ascii == Some(true) { escaped(&text) } else { text })
}

fn write_json(
    value: &impl Serialize,
    indent: Option<usize>,
    to: &mut Vec<u8>,
) -> serde_json::Result<()> {
    match indent {
        Some(indent) => {
            let spaces = " ".repeat(indent.min(16));
            let formatter = PrettyFormatter::with_indent(spaces.as_bytes());
            value.serialize(&mut serde_json::Serializer::with_formatter(to, formatter))
        }
        None => value.serialize(&mut serde_json::Serializer::with_formatter(to, Spaced)),
    }
}

/// Characters outside of ASCII as JSON's escapes.
fn escaped(text: &str) -> String {
    let mut all = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_ascii() {
            all.push(c);
        } else {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(all, "\\u{unit:04x}");
            }
        }
    }
    all
}

/// A space after each comma and colon.
struct Spaced;

impl Formatter for Spaced {
    fn begin_array_value<W: ?Sized + std::io::Write>(
        &mut self,
        out: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        if first { Ok(()) } else { out.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + std::io::Write>(
        &mut self,
        out: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        if first { Ok(()) } else { out.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + std::io::Write>(
        &mut self,
        out: &mut W,
    ) -> std::io::Result<()> {
        out.write_all(b": ")
    }
}
