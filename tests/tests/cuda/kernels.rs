//! CUDA kernels, emulated on the processor: a part of the cases each day, and all where they're asked for; what a kernel may not
//! do is found and named.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use conformance::conformance::{Mode, outputs, run, unsupported};
use conformance::draw::Draw;
use conformance::tolerance::{self, Deviation};
use conformance::{cases, reference, tensor_cores, values};
use pollster::block_on;
use tightrope_backend_cuda::driver::{Dispatch, Driver, Emulated, Gpu, Task};
use tightrope_backend_cuda::library::{Finish, Problem};
use tightrope_backend_cuda::matmuls::Makers;
use tightrope_backend_cuda::source::{self, Kernel};
use tightrope_backend_cuda::{Cuda, limits};
use tightrope_backend_wgpu::source as wgsl;
use tightrope_core::launch::{Launch, Limits, Place, WebGpuLimits};
use tightrope_core::ops::{Case, Fill, MatMul, Sample};
use tightrope_core::{Backend, DType, DeviceError, Rule, Type};

pub fn cache() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("emulated")
}

pub fn launches(case: &Case, limits: &Limits) -> Vec<Launch> {
    let inputs: Vec<&Type> = case.inputs.iter().map(|sample| &sample.ty).collect();
    let outputs = case.op.infer(&inputs).unwrap();
    let outputs: Vec<&Type> = outputs.iter().collect();
    case.op.launch(limits, &inputs, &outputs).map_or(vec![], |launches| launches.list)
}

pub fn check(mut backend: Cuda, cases: &[Case]) {
    let all: Vec<Launch> = cases.iter().flat_map(|case| launches(case, backend.limits())).collect();
    backend.compile(&all).unwrap();
    let report = block_on(run(&mut backend, cases, Mode::Check));
    println!("{}\n{report}", backend.name());
    let problems = report.problems(&unsupported("cuda").expect("a readable list"));
    assert!(problems.is_empty(), "{}:\n{}", problems.len(), problems.join("\n"));
}

/// A tenth of the cases, called `what`: each kernel is compiled for the processor, which takes long.
fn check_drawn(backend: Cuda, what: &str, cases: Vec<Case>) {
    check(backend, &Draw::of_today().one_of(10, what, cases));
}

#[test]
fn kernels_match_the_references_emulated() {
    check_drawn(Cuda::new(Box::new(Emulated::new(cache(), 1))), "emulated cases", cases::all());
}

/// Bytes of a binding that a few rows of many cases fill.
const SMALL_BINDING: u64 = 1 << 12;

#[test]
fn tensors_that_no_launch_binds_whole_are_cut() {
    let mut backend = Cuda::new(Box::new(Emulated::new(cache(), 5)));
    backend.bind_at_most(SMALL_BINDING);
    // What needs a window that isn't cut, as a large row, is refused on every device.
    let limits = backend.limits().clone();
    let taken = |case: &Case| !launches(case, &limits).is_empty();
    let cases: Vec<Case> =
        cases::all().into_iter().chain(tensor_cores::matmuls()).filter(taken).collect();
    check_drawn(backend, "cut cases", cases);
}

#[test]
fn tensor_cores_match_the_references_emulated() {
    let cases = [
        tensor_cores::matmuls(),
        tensor_cores::fused(),
        tensor_cores::attention(),
        tensor_cores::losses(),
    ]
    .concat();
    let on_tensor_cores = |case: &Case| {
        launches(case, &limits()).iter().any(|launch| launch.kernel.ends_with("_mma"))
    };
    assert!(cases.iter().all(on_tensor_cores));
    let elsewhere =
        |case: &Case| launches(case, &limits()).iter().any(|launch| launch.kernel == "matmul");
    assert!(!tensor_cores::losses().iter().any(elsewhere));
    let sums_of_lhs = |launch: &Launch| launch.constants.contains(&("SUMS_LHS", 1));
    let fused = tensor_cores::fused();
    assert!(fused.iter().any(|case| launches(case, &limits()).iter().any(sums_of_lhs)));
    check_drawn(Cuda::new(Box::new(Emulated::new(cache(), 3))), "cases on tensor cores", cases);
}

#[test]
fn without_tensor_cores_for_bf16_other_kernels_match_the_references_emulated() {
    let mut backend = Cuda::new(Box::new(Emulated::new(cache(), 4)));
    backend.restrict(|own| own.tensor_cores = &[DType::F16]);
    let in_bf16 = |case: &Case| case.inputs.iter().any(|sample| sample.ty.dtype == DType::BF16);
    let cases = [
        tensor_cores::matmuls(),
        tensor_cores::fused(),
        tensor_cores::attention(),
        tensor_cores::losses(),
    ]
    .concat();
    let cases: Vec<Case> = cases.into_iter().filter(in_bf16).collect();
    let on_tensor_cores = |case: &Case| {
        launches(case, backend.limits()).iter().any(|launch| launch.kernel.ends_with("_mma"))
    };
    assert!(!cases.is_empty() && !cases.iter().any(on_tensor_cores));
    check_drawn(backend, "cases without tensor cores", cases);
}

/// Matmuls of f32 in tiles that lie across edges, in all orders of storage; in slices of K; on the large tile's path.
fn tf32_cases() -> Vec<Case> {
    let mut cases = vec![];
    for (transpose_lhs, transpose_rhs) in
        [(false, false), (false, true), (true, false), (true, true)]
    {
        let (b, m, n, k) = (2, 68, 132, 52);
        let lhs = if transpose_lhs { [b, k, m] } else { [b, m, k] };
        let rhs = if transpose_rhs { [b, n, k] } else { [b, k, n] };
        let op = MatMul { batch: true, transpose_lhs, transpose_rhs, ..MatMul::new(DType::F32) };
        cases.push(Case::new(op, vec![cases::unit(&lhs), cases::unit(&rhs)]));
        let (m, n) = (if transpose_lhs { 8 } else { 5 }, if transpose_rhs { 33 } else { 36 });
        let lhs = if transpose_lhs { [1600, m] } else { [m, 1600] };
        let rhs = if transpose_rhs { [n, 1600] } else { [1600, n] };
        let op = MatMul { transpose_lhs, transpose_rhs, bias: true, ..MatMul::new(DType::F32) };
        let inputs = vec![cases::unit(&lhs), cases::unit(&rhs), cases::unit(&[n])];
        cases.push(Case::new(op, inputs));
    }
    let sums = MatMul { transpose_lhs: true, accumulate: true, ..MatMul::new(DType::F32) };
    let inputs = vec![cases::unit(&[40, 24]), cases::unit(&[40, 40]), cases::unit(&[24, 40])];
    cases.push(Case::new(sums, inputs));
    let large = vec![cases::unit(&[2048, 16]), cases::unit(&[2048, 16])];
    cases.push(Case::new(MatMul::linear(false, DType::F32), large));
    cases
}

/// How far a backend's outputs of a case are from the reference.
fn deviation(backend: &mut Cuda, case: &Case) -> Deviation {
    let found = block_on(outputs(backend, case)).expect("outputs");
    let expected = reference::outputs(case).expect("outputs");
    let numbers = |bytes: &[Vec<u8>]| values::decode(DType::F32, &bytes[0]);
    Deviation::between(&numbers(&found), &numbers(&expected))
}

#[test]
fn matmuls_in_tf32_are_off_by_its_rounding_alone() {
    let in_tf32 = |backend: &mut Cuda| backend.restrict(|own| own.tf32 = true);
    let mut kernels = Cuda::new(Box::new(Emulated::new(cache(), 9)));
    let mut library = Cuda::new(Box::new(Emulated::new(cache(), 9)));
    library.matmuls_by(Makers::Library).expect("what stands for the library");
    let cases = tf32_cases();
    for backend in [&mut kernels, &mut library] {
        in_tf32(backend);
        let all: Vec<Launch> =
            cases.iter().flat_map(|case| launches(case, backend.limits())).collect();
        assert!(all.iter().any(|launch| launch.kernel == "matmul_mma"));
        assert!(all.iter().all(|launch| launch.kernel != "matmul" || launch.entry == "add_slices"));
        backend.compile(&all).unwrap();
        for case in &cases {
            let off = deviation(backend, case);
            println!("{off:?}");
            assert!(off.within(tolerance::OF_TF32), "{off:?}: {case:?}");
            // More than f32 is off by: the operands were rounded.
            assert!(!off.within(tolerance::of_dtype(DType::F32)), "{off:?}: {case:?}");
        }
    }
    // What was not allowed is not done.
    let exact = Cuda::new(Box::new(Emulated::new(cache(), 9)));
    assert!(
        cases
            .iter()
            .flat_map(|case| launches(case, exact.limits()))
            .all(|launch| { launch.kernel == "matmul" })
    );
}

/// Numbers that TF32 holds are multiplied as f32 multiplies them.
#[test]
fn matmuls_in_tf32_of_what_it_holds_are_those_of_f32() {
    let mut backend = Cuda::new(Box::new(Emulated::new(cache(), 13)));
    backend.restrict(|own| own.tf32 = true);
    for case in tf32_cases() {
        // Whole numbers of at most ten bits.
        let round = |sample: &Sample| Sample { fill: Fill::Whole(-512, 512), ..sample.clone() };
        let inputs = case.inputs.iter().map(round).collect();
        let case = Case::new(case.op, inputs);
        let off = deviation(&mut backend, &case);
        assert!(off.within(tolerance::of_dtype(DType::F32)), "{off:?}: {case:?}");
    }
}

/// Every case that has a matmul in it, made by what stands for NVIDIA's library.
#[test]
fn matmuls_by_the_library_match_the_references_emulated() {
    let with_matmul =
        |case: &Case| launches(case, &limits()).iter().any(|launch| launch.matmul.is_some());
    let mut cases =
        [cases::all(), tensor_cores::matmuls(), tensor_cores::fused(), tensor_cores::losses()]
            .concat();
    cases.retain(with_matmul);
    let problem = |launch: &Launch| Problem::of(launch.matmul.as_ref()?, false, |_| 0);
    let problems = cases.iter().flat_map(|case| launches(case, &limits()));
    let found: Vec<(Problem, _)> = problems.filter_map(|launch| problem(&launch)).collect();
    let any = |is: &dyn Fn(&Problem) -> bool| found.iter().any(|(problem, _)| is(problem));
    assert!(any(&|problem| problem.sums.is_some()));
    assert!(any(&|problem| matches!(problem.finish, Some(Finish::Add(_)))));
    assert!(any(&|problem| matches!(problem.finish, Some(Finish::Gelu(None)))));
    assert!(any(&|problem| matches!(problem.finish, Some(Finish::Gelu(Some(_))))));
    assert!(any(&|problem| matches!(problem.finish, Some(Finish::GeluSlope(_)))));
    let mut backend = Cuda::new(Box::new(Emulated::new(cache(), 5)));
    backend.matmuls_by(Makers::Library).expect("what stands for the library");
    check_drawn(backend, "cases with a matmul by the library", cases);
}

/// Names the GPU that has to be there, by its number.
const GPU: &str = "TIGHTROPE_CUDA";

/// A machine without a GPU says what it lacks, unless a GPU was named; one with a GPU runs everything on it.
#[test]
fn kernels_match_the_references_on_a_gpu_where_there_is_one() {
    let named = std::env::var(GPU).ok().map(|number| number.parse().expect("a GPU's number"));
    let open = || Gpu::open(named.unwrap_or(0), cache());
    match open() {
        Ok(mut gpu) => {
            the_driver_gives_what_is_asked(&mut gpu);
            let has_wgmma = gpu.wgmma().is_some();
            let fused = tensor_cores::fused();
            let all = [
                cases::all(),
                tensor_cores::matmuls(),
                fused,
                tensor_cores::attention(),
                tensor_cores::losses(),
            ]
            .concat();
            check(Cuda::new(Box::new(gpu)), &all);
            if has_wgmma {
                crate::wgmma::check_all(|| Box::new(open().expect("the same GPU")));
            }
        }
        Err(DeviceError::Lost { device, reason }) => {
            assert_eq!(named, None, "{device}: {reason}");
            assert!(device == "cuda:0" && !reason.is_empty(), "{device}: {reason}");
            println!("{device}: {reason}");
        }
        Err(other) => panic!("{other:?}"),
    }
}

/// What a GPU's driver records of an allocation is what was asked, and takes that much of what is free.
fn the_driver_gives_what_is_asked(gpu: &mut Gpu) {
    /// The driver takes memory in pages so large.
    const PAGE: u64 = 2 << 20;
    for bytes in [256, 4096 + 256, (300 << 20) + 256] {
        // What could be allocated counts the allocation, which the next one replaces.
        let before = gpu.free_bytes().expect("a GPU says what is free");
        gpu.allocate(bytes).expect("room");
        assert_eq!(gpu.allocated_bytes(), bytes);
        let after = gpu.free_bytes().expect("a GPU says what is free");
        assert!(before.abs_diff(after) <= PAGE, "{bytes} bytes: {before} free, then {after}");
    }
}

/// Names and types in a struct of either language.
fn fields(
    text: &str,
    end: &str,
    field: impl Fn(&str) -> Option<(String, bool)>,
) -> Vec<(String, bool)> {
    let (_, rest) = text.split_once("Params {").expect("a struct of parameters");
    let (body, _) = rest.split_once(end).expect("the struct ends");
    body.split([';', ',', '\n']).filter_map(field).collect()
}

#[test]
fn both_languages_read_the_same_parameters() {
    let mut seen = 0;
    for launch in cases::all().iter().flat_map(|case| launches(case, &limits())) {
        let of_wgsl = launch.words();
        let of_cuda = source::parameters(&launch);
        assert_eq!(of_cuda.len(), of_wgsl.len().next_multiple_of(8));
        assert!(of_cuda.starts_with(&of_wgsl));
        let bindings: Vec<usize> = (0..launch.operands.len()).collect();
        // Entries for tensor cores are in files of their own, with the parameters of the family.
        let family = launch.kernel.strip_suffix("_mma").unwrap_or(launch.kernel);
        let twin = Launch { kernel: family, ..launch.clone() };
        let wgsl = fields(
            &wgsl::assemble(&twin, &bindings, WebGpuLimits::default()).unwrap(),
            "}",
            |line| {
                let (name, ty) = line.trim().split_once(": ")?;
                Some((name.to_owned(), ty == "f32"))
            },
        );
        let cuda = fields(&Kernel::of(&launch).unwrap().text, "}", |line| {
            let (ty, name) = line.trim().split_once(' ')?;
            Some((name.to_owned(), ty == "float"))
        });
        assert_eq!(wgsl, cuda, "{}", launch.kernel);
        seen += 1;
    }
    assert!(seen > 500, "only {seen} launches");
}

/// Threads of the kernels below.
const THREADS: u32 = 64;

/// What the emulated device says of a kernel that reads `x` and writes `y`, of `elements` each.
fn verdict(text: &str, elements: u64) -> Result<(), String> {
    let ty = Type::new(DType::F32, [elements as usize]);
    let launch = Launch::new("wrong", "entry", THREADS, 1)
        .bind("x", Place::input(0, &ty))
        .bind("y", Place::output(0, &ty));
    let kernel = Kernel::with_files(&launch, &[("wrong.cu".into(), text)]).unwrap();
    let mut driver = Emulated::new(cache(), 7);
    let address = driver.allocate(8 * elements).unwrap();
    let loaded = driver.load(&[kernel]).map_err(|error| error.to_string())?;
    let tensors = [address, elements, address + 4 * elements, elements];
    let mut arguments = source::parameters(&launch);
    arguments.extend(tensors.iter().flat_map(|word| word.to_le_bytes()));
    let launched =
        driver.launch(&Task::Kernel(Dispatch { kernel: loaded[0], arguments, blocks: 1 }));
    launched.and_then(|()| driver.read(&[])).map(|_| ()).map_err(|error| error.to_string())
}

/// Neighbours exchanged through shared memory, with `between` before they're read.
fn exchange(between: &str) -> String {
    format!(
        "__shared__ Shared<float, WORKGROUP> shared;
__device__ void entry(const Args &args) {{
    shared[threadIdx.x] = args.x.load(threadIdx.x);
    {between}
    args.y.store(threadIdx.x, shared[(threadIdx.x + 1) % WORKGROUP]);
}}
"
    )
}

#[track_caller]
fn refused(text: &str, elements: u64, words: &[&str]) {
    let said = verdict(text, elements).expect_err("the kernel is wrong");
    assert!(words.iter().all(|word| said.contains(word)), "{said}");
}

#[test]
fn a_missing_barrier_is_found_and_named() {
    assert_eq!(verdict(&exchange("__syncthreads();"), THREADS.into()), Ok(()));
    // Whether another has written by then depends on the order; both are errors on the line of the read.
    refused(&exchange(""), THREADS.into(), &["wrong.cu:5: thread", "element", "shared array"]);
}

#[test]
fn shared_memory_that_is_written_too_early_is_found_and_named() {
    let text = exchange("__syncthreads();").replace("}\n", "    shared[threadIdx.x] = 0.0f;\n}\n");
    refused(&text, THREADS.into(), &["wrong.cu:6: thread", "writes element", "line 5", "barrier"]);
}

#[test]
fn an_access_out_of_bounds_is_found_and_named() {
    let text = exchange("__syncthreads();");
    let one_short = u64::from(THREADS) - 1;
    refused(&text, one_short, &["wrong.cu:3: thread 63 of block 0", "element 63 of `x`", "has 63"]);
    let past_the_end = text.replace("% WORKGROUP", "");
    refused(&past_the_end, THREADS.into(), &["wrong.cu:5", "element 64 of a shared array of 64"]);
}

#[test]
fn a_barrier_that_some_threads_miss_is_found_and_named() {
    let divided = "__device__ void entry(const Args &args) {
    if (threadIdx.x < 40) __syncthreads();
    args.y.store(threadIdx.x, 1.0f);
}
";
    refused(divided, THREADS.into(), &["wrong.cu:2", "waits at a barrier, thread", "does not"]);
    let shuffled = "__device__ void entry(const Args &args) {
    float x = 1.0f;
    if (threadIdx.x != 5) x = __shfl_xor_sync(ALL_LANES, x, 1);
    args.y.store(threadIdx.x, x);
}
";
    refused(shuffled, THREADS.into(), &["wrong.cu:3", "waits for its warp, thread 5 does not"]);
}

#[test]
fn every_kernel_file_is_reached_by_a_case() {
    let mut reached: BTreeSet<String> = cases::all()
        .iter()
        .flat_map(|case| launches(case, &limits()))
        .map(|launch| launch.kernel.to_owned())
        .collect();
    // Numbers are collected where a map reads more than a launch binds.
    reached.insert("collect".to_owned());
    // It has no kernels: those of attention include it.
    reached.insert("attention_heads".to_owned());
    // Made on other limits than those of every GPU, by the tests of it.
    let by_groups =
        ["matmul_wgmma", "attention_wgmma", "attention_wgmma_grad", "attention_ordered"];
    reached.extend(by_groups.map(str::to_owned));
    assert_eq!(reached, source::stems().map(str::to_owned).collect());
}

#[test]
fn a_kernel_that_begins_early_waits_before_all_else() {
    let case = &cases::all()[0];
    let kernel = Kernel::of(&launches(case, &limits())[0]).expect("a kernel");
    let [early, late] = [true, false].map(|early| source::for_device(&[&kernel], early));
    let (_, body) = early.split_once(" args) {\n").expect("an entry");
    let waits = r#"asm volatile("griddepcontrol.launch_dependents;\ngriddepcontrol.wait;" "#;
    assert!(body.trim_start().starts_with(waits), "{body}");
    assert!(!late.contains("griddepcontrol"));
}
