//! Predicted efficiencies of several GPUs, against what others measured.

#![cfg(feature = "cuda")]

use tightrope::cards::Card;
use tightrope::devices::Devices;
use tightrope::nn::Planned;
use tightrope::plan::scale::{GPUS, Scale};
use tightrope::recipe::Step;
use tightrope::settings::{Device, Settings};
use tightrope::view::scale;

const PUBLISHED: &str = include_str!("../../bench/results/published-scaling.tsv");
/// Points that a prediction may be off by.
const POINTS: f64 = 5.0;

/// A step on a GPU by its published figures.
fn step(gpu: &str, words: &[String]) -> Step {
    let mut settings = Settings::default();
    words.iter().for_each(|words| settings.read_argument(words).unwrap());
    settings.run.device = Device::Cuda(0);
    let mut step = Step::of(&settings).unwrap();
    step.device.card = Some(Card::named(gpu).unwrap());
    step
}

/// Tokens a second of all ranks that compute while they send, whatever fits.
fn tokens_per_s(gpu: &str, words: &[String]) -> f64 {
    let Step { config, scope, device, .. } = step(gpu, words);
    let device = Devices::default().open(&device).unwrap();
    let known = scope.rates.known(&*device, config.precision, scope.threads);
    let planned = Planned::new(&config, &*device).unwrap();
    config.tokens() as f64 / planned.estimate(&known.rates).step_s
}

fn words(words: &str) -> Vec<String> {
    words.split_whitespace().map(str::to_owned).collect()
}

/// No constant is of a row: rates of GPUs and links are those of their data sheets, with the same part of them reached by all.
#[test]
fn predicted_efficiencies_are_those_that_were_measured() {
    let mut compared = 0;
    let mut wrong = vec![];
    for line in PUBLISHED.lines().filter(|line| !line.starts_with('#')) {
        let cells: Vec<&str> = line.split('\t').collect();
        let [
            system,
            gpu,
            model,
            matmuls,
            few,
            few_per_s,
            many,
            many_per_s,
            micro_few,
            micro_many,
            links,
            left_out,
        ] = cells[..]
        else {
            panic!("{line}");
        };
        if !left_out.is_empty() {
            continue;
        }
        let number = |text: &str| text.parse::<f64>().unwrap();
        let predicted = |ranks: &str, micro_batch: &str| {
            // As the others' runs: see the file.
            let run = match system {
                "llmq" => {
                    "train.batch=512 model.context=1024 memory.shard=1 memory.gradients=bf16 \
                     memory.optimizer_bits=16"
                        .to_owned()
                }
                "torchtitan" => format!(
                    "train.batch={} model.context=8192 memory.shard=3",
                    2 * ranks.parse::<usize>().unwrap()
                ),
                other => panic!("{other}"),
            };
            let all = format!(
                "{run} model.preset={model} run.precision={matmuls} run.ranks={ranks} memory.recompute=none \
                 train.micro_batch={micro_batch} run.interconnect={links}"
            );
            tokens_per_s(gpu, &words(&all)) / number(ranks)
        };
        let measured =
            100.0 * (number(many_per_s) / number(many)) / (number(few_per_s) / number(few));
        let predicted = 100.0 * predicted(many, micro_many) / predicted(few, micro_few);
        println!(
            "{system} {gpu} {model} {few} → {many}: {measured:.1} % measured, {predicted:.1} % predicted"
        );
        compared += 1;
        if (measured - predicted).abs() > POINTS {
            wrong.push(format!("{line}: {measured:.1} measured, {predicted:.1} predicted"));
        }
    }
    assert!(compared >= 6, "{compared} rows");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_table_over_gpus_says_what_each_holds_and_what_is_assumed() {
    let said = "model.preset=qwen2.5-0.5b model.context=1024 train.batch=8 run.precision=bf16";
    let Step { config, scope, device, .. } = step("rtx-4090", &words(said));
    let device = Devices::default().open(&device).unwrap();
    let found = Scale::new(&scope, &config, &*device, &GPUS[..4], &mut |_, _| {}).unwrap();
    assert_eq!(found.rows.iter().map(|row| row.gpus).collect::<Vec<_>>(), GPUS[..4]);
    assert_eq!((found.own_batch, found.alone.gpus), (8, 1));
    assert!(found.alone.fits && found.alone.sent_bytes == 0);
    for row in &found.rows {
        assert!(row.fits && row.sent_bytes > 0, "{row:?}");
        assert!((0.05..1.2).contains(&row.efficiency), "{row:?}");
        let per_s = row.efficiency * found.alone.per_s * row.gpus as f64;
        assert!((row.per_s / per_s - 1.0).abs() < 1e-9);
    }
    // Slower links between nodes than within.
    assert!(found.rows[1].efficiency < found.rows[0].efficiency);
    let text = scale::text(&found, &config);
    for word in ["overlap: ", "latency: ", "collectives: ", "simulated, not run", "pcie4", "100gbe"]
    {
        assert!(text.contains(word), "{word} in\n{text}");
    }
    let object = scale::json(&found);
    assert_eq!(object["rows"][3]["gpus"], 64);
    assert_eq!(object["interconnect"], "8xpcie4+100gbe");
}
