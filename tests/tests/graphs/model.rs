//! What model graphs are made of, and what they refuse.

use conformance::reference::Interpreter;
use tightrope_core::{Class, DType, Graph, Life, Role, Tensor, Type};
use tightrope_nn::inputs::{POSITIONS, START, TARGETS, TOKENS};
use tightrope_nn::{
    BuildOptions, Inputs, ModelConfig, Pass, Precision, Weights, initial_values, parameters, preset,
};

/// A model in a program `train`, with what it reads.
struct Built {
    weights: Weights,
    inputs: Inputs,
    key: Tensor,
    loss: Tensor,
}

/// A small model's loss over two sequences of 8 tokens.
fn build(graph: &mut Graph, config: &ModelConfig) -> Built {
    let model = config.build(8).unwrap();
    let weights = Weights::declare(graph, model.parameters(), Precision::F32).unwrap();
    let inputs = Inputs::declare(graph, &model.inputs(), 2).unwrap();
    let key = graph.persistent("key", Type::new(DType::U32, [4]), Class::Input);
    graph.begin(Role::Train);
    let options = BuildOptions::default();
    let mut pass = Pass::training(graph, &weights, inputs.clone(), options, Some(key));
    let loss = model.loss(&mut pass).unwrap();
    Built { weights, inputs, key, loss }
}

fn names(graph: &Graph, block: Option<usize>) -> Vec<String> {
    let nodes = graph.programs[0].nodes.iter().filter(|node| node.block == block);
    nodes.map(|node| graph.info(node.outputs[0]).name.clone()).collect()
}

#[test]
fn the_nodes_of_a_gpt2() {
    let mut graph = Graph::new();
    build(&mut graph, &preset("tiny").unwrap());
    let block = [
        "h.1.norm_1.0",
        "h.1.attn.qkv",
        "h.1.attn.out.0",
        "h.1.attn.proj",
        "h.1.attn.residual",
        "h.1.norm_2.0",
        "h.1.mlp.up",
        "h.1.mlp.gelu",
        "h.1.mlp.down",
        "h.1.mlp.residual",
    ];
    assert_eq!(names(&graph, Some(1)), block);
    assert_eq!(names(&graph, None), ["wte", "wpe", "embedding", "norm_f.0", "loss"]);
}

#[test]
fn the_nodes_of_a_llama() {
    let mut graph = Graph::new();
    build(&mut graph, &preset("llama-tiny").unwrap());
    let block = [
        "h.0.norm_1.0",
        "h.0.attn.qkv",
        "h.0.attn.rope",
        "h.0.attn.out.0",
        "h.0.attn.proj",
        "h.0.attn.residual",
        "h.0.norm_2.0",
        "h.0.mlp.gate",
        "h.0.mlp.up",
        "h.0.mlp.swiglu",
        "h.0.mlp.down",
        "h.0.mlp.residual",
    ];
    assert_eq!(names(&graph, Some(0)), block);
    assert_eq!(names(&graph, None), ["wte", "norm_f.0", "loss"]);
}

#[test]
fn weights_are_persistent_and_named_after_parameters() {
    for (precision, weight, remainder) in [
        (Precision::F32, DType::F32, None),
        (Precision::BF16, DType::BF16, Some(DType::I16)),
        (Precision::F16, DType::F16, Some(DType::F32)),
    ] {
        let mut graph = Graph::new();
        let list = parameters(&preset("llama-tiny").unwrap());
        let weights = Weights::declare(&mut graph, list, precision).unwrap();
        for (parameter, &tensor) in weights.parameters().iter().zip(weights.tensors()) {
            let info = graph.info(tensor);
            assert_eq!((info.class, info.life), (Class::Weight, Life::Persistent));
            assert_eq!(info.ty, Type::new(weight, parameter.shape.clone()));
            assert_eq!(graph.find(&parameter.name).unwrap(), tensor);
        }
        let remainders = weights.declare_remainders(&mut graph);
        assert_eq!(remainders.first().map(|&tensor| graph.dtype(tensor)), remainder);
        assert_eq!(remainders.len(), if remainder.is_some() { weights.tensors().len() } else { 0 });
    }
}

#[test]
fn an_untrained_model_guesses_evenly() {
    for name in ["tiny", "llama-tiny"] {
        let mut graph = Graph::new();
        let built = build(&mut graph, &preset(name).unwrap());
        let run = Interpreter::new(&graph);
        start(&run, &built);
        run.run_role(Role::Train);
        let loss = run.scalar(built.loss);
        assert!((loss - 256f64.ln()).abs() < 0.1, "{name}: {loss}");
    }
}

fn start(run: &Interpreter<'_>, Built { weights, inputs, .. }: &Built) {
    for (parameter, &weight) in weights.parameters().iter().zip(weights.tensors()) {
        run.assign(weight, &initial_values(parameter, 1));
    }
    let write = |name: &str, values: Vec<i32>| run.assign(inputs.get(name).unwrap(), &values);
    write(TOKENS, (0..16).map(|i| i * 7 % 256).collect());
    write(TARGETS, (0..16).map(|i| i * 11 % 256).collect());
    write(POSITIONS, (0..8).collect());
}

#[test]
fn dropout_follows_its_key_and_keeps_the_mean() {
    for name in ["tiny", "llama-tiny"] {
        let config = ModelConfig { dropout: 0.25, ..preset(name).unwrap() };
        let mut graph = Graph::new();
        let built = build(&mut graph, &config);
        let embedding = graph.find("embedding").unwrap();
        graph.begin(Role::Eval);
        let (inputs, options) = (built.inputs.clone(), BuildOptions::default());
        let mut pass = Pass::evaluation(&mut graph, &built.weights, inputs, options);
        let eval = config.build(8).unwrap().loss(&mut pass).unwrap();
        let run = Interpreter::new(&graph);
        start(&run, &built);
        let at = |step: u32| {
            run.assign(built.key, &[9, 9, step, 0]);
            run.run_role(Role::Train);
            (run.scalar(built.loss), run.values(embedding))
        };
        let ((first, values), (again, _), (second, _)) = (at(1), at(1), at(2));
        assert_eq!(first, again);
        assert_ne!(first, second);
        let dropped = values.iter().filter(|&&x| x == 0.0).count() as f64 / values.len() as f64;
        assert!((dropped - 0.25).abs() < 0.05, "{name}: {dropped}");
        run.run_role(Role::Eval);
        assert!((run.scalar(eval) - first).abs() < 0.2);
        let kept: Vec<f64> = run.values(if name == "tiny" {
            graph.find("embedding").unwrap()
        } else {
            graph.find("wte").unwrap()
        });
        for (after, before) in values.iter().zip(kept) {
            assert!(*after == 0.0 || (after - before / 0.75).abs() < 1e-6);
        }
    }
}

#[test]
fn refusals() {
    let config = preset("tiny").unwrap();
    let model = config.build(8).unwrap();
    let mut graph = Graph::new();
    let weights = Weights::declare(&mut graph, model.parameters(), Precision::F32).unwrap();
    let fits = Inputs::declare(&mut graph, &model.inputs(), 2).unwrap();
    graph.begin(Role::Train);
    let lacking = |graph: &mut Graph, left_out: &str, given: &str| {
        let mut inputs = Inputs::default();
        for name in [TOKENS, TARGETS, POSITIONS, START] {
            let source = if name == left_out { given } else { name };
            if let Ok(tensor) = fits.get(source) {
                inputs = inputs.with(name, tensor);
            }
        }
        let mut pass = Pass::evaluation(graph, &weights, inputs, BuildOptions::default());
        model.loss(&mut pass).map(drop)
    };
    let decoded = {
        let mut pass = Pass::decoding(&mut graph, &weights, fits.clone(), 65);
        model.decoder().unwrap().decode(&mut pass).map(drop)
    };
    let other = {
        let inputs = fits.clone();
        let mut pass = Pass::evaluation(&mut graph, &weights, inputs, BuildOptions::default());
        // As many heads as the other model has, so that its weights fit up to the feed-forward layer.
        let llama = ModelConfig { kv_heads: 4, ..preset("llama-tiny").unwrap() };
        llama.build(8).unwrap().loss(&mut pass).map(drop)
    };
    for (message, words) in [
        (config.build(65).map(drop), "65 tokens is longer"),
        (config.build(0).map(drop), "`tokens`: a sequence has at least one token"),
        (lacking(&mut graph, POSITIONS, START), "map `embedding`: f32[1, 64] is not a suffix"),
        (lacking(&mut graph, TARGETS, START), "targets must be i32, one for each of 16 rows"),
        (lacking(&mut graph, TARGETS, "none"), "it has no input `targets`"),
        (decoded, "65 tokens is longer"),
        (other, "it reads a parameter `h.0.mlp.gate.weight` that it doesn't list"),
        (ModelConfig { heads: 3, ..config }.build(8).map(drop), "3 heads don't divide"),
    ] {
        let message = message.unwrap_err().to_string();
        assert!(message.contains(words), "{message}");
    }
}
