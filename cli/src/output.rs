//! Results on stdout, and notes on stderr. All text goes out by here, so that none of it that came from a file or a peer is obeyed by a terminal.

use std::io::{ErrorKind, Write};

use anyhow::Context as _;
use tightrope::plain;

use crate::failure::Failure;

/// Prints a note as a line on stderr, escaped and cut as [`plain::brief`] does it.
pub fn note(text: &str) {
    // A closed terminal leaves nobody to tell.
    let _ = writeln!(std::io::stderr().lock(), "{}", plain::brief(text));
}

/// Prints a text, escaped as [`plain::escaped`] does it.
///
/// # Errors
/// When stdout can't be written; a closed pipe is not an error.
pub fn print(text: &str) -> Result<(), Failure> {
    print_to(&mut std::io::stdout().lock(), text)
}

/// Prints a text to `out`, escaped as [`plain::escaped`] does it.
///
/// # Errors
/// As [`print()`].
pub fn print_to(out: &mut dyn Write, text: &str) -> Result<(), Failure> {
    write_to(out, &plain::escaped(text))
}

/// Prints a text as it is: one of this program's own, or one whose parts are escaped.
///
/// # Errors
/// As [`print()`].
pub fn print_raw(text: &str) -> Result<(), Failure> {
    write_to(&mut std::io::stdout().lock(), text)
}

fn write_to(out: &mut dyn Write, text: &str) -> Result<(), Failure> {
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(error).context("can't print the results").map_err(Failure::from)
        }
        _ => Ok(()),
    }
}

/// Prints one object on a line of its own.
///
/// # Errors
/// As [`print()`].
pub fn print_json(object: &serde_json::Value) -> Result<(), Failure> {
    print_json_to(&mut std::io::stdout().lock(), object)
}

/// Prints one object on a line of its own to `out`.
///
/// # Errors
/// As [`print()`].
pub fn print_json_to(out: &mut dyn Write, object: &serde_json::Value) -> Result<(), Failure> {
    write_to(out, &format!("{}\n", plain::escaped_json(object)))
}
