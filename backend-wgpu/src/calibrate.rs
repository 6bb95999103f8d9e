//! A moment of measurement when a device is opened: the tile that multiplies matrices fastest, and how fast.

use std::ops::Range;
use std::slice::from_ref;
use std::sync::Arc;

use tightrope_core::launch::Tile;
use tightrope_core::ops::MatMul;
use tightrope_core::plan::Options;
use tightrope_core::{Backend, Cancel, Class, DType, DeviceError, Graph, Plan, Role, Type};
use web_time::Instant;

use crate::Wgpu;
use crate::tiles::{self, CANDIDATES};

/// Extents of the matrices: small, and, for a device that's too fast to tell by those, large.
const EXTENTS: [usize; 2] = [256, 1024];
/// Operations a second from which a device is measured with large matrices.
const FAST: f64 = 2e11;
/// Seconds that one candidate is measured for.
const BUDGET_S: f64 = 0.03;
/// Matmuls after which a fast device is fast enough to tell.
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
            if unsuited || !tile.suits(limits) {
                continue;
            }
            device.device.limits.tile = tile;
            let rate = Prepared::new(device, extent, DType::F32)?.rate(device).await?;
            if rate > best.1 {
                best = (tile, rate);
            }
        }
    }
    device.loaded = None;
    Ok(best)
}

/// The tile of matmuls that subgroups make together, where the device has them, they are faster than the tile
/// that's set, and they give the same numbers.
///
/// # Errors
/// The device's failure.
pub async fn cooperative(device: &mut Wgpu) -> Result<Option<Tile>, DeviceError> {
    let limits = device.device.limits.webgpu();
    let usable = limits.native_f16 && limits.subgroup.is_some();
    let Some(edge) = device.describe().cooperative.filter(|_| usable) else { return Ok(None) };
    let tile = tiles::cooperative(edge);
    let plain = halves(device).await?;
    device.device.offer(|own| own.cooperative = Some(tile));
    let together = halves(device).await;
    device.device.offer(|own| own.cooperative = None);
    device.loaded = None;
    match together {
        Ok((rate, matmul)) => Ok((rate > plain.0 && matmul == plain.1).then_some(tile)),
        // A device that doesn't compile it goes on without; one that is lost doesn't go on.
        Err(error) => match device.device.failure.take() {
            Err(DeviceError::Lost { .. }) => Err(error),
            _ => Ok(None),
        },
    }
}

/// Operations a second of a matmul of f16, and the matmul, whose sums are exact in f32 in any order.
async fn halves(device: &mut Wgpu) -> Result<(f64, Vec<u8>), DeviceError> {
    // 1, -1/2, 1/4, -2, 0, 3/2, -1 and 3/4 as f16.
    const VALUES: [u16; 8] = [0x3c00, 0xb800, 0x3400, 0xc000, 0, 0x3e00, 0xbc00, 0x3a00];
    // Knuth's multiplicative hashing: the upper bits of i · 2³²/φ.
    const SCATTER: u32 = 2_654_435_761;
    let extent = EXTENTS[1];
    let matmul = Prepared::new(device, extent, DType::F16)?;
    for (turn, range) in (0..).zip(&matmul.operands) {
        let count = (extent * extent) as u32;
        let value = |i: u32| VALUES[(i.wrapping_mul(SCATTER) >> (29 - turn)) as usize % 8];
        let bytes: Vec<u8> = (0..count).flat_map(|i| value(i).to_le_bytes()).collect();
        device.write(range.start, &bytes)?;
    }
    let rate = matmul.rate(device).await?;
    let bytes = device.read(from_ref(&matmul.result)).await?;
    Ok((rate, bytes))
}

/// A matmul of square matrices on a device, into f32.
struct Prepared {
    flops: f64,
    /// Bytes of the arena that hold the operands and the result.
    operands: [Range<u64>; 2],
    result: Range<u64>,
}

impl Prepared {
    /// With the tiles that are set.
    fn new(device: &mut Wgpu, extent: usize, dtype: DType) -> Result<Self, DeviceError> {
        let mut graph = Graph::new();
        let matrix = Type::new(dtype, [extent, extent]);
        let mut operand = |name| graph.persistent(name, matrix.clone(), Class::Activation);
        let inputs = [operand("lhs"), operand("rhs")];
        graph.begin(Role::Main);
        let matmul = graph.one(MatMul::new(DType::F32), &inputs, "product");
        let planned = matmul.and_then(|matmul| {
            graph.result(matmul);
            Ok((Plan::new(graph, &Options::default(), device)?, matmul))
        });
        let (plan, matmul) = planned.map_err(|error| device.device.lost(&error.to_string()))?;
        let bytes = |tensor| plan.range(tensor).map_or(0..0, |(start, len)| start..start + len);
        let prepared = Self {
            flops: plan.programs[0].cost.flops as f64,
            operands: inputs.map(bytes),
            result: bytes(matmul),
        };
        device.prepare(Arc::new(plan))?;
        Ok(prepared)
    }

    /// Operations a second.
    async fn rate(&self, device: &mut Wgpu) -> Result<f64, DeviceError> {
        // The first run compiles.
        device.run(0, 0..1, &Cancel::default())?;
        device.read(from_ref(&FIRST_WORD)).await?;
        let mut runs = 1;
        loop {
            let start = Instant::now();
            for _ in 0..runs {
                device.run(0, 0..1, &Cancel::default())?;
            }
            device.read(from_ref(&FIRST_WORD)).await?;
            let seconds = start.elapsed().as_secs_f64();
            if seconds > BUDGET_S / 2.0 || runs >= MOST_RUNS {
                return Ok(self.flops * f64::from(runs) / seconds);
            }
            runs *= 2;
        }
    }
}
