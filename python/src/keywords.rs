//! Keyword arguments: the flags of the command line with underscores, and any setting by its key.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde_json::Value;
use tightrope::Error;
use tightrope::settings::Settings;

use crate::failure::{raised, unexpected};

/// The settings that keywords say. A value is anything that JSON holds, a path, or a list of those; None isn't said.
///
/// # Errors
/// `SettingError` with the nearest keyword, or what the value must be.
pub fn said(keywords: &Bound<'_, PyDict>) -> PyResult<Settings> {
    let py = keywords.py();
    let mut settings = Settings::default();
    let default = py.import("os")?.getattr("fspath")?;
    let options = PyDict::new(py);
    // Paths are text in settings.
    options.set_item("default", default)?;
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
