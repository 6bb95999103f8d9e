//! Splits of a folder: files for training, validation and testing, told from their names as the `datasets` library does.

use std::path::PathBuf;

const TRAIN: [&str; 2] = ["train", "training"];
const VALIDATION: [&str; 4] = ["validation", "valid", "val", "dev"];
const TEST: [&str; 4] = ["test", "testing", "eval", "evaluation"];

/// A part of a data set.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Split {
    Train,
    Validation,
    Test,
}

/// The files of a folder that are for evaluation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldOutSplit {
    /// `validation` or `test`.
    pub name: &'static str,
    /// Its files.
    pub files: Vec<PathBuf>,
}

/// The split that a path within a folder names.
pub(super) fn of(path: &str) -> Option<Split> {
    let words: Vec<&str> = path.split(|c: char| !c.is_ascii_alphanumeric()).collect();
    let names = |names: &[&str]| {
        words.iter().any(|word| names.iter().any(|name| word.eq_ignore_ascii_case(name)))
    };
    if names(&TRAIN) {
        Some(Split::Train)
    } else if names(&VALIDATION) {
        Some(Split::Validation)
    } else {
        names(&TEST).then_some(Split::Test)
    }
}

/// True if some of a folder's files are for training and others for evaluation.
pub(super) fn are_split<'a>(mut sources: impl Iterator<Item = &'a str> + Clone) -> bool {
    sources.clone().any(|it| of(it) == Some(Split::Train))
        && sources.any(|it| matches!(of(it), Some(Split::Validation | Split::Test)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_are_told_by_whole_words() {
        for (path, split) in [
            ("data/train-00000-of-00001.parquet", Some(Split::Train)),
            ("test.jsonl", Some(Split::Test)),
            ("validation/0000.parquet", Some(Split::Validation)),
            ("my_dev_set.json", Some(Split::Validation)),
            ("contest.txt", None),
            ("trains.txt", None),
        ] {
            assert!(of(path) == split, "{path}");
        }
    }
}
