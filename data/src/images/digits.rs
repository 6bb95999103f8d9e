//! scikit-learn's digits, compiled in.

use super::{Parts, idx};
use crate::Result;

// Made by `data/assets/digits.py`.
const IMAGES: &[u8] = include_bytes!("../../assets/digits/digits-images-idx3-ubyte.gz");
const LABELS: &[u8] = include_bytes!("../../assets/digits/digits-labels-idx1-ubyte.gz");
pub(super) const NAME: &str = "digits";

pub(super) fn parts() -> Result<Parts> {
    let bytes = |packed: &'static [u8]| std::borrow::Cow::Borrowed(packed).into();
    idx::from_bytes(NAME, bytes(IMAGES), bytes(LABELS))
}
