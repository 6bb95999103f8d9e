//! A plan as the widget takes it: its figures, and ops and tensors as columns, whose numbers are bytes that a browser reads as
//! they are.

use std::collections::HashMap;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use serde_json::{Value, json};
use tightrope::view::layers::Layer;
use tightrope::view::names::phase_name;
use tightrope::view::step::{ShownOp, ShownPlan, ShownTensor};

use crate::failure::object;

/// `figures`, `ops` and `tensors` of a plan. Programs of the step follow each other as in a plan's other columns.
///
/// # Errors
/// Those of the interpreter.
pub fn columns<'py>(
    py: Python<'py>,
    summary: &Value,
    shown: &ShownPlan,
    layers: &[Layer],
) -> PyResult<Bound<'py, PyDict>> {
    let columns = PyDict::new(py);
    columns.set_item("figures", figures(py, summary, shown, layers)?)?;
    columns.set_item("ops", ops(py, shown)?)?;
    columns.set_item("tensors", tensors(py, shown)?)?;
    Ok(columns)
}

fn figures<'py>(
    py: Python<'py>,
    summary: &Value,
    shown: &ShownPlan,
    layers: &[Layer],
) -> PyResult<Bound<'py, PyAny>> {
    let milliseconds = summary["plan_s"].as_f64().unwrap_or(0.0) * 1e3;
    let figures = json!({
        "peak_bytes": shown.peak_bytes,
        "lower_bound_bytes": shown.lower_bound_bytes,
        "budget_bytes": shown.budget_bytes,
        "persistent_bytes": shown.persistent_bytes,
        "by_class": shown.by_class,
        "why": shown.why,
        "step_s": shown.step_s,
        "plan_ms": milliseconds,
        "parameters": summary["parameters"],
        "choices": summary["choices"],
        "layers": layers,
    });
    object(py, &figures)
}

fn ops<'py>(py: Python<'py>, shown: &ShownPlan) -> PyResult<Bound<'py, PyDict>> {
    let ops: Vec<&ShownOp> = shown.programs.iter().flat_map(|program| &program.ops).collect();
    let columns = PyDict::new(py);
    columns.set_item("op", words(py, ops.iter().map(|op| op.op))?)?;
    columns.set_item("name", PyList::new(py, ops.iter().map(|op| &op.name))?)?;
    columns.set_item("phase", words(py, ops.iter().map(|op| phase_name(op.phase)))?)?;
    columns.set_item("seconds", floats(py, ops.iter().map(|op| op.seconds)))?;
    columns.set_item("live", floats(py, ops.iter().map(|op| op.live as f64)))?;
    Ok(columns)
}

/// A tensor with its place among all ops of the step.
struct Placed<'a> {
    tensor: &'a ShownTensor,
    birth: usize,
    death: usize,
    read_by: Vec<usize>,
}

/// Each tensor once. What is kept between steps is in every program, and lives all the time.
fn placed(shown: &ShownPlan) -> Vec<Placed<'_>> {
    let last =
        shown.programs.iter().map(|program| program.ops.len()).sum::<usize>().saturating_sub(1);
    let (mut placed, mut begin): (Vec<Placed<'_>>, usize) = (vec![], 0);
    for (index, program) in shown.programs.iter().enumerate() {
        for (row, tensor) in program.tensors.iter().enumerate() {
            let read_by = tensor.read_by.iter().map(|op| begin + op);
            if tensor.kept && index > 0 {
                // What is kept comes first in each program, in the same order.
                placed[row].read_by.extend(read_by);
                continue;
            }
            let (birth, death) =
                if tensor.kept { (0, last) } else { (begin + tensor.birth, begin + tensor.death) };
            placed.push(Placed { tensor, birth, death, read_by: read_by.collect() });
        }
        begin += program.ops.len();
    }
    placed
}

fn tensors<'py>(py: Python<'py>, shown: &ShownPlan) -> PyResult<Bound<'py, PyDict>> {
    let placed = placed(shown);
    let all = || placed.iter().map(|it| it.tensor);
    let columns = PyDict::new(py);
    columns.set_item("name", PyList::new(py, all().map(|it| &it.name))?)?;
    columns.set_item("type", words(py, all().map(|it| it.ty.as_str()))?)?;
    columns.set_item("class", words(py, all().map(|it| it.class.name()))?)?;
    columns.set_item("offset", floats(py, all().map(|it| it.offset as f64)))?;
    columns.set_item("bytes", floats(py, all().map(|it| it.bytes as f64)))?;
    columns.set_item("birth", integers(py, placed.iter().map(|it| it.birth)))?;
    columns.set_item("death", integers(py, placed.iter().map(|it| it.death)))?;
    columns.set_item("kept", integers(py, all().map(|it| usize::from(it.kept))))?;
    columns.set_item("again_s", floats(py, all().map(|it| it.again_s.unwrap_or(f64::NAN))))?;
    columns.set_item("readers", integers(py, placed.iter().map(|it| it.read_by.len())))?;
    let readers = placed.iter().flat_map(|it| it.read_by.iter().copied());
    columns.set_item("read_by", integers(py, readers))?;
    Ok(columns)
}

/// Words of which most come again: each once, and the place of each row's.
fn words<'py, 'a>(
    py: Python<'py>,
    column: impl Iterator<Item = &'a str>,
) -> PyResult<Bound<'py, PyDict>> {
    let (mut words, mut places): (Vec<&str>, HashMap<&str, usize>) = (vec![], HashMap::new());
    let mut place = |word: &'a str| {
        *places.entry(word).or_insert_with(|| {
            words.push(word);
            words.len() - 1
        })
    };
    let at: Vec<usize> = column.map(&mut place).collect();
    let coded = PyDict::new(py);
    coded.set_item("words", PyList::new(py, words)?)?;
    coded.set_item("at", integers(py, at.into_iter()))?;
    Ok(coded)
}

/// Numbers as JavaScript has them, which holds bytes up to 2^53.
fn floats(py: Python<'_>, column: impl Iterator<Item = f64>) -> Bound<'_, PyBytes> {
    PyBytes::new(py, &column.flat_map(f64::to_le_bytes).collect::<Vec<u8>>())
}

/// Numbers of ops and of rows, of which there are few.
fn integers(py: Python<'_>, column: impl Iterator<Item = usize>) -> Bound<'_, PyBytes> {
    PyBytes::new(py, &column.flat_map(|it| (it as u32).to_le_bytes()).collect::<Vec<u8>>())
}
