//! A run as Python sees it, on a thread of its own.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use numpy::{IntoPyArray as _, PyReadonlyArray1};
use pyo3::exceptions::{PyKeyError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde_json::{Value, json};
use tightrope::core::Cancel;
use tightrope::devices::Devices;
use tightrope::nn::{self, Matched, Sampling, SavedTensor};
use tightrope::recipe::Recipe;
use tightrope::run::{Ended, Evaluation, Kept, Run, Samples, Stepped};
use tightrope::settings::Command;
use tightrope::view::outlook::Outlook;
use tightrope::weights::Given;
use tightrope::{Result, block_on};

use crate::failure::object;
use crate::fed::{Fed, Slot};
use crate::plan::{Asked, Plan, Views};
use crate::resumed::Resumed;
use crate::traced::Traced;
use crate::words::in_keywords;
use crate::worker::{Stop, Worker};

/// A run on its thread.
struct Training {
    run: Run<'static>,
    /// The run directory, where it has one.
    dir: Option<PathBuf>,
    views: Views,
    /// Notes from before the first step.
    notes: Vec<String>,
}

/// The outcome of [`Trainer::matched`].
type FoundNames<'py> = (Bound<'py, PyDict>, Vec<String>, Vec<String>, Vec<(String, String)>);

/// Trains a model, one step after the other.
#[pyclass(frozen, module = "tightrope._engine")]
pub struct Trainer {
    worker: Worker<Training>,
    /// Where the batch of the next step is put, where the program hands it over.
    slot: Option<Slot>,
}

impl Training {
    fn start(
        asked: Asked,
        slot: Option<Slot>,
        (resumes, given): (Option<Resumed>, Option<Given>),
        records: bool,
        stop: Stop,
    ) -> Result<Self> {
        let Asked { settings, model, .. } = &asked;
        let mut recipe = match (model, resumes) {
            (Some(model), from) => {
                let strict = from.as_ref().is_none_or(|from| from.strict);
                let (from, notes) = from.map(Resumed::open).transpose()?.unzip();
                let data = Box::new(Fed(slot.unwrap_or_default()));
                let model = Arc::<Traced>::clone(model);
                let mut recipe = Recipe::own(settings, model, data, (from, given), strict)?;
                recipe.notes.extend(notes.unwrap_or_default());
                recipe
            }
            (None, Some(from)) if from.strict => {
                let (path, notes) = from.newest();
                let mut recipe = Recipe::resume(settings, Some(&path))?;
                recipe.notes.extend(notes);
                recipe
            }
            (None, Some(from)) => Recipe::resume_changed(settings, &from.last()?)?,
            (None, None) => Recipe::new(settings)?,
        };
        asked.complete(&mut recipe.step);
        let mut devices = Devices::default();
        let device = devices.open(&recipe.step.device)?;
        let step = recipe.step.clone();
        let start = Instant::now();
        let planned = recipe.plan(device)?;
        let plan_s = start.elapsed().as_secs_f64();
        let views = Views::of(&step, &planned.step, &*planned.device, plan_s);
        let mut notes = planned.recipe.notes.clone();
        let known = step.scope.rates.known(
            &*planned.device,
            planned.step.config().precision,
            step.scope.threads,
        );
        notes.extend(Outlook::new(&planned, &known.rates)?.map(|outlook| outlook.text()));
        let started = planned.start(move |spec| devices.open(spec))?;
        let (mut run, dir) = match records {
            true => started.begin().map(|(run, dir)| (run, Some(dir)))?,
            false => (started.alone(), None),
        };
        run.cancel_by(Cancel::when(move || stop.requested()));
        Ok(Self { run, dir, views, notes })
    }
}

fn stepped(step: &Stepped) -> Value {
    json!({
        "step": step.step,
        "loss": step.loss,
        "lr": step.lr,
        "grad_norm": step.grad_norm,
        "step_s": step.step_s,
        "tokens": step.tokens,
        "tokens_per_s": step.tokens_per_s(),
        "updated": step.updated,
        "logged": step.logged,
        "metrics": step.metrics,
        "heldout": step.evaluation.as_ref().map(evaluated),
        "sample": step.sample,
        "notes": in_words(&step.notes),
    })
}

/// Notes that name settings as Python does.
fn in_words(notes: &[String]) -> Vec<String> {
    notes.iter().map(|note| in_keywords(note)).collect()
}

fn evaluated(evaluation: &Evaluation) -> Value {
    let Evaluation { loss, tokens, metrics } = evaluation;
    json!({ "loss": loss, "tokens": tokens, "metrics": metrics })
}

/// Numbers that a program hands over, as the model's inputs.
fn samples(counted: usize, inputs: &Bound<'_, PyDict>) -> PyResult<Samples> {
    let mut batch = Samples::new(counted);
    for (name, values) in inputs {
        let name: String = name.extract()?;
        if let Ok(values) = values.extract::<PyReadonlyArray1<'_, f32>>() {
            batch = batch.with(&name, values.as_slice()?.to_vec());
        } else if let Ok(values) = values.extract::<PyReadonlyArray1<'_, i32>>() {
            batch = batch.with(&name, values.as_slice()?.to_vec());
        } else {
            return Err(PyValueError::new_err(format!("`{name}` is neither float32 nor int32")));
        }
    }
    Ok(batch)
}

#[pymethods]
impl Trainer {
    /// By keywords; `trace` is a model that was traced, in JSON; `resume` a run or a checkpoint that it goes on from; `records`
    /// is true if it gets a run directory; `watch` names tensors that steps keep; `strict` is false if the checkpoint may have edited weights,
    /// and be of another model or of other frozen weights; `given` is weights of an own model by name, each with its shape and flat float32.
    #[new]
    #[pyo3(signature = (keywords, trace=None, resume=None, records=false, watch=vec![], strict=true, given=None))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn new(
        py: Python<'_>,
        keywords: &Bound<'_, PyDict>,
        trace: Option<&str>,
        resume: Option<PathBuf>,
        records: bool,
        watch: Vec<String>,
        strict: bool,
        given: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let given = given.map(weights_given).transpose()?;
        let asked = Asked::read(Command::Train, keywords, trace, watch)?;
        let resume = resume.map(|path| Resumed { path, strict });
        let slot = asked.model.is_some().then(Slot::default);
        let put = slot.clone();
        let begin = move |stop| Training::start(asked, put, (resume, given), records, stop);
        let worker = Worker::start(py, begin)?;
        Ok(Self { worker, slot })
    }

    /// The next step: its figures and the arrays that are watched, or None where all are done. `batch` is the inputs of an own
    /// model by name.
    #[pyo3(signature = (batch=None))]
    fn step<'py>(
        &self,
        py: Python<'py>,
        batch: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        if let (Some(slot), Some(batch)) = (&self.slot, batch) {
            slot.put(samples(0, batch)?);
        }
        let step = self.worker.ask(py, |training| {
            training.run.go_on();
            training.run.next().transpose()
        })?;
        let Some(mut step) = step else { return Ok(None) };
        let watched = PyDict::new(py);
        for Kept { name, shape, values } in std::mem::take(&mut step.watched) {
            watched.set_item(name, shaped(py, values, shape)?)?;
        }
        let figures = object(py, &stepped(&step))?;
        figures.set_item("watched", watched)?;
        Ok(Some(figures))
    }

    /// What `predict` gives of a micro-batch.
    fn predict<'py>(
        &self,
        py: Python<'py>,
        batch: &Bound<'py, PyDict>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let batch = samples(0, batch)?;
        let (values, shape) = self.worker.ask(py, move |training| {
            block_on(
                training
                    .run
                    .with_trainer(async |trainer| Ok(trainer.logits(&batch.batch()).await?)),
            )
        })?;
        shaped(py, values, shape)
    }

    /// Notes from before the first step: rows that were cut, padding, and a run that takes more than a day.
    fn notes(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.worker.ask(py, |training| Ok(in_words(&training.notes)))
    }

    /// Loss and metrics on held-out data, or None where nothing is held out.
    fn evaluate<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let found = self.worker.ask(py, |training| training.run.evaluate(None))?;
        found.map(|found| object(py, &evaluated(&found))).transpose()
    }

    /// Loss and metrics of `count` samples of an own model.
    fn evaluate_batch<'py>(
        &self,
        py: Python<'py>,
        batch: &Bound<'py, PyDict>,
        count: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        let batch = samples(count, batch)?;
        let found = self.worker.ask(py, move |training| {
            block_on(training.run.with_trainer(async |trainer| {
                Ok(trainer.evaluate_samples(&batch.batch(), count).await?)
            }))
        })?;
        let metrics: serde_json::Map<String, Value> =
            found.metrics.into_iter().map(|(name, value)| (name, json!(value))).collect();
        object(py, &json!({ "loss": found.loss, "metrics": metrics }))
    }

    /// Text that follows a prompt. `sampling` is temperature, top-k, top-p and seed.
    fn generate(
        &self,
        py: Python<'_>,
        prompt: String,
        max_tokens: usize,
        sampling: (f64, usize, f64, u64),
    ) -> PyResult<String> {
        let (temperature, top_k, top_p, seed) = sampling;
        let sampling = Sampling { temperature, top_k, top_p, seed, draw: 0 };
        self.worker.ask(py, move |training| training.run.generate(&prompt, max_tokens, &sampling))
    }

    /// Writes a checkpoint under `folder`, or into the run directory; its path.
    #[pyo3(signature = (folder=None))]
    fn save(&self, py: Python<'_>, folder: Option<PathBuf>) -> PyResult<Option<PathBuf>> {
        self.worker.ask(py, move |training| match folder {
            Some(folder) => training.run.save_in(&folder).map(Some),
            None => {
                training.run.save()?;
                Ok(training.dir.clone())
            }
        })
    }

    /// The run's last words: the loss on all held-out data and a sample, which its directory records.
    fn finish<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let (found, sample) = self.worker.ask(py, |training| training.run.finish())?;
        object(py, &json!({ "heldout": found.as_ref().map(evaluated), "sample": sample }))
    }

    /// Names and shapes of the weights, as checkpoints hold them.
    fn weight_shapes(&self, py: Python<'_>) -> PyResult<Vec<(String, Vec<usize>)>> {
        let saved = self.worker.ask(py, weights)?;
        Ok(saved.into_iter().map(|tensor| (tensor.name, tensor.ty.shape)).collect())
    }

    /// The values of a weight, in f32.
    fn weight<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let found = self.worker.ask(py, weights)?.into_iter().find(|tensor| tensor.name == name);
        let Some(tensor) = found else { return Err(PyKeyError::new_err(name.to_owned())) };
        let shape = tensor.ty.shape.clone();
        let values: Vec<f32> = self.worker.ask(py, move |training| {
            block_on(
                training
                    .run
                    .with_trainer(async |trainer| Ok(trainer.saved_values(&tensor).await?)),
            )
        })?;
        shaped(py, values, shape)
    }

    /// Names of a state dict, matched to those of the weights: `(found, missing, unexpected, copies)`, where `found` has the name in the
    /// state dict of each weight that it holds, and `copies` a weight and another name of it there.
    fn matched<'py>(&self, py: Python<'py>, names: Vec<String>) -> PyResult<FoundNames<'py>> {
        let Matched { found, missing, unexpected, copies } =
            self.worker.ask(py, move |training| {
                block_on(training.run.with_trainer(async |trainer| Ok(trainer.matched(&names))))
            })?;
        let by_weight = PyDict::new(py);
        for (weight, name) in found {
            by_weight.set_item(weight, name)?;
        }
        Ok((by_weight, missing, unexpected, copies))
    }

    /// Sets weights, by their names, to flat arrays of float32.
    fn set_weights(&self, py: Python<'_>, values: &Bound<'_, PyDict>) -> PyResult<()> {
        let mut asked = vec![];
        for (name, values) in values {
            let values: PyReadonlyArray1<'_, f32> = values.extract()?;
            asked.push((name.extract::<String>()?, values.as_slice()?.to_vec()));
        }
        let known = self.worker.ask(py, weights)?;
        let mut found = vec![];
        for (name, values) in asked {
            let Some(saved) = known.iter().find(|saved| saved.name == name) else {
                return Err(PyKeyError::new_err(name));
            };
            found.push((saved.clone(), values));
        }
        self.worker.ask(py, move |training| training.run.set_weights(found))
    }

    /// Names of the parameters that are frozen once those that `patterns` name are (`freeze`), or no longer are; None if that changes
    /// none.
    fn refrozen(
        &self,
        py: Python<'_>,
        patterns: Vec<String>,
        freeze: bool,
    ) -> PyResult<Option<Vec<String>>> {
        self.worker.ask(py, move |training| {
            block_on(
                training.run.with_trainer(async |trainer| {
                    Ok(refrozen(trainer.weights(), &patterns, freeze)?)
                }),
            )
        })
    }

    /// Ends its thread and frees its memory. Nothing can be asked of it then.
    fn close(&self, py: Python<'_>) {
        self.worker.end(py);
    }

    /// Facts of the run: steps done and in all, bytes, batch, directory.
    fn facts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let facts = self.worker.ask(py, |training| {
            let (run, config) = (&training.run, training.run.config());
            let done = run.done();
            Ok(json!({
                "steps_done": done.steps,
                "steps": run.steps(),
                "tokens": done.tokens,
                "complete": run.ended() == Some(Ended::Complete),
                "stopped_early": run.ended() == Some(Ended::OutOfPatience),
                "adapters": config.lora.is_some(),
                "measured_peak_bytes": run.allocated_bytes(),
                "batch": config.batch,
                "micro_batch": config.micro_batch,
                "device": run.backend().map(|device| device.name()),
                "data": run.data().describe(),
                "run": training.dir,
            }))
        })?;
        object(py, &facts)
    }

    /// The plan that it trains by.
    #[getter]
    fn plan(&self, py: Python<'_>) -> PyResult<Plan> {
        let views = self.worker.ask(py, |training| Ok(training.views.clone()))?;
        Ok(Plan::of(views))
    }
}

/// Values as an array of this shape, which takes their memory.
fn shaped(py: Python<'_>, values: Vec<f32>, shape: Vec<usize>) -> PyResult<Bound<'_, PyAny>> {
    values.into_pyarray(py).call_method1("reshape", (shape,))
}

fn weights(training: &mut Training) -> Result<Vec<SavedTensor>> {
    block_on(training.run.with_trainer(async |trainer| Ok(trainer.saved_weights())))
}

/// Weights by name, each with its shape and its elements.
fn weights_given(tensors: &Bound<'_, PyDict>) -> PyResult<Given> {
    let tensor = |(name, tensor): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
        let (shape, values): (Vec<usize>, PyReadonlyArray1<'_, f32>) = tensor.extract()?;
        Ok((name.extract::<String>()?, (shape, values.as_slice()?.to_vec())))
    };
    Ok(Given::new(tensors.iter().map(tensor).collect::<PyResult<_>>()?))
}

/// Names of the parameters that are frozen once those that `patterns` name are, or no longer are; `None` if that changes none.
fn refrozen(
    weights: &nn::Weights,
    patterns: &[String],
    freeze: bool,
) -> nn::Result<Option<Vec<String>>> {
    let parameters = weights.parameters();
    let named = nn::named(parameters, patterns)?;
    let was_frozen = |index: &usize| weights.trained_at(*index).is_none();
    let is_frozen = |index: &usize| match named.contains(index) {
        true => freeze,
        false => was_frozen(index),
    };
    if (0..parameters.len()).all(|index| is_frozen(&index) == was_frozen(&index)) {
        return Ok(None);
    }
    let frozen = (0..parameters.len()).filter(is_frozen);
    let names: Vec<String> = frozen.map(|index| parameters[index].name.clone()).collect();
    if names.len() == parameters.len() {
        let problem = "it names every parameter, and leaves none to train".to_owned();
        return Err(nn::Error::Setting { key: "train.freeze", problem });
    }
    Ok(Some(names))
}
