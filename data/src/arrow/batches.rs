//! Batches of rows.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_buffer::Buffer;
use arrow_ipc::MessageHeader;
use arrow_ipc::convert::try_fb_to_schema;
use arrow_ipc::reader::{read_dictionary, read_record_batch};
use arrow_schema::{ArrowError, Schema, SchemaRef};
use minijinja::Value;

use super::cells;
use super::messages::{Messages, Owned};
use crate::limits::Made;
use crate::{Error, Result};

/// The reason why a table is refused.
type Problem = String;

/// Hands the texts of the column `key` to `each`; rows without one are passed over.
///
/// # Errors
/// Errors of `each`, a damaged table, and one without such a column of text.
pub(crate) fn column(
    name: &str,
    bytes: &[u8],
    key: &str,
    each: &mut dyn FnMut(&str) -> Result<()>,
) -> Result<()> {
    let not_text = |problem| Error::Column { name: name.to_owned(), problem };
    let mut made = Made::of(bytes.len());
    let mut row = 0;
    let chosen = |schema: &Schema| text_column(schema, key).map(|at| vec![at]).map_err(not_text);
    batches(name, bytes, &chosen, &mut |batch| {
        for index in 0..batch.num_rows() {
            row += 1;
            let Some(text) = batch.columns().first().and_then(|it| cells::text(it, index)) else {
                continue;
            };
            let text = std::str::from_utf8(text)
                .map_err(|_| not_text(format!("the text of `{key}` in row {row} isn't UTF-8")))?;
            made.add(text.len()).map_err(|problem| damaged(name, problem))?;
            each(text)?;
        }
        Ok(ControlFlow::Continue(()))
    })
}

/// The place of the column `key`, if each of its rows is one text.
fn text_column(schema: &Schema, key: &str) -> std::result::Result<usize, Problem> {
    const FILES: &str = "files of pictures or sound, which aren't read from tables";
    let Some((index, field)) = schema.column_with_name(key) else {
        let names: Vec<&str> = schema.fields().iter().map(|field| &**field.name()).collect();
        let problem = format!("it has no column `{key}`, and has `{}`", names.join("`, `"));
        let files = schema.fields().iter().find(|field| cells::is_file(field.data_type()));
        return Err(match files {
            Some(field) => format!("{problem}; `{}` holds {FILES}", field.name()),
            None => problem,
        });
    };
    match field.data_type() {
        kind if cells::is_text(kind) && !cells::is_json(field) => Ok(index),
        kind if cells::is_file(kind) => Err(format!("its column `{key}` holds {FILES}")),
        _ => Err(format!("its column `{key}` isn't of text")),
    }
}

/// Hands every row with its number, from 1, to `each`, until that breaks. Columns of dates, decimals and other types that JSON
/// doesn't have are left out.
///
/// # Errors
/// Errors of `each`, and a damaged table.
pub(crate) fn rows(
    name: &str,
    bytes: &[u8],
    each: &mut dyn FnMut(usize, Value) -> Result<ControlFlow<()>>,
) -> Result<()> {
    let mut made = Made::of(bytes.len());
    let mut number = 0;
    let chosen = |schema: &Schema| -> Result<Vec<usize>> {
        let fields = schema.fields().iter().enumerate();
        let read = fields.filter(|(_, field)| cells::is_read(field.data_type(), 0));
        Ok(read.map(|(index, _)| index).collect())
    };
    batches(name, bytes, &chosen, &mut |batch| {
        for index in 0..batch.num_rows() {
            number += 1;
            let row = object(batch, index, &mut made).map_err(|problem| damaged(name, problem))?;
            if each(number, row)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    })
}

fn object(
    batch: &RecordBatch,
    index: usize,
    made: &mut Made,
) -> std::result::Result<Value, Problem> {
    let schema = batch.schema_ref();
    // A row of no columns counts too.
    made.add(size_of::<Value>())?;
    let fields = schema.fields().iter().zip(batch.columns());
    let fields = fields.map(|(field, column)| {
        Ok((field.name().clone(), cells::value(column, field, index, made)?))
    });
    let fields: std::result::Result<Vec<(String, Value)>, Problem> = fields.collect();
    Ok(Value::from_pairs(fields?))
}

/// Hands batches of the columns that are `chosen` to `each`, until that breaks.
fn batches(
    name: &str,
    bytes: &[u8],
    chosen: &dyn Fn(&Schema) -> Result<Vec<usize>>,
    each: &mut dyn FnMut(&RecordBatch) -> Result<ControlFlow<()>>,
) -> Result<()> {
    let mut messages = Messages::of(bytes);
    let mut unpacked = Made::of(bytes.len());
    let mut table: Option<Table> = None;
    while let Some(found) = messages.next().map_err(|problem| damaged(name, problem))? {
        found.check(&mut unpacked).map_err(|problem| damaged(name, problem))?;
        // `arrow` asserts what a damaged message breaks, and nothing of what it made is kept here.
        let read = AssertUnwindSafe(|| read(&mut table, &found));
        let read = panic::catch_unwind(read)
            .unwrap_or_else(|_| Err("a message is damaged".to_owned()))
            .map_err(|problem| damaged(name, problem))?;
        match read {
            Read::Schema(schema) => {
                let columns = chosen(&schema)?;
                table = Some(Table { schema, columns, dictionaries: HashMap::new() });
            }
            Read::Batch(batch) if each(&batch)?.is_break() => return Ok(()),
            Read::Batch(_) | Read::Nothing => {}
        }
    }
    match table {
        Some(_) => Ok(()),
        None => Err(damaged(name, "it has no schema".to_owned())),
    }
}

/// The head of a table, which comes before its rows.
struct Table {
    schema: SchemaRef,
    /// Columns that are read.
    columns: Vec<usize>,
    dictionaries: HashMap<i64, ArrayRef>,
}

/// Content of a message.
enum Read {
    Schema(SchemaRef),
    Batch(RecordBatch),
    Nothing,
}

fn read(table: &mut Option<Table>, found: &Owned) -> std::result::Result<Read, Problem> {
    let broken = |error: ArrowError| error.to_string();
    let message = found.message()?;
    let version = message.version();
    let body = Buffer::from(&found.body[..]);
    match (message.header_type(), table) {
        (MessageHeader::Schema, None) => {
            let schema = message.header_as_schema().ok_or("its schema is damaged")?;
            try_fb_to_schema(schema).map(Arc::new).map(Read::Schema).map_err(broken)
        }
        (MessageHeader::RecordBatch, Some(Table { schema, columns, dictionaries })) => {
            let batch = message.header_as_record_batch().ok_or("a batch is damaged")?;
            let schema = schema.clone();
            let batch =
                read_record_batch(&body, batch, schema, dictionaries, Some(&columns[..]), &version);
            batch.map(Read::Batch).map_err(broken)
        }
        (MessageHeader::DictionaryBatch, Some(Table { schema, dictionaries, .. })) => {
            let batch = message.header_as_dictionary_batch().ok_or("a dictionary is damaged")?;
            let read = read_dictionary(&body, batch, schema, dictionaries, &version);
            read.map(|()| Read::Nothing).map_err(broken)
        }
        (MessageHeader::NONE, _) => Ok(Read::Nothing),
        _ => Err("its messages aren't a schema and then rows".to_owned()),
    }
}

fn damaged(name: &str, problem: Problem) -> Error {
    Error::Arrow { name: name.to_owned(), problem }
}
