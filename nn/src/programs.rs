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
//! | `logits` | the logits of a batch, where they are asked for |
//! | `decode` | one more token of a text, over a cache of keys and values |

use std::sync::Arc;

use tightrope_core::expr::{constant, input};
use tightrope_core::ops::Map;
use tightrope_core::plan::offload::{load_block_weights, store_block_inputs, store_gradients};
use tightrope_core::plan::{Options, Target};
use tightrope_core::{Class, DType, Graph, Phase, Plan, Role, Tensor, Type, Wanted, grad, split};

use crate::error::ensure;
use crate::inputs::Inputs;
use crate::model::{Decoder, Model};
use crate::outputs::{Decode, decoding, logits};
use crate::params::Parameter;
use crate::pass::Pass;
use crate::watch::{self, Watched};
use crate::weights::{Weights, freeze};
use crate::{
    BuildOptions, Error, Estimate, Input, Lora, LossScale, Offload, Optimizer, Precision, Rates,
    Result, StateBits, Trained, Update, UpdateOptions, append_update, defaults,
};

/// Everything that decides what a training step computes and what it needs.
#[derive(Clone, Debug)]
pub struct TrainerConfig {
    /// The model.
    pub model: Arc<dyn Model>,
    /// Storage of weights and activations.
    pub precision: Precision,
    /// Samples of an optimizer step.
    pub batch: usize,
    /// Samples of one pass; divides `batch`.
    pub micro_batch: usize,
    /// Sizes that leave results as they are.
    pub build: BuildOptions,
    /// Update rule.
    pub optimizer: Optimizer,
    /// Bits of each number of optimizer state.
    pub optimizer_bits: StateBits,
    /// Decay of the parameters that it applies to.
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
    /// Names of parameters that training leaves as they are, in which `*` stands for any characters.
    pub frozen: Vec<String>,
    /// Adapters that are trained in place of the model's own parameters.
    pub lora: Option<Lora>,
    /// Names of tensors that steps keep for the host: an activation as plans name it, a layer for its output, `grad.` and the
    /// name of a parameter for its gradient before clipping. `*` stands for any characters.
    pub watch: Vec<String>,
    /// Whether there is a `logits` program.
    pub logits: bool,
}

impl TrainerConfig {
    /// What a run of `model` takes that says nothing else: steps of one sample, in f32, by AdamW.
    pub fn new(model: Arc<dyn Model>) -> Self {
        let (beta1, beta2, eps) = (defaults::BETA1, defaults::BETA2, defaults::EPS);
        let vocab = model.decoder().map(Decoder::vocab);
        Self {
            precision: Precision::F32,
            batch: 1,
            micro_batch: 1,
            build: BuildOptions { loss_chunk: vocab.map_or(0, defaults::loss_rows) },
            optimizer: Optimizer::AdamW { beta1, beta2, eps },
            optimizer_bits: StateBits::B32,
            weight_decay: defaults::WEIGHT_DECAY,
            clip: Some(defaults::CLIP),
            options: Options::default(),
            seed: defaults::SEED,
            decode: 0,
            offload: Offload::NONE,
            consume_gradients: false,
            frozen: vec![],
            lora: None,
            watch: vec![],
            logits: false,
            model,
        }
    }

    /// Micro-steps of an optimizer step.
    pub fn accumulation(&self) -> usize {
        self.batch / self.micro_batch
    }

    /// Tokens of an optimizer step: samples, where they aren't sequences.
    pub fn tokens(&self) -> usize {
        self.batch * self.model.tokens()
    }

    /// The model's parameters, each with whether it's frozen.
    ///
    /// # Errors
    /// [`Error::Setting`] for a name of a frozen one that none has.
    pub fn parameters(&self) -> Result<Vec<Parameter>> {
        let mut list = self.model.parameters();
        freeze(&mut list, &self.frozen)?;
        Ok(list)
    }

    /// The ways to make its transfers on `target`, the faster first: overlapped ones take bytes, which the smallest
    /// budgets don't have.
    pub fn ways(&self, target: &dyn Target) -> Vec<Self> {
        let overlaps = self.offload.transfers() && self.options.overlaps(target);
        let options = Options { overlap: false, ..self.options.clone() };
        let in_turn = overlaps.then(|| Self { options, ..self.clone() });
        [self.clone()].into_iter().chain(in_turn).collect()
    }

    /// Whether passes add to persistent gradients, for an update of its own.
    pub fn accumulates(&self) -> bool {
        self.accumulation() > 1 || self.offload.optimizer
    }

    /// Whether the device holds sums of gradients for an update by the host, and so clears them itself.
    pub(crate) fn clears(&self) -> bool {
        self.offload.optimizer && !self.offload.gradients
    }

    /// Declares the model's weights and adapters.
    fn declare(&self, graph: &mut Graph) -> Result<Weights> {
        Weights::adapted(graph, self.parameters()?, self.precision, self.lora.as_ref())
    }

    /// Whether a step draws random numbers. What the model draws is seen in a pass of its own: the key is declared before
    /// the pass that is planned.
    fn draws(&self) -> Result<bool> {
        if self.optimizer_bits.draws(&self.optimizer) {
            return Ok(true);
        }
        let mut graph = Graph::new();
        let weights = self.declare(&mut graph)?;
        let inputs = Inputs::declare(&mut graph, &self.model.inputs(), self.micro_batch)?;
        let key = random_key(&mut graph);
        let mut pass = Pass::training(&mut graph, &weights, inputs, self.build, Some(key));
        self.model.loss(&mut pass)?;
        Ok(pass.drew())
    }
}

/// Declares the key of a step's random numbers: seed (low, high), step and micro-step.
fn random_key(graph: &mut Graph) -> Tensor {
    graph.persistent("random_key", Type::new(DType::U32, [4]), Class::Input)
}

/// Tensors that the host writes and reads.
#[derive(Clone, Debug)]
pub(crate) struct Handles {
    /// The model's inputs, each with its tensor.
    pub(crate) inputs: Vec<(Input, Tensor)>,
    /// Key of random numbers, where a step draws any.
    pub(crate) key: Option<Tensor>,
    pub(crate) loss: Tensor,
    pub(crate) loss_sum: Option<Tensor>,
    /// What a step reads besides the loss, by name: sums where the loss is one.
    pub(crate) step_metrics: Vec<(String, Tensor)>,
    /// Gradients that micro-steps add to; none where a step is one micro-batch.
    pub(crate) accumulators: Vec<Tensor>,
    /// Master remainders of what is trained; none in f32.
    pub(crate) remainders: Vec<Tensor>,
    pub(crate) update: Update,
    pub(crate) loss_scale: Option<LossScale>,
    pub(crate) eval_loss: Tensor,
    /// What evaluation reads besides the loss, by name.
    pub(crate) metrics: Vec<(String, Tensor)>,
    pub(crate) decode: Option<Decode>,
    pub(crate) logits: Option<Tensor>,
    /// What steps keep for the host.
    pub(crate) watched: Vec<Watched>,
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
    pub(crate) weights: Weights,
    pub(crate) handles: Handles,
}

impl Planned {
    /// Builds all programs and plans them for `target`.
    ///
    /// # Errors
    /// [`Error::Setting`] and [`Error::Graph`].
    pub fn new(config: &TrainerConfig, target: &dyn Target) -> Result<Self> {
        let Built { graph, host, weights, handles } = Built::new(config)?;
        let plan = Plan::new(graph, &config.options, target)?;
        Ok(Self { plan, bound_s: None, host, config: config.clone(), weights, handles })
    }

    /// Time of a step at these rates.
    pub fn estimate(&self, rates: &Rates) -> Estimate {
        Estimate::new(&self.plan, self.host.as_ref(), self.config.accumulation(), rates)
    }

    /// [`Planned::bound_s`] at these rates, with what the host takes at least, whatever is recomputed.
    pub fn step_bound_s(&self, rates: &Rates) -> Option<f64> {
        // What the host adds up while the device works may take no time of its own.
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

    /// What it was planned for.
    pub fn config(&self) -> &TrainerConfig {
        &self.config
    }
}

/// The programs of a training step, and the tensors that the host uses.
pub(crate) struct Built {
    pub(crate) graph: Graph,
    pub(crate) host: Option<Graph>,
    pub(crate) weights: Weights,
    pub(crate) handles: Handles,
}

impl Built {
    pub(crate) fn new(config: &TrainerConfig) -> Result<Self> {
        let TrainerConfig { batch, micro_batch, ref model, .. } = *config;
        ensure(
            micro_batch > 0 && batch > 0 && batch.is_multiple_of(micro_batch),
            "micro_batch",
            || format!("{micro_batch} doesn't divide the batch of {batch} sequences"),
        )?;
        let mut graph = Graph::new();
        config.offload.check(config.lora.as_ref())?;
        ensure(
            !(config.consume_gradients && config.accumulates()),
            "memory.consume_gradients",
            || {
                "several passes, or the host, sum gradients before the update: have the device make one pass a step".into()
            },
        )?;
        let weights = config.declare(&mut graph)?;
        ensure(!weights.trained().0.is_empty(), "train.freeze", || {
            "it names every parameter, and leaves none to train".into()
        })?;
        let remainders = weights.declare_remainders(&mut graph);
        let list = model.inputs();
        let inputs = Inputs::declare(&mut graph, &list, micro_batch)?;
        let key = config.draws()?.then(|| random_key(&mut graph));
        let loss_scale =
            (config.precision == Precision::F16).then(|| LossScale::declare(&mut graph));
        let declared =
            Declared { weights: &weights, remainders: &remainders, inputs: &inputs, key };
        let Training { loss, loss_sum, metrics: step_metrics, accumulators, update, watched } =
            training(&mut graph, config, &declared, loss_scale.as_ref())?;
        graph.begin(Role::Eval);
        let mut pass = Pass::evaluation(&mut graph, &weights, inputs.clone(), config.build);
        let eval_loss = model.loss(&mut pass)?;
        let metrics = pass.into_metrics();
        graph.result(eval_loss);
        metrics.iter().for_each(|&(_, figure)| graph.result(figure));
        let decode = match config.decode {
            0 => None,
            positions => Some(decoding(&mut graph, &**model, &weights, &inputs, positions)?),
        };
        let logits =
            config.logits.then(|| logits(&mut graph, &**model, config.build, &weights, &inputs));
        let logits = logits.transpose()?;
        let with_tensor = |input: Input| {
            let tensor = inputs.get(&input.name)?;
            Ok((input, tensor))
        };
        let handles = Handles {
            inputs: list.into_iter().map(with_tensor).collect::<Result<_>>()?,
            key,
            loss,
            loss_sum,
            step_metrics,
            accumulators,
            remainders,
            update,
            loss_scale,
            eval_loss,
            metrics,
            decode,
            logits,
            watched,
        };
        let host = offloaded(&mut graph, config.offload);
        Ok(Self { graph, host, weights, handles })
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

/// What a training pass works on.
struct Declared<'a> {
    weights: &'a Weights,
    remainders: &'a [Tensor],
    inputs: &'a Inputs,
    key: Option<Tensor>,
}

/// What the programs of a training step leave.
struct Training {
    loss: Tensor,
    /// The sum of losses over micro-steps.
    loss_sum: Option<Tensor>,
    /// What is read besides the loss, by name.
    metrics: Vec<(String, Tensor)>,
    /// Sums of gradients over micro-steps.
    accumulators: Vec<Tensor>,
    update: Update,
    /// What the host reads by name.
    watched: Vec<Watched>,
}

/// Appends the programs of a training step.
fn training(
    graph: &mut Graph,
    config: &TrainerConfig,
    declared: &Declared<'_>,
    loss_scale: Option<&LossScale>,
) -> Result<Training> {
    let (accumulates, share) = (config.accumulates(), 1.0 / config.accumulation() as f64);
    let one = Type::new(DType::F32, [1]);
    let Declared { weights, remainders, inputs, key } = *declared;
    let (parameters, tensors) = weights.trained();
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
    let mut pass = Pass::training(graph, weights, inputs.clone(), config.build, key);
    let loss = config.model.loss(&mut pass)?;
    let mut metrics = pass.into_metrics();
    let wanted: Vec<Wanted> =
        tensors.iter().zip(&accumulators).map(|(&tensor, &into)| Wanted { tensor, into }).collect();
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
            weight: tensors[index],
            remainder: remainders.get(index).copied(),
            gradient,
            decay: parameter.decay,
            kind: parameter.kind,
            matrices: parameter.matrices(),
        });
    }
    let named: Vec<(String, Tensor)> =
        trained.iter().map(|t| (t.name.clone(), t.gradient)).collect();
    let pass = watch::Pass { accumulates, on_host: config.offload.gradients, scale: loss_scale };
    let watched = watch::keep(graph, &config.watch, &named, pass)?;
    if config.offload.gradients {
        let made: Vec<(Tensor, String)> =
            trained.iter().map(|t| (t.gradient, format!("grad.{}", t.name))).collect();
        accumulators = store_gradients(graph, &made)?.into_iter().map(Some).collect();
    }
    let mut total = loss;
    if let Some(sum) = loss_sum {
        let add = || Map {
            in_place: vec![(0, 0)],
            ..Map::new(input(0) + input(1) * constant(share), DType::F32)
        };
        graph.one(add(), &[sum, loss], "loss_sum.next")?;
        for (name, figure) in &mut metrics {
            let sum = graph.persistent(&format!("{name}_sum"), one.clone(), Class::Optimizer);
            graph.one(add(), &[sum, *figure], &format!("{name}_sum.next"))?;
            *figure = sum;
        }
        graph.begin(Role::Update);
        // Programs share persistent tensors by storage: the update reads what the last micro-step left.
        for (trained, accumulator) in trained.iter_mut().zip(&accumulators) {
            trained.gradient = accumulator.unwrap_or(trained.gradient);
        }
        total = sum;
    } else {
        metrics.iter().for_each(|&(_, figure)| graph.result(figure));
    }
    let options = UpdateOptions {
        weight_decay: config.weight_decay,
        clip: config.clip,
        zero_gradients: accumulates && !config.clears(),
        consume: config.consume_gradients,
        bits: config.optimizer_bits,
        key,
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
    Ok(Training { loss: total, loss_sum, metrics, accumulators, update, watched })
}
