//! Matmuls: `out = scale·(lhs · rhs) + bias (+ out)` on strided views of f32, bf16 and f16.
//!
//! Three layers, after Goto and van de Geijn, *Anatomy of High-Performance Matrix Multiplication* (2008):
//!
//! | module | does |
//! |---|---|
//! | `kernel` | sizes of every kernel's tiles, as data that any machine can be asked about |
//! | `layout` | cuts the output into blocks, one task each, and the depth `k` into slices that fit the caches |
//! | `blocks` | computes the blocks |
//! | `pack` | copies a block of an operand into panels in the order the kernel reads, converting on the way; 16 vectors at a time with AVX-512 |
//! | `ahead` | asks for memory while a tile is computed: of what is packed next, and of where its sums go |
//! | `kernels` | one register tile: 8 × 48 (AVX-512), 8 × 24 (AVX2 + FMA) |
//! | `amx` | the same of AMX: 32 × 32, for bf16 |
//! | `finish` | scale, bias, accumulation and rounding, from a tile to the output |
//! | `portable` | the same blocks through the `gemm` crate, on every other CPU |
//!
//! **Numbers.** Sums are kept in f32 and each output is rounded once. Every output element is summed over
//! `k` in an order that depends on `k`, the element types and the CPU alone, so results repeat bit for
//! bit whatever the number of threads. f16 operands, and bf16 ones that meet another type, are widened
//! to f32 while packing, which is exact.
//!
//! Accumulating to an f32 output without bias or scale goes on from what is there: a matmul cut along
//! `k` into parts (of even depth in bf16, of a multiple of 32 with AMX) has the bits of the whole. The portable
//! path rounds each part.
//!
//! bf16 × bf16 uses `tdpbf16ps` where the CPU has AMX, else `vdpbf16ps` where it has AVX512-BF16. Both differ from
//! f32 arithmetic on the same numbers in two ways. Products are added in another order, each by a fused
//! multiply-add rounded to nearest even: `vdpbf16ps` adds two per instruction, the odd `k` first; `tdpbf16ps` sums
//! 16 of even and 16 of odd `k` apart, then adds both to the sum. And denormals, in operands and sums, count as zero
//! whatever MXCSR says, so that products below 2⁻¹²⁶ vanish (Intel SDM, volume 2, VDPBF16PS and TDPBF16PS).
//!
//! **Memory.** The caller provides all of it: [`scratch_bytes`] says how much. Only the portable path
//! allocates besides, inside the `gemm` crate, per thread: packing buffers of at most 2.2 MiB, freed with
//! each block, and one buffer of the size of the L2 cache it detects, kept.

#[cfg(target_arch = "x86_64")]
mod ahead;
#[cfg(target_arch = "x86_64")]
pub(crate) mod amx;
#[cfg(target_arch = "x86_64")]
mod blocks;
mod finish;
#[cfg(any(target_arch = "x86_64", test))]
mod kernel;
#[cfg(target_arch = "x86_64")]
mod kernels;
#[cfg(any(target_arch = "x86_64", test))]
mod layout;
#[cfg(target_arch = "x86_64")]
mod pack;
mod portable;
mod schedule;
#[cfg(any(target_arch = "x86_64", test))]
mod sizes;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod tile;

use thiserror::Error;

use crate::isa::{Isa, Level};

/// Storage type of a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Element {
    /// IEEE 754 binary32.
    F32,
    /// bfloat16: the upper half of a binary32.
    Bf16,
    /// IEEE 754 binary16.
    F16,
}

impl Element {
    /// Bytes per element.
    pub const fn size(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 | Self::F16 => 2,
        }
    }
}

/// A matrix to read: element (i, j) lies `i * row_stride + j * col_stride` elements after `ptr`.
#[derive(Clone, Copy, Debug)]
pub struct Mat {
    /// Element (0, 0); needs no more alignment than a byte.
    pub ptr: *const u8,
    /// Storage type.
    pub element: Element,
    /// Elements from one row to the next.
    pub row_stride: isize,
    /// Elements from one column to the next.
    pub col_stride: isize,
}

impl Mat {
    /// A row-major matrix whose rows are `columns` elements apart.
    pub fn rows(ptr: *const u8, element: Element, columns: usize) -> Self {
        Self { ptr, element, row_stride: columns as isize, col_stride: 1 }
    }

    /// The same numbers with rows and columns exchanged.
    pub fn transposed(self) -> Self {
        Self { row_stride: self.col_stride, col_stride: self.row_stride, ..self }
    }
}

/// A matrix to write, laid out as [`Mat`]. No two elements may share an address.
#[derive(Clone, Copy, Debug)]
pub struct MatMut {
    /// Element (0, 0); needs no more alignment than a byte.
    pub ptr: *mut u8,
    /// Storage type.
    pub element: Element,
    /// Elements from one row to the next.
    pub row_stride: isize,
    /// Elements from one column to the next.
    pub col_stride: isize,
}

impl MatMut {
    /// A row-major matrix whose rows are `columns` elements apart.
    pub fn rows(ptr: *mut u8, element: Element, columns: usize) -> Self {
        Self { ptr, element, row_stride: columns as isize, col_stride: 1 }
    }
}

/// A contiguous row vector of `n` elements, added to every row of the output.
#[derive(Clone, Copy, Debug)]
pub struct Bias {
    /// Element 0; needs no more alignment than a byte.
    pub ptr: *const u8,
    /// Storage type.
    pub element: Element,
}

/// `out (m×n) = scale · lhs (m×k) · rhs (k×n) + bias (n) + (accumulate ? out : 0)`.
#[derive(Clone, Copy, Debug)]
pub struct Gemm {
    /// Rows of `lhs` and `out`.
    pub m: usize,
    /// Columns of `rhs` and `out`.
    pub n: usize,
    /// Columns of `lhs`, rows of `rhs`; 0 gives a matmul of zeros.
    pub k: usize,
    /// m×k.
    pub lhs: Mat,
    /// k×n.
    pub rhs: Mat,
    /// m×n; must not overlap the operands.
    pub out: MatMut,
    /// Add to what `out` holds; otherwise `out` is never read.
    pub accumulate: bool,
    /// Added to every row, after scaling.
    pub bias: Option<Bias>,
    /// Factor of the matmul.
    pub scale: f32,
}

/// Why a matmul was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum GemmError {
    /// The scratch slice is smaller than [`scratch_bytes`] asks for.
    #[error(
        "matmul {m}×{k} · {k}×{n} on {threads} threads needs {needed} bytes of scratch but got {given}; \
         pass a slice of gemm::scratch_bytes(..) bytes"
    )]
    Scratch {
        /// Rows of the output.
        m: usize,
        /// Columns of the output.
        n: usize,
        /// Depth.
        k: usize,
        /// Threads asked for.
        threads: usize,
        /// Bytes needed.
        needed: usize,
        /// Bytes given.
        given: usize,
    },
}

/// The code that computes a matmul.
#[derive(Clone, Copy, Debug)]
enum Path {
    /// Own packed kernels.
    #[cfg(any(target_arch = "x86_64", test))]
    Packed(&'static kernel::Kernel),
    /// The `gemm` crate.
    Portable,
}

impl Path {
    /// The fastest path for operands of these types.
    fn of(level: Level, lhs: Element, rhs: Element) -> Self {
        #[cfg(any(target_arch = "x86_64", test))]
        if let Some(kernel) = kernel::Kernel::of(level, lhs, rhs) {
            return Self::Packed(kernel);
        }
        #[cfg(not(any(target_arch = "x86_64", test)))]
        let _ = (level, lhs, rhs);
        Self::Portable
    }

    fn name(self) -> &'static str {
        match self {
            #[cfg(any(target_arch = "x86_64", test))]
            Self::Packed(kernel) => kernel.name,
            Self::Portable => "gemm crate",
        }
    }

    fn scratch_bytes(self, m: usize, n: usize, k: usize, threads: usize) -> usize {
        if m == 0 || n == 0 {
            return 0;
        }
        match self {
            #[cfg(any(target_arch = "x86_64", test))]
            Self::Packed(kernel) => layout::Layout::new(kernel, m, n, k, threads).scratch_bytes(),
            Self::Portable => portable::Layout::new(m, n, k, threads).scratch_bytes(),
        }
    }

    /// # Safety
    ///
    /// As [`gemm()`], and the processor has the path's instructions.
    unsafe fn run(
        self,
        matmul: &Gemm,
        threads: usize,
        scratch: &mut [u8],
    ) -> Result<(), GemmError> {
        let &Gemm { m, n, k, .. } = matmul;
        let needed = self.scratch_bytes(m, n, k, threads);
        if scratch.len() < needed {
            return Err(GemmError::Scratch { m, n, k, threads, needed, given: scratch.len() });
        }
        if m == 0 || n == 0 {
            return Ok(());
        }
        match self {
            // SAFETY: the caller's promise; the scratch is large enough.
            #[cfg(target_arch = "x86_64")]
            Self::Packed(kernel) => unsafe { blocks::run(kernel, matmul, threads, scratch) },
            #[cfg(all(test, not(target_arch = "x86_64")))]
            Self::Packed(kernel) => unreachable!("{} on another architecture", kernel.name),
            // SAFETY: as above.
            Self::Portable => unsafe { portable::run(matmul, threads, scratch) },
        }
        Ok(())
    }
}

/// Computes `matmul` by the instruction set `isa` on up to `threads` threads of the current rayon pool (0 counts as 1); one thread
/// stays on the caller's, so it may be called from inside a rayon task. Small matmuls take fewer threads.
///
/// # Errors
///
/// [`GemmError::Scratch`] when `scratch` is shorter than [`scratch_bytes`]; nothing is written then.
///
/// # Safety
///
/// For the whole call every element of `lhs`, `rhs` and `bias` must be readable and initialised, every
/// element of `out` writable (and initialised where `accumulate` is set), distinct elements of `out` must
/// not overlap, and neither `out` nor `scratch` may overlap anything else named.
pub unsafe fn gemm(
    isa: Isa,
    matmul: &Gemm,
    threads: usize,
    scratch: &mut [u8],
) -> Result<(), GemmError> {
    let path = Path::of(isa.level(), matmul.lhs.element, matmul.rhs.element);
    // SAFETY: passed on to the caller; an `Isa` is proof of its instructions.
    unsafe { path.run(matmul, threads, scratch) }
}

/// Sizes of a matmul, m×k · k×n.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Rows of `lhs` and the output.
    pub m: usize,
    /// Columns of `rhs` and the output.
    pub n: usize,
    /// Columns of `lhs`, rows of `rhs`.
    pub k: usize,
}

/// Bytes of scratch that [`gemm()`] needs for one matmul of these sizes and types. Any alignment will do. Grows with
/// `threads`, up to a few MiB each. Not monotonic: fewer rows, or less depth, may need more. An op that works in pieces
/// asks for the largest need of those that come.
pub fn scratch_bytes(
    level: Level,
    Sizes { m, n, k }: Sizes,
    lhs: Element,
    rhs: Element,
    threads: usize,
) -> usize {
    Path::of(level, lhs, rhs).scratch_bytes(m, n, k, threads)
}

/// Name of the kernel that [`gemm()`] uses for operands of these types.
pub fn kernel_name(level: Level, lhs: Element, rhs: Element) -> &'static str {
    Path::of(level, lhs, rhs).name()
}
