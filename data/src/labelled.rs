//! Texts with the class of each: rows of `text` (or `sentence`) and `label`, or of two texts.
//!
//! | file | holds |
//! |---|---|
//! | [`row`] | what a row says |
//! | [`names`] | names of classes that a data set keeps beside its rows |
//! | [`rows`] | rows as tokens, and batches of them |
//!
//! A label is a number, or a text that names the class.

mod names;
mod row;
mod rows;

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::Path;

use crate::bytes::Bytes;
use crate::chat::files::Layout;
use crate::chat::refused;
use crate::corpus::{named, unpacked};
use crate::source::content;
use crate::{Error, Result};
use row::{Columns, Label, Row};

pub use rows::{LabelledRows, PaddedTexts, TextBatch, TextReader};

/// Classes of texts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Classes {
    /// How many there are.
    pub count: usize,
    /// Their names, in order; empty where they have none.
    pub names: Vec<String>,
}

/// Texts and labels of files, read.
#[derive(Clone, Debug)]
pub struct LabelledTexts {
    rows: Vec<Row>,
    files: Vec<File>,
    classes: Classes,
    /// The data's names of its classes, where they aren't the model's.
    note: Option<String>,
}

/// A file of them.
#[derive(Clone, Debug)]
struct File {
    /// As messages name it.
    name: String,
    /// As a checkpoint remembers it.
    source: String,
    content: String,
    /// Its rows end before this one.
    end: usize,
}

/// Whether the first row of every one of `files`, as [`Corpus::open`](crate::Corpus::open) names them, has a text and a label.
///
/// # Errors
/// A file that can't be opened.
pub fn is_labelled<P: AsRef<Path>>(files: &[P], text_key: Option<&str>) -> Result<bool> {
    let piped = files.iter().any(|file| file.as_ref() == Path::new(crate::Corpus::PIPE));
    if piped || files.is_empty() {
        return Ok(false);
    }
    for file in named(files)? {
        let name = file.path.display().to_string();
        let bytes = unpacked(&name, Bytes::open(&file.path)?)?;
        let Some((layout, true)) = Layout::of(&file.path, &bytes) else { return Ok(false) };
        let mut found = false;
        let read = layout.rows(&name, bytes, &mut |_, row| {
            found = Columns::of(&row, text_key).is_some() && row::has_label(&row);
            Ok(ControlFlow::Break(()))
        });
        // What reads the whole file says what is wrong with it.
        if read.is_err() || !found {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns `true` if two lists have the same names, in any order.
fn same_names(one: &[String], other: &[String]) -> bool {
    one.len() == other.len() && one.iter().all(|name| other.contains(name))
}

/// The first names of a list, joined by commas.
fn shown(names: &[String]) -> String {
    let shown: Vec<&str> = names.iter().take(8).map(String::as_str).collect();
    let more = if names.len() > shown.len() { ", …" } else { "" };
    format!("{}{more}", shown.join(", "))
}

impl LabelledTexts {
    /// Most classes that labels may make.
    pub const MOST_CLASSES: usize = 1 << 16;

    /// Reads `files`, as [`Corpus::open`](crate::Corpus::open) names them. `text_key` is the column of text that was named, if one was;
    /// `known` are the classes of a model that knows some: else they are those of the labels, named in alphabetical order where
    /// labels are texts. Labels that are numbers have the names that the data set gives its classes, as `ClassLabel` of the `datasets` library does. Where the
    /// model has the same names in another order, its numbers count.
    ///
    /// # Errors
    /// A file that can't be read or that has no rows; a row without text or label, or with a label that isn't known or that is of
    /// another kind than those before it, by its number; and files that name classes differently.
    pub fn open<P: AsRef<Path>>(
        files: &[P],
        text_key: Option<&str>,
        known: Option<&Classes>,
    ) -> Result<Self> {
        let mut texts =
            Self { rows: vec![], files: vec![], classes: Classes::default(), note: None };
        let mut named_by: Option<(String, Vec<String>)> = None;
        for file in named(files)? {
            let name = file.path.display().to_string();
            let bytes = Bytes::open(&file.path)?;
            let content = content(&bytes);
            let bytes = unpacked(&name, bytes)?;
            let wrong = |problem: &str| Error::RowFormat {
                name: name.clone(),
                problem: problem.to_owned(),
            };
            let layout = Layout::of(&file.path, &bytes).map(|(layout, _)| layout);
            let layout = layout.ok_or_else(|| {
                wrong("it has no labelled rows, which are objects in .jsonl, .json, .csv or .parquet; name another file")
            })?;
            let own = names::of(&file, layout)?;
            match (&named_by, own) {
                (Some((other, names)), Some(own)) if *names != own => {
                    return Err(wrong(&format!(
                        "it calls its classes {}, and `{other}` {}; train on files that name them alike",
                        shown(&own),
                        shown(names)
                    )));
                }
                (None, Some(own)) => named_by = Some((name.clone(), own)),
                _ => {}
            }
            let names = named_by.as_ref().map(|(_, names)| names.as_slice());
            let before = texts.rows.len();
            layout.rows(&name, bytes, &mut |number, value| {
                let row = Row::read(&value, text_key);
                let row = row.and_then(|row| row.in_terms_of(names, known));
                let row = row.map_err(|it| refused(&name, number, it))?;
                let first = texts.rows.first().map_or(&row.label, |first| &first.label);
                row.label.check(first, known).map_err(|it| refused(&name, number, it))?;
                texts.rows.push(row);
                Ok(ControlFlow::Continue(()))
            })?;
            if texts.rows.len() == before {
                return Err(wrong("it has no rows; name another file"));
            }
            let end = texts.rows.len();
            texts.files.push(File { name, source: file.source, content, end });
        }
        if texts.rows.is_empty() {
            let problem = "no file is named; name one with --data".to_owned();
            return Err(Error::RowFormat { name: "the data".to_owned(), problem });
        }
        let names = named_by.map(|(_, names)| names);
        texts.classes = match (known, names) {
            (Some(known), Some(names)) if known.names.is_empty() && known.count == names.len() => {
                Classes { count: known.count, names }
            }
            (Some(known), Some(names)) => {
                let differ = !same_names(&names, &known.names) && !known.names.is_empty();
                texts.note = differ.then(|| {
                    let theirs = shown(&known.names);
                    format!(
                        "the data calls its classes {}, and the model {theirs}: numbers count, in the model's order",
                        shown(&names)
                    )
                });
                known.clone()
            }
            (Some(known), None) => known.clone(),
            (None, Some(names)) => Classes { count: names.len(), names },
            (None, None) => texts.found(),
        };
        Ok(texts)
    }

    /// A note on names of classes that the model doesn't have.
    pub fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// The classes.
    pub fn classes(&self) -> &Classes {
        &self.classes
    }

    /// The classes that the labels make.
    fn found(&self) -> Classes {
        let mut names = BTreeSet::new();
        let mut count = 0;
        for row in &self.rows {
            match &row.label {
                Label::Number(class) => count = count.max(class + 1),
                Label::Name(name) => drop(names.insert(name.clone())),
            }
        }
        Classes { count: count.max(names.len()), names: names.into_iter().collect() }
    }
}

#[cfg(test)]
mod tests;
