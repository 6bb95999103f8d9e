//! Methods of texts.

use super::super::format;
use super::super::operators::undefined;
use super::super::print::{is_printable, text};
use super::super::render::Called;
use super::super::value::{Dict, Kind, LARGEST, LONGEST, Outcome, Value};
use super::slice;

/// White space, as Python's `str.split` and `str.strip` have it.
pub(in super::super) fn is_space(c: char) -> bool {
    c.is_whitespace() || matches!(c, '\x1c'..='\x1f')
}

/// A text with each word's first letter as a capital, as Python's `str.title`: a word is of letters alone.
fn title(text: &str) -> String {
    let mut made = String::with_capacity(text.len());
    let mut within = false;
    for c in text.chars() {
        let cased = c.is_alphabetic()
            && (c.is_lowercase() || c.is_uppercase() || c.to_uppercase().next() != Some(c));
        match (cased, within) {
            (true, false) => made.push_str(&capital(c)),
            (true, true) => made.extend(c.to_lowercase()),
            (false, _) => made.push(c),
        }
        within = cased;
    }
    made
}

/// A character as the first of a word.
pub(in super::super) fn capital(c: char) -> String {
    match c {
        // Digraphs have a form of their own there.
        '\u{1c4}'..='\u{1c6}' => '\u{1c5}'.to_string(),
        '\u{1c7}'..='\u{1c9}' => '\u{1c8}'.to_string(),
        '\u{1ca}'..='\u{1cc}' => '\u{1cb}'.to_string(),
        '\u{1f1}'..='\u{1f3}' => '\u{1f2}'.to_string(),
        'ß' => "Ss".to_owned(),
        c => c.to_uppercase().collect(),
    }
}

pub(in super::super) fn capitalized(text: &str) -> String {
    let mut chars = text.chars();
    match chars.next() {
        Some(first) => capital(first) + &chars.as_str().to_lowercase(),
        None => String::new(),
    }
}

pub(super) fn of_text(own: &str, name: &str, called: Called) -> Outcome<Value> {
    let needs = |value: Option<Value>, what: &str| -> Outcome<String> {
        match value {
            Some(Value::Str(text)) => Ok(text.to_string()),
            Some(Value::Undefined(name)) => Err(undefined(&name)),
            Some(other) => Err(format!("{name} needs a str as {what}, not {}", other.type_name())),
            None => Err(format!("{name} needs {what}")),
        }
    };
    let all =
        |test: &dyn Fn(char) -> bool| Ok(Value::Bool(!own.is_empty() && own.chars().all(test)));
    let strings = |parts: Vec<&str>| match parts.len() > LONGEST {
        true => Err("a list becomes too long".to_owned()),
        false => Value::list(parts.into_iter().map(Value::from).collect()),
    };
    match name {
        "format" => {
            let mut named = Dict::default();
            for (name, value) in called.named {
                named.insert(Value::from(name), value)?;
            }
            return format::braces(own, &called.list, &named).map(Value::from);
        }
        "format_map" => {
            let [mapping] = called.by_name(name, ["mapping"])?;
            let Some(Value::Dict(dict)) = mapping else {
                return Err("format_map needs a mapping".to_owned());
            };
            return format::braces(own, &[], &dict).map(Value::from);
        }
        "split" | "rsplit" => {
            let [separator, most] = called.by_name(name, ["sep", "maxsplit"])?;
            let most = most.map_or(Ok(-1), |it| it.as_int().ok_or("maxsplit is an integer"))?;
            // More pieces than a list holds are refused.
            let most = usize::try_from(most).unwrap_or(usize::MAX).min(LONGEST + 1);
            let parts = match separator {
                None | Some(Value::None) if name == "split" => split_spaces(own, most),
                None | Some(Value::None) => rsplit_spaces(own, most),
                separator => {
                    let separator = needs(separator, "sep")?;
                    if separator.is_empty() {
                        return Err("empty separator".to_owned());
                    }
                    let count = most.saturating_add(1);
                    match name {
                        "split" => own.splitn(count, &separator).collect(),
                        _ => {
                            let mut parts: Vec<&str> = own.rsplitn(count, &separator).collect();
                            parts.reverse();
                            parts
                        }
                    }
                }
            };
            return strings(parts);
        }
        "splitlines" => {
            let [keep] = called.by_name(name, ["keepends"])?;
            // A bound from above: bytes that end a line, or may be the last of a character that does.
            let ends = |byte: &u8| matches!(byte, b'\n'..=b'\r' | 0x1c..=0x1e | 0x85 | 0xa8 | 0xa9);
            if own.bytes().filter(ends).count() > LONGEST {
                return Err("a list becomes too long".to_owned());
            }
            return strings(lines(own, keep.is_some_and(|keep| keep.is_true())));
        }
        "join" => {
            let [items] = called.by_name(name, ["iterable"])?;
            let mut made = String::new();
            for (at, item) in items.ok_or("join needs what to join")?.iterate()?.iter().enumerate()
            {
                made.push_str(if at > 0 { own } else { "" });
                match item {
                    Value::Str(text) => made.push_str(text),
                    Value::Undefined(name) => return Err(undefined(name)),
                    other => {
                        return Err(format!(
                            "sequence item {at}: expected str instance, {} found",
                            other.type_name()
                        ));
                    }
                }
                if made.len() > LARGEST {
                    return Err(format!("a text becomes longer than {LARGEST} bytes"));
                }
            }
            return Ok(Value::from(made));
        }
        "startswith" | "endswith" => {
            let [part, start, stop] = called.by_name(name, ["prefix", "start", "end"])?;
            let within = sliced(own, start, stop)?;
            let parts = match part {
                Some(Value::Seq(seq)) if seq.kind == Kind::Tuple => seq.items.clone(),
                Some(one) => vec![one],
                None => return Err(format!("{name} needs a text")),
            };
            let mut found = false;
            for part in parts {
                let part = needs(Some(part), "a prefix or suffix")?;
                found |= match name {
                    "startswith" => within.starts_with(&part),
                    _ => within.ends_with(&part),
                };
            }
            return Ok(Value::Bool(found));
        }
        "find" | "rfind" | "index" | "rindex" | "count" => {
            let [part, start, stop] = called.by_name(name, ["sub", "start", "end"])?;
            let part = needs(part, "a text")?;
            let begin = start.as_ref().and_then(Value::as_int).unwrap_or(0);
            let within = sliced(own, start, stop)?;
            if name == "count" {
                let count = match part.is_empty() {
                    true => within.chars().count() + 1,
                    false => within.matches(&part).count(),
                };
                return Ok(Value::Int(count as i128));
            }
            let at = if name.starts_with('r') { within.rfind(&part) } else { within.find(&part) };
            let length = own.chars().count() as i128;
            let begin = (if begin < 0 { begin + length } else { begin }).clamp(0, length);
            return match at {
                Some(at) => Ok(Value::Int(begin + within[..at].chars().count() as i128)),
                None if name.ends_with("index") => Err("substring not found".to_owned()),
                None => Ok(Value::Int(-1)),
            };
        }
        "strip" | "lstrip" | "rstrip" => {
            let [chars] = called.by_name(name, ["chars"])?;
            let chars = match chars {
                None | Some(Value::None) => None,
                some => Some(needs(some, "characters")?),
            };
            let cut = |c: char| match &chars {
                Some(chars) => chars.contains(c),
                None => is_space(c),
            };
            return Ok(Value::from(match name {
                "strip" => own.trim_matches(cut),
                "lstrip" => own.trim_start_matches(cut),
                _ => own.trim_end_matches(cut),
            }));
        }
        "replace" => {
            let [old, new, count] = called.by_name(name, ["old", "new", "count"])?;
            let (old, new) = (needs(old, "what to replace")?, needs(new, "a replacement")?);
            let count = count.map_or(Ok(-1), |it| it.as_int().ok_or("count is an integer"))?;
            return replaced(own, &old, &new, usize::try_from(count).unwrap_or(usize::MAX))
                .map(Value::from);
        }
        "partition" | "rpartition" => {
            let [separator] = called.by_name(name, ["sep"])?;
            let separator = needs(separator, "a separator")?;
            if separator.is_empty() {
                return Err("empty separator".to_owned());
            }
            let parts = match name {
                "partition" => own.split_once(&separator).map(|(a, b)| [a, &separator, b]),
                _ => own.rsplit_once(&separator).map(|(a, b)| [a, &separator, b]),
            };
            let parts =
                parts.unwrap_or(if name == "partition" { [own, "", ""] } else { ["", "", own] });
            return Value::seq(Kind::Tuple, parts.into_iter().map(Value::from).collect());
        }
        "removeprefix" | "removesuffix" => {
            let [part] = called.by_name(name, ["prefix"])?;
            let part = needs(part, "a text")?;
            let cut = match name {
                "removeprefix" => own.strip_prefix(&*part),
                _ => own.strip_suffix(&*part),
            };
            return Ok(Value::from(cut.unwrap_or(own)));
        }
        "center" | "ljust" | "rjust" | "zfill" => {
            let [width, fill] = called.by_name(name, ["width", "fillchar"])?;
            let width =
                width.and_then(|it| it.as_int()).ok_or_else(|| format!("{name} needs a width"))?;
            let fill = fill.map_or(Ok(" ".to_owned()), |fill| needs(Some(fill), "a character"))?;
            if fill.chars().count() != 1 {
                return Err("The fill character must be exactly one character long".to_owned());
            }
            return padded(own, name, usize::try_from(width).unwrap_or(0), &fill).map(Value::from);
        }
        "expandtabs" => {
            let [size] = called.by_name(name, ["tabsize"])?;
            let size = size.map_or(Ok(8), |it| it.as_int().ok_or("tabsize is an integer"))?;
            let size = usize::try_from(size).unwrap_or(0).min(1 << 12);
            let (mut made, mut column) = (String::new(), 0);
            for c in own.chars() {
                match c {
                    '\t' => {
                        let count = if size > 0 { size - column % size } else { 0 };
                        made.push_str(&" ".repeat(count));
                        column += count;
                    }
                    '\n' | '\r' => {
                        made.push(c);
                        column = 0;
                    }
                    c => {
                        made.push(c);
                        column += 1;
                    }
                }
                if made.len() > LARGEST {
                    return Err(format!("a text becomes longer than {LARGEST} bytes"));
                }
            }
            return Ok(Value::from(made));
        }
        "encode" | "maketrans" | "translate" => {
            return Err(format!("the method '{name}' of a str isn't supported"));
        }
        _ => {}
    }
    if !called.list.is_empty() || !called.named.is_empty() {
        return Err(format!("{name} takes no arguments"));
    }
    let cased = || own.chars().any(|c| c.is_lowercase() || c.is_uppercase());
    match name {
        "lower" => Ok(Value::from(own.to_lowercase())),
        "upper" => Ok(Value::from(own.to_uppercase())),
        "casefold" => Ok(Value::from(own.to_lowercase().replace('ß', "ss"))),
        "capitalize" => Ok(Value::from(capitalized(own))),
        "title" => Ok(Value::from(title(own))),
        "swapcase" => {
            let mut made = String::with_capacity(own.len());
            for c in own.chars() {
                match c.is_uppercase() {
                    true => made.extend(c.to_lowercase()),
                    false => made.extend(c.to_uppercase()),
                }
            }
            Ok(Value::from(made))
        }
        "isalnum" => all(&char::is_alphanumeric),
        "isalpha" => all(&char::is_alphabetic),
        "isascii" => Ok(Value::Bool(own.is_ascii())),
        "isdecimal" => all(&|c| c.is_ascii_digit() || (c.is_numeric() && is_decimal(c))),
        "isdigit" => all(&|c| {
            is_decimal(c)
                || matches!(c, '²' | '³' | '¹' | '\u{2070}'..='\u{2079}' | '\u{2080}'..='\u{2089}')
        }),
        "isnumeric" => all(&char::is_numeric),
        "isspace" => all(&is_space),
        "isprintable" => Ok(Value::Bool(own.chars().all(is_printable))),
        "isidentifier" => Ok(Value::Bool(
            own.chars().next().is_some_and(|c| c == '_' || c.is_alphabetic())
                && own.chars().all(|c| c == '_' || c.is_alphanumeric()),
        )),
        "islower" => Ok(Value::Bool(cased() && !own.chars().any(char::is_uppercase))),
        "isupper" => Ok(Value::Bool(cased() && !own.chars().any(char::is_lowercase))),
        "istitle" => Ok(Value::Bool(cased() && title(own) == own)),
        other => Err(format!("the method '{other}' of a str isn't supported")),
    }
}

/// A digit of a decimal system: those come in runs of ten.
fn is_decimal(c: char) -> bool {
    const ZEROS: [u32; 12] =
        [0x30, 0x660, 0x6f0, 0x7c0, 0x966, 0x9e6, 0xa66, 0xae6, 0xb66, 0xe50, 0xed0, 0xff10];
    ZEROS.iter().any(|zero| (*zero..zero + 10).contains(&u32::from(c)))
}

/// The part of a text between two Python indices.
fn sliced(own: &str, start: Option<Value>, stop: Option<Value>) -> Outcome<String> {
    if start.is_none() && stop.is_none() {
        return Ok(own.to_owned());
    }
    let part = slice(&Value::from(own), &[start, stop, None])?;
    text(&part)
}

/// Python's `str.replace`.
///
/// # Errors
/// A text that becomes too large.
pub(in super::super) fn replaced(own: &str, old: &str, new: &str, count: usize) -> Outcome<String> {
    let found = match old.is_empty() {
        true => own.chars().count() + 1,
        false => own.matches(old).count(),
    };
    let grown = found.min(count).saturating_mul(new.len()).saturating_add(own.len());
    if grown > LARGEST {
        return Err(format!("a text becomes longer than {LARGEST} bytes"));
    }
    Ok(own.replacen(old, new, count))
}

/// A text in the middle, or at an end, of `width` characters.
///
/// # Errors
/// A text that becomes too large.
pub(in super::super) fn padded(own: &str, how: &str, width: usize, fill: &str) -> Outcome<String> {
    let missing = width.saturating_sub(own.chars().count());
    if missing.saturating_mul(fill.len()) > LARGEST {
        return Err(format!("a text becomes longer than {LARGEST} bytes"));
    }
    let pad = |count: usize| fill.repeat(count);
    Ok(match how {
        // As CPython divides what is missing.
        "center" => {
            let left = missing / 2 + (missing & width & 1);
            format!("{}{own}{}", pad(left), pad(missing - left))
        }
        "ljust" => format!("{own}{}", pad(missing)),
        "zfill" => {
            let (sign, digits) = match own.strip_prefix(['+', '-']) {
                Some(digits) => (&own[..1], digits),
                None => ("", own),
            };
            format!("{sign}{}{digits}", "0".repeat(missing))
        }
        _ => format!("{}{own}", pad(missing)),
    })
}

fn split_spaces(own: &str, most: usize) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = own.trim_start_matches(is_space);
    while !rest.is_empty() {
        if parts.len() == most {
            parts.push(rest.trim_end_matches(is_space));
            break;
        }
        let end = rest.find(is_space).unwrap_or(rest.len());
        parts.push(&rest[..end]);
        rest = rest[end..].trim_start_matches(is_space);
    }
    parts
}

fn rsplit_spaces(own: &str, most: usize) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = own.trim_end_matches(is_space);
    while !rest.is_empty() {
        if parts.len() == most {
            parts.push(rest.trim_start_matches(is_space));
            break;
        }
        let space = rest.char_indices().rev().find(|(_, c)| is_space(*c));
        let begin = space.map_or(0, |(at, c)| at + c.len_utf8());
        parts.push(&rest[begin..]);
        rest = rest[..begin].trim_end_matches(is_space);
    }
    parts.reverse();
    parts
}

/// Lines as Python's `str.splitlines` cuts them.
pub(in super::super) fn lines(own: &str, keep: bool) -> Vec<&str> {
    let ends = |c: char| {
        matches!(
            c,
            '\n' | '\r' | '\x0b' | '\x0c' | '\x1c'..='\x1e' | '\u{85}' | '\u{2028}' | '\u{2029}'
        )
    };
    let mut parts = Vec::new();
    let mut rest = own;
    while !rest.is_empty() {
        let Some(at) = rest.find(ends) else {
            parts.push(rest);
            break;
        };
        let after = match rest[at..].starts_with("\r\n") {
            true => at + 2,
            false => at + rest[at..].chars().next().map_or(1, char::len_utf8),
        };
        parts.push(&rest[..if keep { after } else { at }]);
        rest = &rest[after..];
    }
    parts
}
