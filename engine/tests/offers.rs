//! Changes that refusals and advice offer are true, for steps that are drawn.

#![cfg(all(feature = "cpu", feature = "cuda"))]

use std::env;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;
use tightrope::cards::Card;
use tightrope::core::Backend;
use tightrope::devices::Devices;
use tightrope::error::Kind;
use tightrope::nn::Planned;
use tightrope::plan::fewest_bytes;
use tightrope::recipe::Step;
use tightrope::settings::{Device, LIST, Settings, find};
use tightrope::view::advice::{Advice, Subject};
use tightrope::view::summary::Summary;

/// Cases of a day, and all of them.
const CASES: (u64, u64) = (12, 300);

/// Numbers of cases by `TIGHTROPE_DRAW`: all of them, or a few that its words or the date draw.
fn cases() -> impl Iterator<Item = u64> {
    let words = env::var("TIGHTROPE_DRAW").unwrap_or_else(|_| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        format!("day {}", since.as_secs() / (24 * 60 * 60))
    });
    let count = if words == "all" { CASES.1 } else { CASES.0 };
    println!("{count} steps drawn by {words}: TIGHTROPE_DRAW={words:?}");
    let first =
        words.bytes().fold(0u64, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
    (0..count).map(move |case| first.wrapping_mul(1_000_003).wrapping_add(case))
}

/// Draws from lists, the same for the same seed (splitmix64).
struct Drawn(u64);

impl Drawn {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn of<T: Copy>(&mut self, items: &[T]) -> T {
        items[(self.next() % items.len() as u64) as usize]
    }
}

/// A step as the command line describes it.
#[derive(Clone, Debug)]
struct Words {
    gpu: Option<&'static str>,
    settings: Vec<String>,
}

impl Words {
    fn drawn(case: u64) -> Self {
        let mut drawn = Drawn(case);
        let gpu = drawn.of(&[None, Some("rtx-3060"), Some("h100")]);
        let mut settings = vec![];
        let mut say = |key: &str, value: &str| settings.push(format!("{key}={value}"));
        let model = drawn.of(&["tiny", "tiny", "llama", "vit-tiny", "small"]);
        match model {
            "llama" => {
                say("model.family", "llama");
                say("model.layers", drawn.of(&["1", "3"]));
                say("model.channels", "64");
                say("model.heads", "4");
                say("model.vocab", drawn.of(&["256", "3000"]));
                say("model.context", drawn.of(&["32", "96"]));
            }
            preset => say("model.preset", preset),
        }
        if model == "tiny" {
            say("model.context", drawn.of(&["64", "128"]));
        }
        let ranks = drawn.of(&["1", "1", "1", "2", "4"]);
        say("run.ranks", ranks);
        let batch = drawn.of(&["4", "8", "12"]);
        say("train.batch", if ranks == "1" { drawn.of(&["1", "6", batch]) } else { batch });
        say("train.micro_batch", drawn.of(&["auto", "auto", "1"]));
        say("train.optimizer", drawn.of(&["adamw", "adamw", "lion", "sgd", "adafactor", "muon"]));
        say("train.gradient_sums", drawn.of(&["fused", "fused", "ordered"]));
        say("run.precision", drawn.of(&["f32", "bf16", "f16"]));
        say("memory.gradients", drawn.of(&["f32", "f32", "bf16", "bf16-kahan"]));
        say("memory.recompute", drawn.of(&["auto", "auto", "none", "block"]));
        say("memory.loss_chunk", drawn.of(&["auto", "none"]));
        say("memory.shard", drawn.of(&["auto", "0", "2", "3"]));
        if drawn.of(&[false, false, true]) {
            say("memory.consume_gradients", "true");
            say("train.clip", "0");
        }
        if drawn.of(&[false, false, true]) {
            say("memory.allow", "[\"optimizer_bits\", \"precision\", \"offload\"]");
        }
        Self { gpu, settings }
    }

    fn settings(&self) -> Settings {
        let mut settings = Settings::default();
        self.settings.iter().for_each(|words| settings.read_argument(words).unwrap());
        settings.run.device = if self.gpu.is_some() { Device::Cuda(0) } else { Device::Cpu };
        settings
    }

    /// With words of a command line over these. Those after `without` name flags that are left out.
    fn with(&self, words: &str) -> Self {
        let (words, without) = words.split_once(" without ").unwrap_or((words, ""));
        let mut changed = self.clone();
        for flag in without.split(", ").filter(|flag| !flag.is_empty()) {
            let key = key_of(flag);
            changed.settings.retain(|said| !said.starts_with(&format!("{key}=")));
        }
        let mut words = words.split_whitespace();
        while let Some(flag) = words.next() {
            let value = words.next().unwrap();
            let said = if flag == "--set" {
                value.to_owned()
            } else {
                format!("{}={value}", key_of(flag))
            };
            changed.settings.push(said);
        }
        changed
    }

    fn step(&self) -> tightrope::Result<(Step, Box<dyn Backend>)> {
        let mut step = Step::of(&self.settings())?;
        step.device.card = self.gpu.map(|gpu| Card::named(gpu).unwrap());
        let device = Devices::default().open(&step.device)?;
        Ok((step, device))
    }

    fn planned(&self) -> tightrope::Result<Planned> {
        let (step, device) = self.step()?;
        step.plan(&*device)
    }
}

/// The setting of a flag, or of a key in quotes.
fn key_of(flag: &str) -> &'static str {
    let key = flag.trim_matches('`');
    let named = || LIST.iter().find(|setting| setting.has_flag(flag.trim_start_matches("--")));
    find(key).or_else(named).unwrap_or_else(|| panic!("{flag}")).key
}

/// The words of a help from `begin` up to `end`.
fn between<'a>(help: &'a str, begin: &str, end: &str) -> Option<&'a str> {
    let at = help.find(begin)?;
    let rest = &help[at..];
    Some(&rest[..rest.find(end)?])
}

/// `--set memory.consume_gradients=true` was refused as several passes: the error of a knob that was tried.
#[test]
fn the_error_of_a_knob_that_cannot_be_planned_is_nobodys() {
    let settings = ["model.preset=gpt2", "train.batch=1", "train.micro_batch=1", "train.clip=0"];
    let more = ["memory.consume_gradients=true", "memory.budget=900MiB"];
    let settings = settings.iter().chain(&more).map(|it| (*it).to_owned()).collect();
    let refused = Words { gpu: Some("rtx-3060"), settings }.planned().err().unwrap();
    assert_eq!(refused.kind(), Kind::DoesNotFit, "{refused}");
    assert!(refused.message().starts_with("the training step takes "), "{refused}");
}

#[test]
fn what_does_not_fit_is_refused_with_changes_that_fit() {
    let (mut refusals, mut offers) = (0, 0);
    for case in cases() {
        let asked = Words::drawn(case);
        // Settings that can't be planned in any memory are refused for that.
        let Ok((step, device)) = asked.step() else { continue };
        let Ok(fewest) = fewest_bytes(&step.scope, &step.config, &*device) else { continue };
        let budget = fewest * Drawn(case ^ 1).of(&[40, 75, 97]) / 100;
        let small = asked.with(&format!("--memory {budget}"));
        let refused = small.planned().err().unwrap_or_else(|| panic!("{small:?} fits"));
        assert_eq!(refused.kind(), Kind::DoesNotFit, "{case}: {small:?}: {refused}");
        assert!(refused.message().contains(" at least, and "), "{refused}");
        refusals += 1;
        let (help, details) = (refused.help().unwrap(), refused.details().unwrap());
        assert_eq!(details["smallest_bytes"], fewest, "{case}: {small:?}");
        let opening = "--micro-batch auto --recompute auto";
        let opened = if help.contains(&format!("with {opening}, so does")) { opening } else { "" };
        let mut fits = |words: &str| {
            offers += 1;
            let planned = small.with(words).planned();
            let planned =
                planned.unwrap_or_else(|error| panic!("{case}: {small:?} with {words}: {error}"));
            planned.plan.peak_bytes()
        };
        if let Some(words) = details["cheapest_knob"]["words"].as_str() {
            assert!(fits(words) <= budget, "{case}: {small:?}: {words}");
        }
        for (flag, of) in [("--batch", "largest_batch"), ("--context", "longest_context")] {
            if let Some(number) = details[of].as_u64() {
                let words = format!("{opened} {flag} {number}");
                assert!(fits(&words) <= budget, "{case}: {small:?}: {words}");
            }
        }
        if let Some(preset) = between(help, "--preset ", " (the largest of fewer") {
            let words = format!("{opened} {preset}");
            assert!(fits(&words) <= budget, "{case}: {small:?}: {words}");
        }
        let enough = between(help, "--memory ", " fits").or(between(help, "--memory ", ";"));
        let enough = enough.unwrap_or_else(|| help.split_once("so does ").unwrap().1);
        fits(enough);
    }
    assert!(refusals > 3 && offers > refusals, "{refusals} refusals with {offers} offers");
}

/// A knob was offered that takes more memory, and the batch, the context and the preset that were planned anyway.
#[test]
fn advice_helps_and_its_figures_are_those_of_plans() {
    let mut offers = 0;
    for case in cases().step_by(2) {
        let asked = Words::drawn(case);
        let Ok((step, device)) = asked.step() else { continue };
        let Ok(fewest) = fewest_bytes(&step.scope, &step.config, &*device) else { continue };
        let budget = fewest * Drawn(case ^ 2).of(&[105, 150, 1000]) / 100;
        let asked = asked.with(&format!("--memory {budget}"));
        let (step, device) = asked.step().unwrap();
        let (config, scope) = (&step.config, &step.scope);
        let planned = step.plan(&*device).unwrap();
        let rates = |planned: &Planned| {
            scope.rates.known(&*device, planned.config().precision, scope.threads).rates
        };
        let rates_now = rates(&planned);
        let (budget, device) = (Some(budget), &*device);
        let subject =
            Subject { config, scope, planned: &planned, budget, device, rates: &rates_now };
        let advice = Advice::new(&subject).json();
        let number = |object: &Value, key: &str| object[key].as_f64().unwrap();
        let (peak, step_s) = (planned.plan.peak_bytes(), planned.estimate(&rates_now).step_s);
        for rung in advice["ladder"].as_array().unwrap() {
            let [bytes, seconds] = ["peak_bytes", "predicted_step_s"].map(|key| number(rung, key));
            let helps = match rung["change_bytes"].as_i64().unwrap() > 0 {
                true => seconds < step_s,
                false => bytes < peak as f64,
            };
            assert!(helps, "{case}: {asked:?}: {rung}");
        }
        for offer in advice["allowed"].as_array().unwrap() {
            let words = offer["words"].as_str().unwrap();
            let [bytes, seconds] = ["peak_bytes", "predicted_step_s"].map(|key| number(offer, key));
            let helps = bytes <= peak as f64 && (bytes < peak as f64 || seconds < step_s);
            assert!(helps, "{case}: {asked:?}: {offer} for {peak} bytes and {step_s} s");
            // With what the planner chose of the numerics and the shards.
            if scope.allow.is_empty() && !scope.shard {
                let found = asked.with(words).planned().unwrap();
                let found = (found.plan.peak_bytes() as f64, found.estimate(&rates(&found)).step_s);
                assert_eq!(found, (bytes, seconds), "{case}: {asked:?} with {words}");
            }
            offers += 1;
        }
        let larger =
            |key: &str, than: usize| advice[key].as_u64().is_none_or(|found| found > than as u64);
        assert!(larger("largest_batch", config.batch), "{case}: {advice}");
        assert!(larger("longest_context", config.model.seq_len()), "{case}: {advice}");
    }
    assert!(offers > 0);
}

/// Classes didn't add up to the peak: what is left over had no row of its own in `by_class`.
#[test]
fn bytes_by_class_add_up_to_the_peak() {
    let mut plans = 0;
    for case in cases() {
        let Ok((step, device)) = Words::drawn(case).step() else { continue };
        let Ok(planned) = step.plan(&*device) else { continue };
        let scope = &step.scope;
        let known = scope.rates.known(&*device, planned.config().precision, scope.threads);
        let summary = Summary::new(&planned, &*device, known, None, 0.0);
        let object = summary.json();
        let classes = object["by_class"].as_object().unwrap();
        let sum: u64 = classes.values().map(|bytes| bytes.as_u64().unwrap()).sum();
        assert_eq!(sum, planned.plan.peak_bytes(), "{case}: {classes:?}");
        assert!(classes["gaps"].is_u64() && summary.text(80).contains("\n  gaps "), "{case}");
        plans += 1;
    }
    assert!(plans > 3, "{plans} plans");
}
