//! Opening the device that the settings name.

use std::path::Path;
use std::sync::Once;

use anyhow::anyhow;
use pollster::block_on;
use tightrope_backend_cpu::Cpu;
use tightrope_backend_cuda::Cuda;
use tightrope_backend_cuda::driver::Gpu;
use tightrope_backend_cuda::products::Makers;
use tightrope_backend_wgpu::{Options as Adapter, Wgpu, adapters};
use tightrope_core::launch::Limits;
use tightrope_core::{Backend, DeviceError};

use crate::error::{Failure, Help as _};
use crate::rates::cache_folder;
use crate::settings::{Device, Matmul, Precision, Settings};

/// The device that the settings name.
///
/// # Errors
/// One that this build or this machine doesn't have.
pub fn device(settings: &Settings) -> Result<Box<dyn Backend>, Failure> {
    Devices::default().open(settings)
}

/// Opens a device, and others in its place.
#[derive(Debug, Default)]
pub struct Devices {
    /// What launches of the first GPU were made for. One that takes its place is used alike, though it may
    /// measure another speed, so that plans and numbers stay.
    limits: Option<Limits>,
}

impl Devices {
    /// The device that the settings name. Once a GPU was found, a GPU: a run doesn't change over to another
    /// device.
    ///
    /// # Errors
    /// One that this build or this machine doesn't have.
    pub fn open(&mut self, settings: &Settings) -> Result<Box<dyn Backend>, Failure> {
        let hardware = Adapter { hardware: true, ..Adapter::default() };
        match settings.run.device {
            Device::Auto if self.limits.is_some() => {
                self.gpu(&hardware).help("resume the run once the GPU answers again")
            }
            Device::Auto if has_gpu(Path::new(DEVICE_NODES)) => match self.gpu(&hardware) {
                Ok(gpu) => Ok(gpu),
                Err(_) => cpu(settings),
            },
            Device::Auto | Device::Cpu => cpu(settings),
            Device::Wgpu(adapter) => self
                .gpu(&Adapter { adapter, ..Adapter::default() })
                .help("use --device cpu or --device auto"),
            Device::Cuda(ordinal) => match open_cuda(ordinal) {
                Ok(gpu) => Ok(Box::new(multiplying(gpu, settings)?)),
                Err(problem) => Err(Failure::failed(
                    anyhow!("no device `{}`: {problem}", settings.run.device),
                    format!("found: {}; use --device with one of these, or auto", found()),
                )),
            },
        }
    }

    fn gpu(&mut self, options: &Adapter) -> Result<Box<dyn Backend>, DeviceError> {
        let mut wgpu = block_on(Wgpu::open(options))?;
        let first = self.limits.get_or_insert_with(|| wgpu.limits().clone());
        wgpu.restrict(|limits| limits.clone_from(first));
        Ok(Box::new(wgpu))
    }
}

/// The processor as a device.
///
/// # Errors
/// When the system refuses its threads.
pub fn cpu(settings: &Settings) -> Result<Box<dyn Backend>, Failure> {
    let cpu = Cpu::new(settings.run.threads.unwrap_or(0))
        .help("lower run.threads, or leave it out to use every core")?;
    Ok(Box::new(cpu))
}

/// A GPU that multiplies as the settings say. Where NVIDIA's library is missing, says so once.
fn multiplying(mut gpu: Cuda, settings: &Settings) -> Result<Cuda, Failure> {
    static SAID: Once = Once::new();
    if settings.run.precision == Precision::Tf32 {
        let refused =
            |problem: String| Failure::usage(anyhow!(problem), "use --precision f32 or f16");
        gpu.round_to_tf32().map_err(refused)?;
    }
    let makers = match settings.run.matmul {
        Matmul::Auto => Makers::Fastest,
        Matmul::Own => Makers::Kernels,
        Matmul::Cublaslt => Makers::Library,
    };
    match gpu.products_by(makers) {
        Err(problem) if makers == Makers::Library => Err(Failure::failed(
            anyhow!("`run.matmul` is cublaslt: {problem}"),
            "install it, or leave run.matmul at auto",
        )),
        Err(problem) => {
            SAID.call_once(|| {
                eprintln!("{problem}; until then, the engine's own kernels multiply matrices");
            });
            Ok(gpu)
        }
        Ok(()) => Ok(gpu),
    }
}

/// GPU number `ordinal` of NVIDIA's.
///
/// # Errors
/// Why there's none, in words.
pub fn open_cuda(ordinal: usize) -> Result<Cuda, String> {
    let kernels = cache_folder().unwrap_or_else(std::env::temp_dir).join("cuda");
    match Gpu::open(ordinal, kernels) {
        Ok(gpu) => Ok(Cuda::new(Box::new(gpu))),
        Err(DeviceError::Lost { reason, .. }) => Err(reason),
        Err(other) => Err(other.to_string()),
    }
}

/// Whether a device can go away and its memory with it: all but the processor.
pub fn can_be_lost(device: &dyn Backend) -> bool {
    !device.name().starts_with("cpu")
}

/// Where Linux shows devices.
const DEVICE_NODES: &str = "/dev";

/// Whether there can be a GPU. On Linux, all drivers have a node in `nodes`; asking the drivers themselves
/// loads every one of them, a processor's emulation too, which takes some 50 MiB. Elsewhere, only they know.
fn has_gpu(nodes: &Path) -> bool {
    let any = |folder: &Path, known: &dyn Fn(&str) -> bool| {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries.into_iter().any(|entry| entry.file_name().to_str().is_some_and(known))
    };
    !cfg!(target_os = "linux")
        || any(&nodes.join("dri"), &|name| name.starts_with("renderD"))
        || any(nodes, &|name| name.starts_with("nvidia") || matches!(name, "dxg" | "kfd"))
}

/// The devices of this machine, for a message.
fn found() -> String {
    let cpu = Cpu::new(0).map_or_else(|_| "cpu".to_owned(), |cpu| cpu.name());
    let gpus = block_on(adapters()).into_iter().enumerate();
    let gpus = gpus.map(|(index, gpu)| format!("wgpu:{index} ({})", gpu.name));
    std::iter::once(cpu).chain(gpus).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn drivers_are_asked_only_where_a_gpu_has_a_node() {
        for (node, expected) in [
            ("dri/renderD128", true),
            ("nvidia0", true),
            ("nvidiactl", true),
            ("dxg", true),
            ("kfd", true),
            ("dri/card0", false),
            ("null", false),
        ] {
            let nodes = tempfile::tempdir().unwrap();
            assert!(!has_gpu(nodes.path()));
            let path = nodes.path().join(node);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
            assert_eq!(has_gpu(nodes.path()), expected, "{node}");
        }
    }
}
