//! Rows of 16-bit elements that share a word, where a language writes no less than one.

use super::convert;
use crate::dialect::Dialect;
use crate::launch::{Launches, Limits, Place};
use crate::types::DType;

impl Launches {
    /// Lets `make` write to `place` in rows of `columns` elements. Where two rows share a 32-bit word, and the
    /// device's language writes no less than one, it writes to f32 scratch instead (which starts as a copy of `place` where `load`), and that is rounded
    /// into `place` afterwards.
    pub fn by_rows(
        &mut self,
        limits: &Limits,
        place: Place,
        columns: u64,
        load: bool,
        make: impl FnOnce(&mut Self, Place),
    ) {
        let whole_words = (columns * place.dtype.size() as u64).is_multiple_of(4);
        if limits.dialect() == Dialect::Cuda || whole_words {
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
