//! Matmuls on Hopper's tensor cores, emulated on the processor: against the reference; and what such a kernel may not do is
//! found and named.

use std::collections::{BTreeMap, BTreeSet};

use conformance::{cases, tolerance, warpgroups};
use tightrope_backend_cuda::driver::{Driver, Emulated};
use tightrope_backend_cuda::{Cuda, limits};
use tightrope_core::launch::{Launch, Limits, Word};
use tightrope_core::ops::{Case, MatMul};
use tightrope_core::{DType, Role, Rule};
use tightrope_nn::{ModelConfig, Planned, Precision, TrainerConfig};

use crate::changed::{self, Changed};
use crate::kernels::{cache, check, launches};

/// Limits of a GPU with so many multiprocessors.
pub fn hopper(multiprocessors: u32) -> Limits {
    limits().with_cuda(|own| own.wgmma = Some(multiprocessors))
}

/// Runs all cases on such devices, which make tile after tile on one multiprocessor, clusters on two, and slices on several; what was launched.
pub fn check_all(open: impl Fn() -> Box<dyn Driver>) -> Vec<Launch> {
    let with = |multiprocessors: u32, cases: &[Case]| {
        let mut backend = Cuda::new(open());
        backend.restrict(|own| own.wgmma = Some(multiprocessors));
        let launched = |case: &Case| launches(case, backend.limits());
        let all: Vec<Vec<Launch>> = cases.iter().map(launched).collect();
        let by_groups = |launch: &Launch| launch.kernel == "matmul_wgmma";
        assert!(all.iter().all(|launches| launches.iter().any(by_groups)));
        check(backend, cases);
        all.concat()
    };
    [
        with(1, &[warpgroups::matmuls(), warpgroups::losses()].concat()),
        with(2, &warpgroups::matmuls()),
        with(8, &warpgroups::sliced()),
    ]
    .concat()
}

fn constant(launch: &Launch, name: &str) -> u32 {
    let found = launch.constants.iter().find(|(other, _)| *other == name);
    found.expect("a constant").1
}

#[test]
fn matmuls_by_warpgroups_match_the_references_emulated() {
    let launched = check_all(|| Box::new(Emulated::new(cache(), 3)));
    let by_groups: Vec<&Launch> =
        launched.iter().filter(|launch| launch.most_groups.is_some()).collect();
    let widths: BTreeSet<u32> = by_groups.iter().map(|launch| constant(launch, "TILE_N")).collect();
    assert_eq!(widths, BTreeSet::from([128, 256]));
    // One block makes them all, and fills every stage several times.
    let rounds = |launch: &&Launch| {
        let slice = launch.params.iter().find_map(|(name, word)| match word {
            Word::U32(slice) if name == "slice" => Some(*slice),
            _ => None,
        });
        let steps = slice.expect("a slice").div_ceil(constant(launch, "TILE_K"));
        let blocks = launch.most_groups.expect("blocks that stay");
        launch.groups.end as u32 / blocks * steps / constant(launch, "STAGES")
    };
    let most = by_groups.iter().map(rounds).max();
    assert!(most >= Some(3), "only {most:?} rounds");
    let some = |name: &str, value: u32| by_groups.iter().any(|one| constant(one, name) == value);
    assert!(some("CLUSTER", 1) && some("CLUSTER", 2));
    assert!(some("OUT_BOXED", 0) && some("OUT_BOXED", 1));
    // Who comes last adds slices up.
    let sliced = by_groups.iter().filter(|launch| constant(launch, "SLICED") == 1).count();
    assert_eq!(sliced, 3);
    // Sums of lhs are made with the product.
    assert!(some("SUMS_LHS", 1));
    assert!(launched.iter().all(|launch| launch.kernel != "reduce"));
    assert!(launched.iter().all(|launch| launch.entry != "add_slices"));
}

/// The large matmuls of a training step in 16 bits.
#[test]
fn matmuls_of_training_run_on_warpgroups() {
    let model = tightrope_nn::preset("gpt2").expect("a preset");
    let config = TrainerConfig {
        precision: Precision::BF16,
        batch: 16,
        micro_batch: 8,
        ..TrainerConfig::new(ModelConfig { layers: 1, ..model }.build(1024).expect("a model"))
    };
    let mut device = Cuda::new(Box::new(Emulated::new(cache(), 1)));
    device.restrict(|own| own.wgmma = Some(132));
    let plan = Planned::new(&config, &device).expect("a plan").plan;
    let programs = plan.graph.programs.iter().filter(|program| program.role != Role::Eval);
    let mut kernels = BTreeMap::new();
    for node in programs.flat_map(|program| &program.nodes) {
        let (inputs, outputs) = plan.graph.types(node);
        let launches = node.op.launch(device.limits(), &inputs, &outputs).expect("kernels").list;
        for launch in &launches {
            let matmuls = kernels.entry(launch.kernel).or_insert(0);
            *matmuls += usize::from(launch.matmul.is_some());
        }
    }
    println!("{kernels:?}");
    assert!(kernels["matmul_wgmma"] >= 15, "{kernels:?}");
    assert!(!kernels.contains_key("matmul_mma"), "{kernels:?}");
}

const FILES: [(&str, &str); 2] = [
    ("matmul.cu", include_str!("../../../kernels/matmul.cu")),
    ("matmul_wgmma.cu", include_str!("../../../kernels/matmul_wgmma.cu")),
];

/// A matmul in which the ring goes round, and a tile has more columns than a swizzled row.
fn changed() -> Changed<'static> {
    let of = |shape: &[usize]| cases::floats(DType::BF16, shape, -1.0, 1.0);
    let case = Case::new(MatMul::new(DType::F32), vec![of(&[72, 520]), of(&[520, 136])]);
    Changed { case, limits: hopper(1), files: &FILES, constants: &[] }
}

#[track_caller]
fn found(changes: &[(&str, &str, &[&str])]) {
    changed::found(&changed(), changes);
}

const WAITS_FOR_FULL: &str = "tr_wait_phase(ring.full(), ring.round % 2);";
const WAITS_FOR_EMPTY: &str = "tr_wait_phase(ring.empty(), (ring.round + 1) % 2);";

#[test]
fn a_stage_that_was_not_waited_for_is_found_and_named() {
    found(&[
        (WAITS_FOR_FULL, "", &["multiplies what"]),
        (
            WAITS_FOR_EMPTY,
            "",
            &["copies to what warp", "copies to where a copy", "for whose phase all have arrived"],
        ),
        // The stage is given back while it's multiplied.
        ("tr_wait_products<1>();", "", &["copies to what warp"]),
        (
            "if (k > at.k) {",
            "read = ring.empty(); {",
            &["copies to what warp", "for whose phase all have arrived"],
        ),
    ]);
}

#[test]
fn a_phase_that_never_ends_is_found_and_named() {
    let never = &["waits for a phase of a barrier that never ends"];
    found(&[
        (WAITS_FOR_EMPTY, "tr_wait_phase(ring.empty(), ring.round % 2);", never),
        ("tr_arrive(empty);", "", never),
        // The group that is ahead doesn't say so, or nobody is.
        ("tr_arrive(ring.ahead());", "", never),
        ("consumer == 0 ? at.k", "consumer == 2 ? at.k", never),
        ("(ring.full(), STAGE_BYTES)", "(ring.full(), STAGE_BYTES + 16)", never),
        ("(ring.full(), STAGE_BYTES)", "(ring.full(), 16)", &["to a barrier that waits for 16"]),
    ]);
}

#[test]
fn what_tensor_cores_or_the_copy_engine_cannot_know_is_found_and_named() {
    let multiplies =
        "tr_multiply_async<Element, LHS_TRANSPOSED, !RHS_TRANSPOSED>(sums, rows, columns);";
    let some = format!("if (threadIdx.x % WARP_GROUP != 5) {{ {multiplies} }}");
    let apart = format!("if (lane < 16) {{ {multiplies} }} else {{\n {multiplies} }}");
    found(&[
        ("tr_show_sums();", "", &["sums that it has written and not shown"]),
        ("tr_show_barriers();", "", &["a barrier to the copy engine that wasn't shown"]),
        ("        __syncthreads();", "", &["without a barrier of the block", "none was set up"]),
        (multiplies, &some, &["its group of warps, of which some don't come"]),
        (multiplies, &apart, &["multiplies something else than its group"]),
    ]);
}

#[test]
fn boxes_that_are_stored_too_early_or_overwritten_are_found_and_named() {
    let of = |shape: &[usize]| cases::floats(DType::BF16, shape, -1.0, 1.0);
    let inputs = vec![of(&[72, 136]), of(&[264, 136]), of(&[264])];
    let case = Case::new(MatMul::linear(true, DType::BF16), inputs);
    changed::found(
        &Changed { case, ..changed() },
        &[
            (
                "tr_show_stores();\n        tr_meet_warp();",
                "tr_meet_warp();",
                &["and hasn't shown"],
            ),
            (
                "tr_show_stores();\n        tr_meet_warp();",
                "tr_show_stores();",
                &["and hasn't shown", "a box of what nobody has put there", "stores to what warp"],
            ),
            (
                "            tr_wait_boxes_read();\n        }\n        tr_meet_warp();",
                "        }\n        tr_meet_warp();",
                &["stores to what warp"],
            ),
            (
                "if (OUT_BOXED && lane == 0) {",
                "if (OUT_BOXED && lane == 33) {",
                &["ends before the box that it stores has been read"],
            ),
        ],
    );
}

#[test]
fn a_cluster_whose_blocks_do_not_wait_for_each_other_is_found_and_named() {
    let of = |shape: &[usize]| cases::floats(DType::BF16, shape, -1.0, 1.0);
    let case = Case::new(MatMul::new(DType::F32), vec![of(&[136, 520]), of(&[520, 136])]);
    let last = "    if (CLUSTER > 1) {\n        // Others";
    changed::found(
        &Changed { case, limits: hopper(2), ..changed() },
        &[
            (
                "        tr_meet_cluster();\n    } else {",
                "        __syncthreads();\n    } else {",
                &["without a barrier of the cluster", "none was set up"],
            ),
            (last, "    if (CLUSTER > 2) {\n        // Others", &["which has ended"]),
            (
                "CLUSTER * DESKS",
                "DESKS",
                &[
                    "multiplies what the copy",
                    "copies to what warp",
                    "copies to where a copy",
                    "for whose phase all have arrived",
                ],
            ),
            (
                "lane < CLUSTER",
                "lane == blockIdx.x",
                &[
                    "waits for a phase of a barrier that never ends",
                    "copies to where a copy",
                    "copies to what warp",
                ],
            ),
        ],
    );
}

#[test]
fn ones_that_rows_of_lhs_are_summed_by_must_be_there_and_shown() {
    let of = |shape: &[usize]| cases::floats(DType::BF16, shape, -1.0, 1.0);
    let op = MatMul { transpose_lhs: true, ..MatMul::new(DType::F32) };
    let case = Case::new(warpgroups::with_sums(op), vec![of(&[72, 88]), of(&[72, 136])]);
    let stores =
        "tr_store_word(ring.ones() + threadIdx.x * unsigned(sizeof(unsigned)), word_of_ones());";
    changed::found(
        &Changed { case, ..changed() },
        &[
            ("tr_show_stores();", "", &["and hasn't shown"]),
            (stores, "", &["multiplies what nobody has brought to shared memory"]),
        ],
    );
}

#[test]
fn another_layout_than_that_of_the_copies_gives_other_numbers() {
    let changes = [
        // What is right; other swizzles; other offsets; sums that aren't finished.
        ("1ull << 62", "1ull << 62"),
        ("1ull << 62", "2ull << 62"),
        ("1ull << 62", "0ull << 62"),
        ("LEADING = ROW * ROW_BYTES / 16", "LEADING = REPEAT_BYTES / 16"),
        ("STRIDE = REPEAT_BYTES / 16", "STRIDE = ROW_BYTES / 16"),
        ("tr_finish_products(sums);", "tr_wait_products<1>();"),
    ];
    let verdicts = changed::verdicts(&changed(), &changes);
    for ((from, to), verdicts) in changes.iter().zip(verdicts) {
        for verdict in verdicts {
            let right = verdict.is_ok_and(|off| off.within(tolerance::of_dtype(DType::F32)));
            assert_eq!(right, from == to, "{from} is {to}");
        }
    }
}
