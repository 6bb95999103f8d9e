//! Tensors of a training step that the host reads after it: activations by their names, gradients by those of their
//! parameters. Both have the names that plans have, and may be asked for by those of checkpoints.
//!
//! A step of one pass keeps them to its end. Where several passes share their memory with the update that follows, the
//! last one's are copied to a place of their own. Either way the plan holds their bytes.

use tightrope_core::expr::input;
use tightrope_core::graph::nearest;
use tightrope_core::ops::Map;
use tightrope_core::{Class, DType, Expr, Graph, Phase, Tensor, Type};

use crate::error::{Error, Result, ensure};
use crate::optim::LossScale;
use crate::params::Parameter;
use crate::weights::{Weights, matches};

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
    /// Names that a gradient has in checkpoints: of each tensor there that is a part of it.
    others: Vec<String>,
    tensor: Tensor,
    is_gradient: bool,
}

/// Keeps what `names` stand for of the current program, a pass that makes `gradients` of `weights`, each with its parameter's name.
pub(crate) fn keep(
    graph: &mut Graph,
    names: &[String],
    (weights, gradients): (&Weights, &[(String, Tensor)]),
    pass: Pass<'_>,
) -> Result<Vec<Watched>> {
    if names.is_empty() {
        return Ok(vec![]);
    }
    let all = candidates(graph, weights, gradients);
    let mut watched: Vec<Watched> = vec![];
    for (name, candidate) in chosen(names, &all, weights.parameters())? {
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
fn candidates(graph: &Graph, weights: &Weights, gradients: &[(String, Tensor)]) -> Vec<Candidate> {
    let forward = graph.nodes(0..graph.node_count()).iter();
    let forward = forward.filter(|node| node.phase == Phase::Forward);
    let outputs = forward.flat_map(|node| node.outputs.iter().copied());
    let activations = outputs.filter(|&tensor| graph.dtype(tensor).is_float()).map(|tensor| {
        let name = graph.info(tensor).name.clone();
        Candidate { name, others: vec![], tensor, is_gradient: false }
    });
    let parts = |name: &String| {
        let parameter = weights.trained().0.iter().find(|parameter| parameter.name == *name);
        parameter.map_or(&[][..], |parameter| &parameter.parts)
    };
    let gradients = gradients.iter().map(|(parameter, tensor)| Candidate {
        name: format!("{GRADIENT}{parameter}"),
        others: parts(parameter).iter().map(|part| format!("{GRADIENT}{}", part.name)).collect(),
        tensor: *tensor,
        is_gradient: true,
    });
    activations.chain(gradients).collect()
}

/// What each of `names` stands for: tensors that match it; else the output of the layer that is called so, which is the last
/// that it makes. `parameters` are the model's, whose names in checkpoints name layers, too.
fn chosen<'a>(
    names: &[String],
    all: &'a [Candidate],
    parameters: &[Parameter],
) -> Result<Vec<(String, &'a Candidate)>> {
    let mut chosen = vec![];
    for name in names {
        let matching = all.iter().filter(|it| it.is_named(name));
        let before = chosen.len();
        chosen.extend(matching.map(|it| (it.name.clone(), it)));
        if chosen.len() > before {
            continue;
        }
        let output = |layer: &str| {
            let inside = |it: &&Candidate| {
                let rest = it.name.strip_prefix(layer);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            };
            all.iter().filter(|it| !it.is_gradient).rfind(inside)
        };
        let found = output(name).or_else(|| output(&layer_of_module(parameters, name)?));
        let Some(output) = found else {
            let known = all.iter().flat_map(|it| [&it.name].into_iter().chain(&it.others));
            let near = nearest(name, known.map(String::as_str));
            let near = near.map_or(String::new(), |near| format!("; did you mean `{near}`?"));
            let problem = format!("no activation and no gradient is called `{name}`{near}");
            return Err(Error::Setting { key: "watch", problem });
        };
        chosen.push((name.clone(), output));
    }
    Ok(chosen)
}

impl Candidate {
    fn is_named(&self, pattern: &str) -> bool {
        let mut names = [&self.name].into_iter().chain(&self.others);
        names.any(|name| matches(pattern.as_bytes(), name.as_bytes()))
    }
}

/// The layer whose parameters are those that checkpoints have under `module`: their common name up to a dot. `None` if the module has
/// no parameters, or shares one of them with other modules.
fn layer_of_module(parameters: &[Parameter], module: &str) -> Option<String> {
    let is_inside = |name: &str, outer: &str| {
        name.strip_prefix(outer).is_some_and(|rest| rest.starts_with('.'))
    };
    let of_module = |parameter: &&Parameter| {
        let mut parts = parameter.parts.iter().peekable();
        parts.peek().is_some() && parts.all(|part| is_inside(&part.name, module))
    };
    let mut inside = parameters.iter().filter(of_module).map(|parameter| parameter.name.as_str());
    let mut layer = inside.next()?.rsplit_once('.')?.0;
    for name in inside {
        while !is_inside(name, layer) {
            layer = layer.rsplit_once('.')?.0;
        }
    }
    let whole = parameters.iter().filter(|parameter| is_inside(&parameter.name, layer));
    whole.clone().all(|parameter| of_module(&parameter)).then(|| layer.to_owned())
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
