//! Tensors of a training step that the host reads after it: activations by their names, gradients by those of their
//! parameters.
//!
//! A step of one pass keeps them to its end. Where several passes share their memory with the update that follows, the
//! last one's are copied to a place of their own. Either way the plan holds their bytes.

use tightrope_core::expr::input;
use tightrope_core::graph::nearest;
use tightrope_core::ops::Map;
use tightrope_core::{Class, DType, Expr, Graph, Phase, Tensor, Type};

use crate::error::{Error, Result, ensure};
use crate::optim::LossScale;
use crate::weights::matches;

/// What the name of a gradient begins with; that of its parameter follows.
pub const GRADIENT: &str = "grad.";

/// A tensor that steps keep for the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watched {
    /// The name that it was asked for by; its own, where that was a pattern.
    pub name: String,
    /// Extents.
    pub shape: Vec<usize>,
    pub(crate) tensor: Tensor,
}

/// Where a step leaves what is watched.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pass<'a> {
    /// Whether it's one of several, whose memory the update takes.
    pub(crate) accumulates: bool,
    /// Whether the host sums gradients.
    pub(crate) on_host: bool,
    /// What gradients are multiplied by.
    pub(crate) scale: Option<&'a LossScale>,
}

/// A tensor of a pass that may be watched.
struct Candidate {
    name: String,
    tensor: Tensor,
    is_gradient: bool,
}

/// Keeps what `names` stand for of the current program, a pass that makes `gradients`, each with its parameter's name.
pub(crate) fn keep(
    graph: &mut Graph,
    names: &[String],
    gradients: &[(String, Tensor)],
    pass: Pass<'_>,
) -> Result<Vec<Watched>> {
    if names.is_empty() {
        return Ok(vec![]);
    }
    let all = candidates(graph, gradients);
    let mut watched: Vec<Watched> = vec![];
    for (name, candidate) in chosen(names, &all)? {
        if watched.iter().any(|other| other.name == name) {
            continue;
        }
        ensure(!(candidate.is_gradient && pass.on_host), "watch", || {
            format!("`{name}` is summed on the host; keep gradients on the device to watch one")
        })?;
        let tensor = kept(graph, &name, candidate, pass)?;
        watched.push(Watched { name, shape: graph.ty(tensor).shape.clone(), tensor });
    }
    Ok(watched)
}

/// Outputs of the forward pass in order, then gradients.
fn candidates(graph: &Graph, gradients: &[(String, Tensor)]) -> Vec<Candidate> {
    let forward = graph.nodes(0..graph.node_count()).iter();
    let forward = forward.filter(|node| node.phase == Phase::Forward);
    let outputs = forward.flat_map(|node| node.outputs.iter().copied());
    let activations = outputs.filter(|&tensor| graph.dtype(tensor).is_float()).map(|tensor| {
        Candidate { name: graph.info(tensor).name.clone(), tensor, is_gradient: false }
    });
    let gradients = gradients.iter().map(|(parameter, tensor)| Candidate {
        name: format!("{GRADIENT}{parameter}"),
        tensor: *tensor,
        is_gradient: true,
    });
    activations.chain(gradients).collect()
}

/// What each of `names` stands for: tensors that match it; else the output of the layer that is called so, which is the last
/// that it makes.
fn chosen<'a>(names: &[String], all: &'a [Candidate]) -> Result<Vec<(String, &'a Candidate)>> {
    let mut chosen = vec![];
    for name in names {
        let matching = all.iter().filter(|it| matches(name.as_bytes(), it.name.as_bytes()));
        let before = chosen.len();
        chosen.extend(matching.map(|it| (it.name.clone(), it)));
        if chosen.len() > before {
            continue;
        }
        let inside = |it: &&Candidate| {
            it.name.strip_prefix(name.as_str()).is_some_and(|rest| rest.starts_with('.'))
        };
        let Some(output) = all.iter().filter(|it| !it.is_gradient).rfind(inside) else {
            let near = nearest(name, all.iter().map(|it| it.name.as_str()));
            let near = near.map_or(String::new(), |near| format!("; did you mean `{near}`?"));
            let problem = format!("no activation and no gradient is called `{name}`{near}");
            return Err(Error::Setting { key: "watch", problem });
        };
        chosen.push((name.clone(), output));
    }
    Ok(chosen)
}

/// The tensor that holds a candidate after the step.
fn kept(graph: &mut Graph, name: &str, candidate: &Candidate, pass: Pass<'_>) -> Result<Tensor> {
    let &Candidate { tensor, is_gradient, .. } = candidate;
    let class = if is_gradient { Class::Gradient } else { Class::Activation };
    let mut inputs = vec![tensor];
    let mut value = input(0);
    let mut dtype = graph.dtype(tensor);
    if let Some(scale) = pass.scale.filter(|_| is_gradient) {
        // The gradient of the loss itself, before it was scaled.
        inputs.push(scale.scale);
        (value, dtype) = (input(0) / input(1), DType::F32);
    }
    let copy = if pass.accumulates {
        let ty = Type::new(dtype, graph.ty(tensor).shape.clone());
        let held = graph.persistent(&format!("watched.{name}"), ty, class);
        inputs.push(held);
        let place = inputs.len() - 1;
        let map = Map { in_place: vec![(0, place)], ..Map::new(over(value, place), dtype) };
        graph.one(map, &inputs, &format!("watched.{name}.next"))?;
        return Ok(held);
    } else if inputs.len() > 1 {
        graph.one(Map::new(value, dtype), &inputs, &format!("watched.{name}"))?
    } else {
        tensor
    };
    graph.info_mut(copy).class = class;
    graph.result(copy);
    Ok(copy)
}

/// `value`, written over input `place`: a map reads what it writes over, and nothing is less than itself.
fn over(value: Expr, place: usize) -> Expr {
    input(place).less(input(place)).select(input(place), value)
}
