//! Every case on the CPU.

use conformance::cases;
use conformance::conformance::{Mode, run, unsupported};
use pollster::block_on;
use tightrope_backend_cpu::Cpu;
use tightrope_backend_cpu::isa::Isa;
use tightrope_core::{Backend, DType, Op};

fn check(mut backend: Cpu) {
    let report = block_on(run(&mut backend, &cases::all(), Mode::Check));
    println!("{}\n{report}", backend.name());
    let problems = report.problems(&unsupported("cpu").expect("a readable list"));
    assert!(
        problems.is_empty(),
        "{} on {}:\n{}",
        problems.len(),
        backend.name(),
        problems.join("\n")
    );
    for family in Op::FAMILIES {
        let stored = |dtype| report.lines.contains_key(&(*family, dtype));
        assert!(stored(DType::F32), "{family} isn't tried in f32");
        // Codes are made from f32 and from nothing else.
        let halves = *family == "Quantize" || (stored(DType::BF16) && stored(DType::F16));
        assert!(halves, "{family} isn't tried in bf16 and f16");
    }
}

#[test]
fn fast_paths_match_the_references() {
    for isa in Isa::available() {
        check(Cpu::new(2).expect("two threads").with_isa(isa));
    }
}

#[test]
fn one_thread_is_enough() {
    check(Cpu::new(1).expect("one thread"));
}

#[test]
fn references_match_themselves() {
    check(Cpu::new(2).expect("two threads").with_references());
}
