//! Shapes of matmul tiles that a device chooses from, and the least that a device offers.

use tightrope_core::launch::{Api, Limits, Tile, WebGpuLimits};

/// Tiles to try on a device, all within the default limits of WebGPU.
pub const CANDIDATES: &[Tile] = &[
    Tile { entry: "tiled", m: 64, n: 64, k: 16, thread_m: 8, thread_n: 4 },
    Tile { entry: "tiled", m: 64, n: 64, k: 32, thread_m: 4, thread_n: 4 },
    Tile { entry: "tiled", m: 128, n: 128, k: 16, thread_m: 8, thread_n: 8 },
    Tile { entry: "direct_8x8", m: 32, n: 64, k: 4, thread_m: 8, thread_n: 8 },
    Tile { entry: "direct_16x16", m: 64, n: 64, k: 4, thread_m: 16, thread_n: 16 },
    Tile { entry: "shuffled", m: 128, n: 64, k: 4, thread_m: 32, thread_n: 8 },
];

/// Edges of the squares that a subgroup may hold together, best first: naga has no others.
pub const SQUARE_EDGES: [u32; 2] = [16, 8];

/// The tile of matmuls that four subgroups make together, each two squares along both axes.
pub const fn cooperative(edge: u32) -> Tile {
    let (own, whole) = (2 * edge, 4 * edge);
    Tile { entry: "cooperative", m: whole, n: whole, k: 32, thread_m: own, thread_n: own }
}

/// Limits between them that make every kind of launch: with each tile, with all that only some adapters offer, and
/// with cooperative matrices and what stands in for them.
pub fn kinds_of_limits() -> Vec<Limits> {
    let smallest = smallest_limits();
    let with_tile = |&tile: &Tile| {
        let limits = Limits { tile, ..smallest.clone() };
        let subgroup = Some(tile.subgroup()).filter(|&threads| threads > 1);
        limits.with_webgpu(|own| own.subgroup = subgroup)
    };
    let mut kinds: Vec<Limits> = CANDIDATES.iter().map(with_tile).collect();
    let with = |cooperative: Option<Tile>, subgroup: Option<u32>| Limits {
        api: Api::WebGpu(WebGpuLimits {
            cooperative,
            subgroup,
            native_f16: true,
            wide_words: true,
        }),
        ..smallest.clone()
    };
    for tile in SQUARE_EDGES.map(cooperative) {
        kinds.push(with(Some(tile), None));
        kinds.push(with(Some(tile), Some(32)));
    }
    for threads in [4, 32, 128] {
        kinds.push(with(None, Some(threads)));
    }
    kinds
}

/// What every WebGPU adapter offers (gpuweb specification, section 3.6.2), with a storage binding less for
/// Metal, where wgpu needs one itself.
pub fn smallest_limits() -> Limits {
    Limits {
        workgroup: 256,
        shared_bytes: 16 << 10,
        bindings: 7,
        binding_bytes: 128 << 20,
        work: u64::MAX,
        tile: CANDIDATES[0],
        api: Api::WebGpu(WebGpuLimits::default()),
    }
}
