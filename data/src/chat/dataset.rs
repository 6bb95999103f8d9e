//! Conversations of files, encoded.

use std::fmt;
use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::sync::Arc;
use std::thread;

use minijinja::Value;
use tightrope_core::threads;
use xxhash_rust::xxh3::Xxh3;

use super::files::Layout;
use super::format::{RowFormat, TrainOn};
use super::mask::{Encoding, Sequence, TRAINED};
use super::preference::{ANSWERS, conversations};
use super::refused;
use super::row::{Problem, Row};
use super::template::ChatTemplate;
use crate::bytes::Bytes;
use crate::corpus::{check_holdout, named, unpacked};
use crate::permutation::Permutation;
use crate::source::{Source, content};
use crate::{Error, Result, Tokenizer};

/// Rows that are encoded side by side.
const BLOCK: usize = 1024;
/// Key of the order that held-out rows are drawn in: the same for every seed, so that runs score the same rows.
const HELD_OUT: u64 = 0x5f74;

/// How rows become tokens.
pub struct ChatsConfig<'a> {
    /// What a row holds; not [`RowFormat::Auto`] or [`RowFormat::Text`].
    pub format: RowFormat,
    /// Encodes the text.
    pub tokenizer: &'a Tokenizer,
    /// Writes messages as text.
    pub template: Option<&'a ChatTemplate>,
    /// Whether the template writes `prompt` and `completion` that are plain texts too. Else they are put one after the other,
    /// with the end-of-text token behind.
    pub templated_texts: bool,
    /// Which tokens are trained on.
    pub train_on: TrainOn,
    /// Tokens of a sequence (T). A row is cut to T + 1, as many as a sequence and its targets read; `None` cuts nothing.
    pub context: Option<usize>,
}

/// What became of the rows of files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Rows that are trained on.
    pub rows: usize,
    /// Tokens of these rows.
    pub tokens: usize,
    /// Tokens of these rows that are trained on.
    pub trained: usize,
    /// Rows among them that the chat template wrote.
    pub templated: usize,
    /// Rows among them, of plain texts, whose prompt ends in other tokens than it does alone, as some merge with the completion's. They are trained
    /// on from the first token that differs.
    pub merged: usize,
    /// Rows among them that were cut to the context.
    pub truncated: usize,
    /// Rows that were left out: all that was to be trained on, in one of two answers, is behind the cut, or all that tells them apart.
    pub dropped: usize,
}

/// Rows of conversations, encoded in memory. A row of preferences is two sequences: the chosen one, then the rejected one.
pub struct Chats {
    table: Arc<Table>,
    sources: Vec<Source>,
    /// Rows of all files so far.
    read: usize,
    lengths: Vec<u32>,
    counts: Counts,
}

/// Tokens of all sequences, one after the other, with [`TRAINED`] on those that are trained on.
#[derive(Default)]
struct Table {
    tokens: Vec<u32>,
    /// Where each sequence ends.
    ends: Vec<usize>,
    /// The number of its row among all rows of the files, from 0.
    numbers: Vec<usize>,
    /// Its tokens, uncut.
    uncut: Vec<u32>,
    /// Its tokens before the assistant's first turn, where all are trained on; 0 where that isn't told.
    questions: Vec<u32>,
    /// Sequences of a row.
    each: usize,
}

impl Table {
    fn sequence(&self, index: usize) -> &[u32] {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.tokens[start..self.ends[index]]
    }
}

impl Chats {
    /// Reads and encodes `files`, as [`Corpus::open`](crate::Corpus::open) names them, on all cores.
    ///
    /// # Errors
    /// A file that can't be read or that has no rows, a row that isn't of the format, that the template refuses or that has no
    /// token to train on, by its number; and where every row is dropped.
    pub fn open<P: AsRef<Path>>(files: &[P], config: &ChatsConfig<'_>) -> Result<Self> {
        let mut chats = Self {
            table: Arc::default(),
            sources: Vec::new(),
            read: 0,
            lengths: Vec::new(),
            counts: Counts::default(),
        };
        let mut table = Table { each: config.format.sequences(), ..Table::default() };
        for file in named(files)? {
            let name = file.path.display().to_string();
            let bytes = Bytes::open(&file.path)?;
            let content = Some(content(&bytes));
            let bytes = unpacked(&name, bytes)?;
            let layout = Layout::of(&file.path, &bytes).map(|(layout, _)| layout);
            let layout = layout.ok_or_else(|| Error::RowFormat {
                name: name.clone(),
                problem: format!(
                    "it has no {} rows, which are objects in .jsonl, .json, .csv or .parquet; name another file, or read it as --format text",
                    config.format.name()
                ),
            })?;
            let before = chats.lengths.len();
            let mut block = Vec::with_capacity(BLOCK);
            layout.rows(&name, bytes, &mut |number, row| {
                block.push((number, row));
                if block.len() == BLOCK {
                    chats.add(&name, &mut block, config, &mut table)?;
                }
                Ok(ControlFlow::Continue(()))
            })?;
            chats.add(&name, &mut block, config, &mut table)?;
            let lengths = &chats.lengths[before..];
            if lengths.is_empty() {
                let problem = "it has no rows; name another file".to_owned();
                return Err(Error::RowFormat { name, problem });
            }
            let tokens = lengths.iter().map(|&length| u64::from(length)).sum();
            chats.sources.push(Source { name: file.source, tokens, content });
        }
        if table.ends.is_empty() {
            let name = "the data".to_owned();
            let problem = match chats.counts.dropped {
                0 => "no file is named; name one with --data".to_owned(),
                dropped => format!(
                    "all that its {dropped} rows train on is behind the context of {} tokens; give a longer --context",
                    config.context.unwrap_or_default()
                ),
            };
            return Err(Error::RowFormat { name, problem });
        }
        chats.table = Arc::new(table);
        Ok(chats)
    }

    /// Encodes a block of rows, and empties it.
    fn add(
        &mut self,
        name: &str,
        block: &mut Vec<(usize, Value)>,
        config: &ChatsConfig<'_>,
        table: &mut Table,
    ) -> Result<()> {
        for (encoded, (number, _)) in side_by_side(block, config).into_iter().zip(block.iter()) {
            let encoded = encoded.map_err(|problem| refused(name, *number, problem))?;
            let Encoded { sequences: mut row, templated, merged, question } = encoded;
            self.read += 1;
            let length = |tokens: &Vec<u32>| u32::try_from(tokens.len()).unwrap_or(u32::MAX);
            let lengths: Vec<u32> = row.iter().map(length).collect();
            self.lengths.extend(&lengths);
            let most = config.context.map_or(usize::MAX, |context| context.saturating_add(1));
            let cut = row.iter().any(|tokens| tokens.len() > most);
            row.iter_mut().for_each(|tokens| tokens.truncate(most));
            let trained = |tokens: &Vec<u32>| tokens.iter().filter(|&it| it & TRAINED != 0).count();
            let alike = matches!(&row[..], [chosen, rejected] if chosen == rejected);
            if alike || row.iter().any(|tokens| trained(tokens) == 0) {
                self.counts.dropped += 1;
                continue;
            }
            self.counts.truncated += usize::from(cut);
            self.counts.rows += 1;
            self.counts.templated += usize::from(templated);
            self.counts.merged += usize::from(merged);
            for (tokens, uncut) in row.iter().zip(lengths) {
                self.counts.tokens += tokens.len();
                self.counts.trained += trained(tokens);
                table.tokens.extend(tokens);
                table.ends.push(table.tokens.len());
                table.numbers.push(self.read - 1);
                table.uncut.push(uncut);
                if config.train_on == TrainOn::All {
                    table.questions.push(u32::try_from(question).unwrap_or(0));
                }
            }
        }
        block.clear();
        Ok(())
    }

    /// The files, in the order given. Their tokens are those of whole rows.
    pub fn sources(&self) -> &[Source] {
        &self.sources
    }

    /// What became of the rows.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// A hash of all that is read of the rows: their tokens, cut, and which are trained on.
    pub fn fingerprint(&self) -> String {
        let Table { tokens, ends, .. } = &*self.table;
        let mut hash = Xxh3::new();
        ends.iter().for_each(|&end| hash.update(&(end as u64).to_le_bytes()));
        tokens.iter().for_each(|token| hash.update(&token.to_le_bytes()));
        format!("xxh3:{:016x}", hash.digest())
    }

    /// The first token whose id isn't below `vocab`: the number of its row among those of all files, from 1, and the id.
    pub fn beyond(&self, vocab: usize) -> Option<(usize, u32)> {
        let Table { tokens, ends, numbers, .. } = &*self.table;
        let at = tokens.iter().position(|&token| (token & !TRAINED) as usize >= vocab)?;
        let sequence = ends.partition_point(|&end| end <= at);
        Some((numbers.get(sequence).map_or(0, |number| number + 1), tokens[at] & !TRAINED))
    }

    /// Tokens of every sequence, uncut, in the order of the files.
    pub fn lengths(&self) -> &[u32] {
        &self.lengths
    }

    /// All rows, in the order of the files.
    pub fn rows(&self) -> Rows {
        self.view(None, 0..self.table.ends.len() / self.table.each)
    }

    /// The rows without a fraction `holdout` of them (e.g. 0.1), and that part. It's drawn, the same for every seed. One row at
    /// least is trained on.
    ///
    /// # Errors
    /// Where `holdout` is not in [0, 1).
    pub fn split(&self, holdout: f64) -> Result<(Rows, Rows)> {
        check_holdout(holdout)?;
        let rows = self.table.ends.len() / self.table.each;
        let train = ((rows as f64 * (1.0 - holdout)) as usize).clamp(1, rows);
        let order = Permutation::new(rows as u64, HELD_OUT);
        let view = |range| self.view(Some(order.clone()), range);
        Ok((view(0..train), view(train..rows)))
    }

    fn view(&self, order: Option<Permutation>, range: Range<usize>) -> Rows {
        Rows { table: self.table.clone(), order, range }
    }
}

/// A row as tokens.
struct Encoded {
    /// One sequence, or two of preferences.
    sequences: Vec<Vec<u32>>,
    /// True if the chat template wrote one of them.
    templated: bool,
    /// True if tokens of a prompt merge with those behind it.
    merged: bool,
    /// Length of the prompt before the assistant's first turn with `--train-on all`; 0 if unknown.
    question: usize,
}

/// Encodes rows on all cores, in their order.
fn side_by_side(
    block: &[(usize, Value)],
    config: &ChatsConfig<'_>,
) -> Vec<std::result::Result<Encoded, Problem>> {
    let encoding = Encoding {
        tokenizer: config.tokenizer,
        template: config.template,
        templated_texts: config.templated_texts,
        train_on: config.train_on,
    };
    let encode = |rows: &[(usize, Value)]| -> Vec<_> {
        let one = |(_, row): &(usize, Value)| {
            let read = conversations(row, config.format)?;
            let templated = read.iter().any(|row| encoding.is_templated(row));
            if let [single] = &read[..] {
                let Sequence { tokens, merged } = encoding.tokens(single)?;
                let question = encoding.question(single, &tokens);
                return Ok(Encoded { sequences: vec![tokens], templated, merged, question });
            }
            let answers = read.iter().zip(ANSWERS).map(|(row, name)| {
                let tokens = encoding.tokens(row);
                tokens.map_err(|problem| format!("its `{name}` answer: {problem}"))
            });
            let mut answers = answers.collect::<std::result::Result<Vec<_>, Problem>>()?;
            if !templated && read.iter().all(|row| matches!(row, Row::Plain { .. })) {
                Sequence::align(&mut answers);
            }
            let merged = answers.iter().any(|answer| answer.merged);
            let sequences: Vec<_> = answers.into_iter().map(|answer| answer.tokens).collect();
            if sequences.first() == sequences.last() {
                let problem = "the tokens of its `chosen` and its `rejected` answer are the same";
                return Err(format!("{problem}; remove it"));
            }
            Ok(Encoded { sequences, templated, merged, question: 0 })
        };
        rows.iter().map(one).collect()
    };
    let workers = thread::available_parallelism().map_or(1, usize::from);
    let each = block.len().div_ceil(workers).max(1);
    if block.len() <= 8 * workers {
        return encode(block);
    }
    threads::side_by_side(block.chunks(each), encode).into_iter().flatten().collect()
}

/// Some of the rows of [`Chats`], as sequences: those of a row follow each other. Cheap to clone.
#[derive(Clone)]
pub struct Rows {
    table: Arc<Table>,
    /// The order of rows that `range` counts in, where it isn't that of the files.
    order: Option<Permutation>,
    range: Range<usize>,
}

impl Rows {
    /// Number of sequences.
    pub fn len(&self) -> usize {
        self.range.len() * self.table.each
    }

    /// Sequences of a row: two of preferences, and else one.
    pub fn each(&self) -> usize {
        self.table.each
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// The place of sequence `index` among those of all rows that stayed; `None` behind the last.
    pub(super) fn place(&self, index: usize) -> Option<usize> {
        (index < self.len()).then(|| {
            let each = self.table.each;
            let row = self.range.start + index / each;
            let row = self.order.as_ref().map_or(row, |it| it.get(row as u64) as usize);
            row * each + index % each
        })
    }

    /// The number of the row of sequence `index` among all rows of the files, from 0, those that were left out too; `None` behind the
    /// last.
    pub fn number(&self, index: usize) -> Option<usize> {
        self.place(index).map(|place| self.table.numbers[place])
    }

    /// Number of tokens of sequence `index`; 0 behind the last.
    pub fn tokens(&self, index: usize) -> usize {
        self.place(index).map_or(0, |place| self.table.sequence(place).len())
    }

    /// As [`Rows::tokens`], before it was cut.
    pub fn uncut(&self, index: usize) -> usize {
        self.place(index).map_or(0, |place| self.table.uncut[place] as usize)
    }

    /// The token ids of sequence `index` before the first that is trained on; where all are, before the assistant's first turn, and none if that
    /// isn't told.
    pub fn question(&self, index: usize) -> Vec<u32> {
        let Some(place) = self.place(index) else { return Vec::new() };
        let sequence = self.table.sequence(place);
        let length = match self.table.questions.get(place) {
            Some(&length) => length as usize,
            None => sequence.iter().take_while(|token| *token & TRAINED == 0).count(),
        };
        sequence.iter().take(length).map(|token| token & !TRAINED).collect()
    }

    /// The token ids of sequence `index`, each with whether it's trained on; none behind the last.
    pub fn get(&self, index: usize) -> impl Iterator<Item = (i32, bool)> + '_ {
        let sequence = self.place(index).map(|place| self.table.sequence(place));
        let tokens = sequence.unwrap_or_default().iter();
        tokens.map(|&token| ((token & !TRAINED).cast_signed(), token & TRAINED != 0))
    }
}

impl fmt::Debug for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rows").field("range", &self.range).finish_non_exhaustive()
    }
}
