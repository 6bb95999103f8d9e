//! `tightrope schema`.

use tightrope::settings::{LIST, json_schema};

use crate::failure::Failure;
use crate::output;

/// Prints the JSON schema of settings files on stdout.
///
/// # Errors
/// When stdout can't be written; a closed pipe is not an error.
pub fn run() -> Result<(), Failure> {
    output::print(&format!("{:#}\n", json_schema(LIST)))
}
