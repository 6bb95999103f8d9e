//! What a row says: a text or two, and a label.

use minijinja::Value;
use minijinja::value::ValueKind;

use super::{Classes, LabelledTexts, same_names, shown};
use crate::chat::row::kind;

/// Columns of a text, most specific first.
const TEXTS: [&str; 2] = ["text", "sentence"];
/// Columns of two texts.
const PAIRS: [[&str; 2]; 7] = [
    ["sentence1", "sentence2"],
    ["premise", "hypothesis"],
    ["question", "sentence"],
    ["question1", "question2"],
    ["question", "passage"],
    ["text", "text_pair"],
    ["text1", "text2"],
];
/// The column of the label.
pub(super) const LABEL: &str = "label";

/// What is wrong with a row and what to do.
type Problem = String;

/// A row.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub text: String,
    pub second: Option<String>,
    pub label: Label,
}

/// What a row says of its class.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Label {
    Number(usize),
    Name(String),
}

/// Where a row has its texts.
pub(super) enum Columns<'a> {
    One(&'a str),
    Two([&'a str; 2]),
}

impl<'a> Columns<'a> {
    /// Those of `row`, where it has some: `named` alone where one is named.
    pub fn of(row: &Value, named: Option<&'a str>) -> Option<Self> {
        let has = |column: &str| row.get_attr(column).is_ok_and(|value| !value.is_undefined());
        if let Some(named) = named {
            return has(named).then_some(Self::One(named));
        }
        let pair = PAIRS.into_iter().find(|pair| pair.iter().all(|column| has(column)));
        let one = || TEXTS.into_iter().find(|column| has(column)).map(Self::One);
        pair.map(Self::Two).or_else(one)
    }
}

/// Whether a row has a label.
pub(super) fn has_label(row: &Value) -> bool {
    row.get_attr(LABEL).is_ok_and(|label| !label.is_undefined())
}

impl Row {
    /// Reads a row.
    ///
    /// # Errors
    /// What it lacks, in words.
    pub fn read(row: &Value, named: Option<&str>) -> Result<Self, Problem> {
        if row.kind() != ValueKind::Map {
            let found = kind(row);
            return Err(format!(
                "it is {found}, not an object with a text and a label; correct it or remove it"
            ));
        }
        let text = |column: &str| {
            let value = row.get_attr(column).unwrap_or_default();
            match value.as_str() {
                Some(text) if !text.trim().is_empty() => Ok(text.to_owned()),
                Some(_) => Err(format!("its `{column}` is empty; correct it or remove the row")),
                None => Err(format!("its `{column}` is {}, not a text", kind(&value))),
            }
        };
        let (first, second) = match Columns::of(row, named) {
            Some(Columns::One(column)) => (text(column)?, None),
            Some(Columns::Two([one, other])) => (text(one)?, Some(text(other)?)),
            None => {
                return Err(match named {
                    Some(column) => format!("it has no `{column}`"),
                    None => "it has no `text`, no `sentence`, and no two texts `sentence1` and `sentence2` or `premise` \
                             and `hypothesis`; name the column with --text-key"
                        .to_owned(),
                });
            }
        };
        Ok(Self { text: first, second, label: Label::read(row)? })
    }

    /// Replaces a number by the name that the data set gives it. The model's class of that name may have another number.
    ///
    /// # Errors
    /// A number that the data set has no name for.
    pub fn in_terms_of(
        self,
        names: Option<&[String]>,
        known: Option<&Classes>,
    ) -> Result<Self, Problem> {
        let (Label::Number(number), Some(names)) = (&self.label, names) else { return Ok(self) };
        let Some(name) = names.get(*number) else {
            return Err(format!(
                "its `label` is {number}, and the data set names {} classes, from 0 on",
                names.len()
            ));
        };
        let place = known
            .filter(|known| same_names(names, &known.names))
            .and_then(|known| known.names.iter().position(|known| known == name));
        let label = Label::Number(place.unwrap_or(*number));
        Ok(Self { label, ..self })
    }
}

impl Label {
    fn read(row: &Value) -> Result<Self, Problem> {
        let value = row.get_attr(LABEL).unwrap_or_default();
        if let Some(name) = value.as_str() {
            return match name.trim() {
                "" => Err("its `label` is empty; correct it or remove the row".to_owned()),
                _ => Ok(Self::Name(name.to_owned())),
            };
        }
        match value.kind() {
            ValueKind::Undefined => Err("it has no `label`; add one, or remove the row".to_owned()),
            ValueKind::Number => match i64::try_from(value.clone()) {
                Ok(number) if (0..LabelledTexts::MOST_CLASSES as i64).contains(&number) => {
                    Ok(Self::Number(number as usize))
                }
                Ok(number) if number < 0 => Err(format!(
                    "its `label` is {number}, as of a row without one; correct it or remove the row"
                )),
                Ok(number) => Err(format!(
                    "its `label` is {number}, and there are at most {} classes; number them from 0",
                    LabelledTexts::MOST_CLASSES
                )),
                Err(_) => Err(format!(
                    "its `label` is {value}, not a whole number: texts are classified, and no numbers are predicted"
                )),
            },
            _ => Err(format!(
                "its `label` is {}, not a whole number or a text; correct it or remove the row",
                kind(&value)
            )),
        }
    }

    /// `Err` unless it is of the same kind as `first`, and one of the classes that a model knows.
    pub fn check(&self, first: &Self, known: Option<&Classes>) -> Result<(), Problem> {
        match (self, first) {
            (Self::Number(number), Self::Name(name)) => {
                return Err(format!(
                    "its `label` is the number {number}, and that of the first row is the text {name:?}; give all of one kind"
                ));
            }
            (Self::Name(name), Self::Number(number)) => {
                return Err(format!(
                    "its `label` is the text {name:?}, and that of the first row is the number {number}; give all of one kind"
                ));
            }
            _ => {}
        }
        let Some(known) = known else { return Ok(()) };
        match (self, self.class(known)) {
            (_, Some(_)) => Ok(()),
            (Self::Number(number), None) => Err(format!(
                "its `label` is {number}, and the model knows {} classes, from 0 on",
                known.count
            )),
            (Self::Name(name), None) if known.names.is_empty() => Err(format!(
                "its `label` is the text {name:?}, and the classes of the model have no names; give numbers below {}",
                known.count
            )),
            (Self::Name(name), None) => Err(format!(
                "its `label` is {name:?}, which the model doesn't know; its classes are {}",
                shown(&known.names)
            )),
        }
    }

    /// Which of `classes` it is.
    pub fn class(&self, classes: &Classes) -> Option<usize> {
        match self {
            Self::Number(number) => Some(*number).filter(|&number| number < classes.count),
            Self::Name(name) => classes.names.iter().position(|known| known == name),
        }
    }
}
