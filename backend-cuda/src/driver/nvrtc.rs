//! NVIDIA's compiler for kernels at run time, where its library is installed.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;

use libloading::{Library, Symbol};

use super::loaded;

/// Names of the library, newest first.
const NAMES: &[&str] = if cfg!(windows) {
    &["nvrtc64_130_0.dll", "nvrtc64_120_0.dll"]
} else {
    &["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"]
};

/// A program in the making, to the library.
type Program = *mut c_void;
/// Zero where a call went well.
type Status = c_int;

/// The compiler.
pub struct Nvrtc {
    library: &'static Library,
    version: (i32, i32),
    /// Compute capabilities that it compiles for, ten times the major number plus the minor one.
    supported: Vec<i32>,
}

/// A compiled kernel.
pub struct Compiled {
    /// Code of the architecture, or its PTX, as the driver loads it.
    pub code: Vec<u8>,
    /// The compiler's words.
    pub log: String,
}

impl Nvrtc {
    /// Finds the newest library.
    ///
    /// # Errors
    /// In words, where none is installed.
    pub fn open() -> Result<Self, String> {
        Self::open_where(|_, _| Ok(()))
    }

    /// Finds the newest library of a version, and for compute capabilities, that suit.
    ///
    /// # Errors
    /// In words, where none is installed; those of `suits` for the oldest, where none does.
    pub fn open_where(
        suits: impl Fn((i32, i32), &[i32]) -> Result<(), String>,
    ) -> Result<Self, String> {
        let mut problem = String::new();
        let mut unsuitable = None;
        for name in NAMES {
            match loaded::library(name) {
                Ok(library) => {
                    let mut nvrtc = Self { library, version: (0, 0), supported: vec![] };
                    nvrtc.version = nvrtc.version_of_library()?;
                    nvrtc.supported = nvrtc.supported_by_library()?;
                    match suits(nvrtc.version, &nvrtc.supported) {
                        Ok(()) => return Ok(nvrtc),
                        Err(words) => unsuitable = Some(words),
                    }
                }
                Err(error) => problem = error.to_string(),
            }
        }
        if let Some(words) = unsuitable {
            return Err(words);
        }
        Err(format!(
            "NVRTC, CUDA's run-time compiler, is not installed ({problem}); \
             `pip install nvidia-cuda-nvrtc` has it, and LD_LIBRARY_PATH names its folder"
        ))
    }

    /// Major and minor version.
    pub fn version(&self) -> (i32, i32) {
        self.version
    }

    /// Compute capabilities that it compiles for, ten times the major number plus the minor one.
    pub fn supported(&self) -> &[i32] {
        &self.supported
    }

    fn supported_by_library(&self) -> Result<Vec<i32>, String> {
        type Count = unsafe extern "C" fn(*mut c_int) -> Status;
        type List = unsafe extern "C" fn(*mut c_int) -> Status;
        let mut count = 0;
        // SAFETY: NVRTC declares `nvrtcGetNumSupportedArchs` so, and writes a number.
        self.checked(unsafe { self.find::<Count>("nvrtcGetNumSupportedArchs")?(&mut count) })?;
        let mut list = vec![0; usize::try_from(count).unwrap_or(0)];
        // SAFETY: as many numbers are written as were counted.
        let status = unsafe { self.find::<List>("nvrtcGetSupportedArchs")?(list.as_mut_ptr()) };
        self.checked(status)?;
        Ok(list)
    }

    fn version_of_library(&self) -> Result<(i32, i32), String> {
        type Version = unsafe extern "C" fn(*mut c_int, *mut c_int) -> Status;
        let (mut major, mut minor) = (0, 0);
        // SAFETY: NVRTC declares `nvrtcVersion` so, and writes two numbers.
        self.checked(unsafe { self.find::<Version>("nvrtcVersion")?(&mut major, &mut minor) })?;
        Ok((major, minor))
    }

    /// With which kernels are compiled for an architecture, as `sm_80`, or to PTX of one, as `compute_80`.
    pub fn options(architecture: &str) -> [String; 3] {
        [
            format!("--gpu-architecture={architecture}"),
            "--std=c++17".into(),
            // Words on registers and memory go to the log.
            "--ptxas-options=-v".into(),
        ]
    }

    /// Compiles `text` for an architecture, or to PTX of one.
    ///
    /// # Errors
    /// The compiler's words.
    pub fn compile(&self, text: &str, architecture: &str) -> Result<Compiled, String> {
        type Create = unsafe extern "C" fn(
            *mut Program,
            *const c_char,
            *const c_char,
            c_int,
            *const *const c_char,
            *const *const c_char,
        ) -> Status;
        type Compile = unsafe extern "C" fn(Program, c_int, *const *const c_char) -> Status;
        let text = CString::new(text).map_err(|error| error.to_string())?;
        let options = Self::options(architecture)
            .map(|option| CString::new(option).expect("options have no zeros"));
        let pointers = options.each_ref().map(|option| option.as_ptr());
        let mut program: Program = ptr::null_mut();
        let create = self.find::<Create>("nvrtcCreateProgram")?;
        // SAFETY: the text ends with a zero, and there are no headers.
        self.checked(unsafe {
            create(&mut program, text.as_ptr(), c"kernel.cu".as_ptr(), 0, ptr::null(), ptr::null())
        })?;
        let program = Handle { nvrtc: self, program };
        let compile = self.find::<Compile>("nvrtcCompileProgram")?;
        // SAFETY: the program was made above; the options live until the call returns.
        let status =
            unsafe { compile(program.program, pointers.len() as c_int, pointers.as_ptr()) };
        let mut log = program.bytes("nvrtcGetProgramLogSize", "nvrtcGetProgramLog")?;
        while log.last() == Some(&0) {
            log.pop();
        }
        let log = String::from_utf8_lossy(&log).into_owned();
        if status != 0 {
            return Err(log);
        }
        let code = if architecture.starts_with("compute") {
            program.bytes("nvrtcGetPTXSize", "nvrtcGetPTX")
        } else {
            program.bytes("nvrtcGetCUBINSize", "nvrtcGetCUBIN")
        };
        Ok(Compiled { code: code?, log })
    }

    fn find<F>(&self, name: &str) -> Result<Symbol<'_, F>, String> {
        // SAFETY: every caller names the type that NVRTC's header declares.
        unsafe { self.library.get(name.as_bytes()) }.map_err(|error| error.to_string())
    }

    fn checked(&self, status: Status) -> Result<(), String> {
        type Words = unsafe extern "C" fn(Status) -> *const c_char;
        if status == 0 {
            return Ok(());
        }
        // SAFETY: NVRTC gives a constant text for every number.
        let words = unsafe { CStr::from_ptr(self.find::<Words>("nvrtcGetErrorString")?(status)) };
        Err(words.to_string_lossy().into_owned())
    }
}

/// A program that is destroyed when it's dropped.
struct Handle<'a> {
    nvrtc: &'a Nvrtc,
    program: Program,
}

impl Handle<'_> {
    /// What a pair of functions gives, the first its size.
    fn bytes(&self, size: &str, get: &str) -> Result<Vec<u8>, String> {
        type Size = unsafe extern "C" fn(Program, *mut usize) -> Status;
        type Get = unsafe extern "C" fn(Program, *mut c_char) -> Status;
        let mut len = 0;
        // SAFETY: the program lives as long as `self`.
        let status = unsafe { self.nvrtc.find::<Size>(size)?(self.program, &mut len) };
        self.nvrtc.checked(status)?;
        let mut bytes = vec![0; len];
        // SAFETY: as many bytes are written as were announced.
        let status = unsafe {
            self.nvrtc.find::<Get>(get)?(self.program, bytes.as_mut_ptr().cast::<c_char>())
        };
        self.nvrtc.checked(status)?;
        Ok(bytes)
    }
}

impl Drop for Handle<'_> {
    fn drop(&mut self) {
        type Destroy = unsafe extern "C" fn(*mut Program) -> Status;
        if let Ok(destroy) = self.nvrtc.find::<Destroy>("nvrtcDestroyProgram") {
            // SAFETY: the program was made by this library and is used no more.
            unsafe { destroy(&mut self.program) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::requirements::Code;

    #[test]
    #[ignore = "needs NVRTC: `cargo xtask kernels` brings it"]
    fn a_kernel_for_a_later_gpu_is_ptx() {
        let nvrtc = Nvrtc::open().expect("NVRTC");
        let text = "extern \"C\" __global__ void one(float *x) { *x = 1.0f; }";
        let code = |capability| Code::of(capability, nvrtc.supported()).expect("some code");
        let compiled = |code: Code| nvrtc.compile(text, &code.architecture()).expect("code").code;
        let own = code((9, 0));
        assert_eq!(own, Code::Gpu((9, 0)));
        assert!(compiled(own).starts_with(b"\x7fELF"));
        let later = code((99, 0));
        assert!(matches!(later, Code::Ptx(_)), "{later:?}");
        let ptx = compiled(later);
        let (end, words) = ptx.split_last().expect("text");
        let words = std::str::from_utf8(words).expect("PTX is text");
        // The driver loads text up to a zero.
        assert!(*end == 0 && words.contains(".visible .entry one"), "{words}");
    }
}
