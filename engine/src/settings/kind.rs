//! What a setting accepts: its type and limits, and how a value reads and writes.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use toml::Value;

/// The type and limits of a setting.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// Text that isn't empty.
    Text,
    /// A file or directory.
    Path,
    /// `true` or `false`.
    Switch,
    /// One of some words.
    Word(fn() -> Vec<&'static str>),
    /// One of some whole numbers.
    OneOf(&'static [i64]),
    /// A whole number between two limits, both allowed.
    Whole(i64, i64),
    /// A finite number.
    Number(Range),
    /// A value with a notation of its own.
    Form(&'static Form),
    /// A list, each item of this kind.
    List(&'static Kind),
}

/// Limits of a [`Kind::Number`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Range {
    /// Above 0.
    Positive,
    /// 0 or more.
    NotNegative,
    /// 0 or more, below 1.
    Fraction,
    /// From 0 to 1.
    Share,
}

/// The notation of a [`Kind::Form`].
#[derive(Debug)]
pub struct Form {
    /// What is accepted, to follow "must be".
    pub expected: &'static str,
    /// Words that are accepted.
    pub words: &'static [&'static str],
    /// Regular expression of other texts that are accepted, as JSON schemas write it.
    pub pattern: Option<&'static str>,
    /// Whether whole numbers from 1 on are accepted.
    pub whole: bool,
    /// Whether lists of texts are accepted.
    pub list: bool,
    /// Whether a value is accepted.
    pub accepts: fn(&Value) -> bool,
}

/// The Rust type of a setting.
pub trait SettingValue: Sized {
    /// What it accepts where the list of settings doesn't narrow it.
    const KIND: Kind;

    /// The value that `value` writes, or `None` when it isn't one.
    fn read(value: &Value) -> Option<Self>;

    /// As a settings file has it; `None` for a setting that isn't set.
    ///
    /// # Errors
    /// What TOML can't hold.
    fn write(&self) -> Result<Option<Value>, Unwritable>;
}

/// A value that TOML can't hold, said as what to use instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be {0}")]
pub struct Unwritable(pub &'static str);

/// Sizes stop here, well above any real one, so that a slip of the finger is an error at once.
pub const LARGEST: i64 = 1_000_000_000;

impl<T: SettingValue> SettingValue for Option<T> {
    const KIND: Kind = T::KIND;

    fn read(value: &Value) -> Option<Self> {
        T::read(value).map(Some)
    }

    fn write(&self) -> Result<Option<Value>, Unwritable> {
        self.as_ref().map_or(Ok(None), T::write)
    }
}

impl<T: SettingValue> SettingValue for Vec<T> {
    const KIND: Kind = Kind::List(&T::KIND);

    fn read(value: &Value) -> Option<Self> {
        value.as_array()?.iter().map(T::read).collect()
    }

    fn write(&self) -> Result<Option<Value>, Unwritable> {
        let items: Result<Vec<_>, _> = self.iter().map(T::write).collect();
        Ok(Some(Value::Array(items?.into_iter().flatten().collect())))
    }
}

impl SettingValue for bool {
    const KIND: Kind = Kind::Switch;

    fn read(value: &Value) -> Option<Self> {
        value.as_bool()
    }

    fn write(&self) -> Result<Option<Value>, Unwritable> {
        Ok(Some((*self).into()))
    }
}

impl SettingValue for f64 {
    const KIND: Kind = Kind::Number(Range::NotNegative);

    fn read(value: &Value) -> Option<Self> {
        value.as_float()
    }

    fn write(&self) -> Result<Option<Value>, Unwritable> {
        Ok(Some((*self).into()))
    }
}

impl SettingValue for String {
    const KIND: Kind = Kind::Text;

    fn read(value: &Value) -> Option<Self> {
        value.as_str().map(str::to_owned)
    }

    fn write(&self) -> Result<Option<Value>, Unwritable> {
        Ok(Some(self.as_str().into()))
    }
}

impl SettingValue for PathBuf {
    const KIND: Kind = Kind::Path;

    fn read(value: &Value) -> Option<Self> {
        value.as_str().map(Self::from)
    }

    fn write(&self) -> Result<Option<Value>, Unwritable> {
        self.to_str().map(|path| Some(path.into())).ok_or(Unwritable("a path in Unicode"))
    }
}

macro_rules! whole_numbers {
    ($($type:ty),*) => {$(
        impl SettingValue for $type {
            const KIND: Kind = Kind::Whole(1, LARGEST);

            fn read(value: &Value) -> Option<Self> {
                value.as_integer()?.try_into().ok()
            }

            fn write(&self) -> Result<Option<Value>, Unwritable> {
                let number = i64::try_from(*self);
                number.map(|number| Some(number.into())).map_err(|_| Unwritable("below 2⁶³"))
            }
        }
    )*};
}

whole_numbers!(u32, u64, usize);

impl Kind {
    /// Whether a command line may write the value without quotes, whatever it looks like.
    pub fn is_text(self) -> bool {
        match self {
            Self::Text | Self::Path => true,
            Self::List(item) => item.is_text(),
            _ => false,
        }
    }

    /// Whether it's a list of files or directories.
    pub fn is_paths(self) -> bool {
        matches!(self, Self::List(Self::Path))
    }

    /// The words that it accepts, if it's one or a list of them.
    pub fn words(self) -> Option<Vec<&'static str>> {
        match self {
            Self::Word(words) => Some(words()),
            Self::List(item) => item.words(),
            _ => None,
        }
    }

    /// `value` in the form that settings store: one item stands for a list of one, words between commas for a
    /// list of them, a whole number for its text in a list of texts, and `1e4` for 10000.
    pub(super) fn normalise(self, value: Value) -> Value {
        match (self, value) {
            (Self::List(Self::Word(_)), Value::String(items)) => {
                items.split(',').map(|item| item.trim().to_owned()).collect::<Vec<_>>().into()
            }
            (Self::List(_), Value::String(item)) => vec![item].into(),
            (Self::List(Self::Text), Value::Array(items)) => {
                let text = |item: Value| match item {
                    Value::Integer(number) => Value::String(number.to_string()),
                    item => item,
                };
                items.into_iter().map(text).collect::<Vec<_>>().into()
            }
            (Self::Whole(..) | Self::OneOf(_), Value::Float(x))
                if x.fract() == 0.0 && x.abs() < 1e15 =>
            {
                Value::Integer(x as i64)
            }
            (Self::Number(_), Value::Integer(x)) => Value::Float(x as f64),
            (_, value) => value,
        }
    }

    /// Whether it accepts a [normalised](Kind::normalise) value.
    pub(super) fn accepts(self, value: &Value) -> bool {
        match (self, value) {
            (Self::Text | Self::Path, Value::String(text)) => !text.is_empty(),
            (Self::Word(words), Value::String(word)) => words().contains(&word.as_str()),
            (Self::Switch, Value::Boolean(_)) => true,
            (Self::OneOf(values), Value::Integer(value)) => values.contains(value),
            (Self::Whole(least, most), Value::Integer(number)) => {
                RangeInclusive::new(least, most).contains(number)
            }
            (Self::Number(range), Value::Float(x)) => x.is_finite() && range.contains(*x),
            (Self::Form(form), value) => (form.accepts)(value),
            (Self::List(item), Value::Array(items)) => {
                items.iter().all(|value| item.accepts(value))
            }
            _ => false,
        }
    }

    /// What it accepts, to follow "must be".
    pub(super) fn expected(self) -> String {
        match self {
            Self::Text => "text".to_owned(),
            Self::Path => "a path".to_owned(),
            Self::Switch => "true or false".to_owned(),
            Self::Word(words) => alternatives(&words()),
            Self::OneOf(values) => {
                alternatives(&values.iter().map(i64::to_string).collect::<Vec<_>>())
            }
            Self::Whole(least, _) => format!("a whole number, {least} or more"),
            Self::Number(Range::Positive) => "a number above 0".to_owned(),
            Self::Number(Range::NotNegative) => "a number, 0 or more".to_owned(),
            Self::Number(Range::Fraction) => "a number, 0 or more and below 1".to_owned(),
            Self::Number(Range::Share) => "a number from 0 to 1".to_owned(),
            Self::Form(form) => form.expected.to_owned(),
            Self::List(Self::Text) => "a list of texts".to_owned(),
            Self::List(Self::Path) => "a list of paths".to_owned(),
            Self::List(item) => format!("a list of {}", item.expected()),
        }
    }
}

impl Range {
    fn contains(self, x: f64) -> bool {
        match self {
            Self::Positive => x > 0.0,
            Self::NotNegative => x >= 0.0,
            Self::Fraction => (0.0..1.0).contains(&x),
            Self::Share => (0.0..=1.0).contains(&x),
        }
    }
}

/// `a, b or c`.
fn alternatives<T: AsRef<str>>(words: &[T]) -> String {
    let words: Vec<_> = words.iter().map(AsRef::as_ref).collect();
    match words.as_slice() {
        [] => String::new(),
        [word] => (*word).to_owned(),
        [most @ .., last] => format!("{} or {last}", most.join(", ")),
    }
}
