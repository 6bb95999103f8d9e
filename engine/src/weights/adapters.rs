//! Adapters on disk to start from: a directory as PEFT's `save_pretrained` writes it, which a checkpoint of adapters is
//! too.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use serde_json::Value;
use tightrope_data::checkpoint::{self, ADAPTERS};
use tightrope_data::{Weights, files, limits};
use tightrope_nn::{self as nn, Architecture, Import, Lora, Parameter, Trainer, TrainerConfig};

use super::{Places, Source, Start, hub, is_run};
use crate::error::{Error, FILES, Help as _, Result, no_files};

/// File that says what the adapters are.
pub const CONFIG: &str = "adapter_config.json";
/// What to do where there are no adapters that can be used.
pub const KIND: &str = "name a directory of LoRA adapters as PEFT saves them, with adapter_config.json and \
                        adapter_model.safetensors or adapter_model.bin";
/// Adapters as `torch.save` writes them.
const TORCH: &str = "adapter_model.bin";
/// Part of the name of the weight of a layer that has an adapter, in files of PEFT's.
const OF_BASE: &str = ".base_layer.";
/// The same of a layer that is trained whole: the weight that it takes the place of, which nothing reads, and its own once more.
const REPLACED: &str = ".original_module.";
const COPY: &str = ".modules_to_save.";

/// Adapters on disk.
pub struct Adapters {
    /// What they are.
    pub lora: Lora,
    dir: PathBuf,
    weights: Weights,
}

/// The folder of the adapters that `dir` names, which may be a run.
fn located(dir: &Path) -> PathBuf {
    let dir = hub::located(dir);
    let newest = is_run(&dir).then(|| checkpoint::latest_complete(&dir).ok()).flatten();
    newest.map_or_else(|| dir.to_path_buf(), |(checkpoint, _)| checkpoint.path)
}

/// The tensors of the adapters in `dir`: of safetensors, or else of `torch.save`.
///
/// # Errors
/// A file that is missing or broken.
pub(crate) fn tensors_in(dir: &Path) -> anyhow::Result<Weights> {
    let dir = located(dir);
    let [own, torch] = [ADAPTERS, TORCH].map(|name| dir.join(name));
    Ok(Weights::open(if !own.exists() && torch.exists() { torch } else { own })?)
}

/// The name in its model of a weight that lies with adapters: PEFT saves an embedding or a head that has an adapter, or was resized, with them.
fn of_base(name: &str) -> Option<String> {
    let name = name.strip_prefix("base_model.model.")?;
    let is_adapter = name.contains(".lora_");
    (!is_adapter).then(|| name.replace(OF_BASE, "."))
}

/// Classes that the adapters in `dir` have a head for, if they classify texts by the last token.
///
/// # Errors
/// Files that can't be read.
#[cfg(not(target_family = "wasm"))]
pub(super) fn classes_of(dir: &Path) -> anyhow::Result<Option<usize>> {
    if file_in(dir)?["task_type"] != "SEQ_CLS" {
        return Ok(None);
    }
    let weights = tensors_in(dir)?;
    let head = weights.get("base_model.model.score.weight");
    Ok(head.and_then(|head| head.shape.first().copied()))
}

/// What the adapters in `dir` are.
///
/// # Errors
/// A directory without a readable [`CONFIG`], or one that asks for something unsupported.
pub fn config_of(dir: &Path) -> anyhow::Result<Lora> {
    Lora::from_peft(&file_in(dir)?).with_context(|| unusable(dir))
}

fn unusable(dir: &Path) -> String {
    format!("the adapters in `{}` can't be used", dir.display())
}

/// The [`CONFIG`] in `dir`.
fn file_in(dir: &Path) -> anyhow::Result<Value> {
    if !FILES {
        return Err(no_files());
    }
    let text = files::read(&located(dir).join(CONFIG), limits::DESCRIPTION)
        .with_context(|| format!("can't read `{CONFIG}`"))
        .with_context(|| unusable(dir))?;
    serde_json::from_slice(&text)
        .with_context(|| format!("`{CONFIG}` is not JSON"))
        .with_context(|| unusable(dir))
}

/// The [`CONFIG`] of adapters of `config`, beside a model at `base`. What that of the adapters which a run began with says besides stays as it was.
///
/// # Errors
/// Adapters that can't be read.
pub(crate) fn described(
    config: &TrainerConfig,
    base: Option<&str>,
    (start, places): (&Start, &Places),
) -> Result<Option<Value>> {
    let Some(lora) = &config.lora else { return Ok(None) };
    let list = config.model.parameters();
    let mut own = lora.to_peft(&list, base);
    own["task_type"] = match Architecture::of(&*config.model) {
        Some(Architecture::Language(_)) => "CAUSAL_LM".into(),
        Some(Architecture::Bert(model)) if model.classes.is_some() => "SEQ_CLS".into(),
        Some(Architecture::Classifier(_)) => "SEQ_CLS".into(),
        _ => Value::Null,
    };
    let original = match (start.source(), &places.adapters) {
        (Some(source), _) if source.base().is_some() => source.json(CONFIG)?,
        (_, Some(dir)) => Some(file_in(dir).map_err(|error| Error::usage(error, KIND))?),
        _ => None,
    };
    let Some(Value::Object(mut file)) = original else { return Ok(Some(own)) };
    let before = Lora::from_peft(&Value::Object(file.clone()))
        .map(|before| before.to_peft(&list, base))
        .map_err(|error| Error::usage(anyhow::Error::new(error), KIND))?;
    let (Value::Object(own), Value::Object(before)) = (own, before) else { return Ok(None) };
    for (key, value) in own {
        let is_place = key == "base_model_name_or_path";
        if is_place || (key != "task_type" && before.get(&key) != Some(&value)) {
            file.insert(key, value);
        }
    }
    Ok(Some(Value::Object(file)))
}

/// Help for adapters of another model.
const BESIDE: &str = "name with --init the model that they were trained beside; one whose embedding was resized is saved and exported whole";

/// Sets every adapter of `trainer` to those in `dir`, which are beside the weights of `beside`.
///
/// # Errors
/// As [`Adapters::open`] and [`Adapters::load`]; settings of another rank or alpha.
pub fn start_from(dir: &Path, trainer: &mut Trainer, beside: &Source) -> Result<()> {
    let adapters = Adapters::open(dir).map_err(|error| Error::usage(error, KIND))?;
    if let Some(own) = &trainer.config().lora {
        adapters.agrees(own)?;
        let list = trainer.config().model.parameters();
        let same = adapters.check_base(&list, own, beside);
        same.map_err(|error| Error::usage(error, BESIDE))?;
    }
    adapters.load(trainer).help(
        "name with --init the model that they were trained beside, and leave `lora.targets` out, \
         to take theirs; where a tensor is missing, save them again",
    )
}

impl Adapters {
    /// Opens the adapters in `dir`.
    ///
    /// # Errors
    /// As [`config_of`], and weights that are missing or in a broken file.
    pub fn open(dir: &Path) -> anyhow::Result<Self> {
        let lora = config_of(dir)?;
        let weights = tensors_in(dir)?;
        Ok(Self { lora, dir: dir.to_owned(), weights })
    }

    /// The values of the adapters of a model, in the order of [`nn::Weights::trained`].
    ///
    /// # Errors
    /// Adapters of other layers or shapes, and a broken file.
    pub fn values(&self, weights: &nn::Weights) -> anyhow::Result<Vec<Vec<f32>>> {
        let (list, _) = weights.trained();
        let import = Import::of(list, self.names(list)).with_context(|| self.place())?;
        let mut get = |name: &str| Ok(self.weights.require(name)?.to_values()?);
        let read = list.iter().map(|parameter| import.read(parameter, &mut get));
        read.collect::<nn::Result<_>>().with_context(|| self.place())
    }

    /// Sets every adapter of `trainer`.
    ///
    /// # Errors
    /// As [`Adapters::values`], and those of the device.
    pub fn load(&self, trainer: &mut Trainer) -> anyhow::Result<()> {
        let mut get = |name: &str| Ok(self.weights.require(name)?.to_values()?);
        let names = self.names(trainer.parameters());
        trainer.load_adapters(names, &mut get).with_context(|| self.place())
    }

    /// Names of the tensors of adapters that train the parameters of `list`: all but those of the model that they are beside.
    pub(crate) fn names(&self, list: &[Parameter]) -> Vec<&str> {
        let trained = |name: &str| {
            list.iter().flat_map(|parameter| &parameter.parts).any(|part| part.name == name)
        };
        self.weights.names().filter(|name| trained(name) || of_base(name).is_none()).collect()
    }

    /// Extents and values of the tensor `name`.
    ///
    /// # Errors
    /// A tensor that is missing, or holds no floating-point numbers.
    pub(crate) fn tensor(&self, name: &str) -> tightrope_data::Result<(Vec<usize>, Vec<f32>)> {
        self.weights.require(name)?.to_values()
    }

    /// Compares the weights of the base model that the adapters' file holds with those of `source`, a model with the parameters `list`.
    ///
    /// # Errors
    /// The first tensor of which they aren't: the adapters are beside another model, or beside one whose embedding was resized.
    pub(crate) fn check_base(
        &self,
        list: &[Parameter],
        lora: &Lora,
        source: &Source,
    ) -> anyhow::Result<()> {
        let trained = self.names(&lora.parameters(list)?);
        for name in self.weights.names().filter(|name| !trained.contains(name)) {
            let Some(of_base) = of_base(name).filter(|_| !name.contains(REPLACED)) else {
                continue;
            };
            let own = self.tensor(name)?;
            if name.contains(COPY) {
                let trained = name.replace(COPY, ".");
                anyhow::ensure!(
                    self.tensor(&trained)? == own,
                    "{}: `{name}` isn't `{trained}` of the same file",
                    self.place()
                );
                continue;
            }
            anyhow::ensure!(
                source.tensor(&of_base)?.is_some_and(|there| there == own),
                "{}: `{name}` isn't `{of_base}` of the model that they are named beside",
                self.place()
            );
        }
        Ok(())
    }

    /// Whether `own` counts these adapters as they were trained; which layers they are of shows in their names.
    fn agrees(&self, own: &Lora) -> Result<()> {
        let ranks = [own.rank, self.lora.rank].map(|rank| rank as f64);
        let flag = |on: bool| f64::from(u8::from(on));
        let variants = [&own.variant, &self.lora.variant];
        for (key, [asked, found]) in [
            ("lora.rank", ranks),
            ("lora.alpha", [own.alpha, self.lora.alpha]),
            ("lora.rslora", variants.map(|variant| flag(variant.rslora))),
            ("lora.dora", variants.map(|variant| flag(variant.dora))),
        ] {
            if asked != found {
                return Err(self.differs(key, &asked.to_string(), &found.to_string()));
            }
        }
        let [asked, found] = variants.map(|variant| format!("{:?}", variant.alphas));
        if asked != found {
            return Err(self.differs("lora.alpha_pattern", &asked, &found));
        }
        Ok(())
    }

    fn differs(&self, key: &str, asked: &str, found: &str) -> Error {
        let dir = self.dir.display();
        Error::usage(
            anyhow!("`{key}` is {asked}, and the adapters in `{dir}` have {found}"),
            "leave all settings of `lora` but init out, to take those of the adapters",
        )
    }

    fn place(&self) -> String {
        format!("can't load the adapters in `{}`", self.dir.display())
    }
}
