//! Measures the rates of a device, from the ops of a small step.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fs, process};

use UpdateRule::{Adafactor, AdamW, Lion, Sgd};
use tightrope_core::plan::Options;
use tightrope_core::plan::offload::PIECE;
use tightrope_core::{Backend, DeviceError, Plan, SessionError};
use tightrope_data::files;
use tightrope_nn::{
    Family, ModelConfig, Planned, Precision, Rates, Timed, TrainerConfig, UpdateRule, defaults,
};

use super::lone;
use super::{Kept, KeptRates, Known, Source, Steps, Store, Trust, identity, kernels, key};
use crate::machine::{Load, free_memory, is_busy};
use crate::timing;

/// Shortest time that the ops of a GPU are measured for, and the fewest replays.
const LEAST: (Duration, usize) = (Duration::from_millis(700), 2);
/// The same of each of several steps on the processor.
const LEAST_OF_EACH: (Duration, usize) = (Duration::from_millis(80), 4);
/// Factor between predicted and measured seconds from which on rates are doubted.
const FAR_OFF: f64 = 2.0;
/// Replays before the measured ones: they touch memory for the first time, and fill caches.
const COLD: usize = 1;
/// Pieces that go to a device and back while its link is measured.
const LINKED: usize = 8;

/// A step whose ops are measured: one block of a model.
#[derive(Clone, Copy)]
struct Sample {
    family: Family,
    channels: usize,
    heads: usize,
    kv_heads: usize,
    context: usize,
    vocab: usize,
    batch: usize,
    optimizer: UpdateRule,
}

/// One block of a GPT that a small machine trains. A GPU's ops are measured in this step alone, since it compiles kernels for each.
const USUAL: Sample = Sample {
    family: Family::Gpt2,
    channels: 384,
    heads: 6,
    kv_heads: 6,
    context: 256,
    vocab: 256,
    batch: 4,
    optimizer: AdamW,
};

/// Steps that differ from the usual in what takes time: heads, rows, the table of tokens, the number of ops, and how weights are updated.
const OTHERS: [Sample; 11] = [
    Sample { channels: 32, heads: 2, kv_heads: 2, context: 8, batch: 1, ..USUAL },
    Sample { channels: 48, heads: 12, kv_heads: 12, context: 128, batch: 2, ..USUAL },
    Sample { channels: 16, heads: 16, kv_heads: 16, context: 64, optimizer: Adafactor, ..USUAL },
    Sample {
        channels: 512,
        heads: 2,
        kv_heads: 2,
        context: 64,
        batch: 2,
        optimizer: Lion,
        ..USUAL
    },
    Sample { channels: 96, heads: 1, kv_heads: 1, context: 32, batch: 2, vocab: 16384, ..USUAL },
    Sample { family: Family::Llama, channels: 192, heads: 6, kv_heads: 2, context: 96, ..USUAL },
    Sample { family: Family::Llama, channels: 64, heads: 8, kv_heads: 8, batch: 1, ..USUAL },
    Sample {
        family: Family::Llama,
        channels: 32,
        heads: 1,
        kv_heads: 1,
        context: 16,
        vocab: 2048,
        ..USUAL
    },
    Sample {
        channels: 32,
        heads: 2,
        kv_heads: 2,
        context: 16,
        batch: 2,
        vocab: 8192,
        optimizer: Lion,
        ..USUAL
    },
    Sample {
        family: Family::Qwen3,
        channels: 64,
        heads: 2,
        kv_heads: 1,
        context: 32,
        vocab: 4096,
        optimizer: Adafactor,
        ..USUAL
    },
    Sample {
        family: Family::Gemma3,
        channels: 128,
        heads: 16,
        kv_heads: 16,
        context: 32,
        batch: 1,
        vocab: 1000,
        optimizer: Sgd,
    },
];

impl Sample {
    fn step(self, precision: Precision) -> tightrope_nn::Result<TrainerConfig> {
        let Self { family, channels, heads, kv_heads, context, vocab, batch, optimizer } = self;
        let model = ModelConfig {
            family,
            layers: 1,
            channels,
            heads,
            kv_heads,
            hidden: 4 * channels,
            context,
            vocab,
            ..defaults::MODEL
        };
        let model = model.build(context)?;
        let optimizer = optimizer.with(defaults::BETA1, defaults::BETA2, defaults::EPS);
        let config = TrainerConfig::new(model);
        Ok(TrainerConfig { precision, batch, micro_batch: batch, optimizer, ..config })
    }
}

impl Store {
    /// As [`Store::known`], measured where none are kept. The device's plan is gone after that.
    pub fn measured(
        &self,
        device: &mut dyn Backend,
        precision: Precision,
        threads: usize,
    ) -> Known {
        let is_due = match self.kept(device, precision).map(|kept| kept.trust) {
            None | Some(Trust::Doubted) => true,
            Some(Trust::UnderLoad) => !is_busy(),
            Some(Trust::New | Trust::Again) => false,
        };
        match is_due {
            true => self.measure(device, precision, threads),
            false => self.known(device, precision, threads),
        }
    }

    /// Measures a device, and keeps its rates: if other programs used the processor meanwhile, only where there are no others yet. Where the
    /// device refuses, its failure shows in what it's used for next, and default rates do until then.
    pub fn measure(&self, device: &mut dyn Backend, precision: Precision, threads: usize) -> Known {
        let unmeasured = self.unmeasured(device, precision, threads);
        let load = Load::now();
        let Ok(rates) = measure(device, precision, &unmeasured.rates, self.steps) else {
            return unmeasured;
        };
        let kept = self.kept(device, precision).map(|kept| kept.trust);
        let is_first = matches!(kept, None | Some(Trust::UnderLoad));
        if load.waited().is_some_and(|part| part > self.quiet) {
            if is_first {
                self.keep(device, precision, KeptRates { rates, trust: Trust::UnderLoad });
            }
            return self.of(device, rates, Source::UnderLoad);
        }
        let trust = if is_first { Trust::New } else { Trust::Again };
        self.keep(device, precision, KeptRates { rates, trust });
        self.of(device, rates, Source::Measured)
    }

    /// Keeps rates. Without a place for them, they are measured again next time.
    fn keep(&self, device: &dyn Backend, precision: Precision, rates: KeptRates) {
        let mut kept = self.read(device).unwrap_or_else(|| Kept {
            device: identity(device),
            kernels: kernels(device.kind()).to_owned(),
            by_precision: BTreeMap::new(),
        });
        kept.by_precision.insert(key(precision).to_owned(), rates);
        let _ = self.file(device).map(|file| write(&file, &kept));
    }

    /// Compares the seconds of a run's steps with those predicted by kept rates. `waited` is the part of the time that the run waited for a
    /// processor. If they differ twofold, the next run measures the rates again, and the returned sentence says so; `None` if there's
    /// nothing to tell.
    pub fn compare(
        &self,
        device: &dyn Backend,
        precision: Precision,
        (predicted, measured): (f64, f64),
        waited: Option<f64>,
    ) -> Option<String> {
        let ratio = measured / predicted;
        let is_far_off = ratio >= FAR_OFF || ratio <= 1.0 / FAR_OFF;
        if !is_far_off {
            return None;
        }
        let waited = waited.unwrap_or(0.0);
        if ratio > 1.0 && waited > self.quiet {
            let part = 100.0 * waited;
            return Some(format!(
                "other programs had the processor for {part:.0} % of the time in which this run could have computed"
            ));
        }
        let kept = self.kept(device, precision)?;
        if kept.trust == Trust::Again {
            return Some(
                "the rates of this device were measured again after such a difference; `tightrope train --profile` shows which ops take another time"
                    .to_owned(),
            );
        }
        self.keep(device, precision, KeptRates { trust: Trust::Doubted, ..kept });
        Some(
            "the kept rates of this device don't hold: the next run measures them again".to_owned(),
        )
    }
}

/// Writes a file that another process reads whole or not at all.
fn write(file: &Path, kept: &Kept) -> std::io::Result<()> {
    let partial = file.with_extension(format!("{}.partial", process::id()));
    fs::create_dir_all(file.parent().unwrap_or(Path::new(".")))?;
    files::write(&partial, serde_json::to_vec_pretty(kept)?)?;
    fs::rename(partial, file)
}

/// The rates of a device, from the ops of small steps.
fn measure(
    device: &mut dyn Backend,
    precision: Precision,
    default: &Rates,
    steps: Steps,
) -> Result<Rates, SessionError> {
    let refused = |error: &dyn std::fmt::Display| DeviceError::Input(error.to_string());
    let is_cpu = !device.kind().can_be_lost();
    let is_thorough = is_cpu && steps == Steps::All;
    let least = if is_cpu { LEAST_OF_EACH } else { LEAST };
    let others = if is_thorough { &OTHERS[..] } else { &[] };
    let mut plans = vec![];
    if is_thorough {
        let graph = lone::graph(precision.dtype()).map_err(|error| refused(&error))?;
        let options = Options { fusion: false, ..Options::default() };
        let plan = Plan::new(graph, &options, device).map_err(|error| refused(&error))?;
        plans.extend(alone(Arc::new(plan), device, least)?);
    }
    for (index, sample) in others.iter().chain([&USUAL]).enumerate() {
        let config = sample.step(precision).map_err(|error| refused(&error))?;
        let planned = Planned::new(&config, device).map_err(|error| refused(&error))?;
        if index < others.len() && !fits(&planned.plan) {
            continue;
        }
        let plan = Arc::new(planned.plan);
        let times = timing::times(&plan, &*config.model, device, least)?;
        plans.push((plan, times));
    }
    let mut all = vec![];
    let mut usual = 0;
    for (plan, times) in &plans {
        usual = all.len();
        for (program, times) in times {
            let program = *program;
            for (step, times) in plan.programs[program].steps.iter().zip(times) {
                let graph = &plan.graph;
                let node = &graph.programs[program].nodes[step.node];
                let warm = times.get(COLD..).filter(|warm| !warm.is_empty()).unwrap_or(times);
                all.push(Timed { graph, node, seconds: undisturbed(warm) });
            }
        }
    }
    let rates = default.fitted(&all[usual..]);
    if is_cpu {
        return Ok(rates.by_family(&all));
    }
    let arena_bytes = plans.last().map_or(0, |(plan, _)| plan.arena_bytes);
    Ok(rates.linked(link(device, arena_bytes)?))
}

/// True if a plan has room in what is free.
fn fits(plan: &Plan) -> bool {
    free_memory().is_none_or(|free| plan.peak_bytes() <= free)
}

/// A plan, and the seconds of its ops by program.
type Replayed = (Arc<Plan>, Vec<timing::Times>);

/// A plan of one program, and the seconds of its ops, replay by replay; `None` if it has no room.
fn alone(
    plan: Arc<Plan>,
    device: &mut dyn Backend,
    (time, replays): (Duration, usize),
) -> Result<Option<Replayed>, DeviceError> {
    if !fits(&plan) {
        return Ok(None);
    }
    device.prepare(Arc::clone(&plan))?;
    let mut times = vec![vec![]; plan.programs[0].steps.len()];
    let start = Instant::now();
    while times[0].len() < replays || start.elapsed() < time {
        let Some(seconds) = device.run_timed(0, 0..times.len())? else { return Ok(None) };
        times.iter_mut().zip(seconds).for_each(|(times, seconds)| times.push(seconds));
    }
    Ok(Some((plan, vec![(0, times)])))
}

/// Seconds of an op without what other programs take: a quarter of its runs take less.
fn undisturbed(times: &[f64]) -> f64 {
    let mut times = times.to_vec();
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 4).copied().unwrap_or_default()
}

/// Bytes a second to a device and back, in pieces as steps move them.
fn link(device: &mut dyn Backend, arena_bytes: u64) -> Result<f64, DeviceError> {
    let piece = PIECE.min(arena_bytes);
    let mut start = Instant::now();
    for round in 0..COLD + LINKED {
        if round == COLD {
            start = Instant::now();
        }
        let mut memory = device.begin_load(0..piece)?;
        memory.bytes()?;
        device.end_load(memory, 0..piece)?;
        device.begin_store(0..piece)?;
        device.end_store(0..piece)?.bytes()?;
    }
    let moved = (2 * LINKED as u64 * piece) as f64;
    Ok(moved / start.elapsed().as_secs_f64().max(f64::MIN_POSITIVE))
}

#[cfg(test)]
mod timed {
    use tightrope_backend_cpu::Cpu;
    use tightrope_core::Rule as _;

    use super::*;

    /// Attention was predicted alike for 1 and 64 heads of the same channels, which take 80 times longer; and a gradient that is added to a
    /// tied table as if all its rows were touched.
    #[test]
    #[ignore = "measures time: cargo xtask timed"]
    fn ops_take_as_long_as_predicted_whatever_the_heads() {
        const REPLAYS: (Duration, usize) = (Duration::from_millis(60), 8);
        /// Shortest time that the clock and the caches leave comparable, seconds.
        const LEAST: f64 = 20e-6;
        let mut cpu = Cpu::new(1).unwrap();
        let store = Store { quiet: 1.0, ..Store::EMPTY };
        let rates = store.measure(&mut cpu, Precision::F32, 1).rates;
        let mut ratios: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        for heads in [1, 2, 4, 8, 32, 64] {
            let sample = Sample {
                channels: 64,
                heads,
                kv_heads: heads,
                context: 64,
                batch: 2,
                vocab: 9000,
                ..USUAL
            };
            let config = sample.step(Precision::F32).unwrap();
            let plan = Arc::new(Planned::new(&config, &cpu).unwrap().plan);
            for (program, times) in timing::times(&plan, &*config.model, &mut cpu, REPLAYS).unwrap()
            {
                let nodes = &plan.graph.programs[program].nodes;
                for (step, times) in plan.programs[program].steps.iter().zip(times) {
                    let node = &nodes[step.node];
                    let seconds = timing::fastest(&times).max(LEAST);
                    let predicted = rates.seconds(&plan.graph, node).max(LEAST);
                    ratios.entry(node.op.name()).or_default().push(predicted / seconds);
                }
            }
        }
        for op in ["attention", "attention_grad", "embedding_grad", "matmul"] {
            let ratios = &ratios[op];
            assert!(
                ratios.iter().all(|ratio| (1.0 / 3.0..3.0).contains(ratio)),
                "{op}: {ratios:?}"
            );
        }
        let all: Vec<f64> = ratios.values().flatten().copied().collect();
        let close = all.iter().filter(|ratio| (0.5..2.0).contains(*ratio)).count();
        assert!(
            close * 10 >= all.len() * 9,
            "{close} of {} within a factor of 2: {ratios:?}",
            all.len()
        );
    }
}
