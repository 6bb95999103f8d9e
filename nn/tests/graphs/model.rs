//! What model graphs are made of, and what they refuse.

use tightrope_core::{Class, DType, Graph, Life, Role, Tensor, Type};
use tightrope_nn::{
    BuildOptions, DecodeInputs, Inputs, Model, ModelConfig, Precision, initial_values, preset,
};

use crate::interpreter::Interpreter;

fn inputs(graph: &mut Graph, batch: usize, time: usize) -> Inputs {
    let mut given = |name: &str, dtype, shape: &[usize]| {
        graph.persistent(name, Type::new(dtype, shape), Class::Input)
    };
    Inputs {
        tokens: given("tokens", DType::I32, &[batch, time]),
        targets: given("targets", DType::I32, &[batch, time]),
        positions: given("positions", DType::I32, &[time]),
        start: given("start", DType::I32, &[1]),
        key: Some(given("key", DType::U32, &[4])),
    }
}

/// A small model's loss in a program `train`.
fn build(graph: &mut Graph, config: &ModelConfig) -> (Model, Inputs, Tensor) {
    let model = Model::declare(graph, config, Precision::F32).unwrap();
    let inputs = inputs(graph, 2, 8);
    graph.begin(Role::Train);
    let loss = model.loss(graph, &inputs, &BuildOptions::default()).unwrap();
    (model, inputs, loss)
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
    for (precision, weight, low) in [
        (Precision::F32, DType::F32, None),
        (Precision::BF16, DType::BF16, Some(DType::I16)),
        (Precision::F16, DType::F16, Some(DType::F32)),
    ] {
        let mut graph = Graph::new();
        let model = Model::declare(&mut graph, &preset("llama-tiny").unwrap(), precision).unwrap();
        for (parameter, &tensor) in model.parameters().iter().zip(model.weights()) {
            let info = graph.info(tensor);
            assert_eq!((info.class, info.life), (Class::Weight, Life::Persistent));
            assert_eq!(info.ty, Type::new(weight, parameter.shape.clone()));
            assert_eq!(graph.find(&parameter.name).unwrap(), tensor);
        }
        let beside = model.declare_low(&mut graph);
        assert_eq!(beside.first().map(|&tensor| graph.dtype(tensor)), low);
        assert_eq!(beside.len(), if low.is_some() { model.weights().len() } else { 0 });
    }
}

#[test]
fn an_untrained_model_guesses_evenly() {
    for name in ["tiny", "llama-tiny"] {
        let mut graph = Graph::new();
        let (model, inputs, loss) = build(&mut graph, &preset(name).unwrap());
        let run = Interpreter::new(&graph);
        start(&run, &model, &inputs);
        run.run(Role::Train);
        let loss = run.scalar(loss);
        assert!((loss - 256f64.ln()).abs() < 0.1, "{name}: {loss}");
    }
}

fn start(run: &Interpreter<'_>, model: &Model, inputs: &Inputs) {
    for (parameter, &weight) in model.parameters().iter().zip(model.weights()) {
        run.write(weight, &initial_values(parameter, 1));
    }
    run.write(inputs.tokens, &(0..16).map(|i| i * 7 % 256).collect::<Vec<_>>());
    run.write(inputs.targets, &(0..16).map(|i| i * 11 % 256).collect::<Vec<_>>());
    run.write(inputs.positions, &(0..8).collect::<Vec<_>>());
}

#[test]
fn dropout_follows_its_key_and_keeps_the_mean() {
    for name in ["tiny", "llama-tiny"] {
        let config = ModelConfig { dropout: 0.25, ..preset(name).unwrap() };
        let mut graph = Graph::new();
        let (model, inputs, loss) = build(&mut graph, &config);
        let embedding = graph.find("embedding").unwrap();
        graph.begin(Role::Eval);
        let without = Inputs { key: None, ..inputs };
        let eval = model.loss(&mut graph, &without, &BuildOptions::default()).unwrap();
        let run = Interpreter::new(&graph);
        start(&run, &model, &inputs);
        let at = |step: u32| {
            run.write(inputs.key.unwrap(), &[9, 9, step, 0]);
            run.run(Role::Train);
            (run.scalar(loss), run.read(embedding))
        };
        let ((first, values), (again, _), (second, _)) = (at(1), at(1), at(2));
        assert_eq!(first, again);
        assert_ne!(first, second);
        let dropped = values.iter().filter(|&&x| x == 0.0).count() as f64 / values.len() as f64;
        assert!((dropped - 0.25).abs() < 0.05, "{name}: {dropped}");
        run.run(Role::Eval);
        assert!((run.scalar(eval) - first).abs() < 0.2);
        let kept: Vec<f64> = run.read(if name == "tiny" {
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
    let mut graph = Graph::new();
    let model = Model::declare(&mut graph, &config, Precision::F32).unwrap();
    let fits = inputs(&mut graph, 2, 8);
    let long = graph.scope("long", |graph| inputs(graph, 1, 65));
    graph.begin(Role::Train);
    let caches = model.caches(&mut graph, 2, 8).unwrap();
    let options = BuildOptions::default();
    let decoding =
        DecodeInputs { tokens: fits.tokens, positions: fits.positions, start: fits.start };
    let bad = ModelConfig { heads: 3, ..config };
    for (message, words) in [
        (model.loss(&mut graph, &long, &options).map(drop), "65 tokens is longer"),
        (
            model.loss(&mut graph, &Inputs { tokens: fits.start, ..fits }, &options).map(drop),
            "`tokens`: must be (B, T)",
        ),
        (
            model.loss(&mut graph, &Inputs { positions: fits.start, ..fits }, &options).map(drop),
            "`positions`: must be one a position, i32[8]",
        ),
        (
            model.loss(&mut graph, &Inputs { targets: fits.start, ..fits }, &options).map(drop),
            "targets must be i32, one for each of 16 rows",
        ),
        (model.caches(&mut graph, 1, 65).map(drop), "65 tokens is longer"),
        (model.decode(&mut graph, &decoding, &caches[1..]).map(drop), "1 caches for 2 layers"),
        (Model::declare(&mut graph, &bad, Precision::F32).map(drop), "3 heads don't divide"),
    ] {
        let message = message.unwrap_err().to_string();
        assert!(message.contains(words), "{message}");
    }
}
