//! Models on disk: a directory of Hugging Face's, a checkpoint or an archive of one, or a run, of which the
//! newest complete checkpoint counts.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use tightrope_data::{
    Base, Checkpoint, Gpt2, Normalization, Tokenizer, Weights, checkpoint, files, limits,
    weights_fingerprint,
};
use tightrope_nn::{Architecture, Import, Parameter, Part, Trainer, TrainerConfig};

use super::{RUN_SETTINGS, adapters, config, hub, is_run, preprocessor, tokenizer};
use crate::error::{Error, FILES, Help as _, Result, no_files};
use crate::settings::{Origin, Settings};

const MANIFEST: &str = "manifest.json";
const TOKENIZER: &str = "tokenizer.json";
/// Names under which models have SentencePiece's own files.
const PIECES: [&str; 3] = ["tokenizer.model", "spiece.model", "sentencepiece.bpe.model"];
/// GPT-2's tokenizer, as its authors published it.
const MERGES: &str = "merges.txt";

/// Where weights lie that a checkpoint doesn't hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// The model that adapters are beside.
    pub model: Option<PathBuf>,
    /// Adapters to start from.
    pub adapters: Option<PathBuf>,
    /// The model that this one learns of.
    pub teacher: Option<PathBuf>,
    /// True if rows that are added to an embedding are drawn; they are the mean of the others otherwise.
    pub draws_rows: bool,
}

impl Places {
    /// Those that the settings name.
    pub fn of(settings: &Settings) -> Self {
        let Settings { model, lora, train, .. } = settings;
        Self {
            model: model.init.clone(),
            adapters: lora.init.clone(),
            teacher: train.teacher.clone(),
            draws_rows: !model.mean_resizing,
        }
    }
}

/// A model on disk.
pub struct Source {
    /// The directory with the weights, or the archive.
    pub dir: PathBuf,
    /// What the weights are of.
    pub config: Architecture,
    /// The checkpoint, where it is one.
    pub checkpoint: Option<Checkpoint>,
    /// Newer checkpoints that were passed over as damaged, one line each.
    pub notes: Vec<String>,
    /// True if the head of [`Source::config`] is in the file of adapters, and not in this model's.
    pub(super) head_is_beside: bool,
}

impl Source {
    /// Opens a model directory, a model in the cache of the Hugging Face hub by its name there, or an archive; a checkpoint's bytes are verified.
    ///
    /// # Errors
    /// A directory without a model, or with a damaged one.
    pub fn open(path: &Path) -> Result<Self> {
        if !FILES {
            return Err(Error::usage(no_files(), "bring the checkpoint along"));
        }
        let path = &*hub::located(path);
        if is_run(path) {
            let (checkpoint, skipped) = checkpoint::latest_complete(path)
                .help("name another model, or train the run further first")?;
            let note = |skipped: &checkpoint::Skipped| {
                format!(
                    "{} is damaged and was passed over: {}",
                    skipped.path.display(),
                    skipped.reason
                )
            };
            let notes = skipped.iter().map(note).collect();
            return Self::of_checkpoint(checkpoint, notes);
        }
        if is_archive(path) || path.join(MANIFEST).exists() {
            let checkpoint = Checkpoint::open(path)
                .help("name the run directory to use its newest complete checkpoint")?;
            return Self::of_checkpoint(checkpoint, Vec::new());
        }
        let config = config::read(path)?;
        Ok(Self {
            dir: path.to_owned(),
            config,
            checkpoint: None,
            notes: Vec::new(),
            head_is_beside: false,
        })
    }

    /// The model of a checkpoint that is open, and what there is to tell of it.
    ///
    /// # Errors
    /// A model that this version doesn't know.
    pub fn of_checkpoint(checkpoint: Checkpoint, notes: Vec<String>) -> Result<Self> {
        let dir = checkpoint.path.clone();
        let model = checkpoint.manifest.model.clone();
        let config: Architecture = serde_json::from_value(model)
            .with_context(|| format!("the model in `{}` can't be read", dir.display()))
            .help("use the version of tightrope that wrote this checkpoint")?;
        config.check()?;
        Ok(Self { dir, config, checkpoint: Some(checkpoint), notes, head_is_beside: false })
    }

    /// Sets every weight of `trainer`, which is one of this model. Frozen weights that adapters are beside come from
    /// where they were, or else from `places.model`; beside whole weights, adapters come from `places.adapters` if anywhere.
    ///
    /// # Errors
    /// Weights that are missing, of another shape or dtype, not finite, or in a broken file.
    pub fn load(&self, trainer: &mut Trainer, places: &Places) -> Result<()> {
        self.fill(trainer, places, false)
    }

    /// As [`Source::load`], for a run that starts from this model: what its model [makes anew](tightrope_nn::Model::made_anew) begins as its
    /// seed has it.
    ///
    /// # Errors
    /// As [`Source::load`].
    pub fn start(&self, trainer: &mut Trainer, places: &Places) -> Result<()> {
        self.fill(trainer, places, true)
    }

    /// What there is to tell of a run of `config` that starts from this model: the tensors that its head needs and the model lacks.
    ///
    /// # Errors
    /// Weights that are missing or of another model, and adapters beside a head that isn't trained.
    pub fn made_anew(&self, config: &TrainerConfig) -> Result<Option<String>> {
        const HELP: &str = "fetch or copy the model again, or name another one";
        let model = &*config.model;
        let import = match &self.checkpoint {
            Some(checkpoint) => Import::starting(model, checkpoint.model.names()),
            None => Import::starting(model, self.open_weights().help(HELP)?.names()),
        };
        let place = || format!("can't load the weights in `{}`", self.dir.display());
        let import = import.with_context(place).help(HELP)?;
        let list = model.parameters();
        let lacking: Vec<&Parameter> =
            list.iter().filter(|parameter| !import.has(parameter)).collect();
        if lacking.is_empty() {
            return Ok(None);
        }
        let shown = self.dir.display();
        let names = |list: &[&Parameter]| {
            let parts = list.iter().flat_map(|parameter| &parameter.parts);
            parts.map(|part| part.name.as_str()).collect::<Vec<_>>().join(", ")
        };
        if let Some(lora) = &config.lora {
            let mut random = vec![];
            for &parameter in &lacking {
                // A head that is trained whole beside adapters is learned.
                if lora.trained_whole(parameter)?.is_none() {
                    random.push(parameter);
                }
            }
            if !random.is_empty() {
                return Err(Error::usage(
                    anyhow!(
                        "`{shown}` has no {}, which adapters would leave as random as they begin",
                        names(&random)
                    ),
                    "train all weights, name a model with this head, or train it whole: --set lora.modules_to_save",
                ));
            }
        }
        let names = names(&lacking);
        Ok(Some(format!(
            "`{shown}` has no {names}: they begin anew, and training is to learn them"
        )))
    }

    /// Notes for a run of `config` that starts from this model.
    ///
    /// # Errors
    /// As [`Source::made_anew`].
    pub(crate) fn notes_on_start(&self, config: &TrainerConfig) -> Result<Vec<String>> {
        let anew = self.made_anew(config)?.into_iter();
        #[cfg(not(target_family = "wasm"))]
        let anew = anew.chain(self.note_on_quantized(config)?).chain(self.note_on_added(config)?);
        Ok(anew.collect())
    }

    fn fill(&self, trainer: &mut Trainer, places: &Places, starting: bool) -> Result<()> {
        match self.base() {
            None => {
                self.load_weights(trainer, places, starting || self.head_is_beside)?;
                return match &places.adapters {
                    Some(dir) => adapters::start_from(dir, trainer, self),
                    None => Ok(()),
                };
            }
            Some(_) if trainer.config().lora.is_none() => return Err(self.adapters_alone()),
            Some(Base::Seed(seed)) => trainer.initialise_from(*seed)?,
            Some(Base::Given { .. }) => return Err(self.given_elsewhere()),
            Some(Base::Model { path, fingerprint }) => {
                let init = places.model.as_deref();
                // A head that the run made anew lies with the adapters.
                self.find_base(path, fingerprint, init)?.load_weights(trainer, places, true)?;
            }
        }
        self.load_weights(trainer, places, false)
    }

    /// Refuses adapters that nothing would read, as the checkpoint has its own.
    ///
    /// # Errors
    /// `lora.init` in words, beside such a checkpoint; a file may be one that the run began with.
    pub fn keeps_adapters(&self, said: &Settings) -> Result<()> {
        if self.base().is_none() || !said.on_command_line("lora.init") {
            return Ok(());
        }
        let message = format!("`{}` has adapters of its own", self.dir.display());
        let help = "leave `lora.init` out, or name the model that those adapters are beside";
        Err(said.error(&["lora.init"], message, help).into())
    }

    /// Where the frozen weights are, of a checkpoint of adapters.
    pub fn base(&self) -> Option<&Base> {
        self.checkpoint.as_ref()?.manifest.base.as_ref()
    }

    /// The refusal of adapters where whole weights are needed.
    fn adapters_alone(&self) -> Error {
        Error::usage(
            anyhow!("`{}` holds adapters, and not the weights they are beside", self.dir.display()),
            "resume that run with --resume, or give --init the model that it began with",
        )
    }

    /// The refusal of adapters beside weights that are in no file.
    pub(super) fn given_elsewhere(&self) -> Error {
        Error::usage(
            anyhow!(
                "the adapters in `{}` are beside weights that a program gave",
                self.dir.display()
            ),
            "go on with them in that program",
        )
    }

    /// Opens a model that a run starts from.
    ///
    /// # Errors
    /// As [`Source::open`], and a checkpoint of adapters alone.
    pub fn open_whole(path: &Path) -> Result<Self> {
        let source = Self::open(path)?;
        if source.base().is_some() { Err(source.adapters_alone()) } else { Ok(source) }
    }

    /// The model with these frozen weights.
    pub(super) fn find_base(
        &self,
        path: &Path,
        fingerprint: &str,
        init: Option<&Path>,
    ) -> Result<Self> {
        let places = [Some(path), init].into_iter().flatten().map(hub::located);
        for place in places.filter(|place| place.exists()) {
            let source = Self::open_whole(&place)?;
            if source.fingerprint()? == fingerprint {
                return Ok(source);
            }
        }
        Err(Error::failed(
            anyhow!(
                "the weights that the adapters in `{}` are beside were in `{}`, and aren't there",
                self.dir.display(),
                path.display()
            ),
            "copy that model back, or say with --init where it is",
        ))
    }

    /// What tells these weights from others.
    ///
    /// # Errors
    /// Weights that are missing or in a broken file.
    pub fn fingerprint(&self) -> Result<String> {
        if let Some(checkpoint) = &self.checkpoint {
            return Ok(weights_fingerprint(checkpoint.model.tensors()));
        }
        let weights = self.open_weights().help("fetch or copy the model again")?;
        Ok(weights_fingerprint(weights.names().filter_map(|name| weights.get(name))))
    }

    fn load_weights(&self, trainer: &mut Trainer, places: &Places, starting: bool) -> Result<()> {
        self.read_weights(trainer, places, starting)
            .with_context(|| format!("can't load the weights in `{}`", self.dir.display()))
            .help("fetch or copy the model again, or name another one")
    }

    fn read_weights(
        &self,
        trainer: &mut Trainer,
        places: &Places,
        starting: bool,
    ) -> anyhow::Result<()> {
        let grown = self.grown(&*trainer.config().model, places)?;
        if let Some(checkpoint) = &self.checkpoint {
            let weights = &checkpoint.model;
            let mut get = |name: &str| Ok(grown.extend(name, weights.require(name)?.to_values()?));
            if self.base().is_some() {
                return Ok(trainer.load_adapters(weights.names(), &mut get)?);
            }
            match starting {
                true => trainer.start_from(weights.names(), &mut get)?,
                false => trainer.load_weights(weights.names(), &mut get)?,
            }
            return Ok(());
        }
        let weights = self.open_weights()?;
        let mut get = |name: &str| Ok(grown.extend(name, weights.require(name)?.to_values()?));
        match starting {
            true => trainer.start_from(weights.names(), &mut get)?,
            false => trainer.load_weights(weights.names(), &mut get)?,
        }
        Ok(())
    }

    /// The tensors of a model directory, with the shapes of the model's file where bitsandbytes stores others.
    ///
    /// # Errors
    /// Weights that are missing or in a broken file.
    pub(super) fn open_weights(&self) -> anyhow::Result<Weights> {
        let weights = Weights::open(&self.dir)?;
        if !weights.is_quantized() {
            return Ok(weights);
        }
        let model = self.config.build(1)?;
        let list = model.parameters();
        let parts = list.iter().flat_map(|parameter| &parameter.parts);
        let transposed: Vec<&Part> = parts.filter(|part| part.transposed).collect();
        let is = |part: &Part, name: &str| {
            part.name == name || part.name.strip_prefix(model.prefix()) == Some(name)
        };
        Ok(weights.transposing(|name| transposed.iter().any(|part| is(part, name))))
    }

    /// Extents and values of the tensor `name`, which the model may hold without its prefix; `None` where there is none.
    ///
    /// # Errors
    /// Weights that are missing or in a broken file, and a tensor of other numbers.
    pub(crate) fn tensor(&self, name: &str) -> anyhow::Result<Option<(Vec<usize>, Vec<f32>)>> {
        let model = self.config.build(1)?;
        let bare = name.strip_prefix(model.prefix()).unwrap_or(name);
        if let Some(checkpoint) = &self.checkpoint {
            let found = checkpoint.model.get(name).or_else(|| checkpoint.model.get(bare));
            return Ok(found.map(|tensor| tensor.to_values()).transpose()?);
        }
        let weights = self.open_weights()?;
        let found = weights.get(name).or_else(|| weights.get(bare));
        Ok(found.map(|tensor| tensor.to_values()).transpose()?)
    }

    /// The tokenizer: the one `asked` for, else the one beside the weights, `tokenizer.json`, BERT's `vocab.txt` or GPT-2's `merges.txt`, else
    /// bytes where the vocabulary is theirs.
    ///
    /// # Errors
    /// A broken file, and no tokenizer to be found.
    pub fn tokenizer(&self, asked: Option<&str>) -> Result<Tokenizer> {
        self.any_tokenizer(asked)?.ok_or_else(|| {
            let dir = self.dir.display();
            match PIECES.iter().find(|name| self.dir.join(name).is_file()) {
                None => Error::usage(
                    anyhow!("`{dir}` has no {TOKENIZER}"),
                    "give --tokenizer FILE, or --tokenizer byte for a model of bytes",
                ),
                Some(pieces) => Error::usage(
                    anyhow!("`{dir}` has {pieces}, SentencePiece's own file, which isn't read, and no {TOKENIZER}"),
                    format!(
                        "have transformers write {TOKENIZER}: python3 -c \"from transformers import AutoTokenizer; \
                         AutoTokenizer.from_pretrained('{dir}').save_pretrained('{dir}')\""
                    ),
                ),
            }
        })
    }

    /// As [`Source::tokenizer`]; `None` where there is none to be found.
    fn any_tokenizer(&self, asked: Option<&str>) -> Result<Option<Tokenizer>> {
        let tokenizer = match asked {
            Some(name) => tokenizer::named(name)?,
            None if self.has_tokenizer() => {
                self.beside_the_weights().help("name another one with --tokenizer")?
            }
            None if self.dir.join(MERGES).is_file() && self.vocab()? == Tokenizer::GPT2_VOCAB => {
                let list = files::read(&self.dir.join(MERGES), limits::DESCRIPTION)
                    .help("fetch the file again")?;
                Tokenizer::Gpt2(Box::new(Gpt2::read(&list)?))
            }
            None if self.reads_bytes() => Tokenizer::Byte,
            None => return Ok(None),
        };
        let (size, vocab) = (tokenizer.vocab_size(), self.vocab()?);
        // A language model's may have ids past the embedding's rows, as those of published models of Gemma 3 have: the data is checked for them.
        let is_decoder =
            matches!(self.config, Architecture::Language(_) | Architecture::Classifier(_));
        if size > vocab && !is_decoder {
            return Err(Error::usage(
                anyhow!("the tokenizer has {size} tokens, and the model knows {vocab}"),
                "give the tokenizer that the model was trained with",
            ));
        }
        Ok(Some(tokenizer))
    }

    /// The tokenizer that a checkpoint was written with: its own copy, so that the file the run began with
    /// may have gone.
    ///
    /// # Errors
    /// As [`Source::tokenizer`].
    pub fn own_tokenizer(&self, asked: Option<&str>) -> Result<Tokenizer> {
        self.tokenizer(self.lacking(asked))
    }

    /// The tokenizer that goes with the weights, where there is one: weights are a model without it, of token ids.
    ///
    /// # Errors
    /// A broken file, and more tokens than the model knows.
    #[cfg(not(target_family = "wasm"))]
    pub(crate) fn tokenizer_beside(&self, asked: Option<&str>) -> Result<Option<Tokenizer>> {
        self.any_tokenizer(self.lacking(asked))
    }

    /// The tokenizer that was asked for, where a checkpoint has none of its own.
    fn lacking<'a>(&self, asked: Option<&'a str>) -> Option<&'a str> {
        asked.filter(|_| !self.has_tokenizer() && !self.reads_bytes())
    }

    /// Tokens that the model knows.
    pub(super) fn vocab(&self) -> Result<usize> {
        match &self.config {
            Architecture::Language(config) => Ok(config.vocab),
            Architecture::Classifier(config) => Ok(config.decoder.vocab),
            Architecture::Bert(config) => Ok(config.vocab),
            Architecture::Vit(_) => Err(Error::usage(
                anyhow!("`{}` holds a vision transformer, which reads no text", self.dir.display()),
                "name a language model, or score this one on images with `tightrope eval`",
            )),
        }
    }

    /// What pixels of `channels` become before the model reads them: what is beside the weights, else −1 to 1 as
    /// Hugging Face has it.
    ///
    /// # Errors
    /// A file that can't be read, and what isn't supported.
    pub fn normalization(&self, channels: usize) -> Result<Normalization> {
        let text = match &self.checkpoint {
            Some(checkpoint) if checkpoint.has(preprocessor::FILE) => {
                Some(checkpoint.extra(preprocessor::FILE).help("copy the checkpoint again")?)
            }
            Some(_) => None,
            None => {
                let file = self.dir.join(preprocessor::FILE);
                file.exists()
                    .then(|| files::read(&file, limits::DESCRIPTION))
                    .transpose()
                    .help("fetch the file again")?
            }
        };
        let Some(text) = text else { return Ok(Normalization::centred(channels)) };
        preprocessor::read(&text, channels)
            .with_context(|| format!("the images of `{}` can't be read", self.dir.display()))
            .help("fetch or copy the model again, or name another one")
    }

    /// True if a `tokenizer.json`, or another file of a tokenizer, is beside the weights.
    pub(crate) fn has_tokenizer(&self) -> bool {
        match &self.checkpoint {
            Some(checkpoint) if !checkpoint.is_folder() => checkpoint.has(TOKENIZER),
            _ => Tokenizer::file_in(&self.dir).exists(),
        }
    }

    fn beside_the_weights(&self) -> tightrope_data::Result<Tokenizer> {
        match &self.checkpoint {
            // In a browser, a tokenizer's file is refused when it's opened.
            #[cfg(not(target_family = "wasm"))]
            Some(checkpoint) if !checkpoint.is_folder() => {
                let json = checkpoint.extra(TOKENIZER)?;
                let name = self.dir.join(TOKENIZER).display().to_string();
                Tokenizer::read(&name, TOKENIZER, &json, &|file| checkpoint.extra(file).ok())
            }
            _ => Tokenizer::open(Tokenizer::file_in(&self.dir)),
        }
    }

    fn reads_bytes(&self) -> bool {
        match &self.checkpoint {
            Some(checkpoint) => checkpoint.manifest.data.tokenizer == Tokenizer::Byte.name(),
            None => self.vocab().is_ok_and(|vocab| vocab == Tokenizer::Byte.vocab_size()),
        }
    }

    /// The settings of what was `said` over those of the run that the model belongs to: of its directory, or
    /// else of the checkpoint.
    ///
    /// # Errors
    /// Settings that can't be read or don't hold together, and as [`Source::keeps_adapters`].
    pub fn settings(&self, said: &Settings) -> Result<Settings> {
        self.keeps_adapters(said)?;
        let mut settings = self.trained_with()?.over(said);
        settings.rechoose_micro_batch(said);
        settings.check()?;
        Ok(settings)
    }

    /// The settings of the run that the model belongs to, where it belongs to one.
    fn trained_with(&self) -> Result<Settings> {
        let mut settings = Settings::default();
        let Some(checkpoint) = &self.checkpoint else { return Ok(settings) };
        let run = checkpoint.path.parent().and_then(Path::parent);
        let file = run.map(|run| run.join(RUN_SETTINGS)).filter(|file| file.is_file());
        if let Some(file) = file.filter(|_| checkpoint.is_folder()) {
            settings.read_file(&file)?;
            return Ok(settings);
        }
        let name = self.dir.join(MANIFEST).display().to_string();
        settings
            .read_json(&checkpoint.manifest.settings, &Origin::Checkpoint(name.clone()))
            .with_context(|| format!("the settings in `{name}` can't be read"))
            .help("use the version of tightrope that wrote this checkpoint")?;
        Ok(settings)
    }

    /// Names and texts of the data that a checkpoint brings along, where no other is named.
    ///
    /// # Errors
    /// A file that can't be read, and a task whose problems only the page makes.
    pub fn own_texts(&self) -> Result<Vec<(String, Vec<u8>)>> {
        let Some(checkpoint) = &self.checkpoint else { return Ok(Vec::new()) };
        if let Some(toy) = checkpoint.manifest.data.toy() {
            let (name, shown) = (toy.name(), self.dir.display());
            return Err(Error::usage(
                anyhow!("`{shown}` was trained on the task `{name}`, which only the page has"),
                "continue it in the page, or name a text with --data: `train --init` starts a run \
                 from these weights",
            ));
        }
        checkpoint.texts().help("copy the checkpoint again, or name the text with --data")
    }
}

/// Whether `path` is a checkpoint by itself: an archive, or a directory that isn't a run's.
pub fn is_checkpoint(path: &Path) -> bool {
    is_archive(path) || (path.join(MANIFEST).is_file() && !is_run(path))
}

/// Whether `path` is a file that may hold a checkpoint.
fn is_archive(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    path.is_file() && extension.is_some_and(|extension| extension.eq_ignore_ascii_case("tar"))
}

/// The model that a model directory describes, without its weights.
///
/// # Errors
/// A directory without a readable `config.json`.
pub fn config_of(path: &Path) -> Result<Architecture> {
    if !FILES {
        return Err(Error::usage(no_files(), "leave `model.init` out"));
    }
    let path = &*hub::located(path);
    if is_run(path) || is_archive(path) || path.join(MANIFEST).exists() {
        return Ok(Source::open(path)?.config);
    }
    config::read(path)
}
