//! Which format files of rows have, told from the columns of their first rows.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::Path;

use minijinja::Value;
use minijinja::value::ValueKind;

use super::files::Layout;
use super::format::RowFormat;
use crate::bytes::Bytes;
use crate::corpus::{named, unpacked};
use crate::{Corpus, Error, Result};

/// Rows that are looked at.
const FIRST: usize = 8;
/// Formats of conversations.
const CONVERSATIONS: [RowFormat; 5] = [
    RowFormat::Messages,
    RowFormat::PromptCompletion,
    RowFormat::ShareGpt,
    RowFormat::Alpaca,
    RowFormat::Preference,
];

/// The format of `files`, as [`Corpus::open`] names them: the one that is `asked` for, or else what their first rows' columns
/// tell. `text_key` is the column of text that was named, if one was. Never [`RowFormat::Auto`].
///
/// # Errors
/// Rows that more than one format fits, files of different formats, rows that are single messages, and a file that can't be opened.
pub fn row_format<P: AsRef<Path>>(
    files: &[P],
    asked: RowFormat,
    text_key: Option<&str>,
) -> Result<RowFormat> {
    let piped = files.iter().any(|file| file.as_ref() == Path::new(Corpus::PIPE));
    if asked != RowFormat::Auto {
        if piped && asked != RowFormat::Text {
            return Err(Error::RowFormat {
                name: "standard input".to_owned(),
                problem: format!("`{}` rows are read from files alone; name one", asked.name()),
            });
        }
        return Ok(asked);
    }
    if piped {
        return Ok(RowFormat::Text);
    }
    let mut known: Option<(String, RowFormat)> = None;
    for file in named(files)? {
        let name = file.path.display().to_string();
        let format = of_file(&name, &file.path, text_key)?;
        match &known {
            Some((other, before)) if *before != format => {
                let problem = format!(
                    "it holds {} rows, and {other} holds {} rows; train on files of one format, or name it with --format",
                    format.name(),
                    before.name()
                );
                return Err(Error::RowFormat { name, problem });
            }
            _ => known = Some((name, format)),
        }
    }
    Ok(known.map_or(RowFormat::Text, |(_, format)| format))
}

fn of_file(name: &str, path: &Path, text_key: Option<&str>) -> Result<RowFormat> {
    let bytes = unpacked(name, Bytes::open(path)?)?;
    let Some((layout, told)) = Layout::of(path, &bytes) else { return Ok(RowFormat::Text) };
    let mut first = Vec::new();
    let read = layout.rows(name, bytes, &mut |_, row| {
        first.push(row);
        Ok(if first.len() < FIRST { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    });
    // A file whose name says that it has rows isn't text, even if its first row can't be read.
    if first.is_empty() {
        match read {
            Err(error) if told => return Err(error),
            Err(_) => return Ok(RowFormat::Text),
            Ok(()) => {}
        }
    }
    if !first.is_empty() && first.iter().all(is_messages) {
        return Ok(RowFormat::Messages);
    }
    let Some(columns) = shared_columns(&first) else { return Ok(RowFormat::Text) };
    let has = |column: &str| columns.contains(column);
    let mut fitting: Vec<RowFormat> = CONVERSATIONS
        .into_iter()
        .filter(|format| format.columns().iter().all(|column| has(column)))
        .collect();
    if has("label") && has("prompt") && has("completion") {
        return Err(Error::RowFormat {
            name: name.to_owned(),
            problem: "its rows say with `label` whether a completion is wanted (as KTO's), which isn't trained on; leave the column \
                      out to train on every completion with --format prompt-completion, or pair them as `chosen` and `rejected`"
                .to_owned(),
        });
    }
    // A file whose name doesn't say that it's rows is a text by default.
    if told && has(text_key.unwrap_or(Corpus::TEXT_KEY)) {
        if text_key.is_some() {
            return Ok(RowFormat::Text);
        }
        fitting.push(RowFormat::Text);
    }
    match fitting.as_slice() {
        [] if has("role") && has("content") => Err(Error::RowFormat {
            name: name.to_owned(),
            problem: "each of its rows is a single message; write the messages of a conversation as an array, in the \
                      field `messages` of one row"
                .to_owned(),
        }),
        [] => Ok(RowFormat::Text),
        [one] => Ok(*one),
        several => {
            let names: Vec<_> = several.iter().map(|format| format.name()).collect();
            Err(Error::RowFormat {
                name: name.to_owned(),
                problem: format!(
                    "its rows can be read as {}; say which with --format {}",
                    names.join(" or as "),
                    names.join(" or --format ")
                ),
            })
        }
    }
}

/// Whether a row is an array of messages.
fn is_messages(row: &Value) -> bool {
    row.kind() == ValueKind::Seq
        && row.try_iter().is_ok_and(|mut items| {
            items.next().is_some_and(|first| {
                first.get_attr("role").is_ok_and(|role| role.as_str().is_some())
            })
        })
}

/// Columns that every row has; `None` where a row isn't an object.
fn shared_columns(rows: &[Value]) -> Option<BTreeSet<String>> {
    let columns = |row: &Value| -> Option<BTreeSet<String>> {
        let keys = (row.kind() == ValueKind::Map).then(|| row.try_iter().ok())??;
        Some(keys.filter_map(|key| key.as_str().map(str::to_owned)).collect())
    };
    let mut rows = rows.iter().map(columns);
    let mut shared = rows.next()??;
    for row in rows {
        let row = row?;
        shared.retain(|column| row.contains(column));
    }
    Some(shared)
}
