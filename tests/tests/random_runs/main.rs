//! Runs drawn at random, of every knob there is: each is planned within its budget, allocates what was predicted
//! and not a byte more, trains, and never runs out of memory. What can't be planned is refused. And runs of drawn shapes, on
//! every instruction set that the processor has.

mod draws;
mod instructions;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use conformance::draw::Draw;
use conformance::language::changed;
use conformance::parallel;
use draws::Draws;
use pollster::block_on;
use tightrope_backend_cpu::Cpu;
use tightrope_backend_cpu::arena::ALIGNMENT;
use tightrope_backend_wgpu::Wgpu;
use tightrope_core::plan::{Options, Target};
use tightrope_core::{Backend, Graph, Node, Plan};
use tightrope_nn::{Batch, Free, Planned, Precision, Rates, Trainer, TrainerConfig};

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
        let mut draws = Draws::of(run);
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
        let mut draws = Draws::of(run);
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
