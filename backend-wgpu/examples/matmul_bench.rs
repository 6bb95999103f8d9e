//! GFLOP/s of matmuls on the GPU that wgpu finds, for every tile, or those of one entry: what a device chooses
//! from, measured.
//!
//! Run with `cargo run --release -p tightrope-backend-wgpu --example matmul_bench [dtype [repeats [entry]]]`.

use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

use tightrope_backend_wgpu::tiles::CANDIDATES;
use tightrope_backend_wgpu::{Options, Wgpu};
use tightrope_core::launch::Tile;
use tightrope_core::ops::MatMul;
use tightrope_core::plan;
use tightrope_core::{Backend, Cancel, Class, DType, Graph, Plan, Role, Type};

/// M, N, K and whether each operand is stored transposed: a cube, a GPT's linear layers with their two gradients, of 1,024
/// and of 4,096 tokens, attention-like and skinny ones.
const SHAPES: &[(usize, usize, usize, bool, bool)] = &[
    (512, 512, 512, false, false),
    (1024, 1536, 384, false, true),
    (1024, 384, 1536, false, false),
    (1536, 384, 1024, true, false),
    (4096, 1152, 384, false, true),
    (4096, 384, 1152, false, false),
    (1152, 384, 4096, true, false),
    (4096, 1536, 384, false, true),
    (4096, 384, 1536, false, false),
    (1536, 384, 4096, true, false),
    (4096, 384, 1536, false, true),
    (4096, 1536, 384, false, false),
    (384, 1536, 4096, true, false),
    (384, 384, 4096, true, false),
    (1, 1536, 384, false, true),
    (1, 4096, 1024, false, false),
    (1024, 65, 384, false, true),
];

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let dtype = match arguments.next().as_deref() {
        Some("bf16") => DType::BF16,
        Some("f16") => DType::F16,
        _ => DType::F32,
    };
    let repeats: u32 = arguments.next().map_or(Ok(5), |word| word.parse())?;
    let entry = arguments.next();
    let mut device = pollster::block_on(Wgpu::open(&Options::default()))?;
    let own = device.limits().clone();
    let tiles = || {
        let of_entry = |tile: &&Tile| entry.as_ref().is_none_or(|entry| entry == tile.entry);
        CANDIDATES.iter().filter(of_entry).filter(|tile| tile.suits(&own))
    };
    println!("{}, {}; chosen: {:?}", device.name(), dtype.name(), device.limits().tile);
    for &(m, n, k, transpose_lhs, transpose_rhs) in SHAPES {
        let mut line = format!("{m}x{n}x{k} {transpose_lhs:5} {transpose_rhs:5}");
        for &tile in tiles() {
            device.restrict(|limits| limits.tile = tile);
            let mut graph = Graph::new();
            let lhs = if transpose_lhs { [k, m] } else { [m, k] };
            let rhs = if transpose_rhs { [n, k] } else { [k, n] };
            let inputs = [("lhs", lhs), ("rhs", rhs)].map(|(name, shape)| {
                graph.persistent(name, Type::new(dtype, shape), Class::Activation)
            });
            graph.begin(Role::Main);
            let op = MatMul { transpose_lhs, transpose_rhs, ..MatMul::new(dtype) };
            let matmul = graph.one(op, &inputs, "product")?;
            graph.result(matmul);
            device.prepare(Arc::new(Plan::new(graph, &plan::Options::default(), &device)?))?;
            let mut best = f64::INFINITY;
            for _ in 0..=repeats {
                let start = Instant::now();
                device.run(0, 0..1, &Cancel::default())?;
                pollster::block_on(device.read(std::slice::from_ref(&(0..4))))?;
                best = best.min(start.elapsed().as_secs_f64());
            }
            let rate = 2.0 * (m * n * k) as f64 / best / 1e9;
            line += &format!("  {} {}x{}: {rate:.2}", tile.entry, tile.m, tile.n);
        }
        println!("{line}");
    }
    Ok(())
}
