//! Runs with gradients in 16 bits and weights without masters: the flags, what the planner may take of them, and that they go on
//! from their checkpoints in the same bytes.

use tightrope::data::SafeTensors;

use super::*;

const NARROW: &str = "--precision bf16 --gradients bf16 --master none --channels 64 --layers 1 \
    --heads 2 --context 16 --batch 4 --steps 12 --threads 1 --set memory.optimizer_bits=8 \
    --set memory.table_bits=8";

#[test]
fn a_narrow_run_is_resumed_evaluated_and_exported() {
    let dir = folder();
    let weights = |run: &str| dir.path().join(run).join("checkpoints/step-12/model.safetensors");
    for (run, more) in
        [("whole", ""), ("kahan", "--gradients bf16-kahan --micro-batch 1"), ("lora", "")]
    {
        let more = match run {
            "lora" => {
                "--init whole --lora-rank 4 --gradients bf16 --master none --steps 12 --threads 1 --batch 4"
            }
            _ => more,
        };
        // A later flag of the same name isn't taken.
        let own = match run {
            "whole" => NARROW.to_owned(),
            "kahan" => format!("{} {more}", NARROW.replace("--gradients bf16 ", "")),
            _ => format!("--precision bf16 {more}"),
        };
        let words = format!("train --data text.txt {own} --save-every 10 --out {run} --json");
        let object = json(&ok(dir.path(), &words));
        assert_eq!(object["predicted_peak_bytes"], object["measured_peak_bytes"], "{run}");
        let last = dir.path().join(run).join("checkpoints/step-12");
        let of = || {
            let entries = fs::read_dir(&last).unwrap().map(|entry| entry.unwrap().path());
            let mut files: Vec<_> =
                entries.map(|path| (path.clone(), fs::read(path).unwrap())).collect();
            files.sort();
            files
        };
        let expected = of();
        fs::remove_dir_all(&last).unwrap();
        ok(dir.path(), &format!("train --resume {run}"));
        assert!(of() == expected, "{run}");
    }
    // What is trained is what is saved: bf16.
    let saved = SafeTensors::open(weights("whole")).unwrap();
    assert!(saved.tensors().all(|tensor| tensor.dtype == "BF16"));
    ok(dir.path(), "export whole exported --precision bf16");
    let loss = |words: &str| {
        let object = json(&ok(dir.path(), &format!("eval {words} --data text.txt --json")));
        object["loss"].as_f64().unwrap()
    };
    let (own, exported) = (loss("whole"), loss("exported --precision bf16 --batch 4"));
    assert!((own - exported).abs() < 1e-6, "{own} and {exported}");
    // Reading a run in another precision needs no master.
    let wide = loss("whole --precision f32");
    assert!((own - wide).abs() < 0.02, "{own} and {wide}");
    ok(dir.path(), "generate whole --precision f32 --prompt 1 --max-tokens 2");

    for (change, complaint) in [
        ("--master f32", "`memory.master` was \"none\" when the run began, and is \"f32\""),
        ("--set memory.table_bits=32", "`memory.table_bits` was 8 when the run began, and is 32"),
    ] {
        let (code, message) = refused(dir.path(), &format!("train --resume whole {change}"));
        assert_eq!(code, 2, "{message}");
        assert!(message.contains(complaint), "{message}");
    }
}

#[test]
fn the_planner_takes_what_is_allowed_and_says_so() {
    let dir = folder();
    let plan = |words: &str| {
        let words = format!("plan --preset shakespeare --batch 8 --precision bf16 --json {words}");
        let object = run(dir.path(), &words);
        serde_json::from_slice::<Value>(&object.stdout).unwrap()
    };
    let bytes = |object: &Value, class: &str| object["by_class"][class].as_u64().unwrap();
    let least = plan("--memory 1MiB")["smallest_bytes"].as_u64().unwrap();
    // What a class has at the peak is less than all of it.
    let open = plan("--memory 64GiB");
    assert_eq!(open["choices"]["gradients"], "f32");
    let mut before = least;
    for (allow, choices) in [("gradients", ["bf16", "f32"]), ("gradients,master", ["bf16", "none"])]
    {
        let found = plan(&format!("--memory {} --set memory.allow={allow}", before - 1));
        let taken = ["gradients", "master"].map(|key| found["choices"][key].as_str().unwrap());
        assert_eq!(taken, choices, "{allow}");
        let [gradients, master] = choices;
        let words = format!("--memory 1MiB --gradients {gradients} --master {master}");
        before = plan(&words)["smallest_bytes"].as_u64().unwrap();
    }
    // The fewest bytes of all are those of everything that is allowed.
    let allow = "--set memory.allow=gradients,master,optimizer_bits,table_bits";
    let fewest = plan(&format!("--memory 1MiB {allow}"))["smallest_bytes"].as_u64().unwrap();
    let choices = &plan(&format!("--memory {fewest} {allow}"))["choices"];
    assert_eq!((&choices["gradients"], &choices["master"]), (&"bf16".into(), &"none".into()));
    assert_eq!((&choices["optimizer_bits"], &choices["table_bits"]), (&8.into(), &8.into()));
    let narrow = plan("--memory 64GiB --master none");
    assert_eq!(bytes(&open, "weight"), 2 * bytes(&narrow, "weight"));

    let (code, message) = refused(dir.path(), "plan --preset tiny --master none");
    assert_eq!(code, 2, "{message}");
    assert!(message.contains("`memory.master`: weights in f32 have no master apart"), "{message}");
}
