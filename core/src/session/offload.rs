//! Programs that run beside the device: on the host, over tensors that the device then needn't hold; and the transfers
//! of the device's own programs.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::pin;
use std::slice;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::backend::{Backend, DeviceError, Reading};
use crate::graph::{Graph, Life, Node, Program, Tensor};
use crate::plan::Plan;
use crate::plan::offload::{ADD, PIECE};

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
    /// Of each sum of what arrives: the program and its step that adds to it, and where that reads it.
    adds: BTreeMap<Tensor, (usize, usize, Tensor)>,
}

/// Takes the programs of these names out of `graph`, for a plan of their own. A tensor that both need keeps its handle
/// and has a place in both plans; what these programs alone need, or transfers to and from the host, leaves the graph's
/// plan.
pub fn split(graph: &mut Graph, programs: &[&str]) -> Graph {
    let mut host = graph.clone();
    let is_host = |program: &Program| programs.contains(&program.name.as_str());
    host.programs.retain(is_host);
    graph.programs.retain(|program| !is_host(program));
    let (device, mut own) = (used(graph), used(&host));
    let nodes = graph.programs.iter().flat_map(|program| &program.nodes);
    own.extend(nodes.filter_map(|node| node.op.transfer()).map(|transfer| transfer.host()));
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
    host
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
        let adds = adds(&plan);
        Ok(Self { plan, backend, written, fetched, sent, adds })
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
        for &tensor in &self.fetched {
            copy((backend, device, tensor), (&mut *self.backend, &self.plan, tensor))?;
        }
        self.backend.run(program, 0..self.plan.programs[program].steps.len())?;
        for &tensor in &self.sent {
            copy((&mut *self.backend, &self.plan, tensor), (backend, device, tensor))?;
        }
        Ok(())
    }

    /// Makes a transfer of one of the device's programs.
    pub fn transfer(
        &mut self,
        node: &Node,
        device: &Plan,
        backend: &mut dyn Backend,
    ) -> Result<(), DeviceError> {
        let Some(transfer) = node.op.transfer() else { return Ok(()) };
        let (host, own) = ((&mut *self.backend, &*self.plan), transfer.host());
        let output = node.outputs[0];
        let Some(&input) = node.inputs.first() else {
            return copy((host.0, host.1, own), (backend, device, output));
        };
        let Some(&(program, step, arrives)) = self.adds.get(&own) else {
            copy((backend, device, input), (host.0, host.1, own))?;
            return match device.range(input) == device.range(output) {
                true => Ok(()),
                false => copy((host.0, host.1, own), (backend, device, output)),
            };
        };
        copy((backend, device, input), (host.0, host.1, arrives))?;
        self.backend.run(program, step..step + 1)
    }
}

/// The sums of what arrives, as [`Host`] has them.
fn adds(plan: &Plan) -> BTreeMap<Tensor, (usize, usize, Tensor)> {
    let mut adds = BTreeMap::new();
    for (program, list) in plan.graph.programs.iter().enumerate() {
        for (step, node) in list.nodes.iter().enumerate().filter(|_| list.name == ADD) {
            let [sum, arrives] = node.inputs[..] else { continue };
            adds.insert(plan.graph.storage(sum), (program, step, arrives));
        }
    }
    adds
}

/// A tensor of a plan on a device.
type At<'a> = (&'a mut dyn Backend, &'a Plan, Tensor);

/// Copies the bytes of a tensor from one device to another.
fn copy((from, plan, tensor): At<'_>, (to, other, copy): At<'_>) -> Result<(), DeviceError> {
    let place =
        |plan: &Plan, tensor| plan.range(tensor).expect("what is copied has a place in both plans");
    let ((source, bytes), (target, _)) = (place(plan, tensor), place(other, copy));
    let mut first = 0;
    while first < bytes {
        let piece = PIECE.min(bytes - first);
        let range = source + first..source + first + piece;
        let read = now(from.read(slice::from_ref(&range)))?;
        to.write(target + first, &read)?;
        first += piece;
    }
    Ok(())
}
