//! The documents of files, as text.

use std::path::Path;

use super::json::Json;
#[cfg(not(target_family = "wasm"))]
use super::table;
use super::{Each, extension, parquet};
use crate::bytes::Bytes;
use crate::{Result, arrow};

/// Hands every document of a file of rows to `each`: the field or column `key` of each row. `false` where it isn't such a file.
///
/// # Errors
/// Those of `each`, and what [`Corpus::open`](crate::Corpus::open) refuses.
pub(crate) fn of_rows(
    name: &str,
    path: &Path,
    bytes: &mut Bytes,
    key: &str,
    each: Each<'_>,
) -> Result<bool> {
    match extension(path).as_str() {
        _ if parquet::is(bytes) => {
            let bytes = std::mem::replace(bytes, Vec::new().into());
            parquet::column(name, bytes, key, each)?;
        }
        extension if extension == "arrow" || arrow::is_file(bytes) => {
            arrow::column(name, bytes, key, each)?;
        }
        "jsonl" | "ndjson" => {
            Json::new(name, bytes, key, each).lines()?;
        }
        "json" => {
            Json::new(name, bytes, key, each).values()?;
        }
        #[cfg(not(target_family = "wasm"))]
        extension if let Some(delimiter) = table::delimiter(extension) => {
            table::column(name, bytes, delimiter, key, each)?;
        }
        _ => return Ok(false),
    }
    Ok(true)
}
