//! Every case on the CPU.

use conformance::cases;
use conformance::conformance::{Mode, run, unsupported};
use pollster::block_on;
use tightrope_backend_cpu::Cpu;
use tightrope_backend_cpu::isa::Isa;
use tightrope_core::ops::{Case, RmsNorm, RmsNormGrad};
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

/// Norms of Gemma have a scale of 1 + w, which is f32 beside rows of 16 bits.
#[test]
fn norms_by_a_scale_in_f32_match_the_references() {
    let mut cases = vec![];
    for dtype in [DType::BF16, DType::F16] {
        for [rows, columns] in [[1, 1], [3, 17], [130, 64], [70, 300]] {
            let x = || cases::floats(dtype, &[rows, columns], -1.0, 1.0);
            let w = || cases::unit(&[columns]);
            let rstd = || cases::floats(DType::F32, &[rows], 0.5, 1.5);
            cases.push(Case::new(RmsNorm { eps: 1e-6 }, vec![x(), w()]));
            for weights in [true, false] {
                let op = RmsNormGrad { weights, residual: false };
                cases.push(Case::new(op, vec![x(), w(), rstd(), x()]));
            }
        }
    }
    for isa in Isa::available() {
        let mut cpu = Cpu::new(2).expect("two threads").with_isa(isa);
        let report = block_on(run(&mut cpu, &cases, Mode::Check));
        assert_eq!(report.problems(""), Vec::<String>::new(), "{}\n{report}", cpu.name());
        assert_eq!(cpu.slow_ops(), Vec::<&str>::new(), "{}", cpu.name());
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
