//! Failures of a command: what is printed, and the exit code.

use std::io::Write as _;
use std::process::ExitCode;

use serde_json::json;
use tightrope::error::Kind;
use tightrope::plain;
use tightrope::settings::SettingsError;

/// Why a command ended early.
#[derive(Debug)]
pub enum Failure {
    /// The engine refused or failed.
    Engine(Box<tightrope::Error>),
    /// A result couldn't be written.
    Output {
        /// What couldn't, and why.
        error: anyhow::Error,
        /// What to do next.
        help: Option<&'static str>,
    },
    /// A process of several failed, which has said why.
    Ranks {
        /// Its exit code.
        code: u8,
        /// Which one, and how it ended.
        first: Option<String>,
    },
    /// SIGINT or SIGTERM ended the command, which has said all there is to say.
    Interrupted,
}

impl Failure {
    /// Each kind has its own: 1 failed, 2 wrong usage, 3 doesn't fit the memory; 130 as of a shell command that Ctrl+C ended,
    /// so that a script doesn't take the work for done.
    pub fn code(&self) -> u8 {
        match self {
            Self::Interrupted => 130,
            Self::Output { .. } => 1,
            Self::Ranks { code, .. } => *code,
            Self::Engine(error) => match error.kind() {
                Kind::Failed => 1,
                Kind::Usage => 2,
                Kind::DoesNotFit => 3,
            },
        }
    }

    /// Prints the failure on stderr, and with `json` also as one object on stdout.
    pub fn print(&self, json: bool) {
        // A closed pipe leaves nobody to tell; the exit code still says it.
        let _ = std::io::stderr().lock().write_all(plain::brief(&self.to_text()).as_bytes());
        if json && !matches!(self, Self::Interrupted) {
            let _ = writeln!(std::io::stdout().lock(), "{}", plain::escaped_json(&self.to_json()));
        }
    }

    fn causes(&self) -> Vec<String> {
        match self {
            Self::Engine(error) => error.causes(),
            Self::Output { error, .. } => error.chain().skip(1).map(ToString::to_string).collect(),
            Self::Ranks { .. } | Self::Interrupted => Vec::new(),
        }
    }

    fn help(&self) -> Option<&str> {
        match self {
            Self::Engine(error) => error.help(),
            Self::Output { help, .. } => *help,
            Self::Ranks { .. } | Self::Interrupted => None,
        }
    }

    /// `error: …`, a line per cause that isn't said yet, `help: …`.
    fn to_text(&self) -> String {
        let mut text = match self {
            Self::Engine(error) => format!("error: {error}\n"),
            Self::Output { error, .. } => format!("error: {error}\n"),
            Self::Ranks { first: Some(first), .. } => format!("error: {first}\n"),
            Self::Ranks { .. } | Self::Interrupted => return String::new(),
        };
        for cause in self.causes() {
            if !text.contains(&cause) {
                text += &format!("  because: {cause}\n");
            }
        }
        if let Some(help) = self.help() {
            text += &format!("help: {help}\n");
        }
        text
    }

    /// The details, `error, causes, help, exit_code`, and `file, line, column` of a wrong setting in a
    /// file.
    fn to_json(&self) -> serde_json::Value {
        let (mut object, message, place) = match self {
            Self::Engine(error) => {
                let details = error.details().cloned().unwrap_or_else(|| json!({}));
                (details, error.message(), error.place())
            }
            Self::Output { error, .. } => (json!({}), error.to_string(), None),
            Self::Ranks { first, .. } => (json!({}), first.clone().unwrap_or_default(), None),
            Self::Interrupted => return serde_json::Value::Null,
        };
        object["error"] = message.into();
        object["causes"] = self.causes().into();
        object["help"] = self.help().into();
        object["exit_code"] = self.code().into();
        if let Some(place) = place.filter(|place| place.file.is_some()) {
            object["file"] = place.file.as_deref().into();
            object["line"] = place.line.into();
            object["column"] = place.column.into();
        }
        object
    }
}

impl From<tightrope::Error> for Failure {
    fn from(error: tightrope::Error) -> Self {
        Self::Engine(Box::new(error))
    }
}

impl From<SettingsError> for Failure {
    fn from(error: SettingsError) -> Self {
        tightrope::Error::from(error).into()
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Output { error, help: None }
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
        let _ = writeln!(std::io::stdout().lock(), "{}", plain::escaped_json(&object));
    }
    ExitCode::from(2)
}

#[cfg(test)]
mod tests {
    use std::io;

    use anyhow::Context as _;
    use tightrope::settings::Place;

    use super::*;

    #[test]
    fn text_has_the_chain() {
        let opened: Result<(), _> =
            Err(io::Error::new(io::ErrorKind::NotFound, "no such file")).context("can't open `a`");
        let failure = Failure::from(opened.context("can't print").unwrap_err());
        assert_eq!(
            failure.to_text(),
            "error: can't print\n  because: can't open `a`\n  because: no such file\n"
        );
        assert_eq!(
            failure.to_json(),
            json!({
                "error": "can't print",
                "causes": ["can't open `a`", "no such file"],
                "help": null,
                "exit_code": 1,
            })
        );
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
