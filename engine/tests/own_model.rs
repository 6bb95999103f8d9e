//! A model and data of one's own: planned within a budget, trained, killed, resumed bit for bit.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use tightrope::Result;
use tightrope::core::plan::Checkpoint;
use tightrope::core::{Backend, DType, Tensor};
use tightrope::data::{DataState, Source};
use tightrope::devices::{Devices, Spec};
use tightrope::nn::layers::{self, Activation, Layer, Linear};
use tightrope::nn::{
    self, Done, Input, LearningRate, Model, Parameter, Pass, Planned, Schedule, TrainerConfig,
};
use tightrope::plan::{Scope, Trial};
use tightrope::run::{Batches, Ended, HeldOut, Parts, Run, Samples};
use tightrope::settings::{Device, Settings};

/// Numbers in the middle of the network.
const WIDTH: usize = 32;
/// Layers that are repeated.
const BLOCKS: usize = 4;
/// Samples of a step.
const BATCH: usize = 128;
const STEPS: u64 = 12;

/// A residual network from one number to one.
#[derive(Debug)]
struct Curve {
    up: Linear,
    blocks: Vec<Linear>,
    down: Linear,
}

impl Curve {
    fn new() -> Self {
        let block = |index| Linear::new(&format!("block.{index}"), WIDTH, WIDTH);
        Self {
            up: Linear::new("up", 1, WIDTH),
            blocks: (0..BLOCKS).map(block).collect(),
            down: Linear::new("down", WIDTH, 1),
        }
    }
}

impl Model for Curve {
    fn parameters(&self) -> Vec<Parameter> {
        let blocks = self.blocks.iter().map(|block| block as &dyn Layer);
        layers::parameters(
            [&self.up as &dyn Layer].into_iter().chain(blocks).chain([&self.down as _]),
        )
    }

    fn inputs(&self) -> Vec<Input> {
        vec![Input::new("x", DType::F32, &[1]), Input::new("y", DType::F32, &[1])]
    }

    fn loss(&self, pass: &mut Pass<'_>) -> nn::Result<Tensor> {
        let (x, y) = (pass.input("x")?, pass.input("y")?);
        let mut hidden = self.up.apply(pass, x)?;
        for (index, block) in self.blocks.iter().enumerate() {
            hidden = pass.block(index, |pass| {
                let active = Activation::Gelu.apply(pass, hidden, &format!("{index}.gelu"))?;
                let branch = block.apply(pass, active)?;
                pass.residual(hidden, branch, 0.0, &format!("{index}.residual"))
            })?;
        }
        let found = self.down.apply(pass, hidden)?;
        layers::mean_squared_error(pass, found, y)
    }
}

/// Points of a sine, which follow from their number.
struct Sine;

impl Sine {
    fn points(first: u64, count: usize) -> Samples {
        let x = |index: u64| ((index * 37) % 1000) as f32 / 500.0 - 1.0;
        let x: Vec<f32> = (first..first + count as u64).map(x).collect();
        let y: Vec<f32> = x.iter().map(|x| (3.0 * x).sin()).collect();
        Samples::new(count).with("x", x).with("y", y)
    }
}

impl Batches for Sine {
    fn batch(&mut self, config: &TrainerConfig, at: Done) -> Result<Samples> {
        Ok(Self::points(at.samples, config.batch))
    }

    fn held_out(&self, config: &TrainerConfig, _: Option<usize>) -> Result<HeldOut> {
        Ok(Box::new(std::iter::once(Ok(Self::points(1 << 20, config.micro_batch)))))
    }

    fn state(&self, samples: u64) -> DataState {
        let sine = Source::new("sine", 1000);
        DataState::new(samples, &[sine], "none", 0.0)
    }

    fn describe(&self) -> String {
        "a sine".to_owned()
    }
}

fn open(device: Device) -> Box<dyn Backend> {
    let mut settings = Settings::default();
    settings.run.device = device;
    settings.run.threads = Some(1);
    let device = Devices::default().open(&Spec::of(&settings));
    device.expect("a device: install mesa-vulkan-drivers for wgpu")
}

/// The fastest plan of the step within a budget that a plan without recomputation exceeds.
fn planned(device: &dyn Backend) -> Planned {
    let config = TrainerConfig {
        batch: BATCH,
        micro_batch: BATCH,
        ..TrainerConfig::new(Arc::new(Curve::new()))
    };
    let scope = Scope { micro_batch: false, new_model: false, ..Scope::of(&Settings::default()) };
    let trial = Trial { scope: &scope, device };
    let least = trial.fewest_bytes(&config).unwrap();
    let whole = Planned::new(&config, device).unwrap().plan.peak_bytes();
    let budget = least.midpoint(whole);
    assert!(budget < whole, "{budget} {whole}");
    let planned = trial.fitting(&config, budget).unwrap();
    assert_ne!(planned.config().options.checkpoint, Checkpoint::None);
    assert!(planned.plan.peak_bytes() <= budget);
    planned
}

/// A run in `dir`, from its newest checkpoint on where there is one, that ends after `steps`: by the end of the process
/// as far as the run can tell, as it isn't asked to stop.
fn train(dir: &Path, device: Device, steps: usize) -> Run<'static> {
    let device = open(device);
    let rate = LearningRate {
        schedule: Schedule::Cosine,
        lr: 1e-2,
        min_lr: 1e-3,
        warmup: 2,
        steps: STEPS,
    };
    let planned = planned(&*device);
    let mut parts = Parts::new(planned, device, Sine, rate).resume(dir).unwrap();
    parts.every.save = 5;
    let mut run = Run::start(parts).unwrap();
    run.record_in(dir.to_owned()).unwrap();
    for step in run.by_ref().take(steps) {
        step.unwrap();
    }
    run
}

fn last_checkpoint(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = fs::read_dir(dir.join(format!("checkpoints/step-{STEPS}"))).unwrap();
    let files = files.map(|file| file.unwrap().path());
    let name = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
    files.map(|path| (name(&path), fs::read(&path).unwrap())).collect()
}

fn trains_and_resumes(device: Device) {
    let whole = tempfile::tempdir().unwrap();
    let mut run = train(whole.path(), device, usize::MAX);
    assert_eq!(run.ended(), Some(Ended::Complete));
    let evaluation = run.evaluate(None).unwrap().unwrap();
    assert_eq!(evaluation.tokens, BATCH);
    let (first, last) = (run.summary().first_loss.unwrap(), run.summary().last_loss.unwrap());
    assert!(last < first / 2.0, "{first} {last}");
    // Killed after 7 steps, of which the last 2 are in no checkpoint.
    let killed = tempfile::tempdir().unwrap();
    drop(train(killed.path(), device, 7));
    let run = train(killed.path(), device, usize::MAX);
    assert_eq!(run.ended(), Some(Ended::Complete));
    assert_eq!(run.summary().times.count(), STEPS as usize - 5, "it went on from step 5");
    let (expected, found) = (last_checkpoint(whole.path()), last_checkpoint(killed.path()));
    assert!(expected.contains_key("model.safetensors"), "{:?}", expected.keys());
    assert!(expected == found, "the checkpoints differ");
}

#[test]
fn a_strangers_run_is_killed_and_ends_with_the_same_bytes() {
    trains_and_resumes(Device::Cpu);
}

#[test]
#[cfg(feature = "wgpu")]
fn so_does_one_on_a_gpu() {
    trains_and_resumes(Device::Wgpu(0));
}

#[test]
fn optimizer_state_that_is_no_number_is_never_a_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    let mut run = train(dir.path(), Device::Cpu, 6);
    let spoilt = run.with_trainer(async |trainer| {
        let mut values = trainer.state(0).await?;
        values[3] = f32::NAN;
        Ok(trainer.set_state(0, &values)?)
    });
    tightrope::block_on(spoilt).unwrap();
    let refused = run.save().unwrap_err();
    assert!(refused.causes().join(" ").contains("element 3 of `"), "{refused:?}");
    // The one before it is gone on with.
    drop(run);
    let run = train(dir.path(), Device::Cpu, usize::MAX);
    assert_eq!(run.summary().times.count(), STEPS as usize - 5);
}

#[test]
fn other_data_is_refused() {
    struct Other;

    impl Batches for Other {
        fn batch(&mut self, config: &TrainerConfig, at: Done) -> Result<Samples> {
            Sine.batch(config, at)
        }

        fn state(&self, samples: u64) -> DataState {
            let other = Source::new("cosine", 1000);
            DataState::new(samples, &[other], "none", 0.0)
        }

        fn describe(&self) -> String {
            "a cosine".to_owned()
        }
    }

    let dir = tempfile::tempdir().unwrap();
    drop(train(dir.path(), Device::Cpu, 6));
    let device = open(Device::Cpu);
    let rate = LearningRate {
        schedule: Schedule::Constant,
        lr: 1e-2,
        min_lr: 1e-2,
        warmup: 0,
        steps: STEPS,
    };
    let refused = Parts::new(planned(&*device), device, Other, rate).resume(dir.path());
    let message = refused.err().unwrap().message();
    assert!(message.contains("the data was"), "{message}");
}
