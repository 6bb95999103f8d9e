//! A model on disk as a directory with all that `from_pretrained` of transformers looks for: whole weights, in the type of
//! numbers that is asked for, with adapters merged into the weights that they are beside.

use std::cell::RefCell;
use std::fs;
use std::io;
use std::path::Path;

use anyhow::{Context as _, anyhow};
use serde_json::{Value, json};
use tightrope_core::{DType, Type};
use tightrope_data::checkpoint::ADAPTERS;
use tightrope_data::{ChatTemplate, SafeTensors, Tensor, Tokenizer, safetensors};
use tightrope_nn::{Architecture, Import, Lora, Parameter, export as parts_of};

use crate::error::{Error, Help as _, Result};
use crate::run::directory;
use crate::settings::Settings;
use crate::weights::frozen::Frozen;
use crate::weights::{Places, Source, adapters, preprocessor};

const FULL: &str = "free some space, or give another directory";
const WEIGHTS: &str = "model.safetensors";

/// What becomes of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    /// Whether adapters are merged into the weights that they are beside.
    pub merge: bool,
    /// Type of the numbers.
    pub dtype: DType,
}

/// Adapters, and where their values are.
struct Adapters<'a> {
    lora: Lora,
    import: Import,
    file: &'a SafeTensors,
}

/// Writes the model of a run, a checkpoint or a Hugging Face directory to `out`, which must be new or empty. `said` says
/// where frozen weights and adapters lie (`model.init`, `lora.init`), and the tokenizer where none is beside the model.
///
/// # Errors
/// A model that can't be read; adapters where `form` doesn't merge them, and none where it does; a full disk.
pub fn export(path: &Path, said: &Settings, form: Form, out: &Path) -> Result<()> {
    let source = Source::open(path)?;
    let settings = source.settings(said)?;
    let places = Places::of(&settings);
    let model = source.config.build(1)?;
    let list = model.parameters();
    let started_from = match &places.adapters {
        Some(dir) if source.base().is_none() => {
            Some(SafeTensors::open(dir.join(ADAPTERS)).help(adapters::KIND)?)
        }
        _ => None,
    };
    let own = source.checkpoint.as_ref().filter(|_| source.base().is_some());
    let beside = match (own, &started_from, &places.adapters) {
        (Some(checkpoint), ..) => settings.lora.adapters().map(|lora| (lora, &checkpoint.model)),
        (None, Some(file), Some(dir)) => {
            let lora = adapters::config_of(dir);
            Some((lora.map_err(|error| Error::usage(error, adapters::KIND))?, file))
        }
        _ => None,
    };
    let shown = source.dir.display();
    let beside = match (beside, form.merge) {
        (Some((lora, file)), true) => {
            let import = Import::of(&lora.parameters(&list), file.names())?;
            Some(Adapters { lora, import, file })
        }
        (Some(_), false) => {
            return Err(Error::usage(
                anyhow!("`{shown}` holds adapters, which are no model by themselves"),
                "give --merge to add them to the weights that they are beside, or copy the checkpoint, which PEFT reads",
            ));
        }
        (None, true) => {
            return Err(Error::usage(
                anyhow!("`{shown}` has no adapters to merge"),
                "leave --merge out, or name adapters with --lora-init",
            ));
        }
        (None, false) => None,
    };
    let frozen = source.frozen(&places)?;
    let files = described(&source, &settings, form.dtype)?;
    directory::create_empty(out)?;
    let weights = out.join(WEIGHTS);
    write(&weights, &list, &frozen, beside.as_ref(), form.dtype, &*model)
        .with_context(|| format!("can't write `{}`", weights.display()))
        .help(FULL)?;
    for (name, bytes) in files {
        let file = out.join(&name);
        fs::write(&file, bytes)
            .with_context(|| format!("can't write `{}`", file.display()))
            .help(FULL)?;
    }
    Ok(())
}

/// Writes all weights, one parameter in memory at a time.
fn write(
    file: &Path,
    list: &[Parameter],
    frozen: &Frozen<'_>,
    beside: Option<&Adapters<'_>>,
    dtype: DType,
    model: &dyn tightrope_nn::Model,
) -> anyhow::Result<()> {
    let frozen = frozen.open(model)?;
    let values = |index: usize| -> anyhow::Result<Vec<f32>> {
        let mut values = frozen.read(&list[index])?;
        if let Some(Adapters { lora, import, file }) = beside {
            let mut get = |name: &str| Ok(file.require(name)?.to_values()?);
            lora.merge(list, index, &mut values, &mut |adapter| import.read(adapter, &mut get))?;
        }
        Ok(values)
    };
    let failed = RefCell::new(None);
    let mut tensors = vec![];
    for (index, parameter) in list.iter().enumerate() {
        for (place, part) in parameter.parts.iter().enumerate() {
            let ty = Type::new(dtype, parameter.part_shape(part));
            let (values, failed) = (&values, &failed);
            tensors.push(Tensor::streamed(part.name.clone(), ty, move |out| {
                let values = values(index).map_err(|error| {
                    let said = io::Error::other(error.to_string());
                    failed.replace(Some(error));
                    said
                })?;
                let stored = parts_of(&list[index], &values).swap_remove(place).values;
                crate::checkpoint::write_values(out, dtype, &stored)
            }));
        }
    }
    let metadata = [("format".to_owned(), "pt".to_owned())].into_iter().collect();
    let written = safetensors::write(file, tensors, &metadata);
    match failed.take() {
        Some(error) => Err(error),
        None => Ok(written?),
    }
}

/// Names and bytes of the files beside the weights.
fn described(source: &Source, settings: &Settings, dtype: DType) -> Result<Vec<(String, Vec<u8>)>> {
    let mut config = source.config.to_hf();
    let kind = match dtype {
        DType::BF16 => "bfloat16",
        DType::F16 => "float16",
        _ => "float32",
    };
    // Both spellings: transformers reads the first from version 5 on, the second before.
    config["dtype"] = kind.into();
    config["torch_dtype"] = kind.into();
    let mut files = vec![];
    let text = match &source.config {
        Architecture::Language(model) => {
            let tokenizer = source.tokenizer_beside(settings.data.tokenizer.as_deref())?;
            let mut texts = vec![];
            if let Some(tokenizer) = &tokenizer {
                files.extend(ends(tokenizer, &mut config));
                texts = tokenizer.files();
                if texts.iter().all(|(name, _)| name != "tokenizer_config.json") {
                    let own = of_tokenizer(tokenizer, model.context)?;
                    files.push(("tokenizer_config.json".to_owned(), own));
                }
            }
            if let Some(Tokenizer::Gpt2(gpt2)) = &tokenizer {
                texts.extend(gpt2.files()?);
            }
            if let Some(template) = source.chat_template()? {
                texts.push((ChatTemplate::FILE.to_owned(), template.into_bytes()));
            }
            texts
        }
        Architecture::Bert(_) => {
            let tokenizer = source.tokenizer_beside(settings.data.tokenizer.as_deref())?;
            tokenizer.map(|tokenizer| tokenizer.files()).unwrap_or_default()
        }
        Architecture::Vit(model) => {
            let normalization = source.normalization(model.colors)?;
            let shape = crate::recipe::image_shape(model);
            vec![(preprocessor::FILE.to_owned(), preprocessor::text(&normalization, shape))]
        }
    };
    files.push(("config.json".to_owned(), config));
    let mut all = text;
    for (name, value) in files {
        all.push((name, crate::run::json_text(&value)?));
    }
    Ok(all)
}

/// Says in the `config.json` what ends a text, and gives the file that says how it's continued.
fn ends(tokenizer: &Tokenizer, config: &mut Value) -> Option<(String, Value)> {
    let end = tokenizer.eos()?;
    config["eos_token_id"] = end.into();
    config["bos_token_id"] = config["bos_token_id"].as_u64().unwrap_or(end.into()).into();
    let generation = json!({
        "bos_token_id": config["bos_token_id"],
        "eos_token_id": end,
        "pad_token_id": end,
    });
    Some(("generation_config.json".to_owned(), generation))
}

/// The `tokenizer_config.json` of a tokenizer that came without one. Bytes have none: an id is the byte.
fn of_tokenizer(tokenizer: &Tokenizer, context: usize) -> Result<Value> {
    let class = match tokenizer {
        Tokenizer::Gpt2(_) => "GPT2Tokenizer",
        _ => "PreTrainedTokenizerFast",
    };
    let end = tokenizer.eos().map(|end| tokenizer.decode(&[end])).transpose()?;
    Ok(json!({
        "tokenizer_class": class,
        "model_max_length": context,
        "bos_token": end,
        "eos_token": end,
        "unk_token": end,
        "add_prefix_space": false,
        "clean_up_tokenization_spaces": false,
    }))
}
