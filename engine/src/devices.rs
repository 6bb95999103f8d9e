//! Opening the device that a run is for.
//!
//! ```
//! use tightrope::devices::{Devices, Spec};
//! use tightrope::settings::Settings;
//!
//! let mut settings = Settings::default();
//! settings.run.device = tightrope::settings::Device::Cpu;
//! let device = Devices::default().open(&Spec::of(&settings))?;
//! assert_eq!(device.kind().name(), "cpu");
//! # Ok::<(), tightrope::Error>(())
//! ```

#[cfg(any(feature = "cuda", feature = "wgpu"))]
use std::path::Path;

use anyhow::anyhow;
#[cfg(feature = "cpu")]
use tightrope_backend_cpu::{
    Cpu,
    isa::{self, Isa},
};
#[cfg(feature = "emulation")]
use tightrope_backend_cuda::driver::{Emulated, Faults};
#[cfg(feature = "cuda")]
use tightrope_backend_cuda::{Cuda, Described, driver::Gpu, matmuls::Makers};
#[cfg(feature = "wgpu")]
use tightrope_backend_wgpu::Wgpu;
#[cfg(all(feature = "wgpu", feature = "cuda"))]
use tightrope_backend_wgpu::adapters;
use tightrope_core::Backend;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
use tightrope_core::DeviceError;
#[cfg(feature = "wgpu")]
use tightrope_core::launch::Limits;

use crate::cards::Card;
#[cfg(all(any(feature = "cuda", feature = "wgpu"), not(target_family = "wasm")))]
use crate::check::record;
#[cfg(any(feature = "cpu", feature = "wgpu"))]
use crate::error::Help as _;
use crate::error::{Error, Result};
use crate::machine;
use crate::settings::{Device, Matmul, Settings};

#[cfg(feature = "wgpu")]
pub use tightrope_backend_wgpu::Options as Adapter;

/// What to do on a GPU without TF32.
#[cfg(feature = "cuda")]
const INSTEAD_OF_TF32: &str = "use --precision f32 or f16";

/// Which device, and how it is used.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// The device.
    pub device: Device,
    /// Threads of the processor; 0 for all.
    pub threads: usize,
    /// Whether matmuls may round what they multiply to 10 bits after the point.
    pub tf32: bool,
    /// Who multiplies matrices on an NVIDIA GPU.
    pub matmul: Matmul,
    /// A GPU that isn't here, in place of a device: plans alone can be made for it.
    pub card: Option<&'static Card>,
}

impl Spec {
    /// What the settings say of the device.
    pub fn of(settings: &Settings) -> Self {
        let run = &settings.run;
        Self {
            device: run.device,
            threads: machine::threads(run.threads.unwrap_or(0)),
            tf32: run.precision.tf32,
            matmul: run.matmul,
            card: None,
        }
    }
}

/// Opens a device, and others in its place.
#[derive(Debug)]
pub struct Devices {
    /// Opens a GPU of NVIDIA's by its number.
    #[cfg(feature = "cuda")]
    nvidia: fn(usize) -> std::result::Result<Cuda, String>,
    /// Where the system shows devices.
    #[cfg(any(feature = "cuda", feature = "wgpu"))]
    nodes: &'static Path,
    /// The GPU of NVIDIA's that was taken first of all devices.
    #[cfg(feature = "cuda")]
    taken: Option<usize>,
    /// What launches of the first GPU were made for. One that takes its place is used alike, though it may
    /// measure another speed, so that plans and numbers stay.
    #[cfg(feature = "wgpu")]
    limits: Option<Limits>,
    /// What there is to tell of the devices, each said once.
    pub notes: Vec<String>,
}

impl Default for Devices {
    fn default() -> Self {
        Self {
            #[cfg(feature = "cuda")]
            nvidia: open_cuda,
            #[cfg(any(feature = "cuda", feature = "wgpu"))]
            nodes: Path::new(DEVICE_NODES),
            #[cfg(feature = "cuda")]
            taken: None,
            #[cfg(feature = "wgpu")]
            limits: None,
            notes: vec![],
        }
    }
}

impl Devices {
    /// The device that is asked for. Once a GPU was found, a GPU: a run doesn't change over to another
    /// device.
    ///
    /// # Errors
    /// One that this build or this machine doesn't have.
    pub async fn open_async(&mut self, spec: &Spec) -> Result<Box<dyn Backend>> {
        if let Some(card) = spec.card {
            return described(card, spec);
        }
        match spec.device {
            Device::Auto => self.fastest(spec).await,
            Device::Cpu => cpu(spec.threads),
            Device::Wgpu(index) => self.wgpu(index).await,
            Device::Cuda(ordinal) => self.cuda(ordinal, spec).await,
        }
    }

    /// [`Devices::open_async`], which blocks.
    ///
    /// # Errors
    /// As [`Devices::open_async`].
    #[cfg(not(target_family = "wasm"))]
    pub fn open(&mut self, spec: &Spec) -> Result<Box<dyn Backend>> {
        crate::block_on(self.open_async(spec))
    }

    /// The fastest kind of device that is here: a GPU of NVIDIA's by CUDA, any GPU by wgpu, the CPU. A note says why, where
    /// there is a GPU of NVIDIA's.
    async fn fastest(&mut self, spec: &Spec) -> Result<Box<dyn Backend>> {
        #[cfg(feature = "cuda")]
        if let Some(gpu) = self.fastest_nvidia(spec).await? {
            return Ok(gpu);
        }
        self.fastest_of_others(spec).await
    }

    /// The first GPU of NVIDIA's, where it can be used.
    #[cfg(feature = "cuda")]
    async fn fastest_nvidia(&mut self, spec: &Spec) -> Result<Option<Box<dyn Backend>>> {
        const FIRST: usize = 0;
        if let Some(ordinal) = self.taken {
            return self.cuda(ordinal, spec).await.map(Some);
        }
        // Where a run has begun on a GPU by wgpu, it stays there.
        #[cfg(feature = "wgpu")]
        if self.limits.is_some() {
            return Ok(None);
        }
        if !has_nvidia(self.nodes) {
            return Ok(None);
        }
        match (self.nvidia)(FIRST) {
            Ok(gpu) => {
                let mut gpu = self.multiplying(gpu, spec)?;
                if let Some(wrong) = record::unusable(&mut gpu) {
                    let name = gpu.name();
                    self.note(format!("--device auto doesn't take cuda:{FIRST}, {name}: {wrong}"));
                    return Ok(None);
                }
                self.taken = Some(FIRST);
                self.note(format!("--device auto takes cuda:{FIRST}, {}", gpu.name()));
                Ok(Some(Box::new(gpu)))
            }
            Err(problem) => {
                self.note(format!("--device auto can't take the NVIDIA GPU by CUDA: {problem}"));
                Ok(None)
            }
        }
    }

    /// Adds what there is to tell, unless it was told.
    #[cfg(any(feature = "cuda", all(feature = "wgpu", not(target_family = "wasm"))))]
    fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    #[cfg(feature = "wgpu")]
    async fn fastest_of_others(&mut self, spec: &Spec) -> Result<Box<dyn Backend>> {
        let hardware = Adapter { hardware: true, ..Adapter::default() };
        if self.limits.is_some() {
            return self.gpu(&hardware).await.help("resume the run once the GPU answers again");
        }
        if has_gpu(self.nodes)
            && let Ok(gpu) = self.gpu(&hardware).await
        {
            #[cfg(not(target_family = "wasm"))]
            let mut gpu = gpu;
            #[cfg(not(target_family = "wasm"))]
            if let Some(wrong) = record::unusable(&mut *gpu) {
                self.note(format!("--device auto doesn't take wgpu, {}: {wrong}", gpu.name()));
                return cpu(spec.threads);
            }
            return Ok(gpu);
        }
        cpu(spec.threads)
    }

    #[cfg(not(feature = "wgpu"))]
    async fn fastest_of_others(&mut self, spec: &Spec) -> Result<Box<dyn Backend>> {
        cpu(spec.threads)
    }

    #[cfg(feature = "wgpu")]
    async fn wgpu(&mut self, adapter: usize) -> Result<Box<dyn Backend>> {
        let options = Adapter { adapter, ..Adapter::default() };
        self.gpu(&options).await.help("use --device cpu or --device auto")
    }

    #[cfg(not(feature = "wgpu"))]
    async fn wgpu(&mut self, _adapter: usize) -> Result<Box<dyn Backend>> {
        Err(not_built("wgpu"))
    }

    #[cfg(feature = "wgpu")]
    async fn gpu(
        &mut self,
        options: &Adapter,
    ) -> std::result::Result<Box<dyn Backend>, DeviceError> {
        #[cfg(not(target_family = "wasm"))]
        {
            let mut gpu = self.wgpu_async(options).await?;
            record::leave_out(&mut gpu).into_iter().for_each(|note| self.note(note));
            Ok(Box::new(gpu))
        }
        #[cfg(target_family = "wasm")]
        Ok(Box::new(self.wgpu_async(options).await?))
    }

    /// A GPU by itself, for a program that asks more of it than a [`Backend`] answers.
    ///
    /// # Errors
    /// [`DeviceError::Lost`] where there's none, or it refuses.
    #[cfg(feature = "wgpu")]
    pub async fn wgpu_async(
        &mut self,
        options: &Adapter,
    ) -> std::result::Result<Wgpu, DeviceError> {
        let mut wgpu = Wgpu::open(options).await?;
        let first = self.limits.get_or_insert_with(|| wgpu.limits().clone());
        wgpu.restrict(|limits| limits.clone_from(first));
        Ok(wgpu)
    }

    #[cfg(feature = "cuda")]
    async fn cuda(&mut self, ordinal: usize, spec: &Spec) -> Result<Box<dyn Backend>> {
        let gpu = match (self.nvidia)(ordinal) {
            Ok(gpu) => gpu,
            Err(problem) => {
                return Err(Error::failed(
                    anyhow!("no device `{}`: {problem}", spec.device),
                    format!("found: {}; use --device with one of these, or auto", found().await),
                ));
            }
        };
        Ok(Box::new(self.multiplying(gpu, spec)?))
    }

    #[cfg(not(feature = "cuda"))]
    async fn cuda(&mut self, _ordinal: usize, _spec: &Spec) -> Result<Box<dyn Backend>> {
        Err(not_built("cuda"))
    }

    /// A GPU that multiplies as it is asked to. Where NVIDIA's library is missing, a note says so.
    #[cfg(feature = "cuda")]
    fn multiplying(&mut self, mut gpu: Cuda, spec: &Spec) -> Result<Cuda> {
        if spec.tf32 {
            let refused = |problem: String| Error::usage(anyhow!(problem), INSTEAD_OF_TF32);
            gpu.round_to_tf32().map_err(refused)?;
        }
        let makers = match spec.matmul {
            Matmul::Auto => Makers::Fastest,
            Matmul::Own => Makers::Kernels,
            Matmul::Cublaslt => Makers::Library,
        };
        match gpu.matmuls_by(makers) {
            Err(problem) if makers == Makers::Library => {
                return Err(Error::failed(
                    anyhow!("`run.matmul` is cublaslt: {problem}"),
                    "install it, or leave run.matmul at auto",
                ));
            }
            Err(problem) => {
                self.note(format!(
                    "{problem}; until then, the engine's own kernels multiply matrices"
                ));
            }
            Ok(()) => {}
        }
        record::leave_out(&mut gpu).into_iter().for_each(|note| self.note(note));
        Ok(gpu)
    }
}

/// The processor as a device, with so many threads; 0 for one on every core.
///
/// # Errors
/// When the system refuses its threads, and a build without it.
#[cfg(feature = "cpu")]
pub fn cpu(threads: usize) -> Result<Box<dyn Backend>> {
    isa()?;
    let threads = machine::threads(threads);
    let cpu = Cpu::new(threads).help("lower run.threads, or leave it out to use every core")?;
    Ok(Box::new(cpu))
}

/// The instruction set that the processor computes by: the widest that it has, unless the environment forces another one.
///
/// # Errors
/// When the processor lacks what is forced.
#[cfg(feature = "cpu")]
pub(crate) fn isa() -> Result<Isa> {
    let instead = format!("set {} to one that it has, or unset it", isa::VARIABLE);
    Isa::chosen().map_err(|error| Error::usage(error, instead))
}

/// The processor as a device, with so many threads; 0 for one on every core.
///
/// # Errors
/// When the system refuses its threads, and a build without it.
#[cfg(not(feature = "cpu"))]
pub fn cpu(_threads: usize) -> Result<Box<dyn Backend>> {
    Err(not_built("cpu"))
}

/// The host as a device, for what is offloaded to it.
///
/// # Errors
/// As [`cpu`].
#[cfg(feature = "cpu")]
pub fn host(threads: usize) -> Result<Box<dyn Backend + Send>> {
    isa()?;
    Ok(Box::new(Cpu::new(threads).help("ask for fewer --threads")?))
}

/// The host as a device, for what is offloaded to it.
///
/// # Errors
/// As [`cpu`].
#[cfg(not(feature = "cpu"))]
pub fn host(_threads: usize) -> Result<Box<dyn Backend + Send>> {
    Err(not_built("cpu"))
}

/// A GPU that isn't here.
#[cfg(feature = "cuda")]
fn described(card: &Card, spec: &Spec) -> Result<Box<dyn Backend>> {
    let Card { capability, multiprocessors, .. } = *card;
    let name = card.description();
    let mut described = Described::new(name, capability, multiprocessors, card.free_bytes());
    if spec.tf32 {
        let refused = |problem: String| Error::usage(anyhow!(problem), INSTEAD_OF_TF32);
        described.round_to_tf32().map_err(refused)?;
    }
    Ok(Box::new(described))
}

/// A GPU that isn't here.
#[cfg(not(feature = "cuda"))]
fn described(_card: &Card, _spec: &Spec) -> Result<Box<dyn Backend>> {
    Err(not_built("cuda"))
}

#[cfg(not(all(feature = "cpu", feature = "wgpu", feature = "cuda")))]
fn not_built(feature: &str) -> Error {
    Error::usage(
        anyhow!("this build has no device `{feature}`"),
        format!("build with the feature `{feature}`, or choose another device"),
    )
}

/// GPU number `ordinal` of NVIDIA's. Of several ranks on a machine, the first takes it and the others the next ones, in turn.
///
/// # Errors
/// Why there's none, in words.
#[cfg(feature = "cuda")]
pub fn open_cuda(ordinal: usize) -> std::result::Result<Cuda, String> {
    #[cfg(feature = "emulation")]
    if let Some(faults) = emulated_faults() {
        // What is compiled for one test is the same for the next.
        let device = Emulated::new(std::env::temp_dir(), 1).with_faults(Faults::read(&faults)?);
        return Ok(Cuda::new(Box::new(device)));
    }
    let kernels = machine::kernel_folder();
    #[cfg(feature = "emulation")]
    if let Some(faults) = emulated_faults() {
        let device = Emulated::new(kernels, 1).with_faults(Faults::read(&faults)?);
        return Ok(Cuda::new(Box::new(device)));
    }
    match Gpu::open(turn(ordinal, machine::local_rank(), Gpu::count()), kernels) {
        Ok(gpu) => Ok(Cuda::new(Box::new(gpu))),
        Err(DeviceError::Lost { reason, .. }) => Err(reason),
        Err(other) => Err(other.to_string()),
    }
}

/// The GPU of a rank, by its number among those of its machine, where the first rank takes GPU number `first` of so many.
#[cfg(feature = "cuda")]
fn turn(first: usize, local_rank: usize, gpus: usize) -> usize {
    match first < gpus {
        true => (first + local_rank) % gpus,
        // Opening it says that there is none.
        false => first,
    }
}

/// What goes wrong on the device that is emulated in place of NVIDIA's GPUs; none where they're asked for themselves.
#[cfg(feature = "emulation")]
fn emulated_faults() -> Option<String> {
    std::env::var("TIGHTROPE_EMULATED").ok()
}

/// Where Linux shows devices.
#[cfg(any(feature = "cuda", feature = "wgpu"))]
const DEVICE_NODES: &str = "/dev";

/// Whether there can be a GPU. On Linux, all drivers have a node in `nodes`; asking the drivers themselves
/// loads every one of them, a processor's emulation too, which takes some 50 MiB. Elsewhere, only they know.
#[cfg(feature = "wgpu")]
fn has_gpu(nodes: &Path) -> bool {
    !cfg!(target_os = "linux")
        || any_node(&nodes.join("dri"), |name| name.starts_with("renderD"))
        || any_node(nodes, |name| name.starts_with("nvidia") || matches!(name, "dxg" | "kfd"))
}

/// Whether there can be a GPU of NVIDIA's: on Linux its driver has a node, or that of the system around it, as in WSL.
#[cfg(feature = "cuda")]
fn has_nvidia(nodes: &Path) -> bool {
    #[cfg(feature = "emulation")]
    if emulated_faults().is_some() {
        return true;
    }
    let known = |name: &str| name.starts_with("nvidia") || name == "dxg";
    if cfg!(target_os = "linux") { any_node(nodes, known) } else { cfg!(windows) }
}

/// Whether a folder has an entry with such a name.
#[cfg(any(feature = "cuda", feature = "wgpu"))]
fn any_node(folder: &Path, known: impl Fn(&str) -> bool) -> bool {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.into_iter().any(|entry| entry.file_name().to_str().is_some_and(&known))
}

/// The devices of this machine, for a message.
#[cfg(feature = "cuda")]
async fn found() -> String {
    let cpu = cpu(0).map_or_else(|_| "cpu".to_owned(), |cpu| cpu.name());
    #[cfg(feature = "wgpu")]
    let gpus = adapters().await.into_iter().enumerate();
    #[cfg(feature = "wgpu")]
    let gpus = gpus.map(|(index, gpu)| format!("wgpu:{index} ({})", gpu.name));
    #[cfg(not(feature = "wgpu"))]
    let gpus = std::iter::empty();
    std::iter::once(cpu).chain(gpus).collect::<Vec<_>>().join(", ")
}

#[cfg(all(test, target_os = "linux", feature = "cpu", feature = "wgpu", feature = "cuda"))]
mod tests {
    use std::fs;

    use tightrope_backend_cuda::driver::Emulated;
    use tightrope_core::DeviceKind;

    use super::*;

    /// Devices of a machine with this node, whose GPU of NVIDIA's is opened so.
    fn with(
        node: &str,
        nvidia: fn(usize) -> std::result::Result<Cuda, String>,
    ) -> (tempfile::TempDir, Devices) {
        let nodes = tempfile::tempdir().unwrap();
        fs::write(nodes.path().join(node), "").unwrap();
        let path: &'static Path = Box::leak(nodes.path().to_owned().into_boxed_path());
        (nodes, Devices { nvidia, nodes: path, ..Devices::default() })
    }

    fn emulated(_: usize) -> std::result::Result<Cuda, String> {
        Ok(Cuda::new(Box::new(Emulated::new(std::env::temp_dir(), 1))))
    }

    fn refused(_: usize) -> std::result::Result<Cuda, String> {
        Err("NVRTC is not installed".into())
    }

    fn auto() -> Spec {
        let mut settings = Settings::default();
        settings.run.device = Device::Auto;
        Spec::of(&settings)
    }

    #[test]
    fn ranks_of_a_machine_take_a_gpu_each_in_turn() {
        assert_eq!([0, 1, 2, 3].map(|rank| turn(0, rank, 4)), [0, 1, 2, 3]);
        assert_eq!([0, 1].map(|rank| turn(3, rank, 4)), [3, 0]);
        // Where each is shown one alone, that.
        assert_eq!([0, 1].map(|rank| turn(0, rank, 1)), [0, 0]);
        // Opening these says what there is.
        assert_eq!((turn(4, 1, 4), turn(0, 1, 0)), (4, 0));
    }

    #[test]
    fn auto_takes_a_gpu_by_cuda_first_and_stays_there() {
        let (_nodes, mut devices) = with("nvidiactl", emulated);
        let device = devices.open(&auto()).unwrap();
        assert_eq!(device.kind(), DeviceKind::Cuda);
        assert!(devices.notes[0].contains("takes cuda:0, cuda (emulated)"), "{:?}", devices.notes);
        drop(device);
        let told = devices.notes.len();
        assert_eq!(devices.open(&auto()).unwrap().kind(), DeviceKind::Cuda);
        assert_eq!(devices.notes.len(), told);
        // Lost: the run goes on there or not at all.
        devices.nvidia = refused;
        let said = devices.open(&auto()).err().expect("no other device").to_string();
        assert!(said.contains("NVRTC is not installed"), "{said}");
    }

    #[test]
    fn auto_says_why_it_takes_no_gpu_by_cuda() {
        let (_nodes, mut devices) = with("nvidia0", refused);
        assert_ne!(devices.open(&auto()).unwrap().kind(), DeviceKind::Cuda);
        let [note] = &devices.notes[..] else { panic!("{:?}", devices.notes) };
        assert!(note.contains("by CUDA: NVRTC is not installed"), "{note}");
    }

    #[test]
    fn auto_asks_for_no_gpu_of_nvidia_s_where_none_has_a_node() {
        let (_nodes, mut devices) = with("null", |_| panic!("nobody asks"));
        assert_eq!(devices.open(&auto()).unwrap().kind(), DeviceKind::Cpu);
        assert!(devices.notes.is_empty());
    }

    #[test]
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
