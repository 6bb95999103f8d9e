//! Times matrix products alone, to compare a device's kernels with others'.

use tightrope_core::ops::MatMul;
use tightrope_core::{Backend, Class, DType, Graph, Plan, Role, Session, SessionError, Type, plan};
use web_time::Instant;

use crate::backends::Wgpu;
use crate::devices::Adapter;

/// What came of timing.
pub struct Timed {
    /// Milliseconds of one product, from the first launch to the arrival of the last result, over their number.
    pub ms: f64,
    /// The product.
    pub product: Vec<f32>,
}

/// Multiplies two square f32 matrices `runs` times on the first GPU that there is.
///
/// # Errors
/// Matrices of another extent, and those of the device.
pub async fn time(a: &[f32], b: &[f32], extent: usize, runs: u32) -> Result<Timed, SessionError> {
    let device = Wgpu::open(&Adapter::default()).await?;
    let mut graph = Graph::new();
    let matrix = Type::new(DType::F32, [extent, extent]);
    let lhs = graph.persistent("a", matrix.clone(), Class::Input);
    let rhs = graph.persistent("b", matrix, Class::Input);
    graph.begin(Role::Main);
    let product = graph.one(MatMul::new(DType::F32), &[lhs, rhs], "product")?;
    graph.result(product);
    let plan = Plan::new(graph, &plan::Options::default(), &device)?;
    let boxed: Box<dyn Backend> = Box::new(device);
    let mut session = Session::new(plan, boxed)?;
    session.write_values(lhs, a)?;
    session.write_values(rhs, b)?;
    // The first compiles.
    session.run(Role::Main)?;
    session.read_scalars(&[product]).await?;
    let start = Instant::now();
    for _ in 0..runs.max(1) {
        session.run(Role::Main)?;
    }
    session.read_scalars(&[product]).await?;
    let ms = start.elapsed().as_secs_f64() * 1e3 / f64::from(runs.max(1));
    Ok(Timed { ms, product: session.read_values(product).await? })
}
