//! Optimizer state with the host, from outside: on whatever GPU wgpu finds.

use super::*;

#[test]
fn a_gpu_with_its_state_on_the_host_trains_saves_and_continues() {
    let dir = folder();
    let train = |words: &str| {
        let words = format!("train --data text.txt --set run.checkpoint_every=6 --json {words}");
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
    let (code, message) = refused(dir.path(), &format!("train {TINY} --offload activations"));
    assert!(code == 2 && message.contains("optimizer"), "{message}");
}
