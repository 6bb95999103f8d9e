//! Ranks whose devices are emulated GPUs, linked by what stands for NCCL: the bits are those of ranks whose hosts carry everything,
//! and of one process. What ranks do wrong is found.

use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::slice;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use conformance::values::uniform;
use pollster::block_on;
use tightrope_backend_cpu::Cpu;
use tightrope_backend_cuda::Cuda;
use tightrope_backend_cuda::driver::{Driver, Emulated, Queue, Task};
use tightrope_core::ops::{Collective, Part, Reshape, Slice};
use tightrope_core::plan::{Options, Plan};
use tightrope_core::shards::{Segment, Shards};
use tightrope_core::{
    Backend, Cancel, Class, DType, Graph, Link, Ranks, Role, Session, SessionError, Tensor, Type,
    all_overlap, link,
};
use tightrope_nn::{
    Batch, Family, GradientSums, Offload, Planned, Precision, Shard, TrainError, Trainer,
    TrainerConfig,
};
use tightrope_ranks::Threads;

use crate::watched::{Asked, Watched};

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(60);

fn cache() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("emulated")
}

/// What each rank of so many comes to, all at the same time.
fn on_each<T: Send>(
    count: usize,
    time_out: Duration,
    run: impl Fn(usize, Threads) -> T + Sync,
) -> Vec<T> {
    let run = &run;
    thread::scope(|scope| {
        let ranks = Threads::group(count, time_out).into_iter().enumerate();
        let ranks: Vec<_> =
            ranks.map(|(rank, ranks)| scope.spawn(move || run(rank, ranks))).collect();
        ranks.into_iter().map(|rank| rank.join().expect("a rank that ends")).collect()
    })
}

/// An emulated GPU that is linked with those of the other ranks.
fn linked(driver: impl Driver + 'static, ranks: &mut Threads) -> Box<Cuda> {
    let mut cuda = Box::new(Cuda::new(Box::new(driver)));
    match link(&mut *cuda, ranks).expect("ranks that answer") {
        Link::Devices(found) => {
            assert_eq!((found.rank, found.count), (ranks.rank(), ranks.count()));
            assert!(found.carrier.contains("NCCL") && found.bytes > Some(0), "{found:?}");
        }
        Link::Hosts(why) => panic!("devices aren't linked: {why:?}"),
    }
    cuda
}

/// All collectives of a tensor, cut so.
fn graph(dtype: DType, shards: &Shards, part: &Part) -> (Graph, [Tensor; 2], Vec<Tensor>) {
    let mut graph = Graph::new();
    let ty = Type::new(dtype, [shards.elements()]);
    let [x, y] = ["x", "y"].map(|name| graph.persistent(name, ty.clone(), Class::Input));
    graph.begin(Role::Main);
    let mut made = graph.push(Collective::Exchange(part.clone()), &[x], "exchanged").unwrap();
    let of_first = Slice { axis: 0, start: 0, len: 1 };
    let first = graph.one(of_first, &made, "first").unwrap();
    let first = graph.one(Reshape { shape: vec![part.range.len()] }, &[first], "part").unwrap();
    let own = graph.one(Collective::Own(shards.clone()), &[x], "own").unwrap();
    made.push(own);
    let assemble = Collective::Assemble { shards: shards.clone(), ty };
    made.push(graph.one(assemble, &[own], "assembled").unwrap());
    made.push(graph.one(Collective::Gather(part.clone()), &[first, y], "gathered").unwrap());
    made.iter().for_each(|&tensor| graph.result(tensor));
    (graph, [x, y], made)
}

/// What a rank has after all collectives, twice: bytes of each tensor.
fn collected(
    dtype: DType,
    shards: &Shards,
    part: &Part,
    (backend, ranks): (Box<dyn Backend>, Threads),
) -> Vec<Vec<u8>> {
    let (graph, [x, y], made) = graph(dtype, shards, part);
    let rank = ranks.rank() as u64;
    let plan = Plan::new(graph, &Options::default(), &*backend).expect("a plan");
    let mut session = Session::new(plan, backend).expect("memory");
    session.join(Box::new(ranks));
    let mut found = vec![];
    for round in 0..2 {
        for (tensor, stream) in [(x, 0), (y, 1)] {
            let bytes = session.plan().graph.ty(tensor).bytes() as u64;
            let draw = |at| (uniform(97 * rank + 7 * round + stream, at) * 256.0) as u8;
            let bytes: Vec<u8> = (0..bytes).map(draw).collect();
            session.write(tensor, &bytes).expect("a device");
        }
        session.run(Role::Main).expect("collectives");
        found.extend(made.iter().map(|&tensor| block_on(session.read(tensor)).expect("bytes")));
    }
    found
}

#[test]
fn collectives_of_linked_devices_have_the_bytes_of_those_of_hosts() {
    for count in [2, 3, 4, 5] {
        for (dtype, shards) in [
            (DType::F32, Shards::of(15, count, 2)),
            (DType::BF16, Shards::of(5, count, 4096)),
            (
                DType::F16,
                Shards {
                    ranks: count,
                    segments: vec![
                        Segment::of(1, count, 4),
                        Segment::of(30, count, 4),
                        Segment::of(24, count, 4),
                    ],
                },
            ),
            // Many pieces of what goes between two ranks at once.
            (DType::F32, Shards::of(50_001 * count, count, 4096)),
        ] {
            let all = 0..shards.shard();
            for range in [all.clone(), 1..all.end.max(2) - 1, all.end / 2..all.end] {
                if range.is_empty() {
                    continue;
                }
                let part = Part { shards: shards.clone(), range };
                let by_hosts = on_each(count, LONG, |_, ranks| {
                    let cpu = Box::new(Cpu::new(1).expect("a thread"));
                    collected(dtype, &shards, &part, (cpu, ranks))
                });
                let by_devices = on_each(count, LONG, |rank, mut ranks| {
                    let device = Emulated::new(cache(), 5 + rank as u32);
                    let device = linked(device, &mut ranks);
                    collected(dtype, &shards, &part, (device, ranks))
                });
                assert!(by_hosts == by_devices, "{count} ranks, {dtype}, {part:?}");
            }
        }
    }
}

/// A small GPT-2 with weights that are worth cutting, in steps of so many micro-batches.
fn config(ranks: usize, passes: usize, shard: Shard) -> TrainerConfig {
    let mut model = tightrope_nn::preset("tiny").expect("a preset");
    (model.family, model.layers, model.channels, model.hidden) = (Family::Gpt2, 1, 64, 256);
    (model.heads, model.kv_heads, model.context, model.vocab) = (2, 2, 12, 521);
    TrainerConfig {
        batch: passes,
        micro_batch: 1,
        ranks,
        shard,
        gradient_sums: GradientSums::Ordered,
        seed: 7,
        ..TrainerConfig::new(model.build(12).expect("a model"))
    }
}

/// Bits of loss and gradient norm of each step, and of all weights and state at the end.
fn trained(
    config: &TrainerConfig,
    steps: u64,
    backend: Box<dyn Backend>,
    ranks: Option<Threads>,
) -> Result<Vec<u32>, TrainError> {
    let planned = Planned::new(config, &*backend).expect("a plan");
    let predicted = planned.plan.peak_bytes();
    let host = Box::new(Cpu::new(1).expect("a thread"));
    let mut trainer = Trainer::offloading(planned, backend, host)?;
    assert_eq!(trainer.allocated_bytes(), predicted);
    if let Some(ranks) = ranks {
        trainer.join(Box::new(ranks))?;
    }
    trainer.initialise()?;
    let mut bits = vec![];
    for step in 0..steps {
        let id = |stream: u64, at: usize| (uniform(97 * step + stream, at as u64) * 521.0) as i32;
        let ids = |stream| (0..config.tokens()).map(|at| id(stream, at)).collect::<Vec<i32>>();
        trainer.step(step, 1e-2, &Batch::text(&ids(0), &ids(1)))?;
        let outcome = block_on(trainer.outcome())?;
        bits.extend([outcome.loss.to_bits(), outcome.grad_norm.to_bits()]);
    }
    for index in 0..trainer.parameters().len() {
        bits.extend(block_on(trainer.weight(index))?.iter().map(|x| x.to_bits()));
    }
    for index in 0..trainer.states().len() {
        bits.extend(block_on(trainer.state(index))?.iter().map(|x| x.to_bits()));
    }
    Ok(bits)
}

#[test]
fn linked_ranks_train_with_the_bits_of_one_process() {
    const STEPS: u64 = 2;
    for (count, precision) in [(2, Precision::F32), (4, Precision::BF16)] {
        let of = |ranks, shard| TrainerConfig { precision, ..config(ranks, count, shard) };
        let device = |rank: usize| Emulated::new(cache(), 3 + rank as u32);
        let alone: Box<dyn Backend> = Box::new(Cuda::new(Box::new(device(0))));
        let alone = trained(&of(1, Shard::Nothing), STEPS, alone, None).expect("steps");
        for &shard in Shard::ALL {
            let config = of(count, shard);
            let all = on_each(count, LONG, |rank, mut ranks| {
                let device = linked(device(rank), &mut ranks);
                trained(&config, STEPS, device, Some(ranks)).expect("steps")
            });
            for (rank, found) in all.iter().enumerate() {
                let first = found.iter().zip(&alone).position(|(a, b)| a != b);
                assert_eq!((found.len(), first), (alone.len(), None), "{shard:?}, rank {rank}");
            }
        }
    }
}

/// Two contexts of two ranks each: what devices exchange is what their hosts would.
#[test]
fn linked_ranks_share_contexts_with_the_bits_of_their_hosts() {
    let of = |shard| TrainerConfig { context_ranks: 2, ..config(4, 2, shard) };
    let device = |rank: usize| Emulated::new(cache(), 11 + rank as u32);
    let by_hosts = on_each(4, LONG, |rank, ranks| {
        let device = Box::new(Cuda::new(Box::new(device(rank))));
        trained(&of(Shard::Nothing), 2, device, Some(ranks)).expect("steps")
    });
    let by_devices = on_each(4, LONG, |rank, mut ranks| {
        let device = linked(device(rank), &mut ranks);
        trained(&of(Shard::Weights), 2, device, Some(ranks)).expect("steps")
    });
    assert!(by_devices == by_hosts);
}

/// What hosts keep they exchange themselves; what comes from there and goes there does so between what linked devices exchange.
#[test]
fn linked_ranks_that_offload_have_the_bits_of_one_process_that_does() {
    let device = |rank: usize| Emulated::new(cache(), 3 + rank as u32);
    let optimizer = Offload { optimizer: true, ..Offload::NONE };
    let all = Offload { gradients: true, activations: true, weights: true, ..optimizer };
    for (passes, offload) in [(2, optimizer), (2, all), (4, all)] {
        let of = |ranks, shard| TrainerConfig { offload, ..config(ranks, passes, shard) };
        let alone: Box<dyn Backend> = Box::new(Cuda::new(Box::new(device(0))));
        let alone = trained(&of(1, Shard::Nothing), 2, alone, None).expect("steps");
        // Ranks sum several passes of their own in another order, unless shards leave with each.
        let first = if passes > 2 { 2 } else { 0 };
        for &shard in &Shard::ALL[first..] {
            let found = on_each(2, LONG, |rank, mut ranks| {
                let device = linked(device(rank), &mut ranks);
                trained(&of(2, shard), 2, device, Some(ranks)).expect("steps")
            });
            for (rank, found) in found.iter().enumerate() {
                let first = found.iter().zip(&alone).position(|(a, b)| a != b);
                let what = format!("{offload}, {shard:?}, {passes} passes, rank {rank}");
                assert_eq!((found.len(), first), (alone.len(), None), "{what}");
            }
        }
    }
}

/// All ranks exchange in the same order: where one has nothing that exchanges beside its kernels, the others plan as it does.
#[test]
fn one_rank_without_a_link_has_all_exchange_in_turn() {
    let of = |shard, ranks| config(ranks, 2, shard);
    let alone: Box<dyn Backend> = Box::new(Cuda::new(Box::new(Watched::new())));
    let alone = trained(&of(Shard::Nothing, 1), 2, alone, None).expect("steps");
    let found = on_each(2, LONG, |rank, mut ranks| {
        let driver = if rank == 1 { Watched::alone() } else { Watched::new() };
        let device: Box<dyn Backend> = Box::new(Cuda::new(Box::new(driver)));
        let mut config = of(Shard::Weights, 2);
        let planned = |config: &TrainerConfig| {
            let plan = Planned::new(config, &*device).expect("a plan").plan;
            let program = &plan.graph.programs[0];
            let order: Vec<String> = program.nodes.iter().map(|it| format!("{it:?}")).collect();
            (order, plan.peak_bytes())
        };
        let asked = planned(&config);
        let overlaps = all_overlap(&*device, &mut ranks).expect("ranks that answer");
        config.options.overlap = overlaps;
        let agreed = planned(&config);
        (overlaps, asked, agreed, trained(&config, 2, device, Some(ranks)).expect("steps"))
    });
    let [(overlaps, asked, agreed, bits), (others, other_asked, other_agreed, other_bits)] =
        &found[..]
    else {
        panic!("two ranks")
    };
    assert!(!overlaps && !others);
    assert_ne!(asked, other_asked);
    assert_eq!(agreed, other_agreed);
    assert!(*bits == alone && *other_bits == alone);
}

/// A step of linked ranks is replayed at once: nothing of it is the host's.
#[test]
fn what_linked_ranks_exchange_is_in_the_graph_of_the_step() {
    let config = config(2, 2, Shard::Gradients);
    let asked = on_each(2, LONG, |_, mut ranks| {
        let device = Watched::new();
        let asked = device.asked.clone();
        let device = linked(device, &mut ranks);
        let programs = Planned::new(&config, &*device).expect("a plan").plan.programs.len();
        asked.take();
        trained(&config, 2, device, Some(ranks)).expect("steps");
        let count = |of: fn(&Asked) -> bool| asked.borrow().iter().filter(|it| of(it)).count();
        let recorded = count(|it| matches!(it, Asked::Record));
        assert!(recorded <= programs, "{recorded} recordings of {programs} programs");
        count(|it| matches!(it, Asked::Exchange))
    });
    assert_eq!(asked, [0, 0], "exchanges outside of recordings");
}

/// What each of three ranks says where the devices of some are changed.
fn said(changes: impl Fn(usize) -> Option<fn(&mut Vec<Task>)> + Sync) -> Vec<String> {
    let config = config(3, 3, Shard::State);
    on_each(3, Duration::from_secs(5), |rank, mut ranks| {
        let device = Watched::new().changing(changes(rank));
        let device = linked(device, &mut ranks);
        match trained(&config, 2, device, Some(ranks)) {
            Ok(_) => "nothing".to_owned(),
            Err(error) => error.to_string(),
        }
    })
}

#[test]
fn an_order_that_differs_on_one_rank_is_found_and_named() {
    // Two exchanges of as many bytes each.
    let swap = |tasks: &mut Vec<Task>| {
        let bytes = |task: &Task| match task {
            Task::Exchange(_, moves) if !moves.sends.is_empty() => {
                Some(moves.sends.iter().map(|(_, bytes)| bytes.count).collect::<Vec<u64>>())
            }
            _ => None,
        };
        for first in 0..tasks.len() {
            let Some(sent) = bytes(&tasks[first]) else { continue };
            let alike = |&second: &usize| bytes(&tasks[second]).as_ref() == Some(&sent);
            if let Some(second) = (first + 1..tasks.len()).find(alike) {
                tasks.swap(first, second);
                return;
            }
        }
    };
    assert_eq!(said(|_| None), ["nothing"; 3]);
    let said = said(|rank| (rank == 1).then_some(swap as fn(&mut Vec<Task>)));
    assert!(said.iter().any(|it| it.contains("where rank 1 would")), "{said:?}");
    assert!(said.iter().all(|it| it != "nothing"), "{said:?}");
}

#[test]
fn counts_that_differ_on_one_rank_are_found_and_named() {
    let shorten = |tasks: &mut Vec<Task>| {
        let exchanges = tasks.iter_mut().filter_map(|task| match task {
            Task::Exchange(_, moves) => moves.sends.first_mut(),
            _ => None,
        });
        for (_, bytes) in exchanges.take(1) {
            bytes.count -= 4;
        }
    };
    let said = said(|rank| (rank == 2).then_some(shorten as fn(&mut Vec<Task>)));
    assert!(said.iter().any(|it| it.contains("rank 2") && it.contains("bytes of `")), "{said:?}");
    assert!(said.iter().all(|it| it != "nothing"), "{said:?}");
}

/// What is exchanged is beside the kernels: a step that doesn't wait for it makes other numbers.
#[test]
fn a_step_that_does_not_wait_for_what_others_send_is_found() {
    let config = config(2, 2, Shard::Weights);
    let bits = |change: Option<fn(&mut Vec<Task>)>| {
        let found = on_each(2, LONG, |_, mut ranks| {
            let device = linked(Watched::new().changing(change), &mut ranks);
            trained(&config, 3, device, Some(ranks)).ok()
        });
        found.into_iter().next().flatten()
    };
    let expected = bits(None);
    assert!(expected.is_some());
    let never = |tasks: &mut Vec<Task>| tasks.retain(|task| !matches!(task, Task::Exchanged(_)));
    let seldom = |tasks: &mut Vec<Task>| {
        tasks.retain(|task| !matches!(task, Task::Exchanged(number) if number % 2 == 0));
    };
    for change in [never as fn(&mut Vec<Task>), seldom] {
        assert!(bits(Some(change)) != expected);
    }
}

/// How often rank 1 receives other bytes than rank 0 had, where rank 0 loads others to their place after the exchange was begun, and one
/// of its queues is never told what to wait for.
fn overwritten(forgets: Option<Queue>) -> usize {
    const ROUNDS: u64 = 24;
    let shards = Shards::of(4000, 2, 4);
    let part = Part { shards: shards.clone(), range: 0..shards.shard() };
    let found = on_each(2, LONG, |rank, mut ranks| {
        let (graph, [x, _], made) = graph(DType::F32, &shards, &part);
        let device = Watched::new().forgetting(forgets.filter(|_| rank == 0));
        let mut device = linked(device, &mut ranks);
        let plan = Plan::new(graph, &Options::default(), &*device).expect("a plan");
        let range = |tensor| {
            let (start, bytes) = plan.range(tensor).expect("a place");
            start..start + bytes
        };
        let (x, of_ranks) = (range(x), range(made[0]));
        let from_first = of_ranks.start..of_ranks.start + (of_ranks.end - of_ranks.start) / 2;
        let steps = plan.programs[0].steps.len();
        device.prepare(plan.into()).expect("memory");
        let byte = |rank, round: u64, at: u64| (7 * rank as u64 + 13 * round + at % 251) as u8;
        let bytes = |rank, round| (x.clone()).map(|at| byte(rank, round, at - x.start)).collect();
        let mut wrong = 0;
        for round in 0..ROUNDS {
            let own: Vec<u8> = bytes(rank, round);
            device.write(x.start, &own).expect("a device");
            // What is written is there before anything else begins.
            block_on(device.read(slice::from_ref(&x))).expect("a device");
            device.run(0, 0..steps, &Cancel::default()).expect("a device");
            let mut memory = device.begin_load(x.clone()).expect("a device");
            memory.bytes().expect("a device").fill(0xEE);
            device.end_load(memory, x.clone()).expect("a device");
            let expected: Vec<u8> = bytes(0, round);
            let half = expected.len() / 2;
            let expected = if rank == 0 { &expected[..half] } else { &expected[half..] };
            let found = block_on(device.read(slice::from_ref(&from_first))).expect("a device");
            wrong += usize::from(found != expected);
        }
        wrong
    });
    found.into_iter().sum()
}

#[test]
fn bytes_are_wrong_where_what_is_sent_is_overwritten_before() {
    assert_eq!(overwritten(None), 0);
    assert!(overwritten(Some(Queue::Loads)) > 0, "nobody sees that loads wait for nothing");
}

/// What the ranks of three say of which one ends before its first step.
fn without_one(offload: Offload, ends: impl Fn() + Sync) -> Vec<String> {
    const LOST: usize = 2;
    let config = TrainerConfig { offload, ..config(3, 3, Shard::Weights) };
    // Kernels are compiled before it's timed.
    on_each(3, LONG, |_, mut ranks| {
        let device = linked(Emulated::new(cache(), 9), &mut ranks);
        trained(&config, 1, device, Some(ranks)).map(|_| ()).expect("a step")
    });
    let all = on_each(3, Duration::from_secs(2), |rank, mut ranks| {
        let device = linked(Emulated::new(cache(), 9), &mut ranks);
        let since = Instant::now();
        if rank == LOST {
            let planned = Planned::new(&config, &*device).expect("a plan");
            let host = Box::new(Cpu::new(1).expect("a thread"));
            let mut trainer = Trainer::offloading(planned, device, host).expect("memory");
            trainer.join(Box::new(ranks)).expect("as many ranks as planned for");
            let ends = &ends;
            let panicked = panic::catch_unwind(AssertUnwindSafe(move || {
                let _trainer = trainer;
                ends();
            }));
            return (format!("{}", panicked.is_err()), since.elapsed());
        }
        let error = trained(&config, 2, device, Some(ranks)).expect_err("a rank that is lost");
        (error.to_string(), since.elapsed())
    });
    for (said, took) in &all[..LOST] {
        assert!(*took < Duration::from_secs(30), "{said} after {took:?}");
    }
    all.into_iter().take(LOST).map(|(said, _)| said).collect()
}

#[test]
fn a_rank_that_is_lost_is_named_by_those_whose_devices_wait_for_it() {
    let all = Offload { optimizer: true, gradients: true, activations: true, weights: true };
    for offload in [Offload::NONE, all] {
        for said in without_one(offload, || {}) {
            assert!(said.contains("rank 2: no answer within 2 s"), "{said}");
        }
        for said in without_one(offload, || panic::resume_unwind(Box::new("a rank that panics"))) {
            assert!(said.contains("rank 2: it panicked"), "{said}");
        }
    }
}

/// A rank that lives and does nothing: its device waits for nobody, and its host doesn't answer.
#[test]
fn a_rank_that_does_not_answer_is_named_within_the_time_out() {
    let config = config(2, 2, Shard::Nothing);
    let named = Barrier::new(2);
    let all = on_each(2, Duration::from_secs(1), |rank, mut ranks| {
        let device = linked(Emulated::new(cache(), 9), &mut ranks);
        if rank == 1 {
            named.wait();
            return String::new();
        }
        let error = trained(&config, 1, device, Some(ranks)).expect_err("a rank that is lost");
        named.wait();
        let TrainError::Session(SessionError::Ranks(lost)) = &error else { panic!("{error}") };
        assert_eq!(lost.rank, Some(1));
        error.to_string()
    });
    assert!(all[0].contains("no answer within 1 s"), "{all:?}");
}

#[test]
fn devices_of_other_kinds_leave_everything_to_the_hosts() {
    let found = on_each(2, LONG, |rank, mut ranks| {
        let mut device: Box<dyn Backend> = match rank {
            0 => Box::new(Cuda::new(Box::new(Emulated::new(cache(), 1)))),
            _ => Box::new(Cpu::new(1).expect("a thread")),
        };
        link(&mut *device, &mut ranks).expect("ranks that answer")
    });
    let why = "rank 1: its device has no link of its own".to_owned();
    assert_eq!(found, [Link::Hosts(Some(why.clone())), Link::Hosts(Some(why))]);
    let found = on_each(2, LONG, |_, mut ranks| {
        let mut device = Cpu::new(1).expect("a thread");
        link(&mut device, &mut ranks).expect("ranks that answer")
    });
    assert_eq!(found, [Link::Hosts(None), Link::Hosts(None)]);
}
