//! A run to one file and back.

mod common;

use common::{engine, json, setup, start, train};
use pollster::block_on;
use serde_json::{Value, json};
use tightrope::data::Checkpoint;

const STEPS: u64 = 10;
const SAVED_AFTER: u64 = 6;

fn bytes_of(text: &str) -> Option<Vec<u8>> {
    Some(text.as_bytes().to_vec())
}

#[test]
fn a_resumed_run_is_the_uninterrupted_one_bit_for_bit() {
    let text = "the quick brown fox jumps over the lazy dog. ".repeat(40);
    let precise = ("/run/precision", json!("bf16"));
    for (changes, text) in [
        (vec![], None),
        (vec![("/train/micro_batch", json!(4)), precise], None),
        (vec![("/data/kind", json!("text"))], bytes_of(&text)),
        (vec![("/data/kind", json!("add")), ("/train/optimizer", json!("lion"))], None),
        (vec![("/train/optimizer", json!("sgd")), ("/model/family", json!("llama"))], None),
        (vec![("/lora/rank", json!(2)), ("/run/precision", json!("f16"))], None),
        (vec![("/memory/consume_gradients", json!(true)), ("/train/clip", json!(0))], None),
    ] {
        let setup = setup(&changes);
        let mut whole = engine();
        block_on(whole.start(&setup, text.clone(), None)).unwrap();
        let losses = train(&mut whole, STEPS);
        let end = block_on(whole.checkpoint()).unwrap();

        let mut first = engine();
        block_on(first.start(&setup, text, None)).unwrap();
        let mut resumed = train(&mut first, SAVED_AFTER);
        let saved = block_on(first.checkpoint()).unwrap();
        let mut second = engine();
        // A checkpoint brings its text along.
        let started = block_on(second.start(&setup, None, Some(saved.clone()))).unwrap();
        assert_eq!(started["step"], SAVED_AFTER);
        assert_eq!(started["predicted_bytes"], started["allocated_bytes"]);
        resumed.extend(train(&mut second, STEPS - SAVED_AFTER));
        assert_eq!(resumed, losses, "{changes:?}");
        assert!(block_on(second.checkpoint()).unwrap() == end, "{changes:?}");

        // And says with which setup it continues.
        let found = second.setup_of(saved).unwrap();
        let mut third = engine();
        let checkpoint = block_on(second.checkpoint()).unwrap();
        let started = block_on(third.start(&found.to_string(), None, Some(checkpoint))).unwrap();
        assert_eq!(started["step"], STEPS);
    }
}

#[test]
fn a_lost_device_right_after_resuming_is_brought_back() {
    use tightrope_web::device::Moment;

    let setup = setup(&[]);
    let mut first = engine();
    start(&mut first, &setup);
    train(&mut first, SAVED_AFTER);
    let saved = block_on(first.checkpoint()).unwrap();
    let losses = train(&mut first, STEPS - SAVED_AFTER);
    for moment in [Moment::Upload, Moment::Compile, Moment::Readback] {
        let (mut second, armed) = common::losable();
        armed.set(Some(moment));
        block_on(second.start(&setup, None, Some(saved.clone()))).unwrap();
        assert_eq!(train(&mut second, STEPS - SAVED_AFTER), losses);
        assert_eq!(second.stats().recoveries.get(), 1);
    }
}

#[test]
fn checkpoints_of_other_runs_are_refused() {
    let setups = |changes: &[(&str, Value)]| setup(changes);
    let mut first = engine();
    start(&mut first, &setups(&[]));
    train(&mut first, 2);
    let saved = block_on(first.checkpoint()).unwrap();
    let mut second = engine();
    for (change, words) in [
        (
            ("/model/layers", json!(3)),
            "`model.layers` is 3, and the model in `checkpoint.tar` has 2",
        ),
        (("/model/family", json!("llama")), "`model.family` is llama, and the model"),
        (("/train/seed", json!(1)), "`train.seed` was 1337"),
        (("/data/holdout", json!(0.2)), "`data.holdout` was 0.1"),
        (("/data/kind", json!("sort")), "the task `sort`"),
        (("/train/optimizer", json!("lion")), "doesn't keep"),
        (("/train/steps", json!(1)), "has done 2 steps"),
    ] {
        let setup = setups(&[change]);
        let result = block_on(second.start(&setup, None, Some(saved.clone())));
        let message = result.unwrap_err().to_string();
        assert!(message.contains(words), "{message}");
    }
    let mut damaged = saved.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    for bytes in [damaged, saved[..saved.len() / 3].to_vec(), b"no archive".to_vec()] {
        let result = block_on(second.start(&setups(&[]), None, Some(bytes)));
        assert!(result.is_err());
    }
    // Nothing of that has harmed the engine.
    let started = block_on(second.start(&setups(&[]), None, Some(saved))).unwrap();
    assert_eq!(json(&started)["step"], 2);
}

#[test]
fn the_manifest_holds_every_setting_of_the_command_line() {
    let mut engine = engine();
    start(&mut engine, &setup(&[]));
    train(&mut engine, 1);
    let saved = block_on(engine.checkpoint()).unwrap();
    let manifest = Checkpoint::from_archive("x.tar", saved).unwrap().manifest;
    assert_eq!((manifest.step, manifest.data.position), (1, 8));
    assert_eq!(manifest.settings["train"]["micro_batch"], 8);
    assert_eq!(manifest.settings["memory"]["recompute"], "none");
    for key in ["kv_heads", "hidden", "context", "vocab"] {
        assert!(manifest.settings["model"][key].is_u64(), "{key}");
    }
    assert_eq!(manifest.model["dropout"], 0.1);
    assert_eq!(manifest.schedule["steps"], 80);
}
