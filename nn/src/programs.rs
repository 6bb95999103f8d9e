//! The programs of a training step, built and planned before any device sees them.
//!
//! | program | does |
//! |---|---|
//! | `train` | forward, backward and update, where a step is one micro-batch |
//! | `micro` | forward and backward, adding to persistent gradients, where it's several |
//! | `shorter` | as `train` or `micro`, over shorter sequences; one for each length |
//! | `update` | gradient norm and optimizer, after the last `micro`; on the host where it's offloaded |
//! | `add` | on the host, where gradients are offloaded: adds each to its sum |
//! | `clear` | sets gradients to 0 after an update on the host |
//! | `eval` | loss alone |
//! | `logits` | the logits of a batch, where they are asked for |
//! | `losses` | the loss of each sample of a batch, where they are asked for |
//! | `decode` | one more token of a text, over a cache of keys and values |

use std::sync::Arc;

use tightrope_core::batch::Mixed;
use tightrope_core::ops::{KEY_WORDS, SHARD_KEY_WORDS};
use tightrope_core::plan::offload::{load_block_weights, store_block_inputs};
use tightrope_core::plan::{Options, Target};
use tightrope_core::{Class, DType, Graph, Plan, Role, Tensor, Type, split};

use crate::error::{Error, ensure};
use crate::figure::Figure;
use crate::frozen::FrozenBits;
use crate::handles::{EvalHandles, Handles, LossesHandles, StepHandles};
use crate::inputs::{Ids, Inputs};
use crate::model::{Decoder, Model};
use crate::outputs::{Output, decoding};
use crate::params::Parameter;
use crate::pass::{Pass, of_teacher};
use crate::sharding::{declare_weights, keep_weight_shards};
use crate::share::Shares;
use crate::step::{Declared, Training, shorter_model};
use crate::weights::{Weights, freeze};
use crate::{
    BuildOptions, Estimate, GradientSums, Gradients, Input, Lora, LossScale, Master, Offload,
    Optimizer, Precision, Rates, Result, Shard, StateBits, TableBits, defaults,
};

/// Which programs a plan has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Programs {
    /// Those of a training step, and the loss alone.
    #[default]
    Training,
    /// Those that read the model: the loss alone where `loss`, and whichever of [`TrainerConfig::decode`], [`TrainerConfig::logits`] and
    /// [`TrainerConfig::losses`] are asked for. There are no gradients, no optimizer state and no masters.
    Inference {
        /// Whether there is an `eval` program.
        loss: bool,
        /// Storage of the weights of linear layers; those beside adapters are in [`Lora::base_bits`] where this says the precision's.
        weight_bits: FrozenBits,
    },
}

/// Everything that decides what a training step computes and what it needs.
#[derive(Clone, Debug)]
pub struct TrainerConfig {
    /// The model.
    pub model: Arc<dyn Model>,
    /// Storage of weights and activations.
    pub precision: Precision,
    /// Samples of an optimizer step.
    pub batch: usize,
    /// Samples of one pass; each of `ranks` makes as many passes of a step.
    pub micro_batch: usize,
    /// Processes that train together, each on its part of every batch.
    pub ranks: usize,
    /// How many neighbouring ranks have a part of each sequence: they share the context of a pass. Divides `ranks`.
    pub context_ranks: usize,
    /// What each of several ranks holds a shard of.
    pub shard: Shard,
    /// What trades memory for time and leaves results as they are.
    pub build: BuildOptions,
    /// Update rule.
    pub optimizer: Optimizer,
    /// Storage of gradients.
    pub gradients: Gradients,
    /// How those of several micro-batches are summed.
    pub gradient_sums: GradientSums,
    /// What is kept of 16-bit weights besides.
    pub master: Master,
    /// Bits of each number of optimizer state.
    pub optimizer_bits: StateBits,
    /// Those of tables, where state is in 8 bits.
    pub table_bits: TableBits,
    /// Decay of the parameters that it applies to.
    pub weight_decay: f64,
    /// Largest gradient norm.
    pub clip: Option<f64>,
    /// α of the noise on embeddings while it's trained (see [`crate::Pass::noised`]); 0 for none.
    pub neftune: f64,
    /// Choices of the planner.
    pub options: Options,
    /// Seed of weights and dropout.
    pub seed: u64,
    /// Positions of the decoder's cache; 0 for no `decode` program.
    pub decode: usize,
    /// What the host keeps for the device.
    pub offload: Offload,
    /// Weights are updated as soon as their gradients are made (see [`crate::UpdateOptions::consume`]): in steps of one pass.
    pub consume_gradients: bool,
    /// Names of frozen parameters, their own or those in checkpoints. `*` stands for any characters.
    pub frozen: Vec<String>,
    /// Adapters that are trained in place of the model's own parameters.
    pub lora: Option<Lora>,
    /// Names of tensors that steps keep for the host: an activation as plans name it, a layer for its output, `grad.` and the
    /// name of a parameter, its own or one in checkpoints, for its gradient before clipping. A layer may also have its name in
    /// checkpoints. `*` stands for any characters.
    pub watch: Vec<String>,
    /// Whether there is a `logits` program.
    pub logits: bool,
    /// Whether there is a `losses` program.
    pub losses: bool,
    /// Which programs there are.
    pub programs: Programs,
    /// Lengths of sequences below the model's that have training passes of their own, in the same arena and over the same gradients: for
    /// batches whose samples are that short. Where nothing is trained, those that [`TrainerConfig::losses`] has programs of too.
    pub shorter: Vec<usize>,
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
            ranks: 1,
            context_ranks: 1,
            shard: Shard::Nothing,
            build: BuildOptions {
                loss_chunk: vocab.map_or(0, defaults::loss_rows),
                ..BuildOptions::default()
            },
            optimizer: Optimizer::AdamW { beta1, beta2, eps },
            gradients: Gradients::F32,
            gradient_sums: GradientSums::Fused,
            master: Master::F32,
            optimizer_bits: StateBits::B32,
            table_bits: TableBits::B32,
            weight_decay: defaults::WEIGHT_DECAY,
            clip: Some(defaults::CLIP),
            neftune: 0.0,
            options: Options::default(),
            seed: defaults::SEED,
            decode: 0,
            offload: Offload::NONE,
            consume_gradients: false,
            frozen: vec![],
            lora: None,
            watch: vec![],
            logits: false,
            losses: false,
            programs: Programs::Training,
            shorter: vec![],
            model,
        }
    }

    /// Micro-steps of an optimizer step that each rank makes.
    pub fn accumulation(&self) -> usize {
        self.passes() / self.ranks.max(1)
    }

    /// Samples of an optimizer step that each rank takes, or has its part of.
    pub fn own_batch(&self) -> usize {
        self.batch * self.parts() / self.ranks.max(1)
    }

    /// Micro-steps of an optimizer step that all ranks make together.
    pub(crate) fn passes(&self) -> usize {
        self.batch / self.micro_batch * self.parts()
    }

    /// Parts of each sequence, a rank's each.
    pub(crate) fn parts(&self) -> usize {
        // A browser's tab has no others to train with.
        if cfg!(target_family = "wasm") { 1 } else { self.context_ranks }
    }

    /// The model of a pass: over a rank's part of sequences, where several have one.
    ///
    /// # Errors
    /// [`crate::Error::Setting`] where they can't.
    pub(crate) fn pass_model(&self) -> Result<Arc<dyn Model>> {
        let (ranks, parts) = (self.ranks, self.parts());
        if parts == 1 {
            return Ok(Arc::clone(&self.model));
        }
        let refused = |problem| Error::Setting { key: "run.context_ranks", problem };
        if parts == 0 || !ranks.is_multiple_of(parts) {
            return Err(refused(format!("{parts} isn't a divisor of {ranks} ranks")));
        }
        self.model
            .with_context_ranks(parts)?
            .ok_or_else(|| refused("this model needs each sequence whole: leave it out".to_owned()))
    }

    /// Tokens of an optimizer step: samples, where they aren't sequences.
    pub fn tokens(&self) -> usize {
        self.batch * self.model.tokens()
    }

    /// The model's parameters, each with whether it's frozen.
    ///
    /// # Errors
    /// [`crate::Error::Setting`] for a name of a frozen one that none has.
    pub fn parameters(&self) -> Result<Vec<Parameter>> {
        let mut list = self.model.parameters();
        freeze(&mut list, &self.frozen)?;
        Ok(list)
    }

    /// Lengths that have training passes of their own besides the model's: none where something is offloaded or watched, as what is
    /// moved has one shape, nor where a teacher goes along, or ranks have parts of sequences.
    pub fn shorter(&self) -> &[usize] {
        let whole = self.model.teacher().is_none() && self.parts() == 1;
        if self.offload.any() || !self.watch.is_empty() || !whole { &[] } else { &self.shorter }
    }

    /// The ways to make its transfers and exchanges on `target`, the faster first: overlapped ones take bytes, which the smallest
    /// budgets don't have.
    pub fn ways(&self, target: &dyn Target) -> Vec<Self> {
        let overlaps = self.offload.transfers() && self.options.overlaps(target)
            || self.ranks > 1 && self.options.exchanges_beside(target);
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

    /// Whether the update writes zeros over sums of gradients as it reads them: where they are what it reads, and in no parts.
    pub(crate) fn clears_in_update(&self) -> bool {
        let in_parts = self.gradients_leave() && self.offload.gradients;
        !self.clears() && self.sharded() != Shard::State && !in_parts
    }

    /// Declares the model's weights and adapters.
    pub(crate) fn declare(&self, graph: &mut Graph) -> Result<Weights> {
        let lora = self.lora.as_ref();
        let of_base = lora.map_or(FrozenBits::Precision, |lora| lora.base_bits);
        let bits = match self.programs {
            Programs::Inference { weight_bits, .. } if weight_bits != FrozenBits::Precision => {
                weight_bits
            }
            _ => of_base,
        };
        Weights::stored(graph, self.parameters()?, self.precision, lora, bits)
    }

    /// Declares the weights of the model's teacher, frozen.
    pub(crate) fn declare_teacher(&self, graph: &mut Graph) -> Result<Option<Weights>> {
        let Some(teacher) = self.model.teacher() else { return Ok(None) };
        let frozen = |parameter: Parameter| {
            let name = of_teacher(&parameter.name);
            Parameter { name, frozen: true, ..parameter }
        };
        let list = teacher.parameters().into_iter().map(frozen).collect();
        Weights::declare(graph, list, self.precision).map(Some)
    }

    /// Whether a step draws random numbers. What the model draws is seen in a pass of its own: the key is declared before
    /// the pass that is planned.
    fn draws(&self) -> Result<bool> {
        if self.update_draws() {
            return Ok(true);
        }
        let (mut graph, model) = (Graph::new(), self.pass_model()?);
        let weights = self.declare(&mut graph)?;
        let inputs = Inputs::declare(&mut graph, &model.inputs(), self.micro_batch)?;
        let key = random_key(&mut graph, "random_key", KEY_WORDS);
        let pass = Pass::training(&mut graph, &weights, inputs, self.build, Some(key));
        let mut pass = pass.with_context_ranks(self.parts());
        model.loss(&mut pass)?;
        Ok(pass.drew())
    }

    /// Whether an update draws random numbers.
    fn update_draws(&self) -> bool {
        self.optimizer_bits.draws(&self.optimizer) || self.master == Master::None
    }
}

/// Declares the key of a step's random numbers: seed (low, high), step and micro-step, and the rank where numbers are of its shards.
pub(crate) fn random_key(graph: &mut Graph, name: &str, words: usize) -> Tensor {
    graph.persistent(name, Type::new(DType::U32, [words]), Class::Input)
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
    /// [`crate::Error::Setting`] and [`crate::Error::Graph`].
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

    /// The same step with training passes over shorter sequences too, of these lengths. Choices stay as they are.
    ///
    /// # Errors
    /// As [`Planned::new`]; a model without sequences of these lengths.
    pub fn with_shorter(&self, lengths: &[usize], target: &dyn Target) -> Result<Self> {
        let config = TrainerConfig { shorter: lengths.to_vec(), ..self.config.clone() };
        Ok(Self { bound_s: self.bound_s, ..Self::new(&config, target)? })
    }

    /// The op that mixes the samples of a batch in the loss, so that a step is one micro-batch of one rank; `None` if none does.
    pub fn mixed(&self) -> Option<Mixed> {
        self.handles.eval.as_ref()?.mixed(&self.config)
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
        let TrainerConfig { batch, micro_batch, .. } = *config;
        let model = config.pass_model()?;
        ensure(
            micro_batch > 0 && batch > 0 && batch.is_multiple_of(micro_batch),
            "micro_batch",
            || format!("{micro_batch} doesn't divide the batch of {batch} sequences"),
        )?;
        // A browser's tab has no others to train with.
        let ranks = if cfg!(target_family = "wasm") { 1 } else { config.ranks };
        let passes = config.passes();
        ensure(ranks > 0 && passes.is_multiple_of(ranks), "run.ranks", || {
            format!(
                "{ranks} don't share the {passes} micro-batches of {micro_batch} of a step evenly"
            )
        })?;
        if let Programs::Inference { loss, .. } = config.programs {
            return Self::inference(config, loss);
        }
        let mut graph = Graph::new();
        graph.matrix_gradients = config.gradients.of_matrices();
        config.offload.check(config.lora.as_ref())?;
        config.master.check(config.precision)?;
        let compensated = config.gradients == Gradients::Kahan;
        ensure(!(compensated && config.offload.gradients), "memory.gradients", || {
            "is bf16-kahan, and the host sums gradients without it: take f32 or bf16, or leave them on the device"
                .into()
        })?;
        ensure(
            !(config.consume_gradients && config.accumulates()),
            "memory.consume_gradients",
            || {
                "several passes, or the host, sum gradients before the update: have the device make one pass a step".into()
            },
        )?;
        let several = config.accumulation() > 1;
        ensure(!(compensated && several && config.gradients_leave()), "memory.gradients", || {
            "is bf16-kahan, and shards of gradients are summed without it over several passes: take f32 or bf16, or --shard 1"
                .into()
        })?;
        let own_sums = several && !config.gradients_leave();
        let ordered = config.gradient_sums == GradientSums::Ordered;
        ensure(ranks == 1 || !(ordered && own_sums), "train.gradient_sums", || {
            let passes = config.accumulation();
            format!(
                "is ordered, and each of {ranks} ranks sums {passes} micro-batches before they are exchanged: take --shard 2 or 3, \
                 or larger micro-batches, one for each rank"
            )
        })?;
        let mut weights = config.declare(&mut graph)?;
        let mut teacher = config.declare_teacher(&mut graph)?;
        ensure(!weights.trained().0.is_empty(), "train.freeze", || {
            "it names every parameter, and leaves none to train".into()
        })?;
        let remainders = match config.master {
            Master::F32 => weights.cut_remainders(&mut graph, |p| config.shards_of(p)),
            Master::None => vec![],
        };
        let shards = declare_weights(&mut graph, config, &weights);
        let whole = config.parts() == 1 || !(config.logits || config.losses);
        ensure(whole, "run.context_ranks", || {
            "logits and the losses of samples are of whole sequences: leave it out".to_owned()
        })?;
        let list = model.inputs();
        let inputs = Inputs::declare(&mut graph, &list, micro_batch)?;
        let key = config.draws()?.then(|| random_key(&mut graph, "random_key", KEY_WORDS));
        // Ranks take other micro-batches, and round weights as one process does.
        let alike = !cfg!(target_family = "wasm") && ranks > 1 && config.update_draws();
        let words = match config.sharded() {
            Shard::Nothing => KEY_WORDS,
            Shard::State | Shard::Gradients | Shard::Weights => SHARD_KEY_WORDS,
        };
        let update_key = alike.then(|| random_key(&mut graph, "update.random_key", words));
        let noise = config.declare_noise(&mut graph)?;
        let loss_scale =
            (config.precision == Precision::F16).then(|| LossScale::declare(&mut graph));
        let shares = Shares::of_step(&mut graph, config, &*model, None)?;
        let declared = Declared {
            model: &*model,
            weights: &weights,
            teacher: teacher.as_ref(),
            remainders: &remainders,
            shards: &shards,
            key,
            update_key: update_key.or(key),
            noise,
            shares: &shares,
            loss_scale,
        };
        let training = Training::append(&mut graph, config, &declared, &inputs)?;
        let mut reads = reading(&mut graph, (config, &*model), &weights, (&list, &inputs), true)?;
        let shorter = training.append_shorter(&mut graph, config, &declared)?;
        let accumulators = training.accumulators();
        let Training { loss, loss_sum, metrics, update, watched, .. } = training;
        if config.sharded() == Shard::Weights {
            keep_weight_shards(&mut graph, config, [Some(&mut weights), teacher.as_mut()], &shards);
        }
        reads.step = Some(StepHandles {
            key,
            update_key,
            noise,
            shares,
            loss,
            loss_sum,
            metrics,
            accumulators,
            remainders,
            update,
            loss_scale,
            watched,
            shorter,
            teacher,
        });
        let host = offloaded(&mut graph, config.offload);
        Ok(Self { graph, host, weights, handles: reads })
    }

    /// The programs that read the model, and the tensors that the host uses.
    fn inference(config: &TrainerConfig, loss: bool) -> Result<Self> {
        let mut graph = Graph::new();
        let weights = config.declare(&mut graph)?;
        // A decoder has inputs of its own.
        let batches = loss || config.logits || config.losses;
        let list = if batches { config.model.inputs() } else { vec![] };
        let inputs = Inputs::declare(&mut graph, &list, config.micro_batch)?;
        let model = (config, &*config.model);
        let mut handles = reading(&mut graph, model, &weights, (&list, &inputs), loss)?;
        if config.losses {
            let shorter = config.shorter().iter();
            let append = |&seq_len| losses_of(&mut graph, config, &weights, seq_len);
            handles.shorter_losses = shorter.map(append).collect::<Result<_>>()?;
        }
        ensure(!graph.programs.is_empty(), "programs", || {
            "none is asked for: ask for the loss, logits, losses or decoding".to_owned()
        })?;
        Ok(Self { graph, host: None, weights, handles })
    }
}

/// Appends the programs that read a model: the loss where it's asked for, decoding, logits and losses. `list` are the inputs that are
/// declared, those of `part`: of the model, or of it over a rank's part of sequences. A decoder has whole ones.
fn reading(
    graph: &mut Graph,
    (config, part): (&TrainerConfig, &dyn Model),
    weights: &Weights,
    (list, inputs): (&[Input], &Inputs),
    loss: bool,
) -> Result<Handles> {
    let model = &*config.model;
    let eval = match loss {
        true => {
            let append = |graph: &mut Graph, shares: Option<&Shares>| -> Result<_> {
                graph.begin(Role::Eval);
                let pass = Pass::evaluation(graph, weights, inputs.clone(), config.build);
                let mut pass = pass.with_context_ranks(config.parts()).by_row();
                if let Some(shares) = shares {
                    pass = pass.with_shares(shares);
                }
                let loss = part.loss(&mut pass)?;
                Ok(pass.into_figures(loss))
            };
            let before = graph.clone();
            let (mut loss, mut metrics) = append(graph, None)?;
            let mut shares = Ok(Shares::alone());
            if !loss.is_by_row() || metrics.iter().any(|(_, figure)| !figure.is_by_row()) {
                *graph = before;
                shares = Shares::of_evaluation(graph, config, part)?;
                (loss, metrics) = append(graph, shares.as_ref().ok())?;
            }
            let figures = [&loss].into_iter().chain(metrics.iter().map(|(_, figure)| figure));
            figures.flat_map(Figure::tensors).for_each(|tensor| graph.result(tensor));
            Some(EvalHandles { shares, loss, metrics })
        }
        false => None,
    };
    let decode = match config.decode {
        0 => None,
        positions => Some(decoding(graph, model, weights, inputs, positions)?),
    };
    let mut program = |output: Output| output.program(graph, model, config.build, weights, inputs);
    let logits = config.logits.then(|| program(Output::Logits)).transpose()?;
    let losses = config.losses.then(|| program(Output::Losses)).transpose()?;
    let inputs = inputs.of(list.to_vec())?;
    let ids = inputs.iter().map(|&(_, tensor)| Ids::of(graph, tensor)).collect();
    Ok(Handles { inputs, ids, step: None, eval, decode, logits, losses, shorter_losses: vec![] })
}

/// Appends the losses of sequences of `seq_len` tokens, which are shorter than the model's.
fn losses_of(
    graph: &mut Graph,
    config: &TrainerConfig,
    weights: &Weights,
    seq_len: usize,
) -> Result<LossesHandles> {
    let model = shorter_model(config, seq_len)?;
    let list = model.inputs();
    let inputs = graph.scope(&format!("of_{seq_len}"), |graph| {
        Inputs::declare(graph, &list, config.micro_batch)
    })?;
    let program = graph.programs.len();
    let losses = Output::Losses.program(graph, &*model, config.build, weights, &inputs)?;
    Ok(LossesHandles { program, inputs: inputs.of(list)?, losses })
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
