//! What of a step's sending goes on while its ranks compute, where their devices exchange beside other ops, and where they don't.

use std::collections::BTreeMap;

use tightrope_backend_cpu::Cpu;
use tightrope_backend_cuda::Described;
use tightrope_core::plan::Target;
use tightrope_nn::{
    Interconnect, Link, ModelConfig, Planned, Precision, Rates, Shard, TrainerConfig, defaults,
};

fn planned(shard: Shard, batch: usize, target: &dyn Target) -> Planned {
    let model = ModelConfig { layers: 4, ..defaults::MODEL };
    let model = model.build(model.context).unwrap();
    let config =
        TrainerConfig { ranks: 4, shard, batch, micro_batch: 1, ..TrainerConfig::new(model) };
    Planned::new(&config, target).unwrap()
}

/// A GPU that exchanges beside its kernels.
fn gpu() -> Described {
    Described::new("GPU".into(), (8, 0), 108, 40 << 30)
}

fn rates(bytes: f64) -> Rates {
    let link = Link { bytes, first_s: 0.0, message_s: 0.0 };
    let links = Interconnect { node: 4, within: link, between: link };
    Rates::of("cpu", Precision::F32, 1).connected(Some(links))
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-9 * b
}

const CASES: [(Shard, usize); 5] = [
    (Shard::Nothing, 4),
    (Shard::State, 8),
    (Shard::Gradients, 8),
    (Shard::Weights, 4),
    (Shard::Weights, 8),
];

#[test]
fn a_step_takes_no_less_than_its_longer_lane_and_no_more_than_both() {
    for (shard, batch) in CASES {
        let [beside, in_turn] = [&gpu() as &dyn Target, &Cpu::new(1).unwrap()]
            .map(|target| planned(shard, batch, target));
        for bytes in [1e6, 1e9, 1e15] {
            let rates = rates(bytes);
            for planned in [&beside, &in_turn] {
                let step = planned.overlapped(&rates);
                let sums: BTreeMap<_, _> = planned.sent_s(&rates);
                assert!(near(step.sent_s, sums.values().sum()), "{shard:?}");
                assert!(near(step.step_s, planned.estimate(&rates).step_s), "{shard:?}");
                let both = step.compute_s + step.sent_s;
                assert!(step.step_s <= both * (1.0 + 1e-9), "{shard:?}: {step:?}");
                let longer = step.compute_s.max(step.sent_s);
                assert!(step.step_s >= longer * (1.0 - 1e-9), "{shard:?}: {step:?}");
            }
            // Hosts that carry what is sent wait for it.
            let step = in_turn.overlapped(&rates);
            assert!(near(step.step_s, step.compute_s + step.sent_s), "{shard:?}: {step:?}");
            assert!(step.share() < 1e-6, "{shard:?}: {step:?}");
        }
    }
}

#[test]
fn weights_come_while_the_block_before_computes() {
    let beside = planned(Shard::Weights, 4, &gpu());
    // As long as it computes: most of both passes at once, but for the first block's weights and the last ones' gradients.
    let step = beside.overlapped(&rates(1e9));
    let even = rates(1e9 * step.sent_s / step.compute_s);
    let step = beside.overlapped(&even);
    assert!((0.4..0.95).contains(&step.share()), "{step:?}");
    // Two blocks' worth more, and not all of the weights.
    let mut in_turn = beside.config().clone();
    in_turn.options.overlap = false;
    let in_turn = Planned::new(&in_turn, &gpu()).unwrap();
    assert!(in_turn.overlapped(&even).share() < 1e-6);
    let all: u64 =
        beside.config().parameters().unwrap().iter().map(|it| 4 * it.elements() as u64).sum();
    let more = beside.plan.peak_bytes().saturating_sub(in_turn.plan.peak_bytes());
    assert!(more < all, "{more} of {all}");
    let idle = beside.overlapped(&rates(1e15));
    assert!(idle.step_s < 1.01 * idle.compute_s);
}
