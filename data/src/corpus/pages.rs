//! The sizes of a Parquet file's pages, read before the library unpacks them: it makes room for what a page says that it becomes, and unpacks gzip
//! and Brotli to their end.

use std::io::{self, Cursor, Read};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes as Shared;
use parquet::basic::Compression;
use parquet::errors::Result as Parquet;
use parquet::file::metadata::{ColumnChunkMetaData, RowGroupMetaData};
use parquet::file::reader::{ChunkReader, Length};

use super::thrift::{STRUCT, Thrift};
use crate::bytes::Bytes;
use crate::limits::Made;

/// Bytes that the library takes for a value, its column's name apart.
const VALUE: usize = 64;

/// The reason why a file is refused.
type Problem = String;

/// Bytes for the library, which looks at texts once and then takes them for text: it gets copies, that no other process changes.
pub(crate) struct Copied(pub Arc<Bytes>);

impl Length for Copied {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }
}

impl ChunkReader for Copied {
    type T = Reading;

    fn get_read(&self, start: u64) -> Parquet<Reading> {
        Ok(Reading { bytes: Arc::clone(&self.0), at: start as usize })
    }

    fn get_bytes(&self, start: u64, length: usize) -> Parquet<Shared> {
        let range = range(start, length as u64, self.0.len());
        let range =
            range.ok_or_else(|| parquet::errors::ParquetError::EOF("it ends before".to_owned()))?;
        Ok(Shared::copy_from_slice(&self.0[range]))
    }
}

/// Copies bytes out of a file from a place on.
pub(crate) struct Reading {
    bytes: Arc<Bytes>,
    at: usize,
}

impl Read for Reading {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let read = self.bytes.get(self.at..).unwrap_or_default().read(out)?;
        self.at += read;
        Ok(read)
    }
}

fn range(start: u64, length: u64, size: usize) -> Option<Range<usize>> {
    let start = usize::try_from(start).ok()?;
    let end = start.checked_add(usize::try_from(length).ok()?)?;
    (end <= size).then_some(start..end)
}

/// Counts what the pages of a group's columns become: of the column number `only`, or of all.
///
/// # Errors
/// Damaged pages, and pages that become more than a file of this size may.
pub(crate) fn check(
    file: &[u8],
    group: &RowGroupMetaData,
    only: Option<usize>,
    made: &mut Made,
) -> Result<(), Problem> {
    let columns = group.columns().iter().enumerate();
    for (_, column) in columns.filter(|(index, _)| only.is_none_or(|only| only == *index)) {
        // The library reads a column from its first page on.
        let start = column.dictionary_page_offset().unwrap_or(column.data_page_offset());
        let place = u64::try_from(start).ok().zip(u64::try_from(column.compressed_size()).ok());
        let place = place.and_then(|(start, length)| range(start, length, file.len()));
        let place = place.ok_or("a column of it lies outside of the file")?;
        pages(&file[place], column, made)?;
    }
    Ok(())
}

fn pages(mut rest: &[u8], column: &ColumnChunkMetaData, made: &mut Made) -> Result<(), Problem> {
    let names: usize = column.column_path().parts().iter().map(String::len).sum();
    while !rest.is_empty() {
        let mut header = Thrift::of(rest);
        let page = Page::read(&mut header).ok_or("the header of a page is damaged")?;
        let body = header.bytes.split_at_checked(page.packed);
        let (body, after) = body.ok_or("a page goes on past the end of its column")?;
        made.add(page.unpacked)?;
        made.add(page.values.saturating_mul(VALUE + names))?;
        if page.entries > page.unpacked {
            return Err("a dictionary says that it has more values than bytes".to_owned());
        }
        let body = body.get(page.levels..).ok_or("the levels of a page are damaged")?;
        let says =
            page.unpacked.checked_sub(page.levels).ok_or("the levels of a page are damaged")?;
        if page.is_packed && says > 0 {
            let most = says as u64 + 1;
            let found = match column.compression() {
                Compression::GZIP(_) => length(flate2::read::MultiGzDecoder::new(body).take(most)),
                Compression::BROTLI(_) => {
                    length(brotli::Decompressor::new(Cursor::new(body), 4096).take(most))
                }
                _ => says as u64,
            };
            if found != says as u64 {
                return Err("a page of it becomes another number of bytes than it says".to_owned());
            }
        }
        rest = after;
    }
    Ok(())
}

/// Bytes that come until an end or an error.
fn length(mut from: impl Read) -> u64 {
    let mut count = 0;
    let mut block = [0; 8192];
    loop {
        match from.read(&mut block) {
            Ok(read) if read > 0 => count += read as u64,
            _ => return count,
        }
    }
}

/// The header of a page.
#[derive(Default)]
struct Page {
    packed: usize,
    unpacked: usize,
    /// Values of a page of data or of a dictionary.
    values: usize,
    /// Values of a dictionary.
    entries: usize,
    /// Bytes before what is packed.
    levels: usize,
    is_packed: bool,
}

impl Page {
    fn read(header: &mut Thrift<'_>) -> Option<Self> {
        let mut page = Self { is_packed: true, ..Self::default() };
        let mut before = 0;
        loop {
            let (number, kind) = header.field(before)?;
            before = number;
            match (number, kind) {
                (_, 0) => return Some(page),
                (2, 4..=6) => page.unpacked = size(header)?,
                (3, 4..=6) => page.packed = size(header)?,
                (5 | 7 | 8, STRUCT) => page.read_kind(header, number)?,
                (_, kind) => header.skip(kind, 0, &mut 0)?,
            }
        }
    }

    /// The header of a page of data, of a dictionary, or of data of the second version.
    fn read_kind(&mut self, header: &mut Thrift<'_>, page: u64) -> Option<()> {
        let mut before = 0;
        loop {
            let (number, kind) = header.field(before)?;
            before = number;
            match (page, number, kind) {
                (_, _, 0) => return Some(()),
                (_, 1, 4..=6) => {
                    self.values = size(header)?;
                    if page == 7 {
                        self.entries = self.values;
                    }
                }
                (8, 5 | 6, 4..=6) => self.levels = self.levels.checked_add(size(header)?)?,
                (8, 7, 1 | 2) => self.is_packed = kind == 1,
                (_, _, kind) => header.skip(kind, 0, &mut 0)?,
            }
        }
    }
}

/// A number of bytes or values.
fn size(header: &mut Thrift<'_>) -> Option<usize> {
    header.signed().and_then(|number| usize::try_from(number).ok())
}
