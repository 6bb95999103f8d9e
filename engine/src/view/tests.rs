//! What is said of a plan agrees with the plan.

use serde_json::json;
use tightrope_backend_cpu::Cpu;
use tightrope_core::plan::Checkpoint;
use tightrope_core::{Backend as _, Class};
use tightrope_nn::{BuildOptions, Planned, Precision, Rates, TrainerConfig, preset};

use super::alive::grouped;
use super::step::{self, ShownProgram};
use super::summary::{ROWS, Summary, words};
use super::sweep::Sweep;
use super::{layers, page, trace, why};
use crate::figures::{RankStep, RankTimes, RankWait};
use crate::profile::Profile;
use crate::rates::{Known, Source};
use crate::recipe::Step;

fn config() -> TrainerConfig {
    TrainerConfig {
        batch: 8,
        micro_batch: 8,
        build: BuildOptions { loss_chunk: 256, ..BuildOptions::default() },
        seed: 1,
        decode: 64,
        ..TrainerConfig::new(preset("tiny").unwrap().build(64).unwrap())
    }
}

fn summarised<R>(config: &TrainerConfig, look: impl FnOnce(&Summary<'_>) -> R) -> R {
    let device = Cpu::new(2).unwrap();
    let planned = Planned::new(config, &device).unwrap();
    let rates = Rates::of(&device.name(), Precision::F32, 2);
    let known = Known { rates, source: Source::Default, links: None };
    look(&Summary::new(&planned, &device, known, Some(1 << 30), 0.25))
}

#[test]
fn every_choice_that_differs_is_named() {
    let before = config();
    let chunk = BuildOptions { loss_chunk: 64, ..BuildOptions::default() };
    let mut options = before.options.clone();
    (options.checkpoint, options.overlap) = (Checkpoint::Block, !options.overlap);
    for (changed, expected) in [
        (TrainerConfig { micro_batch: 4, ..before.clone() }, "micro-batch 4 × 2"),
        (TrainerConfig { build: chunk, ..before.clone() }, "loss chunk 64 rows"),
    ] {
        assert_eq!(words(&changed, &before), expected);
    }
    let named = words(&TrainerConfig { options, ..before.clone() }, &before);
    assert!(named.contains("block") && named.contains("transfers"), "{named}");
    assert_eq!(words(&before, &before), "");
}

#[test]
fn the_object_adds_up() {
    summarised(&config(), |summary| {
        let object = summary.json();
        let plan = &summary.planned.plan;
        assert_eq!(object["peak_bytes"], plan.arena_bytes);
        assert!(object["lower_bound_bytes"].as_u64().unwrap() <= plan.arena_bytes);
        assert_eq!(object["budget_bytes"], 1 << 30);
        assert_eq!(object["choices"]["micro_batch"], 8);
        let classes = object["by_class"].as_object().unwrap();
        let sum: u64 = classes.values().map(|bytes| bytes.as_u64().unwrap()).sum();
        assert_eq!(sum, plan.peak_bytes());
        assert_eq!(classes.len(), Class::ALL.len(), "nothing is frozen, and there are gaps");
        let program = &object["programs"][0];
        assert_eq!(program["name"], "train");
        let live = program["live"].as_array().unwrap();
        assert_eq!(live.len(), program["phases"].as_array().unwrap().len());
        for it in program["arena"].as_array().unwrap() {
            let end = it["offset"].as_u64().unwrap() + it["bytes"].as_u64().unwrap();
            assert!(
                end <= plan.arena_bytes && it["birth"].as_u64() <= it["death"].as_u64(),
                "{it}"
            );
        }
        let kept: u64 =
            summary.persistent().iter().map(|tensor| tensor["bytes"].as_u64().unwrap()).sum();
        assert!(kept <= plan.persistent_bytes && kept + 64 * 64 > plan.persistent_bytes);
    });
}

#[test]
fn what_is_planned_is_what_is_allocated() {
    for micro_batch in [8, 2] {
        let config = TrainerConfig { micro_batch, ..config() };
        let device = Cpu::new(2).unwrap();
        let planned = Planned::new(&config, &device).unwrap();
        let predicted = planned.plan.arena_bytes;
        let trainer = tightrope_nn::Trainer::new(planned, Box::new(device)).unwrap();
        assert_eq!(trainer.allocated_bytes(), predicted);
    }
}

#[test]
fn every_line_fits_the_width_of_the_chart() {
    // Wide enough for the names of all phases; the update is the shortest.
    const WIDTH: usize = 120;
    summarised(&config(), |summary| {
        let text = summary.text(WIDTH);
        let chart = text.split("kept between steps\n").nth(1).unwrap();
        assert_eq!(chart.lines().count(), ROWS + 1);
        assert!(chart.lines().all(|line| line.chars().count() <= WIDTH), "{chart}");
        for phase in ["│forward", "│backward", "│update"] {
            assert!(chart.contains(phase), "{chart}");
        }
        assert!(text.contains("micro-batch 8 × 1, recompute none, loss chunk 256 rows"), "{text}");
        assert!(text.contains(&format!("({} bytes)", summary.report.peak_bytes)), "{text}");
    });
}

#[test]
fn accumulation_repeats_the_micro_step() {
    let whole = summarised(&config(), |summary| summary.estimate);
    let parts = TrainerConfig { micro_batch: 2, ..config() };
    summarised(&parts, |summary| {
        let names: Vec<_> = summary.json()["programs"].as_array().unwrap().clone();
        assert_eq!((&names[0]["name"], &names[1]["name"]), (&json!("micro"), &json!("update")));
        // The same matmuls, in four parts; sums of gradients come on top.
        let ratio = summary.estimate.flops / whole.flops;
        assert!((1.0..1.1).contains(&ratio), "{ratio}");
        assert!(summary.estimate.step_s > whole.step_s);
        assert!(summary.text(80).contains("one micro-step for all"));
    });
}

#[test]
fn recomputation_is_counted() {
    assert_eq!(summarised(&config(), |summary| summary.estimate.recomputed()), 0.0);
    let mut block = config();
    block.options.checkpoint = Checkpoint::Block;
    let share = summarised(&block, |summary| summary.estimate.recomputed());
    assert!((0.02..0.34).contains(&share), "{share}");
}

#[test]
fn faster_machines_are_estimated_faster() {
    let names =
        ["cpu (2 threads, avx512)", "cpu (2 threads, avx2+fma)", "cpu (2 threads, portable)"];
    let device = Cpu::new(2).unwrap();
    let planned = Planned::new(&config(), &device).unwrap();
    let seconds =
        |name: &str, threads| planned.estimate(&Rates::of(name, Precision::F32, threads)).step_s;
    let times = names.map(|name| seconds(name, 2));
    assert!(times.is_sorted() && times[0] > 0.0, "{times:?}");
    assert!(seconds(names[0], 4) < times[0]);
}

#[test]
fn blocks_are_listed_together_and_nothing_is_lost() {
    summarised(&config(), |summary| {
        let alive = &summary.report.alive;
        let groups = grouped(alive);
        assert_eq!(groups.iter().map(|group| group.count).sum::<usize>(), alive.len());
        let bytes: u64 = alive.iter().map(|tensor| tensor.bytes).sum();
        assert_eq!(groups.iter().map(|group| group.bytes).sum::<u64>(), bytes);
        let gelu = groups.iter().find(|group| group.name == "h.*.mlp.gelu").unwrap();
        assert_eq!(gelu.count, 2);
        assert!(summary.text(80).contains("2 × h.*.mlp.gelu"));
    });
}

/// A profile that says of every op what was predicted, twice.
fn measured(summary: &Summary<'_>, programs: &[ShownProgram]) -> Profile {
    let programs = programs.iter().map(|program| {
        let ops = program.ops.iter().map(|op| {
            json!({
                "op": op.op, "name": op.name, "phase": op.phase,
                "predicted_s": op.seconds, "measured_s": 2.0 * op.seconds,
            })
        });
        json!({ "name": program.role, "repeats": program.repeats, "ops": ops.collect::<Vec<_>>() })
    });
    let profile = json!({
        "device": "a <device>", "predicted_peak_bytes": summary.report.peak_bytes,
        "allocated_bytes": summary.report.peak_bytes, "predicted_step_s": summary.estimate.step_s,
        "step_s": 0.5, "replays": 3, "phases": [], "families": [],
        "programs": programs.collect::<Vec<_>>(),
    });
    let profile: Profile = serde_json::from_value(profile).unwrap();
    profile.check(&summary.planned.plan).unwrap();
    profile
}

fn shown(summary: &Summary<'_>) -> Vec<ShownProgram> {
    let config = summary.config();
    step::programs(&summary.planned.plan, config.accumulation(), &summary.known.rates)
}

/// Sweeps a small step, of which `config` is not.
fn swept() -> Sweep {
    let mut settings = crate::settings::Settings::default();
    settings.model.preset = Some("tiny".to_owned());
    settings.train.batch = Some(2);
    let device = Cpu::new(2).unwrap();
    let Step { config, scope, .. } = Step::of(&settings).unwrap();
    Sweep::new(&scope, &config, &device, &Rates::of(&device.name(), Precision::F32, 2)).unwrap()
}

#[test]
fn the_page_has_the_numbers_of_the_text() {
    let parts = TrainerConfig { micro_batch: 4, ..config() };
    summarised(&parts, |summary| {
        let programs = shown(summary);
        let (sweep, profile) = (swept(), measured(summary, &programs));
        let page = page::page(summary, &programs, &sweep, Some(&profile));
        for (name, value) in summary.facts() {
            assert!(page.contains(name) && page.contains(&value.replace('<', "&lt;")), "{value}");
        }
        assert!(!page.contains("http") && !page.contains("{{"));
        let (_, data) = page.split_once("id=\"data\">").unwrap();
        let (data, _) = data.split_once("</script>").unwrap();
        assert!(!data.contains('<'));
        let data: serde_json::Value = serde_json::from_str(data).unwrap();
        let object = summary.json();
        for key in ["peak_bytes", "lower_bound_bytes", "budget_bytes", "by_class"] {
            assert_eq!(data[key], object[key], "{key}");
        }
        assert_eq!(data["step_s"], object["predicted_step_s"]);
        assert_eq!(data["groups"], object["peak"]["groups"]);
        assert_eq!(data["plans"], sweep.json()["plans"]);
        assert_eq!(data["profile"]["device"], "a <device>");
        for program in data["programs"].as_array().unwrap() {
            let ops = program["ops"].as_array().unwrap();
            let measured = program["measured_s"].as_array().unwrap();
            assert_eq!(measured.len(), ops.len());
            assert_eq!(measured[0].as_f64().unwrap(), 2.0 * ops[0]["seconds"].as_f64().unwrap());
        }
    });
}

#[test]
fn every_tensor_of_the_map_has_its_place_and_its_readers() {
    for micro_batch in [8, 4] {
        let mut config = TrainerConfig { micro_batch, ..config() };
        config.options.checkpoint = Checkpoint::Block;
        summarised(&config, |summary| {
            let plan = &summary.planned.plan;
            for program in shown(summary) {
                assert!(program.ops.iter().all(|op| op.live <= plan.lower_bound_bytes()));
                for tensor in &program.tensors {
                    assert!(tensor.birth <= tensor.death, "{tensor:?}");
                    assert!(tensor.offset + tensor.bytes <= plan.arena_bytes, "{tensor:?}");
                    // Its last reader may write over it.
                    let within = |step: &usize| (tensor.birth..=tensor.death + 1).contains(step);
                    assert!(tensor.read_by.iter().all(within), "{tensor:?}");
                    assert!(tensor.read_by.is_sorted(), "{tensor:?}");
                }
                // Alive at once, never in the same place.
                for step in 0..program.ops.len() {
                    let alive = program.tensors.iter();
                    let mut alive: Vec<_> =
                        alive.filter(|it| it.birth <= step && step <= it.death).collect();
                    alive.sort_by_key(|tensor| tensor.offset);
                    for pair in alive.windows(2) {
                        assert!(pair[0].offset + pair[0].bytes <= pair[1].offset, "{pair:?}");
                    }
                }
            }
        });
    }
}

#[test]
fn layers_add_up_to_the_plan() {
    summarised(&TrainerConfig { micro_batch: 4, ..config() }, |summary| {
        let rows = layers::layers(&summary.planned.plan, &shown(summary));
        let of = |row: &layers::Layer| row.blocks.map_or(1, |(first, last)| last - first + 1);
        let object = summary.json();
        let sum = |bytes: &dyn Fn(&layers::Layer) -> u64| -> u64 {
            rows.iter().map(|row| of(row) as u64 * bytes(row)).sum()
        };
        assert_eq!(json!(sum(&|row| row.weight)), object["by_class"]["weight"]);
        assert_eq!(json!(sum(&|row| row.gradient)), object["by_class"]["gradient"]);
        let seconds: f64 = (rows.iter())
            .map(|row| {
                let all = row.forward_s + row.backward_s + row.recompute_s + row.update_s;
                of(row) as f64 * all
            })
            .sum();
        assert!((seconds / summary.estimate.step_s - 1.0).abs() < 1e-9, "{seconds}");
        assert_eq!(rows.last().unwrap().blocks, None);
        assert!(rows[0].blocks.is_some() && rows[0].weight > 0 && rows[0].kept > 0);
    });
}

#[test]
fn a_trace_lasts_as_long_as_the_step() {
    summarised(&TrainerConfig { micro_batch: 4, ..config() }, |summary| {
        let programs = shown(summary);
        let trace = trace::trace(&programs, Some(&measured(summary, &programs)));
        let events = trace["traceEvents"].as_array().unwrap();
        for (pid, times) in [(1, 1.0), (2, 2.0)] {
            let ops = events.iter().filter(|event| event["pid"] == pid && event["ph"] == "X");
            let ops: Vec<_> = ops.filter(|event| event["tid"] != 0).collect();
            let micro = programs[0].ops.len();
            assert_eq!(ops.len(), 2 * micro + programs[1].ops.len());
            let seconds: f64 = ops.iter().map(|op| op["dur"].as_f64().unwrap() / 1e6).sum();
            let expected = times * summary.estimate.step_s;
            assert!((seconds / expected - 1.0).abs() < 1e-9, "{seconds} {expected}");
            let counters = events.iter().filter(|event| event["pid"] == pid && event["ph"] == "C");
            let live = counters.map(|counter| counter["args"]["bytes"].as_u64().unwrap());
            assert_eq!(live.max().unwrap(), summary.report.lower_bound_bytes);
        }
    });
}

#[test]
fn a_trace_has_a_track_for_each_rank() {
    summarised(&config(), |summary| {
        let programs = shown(summary);
        let wait = |begin_s, took_s| RankWait { what: "grad".into(), begin_s, took_s };
        let of_rank = |waits: Vec<RankWait>| {
            let mean = RankTimes {
                step_s: 0.5,
                waited_s: waits.iter().fold(0.0, |sum, wait| sum + wait.took_s),
            };
            RankStep { mean, step_s: 0.5, waits }
        };
        let ranks = vec![of_rank(vec![wait(0.0, 0.1), wait(0.25, 0.05)]), of_rank(vec![])];
        let profile = Profile { ranks, ..measured(summary, &programs) };
        let trace = trace::trace(&programs, Some(&profile));
        let spans = |rank: usize| -> Vec<(&str, f64, f64)> {
            let events = trace["traceEvents"].as_array().unwrap().iter();
            let own = events.filter(|event| event["pid"] == 3 && event["tid"] == rank + 1);
            let spans = own.filter(|event| event["ph"] == "X");
            let seconds = |event: &serde_json::Value, key| event[key].as_f64().unwrap() / 1e6;
            let span = |event| (seconds(event, "ts"), seconds(event, "dur"));
            spans
                .map(|event| (event["name"].as_str().unwrap(), span(event).0, span(event).1))
                .collect()
        };
        let near = |found: Vec<(&str, f64, f64)>, expected: &[(&str, f64, f64)]| {
            assert_eq!(found.len(), expected.len(), "{found:?}");
            for (found, expected) in found.iter().zip(expected) {
                let far = (found.1 - expected.1).abs().max((found.2 - expected.2).abs());
                assert!(found.0 == expected.0 && far < 1e-9, "{found:?} {expected:?}");
            }
        };
        let first = [
            ("waits", 0.0, 0.1),
            ("computes", 0.1, 0.15),
            ("waits", 0.25, 0.05),
            ("computes", 0.3, 0.2),
        ];
        near(spans(0), &first);
        near(spans(1), &[("computes", 0.0, 0.5)]);
        let text = profile.text();
        let row = |rank: &str| text.lines().find(|line| line.starts_with(rank)).unwrap().to_owned();
        let words =
            |row: String| row.split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ");
        assert_eq!(words(row("0 ")), "0 500.00 ms 350.00 ms 150.00 ms");
        assert_eq!(words(row("1 ")), "1 500.00 ms 500.00 ms 0.00 ms");
    });
}

/// The line on the peak of a plan with these choices.
fn why_of(change: impl FnOnce(&mut TrainerConfig)) -> String {
    let mut config = config();
    change(&mut config);
    summarised(&config, |summary| {
        let why = why::why(&summary.planned.plan, &summary.report);
        let object = summary.json();
        assert_eq!(object["peak"]["why"], why);
        assert!(summary.text(80).contains(&format!("why        {why}\n")), "{why}");
        // Each class with its share, and none that isn't there.
        let (_, classes) = why.split_once(": ").unwrap();
        for part in classes.split("; ") {
            let (percent, words) = part.split_once("% ").unwrap();
            let name = Class::ALL.map(Class::name).into_iter();
            let name = name.filter(|name| words.contains(name)).max_by_key(|name| name.len());
            let bytes = object["by_class"][name.unwrap()].as_f64().unwrap();
            let share = 100.0 * bytes / object["peak_bytes"].as_f64().unwrap();
            assert!((share - percent.parse::<f64>().unwrap()).abs() <= 0.5, "{share} {part}");
        }
        why
    })
}

#[test]
fn a_line_says_why_the_peak_is_where_it_is() {
    // All activations wait at the end of the forward pass, or where the first gradients come on top of them.
    let kept = why_of(|_| {});
    assert!(kept.contains("activations, kept for the backward pass of blocks 0 to 1"), "{kept}");
    // With fewer in a pass, what is kept between steps takes most.
    let parts = why_of(|config| config.micro_batch = 1);
    let (_, largest) = parts.split_once(": ").unwrap();
    assert!(largest.split_once("% ").unwrap().1.starts_with("optimizer state"), "{parts}");
    // Blocks are recomputed one at a time, so no pass waits for several.
    let recomputed = why_of(|config| config.options.checkpoint = Checkpoint::Block);
    assert_ne!(recomputed, kept);
    assert!(!recomputed.contains("; 0%"), "{recomputed}");
}

#[test]
fn the_place_of_the_peak_is_an_op_of_the_model() {
    summarised(&config(), |summary| {
        let (plan, report) = (&summary.planned.plan, &summary.report);
        let line = why::why(plan, report);
        let program = plan.graph.programs.iter().find(|it| it.role == report.peak_program).unwrap();
        let node = &program.nodes[report.peak_step];
        assert!(line.contains(super::names::phase_name(node.phase)), "{line}");
        match node.block {
            Some(block) => assert!(line.contains(&format!("of block {block},")), "{line}"),
            None => assert!(!line.contains("of block "), "{line}"),
        }
        assert!(line.starts_with("at `") && !line.contains("grad."), "{line}");
    });
}
