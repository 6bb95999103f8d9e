//! Texts and what conversations say, for what learns from words alone.

use std::ops::ControlFlow;
use std::path::Path;

use super::detect::row_format;
use super::files::Layout;
use super::format::RowFormat;
use super::preference::conversations;
use super::refused;
use super::row::Row;
use crate::bytes::Bytes;
use crate::corpus::{extension, named, of_rows, unpacked};
use crate::{Error, Result};

/// Hands the documents of `files`, as [`Corpus::open`](crate::Corpus::open) names them, to `each`: of conversations what every
/// message says.
///
/// # Errors
/// As [`Corpus::open`](crate::Corpus::open), files of token ids, rows that aren't of their format, and those of `each`.
pub fn documents<P: AsRef<Path>>(
    files: &[P],
    text_key: &str,
    each: &mut dyn FnMut(&str) -> Result<()>,
) -> Result<()> {
    for file in named(files)? {
        let (name, path) = (file.path.display().to_string(), &file.path);
        let key = (text_key != crate::Corpus::TEXT_KEY).then_some(text_key);
        let format = row_format(&[path], RowFormat::Auto, key)?;
        let mut bytes = unpacked(&name, Bytes::open(path)?)?;
        if format != RowFormat::Text {
            let Some((layout, _)) = Layout::of(path, &bytes) else { continue };
            layout.rows(&name, bytes, &mut |number, row| {
                let rows = conversations(&row, format);
                let rows = rows.map_err(|problem| refused(&name, number, problem))?;
                // A rejected answer has the same prompt, and nothing to learn words from.
                let texts = rows.first().map(Row::texts).unwrap_or_default();
                texts.iter().try_for_each(|text| each(text))?;
                Ok(ControlFlow::Continue(()))
            })?;
        } else if !of_rows(&name, path, &mut bytes, text_key, each)? {
            if extension(path) == "bin" {
                let problem = "it holds no text to learn from; name the texts".to_owned();
                return Err(Error::TokenIds { name, problem });
            }
            let text = bytes.text(&name)?;
            each(text.strip_prefix('\u{feff}').unwrap_or(&text))?;
        }
    }
    Ok(())
}
