//! What a step would take whose ranks compute while they send.

use std::collections::BTreeMap;

use tightrope_backend_cpu::Cpu;

use tightrope_nn::{
    Interconnect, Link, ModelConfig, Planned, Precision, Rates, Shard, TrainerConfig, defaults,
};

fn planned(shard: Shard, batch: usize) -> Planned {
    let model = ModelConfig { layers: 4, ..defaults::MODEL };
    let model = model.build(model.context).unwrap();
    let config =
        TrainerConfig { ranks: 4, shard, batch, micro_batch: 1, ..TrainerConfig::new(model) };
    Planned::new(&config, &Cpu::new(1).unwrap()).unwrap()
}

fn rates(bytes: f64) -> Rates {
    let link = Link { bytes, first_s: 0.0, message_s: 0.0 };
    let links = Interconnect { node: 4, within: link, between: link };
    Rates::of("cpu", Precision::F32, 1).connected(Some(links))
}

#[test]
fn a_step_takes_no_less_than_its_longer_lane_and_no_more_than_both() {
    for (shard, batch) in [
        (Shard::Nothing, 4),
        (Shard::State, 8),
        (Shard::Gradients, 8),
        (Shard::Weights, 4),
        (Shard::Weights, 8),
    ] {
        let planned = planned(shard, batch);
        for bytes in [1e6, 1e9, 1e15] {
            let rates = rates(bytes);
            let step = planned.overlapped(&rates);
            let in_turn = planned.estimate(&rates).step_s;
            let sums: BTreeMap<_, _> = planned.sent_s(&rates);
            let near = |a: f64, b: f64| (a - b).abs() < 1e-9 * b;
            assert!(near(step.sent_s, sums.values().sum()), "{shard:?}");
            assert!(near(step.compute_s + step.sent_s, in_turn), "{shard:?}");
            assert!(step.step_s <= in_turn * (1.0 + 1e-9), "{shard:?}: {step:?}");
            let longer = step.compute_s.max(step.sent_s);
            assert!(step.step_s >= longer * (1.0 - 1e-9), "{shard:?}: {step:?}");
        }
    }
}

#[test]
fn weights_come_while_the_block_before_computes() {
    let planned = planned(Shard::Weights, 4);
    // As long as it computes: most of both passes at once, but for the first block's weights and the last ones' gradients.
    let even = rates(1e9);
    let step = planned.overlapped(&even);
    let even = rates(1e9 * step.sent_s / step.compute_s);
    let step = planned.overlapped(&even);
    assert!((0.4..0.95).contains(&step.share()), "{step:?}");
    // Two blocks' worth, and not all of the weights.
    let all: u64 =
        planned.config().parameters().unwrap().iter().map(|it| 4 * it.elements() as u64).sum();
    assert!(step.ahead_bytes > 0 && step.ahead_bytes < all, "{} of {all}", step.ahead_bytes);
    let idle = planned.overlapped(&rates(1e15));
    assert!(idle.step_s < 1.01 * idle.compute_s);
}
