//! Tables of comma- and tab-separated values (RFC 4180): the first line names the columns, and each other line is a row.

use std::ops::ControlFlow;

use csv::{ErrorKind, Reader, ReaderBuilder, StringRecord};
use minijinja::Value;

use super::{BYTE_ORDER_MARK, Each};
use crate::{Error, Result};

/// The column of classes.
const LABEL: &str = "label";

/// The separator of values in a file with this extension, if it's a table.
pub(crate) fn delimiter(extension: &str) -> Option<u8> {
    match extension {
        "csv" => Some(b','),
        "tsv" => Some(b'\t'),
        _ => None,
    }
}

/// Hands every row to `each`, until that breaks: an object with a text for each column, and null where it's empty. Labels are numbers where
/// all of them are whole ones.
///
/// # Errors
/// Those of `each`, and a row that can't be read, by its number.
pub(crate) fn rows(name: &str, bytes: &[u8], delimiter: u8, each: EachRow<'_>) -> Result<()> {
    let table = Table { name, bytes, delimiter };
    let columns = table.columns()?;
    let mut numbers: Vec<bool> = columns.iter().map(|column| column == LABEL).collect();
    table.records(&mut |_, record| {
        for (is_number, value) in numbers.iter_mut().zip(record) {
            *is_number &= value.is_empty() || value.parse::<i64>().is_ok();
        }
        Ok(ControlFlow::Continue(()))
    })?;
    table.records(&mut |row, record| {
        let values =
            record.iter().zip(&numbers).map(|(value, is_number)| match value.parse::<i64>() {
                _ if value.is_empty() => Value::from(()),
                Ok(number) if *is_number => Value::from(number),
                _ => Value::from(value),
            });
        each(row, Value::from_pairs(columns.iter().map(String::as_str).zip(values)))
    })
}

/// Hands the text of each row in the column `key` to `each`; rows without one are passed over, as a null of Parquet is.
///
/// # Errors
/// Those of `each`, no such column, and a row that can't be read, by its number.
pub(crate) fn column(
    name: &str,
    bytes: &[u8],
    delimiter: u8,
    key: &str,
    each: Each<'_>,
) -> Result<()> {
    let table = Table { name, bytes, delimiter };
    let columns = table.columns()?;
    let index = columns.iter().position(|column| column == key).ok_or_else(|| {
        let has = columns.join("`, `");
        let problem = format!("it has no column `{key}`, and has `{has}`");
        Error::Column { name: name.to_owned(), problem }
    })?;
    table.records(&mut |_, record| {
        let text = record.get(index).filter(|text| !text.is_empty());
        text.map_or(Ok(()), &mut *each)?;
        Ok(ControlFlow::Continue(()))
    })
}

/// Takes a row and its number, and says whether more are wanted.
type EachRow<'a> = &'a mut dyn FnMut(usize, Value) -> Result<ControlFlow<()>>;

/// A table in memory.
struct Table<'a> {
    name: &'a str,
    bytes: &'a [u8],
    delimiter: u8,
}

impl Table<'_> {
    fn reader(&self) -> Reader<&[u8]> {
        let bytes = self.bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(self.bytes);
        ReaderBuilder::new().delimiter(self.delimiter).from_reader(bytes)
    }

    /// Names of the columns, each another.
    fn columns(&self) -> Result<Vec<String>> {
        let mut reader = self.reader();
        let names = reader.headers().map_err(|error| self.broken(1, &error))?;
        let names: Vec<String> = names.iter().map(str::to_owned).collect();
        let twice = (1..names.len()).find(|&at| names[..at].contains(&names[at]));
        match twice {
            None => Ok(names),
            Some(at) => {
                let problem = format!("its first line names the column `{}` twice", names[at]);
                Err(Error::Column { name: self.name.to_owned(), problem })
            }
        }
    }

    fn records(
        &self,
        each: &mut dyn FnMut(usize, &StringRecord) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let (mut reader, mut record) = (self.reader(), StringRecord::new());
        // Places count from the rows then.
        reader.headers().map_err(|error| self.broken(1, &error))?;
        for row in 1.. {
            let more = reader.read_record(&mut record);
            if !more.map_err(|error| self.broken(row, &error))? || each(row, &record)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn broken(&self, row: usize, error: &csv::Error) -> Error {
        let line = error.position().map_or(1, csv::Position::line);
        let problem = match error.kind() {
            ErrorKind::Utf8 { .. } => {
                format!("line {line} isn't UTF-8; convert the file (iconv -t UTF-8)")
            }
            ErrorKind::UnequalLengths { expected_len, len, .. } => format!(
                "line {line} and the first line differ in their number of values, {len} and {expected_len}; put values with separators in quotes"
            ),
            _ => format!("it can't be read ({error})"),
        };
        Error::Row { name: self.name.to_owned(), row, problem }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<String>> {
        let mut found = vec![];
        rows("t.csv", text.as_bytes(), b',', &mut |row, value| {
            found.push(format!("{row}: {}", serde_json::to_string(&value).unwrap()));
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(found)
    }

    #[test]
    fn values_are_texts_numbers_where_a_column_has_no_others_and_null() {
        let text =
            "\u{feff}text,label,\"a, b\"\r\n\"says \"\"hi\"\"\nagain\",0,1\r\n7,-12,x\r\n,,\r\n";
        let rows = read(text).unwrap();
        assert_eq!(rows[0], r#"1: {"text":"says \"hi\"\nagain","label":0,"a, b":"1"}"#);
        assert_eq!(rows[1], r#"2: {"text":"7","label":-12,"a, b":"x"}"#);
        assert_eq!(rows[2], r#"3: {"text":null,"label":null,"a, b":null}"#);
        assert_eq!(read("text\n").unwrap(), [""; 0]);
        assert_eq!(read("text,label\n1,2\n2,b\n").unwrap()[0], r#"1: {"text":"1","label":"2"}"#);
    }

    #[test]
    fn what_is_no_table_is_refused_with_its_line() {
        for (text, problem) in [
            (
                "a,b\n1,2\n1,2,3\n",
                "line 3 and the first line differ in their number of values, 3 and 2",
            ),
            ("a,b\n1\n", "number of values, 1 and 2"),
            ("a,b,a\n1,2,3\n", "names the column `a` twice"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains("t.csv") && error.contains(problem), "{error}");
        }
        let latin = rows("t.csv", b"a\ncaf\xe9\n", b',', &mut |_, _| Ok(ControlFlow::Continue(())));
        let latin = latin.unwrap_err().to_string();
        assert!(latin.contains("line 2 isn't UTF-8"), "{latin}");
    }

    #[test]
    fn texts_of_a_column_are_documents() {
        let mut found = String::new();
        let mut each = |text: &str| {
            found.push_str(text);
            found.push(';');
            Ok(())
        };
        column("t.tsv", b"id\ttext\n1\ta b\n2\t\n3\t4\n", b'\t', "text", &mut each).unwrap();
        let error = column("t.tsv", b"id\n1\n", b'\t', "text", &mut each).unwrap_err().to_string();
        assert!(error.contains("no column `text`, and has `id`"), "{error}");
        assert_eq!(found, "a b;4;");
    }
}
