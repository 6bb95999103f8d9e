//! Columns for libraries of tables, by the [Arrow PyCapsule interface](https://arrow.apache.org/docs/format/CDataInterface/PyCapsuleInterface.html).

use std::sync::Arc;

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{
    ArrayRef, Float64Array, RecordBatch, RecordBatchIterator, StringArray, UInt64Array,
};
use numpy::PyReadonlyArray1;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};

use crate::failure::unexpected;

/// NumPy's columns of u64, f64 or text, by their names, as a stream of one record batch.
///
/// # Errors
/// Columns of different lengths, and of other dtypes.
pub fn stream<'py>(columns: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyCapsule>> {
    let mut named: Vec<(String, ArrayRef)> = vec![];
    for (name, values) in columns {
        named.push((name.extract()?, column(&values)?));
    }
    let batch = RecordBatch::try_from_iter(named).map_err(unexpected)?;
    let schema = batch.schema();
    let batches = RecordBatchIterator::new([Ok(batch)], schema);
    let stream = FFI_ArrowArrayStream::new(Box::new(batches));
    PyCapsule::new_with_value(columns.py(), stream, c"arrow_array_stream")
}

fn column(values: &Bound<'_, PyAny>) -> PyResult<ArrayRef> {
    if let Ok(numbers) = values.extract::<PyReadonlyArray1<'_, u64>>() {
        return Ok(Arc::new(UInt64Array::from_iter_values(numbers.as_array().iter().copied())));
    }
    if let Ok(numbers) = values.extract::<PyReadonlyArray1<'_, f64>>() {
        return Ok(Arc::new(Float64Array::from_iter_values(numbers.as_array().iter().copied())));
    }
    let words: Vec<String> = values.call_method0("tolist")?.extract()?;
    Ok(Arc::new(StringArray::from(words)))
}
