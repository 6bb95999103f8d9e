//! What went wrong: what, where, why, and what to do next.
//!
//! ```
//! use tightrope::error::Kind;
//! use tightrope::settings::Settings;
//!
//! let wrong = Settings::default().read_argument("train.lrr=1").unwrap_err();
//! let error = tightrope::Error::from(wrong);
//! assert_eq!(error.kind(), Kind::Usage);
//! assert_eq!(error.message(), "unknown setting `train.lrr`");
//! assert!(error.help().unwrap().starts_with("did you mean `train.lr`?"));
//! ```

use std::fmt;
use std::io::ErrorKind;

use serde_json::Value;
use tightrope_core::{DeviceError, SessionError};
use tightrope_nn::{self as nn, SampleError, TrainError};

use crate::settings::{Place, SettingsError};

/// `Result` with the engine's [`struct@Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// What a caller can do about an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A setting or a file that was named is wrong: ask for something else.
    Usage,
    /// Something went wrong on the way: a device, a disk, a damaged file.
    Failed,
    /// The training step doesn't fit the memory: [`Error::help`] names the cheapest change that would fit.
    DoesNotFit,
}

/// Detail of an error that a run which isn't strict doesn't have.
const STRICT: &str = "strict";

/// An error with its causes and what to do about it.
#[derive(Debug)]
pub struct Error {
    kind: Kind,
    error: anyhow::Error,
    help: Option<String>,
    details: Option<Value>,
}

impl Error {
    fn new(kind: Kind, error: impl Into<anyhow::Error>, help: impl Into<String>) -> Self {
        Self { kind, error: error.into(), help: Some(help.into()), details: None }
    }

    pub(crate) fn usage(error: impl Into<anyhow::Error>, help: impl Into<String>) -> Self {
        Self::new(Kind::Usage, error, help)
    }

    pub(crate) fn failed(error: impl Into<anyhow::Error>, help: impl Into<String>) -> Self {
        Self::new(Kind::Failed, error, help)
    }

    pub(crate) fn does_not_fit(error: impl Into<anyhow::Error>, help: impl Into<String>) -> Self {
        Self::new(Kind::DoesNotFit, error, help)
    }

    /// The same error, whose [`Error::details`] are these: an object.
    pub(crate) fn with_details(mut self, details: Value) -> Self {
        self.details = Some(details);
        self
    }

    /// The same error, with one of its [`Error::details`] more.
    #[must_use]
    pub fn with_detail(mut self, name: &str, detail: Value) -> Self {
        self.details.get_or_insert_with(|| Value::Object(Default::default()))[name] = detail;
        self
    }

    /// What can be done about it.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// What is wrong, without its causes and without the place of a wrong setting.
    pub fn message(&self) -> String {
        match self.error.downcast_ref::<SettingsError>() {
            Some(setting) => setting.message.clone(),
            None => self.error.to_string(),
        }
    }

    /// Why, the nearest cause first.
    pub fn causes(&self) -> Vec<String> {
        self.error.chain().skip(1).map(ToString::to_string).collect()
    }

    /// What to do next.
    pub fn help(&self) -> Option<&str> {
        self.help.as_deref()
    }

    /// Figures that the error comes with, an object: of a step that doesn't fit `smallest_bytes, budget_bytes,
    /// cheapest_knob, largest_batch, longest_context, largest_preset`; of a verification its report.
    pub fn details(&self) -> Option<&Value> {
        self.details.as_ref()
    }

    /// True if a batch was to be cut whose loss mixes samples.
    pub(crate) fn is_mixed(&self) -> bool {
        matches!(self.error.downcast_ref(), Some(nn::Error::Mixed { .. }))
    }

    /// True if a batch lacks an input, or holds what the model doesn't take: samples of another number, or ids out of range.
    pub fn is_of_batch(&self) -> bool {
        matches!(self.error.downcast_ref(), Some(TrainError::Batch { .. }))
    }

    /// The same error, of a run that goes on only if it isn't strict: see [`Error::is_of_strictness`].
    pub(crate) fn unless_strict(self) -> Self {
        self.with_detail(STRICT, true.into())
    }

    /// True if a checkpoint differs from its run in what a run that isn't strict goes on with: frozen weights, the model's ops, or the
    /// bytes of its weights.
    pub fn is_of_strictness(&self) -> bool {
        let is_altered = |cause: &(dyn std::error::Error + 'static)| {
            matches!(cause.downcast_ref(), Some(tightrope_data::Error::Altered { .. }))
        };
        let is_marked = self.details.as_ref().is_some_and(|details| details[STRICT] == true);
        is_marked || self.error.chain().any(is_altered)
    }

    /// Where a wrong setting stands.
    pub fn place(&self) -> Option<&Place> {
        self.error.downcast_ref::<SettingsError>()?.place.as_deref()
    }

    /// The device's failure, where that's what it is about.
    pub fn device(&self) -> Option<&DeviceError> {
        nn::device_error(&*self.error)
    }

    /// The error alone, for whoever has help of their own.
    #[cfg(not(target_family = "wasm"))]
    pub(crate) fn into_cause(self) -> anyhow::Error {
        self.error
    }
}

impl fmt::Display for Error {
    /// The message, with the lines around a wrong setting.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}

impl From<anyhow::Error> for Error {
    fn from(error: anyhow::Error) -> Self {
        Self { kind: Kind::Failed, error, help: None, details: None }
    }
}

impl From<SettingsError> for Error {
    fn from(error: SettingsError) -> Self {
        let help = error.help.clone();
        Self::usage(error, help)
    }
}

impl From<nn::Error> for Error {
    /// Wrong usage where a setting is, else a failure.
    fn from(error: nn::Error) -> Self {
        match error {
            nn::Error::Setting { key, .. } => {
                let help = format!(
                    "change `{key}`; `tightrope train --help` lists what each setting takes"
                );
                Self::usage(error, help)
            }
            error @ nn::Error::Mixed { .. } => Self::usage(
                error,
                "leave the micro-batch to the planner, or set it to the batch; its advice names what takes less memory",
            ),
            nn::Error::UnknownPreset { .. } => {
                Self::usage(error, "`model.preset` takes one of these names")
            }
            error => Self::failed(error, "check the model's files and settings"),
        }
    }
}

impl From<tightrope_data::Error> for Error {
    /// A file that is missing, damaged, or of another kind.
    fn from(error: tightrope_data::Error) -> Self {
        use tightrope_data::Error as Data;
        let help = match &error {
            Data::Io { source, .. } if source.kind() == ErrorKind::OutOfMemory => {
                return Self::does_not_fit(error, "free some memory, or raise its limit");
            }
            Data::Json { .. } => "if the text is in another field, name it with --text-key",
            Data::Column { .. } => "name the column that holds the text with --text-key",
            Data::NotAFile { .. } => "name a file, a folder or a glob",
            // The others say it themselves.
            _ => {
                return Self { kind: Kind::Failed, error: error.into(), help: None, details: None };
            }
        };
        Self::failed(error, help)
    }
}

impl From<TrainError> for Error {
    /// A refusal of the device, or of what it was given.
    fn from(error: TrainError) -> Self {
        match error {
            TrainError::Session(SessionError::Device(DeviceError::OutOfMemory { .. })) => {
                Self::does_not_fit(
                    error,
                    "give a smaller --memory, so that the plan leaves room, or end what else holds the \
                     device's memory",
                )
            }
            #[cfg(not(target_family = "wasm"))]
            TrainError::Session(SessionError::Ranks(_)) => Self::failed(
                error,
                "see what that rank says; started again with --auto-resume, a run goes on from its last \
                 checkpoint",
            ),
            TrainError::Session(SessionError::Device(DeviceError::Input(_))) => {
                Self::failed(error, "correct what it names in the data: every device refuses it")
            }
            TrainError::Batch { .. } | TrainError::Session(SessionError::Length { .. }) => {
                Self::failed(error, "give what the model's inputs take")
            }
            error => Self::failed(error, "try again, or choose another device with --device"),
        }
    }
}

impl From<SessionError> for Error {
    fn from(error: SessionError) -> Self {
        TrainError::from(error).into()
    }
}

impl From<SampleError> for Error {
    fn from(error: SampleError) -> Self {
        match error {
            SampleError::EmptyPrompt => Self::usage(error, "give --prompt some text to continue"),
            SampleError::NotANumber(_) => {
                Self::failed(error, "the weights have diverged: use an earlier checkpoint")
            }
            SampleError::Train(TrainError::Session(SessionError::Device(DeviceError::Input(
                _,
            )))) => Self::failed(error, "give a --prompt of the model's vocabulary"),
            SampleError::Train(error) => error.into(),
        }
    }
}

/// Adds what to do next to an error.
pub(crate) trait Help<T> {
    /// The error as a failure with this help.
    ///
    /// # Errors
    /// When `self` is one.
    fn help(self, help: impl Into<String>) -> Result<T>;
}

impl<T, E: Into<anyhow::Error>> Help<T> for std::result::Result<T, E> {
    fn help(self, help: impl Into<String>) -> Result<T> {
        self.map_err(|error| Error::failed(error, help))
    }
}

/// Whether there are files. Who asks first ships nothing that reads them to a browser.
pub(crate) const FILES: bool = cfg!(not(target_family = "wasm"));

/// What to say where there are none.
pub(crate) fn no_files() -> anyhow::Error {
    anyhow::anyhow!("a browser has no files to read")
}

#[cfg(test)]
mod tests {
    use std::io;

    use anyhow::{Context as _, anyhow};
    use serde_json::json;

    use super::*;

    #[test]
    fn causes_are_told_apart_from_the_message() {
        let opened: std::result::Result<(), _> =
            Err(io::Error::new(ErrorKind::NotFound, "no such file")).context("can't open `a`");
        let error = opened.context("can't load the data").help("check --data").unwrap_err();
        assert_eq!(error.message(), "can't load the data");
        assert_eq!(error.causes(), ["can't open `a`", "no such file"]);
        assert_eq!((error.kind(), error.help()), (Kind::Failed, Some("check --data")));
    }

    #[test]
    fn a_wrong_setting_has_its_place() {
        let place = Place::new(Some("f.toml"), "[train]\nlrr = 1\n", 8..11);
        let error = Error::from(SettingsError {
            message: "unknown setting `train.lrr`".to_owned(),
            place: Some(Box::new(place)),
            help: "did you mean `train.lr`?".to_owned(),
        });
        assert_eq!(error.message(), "unknown setting `train.lrr`");
        let place = error.place().unwrap();
        assert_eq!((place.file.as_deref(), place.line, place.column), (Some("f.toml"), 2, 1));
    }

    #[test]
    fn memory_that_another_process_holds_is_an_error_of_its_own() {
        let full = DeviceError::OutOfMemory {
            need: 8 << 30,
            have: Some(1 << 30),
            tensor: None,
            device: "H200".to_owned(),
        };
        let error = Error::from(TrainError::from(full));
        let said = format!("{error:?}");
        assert_eq!(error.kind(), Kind::DoesNotFit, "{said}");
        assert!(said.contains("8589934592") && said.contains("1073741824"), "{said}");
    }

    /// A label past the classes was to be helped by another device, and a lost device by another prompt.
    #[test]
    fn a_wrong_input_is_not_the_devices_fault() {
        let wrong = || DeviceError::Input("label 7 of 5 classes".to_owned());
        let lost = DeviceError::Lost { device: "H200".to_owned(), reason: "gone".to_owned() };
        let help = |error: Error| error.help().unwrap().to_owned();
        let of_data = help(TrainError::from(wrong()).into());
        assert!(of_data.starts_with("correct what it names in the data"), "{of_data}");
        let of_prompt = help(SampleError::Train(wrong().into()).into());
        assert_eq!(of_prompt, "give a --prompt of the model's vocabulary");
        let of_device = help(SampleError::Train(lost.into()).into());
        assert!(of_device.contains("choose another device"), "{of_device}");
    }

    #[test]
    fn figures_stay_with_the_error() {
        let error = Error::failed(anyhow!("x"), "y").with_details(json!({ "pass": false }));
        assert_eq!(error.details(), Some(&json!({ "pass": false })));
    }
}
