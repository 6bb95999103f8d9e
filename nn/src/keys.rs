//! The keys of a JSON file that another library wrote.

use std::cell::RefCell;
use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::error::{Error, Result};

/// Typed access to an object's keys. `null` counts as absent, as in transformers and PEFT.
pub(crate) struct Keys<'a> {
    file: &'static str,
    object: &'a Map<String, Value>,
    prefix: String,
    /// Keys that were asked for.
    asked: RefCell<BTreeSet<String>>,
}

impl<'a> Keys<'a> {
    /// Those of the object that a whole file, called `file`, holds.
    ///
    /// # Errors
    /// [`Error::HuggingFace`] about the key `first` where it holds none.
    pub fn of(file: &'static str, first: &str, value: &'a Value) -> Result<Self> {
        let Some(object) = value.as_object() else {
            let problem = format!("is missing: the file holds {value}, no object");
            return Err(Error::HuggingFace { file, key: first.into(), problem });
        };
        Ok(Self { file, object, prefix: String::new(), asked: RefCell::default() })
    }

    pub fn get(&self, key: &str) -> Option<&'a Value> {
        self.asked.borrow_mut().insert(key.to_owned());
        self.object.get(key).filter(|value| !value.is_null())
    }

    fn typed<T>(
        &self,
        key: &str,
        kind: &str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match read(value) {
            Some(read) => Ok(Some(read)),
            None => Err(self.wrong(key, format!("must be {kind}, is {value}"))),
        }
    }

    pub fn optional_size(&self, key: &str) -> Result<Option<usize>> {
        self.typed(key, "a whole number", |value| value.as_u64().and_then(|n| n.try_into().ok()))
    }

    pub fn size(&self, key: &str) -> Result<usize> {
        let size = self.optional_size(key)?;
        size.ok_or_else(|| self.wrong(key, "is missing; it must be a whole number".into()))
    }

    /// One whole number for both axes, or a list of two.
    pub fn extents(&self, key: &str) -> Result<[usize; 2]> {
        let size = |value: &Value| value.as_u64().and_then(|n| usize::try_from(n).ok());
        let read = |value: &Value| match value.as_array() {
            None => size(value).map(|size| [size; 2]),
            Some(list) => match list[..] {
                [ref height, ref width] => Some([size(height)?, size(width)?]),
                _ => None,
            },
        };
        let kind = "a whole number or a list of two";
        let extents = self.typed(key, kind, read)?;
        extents.ok_or_else(|| self.wrong(key, format!("is missing; it must be {kind}")))
    }

    pub fn number(&self, key: &str) -> Result<Option<f64>> {
        self.typed(key, "a number", Value::as_f64)
    }

    pub fn flag(&self, key: &str) -> Result<Option<bool>> {
        self.typed(key, "true or false", Value::as_bool)
    }

    pub fn text(&self, key: &str) -> Result<Option<&'a str>> {
        self.typed(key, "a string", Value::as_str)
    }

    /// A list of whole numbers.
    pub fn numbers(&self, key: &str) -> Result<Option<Vec<u64>>> {
        let read = |value: &Value| value.as_array()?.iter().map(Value::as_u64).collect();
        self.typed(key, "a list of whole numbers", read)
    }

    /// A list of strings.
    pub fn texts(&self, key: &str) -> Result<Option<Vec<&'a str>>> {
        self.typed(key, "a list of strings", |value| {
            value.as_array()?.iter().map(Value::as_str).collect()
        })
    }

    pub fn table(&self, key: &str) -> Result<Option<Self>> {
        let object = self.typed(key, "an object", Value::as_object)?;
        let prefix = format!("{}{key}.", self.prefix);
        Ok(object.map(|object| Keys { object, prefix, file: self.file, asked: RefCell::default() }))
    }

    /// Knows these keys, and leaves them.
    pub fn pass_over(&self, keys: &[&str]) {
        self.asked.borrow_mut().extend(keys.iter().map(|key| (*key).to_owned()));
    }

    /// Whether the key is there, also where it's `null`.
    pub fn has(&self, key: &str) -> bool {
        self.object.contains_key(key)
    }

    /// `Err` for a key that was never asked for, says something, and has one of these parts in its name.
    pub fn refuse_unknown(&self, parts: &[&str]) -> Result<()> {
        let asked = self.asked.borrow();
        let says = |value: &Value| match value {
            Value::Null | Value::Bool(false) => false,
            Value::Number(number) => number.as_f64() != Some(0.0),
            _ => true,
        };
        let unknown = self.object.iter().find(|(key, value)| {
            let may = parts.iter().any(|part| key.contains(part));
            may && says(value) && !asked.contains(*key)
        });
        unknown.map_or(Ok(()), |(key, value)| {
            let problem =
                format!("is {value}; it isn't known here, and may change what the model computes");
            Err(self.wrong(key, problem))
        })
    }

    /// `Err` where `key` is given and none of `supported`.
    pub fn must_be(&self, key: &str, supported: &[Value]) -> Result<()> {
        match self.get(key) {
            Some(value) if !supported.contains(value) => {
                let words: Vec<String> = supported.iter().map(Value::to_string).collect();
                let problem = match words.is_empty() {
                    true => format!("is {value}, which isn't supported"),
                    false => format!("is {value}; supported: {}", words.join(", ")),
                };
                Err(self.wrong(key, problem))
            }
            _ => Ok(()),
        }
    }

    /// What is wrong with the value of `key`.
    pub fn wrong(&self, key: &str, problem: String) -> Error {
        Error::HuggingFace { file: self.file, key: format!("{}{key}", self.prefix), problem }
    }
}
