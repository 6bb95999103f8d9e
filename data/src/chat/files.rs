//! Rows of data files, one after the other: JSON objects on lines or in an array, and rows of Parquet, Arrow and tables.

use std::fmt;
use std::ops::ControlFlow;
use std::path::Path;

use minijinja::Value;
use serde::Deserialize as _;
use serde::de::{Deserializer as _, Error as _, SeqAccess, Visitor};
use serde_json::Deserializer;

use super::{Each, parquet, refused};
use crate::bytes::Bytes;
use crate::corpus::{BYTE_ORDER_MARK, extension, is_parquet, lenient, table};
use crate::{Error, Result, arrow, limits};

/// How rows follow each other in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// A value per line.
    Lines,
    /// An array, or values one after the other.
    Values,
    /// Parquet.
    Parquet,
    /// Arrow.
    Arrow,
    /// A table whose values are separated by this.
    Table(u8),
}

impl Layout {
    /// By the file's name and first bytes; `None` of a file that isn't rows. The flag says whether the name told.
    pub fn of(path: &Path, bytes: &Bytes) -> Option<(Self, bool)> {
        if is_parquet(bytes) {
            return Some((Self::Parquet, true));
        }
        match extension(path).as_str() {
            extension if extension == "arrow" || arrow::is_file(bytes) => Some((Self::Arrow, true)),
            "jsonl" | "ndjson" => Some((Self::Lines, true)),
            "json" => Some((Self::Values, true)),
            "bin" => None,
            extension if let Some(delimiter) = table::delimiter(extension) => {
                Some((Self::Table(delimiter), true))
            }
            _ => {
                let text = without_mark(bytes).trim_ascii_start();
                text.starts_with(b"[")
                    .then_some((Self::Values, false))
                    .or_else(|| text.starts_with(b"{").then_some((Self::Values, false)))
            }
        }
    }

    /// Hands every row of the file `name` to `each`, until that breaks.
    ///
    /// # Errors
    /// Those of `each`, and a row that can't be read, by its number.
    pub fn rows(self, name: &str, bytes: Bytes, each: Each<'_>) -> Result<()> {
        match self {
            Self::Lines => lines(name, without_mark(&bytes), each),
            Self::Values => values(name, without_mark(&bytes.in_memory()), each),
            Self::Parquet => parquet::rows(name, bytes, each),
            Self::Arrow => arrow::rows(name, &bytes, each),
            Self::Table(delimiter) => table::rows(name, &bytes, delimiter, each),
        }
    }
}

fn without_mark(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes)
}

/// The refusal of a row that isn't JSON.
fn not_json(name: &str, row: usize, error: &serde_json::Error) -> Error {
    refused(name, row, format!("it isn't JSON ({error}); correct it or remove it"))
}

fn lines(name: &str, text: &[u8], each: Each<'_>) -> Result<()> {
    let mut row = 0;
    for (index, line) in limits::lines(text).enumerate() {
        let (_, line) = line
            .map_err(|problem| refused(name, row + 1, format!("line {}: {problem}", index + 1)))?;
        if line.trim_ascii().is_empty() {
            continue;
        }
        row += 1;
        // A copy, which stays text whoever writes the file. The parser takes bytes for text that it doesn't keep.
        let line = String::from_utf8(line.to_vec()).map_err(|error| {
            let at = error.utf8_error().valid_up_to();
            let problem = format!(
                "line {} isn't UTF-8 at byte {at}; convert the file (iconv -t UTF-8)",
                index + 1
            );
            refused(name, row, problem)
        })?;
        let line = &*lenient::json(line.as_bytes());
        let mut input = Deserializer::from_slice(line);
        let value = Value::deserialize(&mut input).and_then(|value| input.end().map(|()| value));
        let value = value.map_err(|error| {
            let (line, column) = (index + 1, error.column());
            let problem = crate::corpus::without_place(&error);
            refused(
                name,
                row,
                format!("it isn't JSON (line {line}, column {column}: {problem}); correct it or remove it"),
            )
        })?;
        if each(row, value)?.is_break() {
            break;
        }
    }
    Ok(())
}

fn values(name: &str, text: &[u8], each: Each<'_>) -> Result<()> {
    let text = &*lenient::json(text);
    let mut input = Deserializer::from_slice(text);
    let mut row = 0;
    if !text.trim_ascii_start().starts_with(b"[") {
        loop {
            // What is left is white space alone.
            if input.end().is_ok() {
                return Ok(());
            }
            row += 1;
            let value = Value::deserialize(&mut input);
            let value = value.map_err(|error| not_json(name, row, &error))?;
            if each(row, value)?.is_break() {
                return Ok(());
            }
        }
    }
    let mut ended = None;
    let array = Array { row: &mut row, each, ended: &mut ended };
    let read = input.deserialize_seq(array).and_then(|()| input.end());
    match (ended, read) {
        (Some(ended), _) => ended,
        (None, Ok(())) => Ok(()),
        (None, Err(error)) => Err(not_json(name, row + 1, &error)),
    }
}

/// Hands on the values of an array as they come.
struct Array<'a, 'b> {
    /// Rows that were read.
    row: &'a mut usize,
    each: Each<'b>,
    /// Why it ended early, which isn't the parser's error.
    ended: &'a mut Option<Result<()>>,
}

impl<'de> Visitor<'de> for Array<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of rows")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> std::result::Result<(), A::Error> {
        while let Some(value) = array.next_element()? {
            *self.row += 1;
            let ended = match (self.each)(*self.row, value) {
                Ok(ControlFlow::Continue(())) => continue,
                Ok(ControlFlow::Break(())) => Ok(()),
                Err(error) => Err(error),
            };
            *self.ended = Some(ended);
            return Err(A::Error::custom("no further row is wanted"));
        }
        Ok(())
    }
}
