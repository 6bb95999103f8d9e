//! What the page shows of a plan, and the presets that it offers.

use serde::Serialize;
use serde_json::{Value, json};
use tightrope::core::Backend;
use tightrope::model;
use tightrope::nn::{self, ModelConfig, Planned, Preset, presets};
use tightrope::plan::{Choices, Closest, Trial, closest};
use tightrope::recipe::Step;
use tightrope::settings::{Chunk, MicroBatch, Precision, Recompute};
use tightrope::view::step::{ShownPlan, programs};
use tightrope::view::summary::offloaded_bytes;
use web_time::Instant;

use crate::device::Description;
use crate::error::{Error, Result};
use crate::setup::Setup;

/// The training step of a setup on a device.
///
/// # Errors
/// Settings that don't hold together.
pub fn step(setup: &Setup, device: &Description) -> Result<Step> {
    let mut step = Step::of(&setup.settings)?;
    device.fill(&mut step.scope);
    Ok(step)
}

/// The fastest plan of a step within its budget; where none fits, the smallest.
///
/// # Errors
/// Settings that make no plan.
pub fn find(step: &Step, target: &dyn Backend) -> Result<Closest> {
    let budget = step.scope.budget.unwrap_or(u64::MAX);
    Ok(closest(&step.scope, &step.config, budget, target)?)
}

/// Predicted seconds of a planned step.
pub fn estimate(step: &Step, planned: &Planned, target: &dyn Backend) -> f64 {
    let precision = planned.config().precision;
    let known = step.scope.rates.known(target, precision, step.scope.threads);
    planned.estimate(&known.rates).step_s
}

/// What the page shows of a setup's plan. `slowness` is how much longer steps take on this device than was estimated.
///
/// # Errors
/// Settings that make no plan.
pub fn show(
    setup: &Setup,
    device: &Description,
    slowness: f64,
    target: &dyn Backend,
) -> Result<Value> {
    let started = Instant::now();
    let step = step(setup, device)?;
    let Closest { planned, fits, fewest_bytes } = find(&step, target)?;
    let plan_ms = 1e3 * started.elapsed().as_secs_f64();
    let (plan, config) = (&planned.plan, planned.config());
    let known = step.scope.rates.known(target, config.precision, step.scope.threads);
    let programs = programs(plan, config.accumulation(), &known.rates);
    let step_s = slowness * planned.estimate(&known.rates).step_s;
    let mut shown =
        json!(ShownPlan::new(plan, &plan.report(), step.scope.budget, step_s, programs));
    let nearest = if fits { None } else { nearest(setup, step.scope.budget, device, target) };
    shown["plan_ms"] = json!(plan_ms);
    shown["parameters"] = json!(model::parameters(config));
    shown["choices"] = json!(Choices::of(config));
    shown["offloaded_bytes"] = json!(offloaded_bytes(&planned).unwrap_or(0));
    shown["fits"] = json!(fits);
    shown["smallest_seen_bytes"] = json!(fewest_bytes);
    shown["nearest"] = nearest.map_or(Ok(Value::Null), |setup| setup.to_json())?;
    Ok(shown)
}

/// The first of a few changes of a setup that makes it fit `budget`.
pub fn nearest(
    setup: &Setup,
    budget: Option<u64>,
    device: &Description,
    target: &dyn Backend,
) -> Option<Setup> {
    let budget = budget?;
    let mut open = setup.clone();
    open.settings.train.micro_batch = MicroBatch::Auto;
    open.settings.memory.recompute = Recompute::Auto;
    open.settings.memory.loss_chunk = Chunk::Auto;
    let smaller = |(length, depth): (usize, usize)| {
        let mut smaller = open.clone();
        let model = &mut smaller.settings.model;
        model.context = model.context.map(|context| (context / length).max(1));
        model.layers = model.layers.map(|layers| (layers / depth).max(1));
        smaller
    };
    let mut narrow = open.clone();
    narrow.settings.run.precision = Precision::of(nn::Precision::BF16);
    let sizes = [(2, 1), (4, 1), (1, 2), (2, 2), (4, 4)].map(smaller);
    let mut changes = [open.clone(), narrow].into_iter().chain(sizes);
    changes.find(|changed| fits(changed, budget, device, target))
}

/// Returns `true` if a plan that is about the smallest fits: one sequence at a time, with the most recomputed.
fn fits(setup: &Setup, budget: u64, device: &Description, target: &dyn Backend) -> bool {
    [Recompute::Block, Recompute::Sqrt].into_iter().any(|recompute| {
        let mut small = setup.clone();
        // Gradients that are consumed are of one pass.
        if !small.settings.memory.consume_gradients {
            small.settings.train.micro_batch = MicroBatch::Size(1);
        }
        small.settings.memory.recompute = recompute;
        let Ok(Step { scope, config, .. }) = step(&small, device) else { return false };
        Trial { scope: &scope, device: target }.fitting(&config, budget).is_some()
    })
}

/// The error of a setup that doesn't fit, with the nearest that does.
///
/// # Errors
/// As [`Setup::to_json`].
pub fn refusal(
    what: String,
    smallest_bytes: u64,
    budget_bytes: Option<u64>,
    nearest: Option<Setup>,
) -> Result<Error> {
    let nearest = nearest.map(|setup| setup.to_json()).transpose()?;
    Ok(Error::DoesNotFit(json!({
        "what": what, "smallest_bytes": smallest_bytes, "budget_bytes": budget_bytes, "nearest": nearest,
    })))
}

/// A model by name, for the page to offer.
#[derive(Clone, Debug, Serialize)]
pub struct Offer {
    /// Name of the preset.
    pub name: &'static str,
    /// Its setup.
    pub setup: Value,
    /// Whether its smallest plan stays comfortable on this device.
    #[serde(skip)]
    pub fits: bool,
}

/// All presets whose tensors an address space of 32 bits holds, those that fit first; largest models last within each group.
///
/// # Errors
/// As [`Setup::to_json`].
pub fn offers(comfortable: u64) -> Result<Vec<Offer>> {
    let offer = |preset: &Preset| -> Result<_> {
        let (fits, parameters) =
            (guess(preset.config()) <= comfortable, preset.config().parameters());
        let setup = Setup::of_preset(preset.name)?.to_json()?;
        Ok((fits, parameters, Offer { name: preset.name, setup, fits }))
    };
    let exist = presets().iter().filter(|preset| preset.config().check().is_ok());
    let mut offers = exist.map(offer).collect::<Result<Vec<_>>>()?;
    offers.sort_by_key(|&(fits, parameters, _)| (!fits, parameters));
    Ok(offers.into_iter().map(|(_, _, offer)| offer).collect())
}

/// What training a model takes at least, without a plan: weights, gradients and two states of 4 bytes, and
/// the activations of one block and of each block's input for one sequence.
fn guess(model: ModelConfig) -> u64 {
    /// Weight, gradient, two moments.
    const PER_PARAMETER: u64 = 16;
    /// Elements of a block per channel and token: norms, projections, the four-fold hidden layer.
    const PER_CHANNEL: u64 = 32;
    let [context, channels, layers] =
        [model.context, model.channels, model.layers].map(|extent| extent as u64);
    let activations = 4 * context * channels * (PER_CHANNEL + layers);
    PER_PARAMETER * model.parameters() + activations
}
