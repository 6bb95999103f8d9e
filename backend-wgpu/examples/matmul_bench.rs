//! Matmuls of a training step on an adapter: GFLOP/s with each tile that it may be given.
//!
//! `cargo run --release -p tightrope-backend-wgpu --example matmul_bench [rows [channels [entry]]]`
//!
//! R = 4096 tokens (`rows`), C = 384 channels; `nt` multiplies by a weight stored out×in (forward), `nn` by the same weight
//! for dx, `tn` makes dW. The tiles, or those of an `entry` of the kernel, take turns and each keeps its best time.

use std::slice::from_ref;
use std::sync::Arc;
use std::time::Instant;

use tightrope_backend_wgpu::{Options, Wgpu, tiles};
use tightrope_core::launch::Tile;
use tightrope_core::ops::MatMul;
use tightrope_core::plan::Options as PlanOptions;
use tightrope_core::{Backend, Class, DType, Graph, Plan, Role, Type};

const ROUNDS: usize = 4;

/// A matmul of f32: its name, and how its operands are stored.
struct Shape {
    name: String,
    op: MatMul,
    lhs: [usize; 2],
    rhs: [usize; 2],
    flops: f64,
}

fn shapes(rows: usize, c: usize) -> Vec<Shape> {
    let mut shapes = vec![];
    for (out, inner) in [(3 * c, c), (c, c), (4 * c, c), (c, 4 * c)] {
        let flops = 2.0 * (rows * out * inner) as f64;
        let mut push = |kind: &str, [m, n, k]: [usize; 3], lhs, rhs| {
            let (transpose_lhs, transpose_rhs) = (kind == "tn", kind == "nt");
            let op = MatMul { transpose_lhs, transpose_rhs, ..MatMul::new(DType::F32) };
            shapes.push(Shape { name: format!("{kind} {m}×{n}×{k}"), op, lhs, rhs, flops });
        };
        push("nt", [rows, out, inner], [rows, inner], [out, inner]);
        push("nn", [rows, inner, out], [rows, out], [out, inner]);
        push("tn", [out, inner, rows], [rows, out], [rows, inner]);
    }
    shapes
}

fn plan(shape: &Shape, device: &Wgpu) -> Result<Plan, Box<dyn std::error::Error>> {
    let mut graph = Graph::new();
    let mut operand =
        |name, extents| graph.persistent(name, Type::new(DType::F32, extents), Class::Activation);
    let inputs = [operand("lhs", shape.lhs), operand("rhs", shape.rhs)];
    graph.begin(Role::Main);
    let product = graph.one(shape.op.clone(), &inputs, "product")?;
    graph.result(product);
    Ok(Plan::new(graph, &PlanOptions::default(), device)?)
}

/// Seconds of one run, the first of which compiles.
async fn seconds(device: &mut Wgpu) -> Result<f64, Box<dyn std::error::Error>> {
    let start = Instant::now();
    device.run(0, 0..1)?;
    device.read(from_ref(&(0..4))).await?;
    Ok(start.elapsed().as_secs_f64())
}

async fn run() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let rows = words.first().map_or(Ok(4096), |word| word.parse())?;
    let channels = words.get(1).map_or(Ok(384), |word| word.parse())?;
    let entry = words.get(2);
    let mut device = Wgpu::open(&Options::default()).await?;
    let own = device.limits().clone();
    let fits = |tile: &&Tile| {
        let subgroup = tile.subgroup();
        entry.is_none_or(|entry| entry == tile.entry)
            && tile.threads() <= own.workgroup
            && (subgroup == 1 || own.webgpu().subgroup == Some(subgroup))
    };
    let candidates: Vec<Tile> = tiles::CANDIDATES.iter().filter(fits).copied().collect();
    println!("{}; it chose {} {}×{}", device.name(), own.tile.entry, own.tile.m, own.tile.n);
    let names = candidates.iter().map(|tile| format!("{} {}×{}", tile.entry, tile.m, tile.n));
    println!("{:18}{}", "", names.map(|name| format!("{name:>22}")).collect::<String>());
    for shape in shapes(rows, channels) {
        let mut best = vec![f64::INFINITY; candidates.len()];
        for _ in 0..ROUNDS {
            for (best, &tile) in best.iter_mut().zip(&candidates) {
                device.restrict(|limits| limits.tile = tile);
                let plan = plan(&shape, &device)?;
                device.prepare(Arc::new(plan))?;
                seconds(&mut device).await?;
                *best = best.min(seconds(&mut device).await?);
            }
        }
        let rates = best.iter().map(|seconds| format!("{:22.1}", shape.flops * 1e-9 / seconds));
        println!("{:18}{}", shape.name, rates.collect::<String>());
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    pollster::block_on(run())
}
