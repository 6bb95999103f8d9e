//! Graphs that can be cut, and what stands in the way of others.

use super::*;
use crate::expr::{constant, input};
use crate::graph::Class;
use crate::ops::{Concat, CrossEntropy, MatMul, Permute, Reduce, Reshape, Slice};
use crate::{DType, Role, Type};

/// A pass over `samples` samples of x, f32 (B, 3), which is an input plus a bias, and of labels, i32 (B), with a weight (3, 3).
fn record(samples: usize, build: &dyn Fn(&mut Graph, [Tensor; 3]) -> Tensor) -> Recorded {
    let mut graph = Graph::new();
    let mut held = |name: &str, dtype: DType, shape: &[usize], class: Class| {
        graph.persistent(name, Type::new(dtype, shape), class)
    };
    let given = held("given", DType::F32, &[samples, 3], Class::Input);
    let bias = held("bias", DType::F32, &[3], Class::Weight);
    let labels = held("labels", DType::I32, &[samples], Class::Input);
    let weight = held("weight", DType::F32, &[3, 3], Class::Weight);
    graph.begin(Role::Train);
    let x = graph.one(Map::add(DType::F32), &[given, bias], "x").unwrap();
    let loss = build(&mut graph, [x, labels, weight]);
    Recorded { graph, samples, batched: vec![given, labels], shared: vec![], results: vec![loss] }
}

fn cut(build: &dyn Fn(&mut Graph, [Tensor; 3]) -> Tensor) -> Result<Cut, String> {
    Cut::new(&record(2, build), &record(6, build)).map_err(|mixed| mixed.to_string())
}

fn mean(graph: &mut Graph, x: Tensor, name: &str) -> Tensor {
    let scale = 1.0 / graph.ty(x).elements() as f64;
    let op = Reduce { scale, ..Reduce::to_suffix(vec![1], DType::F32) };
    graph.one(op, &[x], name).unwrap()
}

#[test]
fn a_mean_weighs_by_its_size_and_a_loss_of_labels_by_their_count() {
    let found = cut(&|graph, [x, _, _]| mean(graph, x, "loss")).unwrap();
    assert_eq!(found.factors, [Factor::Ratio(1)]);
    assert!(found.weights == [Weight::Factor(0)] && found.actions.is_empty());
    let found = cut(&|graph, [x, labels, weight]| {
        let scores = graph.one(MatMul::linear(false, DType::F32), &[x, weight], "scores").unwrap();
        graph.push(CrossEntropy, &[scores, labels], "loss").unwrap()[0]
    });
    assert!(matches!(found.unwrap().factors[..], [Factor::Count(_)]));
}

#[test]
fn figures_that_are_slices_of_a_sum_weigh_as_it_does() {
    let record = |samples| {
        let mut recorded = record(samples, &|graph, [x, _, _]| {
            let scale = 1.0 / graph.ty(x).shape[0] as f64;
            let op = Reduce { scale, ..Reduce::to_suffix(vec![3], DType::F32) };
            let sums = graph.one(op, &[x], "sums").unwrap();
            graph.one(Slice { axis: 0, start: 0, len: 1 }, &[sums], "loss").unwrap()
        });
        let sums = recorded.graph.find("sums").unwrap();
        let second = Slice { axis: 0, start: 1, len: 1 };
        recorded.results.push(recorded.graph.one(second, &[sums], "second").unwrap());
        recorded
    };
    let found = Cut::new(&record(2), &record(6)).unwrap();
    assert!(found.weights == [Weight::Factor(0); 2] && found.actions.is_empty());
}

#[test]
fn a_penalty_is_a_pass_s_part_of_it() {
    let found = cut(&|graph, [x, _, weight]| {
        let (loss, penalty) = (mean(graph, x, "mean"), mean(graph, weight, "penalty"));
        let sum = Map::new(input(0) + constant(0.5) * input(1), DType::F32);
        graph.one(sum, &[loss, penalty], "loss").unwrap()
    });
    let found = found.unwrap();
    assert_eq!(found.factors, [Factor::Even, Factor::Ratio(1)]);
    let joined = input(0) + constant(0.5) * input(1) * input(2);
    assert_eq!(found.actions[&3], [Action::Formulas(vec![joined], 0)]);
    assert_eq!(found.actions[&1], [Action::Scale(0, 1)]);
}

#[test]
fn samples_one_by_one_are_joined_if_each_is_made_alike() {
    let apart = |alike: bool| {
        cut(&move |graph, [x, _, _]| {
            let samples = graph.ty(x).shape[0];
            let each: Vec<Tensor> = (0..samples)
                .map(|start| {
                    let row = graph.one(Slice { axis: 0, start, len: 1 }, &[x], "row").unwrap();
                    let by = if alike { 2.0 } else { start as f64 + 1.0 };
                    let map = Map::new(input(0) * constant(by), DType::F32);
                    graph.one(map, &[row], "scaled").unwrap()
                })
                .collect();
            let all = graph.one(Concat { axis: 0 }, &each, "all").unwrap();
            mean(graph, all, "loss")
        })
    };
    assert!(apart(true).is_ok());
    assert_eq!(apart(false).unwrap_err(), "`all` (concat) mixes the samples of a batch");
}

#[test]
fn what_mixes_samples_is_named() {
    type Build = fn(&mut Graph, [Tensor; 3]) -> Tensor;
    let cases: [(&str, Build); 6] = [
        ("`squared` (map)", |graph, [x, _, _]| {
            let of_batch = mean(graph, x, "of_batch");
            graph.one(Map::new(input(0) * input(0), DType::F32), &[of_batch], "squared").unwrap()
        }),
        ("`products` (matmul)", |graph, [x, _, _]| {
            let op = MatMul { transpose_rhs: true, ..MatMul::new(DType::F32) };
            let products = graph.one(op, &[x, x], "products").unwrap();
            mean(graph, products, "loss")
        }),
        ("`covariance` (matmul)", |graph, [x, _, _]| {
            let op = MatMul { transpose_lhs: true, ..MatMul::new(DType::F32) };
            let products = graph.one(op, &[x, x], "covariance").unwrap();
            mean(graph, products, "loss")
        }),
        ("`split` (reshape)", |graph, [x, _, _]| {
            let shape = vec![3, graph.ty(x).shape[0]];
            let split = graph.one(Reshape { shape }, &[x], "split").unwrap();
            mean(graph, split, "loss")
        }),
        ("`first` (slice)", |graph, [x, _, _]| {
            let half = graph.ty(x).shape[0] / 2;
            let first = graph.one(Slice { axis: 0, start: 0, len: half }, &[x], "first").unwrap();
            mean(graph, first, "loss")
        }),
        ("`turned` (map)", |graph, [x, _, weight]| {
            // A weight meets samples by their index.
            let rows = graph.one(Permute { axes: vec![1, 0] }, &[x], "by_column").unwrap();
            let own = graph.one(Slice { axis: 1, start: 0, len: 2 }, &[weight], "columns").unwrap();
            let rows = match graph.ty(rows).shape[1] {
                2 => rows,
                _ => graph.one(Slice { axis: 1, start: 0, len: 2 }, &[rows], "few").unwrap(),
            };
            let sum = graph.one(Map::add(DType::F32), &[rows, own], "turned").unwrap();
            mean(graph, sum, "loss")
        }),
    ];
    for (named, build) in cases {
        let mixed = cut(&build).unwrap_err();
        assert!(mixed.ends_with("mixes the samples of a batch"), "{mixed}");
        // Of the last, the graphs differ already.
        assert!(mixed.starts_with(named) || named.contains("turned"), "{mixed}, not {named}");
    }
}

#[test]
fn counts_of_inputs_are_those_of_the_whole_batch() {
    let build = |graph: &mut Graph, [x, labels, _]: [Tensor; 3]| {
        let counts = constant(1.0) - input(0).less(constant(0.0));
        let counts = graph.one(Map::new(counts, DType::F32), &[labels], "counts").unwrap();
        let sum = Reduce::to_suffix(vec![1], DType::F32);
        let count = graph.one(sum.clone(), &[counts], "count").unwrap();
        let each = graph.one(Reduce::last(DType::F32), &[x], "each").unwrap();
        let kept = Map::new(input(0) * input(1), DType::F32);
        let kept = graph.one(kept, &[each, counts], "kept").unwrap();
        let total = graph.one(sum, &[kept], "total").unwrap();
        graph.one(Map::new(input(0) / input(1), DType::F32), &[total, count], "loss").unwrap()
    };
    let (small, whole) = (record(2, &build), record(6, &build));
    let found = Cut::new(&small, &whole).unwrap();
    let known = found.factors.iter().position(|factor| matches!(factor, Factor::Known(_)));
    let figure = match found.at(&small, &whole).unwrap()[known.unwrap()] {
        FactorOf::Known(figure) => figure,
        other => panic!("{other:?}"),
    };
    let labels: Vec<u8> =
        [3, -1, 0, -1, -1, 2_i32].iter().flat_map(|it| it.to_le_bytes()).collect();
    let written = [(whole.batched[1], &labels[..])];
    assert_eq!(known_values(&whole.graph, &written, &[figure]), Some(vec![vec![3.0]]));
    assert_eq!(known_values(&whole.graph, &[], &[figure]), None);
}
