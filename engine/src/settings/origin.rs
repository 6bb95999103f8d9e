//! Who said a setting.

use std::collections::BTreeMap;
use std::fmt;

use super::{LIST, Place, RETIRED, Settings, SettingsError, find};

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

/// Two settings of which one takes the place of the other.
const LENGTHS: [&str; 2] = ["train.steps", "train.epochs"];

impl Origin {
    /// Precedence: the larger one goes over the others.
    fn rank(&self) -> usize {
        match self {
            Self::Default => 0,
            Self::Checkpoint(_) => 1,
            Self::Text(Place { file: Some(_), .. }) => 2,
            Self::Text(_) | Self::Caller => 3,
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

    /// Whether somebody says the setting of this key: here or in code, which has assigned another value than the
    /// default.
    pub fn is_said(&self, key: &str) -> bool {
        self.origins.contains_key(key) || self.is_changed(key)
    }

    /// Whether a setting has another value than its default.
    pub fn is_changed(&self, key: &str) -> bool {
        let default = find(key).and_then(|setting| setting.default());
        self.value(key).map_or(true, |value| value != default)
    }

    /// These settings, such as a checkpoint's, with what `said` says over them.
    #[must_use]
    pub fn over(mut self, said: &Self) -> Self {
        if LENGTHS.iter().any(|key| said.is_said(key)) {
            for key in LENGTHS {
                self.forget(key);
            }
        }
        let keys = LIST.iter().map(|setting| setting.key);
        let keys = keys.chain(RETIRED.iter().map(|retired| retired.key));
        for key in keys.filter(|key| said.is_said(key)) {
            self.copy(key, said);
            match said.origins.get(key) {
                Some(origin) => self.origins.insert(key, origin.clone()),
                None => self.origins.remove(key),
            };
        }
        self
    }

    /// Makes a setting one that nobody has said.
    fn forget(&mut self, key: &'static str) {
        self.copy(key, &Self::default());
        self.origins.remove(key);
    }

    /// `train.steps` and `train.epochs`, if both are set and neither goes over the other.
    pub(super) fn contradiction(&self) -> Option<[&'static str; 2]> {
        let [steps, epochs] = LENGTHS.map(|key| self.origin(key).rank());
        let both = self.train.steps.is_some() && self.train.epochs.is_some();
        (both && steps == epochs).then_some(LENGTHS)
    }

    /// Keeps what the command line or the caller says of `train.steps` and `train.epochs`, if a file says the other.
    pub(crate) fn keep_one_length(&mut self) {
        let [steps, epochs] = LENGTHS.map(|key| self.origin(key).rank());
        if self.train.steps.is_some() && self.train.epochs.is_some() {
            self.forget(LENGTHS[usize::from(steps > epochs)]);
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_goes_over_what_a_checkpoint_says() {
        let mut own = Settings::default();
        let json = serde_json::json!({ "train": { "lr": 1.0, "steps": 5, "clip": 2.0 }, "memory": { "checkpoint": "block" } });
        own.read_json(&json, &Origin::Checkpoint("a.tar".to_owned())).unwrap();
        let mut said = Settings::default();
        said.read_argument("train.lr=2").unwrap();
        // The default, but said.
        said.read_argument("train.clip=1").unwrap();
        said.run.out = Some("b".into());
        let settings = own.over(&said);
        assert_eq!((settings.train.lr, settings.train.clip), (Some(2.0), 1.0));
        assert_eq!(settings.train.steps, Some(5));
        assert_eq!(settings.memory.recompute, crate::settings::Recompute::Block);
        assert_eq!(settings.run.out, Some("b".into()));
        for (key, origin) in [
            ("train.lr", "the command line"),
            ("train.clip", "the command line"),
            ("train.steps", "the checkpoint `a.tar`"),
            ("memory.recompute", "the checkpoint `a.tar`"),
            ("run.out", "the default"),
        ] {
            assert_eq!(settings.origin(key).to_string(), origin, "{key}");
        }
        assert!(settings.is_said("run.out") && !settings.is_said("run.device"));
    }
}
