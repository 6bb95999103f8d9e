//! What is said of a plan, for people and for machines.

use std::fmt::Write as _;

use serde_json::{Value, json};
use tightrope_core::plan::{Allocation, GAPS, Report};
use tightrope_core::{Backend, Class, DeviceKind, Life, Phase};
use tightrope_nn::layers::AttentionKind;
use tightrope_nn::{Estimate, Gradients, Master, Planned, TableBits, TrainerConfig};

use super::alive::{Group, grouped};
use super::chart::{Point, draw};
use super::ranks;
use super::why::why;
use crate::devices;
use crate::model::{self, Unit, parameters};
use crate::plan::{Choices, MadeFor};
use crate::rates::Known;
use crate::units::{exact_bytes, human_bytes, human_count, plural};

/// Groups of tensors listed.
const LISTED: usize = 12;
/// Rows of the chart.
pub const ROWS: usize = 12;
/// Whether several ranks can train together: a browser's tab has no others.
const SEVERAL: bool = cfg!(not(target_family = "wasm"));

/// Everything that is said of a plan.
pub struct Summary<'a> {
    /// The plan.
    pub planned: &'a Planned,
    /// Where its bytes go.
    pub report: Report,
    /// Name of the device.
    pub device: String,
    kind: DeviceKind,
    /// Bytes of the host's memory for a copy of what steps change, where the device can go away.
    copied_bytes: Option<u64>,
    /// Bytes of the host's memory for what is offloaded.
    offloaded_bytes: Option<u64>,
    /// Rates of the device.
    pub known: Known,
    /// Bytes that the plan may take, where that's known.
    pub budget: Option<u64>,
    /// Time of a step.
    pub estimate: Estimate,
    plan_s: f64,
}

/// Bytes of the host's memory for what is offloaded; `None` where nothing is.
pub fn offloaded_bytes(planned: &Planned) -> Option<u64> {
    let host = devices::host(1).ok()?;
    let offloaded = planned.host_plan(&*host).ok().flatten();
    offloaded.map(|plan| plan.peak_bytes())
}

impl<'a> Summary<'a> {
    /// Of a plan that took `plan_s` to find.
    pub fn new(
        planned: &'a Planned,
        device: &dyn Backend,
        known: Known,
        budget: Option<u64>,
        plan_s: f64,
    ) -> Self {
        let copied_bytes = device.kind().can_be_lost().then(|| planned.snapshot_bytes());
        let offloaded_bytes = offloaded_bytes(planned);
        let (device, kind) = (device.name(), device.kind());
        let estimate = planned.estimate(&known.rates);
        let report = planned.plan.report();
        Self {
            planned,
            report,
            device,
            kind,
            copied_bytes,
            offloaded_bytes,
            known,
            budget,
            estimate,
            plan_s,
        }
    }

    /// What it was planned for.
    pub fn config(&self) -> &TrainerConfig {
        self.planned.config()
    }

    /// Tokens of a step.
    pub fn tokens(&self) -> usize {
        self.config().tokens()
    }

    /// Indices of the programs of an optimizer step, in the order they run.
    fn training(&self) -> impl Iterator<Item = usize> {
        let programs = self.planned.plan.graph.programs.iter().enumerate();
        programs.filter(|(_, program)| program.role.runs_per_step(1) > 0).map(|(index, _)| index)
    }

    /// Estimated time, live bytes and phase of every op of an optimizer step, with one micro-step for
    /// all.
    fn timeline(&self) -> Vec<Point> {
        let plan = &self.planned.plan;
        self.training()
            .flat_map(|index| {
                let nodes = &plan.graph.programs[index].nodes;
                nodes.iter().zip(&plan.programs[index].timeline).map(|(node, &live)| Point {
                    seconds: self.known.rates.seconds(&plan.graph, node),
                    live,
                    label: match node.phase {
                        Phase::Forward => "forward",
                        Phase::Backward | Phase::Recompute => "backward",
                        Phase::Update => "update",
                    },
                })
            })
            .collect()
    }

    /// What is said of the plan, a name and a line each.
    pub fn facts(&self) -> Vec<(&'static str, String)> {
        let (config, report, estimate) = (self.config(), &self.report, &self.estimate);
        let mut facts = vec![
            (
                "model",
                format!(
                    "{}; {} parameters",
                    model::sizes(config),
                    human_count(parameters(config) as f64)
                ),
            ),
            ("device", format!("{}, {}", self.device, config.precision.dtype())),
            (
                "step",
                match Unit::of(config) {
                    Unit::TOKEN => {
                        let [one, many] = model::sample(config);
                        format!(
                            "{} tokens: {} of {}",
                            human_count(self.tokens() as f64),
                            plural(config.batch, one, many),
                            config.model.tokens()
                        )
                    }
                    unit => plural(config.batch, unit.one, unit.many),
                },
            ),
            (
                "peak",
                format!(
                    "{}, in `{}` at {}",
                    exact_bytes(report.peak_bytes),
                    report.peak_program,
                    report.peak_op
                ),
            ),
            ("why", why(&self.planned.plan, report)),
            (
                "bound",
                format!(
                    "{}: the most bytes alive at once; this plan is {:.2}% above it",
                    human_bytes(report.lower_bound_bytes),
                    100.0 * self.gap()
                ),
            ),
        ];
        if let Some(budget) = self.budget {
            let difference = human_bytes(budget.abs_diff(report.peak_bytes));
            let fits = if report.peak_bytes <= budget { "to spare" } else { "too little" };
            facts.push(("budget", format!("{}, {difference} {fits}", human_bytes(budget))));
        }
        if let Some(bytes) = self.copied_bytes {
            facts.push(("host", copied_text(bytes)));
        }
        if let Some(bytes) = self.offloaded_bytes {
            let (bytes, kept) = (human_bytes(bytes), config.offload);
            facts.push(("offloaded", format!("{bytes} of the host's memory for {kept}")));
        }
        let uncut = self
            .planned
            .mixed()
            .map_or(String::new(), |mixed| format!(", one micro-batch as {mixed}"));
        facts.push(("choices", choices_text(config) + &uncut));
        if SEVERAL && config.ranks > 1 {
            facts.extend(ranks::facts(self.planned, &self.known));
        }
        facts.push((
            "estimate",
            format!(
                "{:.3} s a step, {} {}/s, {:.0}% of it recomputation ({})",
                estimate.step_s,
                human_count(self.tokens() as f64 / estimate.step_s),
                Unit::of(config).many,
                100.0 * estimate.recomputed(),
                self.known.origin()
            ),
        ));
        if let Some(bound) = self.planned.step_bound_s(&self.known.rates) {
            facts.push((
                "fastest",
                format!(
                    "{bound:.3} s: no choice of activations fits in less; {:.2}% above it",
                    // The two are summed in another order, which leaves some last bits.
                    100.0 * (estimate.step_s / bound - 1.0).max(0.0)
                ),
            ));
        }
        facts
    }

    /// What is printed, `width` columns wide.
    pub fn text(&self, width: usize) -> String {
        let (config, report) = (self.config(), &self.report);
        let mut text = String::new();
        let planned = format!("{} ops in {:.3} s", report.steps, self.plan_s);
        for (name, value) in self.facts().into_iter().chain([("planned", planned)]) {
            // Writing to a String can't fail.
            let _ = writeln!(text, "{name:<11}{value}");
        }
        text += "\nat the peak\n";
        for name in Class::ALL.map(Class::name).into_iter().chain([GAPS]) {
            // Frozen weights have a line where there are any.
            let Some(&bytes) = report.by_class.get(name) else { continue };
            text += &share(name, bytes, report.peak_bytes);
        }
        let groups = grouped(&report.alive);
        let _ = writeln!(text, "\nlargest of {} tensors alive there", report.alive.len());
        for Group { name, ty, class, count, bytes } in groups.iter().take(LISTED) {
            let count = if *count > 1 { format!("{count} × ") } else { String::new() };
            let _ = writeln!(text, "  {:>9}  {class:<10} {count}{name} {ty}", human_bytes(*bytes));
        }
        if let Some(rest) = groups.get(LISTED..).filter(|rest| !rest.is_empty()) {
            let (bytes, count) =
                rest.iter().fold((0, 0), |(b, c), group| (b + group.bytes, c + group.count));
            let _ = writeln!(text, "  {:>9}  {:<10} {count} more", human_bytes(bytes), "");
        }
        let micro = if config.accumulation() > 1 { ", one micro-step for all" } else { "" };
        let _ = writeln!(text, "\nlive bytes in estimated time{micro}; ▒ is kept between steps");
        text += &draw(&self.timeline(), self.planned.plan.persistent_bytes, width, ROWS);
        text
    }

    /// How far the arena is above its lower bound.
    pub fn gap(&self) -> f64 {
        let bound = self.report.lower_bound_bytes.max(1) as f64;
        self.report.peak_bytes as f64 / bound - 1.0
    }

    /// The same for machines.
    pub fn json(&self) -> Value {
        let (config, report, estimate) = (self.config(), &self.report, &self.estimate);
        let mut object = json!({
            "peak_bytes": report.peak_bytes,
            "by_class": report.by_class,
            "lower_bound_bytes": report.lower_bound_bytes,
            "budget_bytes": self.budget,
            "made_for": MadeFor::of(config, self.kind),
            "choices": Choices::of(config),
            "predicted_step_s": estimate.step_s,
            "predicted_tokens_per_s": self.tokens() as f64 / estimate.step_s,
            "step_bound_s": self.planned.step_bound_s(&self.known.rates),
            "rates": self.known.source.name(),
            "host_copy_bytes": self.copied_bytes.unwrap_or(0),
            "offloaded_bytes": self.offloaded_bytes.unwrap_or(0),
            "recomputed_share": estimate.recomputed(),
            "flops_per_step": estimate.flops,
            "tokens_per_step": self.tokens(),
            "parameters": parameters(config),
            "plan_s": self.plan_s,
            "steps": report.steps,
            "recomputed_steps": report.recomputed,
            "device": self.device,
            "persistent_bytes": self.planned.plan.persistent_bytes,
            "peak": {
                "program": report.peak_program,
                "step": report.peak_step,
                "op": report.peak_op,
                "why": why(&self.planned.plan, report),
                "alive": report.alive,
                "groups": grouped(&report.alive),
            },
            "programs": self.training().map(|index| self.program(index)).collect::<Vec<_>>(),
            "persistent": self.persistent(),
        });
        if let Some(mixed) = self.planned.mixed() {
            object["mixed"] = json!(mixed.to_string());
        }
        if SEVERAL {
            ranks::extend(&mut object, self.planned, &self.known);
        }
        object
    }

    /// A program as a map of offset and time.
    fn program(&self, index: usize) -> Value {
        let plan = &self.planned.plan;
        let (program, planned) = (&plan.graph.programs[index], &plan.programs[index]);
        let phases: Vec<Phase> = program.nodes.iter().map(|node| node.phase).collect();
        let arena: Vec<Value> = planned.allocations.iter().map(|it| self.allocation(it)).collect();
        json!({ "name": program.role, "phases": phases, "live": planned.timeline, "arena": arena })
    }

    fn allocation(&self, allocation: &Allocation) -> Value {
        let Allocation { tensors, offset, bytes, birth, death } = allocation;
        let graph = &self.planned.plan.graph;
        let first = tensors.first().map(|&(tensor, _)| graph.info(tensor));
        json!({
            "name": first.map_or("scratch", |info| info.name.as_str()),
            "class": first.map_or(Class::Workspace, |info| info.class),
            "offset": offset,
            "bytes": bytes,
            "birth": birth,
            "death": death,
        })
    }

    /// Tensors that are kept between steps.
    pub fn persistent(&self) -> Vec<Value> {
        let plan = &self.planned.plan;
        let kept = |&(_, info): &(usize, &tightrope_core::TensorInfo)| {
            info.life == Life::Persistent && info.replaces.is_none()
        };
        let tensors = plan.graph.tensors.iter().enumerate().filter(kept);
        tensors
            .map(|(index, info)| {
                json!({
                    "name": info.name,
                    "class": info.class,
                    "offset": plan.offsets[index],
                    "bytes": info.ty.bytes(),
                })
            })
            .collect()
    }
}

/// The planner's choices in `config` that `before` doesn't have.
pub fn words(config: &TrainerConfig, before: &TrainerConfig) -> String {
    let mut words = vec![];
    if config.micro_batch != before.micro_batch {
        words.push(format!("micro-batch {} × {}", config.micro_batch, config.accumulation()));
    }
    if config.options.checkpoint != before.options.checkpoint {
        words.push(format!("recompute {}", config.options.checkpoint));
    }
    let [chunk, chunk_before] = [config, before].map(|it| rows(it, it.build.loss_chunk, "none"));
    // A chunk that covers a smaller micro-batch is the same choice.
    if config.build.loss_chunk != before.build.loss_chunk && chunk != chunk_before {
        words.push(format!("loss chunk {chunk}"));
    }
    if config.options.overlap != before.options.overlap {
        let how = if config.options.overlap { "overlapped" } else { "in turn" };
        words.push(format!("transfers {how}"));
    }
    words.join(", ")
}

/// A chunk of so many rows; what it is called where it's `zero`.
fn rows(config: &TrainerConfig, chunk: usize, zero: &str) -> String {
    // Each sequence of a pair has logits of its own.
    let most = match model::of_pairs(config) {
        false => config.micro_batch * config.model.tokens(),
        true => config.model.seq_len(),
    };
    match chunk {
        0 => zero.to_owned(),
        // A chunk of all rows is no chunk.
        rows if rows >= most => "none".to_owned(),
        rows => format!("{rows} rows"),
    }
}

fn choices_text(config: &TrainerConfig) -> String {
    let mut text = format!(
        "micro-batch {} × {}, recompute {}, loss chunk {}, optimizer state in {} bits",
        config.micro_batch,
        config.accumulation(),
        config.options.checkpoint,
        rows(config, config.build.loss_chunk, "none"),
        u32::from(config.optimizer_bits),
    );
    if config.table_bits == TableBits::B8 {
        text += ", that of tables too";
    }
    if config.build.attention == AttentionKind::Eager {
        text += ", eager attention";
    }
    if config.gradients != Gradients::F32 {
        text += &format!(", gradients in {}", config.gradients.name());
    }
    if config.master == Master::None {
        text += ", no master weights";
    }
    text
}

/// What the host keeps of a device that can go away.
pub fn copied_text(bytes: u64) -> String {
    format!("{} for a copy of weights and states, should the device go away", human_bytes(bytes))
}

/// A class with its bytes, its share, and a bar of it.
fn share(name: &str, bytes: u64, of: u64) -> String {
    const BAR: f64 = 40.0;
    let part = bytes as f64 / of.max(1) as f64;
    let bar = "█".repeat((BAR * part).round() as usize);
    let line = format!("  {name:<11}{:>9} {:5.1}%  {bar}", human_bytes(bytes), 100.0 * part);
    format!("{}\n", line.trim_end())
}
