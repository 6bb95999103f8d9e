//! Keyword arguments: the flags of the command line with underscores, and any setting by its key.

use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyDict, PyTuple};
use serde_json::Value;
use tightrope::Error;
use tightrope::settings::Settings;

use crate::failure::{raised, unexpected};

/// The settings that keywords say. A value is anything that JSON holds, a path, a number of NumPy or of another library with
/// `tolist`, or a list of those; None isn't said.
///
/// # Errors
/// `SettingError` with the nearest keyword, or what the value must be.
pub fn said(keywords: &Bound<'_, PyDict>) -> PyResult<Settings> {
    let py = keywords.py();
    let mut settings = Settings::default();
    let options = PyDict::new(py);
    let default =
        |values: &Bound<'_, PyTuple>, _: Option<&Bound<'_, PyDict>>| plain(&values.get_item(0)?);
    options.set_item("default", PyCFunction::new_closure(py, None, None, default)?)?;
    let dumps = py.import("json")?.getattr("dumps")?;
    for (name, value) in keywords {
        if value.is_none() {
            continue;
        }
        let name: String = name.extract()?;
        let text: String = dumps.call((value,), Some(&options))?.extract()?;
        let value: Value = serde_json::from_str(&text).map_err(unexpected)?;
        settings.set_keyword(&name, value).map_err(|error| raised(py, &Error::from(error)))?;
    }
    Ok(settings)
}

/// A value that JSON has no form for: arrays and their numbers as Python's own, paths as text.
fn plain(value: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
    let own = match value.getattr_opt("tolist")? {
        Some(tolist) => tolist.call0()?,
        None => value.py().import("os")?.call_method1("fspath", (value,))?,
    };
    Ok(own.unbind())
}
