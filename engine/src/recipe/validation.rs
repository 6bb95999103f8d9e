//! Data that is evaluated on files of their own, instead of on a part of itself.

use anyhow::anyhow;
use tightrope_data::{
    Classes, DataState, ImageFormat, RowFormat, Tokenizer, ToyTask, held_out_split,
};
use tightrope_nn::{Architecture, Done, TrainerConfig};

use super::piped;
use crate::classifies::Classifies;
use crate::error::{Error, Result};
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
    let classes = Classifies::of(model).is_some();
    let said = !settings.data.validation.is_empty() || settings.is_said("data.holdout");
    if classes || said || settings.data.format == Some(RowFormat::Preference) {
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
    let reads_text = match model {
        Architecture::Language(_) | Architecture::Bert(_) => Classifies::of(model).is_none(),
        Architecture::Classifier(_) | Architecture::Vit(_) => false,
    };
    if !reads_text {
        let message = "`data.validation` names files of text, and the data has classes".to_owned();
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

/// `data`, evaluated on the files that the settings name for that, which `open` reads as it did those of the data; the data itself
/// where they name none.
///
/// # Errors
/// Preferences, and those of `open`.
pub(super) fn validated(
    data: Box<dyn Batches>,
    settings: &Settings,
    open: impl FnOnce(&mut Settings) -> Result<Box<dyn Batches>>,
) -> Result<Box<dyn Batches>> {
    let files = &settings.data.validation;
    if files.is_empty() {
        return Ok(data);
    }
    if settings.data.format == Some(RowFormat::Preference) {
        return Err(Error::usage(
            anyhow!("preferences are evaluated on a part of themselves"),
            "leave out data.validation, and hold a part out with data.holdout",
        ));
    }
    let mut own = settings.clone();
    own.data.files = std::mem::take(&mut own.data.validation);
    let origin = match files.as_slice() {
        [file] => format!("`{}`", file.display()),
        files => format!("{} files", files.len()),
    };
    Ok(Box::new(Validated { data, validation: open(&mut own)?, origin }))
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

    fn state(&self, samples: u64) -> DataState {
        self.data.state(samples)
    }

    fn files(&self) -> Vec<(String, Vec<u8>)> {
        self.data.files()
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
