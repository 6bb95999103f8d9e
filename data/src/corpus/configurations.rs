//! Configurations of a data set, as its card lists them: each has some files of the folder, perhaps by split.

use std::path::Path;

use glob::{MatchOptions, Pattern};

use super::splits;
use crate::card::{self, pair, unquoted};
use crate::{Error, Result, files, limits};

/// Name of the configuration that is read unless another is named.
const DEFAULT: &str = "default";

/// A configuration.
#[derive(Debug, Default, PartialEq)]
struct Configuration<'a> {
    name: &'a str,
    /// The folder of its files, within that of the data set.
    folder: Option<&'a str>,
    files: Vec<Files<'a>>,
}

/// Files of a configuration.
#[derive(Debug, PartialEq)]
struct Files<'a> {
    split: Option<&'a str>,
    /// A path or glob.
    pattern: &'a str,
}

/// Indices of those of the files `sources` in `folder` that are of one configuration: the one that the folder's card names `default`, or its
/// only one. `None` if all are, as without a card.
///
/// # Errors
/// Several configurations without a default, and splits that names of files don't tell.
pub(super) fn chosen(folder: &Path, sources: &[&str]) -> Result<Option<Vec<usize>>> {
    let path = folder.join(card::FILE);
    if !path.is_file() {
        return Ok(None);
    }
    let text = files::read(&path, limits::DESCRIPTION).map_err(Error::io("read", &path))?;
    let text = String::from_utf8_lossy(&text);
    let all = listed(&text);
    let mut there: Vec<(&Configuration<'_>, Vec<usize>)> = Vec::new();
    for configuration in &all {
        let files = configuration.indices(sources);
        if !files.is_empty() && there.iter().all(|(_, others)| *others != files) {
            there.push((configuration, files));
        }
    }
    let refused = |kind: &str, names: &[&str], advice: &str| {
        let problem = format!("its {} lists the {kind} {}{advice}", card::FILE, names.join(", "));
        Err(Error::NoFiles { path: folder.to_owned(), problem })
    };
    let default = there.iter().find(|(configuration, _)| configuration.name == DEFAULT);
    let (configuration, chosen) = match (default, &there[..]) {
        (Some(default), _) => default,
        (None, []) => return Ok(None),
        (None, [only]) => only,
        (None, several) => {
            let names: Vec<&str> = several.iter().map(|(it, _)| it.name).collect();
            return refused("configurations", &names, "; name the files of one by a glob");
        }
    };
    let splits = configuration.splits(sources);
    if splits.len() > 1 && !splits::are_split(chosen.iter().map(|&index| sources[index])) {
        let advice = ", which aren't in the names of files; name the files of one";
        return refused("splits", &splits, advice);
    }
    Ok((there.len() > 1).then(|| chosen.clone()))
}

impl Configuration<'_> {
    /// Indices of its files among these.
    fn indices(&self, sources: &[&str]) -> Vec<usize> {
        let has = |source: &str| match &self.files[..] {
            [] => self.folder.is_some() && self.within(source).is_some(),
            files => files.iter().any(|files| self.matches(files, source)),
        };
        (0..sources.len()).filter(|&index| has(sources[index])).collect()
    }

    /// Its splits that have one of these files.
    fn splits(&self, sources: &[&str]) -> Vec<&str> {
        let mut found = Vec::new();
        for files in &self.files {
            let Some(split) = files.split.filter(|split| !found.contains(split)) else { continue };
            if sources.iter().any(|source| self.matches(files, source)) {
                found.push(split);
            }
        }
        found
    }

    /// The path of a file within the configuration's folder.
    fn within<'s>(&self, source: &'s str) -> Option<&'s str> {
        match self.folder.map(plain) {
            None | Some("" | ".") => Some(source),
            Some(folder) => source.strip_prefix(folder)?.strip_prefix('/'),
        }
    }

    /// True if a file is one of `files`: one of a glob, that of a path, or one in the folder of a path.
    fn matches(&self, files: &Files<'_>, source: &str) -> bool {
        let Some(source) = self.within(source) else { return false };
        let pattern = plain(files.pattern);
        let options = MatchOptions { require_literal_separator: true, ..MatchOptions::new() };
        let in_folder = source.strip_prefix(pattern).is_some_and(|rest| rest.starts_with('/'));
        in_folder || Pattern::new(pattern).is_ok_and(|glob| glob.matches_with(source, options))
    }
}

/// A path without a `./` before it and a slash behind.
fn plain(path: &str) -> &str {
    path.trim_start_matches("./").trim_end_matches('/')
}

/// The configurations that a card lists.
fn listed(card: &str) -> Vec<Configuration<'_>> {
    let lines = card::lines(card).unwrap_or_default();
    let start = lines.iter().position(|&(indent, text)| indent == 0 && text == "configs:");
    let own = lines[start.map_or(lines.len(), |start| start + 1)..].iter();
    let mut found: Vec<Configuration<'_>> = Vec::new();
    let mut split = None;
    for &(_, text) in own.take_while(|(indent, _)| *indent > 0) {
        let (key, value) = pair(text).unwrap_or(("path", text));
        if key == "config_name" {
            let name = unquoted(value).unwrap_or(value);
            found.push(Configuration { name, ..Configuration::default() });
            split = None;
        }
        let Some(last) = found.last_mut() else { continue };
        match key {
            "split" => split = unquoted(value),
            "data_dir" => last.folder = unquoted(value),
            "path" | "data_files" => {
                let paths = value.trim_start_matches('[').trim_end_matches(']').split(',');
                let paths = paths.filter_map(|path| unquoted(path.trim()));
                let patterns = paths.filter(|path| !path.is_empty());
                last.files.extend(patterns.map(|pattern| Files { split, pattern }));
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configurations_have_the_files_that_the_card_names() {
        let card = "---\nlicense: mit\nconfigs:\n- config_name: en\n  data_files:\n  - split: train\n    path: en/train-*\n  - split: test\n    path:\n    - \"en/a.json\"\n    - en/b.json\n- config_name: 'de'\n  data_files: [\"de.json\", './more/*.json']\n- config_name: fr\n  data_dir: fr\n- config_name: it\n  data_dir: fr/\n  data_files: '*.jsonl'\nsize: 1\n---\n";
        let found = listed(card);
        let names: Vec<&str> = found.iter().map(|it| it.name).collect();
        assert_eq!(names, ["en", "de", "fr", "it"]);
        let sources = [
            "de.json",
            "de.jsonl",
            "en/b.json",
            "en/train-0.parquet",
            "fr/x.json",
            "fr/y.jsonl",
            "more/deep/z.json",
            "more/y.json",
        ];
        let of = |index: usize| found[index].indices(&sources);
        assert_eq!([of(0), of(1), of(2), of(3)], [vec![2, 3], vec![0, 7], vec![4, 5], vec![5]]);
        assert_eq!(found[0].splits(&sources), ["train", "test"]);
        assert_eq!(found[0].splits(&["en/train-0"]), ["train"]);
        for card in ["", "# A title", "---\nconfigs:\n---\n", "---\nconfig_name: a\n---\n"] {
            assert_eq!(listed(card), [], "{card}");
        }
    }
}
