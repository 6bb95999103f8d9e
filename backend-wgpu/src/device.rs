//! Opening a device, and keeping what goes wrong on it as a value.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use tightrope_core::DeviceError;
use tightrope_core::launch::{Api, Limits, WebGpuLimits};

use crate::tiles;

/// What to ask of an adapter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Only what every WebGPU adapter offers: its default limits, no optional feature.
    pub default_limits: bool,
    /// Position among the adapters found, for machines with several.
    pub adapter: usize,
    /// Refuse a processor's emulation of a GPU.
    pub hardware: bool,
}

/// A device, for people and for the page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Description {
    /// Name that the driver gives the adapter.
    pub name: String,
    /// Vulkan, Metal, DX12 or the browser's WebGPU.
    pub backend: String,
    /// Its driver and the driver's version, as far as it says.
    pub driver: String,
    /// Discrete, integrated or virtual GPU, CPU, or other.
    pub kind: String,
    /// Most bytes of one buffer.
    pub buffer_bytes: u64,
    /// Most bytes of one binding.
    pub binding_bytes: u64,
    /// Most tensors of one launch.
    pub bindings: u32,
    /// Bytes of memory that a workgroup shares.
    pub shared_bytes: u32,
    /// Most threads of a workgroup.
    pub workgroup: u32,
    /// Whether the device can time its own work.
    pub timestamps: bool,
    /// Whether it loads and stores f16 itself.
    pub native_f16: bool,
    /// Whether it's a software adapter that loads and stores words of 64 bits.
    pub wide_words: bool,
    /// Whether threads can share registers, and the fewest and most of them that may.
    pub subgroups: Option<(u32, u32)>,
    /// Edge of the squares of f16 that subgroups multiply into f32, where they can.
    pub cooperative: Option<u32>,
}

impl Description {
    fn new(adapter: &wgpu::Adapter, limits: &wgpu::Limits, features: wgpu::Features) -> Self {
        let info = adapter.get_info();
        let sizes = (info.subgroup_min_size, info.subgroup_max_size);
        Self {
            name: info.name,
            backend: format!("{:?}", info.backend),
            driver: [info.driver, info.driver_info].join(" ").trim().to_owned(),
            kind: format!("{:?}", info.device_type),
            buffer_bytes: limits.max_buffer_size,
            binding_bytes: limits.max_storage_buffer_binding_size,
            // Metal needs a slot for the lengths of buffers.
            bindings: limits.max_storage_buffers_per_shader_stage - 1,
            shared_bytes: limits.max_compute_workgroup_storage_size,
            workgroup: limits.max_compute_invocations_per_workgroup,
            timestamps: features.contains(wgpu::Features::TIMESTAMP_QUERY),
            native_f16: features.contains(wgpu::Features::SHADER_F16),
            wide_words: info.device_type == wgpu::DeviceType::Cpu && features.contains(WIDE_WORDS),
            subgroups: features.contains(wgpu::Features::SUBGROUP).then_some(sizes),
            cooperative: square_edge(adapter).filter(|_| features.contains(COOPERATIVE)),
        }
    }

    /// Whether it's a processor pretending to be a GPU.
    pub fn is_software(&self) -> bool {
        self.kind == "Cpu"
    }
}

/// The first failure of a device that no caller has been told of as it happened.
#[derive(Clone, Default)]
pub struct Failure(Arc<Mutex<Option<DeviceError>>>);

impl Failure {
    fn lock(&self) -> MutexGuard<'_, Option<DeviceError>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps `error` unless there was one before. A lost device explains everything else.
    pub fn set(&self, error: DeviceError) {
        let mut kept = self.lock();
        let lost = matches!(error, DeviceError::Lost { .. });
        if kept.is_none() || (lost && !matches!(*kept, Some(DeviceError::Lost { .. }))) {
            *kept = Some(error);
        }
    }

    /// `Err` with the failure, where there was one.
    fn check(&self) -> Result<(), DeviceError> {
        self.lock().clone().map_or(Ok(()), Err)
    }

    /// `Err` with the failure, where there was one, and forgets it unless it's the device's end.
    pub fn take(&self) -> Result<(), DeviceError> {
        let mut kept = self.lock();
        match &*kept {
            Some(DeviceError::Lost { .. }) | None => kept.clone().map_or(Ok(()), Err),
            Some(_) => kept.take().map_or(Ok(()), Err),
        }
    }
}

/// An open device.
pub struct Device {
    /// The device.
    pub device: wgpu::Device,
    /// Its queue.
    pub queue: wgpu::Queue,
    /// What it is.
    pub description: Description,
    /// What launches are made for.
    pub limits: Limits,
    /// What went wrong on it.
    pub failure: Failure,
}

/// Matrices that a subgroup holds together. Only native adapters offer them, and wgpu calls them experimental.
const COOPERATIVE: wgpu::Features = wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX;

/// Words of 64 bits, which only software adapters gain by.
const WIDE_WORDS: wgpu::Features = wgpu::Features::SHADER_INT64;

/// Features that are used where an adapter has them. wgpu 30 doesn't ask a browser for subgroups.
const WANTED: wgpu::Features = wgpu::Features::TIMESTAMP_QUERY
    .union(wgpu::Features::SHADER_F16)
    .union(wgpu::Features::SUBGROUP);

/// Edge of the best squares for `shaders/matmul_cooperative.wgsl` that an adapter multiplies.
fn square_edge(adapter: &wgpu::Adapter) -> Option<u32> {
    let kinds = adapter.cooperative_matrix_properties();
    let offered = |edge: &u32| {
        kinds.iter().any(|kind| {
            [kind.m_size, kind.n_size, kind.k_size] == [*edge; 3]
                && kind.ab_type == wgpu::CooperativeScalarType::F16
                && kind.cr_type == wgpu::CooperativeScalarType::F32
        })
    };
    tiles::SQUARE_EDGES.into_iter().find(offered)
}

impl Device {
    /// Opens an adapter's device.
    ///
    /// # Errors
    /// [`DeviceError::Lost`] where there's no adapter or it refuses.
    pub async fn open(options: &Options) -> Result<Self, DeviceError> {
        let lost = |reason: String| DeviceError::Lost { device: "wgpu".into(), reason };
        let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
        descriptor.backends = wgpu::Backends::PRIMARY;
        let instance = wgpu::Instance::new(descriptor);
        let adapter = adapter(&instance, options.adapter).await.map_err(lost)?;
        let (info, offered) = (adapter.get_info(), adapter.limits());
        if options.hardware && info.device_type == wgpu::DeviceType::Cpu {
            return Err(lost(format!("{} is a processor's emulation of a GPU", info.name)));
        }
        let (limits, features) = if options.default_limits {
            (wgpu::Limits::default(), wgpu::Features::empty())
        } else {
            let mut wanted = WANTED;
            wanted.set(COOPERATIVE, square_edge(&adapter).is_some());
            wanted.set(WIDE_WORDS, info.device_type == wgpu::DeviceType::Cpu);
            (offered.clone(), adapter.features() & wanted)
        };
        let experimental_features = if features.contains(COOPERATIVE) {
            // SAFETY: an experimental feature may have bugs that reach memory. The kernel that uses this one stays
            // within its bindings, is validated when the workspace is built, and is used only where its results
            // agree with the plain kernel's when the device is opened.
            unsafe { wgpu::ExperimentalFeatures::enabled() }
        } else {
            wgpu::ExperimentalFeatures::disabled()
        };
        let request = wgpu::DeviceDescriptor {
            label: Some("tightrope"),
            required_features: features,
            required_limits: limits.clone(),
            experimental_features,
            memory_hints: wgpu::MemoryHints::MemoryUsage,
            ..Default::default()
        };
        let (device, queue) = adapter
            .request_device(&request)
            .await
            .map_err(|error| lost(format!("the adapter {} refuses: {error}", info.name)))?;
        let failure = Failure::default();
        listen(&device, &info.name, &failure);
        let description = Description::new(&adapter, &limits, features);
        let limits = Limits {
            workgroup: description.workgroup.min(limits.max_compute_workgroup_size_x),
            shared_bytes: description.shared_bytes.into(),
            bindings: description.bindings as usize,
            binding_bytes: description.binding_bytes,
            work: u64::MAX,
            tile: tiles::CANDIDATES[0],
            api: Api::WebGpu(WebGpuLimits {
                native_f16: description.native_f16,
                wide_words: description.wide_words,
                ..WebGpuLimits::default()
            }),
        };
        Ok(Self { device, queue, description, limits, failure })
    }

    /// Changes what launches are made for.
    pub fn offer(&mut self, change: impl FnOnce(&mut WebGpuLimits)) {
        self.limits = self.limits.clone().with_webgpu(change);
    }

    /// `Err` with the first failure, where there was one.
    ///
    /// # Errors
    /// That failure.
    pub fn check(&self) -> Result<(), DeviceError> {
        self.failure.check().or_else(|failure| {
            // A device that is gone refuses what it's given before it says that it's gone.
            if !matches!(failure, DeviceError::Lost { .. }) {
                let _ = self.device.poll(wgpu::PollType::wait_indefinitely());
            }
            self.failure.check()
        })
    }

    /// An error of the device's own, as a lost device.
    pub fn lost(&self, reason: &str) -> DeviceError {
        DeviceError::Lost { device: self.description.name.clone(), reason: reason.into() }
    }
}

/// The refusal of `need` bytes, of which `tensor` is the largest part.
pub fn out_of_memory(need: u64, tensor: Option<String>, device: &str) -> DeviceError {
    DeviceError::OutOfMemory { need, have: None, tensor, device: device.into() }
}

/// All adapters, in the order that [`Options::adapter`] counts, with all that each offers.
pub async fn adapters() -> Vec<Description> {
    let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
    descriptor.backends = wgpu::Backends::PRIMARY;
    let found = wgpu::Instance::new(descriptor).enumerate_adapters(wgpu::Backends::PRIMARY).await;
    let describe =
        |adapter: &wgpu::Adapter| Description::new(adapter, &adapter.limits(), adapter.features());
    found.iter().map(describe).collect()
}

/// The fastest adapter for 0, as the system ranks them; another by position.
async fn adapter(instance: &wgpu::Instance, position: usize) -> Result<wgpu::Adapter, String> {
    if position == 0 {
        let request = wgpu::RequestAdapterOptions {
            power_preference: wgpu::PowerPreference::HighPerformance,
            ..Default::default()
        };
        let found = instance.request_adapter(&request).await;
        return found.map_err(|_| {
            "no adapter was found; install a Vulkan driver (on Debian: mesa-vulkan-drivers libvulkan1), \
             or use `--device cpu`"
                .to_owned()
        });
    }
    let found = instance.enumerate_adapters(wgpu::Backends::PRIMARY).await;
    let count = found.len();
    found
        .into_iter()
        .nth(position)
        .ok_or_else(|| format!("{count} adapters were found, none is number {position}"))
}

/// Keeps errors and the loss of the device in `failure`.
fn listen(device: &wgpu::Device, name: &str, failure: &Failure) {
    let (kept, called) = (failure.clone(), name.to_owned());
    device.set_device_lost_callback(move |_, reason| {
        kept.set(DeviceError::Lost { device: called.clone(), reason });
    });
    let (kept, called) = (failure.clone(), name.to_owned());
    device.on_uncaptured_error(Arc::new(move |error| {
        kept.set(match error {
            wgpu::Error::OutOfMemory { .. } => out_of_memory(0, None, &called),
            wgpu::Error::Validation { description, .. } => {
                DeviceError::Compile { kernel: "unknown".into(), log: description }
            }
            wgpu::Error::Internal { description, .. } => {
                DeviceError::Lost { device: called.clone(), reason: description }
            }
        });
    }));
}
