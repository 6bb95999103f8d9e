//! Everything that is decided of a run before it is planned.
//!
//! [`Recipe::new`] takes what was said in [`Settings`] and fills in defaults, refuses contradictions, opens the data and
//! finds the weights; [`Recipe::resume`] does the same with a checkpoint in its hand, whose own settings lie under what was
//! said. [`Recipe::plan`] makes the plan. Nobody after a recipe reads a setting.
//!
//! ```
//! use tightrope::devices::Devices;
//! use tightrope::recipe::Recipe;
//! use tightrope::settings::Settings;
//!
//! let mut said = Settings::default();
//! for word in ["model.preset=tiny", "train.batch=4", "train.steps=2", "run.device=cpu"] {
//!     said.read_argument(word)?;
//! }
//! let recipe = Recipe::new(&said)?;
//! assert_eq!(recipe.step.config.batch, 4);
//! let device = Devices::default().open(&recipe.step.device)?;
//! let planned = recipe.plan(device)?;
//! assert!(planned.step.plan.peak_bytes() > 0);
//! # Ok::<(), tightrope::Error>(())
//! ```

#[cfg(not(target_family = "wasm"))]
mod chats;
#[cfg(not(target_family = "wasm"))]
mod context;
mod continues;
mod corpus;
mod encoder;
mod images;
#[cfg(not(target_family = "wasm"))]
mod labelled;
#[cfg(not(target_family = "wasm"))]
mod layout;
mod length;
mod model;
#[cfg(not(target_family = "wasm"))]
mod piped;
mod planned;
#[cfg(not(target_family = "wasm"))]
mod read;
#[cfg(not(target_family = "wasm"))]
mod reference;
mod rows;
mod step;
mod task;
#[cfg(not(target_family = "wasm"))]
mod validation;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::anyhow;
use tightrope_core::Backend;
#[cfg(not(target_family = "wasm"))]
use tightrope_data::ChatTemplate;
use tightrope_data::{Checkpoint, ImageDataset, RowFormat, checkpoint};
use tightrope_nn::{self as nn, Architecture, LearningRate, Model, ModelConfig, Trainer};

use crate::devices;
use crate::error::{Error, Help as _, Result};
use crate::model::language;
use crate::plan::PlanFile;
use crate::run::{Batches, Every, Retention, directory};
#[cfg(not(target_family = "wasm"))]
use crate::settings::LIST;
use crate::settings::{Origin, Settings, is_as_written, text_of};
use crate::weights::source::is_checkpoint;
use crate::weights::{Given, Places, RUN_SETTINGS, Source, Start, is_run, teacher};
use continues::OPS;
use length::Length;
use model::Described;
pub(crate) use model::described;

#[cfg(not(target_family = "wasm"))]
pub use chats::Conversations;
#[cfg(not(target_family = "wasm"))]
pub use context::Context;
pub use corpus::{Text, windows};
pub use images::LabelledImages;
#[cfg(not(target_family = "wasm"))]
pub(crate) use images::shape as image_shape;
#[cfg(not(target_family = "wasm"))]
pub use labelled::Labelled;
#[cfg(not(target_family = "wasm"))]
use piped::Piped;
pub use planned::Planned;
#[cfg(not(target_family = "wasm"))]
pub use read::{First, Read, Reader};
#[cfg(not(target_family = "wasm"))]
pub(crate) use rows::beyond_rows;
pub use step::{Step, complete};
pub use task::Task;

#[cfg(not(target_family = "wasm"))]
use tightrope_data::LabelledTexts;

/// A browser reads no rows.
#[cfg(target_family = "wasm")]
type LabelledTexts = std::convert::Infallible;

/// A trainer of a plan, on its device and, where something is offloaded, on so many threads of the host.
///
/// # Errors
/// Those of the devices.
pub fn trainer(planned: nn::Planned, device: Box<dyn Backend>, threads: usize) -> Result<Trainer> {
    Ok(match planned.config().offload.any() {
        true => Trainer::offloading(planned, device, devices::host(threads)?)?,
        false => Trainer::new(planned, device)?,
    })
}

/// Everything that is decided of a run before it is planned.
pub struct Recipe {
    /// What is trained and how, and what a planner may choose of it.
    pub step: Step,
    /// When the run logs, evaluates, samples and saves.
    pub every: Every,
    /// Rules for the checkpoints that stay, and for its end by the held-out loss.
    pub retention: Retention,
    /// What is trained on.
    pub data: Box<dyn Batches>,
    /// Where the weights come from.
    pub start: Start,
    /// Where weights lie that a checkpoint doesn't hold.
    pub places: Places,
    /// Directory of a new run; unset for the next number under `runs/`.
    pub out: Option<PathBuf>,
    /// Directory of a run that goes on.
    pub resumes: Option<PathBuf>,
    /// What there is to tell.
    pub notes: Vec<String>,
    /// The plan of a run that goes on.
    own: Option<PlanFile>,
    /// Text that a checkpoint brought along, which a new run keeps in its directory.
    #[cfg(not(target_family = "wasm"))]
    texts: Vec<(String, Vec<u8>)>,
    /// The settings filled in, for the run's directory and its checkpoints.
    record: Settings,
}

impl Recipe {
    /// What all ranks of a run must have alike, each with a name: settings that decide what is computed, and the data.
    ///
    /// # Errors
    /// Settings that can't be written: a path that isn't valid Unicode.
    #[cfg(not(target_family = "wasm"))]
    pub(crate) fn facts(&self) -> Result<Vec<(String, String)>> {
        let decide = LIST.iter().filter(|setting| !setting.passing);
        let mut facts = vec![];
        for setting in decide {
            let value =
                self.record.value(setting.key).help("a setting can't be written: report it")?;
            let value = value.map_or("unset".to_owned(), |value| value.to_string());
            facts.push((setting.key.to_owned(), value));
        }
        facts.push(("data".to_owned(), self.data.state(0).fingerprint));
        Ok(facts)
    }

    /// The recipe of a new run. Writes nothing.
    ///
    /// # Errors
    /// Settings that are wrong or don't hold together, and files that can't be read.
    pub fn new(said: &Settings) -> Result<Self> {
        let settings = said.clone();
        settings.check()?;
        if let Some(out) = &settings.run.out {
            directory::refuse_run(out)?;
        }
        let start = Self::fresh(&settings)?;
        let model = described(&settings)?;
        let notes = match &start {
            Start::Model(source) => source.notes.clone(),
            _ => Vec::new(),
        };
        Self::finished(settings, model, (start, true), notes)
    }

    /// The recipe of a run that goes on: of `named`, which may be a checkpoint by itself and then goes on as a new run;
    /// else of `run.out`, else of the newest under `runs/`. Writes nothing.
    ///
    /// # Errors
    /// As [`Recipe::new`]; a directory without a run; and settings or data with which the checkpoint doesn't continue.
    pub fn resume(said: &Settings, named: Option<&Path>) -> Result<Self> {
        if let Some(path) = named.filter(|path| is_checkpoint(path)) {
            return Self::from_checkpoint(said, Source::open(path)?, true);
        }
        let dir = directory::existing(named, said.run.out.as_deref())?;
        loop {
            let listed = checkpoint::list(&dir).ok();
            let error = match Self::of_run(said, &dir) {
                Err(error) => error,
                recipe => return recipe,
            };
            // A process that trains in the directory removes checkpoints during this read.
            directory::refuse_taken(&dir)?;
            if checkpoint::list(&dir).ok() == listed {
                return Err(error);
            }
        }
    }

    /// The recipe of a run that goes on in its directory.
    fn of_run(said: &Settings, dir: &Path) -> Result<Self> {
        let file = dir.join(RUN_SETTINGS);
        // Somebody else's run could show lines of any file in what is wrong with it.
        if file.is_symlink() {
            let message =
                anyhow!("`{}` is a link, and a run follows none in its directory", file.display());
            return Err(Error::usage(message, "put the file itself there"));
        }
        let (mut before, text) = (Settings::default(), text_of(&file)?);
        before.read_text(&file.display().to_string(), &text)?;
        let mut settings = before.clone().over(said);
        settings.rechoose_micro_batch(said);
        settings.check()?;
        let mut notes = Vec::new();
        let (start, model) = if checkpoint::list(dir).help("check the run directory")?.is_empty() {
            notes.push("the run has no checkpoint yet and starts from the beginning".to_owned());
            let model = described(&settings)?;
            (Self::fresh(&settings)?, model)
        } else {
            let source = Source::open(dir)?;
            source.keeps_adapters(said)?;
            notes.extend(source.notes.iter().cloned());
            let model = source.config.clone();
            model::agrees(&settings, &model, &source.dir)?;
            (Start::Checkpoint(Box::new(source)), Described::known(model))
        };
        if !is_as_written(&text) {
            continues::check_changed_file(&file, &before, said, start.checkpoint())?;
        }
        let unchanged = before.memory == settings.memory
            && before.train.micro_batch == settings.train.micro_batch;
        let own = if unchanged { PlanFile::read(&directory::plan_file(dir)).ok() } else { None };
        let mut recipe = Self::finished(settings, model, (start, true), notes)?;
        let note = recipe.start.checkpoint().and_then(|checkpoint| {
            schedule_note(
                &before.train.learning_rate(),
                &recipe.step.rate,
                checkpoint.manifest.step,
            )
        });
        recipe.notes.extend(note);
        Ok(Self { resumes: Some(dir.to_owned()), own, ..recipe })
    }

    /// The recipe of the run in `run.out`, which goes on where there is one and begins where there is none: the same words start a run, and
    /// start it again. Writes nothing.
    ///
    /// # Errors
    /// As [`Recipe::resume`]; no `run.out`.
    pub fn new_or_resumed(said: &Settings) -> Result<Self> {
        let Some(out) = &said.run.out else {
            return Err(Error::usage(
                anyhow!("a run that starts again needs the same directory each time"),
                "name it with --out",
            ));
        };
        if is_run(out) { Self::resume(said, Some(out)) } else { Self::new(said) }
    }

    /// The recipe of a new run that goes on from a checkpoint; `strict` as in `continues::check`.
    fn from_checkpoint(said: &Settings, source: Source, strict: bool) -> Result<Self> {
        let settings = source.settings(said)?;
        if let Some(out) = &settings.run.out {
            directory::refuse_run(out)?;
        }
        let model = source.config.clone();
        model::agrees(&settings, &model, &source.dir)?;
        let (model, start) = (Described::known(model), Start::Checkpoint(Box::new(source)));
        Self::finished(settings, model, (start, strict), Vec::new())
    }

    /// Where a run begins that has no checkpoint.
    fn fresh(settings: &Settings) -> Result<Start> {
        Ok(match &settings.model.init {
            Some(init) => Start::Model(Box::new(Source::open_whole(init)?)),
            None => Start::Seed,
        })
    }

    /// Fills in the settings of a run of `model`, and opens its data.
    fn finished(
        settings: Settings,
        described: Described,
        (start, strict): (Start, bool),
        mut notes: Vec<String>,
    ) -> Result<Self> {
        let Described { model, images, texts } = described;
        let mut settings = settings;
        teacher::found(&mut settings, start.checkpoint());
        let of_decoder = match &model {
            Architecture::Language(model) => Some(model.vocab),
            Architecture::Classifier(model) => Some(model.decoder.vocab),
            Architecture::Vit(_) | Architecture::Bert(_) => None,
        };
        if let Some(vocab) = of_decoder {
            let own = corpus::of_vocabulary(&settings, vocab)?;
            settings.data.tokenizer = settings.data.tokenizer.or(own.map(str::to_owned));
        }
        let asked = settings.model.context;
        let length = Length::of(&mut settings);
        let names_rate = settings.train.lr.is_some();
        let mut settings = step::filled(&settings, &model)?;
        // Rows have lengths of their own, which a context follows that nobody names.
        let positions = std::mem::replace(&mut settings.model.context, asked);
        notes.extend(settings.notes());
        #[cfg(not(target_family = "wasm"))]
        notes.extend(validation::by_split(&mut settings, &model)?);
        #[cfg(not(target_family = "wasm"))]
        validation::check(&mut settings, &model)?;
        length::check_held_out(&settings)?;
        let mut brought = Vec::new();
        let data: Box<dyn Batches> = match &model {
            Architecture::Language(model) => {
                let data = Self::text(&mut settings, model, &start, &mut brought, &mut notes)?;
                #[cfg(not(target_family = "wasm"))]
                let data =
                    validation::validated(data, &settings, &mut notes, |settings, notes| {
                        Self::text(settings, model, &start, &mut Vec::new(), notes)
                    })?;
                data
            }
            Architecture::Vit(model) => {
                let normalization = start.normalization(model.colors)?;
                Box::new(LabelledImages::open(&settings.data, model, images, normalization)?)
            }
            #[cfg(not(target_family = "wasm"))]
            Architecture::Classifier(of_decoder) => {
                let by = (of_decoder, &start);
                let data = labelled::of_decoder(&mut settings, by, texts, &mut notes)?;
                validation::validated(data, &settings, &mut notes, |settings, notes| {
                    labelled::of_decoder(settings, by, None, notes)
                })?
            }
            #[cfg(target_family = "wasm")]
            Architecture::Classifier(_) => {
                return Err(Error::usage(
                    anyhow!("the model classifies texts, and a browser reads no rows with labels"),
                    "train it with the command",
                ));
            }
            Architecture::Bert(model) => {
                let opened = (texts, &mut brought);
                let data = encoder::data(&mut settings, model, &start, opened, &mut notes)?;
                #[cfg(not(target_family = "wasm"))]
                let data =
                    validation::validated(data, &settings, &mut notes, |settings, notes| {
                        let opened = (None, &mut Vec::new());
                        encoder::data(settings, model, &start, opened, notes)
                    })?;
                data
            }
        };
        settings.model.context = settings.model.context.or(positions);
        if !names_rate {
            // Preferences have a rate of their own, and rows tell that they are some.
            settings.train.lr = Some(step::peak_rate(&settings, &model));
            settings.check()?;
        }
        let model = match start {
            Start::Seed => model.with_positions(settings.model.context),
            _ => model,
        };
        let step = Step::of_filled(&settings, model)?;
        let recipe = Self::on_data(step, (settings, length), (start, strict), data)?;
        notes.extend(recipe.notes.iter().cloned());
        notes.extend(length::note_on_evaluations(&recipe.record));
        notes.extend(step::note_on_adapters(&recipe.step.config)?);
        if let Start::Model(source) = &recipe.start {
            notes.extend(source.notes_on_start(&recipe.step.config)?);
        }
        Ok(Self {
            notes,
            #[cfg(not(target_family = "wasm"))]
            texts: brought,
            ..recipe
        })
    }

    /// The recipe of a run on data that the program opened itself: a new one, or one that goes on from `checkpoint`. What
    /// isn't said is then the default and not the checkpoint's; sizes of the model are the checkpoint's.
    ///
    /// # Errors
    /// As [`Recipe::new`]; a checkpoint of another model, seed, data or optimizer state.
    pub fn on(
        said: &Settings,
        data: Box<dyn Batches>,
        checkpoint: Option<Checkpoint>,
    ) -> Result<Self> {
        let (model, start) = Self::beginning(said, checkpoint)?;
        if let (Architecture::Language(model), Some(tokenizer)) = (&model, data.tokenizer()) {
            corpus::fits(tokenizer, model.vocab, false)?;
        }
        let mut settings = said.clone();
        let length = Length::of(&mut settings);
        let mut settings = step::filled(&settings, &model)?;
        teacher::found(&mut settings, start.checkpoint());
        let step = Step::of_filled(&settings, model)?;
        Self::on_data(step, (settings, length), (start, true), data)
    }

    /// As [`Recipe::on`], on labelled images that the program opened itself.
    ///
    /// # Errors
    /// As [`Recipe::on`]; a model that reads no images, and images of another size or of more classes than its.
    pub fn on_images(
        said: &Settings,
        images: ImageDataset,
        checkpoint: Option<Checkpoint>,
    ) -> Result<Self> {
        let (model, start) = Self::beginning(said, checkpoint)?;
        let mut settings = said.clone();
        let length = Length::of(&mut settings);
        let settings = step::filled(&settings, &model)?;
        let Architecture::Vit(vit) = &model else {
            let message = "the data is images, and the model is a language model".to_owned();
            let help = "choose `model.family` vit, or train on a text";
            return Err(said.error(&["model.family"], message, help).into());
        };
        let normalization = start.normalization(vit.colors)?;
        let data = LabelledImages::open(&settings.data, vit, Some(images), normalization)?;
        let step = Step::of_filled(&settings, model)?;
        Self::on_data(step, (settings, length), (start, true), Box::new(data))
    }

    /// The model of a run on the program's own data, and where it begins.
    fn beginning(said: &Settings, checkpoint: Option<Checkpoint>) -> Result<(Architecture, Start)> {
        said.check()?;
        let Some(checkpoint) = checkpoint else {
            return Ok((described(said)?.model, Self::fresh(said)?));
        };
        let source = Source::of_checkpoint(checkpoint, Vec::new())?;
        model::agrees(said, &source.config, &source.dir)?;
        let mut model = source.config.clone();
        if let (Architecture::Language(model), Some(dropout)) = (&mut model, said.model.dropout) {
            model.dropout = dropout;
        }
        Ok((model, Start::Checkpoint(Box::new(source))))
    }

    /// The recipe of a run of the program's own model on data that it opened itself: a new one, or one that goes on from
    /// `checkpoint`, whose settings hold where `said` has none. Unless `strict`, the ops of the model may differ from the checkpoint's,
    /// and other weights may be frozen: optimizer state of weights that were frozen begins at 0. A new run begins with the weights that are
    /// `given`, if any are; adapters that go on are beside the same ones again.
    ///
    /// # Errors
    /// As [`Step::of_own`]; a checkpoint of another seed, data, model or optimizer state.
    pub fn own(
        said: &Settings,
        model: Arc<dyn Model>,
        data: Box<dyn Batches>,
        (checkpoint, given): (Option<Checkpoint>, Option<Given>),
        strict: bool,
    ) -> Result<Self> {
        let mut settings = Settings::default();
        if let Some(checkpoint) = &checkpoint {
            let path = checkpoint.path.display().to_string();
            settings.read_json(&checkpoint.manifest.settings, &Origin::Checkpoint(path))?;
            if strict {
                continues::check_ops(checkpoint, &*model)?;
            }
        }
        let settings = settings.over(said);
        settings.check()?;
        let settings = step::filled_own(&settings, &*model)?;
        let start = match (checkpoint, given) {
            (Some(checkpoint), given) => Start::Own(Box::new(checkpoint), given),
            (None, Some(given)) => Start::Given(given),
            (None, None) => Start::Seed,
        };
        let length = Length::known(&settings);
        let step = Step::of_filled_own(&settings, model)?;
        Self::on_data(step, (settings, length), (start, strict), data)
    }

    /// The recipe of a step by the settings that it was made from, on data that is open, by which its length is settled. `strict` as in
    /// `continues::check`.
    fn on_data(
        step: Step,
        (mut settings, length): (Settings, Length),
        (start, strict): (Start, bool),
        data: Box<dyn Batches>,
    ) -> Result<Self> {
        if let Some(checkpoint) = start.checkpoint() {
            continues::check(checkpoint, &settings, &*data, strict)?;
        }
        let vocab = language(&step.config).map(|model| model.vocab);
        teacher::check(&settings, (data.tokenizer(), vocab), start.checkpoint())?;
        let mut step = step;
        step.config.shorter = data.shorter();
        // A run that goes on keeps its model.
        step.scope.new_model &= start.checkpoint().is_none();
        let note = length.settle(&mut settings, &mut step, &*data)?;
        Ok(Self {
            step,
            every: Every::of(&settings.run),
            retention: Retention::of(&settings),
            data,
            start,
            places: Places::of(&settings),
            out: settings.run.out.clone(),
            resumes: None,
            notes: note.into_iter().collect(),
            own: None,
            #[cfg(not(target_family = "wasm"))]
            texts: Vec::new(),
            record: settings,
        })
    }

    /// The text or the conversations of a run. What a checkpoint `brought` along and what there is to tell are added there, and
    /// what is decided of conversations to the settings.
    fn text(
        settings: &mut Settings,
        &ModelConfig { vocab, context: positions, .. }: &ModelConfig,
        start: &Start,
        brought: &mut Vec<(String, Vec<u8>)>,
        notes: &mut Vec<String>,
    ) -> Result<Box<dyn Batches>> {
        if let (Start::Checkpoint(source), true) = (start, settings.data.files.is_empty()) {
            *brought = source.own_texts()?;
        }
        let tokenizer = corpus::run_tokenizer(settings, start, vocab)?;
        #[cfg(not(target_family = "wasm"))]
        let first = if start.checkpoint().is_some() { First::Own } else { First::Asked };
        #[cfg(not(target_family = "wasm"))]
        let reader = Reader { settings, tokenizer: &tokenizer, model: start.source(), first };
        #[cfg(not(target_family = "wasm"))]
        if let Some(read) = reader.read()? {
            if first == First::Own {
                read::keeps_template(settings, read.template.as_ref(), &tokenizer)?;
            }
            settings.data.format = Some(read.format);
            settings.data.train_on.get_or_insert_default();
            if read.template.as_ref().is_some_and(ChatTemplate::is_dated) {
                settings.data.date.get_or_insert_with(ChatTemplate::today);
            }
            let mut chats = chats::laid_out(settings, &read, tokenizer, (positions, vocab))?;
            match start.checkpoint() {
                Some(checkpoint) => chats.refer_to_checkpoint(checkpoint)?,
                None if read.format == RowFormat::Preference => {
                    let weights = reference::weights_of(settings, start)?;
                    chats.begin_with(weights, &directory::beside(settings.run.out.as_deref()));
                }
                None => {}
            }
            notes.extend(read.notes.into_iter().chain(chats.notes()));
            return Ok(Box::new(chats));
        }
        #[cfg(not(target_family = "wasm"))]
        if first == First::Asked {
            labelled::refuse_on_decoder(settings)?;
        }
        #[cfg(target_family = "wasm")]
        let _ = (notes, positions);
        #[cfg(not(target_family = "wasm"))]
        if piped::is(&settings.data.files) {
            return Ok(Box::new(Piped::open(tokenizer)?));
        }
        Ok(Box::new(Text::open(&settings.data, tokenizer, vocab, brought.clone())?))
    }

    /// Plans the step on `device`: the run's own plan comes first, then the one that was named, then the fastest that fits
    /// the budget and what is free now.
    ///
    /// # Errors
    /// [`Kind::DoesNotFit`](crate::error::Kind) with what would fit, and a plan file of another step.
    pub fn plan(self, device: Box<dyn Backend>) -> Result<Planned> {
        Planned::of(self, device)
    }

    /// With a plan that was found already, for the device that it was found for.
    pub fn with_plan(self, step: nn::Planned, device: Box<dyn Backend>) -> Planned {
        Planned::with(self, step, device)
    }
}
/// What a run that has `done` so many steps does where its schedule isn't the one that it began with.
fn schedule_note(began: &LearningRate, now: &LearningRate, done: u64) -> Option<String> {
    (began != now && done > 0).then(|| {
        format!(
            "from step {} on, the learning rate follows the schedule of {} steps: it goes on at {:.2e}, and was to go on at {:.2e}",
            done + 1,
            now.steps,
            now.lr_at(done),
            began.lr_at(done)
        )
    })
}
