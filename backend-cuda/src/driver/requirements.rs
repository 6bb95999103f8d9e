//! What kernels need of a GPU, its driver and its compiler, and the words for where that's missing.

use tightrope_core::DType;

use crate::limits;

/// Major and minor number.
pub type Version = (i32, i32);

/// Oldest version of CUDA whose driver has all that's called.
const OLDEST_CUDA: Version = (12, 0);

/// Least compute capability: the first with tensor cores that take a warp's registers as `mma.sync` and `ldmatrix` lay them
/// out, and the oldest that NVRTC 13 compiles for.
const OLDEST_CAPABILITY: Version = (7, 5);

/// First compute capability whose tensor cores multiply bf16 and TF32.
const BF16_MATMULS: Version = (8, 0);

/// First compute capability with instructions that only code for it alone may have.
const OLDEST_ALONE: i32 = 9;

/// The compute capability whose tensor cores multiply for warpgroups by `wgmma`: later ones do it otherwise.
const WGMMA: Version = (9, 0);

/// Bytes of shared memory that a block of its kernels may have (CUDA C++ Programming Guide, compute capabilities).
pub const WGMMA_SHARED_BYTES: i32 = 227 << 10;

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

/// What is wrong with an NVRTC of this version for a driver: code of a later major version can't be loaded.
pub fn of_compiler((major, minor): Version, driver: Version) -> Result<(), String> {
    if major <= driver.0 {
        return Ok(());
    }
    let (of_driver, its_minor) = driver;
    Err(format!(
        "NVRTC {major}.{minor} makes code for drivers of CUDA {major}, and the driver is one for CUDA \
         {of_driver}.{its_minor}: update the driver, or install NVRTC {of_driver} \
         (`pip install nvidia-cuda-nvrtc-cu{of_driver}`) and name its folder in LD_LIBRARY_PATH"
    ))
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

/// The architecture of a GPU, as compilers name it.
pub fn architecture((major, minor): Version) -> String {
    let alone = if major >= OLDEST_ALONE { "a" } else { "" };
    format!("sm_{major}{minor}{alone}")
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
        assert_eq!(of_compiler((12, 9), (12, 0)), Ok(()));
        assert_eq!(of_compiler((12, 9), (13, 0)), Ok(()));
        let said = of_compiler((13, 0), (12, 4)).unwrap_err();
        assert!(said.contains("pip install nvidia-cuda-nvrtc-cu12"), "{said}");
        assert_eq!(of_library((12, 9), (13, 0)), Ok(()));
        let said = of_library((13, 0), (12, 4)).unwrap_err();
        assert!(said.contains("pip install nvidia-cublas-cu12"), "{said}");
    }

    #[test]
    fn architectures_are_named_as_compilers_do() {
        let names = [(7, 5), (8, 0), (8, 9), (9, 0), (12, 0)].map(architecture);
        assert_eq!(names, ["sm_75", "sm_80", "sm_89", "sm_90a", "sm_120a"]);
    }

    #[test]
    fn tensor_cores_multiply_bf16_from_ampere_on() {
        assert_eq!(tensor_cores((7, 5)), [DType::F16]);
        assert_eq!(tensor_cores((8, 6)), limits().cuda().tensor_cores);
        assert!(has_wgmma((9, 0)) && !has_wgmma((8, 9)) && !has_wgmma((10, 0)));
    }
}
