//! Runs a recorded case on a device and measures how far each figure is from the recorded one.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::Serialize;
use tightrope_core::ops::Map;
use tightrope_core::plan::{Options, Target};
use tightrope_core::{Backend, DType, Graph, Plan, Role, Session, Tensor, Type, Wanted, grad};
use tightrope_nn::{
    self as nn, BuildOptions, Exported, Inputs, Parameter, Planned, Precision, Trainer,
    TrainerConfig, Weights, export,
};

use super::case::Case;
use crate::run::Numbers;

/// Distances to the recorded figures.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Errors {
    /// Loss of the first batch, nats.
    pub loss_abs_err: f64,
    /// Largest difference of a logit.
    pub logits_max_abs_err: f64,
    /// Relative L2 distance of each gradient, by Hugging Face name.
    pub grad_rel_l2: BTreeMap<String, f64>,
    /// Largest difference of a step's loss, nats.
    pub train_loss_max_abs_err: f64,
    /// Largest relative difference of a step's gradient norm.
    pub train_grad_norm_max_rel_err: f64,
    /// Relative L2 distance of each trained weight, by Hugging Face name.
    pub after_rel_l2: BTreeMap<String, f64>,
    /// Largest difference of a trained weight on which the loss doesn't depend, over S·lr: at each
    /// step, rounding noise moves it by about the learning rate, either way.
    pub free_weights_max_drift: f64,
}

/// Gives a fresh device: the gradients and the training run have a plan each.
pub type Devices<'a> = &'a mut dyn FnMut() -> anyhow::Result<Box<dyn Backend>>;

/// Runs `case` on the devices that `device` gives.
///
/// # Errors
/// What the case's files and the device refuse.
pub fn measure(case: &Case, device: Devices<'_>) -> anyhow::Result<Errors> {
    let pass = pollster::block_on(one_pass(case, device()?))?;
    let run = pollster::block_on(training_run(case, device()?))?;
    let loss = case.recorded("loss", &[1])?;
    let logits = case.recorded("logits", &case.logits)?;
    let losses = case.recorded("train.losses", &[case.steps])?;
    let norms = case.recorded("train.grad_norms", &[case.steps])?;
    let mut errors = Errors {
        loss_abs_err: largest_difference(&[pass.loss], &loss),
        logits_max_abs_err: largest_difference(&pass.logits, &logits),
        grad_rel_l2: BTreeMap::new(),
        train_loss_max_abs_err: largest_difference(&run.losses, &losses),
        train_grad_norm_max_rel_err: largest(
            run.grad_norms.iter().zip(&norms).map(|(a, b)| relative_l2([(*a, *b)])),
        ),
        after_rel_l2: BTreeMap::new(),
        free_weights_max_drift: 0.0,
    };
    for (Exported { name, shape, values }, free) in pass.gradients {
        let expected = case.recorded(&format!("grad.{name}"), &shape)?;
        if free.len() == shape[0] {
            // All of it is rounding noise.
            continue;
        }
        let distance = relative_l2(pairs(&values, &expected));
        errors.grad_rel_l2.insert(name, distance);
    }
    for (Exported { name, shape, values }, free) in run.weights {
        let expected = case.recorded(&format!("after.{name}"), &shape)?;
        let columns: usize = shape[1..].iter().product();
        let free = free.start * columns..free.end * columns;
        let (wandering, determined): (Vec<_>, Vec<_>) =
            pairs(&values, &expected).enumerate().partition(|(index, _)| free.contains(index));
        let moved = largest(wandering.into_iter().map(|(_, (a, b))| f64::from(a - b).abs()));
        let drift = if moved == 0.0 { 0.0 } else { moved / (case.steps as f64 * case.lr) };
        errors.free_weights_max_drift = largest([errors.free_weights_max_drift, drift]);
        if determined.is_empty() {
            continue;
        }
        let distance = relative_l2(determined.into_iter().map(|(_, pair)| pair));
        errors.after_rel_l2.insert(name, distance);
    }
    Ok(errors)
}

/// What one forward and backward pass gives.
struct Pass {
    loss: f32,
    /// As recorded, without padding.
    logits: Vec<f32>,
    /// Each with the rows on which the loss doesn't depend.
    gradients: Vec<(Exported, Range<usize>)>,
}

/// The programs of one pass.
struct Programs {
    plan: Plan,
    weights: Weights,
    inputs: Inputs,
    loss: Tensor,
    gradients: Vec<Tensor>,
    logits: Tensor,
}

/// [`Role::Train`]: the loss and the gradient of everything trained, all kept to the end; [`Role::Logits`].
fn programs(case: &Case, target: &dyn Target) -> tightrope_nn::Result<Programs> {
    let mut graph = Graph::new();
    let model = &case.model;
    let list = model.parameters();
    let weights = Weights::adapted(&mut graph, list, Precision::F32, case.lora())?;
    let inputs = Inputs::declare(&mut graph, &model.inputs(), case.batch)?;
    let options = BuildOptions::default();
    graph.begin(Role::Train);
    let seed = graph.one(Map::fill(1.0, &Type::new(DType::F32, [1])), &[], "loss_seed")?;
    let loss =
        model.loss(&mut nn::Pass::training(&mut graph, &weights, inputs.clone(), options, None))?;
    let (_, trained) = weights.trained();
    let wanted: Vec<Wanted> = trained.iter().map(|&weight| weight.into()).collect();
    let gradients: Vec<Tensor> =
        grad(&mut graph, loss, seed, &wanted)?.into_iter().flatten().collect();
    graph.result(loss);
    gradients.iter().for_each(|&gradient| graph.result(gradient));
    graph.begin(Role::Logits);
    let logits = graph.scope("logits", |graph| {
        model.logits(&mut nn::Pass::evaluation(graph, &weights, inputs.clone(), options))
    })?;
    let no_logits = || nn::Error::Setting { key: "model", problem: "it has no logits".to_owned() };
    let logits = logits.ok_or_else(no_logits)?;
    graph.result(logits);
    let plan = Plan::new(graph, &Options::default(), target)?;
    Ok(Programs { plan, weights, inputs, loss, gradients, logits })
}

async fn one_pass(case: &Case, device: Box<dyn Backend>) -> anyhow::Result<Pass> {
    let Programs { plan, weights, inputs, loss, gradients, logits } = programs(case, &*device)?;
    let mut session = Session::new(plan, device)?;
    for (weight, values) in case.initial(&weights)? {
        session.write_values(weight, &values)?;
    }
    for input in case.model.inputs() {
        if let Some(range) = input.range {
            session.write_ids(inputs.get(&input.name)?, &range.collect::<Vec<_>>())?;
        }
    }
    for (name, numbers) in case.samples(0, 1).numbers() {
        let tensor = inputs.get(name)?;
        match numbers {
            Numbers::F32(values) => session.write_values(tensor, values)?,
            Numbers::I32(ids) => session.write_ids(tensor, ids)?,
        }
    }
    session.run(Role::Train)?;
    let loss = session.read_values(loss).await?[0];
    let mut exported = vec![];
    let (list, _) = weights.trained();
    for (parameter, &gradient) in list.iter().zip(&gradients) {
        exported.extend(with_free_rows(parameter, &session.read_values(gradient).await?));
    }
    session.run(Role::Logits)?;
    let padded = session.read_values(logits).await?;
    // Rows of a vocabulary are padded.
    let (classes, rows) = case.logits.split_last().expect("a batch of classes");
    let columns = padded.len() / rows.iter().product::<usize>();
    let rows = padded.chunks_exact(columns);
    let logits = rows.flat_map(|row| &row[..*classes]).copied().collect();
    Ok(Pass { loss, logits, gradients: exported })
}

/// What a training run gives.
pub(super) struct Run {
    pub(super) losses: Vec<f32>,
    grad_norms: Vec<f32>,
    /// Each with the rows on which the loss doesn't depend.
    weights: Vec<(Exported, Range<usize>)>,
}

/// Runs the steps of `case`.
pub(super) async fn training_run(case: &Case, device: Box<dyn Backend>) -> anyhow::Result<Run> {
    let config = TrainerConfig {
        batch: case.batch * case.accumulation,
        micro_batch: case.batch,
        // The pass above takes the loss whole, so that both of its forms are held to the record.
        build: BuildOptions { loss_chunk: 16, ..BuildOptions::default() },
        optimizer: case.optimizer,
        weight_decay: case.weight_decay,
        clip: case.clip,
        seed: 0,
        lora: case.lora().cloned(),
        ..TrainerConfig::new(case.model.clone())
    };
    let mut trainer = Trainer::new(Planned::new(&config, &*device)?, device)?;
    case.load(&mut trainer)?;
    let mut run = Run { losses: vec![], grad_norms: vec![], weights: vec![] };
    for step in 0..case.steps {
        let first = 1 + step * case.accumulation;
        let samples = case.samples(first, case.accumulation);
        trainer.step(step as u64, case.lr, &samples.batch())?;
        let outcome = trainer.outcome().await?;
        run.losses.push(outcome.loss);
        run.grad_norms.push(outcome.grad_norm);
    }
    for index in 0..trainer.parameters().len() {
        let values = trainer.weight(index).await?;
        let parameter = &trainer.parameters()[index];
        run.weights.extend(with_free_rows(parameter, &values));
    }
    Ok(run)
}

/// The tensors of a parameter under Hugging Face's names, each with the rows on which the loss doesn't depend.
fn with_free_rows(parameter: &Parameter, values: &[f32]) -> Vec<(Exported, Range<usize>)> {
    let with_rows = |exported: Exported| {
        let free = parameter.rows_without_gradient(&exported.name);
        (exported, free)
    };
    export(parameter, values).into_iter().map(with_rows).collect()
}

fn pairs<'a>(found: &'a [f32], expected: &'a [f32]) -> impl Iterator<Item = (f32, f32)> + 'a {
    found.iter().copied().zip(expected.iter().copied())
}

/// The largest of some distances; NaN where one is.
fn largest(values: impl IntoIterator<Item = f64>) -> f64 {
    values
        .into_iter()
        .fold(0.0, |most, value| if value > most || value.is_nan() { value } else { most })
}

fn largest_difference(found: &[f32], expected: &[f32]) -> f64 {
    largest(pairs(found, expected).map(|(a, b)| (f64::from(a) - f64::from(b)).abs()))
}

/// ‖found − expected‖ / ‖expected‖; 0 where both are zero.
fn relative_l2(pairs: impl IntoIterator<Item = (f32, f32)>) -> f64 {
    let (mut difference, mut norm) = (0.0, 0.0);
    for (found, expected) in pairs {
        let (found, expected) = (f64::from(found), f64::from(expected));
        difference += (found - expected).powi(2);
        norm += expected.powi(2);
    }
    if difference == 0.0 { 0.0 } else { (difference / norm).sqrt() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        assert_eq!(relative_l2([(3.0, 3.0), (5.0, 4.0)]), 0.2);
        assert_eq!(relative_l2([(0.0, 0.0)]), 0.0);
        assert_eq!(relative_l2([(1.0, 0.0)]), f64::INFINITY);
        assert_eq!(largest_difference(&[1.0, -2.0], &[1.5, -1.0]), 1.0);
    }

    #[test]
    fn nothing_hides_a_nan() {
        assert!(relative_l2([(f32::NAN, 1.0), (1.0, 1.0)]).is_nan());
        assert!(largest([1.0, f64::NAN, 2.0]).is_nan());
        assert!(largest_difference(&[f32::NAN, 9.0], &[0.0, 0.0]).is_nan());
    }
}
