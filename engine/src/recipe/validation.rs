//! Data that is evaluated on files of their own, instead of on a part of itself.

use tightrope_data::{Classes, DataState, ImageFormat, Tokenizer, ToyTask, held_out_split};
use tightrope_nn::{Architecture, Done, TrainerConfig};

use super::{piped, reference};
use crate::error::Result;
use crate::run::{Batches, Epoch, HeldOut, Question, Samples, Wait};
use crate::settings::Settings;

/// What a run is trained on, and what it's evaluated on.
struct Validated {
    data: Box<dyn Batches>,
    validation: Box<dyn Batches>,
    /// The files of the second, in words.
    origin: String,
}

/// Names the files for validation of a folder that has splits, where nothing else says what is held out. Returns a note
/// about it.
///
/// # Errors
/// A folder that can't be read.
pub(super) fn by_split(settings: &mut Settings, model: &Architecture) -> Result<Option<String>> {
    if matches!(model, Architecture::Vit(_)) || settings.data.files.is_empty() {
        return Ok(None);
    }
    let Some(split) = held_out_split(&settings.data.files)? else { return Ok(None) };
    let trained = "of the folder's splits, the run is trained on `train`";
    if !settings.data.validation.is_empty() || settings.is_said("data.holdout") {
        return Ok(Some(format!("{trained} alone")));
    }
    settings.data.validation = split.files;
    Ok(Some(format!("{trained} and evaluated on `{}`", split.name)))
}

/// Nothing of what is trained on is held out where files are named for that.
///
/// # Errors
/// Settings that say both, and a model whose data has no such files.
pub(super) fn check(settings: &mut Settings, model: &Architecture) -> Result<()> {
    const KEYS: [&str; 2] = ["data.validation", "data.holdout"];
    if settings.data.validation.is_empty() {
        return Ok(());
    }
    if matches!(model, Architecture::Vit(_)) {
        let message =
            "`data.validation` names files of text, and the model reads images".to_owned();
        return Err(settings
            .error(&KEYS, message, "hold a part of it out with data.holdout")
            .into());
    }
    if settings.is_said(KEYS[1]) && settings.data.holdout > 0.0 {
        let message = "`data.validation` and `data.holdout` both say what is held out".to_owned();
        return Err(settings.error(&KEYS, message, "leave one of them out").into());
    }
    if piped::is(&settings.data.validation) {
        let message =
            "`data.validation` is read again and again, and standard input once".to_owned();
        return Err(settings.error(&KEYS[..1], message, "name files").into());
    }
    settings.data.holdout = 0.0;
    Ok(())
}

/// `data`, evaluated on the files that the settings name for that, if they name some. `open` reads these as it did the data's; notes on them
/// are added to `notes`.
///
/// # Errors
/// Those of `open`.
pub(super) fn validated(
    data: Box<dyn Batches>,
    settings: &Settings,
    notes: &mut Vec<String>,
    open: impl FnOnce(&mut Settings, &mut Vec<String>) -> Result<Box<dyn Batches>>,
) -> Result<Box<dyn Batches>> {
    let files = &settings.data.validation;
    if files.is_empty() {
        return Ok(data);
    }
    let mut own = settings.clone();
    own.data.files = std::mem::take(&mut own.data.validation);
    let origin = match files.as_slice() {
        [file] => format!("`{}`", file.display()),
        files => format!("{} files", files.len()),
    };
    let mut found = vec![];
    let validation = open(&mut own, &mut found)?;
    notes.extend(found.into_iter().map(|note| format!("validation: {note}")));
    Ok(Box::new(Validated { data, validation, origin }))
}

impl Batches for Validated {
    fn seek(&mut self, config: &TrainerConfig, at: Done) -> Result<()> {
        self.data.seek(config, at)
    }

    fn share(&mut self, own: Vec<bool>) {
        self.data.share(own);
    }

    fn wait(&mut self, config: &TrainerConfig, at: Done) -> Result<Wait> {
        self.data.wait(config, at)
    }

    fn batch(&mut self, config: &TrainerConfig, at: Done) -> Result<Samples> {
        self.data.batch(config, at)
    }

    fn epoch(&self, config: &TrainerConfig) -> Result<Option<Epoch>> {
        self.data.epoch(config)
    }

    fn shorter(&self) -> Vec<usize> {
        self.data.shorter()
    }

    fn work_share(&self) -> f64 {
        self.data.work_share()
    }

    fn held_out(&self, config: &TrainerConfig, most: Option<usize>) -> Result<HeldOut> {
        self.validation.in_order(config, most)
    }

    fn questions(&self, most: usize) -> Vec<Question> {
        self.validation.questions(most)
    }

    fn unreferenced(&self, config: &TrainerConfig) -> Result<Option<HeldOut>> {
        match self.data.unreferenced(config)? {
            Some(samples) => Ok(Some(samples)),
            None => self.validation.unreferenced(config),
        }
    }

    fn refer_to(&mut self, config: &TrainerConfig, log_likelihoods: Vec<f32>) -> Result<()> {
        match self.data.unreferenced(config)? {
            Some(_) => self.data.refer_to(config, log_likelihoods),
            None => self.validation.refer_to(config, log_likelihoods),
        }
    }

    fn state(&self, samples: u64) -> DataState {
        self.data.state(samples)
    }

    fn files(&self) -> Vec<(String, Vec<u8>)> {
        let own = self.validation.files().into_iter();
        let reference = own.filter(|(name, _)| name == reference::FILE);
        let reference = reference.map(|(_, bytes)| (reference::OF_VALIDATION.to_owned(), bytes));
        self.data.files().into_iter().chain(reference).collect()
    }

    fn tokenizer(&self) -> Option<&Tokenizer> {
        self.data.tokenizer()
    }

    fn classes(&self) -> Option<&Classes> {
        self.data.classes()
    }

    fn images(&self) -> Option<&ImageFormat> {
        self.data.images()
    }

    fn problems(&self, config: &TrainerConfig) -> Result<Option<ToyTask>> {
        self.data.problems(config)
    }

    fn describe(&self) -> String {
        format!("{}; evaluated on {}", self.data.describe(), self.origin)
    }
}
