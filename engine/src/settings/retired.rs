//! Settings of earlier versions that do nothing any more: they are read, ignored and noted.

use super::{Origin, Place, Settings};

/// A setting of an earlier version that does nothing any more. Any value of it is accepted, and none is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retired {
    /// `table.name`.
    pub key: &'static str,
    /// The flag that it had, without the dashes.
    pub flag: Option<&'static str>,
}

/// Every retired setting.
pub static RETIRED: &[Retired] =
    &[Retired { key: "memory.attention_chunk", flag: Some("attention-chunk") }];

/// The retired setting of this key.
pub(super) fn find(key: &str) -> Option<&'static Retired> {
    RETIRED.iter().find(|retired| retired.key == key)
}

impl Settings {
    /// Notes that the command line has the flag of a retired setting.
    pub fn read_retired_flag(&mut self, retired: &'static Retired) {
        let flag = format!("--{}", retired.flag.unwrap_or(retired.key));
        self.retire(retired, Origin::Text(Place::new(None, &flag, 0..flag.len())));
    }

    /// What there is to tell of these settings: a line for each retired one that a person or a program said. Those of a
    /// checkpoint are nobody's to remove.
    pub fn notes(&self) -> Vec<String> {
        let said = |retired: &&Retired| {
            matches!(self.origin(retired.key), Origin::Text(_) | Origin::Caller)
        };
        let note = |retired: &Retired| {
            let (key, origin) = (retired.key, self.origin(retired.key));
            format!("{key} does nothing any more; remove it ({origin})")
        };
        RETIRED.iter().filter(said).map(note).collect()
    }

    pub(super) fn retire(&mut self, retired: &Retired, origin: Origin) {
        let key = RETIRED.iter().find(|it| it.key == retired.key).map(|it| it.key);
        self.origins.extend(key.map(|key| (key, origin)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_retired_key_is_read_noted_and_never_written() {
        let mut settings = Settings::default();
        settings.read_text("run.toml", "[memory]\nattention_chunk = \"auto\"\n").unwrap();
        settings.check().unwrap();
        let note = "memory.attention_chunk does nothing any more; remove it";
        assert_eq!(settings.notes(), [format!("{note} (run.toml:2:1)")]);
        assert!(!settings.to_toml().unwrap().contains("attention_chunk"));

        let mut said = Settings::default();
        said.read_argument("memory.attention_chunk=64").unwrap();
        assert_eq!(said.notes(), [format!("{note} (the command line)")]);
        assert_eq!(Settings::default().over(&said).notes(), said.notes());
        assert_eq!(settings.over(&Settings::default()).notes().len(), 1);
    }

    #[test]
    fn what_a_checkpoint_says_is_not_noted() {
        let json = serde_json::json!({ "memory": { "attention_chunk": 64 } });
        for (origin, notes) in [(Origin::Checkpoint("a.tar".to_owned()), 0), (Origin::Caller, 1)] {
            let mut settings = Settings::default();
            settings.read_json(&json, &origin).unwrap();
            assert_eq!(settings.notes().len(), notes, "{origin}");
        }
    }

    #[test]
    fn no_setting_has_a_retired_name() {
        for Retired { key, flag } in RETIRED {
            assert!(crate::settings::find(key).is_none(), "{key}");
            let flags = crate::settings::LIST.iter().filter_map(|setting| setting.flag);
            let mut names =
                flags.flat_map(|flag| flag.old_names.iter().copied().chain([flag.name]));
            assert!(names.all(|name| Some(name) != *flag), "{key}");
        }
    }
}
