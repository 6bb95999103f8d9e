//! A plan as Python sees it: figures, columns, and pictures.

use std::sync::Arc;
use std::time::Instant;

use numpy::{IntoPyArray as _, PyArray1};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use serde_json::Value;
use tightrope::cards::Card;
use tightrope::core::Backend;
use tightrope::devices::Devices;
use tightrope::nn::Planned;
use tightrope::plan::techniques::Techniques;
use tightrope::recipe::Step;
use tightrope::settings::{Command, Device, Settings};
use tightrope::view::advice::{Advice, Subject};
use tightrope::view::layers::{Layer, layers};
use tightrope::view::map::{self, Panel};
use tightrope::view::names::phase_name;
use tightrope::view::page;
use tightrope::view::step::{ShownPlan, ShownProgram, ShownTensor, programs};
use tightrope::view::summary::Summary;
use tightrope::view::sweep::Sweep;
use tightrope::view::techniques;

use crate::columns::columns;
use crate::failure::{object, raised, unexpected};
use crate::keywords::said;
use crate::traced::Traced;
use crate::words;

/// What was asked for: a step, and where it comes from.
#[derive(Clone, Debug)]
pub struct Asked {
    /// What was said.
    pub settings: Settings,
    /// The program's own model.
    pub model: Option<Arc<Traced>>,
    /// Tensors that steps keep for the program.
    pub watch: Vec<String>,
    /// A GPU that isn't here, which is planned for.
    pub card: Option<&'static Card>,
}

impl Asked {
    /// By keywords for `command`, and a trace in JSON where the program brings its own model.
    ///
    /// # Errors
    /// Wrong keywords, and settings that the command doesn't read.
    pub fn read(
        command: Command,
        keywords: &Bound<'_, PyDict>,
        trace: Option<&str>,
        watch: Vec<String>,
    ) -> PyResult<Self> {
        let model = trace.map(Traced::read).transpose().map_err(unexpected)?;
        let settings = said(keywords)?;
        let read = settings.read_by(command);
        read.map_err(|error| raised(keywords.py(), &error.into()))?;
        Ok(Self { settings, model, watch, card: None })
    }

    fn step(&self) -> tightrope::Result<Step> {
        let mut step = match &self.model {
            None => Step::of(&self.settings),
            Some(model) => Step::of_own(&self.settings, Arc::<Traced>::clone(model)),
        }?;
        self.complete(&mut step);
        Ok(step)
    }

    /// Asks for a GPU that isn't here, by its name.
    fn for_card(&mut self, name: &str) -> tightrope::Result<()> {
        self.card = Some(Card::named(name)?);
        self.settings.run.device = Device::Cuda(0);
        Ok(())
    }

    /// Adds to a step what no setting says.
    pub fn complete(&self, step: &mut Step) {
        step.device.card = self.card;
        step.config.watch = self.watch.clone();
        step.config.logits = self.model.as_ref().is_some_and(|model| model.predicts());
    }
}

/// What is said of a plan, as data that any thread may hold.
#[derive(Clone, Debug)]
pub struct Views {
    /// What was planned, before the planner's choices.
    step: Step,
    /// Figures, as `plan --json` prints them.
    summary: Value,
    text: String,
    subtitle: String,
    /// Every op and tensor.
    shown: ShownPlan,
    /// What each block takes.
    layers: Vec<Layer>,
}

impl Views {
    /// Of a plan for `device` that took `plan_s` to find.
    pub fn of(step: &Step, planned: &Planned, device: &dyn Backend, plan_s: f64) -> Self {
        const WIDTH: usize = 100;
        let scope = &step.scope;
        let known = scope.rates.known(device, planned.config().precision, scope.threads);
        let budget = tightrope::plan::budget(scope, device);
        let shown = programs(&planned.plan, planned.config().accumulation(), &known.rates);
        let summary = Summary::new(planned, device, known, budget, plan_s);
        let step_s = summary.estimate.step_s;
        let chosen = summary.facts().into_iter().find(|(name, _)| *name == "choices");
        Self {
            step: step.clone(),
            layers: layers(&planned.plan, &shown),
            text: words::in_keywords(&summary.text(WIDTH)),
            subtitle: chosen.map(|(_, text)| text).unwrap_or_default(),
            shown: ShownPlan::new(&planned.plan, &summary.report, budget, step_s, shown),
            summary: summary.json(),
        }
    }
}

/// A plan: every byte of a training step, known before anything is allocated.
#[pyclass(frozen, module = "tightrope._engine")]
pub struct Plan(Views);

impl Plan {
    /// With these views.
    pub fn of(views: Views) -> Self {
        Self(views)
    }

    /// What was planned.
    pub fn step(&self) -> &Step {
        &self.0.step
    }

    /// The step's device.
    fn device(&self) -> tightrope::Result<Box<dyn Backend>> {
        Devices::default().open(&self.step().device)
    }

    fn figure<'py>(&self, py: Python<'py>, key: &str) -> PyResult<Bound<'py, PyAny>> {
        object(py, &self.0.summary[key])
    }

    /// Tensors with the number of the first op of their program among all ops of the step, each once.
    fn tensors(&self) -> impl Iterator<Item = (usize, &ShownProgram, &ShownTensor)> {
        let mut begin = 0;
        self.0.shown.programs.iter().enumerate().flat_map(move |(index, program)| {
            let first = begin;
            begin += program.ops.len();
            let tensors = program.tensors.iter().filter(move |tensor| !tensor.kept || index == 0);
            tensors.map(move |tensor| (first, program, tensor))
        })
    }

    fn ops(&self) -> usize {
        self.0.shown.programs.iter().map(|program| program.ops.len()).sum()
    }
}

fn text_column<'py>(
    py: Python<'py>,
    words: impl IntoIterator<Item = String>,
) -> PyResult<Bound<'py, PyAny>> {
    let words: Vec<String> = words.into_iter().collect();
    py.import("numpy")?.call_method1("array", (PyList::new(py, words)?,))
}

#[pymethods]
impl Plan {
    /// Plans a step by keywords. `trace` is a model that was traced, in JSON; `watch` names tensors that steps keep; `gpu` is one
    /// that isn't here.
    #[new]
    #[pyo3(signature = (keywords, trace=None, watch=vec![], gpu=None))]
    fn new(
        py: Python<'_>,
        keywords: &Bound<'_, PyDict>,
        trace: Option<&str>,
        watch: Vec<String>,
        gpu: Option<&str>,
    ) -> PyResult<Self> {
        let mut asked = Asked::read(Command::Plan, keywords, trace, watch)?;
        gpu.map_or(Ok(()), |gpu| asked.for_card(gpu)).map_err(|error| raised(py, &error))?;
        let views = py.detach(|| {
            let step = asked.step()?;
            let device = Devices::default().open(&step.device)?;
            let start = Instant::now();
            let planned = step.plan(&*device)?;
            Ok(Views::of(&step, &planned, &*device, start.elapsed().as_secs_f64()))
        });
        views.map(Self).map_err(|error| raised(py, &error))
    }

    /// Bytes that the step takes on the device, all in all.
    #[getter]
    fn peak_bytes(&self) -> u64 {
        self.0.shown.peak_bytes
    }

    /// The most bytes that are alive at once: no plan of this order of ops takes fewer.
    #[getter]
    fn lower_bound_bytes(&self) -> u64 {
        self.0.shown.lower_bound_bytes
    }

    /// Bytes that the plan may take; None where nothing limits it.
    #[getter]
    fn budget_bytes(&self) -> Option<u64> {
        self.0.shown.budget_bytes
    }

    /// Predicted seconds of a step.
    #[getter]
    fn predicted_step_s(&self) -> f64 {
        self.0.shown.step_s
    }

    /// Bytes at the peak by class of tensor, and of gaps. They add up to the peak.
    #[getter]
    fn by_class<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.figure(py, "by_class")
    }

    /// What the planner chose.
    #[getter]
    fn choices<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.figure(py, "choices")
    }

    /// Every figure of the plan, as `tightrope plan --json` prints them.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        object(py, &self.0.summary)
    }

    /// Every tensor of the step, a column a property: name, class, phase of the op that makes it, offset and bytes in the
    /// arena, first and last op that it lives for. Ops are counted through the programs of a step, as in `live_bytes`.
    fn tensors_columns<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let columns = PyDict::new(py);
        let numbers = |of: &dyn Fn(usize, &ShownTensor) -> u64| -> Bound<'py, PyArray1<u64>> {
            let column: Vec<u64> = self.tensors().map(|(begin, _, it)| of(begin, it)).collect();
            column.into_pyarray(py)
        };
        let last = self.ops().saturating_sub(1);
        columns
            .set_item("name", text_column(py, self.tensors().map(|(_, _, it)| it.name.clone()))?)?;
        let class = self.tensors().map(|(_, _, it)| it.class.name().to_owned());
        columns.set_item("class", text_column(py, class)?)?;
        let phase = self.tensors().map(|(_, program, it)| match program.ops.get(it.birth) {
            Some(op) if !it.kept => phase_name(op.phase).to_owned(),
            _ => "kept".to_owned(),
        });
        columns.set_item("phase", text_column(py, phase)?)?;
        columns.set_item("offset", numbers(&|_, it| it.offset))?;
        columns.set_item("bytes", numbers(&|_, it| it.bytes))?;
        let first = |begin, it: &ShownTensor| if it.kept { 0 } else { begin + it.birth };
        columns.set_item("first", numbers(&|begin, it| first(begin, it) as u64))?;
        let end = |begin, it: &ShownTensor| if it.kept { last } else { begin + it.death };
        columns.set_item("last", numbers(&|begin, it| end(begin, it) as u64))?;
        Ok(columns)
    }

    /// Every op of the step, a column a property: op, name of its first output, phase, predicted seconds, floating-point
    /// operations, bytes that it moves.
    fn ops_columns<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let ops = || self.0.shown.programs.iter().flat_map(|program| &program.ops);
        let columns = PyDict::new(py);
        columns.set_item("op", text_column(py, ops().map(|op| op.op.to_owned()))?)?;
        columns.set_item("name", text_column(py, ops().map(|op| op.name.clone()))?)?;
        columns
            .set_item("phase", text_column(py, ops().map(|op| phase_name(op.phase).to_owned()))?)?;
        let seconds: Vec<f64> = ops().map(|op| op.seconds).collect();
        columns.set_item("seconds", seconds.into_pyarray(py))?;
        let flops: Vec<u64> = ops().map(|op| op.flops).collect();
        columns.set_item("flops", flops.into_pyarray(py))?;
        let bytes: Vec<u64> = ops().map(|op| op.bytes).collect();
        columns.set_item("bytes", bytes.into_pyarray(py))?;
        Ok(columns)
    }

    /// Bytes that are alive at each op of a step.
    fn live_bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<u64>> {
        let ops = self.0.shown.programs.iter().flat_map(|program| &program.ops);
        let live: Vec<u64> = ops.map(|op| op.live).collect();
        live.into_pyarray(py)
    }

    /// `(bytes, predicted seconds)` of plans from the fastest to the smallest.
    fn frontier(&self, py: Python<'_>) -> PyResult<Vec<(u64, f64)>> {
        let swept = py.detach(|| {
            let (step, device) = (self.step(), self.device()?);
            let scope = &step.scope;
            let rates = scope.rates.known(&*device, step.config.precision, scope.threads).rates;
            Ok(Sweep::new(scope, &step.config, &*device, &rates)?.json())
        });
        let json: Value = swept.map_err(|error| raised(py, &error))?;
        let point =
            |it: &Value| Some((it["peak_bytes"].as_u64()?, it["predicted_step_s"].as_f64()?));
        let points = json["plans"].as_array().map(|plans| plans.iter().filter_map(point).collect());
        points.ok_or_else(|| unexpected("the sweep lists no plans"))
    }

    /// What a plan could be instead: what more bytes would buy, and fewer cost.
    fn advice<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let found = py.detach(|| {
            self.planned_again(|subject, _| Ok(words::said(Advice::new(&subject).json())))
        });
        object(py, &found.map_err(|error| raised(py, &error))?)
    }

    /// What each memory technique saves and costs, alone and together, against a plan that has none of them.
    fn techniques<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let found = py.detach(|| {
            let (step, device) = (self.step(), self.device()?);
            let found = Techniques::new(&step.scope, &step.config, &*device)?;
            Ok(words::said(techniques::json(&found)))
        });
        object(py, &found.map_err(|error| raised(py, &error))?)
    }

    /// The plan as one page of HTML that needs no network.
    fn to_html(&self, py: Python<'_>) -> PyResult<String> {
        let made = py.detach(|| {
            self.planned_again(|subject, plan_s| {
                let Subject { planned, scope, config, device, budget, rates } = subject;
                let known = scope.rates.known(device, planned.config().precision, scope.threads);
                let summary = Summary::new(planned, device, known, budget, plan_s);
                let accumulation = planned.config().accumulation();
                let programs = programs(&planned.plan, accumulation, rates);
                let sweep = Sweep::new(scope, config, device, rates)?;
                Ok(page::page(&summary, &programs, &sweep, None))
            })
        });
        made.map_err(|error| raised(py, &error))
    }

    /// The plan as a map, in SVG: ops from left to right, offsets from the bottom up.
    #[pyo3(signature = (title="", beside=vec![]))]
    fn to_svg(&self, title: &str, beside: Vec<(String, PyRef<'_, Self>)>) -> String {
        let own = (if title.is_empty() { "peak" } else { title }, &self.0);
        let others = beside.iter().map(|(title, plan)| (title.as_str(), &plan.0));
        let panels = std::iter::once(own).chain(others);
        let panels = panels.map(|(title, Views { subtitle, shown: plan, .. })| Panel {
            title,
            subtitle,
            plan,
        });
        map::svg(&panels.collect::<Vec<_>>())
    }

    fn __str__(&self) -> &str {
        &self.0.text
    }

    fn __repr__(&self) -> String {
        let peak = tightrope::units::human_bytes(self.0.shown.peak_bytes);
        format!("<Plan: {peak}, {:.3} s a step>", self.0.shown.step_s)
    }

    /// Figures, and ops and tensors as columns, as the widget takes them.
    fn widget_columns<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        columns(py, &self.0.summary, &self.0.shown, &self.0.layers)
    }
}

impl Plan {
    /// Does `work` with the plan made again, as planning is cheaper than keeping a graph.
    fn planned_again<T>(
        &self,
        work: impl FnOnce(Subject<'_>, f64) -> tightrope::Result<T>,
    ) -> tightrope::Result<T> {
        let (step, device) = (self.step(), self.device()?);
        let start = Instant::now();
        let planned = step.plan(&*device)?;
        let plan_s = start.elapsed().as_secs_f64();
        let scope = &step.scope;
        let known = scope.rates.known(&*device, planned.config().precision, scope.threads);
        let budget = tightrope::plan::budget(scope, &*device);
        let subject = Subject {
            config: &step.config,
            scope,
            planned: &planned,
            budget,
            device: &*device,
            rates: &known.rates,
        };
        work(subject, plan_s)
    }
}
