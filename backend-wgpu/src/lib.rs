//! Tightrope on any GPU that wgpu finds: Vulkan, Metal and DX12 natively, WebGPU in a browser.
//!
//! | module | does |
//! |---|---|
//! | [`device`] | opens an adapter; keeps what goes wrong as a value |
//! | `arena` | the plan's bytes in one or several buffers |
//! | [`source`], `reachable` | launches as WGSL, without what an entry doesn't use |
//! | `subgroups` | whether neighbouring threads share registers as kernels assume |
//! | `recording` | a plan as pipelines, bind groups and dispatches |
//! | `in_flight` | submissions that the device hasn't done, of which there are few |
//! | `pace`, `calibrate`, `timer` | how long work takes, guessed, measured at the start, and by the device's clock |
//! | `variants` | the kernels of ops, and those that others stand in for |
//! | [`tiles`] | tile shapes, and the limits every adapter has |

mod arena;
mod calibrate;
pub mod device;
#[cfg(feature = "faults")]
mod faults;
mod in_flight;
mod pace;
mod reachable;
mod recording;
pub mod source;
mod subgroups;
pub mod tiles;
mod timer;
#[cfg(test)]
mod validation;
#[cfg(not(target_family = "wasm"))]
mod variants;

use std::ops::Range;
use std::sync::Arc;

#[cfg(not(target_family = "wasm"))]
use tightrope_core::Variants;
use tightrope_core::launch::{BINDING_ALIGNMENT, Limits};
use tightrope_core::plan::Target;
use tightrope_core::{Backend, Cancel, DeviceError, DeviceKind, Op, Phase, Plan, Reading, Type};

use arena::{Answer, Arena};
use device::Device;
pub use device::{Description, Options, adapters};
use in_flight::InFlight;
use pace::Pace;
use recording::{Compiled, Recording};
use timer::Timer;

/// A GPU as a device.
pub struct Wgpu {
    device: Device,
    compiled: Compiled,
    pace: Pace,
    timer: Option<Timer>,
    in_flight: InFlight,
    /// Whether a plan is compiled as a whole when it's prepared.
    compiles_early: bool,
    loaded: Option<Loaded>,
}

/// A plan with its memory.
struct Loaded {
    plan: Arc<Plan>,
    arena: Arena,
    /// Allocations that the device has not answered for yet.
    answers: Vec<Answer>,
    recording: Recording,
}

impl Wgpu {
    /// Opens an adapter and measures it for a moment.
    ///
    /// # Errors
    /// [`DeviceError::Lost`] where there's none, or it refuses.
    pub async fn open(options: &Options) -> Result<Self, DeviceError> {
        let mut device = Device::open(options).await?;
        let threads = subgroups::threads(&device).await?;
        device.offer(|own| own.subgroup = threads);
        let (compiled, pace) = (Compiled::default(), Pace::default());
        let mut opened = Self {
            device,
            compiled,
            pace,
            timer: None,
            in_flight: InFlight::default(),
            compiles_early: false,
            loaded: None,
        };
        let (tile, rate) = calibrate::fastest(&mut opened).await?;
        opened.device.limits.tile = tile;
        // A power of two, so that a small change of the measurement doesn't change plans.
        opened.device.limits.work = 1 << (rate * pace::LAUNCH_S).max(1.0).log2() as u32;
        opened.pace.set_rate(rate);
        let cooperative = calibrate::cooperative(&mut opened).await?;
        opened.device.offer(|own| own.cooperative = cooperative);
        Ok(opened)
    }

    /// What was opened.
    pub fn describe(&self) -> &Description {
        &self.device.description
    }

    /// Operations a second, as seen so far: at first, of matmuls.
    pub fn rate(&self) -> f64 {
        self.pace.rate()
    }

    /// What launches are made for.
    pub fn limits(&self) -> &Limits {
        &self.device.limits
    }

    /// Pretends that the device can do less, to try what other devices need.
    pub fn restrict(&mut self, restrict: impl FnOnce(&mut Limits)) {
        restrict(&mut self.device.limits);
    }

    /// Pretends that no buffer can be larger.
    pub fn restrict_buffers(&mut self, bytes: u64) {
        self.device.description.buffer_bytes = bytes;
    }

    /// Makes the device go away, as a driver reset does.
    pub fn lose(&self) {
        self.device.device.destroy();
    }

    /// Makes the device go away when it's called, as a driver reset does, wherever the backend is by then.
    pub fn loser(&self) -> impl Fn() + 'static {
        let device = self.device.device.clone();
        move || device.destroy()
    }

    /// Times every submission from here on, by the device's own clock; `false` where it has none. Takes 32 KiB
    /// that no plan counts.
    pub fn time_submissions(&mut self) -> bool {
        self.timer = self.device.description.timestamps.then(|| Timer::new(&self.device));
        self.timer.is_some()
    }

    /// Seconds of each submission since the last call, of the most recent thousand or so.
    ///
    /// # Errors
    /// The device's failure.
    pub async fn submission_seconds(&mut self) -> Result<Vec<f64>, DeviceError> {
        match &mut self.timer {
            Some(timer) => timer.seconds(&self.device).await,
            None => Ok(vec![]),
        }
    }

    /// Bytes that the device's allocator says it gave to the buffers of the plan, with what the driver pads each by; `None`
    /// on Metal and in browsers, where nobody says.
    pub fn reported_bytes(&self) -> Option<u64> {
        arena::reported_bytes(&self.device)
    }

    fn loaded(&self) -> &Loaded {
        self.loaded.as_ref().expect("a plan was prepared before it's used")
    }

    /// Waits for the device's answers to allocations.
    async fn answered(&mut self) -> Result<(), DeviceError> {
        let Some(loaded) = &mut self.loaded else { return Ok(()) };
        for Answer { range, error } in loaded.answers.drain(..) {
            if error.await.is_some() {
                let tensor = largest_in(&loaded.plan, &range);
                let need = loaded.plan.peak_bytes();
                return Err(device::out_of_memory(need, tensor, &self.device.description.name));
            }
        }
        self.device.check()
    }
}

/// Name of the largest tensor within a part of the arena.
fn largest_in(plan: &Plan, part: &Range<u64>) -> Option<String> {
    let within = plan
        .graph
        .tensors
        .iter()
        .zip(&plan.offsets)
        .filter(|(_, offset)| offset.is_some_and(|offset| part.contains(&offset)));
    within.max_by_key(|(info, _)| info.ty.bytes()).map(|(info, _)| info.name.clone())
}

impl Target for Wgpu {
    fn alignment(&self) -> u64 {
        BINDING_ALIGNMENT
    }

    fn workspace(&self, op: &Op, inputs: &[&Type], outputs: &[&Type]) -> u64 {
        // What has no kernel is refused when the plan is prepared.
        op.launch_needs(&self.device.limits, inputs, outputs).0
    }

    fn in_place(&self, op: &Op) -> bool {
        // Kernels read each element before they write it. But the loss's gradient of x is made before that of its
        // head, which reads x.
        !matches!(op, Op::LinearCrossEntropyGrad(_) | Op::LinearDistillationGrad(_))
    }

    fn parameters(&self, op: &Op, inputs: &[&Type], outputs: &[&Type]) -> u64 {
        recording::parameter_bytes(op.launch_needs(&self.device.limits, inputs, outputs).1)
    }

    fn staging(&self) -> u64 {
        arena::STAGING_BYTES
    }

    fn buffer_bytes(&self) -> u64 {
        arena::page_bytes(&self.device)
    }

    fn operands(&self) -> usize {
        self.device.limits.bindings
    }
}

impl Backend for Wgpu {
    fn kind(&self) -> DeviceKind {
        DeviceKind::Wgpu
    }

    fn name(&self) -> String {
        let Description { name, backend, .. } = &self.device.description;
        format!("wgpu ({name}, {backend})")
    }

    #[cfg(not(target_family = "wasm"))]
    fn variants(&mut self) -> Option<&mut dyn Variants> {
        Some(self)
    }

    fn prepare(&mut self, plan: Arc<Plan>) -> Result<(), DeviceError> {
        self.loaded = None;
        self.device.failure.take()?;
        let (arena, answers) = Arena::new(&self.device, plan.arena_bytes);
        self.loaded = Some(Loaded { plan, arena, answers, recording: Recording::default() });
        // A browser answers when its event loop runs: the next read says what came of it.
        #[cfg(not(target_arch = "wasm32"))]
        pollster::block_on(self.answered()).inspect_err(|_| self.loaded = None)?;
        let Some(loaded) = &mut self.loaded else { return self.device.check() };
        let Loaded { plan, arena, recording, .. } = loaded;
        *recording = Recording::new(&self.device, plan)?;
        // Compiling would show in the time of the first step; who only looks now and then can wait.
        for (index, program) in plan.graph.programs.iter().enumerate() {
            let trains = program.nodes.iter().any(|node| node.phase != Phase::Forward);
            if trains || self.compiles_early {
                let all = 0..program.nodes.len();
                recording.ready(&self.device, &mut self.compiled, (plan, arena), (index, all))?;
            }
        }
        self.device.check()
    }

    fn allocated_bytes(&self) -> u64 {
        self.loaded
            .as_ref()
            .map_or(0, |loaded| loaded.arena.buffer_bytes() + loaded.recording.buffer_bytes())
    }

    fn write(&mut self, at: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.device.check()?;
        self.loaded().arena.write(&self.device, at, data);
        Ok(())
    }

    fn run(
        &mut self,
        program: usize,
        steps: Range<usize>,
        cancel: &Cancel,
    ) -> Result<(), DeviceError> {
        self.device.check()?;
        cancel.check()?;
        let loaded = self.loaded.as_mut().expect("a plan was prepared before it's used");
        let Loaded { plan, arena, recording, .. } = loaded;
        let part = (program, steps.clone());
        recording.ready(&self.device, &mut self.compiled, (plan, arena), part)?;
        let mut dispatches = recording.dispatches(program, steps).peekable();
        while let Some(first) = dispatches.next() {
            cancel.check()?;
            let mut encoder = self.device.device.create_command_encoder(&Default::default());
            let timestamp_writes = self.timer.as_mut().map(Timer::next);
            let descriptor = wgpu::ComputePassDescriptor { label: None, timestamp_writes };
            let mut pass = encoder.begin_compute_pass(&descriptor);
            let mut seconds = self.pace.seconds(first.cost);
            first.encode(&mut pass);
            self.pace.queue(first.cost);
            while let Some(next) = dispatches.next_if(|next| {
                seconds += self.pace.seconds(next.cost);
                seconds <= pace::SUBMISSION_S
            }) {
                next.encode(&mut pass);
                self.pace.queue(next.cost);
            }
            drop(pass);
            let submission = self.device.queue.submit([encoder.finish()]);
            self.in_flight.push(&self.device, submission);
        }
        Ok(())
    }

    fn read(&mut self, ranges: &[Range<u64>]) -> Reading<'_> {
        let ranges = ranges.to_vec();
        Box::pin(async move {
            self.answered().await?;
            self.pace.wait();
            let bytes = self.loaded().arena.read(&self.device, &ranges).await?;
            self.pace.done();
            Ok(bytes)
        })
    }
}
