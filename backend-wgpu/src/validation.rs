//! Every kernel is validated with naga, as each test case of the core launches it, and its bindings are held against the
//! launch. A shader that a browser would refuse fails.

use std::collections::HashSet;

use naga::valid::{Capabilities, ValidationFlags, Validator};
use tightrope_core::launch::{Launch, Limits};
use tightrope_core::ops::Case;
use tightrope_core::{Op, Rule, Type};

use crate::{source, tiles};

#[test]
fn every_kernel_is_valid_and_binds_what_its_launch_says() {
    let mut seen = HashSet::new();
    for limits in tiles::kinds_of_limits() {
        for case in Op::all_cases() {
            for launch in launches(&case, &limits) {
                // In the worst case every operand has a binding of its own.
                let bindings: Vec<usize> = (0..launch.operands.len()).collect();
                let text = source::assemble(&launch, &bindings, limits.webgpu())
                    .unwrap_or_else(|e| panic!("{e}"));
                if seen.insert((launch.entry, text.clone())) {
                    validate(&launch, &text, &limits);
                }
            }
        }
    }
    assert!(seen.len() > 300, "only {} kernels", seen.len());
}

fn launches(case: &Case, limits: &Limits) -> Vec<Launch> {
    let inputs: Vec<&Type> = case.inputs.iter().map(|sample| &sample.ty).collect();
    let Ok(outputs) = case.op.infer(&inputs) else { return vec![] };
    let outputs: Vec<&Type> = outputs.iter().collect();
    // What has no kernel is for the conformance tests to say.
    case.op.launch(limits, &inputs, &outputs).map_or(vec![], |launches| launches.list)
}

/// What a device has that such launches are made for. WebGPU has the functions that convert two halves of a word; only
/// some of naga's other targets lack them.
fn capabilities(limits: &Limits) -> Capabilities {
    let mut capabilities = Capabilities::SHADER_FLOAT16_IN_FLOAT32;
    capabilities.set(Capabilities::SUBGROUP, limits.webgpu().subgroup.is_some());
    capabilities.set(Capabilities::SHADER_FLOAT16, limits.webgpu().native_f16);
    capabilities.set(Capabilities::SHADER_INT64, limits.webgpu().wide_words);
    capabilities.set(Capabilities::COOPERATIVE_MATRIX, limits.webgpu().cooperative.is_some());
    capabilities
}

fn validate(launch: &Launch, text: &str, limits: &Limits) {
    let place = format!("{}.wgsl, {}", launch.kernel, launch.entry);
    let module = naga::front::wgsl::parse_str(text)
        .unwrap_or_else(|error| panic!("{place}: {}", error.emit_to_string(text)));
    Validator::new(ValidationFlags::all(), capabilities(limits))
        .validate(&module)
        .unwrap_or_else(|error| panic!("{place}: {}", error.emit_to_string(text)));
    assert!(
        module.entry_points.iter().any(|entry| entry.name == launch.entry),
        "{place}: there's no such entry"
    );
    let storage = module
        .global_variables
        .iter()
        .filter(|(_, variable)| matches!(variable.space, naga::AddressSpace::Storage { .. }))
        .count();
    assert_eq!(storage, launch.operands.len(), "{place}: binds {storage} tensors");
    let words = module.types.iter().find(|(_, ty)| ty.name.as_deref() == Some("Params"));
    let Some((_, naga::Type { inner: naga::TypeInner::Struct { span, .. }, .. })) = words else {
        panic!("{place}: has no parameters");
    };
    let bytes = launch.words().len();
    assert_eq!(*span as usize, bytes, "{place}: the parameters have {span} bytes");
}
