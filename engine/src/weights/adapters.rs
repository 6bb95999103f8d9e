//! Adapters on disk to start from: a directory as PEFT's `save_pretrained` writes it, which a checkpoint of adapters is
//! too.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use tightrope_data::SafeTensors;
use tightrope_data::checkpoint::ADAPTERS;
use tightrope_nn::{self as nn, Import, Lora, Trainer, Weights};

use crate::error::{Error, FILES, Help as _, Result, no_files};

/// File that says what the adapters are.
pub const CONFIG: &str = "adapter_config.json";
/// What to do where there are no adapters that can be used.
pub const KIND: &str = "name a directory of plain LoRA adapters, with adapter_config.json and \
                        adapter_model.safetensors";

/// Adapters on disk.
pub struct Adapters {
    /// What they are.
    pub lora: Lora,
    dir: PathBuf,
    weights: SafeTensors,
}

/// What the adapters in `dir` are.
///
/// # Errors
/// A directory without a readable [`CONFIG`], or one that asks for something unsupported.
pub fn config_of(dir: &Path) -> anyhow::Result<Lora> {
    let unusable = || format!("the adapters in `{}` can't be used", dir.display());
    if !FILES {
        return Err(no_files()).with_context(unusable);
    }
    let text = std::fs::read(dir.join(CONFIG))
        .with_context(|| format!("can't read `{CONFIG}`"))
        .with_context(unusable)?;
    let value = serde_json::from_slice(&text)
        .with_context(|| format!("`{CONFIG}` is not JSON"))
        .with_context(unusable)?;
    Lora::from_peft(&value).with_context(unusable)
}

/// Sets every adapter of `trainer` to those in `dir`.
///
/// # Errors
/// As [`Adapters::open`] and [`Adapters::load`]; settings of another rank or alpha.
pub fn start_from(dir: &Path, trainer: &mut Trainer) -> Result<()> {
    let adapters = Adapters::open(dir).map_err(|error| Error::usage(error, KIND))?;
    if let Some(own) = &trainer.config().lora {
        adapters.agrees(own)?;
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
        let weights = SafeTensors::open(dir.join(ADAPTERS))?;
        Ok(Self { lora, dir: dir.to_owned(), weights })
    }

    /// The values of the adapters of a model, in the order of [`Weights::trained`].
    ///
    /// # Errors
    /// Adapters of other layers or shapes, and a broken file.
    pub fn values(&self, weights: &Weights) -> anyhow::Result<Vec<Vec<f32>>> {
        let (list, _) = weights.trained();
        let import = Import::of(list, self.weights.names()).with_context(|| self.place())?;
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
        trainer.load_adapters(self.weights.names(), &mut get).with_context(|| self.place())
    }

    /// Whether `own` counts these adapters as they were trained; which layers they are of shows in their names.
    fn agrees(&self, own: &Lora) -> Result<()> {
        let ranks = [own.rank, self.lora.rank].map(|rank| rank as f64);
        for (key, [asked, found]) in
            [("lora.rank", ranks), ("lora.alpha", [own.alpha, self.lora.alpha])]
        {
            if asked != found {
                return Err(Error::usage(
                    anyhow!(
                        "`{key}` is {asked}, and the adapters in `{}` have {found}",
                        self.dir.display()
                    ),
                    "leave rank, alpha and targets of `lora` out, to take those of the adapters",
                ));
            }
        }
        Ok(())
    }

    fn place(&self) -> String {
        format!("can't load the adapters in `{}`", self.dir.display())
    }
}
