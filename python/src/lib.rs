//! Tightrope for Python: the library's values as objects of Python.
//!
//! | module | holds |
//! |---|---|
//! | `keywords` | keyword arguments, which are the library's settings |
//! | `failure` | the library's errors as exceptions |
//! | `words` | error messages with Python's keyword arguments |
//! | `worker` | a thread that owns a run, so that the interpreter is free while it works |
//! | `plan` | a plan and its views |
//! | `planner` | the same step within other budgets |
//! | `columns` | a plan as the widget takes it |
//! | `trainer` | a run |
//! | `resumed` | checkpoints that a run goes on from |
//! | `traced` | a model that was written in Python |
//! | `arrow` | columns for libraries of tables |
//!
//! The package's Python files, beside this crate in `tightrope/`, are what users see.

mod arrow;
mod columns;
mod failure;
mod fed;
mod keywords;
mod plan;
mod planner;
mod resumed;
mod traced;
mod trainer;
mod words;
mod worker;

/// The part of the package `tightrope` that is written in Rust.
#[pyo3::pymodule]
mod _engine {
    use std::path::PathBuf;

    use numpy::{IntoPyArray as _, PyArray1};
    use pyo3::prelude::*;
    use pyo3::types::PyDict;
    use tightrope::check::{self, Checker, Program};
    use tightrope::data::{ImageDataset, Weights};
    use tightrope::devices::Spec;
    use tightrope::doctor::Findings;
    use tightrope::verify::Verification;

    use crate::failure::{raised, unexpected};
    use crate::keywords::said;
    use crate::traced::Traced;

    #[pymodule_export]
    use crate::plan::Plan;
    #[pymodule_export]
    use crate::planner::Planner;
    #[pymodule_export]
    use crate::trainer::Trainer;

    /// What another interpreter runs.
    const CHECKS: &str = "from tightrope import _engine; _engine.run_checks()";

    type Column<'py, T> = Bound<'py, PyArray1<T>>;

    /// Version of the library.
    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");

    /// Has kernels checked that a device wasn't seen with, by the interpreter started once more.
    #[pymodule_init]
    fn check_kernels(module: &Bound<'_, PyModule>) -> PyResult<()> {
        let path: Option<PathBuf> = module.py().import("sys")?.getattr("executable")?.extract()?;
        // A program that has the interpreter inside names none.
        let Some(path) = path.filter(|path| !path.as_os_str().is_empty()) else { return Ok(()) };
        let program = Program { path, arguments: vec!["-c".into(), CHECKS.into()] };
        check::enable(Checker::new(program, |line| eprintln!("{line}")));
        Ok(())
    }

    /// Runs kernels that may take the process down, for another process.
    #[pyfunction]
    fn run_checks(py: Python<'_>) -> PyResult<()> {
        check::serve_stdin().map_err(|error| raised(py, &error))
    }

    /// Every setting: `(key, keyword or None, description)`.
    #[pyfunction]
    fn settings() -> Vec<(&'static str, Option<String>, String)> {
        let setting = |it: &tightrope::settings::Setting| (it.key, it.keyword(), it.describe());
        tightrope::settings::LIST.iter().map(setting).collect()
    }

    /// Checks settings, by their keywords: that each is one, and that it accepts its value.
    #[pyfunction]
    fn check_settings(keywords: &Bound<'_, PyDict>) -> PyResult<()> {
        said(keywords).map(drop)
    }

    /// Names and shapes of the weights of a model that was traced, as checkpoints hold them, without adapters.
    #[pyfunction]
    fn traced_weights(trace: &str) -> PyResult<Vec<(String, Vec<usize>)>> {
        Ok(Traced::read(trace).map_err(unexpected)?.weights())
    }

    /// Tensors of a file or folder of safetensors or of `torch.save` by their names: shape and flat float32.
    #[pyfunction]
    fn read_weights(py: Python<'_>, path: PathBuf) -> PyResult<Bound<'_, PyDict>> {
        let read = py.detach(|| {
            let file = Weights::open(&path)?;
            let named = |name: &str| Ok((name.to_owned(), file.require(name)?.to_values()?));
            file.names().map(named).collect::<tightrope::data::Result<Vec<_>>>()
        });
        let tensors = PyDict::new(py);
        for (name, (shape, values)) in read.map_err(|error| raised(py, &error.into()))? {
            tensors.set_item(name, (shape, values.into_pyarray(py)))?;
        }
        Ok(tensors)
    }

    /// Compares a device with a recorded reference case; its report as JSON.
    #[pyfunction]
    fn verify(py: Python<'_>, folder: PathBuf, keywords: &Bound<'_, PyDict>) -> PyResult<String> {
        let settings = said(keywords)?;
        let checked = py.detach(|| {
            let mut verification = Verification::on(Spec::of(&settings))?;
            verification.check(&folder)?;
            verification.finish().map(|report| report.to_string())
        });
        checked.map_err(|error| raised(py, &error))
    }

    /// Scikit-learn's digits: pixels from 0 to 1, 64 an image, and labels.
    #[pyfunction]
    fn digits(py: Python<'_>) -> PyResult<(Column<'_, f32>, Column<'_, i32>)> {
        let (images, _) =
            ImageDataset::digits().and_then(|all| all.split(0.0)).map_err(unexpected)?;
        let (mut pixels, mut labels) = (vec![], vec![]);
        for index in 0..images.len() {
            let (label, image) = images.get(index).map_err(unexpected)?;
            pixels.extend(image.iter().map(|&pixel| f32::from(pixel) / 255.0));
            labels.push(i32::from(label));
        }
        Ok((pixels.into_pyarray(py), labels.into_pyarray(py)))
    }

    /// NumPy's columns by their names, as an Arrow stream.
    #[pyfunction]
    fn arrow_stream<'py>(columns: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyAny>> {
        // Type checkers know capsules by name from Python 3.13 on.
        crate::arrow::stream(columns).map(Bound::into_any)
    }

    /// What the machine has, as JSON.
    #[pyfunction]
    fn doctor(py: Python<'_>) -> PyResult<String> {
        let looked = py.detach(|| Ok(Findings::look()?.json().to_string()));
        looked.map_err(|error: tightrope::Error| raised(py, &error))
    }
}
