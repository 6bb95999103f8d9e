//! The calls of cuBLASLt on the processor, as NVIDIA's documentation describes them, in memory of the host: what a caller
//! says wrongly is refused, or shows in the numbers.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::slice;

use cudarc::cublaslt::sys;
use tightrope_core::DType;

use super::api::{Api, Made, Status, Suggestion};
use super::{Algorithm, TRANSPOSED};

const WELL: Status = sys::cublasStatus_t::CUBLAS_STATUS_SUCCESS as Status;
const INVALID: Status = sys::cublasStatus_t::CUBLAS_STATUS_INVALID_VALUE as Status;
const UNSUPPORTED: Status = sys::cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED as Status;

/// Attributes and values, by the numbers in NVIDIA's cublasLt.h and library_types.h.
mod number {
    use std::ffi::c_uint;

    pub const F32: c_uint = 0;
    pub const F16: c_uint = 2;
    pub const BF16: c_uint = 14;
    pub const SUMS_OF_F32: c_uint = 68;
    pub const SUMS_OF_TF32: c_uint = 77;
    pub const LAYOUT_BATCH: c_uint = 5;
    pub const LAYOUT_STRIDE: c_uint = 6;
    pub const TRANSPOSE_A: c_uint = 3;
    pub const TRANSPOSE_B: c_uint = 4;
    pub const EPILOGUE: c_uint = 7;
    pub const BIAS_POINTER: c_uint = 8;
    pub const AUXILIARY_POINTER: c_uint = 11;
    pub const AUXILIARY_LEADING: c_uint = 12;
    pub const AUXILIARY_STRIDE: c_uint = 13;
    pub const NO_EPILOGUE: u32 = 1;
    pub const ADD_BIAS: u32 = 4;
    pub const GELU: u32 = 32;
    pub const GELU_SLOPE: u32 = 192;
    /// Beside GELU: its argument is stored.
    pub const AND_ARGUMENT: u32 = 128;
    pub const SUMS_OF_B: u32 = 512;
    pub const WORKSPACE: c_uint = 1;
    pub const SLICES: c_uint = 3;
    pub const ALIGNMENT_OF_A: c_uint = 5;
    pub const ALIGNMENT_OF_D: c_uint = 8;
    /// What matrices are taken to be aligned to where nothing is said, bytes.
    pub const ALIGNED: u32 = 256;
}

/// Bytes of workspace of each algorithm. They sum in different orders.
const WORKSPACES: [usize; 3] = [0, 1 << 10, 1 << 20];

/// `cublasLtMatrixLayout_t`.
struct Layout {
    dtype: DType,
    rows: u64,
    columns: u64,
    leading: i64,
    batch: i32,
    stride: i64,
}

/// `cublasLtMatmulDesc_t`.
struct Gemm {
    /// Operands are rounded to TF32.
    tf32: bool,
    transpose: [bool; 2],
    epilogue: u32,
    bias: u64,
    /// GELU's argument: where it lies, from column to column and from matrix to matrix.
    auxiliary: u64,
    leading: i64,
    stride: i64,
}

/// `cublasLtMatmulPreference_t`.
struct Preference {
    workspace: u64,
    /// Of A, B, C and D, bytes.
    alignment: [u32; 4],
}

pub fn api() -> Api {
    Api {
        create,
        destroy: drop_as::<u8>,
        version,
        cuda: version,
        words,
        create_layout,
        set_layout,
        destroy_layout: drop_as::<Layout>,
        create_matmul,
        set_matmul,
        destroy_matmul: drop_as::<Gemm>,
        create_preference,
        set_preference,
        destroy_preference: drop_as::<Preference>,
        heuristic,
        multiply,
    }
}

/// Hands something out, as the library does.
///
/// # Safety
/// A pointer may be written at `to`.
unsafe fn make<T>(to: *mut Made, made: T) -> Status {
    // SAFETY: the caller's promise.
    unsafe { *to = Box::into_raw(Box::new(made)).cast() };
    WELL
}

unsafe extern "C" fn drop_as<T>(made: Made) -> Status {
    // SAFETY: `make` made it as a T, and it is given back once.
    drop(unsafe { Box::from_raw(made.cast::<T>()) });
    WELL
}

unsafe extern "C" fn create(to: *mut Made) -> Status {
    // SAFETY: the caller has room for a handle.
    unsafe { make(to, 0u8) }
}

extern "C" fn version() -> usize {
    0
}

extern "C" fn words(status: Status) -> *const c_char {
    match status {
        INVALID => c"an invalid value",
        UNSUPPORTED => c"not supported",
        _ => c"another error",
    }
    .as_ptr()
}

/// The value that an attribute is set to; nothing where it has another size.
///
/// # Safety
/// `bytes` bytes may be read at `from`.
unsafe fn value<T: Copy>(from: *const c_void, bytes: usize) -> Option<T> {
    // SAFETY: as many bytes may be read as a T has.
    (bytes == size_of::<T>()).then(|| unsafe { from.cast::<T>().read_unaligned() })
}

/// Puts a value where it belongs.
fn put<T>(to: &mut T, value: Option<T>) -> Status {
    let Some(value) = value else { return INVALID };
    *to = value;
    WELL
}

unsafe extern "C" fn create_layout(
    to: *mut Made,
    dtype: c_uint,
    rows: u64,
    columns: u64,
    leading: i64,
) -> Status {
    let known = [(number::F32, DType::F32), (number::F16, DType::F16), (number::BF16, DType::BF16)];
    let Some(&(_, dtype)) = known.iter().find(|(number, _)| *number == dtype) else {
        return INVALID;
    };
    // SAFETY: the caller has room for a layout.
    unsafe { make(to, Layout { dtype, rows, columns, leading, batch: 1, stride: 0 }) }
}

unsafe extern "C" fn set_layout(
    made: Made,
    attribute: c_uint,
    from: *const c_void,
    bytes: usize,
) -> Status {
    // SAFETY: `create_layout` made it, and the caller has the value.
    unsafe {
        let layout = &mut *made.cast::<Layout>();
        match attribute {
            number::LAYOUT_BATCH => put(&mut layout.batch, value(from, bytes)),
            number::LAYOUT_STRIDE => put(&mut layout.stride, value(from, bytes)),
            _ => INVALID,
        }
    }
}

unsafe extern "C" fn create_matmul(to: *mut Made, sums: c_uint, factors: c_uint) -> Status {
    let tf32 = match (sums, factors) {
        (number::SUMS_OF_F32, number::F32) => false,
        (number::SUMS_OF_TF32, number::F32) => true,
        _ => return INVALID,
    };
    let matmul = Gemm {
        tf32,
        transpose: [false; 2],
        epilogue: number::NO_EPILOGUE,
        bias: 0,
        auxiliary: 0,
        leading: 0,
        stride: 0,
    };
    // SAFETY: the caller has room for a matmul.
    unsafe { make(to, matmul) }
}

unsafe extern "C" fn set_matmul(
    made: Made,
    attribute: c_uint,
    from: *const c_void,
    bytes: usize,
) -> Status {
    // SAFETY: `create_matmul` made it, and the caller has the value.
    unsafe {
        let matmul = &mut *made.cast::<Gemm>();
        let transposed = || value::<i32>(from, bytes).map(|operation| operation == TRANSPOSED);
        match attribute {
            number::TRANSPOSE_A => put(&mut matmul.transpose[0], transposed()),
            number::TRANSPOSE_B => put(&mut matmul.transpose[1], transposed()),
            number::EPILOGUE => put(&mut matmul.epilogue, value(from, bytes)),
            number::BIAS_POINTER => put(&mut matmul.bias, value(from, bytes)),
            number::AUXILIARY_POINTER => put(&mut matmul.auxiliary, value(from, bytes)),
            number::AUXILIARY_LEADING => put(&mut matmul.leading, value(from, bytes)),
            number::AUXILIARY_STRIDE => put(&mut matmul.stride, value(from, bytes)),
            _ => INVALID,
        }
    }
}

unsafe extern "C" fn create_preference(to: *mut Made) -> Status {
    // SAFETY: the caller has room for a preference.
    unsafe { make(to, Preference { workspace: 0, alignment: [number::ALIGNED; 4] }) }
}

unsafe extern "C" fn set_preference(
    made: Made,
    attribute: c_uint,
    from: *const c_void,
    bytes: usize,
) -> Status {
    // SAFETY: `create_preference` made it, and the caller has the value.
    unsafe {
        let preference = &mut *made.cast::<Preference>();
        match attribute {
            number::WORKSPACE => put(&mut preference.workspace, value(from, bytes)),
            // Slices in f32, which the sums here are in anyway.
            number::SLICES => value::<u32>(from, bytes).map_or(INVALID, |_| WELL),
            number::ALIGNMENT_OF_A..=number::ALIGNMENT_OF_D => {
                let matrix = (attribute - number::ALIGNMENT_OF_A) as usize;
                put(&mut preference.alignment[matrix], value(from, bytes))
            }
            _ => INVALID,
        }
    }
}

impl Gemm {
    /// Summed extent, where the layouts are those of a matmul.
    fn summed(&self, [a, b, c, d]: [&Layout; 4]) -> Result<u64, Status> {
        let of = |layout: &Layout, transposed| {
            let extents = (layout.rows, layout.columns);
            if transposed { (extents.1, extents.0) } else { extents }
        };
        let ((m, k), (inner, n)) = (of(a, self.transpose[0]), of(b, self.transpose[1]));
        let same = k == inner && of(c, false) == (m, n) && of(d, false) == (m, n);
        let leads = |layout: &&Layout| layout.leading >= layout.rows as i64;
        let batched = |layout: &&Layout| layout.batch == d.batch;
        let all = [a, b, c, d];
        let empty = all.iter().any(|layout| layout.rows * layout.columns == 0);
        if !same || empty || !all.iter().all(leads) || !all.iter().all(batched) {
            return Err(INVALID);
        }
        let types = a.dtype == b.dtype
            && c.dtype == d.dtype
            && (d.dtype == a.dtype || d.dtype == DType::F32);
        let auxiliary = self.auxiliary != 0;
        // GELU's argument comes in columns of whole vectors, each at least as long as D's.
        let whole = self.leading % 8 == 0 && self.leading >= d.rows as i64;
        // A bias is added to each row; with GELU's slope, and sums of B's columns, there's none. Those are in D's type too.
        let epilogue = match self.epilogue {
            number::NO_EPILOGUE => self.bias == 0 && !auxiliary,
            number::ADD_BIAS | number::SUMS_OF_B => self.bias != 0 && !auxiliary,
            number::GELU_SLOPE => self.bias == 0 && auxiliary && whole,
            other => {
                let biased = other & number::ADD_BIAS != 0;
                let argument = other & number::AND_ARGUMENT != 0;
                let gelu = other & !(number::ADD_BIAS | number::AND_ARGUMENT) == number::GELU;
                gelu && biased == (self.bias != 0) && argument == auxiliary && (whole || !argument)
            }
        };
        if !types || !epilogue || (self.tf32 && a.dtype != DType::F32) {
            return Err(UNSUPPORTED);
        }
        Ok(k)
    }
}

impl Layout {
    /// The matrices as they lie in memory.
    ///
    /// # Safety
    /// As many elements as the layout says lie at `start`, and nobody else uses them.
    unsafe fn memory<'a>(&self, start: *const c_void) -> &'a mut [u8] {
        let last = (self.batch as i64 - 1) * self.stride + (self.columns as i64 - 1) * self.leading;
        let elements = last as usize + self.rows as usize;
        // SAFETY: the caller's promise.
        unsafe { slice::from_raw_parts_mut(start.cast_mut().cast(), elements * self.dtype.size()) }
    }

    /// Offset of an element's bytes.
    fn at(&self, matrix: i32, row: u64, column: u64) -> usize {
        let of_matrix = i64::from(matrix) * self.stride;
        (of_matrix + column as i64 * self.leading + row as i64) as usize * self.dtype.size()
    }
}

unsafe extern "C" fn heuristic(
    _: Made,
    matmul: Made,
    a: Made,
    b: Made,
    c: Made,
    d: Made,
    preference: Made,
    most: c_int,
    found: *mut Suggestion,
    count: *mut c_int,
) -> Status {
    // SAFETY: all were made by the functions above, and the caller has room for `most` results and their number.
    let (matmul, layouts, preference, found, count) = unsafe {
        let layouts = [a, b, c, d].map(|layout| &*layout.cast::<Layout>());
        let found = slice::from_raw_parts_mut(found, most as usize);
        (&*matmul.cast::<Gemm>(), layouts, &*preference.cast::<Preference>(), found, &mut *count)
    };
    if let Err(status) = matmul.summed(layouts) {
        return status;
    }
    let aligned = layouts
        .iter()
        .zip(preference.alignment)
        .all(|(layout, bytes)| bytes.is_power_of_two() && bytes as usize >= layout.dtype.size());
    if !aligned {
        return INVALID;
    }
    let fitting =
        WORKSPACES.iter().enumerate().filter(|(_, bytes)| **bytes as u64 <= preference.workspace);
    let mut written = 0;
    for (to, (index, &workspace)) in found.iter_mut().zip(fitting) {
        (to.words, to.workspace) = ([index as u64; Algorithm::WORDS], workspace);
        to.state = WELL;
        written += 1;
    }
    *count = written;
    WELL
}

/// An element as it's multiplied.
fn operand(layout: &Layout, memory: &[u8], at: usize, tf32: bool) -> f32 {
    let value = layout.dtype.read(&memory[at..]) as f32;
    if !tf32 {
        return value;
    }
    // To nearest in the 10 bits that are kept of the 23, ties away from zero as `cvt.rna.tf32` rounds.
    f32::from_bits((value.to_bits() + (1 << 12)) & !((1 << 13) - 1))
}

unsafe extern "C" fn multiply(
    _: Made,
    matmul: Made,
    alpha: *const f32,
    a: *const c_void,
    a_layout: Made,
    b: *const c_void,
    b_layout: Made,
    beta: *const f32,
    c: *const c_void,
    c_layout: Made,
    d: *mut c_void,
    d_layout: Made,
    algorithm: *const [u64; Algorithm::WORDS],
    workspace: *mut c_void,
    bytes: usize,
    _: Made,
) -> Status {
    // SAFETY: all were made by the functions above; the matrices lie where the caller says, and D may be C.
    let (matmul, layouts, [alpha, beta], algorithm) = unsafe {
        let layouts =
            [a_layout, b_layout, c_layout, d_layout].map(|layout| &*layout.cast::<Layout>());
        (&*matmul.cast::<Gemm>(), layouts, [*alpha, *beta], (*algorithm)[0])
    };
    let summed = match matmul.summed(layouts) {
        Ok(summed) => summed,
        Err(status) => return status,
    };
    let [of_a, of_b, of_c, of_d] = layouts;
    match WORKSPACES.get(algorithm as usize) {
        Some(&needed) if needed <= bytes => {}
        _ => return INVALID,
    }
    // SAFETY: as above; the workspace has as many bytes, and what was in it is lost. C is copied, since D may be it.
    let (a, b, c, d) = unsafe {
        slice::from_raw_parts_mut(workspace.cast::<u8>(), bytes).fill(u8::MAX);
        (of_a.memory(a), of_b.memory(b), of_c.memory(c).to_vec(), of_d.memory(d))
    };
    let size = of_d.dtype.size();
    let biased = matmul.epilogue & number::ADD_BIAS != 0;
    let slope = matmul.epilogue == number::GELU_SLOPE;
    let gelu = matmul.epilogue & number::GELU != 0;
    let [transpose_a, transpose_b] = matmul.transpose;
    for matrix in 0..of_d.batch {
        for column in 0..of_d.columns {
            for row in 0..of_d.rows {
                let mut sum = 0.0f32;
                for step in 0..summed {
                    // Each algorithm goes through the sum in an order of its own.
                    let k = if algorithm == 1 { summed - 1 - step } else { step };
                    let at_a = if transpose_a { (k, row) } else { (row, k) };
                    let at_b = if transpose_b { (column, k) } else { (k, column) };
                    let left = operand(of_a, a, of_a.at(matrix, at_a.0, at_a.1), matmul.tf32);
                    let right = operand(of_b, b, of_b.at(matrix, at_b.0, at_b.1), matmul.tf32);
                    sum += left * right;
                }
                let to = of_d.at(matrix, row, column);
                let mut result = alpha * sum;
                if beta != 0.0 {
                    result += beta * of_c.dtype.read(&c[of_c.at(matrix, row, column)..]) as f32;
                }
                // SAFETY: a bias has an element for each row of D, and the operand of the epilogue one for each of D's.
                unsafe {
                    if biased {
                        result += of_d.dtype.read(element(matmul.bias, row as i64, size)) as f32;
                    }
                    let place = i64::from(matrix) * matmul.stride
                        + column as i64 * matmul.leading
                        + row as i64;
                    if matmul.auxiliary != 0 && gelu {
                        let to = element(matmul.auxiliary, place, size);
                        of_d.dtype.write(to, f64::from(result));
                    }
                    if slope {
                        let argument = of_d.dtype.read(element(matmul.auxiliary, place, size));
                        result *= gelu_slope(argument) as f32;
                    }
                }
                if gelu {
                    result = gelu_of(f64::from(result)) as f32;
                }
                of_d.dtype.write(&mut d[to..], f64::from(result));
            }
        }
    }
    if matmul.epilogue == number::SUMS_OF_B {
        for column in 0..of_d.columns {
            let at = |k| if transpose_b { (column, k) } else { (k, column) };
            let of = |k| operand(of_b, b, of_b.at(0, at(k).0, at(k).1), false);
            let sum: f32 = (0..summed).map(of).sum();
            // SAFETY: there's room for a sum for each column of D.
            of_d.dtype.write(unsafe { element(matmul.bias, column as i64, size) }, sum.into());
        }
    }
    WELL
}

/// Element `index` of those that begin at an address.
///
/// # Safety
/// It's there, and nobody else uses it.
unsafe fn element<'a>(start: u64, index: i64, size: usize) -> &'a mut [u8] {
    let at = start as usize + index as usize * size;
    // SAFETY: the caller's promise.
    unsafe { slice::from_raw_parts_mut(at as *mut u8, size) }
}

/// ½·x·(1 + tanh(√(2/π)·(x + 0.044715·x³))), and its slope.
fn gelu_of(x: f64) -> f64 {
    0.5 * x * (1.0 + gelu_inner(x).tanh())
}

fn gelu_slope(x: f64) -> f64 {
    let tanh = gelu_inner(x).tanh();
    let inner_slope = (2.0 / std::f64::consts::PI).sqrt() * (1.0 + 3.0 * 0.044_715 * x * x);
    0.5 * (1.0 + tanh) + 0.5 * x * (1.0 - tanh * tanh) * inner_slope
}

fn gelu_inner(x: f64) -> f64 {
    (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x * x * x)
}
