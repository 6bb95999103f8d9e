//! Documents in a column of a Parquet file.

use crate::bytes::Bytes;

/// First bytes of a Parquet file.
const MAGIC: &[u8] = b"PAR1";

/// Whether a file is a Parquet file, by its first bytes.
pub(crate) fn is(bytes: &Bytes) -> bool {
    bytes.starts_with(MAGIC)
}

pub(super) use reader::column;

#[cfg(not(target_family = "wasm"))]
mod reader {
    use std::panic::{self, AssertUnwindSafe};
    use std::sync::Arc;

    use parquet::basic::Type;
    use parquet::column::reader::ColumnReader;
    use parquet::errors::ParquetError;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::schema::types::SchemaDescriptor;

    use crate::bytes::Bytes;
    use crate::corpus::pages::Copied;
    use crate::corpus::{Each, footer, pages};
    use crate::limits::Made;
    use crate::{Error, Result};

    /// Documents that are decoded at a time.
    const DOCUMENTS: usize = 1024;

    /// The texts of the column `key`, a row group at a time; rows without one are passed over.
    pub fn column(name: &str, bytes: Bytes, key: &str, each: Each<'_>) -> Result<()> {
        // `parquet` asserts what a damaged page breaks, and nothing of what it made is kept here.
        let read = AssertUnwindSafe(|| documents(name, bytes, key, each));
        panic::catch_unwind(read).unwrap_or_else(|_| {
            let problem = "its pages are damaged".to_owned();
            Err(Error::Parquet { name: name.to_owned(), problem })
        })
    }

    fn documents(name: &str, bytes: Bytes, key: &str, each: Each<'_>) -> Result<()> {
        let not_text = |problem| Error::Column { name: name.to_owned(), problem };
        let broken = |error: ParquetError| Error::Parquet {
            name: name.to_owned(),
            problem: error.to_string(),
        };
        let mut made = Made::of(bytes.len());
        let damaged = |problem| Error::Parquet { name: name.to_owned(), problem };
        footer::check(&bytes, &mut made).map_err(damaged)?;
        let bytes = Arc::new(bytes);
        let file = SerializedFileReader::new(Copied(Arc::clone(&bytes))).map_err(broken)?;
        let schema = file.metadata().file_metadata().schema_descr();
        let index = text_column(schema, key).map_err(not_text)?;
        let mut row = 0;
        for group in 0..file.num_row_groups() {
            let group = file.get_row_group(group).map_err(broken)?;
            pages::check(&bytes, group.metadata(), Some(index), &mut made).map_err(damaged)?;
            let ColumnReader::ByteArrayColumnReader(mut column) =
                group.get_column_reader(index).map_err(broken)?
            else {
                return Err(not_text(format!("its column `{key}` isn't of text")));
            };
            loop {
                let (mut levels, mut texts) = (Vec::new(), Vec::new());
                let (rows, ..) = column
                    .read_records(DOCUMENTS, Some(&mut levels), None, &mut texts)
                    .map_err(broken)?;
                if rows == 0 {
                    break;
                }
                for text in &texts {
                    let text = std::str::from_utf8(text.data()).map_err(|_| {
                        not_text(format!("a text of `{key}` past row {row} isn't UTF-8"))
                    })?;
                    made.add(text.len()).map_err(damaged)?;
                    each(text)?;
                }
                row += rows;
            }
        }
        Ok(())
    }

    /// The place of the column `key` among the file's columns, if each of its rows is one text.
    fn text_column(schema: &SchemaDescriptor, key: &str) -> std::result::Result<usize, String> {
        let columns = schema.columns();
        let Some(index) = columns.iter().position(|column| column.path().parts() == [key]) else {
            let names: Vec<_> = columns.iter().map(|column| column.path().string()).collect();
            return Err(format!("it has no column `{key}`, and has `{}`", names.join("`, `")));
        };
        match columns[index].physical_type() {
            Type::BYTE_ARRAY if columns[index].max_rep_level() == 0 => Ok(index),
            _ => Err(format!("its column `{key}` isn't of text")),
        }
    }
}

#[cfg(target_family = "wasm")]
mod reader {
    use crate::bytes::Bytes;
    use crate::corpus::Each;
    use crate::{Error, Result};

    /// A reader of Parquet would be most of the page's download.
    pub fn column(name: &str, _: Bytes, _: &str, _: Each<'_>) -> Result<()> {
        Err(Error::Format { name: name.to_owned(), kind: "a Parquet file" })
    }
}
