//! Values of a row.

use arrow_array::cast::AsArray as _;
use arrow_array::types::{
    ArrowDictionaryKeyType, ArrowPrimitiveType, Float16Type, Float32Type, Float64Type, Int8Type,
    Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, StructArray};
use arrow_schema::{DataType, Field};
use minijinja::Value;

use crate::limits::Made;

/// The reason why a table is refused.
type Problem = String;

/// Bytes that a value other than a text counts as.
const VALUE: usize = 16;
/// Values within each other at most. The library bounds them too.
const DEEPEST: usize = 64;

/// Returns `true` if a column of this type holds a text in each row.
pub(super) fn is_text(kind: &DataType) -> bool {
    match kind {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => true,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => true,
        DataType::Dictionary(_, values) => is_text(values),
        _ => false,
    }
}

/// Returns `true` if a column of this type holds a file in each row, as the `datasets` library keeps images and sound.
pub(super) fn is_file(kind: &DataType) -> bool {
    let DataType::Struct(fields) = kind else { return false };
    fields.len() == 2 && ["bytes", "path"].iter().all(|name| fields.find(name).is_some())
}

/// Returns `true` if values of this type can be handed to a template.
pub(super) fn is_read(kind: &DataType, depth: usize) -> bool {
    if depth > DEEPEST {
        return false;
    }
    match kind {
        DataType::Null | DataType::Boolean => true,
        DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 => true,
        DataType::UInt8 | DataType::UInt16 | DataType::UInt32 | DataType::UInt64 => true,
        DataType::Float16 | DataType::Float32 | DataType::Float64 => true,
        DataType::FixedSizeBinary(_) => true,
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::FixedSizeList(item, _)
        | DataType::Map(item, _) => is_read(item.data_type(), depth + 1),
        DataType::Struct(fields) => {
            fields.iter().all(|field| is_read(field.data_type(), depth + 1))
        }
        DataType::Dictionary(_, values) => is_read(values, depth + 1),
        other => is_text(other),
    }
}

/// The text in a row of a column of texts; `None` where it's null.
pub(super) fn text(column: &dyn Array, row: usize) -> Option<&[u8]> {
    if column.is_null(row) {
        return None;
    }
    match column.data_type() {
        DataType::Utf8 => Some(column.as_string::<i32>().value(row).as_bytes()),
        DataType::LargeUtf8 => Some(column.as_string::<i64>().value(row).as_bytes()),
        DataType::Utf8View => Some(column.as_string_view().value(row).as_bytes()),
        DataType::Binary => Some(column.as_binary::<i32>().value(row)),
        DataType::LargeBinary => Some(column.as_binary::<i64>().value(row)),
        DataType::BinaryView => Some(column.as_binary_view().value(row)),
        DataType::FixedSizeBinary(_) => Some(column.as_fixed_size_binary().value(row)),
        DataType::Dictionary(..) => {
            let (values, key) = key(column, row)?;
            text(values, key)
        }
        _ => None,
    }
}

/// The values of a column by dictionary, and the place among them of the value in a row.
fn key(column: &dyn Array, row: usize) -> Option<(&dyn Array, usize)> {
    fn of<K: ArrowDictionaryKeyType>(
        column: &dyn Array,
        row: usize,
    ) -> Option<(&dyn Array, usize)> {
        let column = column.as_dictionary_opt::<K>()?;
        Some((&**column.values(), column.key(row)?))
    }
    let DataType::Dictionary(keys, _) = column.data_type() else { return None };
    match **keys {
        DataType::Int8 => of::<Int8Type>(column, row),
        DataType::Int16 => of::<Int16Type>(column, row),
        DataType::Int32 => of::<Int32Type>(column, row),
        DataType::Int64 => of::<Int64Type>(column, row),
        DataType::UInt8 => of::<UInt8Type>(column, row),
        DataType::UInt16 => of::<UInt16Type>(column, row),
        DataType::UInt32 => of::<UInt32Type>(column, row),
        DataType::UInt64 => of::<UInt64Type>(column, row),
        _ => None,
    }
}

/// Returns `true` if the texts of a field are JSON.
pub(super) fn is_json(field: &Field) -> bool {
    field.metadata().get("ARROW:extension:name").is_some_and(|name| name == "arrow.json")
}

/// The value in a row of a column that [`is_read`].
///
/// # Errors
/// More bytes than may be made, and a text that isn't JSON where it is to be some.
pub(super) fn value(
    column: &dyn Array,
    field: &Field,
    row: usize,
    made: &mut Made,
) -> Result<Value, Problem> {
    fn number<T: ArrowPrimitiveType>(column: &dyn Array, row: usize) -> T::Native {
        column.as_primitive::<T>().value(row)
    }
    if column.is_null(row) {
        made.add(VALUE)?;
        return Ok(Value::from(()));
    }
    if is_text(column.data_type()) || matches!(column.data_type(), DataType::FixedSizeBinary(_)) {
        let text = text(column, row);
        made.add(VALUE.saturating_add(text.map_or(0, <[u8]>::len)))?;
        return Ok(match text.map(std::str::from_utf8) {
            Some(Ok(text)) if is_json(field) => serde_json::from_str(text)
                .map_err(|error| format!("a value of `{}` isn't JSON ({error})", field.name()))?,
            Some(Ok(text)) => text.into(),
            // Pictures and hashes beside the conversation. A text that is read is refused by its column.
            Some(Err(_)) => Value::from_bytes(Vec::new()),
            None => Value::from(()),
        });
    }
    made.add(VALUE)?;
    Ok(match column.data_type() {
        DataType::Boolean => column.as_boolean().value(row).into(),
        DataType::Int8 => number::<Int8Type>(column, row).into(),
        DataType::Int16 => number::<Int16Type>(column, row).into(),
        DataType::Int32 => number::<Int32Type>(column, row).into(),
        DataType::Int64 => number::<Int64Type>(column, row).into(),
        DataType::UInt8 => number::<UInt8Type>(column, row).into(),
        DataType::UInt16 => number::<UInt16Type>(column, row).into(),
        DataType::UInt32 => number::<UInt32Type>(column, row).into(),
        DataType::UInt64 => number::<UInt64Type>(column, row).into(),
        DataType::Float16 => number::<Float16Type>(column, row).to_f32().into(),
        DataType::Float32 => number::<Float32Type>(column, row).into(),
        DataType::Float64 => number::<Float64Type>(column, row).into(),
        DataType::List(item) => list(&column.as_list::<i32>().value(row), item, made)?,
        DataType::LargeList(item) => list(&column.as_list::<i64>().value(row), item, made)?,
        DataType::FixedSizeList(item, _) => {
            list(&column.as_fixed_size_list().value(row), item, made)?
        }
        DataType::Struct(_) => object(column.as_struct(), row, made)?,
        DataType::Map(..) => {
            let entries = column.as_map().value(row);
            let ([keys, values], [key, item]) = (entries.columns(), &entries.fields()[..]) else {
                return Err("the entries of a map have no key and value".to_owned());
            };
            let entry = |at| -> Result<(Value, Value), Problem> {
                Ok((value(keys, key, at, made)?, value(values, item, at, made)?))
            };
            let entries: Result<Vec<(Value, Value)>, Problem> =
                (0..entries.len()).map(entry).collect();
            Value::from_pairs(entries?)
        }
        DataType::Dictionary(..) => match key(column, row) {
            Some((values, key)) => value(values, field, key, made)?,
            None => Value::from(()),
        },
        _ => Value::from(()),
    })
}

fn list(items: &dyn Array, item: &Field, made: &mut Made) -> Result<Value, Problem> {
    let items = (0..items.len()).map(|at| value(items, item, at, made));
    items.collect::<Result<Vec<Value>, Problem>>().map(Value::from)
}

fn object(columns: &StructArray, row: usize, made: &mut Made) -> Result<Value, Problem> {
    let fields = columns.fields().iter().zip(columns.columns());
    let fields =
        fields.map(|(field, column)| Ok((field.name().clone(), value(column, field, row, made)?)));
    fields.collect::<Result<Vec<(String, Value)>, Problem>>().map(Value::from_pairs)
}
