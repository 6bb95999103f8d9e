//! JSON as Python writes it: `NaN`, `Infinity` and halves of surrogate pairs, which JSON doesn't have.

use std::borrow::Cow;

/// `text` with `null` for numbers that JSON doesn't have, and U+FFFD for halves of surrogate pairs.
pub(crate) fn json(text: &[u8]) -> Cow<'_, [u8]> {
    let has = |part: &[u8]| text.windows(part.len()).any(|window| window == part);
    if !has(b"NaN") && !has(b"Infinity") && !has(b"\\ud") && !has(b"\\uD") {
        return text.into();
    }
    let mut made = Vec::with_capacity(text.len());
    let mut at = 0;
    let mut quoted = false;
    while at < text.len() {
        let rest = &text[at..];
        if quoted {
            let (bytes, replaced) = match rest {
                [b'\\', b'u', ..] => match [surrogate(rest), rest.get(6..).and_then(surrogate)] {
                    [Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)] => (12, None),
                    [Some(_), _] => (6, Some(&b"\\ufffd"[..])),
                    _ => (2, None),
                },
                [b'\\', _, ..] => (2, None),
                _ => (1, None),
            };
            quoted = rest[0] != b'"';
            made.extend_from_slice(replaced.unwrap_or(&rest[..bytes.min(rest.len())]));
            at += bytes;
            continue;
        }
        let number = [&b"NaN"[..], b"-Infinity", b"Infinity"].into_iter();
        if let Some(number) = number.into_iter().find(|number| rest.starts_with(number)) {
            made.extend_from_slice(b"null");
            at += number.len();
            continue;
        }
        quoted = rest[0] == b'"';
        made.push(rest[0]);
        at += 1;
    }
    made.into()
}

/// The half of a surrogate pair that an escape stands for.
fn surrogate(text: &[u8]) -> Option<u16> {
    let digits = text.strip_prefix(b"\\u")?.get(..4)?;
    let code = u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    (0xd800..=0xdfff).contains(&code).then_some(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_python_writes_is_read() {
        for (text, expected) in [
            (r#"{"a": NaN, "b": [-Infinity, Infinity]}"#, r#"{"a": null, "b": [null, null]}"#),
            (r#"{"NaN": "NaN \" Infinity"}"#, r#"{"NaN": "NaN \" Infinity"}"#),
            (
                r#"["\ud83d", "\ud83d\ude00", "\ude00x", "\\ud83d"]"#,
                r#"["\ufffd", "\ud83d\ude00", "\ufffdx", "\\ud83d"]"#,
            ),
            (r#"["\ud83d\n"]"#, r#"["\ufffd\n"]"#),
            (r#"["\ud8"#, r#"["\ud8"#),
        ] {
            assert_eq!(String::from_utf8_lossy(&json(text.as_bytes())), expected);
        }
    }
}
