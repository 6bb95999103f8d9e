//! Figures of an evaluation by row, so that no number depends on which rows share a pass.

use tightrope_core::Tensor;

/// A mean over rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowMean {
    /// The mean, f32 (1).
    pub(crate) mean: Tensor,
    /// The value of each row, f32.
    pub(crate) each: Tensor,
    /// 1 for each row that counts, else 0, f32.
    pub(crate) counted: Tensor,
}

/// A figure, as tensors that an evaluation reads.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Figure {
    /// A mean over rows, of which each is read.
    Rows(RowMean),
    /// A number of the whole batch, f32 (1).
    Whole(Tensor),
}

impl Figure {
    /// The figure `tensor`: a mean over rows if it's one of `means`.
    pub(crate) fn of(tensor: Tensor, means: &[RowMean]) -> Self {
        let found = means.iter().find(|mean| mean.mean == tensor);
        found.map_or(Self::Whole(tensor), |&mean| Self::Rows(mean))
    }

    /// Returns `true` if it's a mean over rows.
    pub(crate) fn is_by_row(&self) -> bool {
        matches!(self, Self::Rows(_))
    }

    /// The tensors that the host reads.
    pub(crate) fn tensors(&self) -> impl Iterator<Item = Tensor> + use<> {
        let tensors = match *self {
            Self::Rows(RowMean { each, counted, .. }) => [Some(each), Some(counted)],
            Self::Whole(tensor) => [Some(tensor), None],
        };
        tensors.into_iter().flatten()
    }
}
