//! Text from a model on disk, and the loss of one on text or images.
//!
//! ```
//! use tightrope::devices::Devices;
//! use tightrope::generate::{Asked, Loaded};
//! use tightrope::settings::Settings;
//!
//! # let folder = tempfile::tempdir()?;
//! # let dir = folder.path().join("run");
//! # let mut said = Settings::default();
//! # for words in ["model.preset=tiny", "model.context=16", "train.steps=1", "run.device=cpu"] {
//! #     said.read_argument(words)?;
//! # }
//! # said.read_argument(&format!("run.out={}", dir.display()))?;
//! # let recipe = tightrope::recipe::Recipe::new(&said)?;
//! # let device = Devices::default().open(&recipe.step.device)?;
//! # let (mut run, _) = recipe.plan(device)?.start(|spec| Devices::default().open(spec))?.begin()?;
//! # (&mut run).try_for_each(|step| step.map(drop))?;
//!
//! // A run directory, a checkpoint, or a directory of Hugging Face.
//! let loaded = Loaded::open(&dir, &Settings::default())?;
//! let device = Devices::default().open(loaded.device())?;
//! let mut text = String::new();
//! let asked = Asked { prompt: "To be", max_tokens: 10, temperature: 0.8, top_k: 0, top_p: 1.0 };
//! let tokens = loaded.generator(device)?.generate(&asked, &mut |piece| {
//!     text += piece;
//!     true
//! })?;
//! assert_eq!(tokens.len(), 10);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::path::Path;

use anyhow::anyhow;
use tightrope_core::{Backend, Plan};
use tightrope_data::{ChatTemplate, Tokenizer, held_out_split};
use tightrope_nn::{Architecture, ModelConfig, Planned, Sampling, Trainer, TrainerConfig};

use crate::block_on;
use crate::check;
use crate::classifies::Classifies;
use crate::devices::Spec;
use crate::error::{Error, Help as _, Result};
use crate::model::Unit;
use crate::recipe::{
    Context, Conversations, First, Labelled, LabelledImages, Reader, Step, Text, beyond_rows,
};
use crate::run::{self, Evaluation, Turn, evaluate};
use crate::settings::{RowFormat, Settings};
use crate::weights::{Generation, Places, Source};

/// Is shown a plan before it's allocated.
type Heard = Box<dyn Fn(&Plan)>;
/// Is told how much of how much is done.
type Progress = Box<dyn Fn(usize, usize)>;

/// A model on disk, with what was said over the settings that it was trained with.
pub struct Loaded {
    pub(crate) source: Source,
    pub(crate) settings: Settings,
    step: Step,
    /// `None` of a model that reads no text.
    pub(crate) tokenizer: Option<Tokenizer>,
    notes: Vec<String>,
    hears: Option<Heard>,
    watches: Option<Progress>,
}

impl Loaded {
    /// Opens a run, a checkpoint, an archive of one or a Hugging Face directory.
    ///
    /// # Errors
    /// A model that can't be read, and settings that don't fit it.
    pub fn open(path: &Path, said: &Settings) -> Result<Self> {
        let source = Source::open(path)?;
        let mut settings = source.settings(said)?;
        let source = source.with_head_of(&Places::of(&settings))?;
        // Nothing is learned here.
        settings.train.teacher = None;
        let asked = settings.data.tokenizer.as_deref();
        let tokenizer = match &source.config {
            Architecture::Language(_) | Architecture::Classifier(_) | Architecture::Bert(_) => {
                Some(source.tokenizer(asked)?)
            }
            Architecture::Vit(_) => None,
        };
        let step = Step::of_model(&settings, source.config.clone())?;
        let notes = [source.notes.clone(), settings.notes()].concat();
        Ok(Self { source, settings, step, tokenizer, notes, hears: None, watches: None })
    }

    /// The directory with the weights, or the archive.
    pub fn dir(&self) -> &Path {
        &self.source.dir
    }

    /// Defaults of generation that the model's files name.
    ///
    /// # Errors
    /// A `generation_config.json` that can't be read.
    pub fn generation(&self) -> Result<Generation> {
        self.source.generation()
    }

    /// What there is to tell: newer checkpoints that were passed over as damaged, and retired settings.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The device that is asked for.
    pub fn device(&self) -> &Spec {
        &self.step.device
    }

    /// With `hears`, which is shown the plan of what is asked for before any of it is allocated.
    pub fn hearing(self, hears: impl Fn(&Plan) + 'static) -> Self {
        Self { hears: Some(Box::new(hears)), ..self }
    }

    /// With `watches`, which is told how many rows of how many are scored by [`Loaded::score_texts`] and [`Loaded::score_choices`].
    pub fn watching(self, watches: impl Fn(usize, usize) + 'static) -> Self {
        Self { watches: Some(Box::new(watches)), ..self }
    }

    /// Tells how much is done.
    pub(crate) fn tell(&self, done: usize, all: usize) {
        if let Some(watches) = &self.watches {
            watches(done, all);
        }
    }

    /// The most tokens that `model`, which this is, reads at once: the context of its settings. A run on short rows may be asked longer
    /// questions, up to [`Context::MOST`] tokens, unless a context is named.
    pub(crate) fn context_of(&self, model: &ModelConfig) -> usize {
        let settings = &self.settings;
        let own = settings.model.context.unwrap_or(model.context);
        let texts = matches!(settings.data.format, None | Some(RowFormat::Auto | RowFormat::Text));
        match texts || settings.on_command_line("model.context") {
            true => own,
            false => own.max(model.context.min(Context::MOST)),
        }
    }

    /// The refusal of a model that isn't a language model.
    pub(crate) fn continues_nothing(&self) -> anyhow::Error {
        let (shown, family) = (self.dir().display(), self.source.config.family().name());
        match &self.source.config {
            Architecture::Classifier(_) => anyhow!(
                "`{shown}` holds a model of the family {family} that classifies texts, and continues none"
            ),
            _ => {
                anyhow!("`{shown}` holds a model of the family {family}, which continues no text")
            }
        }
    }

    /// The plan of [`Loaded::generator`] on `device`: the weights, a cache of keys and values, and the program of a token.
    ///
    /// # Errors
    /// A model that reads no text, and [`Kind::DoesNotFit`](crate::error::Kind).
    pub fn plan_generator(&self, device: &dyn Backend) -> Result<Planned> {
        let Architecture::Language(model) = &self.source.config else {
            return Err(Error::usage(
                self.continues_nothing(),
                "name a language model, or score this one with `tightrope eval`",
            ));
        };
        let mut step = self.step.clone().inference(false, self.settings.memory.weight_bits);
        step.config = TrainerConfig {
            batch: 1,
            micro_batch: 1,
            decode: self.context_of(model),
            model: self.source.config.build(1)?,
            losses: false,
            ..step.config
        };
        step.plan(device)
    }

    /// The model of a plan on `device`, which holds what the plan says and nothing that training needs.
    pub(crate) fn started(&self, planned: Planned, device: Box<dyn Backend>) -> Result<Trainer> {
        if let Some(hears) = &self.hears {
            hears(&planned.plan);
        }
        let mut trainer = Trainer::new(planned, device)?;
        self.source.load(&mut trainer, &Places::of(&self.settings))?;
        Ok(trainer)
    }

    /// The model on `device`, to continue text.
    ///
    /// # Errors
    /// As [`Loaded::plan_generator`], weights that can't be read, and those of the device.
    pub fn generator(self, mut device: Box<dyn Backend>) -> Result<Generator> {
        let planned =
            check::planned(self.device(), &mut device, &mut |device| self.plan_generator(device))?;
        let trainer = self.started(planned, device)?;
        let tokenizer = self.tokenizer.unwrap_or(Tokenizer::Byte);
        // Who is spoken to today knows what day it is.
        let mut settings = self.settings.clone();
        if !settings.on_command_line("data.date") {
            settings.data.date = None;
        }
        let model = Some(&self.source);
        let reader =
            Reader { settings: &settings, tokenizer: &tokenizer, model, first: First::Said };
        let template = reader.template();
        let ends = self.source.generation()?.ends;
        let positions = match &self.source.config {
            Architecture::Language(model) => model.context,
            _ => trainer.config().decode,
        };
        let seed = self.step.config.seed;
        Ok(Generator { trainer, tokenizer, template, ends, positions, seed })
    }

    /// The loss on what is held out, or on everything where nothing is, and the sequence length that it was scored with.
    ///
    /// # Errors
    /// Data that can't be read, and those of the device.
    pub fn evaluate(mut self, mut device: Box<dyn Backend>) -> Result<Scored> {
        let tokenizer = self.tokenizer.take();
        let source = &self.source;
        let mut data = self.settings.data.clone();
        let read = |tokenizer: &Tokenizer| {
            let (settings, model) = (&self.settings, Some(source));
            Reader { settings, tokenizer, model, first: First::Said }.read()
        };
        if !data.validation.is_empty() && !self.settings.on_command_line("data.files") {
            data.files = std::mem::take(&mut data.validation);
        }
        let mut notes = vec![];
        let by_share = self.settings.is_said("data.holdout") && data.holdout < 1.0;
        let by_split = self.settings.on_command_line("data.files") || !by_share;
        if by_split
            && !matches!(source.config, Architecture::Vit(_))
            && let Some(split) = held_out_split(&data.files)?
        {
            notes.push(format!("of the folder's splits, `{}` is scored", split.name));
            (data.files, data.holdout) = (split.files, 0.0);
        }
        if data.holdout == 1.0 {
            // Splits leave something to train on, of which there is no need here.
            data.holdout = 0.0;
        }
        let mut tokens = None;
        let labelled = |classifies: Classifies, positions: usize, tokenizer: Option<Tokenizer>| {
            let context = Context::asked(&self.settings, positions);
            let tokenizer = tokenizer.unwrap_or(Tokenizer::Byte);
            Labelled::open(&data, classifies, None, tokenizer, context)
        };
        let scored = match (&source.config, tokenizer) {
            (Architecture::Vit(model), _) => {
                let normalization = Some(source.normalization(model.colors)?);
                Data::Images(Box::new(LabelledImages::open(&data, model, None, normalization)?))
            }
            (Architecture::Classifier(model), tokenizer) => {
                let classifies = Classifies::of_decoder(model);
                let labelled = labelled(classifies, model.decoder.context, tokenizer)?;
                tokens = Some(labelled.context());
                notes.extend(labelled.truncation_note());
                Data::Labelled(Box::new(labelled))
            }
            (Architecture::Bert(model), tokenizer) => {
                if let Some(classifies) = Classifies::of_encoder(model) {
                    let labelled = labelled(classifies, model.context, tokenizer)?;
                    tokens = Some(labelled.context());
                    notes.extend(labelled.truncation_note());
                    Data::Labelled(Box::new(labelled))
                } else {
                    let texts = if data.files.is_empty() { source.own_texts()? } else { vec![] };
                    let tokenizer = tokenizer.unwrap_or(Tokenizer::Byte);
                    let text = Text::open(&data, tokenizer, model.vocab, texts)?;
                    Data::Text(Box::new(text.masked(self.step.config.seed)?))
                }
            }
            (Architecture::Language(model), tokenizer) => {
                let texts = if data.files.is_empty() { source.own_texts()? } else { Vec::new() };
                let tokenizer = tokenizer.unwrap_or(Tokenizer::Byte);
                match read(&tokenizer)? {
                    Some(read) => {
                        let context = Context::asked(&self.settings, model.context);
                        let mut chats =
                            Conversations::open(&data, &read, tokenizer, context, model.vocab)?;
                        chats.refer_to_model(source)?;
                        tokens = Some(chats.context());
                        notes.extend(chats.truncation_notes());
                        Data::Chats(Box::new(chats))
                    }
                    None => Data::Text(Box::new(Text::open(&data, tokenizer, model.vocab, texts)?)),
                }
            }
        };
        // Rows may take a shorter context than the model has positions for.
        let mut settings = self.settings.clone();
        settings.model.context = tokens.or(settings.model.context);
        let step = Step::of_model(&settings, source.config.clone())?;
        let mut step = step.inference(true, self.settings.memory.weight_bits);
        step.config = TrainerConfig { decode: 0, losses: false, logits: false, ..step.config };
        let planned = check::planned(&step.device, &mut device, &mut |device| step.plan(device))?;
        let mut trainer = self.started(planned, device)?;
        let (batches, count) = match &scored {
            Data::Images(images) => images.scored(trainer.config())?,
            Data::Chats(chats) => chats.scored(trainer.config())?,
            Data::Labelled(labelled) => labelled.scored(trainer.config())?,
            Data::Text(text) => {
                (text.windows(text.scored(), trainer.config(), None)?, text.scored().len())
            }
        };
        let unit = Unit::scored(trainer.config());
        let Some(evaluation) = block_on(evaluate(&mut trainer, batches))? else {
            return Err(Error::usage(
                anyhow!(
                    "nothing is held out: the held-out part has {count} {}",
                    if matches!(scored, Data::Chats(_)) { "rows" } else { unit.many }
                ),
                "raise data.holdout, or give more --data",
            ));
        };
        let (bytes, origin) = match &scored {
            Data::Images(images) => (None, images.origin()),
            Data::Chats(chats) => (None, chats.origin()),
            Data::Labelled(labelled) => (None, labelled.origin()),
            Data::Text(text) => (text.predicted_bytes()?, text.origin()),
        };
        let nats = evaluation.loss * evaluation.tokens as f64;
        let bits_per_byte = bytes.map(|bytes| nats / std::f64::consts::LN_2 / bytes as f64);
        let part = match data.holdout {
            0.0 => "all".to_owned(),
            part => format!("the held-out {} %", (100.0 * part * 1e4).round() / 1e4),
        };
        let seq_len = trainer.config().model.seq_len();
        let data = format!("{part} of {origin}");
        Ok(Scored { evaluation, unit, data, bits_per_byte, seq_len, notes })
    }
}

/// What a model is scored on.
enum Data {
    Text(Box<Text>),
    Chats(Box<Conversations>),
    Labelled(Box<Labelled>),
    Images(Box<LabelledImages>),
}

/// What scoring a model came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Scored {
    /// The loss.
    pub evaluation: Evaluation,
    /// What was scored.
    pub unit: Unit,
    /// The data, in words: which part of which files.
    pub data: String,
    /// Bits that the model needs for a byte of the text; `None` of images, and of ids whose tokenizer isn't known.
    pub bits_per_byte: Option<f64>,
    /// Sequence length.
    pub seq_len: usize,
    /// Splits that were chosen, and rows that were cut or left out.
    pub notes: Vec<String>,
}

/// What is asked of a [`Generator`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Asked<'a> {
    /// Text to continue; not empty.
    pub prompt: &'a str,
    /// Most tokens to generate.
    pub max_tokens: usize,
    /// Randomness; 0 always takes the likeliest token.
    pub temperature: f64,
    /// Draw from so many of the likeliest tokens; 0 is all of them.
    pub top_k: usize,
    /// Draw from the likeliest tokens that together have this probability.
    pub top_p: f64,
}

/// A model that continues text.
pub struct Generator {
    trainer: Trainer,
    tokenizer: Tokenizer,
    template: Result<Option<ChatTemplate>>,
    /// Ids that end a text besides the tokenizer's own.
    ends: Vec<u32>,
    /// Positions of the model, of which the context may have fewer.
    positions: usize,
    seed: u64,
}

impl Generator {
    /// Bytes that the device holds for the model: those of its plan.
    pub fn peak_bytes(&self) -> u64 {
        self.trainer.session().plan().peak_bytes()
    }

    /// Continues a prompt, before which the tokenizer puts the tokens that begin a text, and hands each new piece of text to `show`, which
    /// says whether to go on. Each id of the model's `eos_token_id` ends the text, and so does the tokenizer's end of text. Returns the new
    /// tokens.
    ///
    /// # Errors
    /// An empty prompt, one that is longer than the context or that the model doesn't know, and a device that fails.
    pub fn generate(
        &mut self,
        asked: &Asked<'_>,
        show: &mut dyn FnMut(&str) -> bool,
    ) -> Result<Vec<u32>> {
        let prompt = self.tokenizer.encode_with_specials(asked.prompt);
        self.go_on(prompt.help("give another --prompt")?, asked, show)
    }

    /// As [`Generator::generate`], of an answer to the prompt, which [`ChatTemplate::question`] writes by the model's chat template: it's what
    /// a user says, or a conversation in JSON. The answer ends with the assistant's turn.
    ///
    /// # Errors
    /// As [`Generator::generate`], a model without a chat template, and a conversation that can't be read.
    pub fn answer(
        &mut self,
        asked: &Asked<'_>,
        show: &mut dyn FnMut(&str) -> bool,
    ) -> Result<Vec<u32>> {
        const HELP: &str = "name another with --chat-template, or continue a text with --prompt";
        let template = match &self.template {
            Ok(Some(template)) => template,
            Ok(None) => {
                return Err(Error::usage(
                    anyhow!("the model has no chat template, by which it could be spoken to"),
                    "name one with --chat-template, or continue a text with --prompt",
                ));
            }
            Err(error) => return Err(Error::failed(anyhow!("{error}"), HELP)),
        };
        let question = template.question(asked.prompt).map_err(|error| match error {
            tightrope_data::Error::RowFormat { .. } => Error::usage(
                error,
                "a conversation is `[{\"role\": \"user\", \"content\": \"…\"}, …]`; any other text is what a user says",
            ),
            error => Error::failed(error, HELP),
        })?;
        let mut turn = Turn::new(template.end_of_turn());
        // The template writes the tokens that begin a text itself.
        let question = self.tokenizer.encode(&question).help("give another --prompt")?;
        let tokens = self.go_on(question, asked, &mut |piece| {
            let (said, more) = turn.push(piece);
            show(&said) && more
        })?;
        show(&turn.rest());
        Ok(tokens)
    }

    fn go_on(
        &mut self,
        prompt: Vec<u32>,
        asked: &Asked<'_>,
        show: &mut dyn FnMut(&str) -> bool,
    ) -> Result<Vec<u32>> {
        let Asked { temperature, top_k, top_p, .. } = *asked;
        if prompt.is_empty() {
            return Err(Error::usage(
                anyhow!("the prompt is empty"),
                "give --prompt some text to continue, or leave it out",
            ));
        }
        let vocab = self.trainer.config().model.decoder().map_or(usize::MAX, |it| it.vocab());
        if let Some(&id) = prompt.iter().find(|&&id| id as usize >= vocab) {
            return Err(beyond_rows(&self.tokenizer, id, vocab, "the prompt"));
        }
        let (length, context) = (prompt.len(), self.trainer.config().decode);
        if length > context {
            return Err(Error::usage(
                anyhow!("the prompt has {length} tokens, more than the context of {context}"),
                match self.positions {
                    most if length <= most => {
                        format!("shorten the prompt, or give --context {length} or more")
                    }
                    most => format!("shorten the prompt: the model has {most} positions"),
                },
            ));
        }
        let sampling = Sampling { temperature, top_k, top_p, seed: self.seed, draw: 0 };
        let (trainer, tokenizer) = (&mut self.trainer, &self.tokenizer);
        let given = (prompt.as_slice(), self.ends.as_slice());
        block_on(run::generate(trainer, tokenizer, given, asked.max_tokens, &sampling, show))
    }
}
