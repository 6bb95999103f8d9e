//! Numbers that aren't: an output of an op becomes NaN, once or from then on. None is ever saved, and what was saved before goes on
//! to the same numbers. Weights that a run starts from and that aren't numbers are refused by their name.

use std::fs;
use std::rc::Rc;

use tightrope::data::safetensors::{self, SafeTensors, Tensor, TensorView};
use tightrope::data::{Checkpoint, checkpoint};

use crate::chamber::{Case, emptied};
use crate::command::Orders;
use crate::configurations::HALF_WAY;
use crate::device::Disturbance;
use crate::library;
use crate::results::RUN;
use crate::tally::{Tally, Verdict, Violation, Well, Wrong};

/// One op of one replay or, in one of six cases, one weight of a model to start from.
pub fn attempt(case: &mut Case<'_>) -> anyhow::Result<Tally> {
    if case.draws.one_in(6) { in_a_file(case) } else { in_an_op(case) }
}

/// An element of a tensor of a model directory.
fn in_a_file(case: &mut Case<'_>) -> anyhow::Result<Tally> {
    let configuration = &case.chamber.configurations[0];
    case.begin(configuration)?;
    let saved = configuration.half.join(RUN).join(format!("checkpoints/step-{HALF_WAY}"));
    let model = emptied(&case.dir, "model")?;
    fs::copy(saved.join("config.json"), model.join("config.json"))?;
    let weights = SafeTensors::open(saved.join("model.safetensors"))?;
    let typed =
        |view: TensorView<'_>| Some((view.name.to_owned(), view.ty()?, view.bytes.to_vec()));
    let mut tensors: Vec<_> = weights.tensors().filter_map(typed).collect();
    let which = case.draws.place(tensors.len());
    let (name, ty, bytes) = &mut tensors[which];
    let element = case.draws.place(ty.elements());
    let value = *case.draws.one_of(&[f64::NAN, f64::INFINITY, f64::NEG_INFINITY]);
    ty.dtype.write(&mut bytes[element * ty.dtype.size()..], value);
    let name = name.clone();
    let tensors = tensors.iter().map(|(name, ty, bytes)| Tensor::new(name, ty.clone(), bytes));
    safetensors::write(model.join("model.safetensors"), tensors, weights.metadata())?;
    case.story.push(format!("element {element} of {name} is {value}"));
    let ended =
        case.run(&format!("{} --init model", configuration.kind.fresh()), &Orders::none())?;
    Ok(Tally::of(ended.check().and_then(|()| match ended.is_done() {
        true => Err(Violation::new(Wrong::Silent, "it was trained on")),
        false if ended.stderr.contains(&name) => Ok(Well::Refused),
        false => Err(Violation::new(Wrong::Words, format!("no tensor is named: {}", ended.stderr))),
    })))
}

/// An output of an op.
fn in_an_op(case: &mut Case<'_>) -> anyhow::Result<Tally> {
    let chamber = case.chamber;
    let configuration = case.draws.one_of(&chamber.configurations);
    let kind = configuration.kind;
    case.begin(configuration)?;
    let what = Rc::<Disturbance>::default();
    what.spoil_at.set(Some((case.draws.below(14), case.draws.bits())));
    what.spoils_on.set(case.draws.one_in(2));
    let came = library::run(&kind, &case.dir, &what)?;
    let Some(spoilt) = what.spoilt.take() else {
        // An op of whole numbers.
        return Ok(Tally::default());
    };
    let on = if what.spoils_on.get() { "from then on" } else { "once" };
    case.story.push(format!("{}: NaN in {spoilt}, {on}; {:?}", kind.name, came.failed));
    if let Err(violation) = all_finite(case) {
        return Ok(Tally::of(Err(violation)));
    }
    let Some(error) = came.failed else {
        // It was dropped, masked or skipped: later numbers may differ, and they are numbers.
        return Ok(Tally::of(Ok(Well::Identical)));
    };
    let named = ["finite", "not a number", "is NaN"].iter().any(|words| error.contains(words));
    if !named || !error.contains("help: ") {
        return Ok(Tally::of(Err(Violation::new(Wrong::Words, error))));
    }
    let verdict = case.goes_on(configuration, "")?;
    Ok(Tally::of(match verdict {
        // What was spoilt may be an optimizer's state that weights are made of later, or a weight's last bits.
        Err(violation) if violation.wrong == Wrong::Silent => all_finite(case),
        other => other,
    }))
}

/// Whether every number that was saved is one.
fn all_finite(case: &Case<'_>) -> Verdict {
    let run = case.dir.join(RUN);
    let unread = |error: tightrope::data::Error| Violation::new(Wrong::Lost, error.to_string());
    for (step, path) in checkpoint::list(&run).map_err(unread)? {
        let saved = Checkpoint::open(&path).map_err(unread)?;
        for tensor in saved.model.tensors().chain(saved.optimizer.tensors()) {
            let Ok(values) = tensor.to_f32() else { continue };
            if let Some(value) = values.iter().find(|value| !value.is_finite()) {
                let what = format!("step {step} has {value} in {}", tensor.name);
                return Err(Violation::new(Wrong::Silent, what));
            }
        }
    }
    Ok(Well::Identical)
}
