//! The calls of cuBLASLt that matmuls take: those of the library, where it is installed, or those that stand for it.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use libloading::Library;

use super::Algorithm;
use crate::driver::loaded;

/// Names of the library, newest first.
const NAMES: &[&str] = if cfg!(windows) {
    &["cublasLt64_13.dll", "cublasLt64_12.dll"]
} else {
    &["libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"]
};

/// Zero where a call went well.
pub type Status = c_int;
/// What the library made and knows the inside of.
pub type Made = *mut c_void;

pub type Create = unsafe extern "C" fn(*mut Made) -> Status;
pub type Destroy = unsafe extern "C" fn(Made) -> Status;
/// Data type, rows, columns, leading dimension.
pub type CreateLayout = unsafe extern "C" fn(*mut Made, c_uint, u64, u64, i64) -> Status;
/// Types of the sums and of their factors.
pub type CreateMatmul = unsafe extern "C" fn(*mut Made, c_uint, c_uint) -> Status;
/// Attribute, its value and the value's bytes.
pub type Set = unsafe extern "C" fn(Made, c_uint, *const c_void, usize) -> Status;
/// Library, matmul, layouts of A, B, C and D, what is asked for, the most results, the results and their number.
pub type Heuristic = unsafe extern "C" fn(
    Made,
    Made,
    Made,
    Made,
    Made,
    Made,
    Made,
    c_int,
    *mut Suggestion,
    *mut c_int,
) -> Status;
/// Library, matmul, alpha, A, B, beta, C, D, each matrix with its layout; algorithm, workspace and its bytes, stream.
pub type Multiply = unsafe extern "C" fn(
    Made,
    Made,
    *const f32,
    *const c_void,
    Made,
    *const c_void,
    Made,
    *const f32,
    *const c_void,
    Made,
    *mut c_void,
    Made,
    *const [u64; Algorithm::WORDS],
    *mut c_void,
    usize,
    Made,
) -> Status;
pub type Version = unsafe extern "C" fn() -> usize;
pub type Words = unsafe extern "C" fn(Status) -> *const c_char;

/// `cublasLtMatmulHeuristicResult_t`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Suggestion {
    /// The library's own words for an algorithm.
    pub words: [u64; Algorithm::WORDS],
    /// Bytes of workspace that it takes.
    pub workspace: usize,
    /// Whether it can be used.
    pub state: Status,
    /// How often it fills the GPU.
    pub waves: f32,
    reserved: [c_int; 4],
}

/// The calls.
pub struct Api {
    pub create: Create,
    pub destroy: Destroy,
    pub version: Version,
    /// Version of CUDA that the library is made for, as [`super::super::requirements::cuda_version`] reads it.
    pub cuda: Version,
    pub words: Words,
    pub create_layout: CreateLayout,
    pub set_layout: Set,
    pub destroy_layout: Destroy,
    pub create_matmul: CreateMatmul,
    pub set_matmul: Set,
    pub destroy_matmul: Destroy,
    pub create_preference: Create,
    pub set_preference: Set,
    pub destroy_preference: Destroy,
    pub heuristic: Heuristic,
    pub multiply: Multiply,
}

impl Api {
    /// The newest library's calls whose CUDA suits.
    ///
    /// # Errors
    /// In words, where none is installed; those of `suits` for the oldest, where none does.
    pub fn open_where(suits: impl Fn(usize) -> Result<(), String>) -> Result<Self, String> {
        let mut problem = None;
        for name in NAMES {
            let Ok(library) = loaded::library(name) else { continue };
            let api =
                Self::of(library).map_err(|error| format!("{name} is another library: {error}"))?;
            // SAFETY: takes nothing and gives a number.
            match suits(unsafe { (api.cuda)() }) {
                Ok(()) => return Ok(api),
                Err(words) => problem = Some(words),
            }
        }
        Err(problem.unwrap_or_else(|| {
            "cuBLASLt, NVIDIA's library of matmuls, is not installed; `pip install nvidia-cublas` \
             has it, and LD_LIBRARY_PATH names its folder"
                .into()
        }))
    }

    fn of(library: &'static Library) -> Result<Self, libloading::Error> {
        // SAFETY: cublasLt.h, the same in CUDA 12 and 13, declares each function as the field's type does.
        unsafe {
            Ok(Self {
                create: *library.get(b"cublasLtCreate")?,
                destroy: *library.get(b"cublasLtDestroy")?,
                version: *library.get(b"cublasLtGetVersion")?,
                cuda: *library.get(b"cublasLtGetCudartVersion")?,
                words: *library.get(b"cublasLtGetStatusString")?,
                create_layout: *library.get(b"cublasLtMatrixLayoutCreate")?,
                set_layout: *library.get(b"cublasLtMatrixLayoutSetAttribute")?,
                destroy_layout: *library.get(b"cublasLtMatrixLayoutDestroy")?,
                create_matmul: *library.get(b"cublasLtMatmulDescCreate")?,
                set_matmul: *library.get(b"cublasLtMatmulDescSetAttribute")?,
                destroy_matmul: *library.get(b"cublasLtMatmulDescDestroy")?,
                create_preference: *library.get(b"cublasLtMatmulPreferenceCreate")?,
                set_preference: *library.get(b"cublasLtMatmulPreferenceSetAttribute")?,
                destroy_preference: *library.get(b"cublasLtMatmulPreferenceDestroy")?,
                heuristic: *library.get(b"cublasLtMatmulAlgoGetHeuristic")?,
                multiply: *library.get(b"cublasLtMatmul")?,
            })
        }
    }

    /// The library's words for what went wrong.
    pub fn checked(&self, status: Status) -> Result<(), String> {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: the library gives a constant text for every number.
        let words = unsafe { CStr::from_ptr((self.words)(status)) };
        Err(words.to_string_lossy().into_owned())
    }
}
