//! The one list of settings: name, type, limits, flag and description of each key.
//!
//! Reading a file, `--set`, the command line's flags, their `--help` and every message about a
//! setting come from [`KEYS`].

use toml::Value;

use super::Settings;
use super::values::{
    Allow, Bytes, Checkpoint, Chunk, Device, Family, MicroBatch, Offload, Optimizer, Precision,
    Products, Schedule, Written, words,
};

/// One setting.
#[derive(Debug)]
pub struct Key {
    /// `table.key`.
    pub path: &'static str,
    /// What it accepts.
    pub kind: Kind,
    /// Name of its flag, without the dashes.
    pub flag: Option<&'static str>,
    /// Placeholder of its value in `--help`.
    pub placeholder: &'static str,
    /// What it does, in a few words.
    pub help: &'static str,
    /// What holds when it isn't set, for a key without a fixed default.
    pub unset: &'static str,
}

/// The type and limits of a key.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// Text that isn't empty.
    Text,
    /// A file or directory.
    Path,
    /// A list of texts that aren't empty.
    Texts,
    /// A list of files.
    Paths,
    /// One of some words.
    Word(fn() -> Vec<String>),
    /// A list of some words.
    Words(fn() -> Vec<String>),
    /// `true` or `false`.
    Switch,
    /// One of some whole numbers.
    OneOf(&'static [i64]),
    /// A whole number between two limits, both allowed.
    Count(i64, i64),
    /// A finite number.
    Number(Range),
    /// A type that reads itself; the text is what it expects.
    Own(&'static str, fn(&Value) -> bool),
}

/// Limits of a [`Kind::Number`].
#[derive(Clone, Copy, Debug)]
pub enum Range {
    /// Above 0.
    Positive,
    /// 0 or more.
    NotNegative,
    /// 0 or more, below 1.
    Fraction,
}

/// Sizes stop here, well above any real one, so that a slip of the finger is an error at once.
const LARGEST: i64 = 1_000_000_000;
const SIZE: Kind = Kind::Count(1, LARGEST);
const INTERVAL: Kind = Kind::Count(0, LARGEST);

const fn own<T: Written>() -> Kind {
    Kind::Own(T::EXPECTED, |value| T::from_value(value).is_some())
}

const fn key(
    path: &'static str,
    kind: Kind,
    flag: Option<&'static str>,
    placeholder: &'static str,
    help: &'static str,
    unset: &'static str,
) -> Key {
    Key { path, kind, flag, placeholder, help, unset }
}

const PRESET: &str = "the preset's";
const DERIVED_SIZE: &str = "the preset's or that of init";

/// Every setting, in the order of the tables and keys in a settings file.
#[rustfmt::skip]
pub static KEYS: [Key; 53] = [
    key("model.preset", Kind::Text, Some("preset"), "NAME", "Known model that gives every size left unset", "a small GPT"),
    key("model.family", Kind::Word(words::<Family>), Some("family"), "FAMILY", "Architecture", DERIVED_SIZE),
    key("model.layers", SIZE, Some("layers"), "N", "Transformer blocks", DERIVED_SIZE),
    key("model.channels", SIZE, Some("channels"), "N", "Width of the residual stream", DERIVED_SIZE),
    key("model.heads", SIZE, Some("heads"), "N", "Attention heads; divides channels", DERIVED_SIZE),
    key("model.kv_heads", SIZE, Some("kv-heads"), "N", "Key and value heads; divides heads", "as many as heads"),
    key("model.hidden", SIZE, Some("hidden"), "N", "Inner width of the feed-forward layer", DERIVED_SIZE),
    key("model.context", SIZE, Some("context"), "TOKENS", "Longest sequence", DERIVED_SIZE),
    key("model.vocab", SIZE, Some("vocab"), "TOKENS", "Vocabulary", "the tokenizer's"),
    key("model.tied", Kind::Switch, None, "BOOL", "Use the embedding as the output layer", DERIVED_SIZE),
    key("model.dropout", Kind::Number(Range::Fraction), None, "CHANCE", "Chance of dropping an activation", PRESET),
    key("model.init", Kind::Path, Some("init"), "DIR", "Hugging Face directory or checkpoint to start from", "random weights"),

    key("train.batch", SIZE, Some("batch"), "N", "Sequences per optimizer step", PRESET),
    key("train.micro_batch", own::<MicroBatch>(), Some("micro-batch"), "N|auto", "Sequences per pass; divides batch", ""),
    key("train.steps", SIZE, Some("steps"), "N", "Optimizer steps", PRESET),
    key("train.optimizer", Kind::Word(words::<Optimizer>), Some("optimizer"), "RULE", "Update rule", ""),
    key("train.lr", Kind::Number(Range::Positive), Some("lr"), "RATE", "Peak learning rate", PRESET),
    key("train.min_lr", Kind::Number(Range::NotNegative), Some("min-lr"), "RATE", "Learning rate that the schedule ends at", "a tenth of lr"),
    key("train.warmup", INTERVAL, Some("warmup"), "STEPS", "Steps until the learning rate reaches lr", "a twentieth of steps"),
    key("train.schedule", Kind::Word(words::<Schedule>), Some("schedule"), "SHAPE", "Learning rate after the warmup", ""),
    key("train.weight_decay", Kind::Number(Range::NotNegative), Some("weight-decay"), "X", "Decoupled decay of matrices", ""),
    key("train.beta1", Kind::Number(Range::Fraction), None, "X", "Decay of the first moment", ""),
    key("train.beta2", Kind::Number(Range::Fraction), None, "X", "Decay of the second moment", ""),
    key("train.eps", Kind::Number(Range::Positive), None, "X", "Term in the denominator of Adam", ""),
    key("train.clip", Kind::Number(Range::NotNegative), Some("clip"), "NORM", "Largest gradient norm; 0 is no clipping", ""),
    key("train.seed", Kind::Count(0, i64::MAX), Some("seed"), "N", "Seed of weights, dropout, data order and samples", ""),

    key("lora.rank", INTERVAL, Some("lora-rank"), "N", "Rank of adapters that are trained beside frozen weights; 0 trains all weights", ""),
    key("lora.alpha", Kind::Number(Range::Positive), Some("lora-alpha"), "X", "Adapters count alpha/rank times", "twice the rank"),
    key("lora.targets", Kind::Texts, None, "LIST", "Layers that get adapters, by Hugging Face's names: c_attn, q_proj, …, or all-linear", ""),
    key("lora.dropout", Kind::Number(Range::Fraction), None, "CHANCE", "Chance of dropping an element of an adapter's input", ""),
    key("lora.base_bits", Kind::OneOf(&[8]), None, "BITS", "Bits per weight of frozen layers: 8", "those of the precision"),
    key("lora.init", Kind::Path, Some("lora-init"), "DIR", "PEFT directory of adapters to start from, with their rank, alpha and targets", "new adapters"),

    key("memory.budget", own::<Bytes>(), Some("memory"), "BYTES", "Memory that the plan may use, such as 2GiB", "what the device has free"),
    key("memory.plan", Kind::Path, Some("plan"), "FILE", "Plan to use as it is, such as a run's plan.json", "the fastest that fits"),
    key("memory.checkpoint", own::<Checkpoint>(), Some("checkpoint"), "WHAT", "Activations kept: auto, none (all are), block, every:N, sqrt, or a list of tensors", ""),
    key("memory.loss_chunk", own::<Chunk>(), Some("loss-chunk"), "ROWS", "Rows of logits at once: a number, auto or none", ""),
    key("memory.attention_chunk", own::<Chunk>(), Some("attention-chunk"), "ROWS", "Rows of attention scores at once: a number, auto or none", ""),
    key("memory.optimizer_bits", Kind::OneOf(&[32, 16, 8]), None, "BITS", "Bits per optimizer state: 32, 16 or 8", ""),
    key("memory.offload", Kind::Words(words::<Offload>), Some("offload"), "LIST", "What the host keeps for a GPU: optimizer (its state and the update), gradients, activations, weights", ""),
    key("memory.consume_gradients", Kind::Switch, None, "BOOL", "Update each weight as soon as its gradient is made: in one pass a step, without clipping, and without skipping steps that aren't finite", ""),
    key("memory.allow", Kind::Words(words::<Allow>), None, "LIST", "What the planner may change to fit: optimizer_bits, precision (which change numbers), offload", ""),

    key("data.files", Kind::Paths, Some("data"), "FILE", "Text files or token shards; none is the built-in text", ""),
    key("data.tokenizer", Kind::Text, Some("tokenizer"), "NAME|FILE", "Tokenizer", "the one that fits the model"),
    key("data.holdout", Kind::Number(Range::Fraction), None, "PART", "Part of the data kept for evaluation", ""),

    key("run.out", Kind::Path, Some("out"), "DIR", "Run directory", "a new one under runs/"),
    key("run.device", own::<Device>(), Some("device"), "DEVICE", "auto, cpu, wgpu, cuda, or wgpu:N and cuda:N", ""),
    key("run.precision", Kind::Word(words::<Precision>), Some("precision"), "TYPE", "Storage of weights and activations; tf32 is f32 in less exact products", ""),
    key("run.products", Kind::Word(words::<Products>), None, "WHO", "Who multiplies matrices on an NVIDIA GPU", ""),
    key("run.threads", SIZE, Some("threads"), "N", "CPU threads", "every core"),
    key("run.log_every", SIZE, Some("log-every"), "STEPS", "Steps between logged losses", ""),
    key("run.eval_every", INTERVAL, Some("eval-every"), "STEPS", "Steps between evaluations; 0 is only at the end", ""),
    key("run.sample_every", INTERVAL, Some("sample-every"), "STEPS", "Steps between samples; 0 is only at the end", ""),
    key("run.checkpoint_every", INTERVAL, Some("checkpoint-every"), "STEPS", "Steps between checkpoints; 0 is only at the end", ""),
];

/// The tables, in order.
pub const TABLES: [&str; 6] = ["model", "train", "lora", "memory", "data", "run"];

/// Names that other trainers give to the same thing, for suggestions only.
const ELSEWHERE: [(&str, &str); 28] = [
    ("n_layer", "layers"),
    ("num_layers", "layers"),
    ("num_hidden_layers", "layers"),
    ("n_embd", "channels"),
    ("d_model", "channels"),
    ("hidden_size", "channels"),
    ("n_head", "heads"),
    ("num_attention_heads", "heads"),
    ("num_key_value_heads", "kv_heads"),
    ("intermediate_size", "hidden"),
    ("block_size", "context"),
    ("seq_len", "context"),
    ("vocab_size", "vocab"),
    ("learning_rate", "lr"),
    ("batch_size", "batch"),
    ("max_steps", "steps"),
    ("max_iters", "steps"),
    ("warmup_steps", "warmup"),
    ("lr_scheduler", "schedule"),
    ("grad_clip", "clip"),
    ("max_grad_norm", "clip"),
    ("dtype", "precision"),
    ("output_dir", "out"),
    ("gradient_checkpointing", "checkpoint"),
    ("lora_r", "rank"),
    ("lora_alpha", "alpha"),
    ("target_modules", "targets"),
    ("load_in_8bit", "base_bits"),
];

impl Key {
    /// The table that holds it.
    pub fn table(&self) -> &'static str {
        self.path.split_once('.').map_or("", |(table, _)| table)
    }

    /// Its name in the table.
    pub fn name(&self) -> &'static str {
        self.path.split_once('.').map_or(self.path, |(_, name)| name)
    }

    /// The default as one would type it, or what holds when the key isn't set.
    pub fn default_text(&self) -> String {
        let defaults = toml::Table::try_from(Settings::default()).unwrap_or_default();
        match defaults.get(self.table()).and_then(|table| table.get(self.name())) {
            Some(Value::String(word)) => word.clone(),
            Some(Value::Array(items)) if items.is_empty() => "none".to_owned(),
            Some(value) => to_toml(value),
            None => self.unset.to_owned(),
        }
    }

    /// What it does and its default, in one sentence.
    pub fn describe(&self) -> String {
        format!("{} [default: {}]", self.help, self.default_text())
    }

    /// `value` in the form that the settings store, or what is wrong with it as "must be …".
    ///
    /// # Errors
    /// When the type or range is wrong.
    pub fn accept(&self, value: Value) -> Result<Value, String> {
        let value = self.kind.normalise(value);
        let wrong = |expected: &str, value: &Value| {
            Err(format!("must be {expected}, not {}", describe(value)))
        };
        if let (Kind::Words(_) | Kind::Texts | Kind::Paths, Value::Array(items)) =
            (self.kind, &value)
        {
            let item = self.kind.item();
            return match items.iter().find(|value| !item.holds(value)) {
                Some(wrong) => Err(format!(
                    "must be a list, each item {}, not {}",
                    item.expected(),
                    describe(wrong)
                )),
                None => Ok(value),
            };
        }
        match (self.kind, &value) {
            (Kind::Count(_, most), Value::Integer(count)) if *count > most => {
                wrong(&format!("at most {most}"), &value)
            }
            (kind, value) if !kind.holds(value) => wrong(&kind.expected(), value),
            _ => Ok(value),
        }
    }
}

impl Kind {
    /// Whether a command line may write the value without quotes, whatever it looks like.
    pub fn is_text(self) -> bool {
        matches!(self, Self::Text | Self::Texts | Self::Path | Self::Paths)
    }

    /// The kind of one item of a list.
    fn item(self) -> Self {
        match self {
            Self::Words(words) => Self::Word(words),
            Self::Texts => Self::Text,
            Self::Paths => Self::Path,
            kind => kind,
        }
    }

    /// One item stands for a list of one, words between commas for a list of them, and `1e4` for 10000.
    fn normalise(self, value: Value) -> Value {
        match (self, value) {
            (Self::Words(_), Value::String(items)) => {
                items.split(',').map(|item| item.trim().to_owned()).collect::<Vec<_>>().into()
            }
            (Self::Texts | Self::Paths, Value::String(item)) => vec![item].into(),
            (Self::Count(..), Value::Float(x)) if x.fract() == 0.0 && x.abs() < 1e15 => {
                Value::Integer(x as i64)
            }
            (Self::Number(_), Value::Integer(x)) => Value::Float(x as f64),
            (_, value) => value,
        }
    }

    fn holds(self, value: &Value) -> bool {
        match (self, value) {
            (Self::Text | Self::Path, Value::String(text)) => !text.is_empty(),
            (Self::Word(words), Value::String(word)) => words().contains(word),
            (Self::Switch, Value::Boolean(_)) => true,
            (Self::OneOf(values), Value::Integer(value)) => values.contains(value),
            (Self::Count(least, most), Value::Integer(count)) => (least..=most).contains(count),
            (Self::Number(range), Value::Float(x)) => {
                x.is_finite()
                    && match range {
                        Range::Positive => *x > 0.0,
                        Range::NotNegative => *x >= 0.0,
                        Range::Fraction => (0.0..1.0).contains(x),
                    }
            }
            (Self::Own(_, accepts), value) => accepts(value),
            _ => false,
        }
    }

    fn expected(self) -> String {
        match self {
            Self::Text => "text".to_owned(),
            Self::Path => "a path".to_owned(),
            Self::Texts => "a list of texts".to_owned(),
            Self::Paths => "a list of paths".to_owned(),
            Self::Word(words) => alternatives(&words()),
            Self::Words(words) => format!("a list of {}", alternatives(&words())),
            Self::Switch => "true or false".to_owned(),
            Self::OneOf(values) => {
                alternatives(&values.iter().map(i64::to_string).collect::<Vec<_>>())
            }
            Self::Count(least, _) => format!("a whole number, {least} or more"),
            Self::Number(Range::Positive) => "a number above 0".to_owned(),
            Self::Number(Range::NotNegative) => "a number, 0 or more".to_owned(),
            Self::Number(Range::Fraction) => "a number, 0 or more and below 1".to_owned(),
            Self::Own(expected, _) => expected.to_owned(),
        }
    }

    /// The words that it accepts, where they are few.
    pub fn words(self) -> Option<Vec<String>> {
        match self {
            Self::Word(words) | Self::Words(words) => Some(words()),
            _ => None,
        }
    }
}

/// The key of this path.
pub fn find(path: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.path == path)
}

/// The names of the keys of `table`, in order.
pub fn names(table: &str) -> impl Iterator<Item = &'static str> {
    KEYS.iter().filter(move |key| key.table() == table).map(Key::name)
}

/// The candidate that `word` most likely means, if any is near.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase().replace('-', "_");
    let meant = ELSEWHERE.iter().find(|(other, _)| *other == word).map_or(&*word, |(_, own)| own);
    let near = candidates.into_iter().filter_map(|candidate| {
        let distance = strsim::damerau_levenshtein(meant, candidate);
        // A third of the letters wrong still reads as the word; more is a guess.
        let length = meant.chars().count().max(candidate.len());
        (distance <= (length / 3).max(1) && distance < length).then_some((distance, candidate))
    });
    near.min_by_key(|(distance, _)| *distance).map(|(_, candidate)| candidate)
}

/// `value` in TOML, small numbers as `1e-8`.
pub fn to_toml(value: &Value) -> String {
    match value {
        Value::Float(x) if *x != 0.0 && x.abs() < 1e-3 => format!("{x:e}"),
        value => value.to_string(),
    }
}

/// `a, b or c`.
fn alternatives(words: &[String]) -> String {
    match words {
        [] => String::new(),
        [word] => word.clone(),
        [most @ .., last] => format!("{} or {last}", most.join(", ")),
    }
}

/// `value`, as a message names it.
fn describe(value: &Value) -> String {
    const LONGEST: usize = 40;
    match value {
        Value::String(text) if text.is_empty() => "empty text".to_owned(),
        Value::String(text) if text.chars().count() > LONGEST => {
            let start: String = text.chars().take(LONGEST).collect();
            format!("the text {:?}", start + "…")
        }
        Value::String(text) => format!("the text {text:?}"),
        Value::Array(_) => "a list".to_owned(),
        Value::Table(_) => "a table".to_owned(),
        Value::Datetime(date) => format!("the date {date}"),
        number => to_toml(number),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_list_is_the_structs() {
        let json = serde_json::to_value(Settings::default()).unwrap();
        let tables = json.as_object().unwrap();
        let fields: BTreeSet<_> = tables
            .iter()
            .flat_map(|(table, keys)| {
                keys.as_object().unwrap().keys().map(move |key| format!("{table}.{key}"))
            })
            .collect();
        let keys: BTreeSet<_> = KEYS.iter().map(|key| key.path.to_owned()).collect();
        assert_eq!(keys, fields);
        assert_eq!(keys.len(), KEYS.len(), "a key is listed twice");
        let order: Vec<_> = TABLES.iter().flat_map(|table| names(table)).collect();
        assert_eq!(order, KEYS.iter().map(Key::name).collect::<Vec<_>>());
    }

    #[test]
    fn every_key_says_what_holds_when_unset() {
        for key in &KEYS {
            let fixed = toml::Table::try_from(Settings::default()).unwrap()[key.table()]
                .get(key.name())
                .is_some();
            assert_eq!(fixed, key.unset.is_empty(), "{}", key.path);
            assert!(!key.default_text().is_empty(), "{}", key.path);
        }
    }

    #[test]
    fn flags_differ() {
        let flags: Vec<_> = KEYS.iter().filter_map(|key| key.flag).collect();
        assert_eq!(flags.iter().collect::<BTreeSet<_>>().len(), flags.len());
    }

    #[test]
    fn suggestions() {
        let train = || names("train");
        assert_eq!(nearest("lrr", train()), Some("lr"));
        assert_eq!(nearest("min-lr", train()), Some("min_lr"));
        assert_eq!(nearest("stpes", train()), Some("steps"));
        assert_eq!(nearest("learning_rate", train()), Some("lr"));
        assert_eq!(nearest("Weight_Decay", train()), Some("weight_decay"));
        assert_eq!(nearest("colour", train()), None);
        assert_eq!(nearest("x", train()), None);
        let names: BTreeSet<_> = KEYS.iter().map(Key::name).collect();
        for (other, own) in ELSEWHERE {
            assert!(names.contains(own), "{other} stands for no key: {own}");
        }
    }
}
