//! Tokenizer and data of a run.

use std::path::Path;

use anyhow::anyhow;
use tightrope_data::{Corpus, DataState, Source, Tokenizer, Tokens};

use super::source;
use crate::error::{Failure, Help as _};
use crate::progress::human_count;
use crate::settings::Settings;
use crate::setup;

/// The data of a run, opened.
pub struct Data {
    /// The tokenizer of the text.
    pub tokenizer: Tokenizer,
    /// What is trained on.
    pub train: Tokens,
    /// What is held out for evaluation.
    pub held_out: Tokens,
    /// Whether its tokens can be shown as text: it isn't shards of ids whose tokenizer isn't known.
    pub is_text: bool,
    /// Whether it's text that a checkpoint brought along.
    brought: bool,
    sources: Vec<Source>,
    holdout: f64,
}

impl Data {
    /// Opens the data that the settings name with the tokenizer that belongs to it, for a model of
    /// `vocab` tokens; where they name none, these `texts` by name, or else the built-in text.
    ///
    /// # Errors
    /// Files that are missing, empty or malformed, and token ids that the model doesn't know.
    pub fn open(
        settings: &Settings,
        tokenizer: Tokenizer,
        vocab: usize,
        texts: Vec<(String, Vec<u8>)>,
    ) -> Result<Self, Failure> {
        let files = &settings.data.files;
        let brought = !texts.is_empty();
        let corpus = if !files.is_empty() {
            Corpus::open(files, &tokenizer)
        } else if brought {
            Corpus::from_documents(texts, &tokenizer)
        } else {
            Corpus::built_in(&tokenizer)
        };
        let corpus = corpus.help("check --data")?;
        corpus.check_vocab(vocab).help("check --data and --vocab")?;
        let holdout = settings.data.holdout;
        let (train, held_out) = corpus.split(holdout).help("check data.holdout")?;
        let sources = corpus.sources().to_vec();
        let is_text = !only_shards(settings) || tokenizer.vocab_size() == vocab;
        Ok(Self { tokenizer, train, held_out, is_text, brought, sources, holdout })
    }

    /// What a checkpoint remembers after `position` windows.
    pub fn state(&self, position: u64) -> DataState {
        DataState::new(position, &self.sources, self.tokenizer.name(), self.holdout)
    }

    /// What it is, in a few words.
    pub fn describe(&self, settings: &Settings) -> String {
        let origin = match settings.data.files.as_slice() {
            [] if self.brought => "the checkpoint's own text".to_owned(),
            [] => Corpus::BUILT_IN.to_owned(),
            [file] => file.display().to_string(),
            files => format!("{} files", files.len()),
        };
        let count = |tokens: &Tokens| human_count(tokens.len() as f64);
        format!(
            "{origin}: {} tokens to train on, {} held out, {}",
            count(&self.train),
            count(&self.held_out),
            if self.is_text { self.tokenizer.name() } else { "ids" },
        )
    }
}

/// The tokenizer of a new run: the settings', else that of the model it starts from, else bytes.
///
/// # Errors
/// A broken tokenizer file, or one with more tokens than the model.
pub fn tokenizer(settings: &Settings, vocab: usize) -> Result<Tokenizer, Failure> {
    let tokenizer = match (&settings.data.tokenizer, &settings.model.init) {
        (Some(name), _) => setup::tokenizer(name)?,
        (None, Some(init)) if !only_shards(settings) => {
            source::Source::open(init)?.tokenizer(settings)?
        }
        _ => Tokenizer::Byte,
    };
    // Shards are of ids already, and those are checked one by one.
    if tokenizer.vocab_size() > vocab && !only_shards(settings) {
        return Err(Failure::usage(
            anyhow!(
                "the tokenizer has {} tokens, and `model.vocab` is {vocab}",
                tokenizer.vocab_size()
            ),
            "leave `model.vocab` out, or give the tokenizer of this vocabulary",
        ));
    }
    Ok(tokenizer)
}

/// Whether the data is token ids, so that no tokenizer is needed to read it.
fn only_shards(settings: &Settings) -> bool {
    let shard = |file: &Path| file.extension().is_some_and(|extension| extension == "bin");
    !settings.data.files.is_empty() && settings.data.files.iter().all(|file| shard(file))
}
