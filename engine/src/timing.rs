//! Times every op of a training step, in place: in the arena of the plan, on the values of a real step.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//! use tightrope::devices::Devices;
//! use tightrope::recipe::Step;
//! use tightrope::settings::Settings;
//! use tightrope::timing::times;
//!
//! let mut said = Settings::default();
//! for words in ["model.preset=tiny", "run.device=cpu"] {
//!     said.read_argument(words)?;
//! }
//! let step = Step::of(&said)?;
//! let mut device = Devices::default().open(&step.device)?;
//! let planned = step.plan(&*device)?;
//!
//! // Each op of each program at least twice.
//! let model = &*planned.config().model;
//! let plan = Arc::new(planned.plan.clone());
//! for (program, ops) in times(&plan, model, &mut *device, (Duration::ZERO, 2))? {
//!     assert_eq!(ops.len(), planned.plan.programs[program].steps.len());
//!     assert!(ops.iter().all(|seconds| seconds.len() >= 2));
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::ops::Range;
use std::slice::from_ref;
use std::sync::Arc;
use std::time::Duration;

use tightrope_core::{Backend, Cancel, DType, DeviceError, Plan, SessionError};
use tightrope_nn::inputs::{DOCUMENTS, POSITIONS, SHARE};
use tightrope_nn::{Decoder, Input, Model, initial_values};
use web_time::Instant;

use crate::block_on;

/// Read to wait for the device.
const FIRST_WORD: Range<u64> = 0..4;
/// Waits for nothing, of which the fastest is taken for the price of one.
const WAITS: usize = 10;

/// A program by its index, and the seconds of each of its ops, replay by replay.
pub type Times = (usize, Vec<Vec<f64>>);

/// Seconds of every op of the programs of a training step, replayed at least
/// so long and so often.
///
/// # Errors
/// Those of the device.
pub fn times(
    plan: &Arc<Plan>,
    model: &dyn Model,
    device: &mut dyn Backend,
    least: (Duration, usize),
) -> Result<Vec<Times>, SessionError> {
    watched(plan, model, device, least, &mut |_, _| ())
}

/// As [`times`], and calls `watch` with the program and the step after every op of the first replay, and of all replays on a device that
/// can't time ops on its own.
///
/// # Errors
/// Those of the device.
pub fn watched(
    plan: &Arc<Plan>,
    model: &dyn Model,
    device: &mut dyn Backend,
    least: (Duration, usize),
    watch: &mut dyn FnMut(usize, usize),
) -> Result<Vec<Times>, SessionError> {
    device.prepare(Arc::clone(plan))?;
    fill(plan, model, device)?;
    // A device that works on its own is waited for after each op; what the wait itself takes doesn't count.
    let wait = |device: &mut dyn Backend, start: Instant| {
        block_on(device.read(from_ref(&FIRST_WORD)))?;
        Ok::<f64, DeviceError>(start.elapsed().as_secs_f64())
    };
    wait(device, Instant::now())?;
    let waits: Result<Vec<f64>, _> = (0..WAITS).map(|_| wait(device, Instant::now())).collect();
    let idle = fastest(&waits?);
    let programs = plan.graph.programs.iter().enumerate();
    let mut times: Vec<Times> = programs
        .filter(|(_, program)| program.role.runs_per_step(1) > 0)
        .map(|(index, _)| (index, vec![vec![]; plan.programs[index].steps.len()]))
        .collect();
    let start = Instant::now();
    let mut replays = 0;
    while replays < least.1 || start.elapsed() < least.0 {
        for (index, times) in &mut times {
            // The first replay is watched, op by op.
            let timed = match replays {
                0 => None,
                _ => device.run_timed(*index, 0..times.len())?,
            };
            if let Some(seconds) = timed {
                times.iter_mut().zip(seconds).for_each(|(times, seconds)| times.push(seconds));
                continue;
            }
            for (step, times) in times.iter_mut().enumerate() {
                let start = Instant::now();
                device.run(*index, step..step + 1, &Cancel::default())?;
                times.push((wait(device, start)? - idle).max(0.0));
                watch(*index, step);
            }
        }
        replays += 1;
    }
    Ok(times)
}

/// The least of these.
pub(crate) fn fastest(times: &[f64]) -> f64 {
    times.iter().copied().fold(f64::INFINITY, f64::min)
}

/// Writes weights as a run begins with and made-up tokens. The learning rate stays 0, so that every
/// replay computes the same.
fn fill(plan: &Plan, model: &dyn Model, device: &mut dyn Backend) -> Result<(), SessionError> {
    let mut write = |name: &str, value: &mut dyn FnMut(usize) -> f64| -> Result<(), SessionError> {
        let tensor = plan.graph.find(name)?;
        let Some((offset, bytes)) = plan.range(tensor) else { return Ok(()) };
        let dtype = plan.graph.dtype(tensor);
        let mut data = vec![0; bytes as usize];
        for (index, element) in data.chunks_exact_mut(dtype.size()).enumerate() {
            dtype.write(element, value(index));
        }
        Ok(device.write(offset, &data)?)
    };
    for parameter in model.parameters() {
        let values = initial_values(&parameter, 0);
        write(&parameter.name, &mut |index| values[index].into())?;
        let master = format!("{}.low", parameter.name);
        if plan.graph.find(&master).is_ok_and(|tensor| plan.graph.dtype(tensor) == DType::F32) {
            write(&master, &mut |index| values[index].into())?;
        }
    }
    if plan.graph.find(SHARE).is_ok() {
        write(SHARE, &mut |_| 1.0)?;
    }
    let mut ids = ids(model.decoder().map_or(1, Decoder::vocab));
    for input in model.inputs() {
        match &input.range {
            Some(range) => write(&input.name, &mut |index| f64::from(range.start) + index as f64)?,
            None => write(&input.name, &mut |index| made_up(&input, index, &mut ids))?,
        }
    }
    Ok(())
}

/// A made-up number at `index` of an input that batches give: an id, or the place of a token in its sequence, which is one document.
pub(crate) fn made_up(input: &Input, index: usize, ids: &mut impl FnMut() -> i32) -> f64 {
    match (input.name.as_str(), input.dtype) {
        (POSITIONS, _) => (index % input.shape.iter().product::<usize>().max(1)) as f64,
        (DOCUMENTS, _) => 0.0,
        (_, DType::F32) => (index % 16) as f64 / 16.0,
        _ => ids().into(),
    }
}

/// Made-up token ids below `vocab`, the same every time.
pub(crate) fn ids(vocab: usize) -> impl FnMut() -> i32 {
    let mut state = 1u64;
    move || {
        // Constants of Knuth's MMIX generator, whose upper bits are the good ones.
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) as usize % vocab) as i32
    }
}
