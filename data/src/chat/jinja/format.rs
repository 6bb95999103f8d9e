//! `'%d' % 3` and `'{:>5}'.format(3)`.

use super::print::{float, represent, text};
use super::value::{Dict, Kind, LARGEST, Outcome, Value};

/// Python's `pattern % arguments`.
///
/// # Errors
/// Conversions and arguments that Python refuses.
pub(super) fn percent(pattern: &str, arguments: &Value) -> Outcome<String> {
    let several = match arguments {
        Value::Seq(seq) if seq.kind == Kind::Tuple => Some(&seq.items[..]),
        _ => None,
    };
    let list = several.unwrap_or(std::slice::from_ref(arguments));
    let mut next = 0;
    let mut take = || -> Outcome<Value> {
        next += 1;
        list.get(next - 1)
            .cloned()
            .ok_or_else(|| "not enough arguments for format string".to_owned())
    };
    let mut made = String::new();
    let mut chars = pattern.chars().peekable();
    let mut named = false;
    while let Some(c) = chars.next() {
        if c != '%' {
            made.push(c);
            continue;
        }
        let mut of = None;
        if chars.next_if_eq(&'(').is_some() {
            let name: String = chars.by_ref().take_while(|&c| c != ')').collect();
            let Value::Dict(dict) = arguments else {
                return Err("format requires a mapping".to_owned());
            };
            of = Some(
                dict.by_name(&name)
                    .cloned()
                    .ok_or_else(|| format!("the format names {name:?}, which isn't there"))?,
            );
            named = true;
        }
        let mut spec = Spec { fill: ' ', ..Spec::default() };
        while let Some(flag) = chars.next_if(|c| "-+ #0".contains(*c)) {
            match flag {
                '-' => spec.align = Some('<'),
                '+' => spec.sign = '+',
                ' ' if spec.sign != '+' => spec.sign = ' ',
                '#' => spec.alternate = true,
                '0' => spec.zero = true,
                _ => {}
            }
        }
        let mut number =
            |chars: &mut std::iter::Peekable<std::str::Chars<'_>>| -> Outcome<Option<usize>> {
                if chars.next_if_eq(&'*').is_some() {
                    let width = take()?.as_int().ok_or("* wants int")?;
                    return usize::try_from(width)
                        .map(Some)
                        .map_err(|_| "a width is negative".to_owned());
                }
                digits(chars)
            };
        spec.width = number(&mut chars)?.unwrap_or(0);
        if chars.next_if_eq(&'.').is_some() {
            spec.precision = Some(number(&mut chars)?.unwrap_or(0));
        }
        while chars.next_if(|c| "hlL".contains(*c)).is_some() {}
        let kind = chars.next().ok_or("incomplete format")?;
        if kind == '%' {
            made.push('%');
            continue;
        }
        let value = match of {
            Some(value) => value,
            None => take()?,
        };
        spec.kind = kind;
        let numeric = |value: &Value| -> Outcome<()> {
            match value.as_float() {
                Some(_) => Ok(()),
                None => Err(format!(
                    "%{kind} format: a real number is required, not {}",
                    value.type_name()
                )),
            }
        };
        let written = match kind {
            's' | 'r' | 'a' => {
                let mut shown = String::new();
                match kind {
                    's' => shown = text(&value)?,
                    _ => represent(&value, &mut shown)?,
                }
                spec.zero = false;
                spec.kind = 's';
                spec.align = spec.align.or(Some('>'));
                spec.text(&shown)
            }
            'c' => {
                let c = match &value {
                    Value::Str(text) if text.chars().count() == 1 => text.to_string(),
                    value => {
                        let code = value.as_int().and_then(|code| u32::try_from(code).ok());
                        code.and_then(char::from_u32).ok_or("%c requires int or char")?.to_string()
                    }
                };
                spec.align = spec.align.or(Some('>'));
                spec.text(&c)
            }
            'd' | 'i' | 'u' => {
                numeric(&value)?;
                let whole =
                    value.as_int().or_else(|| value.as_float().map(|number| number as i128));
                spec.kind = 'd';
                spec.integer(whole.unwrap_or(0), spec.precision)
            }
            'x' | 'X' | 'o' => match value.as_int() {
                Some(number) => spec.integer(number, spec.precision),
                None => {
                    return Err(format!(
                        "%{kind} format: an integer is required, not {}",
                        value.type_name()
                    ));
                }
            },
            'e' | 'E' | 'f' | 'F' | 'g' | 'G' => {
                numeric(&value)?;
                spec.precision = spec.precision.or(Some(6));
                spec.float(value.as_float().unwrap_or(0.0))
            }
            other => return Err(format!("unsupported format character '{other}'")),
        };
        made.push_str(&written?);
        bounded(made.len())?;
    }
    if !named
        && next < list.len()
        && (several.is_some() || !matches!(arguments, Value::Dict(_) | Value::Seq(_)))
    {
        return Err("not all arguments converted during string formatting".to_owned());
    }
    Ok(made)
}

fn bounded(length: usize) -> Outcome<()> {
    match length > LARGEST {
        true => Err(format!("a text becomes longer than {LARGEST} bytes")),
        false => Ok(()),
    }
}

fn digits(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Outcome<Option<usize>> {
    let mut found = None;
    while let Some(digit) = chars.peek().and_then(|c| c.to_digit(10)) {
        chars.next();
        let number = found.unwrap_or(0_usize).saturating_mul(10).saturating_add(digit as usize);
        found = Some(number);
    }
    if let Some(number) = found {
        bounded(number)?;
    }
    Ok(found)
}

/// Python's `pattern.format(*list, **named)`.
///
/// # Errors
/// Patterns and arguments that Python refuses.
pub(super) fn braces(pattern: &str, list: &[Value], named: &Dict) -> Outcome<String> {
    let mut automatic = 0;
    fill(pattern, list, named, &mut automatic, 2)
}

fn fill(
    pattern: &str,
    list: &[Value],
    named: &Dict,
    automatic: &mut usize,
    nested: usize,
) -> Outcome<String> {
    let mut made = String::new();
    let mut rest = pattern;
    while let Some(at) = rest.find(['{', '}']) {
        made.push_str(&rest[..at]);
        let brace = &rest[at..=at];
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix(brace) {
            made.push_str(brace);
            rest = after;
            continue;
        }
        if brace == "}" {
            return Err("Single '}' encountered in format string".to_owned());
        }
        if nested == 0 {
            return Err("Max string recursion exceeded".to_owned());
        }
        let mut open = 1;
        let end = rest.char_indices().find(|&(_, c)| {
            open += i32::from(c == '{') - i32::from(c == '}');
            open == 0
        });
        let (end, _) = end.ok_or("expected '}' before end of string")?;
        let field = &rest[..end];
        rest = &rest[end + 1..];
        let (name, spec) = field.split_once(':').unwrap_or((field, ""));
        let (name, conversion) = match name.split_once('!') {
            Some((name, conversion)) => (name, Some(conversion)),
            None => (name, None),
        };
        let value = look_up(name, list, named, automatic)?;
        let spec = fill(spec, list, named, automatic, nested - 1)?;
        let value = match conversion {
            None => value,
            Some("s") => Value::from(text(&value)?),
            Some("r" | "a") => {
                let mut shown = String::new();
                represent(&value, &mut shown)?;
                Value::from(shown)
            }
            Some(other) => return Err(format!("unknown conversion specifier {other:?}")),
        };
        made.push_str(&formatted(&value, &spec)?);
        bounded(made.len())?;
    }
    made.push_str(rest);
    Ok(made)
}

fn look_up(name: &str, list: &[Value], named: &Dict, automatic: &mut usize) -> Outcome<Value> {
    let end = name.find(['.', '[']).unwrap_or(name.len());
    let (first, mut path) = name.split_at(end);
    let index = match first {
        "" => {
            *automatic += 1;
            Some(*automatic - 1)
        }
        first => first.parse().ok(),
    };
    let mut value = match index {
        Some(index) => list
            .get(index)
            .cloned()
            .ok_or("Replacement index out of range for positional args tuple")?,
        None => named
            .by_name(first)
            .cloned()
            .ok_or_else(|| format!("the format names {first:?}, which isn't there"))?,
    };
    while !path.is_empty() {
        if let Some(inner) = path.strip_prefix('[') {
            let (key, after) = inner.split_once(']').ok_or("Missing ']' in format string")?;
            value = match (&value, key.parse::<usize>()) {
                (Value::Seq(seq), Ok(at)) => {
                    seq.items.get(at).cloned().ok_or("list index out of range")?
                }
                (Value::Dict(dict), _) => {
                    dict.by_name(key).cloned().ok_or_else(|| format!("there is no {key:?}"))?
                }
                _ => return Err(format!("'{}' object is not subscriptable", value.type_name())),
            };
            path = after;
        } else {
            return Err("attributes in formats aren't supported".to_owned());
        }
    }
    Ok(value)
}

/// Python's `format(value, spec)`.
///
/// # Errors
/// Specifications that Python refuses for such a value.
pub(super) fn formatted(value: &Value, spec: &str) -> Outcome<String> {
    if spec.is_empty() {
        return text(value);
    }
    let mut spec = Spec::read(spec)?;
    let wrong = |kind: char| {
        format!("Unknown format code '{kind}' for object of type '{}'", value.type_name())
    };
    match value {
        Value::Str(text) => match spec.kind {
            '\0' | 's' => spec.text(text),
            kind => Err(wrong(kind)),
        },
        Value::Int(_) | Value::Bool(_) | Value::Float(_) => {
            let whole = value.as_int();
            match (spec.kind, whole) {
                ('\0', Some(_)) if matches!(value, Value::Bool(_)) && spec.width == 0 => {
                    text(value)
                }
                ('\0' | 'd' | 'n' | 'b' | 'o' | 'x' | 'X', Some(number)) => {
                    if spec.precision.is_some() {
                        return Err("Precision not allowed in integer format specifier".to_owned());
                    }
                    spec.integer(number, None)
                }
                ('c', Some(number)) => {
                    let c = u32::try_from(number).ok().and_then(char::from_u32);
                    spec.text(&c.ok_or("%c arg not in range(0x110000)")?.to_string())
                }
                ('e' | 'E' | 'f' | 'F' | 'g' | 'G' | '%' | '\0', _) => {
                    if spec.kind != '\0' {
                        spec.precision = spec.precision.or(Some(6));
                    }
                    spec.float(value.as_float().unwrap_or(0.0))
                }
                (kind, _) => Err(wrong(kind)),
            }
        }
        _ => Err(format!("unsupported format string passed to {}.__format__", value.type_name())),
    }
}

/// A format specification.
#[derive(Default)]
struct Spec {
    fill: char,
    align: Option<char>,
    sign: char,
    alternate: bool,
    zero: bool,
    width: usize,
    grouping: Option<char>,
    precision: Option<usize>,
    kind: char,
}

impl Spec {
    fn read(text: &str) -> Outcome<Self> {
        let mut spec = Self { fill: ' ', ..Self::default() };
        let all: Vec<char> = text.chars().collect();
        let mut from = 0;
        if all.len() > 1 && "<>=^".contains(all[1]) {
            (spec.fill, spec.align, from) = (all[0], Some(all[1]), 2);
        } else if all.first().is_some_and(|c| "<>=^".contains(*c)) {
            (spec.align, from) = (Some(all[0]), 1);
        }
        let rest: String = all[from..].iter().collect();
        let mut chars = rest.chars().peekable();
        if let Some(sign) = chars.next_if(|c| "+- ".contains(*c)) {
            spec.sign = sign;
        }
        spec.alternate = chars.next_if_eq(&'#').is_some();
        spec.zero = chars.next_if_eq(&'0').is_some();
        spec.width = digits(&mut chars)?.unwrap_or(0);
        spec.grouping = chars.next_if(|c| ",_".contains(*c));
        if chars.next_if_eq(&'.').is_some() {
            spec.precision = Some(digits(&mut chars)?.ok_or("Format specifier missing precision")?);
        }
        spec.kind = chars.next().unwrap_or('\0');
        match chars.next() {
            None => Ok(spec),
            Some(_) => Err(format!("Invalid format specifier {text:?}")),
        }
    }

    fn padded(&self, sign: &str, digits: &str, usual: char) -> Outcome<String> {
        bounded(self.width)?;
        let length = sign.chars().count() + digits.chars().count();
        let missing = self.width.saturating_sub(length);
        let (fill, align) = match (self.align, self.zero) {
            (None, true) => ('0', if usual == '<' { '<' } else { '=' }),
            (align, _) => {
                (if self.zero && align.is_none() { '0' } else { self.fill }, align.unwrap_or(usual))
            }
        };
        let pad = |count: usize| fill.to_string().repeat(count);
        Ok(match align {
            '<' => format!("{sign}{digits}{}", pad(missing)),
            '^' => format!("{}{sign}{digits}{}", pad(missing / 2), pad(missing - missing / 2)),
            '=' => format!("{sign}{}{digits}", pad(missing)),
            _ => format!("{}{sign}{digits}", pad(missing)),
        })
    }

    fn text(&self, text: &str) -> Outcome<String> {
        let cut: String = match self.precision {
            Some(most) => text.chars().take(most).collect(),
            None => text.to_owned(),
        };
        self.padded("", &cut, '<')
    }

    fn sign(&self, negative: bool) -> &'static str {
        match (negative, self.sign) {
            (true, _) => "-",
            (false, '+') => "+",
            (false, ' ') => " ",
            _ => "",
        }
    }

    fn integer(&self, number: i128, least: Option<usize>) -> Outcome<String> {
        let size = number.unsigned_abs();
        let (prefix, mut digits) = match self.kind {
            'x' => ("0x", format!("{size:x}")),
            'X' => ("0X", format!("{size:X}")),
            'o' => ("0o", format!("{size:o}")),
            'b' => ("0b", format!("{size:b}")),
            _ => ("", size.to_string()),
        };
        if let Some(least) = least {
            bounded(least)?;
            digits.insert_str(0, &"0".repeat(least.saturating_sub(digits.len())));
        }
        if let Some(mark) = self.grouping {
            digits = grouped(&digits, mark, if prefix.is_empty() { 3 } else { 4 });
        }
        let prefix = if self.alternate { prefix } else { "" };
        self.padded(&format!("{}{prefix}", self.sign(number < 0)), &digits, '>')
    }

    fn float(&self, number: f64) -> Outcome<String> {
        let precision = self.precision.unwrap_or(6);
        if precision > 1 << 12 {
            return Err("precision too big".to_owned());
        }
        let size = number.abs();
        let upper = self.kind.is_ascii_uppercase();
        let mut digits = match self.kind {
            _ if size.is_nan() => "nan".to_owned(),
            _ if size.is_infinite() => "inf".to_owned(),
            'f' | 'F' => format!("{size:.precision$}"),
            '%' => format!("{:.precision$}%", size * 100.0),
            'e' | 'E' => exponential(size, precision),
            'g' | 'G' => general(size, precision.max(1), self.alternate),
            _ => match self.precision {
                None => float(size),
                Some(precision) => {
                    let text = general(size, precision.max(1), false);
                    if text.contains(['.', 'e']) { text } else { text + ".0" }
                }
            },
        };
        if upper {
            digits = digits.to_uppercase();
        }
        if let Some(mark) = self.grouping {
            let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
            digits = grouped(&digits[..end], mark, 3) + &digits[end..];
        }
        self.padded(self.sign(number.is_sign_negative() && !number.is_nan()), &digits, '>')
    }
}

fn grouped(digits: &str, mark: char, each: usize) -> String {
    let mut made = String::new();
    for (at, c) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(each) {
            made.push(mark);
        }
        made.push(c);
    }
    made
}

fn exponential(size: f64, precision: usize) -> String {
    let text = format!("{size:.precision$e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    format!("{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
}

fn general(size: f64, precision: usize, keeps_zeros: bool) -> String {
    let text = exponential(size, precision - 1);
    let exponent: i32 = text.split_once('e').and_then(|(_, it)| it.parse().ok()).unwrap_or(0);
    let short = |digits: &str| match digits.contains('.') && !keeps_zeros {
        true => digits.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => digits.to_owned(),
    };
    if exponent < -4 || exponent >= precision as i32 {
        let (digits, tail) = text.split_once('e').unwrap_or((&text, ""));
        return format!("{}e{tail}", short(digits));
    }
    let after = (precision as i32 - 1 - exponent).max(0) as usize;
    short(&format!("{size:.after$}"))
}
