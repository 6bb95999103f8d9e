//! What the page is told when something can't be done.

use serde_json::{Value, json};
use tightrope::core::DeviceError;
use tightrope::settings::SettingsError;

/// `Result` with the crate's [`enum@Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A setup with a wrong key or value.
    #[error("{0}")]
    Setup(String),
    /// The training step doesn't fit the memory. The message is an object, for the page to show.
    #[error("{}", refusal(what, *smallest_bytes, nearest))]
    DoesNotFit {
        /// What is asked for and what there is.
        what: String,
        /// Bytes of the smallest plan.
        smallest_bytes: u64,
        /// The nearest setup that fits, if one was found.
        nearest: Option<Box<Value>>,
    },
    /// What the library refuses, or what went wrong on the way.
    #[error("{}", text(.0))]
    Engine(#[from] tightrope::Error),
    /// A call that can't be answered now, and what to do first.
    #[error("{0}")]
    Refused(&'static str),
}

fn refusal(what: &str, smallest_bytes: u64, nearest: &Option<Box<Value>>) -> Value {
    json!({ "what": what, "smallest_bytes": smallest_bytes, "nearest": nearest })
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
