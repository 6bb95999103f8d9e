//! The keys of a JSON file that another library wrote.

use serde_json::{Map, Value};

use crate::error::{Error, Result};

/// Typed access to an object's keys. `null` counts as absent, as in transformers and PEFT.
pub(crate) struct Keys<'a> {
    file: &'static str,
    object: &'a Map<String, Value>,
    prefix: &'static str,
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
        Ok(Self { file, object, prefix: "" })
    }

    pub fn get(&self, key: &str) -> Option<&'a Value> {
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

    pub fn table(&self, key: &'static str) -> Result<Option<Self>> {
        let object = self.typed(key, "an object", Value::as_object)?;
        Ok(object.map(|object| Keys { object, prefix: key, ..*self }))
    }

    /// `Err` where `key` is given and none of `supported`.
    pub fn must_be(&self, key: &str, supported: &[Value]) -> Result<()> {
        match self.get(key) {
            Some(value) if !supported.contains(value) => {
                let mut words: Vec<String> = supported.iter().map(Value::to_string).collect();
                words.push("leaving it out".into());
                Err(self.wrong(key, format!("is {value}; supported: {}", words.join(", "))))
            }
            _ => Ok(()),
        }
    }

    /// What is wrong with the value of `key`.
    pub fn wrong(&self, key: &str, problem: String) -> Error {
        let dot = if self.prefix.is_empty() { "" } else { "." };
        Error::HuggingFace { file: self.file, key: format!("{}{dot}{key}", self.prefix), problem }
    }
}
