//! What rounds to 16 bits by a rule of its own: the same bits on every backend, and the mean that it should have.

use conformance::conformance::outputs;
use conformance::{cases, values};
use pollster::block_on;
use tightrope_backend_cpu::Cpu;
use tightrope_backend_cuda::Cuda;
use tightrope_backend_cuda::driver::Emulated;
use tightrope_backend_wgpu::Wgpu;
use tightrope_core::expr::{Binary, Unary, input, random};
use tightrope_core::ops::{Case, Fill, Map, Sample};
use tightrope_core::{Backend, DType, Type};

use crate::kernels::cache;

/// A weight after an update, rounded by random numbers.
fn stochastic(low: f64, high: f64, shape: &[usize]) -> Case {
    let update = input(0) + input(1);
    let rounded = Map::new(update.binary(Binary::StochasticHalf, random(7)), DType::BF16);
    let key = Sample { ty: Type::new(DType::U32, [4]), fill: Fill::Whole(0, 1 << 31) };
    let weight = cases::floats(DType::BF16, shape, low, high);
    Case::new(rounded, vec![weight, cases::floats(DType::F32, shape, 0.0, 0.0), key])
}

/// A sum of gradients with what its rounding left out, and what is added to both.
fn compensated(shape: &[usize]) -> Case {
    let exact = input(0) + input(1) + input(2);
    let sum = exact.clone().unary(Unary::HighHalf);
    let map = Map::several(vec![sum.clone(), exact - sum], vec![DType::BF16; 2]);
    let of = |size: f64| cases::floats(DType::BF16, shape, -size, size);
    Case::new(Map { in_place: vec![(0, 0), (1, 1)], ..map }, vec![of(1.0), of(1e-3), of(0.1)])
}

#[test]
fn roundings_are_the_same_bits_on_every_backend() {
    let wgpu = block_on(Wgpu::open(&Default::default()));
    let mut backends: Vec<Box<dyn Backend>> = vec![
        Box::new(Cpu::new(2).expect("threads")),
        Box::new(wgpu.expect("an adapter: install mesa-vulkan-drivers")),
        Box::new(Cuda::new(Box::new(Emulated::new(cache(), 1)))),
    ];
    let mut cases = vec![compensated(&[1031]), compensated(&[64, 48])];
    for (low, high) in [(-3.0, 3.0), (-1e-30, 1e-30), (1e30, 2e30)] {
        let mut case = stochastic(low, high, &[1031]);
        // As much as bf16 leaves out of a weight, and more.
        let (low, high) = (low / 100.0, high / 100.0);
        case.inputs[1] = cases::floats(DType::F32, &[1031], low, high);
        cases.push(case);
    }
    for case in &cases {
        let mut expected = None;
        for backend in &mut backends {
            let found = block_on(outputs(&mut **backend, case)).expect("outputs");
            let first = expected.get_or_insert_with(|| found.clone());
            assert!(found == *first, "{}: {:?}", backend.name(), case.op);
        }
    }
}

/// A quarter of the way between two neighbours: to the nearest, all would go down.
#[test]
fn stochastic_rounding_is_unbiased() {
    const UNIT: f64 = 1.0 / 128.0;
    const COUNT: usize = 1 << 16;
    let mut case = stochastic(1.0, 1.0, &[COUNT]);
    case.inputs[1] = cases::floats(DType::F32, &[COUNT], UNIT / 4.0, UNIT / 4.0);
    let mut cpu = Cpu::new(2).expect("threads");
    let found = block_on(outputs(&mut cpu, &case)).expect("outputs");
    let found = values::decode(DType::BF16, &found[0]);
    assert!(found.iter().all(|&x| x == 1.0 || x == 1.0 + UNIT));
    let mean = found.iter().sum::<f64>() / COUNT as f64;
    let deviation = UNIT * (0.25f64 * 0.75 / COUNT as f64).sqrt();
    assert!((mean - 1.0 - UNIT / 4.0).abs() < 4.0 * deviation, "{mean}");
}
