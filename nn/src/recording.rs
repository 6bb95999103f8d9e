//! Cuts of a batch into passes: the loss is recorded over a pass's samples and over those of the whole batch, and what each pass makes of
//! it follows. See [`tightrope_core::batch`].

use std::sync::Arc;

use tightrope_core::batch::{Action, Cut, Factor, FactorOf, Mixed, Recorded, Weight};
use tightrope_core::expr::input;
use tightrope_core::ops::{KEY_WORDS, Map, Op};
use tightrope_core::{Class, DType, Graph, Role, Tensor, Type};

use crate::TrainerConfig;
use crate::error::{Error, Result, ensure};
use crate::handles::EvalHandles;
use crate::inputs::{Inputs, SHARE};
use crate::model::Model;
use crate::pass::Pass;
use crate::programs::random_key;
use crate::share::{Recording, Share, Shares};

impl Recording {
    /// Records a pass of `model` over `samples` samples, as it's trained or evaluated.
    pub(crate) fn new(
        config: &TrainerConfig,
        model: &dyn Model,
        trains: bool,
        samples: usize,
    ) -> Result<Self> {
        let mut graph = Graph::new();
        let weights = config.declare(&mut graph)?;
        let teacher = if trains { config.declare_teacher(&mut graph)? } else { None };
        let list = model.inputs();
        let inputs = Inputs::declare(&mut graph, &list, samples)?;
        let key = trains.then(|| random_key(&mut graph, "random_key", KEY_WORDS));
        graph.begin(if trains { Role::Train } else { Role::Eval });
        let pass = match trains {
            true => Pass::training(&mut graph, &weights, inputs.clone(), config.build, key),
            false => Pass::evaluation(&mut graph, &weights, inputs.clone(), config.build).by_row(),
        };
        let mut pass = pass.taught(teacher.as_ref());
        let loss = model.loss(&mut pass)?;
        let metrics = pass.into_metrics();
        let results = [loss].into_iter().chain(metrics.into_iter().map(|(_, figure)| figure));
        let results = results.collect();
        let inputs = inputs.of(list)?;
        let of = |batched: bool| {
            let inputs = inputs.iter().filter(|(input, _)| input.batched == batched);
            inputs.map(|&(_, tensor)| tensor).collect()
        };
        let (batched, shared) = (of(true), of(false));
        let recorded = Recorded { graph, samples, batched, shared, results };
        Ok(Self { recorded, inputs })
    }
}

impl Shares {
    /// Shares of the passes of a step of `model`, declared in `graph`. They use the tensors of `before` if the factors are the same.
    ///
    /// # Errors
    /// [`Error::Mixed`] where a batch can't be cut.
    pub(crate) fn of_step(
        graph: &mut Graph,
        config: &TrainerConfig,
        model: &dyn Model,
        before: Option<&Self>,
    ) -> Result<Self> {
        let passes = config.passes();
        if passes <= 1 {
            return Ok(Self::alone());
        }
        let refused = |mixed: Mixed| Error::Mixed { mixed, passes };
        let record = |samples| match Recording::new(config, model, true, samples) {
            Err(error) => Err(mixing(error).map_or_else(|error| error, refused)),
            recording => recording,
        };
        let (small, whole) = (record(config.micro_batch)?, record(passes * config.micro_batch)?);
        let cut = Cut::new(&small.recorded, &whole.recorded).map_err(refused)?;
        let factors = cut.at(&small.recorded, &whole.recorded).map_err(refused)?;
        of_one_mean(config, &cut)?;
        let mut tensors = vec![];
        for (index, factor) in cut.factors.iter().enumerate() {
            let weighs = cut.weights.contains(&Weight::Factor(index));
            let is_written = cut.is_read(index) || weighs && matches!(factor, Factor::Count(_));
            let known = before.and_then(|before| before.alike(&cut)?.get(index).copied().flatten());
            tensors.push(match known {
                Some(tensor) => Some(tensor),
                None if is_written => Some(declare(graph, &small, factor, SHARE)),
                None => None,
            });
        }
        let share = |weight: &Weight| match *weight {
            Weight::One => Share::Equal(1.0),
            Weight::Factor(index) => match (factors[index], tensors[index]) {
                (FactorOf::Ratio(ratio) | FactorOf::Constant(ratio), _) => Share::Equal(ratio),
                (_, Some(tensor)) => Share::Written(tensor),
                (_, None) => Share::Equal(1.0 / passes as f64),
            },
        };
        let shares = cut.weights.iter().map(share).collect();
        let (small, whole) = (Some(Arc::new(small)), Some(Arc::new(whole)));
        Ok(Self { cut, small, whole, tensors, shares })
    }

    /// Shares of the passes in which any number of samples is evaluated, or the op that mixes samples.
    pub(crate) fn of_evaluation(
        graph: &mut Graph,
        config: &TrainerConfig,
        model: &dyn Model,
    ) -> Result<std::result::Result<Self, Mixed>> {
        let (small, cut) = match cut_evaluation(config, model)? {
            Ok(found) => found,
            Err(mixed) => return Ok(Err(mixed)),
        };
        of_one_mean(config, &cut)?;
        let read = cut.factors.iter().enumerate();
        let read = read.map(|(index, factor)| {
            cut.is_read(index).then(|| declare(graph, &small, factor, "eval.share"))
        });
        let tensors = read.collect();
        let small = Some(Arc::new(small));
        Ok(Ok(Self { cut, small, whole: None, tensors, shares: vec![] }))
    }
}

impl EvalHandles {
    /// The op that mixes samples, if figures depend on which of them share a pass.
    pub(crate) fn mixed(&self, config: &TrainerConfig) -> Option<Mixed> {
        match &self.shares {
            Err(mixed) => Some(mixed.clone()),
            Ok(shares) if shares.add_up() => None,
            // Rows are read one by one, and may still be made of several samples.
            Ok(_) => cut_evaluation(config, &*config.pass_model().ok()?).ok()?.err(),
        }
    }
}

/// The recorded pass of an evaluation, and its cut.
fn cut_evaluation(
    config: &TrainerConfig,
    model: &dyn Model,
) -> Result<std::result::Result<(Recording, Cut), Mixed>> {
    let record = |samples| Recording::new(config, model, false, samples);
    let few = config.micro_batch;
    let small = record(few)?;
    let whole = match record(config.passes().max(2) * few) {
        Err(error) => return mixing(error).map(Err),
        Ok(whole) => whole,
    };
    Ok(Cut::new(&small.recorded, &whole.recorded).map(|cut| (small, cut)))
}

/// The op that takes no other number of samples, where that's what went wrong.
fn mixing(error: Error) -> Result<Mixed> {
    match error {
        Error::Graph(tightrope_core::Error::Shape { op, name, .. }) => Ok(Mixed { op, name }),
        error => Err(error),
    }
}

/// Holds that ranks that share sequences add up one mean: which of a pass's nodes are whose, their exchanges hide.
fn of_one_mean(config: &TrainerConfig, cut: &Cut) -> Result<()> {
    let problem =
        "the loss is of several means, and ranks that share sequences add up one: leave it out";
    ensure(config.parts() == 1 || cut.actions.is_empty(), "run.context_ranks", || {
        problem.to_owned()
    })
}

fn declare(graph: &mut Graph, small: &Recording, factor: &Factor, name: &str) -> Tensor {
    let ty = match factor {
        Factor::Known(figure) => small.recorded.graph.ty(*figure).clone(),
        _ => Type::new(DType::F32, [1]),
    };
    let taken = |name: &str| graph.find(name).is_ok();
    let mut names =
        std::iter::once(name.to_owned()).chain((2..).map(|number| format!("{name}.{number}")));
    let name = names.find(|name| !taken(name)).unwrap_or_default();
    graph.persistent(&name, ty, Class::Input)
}

impl Pass<'_> {
    /// Appends an op of a pass that is one of several: as [`tightrope_core::batch`] says what each of them makes.
    pub(crate) fn push_part(
        &mut self,
        op: Op,
        inputs: &[Tensor],
        name: &str,
    ) -> Result<Vec<Tensor>> {
        let Some((shares, node)) = self.next_node() else {
            return Ok(self.graph().push(op, inputs, name)?);
        };
        let actions = shares.actions(node);
        let (mut op, mut inputs) = (op, inputs.to_vec());
        for action in actions {
            if let (Action::Formulas(formulas, factor), Op::Map(map)) = (action, &mut op) {
                map.formulas.clone_from(formulas);
                inputs.push(shares.tensor(*factor));
            }
        }
        let mut outputs = self.graph().push(op, &inputs, name)?;
        for action in actions {
            match *action {
                Action::Replace(output, factor) => outputs[output] = shares.tensor(factor),
                Action::Scale(output, factor) => {
                    let x = outputs[output];
                    let map = Map::new(input(0) * input(1), self.ty(x).dtype);
                    let read = [x, shares.tensor(factor)];
                    outputs[output] = self.graph().one(map, &read, &format!("{name}.share"))?;
                    self.added_node();
                }
                Action::Formulas(..) => {}
            }
        }
        Ok(outputs)
    }
}
