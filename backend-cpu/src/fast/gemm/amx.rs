//! Tiles of AMX (Intel SDM, volume 1, chapter 18): a register of 16 rows × 64 bytes, and an instruction that
//! multiplies two of them. 2 × 2 registers of sums make a tile of 32 rows × 32 columns, so that each register that
//! is loaded serves two multiplications.
//!
//!   lhs panel  (lanes / 16, rows, 16)     a register holds 16 rows × 16 lanes
//!   rhs panel  (lanes, columns)           a register holds 16 lanes × 16 columns
//!
//! The products of even and of odd depth are summed apart over a register's 16 lanes, then together, then added to the
//! sum. Denormals count as zero, as with `vdpbf16ps`.
//!
//! The instructions are written as assembly because their intrinsics aren't stable.

use std::arch::asm;

use super::ahead::{Ahead, parts};
use super::sizes::{AMX_ROWS as ROWS, SIDE_BY_SIDE as LANES};
use super::tile::Tile;

/// Bytes of a register's row.
const LINE: usize = 4 * LANES;

/// What `ldtilecfg` reads (SDM, volume 1, table 18-1): palette 1, and the shape of each register.
#[repr(C, align(64))]
struct Shapes {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

/// Eight registers, each whole.
static SHAPES: Shapes = {
    let (mut row_bytes, mut rows) = ([0; 16], [0; 16]);
    let mut register = 0;
    while register < 8 {
        (row_bytes[register], rows[register]) = (LINE as u16, ROWS as u8);
        register += 1;
    }
    Shapes { palette: 1, start_row: 0, reserved: [0; 14], row_bytes, rows }
};

/// Gives this thread's registers their shapes.
///
/// # Safety
///
/// [`crate::isa::amx::usable`] was true.
pub(super) unsafe fn enter() {
    // SAFETY: the processor has the instruction, and the system permits it.
    unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const SHAPES, options(nostack, readonly)) };
}

/// Empties them, so that the system needn't keep them when threads change.
///
/// # Safety
///
/// As [`enter`].
pub(super) unsafe fn leave() {
    // SAFETY: as in `enter`.
    unsafe { asm!("tilerelease", options(nostack, nomem)) };
}

/// Arithmetic of [`work`] in each of its rounds, in operations: four registers' 16 × 16 × 32 products, and as many sums.
pub(crate) const WORK: usize = 4 * 2 * ROWS * ROWS * 2 * LANES;

/// Multiplies what is in registers, again and again, to measure how fast that is.
///
/// # Safety
///
/// [`crate::isa::amx::usable`] was true.
pub(crate) unsafe fn work(rounds: usize) {
    // SAFETY: the processor has the instructions, and the system permits them; registers alone change.
    unsafe {
        enter();
        asm!(
            "2:",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tdpbf16ps tmm3, tmm5, tmm7",
            "dec {rounds}",
            "jnz 2b",
            rounds = inout(reg) rounds.max(1) => _,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack, nomem),
        );
        leave();
    }
}

/// Computes `tile`.
///
/// # Safety
///
/// After [`enter`] on this thread; the panels and sums reach what their documentation says.
pub(super) unsafe fn run(tile: &Tile, ahead: &mut Ahead) {
    (0..parts(tile.lanes)).for_each(|_| ahead.ask());
    let (rows, columns) = (tile.rows.div_ceil(ROWS), tile.vectors);
    // SAFETY: the panels hold `lanes` of `rows` registers' rows and of `columns` registers' columns, and the sums
    // those rows × those columns.
    unsafe {
        if (rows, columns) == (2, 2) {
            return four(tile);
        }
        for row in 0..rows {
            for column in 0..columns {
                one(tile, rows, row, column);
            }
        }
    }
}

/// A tile of 2 × 2 registers.
///
/// # Safety
///
/// As [`run`].
unsafe fn four(tile: &Tile) {
    // SAFETY: the caller's promise; `sums` is read where it holds sums.
    unsafe {
        asm!(
            "test {resume:e}, {resume:e}",
            "jz 2f",
            "tileloadd tmm0, [{sums} + {stride}*1]",
            "tileloadd tmm1, [{sums} + {stride}*1 + 64]",
            "tileloadd tmm2, [{sums} + {stride}*1 + 2048]",
            "tileloadd tmm3, [{sums} + {stride}*1 + 2112]",
            "jmp 3f",
            "2:",
            "tilezero tmm0",
            "tilezero tmm1",
            "tilezero tmm2",
            "tilezero tmm3",
            "3:",
            "test {count}, {count}",
            "jz 5f",
            "4:",
            "tileloadd tmm4, [{lhs} + {line}*1]",
            "tileloadd tmm6, [{rhs} + {stride}*1]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tileloadd tmm7, [{rhs} + {stride}*1 + 64]",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tileloadd tmm5, [{lhs} + {line}*1 + 1024]",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tdpbf16ps tmm3, tmm5, tmm7",
            "add {lhs}, 2048",
            "add {rhs}, 2048",
            "dec {count}",
            "jnz 4b",
            "5:",
            "tilestored [{sums} + {stride}*1], tmm0",
            "tilestored [{sums} + {stride}*1 + 64], tmm1",
            "tilestored [{sums} + {stride}*1 + 2048], tmm2",
            "tilestored [{sums} + {stride}*1 + 2112], tmm3",
            resume = in(reg) u32::from(tile.resume),
            count = inout(reg) tile.lanes / LANES => _,
            lhs = inout(reg) tile.lhs.cast::<u32>() => _,
            rhs = inout(reg) tile.rhs => _,
            sums = in(reg) tile.sums,
            line = in(reg) LINE,
            stride = in(reg) 2 * LINE,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack),
        );
    }
}

/// The register (`row`, `column`) of a tile of `rows` × `tile.vectors` registers.
///
/// # Safety
///
/// As [`run`].
unsafe fn one(tile: &Tile, rows: usize, row: usize, column: usize) {
    let stride = tile.vectors * LINE;
    // SAFETY: the register's rows of the lhs panel, columns of the rhs panel, and place among the sums.
    unsafe {
        asm!(
            "test {resume:e}, {resume:e}",
            "jz 2f",
            "tileloadd tmm0, [{sums} + {stride}*1]",
            "jmp 3f",
            "2:",
            "tilezero tmm0",
            "3:",
            "test {count}, {count}",
            "jz 5f",
            "4:",
            "tileloadd tmm1, [{lhs} + {line}*1]",
            "tileloadd tmm2, [{rhs} + {stride}*1]",
            "tdpbf16ps tmm0, tmm1, tmm2",
            "add {lhs}, {lhs_step}",
            "add {rhs}, {rhs_step}",
            "dec {count}",
            "jnz 4b",
            "5:",
            "tilestored [{sums} + {stride}*1], tmm0",
            resume = in(reg) u32::from(tile.resume),
            count = inout(reg) tile.lanes / LANES => _,
            lhs = inout(reg) tile.lhs.cast::<u32>().add(row * ROWS * LANES) => _,
            rhs = inout(reg) tile.rhs.add(column * LANES) => _,
            sums = in(reg) tile.sums.add((row * ROWS * tile.vectors + column) * LANES),
            line = in(reg) LINE,
            stride = in(reg) stride,
            lhs_step = in(reg) rows * ROWS * LINE,
            rhs_step = in(reg) LANES * stride,
            out("tmm0") _, out("tmm1") _, out("tmm2") _,
            options(nostack),
        );
    }
}
