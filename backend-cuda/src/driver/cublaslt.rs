//! cuBLASLt: NVIDIA's library of matmuls.

mod api;
#[cfg(any(test, feature = "emulation"))]
mod emulated;

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;

use cudarc::cublaslt::sys;
use tightrope_core::DType;

use super::requirements::{self, Version, cuda_version};
use crate::library::{Addresses, Algorithm, Finish, Layout, Multiply, Problem};
use api::{Api, Destroy, Made, Set, Suggestion};

/// Algorithms that the library is asked for; it lists what it expects to be the fastest first.
const ASKED: usize = 8;

/// `cublasOperation_t`, which the bindings leave out.
const AS_STORED: i32 = 0;
const TRANSPOSED: i32 = 1;

/// The library.
pub struct CublasLt {
    api: Api,
    handle: Made,
}

// SAFETY: the library's handle may be used by any thread (cuBLAS, thread safety).
unsafe impl Send for CublasLt {}

/// Something that the library made for one matmul, given back when it's dropped.
struct Owned<'a> {
    api: &'a Api,
    made: Made,
    set: Set,
    destroy: Destroy,
}

impl<'a> Owned<'a> {
    fn new(
        api: &'a Api,
        create: impl FnOnce(*mut Made) -> api::Status,
        set: Set,
        destroy: Destroy,
    ) -> Result<Self, String> {
        let mut made = ptr::null_mut();
        api.checked(create(&mut made))?;
        Ok(Self { api, made, set, destroy })
    }

    /// Sets an attribute, whose value has the type that the library's header says.
    fn set<T: Copy>(&self, attribute: c_uint, value: T) -> Result<(), String> {
        let from = ptr::from_ref(&value).cast::<c_void>();
        // SAFETY: the library made it, and copies as many bytes as the value has.
        self.api.checked(unsafe { (self.set)(self.made, attribute, from, size_of::<T>()) })
    }
}

impl Drop for Owned<'_> {
    fn drop(&mut self) {
        // SAFETY: the library made it, and nothing uses it any more.
        unsafe { (self.destroy)(self.made) };
    }
}

/// A problem as the library has it.
struct Described<'a> {
    matmul: Owned<'a>,
    a: Owned<'a>,
    b: Owned<'a>,
    /// What is added; D where nothing else is.
    c: Owned<'a>,
    d: Owned<'a>,
}

fn data_type(dtype: DType) -> sys::cudaDataType {
    match dtype {
        DType::BF16 => sys::cudaDataType::CUDA_R_16BF,
        DType::F16 => sys::cudaDataType::CUDA_R_16F,
        // Problems have no other dtype.
        _ => sys::cudaDataType::CUDA_R_32F,
    }
}

impl CublasLt {
    /// Finds and begins the newest library that a driver for this version of CUDA can run. A context is current.
    ///
    /// # Errors
    /// In words, where none is installed or begins.
    pub fn open(driver: Version) -> Result<Self, String> {
        let version = |cuda: usize| cuda_version(c_int::try_from(cuda).unwrap_or(c_int::MAX));
        Self::with(Api::open_where(|cuda| requirements::of_library(version(cuda), driver))?)
    }

    /// What stands for the library on the processor: its calls, with memory of the host.
    #[cfg(any(test, feature = "emulation"))]
    pub fn emulated() -> Self {
        Self::with(emulated::api()).expect("the emulated library begins everywhere")
    }

    fn with(api: Api) -> Result<Self, String> {
        let mut handle = ptr::null_mut();
        // SAFETY: a handle is written.
        api.checked(unsafe { (api.create)(&mut handle) })
            .map_err(|words| format!("cuBLASLt is installed and doesn't begin: {words}"))?;
        Ok(Self { api, handle })
    }

    /// Its version, in words.
    pub fn version(&self) -> String {
        // SAFETY: takes nothing and gives a number.
        format!("cuBLASLt {}", unsafe { (self.api.version)() })
    }

    fn layout(&self, of: &Layout, batch: u64) -> Result<Owned<'_>, String> {
        use sys::cublasLtMatrixLayoutAttribute_t as Attribute;
        let api = &self.api;
        let dtype = data_type(of.dtype) as c_uint;
        // SAFETY: a handle is written.
        let create = |made: *mut Made| unsafe {
            (api.create_layout)(made, dtype, of.rows, of.columns, of.leading as i64)
        };
        let layout = Owned::new(api, create, api.set_layout, api.destroy_layout)?;
        if batch > 1 {
            layout.set(Attribute::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT as c_uint, batch as i32)?;
            let stride = Attribute::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET as c_uint;
            layout.set(stride, of.stride as i64)?;
        }
        Ok(layout)
    }

    /// Of the addresses, those of bias and auxiliary matrix matter.
    fn describe(&self, problem: &Problem, at: &Addresses) -> Result<Described<'_>, String> {
        use sys::cublasComputeType_t as Compute;
        use sys::cublasLtEpilogue_t as Epilogue;
        use sys::cublasLtMatmulDescAttributes_t as Attribute;
        let api = &self.api;
        let sums = if problem.tf32 {
            Compute::CUBLAS_COMPUTE_32F_FAST_TF32
        } else {
            Compute::CUBLAS_COMPUTE_32F
        };
        let factors = data_type(DType::F32) as c_uint;
        // SAFETY: a handle is written.
        let create =
            |made: *mut Made| unsafe { (api.create_matmul)(made, sums as c_uint, factors) };
        let matmul = Owned::new(api, create, api.set_matmul, api.destroy_matmul)?;
        let operation = |transposed| if transposed { TRANSPOSED } else { AS_STORED };
        let transpose_a = Attribute::CUBLASLT_MATMUL_DESC_TRANSA as c_uint;
        matmul.set(transpose_a, operation(problem.transpose_a))?;
        let transpose_b = Attribute::CUBLASLT_MATMUL_DESC_TRANSB as c_uint;
        matmul.set(transpose_b, operation(problem.transpose_b))?;
        let biased = problem.bias.is_some();
        let epilogue = match problem.finish {
            _ if problem.sums.is_some() => Epilogue::CUBLASLT_EPILOGUE_BGRADB,
            None | Some(Finish::Add(_)) if biased => Epilogue::CUBLASLT_EPILOGUE_BIAS,
            None | Some(Finish::Add(_)) => Epilogue::CUBLASLT_EPILOGUE_DEFAULT,
            Some(Finish::Gelu(Some(_))) if biased => Epilogue::CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
            Some(Finish::Gelu(Some(_))) => Epilogue::CUBLASLT_EPILOGUE_GELU_AUX,
            Some(Finish::Gelu(None)) if biased => Epilogue::CUBLASLT_EPILOGUE_GELU_BIAS,
            Some(Finish::Gelu(None)) => Epilogue::CUBLASLT_EPILOGUE_GELU,
            Some(Finish::GeluSlope(_)) => Epilogue::CUBLASLT_EPILOGUE_DGELU,
        };
        matmul.set(Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE as c_uint, epilogue as u32)?;
        if biased || problem.sums.is_some() {
            matmul.set(Attribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER as c_uint, at.bias)?;
        }
        let operand = problem.finish.and_then(|finish| finish.operand());
        let auxiliary = operand.filter(|_| !matches!(problem.finish, Some(Finish::Add(_))));
        if let Some(layout) = auxiliary {
            let pointer = Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER as c_uint;
            matmul.set(pointer, at.operand)?;
            let leading = Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD as c_uint;
            matmul.set(leading, layout.leading as i64)?;
            let stride = Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE as c_uint;
            matmul.set(stride, layout.stride as i64)?;
        }
        let layout = |of| self.layout(of, problem.batch);
        Ok(Described {
            matmul,
            a: layout(&problem.a)?,
            b: layout(&problem.b)?,
            c: layout(&problem.c())?,
            d: layout(&problem.d)?,
        })
    }

    fn preference(&self, problem: &Problem, workspace: u64) -> Result<Owned<'_>, String> {
        use sys::cublasLtMatmulPreferenceAttributes_t as Attribute;
        let api = &self.api;
        // SAFETY: a handle is written.
        let create = |made: *mut Made| unsafe { (api.create_preference)(made) };
        let preference = Owned::new(api, create, api.set_preference, api.destroy_preference)?;
        preference.set(Attribute::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES as c_uint, workspace)?;
        // Slices of a sum are added in f32, in their order.
        let schemes = sys::cublasLtReductionScheme_t::CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
        let scheme = Attribute::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK as c_uint;
        preference.set(scheme, schemes as u32)?;
        for (attribute, layout) in [
            (Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &problem.a),
            (Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &problem.b),
            (Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &problem.c()),
            (Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &problem.d),
        ] {
            preference.set(attribute as c_uint, layout.alignment as u32)?;
        }
        Ok(preference)
    }

    /// Algorithms for a problem within so many bytes of workspace, those that the library expects to be fastest first;
    /// none where it has none.
    ///
    /// # Errors
    /// The library's words.
    pub fn algorithms(&self, problem: &Problem, workspace: u64) -> Result<Vec<Algorithm>, String> {
        // Addresses are only looked at for their alignment.
        let operand = problem.finish.and_then(|finish| finish.operand());
        let aligned = Addresses {
            bias: problem.bias.or(problem.sums).unwrap_or(0),
            operand: operand.map_or(0, |layout| layout.alignment),
            ..Addresses::default()
        };
        let described = self.describe(problem, &aligned)?;
        let preference = self.preference(problem, workspace)?;
        let Described { matmul, a, b, c, d } = &described;
        let mut found = [Suggestion::default(); ASKED];
        let mut count = 0;
        // SAFETY: everything was made by the library for this problem; as many results are written as were asked for.
        let status = unsafe {
            (self.api.heuristic)(
                self.handle,
                matmul.made,
                a.made,
                b.made,
                c.made,
                d.made,
                preference.made,
                ASKED as c_int,
                found.as_mut_ptr(),
                &mut count,
            )
        };
        if status == sys::cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED as api::Status {
            return Ok(vec![]);
        }
        self.api.checked(status)?;
        let count = usize::try_from(count).unwrap_or(0).min(ASKED);
        let usable = |found: &&Suggestion| found.state == 0 && found.workspace as u64 <= workspace;
        let algorithm = |found: &Suggestion| Algorithm {
            words: found.words,
            workspace: found.workspace as u64,
        };
        Ok(found[..count].iter().filter(usable).map(algorithm).collect())
    }

    /// Begins a matmul on a stream of the context that the library was begun in.
    ///
    /// # Safety
    /// The addresses are those of matrices as the problem says, and of a workspace as large as the algorithm's, in memory
    /// of the device; all stay until the stream has passed.
    ///
    /// # Errors
    /// The library's words.
    pub unsafe fn multiply(&self, call: &Multiply, stream: Made) -> Result<(), String> {
        let Multiply { problem, algorithm, at, workspace } = call;
        let described = self.describe(problem, at)?;
        let Described { matmul, a, b, c, d } = &described;
        let added = matches!(problem.finish, Some(Finish::Add(_)));
        let (alpha, beta) = (1.0f32, if problem.accumulate || added { 1.0f32 } else { 0.0 });
        let memory = |address: u64| address as *mut c_void;
        // SAFETY: alpha and beta are the host's and are read before the call returns; the rest is the caller's promise.
        let status = unsafe {
            (self.api.multiply)(
                self.handle,
                matmul.made,
                &alpha,
                memory(at.a),
                a.made,
                memory(at.b),
                b.made,
                &beta,
                memory(if added { at.operand } else { at.d }),
                c.made,
                memory(at.d),
                d.made,
                &algorithm.words,
                memory(*workspace),
                algorithm.workspace as usize,
                stream,
            )
        };
        self.api.checked(status)
    }
}

impl Drop for CublasLt {
    fn drop(&mut self) {
        // SAFETY: the library made the handle, and nothing uses it any more.
        unsafe { (self.api.destroy)(self.handle) };
    }
}

#[cfg(test)]
mod tests {
    use tightrope_core::launch::{Place, Source};
    use tightrope_core::ops::{Gemm, Matrices, Stored};

    use super::*;

    /// A matrix within a larger tensor: rows `apart` elements from each other, from element `first` on.
    struct Placed {
        stored: Stored,
        bytes: Vec<u8>,
    }

    impl Placed {
        fn new(
            source: Source,
            dtype: DType,
            batch: u64,
            rows: u64,
            columns: u64,
            apart: u64,
            transposed: bool,
        ) -> Self {
            let first = 3;
            let stride = rows * apart + 5;
            let elements = first + batch * stride + columns;
            let place = Place { source, dtype, first: 0, elements };
            let stored = Stored { place, first, row: apart, stride, transposed };
            let mut bytes = vec![0; elements as usize * dtype.size()];
            for (index, element) in bytes.chunks_exact_mut(dtype.size()).enumerate() {
                // Whole numbers, whose products and sums are exact in any order.
                dtype.write(element, ((index * 7 + index / 5) % 9) as f64 - 4.0);
            }
            Self { stored, bytes }
        }

        fn index(&self, matrix: u64, row: u64, column: u64) -> usize {
            let Stored { first, row: apart, stride, transposed, .. } = self.stored;
            let (outer, inner) = if transposed { (column, row) } else { (row, column) };
            (first + matrix * stride + outer * apart + inner) as usize
        }

        fn get(&self, matrix: u64, row: u64, column: u64) -> f64 {
            let dtype = self.stored.place.dtype;
            dtype.read(&self.bytes[self.index(matrix, row, column) * dtype.size()..])
        }
    }

    /// A matmul by the library's calls, compared with plain loops over rows.
    fn agrees(dtype: DType, out: DType, transposed: [bool; 2], bias: bool, accumulate: bool) {
        let (batch, m, n, k) = (2, 6, 5, 7);
        let placed = |source, dtype, [rows, columns]: [u64; 2], transposed: bool| {
            let (rows, columns) = if transposed { (columns, rows) } else { (rows, columns) };
            Placed::new(source, dtype, batch, rows, columns, columns + 3, transposed)
        };
        let lhs = placed(Source::Input(0), dtype, [m, k], transposed[0]);
        let rhs = placed(Source::Input(1), dtype, [k, n], transposed[1]);
        let mut result = placed(Source::Output(0), out, [m, n], false);
        let biases = Placed::new(Source::Input(2), out, 1, 1, n, n, false);
        let mut expected = result.bytes.clone();
        for matrix in 0..batch {
            for row in 0..m {
                for column in 0..n {
                    let terms =
                        (0..k).map(|l| lhs.get(matrix, row, l) * rhs.get(matrix, l, column));
                    let mut sum: f64 = terms.sum();
                    let at = result.index(matrix, row, column);
                    if bias {
                        sum += out.read(&biases.bytes[column as usize * out.size()..]);
                    }
                    if accumulate {
                        sum += result.get(matrix, row, column);
                    }
                    out.write(&mut expected[at * out.size()..], sum);
                }
            }
        }
        let extents =
            Matrices { batch: batch as usize, m: m as usize, n: n as usize, k: k as usize };
        let matmul = Gemm {
            bias: bias.then_some(biases.stored.place),
            accumulate,
            ..Gemm::new(lhs.stored, rhs.stored, result.stored, extents)
        };
        let start = result.bytes.as_mut_ptr();
        let address = |place: &Place| match place.source {
            Source::Input(0) => lhs.bytes.as_ptr() as u64,
            Source::Input(1) => rhs.bytes.as_ptr() as u64,
            Source::Input(_) => biases.bytes.as_ptr() as u64,
            _ => start as u64,
        };
        let (problem, at) = Problem::of(&matmul, false, address).expect("the library takes it");
        let library = CublasLt::emulated();
        let mut workspace = vec![0u8; 1 << 20];
        let algorithms = library.algorithms(&problem, workspace.len() as u64).expect("a problem");
        assert_eq!(algorithms.len(), 3, "{problem}");
        assert_eq!(library.algorithms(&problem, 0).expect("a problem").len(), 1);
        let before = result.bytes.clone();
        for algorithm in algorithms {
            result.bytes.copy_from_slice(&before);
            let workspace = workspace.as_mut_ptr() as u64;
            let call = Multiply { problem, algorithm, at, workspace };
            // SAFETY: the matrices and the workspace are in vectors that live until the end.
            unsafe { library.multiply(&call, ptr::null_mut()) }.expect("a matmul");
            // What lies between rows and matrices stays as it was.
            assert!(result.bytes == expected, "{problem} by {algorithm:?}");
        }
    }

    #[test]
    fn matmuls_by_columns_are_those_by_rows() {
        use DType::{BF16, F16, F32};
        for (dtype, out) in [(F32, F32), (BF16, BF16), (BF16, F32), (F16, F16), (F16, F32)] {
            for transposed in [[false, false], [false, true], [true, false], [true, true]] {
                for (bias, accumulate) in
                    [(false, false), (true, false), (false, true), (true, true)]
                {
                    agrees(dtype, out, transposed, bias, accumulate);
                }
            }
        }
    }

    /// The library checks the size of what is set, for which it needs no GPU.
    #[test]
    #[ignore = "needs NVIDIA's library: `cargo xtask kernels` brings it"]
    fn the_library_itself_takes_what_is_described() {
        let api = Api::open_where(|_| Ok(())).expect("the library");
        let library = std::mem::ManuallyDrop::new(CublasLt { api, handle: ptr::null_mut() });
        println!("{}", library.version());
        let layout = |rows, columns| Layout {
            dtype: DType::BF16,
            rows,
            columns,
            leading: rows,
            stride: rows * columns,
            alignment: 256,
        };
        let problem = Problem {
            a: layout(64, 96),
            b: layout(64, 32),
            d: layout(96, 32),
            transpose_a: true,
            transpose_b: false,
            batch: 2,
            k: 64,
            bias: Some(256),
            accumulate: true,
            finish: None,
            sums: None,
            tf32: false,
        };
        let at = Addresses { bias: 256, operand: 256, ..Addresses::default() };
        let operand = layout(96, 32);
        for (finish, sums) in [
            (None, None),
            (None, Some(256)),
            (Some(Finish::Add(operand)), None),
            (Some(Finish::Gelu(None)), None),
            (Some(Finish::Gelu(Some(operand))), None),
            (Some(Finish::GeluSlope(operand)), None),
        ] {
            library.describe(&Problem { finish, sums, ..problem }, &at).expect("a matmul");
        }
        library.preference(&problem, 1 << 20).expect("what is asked for");
    }
}
