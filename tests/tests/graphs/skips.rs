//! Steps that are skipped, against plain loops that don't have them.

use conformance::reference::Interpreter;
use tightrope_core::DType;
use tightrope_nn::{Optimizer, UpdateOptions};

use crate::optim::{ADAMW, LR, MUON, OPTIONS, Setup, masters, plain_loops};

/// torch.amp.GradScaler calls no optimizer in a step that isn't finite, so torch.optim counts updates. Bias corrections and Adafactor's
/// decay aged with steps before.
#[test]
fn skipped_steps_are_no_updates() {
    for (optimizer, dtype, scaled) in [
        (ADAMW, DType::F32, false),
        (ADAMW, DType::BF16, false),
        (ADAMW, DType::F16, true),
        (MUON, DType::F16, true),
        (Optimizer::Adafactor, DType::F16, true),
        (Optimizer::Adafactor, DType::F32, false),
        (Optimizer::Lion { beta1: 0.9, beta2: 0.99 }, DType::F16, true),
        (Optimizer::Sgd { momentum: 0.9 }, DType::F16, true),
    ] {
        let setup = Setup::new(optimizer, OPTIONS, dtype, scaled);
        let run = Interpreter::new(&setup.graph);
        setup.start(&run);
        let step = |gradients: usize, finite: bool| {
            let scale = setup.scale.map_or(1.0, |scale| run.scalar(scale.scale));
            setup.step(&run, gradients, if finite { scale } else { f64::INFINITY });
            assert_eq!(run.scalar(setup.update.ok), f64::from(u8::from(finite)));
        };
        // Three, none, one and two steps are skipped before the updates.
        for (update, skipped) in [3, 0, 1, 2].into_iter().enumerate() {
            (0..skipped).for_each(|_| step(9, false));
            step(update, true);
        }
        if let Some(updates) = setup.update.updates {
            assert_eq!(run.scalar(updates), 4.0);
        }
        let (expected, _) = plain_loops(optimizer, &OPTIONS, 4);
        for (index, expected) in expected.iter().enumerate() {
            for (found, expected) in setup.masters(&run, index).iter().zip(expected) {
                let off = (f64::from(*found) - expected).abs();
                assert!(off < 2e-6, "{optimizer:?} {dtype} {index}: {found} vs {expected}");
            }
        }
    }
}

/// The first update of torch.optim.AdamW without decay moves each weight by the learning rate, whatever its gradient and however many
/// steps were skipped before.
#[test]
fn the_first_update_of_adamw_moves_by_the_learning_rate() {
    let free = UpdateOptions { weight_decay: 0.0, clip: None, ..OPTIONS };
    let setup = Setup::new(ADAMW, free, DType::F32, false);
    let run = Interpreter::new(&setup.graph);
    setup.start(&run);
    (0..3).for_each(|_| setup.step(&run, 0, f64::NAN));
    setup.step(&run, 0, 1.0);
    for index in 0..3 {
        for (before, after) in masters(index).iter().zip(setup.masters(&run, index)) {
            let moved = f64::from(before - after).abs();
            assert!((moved / LR - 1.0).abs() < 1e-4, "{moved}");
        }
    }
}
