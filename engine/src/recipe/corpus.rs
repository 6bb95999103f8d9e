//! Tokenizer and text of a run.

use anyhow::anyhow;
use tightrope_data::checkpoint::text_file;
use tightrope_data::{
    Batch, Corpus, DataState, Loader, LoaderConfig, Masking, Source, Tokenizer, Tokens, Windows,
    windows_in_epoch,
};
use tightrope_nn::{Done, TrainerConfig};

#[cfg(not(target_family = "wasm"))]
use super::piped;
use super::rows::TOO_FEW_ROWS;
use crate::error::{Error, Help as _, Result};
use crate::run::{Batches, Epoch, HeldOut, Samples};
use crate::settings::{self, Settings};
use crate::units::human_count;
use crate::weights::Start;
use crate::weights::source::Source as Weights;
use crate::weights::tokenizer as tokenizers;

/// Text or token ids, opened.
pub struct Text {
    tokenizer: Tokenizer,
    train: Tokens,
    held_out: Tokens,
    /// Whether its tokens can be shown as text: it isn't shards of ids whose tokenizer isn't known.
    is_text: bool,
    origin: String,
    sources: Vec<Source>,
    holdout: f64,
    loader: Option<Loader>,
    /// Which samples of a batch are this rank's; all, where nothing is said.
    rows: Vec<bool>,
    /// Texts that are nowhere else: checkpoints bring them along.
    own: Vec<(String, Vec<u8>)>,
    /// Of an encoder.
    masking: Option<Masking>,
}

impl Text {
    /// Opens the data that the settings name with the tokenizer that belongs to it, for a model of
    /// `vocab` tokens; where they name none, these `texts` by name, or else the built-in text.
    ///
    /// # Errors
    /// Files that are missing, empty or malformed, and token ids that the model doesn't know.
    pub fn open(
        data: &settings::Data,
        tokenizer: Tokenizer,
        vocab: usize,
        texts: Vec<(String, Vec<u8>)>,
    ) -> Result<Self> {
        let origin = match data.files.as_slice() {
            [] if texts.is_empty() => Corpus::BUILT_IN.to_owned(),
            [] => "the checkpoint's own text".to_owned(),
            [file] => file.display().to_string(),
            files => format!("{} files", files.len()),
        };
        #[cfg(not(target_family = "wasm"))]
        let piped = piped::is(&data.files).then(|| piped::whole(&tokenizer)).transpose()?;
        #[cfg(target_family = "wasm")]
        let piped = None;
        let corpus = if let Some(piped) = piped {
            Ok(piped)
        } else if !data.files.is_empty() {
            let key = data.text_key.as_deref().unwrap_or(Corpus::TEXT_KEY);
            Corpus::open(&data.files, key, &tokenizer)
        } else if texts.is_empty() {
            Corpus::built_in(&tokenizer)
        } else {
            Corpus::from_documents(texts, &tokenizer)
        };
        let corpus = corpus?;
        corpus.check_vocab(vocab).help(TOO_FEW_ROWS)?;
        let holdout = data.holdout;
        let (train, held_out) = corpus.split(holdout).help("check data.holdout")?;
        let sources = corpus.sources().to_vec();
        let is_text = !Corpus::is_of_ids(&data.files)? || tokenizer.vocab_size() == vocab;
        Ok(Self {
            tokenizer,
            train,
            held_out,
            is_text,
            origin,
            sources,
            holdout,
            loader: None,
            rows: vec![],
            own: Vec::new(),
            masking: None,
        })
    }

    /// Opens a text that is in memory and nowhere else, for a model of `vocab` tokens. Checkpoints bring it along as the
    /// file `name`.
    ///
    /// # Errors
    /// A text that is empty or not UTF-8, and token ids that the model doesn't know.
    pub fn in_memory(
        name: &str,
        text: Vec<u8>,
        tokenizer: Tokenizer,
        vocab: usize,
        holdout: f64,
    ) -> Result<Self> {
        let data = settings::Data { holdout, ..settings::Data::default() };
        let own = vec![(name.to_owned(), text)];
        let opened = Self::open(&data, tokenizer, vocab, own.clone())?;
        Ok(Self { own, origin: name.to_owned(), ..opened })
    }

    /// With masked tokens to predict, for an encoder. `seed` chooses those of training.
    ///
    /// # Errors
    /// A tokenizer without the tokens that an encoder reads.
    pub fn masked(self, seed: u64) -> Result<Self> {
        let specials = self.tokenizer.specials().help(ENCODERS)?;
        let masking = Masking::new(specials, self.tokenizer.vocab_size(), seed);
        Ok(Self { masking: Some(masking), ..self })
    }

    /// What is held out where something is, else everything.
    pub fn scored(&self) -> &Tokens {
        if self.holdout > 0.0 { &self.held_out } else { &self.train }
    }

    /// Samples that score `tokens` in order, or the first windows that hold `most` of them; none where there is nothing to predict.
    ///
    /// # Errors
    /// A broken file, and sequences without room for what is predicted.
    pub fn windows(
        &self,
        tokens: &Tokens,
        config: &TrainerConfig,
        most: Option<usize>,
    ) -> Result<HeldOut> {
        let Some(masking) = self.masking.map(Masking::held_out) else {
            return windows(tokens, config, most);
        };
        let context = self.context(config)?;
        Ok(Box::new(
            in_order(tokens, context, most)?.map(move |batch| {
                Ok(masking.apply(&batch.help("restore the data")?, context).into())
            }),
        ))
    }

    /// Tokens of a window.
    fn context(&self, config: &TrainerConfig) -> Result<usize> {
        let seq_len = config.model.tokens();
        if self.masking.is_none() {
            return Ok(seq_len);
        }
        seq_len.checked_sub(Masking::AROUND).filter(|&context| context > 0).ok_or_else(|| {
            Error::usage(
                anyhow!("`model.context` is {seq_len}, without room for a token between those that begin and end a text"),
                "give --context 3 or more",
            )
        })
    }

    /// Bytes of text that all tokens of [`Text::scored`] but the first stand for, without those that are put around texts; `None`
    /// where they are ids of a tokenizer that isn't known, and where only masked tokens are predicted.
    ///
    /// # Errors
    /// A broken file.
    pub fn predicted_bytes(&self) -> Result<Option<u64>> {
        const PIECE: usize = 1 << 16;
        if !self.is_text || self.masking.is_some() {
            return Ok(None);
        }
        let (tokens, mut bytes) = (self.scored(), 0);
        let around = self.tokenizer.around_texts().help("name another --tokenizer")?.concat();
        let mut ids = vec![0; PIECE];
        for first in (1..tokens.len()).step_by(PIECE) {
            let ids = &mut ids[..(tokens.len() - first).min(PIECE)];
            tokens.read(first..first + ids.len(), ids).help("restore the data")?;
            let ids = ids.iter().map(|&id| id.cast_unsigned());
            let ids: Vec<u32> = ids.filter(|id| !around.contains(id)).collect();
            bytes += self.tokenizer.decode(&ids).help("restore the data")?.len() as u64;
        }
        Ok(Some(bytes))
    }

    /// The data's name, and its number of files where there are several.
    pub fn origin(&self) -> &str {
        &self.origin
    }
}

impl Batches for Text {
    fn seek(&mut self, config: &TrainerConfig, at: Done) -> Result<()> {
        if self.loader.as_ref().is_none_or(|loader| loader.position() != at.samples) {
            let TrainerConfig { batch, seed, .. } = *config;
            let order = LoaderConfig { batch, context: self.context(config)?, seed };
            // The one before has a thread of its own, which ends first.
            self.loader = None;
            let loader = Loader::of_rows(self.train.clone(), order, self.rows.clone(), at.samples)
                .help("give more --data, a shorter --context or a smaller data.holdout")?;
            self.loader = Some(loader);
        }
        Ok(())
    }

    fn epoch(&self, config: &TrainerConfig) -> Result<Option<Epoch>> {
        let samples = windows_in_epoch(self.train.len(), self.context(config)?);
        Ok(Some(Epoch { samples, unit: Epoch::WINDOWS }))
    }

    #[cfg(not(target_family = "wasm"))]
    fn share(&mut self, own: Vec<bool>) {
        (self.rows, self.loader) = (own, None);
    }

    fn batch(&mut self, config: &TrainerConfig, at: Done) -> Result<Samples> {
        self.seek(config, at)?;
        let context = self.context(config)?;
        let loader = self.loader.as_mut().expect("`seek` leaves one");
        let batch = loader.next().help("restore the data, then resume the run")?;
        Ok(match &self.masking {
            Some(masking) => masking.apply(&batch, context).into(),
            None => batch.into(),
        })
    }

    fn held_out(&self, config: &TrainerConfig, most: Option<usize>) -> Result<HeldOut> {
        self.windows(&self.held_out, config, most)
    }

    #[cfg(not(target_family = "wasm"))]
    fn in_order(&self, config: &TrainerConfig, most: Option<usize>) -> Result<HeldOut> {
        self.windows(&self.train, config, most)
    }

    fn state(&self, samples: u64) -> DataState {
        DataState::new(samples, &self.sources, self.tokenizer.name(), self.holdout)
    }

    fn files(&self) -> Vec<(String, Vec<u8>)> {
        let own = self.own.iter().map(|(name, text)| (text_file(name), text.clone()));
        self.tokenizer.files().into_iter().chain(own).collect()
    }

    fn tokenizer(&self) -> Option<&Tokenizer> {
        self.is_text.then_some(&self.tokenizer)
    }

    fn describe(&self) -> String {
        let count = |tokens: &Tokens| human_count(tokens.len() as f64);
        format!(
            "{}: {} tokens to train on, {} held out, {}",
            self.origin,
            count(&self.train),
            count(&self.held_out),
            if self.is_text { self.tokenizer.name() } else { "ids" },
        )
    }
}

/// Samples that score `tokens` in order, every one but the first predicted once, or the first windows that hold
/// `most` of them; none where there is nothing to predict.
///
/// # Errors
/// A broken file.
pub fn windows(tokens: &Tokens, config: &TrainerConfig, most: Option<usize>) -> Result<HeldOut> {
    let windows = in_order(tokens, config.model.tokens(), most)?;
    Ok(Box::new(windows.map(|window| Ok(window.help("restore the data")?.into()))))
}

/// The windows of `context` tokens of [`windows`].
fn in_order(
    tokens: &Tokens,
    context: usize,
    most: Option<usize>,
) -> Result<impl Iterator<Item = tightrope_data::Result<Batch>> + 'static> {
    let most = most.map(|most| (most / context).max(1));
    let made = || Windows::new(tokens.clone(), 1, context, most).help("check data.holdout");
    let windows = (tokens.len() >= 2).then(made).transpose()?;
    Ok(windows.into_iter().flatten())
}

/// What tokenizers encoders read.
const ENCODERS: &str = "name the tokenizer.json or the vocab.txt of a BERT with --tokenizer";

/// The tokenizer of a new run of an encoder: the settings', else that of the model it starts from.
///
/// # Errors
/// As [`tokenizer`], where none is named, and one without the tokens that an encoder reads.
pub(super) fn encoder_tokenizer(settings: &Settings, vocab: usize) -> Result<Tokenizer> {
    let tokenizer = match (&settings.data.tokenizer, &settings.model.init) {
        (Some(name), _) => tokenizers::named(name)?,
        // Token ids too are between the tokens that begin and end a text.
        (None, Some(init)) => Weights::open(init)?.tokenizer(None)?,
        (None, None) => {
            return Err(Error::usage(anyhow!("no tokenizer is named for the text"), ENCODERS));
        }
    };
    fits(&tokenizer, vocab, false)?;
    tokenizer.specials().help(ENCODERS)?;
    Ok(tokenizer)
}

/// The tokenizer of a new run: the settings', else that of the model it starts from, else bytes.
///
/// # Errors
/// A broken tokenizer file, or one with more tokens than the model.
pub(crate) fn tokenizer(settings: &Settings, vocab: usize) -> Result<Tokenizer> {
    let ids = Corpus::is_of_ids(&settings.data.files)?;
    let tokenizer = match (&settings.data.tokenizer, &settings.model.init) {
        (Some(name), _) => tokenizers::named(name)?,
        (None, Some(init)) if !ids => Weights::open(init)?.tokenizer(None)?,
        _ => Tokenizer::Byte,
    };
    // Ids are checked one by one.
    if !ids {
        fits(&tokenizer, vocab, settings.model.init.is_some())?;
    }
    Ok(tokenizer)
}

/// The tokenizer of a run: that of the checkpoint that it goes on from, else as [`tokenizer`].
///
/// # Errors
/// A tokenizer that can't be read, or has more tokens than the model.
pub(super) fn run_tokenizer(settings: &Settings, start: &Start, vocab: usize) -> Result<Tokenizer> {
    match start {
        Start::Checkpoint(source) => source.own_tokenizer(settings.data.tokenizer.as_deref()),
        _ => tokenizer(settings, vocab),
    }
}

/// The tokenizer for the text of a new model where the settings, unfilled, name none: that of published weights, where its
/// vocabulary is theirs, and not one that was asked for.
///
/// # Errors
/// A vocabulary whose tokenizer isn't built in: bytes would use 256 of its rows.
pub(crate) fn of_vocabulary(settings: &Settings, vocab: usize) -> Result<Option<&'static str>> {
    let settings::Model { preset, vocab: asked, init, .. } = &settings.model;
    let named = settings.data.tokenizer.is_some() || asked.is_some() || init.is_some();
    let Some(preset) = preset.as_ref().filter(|_| !named) else { return Ok(None) };
    if vocab <= Tokenizer::Byte.vocab_size() || Corpus::is_of_ids(&settings.data.files)? {
        return Ok(None);
    }
    if vocab == Tokenizer::GPT2_VOCAB {
        return Ok(Some(Tokenizer::GPT2));
    }
    Err(Error::usage(
        anyhow!(
            "the preset `{preset}` has a vocabulary of {vocab} tokens, and no tokenizer is named for the text"
        ),
        "name its tokenizer.json with --tokenizer, or train on bytes with --tokenizer byte",
    ))
}

/// Refuses a tokenizer with more tokens than a new model's `vocab`. That of a model on disk (`init`) may have ids past the
/// embedding's rows: each token of the data is checked.
///
/// # Errors
/// A tokenizer with more tokens.
pub(crate) fn fits(tokenizer: &Tokenizer, vocab: usize, init: bool) -> Result<()> {
    let size = tokenizer.vocab_size();
    if size > vocab && !init {
        return Err(Error::usage(
            anyhow!("the tokenizer has {size} tokens, and `model.vocab` is {vocab}"),
            format!("give the tokenizer of this vocabulary, or --vocab {size}"),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_is_nowhere_else_goes_into_checkpoints() {
        let own = b"to be or not to be".repeat(9);
        let text = Text::in_memory("own.txt", own.clone(), Tokenizer::Byte, 256, 0.1).unwrap();
        assert_eq!(text.files(), [("data-own.txt".to_owned(), own)]);
        assert_eq!(text.state(3).files[0].name, "own.txt");
        let built_in = Text::open(&settings::Data::default(), Tokenizer::Byte, 256, Vec::new());
        assert_eq!(built_in.unwrap().files(), []);
    }

    #[test]
    fn every_token_is_trained_on_or_held_out() {
        let data = settings::Data::default();
        let text = Text::open(&data, Tokenizer::Byte, 256, Vec::new()).unwrap();
        let tokens = Corpus::built_in(&Tokenizer::Byte).unwrap().tokens().len();
        assert_eq!(text.train.len() + text.held_out.len(), tokens);
        assert!(text.describe().starts_with(Corpus::BUILT_IN), "{}", text.describe());
    }
}
