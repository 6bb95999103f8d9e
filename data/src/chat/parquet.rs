//! Rows of a Parquet file, with nested lists and objects.

use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;

use minijinja::Value;
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::record::{Field, Row};

use super::{Each, refused};
use crate::bytes::Bytes;
use crate::corpus::pages::Copied;
use crate::corpus::{footer, pages};
use crate::limits::Made;
use crate::{Error, Result};

/// Hands every row to `each`, until that breaks.
///
/// # Errors
/// Those of `each`, a damaged file, and a value that JSON doesn't have.
pub(super) fn rows(name: &str, bytes: Bytes, each: Each<'_>) -> Result<()> {
    let damaged = |problem: String| Error::Parquet { name: name.to_owned(), problem };
    let broken = |error: ParquetError| damaged(error.to_string());
    // `parquet` asserts what a damaged page breaks, and nothing of what it made is kept here.
    let guarded = |work: &mut dyn FnMut() -> Option<parquet::errors::Result<Row>>| {
        panic::catch_unwind(AssertUnwindSafe(work))
            .map_err(|_| damaged("its pages are damaged".to_owned()))
    };
    let mut made = Made::of(bytes.len());
    footer::check(&bytes, &mut made).map_err(damaged)?;
    let bytes = Arc::new(bytes);
    let file = SerializedFileReader::new(Copied(Arc::clone(&bytes))).map_err(broken)?;
    for group in file.metadata().row_groups() {
        pages::check(&bytes, group, None, &mut made).map_err(damaged)?;
    }
    let mut rows = panic::catch_unwind(AssertUnwindSafe(|| file.get_row_iter(None)))
        .map_err(|_| damaged("its pages are damaged".to_owned()))?
        .map_err(broken)?;
    let mut number = 0;
    while let Some(row) = guarded(&mut || rows.next())? {
        number += 1;
        let row = object(&row.map_err(broken)?, &mut made)
            .map_err(|problem| refused(name, number, problem))?;
        if each(number, row)?.is_break() {
            break;
        }
    }
    Ok(())
}

fn object(row: &Row, made: &mut Made) -> std::result::Result<Value, String> {
    let fields = row.get_column_iter().map(|(name, field)| {
        made.add(name.len())?;
        Ok((name.clone(), value(field, made)?))
    });
    fields.collect::<std::result::Result<Vec<(String, Value)>, String>>().map(Value::from_pairs)
}

fn value(field: &Field, made: &mut Made) -> std::result::Result<Value, String> {
    // A row's text is counted with what holds it.
    made.add(match field {
        Field::Str(text) => text.len(),
        Field::Bytes(bytes) => bytes.len(),
        _ => 16,
    })?;
    Ok(match field {
        Field::Null => Value::from(()),
        Field::Bool(value) => (*value).into(),
        Field::Byte(value) => (*value).into(),
        Field::Short(value) => (*value).into(),
        Field::Int(value) => (*value).into(),
        Field::Long(value) => (*value).into(),
        Field::UByte(value) => (*value).into(),
        Field::UShort(value) => (*value).into(),
        Field::UInt(value) => (*value).into(),
        Field::ULong(value) => (*value).into(),
        Field::Float16(value) => value.to_f32().into(),
        Field::Float(value) => (*value).into(),
        Field::Double(value) => (*value).into(),
        Field::Str(text) => text.as_str().into(),
        Field::Group(row) => object(row, made)?,
        Field::ListInternal(list) => {
            let items = list.elements().iter().map(|item| value(item, made));
            Value::from(items.collect::<std::result::Result<Vec<_>, _>>()?)
        }
        Field::MapInternal(map) => {
            let entries = map
                .entries()
                .iter()
                .map(|(key, field)| Ok((value(key, made)?, value(field, made)?)));
            Value::from_pairs(entries.collect::<std::result::Result<Vec<_>, String>>()?)
        }
        // Dates and decimals are columns beside the conversation, which templates may print.
        Field::Bytes(bytes) => match std::str::from_utf8(bytes.data()) {
            Ok(text) => text.into(),
            // Pictures and hashes beside the conversation. A text that is read is refused by its column.
            Err(_) => Value::from_bytes(Vec::new()),
        },
        other => other.to_string().into(),
    })
}
