//! A program that runs beside the device: on the host, over tensors that the device then needn't hold.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::backend::{Backend, DeviceError, Reading};
use crate::graph::{Graph, Life, Program, Tensor};
use crate::plan::Plan;

/// The host's part of a session.
pub(super) struct Host {
    pub plan: Arc<Plan>,
    pub backend: Box<dyn Backend>,
    /// Tensors that programs here change: their values are here.
    written: BTreeSet<Tensor>,
    /// What programs here read and the device may have changed.
    fetched: Vec<Tensor>,
    /// What they change and the device reads.
    sent: Vec<Tensor>,
}

/// Takes a program out of `graph`, for a plan of its own. A tensor that both need keeps its handle and has a place in
/// both plans; what the program alone needs leaves the graph's plan.
///
/// # Errors
/// [`crate::Error::Unknown`] for a program that isn't there.
pub fn split(graph: &mut Graph, program: &str) -> crate::Result<Graph> {
    let mut host = graph.clone();
    host.programs = vec![graph.programs.remove(graph.program(program)?)];
    let (device, own) = (used(graph), used(&host));
    for index in 0..graph.tensors.len() {
        let tensor = Tensor(index as u32);
        if graph.info(tensor).life != Life::Persistent || graph.storage(tensor) != tensor {
            continue;
        }
        if !own.contains(&tensor) {
            host.info_mut(tensor).life = Life::Transient;
        } else if !device.contains(&tensor) {
            graph.info_mut(tensor).life = Life::Transient;
        }
    }
    Ok(host)
}

/// The storage of everything that a graph's programs read or write.
fn used(graph: &Graph) -> BTreeSet<Tensor> {
    let nodes = graph.programs.iter().flat_map(|program| &program.nodes);
    let tensors = nodes.flat_map(|node| node.inputs.iter().chain(&node.outputs));
    tensors.map(|&tensor| graph.storage(tensor)).collect()
}

/// The storage of everything that a program writes.
fn written(graph: &Graph, program: &Program) -> BTreeSet<Tensor> {
    let outputs = program.nodes.iter().flat_map(|node| &node.outputs);
    outputs.map(|&tensor| graph.storage(tensor)).collect()
}

/// What a reading comes to whose device doesn't need an event loop to answer.
fn now(reading: Reading<'_>) -> Result<Vec<u8>, DeviceError> {
    match pin!(reading).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(bytes) => bytes,
        Poll::Pending => Err(DeviceError::Input(
            "a step can't wait for this device, so nothing can be offloaded from it".to_owned(),
        )),
    }
}

impl Host {
    /// Readies `plan` on `backend`, beside a `device` with another plan of the same tensors.
    pub fn new(
        device: &Plan,
        plan: Plan,
        mut backend: Box<dyn Backend>,
    ) -> Result<Self, DeviceError> {
        let plan = Arc::new(plan);
        backend.prepare(Arc::clone(&plan))?;
        let graph = &plan.graph;
        let written: BTreeSet<Tensor> =
            graph.programs.iter().flat_map(|program| written(graph, program)).collect();
        let shared: Vec<Tensor> =
            used(graph).into_iter().filter(|&t| device.range(t).is_some()).collect();
        let (sent, fetched) = shared.into_iter().partition(|tensor| written.contains(tensor));
        Ok(Self { plan, backend, written, fetched, sent })
    }

    /// Whether the values of `tensor` are here, where the device may hold a copy.
    pub fn holds(&self, tensor: Tensor) -> bool {
        self.written.contains(&self.plan.graph.storage(tensor))
    }

    /// Fetches from the device what a program reads, runs it, and sends back what it changes.
    pub fn run(
        &mut self,
        program: usize,
        device: &Plan,
        backend: &mut dyn Backend,
    ) -> Result<(), DeviceError> {
        let place = |plan: &Plan, tensor| {
            let (offset, bytes) = plan.range(tensor).expect("shared tensors have a place in both");
            offset..offset + bytes
        };
        for &tensor in &self.fetched {
            let bytes = now(backend.read(&[place(device, tensor)]))?;
            self.backend.write(place(&self.plan, tensor).start, &bytes)?;
        }
        self.backend.run(program, 0..self.plan.programs[program].steps.len())?;
        for &tensor in &self.sent {
            let bytes = now(self.backend.read(&[place(&self.plan, tensor)]))?;
            backend.write(place(device, tensor).start, &bytes)?;
        }
        Ok(())
    }
}
