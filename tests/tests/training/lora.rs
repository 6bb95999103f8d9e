//! Adapters beside frozen weights: what they take, that they train, and that their gradients are right.

use conformance::cases::retyped_op;
use conformance::draw::Draw;
use conformance::language::language;
use conformance::reference::Interpreter;
use conformance::values::uniform;
use pollster::block_on;
use tightrope_backend_cpu::Cpu;
use tightrope_core::plan::{Checkpoint, Options};
use tightrope_core::{Class, DType, Graph, Op, Phase, Role, Tensor, Type, Wanted, grad};
use tightrope_nn::inputs::{POSITIONS, TARGETS, TOKENS};
use tightrope_nn::lora::ALL_LINEAR;
use tightrope_nn::{
    Batch, BuildOptions, FrozenBits, Inputs, Lora, ModelConfig, Pass, Planned, Precision, Trainer,
    TrainerConfig, Weights, initial_values, parameters, preset,
};

use crate::text::{VOCAB, saved, train};

/// Every storage of frozen weights.
const ALL_BITS: [FrozenBits; 3] = [FrozenBits::Precision, FrozenBits::B8, FrozenBits::B4];

fn lora(targets: &[&str]) -> Lora {
    let targets = targets.iter().map(|&target| target.to_owned()).collect();
    Lora {
        rank: 4,
        alpha: 8.0,
        targets,
        dropout: 0.0,
        base_bits: FrozenBits::Precision,
        variant: Default::default(),
    }
}

fn small(family: &str) -> ModelConfig {
    let name = if family == "llama" { "llama-tiny" } else { "tiny" };
    ModelConfig { layers: 2, vocab: VOCAB, context: 32, ..preset(name).expect("a preset") }
}

fn config(model: ModelConfig, lora: Option<Lora>) -> TrainerConfig {
    TrainerConfig {
        batch: 8,
        micro_batch: 8,
        build: BuildOptions::default(),
        seed: 5,
        lora,
        ..TrainerConfig::new(model.build(32).expect("a model"))
    }
}

fn planned(config: &TrainerConfig) -> (Planned, Cpu) {
    let cpu = Cpu::new(2).expect("threads");
    (Planned::new(config, &cpu).expect("a plan"), cpu)
}

fn trainer(config: &TrainerConfig) -> Trainer {
    let (planned, cpu) = planned(config);
    let predicted = planned.plan.arena_bytes;
    let mut trainer = Trainer::new(planned, Box::new(cpu)).expect("memory");
    assert_eq!(trainer.allocated_bytes(), predicted);
    trainer.initialise().expect("weights");
    trainer
}

/// Every form of adapters that there is, on both families.
fn forms() -> Vec<TrainerConfig> {
    let mut forms = vec![];
    for (family, targets) in
        [("gpt2", &[ALL_LINEAR][..]), ("llama", &[ALL_LINEAR]), ("llama", &["q_proj", "v_proj"])]
    {
        for base_bits in ALL_BITS {
            let lora = Lora { base_bits, dropout: 0.1, ..lora(targets) };
            forms.push(config(small(family), Some(lora)));
        }
    }
    forms
}

#[test]
fn nothing_is_kept_for_a_frozen_weight() {
    let model = preset("gpt2").expect("a preset");
    let lora = Lora { rank: 8, ..lora(&[ALL_LINEAR]) };
    let with = |lora: &Lora| TrainerConfig {
        model: model.build(1024).expect("a model"),
        build: BuildOptions { loss_chunk: 256, ..BuildOptions::default() },
        ..config(model.clone(), Some(lora.clone()))
    };
    let trained: u64 = lora.trained(&parameters(&model));
    for micro_batch in [8, 1] {
        let (planned, _) = planned(&TrainerConfig { micro_batch, ..with(&lora) });
        let graph = &planned.plan.graph;
        let kept = |class: Class| -> u64 {
            let roots = graph.tensors.iter().filter(|info| info.replaces.is_none());
            let kept = roots.filter(|info| info.life == tightrope_core::Life::Persistent);
            kept.filter(|info| info.class == class).map(|info| info.ty.bytes() as u64).sum()
        };
        // Padding of the vocabulary included.
        let base = 4 * (model.parameters() + (50_304 - 50_257) * 768);
        assert_eq!(kept(Class::Frozen), base);
        assert_eq!(kept(Class::Weight), 4 * trained);
        assert_eq!(kept(Class::Gradient), if micro_batch == 8 { 0 } else { 4 * trained });
        // Two moments, and the numbers that the host writes and reads.
        let scalars = kept(Class::Optimizer) - 8 * trained;
        assert!(scalars < 64, "{scalars} bytes of state of nothing");
        let gradients = graph
            .tensors
            .iter()
            .filter(|info| info.class == Class::Gradient && info.replaces.is_none());
        assert!(gradients.clone().count() > 0);
        for info in gradients {
            assert!(info.name.contains("lora_"), "{} is a gradient", info.name);
        }
    }
    let [whole, eight, four] = ALL_BITS.map(|base_bits| {
        planned(&with(&Lora { base_bits, ..lora.clone() })).0.plan.persistent_bytes
    });
    // 12 blocks of 12·768² weights: 4 bytes each, or 1 and an f32 for each 256.
    let weights = 12 * 12 * 768 * 768;
    assert_eq!(whole - eight, 4 * weights - weights - weights / 64);
    // Or half a byte, a byte for each 64, an f32 for each 256 of these, and the means, each in a place of its own.
    let less = 4 * weights - weights / 2 - weights / 64 - weights / 4096;
    assert!((whole - four).abs_diff(less) < 2 * 48 * 256, "{} and {less}", whole - four);
}

#[test]
fn the_backward_pass_reads_no_weight_that_the_forward_pass_dequantised() {
    for config in forms()
        .into_iter()
        .filter(|c| c.lora.as_ref().is_some_and(|l| l.base_bits != FrozenBits::Precision))
    {
        for checkpoint in [Checkpoint::None, Checkpoint::Block, Checkpoint::Sqrt] {
            let options = Options { checkpoint, ..Options::default() };
            let (planned, _) = planned(&TrainerConfig { options, ..config.clone() });
            let graph = &planned.plan.graph;
            let nodes = &graph.programs[0].nodes;
            for (index, node) in nodes.iter().enumerate() {
                if !matches!(node.op, Op::Dequantize(_) | Op::DequantizeNf4(_)) {
                    continue;
                }
                let read = |other: &&tightrope_core::Node| other.inputs.contains(&node.outputs[0]);
                let readers: Vec<_> = nodes[index..].iter().filter(read).collect();
                assert_eq!(readers.len(), 1, "{}", graph.info(node.outputs[0]).name);
                let last = node.phase == Phase::Backward;
                assert_eq!(readers[0].phase == Phase::Backward, last);
                let next = nodes[index + 1].inputs.contains(&node.outputs[0]);
                assert!(next || node.phase == Phase::Recompute, "made too early");
            }
        }
    }
}

#[test]
fn adapters_begin_as_the_model_alone() {
    for family in ["gpt2", "llama"] {
        let model = small(family);
        let tokens: Vec<i32> = (0..8 * 32).map(|i| i * 7 % 50).collect();
        let loss = |lora: Option<Lora>| {
            let mut trainer = trainer(&config(model.clone(), lora));
            block_on(trainer.evaluate(&Batch::text(&tokens, &tokens))).expect("a loss").loss
        };
        let alone = loss(None);
        assert_eq!(loss(Some(lora(&[ALL_LINEAR]))), alone, "{family}");
        for (base_bits, near) in [(FrozenBits::B8, 2e-3), (FrozenBits::B4, 2e-2)] {
            let quantized = loss(Some(Lora { base_bits, ..lora(&[ALL_LINEAR]) }));
            let off = (quantized - alone).abs();
            assert!(
                0.0 < off && off < near,
                "{family}: {quantized} in {base_bits:?}, {alone} in 32"
            );
        }
    }
}

#[test]
fn adapters_learn_as_well_beside_weights_in_8_and_4_bits() {
    for family in ["gpt2", "llama"] {
        let end = |base_bits: FrozenBits, precision: Precision| {
            let lora = Lora { base_bits, rank: 8, ..lora(&[ALL_LINEAR]) };
            let config = TrainerConfig { precision, ..config(small(family), Some(lora)) };
            let losses = train(&mut trainer(&config), 0..60, 1e-2);
            assert!(losses[0] > 3.8, "{}", losses[0]);
            losses[50..].iter().sum::<f32>() / 10.0
        };
        let [single, eight, four] = ALL_BITS.map(|bits| end(bits, Precision::F32));
        let half = end(FrozenBits::B4, Precision::BF16);
        println!(
            "{family}: {single} beside f32, {eight} beside 8 bits, {four} beside 4, {half} in bf16"
        );
        // The frozen weights are random: there is only so much to adapt.
        assert!(single < 3.2, "{family} doesn't learn: {single}");
        assert!((eight - single).abs() < 0.01, "{family}: {eight} and {single}");
        assert!((four - single).abs() < 0.03, "{family}: {four} and {single}");
        assert!((half - four).abs() < 0.01, "{family}: {half} and {four}");
    }
}

#[test]
fn a_run_continues_from_its_adapters_bit_for_bit() {
    for config in forms() {
        let mut whole = trainer(&config);
        train(&mut whole, 0..4, 1e-3);
        let checkpoint = saved(&mut whole);
        let mut resumed = trainer(&config);
        let get = |name: &str| Ok(checkpoint[name].clone());
        let [weights, states] = [resumed.saved_weights(), resumed.saved_states()]
            .map(|list| list.into_iter().map(|tensor| tensor.name).collect::<Vec<_>>());
        assert!(weights.iter().all(|name| name.starts_with("base_model.model.")), "{weights:?}");
        resumed.load_adapters(&weights, &mut { get }).expect("adapters");
        resumed.load_states(&states, &mut { get }).expect("state");
        let losses = [&mut whole, &mut resumed].map(|trainer| train(trainer, 4..8, 1e-3));
        assert_eq!(losses[0], losses[1]);
        assert!(saved(&mut whole) == saved(&mut resumed), "{:?}", config.lora);
    }
}

#[test]
fn recomputed_adapters_change_no_bit() {
    for base in forms() {
        let run = |checkpoint: Checkpoint, micro_batch: usize| {
            let options = Options { checkpoint, ..Options::default() };
            let mut trainer = trainer(&TrainerConfig { options, micro_batch, ..base.clone() });
            let losses = train(&mut trainer, 0..3, 1e-3);
            (losses, saved(&mut trainer))
        };
        for micro_batch in [8, 2] {
            let kept = run(Checkpoint::None, micro_batch);
            assert!(kept == run(Checkpoint::Block, micro_batch), "{:?}", base.lora);
            assert!(kept == run(Checkpoint::Sqrt, micro_batch), "{:?}", base.lora);
        }
    }
}

/// The same graph in f64.
fn widened(mut graph: Graph) -> Graph {
    let wide = |dtype: DType| if dtype == DType::F32 { DType::F64 } else { dtype };
    graph.tensors.iter_mut().for_each(|info| info.ty.dtype = wide(info.ty.dtype));
    for node in graph.programs.iter_mut().flat_map(|program| &mut program.nodes) {
        node.op = retyped_op(&node.op, &wide);
    }
    graph
}

#[test]
fn gradients_of_adapters_match_central_differences() {
    const STEP: f64 = 1e-4;
    for config in Draw::of_today().one_of(2, "forms of adapters", forms()) {
        let lora = config.lora.as_ref().expect("all forms have adapters");
        let model = language(&config).config().build(5).expect("a model");
        let mut graph = Graph::new();
        let list = model.parameters();
        let weights = Weights::adapted(&mut graph, list, Precision::F32, Some(lora));
        let weights = weights.expect("weights");
        let given = |graph: &mut Graph, name: &str, dtype, shape: &[usize]| {
            graph.persistent(name, Type::new(dtype, shape), Class::Input)
        };
        let inputs = Inputs::declare(&mut graph, &model.inputs(), 2).expect("inputs");
        let key = given(&mut graph, "key", DType::U32, &[4]);
        let seed = given(&mut graph, "seed", DType::F32, &[1]);
        graph.begin(Role::Train);
        let options = BuildOptions::default();
        let mut pass = Pass::training(&mut graph, &weights, inputs.clone(), options, Some(key));
        let loss = model.loss(&mut pass).expect("a loss");
        let wanted: Vec<Wanted> = weights.trained().1.iter().map(|&t| t.into()).collect();
        let gradients = grad(&mut graph, loss, seed, &wanted).expect("gradients");
        let graph = widened(graph);
        let run = Interpreter::new(&graph);
        let fill = |tensor: Tensor, value: &dyn Fn(usize) -> f64| {
            (0..graph.ty(tensor).elements()).for_each(|i| run.set(tensor, i, value(i)));
        };
        for (index, info) in graph.tensors.iter().enumerate() {
            let tensor = graph.find(&info.name).expect("a name");
            if tensor.index() != index || info.class != Class::Frozen || info.name.contains("again")
            {
                continue;
            }
            match info.ty.dtype {
                DType::I8 => {
                    fill(tensor, &|i| (uniform(index as u64, i as u64) * 255.0).floor() - 127.0)
                }
                _ if info.name.ends_with("scales") => fill(tensor, &|_| 1e-3),
                _ => fill(tensor, &|i| 0.4 * uniform(index as u64, i as u64) - 0.2),
            }
        }
        let (parameters, tensors) = weights.trained();
        for (parameter, &tensor) in parameters.iter().zip(tensors) {
            let values = initial_values(parameter, 3);
            // B begins with zeros, where A has no gradient.
            fill(tensor, &|i| f64::from(values[i]) + 0.2 * uniform(7, i as u64) - 0.1);
        }
        let input = |name: &str| inputs.get(name).expect("an input");
        fill(input(TOKENS), &|i| (i * 7 % 50) as f64);
        fill(input(TARGETS), &|i| (i * 3 % 50) as f64);
        fill(input(POSITIONS), &|i| i as f64);
        fill(seed, &|_| 1.0);
        run.run(0);
        for ((parameter, &tensor), gradient) in parameters.iter().zip(tensors).zip(gradients) {
            let gradient = run.values(gradient.expect("the loss depends on it"));
            let at = run.values(tensor);
            let largest = gradient.iter().fold(0.0, |largest: f64, x| largest.max(x.abs()));
            assert!(largest > 0.0, "{} has no gradient", parameter.name);
            for element in [0, at.len() / 3, at.len() - 1] {
                let [after, before] = [STEP, -STEP].map(|step| {
                    run.set(tensor, element, at[element] + step);
                    run.run(0);
                    run.values(loss)[0]
                });
                run.set(tensor, element, at[element]);
                let quotient = (after - before) / (2.0 * STEP);
                let off = (quotient - gradient[element]).abs() / largest;
                assert!(off < 1e-5, "{} {element}: off by {off}", parameter.name);
            }
            run.run(0);
        }
    }
}
