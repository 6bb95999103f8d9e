//! Failures of a command: what is printed, and the exit code.

use std::io::Write as _;
use std::process::ExitCode;

use serde_json::json;

use crate::settings::SettingsError;

/// Why a command ended early. Each kind has its exit code.
#[derive(Debug)]
pub enum Failure {
    /// The command line or a setting is wrong: code 2.
    Usage(Report),
    /// Something went wrong on the way: code 1.
    Failed(Report),
    /// The training step doesn't fit the memory: code 3.
    DoesNotFit(Report),
    /// SIGINT or SIGTERM ended the command, which has said all there is to say: code 130, as of a shell
    /// command that Ctrl+C ended, so that a script doesn't take the work for done.
    Interrupted,
}

/// An error with what to do about it.
#[derive(Debug)]
pub struct Report {
    /// What is wrong and why.
    pub error: anyhow::Error,
    /// What to do next.
    pub help: Option<String>,
    /// Results that the failure comes with, an object, for machines.
    pub details: Option<serde_json::Value>,
}

impl Report {
    fn new(error: impl Into<anyhow::Error>, help: impl Into<String>) -> Self {
        Self { error: error.into(), help: Some(help.into()), details: None }
    }
}

impl Failure {
    /// Wrong usage.
    pub fn usage(error: impl Into<anyhow::Error>, help: impl Into<String>) -> Self {
        Self::Usage(Report::new(error, help))
    }

    /// A failure on the way.
    pub fn failed(error: impl Into<anyhow::Error>, help: impl Into<String>) -> Self {
        Self::Failed(Report::new(error, help))
    }

    /// A step that doesn't fit the memory; the help is the cheapest change that would fit.
    pub fn does_not_fit(error: impl Into<anyhow::Error>, help: impl Into<String>) -> Self {
        Self::DoesNotFit(Report::new(error, help))
    }

    /// The same failure, whose JSON object also holds what `details` holds.
    pub fn with_details(mut self, details: serde_json::Value) -> Self {
        if let Self::Usage(report) | Self::Failed(report) | Self::DoesNotFit(report) = &mut self {
            report.details = Some(details);
        }
        self
    }

    /// 1, 2, 3 or 130.
    pub fn code(&self) -> u8 {
        match self {
            Self::Interrupted => 130,
            Self::Failed(_) => 1,
            Self::Usage(_) => 2,
            Self::DoesNotFit(_) => 3,
        }
    }

    fn report(&self) -> Option<&Report> {
        match self {
            Self::Usage(report) | Self::Failed(report) | Self::DoesNotFit(report) => Some(report),
            Self::Interrupted => None,
        }
    }

    /// What is wrong and why, where something is.
    pub fn error(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.report().map(|report| &*report.error as _)
    }

    /// As [`Failure::error`], for whoever has help of their own.
    pub fn into_error(self) -> Option<anyhow::Error> {
        match self {
            Self::Usage(report) | Self::Failed(report) | Self::DoesNotFit(report) => {
                Some(report.error)
            }
            Self::Interrupted => None,
        }
    }

    /// Prints the failure on stderr, and with `json` also as one object on stdout.
    pub fn print(&self, json: bool) -> ExitCode {
        // A closed pipe leaves nobody to tell; the exit code still says it.
        let _ = std::io::stderr().lock().write_all(self.to_text().as_bytes());
        if json && self.report().is_some() {
            let _ = writeln!(std::io::stdout().lock(), "{}", self.to_json());
        }
        ExitCode::from(self.code())
    }

    /// `error: …`, a line per cause that isn't said yet, `help: …`.
    fn to_text(&self) -> String {
        let Some(Report { error, help, .. }) = self.report() else { return String::new() };
        let mut text = format!("error: {error}\n");
        for cause in error.chain().skip(1) {
            let cause = cause.to_string();
            if !text.contains(&cause) {
                text += &format!("  because: {cause}\n");
            }
        }
        if let Some(help) = help {
            text += &format!("help: {help}\n");
        }
        text
    }

    /// The details, `error, causes, help, exit_code`, and `file, line, column` of a wrong setting in a
    /// file.
    fn to_json(&self) -> serde_json::Value {
        let Some(Report { error, help, details }) = self.report() else {
            return serde_json::Value::Null;
        };
        let causes: Vec<_> = error.chain().skip(1).map(ToString::to_string).collect();
        let mut object = details.clone().unwrap_or_else(|| json!({}));
        object["error"] = error.to_string().into();
        object["causes"] = causes.into();
        object["help"] = help.as_deref().into();
        object["exit_code"] = self.code().into();
        if let Some(setting) = error.downcast_ref::<SettingsError>() {
            object["error"] = setting.message.as_str().into();
            if let Some(place) = setting.place.as_ref().filter(|place| place.file.is_some()) {
                object["file"] = place.file.as_deref().into();
                object["line"] = place.line.into();
                object["column"] = place.column.into();
            }
        }
        object
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Failed(Report { error, help: None, details: None })
    }
}

impl From<SettingsError> for Failure {
    fn from(error: SettingsError) -> Self {
        let help = error.help.clone();
        Self::usage(error, help)
    }
}

/// Adds what to do next to an error.
pub trait Help<T> {
    /// The error as a [`Failure::Failed`] with this help.
    ///
    /// # Errors
    /// When `self` is one.
    fn help(self, help: impl Into<String>) -> Result<T, Failure>;
}

impl<T, E: Into<anyhow::Error>> Help<T> for Result<T, E> {
    fn help(self, help: impl Into<String>) -> Result<T, Failure> {
        self.map_err(|error| Failure::failed(error, help))
    }
}

/// Prints what clap says: help and version on stdout with code 0, wrong usage on stderr with
/// code 2, and with `--json` on the command line also as one object on stdout.
pub fn print_usage(error: &clap::Error) -> ExitCode {
    // As in `print`, a closed pipe leaves nobody to tell.
    let _ = error.print();
    if !error.use_stderr() {
        return ExitCode::SUCCESS;
    }
    if std::env::args_os().any(|word| word == "--json") {
        let text = error.to_string();
        let message = text.strip_prefix("error: ").unwrap_or(&text).trim_end();
        let object = json!({ "error": message, "causes": [], "help": null, "exit_code": 2 });
        let _ = writeln!(std::io::stdout().lock(), "{object}");
    }
    ExitCode::from(2)
}

#[cfg(test)]
mod tests {
    use std::io;

    use anyhow::{Context as _, anyhow};

    use super::*;
    use crate::settings::{Place, SettingsError};

    #[test]
    fn text_has_the_chain_and_the_help() {
        let opened: Result<(), _> =
            Err(io::Error::new(io::ErrorKind::NotFound, "no such file")).context("can't open `a`");
        let failure = opened.context("can't load the data").help("check --data").unwrap_err();
        assert_eq!(
            failure.to_text(),
            "error: can't load the data\n  because: can't open `a`\n  because: no such file\n\
             help: check --data\n"
        );
        assert_eq!(
            failure.to_json(),
            json!({
                "error": "can't load the data",
                "causes": ["can't open `a`", "no such file"],
                "help": "check --data",
                "exit_code": 1,
            })
        );
    }

    #[test]
    fn results_of_a_failure_are_in_the_same_object() {
        let failure = Failure::failed(anyhow!("x"), "y").with_details(json!({ "pass": false }));
        assert_eq!(
            failure.to_json(),
            json!({ "pass": false, "error": "x", "causes": [], "help": "y", "exit_code": 1 })
        );
    }

    #[test]
    fn codes() {
        assert_eq!(Failure::from(anyhow!("x")).code(), 1);
        assert_eq!(Failure::usage(anyhow!("x"), "y").code(), 2);
        assert_eq!(Failure::does_not_fit(anyhow!("x"), "y").code(), 3);
    }

    #[test]
    fn a_wrong_setting_is_wrong_usage_with_a_place() {
        let place = Place::new(Some("f.toml"), "[train]\nlrr = 1\n", 8..11);
        let failure = Failure::from(SettingsError {
            message: "unknown setting `train.lrr`".to_owned(),
            place: Some(Box::new(place)),
            help: "did you mean `train.lr`?".to_owned(),
        });
        assert_eq!(failure.code(), 2);
        assert_eq!(
            failure.to_text(),
            "error: unknown setting `train.lrr`\n  --> f.toml:2:1\n  |\n2 | lrr = 1\n  | ^^^\n\
             help: did you mean `train.lr`?\n"
        );
        let json = failure.to_json();
        assert_eq!(json["error"], "unknown setting `train.lrr`");
        assert_eq!(
            (&json["file"], &json["line"], &json["column"]),
            (&json!("f.toml"), &json!(2), &json!(1))
        );
    }
}
