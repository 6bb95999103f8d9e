//! Jinja's filters.

use std::cmp::Ordering;

use super::json::{self, Options};
use super::methods::texts::{capital, capitalized, is_space, lines, padded, replaced};
use super::methods::{attribute, item};
use super::numbers::{integer, number, rounded, truncated};
use super::operators::{binary, order};
use super::print::text;
use super::render::{Called, Renderer};
use super::value::{Kind, LARGEST, Outcome, Value, equal};
use super::{ast::Operator, format, tested};

/// Applies a filter.
///
/// # Errors
/// Filters that aren't supported, by name, and input that Jinja refuses.
pub(super) fn filter(
    renderer: &mut Renderer<'_>,
    name: &str,
    input: Value,
    called: Called,
) -> Outcome<Value> {
    renderer.step(input.len().unwrap_or(0) / 16)?;
    let made = apply(renderer, name, input, called)?;
    renderer.produced(&made)?;
    Ok(made)
}

fn apply(renderer: &mut Renderer<'_>, name: &str, input: Value, called: Called) -> Outcome<Value> {
    let flag = |value: &Option<Value>| value.as_ref().is_some_and(Value::is_true);
    let whole = |value: &Option<Value>, usual: i128| match value {
        None => Ok(usual),
        Some(value) => value
            .as_int()
            .ok_or_else(|| format!("{name} needs an integer, not {}", value.type_name())),
    };
    match name {
        "abs" => match &input {
            Value::Float(number) => Ok(Value::Float(number.abs())),
            other => match other.as_int() {
                Some(number) => Ok(Value::Int(number.saturating_abs())),
                None => Err(format!("bad operand type for abs(): '{}'", other.type_name())),
            },
        },
        "attr" => {
            let [name] = called.by_name(name, ["name"])?;
            attribute(&input, &text(&name.ok_or("attr needs a name")?)?)
        }
        "batch" => {
            let [count, fill] = called.by_name(name, ["linecount", "fill_with"])?;
            let count = usize::try_from(whole(&count, 0)?)
                .ok()
                .filter(|&it| it > 0)
                .ok_or("batch needs a count")?;
            let mut rows = Vec::new();
            for row in input.iterate()?.chunks(count) {
                let mut row = row.to_vec();
                if let Some(fill) = &fill {
                    if count > LARGEST / 64 {
                        return Err("a list becomes too long".to_owned());
                    }
                    row.resize(count, fill.clone());
                }
                rows.push(Value::list(row)?);
            }
            Value::seq(Kind::Generator, rows)
        }
        "slice" => {
            let [count, fill] = called.by_name(name, ["slices", "fill_with"])?;
            let count =
                usize::try_from(whole(&count, 0)?).ok().filter(|&it| it > 0 && it <= 1 << 16);
            let count = count.ok_or("slice needs a count")?;
            let items = input.iterate()?;
            let (each, extra) = (items.len() / count, items.len() % count);
            let mut at = 0;
            let mut rows = Vec::new();
            for index in 0..count {
                let length = each + usize::from(index < extra);
                let mut row = items[at..at + length].to_vec();
                at += length;
                if index >= extra && extra > 0 {
                    row.extend(fill.clone());
                }
                rows.push(Value::list(row)?);
            }
            Value::seq(Kind::Generator, rows)
        }
        "capitalize" => Ok(Value::from(capitalized(&text(&input)?))),
        "center" => {
            let [width] = called.by_name(name, ["width"])?;
            let width = usize::try_from(whole(&width, 80)?).unwrap_or(0);
            padded(&text(&input)?, "center", width, " ").map(Value::from)
        }
        "count" | "length" => input.len().map(|count| Value::Int(count as i128)),
        "d" | "default" => {
            let [usual, falsy] = called.by_name(name, ["default_value", "boolean"])?;
            let missing = input.is_undefined() || (flag(&falsy) && !input.is_true());
            Ok(if missing { usual.unwrap_or_else(|| Value::from("")) } else { input })
        }
        "dictsort" => {
            let [cased, by, reversed] =
                called.by_name(name, ["case_sensitive", "by", "reverse"])?;
            let Value::Dict(dict) = &input else { return Err("dictsort needs a dict".to_owned()) };
            let at = match by.as_ref().and_then(Value::as_str) {
                None | Some("key") => 0,
                Some("value") => 1,
                Some(_) => {
                    return Err("You can only sort by either \"key\" or \"value\"".to_owned());
                }
            };
            let mut pairs = Vec::new();
            for (key, value) in &dict.entries {
                let by = if at == 0 { key.clone() } else { value.clone() };
                pairs.push((
                    folded(&by, flag(&cased)),
                    Value::seq(Kind::Tuple, vec![key.clone(), value.clone()])?,
                ));
            }
            sorted(pairs, flag(&reversed)).and_then(Value::list)
        }
        "e" | "escape" | "forceescape" => {
            let mut made = String::new();
            for c in text(&input)?.chars() {
                match c {
                    '&' => made.push_str("&amp;"),
                    '<' => made.push_str("&lt;"),
                    '>' => made.push_str("&gt;"),
                    '"' => made.push_str("&#34;"),
                    '\'' => made.push_str("&#39;"),
                    c => made.push(c),
                }
            }
            Ok(Value::from(made))
        }
        "first" => Ok(input
            .iterate()?
            .into_iter()
            .next()
            .unwrap_or_else(|| Value::undefined("the first item of an empty sequence"))),
        "last" => match &input {
            Value::Seq(seq) if seq.kind == Kind::Generator => {
                Err("'generator' object is not reversible".to_owned())
            }
            _ => Ok(input
                .iterate()?
                .pop()
                .unwrap_or_else(|| Value::undefined("the last item of an empty sequence"))),
        },
        "float" => {
            let [usual] = called.by_name(name, ["default"])?;
            Ok(match &input {
                Value::Str(text) => number(text).map(Value::Float),
                other => other.as_float().map(Value::Float),
            }
            .or(usual)
            .unwrap_or(Value::Float(0.0)))
        }
        "int" => {
            let [usual, base] = called.by_name(name, ["default", "base"])?;
            let base = u32::try_from(whole(&base, 10)?).ok().filter(|base| (2..=36).contains(base));
            let base = base.ok_or("int() base must be >= 2 and <= 36")?;
            Ok(match &input {
                Value::Str(text) => {
                    integer(text, base).or_else(|| number(text).and_then(truncated))
                }
                Value::Float(number) => truncated(*number),
                other => other.as_int(),
            }
            .map(Value::Int)
            .or(usual)
            .unwrap_or(Value::Int(0)))
        }
        "format" => {
            let pattern = text(&input)?;
            let arguments = match (called.list.is_empty(), called.named.is_empty()) {
                (false, false) => {
                    return Err(
                        "can't handle positional and keyword arguments at the same time".to_owned()
                    );
                }
                (true, false) => Value::dict(
                    called.named.into_iter().map(|(name, value)| (Value::from(name), value)),
                )?,
                _ => Value::seq(Kind::Tuple, called.list)?,
            };
            format::percent(&pattern, &arguments).map(Value::from)
        }
        "groupby" => {
            let [by, usual, cased] =
                called.by_name(name, ["attribute", "default", "case_sensitive"])?;
            let by = by.ok_or("groupby needs an attribute")?;
            let mut pairs = Vec::new();
            for own in input.iterate()? {
                let key = path(&own, &by, usual.as_ref())?;
                pairs.push((folded(&key, flag(&cased)), Value::seq(Kind::Tuple, vec![key, own])?));
            }
            let mut groups: Vec<(Value, Value, Vec<Value>)> = Vec::new();
            for pair in sorted(pairs, false)? {
                let [key, own] =
                    <[Value; 2]>::try_from(pair.iterate()?).map_err(|_| "a pair is missing")?;
                let fold = folded(&key, flag(&cased));
                match groups.last_mut().filter(|(last, ..)| equal(last, &fold)) {
                    Some((_, _, list)) => list.push(own),
                    None => groups.push((fold, key, vec![own])),
                }
            }
            let groups = groups.into_iter().map(|(_, key, list)| {
                Value::named(&["grouper", "list"], vec![key, Value::list(list)?])
            });
            Value::list(groups.collect::<Outcome<_>>()?)
        }
        "indent" => {
            let [width, first, blank] = called.by_name(name, ["width", "first", "blank"])?;
            let indent = match &width {
                Some(Value::Str(text)) => text.to_string(),
                width => {
                    let width = usize::try_from(whole(width, 4)?).unwrap_or(0);
                    if width > LARGEST {
                        return Err("an indentation is too wide".to_owned());
                    }
                    " ".repeat(width)
                }
            };
            let own = text(&input)? + "\n";
            let parts = lines(&own, false);
            let mut made = String::new();
            for (at, line) in parts.iter().enumerate() {
                let plain = if at == 0 { !flag(&first) } else { line.is_empty() && !flag(&blank) };
                made.push_str(if at > 0 { "\n" } else { "" });
                made.push_str(if plain { "" } else { &indent });
                made.push_str(line);
                if made.len() > LARGEST {
                    return Err(format!("a text becomes longer than {LARGEST} bytes"));
                }
            }
            Ok(Value::from(made))
        }
        "items" => match &input {
            Value::Undefined(_) => Value::seq(Kind::Generator, Vec::new()),
            Value::Dict(_) => {
                let method = attribute(&input, "items")?;
                let pairs = renderer.call(&method, Called::default())?;
                Value::seq(Kind::Generator, pairs.iterate()?)
            }
            _ => Err("Can only get item pairs from a mapping.".to_owned()),
        },
        "join" => {
            let [between, by] = called.by_name(name, ["d", "attribute"])?;
            let between = between.map_or(Ok(String::new()), |it| text(&it))?;
            let mut made = String::new();
            for (at, own) in input.iterate()?.into_iter().enumerate() {
                let own = match &by {
                    Some(by) => path(&own, by, None)?,
                    None => own,
                };
                made.push_str(if at > 0 { &between } else { "" });
                made.push_str(&text(&own)?);
                if made.len() > LARGEST {
                    return Err(format!("a text becomes longer than {LARGEST} bytes"));
                }
            }
            Ok(Value::from(made))
        }
        "list" => Value::list(input.iterate()?),
        "lower" => Ok(Value::from(text(&input)?.to_lowercase())),
        "upper" => Ok(Value::from(text(&input)?.to_uppercase())),
        "map" => {
            let mut made = Vec::new();
            let by =
                called.named.iter().find(|(name, _)| name == "attribute").map(|(_, by)| by.clone());
            let usual =
                called.named.iter().find(|(name, _)| name == "default").map(|(_, it)| it.clone());
            let mut list = called.list.into_iter();
            let filter_name = match (&by, list.next()) {
                (Some(_), None) => None,
                (None, Some(name)) => Some(text(&name)?),
                _ => return Err("map requires a filter argument".to_owned()),
            };
            let rest: Vec<Value> = list.collect();
            for own in input.iterate()? {
                made.push(match (&by, &filter_name) {
                    (Some(by), _) => path(&own, by, usual.as_ref())?,
                    (_, Some(name)) => {
                        let called = Called { list: rest.clone(), named: called.named.clone() };
                        filter(renderer, name, own, called)?
                    }
                    _ => own,
                });
            }
            Value::seq(Kind::Generator, made)
        }
        "max" | "min" => {
            let [cased, by] = called.by_name(name, ["case_sensitive", "attribute"])?;
            let mut best: Option<(Value, Value)> = None;
            for own in input.iterate()? {
                let key = match &by {
                    Some(by) => path(&own, by, None)?,
                    None => own.clone(),
                };
                let key = folded(&key, flag(&cased));
                let better = match &best {
                    None => true,
                    Some((held, _)) => {
                        let wanted = if name == "max" { Ordering::Greater } else { Ordering::Less };
                        order(&key, held, "<")? == Some(wanted)
                    }
                };
                if better {
                    best = Some((key, own));
                }
            }
            Ok(best
                .map_or_else(|| Value::undefined("an item of an empty sequence"), |(_, own)| own))
        }
        "reject" | "select" | "rejectattr" | "selectattr" => {
            let mut list = called.list.into_iter();
            let by = match name.ends_with("attr") {
                true => Some(list.next().ok_or_else(|| format!("{name} needs an attribute"))?),
                false => None,
            };
            let test_name = list.next().map(|it| text(&it)).transpose()?;
            let rest: Vec<Value> = list.collect();
            let mut kept = Vec::new();
            for own in input.iterate()? {
                renderer.step(1)?;
                let tested = match &by {
                    Some(by) => path(&own, by, None)?,
                    None => own.clone(),
                };
                let holds = match &test_name {
                    Some(name) => tested::test(name, &tested, &rest)?,
                    None => tested.is_true(),
                };
                if holds == name.starts_with("select") {
                    kept.push(own);
                }
            }
            Value::seq(Kind::Generator, kept)
        }
        "replace" => {
            let [old, new, count] = called.by_name(name, ["old", "new", "count"])?;
            let count = match &count {
                None | Some(Value::None) => -1,
                count => whole(count, -1)?,
            };
            let (old, new) = (
                old.ok_or("replace needs what to replace")?,
                new.ok_or("replace needs a replacement")?,
            );
            let count = usize::try_from(count).unwrap_or(usize::MAX);
            replaced(&text(&input)?, &text(&old)?, &text(&new)?, count).map(Value::from)
        }
        "reverse" => match &input {
            Value::Str(text) => Ok(Value::from(text.chars().rev().collect::<String>())),
            _ => {
                let mut items = input.iterate()?;
                items.reverse();
                Value::seq(Kind::Generator, items)
            }
        },
        "round" => {
            let [precision, method] = called.by_name(name, ["precision", "method"])?;
            let number = input.as_float().ok_or_else(|| {
                format!("type {} doesn't define __round__ method", input.type_name())
            })?;
            let precision = i32::try_from(whole(&precision, 0)?).unwrap_or(0).clamp(-300, 300);
            let method = method.map_or(Ok("common".to_owned()), |it| text(&it))?;
            rounded(&input, number, precision, &method)
        }
        "safe" => Ok(input),
        "sort" => {
            let [reversed, cased, by] =
                called.by_name(name, ["reverse", "case_sensitive", "attribute"])?;
            let mut pairs = Vec::new();
            for own in input.iterate()? {
                let key = match &by {
                    // Several attributes, with commas between them.
                    Some(Value::Str(names)) if names.contains(',') => {
                        let keys = names.split(',').map(|name| {
                            path(&own, &Value::from(name.trim()), None)
                                .map(|key| folded(&key, flag(&cased)))
                        });
                        Value::list(keys.collect::<Outcome<_>>()?)?
                    }
                    Some(by) => path(&own, by, None)?,
                    None => own.clone(),
                };
                pairs.push((folded(&key, flag(&cased)), own));
            }
            renderer.step(8 * pairs.len())?;
            sorted(pairs, flag(&reversed)).and_then(Value::list)
        }
        "string" => Ok(Value::from(text(&input)?)),
        "sum" => {
            let [by, start] = called.by_name(name, ["attribute", "start"])?;
            let mut sum = start.unwrap_or(Value::Int(0));
            for own in input.iterate()? {
                let own = match &by {
                    Some(by) => path(&own, by, None)?,
                    None => own,
                };
                sum = binary(&sum, Operator::Add, &own)?;
                renderer.produced(&sum)?;
            }
            Ok(sum)
        }
        "title" => {
            let own = text(&input)?;
            let mut made = String::with_capacity(own.len());
            let mut begins = true;
            for c in own.chars() {
                match begins {
                    true => made.push_str(&capital(c)),
                    false => made.extend(c.to_lowercase()),
                }
                begins = is_space(c) || matches!(c, '-' | '(' | '{' | '[' | '<');
            }
            Ok(Value::from(made))
        }
        "tojson" => {
            let [ascii, indent, separators, sorted] =
                called.by_name(name, ["ensure_ascii", "indent", "separators", "sort_keys"])?;
            let indent = match indent {
                None | Some(Value::None) => None,
                Some(Value::Str(text)) => Some(text.to_string()),
                other => Some(" ".repeat(usize::try_from(whole(&other, 0)?).unwrap_or(0).min(256))),
            };
            let separators = match separators {
                None | Some(Value::None) => {
                    [if indent.is_some() { "," } else { ", " }.to_owned(), ": ".to_owned()]
                }
                Some(given) => {
                    let given: Vec<String> =
                        given.iterate()?.iter().map(text).collect::<Outcome<_>>()?;
                    <[String; 2]>::try_from(given)
                        .map_err(|_| "separators are two texts".to_owned())?
                }
            };
            let options =
                Options { ascii: flag(&ascii), indent, separators, sorted: flag(&sorted) };
            let mut made = String::new();
            json::write(&input, &options, 0, &mut made)?;
            Ok(Value::from(made))
        }
        "trim" => {
            let [chars] = called.by_name(name, ["chars"])?;
            let own = text(&input)?;
            Ok(Value::from(match &chars {
                None | Some(Value::None) => own.trim_matches(is_space),
                Some(chars) => {
                    let chars = text(chars)?;
                    return Ok(Value::from(own.trim_matches(|c| chars.contains(c))));
                }
            }))
        }
        "truncate" => {
            let [length, kill, end, leeway] =
                called.by_name(name, ["length", "killwords", "end", "leeway"])?;
            let own = text(&input)?;
            let end = end.map_or(Ok("...".to_owned()), |end| text(&end))?;
            let (length, leeway) = (whole(&length, 255)?, whole(&leeway, 5)?);
            if own.chars().count() as i128 <= length + leeway {
                return Ok(Value::from(own));
            }
            let most = usize::try_from(length - end.chars().count() as i128)
                .map_err(|_| format!("expected length >= {}, got {length}", end.chars().count()))?;
            let cut: String = own.chars().take(most).collect();
            let cut = if flag(&kill) {
                &cut[..]
            } else {
                cut.rsplit_once(' ').map_or(&cut[..], |(cut, _)| cut)
            };
            Ok(Value::from(format!("{cut}{end}")))
        }
        "unique" => {
            let [cased, by] = called.by_name(name, ["case_sensitive", "attribute"])?;
            let (mut seen, mut kept): (Vec<Value>, Vec<Value>) = (Vec::new(), Vec::new());
            for own in input.iterate()? {
                let key = match &by {
                    Some(by) => path(&own, by, None)?,
                    None => own.clone(),
                };
                let key = folded(&key, flag(&cased));
                renderer.step(seen.len() / 16)?;
                if !seen.iter().any(|held| equal(held, &key)) {
                    seen.push(key);
                    kept.push(own);
                }
            }
            Value::seq(Kind::Generator, kept)
        }
        "urlencode" if matches!(input, Value::Str(_) | Value::Int(_) | Value::Float(_)) => {
            let mut made = String::new();
            for byte in text(&input)?.bytes() {
                match byte {
                    b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'.' | b'-' | b'~' | b'/' => {
                        made.push(char::from(byte));
                    }
                    byte => made.push_str(&format!("%{byte:02X}")),
                }
            }
            Ok(Value::from(made))
        }
        "wordcount" => {
            let own = text(&input)?;
            let words = own.split(|c: char| c != '_' && !c.is_alphanumeric());
            Ok(Value::Int(words.filter(|word| !word.is_empty()).count() as i128))
        }
        other => Err(format!("the filter '{other}' isn't supported")),
    }
}

/// An item by a path with dots in it, as filters name attributes.
fn path(of: &Value, by: &Value, usual: Option<&Value>) -> Outcome<Value> {
    let mut value = of.clone();
    match by {
        Value::Str(names) => {
            for name in names.split('.') {
                let index = match name.parse::<i128>() {
                    Ok(index) => Value::Int(index),
                    Err(_) => Value::from(name),
                };
                value = item(&value, &index)?;
                if let (Value::Undefined(_), Some(usual)) = (&value, usual) {
                    value = usual.clone();
                }
            }
        }
        by => value = item(&value, by)?,
    }
    Ok(value)
}

/// A key for sorting: texts in lower case, unless `cased`.
fn folded(key: &Value, cased: bool) -> Value {
    match key {
        Value::Str(text) if !cased => Value::from(text.to_lowercase()),
        other => other.clone(),
    }
}

fn sorted(mut pairs: Vec<(Value, Value)>, reversed: bool) -> Outcome<Vec<Value>> {
    let mut failed = None;
    pairs.sort_by(|(one, _), (other, _)| {
        let found = order(one, other, "<").unwrap_or_else(|error| {
            failed.get_or_insert(error);
            None
        });
        let found = found.unwrap_or(Ordering::Equal);
        if reversed { found.reverse() } else { found }
    });
    match failed {
        Some(error) => Err(error),
        None => Ok(pairs.into_iter().map(|(_, value)| value).collect()),
    }
}
