//! Names of classes that a data set of the `datasets` library keeps beside labels that are numbers: its feature `ClassLabel`.
//!
//! It writes them into the metadata of its tables, into the `dataset_info.json` of a folder, and people write them into the `README.md`
//! of a data set on the hub.

use std::collections::HashSet;
use std::path::Path;

use serde_json::Value;

use super::row::LABEL;
use crate::bytes::Bytes;
use crate::card::{self, Line, pair, unquoted};
use crate::chat::files::Layout;
use crate::chat::parquet;
use crate::corpus::{InputFile, unpacked};
use crate::{Result, arrow, files, limits};

/// Key of a table's metadata.
const KEY: &str = "huggingface";
/// Files of a folder, the first that names classes counts.
const INFO: &str = "dataset_info.json";

/// The names of the label's classes, in order; `None` where nothing names them.
///
/// # Errors
/// A table that can't be opened.
pub(super) fn of(file: &InputFile, layout: Layout) -> Result<Option<Vec<String>>> {
    let name = file.path.display().to_string();
    let open = || unpacked(&name, Bytes::open(&file.path)?);
    let of_table = match layout {
        Layout::Parquet => parquet::metadata(open()?, KEY),
        Layout::Arrow => arrow::metadata(&open()?, KEY),
        Layout::Lines | Layout::Values | Layout::Table(_) => None,
    };
    let info = of_table.and_then(|text| serde_json::from_str::<Value>(&text).ok());
    if let Some(names) = info.and_then(|info| of_features(&info["info"]["features"])) {
        return Ok(Some(names));
    }
    // The file's folder, and those that it's in, up to the one that was named.
    let depth = Path::new(&file.source).components().count();
    let mut folders = file.path.ancestors().skip(1).take(depth);
    Ok(folders.find_map(of_folder))
}

fn of_folder(folder: &Path) -> Option<Vec<String>> {
    let read = |name: &str| {
        let file = folder.join(name);
        file.is_file().then(|| files::read(&file, limits::DESCRIPTION).ok()).flatten()
    };
    let info = read(INFO).and_then(|text| serde_json::from_slice::<Value>(&text).ok());
    let of_info = info.and_then(|info| of_features(&info["features"]));
    of_info.or_else(|| of_card(&String::from_utf8(read(card::FILE)?).ok()?))
}

/// The names in a description of columns.
fn of_features(features: &Value) -> Option<Vec<String>> {
    let label = &features[LABEL];
    if label["_type"] != "ClassLabel" {
        return None;
    }
    let names = label["names"].as_array()?.iter().map(|name| Some(name.as_str()?.to_owned()));
    distinct(names.collect::<Option<_>>()?)
}

/// Names, unless two are the same or there are none.
fn distinct(names: Vec<String>) -> Option<Vec<String>> {
    let mut seen = HashSet::new();
    let all_differ = names.iter().all(|name| seen.insert(name));
    (all_differ && !names.is_empty()).then_some(names)
}

/// The names in the card of a data set, whose YAML has a list of features. Of several configurations of a data set, that of the first is read,
/// unless another one names its classes otherwise.
fn of_card(card: &str) -> Option<Vec<String>> {
    let lines = card::lines(card)?;
    let mut found: Option<Vec<String>> = None;
    for (at, &(indent, text)) in lines.iter().enumerate() {
        let Some(("name", LABEL)) = pair(text) else { continue };
        let within = lines[at + 1..].iter().take_while(|(deeper, text)| {
            *deeper > indent || (*deeper == indent && !matches!(pair(text), Some(("name", _))))
        });
        let own: Vec<Line<'_>> = within.copied().collect();
        let Some(names) = of_class_label(&own) else { continue };
        if found.as_ref().is_some_and(|known| *known != names) {
            return None;
        }
        found = Some(names);
    }
    found
}

/// The list under `class_label: names:`, as `'0': no` or `- no`.
fn of_class_label(lines: &[Line<'_>]) -> Option<Vec<String>> {
    let start = lines.iter().position(|(_, text)| pair(text) == Some(("class_label", "")))?;
    let (indent, _) =
        *lines.get(start + 1).filter(|(_, text)| pair(text) == Some(("names", "")))?;
    let list = lines[start + 2..].iter();
    let mut names = Vec::new();
    for (deeper, text) in list {
        let name = match pair(text) {
            Some((number, name)) if *deeper > indent && number.parse() == Ok(names.len()) => name,
            None if *deeper > indent => text,
            _ => break,
        };
        names.push(unquoted(name)?.to_owned());
    }
    distinct(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_of_data_sets_name_classes() {
        let names = |card: &str| of_card(card);
        let card = "---\nlicense: mit\ndataset_info:\n  features:\n  - name: text\n    dtype: string\n  - name: label\n    dtype:\n      class_label:\n        names:\n          '0': neg\n          '1': \"very pos\"\n  - name: idx\n    dtype: int32\n  splits:\n  - name: train\n---\n# Title\n";
        assert_eq!(names(card), Some(vec!["neg".to_owned(), "very pos".to_owned()]));
        let listed = card.replace("'0': neg", "- neg").replace("'1': \"very pos\"", "- pos");
        assert_eq!(names(&listed), Some(vec!["neg".to_owned(), "pos".to_owned()]));
        // Two configurations that don't agree, and a column that has no names.
        let twice =
            card.replace("\n---\n# Title", &format!("\n{}", &card[4..].replace("neg", "no")));
        assert_eq!(names(&twice), None);
        for (from, to) in [
            ("name: label", "name: other"),
            ("'1': \"very pos\"", "'1': neg"),
            ("'1': \"very pos\"", "'1': \"a\\\"b\""),
            ("---\nlicense", "license"),
        ] {
            assert_eq!(names(&card.replacen(from, to, 1)), None, "{to}");
        }
    }

    #[test]
    fn features_name_classes() {
        let of = |text: &str| of_features(&serde_json::from_str(text).unwrap());
        let label = r#"{"label": {"names": ["no", "yes"], "_type": "ClassLabel"}}"#;
        assert_eq!(of(label), Some(vec!["no".to_owned(), "yes".to_owned()]));
        for text in [
            r#"{"label": {"dtype": "int64", "_type": "Value"}}"#,
            r#"{"label": {"names": ["no", "no"], "_type": "ClassLabel"}}"#,
            r#"{"label": {"names": [], "_type": "ClassLabel"}}"#,
            r#"{"labels": {"names": ["no"], "_type": "ClassLabel"}}"#,
            "[]",
        ] {
            assert_eq!(of(text), None, "{text}");
        }
    }
}
