//! Runs drawn at random, of every knob there is: each is planned within its budget, allocates what was predicted
//! and not a byte more, trains, and never runs out of memory. What can't be planned is refused.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use conformance::draw::Draw;
use conformance::language::{changed, language};
use conformance::parallel;
use conformance::values::uniform;
use pollster::block_on;
use tightrope_backend_cpu::Cpu;
use tightrope_backend_cpu::arena::ALIGNMENT;
use tightrope_backend_wgpu::Wgpu;
use tightrope_core::plan::{Checkpoint, Options, Target};
use tightrope_core::{Backend, Graph, Node, Plan};
use tightrope_nn::lora::ALL_LINEAR;
use tightrope_nn::{
    Batch, BuildOptions, Details, Family, Free, FrozenBits, Gradients, Lora, Master, ModelConfig,
    Optimizer, Planned, Precision, Rates, StateBits, TableBits, Trainer, TrainerConfig,
};

/// Runs on the processor, and on a GPU.
const ON_CPU: u64 = 1000;
const ON_WGPU: u64 = 100;
/// Steps of a run: the second begins with what the first left.
const STEPS: u64 = 2;

/// The system's allocator, which counts the arenas: what's aligned as they are.
struct Watched;

thread_local! {
    /// Bytes of the arenas that this thread holds.
    static ARENAS: Cell<u64> = const { Cell::new(0) };
}

fn count(layout: Layout, change: impl FnOnce(u64, u64) -> u64) {
    if layout.align() as u64 == ALIGNMENT {
        ARENAS.with(|bytes| bytes.set(change(bytes.get(), layout.size() as u64)));
    }
}

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Watched {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout, u64::wrapping_add);
        // SAFETY: passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout, u64::wrapping_add);
        // SAFETY: passed on.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        count(layout, u64::wrapping_sub);
        // SAFETY: passed on.
        unsafe { System.dealloc(start, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Watched = Watched;

/// Numbers of one run, drawn one after the other.
struct Draws {
    run: u64,
    drawn: u64,
}

impl Draws {
    fn unit(&mut self) -> f64 {
        self.drawn += 1;
        uniform(self.run, self.drawn)
    }

    /// A whole number from 1 to `most`.
    fn up_to(&mut self, most: usize) -> usize {
        1 + (self.unit() * most as f64) as usize
    }

    fn one_of<T: Clone>(&mut self, list: &[T]) -> T {
        list[self.up_to(list.len()) - 1].clone()
    }

    fn chance(&mut self, part: f64) -> bool {
        self.unit() < part
    }

    /// A probability of dropping something, more often than not 0.
    fn dropout(&mut self) -> f64 {
        if self.chance(0.3) { 0.1 } else { 0.0 }
    }

    fn model(&mut self) -> ModelConfig {
        // Half of them are the first two families, whose layers the others share.
        let family = match self.chance(0.5) {
            true => self.one_of(&[Family::Gpt2, Family::Llama]),
            false => self.one_of(Family::ALL),
        };
        let heads = self.one_of(&[1, 2, 3, 4]);
        let kv_heads = match family {
            Family::Gpt2 => heads,
            _ => self.one_of(&[1, heads]),
        };
        let width = match family {
            Family::Gpt2 => self.up_to(12),
            _ => 2 * self.up_to(6),
        };
        let name = if family == Family::Gpt2 { "tiny" } else { "llama-tiny" };
        let preset = tightrope_nn::preset(name).expect("a preset");
        let layers = self.up_to(4);
        let of_family = family.details(layers);
        let details = Details {
            window: of_family.window.map(|_| self.up_to(20)),
            head_dim: (family != Family::Gpt2 && self.chance(0.3)).then(|| 2 * self.up_to(6)),
            ..of_family
        };
        ModelConfig {
            family,
            details,
            layers,
            channels: heads * width,
            heads,
            kv_heads,
            hidden: self.up_to(90),
            context: self.up_to(40),
            vocab: self.up_to(150),
            tied: self.chance(0.5),
            dropout: self.dropout(),
            ..preset
        }
    }

    fn lora(&mut self, model: &ModelConfig) -> Lora {
        let layers: &[&str] = match model.family {
            Family::Gpt2 => &[ALL_LINEAR, "c_attn", "mlp.c_proj"],
            Family::Phi3 => &[ALL_LINEAR, "qkv_proj", "gate_up_proj", "down_proj"],
            _ => &[ALL_LINEAR, "q_proj", "v_proj", "down_proj"],
        };
        Lora {
            rank: self.up_to(model.hidden.max(model.channels).min(6)),
            alpha: 8.0,
            targets: vec![self.one_of(layers).into()],
            dropout: self.dropout(),
            base_bits: self.one_of(&[FrozenBits::Precision, FrozenBits::B8, FrozenBits::B4]),
        }
    }

    fn config(&mut self) -> TrainerConfig {
        let model = self.model();
        let batch = self.up_to(6);
        let parts: Vec<usize> = (1..=batch).filter(|n| batch.is_multiple_of(*n)).collect();
        let optimizers = [
            Optimizer::AdamW { beta1: 0.9, beta2: 0.95, eps: 1e-8 },
            Optimizer::Sgd { momentum: 0.0 },
            Optimizer::Sgd { momentum: 0.9 },
            Optimizer::Lion { beta1: 0.9, beta2: 0.99 },
            Optimizer::Adafactor,
        ];
        let lora = self.chance(0.4).then(|| self.lora(&model));
        // Muon is for whole weights.
        let optimizer = match lora.is_none() && self.chance(0.2) {
            true => Optimizer::muon(0.9, 0.95, 1e-8),
            false => self.one_of(&optimizers),
        };
        let seq_len = self.up_to(model.context);
        let precision = self.one_of(&[Precision::F32, Precision::BF16, Precision::F16]);
        let optimizer_bits = match optimizer {
            Optimizer::Adafactor => StateBits::B32,
            _ => self.one_of(&[StateBits::B32, StateBits::B16, StateBits::B8]),
        };
        TrainerConfig {
            precision,
            gradients: self.one_of(Gradients::ALL),
            master: match precision {
                Precision::BF16 => self.one_of(Master::ALL),
                _ => Master::F32,
            },
            batch,
            micro_batch: self.one_of(&parts),
            build: BuildOptions {
                loss_chunk: self.one_of(&[0, 1, 7, 32]),
                ..BuildOptions::default()
            },
            optimizer,
            optimizer_bits,
            table_bits: match optimizer_bits {
                StateBits::B8 => self.one_of(&[TableBits::B32, TableBits::B8]),
                _ => TableBits::B32,
            },
            clip: self.chance(0.7).then_some(1.0),
            options: Options {
                checkpoint: Checkpoint::None,
                fusion: self.chance(0.8),
                in_place: self.chance(0.8),
                ..Options::default()
            },
            seed: self.run,
            decode: if self.chance(0.3) { self.up_to(model.context) } else { 0 },
            lora,
            ..TrainerConfig::new(model.build(seq_len).expect("a model"))
        }
    }

    /// What a run is that says itself what it recomputes; none where the search is to choose.
    fn checkpoint(&mut self) -> Option<Checkpoint> {
        let kinds = [Checkpoint::None, Checkpoint::Block, Checkpoint::Every(2), Checkpoint::Sqrt];
        self.chance(0.25).then(|| self.one_of(&kinds))
    }

    /// A batch of ids of which few targets don't count, but the first of a sequence always.
    fn ids(&mut self, config: &TrainerConfig) -> (Vec<i32>, Vec<i32>) {
        let (count, model) = (config.tokens(), language(config));
        let (vocab, seq_len) = (model.config().vocab, model.seq_len());
        let tokens = (0..count).map(|_| self.up_to(vocab) as i32 - 1).collect();
        let mut target = |at: usize| {
            let id = self.up_to(vocab) as i32 - 1;
            if !at.is_multiple_of(seq_len) && self.chance(0.1) { -1 } else { id }
        };
        (tokens, (0..count).map(&mut target).collect())
    }
}

fn rate(graph: &Graph, node: &Node) -> f64 {
    Rates::of("cpu, avx512", Precision::F32, 2).seconds(graph, node)
}

/// The plan of a run, within a budget drawn between the fewest bytes that any takes and some more than the fastest
/// takes. A smaller budget than the fewest is refused, and a refusal names them.
fn planned(draws: &mut Draws, config: &TrainerConfig, target: &dyn Target) -> Planned {
    let run = draws.run;
    if let Some(checkpoint) = draws.checkpoint() {
        let options = Options { checkpoint, ..config.options.clone() };
        let config = TrainerConfig { options, ..config.clone() };
        return Planned::new(&config, target).expect("a plan");
    }
    let free = Free { micro_batch: draws.chance(0.5), loss_chunk: draws.chance(0.5) };
    let within = |budget| {
        let found = Planned::within(config, budget, free, target, &rate);
        found.unwrap_or_else(|error| panic!("run {run}: {error}"))
    };
    let (none, smallest) = within(0);
    assert!(none.is_none(), "run {run}: no plan takes no bytes");
    let (none, fewest) = within(smallest - 1);
    assert!(none.is_none(), "run {run}: {fewest} bytes are enough, not only {smallest}");
    assert_eq!(fewest, smallest, "run {run}");
    let whole = Planned::new(config, target).expect("a plan").plan.peak_bytes();
    let room = whole.saturating_sub(smallest) as f64;
    let budget = smallest + (1.1 * draws.unit() * room) as u64;
    let (found, bytes) = within(budget);
    let found = found.unwrap_or_else(|| panic!("run {run}: {budget} bytes are enough"));
    assert_eq!(found.plan.peak_bytes(), bytes, "run {run}");
    assert!(bytes <= budget, "run {run} takes {bytes} of {budget} bytes");
    found
}

/// Plans and trains one run on `backend`; gives it back with the run's plan.
fn trained(
    mut draws: Draws,
    config: &TrainerConfig,
    backend: Box<dyn Backend>,
) -> (Box<dyn Backend>, Plan) {
    let run = draws.run;
    let planned = planned(&mut draws, config, &*backend);
    let plan = planned.plan.clone();
    assert!(plan.lower_bound_bytes() <= plan.peak_bytes(), "run {run}");
    let mut trainer =
        Trainer::new(planned, backend).unwrap_or_else(|error| panic!("run {run}: {error}"));
    let predicted = plan.peak_bytes();
    assert_eq!(trainer.allocated_bytes(), predicted, "run {run}");
    trainer.initialise().expect("weights");
    let config = trainer.config().clone();
    for step in 0..STEPS {
        let (tokens, targets) = draws.ids(&config);
        trainer.step(step, 1e-3, &Batch::text(&tokens, &targets)).expect("a step");
        let loss = block_on(trainer.outcome()).expect("an outcome").loss;
        assert!(loss.is_finite(), "run {run}, step {step}: {loss} of {config:?}");
    }
    for position in 0..config.decode.min(2) {
        let logits = block_on(trainer.decode(0, position)).expect("logits");
        assert!(logits.iter().all(|logit| logit.is_finite()), "run {run} decodes {logits:?}");
    }
    assert_eq!(trainer.allocated_bytes(), predicted, "run {run}");
    (trainer.into_backend(), plan)
}

#[test]
fn a_thousand_random_runs_allocate_what_was_predicted() {
    let runs: Vec<u64> = (0..ON_CPU).collect();
    parallel::map(&runs, |&run| {
        let before = ARENAS.get();
        let cpu = Cpu::new(1 + (run % 2) as usize).expect("threads");
        let mut draws = Draws { run, drawn: 0 };
        let config = draws.config();
        let (cpu, plan) = trained(draws, &config, Box::new(cpu));
        assert_eq!(ARENAS.get() - before, plan.peak_bytes(), "run {run}");
        drop(cpu);
        assert_eq!(ARENAS.get(), before, "run {run} leaves nothing");
    });
}

/// A processor that stands for a GPU compiles a kernel for up to a second, so that a tenth of the runs are tried a day, and only
/// what needs few kernels is drawn: the sizes of two families with up to two blocks, batches, chunks and budgets.
#[test]
fn a_hundred_random_runs_on_a_gpu_allocate_what_was_predicted() {
    let wgpu = block_on(Wgpu::open(&Default::default()));
    let mut backend: Box<dyn Backend> =
        Box::new(wgpu.expect("an adapter: install mesa-vulkan-drivers"));
    for run in Draw::of_today().one_of(10, "random runs on a GPU", (0..ON_WGPU).collect()) {
        let mut draws = Draws { run, drawn: 0 };
        let drawn = draws.config();
        let small = changed(&drawn, |model| {
            (model.layers, model.dropout) = (model.layers.min(2), 0.0);
            let details = &mut model.details;
            for layers in [&mut details.windowed, &mut details.unrotated] {
                layers.retain(|&layer| layer < model.layers);
            }
        });
        let config = TrainerConfig {
            batch: drawn.batch,
            micro_batch: drawn.micro_batch,
            build: drawn.build,
            ..TrainerConfig::new(small.model)
        };
        (backend, _) = trained(draws, &config, backend);
    }
}
