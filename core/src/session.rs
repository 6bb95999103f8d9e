//! `Session`: a plan on a device, and a second plan on the host where something is offloaded.

#[cfg(not(target_family = "wasm"))]
mod collective;
#[cfg(not(target_family = "wasm"))]
mod linked;
mod look;
mod offload;
mod worker;

use std::ops::Range;
use std::sync::Arc;

use crate::backend::{Backend, DeviceError, now};
use crate::cancel::Cancel;
use crate::graph::{Class, Role, Tensor};
#[cfg(not(target_family = "wasm"))]
use crate::ops::Direction;
use crate::plan::{Event, Plan};
#[cfg(not(target_family = "wasm"))]
use crate::ranks::{Ranks, RanksError};
use crate::types::DType;

#[cfg(not(target_family = "wasm"))]
use collective::Side;
#[cfg(not(target_family = "wasm"))]
pub use collective::Wait;
pub use look::NonFinite;
pub use offload::split;

use look::Look;
use offload::Host;

/// A plan on a device.
pub struct Session {
    plan: Arc<Plan>,
    backend: Box<dyn Backend>,
    host: Option<Host>,
    /// Bytes to put back at the end of a look; `None` outside of one.
    look: Option<Look>,
    #[cfg(not(target_family = "wasm"))]
    ranks: Option<Box<dyn Ranks>>,
    #[cfg(not(target_family = "wasm"))]
    waits: collective::Waits,
    /// Whether the device makes collectives itself.
    linked: bool,
    cancel: Cancel,
}

/// What went wrong in a session.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SessionError {
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A program or tensor isn't in the plan.
    #[error(transparent)]
    Graph(#[from] crate::Error),
    /// Bytes of the wrong length were written to a tensor.
    #[error("`{tensor}` takes {expected} bytes, got {got}")]
    Length {
        /// Name of the tensor.
        tensor: String,
        /// Bytes it has.
        expected: usize,
        /// Bytes given.
        got: usize,
    },
    /// No program of the plan uses the tensor, so it has no bytes.
    #[error("`{0}` has no place in the plan: no program uses it")]
    NoPlace(String),
    /// A tensor is moved to or from the host, and the session has none.
    #[error("`{0}` is moved between the device and the host, and this session was given no host")]
    NoHost(String),
    /// The other ranks can't be reached, or did something else.
    #[cfg(not(target_family = "wasm"))]
    #[error(transparent)]
    Ranks(#[from] RanksError),
    /// A program has collectives of another number of ranks than the session.
    #[cfg(not(target_family = "wasm"))]
    #[error("`{tensor}` is shared by {planned} ranks, and this session is of {joined}")]
    OtherRanks {
        /// What is sent.
        tensor: String,
        /// Ranks that the plan is for.
        planned: usize,
        /// Ranks that the session joined.
        joined: usize,
    },
}

impl Session {
    /// Allocates and readies `plan` on `backend`.
    ///
    /// # Errors
    /// As [`Backend::prepare`].
    pub fn new(plan: Plan, mut backend: Box<dyn Backend>) -> Result<Self, DeviceError> {
        let plan = Arc::new(plan);
        backend.prepare(Arc::clone(&plan))?;
        let linked = backend.links().is_some_and(|links| links.linked().is_some());
        Ok(Self {
            plan,
            backend,
            host: None,
            look: None,
            #[cfg(not(target_family = "wasm"))]
            ranks: None,
            #[cfg(not(target_family = "wasm"))]
            waits: collective::Waits::default(),
            linked,
            cancel: Cancel::default(),
        })
    }

    /// As [`Session::new`], with a plan of what was [`split`] off readied on the host. Its programs run there, on what
    /// they read of the device's tensors, and what they change is sent back. Transfers of the device's programs are made
    /// where they stand.
    ///
    /// # Errors
    /// As [`Backend::prepare`].
    pub fn offloading(
        plan: Plan,
        backend: Box<dyn Backend>,
        host: (Plan, Box<dyn Backend + Send>),
    ) -> Result<Self, DeviceError> {
        let mut session = Self::new(plan, backend)?;
        session.host = Some(Host::new(&session.plan, host.0, host.1)?);
        Ok(session)
    }

    /// Gives the session its way to the other ranks, with whom it makes the collectives of its programs.
    #[cfg(not(target_family = "wasm"))]
    pub fn join(&mut self, ranks: Box<dyn Ranks>) {
        self.ranks = Some(ranks);
    }

    /// Stops a program once `cancel` is requested, up to the step that [commits](crate::plan::ProgramPlan::commits_at) it. Programs of the
    /// host and those on a device that is linked with others are finished.
    pub fn cancel_by(&mut self, cancel: Cancel) {
        self.cancel = cancel;
    }

    /// The plan of what runs on the host.
    pub fn host_plan(&self) -> Option<&Plan> {
        self.host.as_ref().map(|host| &*host.plan)
    }

    /// The plan that is replayed.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The device.
    pub fn backend(&self) -> &dyn Backend {
        &*self.backend
    }

    /// Gives the device back, for another plan.
    pub fn into_backend(self) -> Box<dyn Backend> {
        self.backend
    }

    /// Where the values of `tensor` are: whether with the host, and its bytes in that arena.
    fn place(&self, tensor: Tensor) -> Result<(bool, Range<u64>), SessionError> {
        let host = self.host.as_ref().filter(|host| {
            host.plan.range(tensor).is_some()
                && (host.holds(tensor) || self.plan.range(tensor).is_none())
        });
        let plan = host.map_or(&self.plan, |host| &host.plan);
        let name = || self.plan.graph.info(tensor).name.clone();
        let (offset, bytes) = plan.range(tensor).ok_or_else(|| SessionError::NoPlace(name()))?;
        Ok((host.is_some(), offset..offset + bytes))
    }

    /// The refusal of bytes that aren't as many as a tensor has, or lie beyond them.
    fn length(&self, tensor: Tensor, expected: usize, got: usize) -> SessionError {
        SessionError::Length { tensor: self.plan.graph.info(tensor).name.clone(), expected, got }
    }

    /// Sets the bytes that this process holds of a tensor, little-endian elements in row-major order.
    ///
    /// # Errors
    /// [`SessionError::Length`] and those of the device.
    pub fn write(&mut self, tensor: Tensor, bytes: &[u8]) -> Result<(), SessionError> {
        let (_, range) = self.place(tensor)?;
        let expected = (range.end - range.start) as usize;
        if bytes.len() != expected {
            return Err(self.length(tensor, expected, bytes.len()));
        }
        self.write_from(tensor, 0, bytes)
    }

    /// Sets the bytes of a tensor from `first` on.
    fn write_from(
        &mut self,
        tensor: Tensor,
        first: usize,
        bytes: &[u8],
    ) -> Result<(), SessionError> {
        let (_, range) = self.place(tensor)?;
        let (expected, got) = ((range.end - range.start) as usize, first + bytes.len());
        if got > expected {
            return Err(self.length(tensor, expected, got));
        }
        if self.look.is_some() && self.plan.graph.info(tensor).class != Class::Input {
            now(self.keep(tensor))?;
        }
        if let Some((offset, _)) = self.plan.range(tensor) {
            self.backend.write(offset + first as u64, bytes)?;
        }
        if let Some(host) = &mut self.host
            && let Some((offset, _)) = host.plan.range(tensor)
        {
            host.worker.write(offset + first as u64, bytes.to_vec())?;
        }
        Ok(())
    }

    /// Sets a tensor's elements, rounded to its dtype: of one that is cut among ranks, what this one holds of them.
    ///
    /// # Errors
    /// As [`Session::write`].
    pub fn write_values(&mut self, tensor: Tensor, values: &[f32]) -> Result<(), SessionError> {
        let bytes = self.bytes_of(tensor, values);
        #[cfg(not(target_family = "wasm"))]
        if let Some(sharded) = self.plan.graph.sharded.get(&tensor).cloned() {
            let expected = sharded.whole.bytes();
            if bytes.len() != expected {
                return Err(self.length(tensor, expected, bytes.len()));
            }
            return self.write_to_shard(tensor, &sharded, 0, &bytes);
        }
        self.write(tensor, &bytes)
    }

    /// Sets as many of a tensor's elements as there are `values`, from `first` on, as [`Session::write_values`].
    ///
    /// # Errors
    /// As [`Session::write`].
    pub fn write_values_from(
        &mut self,
        tensor: Tensor,
        first: usize,
        values: &[f32],
    ) -> Result<(), SessionError> {
        let (bytes, first) =
            (self.bytes_of(tensor, values), first * self.plan.graph.dtype(tensor).size());
        #[cfg(not(target_family = "wasm"))]
        if let Some(sharded) = self.plan.graph.sharded.get(&tensor).cloned() {
            return self.write_to_shard(tensor, &sharded, first, &bytes);
        }
        self.write_from(tensor, first, &bytes)
    }

    /// Values as the elements of a tensor, rounded to its dtype.
    fn bytes_of(&self, tensor: Tensor, values: &[f32]) -> Vec<u8> {
        let dtype = self.plan.graph.dtype(tensor);
        let mut bytes = vec![0; values.len() * dtype.size()];
        if dtype == DType::F32 {
            for (element, value) in bytes.chunks_exact_mut(4).zip(values) {
                element.copy_from_slice(&value.to_le_bytes());
            }
        } else {
            for (element, &value) in bytes.chunks_exact_mut(dtype.size()).zip(values) {
                dtype.write(element, value.into());
            }
        }
        bytes
    }

    /// Sets a tensor of token ids or positions.
    ///
    /// # Errors
    /// As [`Session::write`].
    pub fn write_ids(&mut self, tensor: Tensor, ids: &[i32]) -> Result<(), SessionError> {
        let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
        self.write(tensor, &bytes)
    }

    /// As [`Session::run_async`], natively.
    ///
    /// # Errors
    /// As [`Session::run_async`], and in a browser where something comes from the device to the host.
    pub fn run(&mut self, program: Role) -> Result<(), SessionError> {
        now(self.run_async(program))
    }

    /// Replays a program. Waits for the device alone where something comes from there to the host.
    ///
    /// # Errors
    /// [`crate::Error::NoProgram`], errors of the device, and [`DeviceError::Cancelled`] if it was stopped.
    pub async fn run_async(&mut self, program: Role) -> Result<(), SessionError> {
        if let Some(host) = &self.host
            && let Ok(index) = host.plan.graph.program(program)
        {
            return self.run_on_host(index).await;
        }
        let index = self.plan.graph.program(program)?;
        self.run_at(index).await
    }

    /// As [`Session::run_async`], of the program at `index`: several may have a role.
    ///
    /// # Errors
    /// Those of the device.
    ///
    /// # Panics
    /// Where there is no such program.
    pub async fn run_at(&mut self, index: usize) -> Result<(), SessionError> {
        let (plan, mut first) = (Arc::clone(&self.plan), 0);
        self.keep_written(&plan.graph, &plan.graph.programs[index].nodes).await?;
        let program = &plan.programs[index];
        let events: Vec<(usize, Event)> = program.events_of(self.linked).collect();
        for (position, &(step, event)) in events.iter().enumerate() {
            let done = self.replay(index, first..step);
            if done == Err(DeviceError::Cancelled) {
                self.end_transfers(index, &events, position).await?;
            }
            done?;
            first = step;
            self.transfer(index, event).await?;
        }
        Ok(self.replay(index, first..program.steps.len())?)
    }

    /// Replays steps of a program without anything between them. Those that commit it are finished.
    fn replay(&mut self, program: usize, steps: Range<usize>) -> Result<(), DeviceError> {
        let commits_at = if self.linked { 0 } else { self.plan.programs[program].commits_at };
        let cut = commits_at.clamp(steps.start, steps.end);
        let parts = [(steps.start..cut, &self.cancel), (cut..steps.end, &Cancel::default())];
        let mut parts = parts.into_iter().filter(|(steps, _)| !steps.is_empty());
        parts.try_for_each(|(steps, cancel)| self.backend.run(program, steps, cancel))
    }

    /// Ends the transfers of a program that were begun before the event at `position`, so that none is on its way.
    async fn end_transfers(
        &mut self,
        program: usize,
        events: &[(usize, Event)],
        position: usize,
    ) -> Result<(), SessionError> {
        for &(_, event) in &events[position..] {
            let Event::End(direction, step) = event else { continue };
            let begin = Event::Begin(direction, step);
            if events[..position].iter().any(|&(_, before)| before == begin) {
                self.transfer(program, event).await?;
            }
        }
        Ok(())
    }

    /// Begins or ends a transfer of a program.
    async fn transfer(&mut self, program: usize, event: Event) -> Result<(), SessionError> {
        let plan = Arc::clone(&self.plan);
        let nodes = &plan.graph.programs[program].nodes;
        let (Event::Begin(_, step) | Event::End(_, step)) = event;
        #[cfg(not(target_family = "wasm"))]
        if let Some(collective) = nodes[step].op.collective() {
            return match event {
                Event::Begin(..) => Ok(()),
                Event::End(..) => self.collective(collective, &nodes[step], Side::Device).await,
            };
        }
        // The host's thread would wait for a device that waits for a rank that is lost.
        #[cfg(not(target_family = "wasm"))]
        if !matches!(event, Event::Begin(Direction::Load, _)) {
            self.wait_for_ranks()?;
        }
        let name = || plan.graph.info(nodes[step].outputs[0]).name.clone();
        let host = self.host.as_mut().ok_or_else(|| SessionError::NoHost(name()))?;
        Ok(host.transfer(event, nodes, &plan, &mut *self.backend).await?)
    }

    /// The bytes that this process holds of a tensor, once the device has made them.
    ///
    /// # Errors
    /// [`SessionError::NoPlace`] and those of the device.
    pub async fn read(&mut self, tensor: Tensor) -> Result<Vec<u8>, SessionError> {
        self.read_all(&[tensor]).await
    }

    /// The bytes of `tensors`, one after the other, in one wait for the device.
    ///
    /// # Errors
    /// As [`Session::read`].
    pub async fn read_all(&mut self, tensors: &[Tensor]) -> Result<Vec<u8>, SessionError> {
        let places: Vec<_> =
            tensors.iter().map(|&tensor| self.place(tensor)).collect::<Result<_, _>>()?;
        self.read_places(&places).await
    }

    /// Bytes of the two arenas, one after the other as they are asked for.
    async fn read_places(
        &mut self,
        places: &[(bool, Range<u64>)],
    ) -> Result<Vec<u8>, SessionError> {
        let of = |with_host: bool| -> Vec<Range<u64>> {
            let own = places.iter().filter(|(hosted, _)| *hosted == with_host);
            own.map(|(_, range)| range.clone()).collect()
        };
        #[cfg(not(target_family = "wasm"))]
        self.wait_for_ranks()?;
        let Some(host) = &mut self.host else { return Ok(self.backend.read(&of(false)).await?) };
        let (of_host, of_device) = (of(true), of(false));
        if of_host.is_empty() {
            return Ok(self.backend.read(&of_device).await?);
        }
        let hosted = host.worker.read(&of_host)?;
        if of_device.is_empty() {
            return Ok(hosted);
        }
        let own = self.backend.read(&of_device).await?;
        let (mut hosted, mut own) = (&hosted[..], &own[..]);
        let mut bytes = Vec::with_capacity(hosted.len() + own.len());
        for (with_host, range) in places {
            let rest = if *with_host { &mut hosted } else { &mut own };
            let (next, after) = rest.split_at((range.end - range.start) as usize);
            bytes.extend_from_slice(next);
            *rest = after;
        }
        Ok(bytes)
    }

    /// The first element of each of `tensors`, as f32, in one wait for the device.
    ///
    /// # Errors
    /// As [`Session::read`].
    pub async fn read_scalars(&mut self, tensors: &[Tensor]) -> Result<Vec<f32>, SessionError> {
        let dtypes: Vec<DType> = tensors.iter().map(|&t| self.plan.graph.dtype(t)).collect();
        let mut places = vec![];
        for (&tensor, dtype) in tensors.iter().zip(&dtypes) {
            let (with_host, range) = self.place(tensor)?;
            places.push((with_host, range.start..range.start + dtype.size() as u64));
        }
        let bytes = self.read_places(&places).await?;
        let mut rest = &bytes[..];
        let mut first = |dtype: &DType| {
            let (element, after) = rest.split_at(dtype.size());
            rest = after;
            dtype.read(element) as f32
        };
        Ok(dtypes.iter().map(&mut first).collect())
    }

    /// A tensor's elements as f32: all of them where it's cut among ranks, which ask for them together.
    ///
    /// # Errors
    /// As [`Session::read`].
    pub async fn read_values(&mut self, tensor: Tensor) -> Result<Vec<f32>, SessionError> {
        if let Some(sharded) = self.plan.graph.sharded.get(&tensor) {
            let all = 0..sharded.whole.elements();
            return self.read_values_of(tensor, &[all]).await;
        }
        let dtype = self.plan.graph.dtype(tensor);
        let bytes = self.read(tensor).await?;
        Ok(dtype.values(&bytes))
    }

    /// These elements of a tensor as f32, one range after the other, as [`Session::read_values`].
    ///
    /// # Errors
    /// [`SessionError::Length`] past the tensor's end, and as [`Session::read`].
    pub async fn read_values_of(
        &mut self,
        tensor: Tensor,
        elements: &[Range<usize>],
    ) -> Result<Vec<f32>, SessionError> {
        #[cfg(not(target_family = "wasm"))]
        if let Some(sharded) = self.plan.graph.sharded.get(&tensor).cloned() {
            return self.read_from_shards(tensor, &sharded, elements).await;
        }
        let dtype = self.plan.graph.dtype(tensor);
        let (with_host, all) = self.place(tensor)?;
        let mut places = Vec::with_capacity(elements.len());
        for range in elements {
            let [start, end] =
                [range.start, range.end].map(|at| all.start + (at * dtype.size()) as u64);
            if end > all.end {
                let [expected, got] = [all.end, end].map(|at| (at - all.start) as usize);
                return Err(self.length(tensor, expected, got));
            }
            places.push((with_host, start..end));
        }
        let bytes = self.read_places(&places).await?;
        Ok(dtype.values(&bytes))
    }
}
