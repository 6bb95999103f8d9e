//! Several ranks that train one model, as threads of this process.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use conformance::draw::Draw;
use conformance::language::language;
use conformance::values::uniform;
use pollster::block_on;
use tightrope_backend_cpu::Cpu;
use tightrope_core::plan::{Checkpoint, Options};
use tightrope_core::{Backend, Class, Life};
use tightrope_nn::layers::Distillation;
use tightrope_nn::lora::ALL_LINEAR;
use tightrope_nn::{
    Batch, Family, FrozenBits, GradientSums, Gradients, IMAGES, LABELS, LanguageModel, Lora,
    Master, Optimizer, Planned, Precision, Shard, StateBits, TableBits, Trainer, TrainerConfig,
    Vit, vit_presets,
};
use tightrope_ranks::Threads;

const STEPS: u64 = 4;
/// Steps of what is held against one process.
const MANY: u64 = 20;

/// Of `ranks` ranks that take `passes` micro-batches a step between them.
pub(crate) fn config(family: Family, ranks: usize, passes: usize) -> TrainerConfig {
    let mut model = tightrope_nn::preset("tiny").expect("a preset");
    (model.family, model.layers, model.channels, model.hidden) = (family, 2, 32, 48);
    (model.heads, model.kv_heads, model.context, model.vocab) = (4, 4, 24, 61);
    model.tied = family == Family::Gpt2;
    TrainerConfig {
        batch: 2 * passes,
        micro_batch: 2,
        ranks,
        seed: 7,
        ..TrainerConfig::new(model.build(24).expect("a model"))
    }
}

/// As [`config`], of a model with weights that are worth cutting.
pub(crate) fn larger(family: Family, ranks: usize, passes: usize) -> TrainerConfig {
    let small = config(family, ranks, passes);
    let mut model = language(&small).config().clone();
    (model.channels, model.hidden, model.vocab) = (128, 300, 601);
    TrainerConfig { model: model.build(24).expect("a model"), ..small }
}

/// A vision transformer of images of digits, with weights that are worth cutting.
fn vision(ranks: usize, passes: usize) -> TrainerConfig {
    let (_, mut model) = vit_presets().find(|(name, _)| *name == "vit-tiny").expect("a preset");
    (model.layers, model.channels, model.heads, model.hidden) = (2, 128, 4, 300);
    TrainerConfig {
        batch: 2 * passes,
        micro_batch: 2,
        ranks,
        seed: 7,
        ..TrainerConfig::new(model.build().expect("a model"))
    }
}

/// A step on random tokens, or on random images and labels.
fn step(trainer: &mut Trainer, config: &TrainerConfig, step: u64) {
    let draw = |stream: u64, i: usize| uniform(step * 97 + stream, i as u64);
    if let Some(vit) = Vit::of(&*config.model) {
        let (count, of) = (config.batch, vit.config());
        let pixels = count * of.colors * of.image[0] * of.image[1];
        let images: Vec<f32> = (0..pixels).map(|i| draw(0, i) as f32 - 0.5).collect();
        let label = |i| (draw(1, i) * of.classes as f64) as i32;
        let labels: Vec<i32> = (0..count).map(label).collect();
        let batch = Batch::new().with(IMAGES, &images).with(LABELS, &labels);
        return trainer.step(step, 1e-2, &batch).expect("a step");
    }
    let vocab = language(config).config().vocab as f64;
    let ids = |stream: u64| -> Vec<i32> {
        (0..config.tokens()).map(|i| (draw(stream, i) * vocab) as i32).collect()
    };
    trainer.step(step, 1e-2, &Batch::text(&ids(0), &ids(1))).expect("a step");
}

/// Bits of loss and gradient norm of every step, and of all weights and state at the end: of one rank.
pub(crate) fn run(config: &TrainerConfig, steps: u64, ranks: Option<Threads>) -> Vec<u32> {
    run_on(cpu(), config, steps, ranks)
}

fn cpu() -> Box<Cpu> {
    Box::new(Cpu::new(1).expect("threads"))
}

/// As [`run`], on this device.
fn run_on(
    device: Box<dyn Backend>,
    config: &TrainerConfig,
    steps: u64,
    ranks: Option<Threads>,
) -> Vec<u32> {
    let planned = Planned::new(config, &*device).expect("a plan");
    let predicted = planned.plan.arena_bytes;
    let mut trainer = Trainer::offloading(planned, device, cpu()).expect("memory");
    assert_eq!(trainer.allocated_bytes(), predicted);
    if let Some(ranks) = ranks {
        trainer.join(Box::new(ranks)).expect("as many ranks as planned for");
    }
    trainer.initialise().expect("weights");
    let mut bits = vec![];
    for index in 0..steps {
        step(&mut trainer, config, index);
        let outcome = block_on(trainer.outcome()).expect("an outcome");
        // f16 skips steps until its loss scale fits.
        let may_skip = config.precision == Precision::F16;
        assert!(outcome.updated || may_skip, "step {index} was skipped: {outcome:?}");
        bits.extend([outcome.loss.to_bits(), outcome.grad_norm.to_bits()]);
    }
    for index in 0..trainer.parameters().len() {
        let weight = block_on(trainer.weight(index)).expect("a weight");
        bits.extend(weight.iter().map(|x| x.to_bits()));
    }
    for index in 0..trainer.states().len() {
        let state = block_on(trainer.state(index)).expect("state");
        bits.extend(state.iter().map(|x| x.to_bits()));
    }
    bits
}

/// The same of all ranks, which have the same bits.
pub(crate) fn run_all(config: &TrainerConfig, steps: u64) -> Vec<u32> {
    run_all_on(&|| cpu(), config, steps)
}

/// As [`run_all`], on these devices.
pub(crate) fn run_all_on(
    device: &(dyn Fn() -> Box<dyn Backend> + Sync),
    config: &TrainerConfig,
    steps: u64,
) -> Vec<u32> {
    let group = Threads::group(config.ranks, Duration::from_secs(60));
    let mut all: Vec<Vec<u32>> = thread::scope(|scope| {
        let ranks = group
            .into_iter()
            .map(|rank| scope.spawn(move || run_on(device(), config, steps, Some(rank))));
        let ranks: Vec<_> = ranks.collect();
        ranks.into_iter().map(|rank| rank.join().expect("a rank that ends well")).collect()
    });
    assert!(all.windows(2).all(|two| two[0] == two[1]), "ranks differ");
    all.swap_remove(0)
}

/// With one micro-batch each, ranks sum gradients as one process does that sums them one by one.
#[test]
fn ranks_have_the_bits_of_a_process_that_sums_micro_batches_in_order() {
    type Of = fn(usize, usize) -> TrainerConfig;
    let models: [(&str, Of); 3] = [
        ("gpt2", |ranks, passes| larger(Family::Gpt2, ranks, passes)),
        ("llama", |ranks, passes| larger(Family::Llama, ranks, passes)),
        ("vit", vision),
    ];
    let ways = [
        (Precision::F32, 2),
        (Precision::BF16, 3),
        (Precision::F16, 4),
        (Precision::F32, 5),
        (Precision::BF16, 5),
    ];
    for (name, of_model) in models {
        let ways = Draw::of_today().some(&format!("numbers of ranks of {name}"), ways.to_vec(), 2);
        for (precision, ranks) in ways {
            let of = |ranks_now, gradient_sums| TrainerConfig {
                precision,
                gradient_sums,
                ..of_model(ranks_now, ranks)
            };
            let together = run_all(&of(ranks, GradientSums::Fused), MANY);
            let alone = run(&of(1, GradientSums::Ordered), MANY, None);
            same(&together, &alone, &format!("{name}, {precision:?}, {ranks} ranks"));
        }
    }
}

/// Holds that two runs have the same bits.
#[track_caller]
pub(crate) fn same(found: &[u32], expected: &[u32], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let differing = found.iter().zip(expected).filter(|(a, b)| a != b).count();
    let first = found.iter().zip(expected).position(|(a, b)| a != b);
    assert_eq!(differing, 0, "{what}: of {} bits, {first:?} the first", expected.len());
}

#[test]
fn ranks_with_several_micro_batches_train_as_one_process_does() {
    for family in [Family::Gpt2, Family::Llama] {
        let alone = run(&config(family, 1, 6), STEPS, None);
        for ranks in [2, 3] {
            let together = run_all(&config(family, ranks, 6), STEPS);
            assert_eq!(alone.len(), together.len());
            for (at, (&a, &b)) in alone.iter().zip(&together).enumerate() {
                let [a, b] = [a, b].map(f32::from_bits);
                let near = (a - b).abs() <= 2e-3 * a.abs().max(0.1);
                assert!(near, "{family:?}, {ranks} ranks: number {at} is {b}, not {a}");
            }
        }
    }
}

/// Weights without remainders and state in 16 bits are rounded by the random numbers of one process, by all ranks alike.
#[test]
fn ranks_round_weights_and_state_as_one_process_does() {
    for (family, ranks) in [(Family::Gpt2, 2), (Family::Llama, 3)] {
        let of = |ranks_now, gradient_sums, shard| TrainerConfig {
            precision: Precision::BF16,
            master: Master::None,
            optimizer_bits: StateBits::B16,
            gradient_sums,
            shard,
            ..config(family, ranks_now, ranks)
        };
        let alone = run(&of(1, GradientSums::Ordered, Shard::Nothing), STEPS, None);
        for &shard in Shard::ALL {
            let together = run_all(&of(ranks, GradientSums::Fused, shard), STEPS);
            same(&together, &alone, &format!("{family:?}, {ranks} ranks, {shard:?}"));
        }
    }
}

#[test]
fn each_sample_of_a_batch_is_one_ranks_own() {
    let config = config(Family::Llama, 3, 6);
    let mut takers = vec![0; config.batch];
    for ranks in Threads::group(3, Duration::from_secs(1)) {
        let cpu = Cpu::new(1).expect("threads");
        let planned = Planned::new(&config, &cpu).expect("a plan");
        let mut trainer = Trainer::new(planned, Box::new(cpu)).expect("memory");
        trainer.join(Box::new(ranks)).expect("ranks");
        for (takers, own) in takers.iter_mut().zip(trainer.own_samples()) {
            *takers += usize::from(own);
        }
    }
    assert_eq!(takers, vec![1; config.batch]);
}

#[test]
fn what_ranks_cannot_do_is_refused_by_name() {
    let refused = |config: TrainerConfig| {
        let cpu = Cpu::new(1).expect("threads");
        Planned::new(&config, &cpu).err().expect("a refusal").to_string()
    };
    let said = refused(config(Family::Llama, 4, 6));
    assert!(said.contains("4 don't share the 6 micro-batches of 2"), "{said}");
    let said = refused(TrainerConfig {
        clip: None,
        consume_gradients: true,
        ..config(Family::Llama, 2, 4)
    });
    assert!(said.contains("consume_gradients") && said.contains("one pass"), "{said}");

    let kahan = |shard, passes| TrainerConfig {
        precision: Precision::BF16,
        gradients: Gradients::Kahan,
        shard,
        ..config(Family::Llama, 2, passes)
    };
    let said = refused(kahan(Shard::Gradients, 4));
    assert!(said.contains("bf16-kahan") && said.contains("--shard 1"), "{said}");
    let said = refused(TrainerConfig {
        optimizer: Optimizer::Adafactor,
        shard: Shard::State,
        ..config(Family::Llama, 2, 2)
    });
    assert!(said.contains("memory.shard") && said.contains("adafactor"), "{said}");
    let cpu = Cpu::new(1).expect("threads");
    for (shard, passes) in [(Shard::State, 4), (Shard::Gradients, 2)] {
        assert!(Planned::new(&kahan(shard, passes), &cpu).is_ok(), "{shard:?}, {passes} passes");
    }

    let said = refused(TrainerConfig {
        gradient_sums: GradientSums::Ordered,
        ..config(Family::Llama, 2, 4)
    });
    assert!(said.contains("train.gradient_sums") && said.contains("--shard 2 or 3"), "{said}");

    let planned = Planned::new(&config(Family::Llama, 2, 2), &cpu).expect("a plan");
    let mut trainer = Trainer::new(planned, Box::new(cpu)).expect("memory");
    let three = Threads::group(3, Duration::from_secs(1)).swap_remove(0);
    let said = trainer.join(Box::new(three)).unwrap_err().to_string();
    assert!(said.contains("for 2 ranks, and 3 have come"), "{said}");
    trainer.initialise().expect("weights");
    let tokens = vec![0; 2 * 2 * 24];
    let said = trainer.step(0, 1e-3, &Batch::text(&tokens, &tokens)).unwrap_err().to_string();
    assert!(said.contains("is shared by 2 ranks, and this session is of 1"), "{said}");
}

/// Whatever is cut, and among how many, a step has the same bits: those of ranks that all have everything.
#[test]
fn shards_change_no_bit() {
    let stages = |ranks, of: &dyn Fn(Shard) -> TrainerConfig, what: &str| {
        let whole = run_all(&of(Shard::Nothing), STEPS);
        for &shard in &Shard::ALL[1..] {
            let cut = run_all(&of(shard), STEPS);
            same(&cut, &whole, &format!("{what}, {shard:?}, {ranks} ranks"));
        }
    };
    for (family, precision, ranks) in [
        (Family::Llama, Precision::F32, 2),
        (Family::Llama, Precision::BF16, 3),
        (Family::Gpt2, Precision::F32, 3),
        (Family::Gpt2, Precision::BF16, 4),
        (Family::Gpt2, Precision::F16, 5),
    ] {
        let of = |shard| TrainerConfig { precision, shard, ..larger(family, ranks, ranks) };
        stages(ranks, &of, &format!("{family:?}, {precision:?}"));
    }
    let eight = |shard| TrainerConfig {
        optimizer_bits: StateBits::B8,
        table_bits: TableBits::B8,
        shard,
        ..larger(Family::Gpt2, 3, 3)
    };
    stages(3, &eight, "state in 8 bits");
    let block = |shard| TrainerConfig {
        options: Options { checkpoint: Checkpoint::Block, ..Options::default() },
        shard,
        ..larger(Family::Llama, 2, 2)
    };
    stages(2, &block, "recomputed blocks");
}

/// Adapters over frozen weights that are wide enough to be worth cutting in 4 bits too.
pub(crate) fn adapted(base_bits: FrozenBits, ranks: usize, shard: Shard) -> TrainerConfig {
    let small = config(Family::Llama, ranks, ranks);
    let mut model = language(&small).config().clone();
    (model.channels, model.hidden, model.vocab) = (256, 640, 601);
    let targets = vec![ALL_LINEAR.to_owned()];
    TrainerConfig {
        lora: Some(Lora {
            rank: 4,
            alpha: 8.0,
            targets,
            dropout: 0.1,
            base_bits,
            variant: Default::default(),
        }),
        model: model.build(24).expect("a model"),
        precision: Precision::BF16,
        shard,
        ..small
    }
}

/// Frozen weights come for the block that reads them, as trained ones do.
#[test]
fn shards_of_frozen_weights_change_no_bit() {
    let stages = |of: &dyn Fn(Shard) -> TrainerConfig, what: &str| {
        let [whole, cut] = [Shard::State, Shard::Weights].map(|shard| run_all(&of(shard), STEPS));
        same(&cut, &whole, what);
    };
    for (base_bits, ranks) in
        [(FrozenBits::Precision, 2), (FrozenBits::B8, 3), (FrozenBits::B4, 3), (FrozenBits::B4, 4)]
    {
        stages(&|shard| adapted(base_bits, ranks, shard), &format!("{base_bits:?}, {ranks} ranks"));
    }
    let recomputed = |shard| TrainerConfig {
        options: Options { checkpoint: Checkpoint::Block, ..Options::default() },
        ..adapted(FrozenBits::B4, 2, shard)
    };
    stages(&recomputed, "recomputed blocks over 4 bits");
    let patterns = |shard| TrainerConfig {
        frozen: vec!["*.attn.*".into(), "wte.weight".into()],
        shard,
        ..larger(Family::Gpt2, 3, 3)
    };
    stages(&patterns, "attention and embeddings frozen");
    let taught = |shard| {
        let own = larger(Family::Gpt2, 2, 2);
        let how = Distillation { temperature: 2.0, soft_share: 0.5 };
        let model = LanguageModel::new(language(&own).config(), 24).expect("a model");
        let model = model.taught_by(language(&own).config(), how).expect("a teacher");
        TrainerConfig { model: Arc::new(model), shard, ..own }
    };
    stages(&taught, "a teacher");
}

/// Of what is large, each rank keeps its part, scales among it.
#[test]
fn frozen_weights_take_a_rank_its_part_of_them() {
    const RANKS: usize = 4;
    let model = tightrope_nn::preset("llama-3.1-8b").expect("a preset");
    let cpu = Cpu::new(1).expect("threads");
    let kept = |ranks: usize, shard| {
        let config = TrainerConfig {
            model: model.build(2048).expect("a model"),
            optimizer_bits: StateBits::B8,
            batch: ranks,
            micro_batch: 1,
            options: Options { checkpoint: Checkpoint::Block, ..Options::default() },
            ..adapted(FrozenBits::B4, ranks, shard)
        };
        let plan = Planned::new(&config, &cpu).expect("a plan").plan;
        let frozen = plan.graph.tensors.iter().filter(|info| {
            info.class == Class::Frozen && info.life == Life::Persistent && info.replaces.is_none()
        });
        let bytes: usize = frozen.map(|info| info.ty.bytes()).sum();
        (bytes, plan.peak_bytes())
    };
    let [(whole, peak), (cut, peak_of_rank)] =
        [kept(1, Shard::Nothing), kept(RANKS, Shard::Weights)];
    println!(
        "8B in 4 bits: {whole} bytes of one, {cut} of each of {RANKS}; peaks {peak} and {peak_of_rank}"
    );
    // Norms and means are everybody's, and shards are whole blocks of 4,096 elements.
    assert!(cut >= whole / RANKS && cut < whole / RANKS + (4 << 20), "{cut} of {whole}");
    assert!(peak_of_rank + (whole as u64 - cut as u64) / 2 < peak, "{peak_of_rank} of {peak}");
}

/// Where gradients are summed with each pass, a run of any number of ranks is that of one process.
#[test]
fn shards_of_gradients_have_the_bits_of_one_process_whatever_the_number_of_ranks() {
    for (family, precision) in [(Family::Llama, Precision::F32), (Family::Gpt2, Precision::BF16)] {
        let of = |ranks, shard| TrainerConfig {
            precision,
            shard,
            gradient_sums: GradientSums::Ordered,
            ..larger(family, ranks, 6)
        };
        let alone = run(&of(1, Shard::Nothing), MANY, None);
        for (ranks, shard) in [(2, Shard::Gradients), (2, Shard::Weights), (3, Shard::Weights)] {
            let together = run_all(&of(ranks, shard), MANY);
            same(
                &together,
                &alone,
                &format!("{family:?}, {precision:?}, {ranks} ranks, {shard:?}"),
            );
        }
    }
}

/// State that is kept between steps, bytes: those of Rajbhandari et al. 2020, "ZeRO", section 3, as far as shards are whole blocks. In f16
/// with gradients in bf16 a parameter has 2 bytes of weight, 2 of gradient and 12 of master and moments.
#[test]
fn state_is_what_zero_says() {
    const RANKS: usize = 4;
    let model = tightrope_nn::preset("gpt2").expect("a preset");
    let cpu = Cpu::new(1).expect("threads");
    for shard in Shard::ALL {
        // Of several passes, gradients are kept too.
        let config = TrainerConfig {
            precision: Precision::F16,
            gradients: Gradients::BF16,
            batch: 2 * RANKS,
            ranks: RANKS,
            shard: *shard,
            ..TrainerConfig::new(model.build(64).expect("a model"))
        };
        let planned = Planned::new(&config, &cpu).expect("a plan");
        let graph = &planned.plan.graph;
        let kept = graph.tensors.iter().filter(|info| {
            let state = matches!(info.class, Class::Weight | Class::Gradient | Class::Optimizer);
            // The rate, sums of losses and the like are of one element.
            let single = info.ty.elements() == 1;
            state && !single && info.life == Life::Persistent && info.replaces.is_none()
        });
        let bytes: usize = kept.map(|info| info.ty.bytes()).sum();

        let (mut expected, mut parameters) = (0, 0);
        for parameter in config.parameters().expect("parameters") {
            let elements = parameter.elements();
            let shard_of = elements.div_ceil(RANKS).next_multiple_of(4096).min(elements);
            let gradient = if parameter.shape.len() > 1 { 2 } else { 4 };
            // Small weights are everybody's.
            let weights = *shard >= Shard::Weights && 2 * elements >= 1 << 16;
            let of = |cut: bool| if cut { shard_of } else { elements };
            expected += 2 * of(weights)
                + gradient * of(*shard >= Shard::Gradients)
                + 12 * of(*shard >= Shard::State);
            parameters += elements;
        }
        assert_eq!(bytes, expected, "{shard:?}");
        let (psi, n) = (parameters as f64, RANKS as f64);
        let paper = match shard {
            Shard::Nothing => 16.0 * psi,
            Shard::State => 4.0 * psi + 12.0 * psi / n,
            Shard::Gradients => 2.0 * psi + 14.0 * psi / n,
            Shard::Weights => 16.0 * psi / n,
        };
        let above = bytes as f64 / paper - 1.0;
        assert!((0.0..0.005).contains(&above), "{shard:?} takes {bytes}, and the paper {paper}");
    }
}
