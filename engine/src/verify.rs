//! Checks a device against recorded reference cases.
//!
//! ```
//! use tightrope::devices::Spec;
//! use tightrope::settings::Settings;
//! use tightrope::verify::Verification;
//!
//! let mut settings = Settings::default();
//! settings.read_argument("run.device=cpu")?;
//! let mut verification = Verification::on(Spec::of(&settings))?;
//! println!("{}", verification.check("../tests/parity/llama-gqa-case".as_ref())?.text());
//! assert_eq!(verification.finish()?["pass"], true);
//! # Ok::<(), tightrope::Error>(())
//! ```

mod case;
mod measure;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::anyhow;
use serde::Serialize;
use tightrope_core::{DeviceError, DeviceKind};
use tightrope_nn::device_error;

use crate::devices::{Devices, Spec};
use crate::error::{Error, Result};
use case::Case;
use measure::{Errors, measure};

/// How a device does on recorded cases, one after the other.
pub struct Verification {
    spec: Spec,
    devices: Devices,
    device: String,
    tolerances: Tolerances,
    verdicts: Vec<Verdict>,
}

impl Verification {
    /// Of the device that `spec` names.
    ///
    /// # Errors
    /// A device that isn't there.
    pub fn on(spec: Spec) -> Result<Self> {
        let mut devices = Devices::default();
        let device = devices.open(&spec)?;
        let tolerances = Tolerances::of(device.kind());
        Ok(Self { device: device.name(), spec, devices, tolerances, verdicts: Vec::new() })
    }

    /// Checks the case in `dir`.
    ///
    /// # Errors
    /// A case that can't be read, and what the device refuses.
    pub fn check(&mut self, dir: &Path) -> Result<&Verdict> {
        let case = Case::open(dir).map_err(wrong)?;
        let (devices, spec) = (&mut self.devices, &self.spec);
        let mut device = || {
            let opened = devices.open(spec);
            opened.map_err(|error| error.into_cause().context("the device can't be opened again"))
        };
        let errors = measure(&case, &mut device).map_err(wrong)?;
        let verdict = Verdict::new(dir.display().to_string(), errors, &self.tolerances);
        self.verdicts.push(verdict);
        Ok(self.verdicts.last().expect("it was just added"))
    }

    /// The report of all cases.
    ///
    /// # Errors
    /// Where a figure is beyond its tolerance; the report is the error's [details](Error::details).
    pub fn finish(&self) -> Result<serde_json::Value> {
        let Self { device, tolerances, verdicts, .. } = self;
        let report = Report { device, tolerances, cases: verdicts }.json();
        let worst = verdicts
            .iter()
            .filter(|verdict| !verdict.pass)
            .max_by(|a, b| a.worst.times_tolerance().total_cmp(&b.worst.times_tolerance()));
        let Some(worst) = worst else { return Ok(report) };
        let worst = format!("{}: {}", worst.dir, worst.worst.text());
        let error = anyhow!("{device} is beyond the tolerances; worst is {worst}");
        let help = "train on another device meanwhile (--device), and report this one with the output of \
                    `tightrope doctor`; where the files were changed, record the case again";
        Err(Error::failed(error, help).with_details(report))
    }
}

/// The failure of a case, with what to do about it: the device's, or else the files'.
fn wrong(error: anyhow::Error) -> Error {
    let help = match device_error(&*error) {
        Some(DeviceError::OutOfMemory { .. }) => {
            "free some of the device's memory, or verify another device with --device"
        }
        Some(DeviceError::Lost { .. }) => {
            "look at the driver with `tightrope doctor`, then try again, or verify another device \
             with --device"
        }
        Some(DeviceError::Compile { .. }) => {
            "this device's compiler refuses a kernel: update its driver, verify another device with \
             --device, and report it with the output of `tightrope doctor`"
        }
        Some(DeviceError::Cancelled | DeviceError::Input(_)) | None => {
            "DIR must hold config.json, model.safetensors and case.safetensors, and of adapters those in \
             adapters/ as well"
        }
    };
    Error::failed(error, help)
}

/// Largest distance of each figure that passes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Tolerances {
    loss_abs_err: f64,
    logits_max_abs_err: f64,
    grad_rel_l2: f64,
    train_loss_max_abs_err: f64,
    train_grad_norm_max_rel_err: f64,
    after_rel_l2: f64,
}

impl Tolerances {
    /// For f32 arithmetic as IEEE 754 has it.
    const STRICT: Self = Self {
        loss_abs_err: 1e-5,
        logits_max_abs_err: 1e-4,
        grad_rel_l2: 1e-4,
        train_loss_max_abs_err: 1e-4,
        train_grad_norm_max_rel_err: 1e-4,
        after_rel_l2: 1e-4,
    };
    /// WGSL asks less of division, square roots and exponentials
    /// (<https://www.w3.org/TR/WGSL/#floating-point-accuracy>).
    const WGSL: Self = Self {
        loss_abs_err: 1e-4,
        logits_max_abs_err: 1e-3,
        grad_rel_l2: 1e-3,
        train_loss_max_abs_err: 1e-3,
        train_grad_norm_max_rel_err: 1e-3,
        after_rel_l2: 1e-3,
    };

    /// Those of a device of this kind.
    fn of(kind: DeviceKind) -> Self {
        if kind == DeviceKind::Wgpu { Self::WGSL } else { Self::STRICT }
    }
}

/// One figure against its tolerance.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Figure {
    name: String,
    error: f64,
    tolerance: f64,
}

impl Figure {
    /// NaN passes nothing.
    fn passes(&self) -> bool {
        self.error <= self.tolerance
    }

    /// How many times the tolerance the error is; NaN counts as infinitely many.
    fn times_tolerance(&self) -> f64 {
        let times = self.error / self.tolerance;
        if times.is_nan() { f64::INFINITY } else { times }
    }

    fn text(&self) -> String {
        format!("{}, off by {:.1e} where {:e} is allowed", self.name, self.error, self.tolerance)
    }
}

/// How a case went.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    dir: String,
    pass: bool,
    #[serde(flatten)]
    errors: Errors,
    worst: Figure,
}

impl Verdict {
    fn new(dir: String, errors: Errors, tolerances: &Tolerances) -> Self {
        let figures = figures(&errors, tolerances);
        let pass = figures.iter().all(Figure::passes);
        let worst = figures
            .into_iter()
            .max_by(|a, b| a.times_tolerance().total_cmp(&b.times_tolerance()))
            .expect("the loss is always there");
        Self { dir, pass, errors, worst }
    }

    /// The verdict for people: a few lines.
    pub fn text(&self) -> String {
        let Errors { grad_rel_l2: grads, after_rel_l2: after, .. } = &self.errors;
        let worst = |of: &BTreeMap<String, f64>| of.values().copied().fold(0.0, worse);
        format!(
            "{} {}\n  loss {:.1e}  logits {:.1e}  {} gradients {:.1e}\n  \
             training: losses {:.1e}  gradient norms {:.1e}  {} weights {:.1e}\n  \
             nearest to its tolerance: {}\n",
            if self.pass { "pass" } else { "FAIL" },
            self.dir,
            self.errors.loss_abs_err,
            self.errors.logits_max_abs_err,
            grads.len(),
            worst(grads),
            self.errors.train_loss_max_abs_err,
            self.errors.train_grad_norm_max_rel_err,
            after.len(),
            worst(after),
            self.worst.text(),
        )
    }
}

/// Every figure of a case with its tolerance.
fn figures(errors: &Errors, tolerances: &Tolerances) -> Vec<Figure> {
    /// Adam's steps on rounding noise may all go the other way than the recorded ones, each a little
    /// longer than the learning rate while its averages warm up.
    const DRIFT: f64 = 2.2;
    let figure =
        |name: &str, error: f64, tolerance: f64| Figure { name: name.to_owned(), error, tolerance };
    let mut figures = vec![
        figure("loss", errors.loss_abs_err, tolerances.loss_abs_err),
        figure("logits", errors.logits_max_abs_err, tolerances.logits_max_abs_err),
        figure(
            "losses of the training run",
            errors.train_loss_max_abs_err,
            tolerances.train_loss_max_abs_err,
        ),
        figure(
            "gradient norms of the training run",
            errors.train_grad_norm_max_rel_err,
            tolerances.train_grad_norm_max_rel_err,
        ),
        figure(
            "weights without influence on the loss, their drift",
            errors.free_weights_max_drift,
            DRIFT,
        ),
    ];
    for (name, &error) in &errors.grad_rel_l2 {
        figures.push(figure(&format!("gradient of `{name}`"), error, tolerances.grad_rel_l2));
    }
    for (name, &error) in &errors.after_rel_l2 {
        figures.push(figure(&format!("trained `{name}`"), error, tolerances.after_rel_l2));
    }
    figures
}

/// All cases on one device.
struct Report<'a> {
    device: &'a str,
    tolerances: &'a Tolerances,
    cases: &'a [Verdict],
}

impl Report<'_> {
    /// The figures of the case, the worst of all where there are several, and `cases` one by one.
    fn json(&self) -> serde_json::Value {
        let most = |of: &dyn Fn(&Errors) -> f64| {
            self.cases.iter().map(|case| of(&case.errors)).fold(0.0, worse)
        };
        let by_name = |of: &dyn Fn(&Errors) -> &BTreeMap<String, f64>| {
            let mut all: BTreeMap<&str, f64> = BTreeMap::new();
            for (name, &error) in self.cases.iter().flat_map(|case| of(&case.errors)) {
                let entry = all.entry(name).or_default();
                *entry = worse(*entry, error);
            }
            all.into_iter().map(|(name, error)| (name.to_owned(), error)).collect()
        };
        let errors = Errors {
            loss_abs_err: most(&|errors| errors.loss_abs_err),
            logits_max_abs_err: most(&|errors| errors.logits_max_abs_err),
            grad_rel_l2: by_name(&|errors| &errors.grad_rel_l2),
            train_loss_max_abs_err: most(&|errors| errors.train_loss_max_abs_err),
            train_grad_norm_max_rel_err: most(&|errors| errors.train_grad_norm_max_rel_err),
            after_rel_l2: by_name(&|errors| &errors.after_rel_l2),
            free_weights_max_drift: most(&|errors| errors.free_weights_max_drift),
        };
        let mut object = serde_json::json!(errors);
        object["pass"] = self.cases.iter().all(|case| case.pass).into();
        object["device"] = self.device.into();
        object["tolerances"] = serde_json::json!(self.tolerances);
        object["cases"] = serde_json::json!(self.cases);
        object
    }
}

/// The larger of two errors; NaN is larger than all.
fn worse(a: f64, b: f64) -> f64 {
    if a.is_nan() || a >= b { a } else { b }
}

#[cfg(all(test, feature = "cpu", feature = "cuda"))]
mod tests;
