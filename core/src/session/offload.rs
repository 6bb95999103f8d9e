//! Programs that run on the host, at the same time as those of the device, over tensors that the device then needn't hold; and
//! the transfers of the device's own programs.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::slice;
use std::sync::Arc;

use super::worker::Worker;
use super::{Session, SessionError};
use crate::backend::{Backend, DeviceError};
use crate::graph::{Graph, Life, Node, Program, Role, Tensor};
use crate::plan::offload::{PIECE, pieces};
use crate::plan::{Direction, Event, Plan};

/// The host's part of a session.
pub(super) struct Host {
    pub plan: Arc<Plan>,
    pub worker: Worker,
    /// Tensors that programs here alone change: their values are here.
    own: BTreeSet<Tensor>,
    /// What programs here read and the device may have changed.
    fetched: Vec<Tensor>,
    /// What they change and the device reads.
    sent: Vec<Tensor>,
    /// Of each sum of what arrives: the program and its step that adds to it, and where that reads it.
    adds: BTreeMap<Tensor, (usize, usize, Tensor)>,
}

/// Takes the programs of these roles out of `graph`, for a plan of their own. A tensor that both need keeps its handle
/// and has a place in both plans; what these programs alone need, or transfers to and from the host, leaves the graph's
/// plan.
pub fn split(graph: &mut Graph, roles: &[Role]) -> Graph {
    let mut host = graph.clone();
    let is_host = |program: &Program| roles.contains(&program.role);
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

/// The storage of everything that programs of these roles write.
fn written(graph: &Graph, is_one: impl Fn(Role) -> bool) -> BTreeSet<Tensor> {
    let programs = graph.programs.iter().filter(|program| is_one(program.role));
    let outputs = programs.flat_map(|program| &program.nodes).flat_map(|node| &node.outputs);
    outputs.map(|&tensor| graph.storage(tensor)).collect()
}

impl Session {
    /// Fetches from the device what a program of the host reads, runs it, and sends back what it changes.
    pub(super) async fn run_on_host(&mut self, program: usize) -> Result<(), SessionError> {
        #[cfg(not(target_family = "wasm"))]
        self.wait_for_ranks()?;
        if let Some(plan) = self.host.as_ref().map(|host| Arc::clone(&host.plan)) {
            self.keep_written(&plan.graph, &plan.graph.programs[program].nodes).await?;
        }
        if let Some(host) = &self.host {
            let wanted = host.fetched.iter().map(|&tensor| (tensor, tensor));
            host.fetch((&mut *self.backend, &self.plan), wanted).await?;
        }
        #[cfg(not(target_family = "wasm"))]
        let first = self.run_to_last_collective(program).await?;
        #[cfg(target_family = "wasm")]
        let first = 0;
        if let Some(host) = &self.host {
            host.worker.run(program, first..host.plan.programs[program].steps.len())?;
            for &tensor in &host.sent {
                host.send(tensor, (&mut *self.backend, &self.plan, tensor))?;
            }
        }
        Ok(())
    }
}

impl Host {
    /// Readies `plan` on `backend`; the `device` has another plan of the same tensors.
    pub fn new(
        device: &Plan,
        plan: Plan,
        mut backend: Box<dyn Backend + Send>,
    ) -> Result<Self, DeviceError> {
        let plan = Arc::new(plan);
        backend.prepare(Arc::clone(&plan))?;
        let graph = &plan.graph;
        let mut own = written(graph, |_| true);
        let shared = used(graph).into_iter().filter(|&tensor| device.range(tensor).is_some());
        let (mut sent, mut fetched): (Vec<_>, Vec<_>) =
            shared.partition(|tensor| own.contains(tensor));
        // Both sides change sums that ranks make on the host of what a device made. A browser's tab has no others to train with.
        if !cfg!(target_family = "wasm") {
            let changed = written(&device.graph, |_| true);
            fetched.extend(sent.iter().filter(|&tensor| changed.contains(tensor)));
            own.retain(|tensor| !changed.contains(tensor));
            // What the device clears next needn't go back.
            let cleared = written(&device.graph, |role| role == Role::Clear);
            sent.retain(|tensor| !cleared.contains(tensor));
        }
        let (adds, worker) = (adds(&plan), Worker::new(backend)?);
        Ok(Self { plan, worker, own, fetched, sent, adds })
    }

    /// Whether the values of `tensor` are here, where the device may hold a copy.
    pub fn holds(&self, tensor: Tensor) -> bool {
        self.own.contains(&self.plan.graph.storage(tensor))
    }

    /// Begins or ends a transfer of one of the device's programs.
    pub async fn transfer(
        &mut self,
        event: Event,
        nodes: &[Node],
        device: &Plan,
        backend: &mut dyn Backend,
    ) -> Result<(), DeviceError> {
        let (Event::Begin(_, step) | Event::End(_, step)) = event;
        let node = &nodes[step];
        let Some(transfer) = node.op.transfer() else { return Ok(()) };
        let (own, output) = (transfer.host(), node.outputs[0]);
        let (at, arrives) = (place(device, output), self.arrives(own));
        let stays = node.inputs.first().is_none_or(|&input| place(device, input) == at);
        match event {
            Event::Begin(direction, _) if stays && backend.copy_queues() => match direction {
                Direction::Load => {
                    self.worker.fill(place(&self.plan, own), backend.begin_load(at)?)
                }
                Direction::Store => backend.begin_store(at),
                Direction::Across => Ok(()),
            },
            Event::End(direction, _) if stays && backend.copy_queues() => match direction {
                Direction::Load => backend.end_load(self.worker.filled()?, at),
                Direction::Store => {
                    let target = place(&self.plan, arrives).start;
                    self.worker.take(target, backend.end_store(at)?)?;
                    self.add(own)
                }
                Direction::Across => Ok(()),
            },
            // In turn, piece by piece: the host holds no whole tensor besides.
            Event::End(Direction::Load, _) => self.send(own, (backend, device, output)),
            Event::Begin(Direction::Store, _) => {
                let input = node.inputs.first().copied().unwrap_or(output);
                self.fetch((backend, device), [(input, arrives)]).await?;
                if !stays {
                    self.send(arrives, (backend, device, output))?;
                }
                self.add(own)
            }
            // What goes to other ranks isn't the host's.
            Event::Begin(Direction::Load | Direction::Across, _)
            | Event::End(Direction::Store | Direction::Across, _) => Ok(()),
        }
    }

    /// Where a tensor of the host arrives: next to its sum, where it's added to one.
    fn arrives(&self, own: Tensor) -> Tensor {
        self.adds.get(&own).map_or(own, |&(.., arrives)| arrives)
    }

    /// Adds what arrived to its sum, where there is one.
    fn add(&self, own: Tensor) -> Result<(), DeviceError> {
        let Some(&(program, step, _)) = self.adds.get(&own) else { return Ok(()) };
        self.worker.run(program, step..step + 1)
    }

    /// Copies tensors of the device to those of the host. What is small is read together: in a browser, every reading waits
    /// for a turn of the event loop.
    async fn fetch(
        &self,
        (from, device): (&mut dyn Backend, &Plan),
        wanted: impl IntoIterator<Item = (Tensor, Tensor)>,
    ) -> Result<(), DeviceError> {
        let mut together = Together::default();
        for (tensor, to) in wanted {
            let (target, source) = (place(&self.plan, to).start, place(device, tensor));
            for range in pieces(&source) {
                if together.bytes + (range.end - range.start) > PIECE {
                    self.read(from, std::mem::take(&mut together)).await?;
                }
                together.add(target + range.start - source.start, range);
            }
        }
        self.read(from, together).await
    }

    /// Reads ranges of the device, and puts them in their places.
    async fn read(&self, from: &mut dyn Backend, what: Together) -> Result<(), DeviceError> {
        let read = from.read(&what.ranges).await?;
        if let [at] = what.targets[..] {
            return self.worker.write(at, read);
        }
        let mut rest = &read[..];
        for (range, at) in what.ranges.iter().zip(what.targets) {
            let (bytes, after) = rest.split_at((range.end - range.start) as usize);
            self.worker.write(at, bytes.to_vec())?;
            rest = after;
        }
        Ok(())
    }

    /// Copies a tensor of the host to one of the device.
    fn send(&self, from: Tensor, (to, device, tensor): At<'_>) -> Result<(), DeviceError> {
        let (source, target) = (place(&self.plan, from), place(device, tensor).start);
        for range in pieces(&source) {
            let read = self.worker.read(slice::from_ref(&range))?;
            to.write(target + range.start - source.start, &read)?;
        }
        Ok(())
    }
}

/// Ranges of the device that are read at once.
#[derive(Default)]
struct Together {
    ranges: Vec<Range<u64>>,
    /// Where each goes on the host.
    targets: Vec<u64>,
    bytes: u64,
}

impl Together {
    fn add(&mut self, target: u64, range: Range<u64>) {
        self.bytes += range.end - range.start;
        self.targets.push(target);
        self.ranges.push(range);
    }
}

/// A tensor of a plan on a device.
type At<'a> = (&'a mut dyn Backend, &'a Plan, Tensor);

/// The bytes of a tensor.
fn place(plan: &Plan, tensor: Tensor) -> Range<u64> {
    let (offset, bytes) = plan.range(tensor).expect("what is copied has a place in both plans");
    offset..offset + bytes
}

/// The sums of what arrives, as [`Host`] has them.
fn adds(plan: &Plan) -> BTreeMap<Tensor, (usize, usize, Tensor)> {
    let mut adds = BTreeMap::new();
    for (program, list) in plan.graph.programs.iter().enumerate() {
        for (step, node) in list.nodes.iter().enumerate().filter(|_| list.role == Role::Add) {
            let [sum, arrives] = node.inputs[..] else { continue };
            adds.insert(plan.graph.storage(sum), (program, step, arrives));
        }
    }
    adds
}
