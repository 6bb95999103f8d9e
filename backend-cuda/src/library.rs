//! A library that multiplies matrices where the engine's kernels don't, and a matmul as cuBLASLt takes it.
//!
//! The library stores matrices by columns, the engine by rows. Rows of one are columns of the other, so what is stored as
//! `out` (M, N) by rows is its transpose (N, M) by columns, and the library is asked for outᵀ = rhsᵀ · lhsᵀ: its A is
//! what the engine calls rhs, its B is lhs, and neither is moved. The bias, one for each column of `out`, is then one for
//! each row, which is what the library adds; and a sum over K for each row of lhs is one for each column of D, which the
//! library calls the bias gradient of B.

use std::fmt;
use std::path::PathBuf;

use tightrope_core::activation::gelu_tanh;
use tightrope_core::expr::input;
use tightrope_core::launch::Place;
use tightrope_core::ops::{Epilogue, Gemm, Stored};
use tightrope_core::{DType, Expr};

/// What a device has besides kernels to make matmuls with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Library {
    /// Its name and version.
    pub version: String,
    /// Bytes of workspace that its matmuls may use.
    pub workspace: u64,
    /// Where what was timed is kept.
    pub choices: PathBuf,
}

/// A way of the library to make a matmul.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Algorithm {
    /// As the library describes it to itself; the same for one version of it.
    pub words: [u64; Self::WORDS],
    /// Bytes of workspace that it takes.
    pub workspace: u64,
}

impl Algorithm {
    /// Where the library makes nothing.
    pub const NONE: Self = Self { words: [0; Self::WORDS], workspace: 0 };
    /// Words of a description.
    pub const WORDS: usize = 8;
}

/// A matmul for the library to make.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Multiply {
    /// What is multiplied.
    pub problem: Problem,
    /// How.
    pub algorithm: Algorithm,
    /// Where the matrices are.
    pub at: Addresses,
    /// Where the workspace begins.
    pub workspace: u64,
}

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

/// What the library does with sums before it stores them, of what an [`Epilogue`] may ask for. The layouts are like D's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Finish {
    /// The operand is added.
    Add(Layout),
    /// GELU in its tanh form. Its argument is stored too, where there's a matrix for it.
    Gelu(Option<Layout>),
    /// Multiplied by the slope of that GELU at the elements of a matrix.
    GeluSlope(Layout),
}

impl Finish {
    /// The operand of the epilogue, a matrix like D.
    pub fn operand(&self) -> Option<Layout> {
        match *self {
            Self::Add(layout) | Self::GeluSlope(layout) => Some(layout),
            Self::Gelu(layout) => layout,
        }
    }

    /// The library's way for an epilogue whose matrices are all like `d`; `None` where it has none.
    fn of(epilogue: &Epilogue, d: Layout, operand: Option<u64>) -> Option<Self> {
        let Epilogue { formula, matmul, .. } = epilogue;
        let layout = operand.map(|address| Layout { alignment: aligned(address), ..d });
        let is = |other: Expr| *formula == other;
        let slope = || gelu_tanh(input(0)).derivative(0).substitute(&|_| input(1));
        let finish = if matmul.is_some() || layout.is_none() {
            is(gelu_tanh(input(0))).then_some(Self::Gelu(layout))
        } else if is(input(0) + input(1)) || is(input(1) + input(0)) {
            layout.map(Self::Add)
        } else if is(slope() * input(0)) || is(input(0) * slope()) {
            layout.map(Self::GeluSlope)
        } else {
            None
        };
        // GELU's argument comes in columns of whole vectors (cuBLAS, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD).
        let whole = d.leading.is_multiple_of(AUXILIARY_ELEMENTS);
        finish.filter(|finish| matches!(finish, Self::Add(_) | Self::Gelu(None)) || whole)
    }
}

/// D = op(A) · op(B) (+ bias) (+ D), finished, all by columns.
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
    /// The matmul is added to what D holds.
    pub accumulate: bool,
    /// What becomes of the sums before they're stored.
    pub finish: Option<Finish>,
    /// Sums over K of each column of op(B) are stored in D's dtype, from an address that is a multiple of as many bytes.
    pub sums: Option<u64>,
    /// Operands of f32 are rounded to TF32.
    pub tf32: bool,
}

/// Where the matrices of a matmul begin in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// First element of A.
    pub a: u64,
    /// First element of B.
    pub b: u64,
    /// First element of D.
    pub d: u64,
    /// First element of the bias, or of the sums of B; 0 where there's neither.
    pub bias: u64,
    /// First element of the epilogue's operand; 0 where there's none.
    pub operand: u64,
}

/// Most rows of a matmul that stays with the engine: reading the weights takes longest there, which its kernel for few
/// rows does once.
const FEW_ROWS: usize = 4;

/// Alignment that the library's algorithms need at most.
const MOST_ALIGNED: u64 = 256;

/// Elements that the columns of GELU's argument come in multiples of.
const AUXILIARY_ELEMENTS: u64 = 8;

/// What the library takes as a leading dimension, a stride or an extent.
const MOST_ELEMENTS: u64 = i32::MAX as u64;

/// Bytes that an address is a multiple of, as far as it matters.
fn aligned(address: u64) -> u64 {
    1 << address.trailing_zeros().min(MOST_ALIGNED.ilog2())
}

impl Problem {
    /// The library's problem for a matmul, and its matrices' addresses where `address` gives that of a place. `None` for
    /// what the library doesn't take, and for what it can't be faster at.
    pub fn of(
        matmul: &Gemm,
        tf32: bool,
        address: impl Fn(&Place) -> u64,
    ) -> Option<(Self, Addresses)> {
        let Gemm { lhs, rhs, out, bias, extents, accumulate, epilogue, lhs_sums, .. } = matmul;
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
        let d = layout(out, n, m);
        let operand = epilogue.as_ref().and_then(|epilogue| epilogue.operand.or(epilogue.matmul));
        let operand = operand.map(|operand| begins(&operand));
        let finish = match epilogue {
            Some(epilogue) => Some(Finish::of(epilogue, d, operand)?),
            None => None,
        };
        // The library stores sums of B where it would read a bias; slopes of GELU have no bias, and no sums either.
        let sums = lhs_sums.as_ref().map(|place| aligned(address(place)));
        let summed = lhs_sums.is_none_or(|place| place.dtype == stored);
        let alone = sums.is_none() || bias.is_none() && finish.is_none();
        let sloped = matches!(finish, Some(Finish::GeluSlope(_))) && bias.is_some();
        if !summed || !alone || sloped {
            return None;
        }
        let problem = Self {
            a: if rhs.transposed { layout(rhs, k, n) } else { layout(rhs, n, k) },
            b: if lhs.transposed { layout(lhs, m, k) } else { layout(lhs, k, m) },
            d,
            transpose_a: rhs.transposed,
            transpose_b: lhs.transposed,
            batch: extents.batch as u64,
            k,
            bias: bias.map(|place| aligned(address(&place))),
            accumulate: *accumulate,
            finish,
            sums,
            tf32: tf32 && dtype == DType::F32,
        };
        let small = [problem.a, problem.b, problem.d]
            .iter()
            .all(|layout| layout.leading.max(layout.rows).max(layout.columns) <= MOST_ELEMENTS);
        let bias = bias.or(*lhs_sums).map_or(0, |place| address(&place));
        let operand = operand.unwrap_or(0);
        let addresses = Addresses { a: begins(rhs), b: begins(lhs), d: begins(out), bias, operand };
        small.then_some((problem, addresses))
    }
}

impl Problem {
    /// What is added to the matmul where anything is.
    pub fn c(&self) -> Layout {
        match self.finish {
            Some(Finish::Add(operand)) => operand,
            _ => self.d,
        }
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
        let finish = match self.finish {
            None => "",
            Some(Finish::Add(_)) => " add",
            Some(Finish::Gelu(None)) => " gelu",
            Some(Finish::Gelu(Some(_))) => " gelu and its argument",
            Some(Finish::GeluSlope(_)) => " gelu's slope",
        };
        let parts = [
            (self.bias.is_some(), " bias"),
            (self.accumulate, " accumulate"),
            (self.finish.is_some(), finish),
            (self.sums.is_some(), " sums"),
            (self.tf32, " tf32"),
        ];
        parts.iter().filter(|(there, _)| *there).try_for_each(|(_, word)| f.write_str(word))
    }
}
