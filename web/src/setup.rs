//! The page's setup: settings as an object of tables, with what to train on. What is missing or null takes the command
//! line's default.

use std::collections::BTreeMap;

use serde_json::Value;
use tightrope::core::graph::nearest;
use tightrope::data::{Base, Checkpoint, Corpus, Gpt2, ImageDataset, Tokenizer, Toy};
use tightrope::recipe::{Recipe, Task, Text, complete};
use tightrope::run::Batches;
use tightrope::settings::{LIST, Origin, Precision, Reads, Settings};

use crate::error::{Error, Result};

/// Name of a text that the page gives.
pub const TEXT: &str = "text.txt";
/// Names of the two files of the digits.
const DIGITS: [&str; 2] = ["digits-images", "digits-labels"];
/// Name of the file of GPT-2's merges.
const GPT2: [&str; 1] = [Tokenizer::GPT2];

/// Files that the page fetched, by the names that [`Setup::needs`] has.
pub type Files = BTreeMap<String, Vec<u8>>;

fn file(files: &Files, name: &str) -> Result<Vec<u8>> {
    let missing = || Error::Setup(format!("the file `{name}` is missing: give it first"));
    files.get(name).cloned().ok_or_else(missing)
}

/// Where the tokens come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The project's own text.
    BuiltIn,
    /// A text that the page gives.
    Text,
    /// Images of handwritten digits, which the page gives.
    Digits,
    /// Problems with known answers.
    Toy(Toy),
}

impl Kind {
    /// As in a setup.
    pub fn name(self) -> &'static str {
        match self {
            Self::BuiltIn => "built-in",
            Self::Text => "text",
            Self::Digits => "digits",
            Self::Toy(toy) => toy.name(),
        }
    }

    fn of_name(name: &str) -> Result<Self> {
        let all =
            || [Self::BuiltIn, Self::Text, Self::Digits].into_iter().chain(Toy::ALL.map(Self::Toy));
        all().find(|kind| kind.name() == name).ok_or_else(|| {
            let near = nearest(name, all().map(Self::name));
            let near = near.map_or(String::new(), |near| format!("; did you mean `{near}`?"));
            let known: Vec<_> = all().map(Self::name).collect();
            Error::Setup(format!(
                "`data.kind` must be one of {}, not \"{name}\"{near}",
                known.join(", ")
            ))
        })
    }

    fn of_checkpoint(checkpoint: &Checkpoint) -> Result<Self> {
        let data = &checkpoint.manifest.data;
        let built_in = Corpus::built_in(&Tokenizer::Byte)?;
        Ok(match (data.toy(), data.files.as_slice()) {
            (Some(toy), _) => Self::Toy(toy),
            _ if ImageDataset::is_digits(data) => Self::Digits,
            (None, files) if data.tokenizer == Tokenizer::GPT2 && Corpus::is_built_in(files) => {
                Self::BuiltIn
            }
            (None, files) if files.len() == 1 && files != built_in.sources() => Self::Text,
            _ => Self::BuiltIn,
        })
    }
}

/// Everything that decides what a run computes and what it may take.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    /// The settings, the model's sizes, step count and rates filled in.
    pub settings: Settings,
    /// What to train on.
    pub kind: Kind,
}

impl Setup {
    /// Reads a setup.
    ///
    /// # Errors
    /// Unknown keys, with the nearest known one, and values that can't be or don't hold together.
    pub fn from_json(text: &str) -> Result<Self> {
        let mut json: Value = serde_json::from_str(text)
            .map_err(|error| Error::Setup(format!("the setup isn't JSON: {error}")))?;
        let kind = json.get_mut("data").and_then(Value::as_object_mut);
        let kind = kind.and_then(|data| data.remove("kind")).filter(|kind| !kind.is_null());
        let kind = match &kind {
            Some(Value::String(name)) => Kind::of_name(name)?,
            Some(other) => return Err(Error::Setup(format!("`data.kind` is a word, not {other}"))),
            None => Kind::BuiltIn,
        };
        let mut settings = Settings::default();
        settings.read_json(&json, &Origin::Caller)?;
        let mut foreign = LIST.iter().filter(|it| it.page.is_none() && it.key != "model.preset");
        if let Some(setting) = foreign.find(|setting| settings.is_said(setting.key)) {
            let message = format!("`{}` is a setting that the page lacks", setting.key);
            return Err(Error::Setup(message));
        }
        settings.check()?;
        let settings = complete(&settings)?;
        let tokens = settings.data.tokenizer.as_deref();
        if matches!(kind, Kind::Toy(_)) && tokens == Some(Tokenizer::GPT2) {
            return Err(Error::Setup(
                "the tasks are of bytes: choose `data.tokenizer` byte".to_owned(),
            ));
        }
        Ok(Self { settings, kind })
    }

    /// The defaults for a preset.
    ///
    /// # Errors
    /// A preset that there isn't.
    pub fn of_preset(name: &str) -> Result<Self> {
        let mut settings = Settings::default();
        settings.model.preset = Some(name.to_owned());
        Ok(Self { settings: complete(&settings)?, kind: Kind::BuiltIn })
    }

    /// The setup that continues a checkpoint, whoever wrote it.
    ///
    /// # Errors
    /// A checkpoint of adapters of a model that lies elsewhere.
    pub fn of_checkpoint(checkpoint: &Checkpoint) -> Result<Self> {
        let manifest = &checkpoint.manifest;
        if matches!(manifest.base, Some(Base::Model { .. } | Base::Given { .. })) {
            return Err(Error::Setup(
                "the checkpoint holds adapters of a model that the page doesn't have; continue it \
                 with `tightrope train --resume`"
                    .to_owned(),
            ));
        }
        let mut settings = Settings::default();
        let origin = Origin::Checkpoint(checkpoint.path.display().to_string());
        settings.read_json(&manifest.settings, &origin)?;
        // The budget is that of another device, and so is how its f32 is multiplied.
        settings.memory.budget = None;
        settings.run.precision = Precision::of(settings.run.precision.storage);
        let whole = Self { settings, kind: Kind::of_checkpoint(checkpoint)? };
        Self::from_json(&whole.to_json()?.to_string())
    }

    /// The setup as an object, every key filled in.
    ///
    /// # Errors
    /// A number that JSON can't hold.
    pub fn to_json(&self) -> Result<Value> {
        let mut json = self.settings.to_json(|setting| setting.page.is_some())?;
        json["memory"]["budget"] = self.settings.memory.budget.map(|bytes| bytes.0).into();
        json["data"]["kind"] = self.kind.name().into();
        Ok(json)
    }

    /// Names of the files that the page fetches and gives for it.
    pub fn needs(&self) -> &'static [&'static str] {
        match self.kind {
            Kind::Digits => &DIGITS,
            Kind::BuiltIn | Kind::Text if self.reads_gpt2() => &GPT2,
            Kind::BuiltIn | Kind::Text | Kind::Toy(_) => &[],
        }
    }

    /// Whether its tokens are GPT-2's.
    fn reads_gpt2(&self) -> bool {
        self.settings.data.tokenizer.as_deref() == Some(Tokenizer::GPT2)
    }

    /// What turns its text into tokens.
    fn tokenizer(&self, files: &Files) -> Result<Tokenizer> {
        if !self.reads_gpt2() {
            return Ok(Tokenizer::Byte);
        }
        let [merges] = GPT2.map(|name| file(files, name));
        Ok(Tokenizer::Gpt2(Box::new(Gpt2::read(&merges?)?)))
    }

    /// The recipe of a run on what the setup names: on a `text` or on `files` that the page gives, or on the text in the
    /// `checkpoint`, which the run goes on from.
    ///
    /// # Errors
    /// A text or a file that's missing or broken, a vocabulary without the bytes, and a checkpoint of another model or other
    /// data.
    pub fn recipe(
        &self,
        text: Option<Vec<u8>>,
        files: &Files,
        checkpoint: Option<Checkpoint>,
    ) -> Result<Recipe> {
        let Settings { data, model, .. } = &self.settings;
        if self.kind == Kind::Digits {
            let [images, labels] = DIGITS.map(|name| file(files, name));
            let digits = ImageDataset::digits_of(images?, labels?)?;
            return Ok(Recipe::on_images(&self.settings, digits, checkpoint)?);
        }
        if model.family.map(Reads::of) == Some(Reads::Images) {
            return Err(Error::Setup(
                "the data is text, and the model reads images: choose digits, or another `model.family`"
                    .to_owned(),
            ));
        }
        let tokenizer = self.tokenizer(files)?;
        let vocab = model.vocab.unwrap_or(tokenizer.vocab_size());
        let batches: Box<dyn Batches> = match self.kind {
            Kind::Toy(toy) => Box::new(Task::new(toy, data.holdout)),
            Kind::Text => {
                let (name, text) = own_text(text, checkpoint.as_ref())?;
                Box::new(Text::in_memory(&name, text, tokenizer, vocab, data.holdout)?)
            }
            _ => Box::new(Text::open(data, tokenizer, vocab, Vec::new())?),
        };
        Ok(Recipe::on(&self.settings, batches, checkpoint)?)
    }
}

/// The text that the page gives, else the one in the checkpoint. It goes by the name that it had when the run began.
fn own_text(text: Option<Vec<u8>>, checkpoint: Option<&Checkpoint>) -> Result<(String, Vec<u8>)> {
    let brought = checkpoint.map(Checkpoint::texts).transpose()?.unwrap_or_default();
    let brought = <[_; 1]>::try_from(brought).ok().map(|[text]| text);
    let began = checkpoint.map(|checkpoint| checkpoint.manifest.data.files.as_slice());
    match (text, brought, began) {
        (Some(text), _, Some([file])) => Ok((file.name.clone(), text)),
        (Some(text), _, _) => Ok((TEXT.to_owned(), text)),
        (None, Some(brought), _) => Ok(brought),
        (None, None, _) => Err(Error::Setup("`data.kind` is \"text\": give a text".to_owned())),
    }
}
