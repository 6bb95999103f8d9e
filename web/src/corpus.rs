//! What a run trains on: the built-in text, a text of the page's, or problems with known answers.

use tightrope_data::{
    Batch, Checkpoint, Corpus, DataState, Loader, LoaderConfig, Problem, Source, Tokenizer, Tokens,
    ToyTask, Windows, checkpoint,
};
use tightrope_nn::TrainerConfig;

use crate::error::{Error, Result};
use crate::setup::{Kind, Setup};

/// Name of a text that the page gives.
pub const TEXT: &str = "text.txt";
/// Held-out tokens that an evaluation scores at most.
const EVALUATED: usize = 1 << 13;

/// The data of a run, opened.
pub enum Data {
    /// A text.
    Text(Box<Text>),
    /// Problems.
    Toy(ToyTask),
}

/// Text, as bytes.
pub struct Text {
    train: Tokens,
    held_out: Tokens,
    sources: Vec<Source>,
    holdout: f64,
    order: LoaderConfig,
    loader: Option<Loader>,
    /// The text itself, where it's nowhere else.
    own: Option<Vec<u8>>,
}

impl Data {
    /// Opens what the setup names: a `text` that the page gives, or the one in the `checkpoint`.
    ///
    /// # Errors
    /// A text that's missing, too short or not UTF-8, a vocabulary without the bytes, and data that the
    /// checkpoint wasn't trained on.
    pub fn open(
        setup: &Setup,
        text: Option<Vec<u8>>,
        checkpoint: Option<&Checkpoint>,
    ) -> Result<Self> {
        let (bytes, vocab) = (Tokenizer::Byte.vocab_size(), setup.model.vocab);
        if vocab < bytes {
            return Err(Error::Setup(format!(
                "`model.vocab` is {vocab}, and text is read as {bytes} different bytes"
            )));
        }
        let order = LoaderConfig {
            batch: setup.batch(),
            context: setup.model.context,
            seed: setup.settings.train.seed,
        };
        let data = match setup.kind {
            Kind::Toy(toy) => Self::Toy(ToyTask::new(toy, order, setup.settings.data.holdout)?),
            Kind::BuiltIn => Self::text(setup, order, &Corpus::built_in(&Tokenizer::Byte)?, None)?,
            Kind::Text => {
                let brought = checkpoint.map(Checkpoint::texts).transpose()?.unwrap_or_default();
                let brought = <[_; 1]>::try_from(brought).ok().map(|[text]| text);
                let files = checkpoint.map(|checkpoint| checkpoint.manifest.data.files.as_slice());
                let (name, own) = match (text, brought, files) {
                    // It goes by the name it had when the run began; its length is compared below.
                    (Some(text), _, Some([file])) => (file.name.clone(), text),
                    (Some(text), _, _) => (TEXT.to_owned(), text),
                    (None, Some(brought), _) => brought,
                    (None, None, _) => {
                        return Err(Error::Setup(
                            "`data.kind` is \"text\": give a text".to_owned(),
                        ));
                    }
                };
                let corpus = Corpus::from_bytes(&name, own.clone(), &Tokenizer::Byte)?;
                Self::text(setup, order, &corpus, Some(own))?
            }
        };
        if let Some(checkpoint) = checkpoint {
            data.check_continues(checkpoint, setup)?;
        }
        Ok(data)
    }

    fn text(
        setup: &Setup,
        order: LoaderConfig,
        corpus: &Corpus,
        own: Option<Vec<u8>>,
    ) -> Result<Self> {
        let (train, held_out) = corpus.split(setup.settings.data.holdout)?;
        let loader = Loader::new(train.clone(), order, 0)?;
        Ok(Self::Text(Box::new(Text {
            train,
            held_out,
            sources: corpus.sources().to_vec(),
            holdout: setup.settings.data.holdout,
            order,
            loader: Some(loader),
            own,
        })))
    }

    fn check_continues(&self, checkpoint: &Checkpoint, setup: &Setup) -> Result<()> {
        let (was, now) = (&checkpoint.manifest.data, self.state(0));
        let changed = |what: &str, was: &str, now: &str| {
            Err(Error::Setup(format!(
                "{what} was {was} when the run began, and is {now}: continue with what it began with, or \
                 start a new run"
            )))
        };
        if checkpoint.manifest.seed != setup.settings.train.seed {
            let (was, now) =
                (checkpoint.manifest.seed.to_string(), setup.settings.train.seed.to_string());
            return changed("`train.seed`", &was, &now);
        }
        if was.tokenizer != now.tokenizer {
            return changed("the tokenizer", &was.tokenizer, &now.tokenizer);
        }
        if was.fingerprint != now.fingerprint {
            return changed("the data", &described(was), &described(&now));
        }
        if was.holdout != now.holdout {
            let (was, now) = (was.holdout.to_string(), now.holdout.to_string());
            return changed("`data.holdout`", &was, &now);
        }
        Ok(())
    }

    /// The batch after `position` windows.
    ///
    /// # Errors
    /// As [`Loader::next`].
    pub fn batch(&mut self, position: u64) -> Result<Batch> {
        match self {
            Self::Toy(task) => Ok(task.batch(position)),
            Self::Text(text) => {
                let current = text.loader.take().filter(|loader| loader.position() == position);
                let mut loader = match current {
                    Some(loader) => loader,
                    None => Loader::new(text.train.clone(), text.order, position)?,
                };
                let batch = loader.next()?;
                text.loader = Some(loader);
                Ok(batch)
            }
        }
    }

    /// Batches of held-out data, of the trainer's micro-batch; none where nothing is held out.
    ///
    /// # Errors
    /// As [`Windows::new`].
    pub fn held_out(&self, config: &TrainerConfig) -> Result<Vec<Batch>> {
        let (rows, time) = (config.micro_batch, config.model.tokens());
        let most = (EVALUATED / (rows * time)).max(1);
        match self {
            Self::Toy(task) => {
                let batch = |index: usize| {
                    let mut batch = task.held_out_batch((index * rows) as u64);
                    // A batch of the task is as large as a step's.
                    batch.inputs.truncate(rows * time);
                    batch.targets.truncate(rows * time);
                    batch
                };
                Ok((0..most).map(batch).collect())
            }
            Self::Text(text) if text.held_out.len() < 2 => Ok(Vec::new()),
            Self::Text(text) => {
                let windows = Windows::new(text.held_out.clone(), rows, time, Some(most))?;
                Ok(windows.collect::<tightrope_data::Result<_>>()?)
            }
        }
    }

    /// The held-out problem at `index`, where the data is problems.
    pub fn problem(&self, index: u64) -> Option<Problem> {
        match self {
            Self::Toy(task) => Some(task.held_out(index)),
            Self::Text(_) => None,
        }
    }

    /// What a checkpoint remembers after `position` windows.
    pub fn state(&self, position: u64) -> DataState {
        match self {
            Self::Toy(task) => task.state(position),
            Self::Text(text) => {
                DataState::new(position, &text.sources, Tokenizer::Byte.name(), text.holdout)
            }
        }
    }

    /// Files that a checkpoint brings along: a text that is nowhere else.
    pub fn own_files(&self) -> Vec<(String, Vec<u8>)> {
        let Self::Text(text) = self else { return Vec::new() };
        let file = |own: &Vec<u8>| (checkpoint::text_file(&text.sources[0].name), own.clone());
        text.own.iter().map(file).collect()
    }

    /// Tokens to train on and held out; 0 where problems are made as they're needed.
    pub fn tokens(&self) -> (usize, usize) {
        match self {
            Self::Toy(_) => (0, 0),
            Self::Text(text) => (text.train.len(), text.held_out.len()),
        }
    }
}

fn described(data: &DataState) -> String {
    if let Some(toy) = data.toy() {
        return format!("the task `{}`", toy.name());
    }
    let tokens: u64 = data.files.iter().map(|file| file.tokens).sum();
    let name = data.files.first().map_or("nothing", |file| file.name.as_str());
    match data.files.len() {
        0 | 1 => format!("{tokens} bytes of {name}"),
        files => format!("{tokens} bytes of {files} files, {name} first"),
    }
}
