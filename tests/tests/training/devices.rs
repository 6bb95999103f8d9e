//! What tests of recorded cases share: the devices that they run on, and how far a result is from the record.

use std::path::PathBuf;

use conformance::draw::Draw;
use pollster::block_on;
use tightrope_backend_cpu::Cpu;
use tightrope_backend_cuda::Cuda;
use tightrope_backend_cuda::driver::Emulated;
use tightrope_backend_wgpu::Wgpu;
use tightrope_core::Backend;

/// The processor, a GPU's shaders and emulated CUDA.
pub fn devices() -> Vec<Box<dyn Backend>> {
    let wgpu = block_on(Wgpu::open(&Default::default()));
    let kernels = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("emulated");
    vec![
        Box::new(Cpu::new(2).expect("threads")),
        Box::new(wgpu.expect("an adapter: install mesa-vulkan-drivers")),
        Box::new(Cuda::new(Box::new(Emulated::new(kernels, 5)))),
    ]
}

/// The processor and, drawn by the day, one of the others: for cases of many steps.
pub fn drawn_devices(case: &str) -> Vec<Box<dyn Backend>> {
    let mut all = devices();
    let others = all.split_off(1);
    let what = format!("devices beside the processor for {case}");
    all.extend(Draw::of_today().some(&what, others, 1));
    all
}

/// Distance over the norm of what is expected.
pub fn relative_l2(found: &[f32], expected: &[f32]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>().sqrt();
    let pairs = found.iter().zip(expected);
    norm(&mut pairs.map(|(&a, &b)| f64::from(a) - f64::from(b)))
        / norm(&mut expected.iter().map(|&x| f64::from(x)))
}
