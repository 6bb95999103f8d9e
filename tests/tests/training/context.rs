//! Several ranks that have a part of each sequence: they train as one process that has it whole.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use conformance::values::uniform;
use pollster::block_on;
use tightrope_backend_cpu::Cpu;
use tightrope_core::plan::{Checkpoint, Options};
use tightrope_nn::inputs::{DOCUMENTS, POSITIONS, TARGETS, TOKENS};
use tightrope_nn::layers::{AttentionKind, Distillation};
use tightrope_nn::{
    Batch, BuildOptions, Family, LanguageModel, ModelConfig, Offload, Optimizer, Planned,
    Precision, Shard, Trainer, TrainerConfig,
};
use tightrope_ranks::Threads;

const SEQ_LEN: usize = 24;
const VOCAB: usize = 61;

/// Of four heads, which 2 and 4 ranks divide: with `kv_heads` of 2 or 1, 4 have copies of those of keys and values.
fn settings(family: Family, kv_heads: usize) -> ModelConfig {
    let preset = if family == Family::Gpt2 { "tiny" } else { "llama-tiny" };
    let mut details = family.details(2);
    // Windows reach from one rank's part into another's.
    details.window = details.window.map(|_| 9);
    ModelConfig {
        family,
        layers: 2,
        channels: 32,
        hidden: 48,
        heads: 4,
        kv_heads,
        context: SEQ_LEN,
        vocab: VOCAB,
        details,
        ..tightrope_nn::preset(preset).expect("a preset")
    }
}

/// Steps of four sequences by plain gradient descent, so that weights show gradients as they are.
fn config(model: LanguageModel, ranks: usize, context_ranks: usize) -> TrainerConfig {
    TrainerConfig {
        batch: 4,
        micro_batch: 2,
        ranks,
        context_ranks,
        build: BuildOptions { loss_chunk: 10, ..BuildOptions::default() },
        optimizer: Optimizer::Sgd { momentum: 0.0 },
        seed: 5,
        ..TrainerConfig::new(Arc::new(model))
    }
}

fn of(settings: &ModelConfig, ranks: usize, context_ranks: usize) -> TrainerConfig {
    config(LanguageModel::new(settings, SEQ_LEN).expect("a model"), ranks, context_ranks)
}

/// Numbers of a batch of four sequences: tokens, targets of which some don't count, documents and positions.
struct Numbers {
    inputs: [Vec<i32>; 4],
    packed: bool,
}

impl Numbers {
    fn new(step: u64, packed: bool) -> Self {
        let draw = |stream: u64, at: usize| uniform(step * 97 + stream, at as u64);
        let count = 4 * SEQ_LEN;
        let tokens = (0..count).map(|at| (draw(0, at) * VOCAB as f64) as i32).collect();
        let target = |at: usize| if draw(2, at) < 0.4 { -1 } else { (draw(1, at) * 61.0) as i32 };
        let targets = (0..count).map(target).collect();
        let (mut documents, mut positions) = (vec![], vec![]);
        for at in 0..count {
            let begins = at % SEQ_LEN == 0;
            let (document, position) = match (documents.last(), positions.last()) {
                (Some(&document), Some(&position)) if !begins && draw(3, at) > 0.1 => {
                    (document, position + 1)
                }
                (Some(&document), _) if !begins => (document + 1, 0),
                _ => (0, 0),
            };
            documents.push(document);
            positions.push(position);
        }
        Self { inputs: [tokens, targets, documents, positions], packed }
    }

    fn batch(&self, samples: usize) -> Batch<'_> {
        let names = [TOKENS, TARGETS, DOCUMENTS, POSITIONS];
        let given = names.into_iter().zip(&self.inputs).take(if self.packed { 4 } else { 2 });
        given.fold(Batch::new(), |batch, (name, numbers)| {
            batch.with(name, &numbers[..samples * SEQ_LEN])
        })
    }
}

/// Losses and norms of three steps, a loss on other data, and all weights at the end, as one rank has them.
fn run(config: &TrainerConfig, ranks: Option<Threads>) -> Vec<f32> {
    let cpu = Cpu::new(1).expect("threads");
    let planned = Planned::new(config, &cpu).expect("a plan");
    let predicted = planned.plan.arena_bytes;
    let host = Cpu::new(1).expect("threads");
    let mut trainer = Trainer::offloading(planned, Box::new(cpu), Box::new(host)).expect("memory");
    assert_eq!(trainer.allocated_bytes(), predicted);
    if let Some(ranks) = ranks {
        trainer.join(Box::new(ranks)).expect("as many ranks as planned for");
    }
    trainer.initialise().expect("weights");
    let packed = config.model.inputs().iter().any(|input| input.name == DOCUMENTS);
    let mut found = vec![];
    for step in 0..3 {
        let numbers = Numbers::new(step, packed);
        trainer.step(step, 0.1, &numbers.batch(4)).expect("a step");
        let outcome = block_on(trainer.outcome()).expect("an outcome");
        assert!(outcome.updated, "{outcome:?}");
        assert_eq!(outcome.tokens, 4 * SEQ_LEN);
        found.extend([outcome.loss, outcome.grad_norm]);
    }
    let numbers = Numbers::new(9, packed);
    let evaluated = block_on(trainer.evaluate(&numbers.batch(config.micro_batch))).expect("a loss");
    found.push(evaluated.loss);
    for index in 0..trainer.parameters().len() {
        found.extend(block_on(trainer.weight(index)).expect("a weight"));
    }
    found
}

/// The same of all ranks, which have the same bits but for the loss on other data, of which each context has its own.
fn run_all(config: &TrainerConfig) -> Vec<f32> {
    let group = Threads::group(config.ranks, Duration::from_secs(60));
    let mut all: Vec<Vec<f32>> = thread::scope(|scope| {
        let ranks: Vec<_> =
            group.into_iter().map(|rank| scope.spawn(move || run(config, Some(rank)))).collect();
        ranks.into_iter().map(|rank| rank.join().expect("a rank that ends well")).collect()
    });
    let bits = |found: &[f32]| found.iter().map(|x| x.to_bits()).collect::<Vec<u32>>();
    assert!(all.windows(2).all(|two| bits(&two[0]) == bits(&two[1])), "ranks differ");
    all.swap_remove(0)
}

/// Holds that two runs differ by the order of sums alone.
#[track_caller]
fn near(found: &[f32], expected: &[f32], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (at, (a, b)) in found.iter().zip(expected).enumerate() {
        assert!((a - b).abs() <= 2e-5 * b.abs().max(0.5), "{what}: number {at} is {a}, not {b}");
    }
}

#[test]
fn ranks_with_parts_of_sequences_train_as_one_process_with_whole_ones() {
    for (family, kv_heads, ranks) in [
        (Family::Gpt2, 4, 2),
        (Family::Gpt2, 4, 4),
        (Family::Llama, 2, 2),
        (Family::Mistral, 4, 4),
        (Family::Gemma2, 2, 2),
        (Family::Qwen3, 4, 2),
        (Family::Llama, 2, 4),
        (Family::Qwen3, 1, 2),
        (Family::Gemma2, 1, 4),
    ] {
        let settings = settings(family, kv_heads);
        let alone = run(&of(&settings, 1, 1), None);
        let together = run_all(&of(&settings, ranks, ranks));
        near(&together, &alone, &format!("{family:?}, {ranks} ranks"));
        // One sequence of a pass, and contexts that take turns.
        let single = TrainerConfig { micro_batch: 1, ..of(&settings, ranks, 2) };
        let alone = run(&TrainerConfig { ranks: 1, context_ranks: 1, ..single.clone() }, None);
        near(&run_all(&single), &alone, &format!("{family:?}, {ranks} ranks by twos"));
    }
}

/// Ranks that don't divide heads, or are more: some heads are zeros then.
#[test]
fn any_number_of_ranks_shares_sequences() {
    for (family, heads, kv_heads, ranks) in [
        (Family::Gpt2, 3, 3, 2),
        (Family::Gpt2, 2, 2, 4),
        (Family::Llama, 4, 4, 3),
        (Family::Llama, 6, 2, 4),
        (Family::Qwen3, 6, 3, 2),
        (Family::Gemma2, 4, 1, 6),
        (Family::Mistral, 6, 2, 8),
    ] {
        let settings = ModelConfig { heads, channels: 8 * heads, ..settings(family, kv_heads) };
        let alone = run(&of(&settings, 1, 1), None);
        let together = run_all(&of(&settings, ranks, ranks));
        near(&together, &alone, &format!("{family:?}, {heads} of {kv_heads} heads, {ranks} ranks"));
    }
}

#[test]
fn documents_reach_from_one_rank_to_another() {
    for (family, micro_batch, ranks) in
        [(Family::Gpt2, 2, 4), (Family::Llama, 1, 4), (Family::Llama, 2, 3)]
    {
        let packed = |ranks| {
            let model = LanguageModel::new(&settings(family, 4), SEQ_LEN).expect("a model");
            TrainerConfig { micro_batch, ..config(model.packed(), ranks, ranks) }
        };
        let alone = run(&packed(1), None);
        near(&run_all(&packed(ranks)), &alone, &format!("{family:?}, {ranks} ranks"));
    }
}

#[test]
fn a_teacher_and_eager_attention_go_along() {
    let taught = |ranks| {
        let settings = settings(Family::Llama, 2);
        let how = Distillation { temperature: 2.0, soft_share: 0.5 };
        let model = LanguageModel::new(&settings, SEQ_LEN).expect("a model");
        config(model.taught_by(&settings, how).expect("a teacher"), ranks, ranks)
    };
    near(&run_all(&taught(2)), &run(&taught(1), None), "a teacher");
    let eager = |ranks| {
        let whole = of(&settings(Family::Gpt2, 4), ranks, ranks);
        let build = BuildOptions { attention: AttentionKind::Eager, ..whole.build };
        TrainerConfig { build, ..whole }
    };
    near(&run_all(&eager(4)), &run(&eager(1), None), "eager attention");
}

/// What is cut, recomputed or left to the host changes no bit of ranks that share contexts.
#[test]
fn shards_recomputation_and_offload_change_no_bit() {
    let wide = ModelConfig { channels: 128, hidden: 300, ..settings(Family::Llama, 4) };
    for precision in [Precision::F32, Precision::BF16] {
        let of = |shard| TrainerConfig { precision, shard, ..of(&wide, 4, 2) };
        let whole = run_all(&of(Shard::Nothing));
        for &shard in &Shard::ALL[1..] {
            assert_eq!(run_all(&of(shard)), whole, "{precision:?}, {shard:?}");
        }
        let options = Options { checkpoint: Checkpoint::Block, ..Options::default() };
        let recomputed = TrainerConfig { options, ..of(Shard::Weights) };
        assert_eq!(run_all(&recomputed), whole, "{precision:?}, recomputed blocks");
        let offload = Offload { optimizer: true, activations: true, ..Offload::NONE };
        let offloaded = TrainerConfig { offload, ..of(Shard::Gradients) };
        assert_eq!(run_all(&offloaded), whole, "{precision:?}, offloaded");
    }
}

/// A long sequence takes each of several ranks its part of the activations.
#[test]
fn activations_of_a_sequence_are_cut_among_its_ranks() {
    let cpu = Cpu::new(1).expect("threads");
    let settings = ModelConfig { context: 8192, ..tightrope_nn::preset("llama-tiny").unwrap() };
    let settings = ModelConfig { kv_heads: settings.heads, ..settings };
    let planned = |ranks| {
        let model = LanguageModel::new(&settings, 8192).expect("a model");
        let config = TrainerConfig { batch: 1, micro_batch: 1, ..config(model, ranks, ranks) };
        let planned = Planned::new(&config, &cpu).expect("a plan");
        planned.plan.programs.iter().map(|program| program.transient_bytes).max().unwrap()
    };
    let (alone, each) = (planned(1), planned(4));
    assert!(10 * each <= 3 * alone, "{each} bytes of each of 4 ranks, {alone} of one");
}

#[test]
fn what_ranks_cannot_share_is_refused_by_name() {
    let cpu = Cpu::new(1).expect("threads");
    let refused =
        |config: &TrainerConfig| Planned::new(config, &cpu).err().expect("a refusal").to_string();
    let gpt2 = settings(Family::Gpt2, 4);
    let said = refused(&of(&gpt2, 4, 3));
    assert!(
        said.contains("run.context_ranks") && said.contains("3 isn't a divisor of 4"),
        "{said}"
    );
    let odd = LanguageModel::new(&gpt2, SEQ_LEN - 1).expect("a model");
    let said = refused(&config(odd, 2, 2));
    assert!(said.contains("2 ranks don't share sequences of 23 tokens evenly"), "{said}");
    assert!(said.contains("a context that is a multiple of 2"), "{said}");
    let pairs = LanguageModel::new(&gpt2, SEQ_LEN).expect("a model").of_pairs(0.1).expect("pairs");
    let said = refused(&TrainerConfig { losses: true, ..config(pairs, 2, 2) });
    assert!(said.contains("needs each sequence whole"), "{said}");
}
