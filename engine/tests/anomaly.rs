//! Steps of f16 that are skipped, and what is told of them.

use std::cell::Cell;
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use tightrope::core::plan::{PlannedAs, Target};
use tightrope::core::{Backend, Cancel, DeviceError, DeviceKind, Plan, Reading};
use tightrope::devices::{Devices, Spec};
use tightrope::recipe::Recipe;
use tightrope::settings::Settings;

/// A device that is lost once, while ops run one by one.
struct Losing {
    inner: Box<dyn Backend>,
    /// Number of ops that still run one by one before the device is lost; `None` after that.
    after: Rc<Cell<Option<u64>>>,
}

impl PlannedAs for Losing {
    fn planned_as(&self) -> &dyn Target {
        &*self.inner
    }
}

impl Backend for Losing {
    fn kind(&self) -> DeviceKind {
        self.inner.kind()
    }

    fn name(&self) -> String {
        self.inner.name()
    }

    fn prepare(&mut self, plan: Arc<Plan>) -> Result<(), DeviceError> {
        self.inner.prepare(plan)
    }

    fn allocated_bytes(&self) -> u64 {
        self.inner.allocated_bytes()
    }

    fn write(&mut self, at: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.inner.write(at, data)
    }

    fn run(
        &mut self,
        program: usize,
        steps: Range<usize>,
        cancel: &Cancel,
    ) -> Result<(), DeviceError> {
        if let Some(left) = self.after.get().filter(|_| steps.len() == 1) {
            self.after.set(left.checked_sub(1));
            if left == 0 {
                let (device, reason) = (self.name(), "a test took it away".to_owned());
                return Err(DeviceError::Lost { device, reason });
            }
        }
        self.inner.run(program, steps, cancel)
    }

    fn read(&mut self, ranges: &[Range<u64>]) -> Reading<'_> {
        self.inner.read(ranges)
    }
}

/// A run whose first step takes its weights so far that f16 can't hold what the next ones compute: what it told, and its files. The device
/// is `lost` after as many ops of a look, if given.
fn train(
    dir: &Path,
    detect: bool,
    changes: &[&str],
    lost: Option<u64>,
) -> (Vec<String>, Vec<Vec<u8>>) {
    let mut said = Settings::default();
    for words in [
        "model.preset=tiny",
        "train.steps=4",
        "train.batch=4",
        "train.lr=5000",
        "train.warmup=0",
        "run.precision=f16",
        "run.device=cpu",
        "run.threads=1",
        "memory.budget=1GiB",
        &format!("run.detect_anomaly={detect}"),
        &format!("run.out={}", dir.display()),
    ] {
        said.read_argument(words).unwrap();
    }
    changes.iter().for_each(|words| said.read_argument(words).unwrap());
    let recipe = Recipe::new(&said).unwrap();
    let after = Rc::new(Cell::new(lost));
    let mut devices = Devices::default();
    let mut open = move |spec: &Spec| -> tightrope::Result<Box<dyn Backend>> {
        Ok(Box::new(Losing { inner: devices.open(spec)?, after: Rc::clone(&after) }))
    };
    let device = open(&recipe.step.device).unwrap();
    let started = recipe.plan(device).unwrap().start(open).unwrap();
    let (run, _) = started.begin().unwrap();
    let notes = run.flat_map(|stepped| stepped.unwrap().notes).collect();
    let step = dir.join("checkpoints/step-4");
    let files = ["model.safetensors", "optimizer.safetensors", "manifest.json"];
    (notes, files.map(|name| fs::read(step.join(name)).unwrap()).to_vec())
}

#[test]
fn each_skipped_step_names_its_op_and_no_number_changes() {
    for micro_batch in ["train.micro_batch=4", "train.micro_batch=2"] {
        let dir = tempfile::tempdir().unwrap();
        let (silent, expected) = train(&dir.path().join("silent"), false, &[micro_batch], None);
        assert!(silent.is_empty(), "{silent:?}");
        // A device that is lost while a step is looked at makes that step again too.
        for lost in [None, Some(0), Some(2)] {
            let out = dir.path().join(format!("told-{lost:?}"));
            let (notes, found) = train(&out, true, &[micro_batch], lost);
            let (skipped, others): (Vec<_>, Vec<_>) =
                notes.iter().partition(|note| note.contains("is skipped"));
            assert!(!skipped.is_empty(), "no step was skipped");
            assert_eq!(others.len(), usize::from(lost.is_some()), "{others:?}");
            for note in skipped {
                let told = note.contains("is skipped: the first output that isn't finite is `");
                assert!(told && note.contains(" of op "), "{note}");
            }
            assert!(found == expected, "a step that was looked at changed the run, lost: {lost:?}");
        }
    }
}
