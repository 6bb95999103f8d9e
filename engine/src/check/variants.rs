//! Checks all variants of a device, whatever plans take.

use anyhow::anyhow;
use tightrope_core::{Backend, KernelUse, Plan};
use tightrope_nn::Planned;

use super::cases;
use super::record::records;
use super::{CHECKER, Checker, REPORT, Verdict};
use crate::devices::{Devices, Spec};
use crate::error::{Error, Result};
use crate::recipe::Step;
use crate::settings::{Device, Settings};

/// Checks every variant of a device anew: the cases of all families, the steps of GPT-2 in each precision, and both again with
/// each variant left out. What is wrong is [`super::found`] after that.
///
/// # Errors
/// A device that isn't there, and a program that never said how to check.
pub fn check_all(device: Device) -> Result<()> {
    let Some(checker) = CHECKER.get() else {
        return Err(Error::failed(
            anyhow!("nothing checks kernels"),
            "call `check::enable` before",
        ));
    };
    let mut settings = Settings::default();
    settings.run.device = device;
    let spec = Spec::of(&settings);
    let known = Devices::default().open(&spec)?;
    records().forget(&known.name());
    drop(known);
    let mut opened = Devices::default().open(&spec)?;
    let variants = opened.variants().map_or(&[][..], |variants| variants.known());
    for left_out in std::iter::once(None).chain(variants.iter().map(Some)) {
        if let (Some(variants), Some(variant)) = (opened.variants(), left_out) {
            variants.leave_out(variant);
        }
        every_case(checker, &spec, &mut *opened)?;
    }
    Ok(())
}

/// Checks all that a device has of its kernels, as it's used now.
fn every_case(checker: &Checker, spec: &Spec, device: &mut dyn Backend) -> Result<()> {
    loop {
        let mut plans = vec![];
        for precision in ["f32", "bf16", "f16"] {
            let mut settings = Settings::default();
            settings.read_argument("model.preset=gpt2")?;
            settings.read_argument(&format!("run.precision={precision}"))?;
            plans.push(planned_in_all(&settings, device)?);
        }
        let verdict = checker.check(spec, device, &|variants, record| {
            let passed = |kernel: &KernelUse| record.has(kernel);
            let mut found = cases::of_families(variants, &passed);
            found.extend(plans.iter().flat_map(|plan| cases::of_plan(plan, variants, &passed)));
            // What nothing stands in for is found once.
            found.retain(|case| record.unusable(&case.kernels).is_none());
            found
        });
        match verdict {
            Verdict::Right => return Ok(()),
            Verdict::LeftOut => {}
            Verdict::Unusable(wrong) => {
                (checker.tell)(&format!("{}: {}; {REPORT}", device.name(), wrong.text()));
            }
        }
    }
}

/// The step of these settings, whatever memory it takes: nothing of it is allocated.
fn planned_in_all(settings: &Settings, device: &dyn Backend) -> Result<Plan> {
    let step = Step::of(settings)?;
    Ok(Planned::new(&step.config, device)?.plan)
}
