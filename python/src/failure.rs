//! The library's errors as exceptions of Python, which `tightrope/errors.py` defines.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde_json::Value;
use tightrope::error::{Error, Kind};
use tightrope::plain;

use crate::words::in_keywords;

/// Advice for a checkpoint that differs from its run.
const UNLESS_STRICT: &str = "\nTrainer.resume(…, strict=False) goes on with it: weights are taken as they are in the file, and optimizer state of weights \
                             that weren't trained before begins at 0";

/// The exception that says what `error` says: what is wrong, why, and what to do next.
pub fn raised(py: Python<'_>, error: &Error) -> PyErr {
    made(py, error).unwrap_or_else(|problem| problem)
}

fn made(py: Python<'_>, error: &Error) -> PyResult<PyErr> {
    let mut text = in_keywords(&error.to_string());
    for cause in error.causes() {
        // Some errors say their cause themselves.
        let cause = in_keywords(&cause);
        if !text.contains(&cause) {
            text += &format!(": {cause}");
        }
    }
    let help = error.help().map(in_keywords);
    let figures = PyDict::new(py);
    let class = match error.kind() {
        Kind::DoesNotFit => {
            let figure = |key: &str| error.details().and_then(|details| details[key].as_u64());
            figures.set_item("needed", figure("smallest_bytes"))?;
            figures.set_item("budget", figure("budget_bytes"))?;
            figures.set_item("suggestion", &help)?;
            "DoesNotFit"
        }
        Kind::Usage => "SettingError",
        Kind::Failed if error.device().is_some() => "DeviceError",
        Kind::Failed if error.is_of_batch() => "BatchError",
        Kind::Failed => "Error",
    };
    if let Some(help) = help {
        text += &format!("\nhelp: {help}");
    }
    if error.is_of_strictness() {
        text += UNLESS_STRICT;
    }
    let class = py.import("tightrope.errors")?.getattr(class)?;
    Ok(PyErr::from_value(class.call((&*plain::brief(&text),), Some(&figures))?))
}

/// JSON as an object of Python.
pub fn object<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    py.import("json")?.call_method1("loads", (value.to_string(),))
}

/// An exception for what no input leads to.
pub fn unexpected(problem: impl std::fmt::Display) -> PyErr {
    PyRuntimeError::new_err(format!("{problem}; please report it"))
}
