//! What the CUDA backend asks of a device, and when: seen by a driver that writes it down, and by the emulated one, which
//! begins nothing before somebody waits.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pollster::block_on;
use tightrope_backend_cpu::Cpu;
use tightrope_backend_cuda::driver::{
    Copies, Driver, Emulated, HALF_BYTES, HALVES, Queue, Staging,
};
use tightrope_backend_cuda::matmuls::Makers;
use tightrope_backend_cuda::source::MOST_ARGUMENT_BYTES;
use tightrope_backend_cuda::{Cuda, kernels_of};
use tightrope_core::launch::Launch;
use tightrope_core::{Backend, Op, Phase, Role, Rule};
use tightrope_nn::{
    Batch, ModelConfig, Offload, Outcome, Planned, Precision, Trainer, TrainerConfig,
};

use crate::watched::{Asked, Watched};

/// Bytes that differ wherever they are, for write number `round`.
fn bytes(round: usize, count: usize) -> Vec<u8> {
    (0..count).map(|i| (i * 7 + i / 251 + round * 13) as u8).collect()
}

#[test]
fn writes_take_turns_between_two_halves_and_arrive_as_they_were() {
    let mut device = Watched::new();
    let mut staging = Staging::default();
    let size = HALVES * HALF_BYTES + HALF_BYTES / 2 + 5;
    device.allocate(2 * size as u64).unwrap();
    for round in 0..2 {
        let at = (round * size) as u64;
        staging.write(&mut device, at, &bytes(round, size)).unwrap();
    }
    // The host waits for a half that it filled before, and for none while there's room.
    use Asked::{Copy, Mark, Wait};
    let turn = |from, to| [Copy, Mark(from), Wait(to)];
    let asked = device.asked.take();
    assert_eq!(asked[..6], [turn(0, 1), turn(1, 0)].concat());
    // The end of the first write and the beginning of the second share a half.
    assert_eq!(asked[6..8], [Copy, Copy]);
    for round in 0..2 {
        let start = (round * size) as u64;
        let range = start..start + size as u64;
        assert_eq!(device.read(&[range]).unwrap(), bytes(round, size), "write {round}");
    }
}

/// How many of some asynchronous copies were wrong, where a queue is never told what to wait for.
fn wrong_copies(forgets: Option<Queue>) -> usize {
    const ROUNDS: usize = 32;
    const BYTES: usize = 1000;
    let mut device = Watched { forgets, ..Watched::new() };
    let (mut staging, mut copies) = (Staging::default(), Copies::default());
    device.allocate(2 * BYTES as u64).unwrap();
    let (stored, loaded) = (0..BYTES as u64, BYTES as u64..2 * BYTES as u64);
    let mut wrong = 0;
    for round in 0..ROUNDS {
        let [first, second, other] = [0, 1, 2].map(|part| bytes(3 * round + part, BYTES));
        // Both places are written in the kernels' queue, before the copies and after the store.
        staging.write(&mut device, stored.start, &first).unwrap();
        staging.write(&mut device, loaded.start, &other).unwrap();
        copies.begin_store(&mut device, stored.clone()).unwrap();
        let mut to = copies.begin_load(&mut device, &loaded).unwrap();
        to.bytes().unwrap().copy_from_slice(&second);
        copies.end_load(&mut device, to, loaded.clone()).unwrap();
        let mut from = copies.end_store(&mut device, &stored).unwrap();
        staging.write(&mut device, stored.start, &other).unwrap();
        let found = device.read(std::slice::from_ref(&loaded)).unwrap();
        wrong += usize::from(found != second);
        wrong += usize::from(from.bytes().unwrap() != first);
    }
    wrong
}

#[test]
fn copies_are_wrong_wherever_a_queue_does_not_wait() {
    assert_eq!(wrong_copies(None), 0);
    for queue in [Queue::Kernels, Queue::Loads, Queue::Stores] {
        let wrong = wrong_copies(Some(queue));
        assert!(wrong > 0, "nobody sees that {queue:?} wait for nothing");
        println!("{queue:?} wait for nothing: {wrong} wrong copies");
    }
}

fn trainer(device: Watched, micro_batch: usize) -> Trainer {
    trainer_with(Cuda::new(Box::new(device)), micro_batch)
}

fn config(micro_batch: usize) -> TrainerConfig {
    let mut model = tightrope_nn::preset("tiny").expect("a preset");
    (model.layers, model.channels, model.heads, model.kv_heads) = (1, 16, 1, 1);
    (model.hidden, model.context, model.vocab) = (64, 12, 20);
    TrainerConfig {
        batch: 2,
        micro_batch,
        seed: 4,
        ..TrainerConfig::new(model.build(12).expect("a model"))
    }
}

fn trainer_with(backend: Cuda, micro_batch: usize) -> Trainer {
    let config = config(micro_batch);
    let backend = Box::new(backend);
    let planned = Planned::new(&config, &*backend).expect("a plan");
    let mut trainer = Trainer::new(planned, backend).expect("memory");
    trainer.initialise().expect("weights");
    trainer
}

/// Ids of inputs and targets.
fn ids() -> (Vec<i32>, Vec<i32>) {
    ((0..24).map(|i| i * i % 19).collect(), (1..25).map(|i| i * i % 19).collect())
}

#[test]
fn a_step_is_replayed_and_nobody_waits_but_for_its_loss() {
    // A step that is stopped ends before its weights change: they change in a replay of their own.
    for (micro_batch, replays) in [(2, 2), (1, 4)] {
        let device = Watched::new();
        let asked = device.asked.clone();
        let mut trainer = trainer(device, micro_batch);
        assert!(asked.borrow().contains(&Asked::Record));
        asked.take();
        let (tokens, targets) = ids();
        let mut steps = vec![];
        for step in 0..3 {
            trainer.step(step, 1e-3, &Batch::text(&tokens, &targets)).expect("a step");
            steps.push(asked.take());
        }
        for step in &steps {
            let replayed: Vec<&Asked> =
                step.iter().filter(|&&asked| asked != Asked::Copy).collect();
            assert_eq!(replayed.len(), replays, "{step:?}");
            assert!(replayed.iter().all(|asked| matches!(asked, Asked::Replay(_))), "{step:?}");
            assert_eq!(*step, steps[0]);
        }
        block_on(trainer.outcome()).expect("an outcome");
        assert_eq!(asked.take(), [Asked::Read]);
    }
}

/// What is done with every parameter alike is a launch for all of about a size.
#[test]
fn all_parameters_are_updated_at_once() {
    let backend = Cuda::new(Box::new(Watched::new()));
    let planned = Planned::new(&config(2), &backend).expect("a plan");
    let program = planned.plan.graph.programs.first().expect("a program");
    let mut seen = 0;
    for node in &program.nodes {
        let (inputs, outputs) = planned.plan.graph.types(node);
        let parameters = inputs.len() > 20;
        if node.phase != Phase::Update || !parameters && !matches!(node.op, Op::SquareSum(_)) {
            continue;
        }
        let launches = node.op.launch(backend.limits(), &inputs, &outputs).expect("kernels").list;
        let kernels = kernels_of(&launches, MOST_ARGUMENT_BYTES).expect("kernels");
        println!("{}: {} launches, {} kernels", node.op.name(), launches.len(), kernels.len());
        assert!(launches.len() > 5 && 4 * kernels.len() <= launches.len(), "{}", node.op.name());
        seen += 1;
    }
    assert!(seen >= 2, "squares, and a map of each kind");
}

#[test]
fn between_transfers_a_step_is_replayed() {
    let (tokens, targets) = ids();
    let offload = Offload { optimizer: true, gradients: true, activations: true, weights: false };
    let device = Watched::new();
    let asked = device.asked.clone();
    let backend: Box<dyn Backend> = Box::new(Cuda::new(Box::new(device)));
    let config = TrainerConfig { offload, ..config(2) };
    let planned = Planned::new(&config, &*backend).expect("a plan");
    let ranges: usize =
        planned.plan.programs.iter().map(|program| program.uninterrupted(false).len()).sum();
    let host = Box::new(Cpu::new(1).expect("a thread"));
    let mut trainer = Trainer::offloading(planned, backend, host).expect("memory");
    trainer.initialise().expect("weights");
    asked.take();
    trainer.step(0, 1e-3, &Batch::text(&tokens, &targets)).expect("a step");
    let count = |is: fn(&Asked) -> bool| asked.borrow().iter().filter(|asked| is(asked)).count();
    let replays = count(|asked| matches!(asked, Asked::Replay(_)));
    let launches = count(|asked| matches!(asked, Asked::Launch));
    println!("{ranges} ranges: {replays} replays and {launches} launches");
    assert!(replays > 2 && replays + launches <= ranges);
    // Single ones, between two transfers.
    assert!(launches < replays);
}

#[test]
fn a_replay_gives_the_bits_of_its_launches_one_by_one() {
    let (tokens, targets) = ids();
    let batch = Batch::text(&tokens, &targets);
    let mut replayed = trainer(Watched::new(), 2);
    replayed.step(0, 1e-3, &batch).expect("a step");
    let device = Watched::new().one_by_one();
    let asked = device.asked.clone();
    let mut launched = trainer(device, 2);
    asked.take();
    launched.step(0, 1e-3, &batch).expect("a step");
    assert!(asked.borrow().contains(&Asked::Launch));
    assert!(!asked.borrow().iter().any(|asked| matches!(asked, Asked::Replay(_))));
    let outcome = |trainer: &mut Trainer| -> Outcome { block_on(trainer.outcome()).expect("one") };
    assert_eq!(outcome(&mut replayed), outcome(&mut launched));
}

#[test]
fn fewer_launches_run_as_one_where_arguments_have_less_room() {
    let (tokens, targets) = ids();
    let made = |argument_bytes: usize| {
        let device = Watched { argument_bytes, ..Watched::new().one_by_one() };
        let asked = device.asked.clone();
        let mut trainer = trainer(device, 2);
        asked.take();
        let batch = Batch::text(&tokens, &targets);
        trainer.step(0, 1e-3, &batch).expect("a step");
        (count(&asked.take(), Asked::Launch), block_on(trainer.outcome()).expect("an outcome"))
    };
    let (all, outcome) = made(MOST_ARGUMENT_BYTES);
    // Room for a dozen launches that square, and for two.
    for (bytes, more) in [(1024, 1), (256, 5)] {
        let (launches, same) = made(bytes);
        println!("{launches} launches with {bytes} bytes of arguments, {all} with all");
        assert!(launches >= all + more);
        assert_eq!(same, outcome);
    }
}

/// What a device was asked for while it readied a plan and made a step task by task; the step's outcome; and the bytes that
/// were allocated.
fn made_by(makers: Makers, choices: &Path) -> (Vec<Asked>, Vec<Asked>, Outcome, u64) {
    let (tokens, targets) = ids();
    let device = Watched::keeping(choices.to_owned()).one_by_one();
    let asked = device.asked.clone();
    let mut backend = Cuda::new(Box::new(device));
    backend.matmuls_by(makers).expect("what stands for the library");
    let mut trainer = trainer_with(backend, 2);
    let before = asked.take();
    let batch = Batch::text(&tokens, &targets);
    trainer.step(0, 1e-3, &batch).expect("a step");
    let outcome = block_on(trainer.outcome()).expect("an outcome");
    (before, asked.take(), outcome, trainer.allocated_bytes())
}

fn count(asked: &[Asked], of: Asked) -> usize {
    asked.iter().filter(|&&asked| asked == of).count()
}

#[test]
fn matmuls_go_to_whoever_is_faster_and_are_timed_once() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let choices = folder.join(format!("matmuls-{}.tsv", std::process::id()));
    let (_, own, by_kernels, bytes) = made_by(Makers::Kernels, &choices);
    assert_eq!(count(&own, Asked::Multiply), 0);
    let (readied, all, by_library, _) = made_by(Makers::Library, &choices);
    assert!(count(&readied, Asked::Time) > 0);
    // Random numbers before it's timed, and zeros after.
    assert_eq!((count(&readied, Asked::Repeat), count(&readied, Asked::Clear)), (1, 1));
    let matmuls = count(&all, Asked::Multiply);
    assert!(matmuls >= 15, "only {matmuls} of the library");
    // What the first one timed is known to all that come after.
    let (readied, fastest, by_both, with_workspace) = made_by(Makers::Fastest, &choices);
    assert_eq!(count(&readied, Asked::Time) + count(&readied, Asked::Repeat), 0);
    let of_library = count(&fastest, Asked::Multiply);
    assert!(of_library > 0 && of_library < matmuls, "{of_library} of {matmuls}");
    assert!(with_workspace > bytes, "the workspace is counted");
    std::fs::remove_file(&choices).expect("a file of what was timed");
    for outcome in [by_library, by_both] {
        assert!((outcome.loss - by_kernels.loss).abs() < 1e-5, "{outcome:?}");
        assert!((outcome.grad_norm / by_kernels.grad_norm - 1.0).abs() < 1e-4, "{outcome:?}");
    }
}

#[test]
fn what_is_timed_is_neither_how_a_launch_begins_nor_who_else_is_there() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let times = |unsteady: bool| {
        let choices = folder.join(format!("times-{unsteady}-{}.tsv", std::process::id()));
        let device = Watched { unsteady, ..Watched::keeping(choices.clone()) };
        let mut backend = Cuda::new(Box::new(device));
        backend.matmuls_by(Makers::Fastest).expect("a library");
        let planned = Planned::new(&config(2), &backend).expect("a plan");
        backend.prepare(Arc::new(planned.plan)).expect("memory");
        let text = std::fs::read_to_string(&choices).expect("a file of what was timed");
        std::fs::remove_file(&choices).expect("a file");
        let line = |line: &str| {
            let fields: Vec<&str> = line.split('\t').collect();
            let seconds = |field: &str| field.parse::<f64>().expect("seconds");
            let library = (fields.len() > 3).then(|| seconds(fields[fields.len() - 1]));
            (fields[0].to_owned(), [seconds(fields[1]), library.unwrap_or(f64::INFINITY)])
        };
        text.lines().skip(1).map(line).collect::<Vec<_>>()
    };
    let (steady, unsteady) = (times(false), times(true));
    assert!(steady.len() > 3 && steady.len() == unsteady.len());
    // The emulated device says that a block takes a microsecond, and a replay five more until it begins.
    let least = steady.iter().map(|(_, [own, _])| *own).fold(f64::INFINITY, f64::min);
    assert!(least < 2.5e-6, "{least}");
    for ((key, [own, library]), (other, late)) in steady.iter().zip(&unsteady) {
        assert_eq!(key, other);
        for (exact, late) in [own, library].into_iter().zip(late) {
            let apart = late - exact;
            assert!(
                exact == late || (0.0..1e-6 + 0.05 * exact).contains(&apart),
                "{key}: {exact}, {late}"
            );
        }
    }
}

#[test]
fn random_numbers_fill_the_arena_however_late_they_are_copied() {
    for seed in 0..4 {
        let mut device = Emulated::new(PathBuf::new(), seed);
        let size = 1000 + 3 * HALF_BYTES;
        device.allocate(size as u64).unwrap();
        let mut staging = Staging::default();
        staging.write(&mut device, 0, &bytes(1, size)).unwrap();
        device.read(std::slice::from_ref(&(0..1))).unwrap();
        let block = bytes(2, 4096);
        // In the order of the kernels' queue: nothing is repeated that isn't there.
        device.staging()[..block.len()].copy_from_slice(&block);
        device.copy(0..block.len(), 0).unwrap();
        device.repeat(block.len() as u64).unwrap();
        let all = device.read(std::slice::from_ref(&(0..size as u64))).unwrap();
        assert!(all.chunks(block.len()).all(|chunk| *chunk == block[..chunk.len()]));
        device.clear().unwrap();
        assert!(
            device
                .read(std::slice::from_ref(&(0..size as u64)))
                .unwrap()
                .iter()
                .all(|&byte| byte == 0)
        );
    }
}

/// Matmuls of 16-bit operands with f32 ones, or of rows that don't come in eights, would run without tensor cores.
#[test]
fn all_matmuls_of_a_step_in_16_bits_run_on_tensor_cores() {
    for (preset, precision) in
        [("gpt2", Precision::BF16), ("gpt2", Precision::F16), ("llama-1.1b", Precision::BF16)]
    {
        let model = ModelConfig { layers: 1, ..tightrope_nn::preset(preset).expect("a preset") };
        let config = TrainerConfig {
            precision,
            batch: 8,
            micro_batch: 4,
            ..TrainerConfig::new(model.build(1024).expect("a model"))
        };
        let device = Cuda::new(Box::new(Watched::new()));
        let plan = Planned::new(&config, &device).expect("a plan").plan;
        let programs = plan.graph.programs.iter().filter(|program| program.role != Role::Eval);
        let mut matmuls = 0;
        for node in programs.flat_map(|program| &program.nodes) {
            let (inputs, outputs) = plan.graph.types(node);
            for launch in node.op.launch(device.limits(), &inputs, &outputs).expect("kernels").list
            {
                let Launch { kernel, entry, .. } = launch;
                assert!(
                    kernel != "matmul" || entry == "add_slices",
                    "{preset} in {precision:?}: {} runs {kernel}.{entry} on {inputs:?}",
                    node.op.name()
                );
                matmuls += usize::from(kernel == "matmul_mma");
            }
        }
        println!("{preset} in {precision:?}: {matmuls} matmuls");
        assert!(matmuls >= 15, "only {matmuls}");
    }
}
