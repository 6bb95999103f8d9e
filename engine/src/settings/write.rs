//! Writing settings: run.toml, and the JSON of checkpoints.

use std::path::Path;

use serde_json::Value as Json;
use tightrope_data::{content, files};

use super::setting::{Setting, to_toml};
use super::{LIST, Settings, SettingsError, TABLES, Unwritable};

impl Settings {
    /// The settings as TOML, in the order of [`LIST`]; unset ones are left out.
    ///
    /// # Errors
    /// A value that TOML can't hold, such as a path that isn't valid Unicode.
    pub fn to_toml(&self) -> Result<String, SettingsError> {
        let mut text =
            "# Every setting of this run. Repeat it with `--config` and this file.\n".to_owned();
        for (table, _) in TABLES {
            text += &format!("\n[{table}]\n");
            for setting in LIST.iter().filter(|setting| setting.table() == *table) {
                let value =
                    self.value(setting.key).map_err(|error| self.unwritable(setting, error))?;
                if let Some(value) = value {
                    text += &format!("{} = {}\n", setting.name(), to_toml(&value));
                }
            }
        }
        Ok(text)
    }

    /// The settings that `wanted` keeps, as an object of tables; unset ones are left out.
    ///
    /// # Errors
    /// As [`Settings::to_toml`].
    pub fn to_json(&self, wanted: impl Fn(&Setting) -> bool) -> Result<Json, SettingsError> {
        let mut tables = serde_json::Map::new();
        for setting in LIST.iter().filter(|setting| wanted(setting)) {
            let value = self.value(setting.key).map_err(|error| self.unwritable(setting, error))?;
            if let Some(value) = value {
                let table = tables
                    .entry(setting.table())
                    .or_insert_with(|| Json::Object(Default::default()));
                table[setting.name()] = json(value);
            }
        }
        Ok(Json::Object(tables))
    }

    /// Writes [`Settings::to_toml`] to `path`, complete or not at all, with a last line that tells whether it was changed since.
    ///
    /// # Errors
    /// As [`Settings::to_toml`], or when the file can't be written.
    pub fn write(&self, path: &Path) -> Result<(), SettingsError> {
        let text = self.to_toml()?;
        let text = format!("{text}{CHECKSUM}{}\n", content(text.as_bytes()));
        files::replace(path, text.as_bytes()).map_err(|error| {
            let message = format!("can't write the settings: {error}");
            SettingsError::new(message, "check that the folder exists and has room")
        })
    }

    fn unwritable(&self, setting: &Setting, error: Unwritable) -> SettingsError {
        let help = format!("{}: {}", setting.key, setting.describe());
        self.error(&[setting.key], format!("`{}` {error}", setting.key), &help)
    }
}

/// What the last line of a settings file begins with, before the hash of what is above it.
const CHECKSUM: &str = "# checksum ";

/// Whether a settings file's text is as [`Settings::write`] wrote it.
pub(crate) fn is_as_written(text: &str) -> bool {
    text.rsplit_once(CHECKSUM).is_some_and(|(above, hash)| hash == content(above.as_bytes()) + "\n")
}

/// A value of TOML in JSON. What JSON has no notation for, which no setting takes, is text.
pub(super) fn json(value: toml::Value) -> Json {
    match value {
        toml::Value::String(text) => text.into(),
        toml::Value::Integer(number) => number.into(),
        toml::Value::Float(number) => number.into(),
        toml::Value::Boolean(switch) => switch.into(),
        toml::Value::Array(items) => items.into_iter().map(json).collect(),
        toml::Value::Table(keys) => {
            keys.into_iter().map(|(key, value)| (key, json(value))).collect()
        }
        toml::Value::Datetime(date) => date.to_string().into(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use proptest::prelude::*;

    use super::*;
    use crate::settings::{Bytes, Chunk, Device, Extents, Family, ModelFamily, Offload, Recompute};

    fn reread(settings: &Settings) -> Settings {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run.toml");
        settings.write(&path).unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "a partial file is left");
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(is_as_written(&text));
        assert!(!is_as_written(&text.replacen('=', "= ", 1)) && !is_as_written(""));
        let mut settings = Settings::default();
        settings.read_file(&path).unwrap();
        settings.check().unwrap();
        settings
    }

    #[test]
    fn defaults_are_valid_and_read_back() {
        Settings::default().check().unwrap();
        assert_eq!(reread(&Settings::default()), Settings::default());
    }

    #[test]
    fn run_toml_is_readable() {
        let mut settings = Settings::default();
        settings.model.layers = Some(6);
        settings.memory.budget = Some(Bytes(2 << 30));
        settings.memory.recompute = Recompute::Every(2);
        settings.data.files = vec!["a.txt".into()];
        settings.train.fill(32, 1000, 1e-3);
        let expected = r#"# Every setting of this run. Repeat it with `--config` and this file.

[model]
layers = 6
add_tokens = false
mean_resizing = true

[train]
batch = 32
micro_batch = "auto"
gradient_sums = "fused"
steps = 1000
patience = 0
optimizer = "adamw"
lr = 0.001
warmup = 50
schedule = "cosine"
weight_decay = 0.1
beta1 = 0.9
beta2 = 0.99
eps = 1e-8
clip = 1.0
dpo_beta = 0.1
teacher_temperature = 2.0
soft_share = 0.5
neftune = 0.0
freeze = []
seed = 1337

[lora]
rank = 0
targets = ["all-linear"]
dropout = 0.0
rslora = false
dora = false
rank_pattern = []
alpha_pattern = []
layers = []
layers_pattern = []
exclude = []
modules_to_save = []
bias = "none"

[memory]
budget = "2GiB"
recompute = "every:2"
loss_chunk = "auto"
attention = "fused"
gradients = "f32"
master = "f32"
optimizer_bits = 32
table_bits = 32
offload = []
shard = "auto"
consume_gradients = false
allow = []

[data]
files = ["a.txt"]
packing = false
validation = []
holdout = 0.1

[run]
device = "auto"
precision = "f32"
matmul = "auto"
ranks = 1
context_ranks = 1
interconnect = "auto"
rank_timeout = 60
insecure_ranks = false
log_every = 10
eval_every = 250
sample_every = 0
save_every = 500
keep = 2
keep_best = false
detect_anomaly = false
"#;
        assert_eq!(settings.to_toml().unwrap(), expected);
    }

    proptest! {
        #[test]
        fn any_settings_read_back(
            lr in 1e-12f64..10.0,
            decay in 0.0f64..1.0,
            seed in 0u64..=i64::MAX as u64,
            budget in proptest::option::of(1u64..1 << 50),
            names in proptest::collection::vec("[ -~é\t\n\"\\\\]{1,12}", 1..4),
            rows in 1usize..100_000,
            image in [1usize..1000, 1..1000],
            cuda in 0usize..16,
        ) {
            let mut settings = Settings::default();
            settings.train.lr = Some(lr);
            settings.train.weight_decay = decay;
            settings.train.seed = seed;
            settings.memory.budget = budget.map(Bytes);
            settings.memory.recompute = Recompute::AllBut(names.clone());
            settings.memory.loss_chunk = Chunk::Rows(rows);
            settings.memory.offload = Offload { optimizer: true, ..Offload::NONE };
            settings.model.family = Some(ModelFamily::Language(Family::Llama));
            settings.model.image_size = Some(Extents(image));
            settings.train.freeze = names.clone();
            settings.data.files = names.iter().map(PathBuf::from).collect();
            settings.run.device = Device::Cuda(cuda);
            prop_assert_eq!(reread(&settings), settings);
        }
    }
}
