//! A model on disk as a directory with all that `from_pretrained` of transformers looks for: whole weights, in the type of
//! numbers that is asked for or of the model that it comes from, with that model's other files, and with adapters merged into the weights that they are beside.

use std::cell::RefCell;
use std::io;
use std::path::Path;

use anyhow::{Context as _, anyhow};
use serde_json::{Value, json};
use tightrope_core::{DType, Type};
use tightrope_data::{Tensor, Tokenizer, files, safetensors};
use tightrope_nn::{Architecture, Import, Lora, Parameter, export as parts_of};

use crate::checkpoint::{fits_dtype, write_values};
use crate::error::{Error, Help as _, Result};
use crate::run::directory;
use crate::settings::Settings;
use crate::units::json_text;
use crate::weights::adapters::Adapters;
use crate::weights::companions::{self, Files};
use crate::weights::frozen::Frozen;
use crate::weights::{Places, Source, adapters, preprocessor, templates, tokenizer as tokenizers};

const FULL: &str = "free some space, or give another directory";
const WEIGHTS: &str = "model.safetensors";
const CONFIG: &str = "config.json";
const TOKENIZER_CONFIG: &str = "tokenizer_config.json";

/// What becomes of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    /// Whether adapters are merged into the weights that they are beside.
    pub merge: bool,
    /// Type of the numbers; `None` for those of the directory that the model comes from, tensor by tensor, and f32 where it comes from none.
    pub dtype: Option<DType>,
}

/// Adapters, and where their values are.
struct Beside<'a> {
    lora: Lora,
    import: Import,
    get: Box<ReadTensor<'a>>,
}

/// Reads a tensor by name: its extents and values.
type ReadTensor<'a> = dyn Fn(&str) -> tightrope_data::Result<(Vec<usize>, Vec<f32>)> + 'a;

/// Adapters, the names of their tensors, and what reads one.
type Found<'a> = (Lora, Vec<&'a str>, Box<ReadTensor<'a>>);

/// Writes the model of a run, a checkpoint or a Hugging Face directory to `out`, which must be new or empty. `said` says
/// where frozen weights and adapters lie (`model.init`, `lora.init`), and the tokenizer where none is beside the model.
///
/// # Errors
/// A model that can't be read; adapters where `form` doesn't merge them, and none where it does; a full disk.
pub fn export(path: &Path, said: &Settings, form: Form, out: &Path) -> Result<()> {
    let source = Source::open(path)?;
    let settings = source.settings(said)?;
    let places = Places::of(&settings);
    let source = source.with_head_of(&places)?;
    let model = source.config.build(1)?;
    let list = model.parameters();
    let started_from = match &places.adapters {
        Some(dir) if source.base().is_none() => {
            Some(Adapters::open(dir).map_err(|error| Error::usage(error, adapters::KIND))?)
        }
        _ => None,
    };
    let own = source.checkpoint.as_ref().filter(|_| source.base().is_some());
    let beside: Option<Found<'_>> = match (own, &started_from) {
        (Some(checkpoint), _) => settings.lora.adapters().map(|lora| {
            let file = &checkpoint.model;
            let get = Box::new(|name: &str| file.require(name)?.to_values());
            (lora, file.names().collect(), get as Box<ReadTensor<'_>>)
        }),
        (None, Some(found)) => {
            let lora = found.lora.clone();
            lora.check(&list)?;
            found.check_base(&list, &lora, &source)?;
            let names = found.names(&lora.parameters(&list)?);
            Some((lora, names, Box::new(|name: &str| found.tensor(name))))
        }
        _ => None,
    };
    let shown = source.dir.display();
    let beside = match (beside, form.merge) {
        (Some((lora, names, get)), true) => {
            let import = Import::of(&lora.parameters(&list)?, names)?;
            Some(Beside { lora, import, get })
        }
        (Some(_), false) => {
            let shown = match (own, &places.adapters) {
                (None, Some(dir)) => dir.display(),
                _ => shown,
            };
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
    let stored = source.stored_as()?;
    let files = described(&source, &settings, form.dtype, stored.is_some())?;
    let prefix = model.prefix();
    let dtype_of = |name: &str| match (form.dtype, &stored) {
        (Some(dtype), _) => dtype,
        (None, Some(stored)) => stored.of_tensor(name, prefix),
        (None, None) => DType::F32,
    };
    directory::create_empty(out)?;
    let weights = out.join(WEIGHTS);
    let written = write(&weights, &list, (&frozen, &places), beside.as_ref(), &dtype_of, &*model);
    if let Some(overflow) =
        written.as_ref().err().and_then(|error| error.downcast_ref::<Overflow>())
    {
        return Err(Error::usage(overflow.clone(), "export in bf16 or f32: --precision f32"));
    }
    written.with_context(|| format!("can't write `{}`", weights.display())).help(FULL)?;
    for (name, bytes) in files {
        let file = out.join(&name);
        let folder = file.parent().filter(|folder| !folder.exists());
        folder.map_or(Ok(()), files::create_folder).help(FULL)?;
        files::write(&file, bytes)
            .with_context(|| format!("can't write `{}`", file.display()))
            .help(FULL)?;
    }
    Ok(())
}

/// A weight that the exported dtype doesn't hold.
#[derive(Clone, Debug, thiserror::Error)]
#[error("element {element} of `{name}` is {value}, which {dtype} doesn't hold")]
struct Overflow {
    name: String,
    element: usize,
    value: f32,
    dtype: DType,
}

/// Writes all weights, one parameter in memory at a time.
fn write(
    file: &Path,
    list: &[Parameter],
    (frozen, places): (&Frozen<'_>, &Places),
    beside: Option<&Beside<'_>>,
    dtype_of: &dyn Fn(&str) -> DType,
    model: &dyn tightrope_nn::Model,
) -> anyhow::Result<()> {
    let frozen = frozen.open(model, places)?;
    let values = |index: usize| -> anyhow::Result<Vec<f32>> {
        let mut values = frozen.read(&list[index])?;
        if let Some(Beside { lora, import, get }) = beside {
            let mut get = |name: &str| Ok(get(name)?);
            lora.merge(list, index, &mut values, &mut |adapter| import.read(adapter, &mut get))?;
        }
        Ok(values)
    };
    let failed = RefCell::new(None);
    let mut tensors = vec![];
    for (index, parameter) in list.iter().enumerate() {
        for (place, part) in parameter.parts.iter().enumerate() {
            let dtype = dtype_of(&part.name);
            let ty = Type::new(dtype, parameter.part_shape(part));
            let (values, failed) = (&values, &failed);
            tensors.push(Tensor::streamed(part.name.clone(), ty, move |out| {
                let values = values(index).map_err(|error| {
                    let said = io::Error::other(error.to_string());
                    failed.replace(Some(error));
                    said
                })?;
                let stored = parts_of(&list[index], &values).swap_remove(place).values;
                // Infinities and NaN of the source are exported unchanged.
                let overflows = |value: &f32| value.is_finite() && !fits_dtype(dtype, *value);
                if let Some(element) = stored.iter().position(overflows) {
                    let (name, value) = (part.name.clone(), stored[element]);
                    failed.replace(Some(Overflow { name, element, value, dtype }.into()));
                    return Err(io::Error::other("a number overflows"));
                }
                write_values(out, dtype, &stored)
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

/// Names and bytes of an export's files but the weights. Those of a model that was `published` by others are copied.
fn described(
    source: &Source,
    settings: &Settings,
    dtype: Option<DType>,
    published: bool,
) -> Result<Files> {
    let mut config = companions::config(source.config_file()?.as_ref(), &source.config);
    set_dtype(&mut config, dtype, published);
    let mut files = source.companions()?;
    files.remove(companions::STORED);
    templates::unpack(&mut files)?;
    if let Architecture::Vit(model) = &source.config {
        if !files.contains_key(preprocessor::FILE) {
            let normalization = source.normalization(model.colors)?;
            let shape = crate::recipe::image_shape(model);
            files.insert(preprocessor::FILE.to_owned(), preprocessor::text(&normalization, shape));
        }
        files.insert(CONFIG.to_owned(), json_text(&config)?);
        return Ok(files);
    }
    let asked = settings.data.tokenizer.as_deref();
    if source.has_tokenizer() && settings.on_command_line("data.tokenizer") {
        let message = format!("`{}` has a tokenizer, which is copied", source.dir.display());
        let help = "leave --tokenizer out; files of another one can take its place in the directory that is written";
        return Err(settings.error(&["data.tokenizer"], message, help).into());
    }
    let tokenizer = source.tokenizer_beside(asked)?;
    let mut own = tokenizer.as_ref().map(Tokenizer::files).unwrap_or_default();
    if let Some(folder) = asked.filter(|_| !source.has_tokenizer()).and_then(tokenizers::folder) {
        own.extend(templates::packed(&templates::read_files(folder)?)?);
    }
    companions::keep_tokenizer_of(&mut files, &own);
    if let Some(Tokenizer::Gpt2(gpt2)) = &tokenizer {
        own.extend(gpt2.files()?);
    }
    for (name, bytes) in own {
        files.entry(name).or_insert(bytes);
    }
    let context = match &source.config {
        Architecture::Language(model) => Some(model.context),
        Architecture::Classifier(model) => Some(model.decoder.context),
        Architecture::Bert(_) | Architecture::Vit(_) => None,
    };
    if let (Some(context), Some(tokenizer)) = (context, &tokenizer) {
        let continues = matches!(source.config, Architecture::Language(_));
        if continues && !published && !files.contains_key(companions::GENERATION) {
            name_ends(tokenizer, &mut config, &mut files)?;
        }
        if !published && !files.contains_key(TOKENIZER_CONFIG) {
            let own = json_text(&of_tokenizer(tokenizer, context)?)?;
            files.insert(TOKENIZER_CONFIG.to_owned(), own);
        }
    }
    files.insert(CONFIG.to_owned(), json_text(&config)?);
    Ok(files)
}

/// Names the type of the numbers in a `config.json`: the one that was asked for, else what the file says, else that of a model of no other
/// library, f32.
fn set_dtype(config: &mut Value, asked: Option<DType>, published: bool) {
    let kind = match asked {
        Some(DType::BF16) => "bfloat16",
        Some(DType::F16) => "float16",
        None if published => return,
        _ => "float32",
    };
    // transformers reads the first from version 5 on, the second before.
    let spellings = ["dtype", "torch_dtype"];
    let found = spellings.map(|key| config.get(key).is_some());
    for (key, found) in spellings.into_iter().zip(found.map(|own| own || found == [false; 2])) {
        if found {
            config[key] = kind.into();
        }
    }
}

/// Names the tokens that begin, end and pad a text in the `config.json`, where it names none, and in the file of generation's defaults.
fn name_ends(tokenizer: &Tokenizer, config: &mut Value, files: &mut Files) -> Result<()> {
    let Some(end) = tokenizer.eos() else { return Ok(()) };
    let mut unless_named = |key: &str, id: u32| {
        if config[key].is_null() {
            config[key] = id.into();
        }
        config[key].clone()
    };
    let ends = unless_named("eos_token_id", end);
    let begins = unless_named("bos_token_id", tokenizer.prefix().unwrap_or(end));
    let pads = match &config["pad_token_id"] {
        Value::Null => end.into(),
        named => named.clone(),
    };
    let generation = json!({ "bos_token_id": begins, "eos_token_id": ends, "pad_token_id": pads });
    files.insert(companions::GENERATION.to_owned(), json_text(&generation)?);
    Ok(())
}

/// The `tokenizer_config.json` of a tokenizer that came without one. Bytes have none: an id is the byte.
fn of_tokenizer(tokenizer: &Tokenizer, context: usize) -> Result<Value> {
    let text = |id: Option<u32>| id.map(|id| tokenizer.decode(&[id])).transpose();
    let (begin, end) = (text(tokenizer.prefix())?, text(tokenizer.eos())?);
    let mut config = json!({
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": context,
        "bos_token": begin,
        "eos_token": end,
        "clean_up_tokenization_spaces": false,
    });
    if matches!(tokenizer, Tokenizer::Gpt2(_)) {
        config["tokenizer_class"] = json!("GPT2Tokenizer");
        config["unk_token"] = json!(end);
        config["add_prefix_space"] = json!(false);
    }
    Ok(config)
}
