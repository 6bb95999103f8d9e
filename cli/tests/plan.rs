//! `tightrope plan` from outside.

use std::process::{Command, Output};

use serde_json::Value;

fn plan(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tightrope"));
    command.arg("plan").args(words).output().unwrap()
}

fn object(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

const GPT2: [&str; 7] = ["--preset", "gpt2", "--batch", "16", "--context", "256", "--json"];

#[test]
fn a_model_larger_than_any_test_would_run() {
    let words = ["--preset", "gpt2-xl", "--batch", "4", "--memory", "1TiB", "--json"];
    let output = plan(&words);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let object = object(&output);
    // Weights, gradients and two moments in f32.
    assert!(object["peak_bytes"].as_u64().unwrap() > 4 * 4 * 1_557_611_200);
    assert_eq!(object["parameters"], 1_557_611_200u64);
    assert!(object["predicted_step_s"].as_f64().unwrap() > 0.0);
}

#[test]
fn the_same_command_gives_the_same_plan() {
    let stable = |mut object: Value| {
        object["plan_s"].take();
        object["budget_bytes"].take();
        object
    };
    assert_eq!(stable(object(&plan(&GPT2))), stable(object(&plan(&GPT2))));
}

#[test]
fn a_smaller_budget_never_takes_more() {
    let free = object(&plan(&[&GPT2[..], &["--memory", "64GiB"]].concat()));
    let peak = |object: &Value| object["peak_bytes"].as_u64().unwrap();
    let (mut before, mut slower) = (peak(&free), free["predicted_step_s"].as_f64().unwrap());
    for percent in [90, 80, 72] {
        let budget = peak(&free) * percent / 100;
        let limit = budget.to_string();
        let words = [&GPT2[..], &["--memory", &limit]].concat();
        let output = plan(&words);
        assert_eq!(output.status.code(), Some(0), "{percent}%");
        let object = object(&output);
        assert!(peak(&object) <= budget && peak(&object) <= before, "{percent}%");
        let seconds = object["predicted_step_s"].as_f64().unwrap();
        assert!(seconds >= slower, "{percent}%: {seconds} s after {slower} s");
        (before, slower) = (peak(&object), seconds);
    }
}

#[test]
fn a_budget_that_no_plan_meets() {
    let words = [&GPT2[..], &["--memory", "100MB"]].concat();
    let output = plan(&words);
    assert_eq!(output.status.code(), Some(3));
    let object = object(&output);
    assert_eq!(object["exit_code"], 3);
    assert!(object["error"].as_str().unwrap().contains("bytes"), "{object}");
    assert!(object["help"].as_str().unwrap().contains("fits"), "{object}");
    assert!(String::from_utf8_lossy(&output.stderr).starts_with("error: "));
}

#[test]
fn text_for_people() {
    let output = plan(&["--preset", "tiny", "--batch", "4", "--memory", "1GiB"]);
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).unwrap();
    for words in ["peak ", "bound ", "choices ", "estimate ", "│forward", "optimizer"] {
        assert!(text.contains(words), "no `{words}` in:\n{text}");
    }
}
