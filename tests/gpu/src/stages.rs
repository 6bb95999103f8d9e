//! What is run in which order: what everything else is made of comes first.

use std::collections::BTreeSet;
use std::mem::discriminant;

use conformance::{cases, tensor_cores, warpgroups};
use tightrope_backend_cuda::library::Problem;
use tightrope_backend_cuda::limits;
use tightrope_core::DType;
use tightrope_core::launch::Limits;
use tightrope_core::ops::Case;

use crate::losses;
use crate::run::{Device, Part, Work, kernels, problems};

/// A list of cases.
pub struct Stage {
    pub name: &'static str,
    /// Few of them, or all.
    pub parts: fn(few: bool) -> Vec<Part>,
}

impl std::fmt::Debug for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// All stages, in their order.
pub const STAGES: &[Stage] = &[
    Stage { name: "device", parts: device },
    Stage { name: "maps", parts: maps },
    Stage { name: "wgmma", parts: wgmma },
    Stage { name: "mma", parts: mma },
    Stage { name: "others", parts: others },
    Stage { name: "cublaslt", parts: cublaslt },
    Stage {
        name: "losses",
        parts: |few| vec![Part { device: Device::default(), work: Work::Runs(losses::runs(few)) }],
    },
];

/// Files of the kernels that all others are tried after.
const FIRST: [&str; 3] = ["map", "reduce", "norm"];

/// Multiprocessors of cases by warpgroups: one that makes tile after tile, and several that sum slices.
const ONE: u32 = 1;
const SEVERAL: u32 = 8;

/// The file of a kernel's name.
fn file(kernel: &str) -> &str {
    kernel.split('.').next().unwrap_or(kernel)
}

fn elements(case: &Case) -> usize {
    case.inputs.iter().map(|sample| sample.ty.elements()).sum()
}

/// Elements of cases that show what a kernel does and take no time.
const MODERATE: usize = 1 << 12;

/// Small cases first; of those with the same kernels one alone, where few are wanted: the largest that is moderate.
fn chosen(mut cases: Vec<Case>, few: bool, limits: &Limits) -> Vec<Case> {
    cases.sort_by_key(elements);
    if !few {
        return cases;
    }
    let moderate = cases.partition_point(|case| elements(case) <= MODERATE);
    cases[..moderate].reverse();
    let mut seen = BTreeSet::new();
    cases.retain(|case| seen.insert(kernels(case, limits)));
    cases.sort_by_key(elements);
    cases
}

fn on(device: Device, cases: Vec<Case>) -> Part {
    Part { device, work: Work::Cases(cases) }
}

/// Where a kernel's file stands in the list of the first ones.
fn place(case: &Case) -> Option<usize> {
    let kernels = kernels(case, &limits());
    let places = kernels.iter().map(|kernel| FIRST.iter().position(|&first| first == file(kernel)));
    places.collect::<Option<Vec<usize>>>()?.into_iter().max()
}

/// The smallest case of all, to see that there's a device, a compiler, and a kernel that runs.
fn device(_few: bool) -> Vec<Part> {
    let mut part = maps(true);
    if let Some(Part { work: Work::Cases(cases), .. }) = part.first_mut() {
        cases.truncate(1);
    }
    part
}

/// Maps, sums, norms: in this order.
fn maps(few: bool) -> Vec<Part> {
    let first = cases::all().into_iter().filter(|case| place(case).is_some()).collect();
    let mut cases = chosen(first, few, &limits());
    cases.sort_by_key(place);
    vec![on(Device::default(), cases)]
}

/// Matmuls by warpgroups: one in each order of storage, then all others.
fn wgmma(few: bool) -> Vec<Part> {
    let by = |multiprocessors: u32| Device { wgmma: Some(multiprocessors), ..Device::default() };
    let others = [warpgroups::matmuls(), warpgroups::losses()].concat();
    vec![
        on(by(ONE), warpgroups::orders()),
        on(by(ONE), chosen(others, few, &by(ONE).limits())),
        on(by(SEVERAL), chosen(warpgroups::sliced(), few, &by(SEVERAL).limits())),
    ]
}

fn is_for_tensor_cores(case: &Case) -> bool {
    kernels(case, &limits()).iter().any(|kernel| file(kernel).ends_with("_mma"))
}

/// Matmuls and the loss by `mma.sync`, and attention.
fn mma(few: bool) -> Vec<Part> {
    use tensor_cores::{attention, fused, losses, matmuls};
    let mut all = [matmuls(), fused(), attention(), losses(), cases::all()].concat();
    let attends =
        |case: &Case| kernels(case, &limits()).iter().any(|kernel| file(kernel) == "attention");
    all.retain(|case| is_for_tensor_cores(case) || attends(case));
    vec![on(Device::default(), chosen(cases::distinct(all), few, &limits()))]
}

/// Every other case.
fn others(few: bool) -> Vec<Part> {
    let is = |case: &Case| {
        let attends = kernels(case, &limits()).iter().any(|kernel| file(kernel) == "attention");
        place(case).is_none() && !attends && !is_for_tensor_cores(case)
    };
    let others = cases::all().into_iter().filter(is).collect();
    vec![on(Device::default(), chosen(others, few, &limits()))]
}

/// Matmuls by the library: each of its epilogues in 16 bits, then all others.
fn cublaslt(few: bool) -> Vec<Part> {
    let mut all =
        [tensor_cores::matmuls(), tensor_cores::fused(), tensor_cores::losses(), cases::all()]
            .concat();
    all.retain(|case| !problems(case).is_empty());
    let all = chosen(cases::distinct(all), false, &limits());
    let mut seen = vec![];
    let (epilogues, others): (Vec<Case>, Vec<Case>) = all.into_iter().partition(|case| {
        let mut is_new = false;
        for problem in problems(case) {
            let Problem { a, finish, bias, accumulate, sums, .. } = problem;
            // A library that stores what GELU is of does something else than one that doesn't.
            let stores = finish.is_some_and(|finish| finish.operand().is_some());
            let kind = finish.map(|finish| discriminant(&finish));
            let key = (a.dtype, kind, stores, bias.is_some(), accumulate, sums.is_some());
            if matches!(a.dtype, DType::BF16 | DType::F16) && !seen.contains(&key) {
                seen.push(key);
                is_new = true;
            }
        }
        is_new
    });
    let device = Device { library: true, ..Device::default() };
    let mut parts = vec![on(device, epilogues)];
    if !few {
        parts.push(on(device, others));
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cases of a stage, each with what its device is taken for.
    fn cases_of(name: &str, few: bool) -> Vec<(Device, Case)> {
        let stage = STAGES.iter().find(|stage| stage.name == name).expect("a stage");
        let cases = |part: Part| match part.work {
            Work::Cases(cases) => cases.into_iter().map(|case| (part.device, case)).collect(),
            Work::Runs(_) => vec![],
        };
        (stage.parts)(few).into_iter().flat_map(cases).collect()
    }

    #[test]
    fn every_case_is_in_one_stage_of_the_kernels() {
        let names = ["maps", "mma", "others"];
        let staged: Vec<String> = names
            .iter()
            .flat_map(|name| cases_of(name, false))
            .map(|(_, case)| format!("{case:?}"))
            .collect();
        for case in cases::all() {
            let times = staged.iter().filter(|staged| **staged == format!("{case:?}")).count();
            assert_eq!(times, 1, "{case:?}");
        }
    }

    #[test]
    fn few_cases_have_every_kernel_of_all() {
        for name in ["maps", "wgmma", "mma", "others"] {
            let of = |few| {
                let cases = cases_of(name, few);
                let kernels = |(device, case): &(Device, Case)| kernels(case, &device.limits());
                (cases.len(), cases.iter().flat_map(kernels).collect::<BTreeSet<String>>())
            };
            let ((few, some), (many, all)) = (of(true), of(false));
            println!("{name}: {few} of {many}, {all:?}");
            assert_eq!(some, all, "{name}");
            assert!(few < many, "{name}: {few} of {many}");
        }
    }

    #[test]
    fn maps_come_before_sums_and_those_before_norms() {
        let places: Vec<usize> =
            cases_of("maps", false).iter().filter_map(|(_, case)| place(case)).collect();
        assert!(places.is_sorted());
        assert_eq!(places.iter().collect::<BTreeSet<_>>().len(), FIRST.len());
    }

    /// What the library does with a matmul in one go, as problems are described.
    const EPILOGUES: [&str; 7] = [
        "",
        " bias",
        " bias add",
        " bias gelu and its argument",
        " gelu's slope",
        " accumulate",
        " sums",
    ];

    #[test]
    fn every_epilogue_comes_in_both_types_of_16_bits() {
        let cases = cases_of("cublaslt", true);
        let words: BTreeSet<String> = cases
            .iter()
            .flat_map(|(_, case)| problems(case))
            .filter_map(|problem| {
                let name = problem.to_string();
                let (_, epilogue) = name.split_once(" batch")?;
                let epilogue = epilogue.trim_start_matches(|c: char| c.is_ascii_digit());
                Some(format!("{}{epilogue}", problem.a.dtype.name()))
            })
            .collect();
        for dtype in ["bf16", "f16"] {
            for epilogue in EPILOGUES {
                assert!(
                    words.contains(&format!("{dtype}{epilogue}")),
                    "{dtype}{epilogue}: {words:?}"
                );
            }
        }
    }
}
