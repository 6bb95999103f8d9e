//! What is checked of a device's kernels, and what is kept of it.
#![cfg(feature = "cuda")]

use std::collections::BTreeSet;
use std::fs;
use std::time::Instant;

use tightrope::check::cases::{Checked, of_plan};
use tightrope::check::{Records, Wrong};
use tightrope::core::conformance::reference::outputs;
use tightrope::core::ops::Case;
use tightrope::core::{Backend as _, KernelUse, Plan, Rule as _, Type};
use tightrope::nn::Planned;
use tightrope::recipe::Step;
use tightrope::settings::Settings;
use tightrope_backend_cuda::Cuda;
use tightrope_backend_cuda::driver::Emulated;
use tightrope_backend_cuda::matmuls::Makers;

/// The plan of a step of GPT-2.
fn gpt2(precision: &str, device: &Cuda) -> Plan {
    let mut settings = Settings::default();
    for setting in ["model.preset=gpt2", "train.batch=8", &format!("run.precision={precision}")] {
        settings.read_argument(setting).unwrap();
    }
    Planned::new(&Step::of(&settings).unwrap().config, device).unwrap().plan
}

#[test]
fn cases_of_gpt2_are_small_and_run_every_kernel_of_its_plan() {
    for precision in ["f32", "bf16"] {
        // Like Hopper.
        let mut device = Cuda::new(Box::new(Emulated::new(std::env::temp_dir(), 1)));
        device.restrict(|own| own.wgmma = Some(132));
        device.matmuls_by(Makers::Fastest).unwrap();
        let plan = gpt2(precision, &device);
        let variants = device.variants().unwrap();
        let start = Instant::now();
        let cases = of_plan(&plan, variants, &|_| false);
        let seconds = start.elapsed().as_secs_f64();
        let mut covered = BTreeSet::new();
        let mut flops = 0_u64;
        let mut references: Vec<&Case> = vec![];
        for Checked { case, kernels, library, few } in &cases {
            let inputs: Vec<&Type> = case.inputs.iter().map(|entry| &entry.ty).collect();
            let made = case.op.infer(&inputs).unwrap();
            let made: Vec<&Type> = made.iter().collect();
            let found = variants.kernels(*few, &case.op, &inputs, &made).unwrap();
            let found = found.into_iter().filter(|kernel| kernel.of_library == *library);
            // Larger extents run some of them more often.
            let texts = |kernels: &[KernelUse]| -> BTreeSet<u64> {
                kernels.iter().map(|kernel| kernel.text).collect()
            };
            assert_eq!(texts(&found.collect::<Vec<_>>()), texts(kernels));
            covered.extend(kernels.iter().map(|kernel| kernel.text));
            // Other kernels of the same case are held against the same numbers.
            if references.iter().all(|known| *known != case) {
                // Padding of a head has no logits there.
                let real = case
                    .op
                    .loss()
                    .map_or(1.0, |loss| loss.vocab as f64 / inputs[1].shape[0] as f64);
                let own = (case.op.cost(&inputs, &made).flops as f64 * real) as u64;
                println!("{precision}: {own:.1e} operations of {} on {inputs:?}", case.op.name());
                flops += own;
                references.push(case);
            }
        }
        for node in plan.graph.programs.iter().flat_map(|program| &program.nodes) {
            let (inputs, outputs) = plan.graph.types(node);
            let kernels = variants.kernels(false, &node.op, &inputs, &outputs).unwrap_or_default();
            assert!(kernels.iter().all(|kernel| covered.contains(&kernel.text)), "{:?}", node.op);
        }
        let (count, kernels) = (cases.len(), covered.len());
        println!(
            "{precision}: {count} cases of {kernels} kernels, {flops:.1e} operations, {seconds:.1} s"
        );
        let wgmma = |case: &Checked| {
            case.kernels.iter().any(|kernel| kernel.label.starts_with("matmul_wgmma"))
        };
        assert_eq!(cases.iter().any(wgmma), precision == "bf16");
        // Those of GPT-2 on a first use are to take less than 20 s with all around them, on few cores too.
        assert!(flops < 5_000_000_000_u64, "{flops}");
        let start = Instant::now();
        references.iter().for_each(|case| drop(outputs(case).unwrap()));
        let seconds = start.elapsed().as_secs_f64();
        println!("{precision}: references take {seconds:.1} s on one core");
        // Known ones are no cases.
        assert!(of_plan(&plan, variants, &|_| true).is_empty());
    }
}

fn kernel(text: u64) -> KernelUse {
    KernelUse { label: format!("norm.{text}"), text, variants: vec![], of_library: false }
}

#[test]
fn what_was_seen_with_another_driver_or_in_a_damaged_file_is_not_known() {
    let folder = tempfile::tempdir().unwrap();
    let records = Records::in_folder(Some(folder.path().join("tightrope")));
    let mut record = records.read("GPU (x)", "driver 1");
    assert!(!record.has(&kernel(1)));
    record.pass(&[kernel(1), kernel(u64::MAX)]);
    let reason = || "it didn't end".to_owned();
    record.wrong.push(Wrong::new(None, &[kernel(3)], "norm".into(), reason()));
    record.wrong.push(Wrong::new(Some("mma"), &[kernel(4)], "matmul".into(), reason()));
    records.write("GPU (x)", &record);
    let again = records.read("GPU (x)", "driver 1");
    assert_eq!(again, record);
    assert!(again.has(&kernel(u64::MAX)) && !again.has(&kernel(2)));
    assert!(again.unusable(&[kernel(2), kernel(3)]).is_some());
    // Another stands in for it.
    assert!(again.unusable(&[kernel(4)]).is_none());
    assert_eq!(records.all(), [record]);
    assert!(!records.read("GPU (x)", "driver 2").has(&kernel(1)));
    assert!(!records.read("another", "driver 1").has(&kernel(1)));
    let file = folder.path().join("tightrope/checks-gpu-x.json");
    let text = fs::read(&file).unwrap();
    fs::write(&file, &text[..text.len() / 2]).unwrap();
    assert!(!records.read("GPU (x)", "driver 1").has(&kernel(1)));
    assert!(records.all().is_empty());
    records.write("GPU (x)", &again);
    records.forget("GPU (x)");
    assert!(!records.read("GPU (x)", "driver 1").has(&kernel(1)));
    let none = Records::in_folder(None);
    none.write("GPU (x)", &again);
    assert!(!none.read("GPU (x)", "driver 1").has(&kernel(1)));
}
