//! The engine behind the page, natively: plans, runs, checkpoints.

mod common;

use common::{engine, json, setup, start, train};
use pollster::block_on;
use serde_json::json;
use tightrope::nn::Sampling;
use tightrope_web::running::Running;

#[test]
fn what_is_shown_of_a_plan_agrees_with_itself() {
    let engine = engine();
    for (key, value) in [
        ("/memory/recompute", json!("auto")),
        ("/memory/recompute", json!("block")),
        ("/train/micro_batch", json!(2)),
    ] {
        let shown = json(&engine.plan(&setup(&[(key, value)])).unwrap());
        assert_eq!(shown["fits"], true);
        assert!(shown["nearest"].is_null());
        let classes = shown["by_class"].as_object().unwrap();
        let names = ["weight", "gradient", "optimizer", "activation", "workspace", "input", "gaps"];
        assert!(
            classes.len() == names.len() && names.iter().all(|name| classes.contains_key(*name))
        );
        let programs = shown["programs"].as_array().unwrap();
        assert_eq!(programs.len(), if key == "/train/micro_batch" { 2 } else { 1 });
        let steps = programs[0]["ops"].as_array().unwrap();
        let tensors = programs[0]["tensors"].as_array().unwrap();
        let number = |value: &serde_json::Value| value.as_u64().unwrap();
        let peak = number(&shown["peak_bytes"]);
        assert!(steps.iter().all(|step| number(&step["live"]) <= peak));
        let mut made = 0;
        for tensor in tensors {
            let (birth, death) = (number(&tensor["birth"]), number(&tensor["death"]));
            assert!(birth <= death && (death as usize) < steps.len(), "{tensor}");
            assert!(number(&tensor["offset"]) + number(&tensor["bytes"]) <= peak, "{tensor}");
            assert!(classes.contains_key(tensor["class"].as_str().unwrap()));
            let mut readers = tensor["read_by"].as_array().unwrap().iter().map(number);
            // An op that works in place reads what it takes the place of.
            assert!(readers.all(|step| (birth..=death + 1).contains(&step)), "{tensor}");
            made += usize::from(tensor["kept"] == false);
            if tensor["again_s"].is_number() {
                assert_eq!(tensor["class"], "activation", "{tensor}");
            }
        }
        assert!(made > 10);
        for step in steps {
            let phases = ["forward", "backward", "recompute", "update"];
            assert!(phases.contains(&step["phase"].as_str().unwrap()));
        }
        assert!(shown["step_s"].as_f64().unwrap() > 0.0);
        assert!(number(&shown["lower_bound_bytes"]) <= peak);
    }
}

#[test]
fn the_processor_offloads_nothing_to_itself() {
    let mut engine = engine();
    let offloaded = setup(&[("/memory/offload", json!(["optimizer"]))]);
    let planned = engine.plan(&offloaded).unwrap_err();
    let started = block_on(engine.start(&offloaded, None, None)).unwrap_err();
    for refused in [planned, started] {
        assert!(refused.to_string().contains("the device is the cpu"), "{refused}");
        assert_eq!(refused.name(), "SettingError");
    }
    assert_eq!(json(&engine.plan(&setup(&[])).unwrap())["offloaded_bytes"], 0);
}

#[test]
fn a_budget_that_nothing_meets_is_refused_with_a_setup_that_fits() {
    let mut engine = engine();
    let whole = json(&engine.plan(&setup(&[])).unwrap());
    let none = json(&engine.plan(&setup(&[("/memory/budget", json!(1))])).unwrap());
    let smallest = none["smallest_seen_bytes"].as_u64().unwrap();
    assert_eq!((&none["fits"], &none["peak_bytes"]), (&json!(false), &json!(smallest)));
    assert!(none["nearest"].is_null() && smallest < whole["peak_bytes"].as_u64().unwrap());
    let exact = json(&engine.plan(&setup(&[("/memory/budget", json!(smallest))])).unwrap());
    assert_eq!((&exact["fits"], &exact["peak_bytes"]), (&json!(true), &json!(smallest)));
    let tight = setup(&[("/memory/budget", json!(smallest - 1))]);
    let error = block_on(engine.start(&tight, None, None)).unwrap_err();
    let refusal: serde_json::Value = serde_json::from_str(&error.to_string()).unwrap();
    assert!(refusal["smallest_bytes"].as_u64().unwrap() > 0 && refusal["what"].is_string());
    assert_eq!((error.name(), &refusal["budget_bytes"]), ("DoesNotFit", &json!(smallest - 1)));
    let nearest = refusal["nearest"].to_string();
    assert_eq!(json(&engine.plan(&nearest).unwrap())["fits"], true, "{refusal}");
    // The refused start left the device as it was.
    start(&mut engine, &nearest);
}

#[test]
fn what_is_planned_is_what_is_allocated() {
    let mut engine = engine();
    let started = start(&mut engine, &setup(&[]));
    assert_eq!(started["predicted_bytes"], started["allocated_bytes"]);
    assert_eq!(json(&engine.plan(&setup(&[])).unwrap())["peak_bytes"], started["predicted_bytes"]);
    assert_eq!(started["step"], 0);
}

#[test]
fn a_small_gpt_learns_and_talks() {
    let mut engine = engine();
    start(&mut engine, &setup(&[]));
    let before = block_on(engine.with_run(Running::evaluate)).unwrap();
    let losses = train(&mut engine, 60);
    assert!(losses[0] > 5.0 && losses[59] < 4.0, "{losses:?}");
    let after = block_on(engine.with_run(Running::evaluate)).unwrap();
    assert!(after < before - 1.0, "{before} to {after}");
    let text = block_on(engine.with_run(async |run| run.sample("let ", 20, 0.8, 7).await)).unwrap();
    assert!(!text.is_empty());
    let sampling = Sampling { temperature: 0.8, top_k: 0, top_p: 1.0, seed: 7, draw: 0 };
    for most in [20, 3] {
        let mut pieces = String::new();
        let mut show = |piece: &str| {
            pieces += piece;
            pieces.len() < most
        };
        block_on(engine.with_run(async |run| run.generate("let ", 20, sampling, &mut show).await))
            .unwrap();
        assert!(
            text.starts_with(&pieces) && (pieces == text) == (most == 20),
            "{pieces:?}, {text:?}"
        );
    }
    assert!(
        block_on(engine.with_run(Running::accuracy))
            .unwrap_err()
            .to_string()
            .contains("no answers")
    );
    // Steps end where the schedule does.
    assert_eq!(block_on(engine.step(1000)).unwrap().last().unwrap().step, 80);
    assert!(block_on(engine.step(1)).unwrap().is_empty());
}

#[test]
fn a_task_is_learnt_and_its_answers_are_counted() {
    let mut engine = engine();
    let setup = setup(&[
        ("/data/kind", json!("reverse")),
        ("/train/steps", json!(600)),
        ("/train/lr", json!(3e-3)),
        ("/model/context", json!(28)),
        ("/train/batch", json!(16)),
    ]);
    start(&mut engine, &setup);
    let first = block_on(engine.with_run(Running::accuracy)).unwrap();
    train(&mut engine, 600);
    let (loss, last) = (
        block_on(engine.with_run(Running::evaluate)).unwrap(),
        block_on(engine.with_run(Running::accuracy)).unwrap(),
    );
    assert!(first < 0.1 && last > 0.5, "accuracy {first} to {last}, held-out loss {loss}");
    let shown = block_on(engine.with_run(async |run| run.sample("", 100, 0.8, 1).await)).unwrap();
    assert!(shown.lines().count() == 6 && shown.contains('>'), "{shown}");
}

#[test]
fn calls_without_a_run_and_wrong_setups_say_what_to_do() {
    let mut engine = engine();
    for message in [
        block_on(engine.step(1)).unwrap_err().to_string(),
        block_on(engine.checkpoint()).unwrap_err().to_string(),
    ] {
        assert!(message.contains("start one first"), "{message}");
    }
    for (setup, words) in [
        (r#"{"train": {"lerning_rate": 1}}"#, "unknown setting `train.lerning_rate`"),
        (r#"{"model": {"layer": 1}}"#, "did you mean `model.layers`?"),
        (r#"{"modle": {}}"#, "did you mean `[model]`?"),
        (r#"{"model": {"layers": "two"}}"#, "`model.layers`"),
        (r#"{"train": {"optimizer": "adam"}}"#, "did you mean `adamw`?"),
        (r#"{"data": {"kind": "sorted"}}"#, "did you mean `sort`?"),
        (r#"{"train": {"batch": 6, "micro_batch": 4}}"#, "doesn't divide the 6"),
        (r#"{"model": {"heads": 0}}"#, "`model.heads` must be"),
        (r#"{"model": {"channels": 0}}"#, "`model.channels` must be"),
        (r#"{"memory": {"checkpoint": "some"}}"#, "`memory.recompute` must be"),
        (r#"{"memory": {"loss_chunk": 0}}"#, "1 or more"),
        (r#"{"train": {"lr": -1}}"#, "`train.lr` must be"),
        ("[]", "object"),
        ("{", "JSON"),
    ] {
        let error = engine.plan(setup).unwrap_err();
        assert!(error.to_string().contains(words), "{setup}: {error}");
        assert_eq!(error.name(), "SettingError", "{error}");
    }
    for kind in ["add", "built-in"] {
        let words = [("/data/kind", json!(kind)), ("/model/vocab", json!(100))];
        let message = block_on(engine.start(&setup(&words), None, None)).unwrap_err().to_string();
        assert!(message.contains("100"), "{message}");
    }
    let text = setup(&[("/data/kind", json!("text"))]);
    for (given, words) in [(None, "give a text"), (Some(b"short".to_vec()), "holds 4 tokens")] {
        let message = block_on(engine.start(&text, given, None)).unwrap_err().to_string();
        assert!(message.contains(words), "{message}");
    }
}

#[test]
fn a_preset_by_name_is_the_setup_that_is_offered_under_it() {
    let engine = engine();
    let info = engine.info().unwrap();
    let offer = &info["presets"][0];
    let named = json!({ "model": { "preset": offer["name"] } }).to_string();
    let [named, offered] =
        [named, offer["setup"].to_string()].map(|setup| engine.plan(&setup).unwrap());
    assert_eq!(named["programs"], offered["programs"]);
}

#[test]
fn presets_are_offered_with_setups_that_can_be_planned() {
    let engine = engine();
    let info = engine.info().unwrap();
    assert_eq!(
        (&info["device"], &info["reason"]),
        (&json!("cpu"), &json!("the processor was asked for"))
    );
    let presets = info["presets"].as_array().unwrap();
    assert!(presets.len() > 10);
    assert!(presets[0]["name"].as_str().unwrap().ends_with("tiny"), "{}", presets[0]["name"]);
    let largest = presets.iter().find(|preset| preset["name"] == info["largest_fitting_preset"]);
    assert!(largest.is_some(), "{info}");
    let tiny = presets[0]["setup"].to_string();
    assert_eq!(json(&engine.plan(&tiny).unwrap())["fits"], true);
}

#[test]
fn digits_are_learnt_and_drawings_are_told() {
    let mut engine = engine();
    let digits = json!({
        "model": { "family": "vit", "layers": 2, "channels": 64, "heads": 4 },
        "train": { "batch": 32, "steps": 300, "lr": 2e-3 },
        "data": { "kind": "digits" },
    })
    .to_string();
    let names = engine.needs(&digits).unwrap();
    assert_eq!(names, ["digits-images", "digits-labels"]);
    let missing = block_on(engine.start(&digits, None, None)).unwrap_err();
    assert!(missing.to_string().contains("`digits-images` is missing"), "{missing}");
    for (name, extents) in [("digits-images", 3), ("digits-labels", 1)] {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../data/assets/digits");
        let file = std::fs::read(format!("{folder}/{name}-idx{extents}-ubyte.gz")).unwrap();
        engine.give(name.to_owned(), file);
    }
    assert!(engine.needs(&digits).unwrap().is_empty());
    let started = start(&mut engine, &digits);
    assert_eq!(started["predicted_bytes"], started["allocated_bytes"]);
    train(&mut engine, 300);
    let accuracy = block_on(engine.with_run(Running::accuracy)).unwrap();
    assert!(accuracy > 0.8, "{accuracy}");

    // A ring, as somebody draws a 0, and a thin bar, as somebody draws a 1.
    let drawing = |is_ink: &dyn Fn(f64, f64) -> bool| -> Vec<u8> {
        let at = |place: usize| ((place / 128) as f64, (place % 128) as f64);
        (0..128 * 128).map(|place| if is_ink(at(place).0, at(place).1) { 255 } else { 0 }).collect()
    };
    let ring = drawing(&|y, x| (34.0..46.0).contains(&(y - 60.0).hypot((x - 64.0) * 1.4)));
    let bar = drawing(&|y, x| (20.0..100.0).contains(&y) && (60.0..70.0).contains(&x));
    for (ink, expected) in [(&ring, "0"), (&bar, "1")] {
        let look = async |run: &mut Running| Ok(run.run.recognise_async(ink, 128).await?);
        let seen = block_on(engine.with_run(look)).unwrap().unwrap();
        assert_eq!((seen.width, seen.pixels.len(), seen.classes.len()), (8, 64, 10));
        let best = seen.classes.iter().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
        assert_eq!(best.0, expected, "{seen:?}");
    }
    let nothing =
        async |run: &mut Running| Ok(run.run.recognise_async(&[0; 128 * 128], 128).await?);
    assert_eq!(block_on(engine.with_run(nothing)).unwrap(), None);

    // Another engine goes on from what this one saved.
    let archive = block_on(engine.checkpoint()).unwrap();
    let continues = engine.setup_of(archive.clone()).unwrap();
    assert_eq!(continues["data"]["kind"], "digits");
    assert_eq!(
        json(&block_on(engine.start(&continues.to_string(), None, Some(archive))).unwrap())["step"],
        300
    );
    for (kind, family) in [("digits", "gpt2"), ("sort", "vit")] {
        let setup = json!({ "model": { "family": family }, "data": { "kind": kind } }).to_string();
        let refusal = block_on(engine.start(&setup, None, None)).unwrap_err();
        assert!(refusal.to_string().contains("the data is"), "{refusal}");
    }
}
