//! A moment of measurement when a device is opened: the tile that multiplies matrices fastest, and how fast.

use std::ops::Range;
use std::slice::from_ref;
use std::sync::Arc;

use tightrope_core::launch::Tile;
use tightrope_core::ops::MatMul;
use tightrope_core::plan::Options;
use tightrope_core::{Backend, Class, DType, DeviceError, Graph, Plan, Type};
use web_time::Instant;

use crate::Wgpu;
use crate::tiles::CANDIDATES;

/// Extents of the matrices: small, and, for a device that's too fast to tell by those, large.
const EXTENTS: [usize; 2] = [256, 1024];
/// Operations a second from which a device is measured with large matrices.
const FAST: f64 = 2e11;
/// Seconds that one candidate is measured for.
const BUDGET_S: f64 = 0.03;
/// Products after which a fast device is fast enough to tell.
const MOST_RUNS: u32 = 64;
/// Read to wait for the device.
static FIRST_WORD: Range<u64> = 0..4;

/// The fastest of the candidates on this device, and its operations a second.
///
/// # Errors
/// The device's failure.
pub async fn fastest(device: &mut Wgpu) -> Result<(Tile, f64), DeviceError> {
    let mut best = (CANDIDATES[0], 0.0);
    for extent in EXTENTS {
        if extent > EXTENTS[0] && best.1 < FAST {
            break;
        }
        best.1 = 0.0;
        for &tile in CANDIDATES {
            let limits = &device.device.limits;
            // A processor that runs threads one after the other has no use for memory that they share.
            let unsuited = device.describe().is_software() && tile.shares();
            if unsuited || tile.threads() > limits.workgroup {
                continue;
            }
            device.device.limits.tile = tile;
            let rate = measure(device, extent).await?;
            if rate > best.1 {
                best = (tile, rate);
            }
        }
    }
    device.loaded = None;
    Ok(best)
}

/// Operations a second of products with the tile that's set.
async fn measure(device: &mut Wgpu, extent: usize) -> Result<f64, DeviceError> {
    let mut graph = Graph::new();
    let matrix = Type::new(DType::F32, [extent, extent]);
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
    device.read(from_ref(&FIRST_WORD)).await?;
    let mut runs = 1;
    loop {
        let start = Instant::now();
        for _ in 0..runs {
            device.run(0, 0..1)?;
        }
        device.read(from_ref(&FIRST_WORD)).await?;
        let seconds = start.elapsed().as_secs_f64();
        if seconds > BUDGET_S / 2.0 || runs >= MOST_RUNS {
            return Ok(flops * f64::from(runs) / seconds);
        }
        runs *= 2;
    }
}
