//! Attention on Hopper's tensor cores, emulated on the processor: against the reference; and what such a kernel may not do is
//! found and named.

use std::collections::BTreeSet;

use conformance::conformance::outputs;
use conformance::{cases, tolerance};
use pollster::block_on;
use tightrope_backend_cuda::Cuda;
use tightrope_backend_cuda::driver::{Driver, Emulated};
use tightrope_backend_cuda::matmuls::Makers;
use tightrope_core::launch::Launch;
use tightrope_core::ops::{Attention, AttentionGrad, Case, Dropout, Mask, Sample};
use tightrope_core::{DType, Type};

use crate::changed::{self, Changed};
use crate::kernels::{cache, check, launches};
use crate::wgmma::hopper;

const DTYPES: [DType; 2] = [DType::BF16, DType::F16];

/// Attention over a part of a tile, one tile and several, in both widths and with each mask; heads that share keys.
fn ops() -> Vec<(usize, usize, Attention)> {
    let op = |b, t, (heads, kv_heads, head_dim), (causal, window, documents)| {
        let mask = Mask { causal, window, documents };
        (b, t, Attention { mask, ..Attention::causal(heads, kv_heads, head_dim) })
    };
    vec![
        op(2, 5, (2, 1, 64), (true, None, false)),
        op(1, 128, (1, 1, 128), (true, None, false)),
        op(2, 420, (4, 2, 64), (true, None, false)),
        op(1, 300, (2, 1, 128), (true, None, false)),
        op(2, 270, (1, 1, 64), (false, None, false)),
        op(1, 200, (2, 2, 128), (false, None, false)),
        op(1, 400, (2, 1, 64), (true, Some(50), false)),
        op(1, 390, (1, 1, 128), (true, Some(200), false)),
        op(1, 400, (2, 1, 64), (false, Some(70), false)),
        op(2, 260, (2, 1, 64), (true, None, true)),
        op(1, 300, (1, 1, 128), (false, Some(150), true)),
    ]
}

fn extra_samples(b: usize, t: usize, op: &Attention) -> Vec<Sample> {
    if op.mask.documents { vec![cases::whole(&[b, t], 0, 3)] } else { vec![] }
}

fn forward_cases() -> Vec<Case> {
    let mut cases = vec![];
    for (b, t, op) in ops() {
        for dtype in DTYPES {
            let mut inputs = vec![cases::floats(dtype, &[b, t, op.packed()], -1.0, 1.0)];
            inputs.extend(extra_samples(b, t, &op));
            cases.push(Case::new(op.clone(), inputs));
        }
    }
    cases
}

/// The gradient, with outputs and logs of normalisers that are free.
fn grad_cases() -> Vec<Case> {
    let mut cases = vec![];
    for (b, t, op) in ops() {
        for dtype in DTYPES {
            let out = cases::floats(dtype, &[b, t, op.heads * op.head_dim], -1.0, 1.0);
            let mut inputs = vec![
                cases::floats(dtype, &[b, t, op.packed()], -1.0, 1.0),
                out.clone(),
                cases::floats(DType::F32, &[b, op.heads, t], 2.0, 4.0),
                out,
            ];
            inputs.extend(extra_samples(b, t, &op));
            cases.push(Case::new(AttentionGrad(op.clone()), inputs));
        }
    }
    cases
}

/// Runs all cases on such devices, whose blocks make tile after tile; what was launched.
pub fn check_all(open: impl Fn() -> Box<dyn Driver>) -> Vec<Launch> {
    let mut backend = Cuda::new(open());
    backend.restrict(|own| own.wgmma = Some(3));
    let cases = [forward_cases(), grad_cases()].concat();
    let launched = |case: &Case| launches(case, backend.limits());
    let all: Vec<Vec<Launch>> = cases.iter().map(launched).collect();
    let by_groups = |launch: &Launch| launch.kernel.starts_with("attention_wgmma");
    assert!(all.iter().all(|launches| launches.iter().any(by_groups)));
    check(backend, &cases);
    all.concat()
}

#[test]
fn attention_by_warpgroups_matches_the_references_emulated() {
    let launched = check_all(|| Box::new(Emulated::new(cache(), 11)));
    let entries: BTreeSet<&str> = launched.iter().map(|launch| launch.entry).collect();
    let expected = ["begin_ordered", "forward_wgmma", "grad_wgmma"];
    assert!(entries.is_subset(&expected.into()), "{entries:?}");
    // A block makes tile after tile.
    let tiles = |launch: &Launch| Some(launch.groups.end as u32 / launch.most_groups?);
    let most = launched.iter().filter_map(tiles).max();
    assert!(most >= Some(5), "only {most:?} tiles of a block");
}

/// Its blocks take tiles in an order that depends on how many there are, and each tile is made by itself.
#[test]
fn attention_by_warpgroups_has_the_same_bits_on_any_number_of_multiprocessors() {
    for case in [forward_case(), grad_case()] {
        let bits = |multiprocessors, seed| {
            let mut backend = Cuda::new(Box::new(Emulated::new(cache(), seed)));
            backend.restrict(|own| own.wgmma = Some(multiprocessors));
            block_on(outputs(&mut backend, &case)).expect("outputs")
        };
        let first = bits(1, 1);
        for (multiprocessors, seed) in [(1, 2), (3, 3), (8, 4)] {
            assert!(bits(multiprocessors, seed) == first, "{case:?} on {multiprocessors}");
        }
    }
}

/// Attention by warpgroups and by warps is timed once on a device, and what is slower isn't used.
#[test]
fn attention_goes_to_the_kernels_that_are_faster() {
    let folder = tempfile::tempdir().expect("a folder");
    let bits = |case: &Case, makers: Makers, warp_attention: bool| {
        let mut backend = Cuda::new(Box::new(Emulated::new(folder.path(), 5)));
        backend.restrict(|own| (own.wgmma, own.warp_attention) = (Some(1), warp_attention));
        backend.matmuls_by(makers).expect("what stands for the library");
        block_on(outputs(&mut backend, case)).expect("outputs")
    };
    let choices = folder.path().join("matmuls.tsv");
    for (case, names) in [
        (forward_case(), "attention_wgmma.forward_wgmma or attention_mma.forward_mma kernels "),
        (grad_case(), "attention_wgmma_grad.grad_wgmma or attention_mma.grad_keys_mma kernels "),
    ] {
        let by_groups = bits(&case, Makers::Kernels, false);
        let by_warps = bits(&case, Makers::Kernels, true);
        assert!(by_groups != by_warps, "they sum in other orders");
        // The emulated device says that fewer blocks are faster.
        assert!(bits(&case, Makers::Fastest, false) == by_groups);
        let text = std::fs::read_to_string(&choices).expect("a file of what was timed");
        let line = text.lines().find(|line| line.starts_with(names)).expect(&text);
        let mut fields: Vec<&str> = line.split('\t').collect();
        fields[1] = "1e0";
        std::fs::write(&choices, text.replace(line, &fields.join("\t"))).expect("a file");
        for makers in [Makers::Fastest, Makers::Library] {
            assert!(bits(&case, makers, false) == by_warps, "{makers:?}");
        }
    }
}

#[test]
fn what_warpgroups_do_not_take_stays_with_other_kernels() {
    let takes = |op: Attention, dtype| {
        let inputs = vec![cases::floats(dtype, &[1, 40, op.packed()], -1.0, 1.0)];
        let key = Sample { ty: Type::new(DType::U32, [4]), ..cases::whole(&[4], 0, 9) };
        let key = op.dropout.map(|_| key);
        let case = Case::new(op, inputs.into_iter().chain(key).collect());
        launches(&case, &hopper(2)).iter().any(|launch| launch.kernel == "attention_wgmma")
    };
    let op = Attention::causal(2, 1, 64);
    assert!(takes(op.clone(), DType::BF16));
    assert!(!takes(op.clone(), DType::F32));
    assert!(!takes(Attention::causal(2, 1, 32), DType::BF16));
    let dropout = Some(Dropout { p: 0.1, stream: 1 });
    assert!(!takes(Attention { dropout, ..op.clone() }, DType::BF16));
    assert!(!takes(Attention { cap: Some(30.0), ..op.clone() }, DType::BF16));
    assert!(!takes(Attention { scale: -1.0, ..op }, DType::BF16));
}

const FILES: [(&str, &str); 3] = [
    ("attention_heads.cu", include_str!("../../../kernels/attention_heads.cu")),
    ("attention_wgmma.cu", include_str!("../../../kernels/attention_wgmma.cu")),
    ("attention_wgmma_grad.cu", include_str!("../../../kernels/attention_wgmma_grad.cu")),
];

/// One block makes several tiles, whose keys fill the ring several times.
fn forward_case() -> Case {
    let op = Attention::causal(2, 1, 128);
    Case::new(op.clone(), vec![cases::floats(DType::BF16, &[1, 420, op.packed()], -1.0, 1.0)])
}

/// As few slots as the kernel can have, so that the copy engine waits for each.
const TIGHT: &[(&str, u32)] = &[("SLOTS", 3)];

fn forward() -> Changed<'static> {
    Changed { case: forward_case(), limits: hopper(1), files: &FILES[..2], constants: TIGHT }
}

#[track_caller]
fn found(changes: &[(&str, &str, &[&str])]) {
    changed::found(&forward(), changes);
}

/// Several blocks add to most queries' gradients, and stages go round.
fn grad_case() -> Case {
    let op = Attention::causal(2, 1, 64);
    let of = |shape: &[usize]| cases::floats(DType::BF16, shape, -1.0, 1.0);
    let (qkv, out) = ([1, 300, op.packed()], [1, 300, op.heads * op.head_dim]);
    let lse = cases::floats(DType::F32, &[1, op.heads, 300], 2.0, 4.0);
    Case::new(AttentionGrad(op), vec![of(&qkv), of(&out), lse, of(&out)])
}

fn grad() -> Changed<'static> {
    Changed { case: grad_case(), limits: hopper(1), files: &FILES, constants: TIGHT }
}

#[track_caller]
fn found_in_grad(changes: &[(&str, &str, &[&str])]) {
    changed::found(&grad(), changes);
}

const OVERWRITES: &[&str] =
    &["copies to what warp", "copies to where a copy", "for whose phase all have arrived"];

#[test]
fn tiles_that_were_not_waited_for_are_found_and_named() {
    let waits = |barrier: &str, parity: &str| format!("tr_wait_phase(ring.{barrier}(), {parity});");
    found(&[
        (&waits("full", "ring.round % 2"), "", &["multiplies what"]),
        (&waits("queries_full", "tiles % 2"), "", &["multiplies what"]),
        (&waits("empty", "(ring.round + 1) % 2"), "", OVERWRITES),
        (&waits("queries_empty", "(tiles + 1) % 2"), "", OVERWRITES),
        // Tiles are given back while they're multiplied.
        ("tr_finish_sets<1>(scores);", "", &["copies to what warp", "shown"]),
        (
            "tr_finish_sets<1>(scores);",
            "tr_finish_sets<2>(scores);",
            &["copies to what warp", "shown"],
        ),
    ]);
}

#[test]
fn phases_that_never_end_are_found_and_named() {
    let never = &["waits for a phase of a barrier that never ends"];
    found(&[
        ("arrive_once(keys_empty);", "", never),
        ("arrive_once(ring.queries_empty());", "", never),
        ("arrive_once(ring.turn(1 - consumer));", "", never),
        ("(turns + 1 + consumer) % 2", "turns % 2", never),
        ("(ring.full(), TILE_BYTES)", "(ring.full(), TILE_BYTES + 16)", never),
    ]);
}

#[test]
fn registers_that_were_not_shown_are_found_and_named() {
    found(&[
        (
            "            tr_show_registers(factors);\n",
            "",
            &["factors that it has written and not shown"],
        ),
        (
            "            tr_show_registers(factors);\n            tr_show_sums();",
            "            tr_show_registers(factors);",
            &["written and not shown"],
        ),
        ("tr_show_barriers();", "", &["a barrier to the copy engine that wasn't shown"]),
        ("    __syncthreads();", "", &["without a barrier of the block", "none was set up"]),
    ]);
}

#[test]
fn other_layouts_and_masks_give_other_numbers() {
    let changes = [
        // What is right; another swizzle; other offsets; masks and sums that forget something.
        ("1ull << 62", "1ull << 62"),
        ("1ull << 62", "2ull << 62"),
        ("LEADING = TALL * ROW_BYTES / 16", "LEADING = REPEAT_BYTES / 16"),
        ("channel / SLAB * TALL * ROW_BYTES + row", "channel / SLAB * REPEAT_BYTES + row"),
        ("key + KEYS <= query + 1", "key + KEYS <= query + 2 * PART"),
        ("softmax.total[r] *= factor[r];", ""),
        ("sums[i] *= factor[i / 2 % 2];", ""),
        (
            "sums[8 * i + 2 * j], sums[8 * i + 2 * j + 1]",
            "sums[8 * i + 2 * j + 1], sums[8 * i + 2 * j]",
        ),
    ];
    let verdicts = changed::verdicts(&forward(), &changes);
    for ((from, to), verdicts) in changes.iter().zip(verdicts) {
        for verdict in verdicts {
            let right = verdict.is_ok_and(|off| off.within(tolerance::of_dtype(DType::BF16)));
            assert_eq!(right, from == to, "{from} is {to}");
        }
    }
}

const NEVER: &[&str] = &["waits for a phase of a barrier that never ends"];

#[test]
fn in_the_gradient_tiles_that_were_not_waited_for_are_found_and_named() {
    found_in_grad(&[
        ("tr_wait_phase(room.keys_full(), 0);", "", &["multiplies what"]),
        ("tr_wait_phase(room.full(), room.round % 2);", "", &["multiplies what"]),
        (
            "tr_wait_phase(room.empty(), (room.round + 1) % 2);",
            "",
            &[
                "copies to what warp",
                "copies to where a copy",
                "for whose phase all have arrived",
                "stores to what warp",
            ],
        ),
        // The stage is given back while it's multiplied.
        (
            "begin_gradients(dkeys, rounded_slopes, room.queries());",
            "begin_gradients(dkeys, rounded_slopes, room.queries()); arrive_once(room.empty());",
            &["copies to what warp", "stores to what warp", "for whose phase all have arrived"],
        ),
    ]);
}

#[test]
fn in_the_gradient_slopes_that_were_not_waited_for_are_found_and_named() {
    found_in_grad(&[
        ("tr_wait_phase(room.slopes_full(), room.step / BUFFERS % 2);", "", &["multiplies what"]),
        (
            "BUFFERS = 2;",
            "BUFFERS = 1;",
            &["stores to what warp", "for whose phase all have arrived"],
        ),
        ("tr_show_stores();", "", &["stored at line", "which it hasn't waited"]),
        ("arrive_once(room.slopes_full());", "", NEVER),
        ("tr_show_registers(rounded_weights);", "", &["factors that it has written"]),
        ("tr_show_registers(rounded_slopes);", "", &["factors that it has written"]),
    ]);
}

#[test]
fn blocks_that_add_out_of_order_are_found_and_named() {
    // Others wait too, and are named before.
    let never = &["waits for a count that no block before it passes on", NEVER[0]];
    found_in_grad(&[
        ("tr_pass_count(args.counts, passed.count, passed.value);", "", never),
        ("tiles - 1 - number % tiles", "number % tiles", never),
        ("last_keys(args, first) - own,", "last_keys(args, first) + 1 - own,", never),
        (
            "tr_wait_count(args.counts, share.count, share.before);",
            "",
            &["passes on a count that it hasn't waited for"],
        ),
    ]);
}

#[test]
fn in_the_gradient_other_layouts_and_sums_give_other_numbers() {
    let changes = [
        ("share.before > 0 ? args.partial", "share.before > 0 ? args.partial"),
        ("share.before > 0 ? args.partial", "share.before > 1 ? args.partial"),
        ("column / 8 ^ row % 8", "column / 8"),
        ("(2 * i + j / 2) * 8", "(2 * i + j % 2) * 8"),
        ("group_key + PART <= (CAUSAL ? first + 1", "group_key <= (CAUSAL ? first + 1"),
        ("consumer * HALF);", "0);"),
        ("slopes[i + 1] - delta.y", "slopes[i + 1] - delta.x"),
        ("tr_finish_sets<0>(dqueries);", ""),
        ("i + 1] * args.prescale - lse2.y", "i + 1] * args.prescale - lse2.x"),
    ];
    let verdicts = changed::verdicts(&grad(), &changes);
    for ((from, to), verdicts) in changes.iter().zip(verdicts) {
        for verdict in verdicts {
            let right = verdict.is_ok_and(|off| off.within(tolerance::of_dtype(DType::BF16)));
            assert_eq!(right, from == to, "{from} is {to}");
        }
    }
}
