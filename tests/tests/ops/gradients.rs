//! Every gradient of every family against central differences in f64.

use std::collections::BTreeSet;

use conformance::cases::{floats, whole};
use conformance::gradcheck::{self, Deviation, Problem, TOLERANCE, WITHOUT_GRADIENT};
use conformance::parallel;
use tightrope_core::Rule as _;
use tightrope_core::expr::{constant, input};
use tightrope_core::ops::{Case, LayerNorm, LinearCrossEntropy, Map, MatMul};
use tightrope_core::{DType, Error, Graph, Tensor};

fn describe(case: &Case) -> String {
    let types: Vec<String> = case.inputs.iter().map(|entry| entry.ty.to_string()).collect();
    format!("{:?} of {}", case.op, types.join(", "))
}

fn failures(deviations: &[Deviation]) -> Vec<String> {
    let failed = deviations.iter().filter(|deviation| !deviation.passes());
    failed.map(|deviation| format!("{deviation:?} above {TOLERANCE:e}")).collect()
}

/// What is wrong with a case's gradient, given whether it is listed as having none.
fn verdict(case: &Case) -> Option<String> {
    let label = gradcheck::label(&case.op);
    let listed = WITHOUT_GRADIENT.iter().any(|&(name, _)| name == label);
    let problem = match (gradcheck::check_case(case), listed) {
        (Err(Problem::Graph(Error::NoGradient { .. })), true) => return None,
        (Err(problem), _) => problem.to_string(),
        (Ok(deviations), false) => {
            let failures = failures(&deviations);
            if failures.is_empty() {
                return None;
            }
            failures.join("; ")
        }
        (Ok(deviations), true) => {
            let state = if failures(&deviations).is_empty() { "right" } else { "wrong" };
            format!("listed as without gradient, yet `grad` gives one, and it is {state}")
        }
    };
    Some(format!("{label}: {problem}\n    {}", describe(case)))
}

#[test]
fn gradients_match_central_differences() {
    let cases = gradcheck::candidates();
    let failures: Vec<String> = parallel::map(&cases, verdict).into_iter().flatten().collect();
    assert!(
        failures.is_empty(),
        "{} of {} cases:\n{}",
        failures.len(),
        cases.len(),
        failures.join("\n")
    );
}

#[test]
fn constant_inputs_are_refused_where_their_gradient_is_asked_for() {
    for (family, ..) in gradcheck::CONSTANTS {
        let cases = gradcheck::candidates();
        let case = cases.iter().find(|case| case.op.family() == *family).expect("a case");
        let op = case.op.clone();
        let found = gradcheck::check(&case.inputs, &|graph, tensors| {
            let outputs = graph.push(op.clone(), tensors, "output")?;
            Ok(outputs.into_iter().take(op.differentiable()).collect())
        });
        let refused = matches!(found, Err(Problem::Graph(Error::NoGradient { .. })));
        assert!(refused, "{family}: {:?}", found.err());
    }
}

#[test]
fn ops_listed_as_without_gradient_have_cases_and_are_listed_once() {
    let labels: BTreeSet<String> =
        gradcheck::candidates().iter().map(|case| gradcheck::label(&case.op)).collect();
    let listed: BTreeSet<String> =
        WITHOUT_GRADIENT.iter().map(|&(name, _)| name.to_string()).collect();
    assert_eq!(listed.len(), WITHOUT_GRADIENT.len(), "an entry is there twice");
    let stale: Vec<&String> = listed.difference(&labels).collect();
    assert!(stale.is_empty(), "no case has the label {stale:?}");
}

/// A residual block with a tied weight and a loss: gradients that meet from several readers are added.
#[test]
fn gradients_add_up_where_a_tensor_is_read_twice() {
    let inputs = [
        floats(DType::F64, &[2, 5, 7], -1.0, 1.0),
        floats(DType::F64, &[11, 7], -1.0, 1.0),
        floats(DType::F64, &[7], 0.5, 1.5),
        floats(DType::F64, &[7], -0.5, 0.5),
        whole(&[2, 5], -1, 10),
    ];
    let build = |graph: &mut Graph, inputs: &[Tensor]| {
        let &[x, w, scale, shift, targets] = inputs else { unreachable!("five inputs") };
        let f64 = DType::F64;
        let normal = graph.push(LayerNorm { eps: 1e-5 }, &[x, scale, shift], "norm")?[0];
        let hidden = graph.one(MatMul::linear(false, f64), &[normal, w], "up")?;
        let activation = input(0) * (constant(1.7) * input(0)).sigmoid();
        let hidden = graph.one(Map::new(activation, f64), &[hidden], "activation")?;
        let back = graph.one(MatMul::new(f64), &[hidden, w], "down")?;
        let sum = graph.one(Map::add(f64), &[x, back], "residual")?;
        let loss = LinearCrossEntropy { vocab: 10, chunk: 4, cap: None };
        graph.push(loss, &[sum, w, targets], "loss")
    };
    let deviations = gradcheck::check(&inputs, &build).unwrap();
    assert_eq!(deviations.len(), 4);
    assert_eq!(failures(&deviations), [] as [String; 0]);
}
