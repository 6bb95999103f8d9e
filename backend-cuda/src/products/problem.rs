//! A matrix product as cuBLASLt takes it.
//!
//! The library stores matrices by columns, the engine by rows. Rows of one are columns of the other, so what is stored as
//! `out` (M, N) by rows is its transpose (N, M) by columns, and the library is asked for outᵀ = rhsᵀ · lhsᵀ: its A is
//! what the engine calls rhs, its B is lhs, and neither is moved. The bias, one for each column of `out`, is then one for
//! each row, which is what the library adds.

use std::fmt;

use tightrope_core::DType;
use tightrope_core::launch::Place;
use tightrope_core::ops::{Product, Stored};

/// A matrix by columns, or a stack of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    /// Storage of the elements.
    pub dtype: DType,
    /// Elements of a column.
    pub rows: u64,
    /// Columns.
    pub columns: u64,
    /// Elements from one column to the next.
    pub leading: u64,
    /// Elements from one matrix to the next.
    pub stride: u64,
    /// Bytes that the address of the first element is a multiple of.
    pub alignment: u64,
}

/// D = op(A) · op(B) (+ bias) (+ D), all by columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Problem {
    /// Its transpose is multiplied where `transpose_a`.
    pub a: Layout,
    /// Its transpose is multiplied where `transpose_b`.
    pub b: Layout,
    /// The result.
    pub d: Layout,
    /// A is stored transposed.
    pub transpose_a: bool,
    /// B is stored transposed.
    pub transpose_b: bool,
    /// Matrices of each stack.
    pub batch: u64,
    /// Summed extent.
    pub k: u64,
    /// A bias of D's dtype is added to every column, from an address that is a multiple of as many bytes.
    pub bias: Option<u64>,
    /// The product is added to what D holds.
    pub accumulate: bool,
    /// Operands of f32 are rounded to TF32.
    pub tf32: bool,
}

/// Where the matrices of a product begin in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// First element of A.
    pub a: u64,
    /// First element of B.
    pub b: u64,
    /// First element of D.
    pub d: u64,
    /// First element of the bias; 0 where there's none.
    pub bias: u64,
}

/// Most rows of a product that stays with the engine: reading the weights takes longest there, which its kernel for few
/// rows does once.
const FEW_ROWS: usize = 4;

/// Alignment that the library's algorithms need at most.
const MOST_ALIGNED: u64 = 256;

/// What the library takes as a leading dimension, a stride or an extent.
const MOST_ELEMENTS: u64 = i32::MAX as u64;

/// Bytes that an address is a multiple of, as far as it matters.
fn aligned(address: u64) -> u64 {
    1 << address.trailing_zeros().min(MOST_ALIGNED.ilog2())
}

impl Problem {
    /// The library's problem for a product, and its matrices' addresses where `address` gives that of a place. `None` for
    /// what the library doesn't take, and for what it can't be faster at.
    pub fn of(
        product: &Product,
        tf32: bool,
        address: impl Fn(&Place) -> u64,
    ) -> Option<(Self, Addresses)> {
        let Product { lhs, rhs, out, bias, extents, accumulate, .. } = product;
        let (dtype, stored) = (lhs.place.dtype, out.place.dtype);
        let multiplies = matches!(dtype, DType::F32 | DType::BF16 | DType::F16);
        let alike = rhs.place.dtype == dtype && (stored == dtype || stored == DType::F32);
        let biased = bias.is_none_or(|place| place.dtype == stored);
        if !(multiplies && alike && biased) || extents.m <= FEW_ROWS || extents.n * extents.k == 0 {
            return None;
        }
        let (m, n, k) = (extents.m as u64, extents.n as u64, extents.k as u64);
        let begins = |stored: &Stored| {
            address(&stored.place) + stored.first * stored.place.dtype.size() as u64
        };
        // `columns` is what the engine calls the rows that are stored.
        let layout = |stored: &Stored, rows: u64, columns: u64| Layout {
            dtype: stored.place.dtype,
            rows,
            columns,
            leading: stored.row,
            stride: stored.stride,
            alignment: aligned(begins(stored)),
        };
        let problem = Self {
            a: if rhs.transposed { layout(rhs, k, n) } else { layout(rhs, n, k) },
            b: if lhs.transposed { layout(lhs, m, k) } else { layout(lhs, k, m) },
            d: layout(out, n, m),
            transpose_a: rhs.transposed,
            transpose_b: lhs.transposed,
            batch: extents.batch as u64,
            k,
            bias: bias.map(|place| aligned(address(&place))),
            accumulate: *accumulate,
            tf32: tf32 && dtype == DType::F32,
        };
        let small = [problem.a, problem.b, problem.d]
            .iter()
            .all(|layout| layout.leading.max(layout.rows).max(layout.columns) <= MOST_ELEMENTS);
        let bias = bias.map_or(0, |place| address(&place));
        let addresses = Addresses { a: begins(rhs), b: begins(lhs), d: begins(out), bias };
        small.then_some((problem, addresses))
    }
}

impl Layout {
    /// Elements from the first to after the last of a stack of `batch`.
    pub fn elements(&self, batch: u64) -> u64 {
        (batch - 1) * self.stride + (self.columns - 1) * self.leading + self.rows
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { dtype, rows, columns, leading, stride, alignment } = self;
        write!(f, "{}:{rows}x{columns}:{leading}:{stride}:{alignment}", dtype.name())
    }
}

/// All of it on one line, without tabs: what choices are kept under.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stored = |transposed| if transposed { "T" } else { "N" };
        let Self { a, b, d, batch, k, .. } = self;
        write!(f, "{}{} {a} {b} {d}", stored(self.transpose_a), stored(self.transpose_b))?;
        write!(f, " k{k} batch{batch}")?;
        let parts = [
            (self.bias.is_some(), " bias"),
            (self.accumulate, " accumulate"),
            (self.tf32, " tf32"),
        ];
        parts.iter().filter(|(there, _)| *there).try_for_each(|(_, word)| f.write_str(word))
    }
}
