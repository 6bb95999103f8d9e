//! Kernels whose last block adds up what all have left, emulated on the processor: the same bits in any order of blocks; and what such
//! a kernel may not do is found and named.

use conformance::cases;
use conformance::conformance::outputs;
use pollster::block_on;
use tightrope_backend_cuda::driver::Emulated;
use tightrope_backend_cuda::{Cuda, limits};
use tightrope_core::DType;
use tightrope_core::ops::{Case, LayerNormGrad};

use crate::changed::{self, Changed};
use crate::kernels::{cache, launches};

const FILES: [(&str, &str); 1] = [("norm.cu", include_str!("../../../kernels/norm.cu"))];

/// Six strips of rows in four parts, of which two have two strips.
fn case() -> Case {
    let (rows, columns) = (330, 68);
    let floats = |shape: &[usize]| cases::floats(DType::F32, shape, -1.0, 1.0);
    let (x, w, statistics) = (floats(&[rows, columns]), floats(&[columns]), floats(&[rows]));
    let inputs = vec![x.clone(), w, statistics.clone(), statistics, x];
    Case::new(LayerNormGrad { weights: true, residual: false }, inputs)
}

#[track_caller]
fn found(changes: &[(&str, &str, &[&str])]) {
    let limits = limits();
    changed::found(&Changed { case: case(), limits, files: &FILES, constants: &[] }, changes);
}

#[test]
fn gradients_of_norms_have_the_same_bits_in_any_order_of_blocks() {
    let made = launches(&case(), &limits());
    let [launch] = &made[..] else { panic!("{} launches", made.len()) };
    assert_eq!(launch.groups, 0..6);
    let bits = |seed| {
        let mut backend = Cuda::new(Box::new(Emulated::new(cache(), seed)));
        // Twice: counters are zero again.
        let [first, second] =
            [(); 2].map(|()| block_on(outputs(&mut backend, &case())).expect("outputs"));
        assert!(first == second);
        first
    };
    let first = bits(1);
    assert!((2..8).all(|seed| bits(seed) == first));
}

#[test]
fn what_a_block_leaves_too_late_is_found_and_named() {
    let stores = "    if (LAYER) {
        store_strip(args, args.first_bias + strip * COLUMNS, db);
    }
";
    let sums = "    sum_strips<LAYER>(args, strip);\n";
    let late = &["leaves something and isn't counted after it"];
    found(&[(&format!("{stores}{sums}"), &format!("{sums}{stores}"), late)]);
}

#[test]
fn what_is_read_before_all_have_come_is_found_and_named() {
    let returns = "is_last)) {\n        return;\n    }";
    let early = &["reads what others have left, and isn't the last"];
    found(&[(returns, "is_last)) {\n    }", early)]);
}

#[test]
fn counters_that_wait_for_another_number_of_blocks_are_found_and_named() {
    let number = "(strips - part + PARTS - 1) / PARTS";
    found(&[
        // A counter that isn't zero after the launch.
        (number, &format!("{number} + 1"), &["to come to a counter, "]),
        (number, "1", &["comes to a counter to which all"]),
        (
            "arrived[PARTS], parts,",
            "arrived[PARTS], strips,",
            &["waits for 6 to come to a counter, 4 do"],
        ),
        ("arrived[part],", "arrived[0],", &["a counter to which"]),
    ]);
}
