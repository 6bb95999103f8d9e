//! Plan files: what a plan decides, and what it was made for. `plan.json` of a run and what `plan --json` prints are
//! such files.

use std::path::Path;

use anyhow::{Context as _, anyhow};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tightrope_core::{Backend, DeviceKind, plan};
use tightrope_data::{files, limits};
use tightrope_nn::layers::AttentionKind;
use tightrope_nn::{
    self as nn, Architecture, Gradients, Lora, Master, Offload, Planned, Precision, Shard,
    StateBits, TableBits, TrainerConfig,
};

use super::fit::{all_but, allowed, sharded};
use super::scope::Scope;
use crate::error::{Error, Result};
use crate::settings::{Bytes, Recompute};
use crate::units::exact_bytes;

const NEXT: &str = "give the settings that it was made for, or leave --plan out for a new plan";

/// What was chosen, by the settings or by the planner.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Choices {
    batch: usize,
    micro_batch: usize,
    accumulation: usize,
    /// What is recomputed, in words; for the planner, where no tensors are named.
    checkpoint: String,
    /// Activations that are recomputed, where they were chosen one by one.
    recompute: Option<Vec<String>>,
    loss_chunk: usize,
    #[serde(default)]
    attention: AttentionKind,
    precision: Precision,
    #[serde(default)]
    gradients: Gradients,
    #[serde(default)]
    master: Master,
    optimizer_bits: StateBits,
    #[serde(default)]
    table_bits: TableBits,
    #[serde(default)]
    offload: Offload,
    /// Whether transfers, and what ranks exchange, overlap with other ops.
    #[serde(default)]
    overlap: bool,
    #[serde(default)]
    consume_gradients: bool,
    /// What each of several ranks holds a shard of.
    #[serde(default)]
    shard: Shard,
    #[serde(default)]
    lora: Option<Lora>,
    /// Patterns of parameters that aren't trained.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    freeze: Vec<String>,
}

impl Choices {
    /// Those of a planned step.
    pub fn of(config: &TrainerConfig) -> Self {
        let checkpoint = &config.options.checkpoint;
        Self {
            batch: config.batch,
            micro_batch: config.micro_batch,
            accumulation: config.accumulation(),
            checkpoint: checkpoint.to_string(),
            recompute: match checkpoint {
                plan::Checkpoint::Tensors(names) => Some(names.clone()),
                _ => None,
            },
            loss_chunk: config.build.loss_chunk,
            attention: config.build.attention,
            precision: config.precision,
            gradients: config.gradients,
            master: config.master,
            optimizer_bits: config.optimizer_bits,
            table_bits: config.table_bits,
            offload: config.offload,
            overlap: (config.offload.transfers() || config.ranks > 1) && config.options.overlap,
            consume_gradients: config.consume_gradients,
            shard: config.shard,
            lora: config.lora.clone(),
            freeze: config.frozen.clone(),
        }
    }

    fn checkpoint(&self) -> tightrope_core::Result<plan::Checkpoint> {
        match &self.recompute {
            Some(names) => Ok(plan::Checkpoint::Tensors(names.clone())),
            None => self.checkpoint.parse(),
        }
    }
}

fn one() -> usize {
    1
}

/// The step that a plan was made for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MadeFor {
    version: String,
    /// Kind of the device: cpu, wgpu or cuda.
    device: String,
    model: Map<String, Value>,
    /// Tokens of a sequence.
    context: usize,
    /// Ranks that have a part of each.
    #[serde(default = "one")]
    context_ranks: usize,
    optimizer: String,
}

impl MadeFor {
    /// The step of `config` on a device of this kind, with this version.
    pub fn of(config: &TrainerConfig, device: DeviceKind) -> Self {
        Self {
            version: VERSION.to_owned(),
            device: device.name().to_owned(),
            model: sizes(config),
            context: config.model.seq_len(),
            context_ranks: config.context_ranks,
            optimizer: config.optimizer.name().to_owned(),
        }
    }

    /// What isn't as `here`, a part of a sentence each.
    fn differences(&self, here: &Self) -> Vec<String> {
        let mut found = vec![];
        let mut compare = |name: &str, there: &str, here: &str| {
            if there != here {
                found.push(format!("{name} is {there} there and {here} here"));
            }
        };
        compare("the version", &self.version, &here.version);
        compare("the device", &self.device, &here.device);
        for (name, value) in &here.model {
            let there = self.model.get(name).map_or_else(|| "unknown".to_owned(), Value::to_string);
            compare(&format!("`model.{name}`"), &there, &value.to_string());
        }
        let (there, here_too) = (self.context.to_string(), here.context.to_string());
        compare("the length of a sequence", &there, &here_too);
        let [there, here_too] = [self, here].map(|step| step.context_ranks.to_string());
        compare("`run.context_ranks`", &there, &here_too);
        compare("`train.optimizer`", &self.optimizer, &here.optimizer);
        found
    }
}

/// Choices are those of this version's planner.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What tells a model's plans from others': its sizes, or the shapes of its parameters.
fn sizes(config: &TrainerConfig) -> Map<String, Value> {
    let known = Architecture::of(&*config.model).map(serde_json::to_value);
    match known {
        Some(Ok(Value::Object(sizes))) => sizes,
        _ => {
            let parameters = config.model.parameters().into_iter();
            parameters.map(|parameter| (parameter.name, json!(parameter.shape))).collect()
        }
    }
}

/// What of adapters isn't the same, with both values.
fn lora_differences(there: Option<&Lora>, here: Option<&Lora>) -> Vec<(String, Value, Value)> {
    let [there, here] = [there, here].map(|lora| match serde_json::to_value(lora) {
        Ok(Value::Object(lora)) => lora,
        // Without adapters, their rank is 0.
        _ => Map::from_iter([("rank".to_owned(), Value::from(0))]),
    });
    let names = if there.len() < here.len() { &there } else { &here };
    let value =
        |lora: &Map<String, Value>, name: &String| lora.get(name).cloned().unwrap_or_default();
    names
        .keys()
        .map(|name| (name.clone(), value(&there, name), value(&here, name)))
        .filter(|(_, there, here)| there != here)
        .collect()
}

/// What a plan file comes to for a step, or what the step differs in.
pub type Applied<T> = std::result::Result<T, Vec<String>>;

/// A file with a plan's choices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanFile {
    made_for: MadeFor,
    choices: Choices,
}

impl PlanFile {
    /// Reads a file.
    ///
    /// # Errors
    /// One that can't be read, and one that is no plan of this version.
    pub fn read(path: &Path) -> Result<Self> {
        let shown = path.display();
        let text = files::read_text(path, limits::DESCRIPTION)
            .with_context(|| format!("can't read the plan `{shown}`"))
            .map_err(|error| Error::usage(error, "give a run's plan.json"))?;
        const KINDS: &str = "give the plan.json of a run, or what `tightrope plan --json` printed with this version";
        let value: Value = serde_json::from_str(&text)
            .with_context(|| format!("`{shown}` is no plan: it isn't JSON"))
            .map_err(|error| Error::usage(error, KINDS))?;
        let version = value["made_for"]["version"].as_str();
        if let Some(version) = version.filter(|version| *version != VERSION) {
            let message =
                format!("`{shown}` is a plan of version {version}, and this is {VERSION}");
            return Err(Error::usage(anyhow!(message), "leave --plan out for a new plan"));
        }
        serde_json::from_value(value)
            .with_context(|| format!("`{shown}` is no plan"))
            .map_err(|error| Error::usage(error, KINDS))
    }

    /// The step of `config` with this file's choices, or what it differs in.
    fn applied(
        &self,
        scope: &Scope,
        config: &TrainerConfig,
        target: &dyn Backend,
    ) -> Result<Applied<TrainerConfig>> {
        let Choices { batch, micro_batch, loss_chunk, .. } = self.choices;
        let mut found = self.made_for.differences(&MadeFor::of(config, target.kind()));
        let mut count = |name: &str, there: usize, here: usize, fixed: bool| {
            if fixed && there != here {
                found.push(format!("`{name}` is {there} there and {here} here"));
            }
        };
        count("train.batch", batch, config.batch, true);
        let fixed = !scope.micro_batch;
        count("train.micro_batch", micro_batch, config.micro_batch, fixed);
        let fixed = !scope.loss_chunk;
        count("memory.loss_chunk", loss_chunk, config.build.loss_chunk, fixed);
        let [there, here] = [self.choices.attention, config.build.attention];
        if there != here {
            let [there, here] = [there, here].map(AttentionKind::name);
            found.push(format!("`memory.attention` is {there} there and {here} here"));
        }
        for (name, there, here) in
            lora_differences(self.choices.lora.as_ref(), config.lora.as_ref())
        {
            found.push(format!("`lora.{name}` is {there} there and {here} here"));
        }
        let (there, here) = (self.choices.consume_gradients, config.consume_gradients);
        if there != here {
            found.push(format!("`memory.consume_gradients` is {there} there and {here} here"));
        }
        let shard = self.choices.shard;
        // One process holds everything, whatever was cut before.
        if config.ranks > 1 && !sharded(scope, config).iter().any(|it| it.shard == shard) {
            let [there, here] = [shard, config.shard].map(u32::from);
            found.push(format!("`memory.shard` is {there} there and {here} here"));
        }
        if self.choices.freeze != config.frozen {
            let [there, here] = [&self.choices.freeze, &config.frozen].map(|list| json!(list));
            found.push(format!("`train.freeze` is {there} there and {here} here"));
        }
        let offload = self.choices.offload;
        if !allowed(scope, config, target).iter().any(|it| it.offload == offload) {
            let (there, here) = (offload, config.offload);
            found.push(format!("`memory.offload` names {there} there and {here} here"));
        }
        let Choices { precision, gradients, master, optimizer_bits, table_bits, .. } = self.choices;
        if !allowed(scope, config, target).iter().any(|allowed| allowed.precision == precision) {
            let (there, here) = (precision.dtype(), config.precision.dtype());
            found.push(format!("`run.precision` is {there} there and {here} here"));
        }
        if !allowed(scope, config, target).iter().any(|it| it.optimizer_bits == optimizer_bits) {
            let (there, here) = (u32::from(optimizer_bits), u32::from(config.optimizer_bits));
            found.push(format!("`memory.optimizer_bits` is {there} there and {here} here"));
        }
        if !allowed(scope, config, target).iter().any(|it| it.table_bits == table_bits) {
            let (there, here) = (u32::from(table_bits), u32::from(config.table_bits));
            found.push(format!("`memory.table_bits` is {there} there and {here} here"));
        }
        if !allowed(scope, config, target).iter().any(|it| it.gradients == gradients) {
            let (there, here) = (gradients.name(), config.gradients.name());
            found.push(format!("`memory.gradients` is {there} there and {here} here"));
        }
        if !allowed(scope, config, target).iter().any(|it| it.master == master) {
            let (there, here) = (master.name(), config.master.name());
            found.push(format!("`memory.master` is {there} there and {here} here"));
        }
        let checkpoint =
            self.choices.checkpoint().map_err(|error| Error::from(nn::Error::from(error)))?;
        let mut config = config.clone();
        let asked = match &scope.recompute {
            Recompute::Auto => None,
            // Names are of a model's activations, which another model need not have.
            Recompute::AllBut(names) if found.is_empty() => Some(all_but(names, &config, target)?),
            Recompute::AllBut(_) => None,
            _ => Some(config.options.checkpoint.clone()),
        };
        if let Some(asked) = asked.filter(|asked| *asked != checkpoint) {
            found.push(format!("`memory.recompute` is {checkpoint} there and {asked} here"));
        }
        if !found.is_empty() {
            return Ok(Err(found));
        }
        config.micro_batch = micro_batch;
        config.build.loss_chunk = loss_chunk;
        config.precision = precision;
        config.gradients = gradients;
        config.master = master;
        config.optimizer_bits = optimizer_bits;
        config.table_bits = table_bits;
        config.offload = offload;
        config.shard = shard;
        config.options.checkpoint = checkpoint;
        config.options.overlap = self.choices.overlap;
        Ok(Ok(config))
    }

    /// The plan of this file, or what the step that is asked for differs in.
    ///
    /// # Errors
    /// Choices that no graph can be built from.
    pub fn made(
        &self,
        scope: &Scope,
        config: &TrainerConfig,
        target: &dyn Backend,
    ) -> Result<Applied<Planned>> {
        match self.applied(scope, config, target)? {
            Ok(config) => Ok(Ok(Planned::new(&config, target).map_err(Error::from)?)),
            Err(differences) => Ok(Err(differences)),
        }
    }
}

/// The plan in the file `path`, made again without a search.
///
/// # Errors
/// A file that is no plan, or one of another step; [`Error::DoesNotFit`] where it takes more than `budget`.
pub fn planned(
    path: &Path,
    scope: &Scope,
    config: &TrainerConfig,
    budget: u64,
    target: &dyn Backend,
) -> Result<Planned> {
    let shown = path.display();
    let planned = PlanFile::read(path)?.made(scope, config, target)?.map_err(|differences| {
        let message =
            format!("the plan in `{shown}` is of another step: {}", differences.join("; "));
        Error::usage(anyhow!(message), NEXT)
    })?;
    let bytes = planned.plan.peak_bytes();
    if bytes <= budget {
        return Ok(planned);
    }
    let message = format!(
        "the plan in `{shown}` takes {}, and {} are available",
        exact_bytes(bytes),
        exact_bytes(budget)
    );
    let help = format!(
        "leave --plan out for a plan that fits, or give --memory {}",
        Bytes(bytes).rounded_up()
    );
    Err(Error::does_not_fit(anyhow!(message), help))
}
