//! Bounds on the share of a GPU's peak that hot kernels can reach, from their machine code. They are no measurements: latency,
//! waits at barriers, and tiles at the edges come on top.

use std::fmt::{Display, Write};

use crate::sass::{Instruction, KINDS, Kind, Listing};

/// What a multiprocessor does in a cycle, and has room for. Throughputs are those of the CUDA C++ Programming Guide, peaks those of the
/// white papers of A100 (SXM, 40 GB) and H100 (SXM), at the clock that their tensor cores' peak is stated for.
pub struct Multiprocessor {
    pub architecture: &'static str,
    /// Products of 16-bit numbers on tensor cores.
    products: u64,
    float_lanes: u64,
    /// Bytes of the GPU's memory, its multiprocessors' share each.
    memory_bytes: f64,
    shared_memory: u64,
}

const GIGA: f64 = 1e9;

pub static MULTIPROCESSORS: [Multiprocessor; 2] = [
    Multiprocessor {
        architecture: "sm_80",
        products: 1024,
        float_lanes: 64,
        memory_bytes: 1555.0 * GIGA / (108.0 * 1.41 * GIGA),
        shared_memory: 164 << 10,
    },
    Multiprocessor {
        architecture: "sm_90a",
        products: 2048,
        float_lanes: 128,
        memory_bytes: 3350.0 * GIGA / (132.0 * 1.83 * GIGA),
        shared_memory: 228 << 10,
    },
];

// The same on both.
const INTEGER_LANES: u64 = 64;
const SPECIAL_LANES: u64 = 16;
const SHARED_BYTES: u64 = 128;
const REGISTERS: u64 = 64 << 10;
const MOST_THREADS: u64 = 2048;
const MOST_BLOCKS: u64 = 32;
/// Shared memory of a block that the system has.
const SYSTEM_SHARED: u64 = 1 << 10;
/// Parts of a multiprocessor, each of which issues one instruction in a cycle.
const PARTS: u64 = 4;
const WARP: u64 = 32;

/// What a block of a kernel takes.
#[derive(Clone, Copy)]
pub struct Block {
    pub threads: u64,
    pub registers: u64,
    pub shared: u64,
}

impl Block {
    /// Blocks that a multiprocessor has room for at once.
    fn at_once(&self, of: &Multiprocessor) -> u64 {
        // Registers are given to warps in units of 256.
        let registers = (self.registers * WARP).next_multiple_of(256) * self.threads.div_ceil(WARP);
        let rooms = [
            REGISTERS / registers.max(1),
            of.shared_memory / (self.shared + SYSTEM_SHARED),
            MOST_THREADS / self.threads,
            MOST_BLOCKS,
        ];
        rooms.into_iter().min().unwrap_or(0)
    }
}

/// How a kernel makes tiles of a matmul: two groups of four warps half of each, of which one is ahead of the other.
#[derive(Clone, Copy)]
pub struct Turns {
    /// Iterations of the hot loop that a tile takes.
    pub iterations: u64,
    /// Those by which the first group is ahead.
    pub ahead: u64,
}

/// What an iteration of a kernel's hot loop takes of a warp, or what comes once for all of them.
#[derive(Default)]
pub struct Iteration {
    of_kind: [u64; KINDS.len()],
    products: u64,
    shared_bytes: u64,
    global_bytes: u64,
}

impl Iteration {
    pub fn of(way: &[&Instruction]) -> Self {
        let sum = |of: fn(&Instruction) -> u64| way.iter().map(|one| of(one)).sum();
        Self {
            of_kind: KINDS.map(|kind| way.iter().filter(|one| one.kind() == kind).count() as u64),
            products: sum(Instruction::products),
            shared_bytes: sum(Instruction::shared_bytes),
            global_bytes: sum(Instruction::global_bytes),
        }
    }

    /// What goes with all iterations together, each time that a loop around them begins again.
    pub fn around(listing: &Listing) -> Self {
        let Some([around, hot]) = listing.around().map(|ways| ways.map(|way| Self::of(&way)))
        else {
            return Self::default();
        };
        Self {
            of_kind: std::array::from_fn(|kind| {
                around.of_kind[kind].saturating_sub(hot.of_kind[kind])
            }),
            products: 0,
            shared_bytes: around.shared_bytes.saturating_sub(hot.shared_bytes),
            global_bytes: around.global_bytes.saturating_sub(hot.global_bytes),
        }
    }

    fn instructions(&self) -> u64 {
        self.of_kind.iter().sum()
    }

    fn count(&self, kind: Kind) -> u64 {
        KINDS.iter().zip(self.of_kind).find(|(other, _)| **other == kind).map_or(0, |(_, n)| n)
    }

    /// Cycles for one warp on each part of a multiprocessor, of each of the things that limit it.
    fn cycles(&self, of: &Multiprocessor) -> [(&'static str, f64); 5] {
        let lanes = |kind, lanes: u64| (self.count(kind) * WARP * PARTS) as f64 / lanes as f64;
        [
            ("instructions", self.instructions() as f64),
            ("float", lanes(Kind::Float, of.float_lanes)),
            ("special", lanes(Kind::Special, SPECIAL_LANES)),
            ("integer", lanes(Kind::Integer, INTEGER_LANES)),
            ("shared memory", (self.shared_bytes * PARTS) as f64 / SHARED_BYTES as f64),
        ]
    }

    /// Cycles at the peak that the kernel is measured by: of tensor cores where it uses them, else of memory.
    fn peak(&self, of: &Multiprocessor) -> (&'static str, f64) {
        if self.products > 0 {
            ("tensor cores", (self.products * PARTS) as f64 / of.products as f64)
        } else {
            ("memory", (self.global_bytes * PARTS) as f64 / of.memory_bytes)
        }
    }

    /// The most of the peak that it can reach, and what limits it.
    pub fn bound(&self, of: &Multiprocessor) -> (f64, &'static str) {
        let peak = self.peak(of);
        let slowest = self.cycles(of).into_iter().fold(peak, |a, b| if b.1 > a.1 { b } else { a });
        (peak.1 / slowest.1, slowest.0)
    }

    /// The most of the peak that whole tiles can reach. While a group does what comes around its products, the other multiplies as many
    /// iterations as one is ahead, and issues their instructions; then it waits.
    fn bound_of_tiles(&self, around: &Self, turns: Turns, of: &Multiprocessor) -> f64 {
        const GROUPS: f64 = 2.0;
        let (_, iteration) = self.peak(of);
        let (beside, ahead) = (self.cycles(of), turns.ahead as f64);
        let limits = around.cycles(of).into_iter().zip(beside);
        let around = limits.map(|((_, own), (_, other))| own + ahead * other).fold(0.0, f64::max);
        let products = turns.iterations as f64 * iteration;
        products * GROUPS / ((products + (around - ahead * iteration).max(0.0)) * GROUPS)
    }

    /// Its columns of the table, with what comes once for all iterations.
    pub fn row(
        &self,
        around: &Self,
        turns: Option<Turns>,
        block: Block,
        of: &Multiprocessor,
    ) -> String {
        let mut row = format!("{}\t{}", block.registers, block.at_once(of));
        let mut add = |value: &dyn Display| write!(row, "\t{value}").expect("a String");
        self.of_kind.iter().for_each(|count| add(count));
        add(&around.instructions());
        add(&self.shared_bytes);
        add(&self.global_bytes);
        for (_, cycles) in std::iter::once(self.peak(of)).chain(self.cycles(of)) {
            add(&cycles.round());
        }
        let (share, by) = self.bound(of);
        add(&(share * 100.0).round());
        add(&by);
        let tiles = turns.map(|turns| self.bound_of_tiles(around, turns, of));
        add(&tiles.map_or(String::new(), |share| (share * 100.0).round().to_string()));
        row
    }
}

/// Names of the columns that [`Iteration::row`] writes.
pub const COLUMNS: &str = "registers\tblocks a multiprocessor\
    \ttensor\tfloat\tspecial\tinteger\tshared\tglobal\tother\tonce around\tshared bytes\tglobal bytes\
    \tcycles at the peak\tof instructions\tof float\tof special\tof integer\tof shared memory\tbound in %\tby\ttiles in %";

#[cfg(test)]
mod tests {
    use super::*;

    const fn hopper() -> &'static Multiprocessor {
        &MULTIPROCESSORS[1]
    }

    fn iteration(body: &[&str]) -> Iteration {
        let lines: String = body.iter().map(|text| format!("/*0000*/ {text} ;\n")).collect();
        let listing = Listing::of(&format!(".L_x_0:\n{lines}/*0010*/ @P0 BRA `(.L_x_0) ;\n"));
        Iteration::of(&listing.iteration())
    }

    #[test]
    fn what_takes_most_cycles_bounds_tensor_cores() {
        let product = "HMMA.16816.F32.BF16 R8, R4, R6, R8";
        // Four cycles of tensor cores in as many instructions.
        let all = iteration(&[product, "IMAD R1, R1, R1, R1", "MOV R1, R2"]);
        assert_eq!(all.bound(hopper()), (1.0, "tensor cores"));
        let issued = iteration(&[
            product,
            "MOV R1, R2",
            "MOV R1, R2",
            "MOV R1, R2",
            "MOV R1, R2",
            "MOV R1, R2",
            "MOV R1, R2",
        ]);
        assert_eq!(issued.bound(hopper()), (0.5, "instructions"));
        let special = iteration(&[product, "MUFU.EX2 R1, R1"]);
        assert_eq!(special.bound(hopper()), (0.5, "special"));
        let integer = iteration(&[
            product,
            "LOP3.LUT R1, R1",
            "LOP3.LUT R1, R1",
            "LOP3.LUT R1, R1",
            "LOP3.LUT R1, R1",
        ]);
        assert_eq!(integer.bound(hopper()), (0.5, "integer"));
        let shared = iteration(&[product, "LDSM.16.M88.4 R4, [R3]"]);
        assert_eq!(shared.bound(hopper()), (0.25, "shared memory"));
    }

    #[test]
    fn what_comes_around_products_costs_a_tile_what_the_other_group_cannot_hide() {
        // 128 cycles of tensor cores, in two instructions.
        let hot = iteration(&["HGMMA.64x128x16.F32.BF16 R24, gdesc[UR4], R24"]);
        let of_tile = |count: usize, ahead| {
            let around = iteration(&vec!["MOV R1, R2"; count - 1]);
            hot.bound_of_tiles(&around, Turns { iterations: 12, ahead }, hopper())
        };
        let (_, products) = hot.peak(hopper());
        assert_eq!(of_tile(2 * products as usize - 4, 2), 1.0);
        let longer = of_tile(5 * products as usize - 4, 2);
        assert!((longer - 12.0 / 15.0).abs() < 1e-9, "{longer}");
        // Exponentials take longer than their instructions.
        let powers = iteration(&["MUFU.EX2 R1, R1"; 40]);
        let turns = Turns { iterations: 1, ahead: 0 };
        let share = hot.bound_of_tiles(&powers, turns, hopper());
        assert!((share - products / (products + 320.0)).abs() < 1e-9, "{share}");
    }

    #[test]
    fn a_kernel_without_products_is_measured_by_memory() {
        let copy = iteration(&["LDG.E.128 R4, [R2.64]", "STG.E.128 [R2.64], R4"]);
        assert_eq!(copy.bound(hopper()), (1.0, "memory"));
        let (share, by) =
            iteration(&[&["LDG.E R4, [R2.64]"][..], &["MOV R1, R2"; 72]].concat()).bound(hopper());
        // 512 bytes, and 74 instructions of four warps.
        assert!((share - 512.0 / hopper().memory_bytes / 74.0).abs() < 1e-9, "{share}");
        assert_eq!(by, "instructions");
    }

    #[test]
    fn registers_shared_memory_and_threads_limit_blocks() {
        let block = |threads, registers, shared| Block { threads, registers, shared };
        assert_eq!(block(128, 128, 0).at_once(hopper()), 4);
        // Of 121 registers, a warp gets as many as of 128.
        assert_eq!(block(128, 121, 0).at_once(hopper()), 4);
        assert_eq!(block(128, 32, 49152).at_once(hopper()), 4);
        assert_eq!(block(256, 16, 0).at_once(hopper()), 8);
        assert_eq!(block(32, 16, 0).at_once(hopper()), 32);
    }
}
