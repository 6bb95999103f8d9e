//! Runs of drawn shapes on every instruction set that the processor has: none stops, and losses are those of portable code.
//!
//! Tiles, pieces of ops and their scratch differ between instruction sets. Shapes are drawn so that last pieces have fewer rows:
//! positions, vocabulary and widths are spread over their logarithms, and the loss has more rows than it takes at a time.

use std::panic::{AssertUnwindSafe, catch_unwind};

use conformance::draw::Draw;
use conformance::language::language;
use conformance::parallel;
use pollster::block_on;
use tightrope_backend_cpu::Cpu;
use tightrope_backend_cpu::isa::{Isa, Level};
use tightrope_core::plan::Options;
use tightrope_nn::{Batch, Family, Planned, Precision, Trainer, TrainerConfig};

use crate::STEPS;
use crate::draws::Draws;

/// Runs of which some are tried a day.
const SHAPES: u64 = 2000;
const A_DAY: usize = 60;

impl Draws {
    /// A whole number from 1 to `most`, as often below its square root as above.
    fn spread(&mut self, most: usize) -> usize {
        (most as f64).powf(self.unit()).round() as usize
    }

    /// A step of a model of at most two blocks, as any run is, of larger and more various sizes.
    fn shape(&mut self) -> TrainerConfig {
        let drawn = self.config();
        let mut model = language(&drawn).config().clone();
        model.layers = model.layers.min(2);
        for layers in [&mut model.details.windowed, &mut model.details.unrotated] {
            layers.retain(|&layer| layer < model.layers);
        }
        let width = self.spread(96);
        let even = if model.family == Family::Gpt2 { width } else { width.next_multiple_of(2) };
        (model.channels, model.hidden) = (model.heads * even, self.spread(1200));
        (model.vocab, model.context) = (self.spread(7000), self.spread(512));
        let batch = self.up_to(8);
        let parts: Vec<usize> = (1..=batch).filter(|n| batch.is_multiple_of(*n)).collect();
        let mut build = drawn.build;
        build.loss_chunk = self.one_of(&[0, 7, 256, 500]);
        let options = match self.checkpoint() {
            Some(checkpoint) => Options { checkpoint, ..drawn.options.clone() },
            None => drawn.options.clone(),
        };
        TrainerConfig {
            batch,
            micro_batch: self.one_of(&parts),
            build,
            lora: None,
            decode: 0,
            options,
            model: model.build(model.context).expect("a model"),
            ..drawn
        }
    }
}

/// Most that a loss may differ by from that of portable code, as a share of it where it's above 1. In f32 sums are in another
/// order. In 16 bits an activation is then rounded to another neighbor now and then, so that a loss over few tokens differs by
/// half of a unit in the last place.
fn tolerance(precision: Precision) -> f32 {
    match precision {
        Precision::F32 => 1e-4,
        Precision::F16 => 2f32.powi(-11),
        Precision::BF16 => 2f32.powi(-8),
    }
}

/// The losses of a run by one instruction set.
fn losses(config: &TrainerConfig, mut draws: Draws, threads: usize, isa: Isa) -> Vec<f32> {
    let cpu = Cpu::new(threads).expect("threads").with_isa(isa);
    let planned = Planned::new(config, &cpu).expect("a plan");
    let mut trainer = Trainer::new(planned, Box::new(cpu)).expect("memory");
    trainer.initialise().expect("weights");
    let step = |step| {
        let (tokens, targets) = draws.ids(config);
        trainer.step(step, 1e-3, &Batch::text(&tokens, &targets)).expect("a step");
        block_on(trainer.outcome()).expect("an outcome").loss
    };
    (0..STEPS).map(step).collect()
}

/// The largest difference of a run's losses from those of portable code, and the precision; an error where it's too large, or the
/// run stopped.
fn compared(run: u64) -> Result<(f32, Precision), String> {
    let mut draws = Draws::of(run);
    let (config, threads) = (draws.shape(), draws.up_to(3));
    let model = language(&config).config();
    let (family, precision) = (model.family, config.precision);
    let what = format!("run {run}, {family:?} in {precision:?} on {threads} threads");
    let by = |isa: Isa| {
        // A panic's message comes as it happens; the other runs go on.
        let run = AssertUnwindSafe(|| losses(&config, Draws::of(run), threads, isa));
        catch_unwind(run).map_err(|_| format!("{what}: stopped on {}", isa.name()))
    };
    let expected = by(Isa::PORTABLE)?;
    let mut worst = 0.0;
    for isa in Isa::available().filter(|isa| isa.level() != Level::Portable) {
        let found = by(isa)?;
        for (found, expected) in found.iter().zip(&expected) {
            let off = (found - expected).abs() / expected.abs().max(1.0);
            // Not `>`: a NaN must fail.
            let close = off <= tolerance(precision);
            if !close {
                let isa = isa.name();
                return Err(format!("{what}: {found} on {isa}, {expected} portable, {off:e}"));
            }
            worst = f32::max(worst, off);
        }
    }
    Ok((worst, precision))
}

#[test]
fn drawn_shapes_train_alike_on_every_instruction_set() {
    let runs = Draw::of_today().some("drawn shapes", (0..SHAPES).collect(), A_DAY);
    let results = parallel::map(&runs, |&run| compared(run));
    let failed: Vec<&String> = results.iter().filter_map(|result| result.as_ref().err()).collect();
    for precision in [Precision::F32, Precision::BF16, Precision::F16] {
        let own = results.iter().flatten().filter(|(_, of)| *of == precision);
        let worst = own.clone().fold(0.0, |worst, (off, _)| f32::max(worst, *off));
        println!("{} runs in {precision:?}: losses differ by at most {worst:e}", own.count());
    }
    assert!(failed.is_empty(), "{} of {} runs: {failed:#?}", failed.len(), runs.len());
}

#[test]
fn a_plan_for_another_processor_is_refused() {
    let config = Draws::of(0).shape();
    let planned = Planned::new(&config, &Cpu::new(1).expect("a thread")).expect("a plan");
    let refused = Trainer::new(planned, Box::new(Cpu::new(3).expect("threads"))).err();
    let error = refused.expect("attention takes scratch for each thread").to_string();
    assert!(error.contains("bytes of scratch on cpu (3 threads"), "{error}");
}
