//! Documents in JSON: an object per line, or an array.

use std::fmt;

use serde::de::{
    DeserializeSeed, Deserializer as _, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_json::Deserializer;

use super::{BYTE_ORDER_MARK, Each};
use crate::bytes::{Bytes, refuse_zip};
use crate::{Error, Result, limits};

/// A file of documents, and what takes them.
pub(super) struct Json<'a, 'b> {
    name: &'a str,
    bytes: &'a Bytes,
    key: &'a str,
    each: Each<'b>,
}

impl<'a, 'b> Json<'a, 'b> {
    /// The file `name`, whose objects have their text in the field `key`.
    pub fn new(name: &'a str, bytes: &'a Bytes, key: &'a str, each: Each<'b>) -> Self {
        Self { name, bytes, key, each }
    }

    /// Reads an object on each line; lines of white space are passed over.
    pub fn lines(self) -> Result<()> {
        let key = self.key;
        refuse_zip(self.name, self.bytes)?;
        let mark = if self.bytes.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len() } else { 0 };
        for (index, line) in limits::lines(&self.bytes[mark..]).enumerate() {
            let (at, line) = line.map_err(|problem| self.refused([index + 1, 1], &problem))?;
            if line.trim_ascii().is_empty() {
                continue;
            }
            // A copy, which stays text whoever writes the file.
            let line = String::from_utf8(lenient(line).into_owned()).map_err(|error| {
                let offset = mark + at + error.utf8_error().valid_up_to();
                Error::NotUtf8 { name: self.name.to_owned(), offset }
            })?;
            let refused = |column, problem: &str| self.refused([index + 1, column], problem);
            if !line.trim_ascii_start().starts_with('{') {
                return Err(refused(1, "not an object"));
            }
            let mut line = Deserializer::from_str(&line);
            let document = Document { key }.deserialize(&mut line);
            let document = document.and_then(|document| line.end().map(|()| document));
            let document =
                document.map_err(|error| refused(error.column(), &without_place(&error)))?;
            (self.each)(&document)?;
        }
        Ok(())
    }

    /// Reads an array of objects or strings, or objects one after the other.
    pub fn values(self) -> Result<()> {
        let key = self.key;
        let mut failed = None;
        let text = self.bytes.text(self.name)?;
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        let text = lenient(text.as_bytes());
        // Numbers and escapes of ASCII alone are replaced.
        let mut input = Deserializer::from_slice(&text);
        let read = if text.trim_ascii_start().starts_with(b"[") {
            let array = Array { key, each: &mut *self.each, failed: &mut failed };
            input.deserialize_seq(array).and_then(|()| input.end())
        } else {
            loop {
                // What is left is white space alone.
                if input.end().is_ok() {
                    break Ok(());
                }
                match (Document { key }).deserialize(&mut input) {
                    Ok(document) => (self.each)(&document)?,
                    Err(error) => break Err(error),
                }
            }
        };
        match (failed, read) {
            (Some(error), _) => Err(error),
            (None, Ok(())) => Ok(()),
            (None, Err(error)) => {
                Err(self.refused([error.line(), error.column()], &without_place(&error)))
            }
        }
    }

    fn refused(&self, [line, column]: [usize; 2], problem: &str) -> Error {
        let [name, key, problem] = [self.name, self.key, problem].map(str::to_owned);
        Error::Json { name, line, column, problem, key }
    }
}

#[cfg(not(target_family = "wasm"))]
fn lenient(bytes: &[u8]) -> std::borrow::Cow<'_, [u8]> {
    super::lenient::json(bytes)
}

/// A page gives JSON.
#[cfg(target_family = "wasm")]
fn lenient(bytes: &[u8]) -> std::borrow::Cow<'_, [u8]> {
    bytes.into()
}

/// What the parser found; where is said apart from it.
pub(crate) fn without_place(error: &serde_json::Error) -> String {
    let message = error.to_string();
    message.split_once(" at line ").map_or(message.clone(), |(problem, _place)| problem.to_owned())
}

/// The text of one document: a string, or an object's field.
struct Document<'a> {
    key: &'a str,
}

impl<'de> DeserializeSeed<'de> for Document<'_> {
    type Value = String;

    fn deserialize<D: serde::Deserializer<'de>>(
        self,
        input: D,
    ) -> std::result::Result<String, D::Error> {
        input.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Document<'_> {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object with \"{}\"", self.key)
    }

    fn visit_str<E>(self, text: &str) -> std::result::Result<String, E> {
        Ok(text.to_owned())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> std::result::Result<String, A::Error> {
        let mut text = None;
        let mut others = Vec::new();
        while let Some(key) = object.next_key::<String>()? {
            if key != self.key {
                object.next_value::<IgnoredAny>()?;
                others.push(key);
            } else if text.replace(object.next_value()?).is_some() {
                return Err(A::Error::custom(format!("duplicate field `{key}`")));
            }
        }
        text.ok_or_else(|| {
            let has = match others.is_empty() {
                true => String::new(),
                false => format!(", and has `{}`", others.join("`, `")),
            };
            A::Error::custom(format!("it has no `{}`{has}", self.key))
        })
    }
}

/// Hands on the documents of an array as they come.
struct Array<'a, 'b> {
    key: &'a str,
    each: Each<'b>,
    /// What whoever takes them refused, which isn't the parser's error.
    failed: &'a mut Option<Error>,
}

impl<'de> Visitor<'de> for Array<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of documents")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> std::result::Result<(), A::Error> {
        while let Some(text) = array.next_element_seed(Document { key: self.key })? {
            if let Err(error) = (self.each)(&text) {
                *self.failed = Some(error);
                return Err(A::Error::custom("a document is refused"));
            }
        }
        Ok(())
    }
}
