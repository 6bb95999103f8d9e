//! Files of a model directory that training doesn't change: defaults of generation, names of special tokens, chat templates, the tokenizer's
//! other files, and the keys of `config.json` that don't describe the network. A run keeps them in its checkpoints, and an export copies them.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, anyhow};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tightrope_core::DType;
use tightrope_data::{PACKED_TEMPLATES, TEMPLATE_FILE, Weights, files, limits};
use tightrope_nn::Architecture;

#[cfg(not(target_family = "wasm"))]
use super::templates;
use super::{Source, preprocessor};
use crate::error::{Error, Help as _, Result};
use crate::units::json_text;

/// Defaults of generation, beside the weights.
pub(crate) const GENERATION: &str = "generation_config.json";
/// Number types of the tensors of the directory that a run began with, in its checkpoints.
pub(crate) const STORED: &str = "source_dtypes.json";
/// Files of a tokenizer, its chat templates included.
const OF_TOKENIZER: [&str; 13] = [
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "vocab.txt",
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
    TEMPLATE_FILE,
    "chat_template.json",
    PACKED_TEMPLATES,
];
/// Files that aren't of the tokenizer.
const OF_MODEL: [&str; 3] = [GENERATION, preprocessor::FILE, STORED];
const HELP: &str = "fetch or copy the model again, or name another one";

/// Companion files by name.
pub(crate) type Files = BTreeMap<String, Vec<u8>>;

/// Number types of a directory's tensors.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Stored {
    /// The most frequent one, as safetensors names it.
    dtype: String,
    /// Types of tensors that have another one, by their names in the directory.
    #[serde(default)]
    others: BTreeMap<String, String>,
}

impl Stored {
    /// The types of the tensors in a directory.
    fn of(weights: &Weights) -> Self {
        let all: Vec<(&str, &str)> = weights
            .names()
            .filter_map(|name| weights.get(name).map(|tensor| (name, tensor.dtype)))
            .filter(|(_, dtype)| float(dtype).is_some())
            .collect();
        let count = |dtype: &str| all.iter().filter(|(_, other)| *other == dtype).count();
        let dtype = all.iter().map(|(_, dtype)| *dtype).max_by_key(|dtype| count(dtype));
        let dtype = dtype.unwrap_or("F32");
        let others = all.iter().filter(|(_, other)| *other != dtype);
        let others = others.map(|&(name, other)| (name.to_owned(), other.to_owned())).collect();
        Self { dtype: dtype.to_owned(), others }
    }

    /// The type of most tensors.
    #[cfg(not(target_family = "wasm"))]
    pub(crate) fn dtype(&self) -> DType {
        float(&self.dtype).unwrap_or(DType::F32)
    }

    /// The type of the tensor `name`, which the directory may hold without `prefix`.
    #[cfg(not(target_family = "wasm"))]
    pub(crate) fn of_tensor(&self, name: &str, prefix: &str) -> DType {
        let bare = name.strip_prefix(prefix).unwrap_or(name);
        let other = self.others.get(name).or_else(|| self.others.get(bare));
        other.and_then(|dtype| float(dtype)).unwrap_or(self.dtype())
    }
}

/// The type of floating-point numbers that an export writes for what safetensors calls `name`; `None` for other types.
fn float(name: &str) -> Option<DType> {
    match name {
        "BF16" => Some(DType::BF16),
        "F16" => Some(DType::F16),
        // f64 is read as f32.
        "F32" | "F64" => Some(DType::F32),
        _ => None,
    }
}

/// Defaults of generation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Generation {
    /// Ids that end a text: all of `eos_token_id`.
    pub ends: Vec<u32>,
    /// Temperature: 0 where `do_sample` is false, and 1 where it's true and no temperature is named. `None` where the file says
    /// neither.
    pub temperature: Option<f64>,
    /// Most tokens to draw from; 0 is all. `None` where the file doesn't say whether to draw.
    pub top_k: Option<usize>,
    /// Probability of the tokens to draw from. `None` where the file doesn't say whether to draw.
    pub top_p: Option<f64>,
    /// Keys that change which token follows and aren't applied, with their values.
    pub ignored: Vec<String>,
}

/// Keys of a generation config that change which token follows, with the value at which they don't.
const NOT_APPLIED: [(&str, f64); 13] = [
    ("repetition_penalty", 1.0),
    ("encoder_repetition_penalty", 1.0),
    ("no_repeat_ngram_size", 0.0),
    ("min_p", 0.0),
    ("typical_p", 1.0),
    ("epsilon_cutoff", 0.0),
    ("eta_cutoff", 0.0),
    ("num_beams", 1.0),
    ("penalty_alpha", 0.0),
    ("guidance_scale", 1.0),
    ("min_length", 0.0),
    ("min_new_tokens", 0.0),
    ("diversity_penalty", 0.0),
];
/// The same for keys whose values are lists, or ids.
const LISTS_NOT_APPLIED: [&str; 10] = [
    "bad_words_ids",
    "constraints",
    "force_words_ids",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "stop_strings",
    "suppress_tokens",
    "begin_suppress_tokens",
    "sequence_bias",
    "exponential_decay_length_penalty",
];

impl Generation {
    /// Reads a `generation_config.json`; ids that it lacks are those of `config.json`.
    fn of(file: Option<&Value>, config: Option<&Value>) -> std::result::Result<Self, String> {
        let from = |value: Option<&Value>| value.map_or(Ok(None), ends);
        let mut found =
            Self { ends: from(file)?.or(from(config)?).unwrap_or_default(), ..Self::default() };
        let Some(file) = file else { return Ok(found) };
        let number = |key: &str| match &file[key] {
            Value::Null => Ok(None),
            value => match value.as_f64() {
                Some(number) if number >= 0.0 => Ok(Some(number)),
                _ => Err(format!("`{key}` is {value}, not a number of 0 or more")),
            },
        };
        let [temperature, top_k, top_p] =
            [number("temperature")?, number("top_k")?, number("top_p")?];
        if let Some(top_p) = top_p.filter(|&top_p| top_p == 0.0 || top_p > 1.0) {
            return Err(format!("`top_p` is {top_p}; it must lie above 0 and be at most 1"));
        }
        match &file["do_sample"] {
            Value::Bool(true) => {
                // Defaults are those of transformers.
                found.temperature = Some(temperature.unwrap_or(1.0));
                found.top_k = Some(top_k.unwrap_or(50.0) as usize);
                found.top_p = Some(top_p.unwrap_or(1.0));
            }
            Value::Bool(false) => found.temperature = Some(0.0),
            // Texts are sampled here where transformers, without the key, takes the likeliest token.
            _ => {
                (found.temperature, found.top_p) = (temperature, top_p);
                found.top_k = top_k.map(|top_k| top_k as usize);
            }
        }
        for (key, without) in NOT_APPLIED {
            if let Some(number) = number(key)?.filter(|&number| number != without) {
                found.ignored.push(format!("`{key}` of {number}"));
            }
        }
        let lists = LISTS_NOT_APPLIED.iter().filter(|key| !file[**key].is_null());
        found.ignored.extend(lists.map(|key| format!("`{key}`")));
        Ok(found)
    }
}

/// The ids of `eos_token_id`: one, or a list; `None` where there are none.
fn ends(file: &Value) -> std::result::Result<Option<Vec<u32>>, String> {
    let found = &file["eos_token_id"];
    let list = match found {
        Value::Null => return Ok(None),
        Value::Array(list) => list.as_slice(),
        one => std::slice::from_ref(one),
    };
    let ids = list.iter().map(|id| id.as_u64().and_then(|id| u32::try_from(id).ok()));
    match ids.collect::<Option<Vec<u32>>>() {
        Some(ids) => Ok(Some(ids).filter(|ids| !ids.is_empty())),
        None => Err(format!("`eos_token_id` is {found}, not an id or a list of ids")),
    }
}

impl Source {
    /// The bytes of the file `name` beside the weights; `None` where there is none.
    pub(super) fn companion(&self, name: &str) -> Result<Option<Vec<u8>>> {
        match &self.checkpoint {
            Some(checkpoint) if checkpoint.has(name) => {
                checkpoint.extra(name).help("copy the checkpoint again").map(Some)
            }
            Some(_) => Ok(None),
            None => read(&self.dir.join(name)),
        }
    }

    /// The files beside the weights that training doesn't change.
    ///
    /// # Errors
    /// A file that can't be read, and weights whose types can't.
    pub(crate) fn companions(&self) -> Result<Files> {
        let mut files = Files::new();
        for name in OF_TOKENIZER.into_iter().chain(OF_MODEL) {
            if let Some(bytes) = self.companion(name)? {
                files.insert(name.to_owned(), bytes);
            }
        }
        #[cfg(not(target_family = "wasm"))]
        files.extend(templates::packed(&self.chat_templates()?)?);
        if self.checkpoint.is_none() {
            let stored = serde_json::to_value(self.stored()?).help("report it")?;
            files.insert(STORED.to_owned(), json_text(&stored)?);
        }
        Ok(files)
    }

    /// Types of the tensors of the directory that the model comes from: its own, or that which its run began with. `None` of a model that
    /// began with random weights.
    ///
    /// # Errors
    /// Weights that are missing or in a broken file.
    #[cfg(not(target_family = "wasm"))]
    pub(crate) fn stored_as(&self) -> Result<Option<Stored>> {
        if self.checkpoint.is_none() {
            return self.stored().map(Some);
        }
        let Some(text) = self.companion(STORED)? else { return Ok(None) };
        let stored = serde_json::from_slice(&text).with_context(|| self.unreadable(STORED));
        stored.help("copy the checkpoint again").map(Some)
    }

    fn stored(&self) -> Result<Stored> {
        let weights = self.open_weights().help(HELP)?;
        Ok(Stored::of(&weights))
    }

    /// The `config.json` beside the weights; `None` of a checkpoint without one.
    ///
    /// # Errors
    /// A file that can't be read.
    pub(crate) fn config_file(&self) -> Result<Option<Value>> {
        self.json("config.json")
    }

    /// Settings of generation in the files beside the weights.
    ///
    /// # Errors
    /// A file that can't be read, and values of another kind.
    pub fn generation(&self) -> Result<Generation> {
        let (file, config) = (self.json(GENERATION)?, self.config_file()?);
        Generation::of(file.as_ref(), config.as_ref()).map_err(|problem| {
            Error::failed(anyhow!("{}: {problem}", self.unreadable(GENERATION)), HELP)
        })
    }

    pub(crate) fn json(&self, name: &str) -> Result<Option<Value>> {
        let Some(text) = self.companion(name)? else { return Ok(None) };
        serde_json::from_slice(&text).with_context(|| self.unreadable(name)).help(HELP).map(Some)
    }

    fn unreadable(&self, name: &str) -> String {
        format!("`{}` can't be read", self.dir.join(name).display())
    }
}

/// The bytes of a regular file of bounded size; `None` where there is none.
fn read(file: &Path) -> Result<Option<Vec<u8>>> {
    if !file.exists() {
        return Ok(None);
    }
    let place = || format!("can't read `{}`", file.display());
    files::read(file, limits::TOKENS).with_context(place).help(HELP).map(Some)
}

/// Drops the files of the tokenizer from `files`, unless those of `tokenizer` are the same, and the chat templates where `tokenizer` has some.
pub(crate) fn keep_tokenizer_of(files: &mut Files, tokenizer: &[(String, Vec<u8>)]) {
    if tokenizer.iter().any(|(name, _)| name == TEMPLATE_FILE) {
        files.retain(|name, _| ![TEMPLATE_FILE, PACKED_TEMPLATES].contains(&name.as_str()));
    }
    let differs = |(name, bytes): &(String, Vec<u8>)| {
        OF_TOKENIZER.contains(&name.as_str()) && files.get(name).is_some_and(|own| own != bytes)
    };
    if tokenizer.iter().any(differs) {
        files.retain(|name, _| !OF_TOKENIZER.contains(&name.as_str()));
    }
}

/// The `config.json` of `model`, where `original` is the file of the model that it comes from: of that file, the keys that describe the
/// network as it no longer is are changed, and everything else stays as it was.
pub(crate) fn config(original: Option<&Value>, model: &Architecture) -> Value {
    let own = model.to_hf();
    let Some(Value::Object(file)) = original else { return own };
    let read = Architecture::from_hf(&Value::Object(file.clone())).map(|read| read.to_hf());
    let (Value::Object(own), Ok(Value::Object(before))) = (&own, read) else { return own };
    let mut merged: Map<String, Value> = file.clone();
    // Quantized weights were dequantized where they were read.
    merged.remove("quantization_config");
    for (key, value) in own {
        if before.get(key) != Some(value) {
            merged.insert(key.clone(), value.clone());
        }
    }
    for key in before.keys().filter(|key| !own.contains_key(*key)) {
        merged.remove(key);
    }
    Value::Object(merged)
}
