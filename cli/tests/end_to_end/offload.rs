//! Optimizer state with the host, from outside: on whatever GPU wgpu finds.

use super::*;

#[test]
fn a_gpu_with_its_state_on_the_host_trains_saves_and_continues() {
    let dir = folder();
    let train = |words: &str| {
        let words = format!("train --data text.txt --set run.save_every=6 --json {words}");
        json(&ok(dir.path(), &words))
    };
    let on_host = train(&format!("{TINY} --device wgpu --offload optimizer --out a"));
    let on_gpu = train(&format!("{TINY} --device wgpu --out b"));
    assert_eq!(on_host["predicted_peak_bytes"], on_host["measured_peak_bytes"]);
    let peak = |run: &Value| run["measured_peak_bytes"].as_u64().unwrap();
    assert!(peak(&on_host) < peak(&on_gpu), "{on_host} {on_gpu}");
    let loss = |run: &Value| run["heldout_loss"].as_f64().unwrap();
    assert!((loss(&on_host) - loss(&on_gpu)).abs() < 1e-4, "{on_host} {on_gpu}");

    train("--resume a/checkpoints/step-6 --device wgpu --offload optimizer --out c");
    for file in ["model.safetensors", "optimizer.safetensors"] {
        let [one, other] = ["a", "c"]
            .map(|run| fs::read(dir.path().join(format!("{run}/checkpoints/step-12/{file}"))));
        assert!(one.unwrap() == other.unwrap(), "{file}");
    }
    // The checkpoint is one like any other.
    train("--resume a/checkpoints/step-6 --device cpu --set memory.offload=[] --out d");

    let plan = stdout(&ok(dir.path(), &format!("plan {TINY} --device wgpu --offload optimizer")));
    assert!(plan.contains("\noffloaded") && !plan.contains("optim."), "{plan}");
    for (words, expected) in [
        ("--device wgpu --offload gradients", "name `optimizer` too"),
        ("--device wgpu --offload moments", "optimizer"),
        ("--device cpu --offload activations", "the device is the cpu"),
    ] {
        let (code, message) = refused(dir.path(), &format!("train {TINY} {words}"));
        assert!(code == 2 && message.contains(expected), "{message}");
    }
}

#[test]
fn a_budget_that_the_device_alone_is_too_small_for_is_met_with_the_host() {
    let dir = folder();
    // Most of what it takes is weights, and what the host can keep.
    let model = "--layers 2 --channels 128 --heads 2 --context 16 --batch 1 --steps 3";
    let run = |words: &str| format!("train --data text.txt --device wgpu --json {model} {words}");
    let whole = json(&ok(dir.path(), &run("--offload optimizer,gradients,activations --out a")));
    let budget = whole["measured_peak_bytes"].as_u64().unwrap();
    let (code, message) = refused(dir.path(), &run(&format!("--memory {budget}B")));
    assert!(code == 3 && message.contains("--offload optimizer,gradients"), "{message}");
    let words = format!("--memory {budget}B --set memory.allow=precision,offload --out b");
    let allowed = json(&ok(dir.path(), &run(&words)));
    assert!(allowed["measured_peak_bytes"].as_u64().unwrap() <= budget, "{allowed}");
    let loss = |run: &Value| run["heldout_loss"].as_f64().unwrap();
    assert!((loss(&whole) - loss(&allowed)).abs() < 1e-4, "{whole} {allowed}");
    // The plan's file says what the host keeps, and is held to it.
    let plan = "--set memory.plan=b/plan.json";
    let (code, message) = refused(dir.path(), &run(plan));
    assert!(code == 2 && message.contains("memory.offload"), "{message}");
}
