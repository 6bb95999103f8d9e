//! Tensor maps for the copy engine, and which GPUs have what kernels with such need.

use std::ffi::{c_int, c_void};

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys;
use tightrope_core::DType;
use tightrope_core::launch::{Boxed, Place, Source};

use crate::driver::requirements::{self, Version};
use crate::source::TensorMap;

/// Multiprocessors of a GPU that runs Hopper's own kernels, and whose driver makes tensor maps. Its context is current.
pub fn multiprocessors(device: sys::CUdevice, capability: Version) -> Option<u32> {
    use sys::CUdevice_attribute as Attribute;
    if !requirements::has_wgmma(capability) {
        return None;
    }
    // SAFETY: the device was given by the driver.
    let get = |attribute| unsafe { result::device::get_attribute(device, attribute) };
    let shared = get(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN).ok()?;
    if shared < requirements::WGMMA_SHARED_BYTES {
        return None;
    }
    // The driver looks at no memory, so any address will do.
    let any = Place { source: Source::Scratch, dtype: DType::BF16, first: 0, elements: 1 << 20 };
    let tried = Boxed {
        name: "tried",
        place: any,
        first: 0,
        extents: [1000, 200, 2],
        strides: [1024, 1024 * 200],
        edges: [64, 256, 1],
    };
    encode(&tried, 1 << 30).ok()?;
    u32::try_from(get(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT).ok()?).ok()
}

/// The map of a tensor at this address.
pub fn encode(boxed: &Boxed, address: u64) -> Result<TensorMap, DriverError> {
    use sys::CUtensorMapDataType_enum as Stored;
    let Boxed { place, extents, strides, edges, .. } = boxed;
    let stored = match place.dtype {
        DType::F16 => Stored::CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
        DType::BF16 => Stored::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        _ => return Err(DriverError(sys::CUresult::CUDA_ERROR_INVALID_VALUE)),
    };
    let strides = strides.map(|stride| stride * place.dtype.size() as u64);
    let steps = [1; 3];
    let mut map = sys::CUtensorMap { opaque: [0; 16] };
    // SAFETY: extents, boxes and steps are of three axes, strides of two; all are read before the call returns, the map is
    // written, and what is at the address isn't looked at.
    let status = unsafe {
        sys::cuTensorMapEncodeTiled(
            &mut map,
            stored,
            extents.len() as u32,
            address as *mut c_void,
            extents.as_ptr(),
            strides.as_ptr(),
            edges.as_ptr(),
            steps.as_ptr(),
            sys::CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
            sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
            sys::CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            sys::CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    };
    status.result()?;
    let mut bytes = [0; size_of::<TensorMap>()];
    let words = map.opaque.iter().flat_map(|word| word.to_le_bytes());
    bytes.iter_mut().zip(words).for_each(|(to, byte)| *to = byte);
    Ok(bytes)
}

/// Lets a kernel have shared memory whose size its text doesn't say.
pub fn allow_shared(function: sys::CUfunction, bytes: u32) -> Result<(), DriverError> {
    if bytes == 0 {
        return Ok(());
    }
    let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    // SAFETY: the function is of a module that stays loaded.
    unsafe { result::function::set_function_attribute(function, attribute, bytes as c_int) }
}
