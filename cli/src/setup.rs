//! From settings to a planned training step: defaults, the model, the plan.
//!
//! Every command that trains, plans or measures goes through here, so that what `plan` predicts is what
//! `train` does.

mod budget;
pub mod plan_file;
pub mod refusal;
pub mod start;

use std::path::Path;

use anyhow::anyhow;
use tightrope_backend_cpu::Cpu;
use tightrope_core::plan::Options;
use tightrope_core::{Backend, DeviceError, SessionError};
use tightrope_data::Tokenizer;
use tightrope_nn::defaults::{self, Sizes};
use tightrope_nn::{
    self as nn, BuildOptions, ModelConfig, Planned, TrainError, Trainer, TrainerConfig, preset,
};

use crate::error::{Failure, Help as _};
use crate::progress::human_bytes;
use crate::run::adapters;
use crate::run::source::config_of;
use crate::settings::{self, Chunk, Device, Family, MicroBatch, Settings};

pub use budget::{budget, fit, fits, free_memory, planned, planned_of};

/// The settings of a run of `model`, with every size, step count and rate filled in. Filling in twice
/// changes nothing.
///
/// # Errors
/// Settings that don't fit each other or the model.
pub fn filled(settings: &Settings, model: &ModelConfig) -> Result<Settings, Failure> {
    let mut settings = settings.clone();
    let context = settings.model.context.unwrap_or(model.context);
    if context > model.context {
        return Err(Failure::usage(
            anyhow!("`model.context` is {context}, and the model has {} positions", model.context),
            format!("give --context {} or less", model.context),
        ));
    }
    settings.model.fill(model);
    settings.model.context = Some(context);
    settings.train.fill(defaults::BATCH, defaults::STEPS, defaults::lr(model));
    if let (0, Some(dir)) = (settings.lora.rank, &settings.lora.init) {
        let found =
            adapters::config_of(dir).map_err(|error| Failure::usage(error, adapters::KIND))?;
        let own = &mut settings.lora;
        own.rank = found.rank;
        own.alpha.get_or_insert(found.alpha);
        if own.targets == settings::Lora::default().targets {
            own.targets = found.targets;
        }
    }
    if let Some(lora) = settings.lora.adapters() {
        lora.check(&nn::parameters(model)).map_err(refused)?;
        settings.lora.alpha = Some(lora.alpha);
    }
    settings.check()?;
    Ok(settings)
}

/// The model that the settings describe. Its context is the number of positions it has, of which a run
/// may use fewer.
///
/// # Errors
/// An unknown preset, a model directory that can't be read, and sizes that don't fit each other.
pub fn model_config(settings: &Settings) -> Result<ModelConfig, Failure> {
    let own = &settings.model;
    let base = match (&own.init, &own.preset) {
        (Some(init), _) => config_of(init)?,
        (None, Some(name)) => preset(name).map_err(refused)?,
        (None, None) if own.family == Some(Family::Llama) => {
            preset(defaults::LLAMA).map_err(refused)?
        }
        (None, None) => defaults::MODEL,
    };
    let vocab = match (own.vocab, &settings.data.tokenizer, &own.init) {
        (None, Some(name), None) => Some(tokenizer(name)?.vocab_size()),
        (vocab, _, _) => vocab,
    };
    let sizes = Sizes {
        // A model on disk keeps its positions, of which a run may use fewer.
        context: own.context.filter(|_| own.init.is_none()),
        vocab,
        ..own.sizes()
    };
    let config = sizes.over(&base);
    config.check().map_err(refused)?;
    if let Some(init) = &own.init {
        agrees(settings, &base, init)?;
    }
    Ok(config)
}

/// Whether the sizes that the settings name are those of the model in `dir`: weights of one shape can't
/// start a model of another.
///
/// # Errors
/// The first size that isn't.
pub fn agrees(settings: &Settings, model: &ModelConfig, dir: &Path) -> Result<(), Failure> {
    let own = &settings.model;
    for (key, asked, found) in [
        ("layers", own.layers, model.layers),
        ("channels", own.channels, model.channels),
        ("heads", own.heads, model.heads),
        ("kv_heads", own.kv_heads, model.kv_heads),
        ("hidden", own.hidden, model.hidden),
        ("vocab", own.vocab, model.vocab),
        ("tied", own.tied.map(usize::from), usize::from(model.tied)),
    ] {
        if let Some(asked) = asked.filter(|&asked| asked != found) {
            return Err(Failure::usage(
                anyhow!(
                    "`model.{key}` is {asked}, and the model in `{}` has {found}",
                    dir.display()
                ),
                format!(
                    "leave `model.{key}` out, or start a model of these sizes from random weights"
                ),
            ));
        }
    }
    Ok(())
}

/// The tokenizer called `name`: "byte" or "bytes", a `tokenizer.json`, or a directory with one.
///
/// # Errors
/// A file that is missing or isn't a tokenizer.
pub fn tokenizer(name: &str) -> Result<Tokenizer, Failure> {
    if matches!(name, "byte" | "bytes") {
        return Ok(Tokenizer::Byte);
    }
    let path = Path::new(name);
    let path = if path.is_dir() { path.join("tokenizer.json") } else { path.to_owned() };
    Tokenizer::open(path).help(
        "`data.tokenizer` takes \"byte\", the path of a Hugging Face tokenizer.json, or a directory with one",
    )
}

/// What the trainer is to do, before the planner's choices. Unset settings are [`filled`] first.
///
/// # Errors
/// As [`model_config`] and [`filled`], and settings that this build has no means for.
pub fn trainer_config(settings: &Settings) -> Result<TrainerConfig, Failure> {
    trainer_config_of(settings, model_config(settings)?)
}

/// As [`trainer_config`], of a model that is known already.
///
/// # Errors
/// As [`trainer_config`].
pub fn trainer_config_of(
    settings: &Settings,
    model: ModelConfig,
) -> Result<TrainerConfig, Failure> {
    let settings = filled(settings, &model)?;
    let Settings { train, memory, .. } = &settings;
    let optimizer = train.rule();
    optimizer.check().map_err(refused)?;
    train.learning_rate().check().map_err(refused)?;
    let time = settings.model.context.unwrap_or(model.context);
    let batch = train.batch.unwrap_or(defaults::BATCH);
    let loss_chunk = match memory.loss_chunk {
        Chunk::Rows(rows) => rows,
        Chunk::None => 0,
        Chunk::Auto if matches!(settings.run.device, Device::Cuda(_)) => defaults::CUDA_LOSS_ROWS,
        Chunk::Auto => defaults::loss_chunk(&model),
    };
    let attention_chunk = match memory.attention_chunk {
        Chunk::Rows(rows) => rows,
        Chunk::None => time,
        Chunk::Auto => 0,
    };
    Ok(TrainerConfig {
        precision: settings.run.precision.storage(),
        batch,
        micro_batch: match train.micro_batch {
            MicroBatch::Auto => batch,
            MicroBatch::Size(size) => size,
        },
        build: BuildOptions { loss_chunk, attention_chunk },
        optimizer,
        optimizer_bits: memory.optimizer_bits,
        weight_decay: train.weight_decay,
        clip: (train.clip > 0.0).then_some(train.clip),
        options: Options {
            checkpoint: memory.recompute.choice().unwrap_or_default(),
            ..Options::default()
        },
        seed: train.seed,
        decode: time,
        offload: memory.offload,
        consume_gradients: memory.consume_gradients,
        frozen: vec![],
        lora: settings.lora.adapters(),
        model: model.build(time).map_err(refused)?,
    })
}

/// The language model of a step: settings describe no other.
///
/// # Panics
/// Where another model is trained.
pub fn language(config: &TrainerConfig) -> &nn::LanguageModel {
    config.language().expect("settings describe language models")
}

/// Threads of the processor that a run uses.
pub fn threads(settings: &Settings) -> usize {
    let all = || std::thread::available_parallelism().map_or(1, usize::from);
    settings.run.threads.filter(|&threads| threads > 0).unwrap_or_else(all)
}

/// The host as a device, for what is offloaded.
///
/// # Errors
/// Threads that can't be started.
pub fn host(settings: &Settings) -> Result<Cpu, Failure> {
    Cpu::new(threads(settings)).help("ask for fewer --threads")
}

/// A trainer of a plan, on its device and where something is offloaded on the host.
///
/// # Errors
/// Those of the device.
pub fn trainer(
    planned: Planned,
    device: Box<dyn Backend>,
    settings: &Settings,
) -> Result<Trainer, Failure> {
    let trainer = match planned.config().offload.any() {
        true => Trainer::offloading(planned, device, Box::new(host(settings)?)),
        false => Trainer::new(planned, device),
    };
    trainer.map_err(train_failure)
}

/// Bytes for people, and to the byte.
pub fn exact_bytes(bytes: u64) -> String {
    format!("{} ({bytes} bytes)", human_bytes(bytes))
}

/// A refusal of the model or the planner: wrong usage where a setting is, else a failure.
pub fn refused(error: nn::Error) -> Failure {
    match error {
        nn::Error::Setting { key, .. } => {
            let help =
                format!("change `{key}`; `tightrope train --help` lists what each setting takes");
            Failure::usage(error, help)
        }
        nn::Error::UnknownPreset { .. } => {
            Failure::usage(error, "`model.preset` takes one of these names")
        }
        error => Failure::failed(error, "check the model's files and settings"),
    }
}

/// A refusal of the device, or of what it was given.
pub fn train_failure(error: TrainError) -> Failure {
    match error {
        TrainError::Session(SessionError::Device(DeviceError::OutOfMemory { .. })) => {
            Failure::does_not_fit(
                error,
                "give a smaller --memory, so that the plan leaves room, or end what else holds the \
                 device's memory",
            )
        }
        error => Failure::failed(error, "try again, or choose another device with --device"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_takes_more_rows_of_logits_at_once() {
        let mut settings = Settings::default();
        settings.model.preset = Some("gpt2".to_owned());
        let rows = |settings: &Settings| trainer_config(settings).unwrap().build.loss_chunk;
        let of_cpu = rows(&settings);
        settings.run.device = Device::Cuda(0);
        assert!(rows(&settings) > of_cpu);
        settings.memory.loss_chunk = Chunk::Rows(256);
        assert_eq!(rows(&settings), 256);
    }

    #[test]
    fn what_another_process_holds_is_an_exit_of_its_own() {
        let full = DeviceError::OutOfMemory {
            need: 8 << 30,
            have: Some(1 << 30),
            tensor: None,
            device: "H200".to_owned(),
        };
        let failure = train_failure(full.into());
        let said = format!("{failure:?}");
        assert!(matches!(failure, Failure::DoesNotFit { .. }), "{said}");
        assert!(said.contains("8589934592") && said.contains("1073741824"), "{said}");
    }
}
