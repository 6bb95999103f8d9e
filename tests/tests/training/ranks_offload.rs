//! Several ranks of which each leaves something to its host: no bit changes, whatever is cut among them.

use conformance::draw::Draw;
use conformance::language::language;
use conformance::late::Late;
use tightrope_backend_cpu::Cpu;
use tightrope_core::plan::{Checkpoint, Options};
use tightrope_core::{Graph, Node};
use tightrope_nn::{
    Family, Free, FrozenBits, GradientSums, Gradients, Offload, Planned, Precision, Rates, Shard,
    StateBits, TableBits, TrainerConfig,
};

use crate::ranks::{adapted, config, larger, run, run_all, run_all_on, same};

const STEPS: u64 = 3;

const OPTIMIZER: Offload = Offload { optimizer: true, ..Offload::NONE };
const GRADIENTS: Offload = Offload { gradients: true, ..OPTIMIZER };
const ACTIVATIONS: Offload = Offload { activations: true, ..Offload::NONE };
const WEIGHTS: Offload = Offload { weights: true, ..OPTIMIZER };
const ALL: Offload = Offload { activations: true, weights: true, ..GRADIENTS };
const EACH: [Offload; 5] = [OPTIMIZER, GRADIENTS, ACTIVATIONS, WEIGHTS, ALL];

/// Holds that every stage has the bits of the same run without offload, with each of `offloads`.
fn changes_nothing(of: &dyn Fn(Shard) -> TrainerConfig, stages: &[Shard], offloads: &[Offload]) {
    for &shard in stages {
        let held = of(shard);
        let expected = run_all(&held, STEPS);
        for &offload in offloads {
            let found = run_all(&TrainerConfig { offload, ..held.clone() }, STEPS);
            let TrainerConfig { ranks, precision, .. } = held;
            same(&found, &expected, &format!("{offload}, {shard:?}, {precision:?}, {ranks} ranks"));
        }
    }
}

#[test]
fn ranks_that_offload_have_the_bits_of_ranks_that_do_not() {
    for (family, precision, ranks, offloads) in [
        (Family::Llama, Precision::F32, 2, &EACH[..]),
        (Family::Gpt2, Precision::BF16, 3, &[OPTIMIZER, ALL]),
        (Family::Gpt2, Precision::F16, 4, &[ALL]),
    ] {
        let of = |shard| TrainerConfig { precision, shard, ..larger(family, ranks, ranks) };
        let what = format!("stages of {ranks} ranks that offload");
        changes_nothing(&of, &Draw::of_today().some(&what, Shard::ALL.to_vec(), 2), offloads);
    }
}

/// With several passes, whole gradients that go to the host are added there in another order; shards aren't.
#[test]
fn several_passes_of_ranks_that_offload_have_the_bits_of_ranks_that_do_not() {
    let of = |shard| TrainerConfig { shard, ..larger(Family::Llama, 2, 6) };
    changes_nothing(&of, &Shard::ALL[..2], &[OPTIMIZER, ACTIVATIONS, WEIGHTS]);
    changes_nothing(&of, &Shard::ALL[2..], &EACH);
    let [whole, cut] = [Shard::Nothing, Shard::State]
        .map(|shard| run_all(&TrainerConfig { offload: ALL, ..of(shard) }, STEPS));
    same(&cut, &whole, "gradients of several passes on the hosts");
    let [device, whole] = [Offload::NONE, ALL]
        .map(|offload| run_all(&TrainerConfig { offload, ..config(Family::Llama, 2, 6) }, STEPS));
    for (at, (&a, &b)) in device.iter().zip(&whole).enumerate() {
        let [a, b] = [a, b].map(f32::from_bits);
        assert!((a - b).abs() <= 2e-3 * a.abs().max(0.1), "number {at} is {b}, not {a}");
    }
}

#[test]
fn few_bits_and_recomputed_blocks_stay_as_they_are_on_the_hosts_of_ranks() {
    let narrow = |shard| TrainerConfig {
        precision: Precision::BF16,
        // More ranks than are added in one op.
        gradients: Gradients::BF16,
        optimizer_bits: StateBits::B8,
        table_bits: TableBits::B8,
        shard,
        ..larger(Family::Gpt2, 7, 7)
    };
    changes_nothing(&narrow, &[Shard::Nothing, Shard::Gradients], &[OPTIMIZER, GRADIENTS]);
    let block = |shard| TrainerConfig {
        options: Options { checkpoint: Checkpoint::Block, ..Options::default() },
        clip: Some(0.5),
        shard,
        ..larger(Family::Llama, 2, 2)
    };
    changes_nothing(&block, &[Shard::State, Shard::Weights], &[ACTIVATIONS, ALL]);
    let frozen = |shard| adapted(FrozenBits::B4, 2, shard);
    let weights = Offload { weights: true, ..Offload::NONE };
    changes_nothing(&frozen, &[Shard::State, Shard::Weights], &[weights, ALL]);
}

#[test]
fn ranks_that_offload_have_the_bits_of_a_process_that_sums_micro_batches_in_order() {
    for (precision, ranks) in [(Precision::F32, 2), (Precision::BF16, 3), (Precision::F16, 5)] {
        let of = |ranks_now, gradient_sums| TrainerConfig {
            precision,
            gradient_sums,
            ..larger(Family::Gpt2, ranks_now, ranks)
        };
        let alone = run(&of(1, GradientSums::Ordered), STEPS, None);
        let stages = Shard::ALL.iter().enumerate().collect();
        let what = format!("stages of {ranks} ranks that offload, against one process");
        for (index, &shard) in Draw::of_today().some(&what, stages, 2) {
            // A pass that is a rank's only one is the same in either order.
            let sums = [GradientSums::Fused, GradientSums::Ordered][index % 2];
            let config = TrainerConfig { shard, offload: ALL, ..of(ranks, sums) };
            let what = format!("{shard:?}, {precision:?}, {ranks} ranks");
            same(&run_all(&config, STEPS), &alone, &what);
        }
    }
    // With shards of gradients, of several passes too.
    let of = |ranks| TrainerConfig {
        gradient_sums: GradientSums::Ordered,
        ..larger(Family::Llama, ranks, 6)
    };
    let alone = run(&of(1), STEPS, None);
    for (ranks, shard) in [(2, Shard::Gradients), (3, Shard::Weights)] {
        let config = TrainerConfig { shard, offload: ALL, ..of(ranks) };
        same(&run_all(&config, STEPS), &alone, &format!("{ranks} ranks with several passes"));
    }
}

/// A table whose shards are exchanged in parts, which the hosts keep one by one.
#[test]
fn parts_of_shards_come_together_on_the_hosts() {
    for passes in [2, 4] {
        let large = |shard| {
            let small = config(Family::Gpt2, 2, passes);
            let mut model = language(&small).config().clone();
            (model.channels, model.vocab) = (128, 40_000);
            TrainerConfig { model: model.build(24).expect("a model"), shard, ..small }
        };
        changes_nothing(&large, &[Shard::Gradients], &[GRADIENTS]);
    }
}

#[test]
fn budgets_of_ranks_reach_to_the_smallest_plan_that_offloads() {
    let rates = Rates::of("cpu, avx2", Precision::F32, 1);
    let target = Late(Cpu::new(1).expect("threads"));
    for &shard in Shard::ALL {
        let config = TrainerConfig { shard, offload: ALL, ..larger(Family::Llama, 2, 4) };
        let within = |budget| {
            let seconds = |graph: &Graph, node: &Node| rates.seconds(graph, node);
            Planned::within(&config, budget, Free::ALL, &target, &seconds).expect("a plan")
        };
        let (none, fewest) = within(1);
        assert!(none.is_none());
        let most = within(u64::MAX).0.expect("a plan").plan.peak_bytes();
        let mut last = f64::INFINITY;
        for part in 0..=4 {
            let budget = fewest + (most - fewest) * part / 4;
            let planned = within(budget).0.expect("it fits");
            assert!(planned.plan.peak_bytes() <= budget);
            let step_s = planned.estimate(&rates).step_s;
            let bound_s = planned.step_bound_s(&rates).expect("it was searched for");
            assert!(bound_s <= step_s * (1.0 + 1e-9), "{bound_s} and {step_s} s in {budget}");
            assert!(step_s <= last * (1.0 + 1e-9), "{step_s} s in {budget}, {last} in less");
            last = step_s;
        }
    }
}

/// Copies that go on beside ops, as a GPU's do.
#[test]
fn overlapped_copies_of_ranks_change_no_bit() {
    for passes in [2, 4] {
        for &shard in Shard::ALL {
            let held = TrainerConfig { shard, ..larger(Family::Llama, 2, passes) };
            let several = passes > 2 && shard < Shard::Gradients;
            let offload = Offload { gradients: !several, ..ALL };
            let config = TrainerConfig { offload, ..held.clone() };
            let late = || Box::new(Late(Cpu::new(1).expect("threads"))) as Box<_>;
            let found = run_all_on(&late, &config, STEPS);
            same(&found, &run_all(&held, STEPS), &format!("{shard:?}, {passes} passes"));
        }
    }
}

/// Each stage leaves a rank's device less, and so does each thing that the host keeps.
#[test]
fn the_more_hosts_keep_the_less_ranks_hold() {
    let cpu = Cpu::new(1).expect("threads");
    let kept = |offload, shard| {
        let wide = larger(Family::Llama, 2, 4);
        let options = Options { checkpoint: Checkpoint::Block, ..Options::default() };
        let config = TrainerConfig { offload, shard, options, ..wide };
        Planned::new(&config, &cpu).expect("a plan").plan.persistent_bytes
    };
    for &shard in Shard::ALL {
        let bytes = [Offload::NONE, OPTIMIZER, GRADIENTS].map(|offload| kept(offload, shard));
        assert!(bytes.windows(2).all(|two| two[1] < two[0]), "{shard:?}: {bytes:?}");
        let [gradients, all] = [GRADIENTS, ALL].map(|offload| kept(offload, shard));
        assert!(all < gradients, "{shard:?}: {all} of {gradients}");
    }
}
