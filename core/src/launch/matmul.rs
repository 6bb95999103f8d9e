//! `Gemm`: the matmul that a launch makes, for devices with another way to make it.

use super::Place;
use crate::expr::Expr;

/// Extents of a matmul.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matrices {
    /// Matrices in the stack.
    pub batch: usize,
    /// Rows of the output.
    pub m: usize,
    /// Columns of the output.
    pub n: usize,
    /// Summed extent.
    pub k: usize,
}

/// A matrix, or a stack of them, in a tensor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stored {
    /// The tensor.
    pub place: Place,
    /// First element of the first matrix.
    pub first: u64,
    /// Elements from one stored row to the next.
    pub row: u64,
    /// Elements from one matrix to the next.
    pub stride: u64,
    /// Stored rows are columns of the matrix.
    pub transposed: bool,
}

/// `out = lhs · rhs (+ bias) (+ out)`, or what an epilogue makes of that.
#[derive(Clone, Debug, PartialEq)]
pub struct Gemm {
    /// (M, K).
    pub lhs: Stored,
    /// (K, N).
    pub rhs: Stored,
    /// (M, N). Where two elements share a word, rows have an even number of them.
    pub out: Stored,
    /// (N).
    pub bias: Option<Place>,
    /// Extents.
    pub extents: Matrices,
    /// The matmul is added to what `out` holds.
    pub accumulate: bool,
    /// Every sum goes on from what `out` holds, up in K, in the same way for any number of rows: matmuls over
    /// some of the rows, or over parts of K that are multiples of four, give the bits of one matmul. Otherwise
    /// few rows or few tiles are summed in slices of K.
    pub in_order: bool,
    /// What becomes of complete sums before they're stored.
    pub epilogue: Option<Epilogue>,
    /// (M). Sums over K of each row of `lhs`, which is one matrix that is stored transposed.
    pub lhs_sums: Option<Place>,
}

/// What a launch makes of complete sums.
#[derive(Clone, Debug, PartialEq)]
pub struct Epilogue {
    /// As in [`crate::ops::FusedMatMul::formula`].
    pub formula: Expr,
    /// The second operand of the formula, if it has one, which lies in memory as `out` does.
    pub operand: Option<Stored>,
    /// Where the matmul itself goes, if it is stored too, which lies in memory as `out` does.
    pub matmul: Option<Stored>,
}
