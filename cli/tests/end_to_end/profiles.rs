//! What runs measure of themselves, beside what was predicted.

use super::*;

#[test]
fn a_profiled_run_is_shown_beside_its_plan() {
    let dir = folder();
    let dir = dir.path();
    let words = format!(
        "train --data text.txt {TINY} --micro-batch 2 --out a --profile --perfetto a.trace"
    );
    let output = ok(dir, &words);
    let shown = stderr(&output) + &stdout(&output);
    assert!(shown.contains("all, one by one") && shown.contains("a step of the run"), "{shown}");
    let read = |path: &str| -> Value {
        serde_json::from_str(&fs::read_to_string(dir.join(path)).unwrap()).unwrap()
    };
    let profile = read("a/profile.json");
    assert_eq!(profile["allocated_bytes"], profile["predicted_peak_bytes"]);
    assert!(profile["step_s"].as_f64().unwrap() > 0.0);
    assert!(profile["phases"].as_array().unwrap().len() >= 3);
    let trace = read("a.trace");
    let processes = trace["traceEvents"].as_array().unwrap().iter();
    let processes = processes.filter(|event| event["name"] == "process_name");
    let names: Vec<_> = processes.map(|event| event["args"]["name"].as_str().unwrap()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    assert!(names[1].starts_with("measured on cpu"), "{names:?}");
    let again = "plan --config a/run.toml --plan a/plan.json --measured a";
    let output = ok(dir, &format!("{again} --html a.html --perfetto b.trace"));
    assert!(stdout(&output).contains("a step of the run"));
    assert!(fs::read_to_string(dir.join("a.html")).unwrap().contains("\"measured_s\""));
    // Rates that the run has corrected predict other times of the same ops.
    let events = |trace: &Value, process: u64| -> Vec<Value> {
        let events = trace["traceEvents"].as_array().unwrap().iter();
        events.filter(|event| event["pid"] == process).cloned().collect()
    };
    let again = read("b.trace");
    assert_eq!(events(&again, 2), events(&trace, 2));
    let ops = |trace: &Value| -> Vec<Value> {
        events(trace, 1).iter().map(|event| event["name"].clone()).collect()
    };
    assert_eq!(ops(&again), ops(&trace));
    assert!(ops(&trace).len() > 20, "{trace}");
    let (code, message) = refused(dir, &format!("plan {TINY} --layers 2 --measured a"));
    assert_eq!(code, 2, "{message}");
    assert!(message.contains("the profile is of another plan"), "{message}");
    let (code, message) = refused(dir, &format!("plan {TINY} --measured a.html"));
    assert_eq!(code, 2, "{message}");
    assert!(message.contains("is no profile"), "{message}");
    let (code, message) = refused(dir, &format!("plan {TINY} --html nowhere/a.html"));
    assert_eq!(code, 1, "{message}");
    let object = json(&ok(dir, &format!("train --data text.txt {TINY} --out b --profile --json")));
    assert_eq!(object["profile"], "b/profile.json");
}

/// Largest difference between what a process takes at most and what it held before its arena, with the plan's peak.
#[cfg(target_os = "linux")]
const RESIDENT_LIMIT: i64 = 64 << 20;

/// The embedding alone is larger than the limit: a copy of it with the host, at the start or for the checkpoint, shows.
#[test]
#[cfg(target_os = "linux")]
fn a_process_takes_its_plan_and_what_it_held_at_its_start() {
    let dir = folder();
    // Each window that is scored takes a pass over the embedding.
    fs::write(dir.path().join("short.txt"), "tick tock ".repeat(60)).unwrap();
    let sizes = "--layers 1 --channels 512 --heads 2 --context 16 --vocab 40000 --batch 4";
    for precision in ["f32", "bf16"] {
        let words = format!(
            "train --data short.txt {sizes} --steps 2 --threads 2 --device cpu --precision {precision} \
             --out {precision} --json"
        );
        let object = json(&ok(dir.path(), &words));
        let bytes = |key: &str| object[key].as_i64().unwrap();
        let rest = bytes("resident_peak_bytes")
            - bytes("resident_start_bytes")
            - bytes("predicted_peak_bytes");
        assert!(rest.abs() <= RESIDENT_LIMIT, "{precision}: {rest} bytes besides");
    }
}
