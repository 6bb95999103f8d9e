//! Shapes of matrix-product tiles that a device chooses from, and the least that a device offers.

use tightrope_core::dialect::Dialect;
use tightrope_core::launch::{Limits, Tile};

/// Tiles to try on a device, all within the default limits of WebGPU.
pub const CANDIDATES: &[Tile] = &[
    Tile { entry: "tiled", m: 64, n: 64, k: 16, thread_m: 8, thread_n: 4 },
    Tile { entry: "tiled", m: 64, n: 64, k: 32, thread_m: 4, thread_n: 4 },
    Tile { entry: "tiled", m: 128, n: 128, k: 16, thread_m: 8, thread_n: 8 },
    Tile { entry: "direct_8x8", m: 32, n: 64, k: 4, thread_m: 8, thread_n: 8 },
    Tile { entry: "direct_16x16", m: 64, n: 64, k: 4, thread_m: 16, thread_n: 16 },
];

/// What every WebGPU adapter offers (gpuweb specification, section 3.6.2), with a storage binding less for
/// Metal, where wgpu needs one itself.
pub fn smallest_limits(dialect: Dialect) -> Limits {
    Limits {
        dialect,
        workgroup: 256,
        shared_bytes: 16 << 10,
        bindings: 7,
        binding_bytes: 128 << 20,
        work: u64::MAX,
        tile: CANDIDATES[0],
    }
}
