//! A device that goes away, and a run that doesn't notice.

mod common;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use common::{engine, losable, setup, start, train};
use pollster::block_on;
use serde_json::json;
use tightrope::core::{Backend, DeviceError};
use tightrope_web::device::{Armed, Choice, Description, Devices, Moment, Opener};
use tightrope_web::engine::Engine;

/// Steps of a run, and when the device goes away.
const STEPS: u64 = 12;
const LOST_AFTER: u64 = 7;

/// Losses of a run, its samples and its checkpoint, the device lost at `moment`; and how often it came back.
fn run(setup: &str, moment: Option<Moment>) -> (Vec<f32>, String, Vec<u8>, u32) {
    let (mut engine, armed) = losable();
    if moment == Some(Moment::Compile) {
        armed.set(moment);
    }
    start(&mut engine, setup);
    let mut losses = train(&mut engine, LOST_AFTER);
    if moment != Some(Moment::Compile) {
        armed.set(moment);
    }
    losses.extend(train(&mut engine, STEPS - LOST_AFTER));
    let text = block_on(engine.with_run(async |run| run.sample("fn ", 8, 0.8, 3).await)).unwrap();
    let checkpoint = block_on(engine.checkpoint()).unwrap();
    assert_eq!(armed.get(), None, "{moment:?} never came");
    (losses, text, checkpoint, engine.stats().recoveries.get())
}

#[test]
fn a_device_lost_at_any_moment_changes_no_number() {
    for changes in [
        vec![],
        vec![("/train/micro_batch", json!(2)), ("/run/precision", json!("bf16"))],
        vec![("/memory/recompute", json!("block")), ("/data/kind", json!("sort"))],
    ] {
        let setup = setup(&changes);
        let undisturbed = run(&setup, None);
        assert_eq!((undisturbed.0.len(), undisturbed.3), (STEPS as usize, 0));
        for (name, moment) in Moment::ALL {
            let disturbed = run(&setup, Some(moment));
            assert_eq!(disturbed.0, undisturbed.0, "losses, lost at {name}");
            assert_eq!(disturbed.1, undisturbed.1, "sample, lost at {name}");
            assert!(disturbed.2 == undisturbed.2, "checkpoint, lost at {name}");
            assert_eq!(disturbed.3, 1, "lost at {name}");
        }
    }
}

#[test]
fn a_device_lost_again_and_again_between_steps_is_brought_back_each_time() {
    let setup = setup(&[]);
    let undisturbed = run(&setup, None).0;
    let (mut engine, armed) = losable();
    start(&mut engine, &setup);
    let mut losses = vec![];
    for step in 0..STEPS {
        let (_, moment) = Moment::ALL[step as usize % Moment::ALL.len()];
        if !matches!(moment, Moment::Compile | Moment::Save) {
            armed.set(Some(moment));
        }
        losses.extend(train(&mut engine, 1));
    }
    assert_eq!(losses, undisturbed);
    assert!(engine.stats().recoveries.get() >= 8);
}

/// Opens processors, some of which are lost as soon as they're used.
struct Failing {
    devices: Devices,
    armed: Armed,
    /// How many more of the next devices go away.
    losses: Rc<Cell<u32>>,
    opened: Rc<RefCell<u32>>,
}

impl Opener for Failing {
    async fn open(&self) -> Result<(Box<dyn Backend>, Description), DeviceError> {
        *self.opened.borrow_mut() += 1;
        if self.losses.get() > 0 {
            self.losses.set(self.losses.get() - 1);
            self.armed.set(Some(Moment::Upload));
        }
        self.devices.open().await
    }
}

#[test]
fn three_losses_in_a_row_end_the_run_with_words() {
    for (losses, survives) in [(1, true), (2, false)] {
        let (armed, counted) = (Armed::default(), Rc::new(Cell::new(0)));
        let devices = Devices::new(Choice::Cpu, false, Rc::clone(&armed));
        let opened = Rc::default();
        let failing = Failing {
            devices,
            armed: Rc::clone(&armed),
            losses: Rc::clone(&counted),
            opened: Rc::clone(&opened),
        };
        let mut engine = block_on(Engine::open(failing, Rc::clone(&armed))).unwrap();
        block_on(engine.start(&setup(&[]), None, None)).unwrap();
        block_on(engine.step(3)).unwrap();
        // This device goes away, and then as many of those that follow.
        armed.set(Some(Moment::Backward));
        counted.set(losses);
        let result = block_on(engine.step(3));
        if survives {
            assert_eq!(result.unwrap().last().unwrap().step, 6);
            continue;
        }
        let message = result.unwrap_err().to_string();
        assert!(message.contains("without getting on") && message.contains("Reload"), "{message}");
        // The run is still there, and goes on once the device does.
        let opened_before = *opened.borrow();
        assert_eq!(block_on(engine.step(3)).unwrap().last().unwrap().step, 6);
        assert_eq!(*opened.borrow(), opened_before + 1);
    }
}

#[test]
fn the_host_copy_takes_the_place_of_a_checkpoint_and_stays_as_large() {
    let mut first = engine();
    start(&mut first, &setup(&[]));
    train(&mut first, 5);
    // The processor's memory is the host's: a copy would only take more of it.
    assert_eq!(first.stats().host_copy_bytes.get(), 0);
    let saved = block_on(first.checkpoint()).unwrap();
    let mut engine = engine();
    block_on(engine.start(&setup(&[]), None, Some(saved))).unwrap();
    let stats = engine.stats();
    let copied = stats.host_copy_bytes.get();
    assert!(copied > 0 && copied < stats.allocated_bytes.get(), "{copied}");
    for _ in 0..3 {
        train(&mut engine, 20);
        assert_eq!(stats.host_copy_bytes.get(), copied);
    }
}
