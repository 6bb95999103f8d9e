//! The programs of a training step: a pass over a micro-batch, its like over shorter sequences, and the update.

use std::sync::Arc;

use tightrope_core::expr::input;
use tightrope_core::ops::Map;
use tightrope_core::plan::offload::store_gradients;
use tightrope_core::{Class, DType, Graph, Phase, Role, Tensor, Type, Wanted, add_gradient, grad};

use crate::error::{Error, Result, ensure};
use crate::handles::ShorterHandles;
use crate::inputs::Inputs;
use crate::model::Model;
use crate::noise::{self, Noise};
use crate::optim::{append_sharing, hoist};
use crate::params::Parameter;
use crate::pass::Pass;
use crate::ranks::{
    add_shares, joined, of_first, sum_of_shares, sum_over_ranks, sum_to_host, sum_to_shard,
    write_over,
};
use crate::sharding::{give_shards, take_shards};
use crate::share::{Share, Shares};
use crate::watch::{self, Watched};
use crate::weights::Weights;
use crate::{GradientSums, Gradients, LossScale, Trained, TrainerConfig, Update, UpdateOptions};

/// What a training pass works on.
pub(crate) struct Declared<'a> {
    /// The model: over a rank's part of sequences, where several have one.
    pub(crate) model: &'a dyn Model,
    pub(crate) weights: &'a Weights,
    /// Weights of the model's teacher.
    pub(crate) teacher: Option<&'a Weights>,
    pub(crate) remainders: &'a [Tensor],
    /// This rank's shards of weights, of those that it keeps nothing else of.
    pub(crate) shards: &'a [Option<Tensor>],
    /// Key of random numbers, where a step draws any.
    pub(crate) key: Option<Tensor>,
    /// Of those that round weights and state.
    pub(crate) update_key: Option<Tensor>,
    /// Noise on embeddings, where there is some.
    pub(crate) noise: Option<Noise>,
    /// Shares of the passes of a step.
    pub(crate) shares: &'a Shares,
    pub(crate) loss_scale: Option<LossScale>,
}

/// What the programs of a training step leave.
pub(crate) struct Training {
    pub(crate) loss: Tensor,
    /// The sum of losses over micro-steps.
    pub(crate) loss_sum: Option<Tensor>,
    /// What is read besides the loss, by name: sums where the loss is one.
    pub(crate) metrics: Vec<(String, Tensor)>,
    /// Where gradients are summed over micro-steps.
    sums: Vec<Wanted>,
    /// Where this rank's shards of them are, in their place: in parts, where the host keeps them.
    shard_sums: Vec<Vec<Tensor>>,
    pub(crate) update: Update,
    /// What the host reads by name.
    pub(crate) watched: Vec<Watched>,
}

/// What a pass makes.
struct Passed {
    loss: Tensor,
    metrics: Vec<(String, Tensor)>,
    trained: Vec<Trained>,
}

impl Passed {
    /// Appends forward and backward pass of `model` over `inputs` to the current program.
    fn append(
        graph: &mut Graph,
        config: &TrainerConfig,
        declared: &Declared<'_>,
        (model, inputs, shares): (&dyn Model, &Inputs, &Shares),
        sums: &[Wanted],
    ) -> Result<Self> {
        let Declared { weights, teacher, remainders, key, noise, ref loss_scale, .. } = *declared;
        // The seed comes first, so that the loss can make its gradient at once.
        let seed = shares.loss().seed(graph, loss_scale.as_ref().map(|scale| scale.scale))?;
        let pass = Pass::training(graph, weights, inputs.clone(), config.build, key);
        let pass = pass.taught(teacher).with_context_ranks(config.parts());
        let mut pass = pass.with_noise(noise).with_shares(shares);
        let loss = model.loss(&mut pass)?;
        ensure(config.neftune == 0.0 || pass.is_noised(), noise::KEY, || {
            "this model has no embedding of tokens to add noise to".to_owned()
        })?;
        let metrics = pass.into_metrics();
        let (parameters, tensors) = weights.trained();
        let ordered = config.gradient_sums == GradientSums::Ordered;
        let alone: Vec<Wanted> = tensors.iter().map(|&tensor| tensor.into()).collect();
        let mut gradients = grad(graph, loss, seed, if ordered { &alone } else { sums })?;
        if ordered {
            let first = graph.node_count();
            graph.set_phase(Phase::Update);
            for (gradient, sum) in gradients.iter_mut().zip(sums) {
                *gradient = gradient.map(|made| add_gradient(graph, sum, made)).transpose()?;
            }
            hoist(graph, first, &[]);
        }
        let mut trained = vec![];
        for (index, (parameter, gradient)) in parameters.iter().zip(gradients).enumerate() {
            let gradient = gradient.ok_or_else(|| Error::Setting {
                key: "model",
                problem: format!("the loss doesn't depend on `{}`", parameter.name),
            })?;
            graph.info_mut(gradient).class = Class::Gradient;
            trained.push(Trained {
                name: parameter.name.clone(),
                weight: tensors[index],
                remainder: remainders.get(index).copied(),
                gradient,
                decay: parameter.decay,
                kind: parameter.kind,
                matrices: parameter.matrices(),
                parts: parameter.parts.iter().map(|part| part.rows.clone()).collect(),
                sharded: None,
            });
        }
        Ok(Self { loss, metrics, trained })
    }
}

impl Training {
    /// Appends the programs of a training step over `inputs`.
    pub(crate) fn append(
        graph: &mut Graph,
        config: &TrainerConfig,
        declared: &Declared<'_>,
        inputs: &Inputs,
    ) -> Result<Self> {
        let accumulates = config.accumulates();
        let one = Type::new(DType::F32, [1]);
        let Declared { weights, shares, ref loss_scale, .. } = *declared;
        let (parameters, tensors) = weights.trained();
        let leave = config.gradients_leave();
        let mut sums: Vec<Wanted> = parameters
            .iter()
            .zip(tensors)
            .map(|(parameter, &tensor)| {
                let ty = Type::new(graph.grad_dtype(tensor), parameter.shape.clone());
                let held = accumulates && !config.offload.gradients && !leave;
                let compensated = ty.dtype == DType::BF16 && config.gradients == Gradients::Kahan;
                let mut sum = |kind: &str| {
                    let name = format!("{kind}.{}", parameter.name);
                    graph.persistent(&name, ty.clone(), Class::Gradient)
                };
                let into = held.then(|| sum("grad"));
                let error = into.filter(|_| compensated).map(|_| sum("grad_error"));
                Wanted { tensor, into, error }
            })
            .collect();
        let on_host = config.offload.gradients;
        let mut shard_sums = match leave && accumulates && !on_host {
            true => declare_sums(graph, config, weights),
            false => vec![],
        };
        let loss_sum =
            accumulates.then(|| graph.persistent("loss_sum", one.clone(), Class::Optimizer));
        graph.begin(if accumulates { Role::Micro } else { Role::Train });
        let Passed { loss, mut metrics, mut trained } =
            Passed::append(graph, config, declared, (declared.model, inputs, shares), &sums)?;
        let named: Vec<(String, Tensor)> =
            trained.iter().map(|t| (t.name.clone(), t.gradient)).collect();
        let pass = watch::Pass { accumulates, on_host, scale: loss_scale.as_ref() };
        let watched = watch::keep(graph, &config.watch, (weights, &named), pass)?;
        if leave && on_host {
            shard_sums = shards_to_host(graph, config, weights, &trained)?;
        } else if leave {
            gradients_to_shards(graph, config, weights, &mut trained, &shard_sums)?;
        } else if on_host {
            let made: Vec<(Tensor, String)> =
                trained.iter().map(|t| (t.gradient, format!("grad.{}", t.name))).collect();
            let stored = store_gradients(graph, &made)?;
            sums.iter_mut().zip(stored).for_each(|(sum, stored)| sum.into = Some(stored));
        }
        let mut total = loss;
        if let Some(sum) = loss_sum {
            add_figure(graph, config, shares.loss(), (sum, loss), "loss_sum.next")?;
            for (index, (name, figure)) in metrics.iter_mut().enumerate() {
                let share = shares.figure(index);
                let sum = graph.persistent(&format!("{name}_sum"), one.clone(), Class::Optimizer);
                let name = format!("{name}_sum.next");
                add_figure(graph, config, share, (sum, *figure), &name)?;
                *figure = sum;
            }
            graph.begin(Role::Update);
            // Programs share persistent tensors by storage: the update reads what the last micro-step left.
            for (trained, sum) in trained.iter_mut().zip(&sums) {
                trained.gradient = sum.into.unwrap_or(trained.gradient);
            }
            graph.set_phase(Phase::Update);
            for (trained, parts) in trained.iter_mut().zip(&shard_sums) {
                trained.gradient = joined(graph, trained.gradient, parts)?;
            }
            total = sum;
        }
        let made = Made { total: &mut total, metrics: &mut metrics, trained: &mut trained };
        made.sum_over_ranks(graph, config, weights, loss_sum.is_none().then_some(shares))?;
        if loss_sum.is_none() {
            metrics.iter().for_each(|&(_, figure)| graph.result(figure));
        }
        let update = update(graph, config, declared, &trained, total, None)?;
        let training = Self { loss: total, loss_sum, metrics, sums, shard_sums, update, watched };
        let errors: Vec<Tensor> = training.errors().collect();
        if config.clears() {
            graph.begin(Role::Clear);
            graph.set_phase(Phase::Update);
            clear(graph, &training.accumulators())?;
        } else if accumulates && !config.clears_in_update() {
            clear(graph, &training.accumulators())?;
        } else {
            // The update has written zeros over the sums themselves.
            clear(graph, &errors)?;
        }
        Ok(training)
    }

    /// Rounding errors of sums.
    fn errors(&self) -> impl Iterator<Item = Tensor> {
        self.sums.iter().filter_map(|sum| sum.error)
    }

    /// Gradients that micro-steps add to, and their rounding errors.
    pub(crate) fn accumulators(&self) -> Vec<Tensor> {
        let sums = self.sums.iter().filter_map(|sum| sum.into);
        sums.chain(self.shard_sums.iter().flatten().copied()).chain(self.errors()).collect()
    }

    /// Appends a pass over shorter sequences for each of [`TrainerConfig::shorter()`]. It does what the step's own does, to the same
    /// weights, gradients and state.
    pub(crate) fn append_shorter(
        &self,
        graph: &mut Graph,
        config: &TrainerConfig,
        declared: &Declared<'_>,
    ) -> Result<Vec<ShorterHandles>> {
        let mut found = vec![];
        for &seq_len in config.shorter() {
            let model = shorter_model(config, seq_len)?;
            let list = model.inputs();
            let inputs = graph.scope(&format!("of_{seq_len}"), |graph| {
                Inputs::declare(graph, &list, config.micro_batch)
            })?;
            let (program, tokens) = (graph.programs.len(), model.tokens());
            let shares = Shares::of_step(graph, config, &*model, Some(declared.shares))?;
            graph.begin(Role::Shorter);
            let Passed { loss, metrics, mut trained } =
                Passed::append(graph, config, declared, (&*model, &inputs, &shares), &self.sums)?;
            if config.gradients_leave() {
                let weights = declared.weights;
                gradients_to_shards(graph, config, weights, &mut trained, &self.shard_sums)?;
            }
            let inputs = inputs.of(list)?;
            let shorter = match self.loss_sum {
                Some(sum) => {
                    add_figure(graph, config, shares.loss(), (sum, loss), "loss_sum.next")?;
                    let figures = metrics.iter().zip(&self.metrics).enumerate();
                    for (index, ((name, figure), (_, sum))) in figures {
                        let (name, share) = (format!("{name}_sum.next"), shares.figure(index));
                        add_figure(graph, config, share, (*sum, *figure), &name)?;
                    }
                    ShorterHandles {
                        program,
                        inputs,
                        tokens,
                        shares,
                        loss: self.loss,
                        metrics: self.metrics.clone(),
                        grad_norm: self.update.grad_norm,
                        ok: self.update.ok,
                    }
                }
                None => {
                    let (mut loss, mut metrics) = (loss, metrics);
                    let made =
                        Made { total: &mut loss, metrics: &mut metrics, trained: &mut trained };
                    made.sum_over_ranks(graph, config, declared.weights, Some(&shares))?;
                    metrics.iter().for_each(|&(_, figure)| graph.result(figure));
                    let with = Some(&self.update);
                    let Update { grad_norm, ok, .. } =
                        update(graph, config, declared, &trained, loss, with)?;
                    ShorterHandles { program, inputs, tokens, shares, loss, metrics, grad_norm, ok }
                }
            };
            found.push(shorter);
        }
        Ok(found)
    }
}

/// What a rank has made of a step.
struct Made<'a> {
    total: &'a mut Tensor,
    metrics: &'a mut [(String, Tensor)],
    trained: &'a mut [Trained],
}

impl Made<'_> {
    /// Makes all of it sums over ranks, or this one's shards of them. Losses and figures are of a pass where its `shares` are given,
    /// and else their rank's shares of a step already.
    fn sum_over_ranks(
        self,
        graph: &mut Graph,
        config: &TrainerConfig,
        weights: &Weights,
        shares: Option<&Shares>,
    ) -> Result<()> {
        let ranks = config.ranks;
        // A browser's tab has no others to train with.
        if cfg!(target_family = "wasm") || ranks == 1 {
            return Ok(());
        }
        graph.set_phase(Phase::Update);
        let first = graph.node_count();
        if !config.gradients_leave() {
            let (parameters, _) = weights.trained();
            for (Trained { gradient, .. }, parameter) in self.trained.iter_mut().zip(parameters) {
                *gradient = match config.shards_of(parameter) {
                    Some(shards) => sum_to_shard(graph, &shards, *gradient, None)?,
                    None => sum_over_ranks(graph, ranks, *gradient)?,
                };
            }
        }
        let metrics = self.metrics.iter_mut().enumerate();
        let of_metric = |index| shares.map(|shares| shares.figure(index));
        let metrics = metrics.map(|(index, (_, figure))| (figure, of_metric(index)));
        let loss = (self.total, shares.map(Shares::loss));
        for (figure, share) in [loss].into_iter().chain(metrics) {
            *figure = match share {
                Some(share) => sum_of_shares(graph, ranks, share, *figure)?,
                None if config.figures_leave() => of_first(graph, ranks, *figure)?,
                None => sum_over_ranks(graph, ranks, *figure)?,
            };
        }
        if config.consume_gradients {
            hoist(graph, first, &[]);
        }
        Ok(())
    }
}

/// Adds a pass's share of a figure to a sum, with those of all ranks' passes where that's done with each.
fn add_figure(
    graph: &mut Graph,
    config: &TrainerConfig,
    share: Share,
    (sum, figure): (Tensor, Tensor),
    name: &str,
) -> Result<Tensor> {
    match config.figures_leave() {
        true => add_shares(graph, config.ranks, share, (sum, figure)),
        false => share.add(graph, sum, figure, name),
    }
}

/// Declares this rank's shards of the sums of gradients over micro-steps.
fn declare_sums(graph: &mut Graph, config: &TrainerConfig, weights: &Weights) -> Vec<Vec<Tensor>> {
    let (parameters, tensors) = weights.trained();
    let declare = |(parameter, &tensor): (&Parameter, &Tensor)| {
        let ty = Type::new(graph.grad_dtype(tensor), parameter.shape.clone());
        let name = format!("grad.{}", parameter.name);
        vec![match config.shards_of(parameter) {
            Some(shards) => graph.persistent_shard(&name, ty, shards, Class::Gradient),
            None => graph.persistent(&name, ty, Class::Gradient),
        }]
    };
    parameters.iter().zip(tensors).map(declare).collect()
}

/// Makes gradients of the current program this rank's shards of their sums over ranks, as soon as they're made; added to `sums` where there
/// are any.
fn gradients_to_shards(
    graph: &mut Graph,
    config: &TrainerConfig,
    weights: &Weights,
    trained: &mut [Trained],
    sums: &[Vec<Tensor>],
) -> Result<()> {
    let first = graph.node_count();
    graph.set_phase(Phase::Update);
    // A pass that is alone is summed as without sums.
    let adds = config.accumulation() > 1;
    for (index, (trained, parameter)) in trained.iter_mut().zip(weights.trained().0).enumerate() {
        let Some(shards) = config.shards_of(parameter) else { continue };
        let sum = sums.get(index).map(|parts| parts[0]);
        trained.gradient = sum_to_shard(graph, &shards, trained.gradient, sum.filter(|_| adds))?;
        if let Some(sum) = sum.filter(|_| !adds) {
            trained.gradient = write_over(graph, sum, trained.gradient)?;
        }
    }
    hoist(graph, first, &[]);
    Ok(())
}

/// Has the host keep this rank's shards of the sums of gradients over ranks, each part of them as soon as it's made. Gives its tensors, by
/// parameter.
fn shards_to_host(
    graph: &mut Graph,
    config: &TrainerConfig,
    weights: &Weights,
    trained: &[Trained],
) -> Result<Vec<Vec<Tensor>>> {
    let first = graph.node_count();
    graph.set_phase(Phase::Update);
    let adds = config.accumulation() > 1;
    let mut held = vec![];
    for (trained, parameter) in trained.iter().zip(weights.trained().0) {
        let Some(shards) = config.shards_of(parameter) else { continue };
        let name = format!("grad.{}", trained.name);
        held.push(sum_to_host(graph, &shards, trained.gradient, &name, adds)?);
    }
    hoist(graph, first, &[]);
    Ok(held)
}

impl TrainerConfig {
    /// Sequences of a sample.
    pub(crate) fn sequences(&self) -> usize {
        (self.model.tokens() / self.model.seq_len().max(1)).max(1)
    }

    /// Declares the tensors of noise on embeddings, where there is some.
    ///
    /// # Errors
    /// [`Error::Setting`] where α isn't a number from 0 on, and where ranks share sequences.
    pub(crate) fn declare_noise(&self, graph: &mut Graph) -> Result<Option<Noise>> {
        let alpha = self.neftune;
        ensure(alpha.is_finite() && alpha >= 0.0, noise::KEY, || {
            format!("{alpha} must be 0 or more")
        })?;
        ensure(alpha == 0.0 || self.parts() == 1, noise::KEY, || {
            "noise is drawn over whole sequences: without context ranks".to_owned()
        })?;
        let sequences = self.micro_batch * self.sequences();
        Ok((alpha > 0.0).then(|| Noise::declare(graph, sequences)))
    }
}

/// The model of `config` over sequences of `seq_len` tokens, which are shorter.
///
/// # Errors
/// [`Error::Setting`] where it has none.
pub(crate) fn shorter_model(config: &TrainerConfig, seq_len: usize) -> Result<Arc<dyn Model>> {
    match config.model.with_seq_len(seq_len)? {
        Some(model) if seq_len < config.model.seq_len() => Ok(model),
        _ => {
            let problem = format!("the model has no shorter sequences of {seq_len} tokens");
            Err(Error::Setting { key: "data.buckets", problem })
        }
    }
}

/// Appends the update of what is `trained`, with the state of `shares`, another update, where that's given.
fn update(
    graph: &mut Graph,
    config: &TrainerConfig,
    declared: &Declared<'_>,
    trained: &[Trained],
    loss: Tensor,
    shares: Option<&Update>,
) -> Result<Update> {
    let (mut trained, first) = (trained.to_vec(), graph.node_count());
    let of_all = take_shards(graph, config, declared.weights, declared.shards, &mut trained)?;
    let options = UpdateOptions {
        weight_decay: config.weight_decay,
        clip: config.clip,
        zero_gradients: config.accumulates() && config.clears_in_update(),
        consume: config.consume_gradients,
        bits: config.optimizer_bits,
        table_bits: config.table_bits,
        key: declared.update_key,
    };
    let with = (loss, declared.loss_scale.as_ref());
    let update = append_sharing(graph, &config.optimizer, &options, &trained, with, shares)?;
    give_shards(graph, &trained, &update, &of_all)?;
    if config.consume_gradients {
        let wholes = declared.weights.trained().1.iter().zip(declared.shards);
        let wholes: Vec<_> =
            wholes.filter_map(|(&whole, shard)| Some((whole, (*shard)?))).collect();
        hoist(graph, first, &wholes);
    }
    for tensor in [loss, update.grad_norm, update.ok] {
        graph.result(tensor);
    }
    Ok(update)
}

/// Appends maps that set tensors to 0.
fn clear(graph: &mut Graph, tensors: &[Tensor]) -> Result<()> {
    for &tensor in tensors {
        // A map reads what it writes over, and nothing is less than itself.
        let zero = input(0).less(input(0));
        let zero = Map { in_place: vec![(0, 0)], ..Map::new(zero, graph.dtype(tensor)) };
        graph.one(zero, &[tensor], "clear")?;
    }
    Ok(())
}
