//! The list of settings as types of Python's keyword arguments, for editors and type checkers.

use std::fmt::Write as _;

use super::command::Command;
use super::kind::Kind;
use super::setting::Setting;

/// The setting that a trainer takes as arrays, too: it isn't in the first of the two types.
const INIT: &str = "model.init";

const HEAD: &str = r#""""Types of keyword arguments. Made from the list of settings, engine/src/settings/list.rs: don't edit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, TypeAlias, TypedDict

import numpy as np

#: A whole number.
Whole: TypeAlias = "int | np.integer[Any]"

#: A number.
Number: TypeAlias = "float | np.floating[Any] | np.integer[Any]"

#: A file or a folder.
File: TypeAlias = "str | PathLike[str]"


class KeywordsButInit(TypedDict, total=False):
    """Keyword arguments of settings, but for ``init``, which :class:`tightrope.Trainer` takes in more forms."""

    settings: Mapping[str, Any] | None
    """Settings by their keys, such as ``{"train.beta2": 0.99}``."""
"#;

const WHOLE: &str = r#"

class Keywords(KeywordsButInit, total=False):
    """Keyword arguments of settings."""
"#;

/// A module with the types of the keyword arguments that plans and runs take.
pub fn python(list: &[Setting]) -> String {
    let of_steps =
        |setting: &&Setting| setting.commands.iter().any(|it| Command::STEPS.contains(it));
    let mut text = HEAD.to_owned();
    for setting in list.iter().filter(of_steps).filter(|setting| setting.key != INIT) {
        field(&mut text, setting);
    }
    text += WHOLE;
    for setting in list.iter().filter(|setting| setting.key == INIT) {
        field(&mut text, setting);
    }
    text
}

/// Appends a setting that has a keyword.
fn field(text: &mut String, setting: &Setting) {
    if let Some(keyword) = setting.keyword() {
        let ty = type_of(setting.kind);
        let described = setting.describe();
        let _ = write!(text, "\n    {keyword}: {ty} | None\n    \"\"\"{described}.\"\"\"\n");
    }
}

/// Words are any text: their types would refuse a variable that holds one.
fn type_of(kind: Kind) -> String {
    match kind {
        Kind::Text | Kind::Word(_) => "str".to_owned(),
        Kind::Path => "File".to_owned(),
        Kind::Switch => "bool".to_owned(),
        Kind::OneOf(_) | Kind::Whole(..) => "Whole".to_owned(),
        Kind::Number(_) => "Number".to_owned(),
        Kind::List(item) => format!("{0} | Sequence[{0}]", type_of(*item)),
        Kind::Form(form) => {
            let words = !form.words.is_empty() || form.pattern.is_some();
            let types = [(form.whole, "Whole"), (words, "str"), (form.list, "Sequence[str]")];
            let types = types.into_iter().filter_map(|(is, ty)| is.then_some(ty));
            types.collect::<Vec<_>>().join(" | ")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::LIST;

    /// Python's package holds this file. `UPDATE_SNAPSHOTS=1 cargo test -p tightrope python` writes it.
    #[test]
    fn python_has_the_list() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../python/tightrope/keywords.py");
        let made = python(LIST);
        if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
            std::fs::write(path, &made).unwrap();
        }
        let found = std::fs::read_to_string(path).unwrap();
        assert!(
            found == made,
            "python/tightrope/keywords.py isn't that of the list: run with UPDATE_SNAPSHOTS=1"
        );
    }
}
