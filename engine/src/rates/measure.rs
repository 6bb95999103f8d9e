//! Measures the rates of a device, from the ops of a small step.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fs, process};

use tightrope_core::plan::offload::PIECE;
use tightrope_core::{Backend, DeviceError, SessionError};
use tightrope_nn::{
    Family, ModelConfig, Planned, Precision, Rates, Timed, TrainerConfig, defaults,
};

use super::{Kept, Known, Source, Store, VERSION, identity, key};
use crate::figures::median;
use crate::timing;

/// Shortest time that ops are measured for, and the fewest replays.
const LEAST: (Duration, usize) = (Duration::from_millis(700), 2);
/// Replays before the measured ones: they touch memory for the first time, and fill caches.
const COLD: usize = 1;
/// Pieces that go to a device and back while its link is measured.
const LINKED: usize = 8;

/// The step whose ops are measured: one block of a GPT that a small machine trains.
fn measured_step(precision: Precision) -> tightrope_nn::Result<TrainerConfig> {
    let model = ModelConfig {
        family: Family::Gpt2,
        layers: 1,
        channels: 384,
        heads: 6,
        kv_heads: 6,
        hidden: 1536,
        context: 256,
        ..defaults::MODEL
    };
    let model = model.build(model.context)?;
    Ok(TrainerConfig { precision, batch: 4, micro_batch: 4, ..TrainerConfig::new(model) })
}

impl Store {
    /// As [`Store::known`], measured where none are kept. The device's plan is gone after that.
    pub fn measured(
        &self,
        device: &mut dyn Backend,
        precision: Precision,
        threads: usize,
    ) -> Known {
        let known = self.known(device, precision, threads);
        if known.measured() { known } else { self.measure(device, precision, threads) }
    }

    /// Measures a device, and keeps its rates. Where the device refuses, its failure shows in what it's used for
    /// next, and default rates do until then.
    pub fn measure(&self, device: &mut dyn Backend, precision: Precision, threads: usize) -> Known {
        let unmeasured = self.unmeasured(device, precision, threads);
        let Ok(rates) = measure(device, precision, &unmeasured.rates) else {
            return unmeasured;
        };
        let mut kept = self.read(device).unwrap_or_else(|| Kept {
            device: identity(device),
            version: VERSION.to_owned(),
            by_precision: BTreeMap::new(),
        });
        kept.by_precision.insert(key(precision).to_owned(), rates);
        // Without a place to keep them, they are measured again next time.
        let _ = self.file(device).map(|file| write(&file, &kept));
        self.of(device, rates, Source::Measured)
    }
}

/// Writes a file that another process reads whole or not at all.
fn write(file: &Path, kept: &Kept) -> std::io::Result<()> {
    let partial = file.with_extension(format!("{}.partial", process::id()));
    fs::create_dir_all(file.parent().unwrap_or(Path::new(".")))?;
    fs::write(&partial, serde_json::to_vec_pretty(kept)?)?;
    fs::rename(partial, file)
}

/// The rates of a device, from the ops of a small step.
fn measure(
    device: &mut dyn Backend,
    precision: Precision,
    default: &Rates,
) -> Result<Rates, SessionError> {
    let refused = |error: tightrope_nn::Error| DeviceError::Input(error.to_string());
    let config = measured_step(precision).map_err(refused)?;
    let plan = Arc::new(Planned::new(&config, device).map_err(refused)?.plan);
    let times = timing::times(&plan, &*config.model, device, LEAST)?;
    let mut timed = vec![];
    for (program, times) in times {
        let graph = &plan.graph;
        for (step, times) in plan.programs[program].steps.iter().zip(&times) {
            let node = &graph.programs[program].nodes[step.node];
            let warm = times.get(COLD..).filter(|warm| !warm.is_empty()).unwrap_or(times);
            timed.push(Timed { graph, node, seconds: median(warm).unwrap_or_default() });
        }
    }
    let rates = default.fitted(&timed);
    Ok(if device.kind().can_be_lost() {
        rates.linked(link(device, plan.arena_bytes)?)
    } else {
        rates
    })
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
