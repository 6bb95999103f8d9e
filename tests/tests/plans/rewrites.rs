//! A plan computes what its graph means, whatever is fused, recomputed or overwritten: a small model trained
//! one step through the interpreter, which plans nothing, and through plans on the references.

use conformance::cases::{floats, whole};
use conformance::oracle::Oracle;
use conformance::reference::Interpreter;
use conformance::tolerance::Deviation;
use conformance::values;
use pollster::block_on;
use tightrope_core::expr::{constant, input};
use tightrope_core::ops::{
    Attention, Embedding, FusedMatMul, LayerNorm, LinearCrossEntropy, Map, MatMul, Sample, Softmax,
};
use tightrope_core::plan::{Checkpoint, Options};
use tightrope_core::{
    Class, DType, Graph, Op, Plan, Result, Role, Session, Tensor, Type, Wanted, grad,
};

const LAYERS: usize = 3;
const CHANNELS: usize = 8;

/// A graph, what its persistent tensors begin with, and the tensors to look at after a replay.
struct Training {
    graph: Graph,
    given: Vec<(Tensor, Vec<u8>)>,
    results: Vec<Tensor>,
}

/// Builds a graph and remembers what its persistent tensors hold.
#[derive(Default)]
struct Builder {
    graph: Graph,
    given: Vec<(Tensor, Vec<u8>)>,
}

impl Builder {
    fn persistent(&mut self, name: &str, entry: &Sample, class: Class) -> Tensor {
        let tensor = self.graph.persistent(name, entry.ty.clone(), class);
        self.given.push((tensor, values::sample(entry, self.given.len() as u64)));
        tensor
    }

    fn weight(&mut self, name: &str, shape: &[usize]) -> Tensor {
        self.persistent(name, &floats(DType::F32, shape, -0.5, 0.5), Class::Weight)
    }
}

/// One step of a transformer with dropout: loss, gradients added to what was there, weights updated in place.
fn training() -> Result<Training> {
    let f32 = DType::F32;
    let attention = Attention::causal(2, 1, CHANNELS / 2);
    let mut b = Builder::default();
    let tokens = b.persistent("tokens", &whole(&[2, 5], 0, 11), Class::Input);
    let targets = b.persistent("targets", &whole(&[2, 5], -1, 11), Class::Input);
    let seed = b.persistent("seed", &floats(f32, &[1], 0.5, 1.0), Class::Input);
    let words = Sample { ty: Type::new(DType::U32, [4]), ..whole(&[4], 0, 1 << 20) };
    let key = b.persistent("key", &words, Class::Input);
    let table = b.weight("table", &[11, CHANNELS]);
    let mut weights = vec![table];
    let mut blocks = vec![];
    for layer in 0..LAYERS {
        let mut weight = |name: &str, shape: &[usize]| b.weight(&format!("{layer}.{name}"), shape);
        let block = [
            weight("scale", &[CHANNELS]),
            weight("shift", &[CHANNELS]),
            weight("qkv", &[attention.packed(), CHANNELS]),
            weight("up", &[3 * CHANNELS, CHANNELS]),
            weight("bias", &[3 * CHANNELS]),
            weight("down", &[CHANNELS, 3 * CHANNELS]),
        ];
        weights.extend(block);
        blocks.push(block);
    }
    let sums: Vec<Tensor> = weights
        .iter()
        .enumerate()
        .map(|(index, &weight)| {
            let shape = b.graph.ty(weight).shape.clone();
            let entry = floats(f32, &shape, -0.1, 0.1);
            b.persistent(&format!("sum.{index}"), &entry, Class::Gradient)
        })
        .collect();
    let Builder { mut graph, given } = b;
    let g = &mut graph;
    g.begin(Role::Train);
    let mut x = g.one(Embedding, &[table, tokens], "embedded")?;
    for (layer, [scale, shift, qkv, up, bias, down]) in blocks.into_iter().enumerate() {
        x = g.in_block(layer, |g| {
            g.scope(&format!("block.{layer}"), |g| {
                let normal = g.push(LayerNorm { eps: 1e-5 }, &[x, scale, shift], "norm")?[0];
                let packed = g.one(MatMul::linear(false, f32), &[normal, qkv], "qkv")?;
                let attended = g.push(attention.clone(), &[packed], "attention")?[0];
                let stream = g.new_stream();
                let kept = g.one(Map::dropout(0.1, stream, f32), &[attended, key], "dropout")?;
                let x = g.one(Map::add(f32), &[x, kept], "attended")?;
                let hidden = g.one(MatMul::linear(true, f32), &[x, up, bias], "up")?;
                let gelu = constant(0.5) * input(0) * (constant(1.0) + input(0).erf());
                let hidden = g.one(Map::new(gelu, f32), &[hidden], "gelu")?;
                let delta = g.one(MatMul::linear(false, f32), &[hidden, down], "down")?;
                g.one(Map::add(f32), &[x, delta], "out")
            })
        })?;
    }
    let loss = LinearCrossEntropy { vocab: 11, chunk: 4, cap: None };
    let loss = g.one(loss, &[x, table, targets], "loss")?;
    let wanted: Vec<Wanted> = weights
        .iter()
        .zip(&sums)
        .map(|(&tensor, &sum)| Wanted { into: Some(sum), ..tensor.into() })
        .collect();
    let gradients = grad(g, loss, seed, &wanted)?;
    let mut results = vec![loss];
    for (index, (&weight, gradient)) in weights.iter().zip(gradients).enumerate() {
        let gradient = gradient.expect("the loss depends on every weight");
        let descent = Map::new(input(0) - constant(0.1) * input(1), f32);
        let descent = Map { in_place: vec![(0, 0)], ..descent };
        g.one(descent, &[weight, gradient], &format!("updated.{index}"))?;
        results.extend([gradient, weight]);
    }
    g.result(loss);
    Ok(Training { graph, given, results })
}

/// Values of the results after two replays, without a plan.
fn interpreted(training: &Training) -> Vec<Vec<f64>> {
    let interpreter = Interpreter::new(&training.graph);
    training.given.iter().for_each(|(tensor, bytes)| interpreter.write(*tensor, bytes));
    interpreter.run(0);
    interpreter.run(0);
    training.results.iter().map(|&tensor| interpreter.values(tensor)).collect()
}

/// Values of the results after two replays of a plan, and the bytes of its arena.
fn planned(training: &Training, options: &Options, oracle: Oracle) -> (Vec<Vec<f64>>, u64) {
    let plan = Plan::new(training.graph.clone(), options, &oracle).unwrap();
    let bytes = plan.arena_bytes;
    let names: Vec<String> =
        training.results.iter().map(|&tensor| training.graph.info(tensor).name.clone()).collect();
    let mut session = Session::new(plan, Box::new(oracle)).unwrap();
    for (tensor, bytes) in &training.given {
        session.write(*tensor, bytes).unwrap();
    }
    session.run(Role::Train).unwrap();
    session.run(Role::Train).unwrap();
    let mut read = vec![];
    for (tensor, name) in training.results.iter().zip(names) {
        let dtype = session.plan().graph.dtype(*tensor);
        let bytes = block_on(session.read(*tensor)).unwrap_or_else(|e| panic!("{name}: {e}"));
        read.push(values::decode(dtype, &bytes));
    }
    (read, bytes)
}

#[test]
fn plans_compute_what_their_graph_means() {
    let training = training().unwrap();
    let expected = interpreted(&training);
    let checkpoints = [
        Checkpoint::None,
        Checkpoint::Block,
        Checkpoint::Every(2),
        Checkpoint::Sqrt,
        Checkpoint::Tensors(vec!["block.1.gelu".into()]),
    ];
    let mut arenas = vec![];
    for checkpoint in checkpoints {
        for (fusion, in_place) in [(false, false), (false, true), (true, false), (true, true)] {
            let options =
                Options { checkpoint: checkpoint.clone(), fusion, in_place, ..Options::default() };
            let (actual, bytes) = planned(&training, &options, Oracle::default());
            let (joined, _) = planned(&training, &options, Oracle::with_epilogues());
            let of =
                |values: Vec<Vec<f64>>| values.into_iter().zip(&expected).zip(&training.results);
            for ((actual, expected), &tensor) in of(actual).chain(of(joined)) {
                let name = &training.graph.info(tensor).name;
                if fusion {
                    // A fused intermediate isn't rounded to its storage type.
                    let near = Deviation { nmse: 1e-10, largest: 1e-5 };
                    let deviation = Deviation::between(&actual, expected);
                    assert!(deviation.within(near), "`{name}` with {options:?}: {deviation:?}");
                } else {
                    assert_eq!(&actual, expected, "`{name}` with {options:?}");
                }
            }
            arenas.push((options, bytes));
        }
    }
    // Overwriting dying inputs never takes more, and recomputing takes less.
    for pair in arenas.chunks(2) {
        assert!(pair[1].1 <= pair[0].1, "{pair:?}");
    }
    assert!(arenas[4].1 < arenas[0].1, "{arenas:?}");
}

/// Where kernels have epilogues, everything that can become part of a matmul or of a norm's gradient does.
#[test]
fn ops_next_to_matmuls_become_part_of_them() {
    let plan = |oracle: &Oracle| {
        let options = Options { checkpoint: Checkpoint::None, ..Options::default() };
        Plan::new(training().unwrap().graph, &options, oracle).unwrap()
    };
    let (apart, joined) = (plan(&Oracle::default()), plan(&Oracle::with_epilogues()));
    let count = |plan: &Plan, is: &dyn Fn(&Op) -> bool| {
        plan.graph.programs[0].nodes.iter().filter(|node| is(&node.op)).count()
    };
    let fused = |is: &dyn Fn(&FusedMatMul) -> bool| {
        count(&joined, &|op| matches!(op, Op::FusedMatMul(fused) if is(fused)))
    };
    let layers = LAYERS;
    assert_eq!(fused(&|op| op.keeps_matmul), layers, "activations");
    assert_eq!(fused(&|op| op.lhs_sums.is_some()), layers, "gradients of biases");
    // Sums along the residual, and slopes of the activations.
    let beside = |op: &FusedMatMul| op.formula.as_ref().is_some_and(|f| f.arity() > 1);
    assert_eq!(fused(&beside), 2 * layers, "what reads a tensor beside a matmul");
    let norms = |op: &Op| matches!(op, Op::LayerNormGrad(grad) if grad.residual);
    assert_eq!(count(&joined, &norms), layers, "gradients along the residual");
    let maps = |op: &Op| matches!(op, Op::Map(_) | Op::Reduce(_));
    let gone = count(&apart, &maps) - count(&joined, &maps);
    assert_eq!(gone, 5 * layers, "maps and sums of their own");
    assert!(joined.arena_bytes <= apart.arena_bytes);
}

/// A tensor that the host reads is still there when the last op has run, though that op reads it last.
#[test]
fn a_result_survives_the_last_op() {
    let mut graph = Graph::new();
    let x = graph.persistent("x", Type::new(DType::F32, [2, 3]), Class::Input);
    graph.begin(Role::Main);
    let twice = graph.one(Map::new(input(0) + input(0), DType::F32), &[x], "twice").unwrap();
    let last = graph.one(Softmax, &[twice], "last").unwrap();
    graph.result(twice);
    graph.result(last);
    let options = Options { fusion: false, ..Options::default() };
    let plan = Plan::new(graph, &options, &Oracle::default()).unwrap();
    let mut session = Session::new(plan, Box::new(Oracle::default())).unwrap();
    session.write_values(x, &[1.0, 2.0, 3.0, -1.0, 0.5, 0.0]).unwrap();
    session.run(Role::Main).unwrap();
    let read = block_on(session.read_values(twice)).unwrap();
    assert_eq!(read, [2.0, 4.0, 6.0, -2.0, 1.0, 0.0]);
}

/// Values of `read` after `times` replays of the graph's one program, planned with every rewrite.
fn replayed(
    graph: &Graph,
    given: &[(Tensor, Vec<u8>)],
    read: &[Tensor],
    times: usize,
) -> Vec<Vec<f64>> {
    let plan = Plan::new(graph.clone(), &Options::default(), &Oracle::default()).unwrap();
    let mut session = Session::new(plan, Box::new(Oracle::default())).unwrap();
    given.iter().for_each(|(tensor, bytes)| session.write(*tensor, bytes).unwrap());
    (0..times).for_each(|_| session.run(Role::Main).unwrap());
    let values = |&tensor: &Tensor| {
        let bytes = block_on(session.read(tensor)).unwrap();
        values::decode(graph.dtype(tensor), &bytes)
    };
    read.iter().map(values).collect()
}

/// A low-rank update W + B·A makes a new tensor; W is as before, though nothing reads it afterwards.
#[test]
fn a_sum_does_not_take_over_a_weight() {
    let mut b = Builder::default();
    let weight = b.weight("w", &[3, 5]);
    let (up, down) = (b.weight("b", &[3, 2]), b.weight("a", &[2, 5]));
    let Builder { mut graph, given } = b;
    graph.begin(Role::Main);
    let delta = graph.one(MatMul::new(DType::F32), &[up, down], "delta").unwrap();
    let merged = graph.one(Map::add(DType::F32), &[weight, delta], "merged").unwrap();
    graph.result(merged);
    let [once, twice] = [1, 2].map(|times| replayed(&graph, &given, &[merged, weight], times));
    assert_eq!(once, twice, "merged, and the weight");
    assert_eq!(once[1], values::decode(DType::F32, &given[0].1));
}

/// Two micro-batches in one program: each loss is computed with its own gradient.
#[test]
fn two_losses_in_a_row_keep_their_gradients() {
    let mut b = Builder::default();
    let weight = b.weight("w", &[7, 4]);
    let seed = b.persistent("seed", &floats(DType::F32, &[1], 0.5, 1.0), Class::Input);
    let parts = ["first", "second"].map(|name| {
        let x = b.persistent(name, &floats(DType::F32, &[6, 4], -1.0, 1.0), Class::Input);
        (x, b.persistent(&format!("{name}.targets"), &whole(&[6], 0, 7), Class::Input))
    });
    let Builder { mut graph, given } = b;
    graph.begin(Role::Main);
    let mut results = vec![];
    for (index, (x, targets)) in parts.into_iter().enumerate() {
        let loss = LinearCrossEntropy { vocab: 7, chunk: 4, cap: None };
        let loss = graph.one(loss, &[x, weight, targets], &format!("loss.{index}")).unwrap();
        let gradient = grad(&mut graph, loss, seed, &[weight.into()]).unwrap()[0].unwrap();
        results.extend([loss, gradient]);
    }
    results.iter().for_each(|&tensor| graph.result(tensor));
    let interpreter = Interpreter::new(&graph);
    given.iter().for_each(|(tensor, bytes)| interpreter.write(*tensor, bytes));
    interpreter.run(0);
    let expected: Vec<Vec<f64>> =
        results.iter().map(|&tensor| interpreter.values(tensor)).collect();
    assert_eq!(replayed(&graph, &given, &results, 1), expected);
}
