//! CUDA kernels, emulated on the processor: every case; what a kernel may not do is found and named.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use conformance::cases;
use conformance::conformance::{Mode, block_on, run, unsupported};
use tightrope_backend_cuda::driver::Emulated;
use tightrope_backend_cuda::{Cuda, limits, source};
use tightrope_core::launch::{Launch, Limits};
use tightrope_core::ops::Case;
use tightrope_core::{Backend, Rule, Type};

fn cache() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("emulated")
}

fn launches(case: &Case, limits: &Limits) -> Vec<Launch> {
    let inputs: Vec<&Type> = case.inputs.iter().map(|sample| &sample.ty).collect();
    let outputs = case.op.infer(&inputs).unwrap();
    let outputs: Vec<&Type> = outputs.iter().collect();
    case.op.launch(limits, &inputs, &outputs).map_or(vec![], |launches| launches.list)
}

#[test]
fn kernels_match_the_references_on_the_emulated_device() {
    let cases: Vec<Case> = match std::env::var("CASES") {
        Ok(only) => cases::all().into_iter().filter(|case| case.op.family() == only).collect(),
        Err(_) => cases::all(),
    };
    let mut backend = Cuda::new(Box::new(Emulated::new(cache(), 1)));
    let all: Vec<Launch> = cases.iter().flat_map(|case| launches(case, &limits())).collect();
    let start = std::time::Instant::now();
    backend.compile(&all).unwrap();
    println!("{} launches compiled in {:?}", all.len(), start.elapsed());
    let report = block_on(run(&mut backend, &cases, Mode::Check));
    println!("{}\n{report}", backend.name());
    let problems = report.problems(&unsupported("cuda").expect("a readable list"));
    assert!(problems.is_empty(), "{}:\n{}", problems.len(), problems.join("\n"));
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
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../kernels");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let stem = |path: PathBuf| path.file_stem().unwrap().to_str().unwrap().to_owned();
    let kernels: BTreeSet<String> = files.filter(|path| path.is_file()).map(stem).collect();
    assert_eq!(reached, kernels);
    assert!(source::stems().all(|stem| kernels.contains(stem)));
}
