//! `Limits`: what a device can do, in common and by the API that reaches it.

use crate::dialect::Dialect;
use crate::types::DType;

/// Whether CUDA's kernels can be launched at all: a browser has no use for what chooses among them.
pub(crate) const LAUNCHES_CUDA: bool = !cfg!(target_family = "wasm");

/// What a device can do: launches are made for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// Most threads of a workgroup; a power of two.
    pub workgroup: u32,
    /// Bytes of memory that a workgroup shares.
    pub shared_bytes: u64,
    /// Most tensors that a launch binds.
    pub bindings: usize,
    /// Most bytes of one binding.
    pub binding_bytes: u64,
    /// Most operations of one launch, so that none runs too long; see [`operations`](super::operations).
    pub work: u64,
    /// Shape of a matmul's tiles.
    pub tile: Tile,
    /// What only devices of one API have.
    pub api: Api,
}

/// The API that a device is reached by, with what only its devices have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Api {
    /// WebGPU, native or in a browser.
    WebGpu(WebGpuLimits),
    /// CUDA.
    Cuda(CudaLimits),
}

/// What a WebGPU device may have.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WebGpuLimits {
    /// Shape of tiles for matmuls of f16 by matrices that a subgroup holds together, where they pay. `thread_m` and
    /// `thread_n` are what a subgroup makes.
    pub cooperative: Option<Tile>,
    /// Threads of a subgroup, where they reduce through its registers: neighbouring threads, in their order.
    pub subgroup: Option<u32>,
    /// Whether the device loads and stores f16 itself. Else it's packed by two and converted.
    pub native_f16: bool,
    /// Whether kernels that take four elements at a time load and store them in words of 64 bits: a software adapter takes as
    /// long for one as for a word of 32.
    pub wide_words: bool,
}

/// What a CUDA device may have.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CudaLimits {
    /// Whether kernels of matmuls apply a formula to what they store, and sum their left operand.
    pub epilogues: bool,
    /// What tensor cores multiply as it's stored.
    pub tensor_cores: &'static [DType],
    /// Multiprocessors whose tensor cores multiply 16-bit matrices of shared memory for a warpgroup (Hopper's `wgmma`),
    /// where they do.
    pub wgmma: Option<u32>,
    /// Whether blocks of these matmuls use each other's shared memory.
    pub clusters: bool,
    /// Whether attention is made by warps alone, also where warpgroups multiply.
    pub warp_attention: bool,
    /// Whether matmuls of f32 may round their operands to TF32, of 10 bits after the point, for tensor cores.
    pub tf32: bool,
    /// Whether the kernel of matmuls on tensor cores computes wrongly on this device, so that others stand in for it.
    pub plain_matmuls: bool,
    /// The same of the kernel of attention on tensor cores.
    pub plain_attention: bool,
}

/// Most elements that a launch binds of a tensor. Kernels count elements in 32 bits, and the threads of the last workgroup
/// count somewhat further than there are any.
pub const MOST_ELEMENTS: u64 = (1 << 32) - (1 << 20);

impl Limits {
    /// Most elements of a dtype in one binding.
    pub fn binding_elements(&self, dtype: DType) -> u64 {
        (self.binding_bytes / dtype.size() as u64).min(MOST_ELEMENTS)
    }

    /// Language of the kernels.
    pub fn dialect(&self) -> Dialect {
        match self.api {
            Api::WebGpu(_) => Dialect::Wgsl,
            Api::Cuda(_) => Dialect::Cuda,
        }
    }

    /// What the device has of WebGPU; nothing where it's reached by another API.
    pub fn webgpu(&self) -> WebGpuLimits {
        match self.api {
            Api::WebGpu(own) => own,
            Api::Cuda(_) => WebGpuLimits::default(),
        }
    }

    /// What the device has of CUDA; nothing where it's reached by another API.
    pub fn cuda(&self) -> CudaLimits {
        match self.api {
            Api::Cuda(own) => own,
            Api::WebGpu(_) => CudaLimits::default(),
        }
    }

    /// The same for a WebGPU device with these changes to what it has.
    pub fn with_webgpu(self, change: impl FnOnce(&mut WebGpuLimits)) -> Self {
        let mut own = self.webgpu();
        change(&mut own);
        Self { api: Api::WebGpu(own), ..self }
    }

    /// The same for a CUDA device with these changes to what it has.
    pub fn with_cuda(self, change: impl FnOnce(&mut CudaLimits)) -> Self {
        let mut own = self.cuda();
        change(&mut own);
        Self { api: Api::Cuda(own), ..self }
    }
}

impl WebGpuLimits {
    /// The constant of launches that reduce through subgroups: their threads, and 1 where they don't.
    pub fn subgroup_threads(&self) -> u32 {
        self.subgroup.unwrap_or(1)
    }
}

/// How a matmul is cut up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tile {
    /// Entry of the kernel.
    pub entry: &'static str,
    /// Rows of the output that a workgroup makes.
    pub m: u32,
    /// Columns of the output that a workgroup makes.
    pub n: u32,
    /// Summed extent that a workgroup holds at a time.
    pub k: u32,
    /// Rows that a thread makes; divides `m`.
    pub thread_m: u32,
    /// Columns that a thread makes; divides `n`.
    pub thread_n: u32,
}

impl Tile {
    /// Whether the threads of a workgroup share what they load.
    pub fn shares(&self) -> bool {
        self.entry == "tiled"
    }

    /// Threads of the subgroups that share what they load in registers; 1 where none do.
    pub fn subgroup(&self) -> u32 {
        if self.entry == "shuffled" { self.n / self.thread_n } else { 1 }
    }

    /// Whether a device has the threads that it takes, and the subgroups.
    pub fn suits(&self, limits: &Limits) -> bool {
        let alone = self.subgroup() == 1;
        self.threads() <= limits.workgroup
            && (alone || limits.webgpu().subgroup == Some(self.subgroup()))
    }

    /// Threads of a workgroup, or subgroups where those make what a thread does.
    pub fn threads(&self) -> u32 {
        (self.m / self.thread_m) * (self.n / self.thread_n)
    }
}
