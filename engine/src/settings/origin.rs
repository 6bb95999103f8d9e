//! Who said a setting.

use std::collections::BTreeMap;
use std::fmt;

use super::{Place, Settings, SettingsError, find};

/// Who said a setting.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Origin {
    /// Nobody: it's the default, or isn't set.
    #[default]
    Default,
    /// A settings file or the command line, here.
    Text(Place),
    /// The checkpoint of this path, which was trained so.
    Checkpoint(String),
    /// The program that uses the library.
    Caller,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("the default"),
            Self::Text(Place { file: Some(file), line, column, .. }) => {
                write!(f, "{file}:{line}:{column}")
            }
            Self::Text(_) => f.write_str("the command line"),
            Self::Checkpoint(path) => write!(f, "the checkpoint `{path}`"),
            Self::Caller => f.write_str("the caller"),
        }
    }
}

/// The settings that were said, by key.
pub(super) type Origins = BTreeMap<&'static str, Origin>;

impl Settings {
    /// Who said the setting of this key. What code has assigned to a field is nobody's.
    pub fn origin(&self, key: &str) -> &Origin {
        self.origins.get(key).unwrap_or(&Origin::Default)
    }

    /// Whether the command line says the setting of this key.
    pub fn on_command_line(&self, key: &str) -> bool {
        matches!(self.origin(key), Origin::Text(Place { file: None, .. }))
    }

    /// An error about settings that can't hold together, at the place of the first one that has a place.
    pub fn error(&self, keys: &[&str], message: String, help: &str) -> SettingsError {
        debug_assert!(keys.iter().all(|key| find(key).is_some()), "{keys:?}");
        let place = keys.iter().find_map(|key| match self.origin(key) {
            Origin::Text(place) => Some(Box::new(place.clone())),
            _ => None,
        });
        SettingsError { message, place, help: help.to_owned() }
    }
}

impl PartialEq for Settings {
    fn eq(&self, other: &Self) -> bool {
        let Self { model, train, lora, memory, data, run, origins: _ } = self;
        *model == other.model
            && *train == other.train
            && *lora == other.lora
            && *memory == other.memory
            && *data == other.data
            && *run == other.run
    }
}
