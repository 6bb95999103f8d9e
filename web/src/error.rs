//! What the page is told when something can't be done.

use serde_json::Value;
use tightrope::core::DeviceError;
use tightrope::error::Kind;
use tightrope::settings::SettingsError;

/// `Result` with the crate's [`enum@Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A setup with a wrong key or value.
    #[error("{0}")]
    Setup(String),
    /// The training step doesn't fit the memory. The message is the object, for a program to show.
    #[error("{0}")]
    DoesNotFit(Value),
    /// What the library refuses, or what went wrong on the way.
    #[error("{}", text(.0))]
    Engine(#[from] tightrope::Error),
    /// A call that can't be answered now, and what to do first.
    #[error("{0}")]
    Refused(&'static str),
}

impl Error {
    /// Name of its kind, by which a program tells it from others.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Setup(_) => "SettingError",
            Self::DoesNotFit(_) => "DoesNotFit",
            Self::Engine(error) => match error.kind() {
                Kind::Usage => "SettingError",
                Kind::DoesNotFit => "DoesNotFit",
                Kind::Failed if error.device().is_some() => "DeviceError",
                Kind::Failed => "Error",
            },
            Self::Refused(_) => "Error",
        }
    }
}

/// The message with its causes. What to do next is said in the words of the command line, and so left out.
fn text(error: &tightrope::Error) -> String {
    let mut text = error.message();
    for cause in error.causes() {
        if !text.contains(&cause) {
            text += &format!(": {cause}");
        }
    }
    if let Some(DeviceError::Lost { .. }) = error.device() {
        text += ". Reload the page; the run continues from its last saved checkpoint";
    }
    text
}

impl From<SettingsError> for Error {
    fn from(error: SettingsError) -> Self {
        Self::Setup(format!("{error}; {}", error.help))
    }
}

impl From<DeviceError> for Error {
    fn from(error: DeviceError) -> Self {
        Self::Engine(tightrope::nn::TrainError::from(error).into())
    }
}

impl From<tightrope::data::Error> for Error {
    fn from(error: tightrope::data::Error) -> Self {
        Self::Setup(error.to_string())
    }
}
