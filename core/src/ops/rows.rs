//! Rows of 16-bit elements that share a word, where a language writes no less than one.

use super::convert;
use crate::dialect::Dialect;
use crate::launch::{Launches, Limits, Place};
use crate::types::DType;

impl Launches {
    /// Lets `make` write to `place` in rows of so many elements, or with `None`, sums that several launches add to. Such sums,
    /// and rows of which two share a 32-bit word where the device's language writes no less than one, go to f32 scratch
    /// instead (which starts as a copy of `place` where `load`), and that is rounded into `place` afterwards.
    pub fn by_rows(
        &mut self,
        limits: &Limits,
        place: Place,
        columns: impl Into<Option<u64>>,
        load: bool,
        make: impl FnOnce(&mut Self, Place),
    ) {
        let by_element = limits.dialect() == Dialect::Cuda;
        let whole_words = |columns: u64| (columns * place.dtype.size() as u64).is_multiple_of(4);
        if columns.into().is_some_and(|columns| by_element || whole_words(columns)) {
            return make(self, place);
        }
        let wide = self.scratch(DType::F32, place.elements);
        if load {
            self.push(convert(limits, place, wide));
        }
        make(self, wide);
        self.push(convert(limits, wide, place));
    }
}
