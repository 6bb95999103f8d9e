//! The same model within three budgets: planned, then trained for a few steps each, with the same losses.
//!
//! `cargo run --release -p tightrope --example budget [STEPS]`

use std::error::Error;

use tightrope::backends::Cpu;
use tightrope::block_on;
use tightrope::core::{Backend, Graph, Node};
use tightrope::nn::{Batch, Free, Planner, Precision, Rates, Trainer, TrainerConfig, preset};

fn main() -> Result<(), Box<dyn Error>> {
    let steps: u64 = std::env::args().nth(1).map_or(Ok(5), |steps| steps.parse())?;
    let model = preset("small")?;
    let config = TrainerConfig {
        batch: 16,
        micro_batch: 16,
        ..TrainerConfig::new(model.build(model.context)?)
    };
    let ids: Vec<i32> = (0..config.tokens() as i32 + 1).map(|i| i * i % 251).collect();
    let batch = Batch::text(&ids[..config.tokens()], &ids[1..]);

    let rates = Rates::of(&Cpu::new(2)?.name(), Precision::F32, 2);
    let seconds = |graph: &Graph, node: &Node| rates.seconds(graph, node);
    let (most, least) = {
        let device = Cpu::new(2)?;
        let mut planner = Planner::new(&config, Free::NONE, &device, seconds)?;
        let fastest = planner.within(u64::MAX)?.0.ok_or("a plan without a limit")?;
        (fastest.plan.peak_bytes(), planner.within(1)?.1)
    };
    for budget in [most, (most + least) / 2, least] {
        let device = Cpu::new(2)?;
        let planned = {
            let mut planner = Planner::new(&config, Free::NONE, &device, seconds)?;
            planner.within(budget)?.0.ok_or("a plan within the budget")?
        };
        let estimate = planned.estimate(&rates);
        println!(
            "within {budget} bytes: {} bytes, {} ops recomputed, {:.0} ms a step",
            planned.plan.peak_bytes(),
            planned.plan.report().recomputed,
            1e3 * estimate.step_s
        );
        let mut trainer = Trainer::new(planned, Box::new(device))?;
        trainer.initialise()?;
        for step in 0..steps {
            trainer.step(step, 1e-3, &batch)?;
        }
        println!("  loss {} after {steps} steps", block_on(trainer.outcome())?.loss);
    }
    Ok(())
}
