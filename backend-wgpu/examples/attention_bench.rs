//! Milliseconds of attention, its gradient, and a decoding step on the first adapter.
//!
//! cargo run --release -p tightrope-backend-wgpu --example attention_bench

use std::sync::Arc;
use std::time::Instant;

use tightrope_backend_wgpu::{Options, Wgpu};
use tightrope_core::ops::{Attention, AttentionGrad, CachedAttention};
use tightrope_core::plan::Options as Planning;
use tightrope_core::{Backend, Cancel, Class, DType, Graph, Op, Plan, Role, Type};

/// Seconds to measure for, after a first run that compiles.
const SECONDS: f64 = 1.0;

fn measure(
    device: &mut Wgpu,
    op: impl Into<Op>,
    types: &[Type],
) -> Result<f64, Box<dyn std::error::Error>> {
    let mut graph = Graph::new();
    let mut inputs = vec![];
    for (index, ty) in types.iter().enumerate() {
        inputs.push(graph.persistent(&format!("input.{index}"), ty.clone(), Class::Input));
    }
    graph.begin(Role::Main);
    let outputs = graph.push(op, &inputs, "output")?;
    outputs.iter().for_each(|&output| graph.result(output));
    let plan = Arc::new(Plan::new(graph, &Planning::default(), &*device)?);
    device.prepare(Arc::clone(&plan))?;
    let first = 0..4;
    device.run(0, 0..1, &Cancel::default())?;
    pollster::block_on(device.read(std::slice::from_ref(&first)))?;
    let start = Instant::now();
    let mut runs = 0;
    while start.elapsed().as_secs_f64() < SECONDS {
        device.run(0, 0..1, &Cancel::default())?;
        pollster::block_on(device.read(std::slice::from_ref(&first)))?;
        runs += 1;
    }
    Ok(start.elapsed().as_secs_f64() / f64::from(runs))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut device = pollster::block_on(Wgpu::open(&Options::default()))?;
    println!("{}", device.name());
    for (batch, time, heads, kv_heads, head_dim) in
        [(4, 256, 6, 6, 64), (1, 1024, 12, 12, 64), (2, 256, 8, 2, 128), (8, 64, 4, 4, 32)]
    {
        let op = Attention::causal(heads, kv_heads, head_dim);
        for dtype in [DType::F32, DType::BF16] {
            let ty = |dtype, shape: &[usize]| Type::new(dtype, shape);
            let packed = ty(dtype, &[batch, time, op.packed()]);
            let out = ty(dtype, &[batch, time, heads * head_dim]);
            let lse = ty(DType::F32, &[batch, heads, time]);
            let of_grad = [packed.clone(), out.clone(), lse, out];
            let cache = ty(dtype, &[batch, time, kv_heads * head_dim]);
            let new = ty(dtype, &[batch, 1, op.packed()]);
            let position = ty(DType::I32, &[1]);
            let forward = measure(&mut device, op.clone(), &[packed])?;
            let backward = measure(&mut device, AttentionGrad(op.clone()), &of_grad)?;
            let of_cached = [new, cache.clone(), cache, position];
            let cached = measure(&mut device, CachedAttention(op.clone()), &of_cached)?;
            let pairs = (batch * heads * time * (time + 1) / 2 * head_dim) as f64;
            println!(
                "B={batch} T={time} H={heads} G={kv_heads} D={head_dim} {dtype}: forward {:.2} ms ({:.2} GFLOP/s), \
                 backward {:.2} ms ({:.2} GFLOP/s), cached {:.2} ms",
                forward * 1e3,
                4.0 * pairs / forward / 1e9,
                backward * 1e3,
                10.0 * pairs / backward / 1e9,
                cached * 1e3,
            );
        }
    }
    Ok(())
}
