//! Where a tensor lies in a file of weights.

/// A tensor of a file, whatever its format.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub name: String,
    /// As safetensors spells it.
    pub dtype: &'static str,
    /// Extents, outermost first.
    pub shape: Vec<usize>,
    /// Range of its bytes in the file's data.
    pub start: usize,
    pub end: usize,
}
