//! Conversations as the data of a run.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::anyhow;
use tightrope_data::{
    BucketCount, ChatTemplate, Chats, ChatsConfig, Checkpoint, Counts, DataState, Loader, RowBatch,
    RowFormat, Rows, Sequences, Source, Tokenizer,
};
use tightrope_nn::{Done, TrainerConfig, defaults};

use super::context::{Context, longest};
use super::read::Read;
use super::reference::Reference;
use super::rows;
use crate::error::{Error, Help as _, Result};
use crate::run::{Batches, Epoch, HeldOut, Question, Samples};
use crate::settings::{self, Settings};
use crate::units::{human_count, plural};
use crate::weights::source::Source as Weights;
use crate::weights::templates;

/// Share of padding in all positions from which on a note names layouts with less: a quarter of a step's work.
const MUCH: f64 = 0.25;
/// A layout is named if it leaves at most this part of the padding.
const BETTER: f64 = 0.8;

/// Opens the rows that the settings name for a run of a model with these numbers of positions and tokens. Writes the context and the lengths of batches to
/// the settings.
///
/// # Errors
/// As [`Conversations::open`].
pub(super) fn laid_out(
    settings: &mut Settings,
    read: &Read,
    tokenizer: Tokenizer,
    (positions, vocab): (usize, usize),
) -> Result<Conversations> {
    let context = Context::asked(settings, positions);
    let chats = Conversations::open(&settings.data, read, tokenizer, context, vocab)?;
    settings.model.context = Some(chats.context());
    let count = if settings.data.packing { BucketCount::ONE } else { BucketCount::Auto };
    let count = *settings.data.buckets.get_or_insert(count);
    Ok(chats.in_buckets(count, &settings.train))
}

/// Conversations of files, encoded.
pub struct Conversations {
    tokenizer: Tokenizer,
    /// Files of the template for checkpoints.
    template_files: Vec<(String, Vec<u8>)>,
    chats: Chats,
    /// The rows of `train` and of `held_out`.
    train_rows: Rows,
    held_out_rows: Rows,
    /// Text that ends the assistant's turns; empty if none does.
    end_of_turn: String,
    train: Sequences,
    held_out: Sequences,
    origin: String,
    holdout: f64,
    packing: bool,
    loader: Option<Loader<RowBatch>>,
    context: usize,
    /// A note on the choice of the context, unless the settings name it.
    context_note: Option<String>,
    /// Samples of a batch, and the seed of their order.
    batch: usize,
    seed: u64,
    /// Whether a row is a chosen and a rejected answer.
    preferences: bool,
    /// What these are compared with, once that is known.
    reference: Option<Reference>,
    /// The run that it was found in.
    referred: Option<PathBuf>,
    /// A hash of the weights that the run begins with, where they are known.
    weights: Option<String>,
}

impl Conversations {
    /// Reads and encodes the files that `data` names, for sequences of this context and a model of `vocab` tokens.
    ///
    /// # Errors
    /// Files and rows that can't be read, by name and number, and rows with a token that the model has no row for.
    pub fn open(
        data: &settings::Data,
        read: &Read,
        tokenizer: Tokenizer,
        context: Context,
        vocab: usize,
    ) -> Result<Self> {
        let config = ChatsConfig {
            format: read.format,
            tokenizer: &tokenizer,
            template: read.template.as_ref(),
            templated_texts: data.chat_template.is_some(),
            train_on: data.train_on.unwrap_or_default(),
            context: None,
        };
        let (chats, tokens) = context.read(&data.files, config)?;
        if let Some((row, id)) = chats.beyond(vocab) {
            return Err(rows::beyond_rows(&tokenizer, id, vocab, &format!("row {row}")));
        }
        let context_note = context.note(tokens, longest(&chats));
        let context = tokens;
        let (holdout, packing) = (data.holdout, data.packing);
        let (train, held_out) = chats.split(holdout).help("check data.holdout")?;
        let preferences = read.format == RowFormat::Preference;
        let count = if preferences { chats.rows().len() } else { 0 };
        let unknown: Arc<[f32]> = vec![0.0; count].into();
        let sequences = |rows| -> Result<Sequences> {
            Ok(Sequences::new(rows, context, packing)?.with_numbers(unknown.clone()))
        };
        let (train_rows, held_out_rows) = (train.clone(), held_out.clone());
        let template = read.template.as_ref().filter(|_| chats.counts().templated > 0);
        let end_of_turn = template.map(ChatTemplate::end_of_turn).unwrap_or_default();
        let (train, held_out) = (sequences(train)?, sequences(held_out)?);
        let origin = match data.files.as_slice() {
            [file] => file.display().to_string(),
            files => format!("{} files", files.len()),
        };
        let template_files =
            read.template.as_ref().map(|template| templates::packed(&template.files()));
        let template_files = template_files.transpose()?.unwrap_or_default();
        Ok(Self {
            tokenizer,
            template_files,
            chats,
            train_rows,
            held_out_rows,
            end_of_turn,
            train,
            held_out,
            origin,
            holdout,
            packing,
            loader: None,
            context,
            context_note,
            batch: defaults::BATCH,
            seed: defaults::SEED,
            preferences,
            reference: None,
            referred: None,
            weights: None,
        })
    }

    /// In batches of like length, as many at a time as `train` says, padded to so many lengths.
    fn in_buckets(mut self, count: BucketCount, train: &settings::Train) -> Self {
        self.train = self.train.in_buckets(count);
        self.batch = train.batch.unwrap_or(defaults::BATCH);
        self.seed = train.seed;
        self
    }

    /// Compares preferences with the reference of a run, as its checkpoint holds it.
    ///
    /// # Errors
    /// A checkpoint without one, or with one of other pairs.
    pub fn refer_to_checkpoint(&mut self, checkpoint: &Checkpoint) -> Result<()> {
        if self.preferences {
            let (count, rows) = (self.chats.rows().len(), self.chats.fingerprint());
            self.set_reference(Reference::of_checkpoint(checkpoint, count, &rows)?);
        }
        Ok(())
    }

    /// Says by a hash which weights the run begins with. Where a run in the folder `runs` began with them too, on the same pairs,
    /// preferences are compared with its reference.
    pub fn begin_with(&mut self, weights: Option<String>, runs: &Path) {
        let (count, rows) = (self.chats.rows().len(), self.chats.fingerprint());
        let found = weights.as_deref();
        let found = found.and_then(|weights| Reference::of_runs(runs, count, &rows, weights));
        self.weights = weights;
        if let Some((run, reference)) = found {
            self.referred = Some(run);
            self.set_reference(reference);
        }
    }

    /// As [`Conversations::refer_to_checkpoint`], of a model that is scored on preferences.
    ///
    /// # Errors
    /// A model that isn't a run's.
    pub fn refer_to_model(&mut self, model: &Weights) -> Result<()> {
        match &model.checkpoint {
            Some(checkpoint) => self.refer_to_checkpoint(checkpoint),
            None if !self.preferences => Ok(()),
            None => Err(Error::usage(
                anyhow!(
                    "`{}` is no run, and has no reference that preferences are compared with",
                    model.dir.display()
                ),
                "name a run that was trained on them",
            )),
        }
    }

    fn set_reference(&mut self, reference: Reference) {
        for sequences in [&mut self.train, &mut self.held_out] {
            *sequences = sequences.clone().with_numbers(reference.values.clone());
        }
        // It has read ahead.
        self.loader = None;
        self.reference = Some(reference);
    }

    /// Tokens of a sequence.
    pub fn context(&self) -> usize {
        self.context
    }

    /// The data's name, and its number of files where there are several.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// What there is to tell: rows that were cut or left out, and how much of a sequence is padding.
    pub fn notes(&self) -> Vec<String> {
        let Counts { merged, .. } = self.chats.counts();
        let mut notes: Vec<String> = self.context_note.iter().cloned().collect();
        if let Some(run) = &self.referred {
            notes.push(format!(
                "the reference is that of `{}`, which began with the same weights on the same pairs",
                run.display()
            ));
        }
        if self.preferences && self.reference.is_none() {
            notes.push(format!(
                "the reference is the model before its first step, which goes over {} once before that",
                plural(self.chats.rows().len() / 2, "pair", "pairs")
            ));
        }
        if merged > 0 {
            notes.push(format!(
                "the prompt of {} ends in other tokens before its completion than alone, as it would at inference: end it where a token ends",
                plural(merged, "row", "rows")
            ));
        }
        notes.extend(self.truncation_notes());
        notes.push(self.padding_note());
        notes
    }

    /// Notes on rows that were cut or left out.
    pub fn truncation_notes(&self) -> Vec<String> {
        let Counts { truncated, dropped, .. } = self.chats.counts();
        let context = self.context;
        let mut notes = vec![];
        if truncated > 0 {
            notes.push(format!(
                "{} cut to the context of {context} tokens",
                plural(truncated, "row is", "rows are")
            ));
        }
        if dropped > 0 && self.preferences {
            notes.push(format!(
                "{} left out: an answer, or all that tells the two apart, lies behind the context of {context} tokens",
                plural(dropped, "row is", "rows are")
            ));
        } else if dropped > 0 {
            notes.push(format!(
                "{} left out: all that is trained on lies behind the context of {context} tokens",
                plural(dropped, "row is", "rows are")
            ));
        }
        notes
    }

    /// A note on the share of padding, with layouts that have less.
    fn padding_note(&self) -> String {
        let context = self.context;
        let share_of = |sequences: &Sequences| {
            let share = sequences.padding_in_batches(self.batch, self.seed);
            share.unwrap_or_else(|_| sequences.padding())
        };
        let share = share_of(&self.train);
        let padding = format!("{:.1} % of the positions are padding", 100.0 * share);
        let lengths = self.train.buckets();
        let told = match self.packing {
            true => format!(
                "{} packed into {} of {context} tokens; {padding}",
                plural(self.train.rows(), "row is", "rows are"),
                plural(self.train.len(), "sequence", "sequences")
            ),
            false if lengths.len() > 1 => {
                let lengths: Vec<String> = lengths.iter().map(ToString::to_string).collect();
                format!(
                    "batches are of like length, padded to {} tokens; {padding}, and {:.1} % would be of {context} alone",
                    lengths.join(", "),
                    100.0 * self.train.padding()
                )
            }
            false => padding,
        };
        if share <= MUCH {
            return told;
        }
        let mut others = Vec::new();
        let mut offer = |words: String, other: f64| {
            if other < BETTER * share {
                others.push(format!("{words} leaves {:.1} %", 100.0 * other));
            }
        };
        if !self.packing && lengths.len() == 1 {
            let grouped = self.train.clone().in_buckets(BucketCount::Auto);
            offer("--buckets auto".to_owned(), share_of(&grouped));
        }
        if !self.packing && !self.preferences {
            let packed = Sequences::new(self.train_rows.clone(), context, true);
            offer("--packing".to_owned(), packed.map_or(1.0, |packed| packed.padding()));
        }
        let longest = longest(&self.chats).max(1);
        if longest < context {
            let fewer = 1.0 - (1.0 - share) * context as f64 / longest as f64;
            offer(format!("--context {longest}, as the longest row has,"), fewer.max(0.0));
        }
        if others.is_empty() { told } else { format!("{told}; {}", others.join(", ")) }
    }

    /// Samples that score what is held out where something is, else everything, and the number of its rows.
    ///
    /// # Errors
    /// Sequences of no tokens.
    pub fn scored(&self, config: &TrainerConfig) -> Result<(HeldOut, usize)> {
        let scored = if self.holdout > 0.0 { &self.held_out } else { &self.train };
        Ok((self.in_order_of(scored, config, None)?, scored.rows()))
    }

    /// The samples of `sequences` in order, or the first that hold `most` tokens, padding included.
    fn in_order_of(
        &self,
        sequences: &Sequences,
        config: &TrainerConfig,
        most: Option<usize>,
    ) -> Result<HeldOut> {
        let packing = self.packing;
        let most = most.map(|most| (most / config.model.tokens()).max(1));
        let samples = sequences.batches(1, most)?;
        Ok(Box::new(samples.map(move |sample| Ok(Samples::of_rows(sample, packing)))))
    }
}

impl Batches for Conversations {
    fn seek(&mut self, config: &TrainerConfig, at: Done) -> Result<()> {
        if self.loader.as_ref().is_none_or(|loader| loader.position() != at.samples) {
            let TrainerConfig { batch, seed, .. } = *config;
            // The one before has a thread of its own, which ends first.
            self.loader = None;
            let sequences = self.train.clone().padded_to(config.shorter());
            let loader = Loader::of_sequences(sequences, batch, seed, at.samples);
            self.loader = Some(loader.help("give more --data, or a smaller data.holdout")?);
        }
        Ok(())
    }

    fn batch(&mut self, config: &TrainerConfig, at: Done) -> Result<Samples> {
        self.seek(config, at)?;
        let loader = self.loader.as_mut().expect("`seek` leaves one");
        Ok(Samples::of_rows(loader.next().help("resume the run")?, self.packing))
    }

    fn epoch(&self, _: &TrainerConfig) -> Result<Option<Epoch>> {
        let unit = match (self.packing, self.preferences) {
            (true, _) => ["packed sequence", "packed sequences"],
            (false, true) => ["pair", "pairs"],
            (false, false) => ["row", "rows"],
        };
        Ok(Some(Epoch { samples: self.train.len() as u64, unit }))
    }

    fn shorter(&self) -> Vec<usize> {
        let (_, shorter) = self.train.buckets().split_last().unwrap_or((&0, &[]));
        shorter.to_vec()
    }

    fn held_out(&self, config: &TrainerConfig, most: Option<usize>) -> Result<HeldOut> {
        self.in_order_of(&self.held_out, config, most)
    }

    fn questions(&self, most: usize) -> Vec<Question> {
        let rows = match self.held_out_rows.is_empty() {
            true => &self.train_rows,
            false => &self.held_out_rows,
        };
        let asked = (0..rows.len()).step_by(rows.each()).map(|row| rows.question(row));
        // A question that fills the context leaves no room for an answer.
        let fits = asked.filter(|tokens| (1..self.context).contains(&tokens.len()));
        let end = &self.end_of_turn;
        fits.take(most).map(|tokens| Question { tokens, end: end.clone() }).collect()
    }

    fn in_order(&self, config: &TrainerConfig, most: Option<usize>) -> Result<HeldOut> {
        self.in_order_of(&self.train, config, most)
    }

    fn unreferenced(&self, config: &TrainerConfig) -> Result<Option<HeldOut>> {
        if !self.preferences || self.reference.is_some() {
            return Ok(None);
        }
        let rows = self.chats.rows();
        let unknown = vec![0.0; rows.len()].into();
        let all = Sequences::new(rows, self.context, false)?.with_numbers(unknown);
        self.in_order_of(&all, config, None).map(Some)
    }

    fn refer_to(&mut self, _: &TrainerConfig, log_likelihoods: Vec<f32>) -> Result<()> {
        let (rows, weights) = (self.chats.fingerprint(), self.weights.as_deref());
        self.set_reference(Reference::new(log_likelihoods, &rows, weights)?);
        Ok(())
    }

    fn work_share(&self) -> f64 {
        let [whole, grouped] = [
            1.0 - self.train.padding(),
            1.0 - self.train.padding_in_batches(self.batch, self.seed).unwrap_or(0.0),
        ];
        if grouped > 0.0 { (whole / grouped).min(1.0) } else { 1.0 }
    }

    fn state(&self, samples: u64) -> DataState {
        let sources: &[Source] = self.chats.sources();
        DataState::new(samples, sources, self.tokenizer.name(), self.holdout)
    }

    fn files(&self) -> Vec<(String, Vec<u8>)> {
        let template = self.template_files.iter().cloned();
        let reference = self.reference.iter().map(|reference| reference.file.clone());
        self.tokenizer.files().into_iter().chain(template).chain(reference).collect()
    }

    fn tokenizer(&self) -> Option<&Tokenizer> {
        Some(&self.tokenizer)
    }

    fn describe(&self) -> String {
        let Counts { tokens, trained, .. } = self.chats.counts();
        format!(
            "{}: {} {} to train on, {} held out, {} tokens of which {:.1} % are trained on, {}",
            self.origin,
            human_count(self.train.rows() as f64),
            if self.preferences { "pairs" } else { "conversations" },
            human_count(self.held_out.rows() as f64),
            human_count(tokens as f64),
            100.0 * trained as f64 / tokens.max(1) as f64,
            self.tokenizer.name(),
        )
    }
}
