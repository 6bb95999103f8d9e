//! Rows of a Parquet file, with nested lists and objects.

use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;

use minijinja::Value;
use parquet::basic::{ConvertedType, LogicalType};
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::record::{Field, Row};
use parquet::schema::types::Type;

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
    let json = JsonColumns::of(file.metadata().file_metadata().schema());
    let mut number = 0;
    while let Some(row) = guarded(&mut || rows.next())? {
        number += 1;
        let row = object(&row.map_err(broken)?, &json, &mut made)
            .map_err(|problem| refused(name, number, problem))?;
        if each(number, row)?.is_break() {
            break;
        }
    }
    Ok(())
}

/// The text that the file's metadata has under `key`; `None` where it has none, or is damaged.
pub(crate) fn metadata(bytes: Bytes, key: &str) -> Option<String> {
    footer::check(&bytes, &mut Made::of(bytes.len())).ok()?;
    let bytes = Arc::new(bytes);
    let open = || SerializedFileReader::new(Copied(bytes)).ok();
    let file = panic::catch_unwind(AssertUnwindSafe(open)).ok()??;
    let pairs = file.metadata().file_metadata().key_value_metadata()?;
    pairs.iter().find(|pair| pair.key == key)?.value.clone()
}

/// The columns of JSON within a column, which the `datasets` library writes for its `Json` features.
enum JsonColumns {
    /// The column has none.
    Plain,
    /// The column is JSON itself.
    Json,
    /// The fields of a group, by name.
    Fields(Vec<(String, JsonColumns)>),
    /// The items of a list.
    Items(Box<JsonColumns>),
}

impl JsonColumns {
    fn of(kind: &Type) -> Self {
        let info = kind.get_basic_info();
        let is_json = info.converted_type() == ConvertedType::JSON
            || info.logical_type_ref() == Some(&LogicalType::Json);
        if kind.is_primitive() {
            return if is_json { Self::Json } else { Self::Plain };
        }
        let fields = kind.get_fields();
        let of_field = |field: &Arc<Type>| (field.name().to_owned(), Self::of(field));
        match (info.converted_type(), fields) {
            (ConvertedType::MAP | ConvertedType::MAP_KEY_VALUE, _) => Self::Plain,
            // A list is a group of a repeated group of its item, or of the repeated item itself.
            (ConvertedType::LIST, [repeated]) => {
                let item = match repeated.is_group() && repeated.get_fields().len() == 1 {
                    true => &repeated.get_fields()[0],
                    false => repeated,
                };
                Self::Items(Box::new(Self::of(item)))
            }
            _ => Self::Fields(fields.iter().map(of_field).collect()),
        }
    }

    fn of_field(&self, name: &str) -> &Self {
        let Self::Fields(fields) = self else { return &Self::Plain };
        fields.iter().find(|(own, _)| own == name).map_or(&Self::Plain, |(_, json)| json)
    }

    fn of_item(&self) -> &Self {
        if let Self::Items(item) = self { item } else { &Self::Plain }
    }
}

fn object(row: &Row, json: &JsonColumns, made: &mut Made) -> std::result::Result<Value, String> {
    let fields = row.get_column_iter().map(|(name, field)| {
        made.add(name.len())?;
        Ok((name.clone(), value(field, json.of_field(name), made)?))
    });
    fields.collect::<std::result::Result<Vec<(String, Value)>, String>>().map(Value::from_pairs)
}

fn value(field: &Field, json: &JsonColumns, made: &mut Made) -> std::result::Result<Value, String> {
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
        Field::Str(text) if matches!(json, JsonColumns::Json) => {
            serde_json::from_str::<Value>(text)
                .map_err(|error| format!("a text of its JSON column isn't JSON ({error})"))?
        }
        Field::Str(text) => text.as_str().into(),
        Field::Group(row) => object(row, json, made)?,
        Field::ListInternal(list) => {
            let items = list.elements().iter().map(|item| value(item, json.of_item(), made));
            Value::from(items.collect::<std::result::Result<Vec<_>, _>>()?)
        }
        Field::MapInternal(map) => {
            let entries = map.entries().iter().map(|(key, field)| {
                let plain = &JsonColumns::Plain;
                Ok((value(key, plain, made)?, value(field, plain, made)?))
            });
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
