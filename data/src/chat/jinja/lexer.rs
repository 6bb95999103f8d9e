//! The text of a template as tokens, with white space cut as transformers has Jinja cut it: `trim_blocks` and `lstrip_blocks`.

use std::sync::Arc;

use super::Error;
use super::ast::Literal;

/// Bytes of a template at most.
const LONGEST: usize = 1 << 22;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    Text(String),
    PrintBegin,
    PrintEnd,
    BlockBegin,
    BlockEnd,
    Name(String),
    Literal(Literal),
    Symbol(&'static str),
    End,
}

/// Symbols, longer ones first.
const SYMBOLS: [&str; 27] = [
    "//", "**", "==", "!=", ">=", "<=", "+", "-", "*", "/", "%", "~", "(", ")", "[", "]", "{", "}",
    ">", "<", "=", ".", ":", ",", "|", ";", "!",
];

/// Tokens of a template, each with its line.
///
/// # Errors
/// Text that isn't a template's.
pub(super) fn tokens(source: &str) -> Result<Vec<(Token, usize)>, Error> {
    if source.len() > LONGEST {
        let message = format!("it has {} bytes, and {LONGEST} are the most", source.len());
        return Err(Error { message, line: 1 });
    }
    let source = source.replace("\r\n", "\n").replace('\r', "\n");
    let source = source.strip_suffix('\n').unwrap_or(&source);
    let mut lexer = Lexer { source, at: 0, line: 1, tokens: Vec::new(), trim: Trim::None };
    lexer.all()?;
    let line = lexer.line;
    lexer.tokens.push((Token::End, line));
    Ok(lexer.tokens)
}

/// The part that a tag removes from the text behind it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Trim {
    None,
    Newline,
    White,
}

struct Lexer<'a> {
    source: &'a str,
    at: usize,
    line: usize,
    tokens: Vec<(Token, usize)>,
    trim: Trim,
}

impl<'a> Lexer<'a> {
    fn error<T>(&self, message: impl Into<String>) -> Result<T, Error> {
        Err(Error { message: message.into(), line: self.line })
    }

    fn rest(&self) -> &'a str {
        &self.source[self.at..]
    }

    fn skip(&mut self, bytes: usize) {
        self.line += self.source[self.at..self.at + bytes].bytes().filter(|&b| b == b'\n').count();
        self.at += bytes;
    }

    fn all(&mut self) -> Result<(), Error> {
        while !self.rest().is_empty() {
            let rest = self.rest();
            let found = rest
                .match_indices('{')
                .find(|(at, _)| matches!(rest.as_bytes().get(at + 1), Some(b'{' | b'%' | b'#')));
            let Some((start, _)) = found else {
                self.text(rest.len(), None);
                break;
            };
            let kind = rest.as_bytes()[start + 1];
            let sign =
                rest.as_bytes().get(start + 2).copied().filter(|it| matches!(it, b'-' | b'+'));
            self.text(start, Some((kind, sign)));
            let open = 2 + usize::from(sign.is_some());
            match kind {
                b'#' => {
                    let Some(end) = self.rest()[open..].find("#}").map(|end| open + end) else {
                        return self.error("a comment doesn't end");
                    };
                    let sign = self.rest().as_bytes()[end - 1];
                    let sign = (end > open).then_some(sign).filter(|it| matches!(it, b'-' | b'+'));
                    self.trim = trimmed(sign, true);
                    self.skip(end + 2);
                }
                b'%' if self.raw(open)? => {}
                _ => {
                    let block = kind == b'%';
                    let line = self.line;
                    self.tokens
                        .push((if block { Token::BlockBegin } else { Token::PrintBegin }, line));
                    self.skip(open);
                    self.inside(block)?;
                }
            }
        }
        Ok(())
    }

    /// Takes the text before a tag, cut on both sides.
    fn text(&mut self, bytes: usize, tag: Option<(u8, Option<u8>)>) {
        let line = self.line;
        let whole = &self.rest()[..bytes];
        let mut text = match self.trim {
            Trim::None => whole,
            Trim::Newline => whole.strip_prefix('\n').unwrap_or(whole),
            Trim::White => whole.trim_start(),
        };
        match tag {
            Some((_, Some(b'-'))) => text = text.trim_end(),
            Some((kind, sign)) if kind != b'{' && sign != Some(b'+') => {
                // Spaces alone between the line's begin and the tag.
                let begin = text.rfind('\n').map(|at| at + 1);
                let started = self.at == 0
                    || (text.len() < whole.len()
                        && whole[..whole.len() - text.len()].ends_with('\n'));
                let begin = begin.or(started.then_some(0));
                if let Some(begin) = begin.filter(|&it| text[it..].chars().all(char::is_whitespace))
                {
                    text = &text[..begin];
                }
            }
            _ => {}
        }
        self.trim = Trim::None;
        if !text.is_empty() {
            self.tokens.push((Token::Text(text.to_owned()), line));
        }
        self.skip(bytes);
    }

    /// Takes a raw block, if one begins here.
    fn raw(&mut self, open: usize) -> Result<bool, Error> {
        let rest = self.rest();
        let inner = rest[open..].trim_start();
        let Some(inner) = inner.strip_prefix("raw") else { return Ok(false) };
        let inner = inner.trim_start();
        let (sign, inner) = match inner.as_bytes().first() {
            Some(&sign @ (b'-' | b'+')) => (Some(sign), &inner[1..]),
            _ => (None, inner),
        };
        let Some(body) = inner.strip_prefix("%}") else { return Ok(false) };
        self.trim = trimmed(sign, true);
        self.skip(rest.len() - body.len());
        let mut from = 0;
        loop {
            let Some(start) = body[from..].find("{%").map(|at| from + at) else {
                return self.error("a raw block doesn't end");
            };
            let tag = &body[start + 2..];
            let sign = tag.as_bytes().first().copied().filter(|it| matches!(it, b'-' | b'+'));
            let tag = &tag[usize::from(sign.is_some())..];
            let tail = tag.trim_start().strip_prefix("endraw").map(str::trim_start);
            let ends = tail.and_then(|tail| {
                let sign = tail.as_bytes().first().copied().filter(|it| matches!(it, b'-' | b'+'));
                tail[usize::from(sign.is_some())..].strip_prefix("%}").map(|after| (sign, after))
            });
            let Some((end, after)) = ends else {
                from = start + 2;
                continue;
            };
            self.text(start, Some((b'%', sign)));
            self.trim = trimmed(end, true);
            self.skip(body.len() - start - after.len());
            return Ok(true);
        }
    }

    /// Takes the tokens of a tag up to its end.
    fn inside(&mut self, block: bool) -> Result<(), Error> {
        let mut open: Vec<&'static str> = Vec::new();
        let end = if block { "%}" } else { "}}" };
        loop {
            let rest = self.rest();
            let trimmed_rest = rest.trim_start();
            self.skip(rest.len() - trimmed_rest.len());
            let rest = trimmed_rest;
            if open.is_empty() {
                let sign = rest.as_bytes().first().copied().filter(|it| matches!(it, b'-' | b'+'));
                let sign = sign.filter(|&it| rest[1..].starts_with(end) && (block || it == b'-'));
                let from = usize::from(sign.is_some());
                if rest[from..].starts_with(end) {
                    self.trim = trimmed(sign, block);
                    let line = self.line;
                    self.tokens.push((if block { Token::BlockEnd } else { Token::PrintEnd }, line));
                    self.skip(from + 2);
                    return Ok(());
                }
            }
            let line = self.line;
            let (token, bytes) = self.token(rest)?;
            if let Token::Symbol(symbol) = token {
                match symbol {
                    "(" | "[" | "{" => open.push(symbol),
                    ")" | "]" | "}" => {
                        let pair = match symbol {
                            ")" => "(",
                            "]" => "[",
                            _ => "{",
                        };
                        if open.pop() != Some(pair) {
                            return self.error(format!("unexpected '{symbol}'"));
                        }
                    }
                    _ => {}
                }
            }
            self.tokens.push((token, line));
            self.skip(bytes);
        }
    }

    fn token(&self, rest: &str) -> Result<(Token, usize), Error> {
        let Some(first) = rest.chars().next() else {
            return self.error("a tag doesn't end");
        };
        if first == '"' || first == '\'' {
            let mut escaped = false;
            let end = rest.char_indices().skip(1).find(|&(_, c)| {
                let ends = c == first && !escaped;
                escaped = c == '\\' && !escaped;
                ends
            });
            let Some((end, _)) = end else { return self.error("a text doesn't end") };
            let text = self.unescaped(&rest[1..end])?;
            return Ok((Token::Literal(Literal::Str(Arc::from(text))), end + 1));
        }
        if first.is_ascii_digit() {
            return self.number(rest);
        }
        if first == '_' || first.is_alphabetic() {
            let end = rest.find(|c: char| c != '_' && !c.is_alphanumeric()).unwrap_or(rest.len());
            return Ok((Token::Name(rest[..end].to_owned()), end));
        }
        match SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol)) {
            Some(symbol) => Ok((Token::Symbol(symbol), symbol.len())),
            None => self.error(format!("unexpected {first:?}")),
        }
    }

    fn number(&self, rest: &str) -> Result<(Token, usize), Error> {
        let digits = |from: usize, of: &dyn Fn(u8) -> bool| {
            let bytes = &rest.as_bytes()[from..];
            from + bytes.iter().take_while(|&&b| of(b) || b == b'_').count()
        };
        for (prefix, radix) in [("0x", 16), ("0o", 8), ("0b", 2)] {
            if rest.get(..2).is_some_and(|start| start.eq_ignore_ascii_case(prefix)) {
                let end = digits(2, &|b| b.is_ascii_alphanumeric());
                return match i128::from_str_radix(&rest[2..end].replace('_', ""), radix) {
                    Ok(number) => Ok((Token::Literal(Literal::Int(number)), end)),
                    Err(_) => self.error(format!("{:?} isn't a number", &rest[..end])),
                };
            }
        }
        let digit = |b: u8| b.is_ascii_digit();
        let mut end = digits(0, &digit);
        let mut float = false;
        let next = |end: usize, skip: usize| rest.as_bytes().get(end + skip).copied().unwrap_or(0);
        if next(end, 0) == b'.' && next(end, 1).is_ascii_digit() {
            float = true;
            end = digits(end + 1, &digit);
        }
        if matches!(next(end, 0), b'e' | b'E') {
            let sign = usize::from(matches!(next(end, 1), b'+' | b'-'));
            if next(end, 1 + sign).is_ascii_digit() {
                float = true;
                end = digits(end + 1 + sign, &digit);
            }
        }
        let text = rest[..end].replace('_', "");
        let literal = match float {
            true => text.parse().ok().map(Literal::Float),
            false => text.parse().ok().map(Literal::Int),
        };
        match literal {
            Some(literal) => Ok((Token::Literal(literal), end)),
            None => self.error(format!("the number {text:.40} is too large")),
        }
    }

    /// A text as Python reads its escapes.
    fn unescaped(&self, text: &str) -> Result<String, Error> {
        let mut made = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find('\\') {
            made += &rest[..at];
            rest = &rest[at + 1..];
            let Some(c) = rest.chars().next() else { break };
            rest = &rest[c.len_utf8()..];
            let code = |rest: &str, digits: usize| -> Option<u32> {
                let text =
                    rest.get(..digits).filter(|it| it.bytes().all(|b| b.is_ascii_hexdigit()))?;
                u32::from_str_radix(text, 16).ok()
            };
            let digits = match c {
                'x' => 2,
                'u' => 4,
                'U' => 8,
                _ => 0,
            };
            if digits > 0 {
                let Some(found) = code(rest, digits).and_then(char::from_u32) else {
                    return self.error(format!("a text has an escape \\{c} that is no character"));
                };
                made.push(found);
                rest = &rest[digits..];
                continue;
            }
            match c {
                '\n' => {}
                'n' => made.push('\n'),
                't' => made.push('\t'),
                'r' => made.push('\r'),
                'a' => made.push('\x07'),
                'b' => made.push('\x08'),
                'f' => made.push('\x0c'),
                'v' => made.push('\x0b'),
                '\\' | '\'' | '"' => made.push(c),
                '0'..='7' => {
                    let more =
                        rest.bytes().take(2).take_while(|b| (b'0'..=b'7').contains(b)).count();
                    let octal = format!("{c}{}", &rest[..more]);
                    made.extend(u32::from_str_radix(&octal, 8).ok().and_then(char::from_u32));
                    rest = &rest[more..];
                }
                'N' => return self.error("a text names a character (\\N), which isn't supported"),
                _ => {
                    made.push('\\');
                    made.push(c);
                }
            }
        }
        made += rest;
        Ok(made)
    }
}

fn trimmed(sign: Option<u8>, block: bool) -> Trim {
    match sign {
        Some(b'-') => Trim::White,
        Some(_) => Trim::None,
        None if block => Trim::Newline,
        None => Trim::None,
    }
}
