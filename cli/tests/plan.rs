//! `tightrope plan` from outside.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn plan(words: &[&str]) -> Output {
    plan_of_rank(&[], words)
}

/// The same, of a process whose launcher has set these variables.
fn plan_of_rank(variables: &[(&str, &str)], words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tightrope"));
    // Not with rates that this machine keeps.
    command.env("XDG_CACHE_HOME", concat!(env!("CARGO_TARGET_TMPDIR"), "/none"));
    command.envs(variables.iter().copied()).arg("plan").args(words).output().unwrap()
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
    assert_eq!(object["rates"], "default");
    assert!(object["predicted_step_s"].as_f64().unwrap() > 0.0);
}

/// Two ranks with a thread on every core each would take turns on them.
#[test]
fn ranks_share_the_cores_of_a_machine() {
    let threads = |ranks: &str, words: &[&str]| {
        let launched = [
            ("PMI_RANK", "1"),
            ("PMI_SIZE", ranks),
            ("MPI_LOCALRANKID", "0"),
            ("MPI_LOCALNRANKS", ranks),
        ];
        let words = [&["--preset", "tiny", "--device", "cpu", "--json"], words].concat();
        let device = object(&plan_of_rank(&launched, &words))["device"].clone();
        let device = device.as_str().unwrap().strip_prefix("cpu (").unwrap().to_owned();
        device.split(' ').next().unwrap().parse::<usize>().unwrap()
    };
    let cores = std::thread::available_parallelism().unwrap().get();
    assert_eq!(threads("2", &[]), (cores / 2).max(1));
    assert_eq!(threads("1000", &[]), 1);
    assert_eq!(threads("2", &["--threads", "3"]), 3);
}

#[test]
fn the_same_command_gives_the_same_plan() {
    let stable = |mut object: Value| {
        object["plan_s"].take();
        object["advice"]["advice_s"].take();
        object
    };
    let words = [&GPT2[..], &["--memory", "3GiB"]].concat();
    assert_eq!(stable(object(&plan(&words))), stable(object(&plan(&words))));
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
fn eight_bits_of_optimizer_state_are_a_choice_of_the_settings_or_the_planner() {
    let with = |words: &[&str]| {
        object(&plan(&[&["--preset", "gpt2", "--batch", "4", "--json"], words].concat()))
    };
    let state = |object: &Value| object["by_class"]["optimizer"].as_u64().unwrap();
    let [single, quantized] = ["32", "8"].map(|bits| {
        let setting = format!("memory.optimizer_bits={bits}");
        with(&["--memory", "64GiB", "--set", &setting])
    });
    assert_eq!(quantized["choices"]["optimizer_bits"], 8);
    // All matrices but the two tables: 12 blocks of 12·768² elements, two moments of 3 bytes less each.
    let elements = 12 * 12 * 768 * 768;
    let saved = 2 * elements * 3 - 2 * 4 * elements / 256;
    assert!(state(&single) - state(&quantized) >= saved, "{single} {quantized}");
    let peak = |object: &Value| object["peak_bytes"].as_u64().unwrap();
    assert!(peak(&single) - peak(&quantized) >= saved * 9 / 10);
    // One byte less than any plan with 32 bits takes.
    let refused = with(&["--memory", "100MB"]);
    let (_, rest) = refused["error"].as_str().unwrap().split_once('(').unwrap();
    let least: u64 = rest.split_once(' ').unwrap().0.parse().unwrap();
    let budget = (least - 1).to_string();
    assert_eq!(with(&["--memory", &budget])["exit_code"], 3);
    let allowed = with(&["--memory", &budget, "--set", "memory.allow=optimizer_bits"]);
    assert_eq!(allowed["choices"]["optimizer_bits"], 16, "{allowed}");
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
    // The smallest plan is shown all the same, here and in the page.
    assert_eq!(object["smallest"]["peak_bytes"], object["smallest_bytes"]);
    let page = Path::new(env!("CARGO_TARGET_TMPDIR")).join("smallest.html");
    let words: Vec<&str> = words.iter().copied().filter(|word| *word != "--json").collect();
    let shown = plan(&[&words[..], &["--html", page.to_str().unwrap()]].concat());
    let text = String::from_utf8_lossy(&shown.stdout);
    assert_eq!(shown.status.code(), Some(3));
    assert!(text.starts_with("no plan fits; this is the smallest\n"), "{text}");
    assert!(text.contains(" too little"), "{text}");
    assert!(std::fs::read_to_string(page).unwrap().contains("too little"));
    let preset = object["largest_preset"].as_str().unwrap();
    let fits =
        plan(&["--preset", preset, "--batch", "16", "--context", "256", "--memory", "100MB"]);
    assert_eq!(fits.status.code(), Some(0), "{preset}");
    let smallest = object["smallest_bytes"].to_string();
    let enough = plan(&[&GPT2[..], &["--memory", &smallest]].concat());
    assert_eq!(enough.status.code(), Some(0));
}

#[test]
fn what_a_refusal_names_fits() {
    let words = ["--preset", "shakespeare", "--batch", "8", "--memory", "170MiB", "--json"];
    let fixed = ["--micro-batch", "8"];
    let refused = object(&plan(&[&words[..], &fixed].concat()));
    assert_eq!(refused["exit_code"], 3, "{refused}");
    let knob = refused["cheapest_knob"]["words"].as_str().unwrap();
    let changed: Vec<&str> = knob.split(' ').collect();
    let found = object(&plan(&[&words[..], &fixed, &changed].concat()));
    assert!(found["peak_bytes"].as_u64().unwrap() <= 170 << 20, "{knob}: {found}");
    let open = ["--set", "memory.allow=optimizer_bits"];
    let other = object(&plan(&[&words[..], &open].concat()));
    let seconds = |object: &Value| object["predicted_step_s"].as_f64().unwrap();
    assert!(seconds(&found) <= seconds(&other), "the cheapest of the knobs that fit");
    let (_, enough) = refused["help"].as_str().unwrap().split_once("so does --memory ").unwrap();
    let (enough, _) = enough.split_once(';').unwrap();
    assert!(enough.ends_with("MiB"), "{enough}");
    let wider = ["--preset", "shakespeare", "--batch", "8", "--memory", enough];
    assert_eq!(plan(&[&wider[..], &fixed].concat()).status.code(), Some(0), "{enough}");
    let batch = refused["largest_batch"].as_u64().unwrap();
    for (batch, fits) in [(batch, true), (batch + 1, false)] {
        let batch = batch.to_string();
        let found = plan(&[&words[..], &["--batch", &batch]].concat());
        assert_eq!(found.status.success(), fits, "batch {batch}");
    }
    let length = refused["longest_context"].as_u64().unwrap();
    for (length, fits) in [(length, true), (length + 1, false)] {
        let length = length.to_string();
        let found = plan(&[&words[..], &["--context", &length]].concat());
        assert_eq!(found.status.success(), fits, "{length}");
    }
}

#[test]
fn a_context_that_a_refusal_names_is_shared_by_the_ranks() {
    let model =
        ["--preset", "shakespeare", "--set", "model.layers=1", "--set", "model.channels=64"];
    let step = ["--set", "model.heads=2", "--context", "4096", "--batch", "2", "--memory", "3MiB"];
    let ranks = ["--ranks", "2", "--context-ranks", "2", "--json"];
    let words = [&model[..], &step, &ranks].concat();
    let refused = object(&plan(&words));
    assert_eq!(refused["exit_code"], 3, "{refused}");
    let longest = refused["longest_context"].as_u64().expect("a context that fits");
    for (context, fits) in [(longest, true), (longest + 1, false), (longest + 2, false)] {
        let context = context.to_string();
        let found = plan(&[&words[..], &["--context", &context]].concat());
        assert_eq!(found.status.success(), fits, "{context}");
    }
}

#[test]
fn advice_is_true() {
    let words = ["--preset", "shakespeare", "--batch", "8", "--json"];
    let with = |more: &[&str]| plan(&[&words[..], more].concat());
    let limit = 230u64 << 20;
    let planned = object(&with(&["--memory", &limit.to_string()]));
    let advice = &planned["advice"];
    let ladder = advice["ladder"].as_array().unwrap();
    assert!(ladder.len() >= 4, "{advice}");
    let number = |object: &Value, key: &str| object[key].as_f64().unwrap();
    let (peak, step_s) = (number(&planned, "peak_bytes"), number(&planned, "predicted_step_s"));
    let mut last = f64::NEG_INFINITY;
    for rung in ladder {
        let change = rung["change_bytes"].as_i64().unwrap();
        let now = if change > 0 { limit } else { peak as u64 };
        let budget = now.checked_add_signed(change).unwrap().to_string();
        let other = object(&with(&["--memory", &budget]));
        for key in ["peak_bytes", "predicted_step_s", "choices"] {
            assert_eq!(other[key], rung[key], "{change}: {key}");
        }
        assert_eq!(change > 0, number(rung, "peak_bytes") > peak);
        assert_eq!(change > 0, number(rung, "predicted_step_s") < step_s, "{change}");
        assert!(number(rung, "predicted_step_s") >= last, "from the fastest to the smallest");
        last = number(rung, "predicted_step_s");
    }
    let memory = ["--memory", &limit.to_string()];
    let batch = advice["largest_batch"].as_u64().unwrap();
    for (batch, fits) in [(batch, true), (batch + (batch / 16).max(1), false)] {
        let batch = batch.to_string();
        let output = with(&[&["--batch", &batch, "--micro-batch", &batch], &memory[..]].concat());
        assert_eq!(output.status.success(), fits, "batch {batch}");
    }
    let context = advice["longest_context"].as_u64().unwrap();
    for (context, fits) in [(context, true), (context + (context / 16).max(256 / 8), false)] {
        let context = context.to_string();
        let output = with(&[&["--context", &context], &memory[..]].concat());
        assert_eq!(output.status.success(), fits, "context {context}");
    }
    // The one that is planned is no advice.
    assert_eq!(advice["largest_preset"], Value::Null, "{advice}");
    let words = ["--preset", "tiny", "--batch", "8", "--memory", "230MiB"];
    let small = object(&plan(&[&words[..], &["--json"]].concat()));
    let preset = small["advice"]["largest_preset"].as_str().unwrap();
    let text = String::from_utf8(plan(&words).stdout).unwrap();
    assert!(text.contains(&format!("--preset {preset} --context 64, each alone")), "{text}");
    let output = plan(&[&words[..], &["--preset", preset, "--context", "64"]].concat());
    assert_eq!(output.status.code(), Some(0), "{preset}");
}

#[test]
fn advice_on_a_deep_model_is_for_those_who_ask() {
    let words = ["--preset", "tiny", "--layers", "250", "--batch", "1", "--memory", "1TiB"];
    let with = |more: &[&str]| plan(&[&words[..], more].concat());
    let text = String::from_utf8(with(&[]).stdout).unwrap();
    assert!(text.contains("`--advice`") && !text.contains("there is room for"), "{text}");
    assert_eq!(object(&with(&["--json"]))["advice"], Value::Null);
    assert!(object(&with(&["--json", "--advice"]))["advice"]["ladder"].is_array());
}

/// What else would fit takes some thirty plans more: a minute of a model of a thousand layers.
#[test]
fn a_deep_model_is_refused_with_the_memory_that_fits() {
    let words =
        ["--preset", "gpt2", "--layers", "250", "--batch", "4", "--memory", "8GiB", "--json"];
    let refused = object(&plan(&words));
    assert_eq!(refused["exit_code"], 3, "{refused}");
    for knob in ["cheapest_knob", "largest_batch", "longest_context"] {
        assert_eq!(refused[knob], Value::Null, "{knob}");
    }
    let help = refused["help"].as_str().unwrap();
    let (enough, preset) = help.split_once(" fits; so does ").unwrap();
    assert!(!help.contains("no smaller"), "{help}");
    let memory: Vec<&str> = enough.split(' ').collect();
    assert_eq!(plan(&[&words[..6], &memory[..]].concat()).status.code(), Some(0), "{enough}");
    let (preset, _) = preset.strip_prefix("--preset ").unwrap().split_once(' ').unwrap();
    let fits = plan(&["--preset", preset, "--batch", "4", "--context", "1024", "--memory", "8GiB"]);
    assert_eq!(fits.status.code(), Some(0), "{preset}");
}

#[test]
fn a_gpu_that_is_not_here_is_planned_for() {
    let words = ["--preset", "gpt2", "--batch", "16", "--precision", "bf16", "--json", "--gpu"];
    let with = |more: &[&str]| plan(&[&words[..], more].concat());
    let mut steps_s = vec![];
    for card in ["H100", "rtx-4090", "t4"] {
        let planned = object(&with(&[card]));
        assert_eq!(planned["rates"], "published", "{card}");
        assert!(planned["device"].as_str().unwrap().contains("published"), "{card}");
        assert!(planned["peak_bytes"].as_u64() <= planned["budget_bytes"].as_u64(), "{card}");
        steps_s.push(planned["predicted_step_s"].as_f64().unwrap());
    }
    assert!(steps_s.is_sorted(), "{steps_s:?}");
    let cases: [(&[&str], &str); 3] = [
        (&["h100", "--device", "cpu"], "cannot be used with"),
        (&["h1000"], "name one of"),
        (&["t4", "--precision", "tf32"], "neither TF32"),
    ];
    for (more, words) in cases {
        let output = with(more);
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.code() == Some(2) && said.contains(words), "{said}");
    }
}

/// Matmuls make activations on CUDA where there's room, which is decided after the search.
#[test]
fn the_bound_on_seconds_holds_for_what_is_fused_last() {
    let words = ["--preset", "gpt2", "--batch", "16", "--json", "--gpu", "h100"];
    for precision in ["f32", "f16"] {
        for budget in ["70GiB", "5GiB", "3GiB"] {
            let more = ["--precision", precision, "--memory", budget];
            let planned = object(&plan(&[&words[..], &more].concat()));
            let (step_s, bound_s) = (&planned["predicted_step_s"], &planned["step_bound_s"]);
            let part = step_s.as_f64().unwrap() / bound_s.as_f64().unwrap();
            assert!((1.0 - 1e-9..1.05).contains(&part), "{precision} {budget}: {step_s} {bound_s}");
        }
    }
}

/// What memory buys is told of what the plan cuts among its ranks, and no rung leads to what was cut less.
#[test]
fn advice_keeps_what_ranks_hold_shards_of() {
    let words = ["--preset", "gpt2", "--gpu", "rtx-4090", "--ranks", "4", "--batch", "64"];
    let words = [&words[..], &["--memory", "6GiB"]].concat();
    let text = String::from_utf8(plan(&words).stdout).unwrap();
    let planned = object(&plan(&[&words[..], &["--json"]].concat()));
    let shard = planned["shard"].as_u64().unwrap();
    assert!(shard > 0 && text.contains(&format!("what memory buys with shard {shard}")), "{text}");
    let ladder = planned["advice"]["ladder"].as_array().unwrap();
    assert!(!ladder.is_empty(), "{text}");
    for rung in ladder {
        let change = rung["change_bytes"].as_i64().unwrap();
        let [peak, other] = [&planned, rung].map(|it| it["peak_bytes"].as_u64().unwrap());
        let [now_s, other_s] = [&planned, rung].map(|it| it["predicted_step_s"].as_f64().unwrap());
        assert_eq!(rung["choices"]["shard"], shard, "{rung}");
        // More bytes are for a faster step, and fewer bytes for a slower one.
        let better = if change > 0 { other_s < now_s } else { other < peak && other_s >= now_s };
        assert!(better, "{rung}");
    }
}

#[test]
fn text_for_people() {
    let output = plan(&["--preset", "tiny", "--batch", "4", "--memory", "1GiB"]);
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).unwrap();
    for words in
        ["peak ", "bound ", "choices ", "estimate ", "│forward", "optimizer", "what memory buys"]
    {
        assert!(text.contains(words), "no `{words}` in:\n{text}");
    }
    // Every rung of the ladder names the change that leads to it. Which changes these are depends on the device's rates.
    let rungs: Vec<&str> = text.lines().filter(|line| line.contains("%: ")).collect();
    assert!(!rungs.is_empty(), "{text}");
    for rung in rungs {
        assert!(rung.split_once(" by ").is_some_and(|(_, how)| !how.trim().is_empty()), "{rung}");
    }
}

#[test]
fn techniques_of_gpt2_are_told_in_seconds() {
    let words = ["--preset", "gpt2", "--batch", "8", "--memory", "4GiB", "--techniques"];
    let found = object(&plan(&[&words[..], &["--json", "--device", "cpu"]].concat()));
    assert!(found["techniques_s"].as_f64().unwrap() < 10.0, "{}", found["techniques_s"]);
    let peak = |figures: &Value| figures["peak_bytes"].as_u64().unwrap();
    let base = peak(&found["base"]);
    let alone = found["techniques"].as_array().unwrap();
    let one = |name: &str| alone.iter().find(|it| it["name"] == name).unwrap();
    // Probabilities of 8 sequences, 12 heads and 1,024 positions, in f32: of 12 layers, and of one more while gradients are
    // made.
    let layer = 4 * 8 * 12 * 1024 * 1024;
    let saved = one("fused attention")["saved_bytes"].as_u64().unwrap();
    assert!((12 * layer..13 * layer).contains(&saved), "{saved} bytes, a layer has {layer}");
    for technique in alone {
        match technique.get("not_here") {
            Some(why) => assert!(!why.as_str().unwrap().is_empty()),
            None => assert_eq!(
                technique["saved_bytes"].as_i64().unwrap(),
                base as i64 - peak(technique) as i64
            ),
        }
    }
    assert!(peak(&found["exact"]) * 5 < base && peak(&found["all"]) < peak(&found["exact"]));
    assert!(found["chosen"]["fits"] == true && peak(&found["chosen"]) <= 4 << 30);
    let text = String::from_utf8(plan(&words).stdout).unwrap();
    for words in ["none of them", "all that keep the numbers", "the planner's choice fits 4.00 GiB"]
    {
        assert!(text.contains(words), "no `{words}` in:\n{text}");
    }
    let both = plan(&[&words[..], &["--sweep"]].concat());
    assert_eq!(both.status.code(), Some(2));
}
