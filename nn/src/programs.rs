//! The programs of a training step, built and planned before any device sees them.
//!
//! | program | does |
//! |---|---|
//! | `train` | forward, backward and update, where a step is one micro-batch |
//! | `micro` | forward and backward, adding to persistent gradients, where it's several |
//! | `update` | gradient norm and optimizer, after the last `micro`; on the host where it's offloaded |
//! | `add` | on the host, where gradients are offloaded: adds each to its sum |
//! | `clear` | sets gradients to 0 after an update on the host |
//! | `eval` | loss alone |
//! | `decode` | one more token of a text, over a cache of keys and values |

use tightrope_core::expr::{constant, input};
use tightrope_core::ops::Map;
use tightrope_core::plan::offload::{load_block_weights, store_block_inputs, store_gradients};
use tightrope_core::plan::{Options, Seconds, Target};
use tightrope_core::{Class, DType, Graph, Phase, Plan, Role, Tensor, Type, Wanted, grad, split};

use crate::error::ensure;
use crate::{
    BuildOptions, DecodeInputs, Error, Estimate, Free, Inputs, Lora, LossScale, Model, ModelConfig,
    Offload, Optimizer, Planner, Precision, Rates, Result, StateBits, Trained, Update,
    UpdateOptions, append_update, defaults,
};

/// Everything that decides what a training step computes and what it needs.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainerConfig {
    /// The model.
    pub model: ModelConfig,
    /// Storage of weights and activations.
    pub precision: Precision,
    /// Sequences of an optimizer step.
    pub batch: usize,
    /// Sequences of one pass; divides `batch`.
    pub micro_batch: usize,
    /// Tokens of a sequence, T.
    pub time: usize,
    /// Sizes that leave results as they are.
    pub build: BuildOptions,
    /// Update rule.
    pub optimizer: Optimizer,
    /// Bits of each number of optimizer state.
    pub optimizer_bits: StateBits,
    /// Decay of parameters of two or more dimensions.
    pub weight_decay: f64,
    /// Largest gradient norm.
    pub clip: Option<f64>,
    /// Choices of the planner.
    pub options: Options,
    /// Seed of weights and dropout.
    pub seed: u64,
    /// Positions of the decoder's cache; 0 for no `decode` program.
    pub decode: usize,
    /// What the host keeps for the device.
    pub offload: Offload,
    /// Weights are updated as soon as their gradients are made (see [`UpdateOptions::consume`]): in steps of one pass.
    pub consume_gradients: bool,
    /// Adapters that are trained in place of the model's own parameters.
    pub lora: Option<Lora>,
}

impl TrainerConfig {
    /// What a run of `model` takes that says nothing else: steps of one whole sequence, in f32, by AdamW.
    pub fn new(model: ModelConfig) -> Self {
        let (beta1, beta2, eps) = (defaults::BETA1, defaults::BETA2, defaults::EPS);
        Self {
            precision: Precision::F32,
            batch: 1,
            micro_batch: 1,
            time: model.context,
            build: BuildOptions { loss_chunk: defaults::loss_chunk(&model), attention_chunk: 0 },
            optimizer: Optimizer::AdamW { beta1, beta2, eps },
            optimizer_bits: StateBits::B32,
            weight_decay: defaults::WEIGHT_DECAY,
            clip: Some(defaults::CLIP),
            options: Options::default(),
            seed: defaults::SEED,
            decode: 0,
            offload: Offload::NONE,
            consume_gradients: false,
            lora: None,
            model,
        }
    }

    /// Micro-steps of an optimizer step.
    pub fn accumulation(&self) -> usize {
        self.batch / self.micro_batch
    }

    /// The ways to make its transfers on `target`, the faster first: what goes on beside ops takes bytes, which the
    /// smallest budgets don't have.
    pub fn ways(&self, target: &dyn Target) -> Vec<Self> {
        let overlaps = self.offload.transfers() && self.options.overlaps(target);
        let options = Options { overlap: false, ..self.options.clone() };
        let in_turn = overlaps.then(|| Self { options, ..self.clone() });
        [self.clone()].into_iter().chain(in_turn).collect()
    }

    /// Whether anything is dropped in training.
    fn draws(&self) -> bool {
        self.model.dropout > 0.0 || self.lora.as_ref().is_some_and(|lora| lora.dropout > 0.0)
    }

    /// Whether passes add to persistent gradients, for an update of its own.
    pub fn accumulates(&self) -> bool {
        self.accumulation() > 1 || self.offload.optimizer
    }

    /// Whether the device holds sums of gradients for an update by the host, and so clears them itself.
    pub(crate) fn clears(&self) -> bool {
        self.offload.optimizer && !self.offload.gradients
    }

    /// The ids of a step's inputs and targets, both (batch, T), as one pair for each micro-step.
    pub fn micro_batches<'a>(
        &self,
        inputs: &'a [i32],
        targets: &'a [i32],
    ) -> Vec<(&'a [i32], &'a [i32])> {
        let ids = self.micro_batch * self.time;
        inputs.chunks(ids).zip(targets.chunks(ids)).collect()
    }
}

/// Tensors that the host writes and reads.
#[derive(Clone, Debug)]
pub(crate) struct Handles {
    pub(crate) inputs: Inputs,
    pub(crate) loss: Tensor,
    pub(crate) loss_sum: Option<Tensor>,
    /// Gradients that micro-steps add to; none where a step is one micro-batch.
    pub(crate) accumulators: Vec<Tensor>,
    pub(crate) low: Vec<Tensor>,
    pub(crate) update: Update,
    pub(crate) loss_scale: Option<LossScale>,
    pub(crate) eval_loss: Tensor,
    pub(crate) decode: Option<(DecodeInputs, Tensor)>,
}

/// A planned training step that no device has seen yet.
#[derive(Clone)]
pub struct Planned {
    /// Where every byte goes.
    pub plan: Plan,
    /// Seconds of the device that no plan within the budget takes less than, of those that recompute activations of blocks over
    /// the micro-batches that were free; `None` of a plan that wasn't searched for.
    pub bound_s: Option<f64>,
    /// What the host runs and keeps, where something is offloaded.
    pub(crate) host: Option<Graph>,
    pub(crate) config: TrainerConfig,
    pub(crate) model: Model,
    pub(crate) handles: Handles,
}

impl Planned {
    /// Builds all programs and plans them for `target`.
    ///
    /// # Errors
    /// [`Error::Setting`] and [`Error::Graph`].
    pub fn new(config: &TrainerConfig, target: &dyn Target) -> Result<Self> {
        let Built { graph, host, model, handles } = Built::new(config)?;
        let plan = Plan::new(graph, &config.options, target)?;
        Ok(Self { plan, bound_s: None, host, config: config.clone(), model, handles })
    }

    /// Time of a step at these rates.
    pub fn estimate(&self, rates: &Rates) -> Estimate {
        Estimate::new(&self.plan, self.host.as_ref(), self.config.accumulation(), rates)
    }

    /// [`Planned::bound_s`] at these rates, with what the host takes at least, whatever is recomputed.
    pub fn step_bound_s(&self, rates: &Rates) -> Option<f64> {
        // What the host adds up beside the device may take no time of its own.
        let passes = if self.plan.options.overlap { 0 } else { self.config.accumulation() };
        let of = |host| {
            let adds_s = passes as f64 * rates.add_seconds(host);
            rates.host_seconds(&self.plan.graph, host) + adds_s
        };
        Some(self.bound_s? + self.host.as_ref().map_or(0.0, of))
    }

    /// The plan of what runs on the host, for its rules; `None` where nothing is offloaded.
    ///
    /// # Errors
    /// As [`Planned::new`].
    pub fn host_plan(&self, host: &dyn Target) -> Result<Option<Plan>> {
        let plan = |graph: &Graph| Plan::new(graph.clone(), &Options::default(), host);
        Ok(self.host.as_ref().map(plan).transpose()?)
    }

    /// The fastest plan that fits `budget` bytes when ops take `seconds`, over what is `free` and over what is recomputed, and
    /// its bytes. `None` where none fits, and the fewest bytes that one takes.
    ///
    /// # Errors
    /// As [`Planned::new`].
    pub fn within(
        config: &TrainerConfig,
        budget: u64,
        free: Free,
        target: &dyn Target,
        seconds: Seconds<'_>,
    ) -> Result<(Option<Self>, u64)> {
        Planner::new(config, free, target, seconds)?.within(budget)
    }

    /// What it was planned for.
    pub fn config(&self) -> &TrainerConfig {
        &self.config
    }
}

/// The programs of a training step, and the tensors that the host uses.
pub(crate) struct Built {
    pub(crate) graph: Graph,
    pub(crate) host: Option<Graph>,
    pub(crate) model: Model,
    pub(crate) handles: Handles,
}

impl Built {
    pub(crate) fn new(config: &TrainerConfig) -> Result<Self> {
        let TrainerConfig { batch, micro_batch, time, .. } = *config;
        ensure(
            micro_batch > 0 && batch > 0 && batch.is_multiple_of(micro_batch),
            "micro_batch",
            || format!("{micro_batch} doesn't divide the batch of {batch} sequences"),
        )?;
        let mut graph = Graph::new();
        let lora = config.lora.as_ref();
        config.offload.check(lora)?;
        ensure(
            !(config.consume_gradients && config.accumulates()),
            "memory.consume_gradients",
            || {
                "several passes, or the host, sum gradients before the update: have the device make one pass a step".into()
            },
        )?;
        let model = Model::adapted(&mut graph, &config.model, config.precision, lora)?;
        let low = model.declare_low(&mut graph);
        let ids = |graph: &mut Graph, name: &str, shape: &[usize]| {
            graph.persistent(name, Type::new(DType::I32, shape), Class::Input)
        };
        let inputs = Inputs {
            tokens: ids(&mut graph, "tokens", &[micro_batch, time]),
            targets: ids(&mut graph, "targets", &[micro_batch, time]),
            positions: ids(&mut graph, "positions", &[time]),
            start: ids(&mut graph, "start", &[1]),
            key: (config.draws() || config.optimizer_bits.draws(&config.optimizer))
                .then(|| graph.persistent("random_key", Type::new(DType::U32, [4]), Class::Input)),
        };
        let loss_scale =
            (config.precision == Precision::F16).then(|| LossScale::declare(&mut graph));
        let (loss, loss_sum, accumulators, update) =
            training(&mut graph, config, &model, &inputs, &low, loss_scale.as_ref())?;
        graph.begin(Role::Eval);
        let eval_loss = model.loss(&mut graph, &Inputs { key: None, ..inputs }, &config.build)?;
        graph.result(eval_loss);
        let decode = if config.decode > 0 {
            graph.begin(Role::Decode);
            let inputs = DecodeInputs {
                tokens: ids(&mut graph, "decode.tokens", &[1, 1]),
                positions: ids(&mut graph, "decode.positions", &[1]),
                start: inputs.start,
            };
            let logits = graph.scope("decode", |graph| {
                let caches = model.caches(graph, 1, config.decode)?;
                model.decode(graph, &inputs, &caches)
            })?;
            graph.result(logits);
            Some((inputs, logits))
        } else {
            None
        };
        let handles = Handles {
            inputs,
            loss,
            loss_sum,
            accumulators,
            low,
            update,
            loss_scale,
            eval_loss,
            decode,
        };
        let host = offloaded(&mut graph, config.offload);
        Ok(Self { graph, host, model, handles })
    }
}

/// Puts the transfers of what is offloaded into the programs, and takes those out that the host runs.
fn offloaded(graph: &mut Graph, offload: Offload) -> Option<Graph> {
    if offload.activations {
        store_block_inputs(graph);
    }
    if offload.weights {
        load_block_weights(graph);
    }
    let roles: &[Role] = if offload.optimizer { &[Role::Add, Role::Update] } else { &[] };
    offload.any().then(|| split(graph, roles))
}

/// Appends the programs of a training step: its loss, the sum of losses and the sums of gradients over
/// micro-steps, the update.
fn training(
    graph: &mut Graph,
    config: &TrainerConfig,
    model: &Model,
    inputs: &Inputs,
    low: &[Tensor],
    loss_scale: Option<&LossScale>,
) -> Result<(Tensor, Option<Tensor>, Vec<Tensor>, Update)> {
    let (accumulates, share) = (config.accumulates(), 1.0 / config.accumulation() as f64);
    let one = Type::new(DType::F32, [1]);
    let (parameters, weights) = model.trained();
    let mut accumulators: Vec<Option<Tensor>> = parameters
        .iter()
        .map(|parameter| {
            let ty = Type::new(DType::F32, parameter.shape.clone());
            let name = format!("grad.{}", parameter.name);
            let held = accumulates && !config.offload.gradients;
            held.then(|| graph.persistent(&name, ty, Class::Gradient))
        })
        .collect();
    let loss_sum = accumulates.then(|| graph.persistent("loss_sum", one.clone(), Class::Optimizer));
    graph.begin(if accumulates { Role::Micro } else { Role::Train });
    // The seed comes first, so that the loss can make its gradient at once.
    let seed = match loss_scale {
        Some(scale) => {
            let map = Map::new(input(0) * constant(share), DType::F32);
            graph.one(map, &[scale.scale], "loss_seed")?
        }
        None => graph.one(Map::fill(share, &one), &[], "loss_seed")?,
    };
    let loss = model.loss(graph, inputs, &config.build)?;
    let wanted: Vec<Wanted> =
        weights.iter().zip(&accumulators).map(|(&tensor, &into)| Wanted { tensor, into }).collect();
    let gradients = grad(graph, loss, seed, &wanted)?;
    let mut trained = vec![];
    for (index, (parameter, gradient)) in parameters.iter().zip(gradients).enumerate() {
        let gradient = gradient.ok_or_else(|| Error::Setting {
            key: "model",
            problem: format!("the loss doesn't depend on `{}`", parameter.name),
        })?;
        graph.info_mut(gradient).class = Class::Gradient;
        trained.push(Trained {
            name: parameter.name.clone(),
            weight: weights[index],
            low: low.get(index).copied(),
            gradient,
            decay: parameter.decay,
            table: parameter.table,
        });
    }
    if config.offload.gradients {
        let made: Vec<(Tensor, String)> =
            trained.iter().map(|t| (t.gradient, format!("grad.{}", t.name))).collect();
        accumulators = store_gradients(graph, &made)?.into_iter().map(Some).collect();
    }
    let mut total = loss;
    if let Some(sum) = loss_sum {
        let add = Map {
            in_place: vec![(0, 0)],
            ..Map::new(input(0) + input(1) * constant(share), DType::F32)
        };
        graph.one(add, &[sum, loss], "loss_sum.next")?;
        graph.begin(Role::Update);
        // Programs share persistent tensors by storage: the update reads what the last micro-step left.
        for (trained, accumulator) in trained.iter_mut().zip(&accumulators) {
            trained.gradient = accumulator.unwrap_or(trained.gradient);
        }
        total = sum;
    }
    let options = UpdateOptions {
        weight_decay: config.weight_decay,
        clip: config.clip,
        zero_gradients: accumulates && !config.clears(),
        consume: config.consume_gradients,
        bits: config.optimizer_bits,
        key: inputs.key,
    };
    let update = append_update(graph, &config.optimizer, &options, &trained, total, loss_scale)?;
    for tensor in [total, update.grad_norm, update.ok] {
        graph.result(tensor);
    }
    let accumulators: Vec<Tensor> = accumulators.into_iter().flatten().collect();
    if config.clears() {
        graph.begin(Role::Clear);
        graph.set_phase(Phase::Update);
        for &gradient in &accumulators {
            // A map reads what it writes over, and nothing is less than itself.
            let zero = input(0).less(input(0));
            let zero = Map { in_place: vec![(0, 0)], ..Map::new(zero, DType::F32) };
            graph.one(zero, &[gradient], "clear")?;
        }
    }
    Ok((total, loss_sum, accumulators, update))
}
