//! A moment of measurement when a device is opened: the tile that multiplies matrices fastest, and how fast.

use std::sync::Arc;

use tightrope_core::launch::Tile;
use tightrope_core::ops::MatMul;
use tightrope_core::plan::Options;
use tightrope_core::{Backend, Class, DType, DeviceError, Graph, Plan, Type};
use web_time::Instant;

use crate::Wgpu;
use crate::tiles::CANDIDATES;

/// Extent of the matrices: large enough that starting the work takes less time than the work.
const EXTENT: usize = 256;
/// Seconds that one candidate is measured for.
const BUDGET_S: f64 = 0.03;
/// Products after which a fast device is fast enough to tell.
const MOST_RUNS: u32 = 64;

/// The fastest of the candidates on this device, and its operations a second.
///
/// # Errors
/// The device's failure.
pub async fn fastest(device: &mut Wgpu) -> Result<(Tile, f64), DeviceError> {
    let mut best = (CANDIDATES[0], 0.0);
    for &tile in CANDIDATES {
        let fits = tile.threads() <= device.device.limits.workgroup;
        if !fits {
            continue;
        }
        device.device.limits.tile = tile;
        let rate = measure(device).await?;
        if rate > best.1 {
            best = (tile, rate);
        }
    }
    device.loaded = None;
    Ok(best)
}

/// Operations a second of products with the tile that's set.
async fn measure(device: &mut Wgpu) -> Result<f64, DeviceError> {
    let mut graph = Graph::new();
    let matrix = Type::new(DType::F32, [EXTENT, EXTENT]);
    let mut operand = |name| graph.persistent(name, matrix.clone(), Class::Activation);
    let inputs = [operand("lhs"), operand("rhs")];
    graph.begin("product");
    let product = graph.one(MatMul::new(DType::F32), &inputs, "product");
    let planned = product.and_then(|product| {
        graph.result(product);
        Plan::new(graph, &Options::default(), device)
    });
    let plan = planned.map_err(|error| device.device.lost(&error.to_string()))?;
    let flops = plan.programs[0].cost.flops as f64;
    device.prepare(Arc::new(plan))?;
    // The first run compiles.
    device.run(0, 0..1)?;
    device.read(&[0..4]).await?;
    let mut runs = 1;
    loop {
        let start = Instant::now();
        for _ in 0..runs {
            device.run(0, 0..1)?;
        }
        device.read(&[0..4]).await?;
        let seconds = start.elapsed().as_secs_f64();
        if seconds > BUDGET_S / 2.0 || runs >= MOST_RUNS {
            return Ok(flops * f64::from(runs) / seconds);
        }
        runs *= 2;
    }
}
