//! What the page is told when something can't be done.

use serde_json::{Value, json};
use tightrope::settings::SettingsError;
use tightrope_core::{DeviceError, SessionError};
use tightrope_nn::{SampleError, TrainError};

/// `Result` with the crate's [`enum@Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A setup with a wrong key or value.
    #[error("{0}")]
    Setup(String),
    /// A model or plan that can't be.
    #[error(transparent)]
    Model(#[from] tightrope_nn::Error),
    /// A text or checkpoint that can't be used.
    #[error(transparent)]
    Data(#[from] tightrope_data::Error),
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
    /// The device failed, or was lost and can't be brought back.
    #[error("{0}")]
    Device(#[from] DeviceError),
    /// A step or a sample went wrong.
    #[error(transparent)]
    Train(TrainError),
    /// A text can't be continued.
    #[error("{0}")]
    Sample(String),
    /// A call that can't be answered now, and what to do first.
    #[error("{0}")]
    Refused(&'static str),
}

fn refusal(what: &str, smallest_bytes: u64, nearest: &Option<Box<Value>>) -> Value {
    json!({ "what": what, "smallest_bytes": smallest_bytes, "nearest": nearest })
}

impl Error {
    /// Whether the device is gone.
    pub fn is_lost(&self) -> bool {
        matches!(self, Self::Device(DeviceError::Lost { .. }))
    }
}

impl From<SettingsError> for Error {
    fn from(error: SettingsError) -> Self {
        Self::Setup(format!("{error}; {}", error.help))
    }
}

impl From<TrainError> for Error {
    fn from(error: TrainError) -> Self {
        match error {
            TrainError::Session(SessionError::Device(error)) => Self::Device(error),
            TrainError::Saved(error) => Self::Model(error),
            error => Self::Train(error),
        }
    }
}

impl From<SampleError> for Error {
    fn from(error: SampleError) -> Self {
        match error {
            SampleError::Train(error) => error.into(),
            error => Self::Sample(error.to_string()),
        }
    }
}
