//! Labelled texts as the data of a run: an encoder or a decoder classifies them.

use anyhow::anyhow;
use tightrope_data::{
    Classes, DataState, LabelledRows, LabelledTexts, Loader, LoaderConfig, PaddedTexts, RowFormat,
    TextBatch, Tokenizer, is_labelled,
};
use tightrope_nn::{ClassifierConfig, Done, TrainerConfig};

use super::context::Context;
use super::corpus;
use crate::classifies::Classifies;
use crate::error::{Error, Help as _, Result};
use crate::run::{Batches, Epoch, HeldOut, Samples};
use crate::settings::{self, Settings};
use crate::units::{human_count, plural};
use crate::weights::Start;

/// Least tokens of a sequence: those around two texts, and one of a text.
const LEAST: usize = 4;

/// Opens the labelled texts that the settings of a model of texts name, where it classifies them; `None` where it doesn't. `known` are the
/// classes of the model that it starts from. Rows may be told by their columns unless it `classifies` by what is known already.
///
/// # Errors
/// Files that are missing, rows that can't be classified, and a format that an encoder doesn't read.
pub(super) fn named(
    settings: &Settings,
    known: Option<Classifies>,
    classifies: bool,
) -> Result<Option<LabelledTexts>> {
    let data = &settings.data;
    let key = data.text_key.as_deref();
    let labelled = match data.format.unwrap_or_default() {
        RowFormat::Labelled => true,
        RowFormat::Text => false,
        RowFormat::Auto => classifies || is_labelled(&data.files, key)?,
        other => {
            let message = format!("`data.format` is {}, and the model is an encoder", other.name());
            let help = "say labelled, or text to predict masked tokens, or choose a language model";
            return Err(settings.error(&["data.format"], message, help).into());
        }
    };
    if !labelled || data.files.is_empty() {
        return Ok(None);
    }
    let known = known.map(|known| known.classes);
    LabelledTexts::open(&data.files, key, known.as_ref()).map(Some).map_err(Into::into)
}

/// The labelled texts of a run of a model, which has `positions`. Format and context of the rows are added to the settings, and notes on them to the
/// notes.
///
/// # Errors
/// As [`Labelled::open`].
pub(super) fn opened(
    settings: &mut Settings,
    (classifies, positions): (Classifies, usize),
    (opened, tokenizer): (Option<LabelledTexts>, Tokenizer),
    notes: &mut Vec<String>,
) -> Result<Box<dyn Batches>> {
    settings.data.format = Some(RowFormat::Labelled);
    let context = Context::asked(settings, positions);
    let labelled = Labelled::open(&settings.data, classifies, opened, tokenizer, context)?;
    settings.model.context = Some(labelled.context());
    notes.extend(labelled.notes());
    Ok(Box::new(labelled))
}

/// As [`opened`], of a run of a decoder that classifies.
///
/// # Errors
/// As there, and a tokenizer that can't be read.
pub(super) fn of_decoder(
    settings: &mut Settings,
    (model, start): (&ClassifierConfig, &Start),
    opened_texts: Option<LabelledTexts>,
    notes: &mut Vec<String>,
) -> Result<Box<dyn Batches>> {
    let tokenizer = corpus::run_tokenizer(settings, start, model.decoder.vocab)?;
    let described = (Classifies::of_decoder(model), model.decoder.context);
    opened(settings, described, (opened_texts, tokenizer), notes)
}

/// Labelled texts, as tokens.
pub struct Labelled {
    tokenizer: Tokenizer,
    rows: LabelledRows,
    train: LabelledRows,
    held_out: LabelledRows,
    classifies: Classifies,
    origin: String,
    holdout: f64,
    loader: Option<Loader<TextBatch>>,
    context: usize,
    /// A note on the choice of the context, unless the settings name it.
    context_note: Option<String>,
    /// A note on names of classes.
    classes_note: Option<String>,
}

impl Labelled {
    /// Encodes the texts that the settings name for a model, or those that are `opened` already, for sequences of this context.
    ///
    /// # Errors
    /// Files and rows that can't be read, by name and number; labels that the model doesn't know; and a tokenizer without the tokens that
    /// an encoder reads.
    pub fn open(
        data: &settings::Data,
        classifies: Classifies,
        opened: Option<LabelledTexts>,
        tokenizer: Tokenizer,
        asked: Context,
    ) -> Result<Self> {
        if data.files.is_empty() {
            return Err(Error::usage(
                anyhow!("the model classifies texts, and no file of them is named"),
                "name files of rows with a text and a label with --data",
            ));
        }
        let texts = match opened {
            Some(texts) => texts,
            None => {
                let key = data.text_key.as_deref();
                LabelledTexts::open(&data.files, key, Some(&classifies.classes))?
            }
        };
        let rows = texts.encode(&tokenizer, classifies.reader, asked.most())?;
        // A row that was cut has as many tokens as there may be.
        let context = asked.tokens(rows.longest()).max(LEAST);
        let context_note = asked.note(context, rows.longest());
        let holdout = data.holdout;
        let (train, held_out) = rows.split(holdout).help("check data.holdout")?;
        let origin = match data.files.as_slice() {
            [file] => file.display().to_string(),
            files => format!("{} files", files.len()),
        };
        let classifies = Classifies { classes: texts.classes().clone(), ..classifies };
        let loader = None;
        Ok(Self {
            tokenizer,
            rows,
            train,
            held_out,
            classifies,
            origin,
            holdout,
            loader,
            context,
            context_note,
            classes_note: texts.note().map(str::to_owned),
        })
    }

    /// Tokens of a sequence.
    pub fn context(&self) -> usize {
        self.context
    }

    /// The data's name, and its number of files where there are several.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// What there is to tell: rows that were cut, and how much of a sequence is padding.
    pub fn notes(&self) -> Vec<String> {
        let context = self.context;
        let notes = self.context_note.iter().chain(&self.classes_note).cloned();
        let mut notes: Vec<String> = notes.chain(self.truncation_note()).collect();
        let places = (self.rows.len() * context).max(1) as f64;
        let padding = 1.0 - self.rows.tokens() as f64 / places;
        let mut note = format!("{:.1} % of the positions are padding", 100.0 * padding);
        let longest = self.rows.longest().max(LEAST);
        if padding > 0.5 && longest < context {
            let fewer = 1.0 - (1.0 - padding) * context as f64 / longest as f64;
            note += &format!(
                "; --context {longest}, as the longest row has, leaves {:.1} %",
                100.0 * fewer.max(0.0)
            );
        }
        notes.push(note);
        notes
    }

    /// A note on rows that were cut, if some were.
    pub fn truncation_note(&self) -> Option<String> {
        let (cut, context) = (self.rows.cut(), self.context);
        let rows = plural(cut, "row is", "rows are");
        (cut > 0).then(|| format!("{rows} cut to the context of {context} tokens"))
    }

    /// Samples that score what is held out where something is, else everything, and the number of its rows.
    ///
    /// # Errors
    /// Sequences of no tokens.
    pub fn scored(&self, config: &TrainerConfig) -> Result<(HeldOut, usize)> {
        let rows = if self.holdout > 0.0 { &self.held_out } else { &self.train };
        Ok((padded(rows, config, None)?, rows.len()))
    }
}

fn padded(rows: &LabelledRows, config: &TrainerConfig, most: Option<usize>) -> Result<HeldOut> {
    if rows.is_empty() {
        return Ok(Box::new(std::iter::empty()));
    }
    let seq_len = config.model.tokens();
    let most = most.map(|most| (most / seq_len).max(1));
    let rows = PaddedTexts::new(rows.clone(), 1, seq_len, most).help("check data.holdout")?;
    Ok(Box::new(rows.map(|row| Ok(row.into()))))
}

impl Batches for Labelled {
    fn seek(&mut self, config: &TrainerConfig, at: Done) -> Result<()> {
        if self.loader.as_ref().is_none_or(|loader| loader.position() != at.samples) {
            let TrainerConfig { batch, seed, .. } = *config;
            let order = LoaderConfig { batch, context: config.model.tokens(), seed };
            // The one before has a thread of its own, which ends first.
            self.loader = None;
            let loader = Loader::of_texts(self.train.clone(), order, at.samples);
            self.loader = Some(loader.help("give more --data, or a smaller data.holdout")?);
        }
        Ok(())
    }

    fn batch(&mut self, config: &TrainerConfig, at: Done) -> Result<Samples> {
        self.seek(config, at)?;
        let loader = self.loader.as_mut().expect("`seek` leaves one");
        Ok(loader.next().help("resume the run")?.into())
    }

    fn epoch(&self, _: &TrainerConfig) -> Result<Option<Epoch>> {
        Ok(Some(Epoch { samples: self.train.len() as u64, unit: ["row", "rows"] }))
    }

    fn held_out(&self, config: &TrainerConfig, most: Option<usize>) -> Result<HeldOut> {
        padded(&self.held_out, config, most)
    }

    fn in_order(&self, config: &TrainerConfig, most: Option<usize>) -> Result<HeldOut> {
        padded(&self.train, config, most)
    }

    fn state(&self, samples: u64) -> DataState {
        DataState::new(samples, self.rows.sources(), self.tokenizer.name(), self.holdout)
    }

    fn files(&self) -> Vec<(String, Vec<u8>)> {
        self.tokenizer.files()
    }

    fn tokenizer(&self) -> Option<&Tokenizer> {
        Some(&self.tokenizer)
    }

    fn classes(&self) -> Option<&Classes> {
        Some(&self.classifies.classes)
    }

    fn describe(&self) -> String {
        format!(
            "{}: {} texts to train on, {} held out, {} classes, {}",
            self.origin,
            human_count(self.train.len() as f64),
            human_count(self.held_out.len() as f64),
            self.classifies.classes.count,
            self.tokenizer.name(),
        )
    }
}

/// Refuses labelled texts for a model that classifies none, unless they're asked for as texts.
///
/// # Errors
/// Rows of a text and a label, and a file that can't be opened.
pub(super) fn refuse_on_decoder(settings: &Settings) -> Result<()> {
    let data = &settings.data;
    let asked = data.format.is_some_and(|format| format != RowFormat::Auto);
    if asked || data.text_key.is_some() || !is_labelled(&data.files, None)? {
        return Ok(());
    }
    Err(Error::usage(
        anyhow!("the rows have a `label`, and the model classifies nothing"),
        "give --format text to train on the texts alone, or --set model.classes=N to classify them, as an encoder does and a model whose \
         class is named …ForSequenceClassification",
    ))
}

#[cfg(test)]
mod tests {
    use tightrope_nn::Sampling;

    use crate::block_on;
    use crate::devices::Devices;
    use crate::recipe::Recipe;
    use crate::run::{Opening, Run};
    use crate::settings::Settings;

    #[test]
    fn classes_of_texts_are_told_between_steps() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        std::fs::write(file("vocab.txt"), "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\ngood\nbad\nday\n")
            .unwrap();
        let row = |n: usize| {
            let word = ["good", "bad"][n % 2];
            format!("{{\"text\": \"{word} day\", \"label\": \"{word}\"}}\n")
        };
        std::fs::write(file("rows.jsonl"), (0..40).map(row).collect::<String>()).unwrap();
        let mut said = Settings::default();
        let [rows, vocab] =
            ["rows.jsonl", "vocab.txt"].map(|name| file(name).display().to_string());
        for word in [
            "model.preset=bert-tiny".to_owned(),
            "model.layers=1".to_owned(),
            "model.channels=16".to_owned(),
            "model.dropout=0".to_owned(),
            "model.context=8".to_owned(),
            "train.batch=4".to_owned(),
            "train.lr=0.01".to_owned(),
            "run.device=cpu".to_owned(),
            format!("data.files=[{rows:?}]"),
            format!("data.tokenizer={vocab}"),
            "train.steps=1850".to_owned(),
        ] {
            said.read_argument(&word).unwrap();
        }
        let recipe = Recipe::new(&said).unwrap();
        let device = Devices::default().open(&recipe.step.device).unwrap();
        let planned = recipe.plan(device).unwrap();
        let reopen = || -> Opening<'static> { unreachable!("the processor isn't lost") };
        let mut run = Run::start(planned.parts(Box::new(reopen)).unwrap()).unwrap();
        run.by_ref().take(60).for_each(|step| drop(step.unwrap()));
        // More than a pass takes, and a pair.
        let mut texts = vec![("Good day", None); 5];
        texts.push(("bad day", Some("bad bad bad bad bad bad")));
        let found = run.classify_texts(&texts).unwrap();
        assert_eq!((found.len(), found[0].len()), (6, 2));
        assert!(found.iter().all(|row| (row.iter().sum::<f32>() - 1.0).abs() < 1e-5));
        // Named in alphabetical order.
        assert!(found[0][1] > 0.9 && found[5][0] > 0.9, "{found:?}");
        assert_eq!(found[0], found[4]);
        let error = run.classify(&[&[0; 4]]).unwrap_err();
        assert!(error.message().contains("data isn't images"), "{error}");
        let sampling = Sampling { temperature: 1.0, top_k: 0, top_p: 1.0, seed: 0, draw: 0 };
        let mut show = |_: &str| true;
        let error = block_on(run.generate_async("good", 2, &sampling, &mut show)).unwrap_err();
        assert!(error.message().contains("an encoder, which continues no text"), "{error}");
    }
}
