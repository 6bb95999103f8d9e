//! Results on stdout.

use std::io::{ErrorKind, Write};

use anyhow::Context as _;

use crate::failure::Failure;

/// Prints a text as it is.
///
/// # Errors
/// When stdout can't be written; a closed pipe is not an error.
pub fn print(text: &str) -> Result<(), Failure> {
    print_to(&mut std::io::stdout().lock(), text)
}

/// Prints a text as it is to `out`.
///
/// # Errors
/// As [`print()`].
pub fn print_to(out: &mut dyn Write, text: &str) -> Result<(), Failure> {
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
    print(&format!("{object}\n"))
}
