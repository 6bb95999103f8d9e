//! What kernels need of a GPU, its driver and its compiler, and the words for where that's missing.

use tightrope_core::DType;

use crate::limits;
use crate::source::{ARGUMENT_BYTES, MOST_ARGUMENT_BYTES};

/// Major and minor number.
pub type Version = (i32, i32);

/// Oldest version of CUDA whose driver has all that's called.
const OLDEST_CUDA: Version = (12, 0);

/// Least compute capability: the first with tensor cores that take a warp's registers as `mma.sync` and `ldmatrix` lay them
/// out, and the oldest that NVRTC 13 compiles for.
const OLDEST_CAPABILITY: Version = (7, 5);

/// First compute capability whose tensor cores multiply bf16 and TF32.
const BF16_MATMULS: Version = (8, 0);

/// The compute capability whose tensor cores multiply for warpgroups by `wgmma`, which only code for it alone may have:
/// later ones do it otherwise.
const WGMMA: Version = (9, 0);

/// Bytes of shared memory that a block of its kernels may have (CUDA C++ Programming Guide, compute capabilities).
pub const WGMMA_SHARED_BYTES: i32 = 227 << 10;

/// First version of CUDA whose drivers and compilers give kernels more room for arguments.
const MORE_ARGUMENTS: Version = (12, 1);

/// Most bytes of a kernel's arguments, where driver and NVRTC are of these versions of CUDA.
pub fn argument_bytes(driver: Version, nvrtc: Version) -> usize {
    if driver.min(nvrtc) >= MORE_ARGUMENTS { MOST_ARGUMENT_BYTES } else { ARGUMENT_BYTES }
}

/// First compute capability whose kernels may begin before those before them have ended, and first version of CUDA whose drivers record
/// that in graphs (CUDA C++ Programming Guide, programmatic dependent launch).
const EARLY: (Version, Version) = ((9, 0), (12, 3));

/// Whether kernels of this compute capability may begin so, with such a driver.
pub fn begins_early(capability: Version, driver: Version) -> bool {
    capability >= EARLY.0 && driver >= EARLY.1
}

/// First compute capability with the larger workspace.
const LARGE_WORKSPACE: Version = (9, 0);

/// Bytes of workspace for cuBLASLt's matmuls on a GPU of this compute capability, as NVIDIA recommends for cuBLAS.
pub fn workspace_bytes(capability: Version) -> u64 {
    if capability >= LARGE_WORKSPACE { 32 << 20 } else { 4 << 20 }
}

/// What tensor cores of this compute capability multiply as it's stored.
pub fn tensor_cores(capability: Version) -> &'static [DType] {
    if capability >= BF16_MATMULS { limits().cuda().tensor_cores } else { &[DType::F16] }
}

/// Whether code for this compute capability alone has `wgmma`.
pub fn has_wgmma(capability: Version) -> bool {
    capability == WGMMA
}

/// A version as the driver gives it: 1000 times the major number plus 10 times the minor one.
pub fn cuda_version(number: i32) -> Version {
    (number / 1000, number % 1000 / 10)
}

/// What is wrong with a driver for this version of CUDA.
pub fn of_driver((major, minor): Version) -> Result<(), String> {
    let (oldest, _) = OLDEST_CUDA;
    if (major, minor) >= OLDEST_CUDA {
        return Ok(());
    }
    Err(format!(
        "the NVIDIA driver is one for CUDA {major}.{minor}, and CUDA {oldest}.0 or later is needed: \
         update the driver to 525 or later"
    ))
}

/// What is wrong with a GPU of this compute capability.
pub fn of_gpu(name: &str, (major, minor): Version) -> Result<(), String> {
    let (oldest, _) = OLDEST_CAPABILITY;
    if (major, minor) >= OLDEST_CAPABILITY {
        return Ok(());
    }
    Err(format!(
        "{name} has compute capability {major}.{minor}, and the CUDA kernels need {oldest}.0 or later \
         (Turing): use --device wgpu, which runs on it through Vulkan"
    ))
}

/// What kernels are compiled to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// Instructions of GPUs with this compute capability.
    Gpu(Version),
    /// PTX of this compute capability, which the driver translates for later GPUs.
    Ptx(Version),
}

impl Code {
    /// What an NVRTC that compiles for these compute capabilities, ten times the major number plus the minor one, makes for a
    /// GPU: its instructions where it knows the GPU, and else PTX of the newest that it knows and the GPU has.
    ///
    /// # Errors
    /// In words, where it knows none.
    pub fn of((major, minor): Version, supported: &[i32]) -> Result<Self, String> {
        let own = 10 * major + minor;
        let newest = supported.iter().copied().filter(|&other| other <= own).max();
        match newest {
            Some(newest) if newest == own => Ok(Self::Gpu((major, minor))),
            Some(older) => Ok(Self::Ptx((older / 10, older % 10))),
            None => Err(format!(
                "the installed NVRTC compiles for no GPU of compute capability {major}.{minor} or before"
            )),
        }
    }

    /// The compute capability whose instructions kernels may have.
    pub fn capability(self) -> Version {
        let (Self::Gpu(capability) | Self::Ptx(capability)) = self;
        capability
    }

    /// As compilers name it.
    pub fn architecture(self) -> String {
        match self {
            // Instructions of one GPU alone are used of Hopper.
            Self::Gpu(WGMMA) => "sm_90a".into(),
            Self::Gpu((major, minor)) => format!("sm_{major}{minor}"),
            Self::Ptx((major, minor)) => format!("compute_{major}{minor}"),
        }
    }
}

/// What is wrong with an NVRTC of this version for a driver: a driver loads code of its own major version and earlier ones,
/// and reads PTX of its own version and earlier ones.
pub fn of_compiler((major, minor): Version, code: Code, driver: Version) -> Result<(), String> {
    let (of_driver, its_minor) = driver;
    let (makes, suits) = match code {
        Code::Gpu(_) => (format!("code for drivers of CUDA {major}"), major <= of_driver),
        Code::Ptx(_) => {
            (format!("PTX for drivers of CUDA {major}.{minor}"), (major, minor) <= driver)
        }
    };
    if suits {
        return Ok(());
    }
    Err(format!(
        "NVRTC {major}.{minor} makes {makes}, and the driver is one for CUDA \
         {of_driver}.{its_minor}: update the driver, or install NVRTC {of_driver}.{its_minor} \
         (`pip install {}`) and name its folder in LD_LIBRARY_PATH",
        nvrtc_package(driver)
    ))
}

/// The package of Python's that has NVRTC of a version.
fn nvrtc_package((major, minor): Version) -> String {
    // From 13 on, the version isn't in its name.
    let name = if major >= 13 { String::new() } else { format!("-cu{major}") };
    format!("nvidia-cuda-nvrtc{name}=={major}.{minor}.*")
}

/// What is wrong with a cuBLASLt for this version of CUDA, with this driver.
pub fn of_library((major, _): Version, driver: Version) -> Result<(), String> {
    let (of_driver, _) = driver;
    if major <= of_driver {
        return Ok(());
    }
    Err(format!(
        "cuBLASLt is one for CUDA {major}, and the driver is one for CUDA {of_driver}: \
         `pip install nvidia-cublas-cu{of_driver}`, and name its folder in LD_LIBRARY_PATH"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_old_is_named_with_what_to_do() {
        assert_eq!(cuda_version(12_040), (12, 4));
        assert_eq!(of_driver((12, 0)), Ok(()));
        let said = of_driver(cuda_version(11_080)).unwrap_err();
        assert!(said.contains("CUDA 11.8") && said.contains("update the driver"), "{said}");
        assert_eq!(of_gpu("H200", (9, 0)), Ok(()));
        assert_eq!(of_gpu("Tesla T4", (7, 5)), Ok(()));
        let said = of_gpu("Tesla V100", (7, 0)).unwrap_err();
        assert!(said.contains("Tesla V100 has compute capability 7.0"), "{said}");
        assert!(said.contains("--device wgpu"), "{said}");
        let code = Code::Gpu((8, 0));
        assert_eq!(of_compiler((12, 9), code, (12, 0)), Ok(()));
        assert_eq!(of_compiler((12, 9), code, (13, 0)), Ok(()));
        let said = of_compiler((13, 0), code, (12, 4)).unwrap_err();
        assert!(said.contains("pip install nvidia-cuda-nvrtc-cu12==12.4.*"), "{said}");
        assert_eq!(of_library((12, 9), (13, 0)), Ok(()));
        let said = of_library((13, 0), (12, 4)).unwrap_err();
        assert!(said.contains("pip install nvidia-cublas-cu12"), "{said}");
    }

    #[test]
    fn kernels_begin_early_on_hopper_and_later_with_drivers_that_record_it() {
        assert!(begins_early((9, 0), (12, 3)) && begins_early((12, 0), (13, 0)));
        assert!(!begins_early((8, 9), (13, 0)) && !begins_early((9, 0), (12, 2)));
    }

    #[test]
    fn architectures_are_named_as_compilers_do() {
        let names = [(7, 5), (8, 0), (8, 9), (9, 0), (10, 0), (12, 0)]
            .map(|capability| Code::Gpu(capability).architecture());
        assert_eq!(names, ["sm_75", "sm_80", "sm_89", "sm_90a", "sm_100", "sm_120"]);
    }

    #[test]
    fn a_gpu_that_the_compiler_does_not_know_gets_ptx_that_its_driver_reads() {
        // Those of NVRTC 12.4, which came before Blackwell.
        const OF_12_4: [i32; 9] = [50, 60, 70, 75, 80, 86, 87, 89, 90];
        assert_eq!(Code::of((9, 0), &OF_12_4), Ok(Code::Gpu((9, 0))));
        for capability in [(10, 0), (12, 0), (12, 1)] {
            assert_eq!(Code::of(capability, &OF_12_4), Ok(Code::Ptx((9, 0))));
        }
        assert_eq!(Code::of((8, 8), &OF_12_4), Ok(Code::Ptx((8, 7))));
        assert!(Code::of((7, 5), &[80, 90]).is_err_and(|said| said.contains("7.5")));
        let ptx = Code::Ptx((9, 0));
        assert_eq!((ptx.architecture().as_str(), ptx.capability()), ("compute_90", (9, 0)));
        // PTX is read by drivers of the compiler's version, minor number included.
        assert_eq!(of_compiler((12, 4), ptx, (12, 4)), Ok(()));
        let said = of_compiler((13, 2), ptx, (13, 0)).unwrap_err();
        assert!(said.contains("PTX for drivers of CUDA 13.2"), "{said}");
        assert!(said.contains("pip install nvidia-cuda-nvrtc==13.0.*"), "{said}");
    }

    #[test]
    fn arguments_have_more_room_where_driver_and_compiler_know_it() {
        assert_eq!(argument_bytes((12, 1), (13, 0)), MOST_ARGUMENT_BYTES);
        assert_eq!(argument_bytes((12, 0), (13, 0)), ARGUMENT_BYTES);
        assert_eq!(argument_bytes((13, 0), (12, 0)), ARGUMENT_BYTES);
    }

    #[test]
    fn tensor_cores_multiply_bf16_from_ampere_on() {
        assert_eq!(tensor_cores((7, 5)), [DType::F16]);
        assert_eq!(tensor_cores((8, 6)), limits().cuda().tensor_cores);
        assert!(has_wgmma((9, 0)) && !has_wgmma((8, 9)) && !has_wgmma((10, 0)));
    }
}
