//! Labelled texts as tokens, and batches of them, padded to the length of a sequence.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::thread;

use tightrope_core::threads;

use super::row::Row;
use super::{File, LabelledTexts};
use crate::chat::refused;
use crate::corpus::check_holdout;
use crate::loader::{IGNORED, Loader, LoaderConfig, check_position};
use crate::permutation::{Permutation, mix};
use crate::source::Source;
use crate::tokenizer::Pairs;
use crate::{Error, Result, Tokenizer};

/// On a token of the second text.
const SECOND: u32 = 1 << 31;
/// Key of the order that held-out rows are drawn in: the same for every seed, so that runs score the same rows.
const HELD_OUT: u64 = 0x6c61_6265;

/// The reader of sequences of texts, which decides how they're filled up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextReader {
    /// An encoder: it's told which of two texts a token is of, and which tokens are padding. The tokenizer says what fills up.
    Encoder,
    /// A decoder, which reads the position of the last token that isn't `padding`, or of the last token where that is `None`.
    Decoder {
        /// Padding token of the model's configuration.
        padding: Option<u32>,
        /// The token that fills up sequences, which no score depends on.
        fill: u32,
    },
}

/// Some of the rows of labelled texts, as tokens. Cheap to clone.
#[derive(Clone)]
pub struct LabelledRows {
    table: Arc<Table>,
    /// The order that `range` counts in, where it isn't that of the files.
    order: Option<Permutation>,
    range: Range<usize>,
}

/// Tokens of all rows, one after the other, with [`SECOND`] on those of second texts.
struct Table {
    tokens: Vec<u32>,
    /// Where each row ends.
    ends: Vec<usize>,
    labels: Vec<i32>,
    sources: Vec<Source>,
    cut: usize,
    reader: TextReader,
    /// The token that fills up sequences.
    fill: i32,
}

impl LabelledTexts {
    /// Encodes the rows on all cores, for sequences of `context` tokens: the longer text is cut where they are too long.
    ///
    /// # Errors
    /// A tokenizer without the tokens that an encoder reads, a context without room for them, and a text that can't be encoded or has no
    /// tokens, by its row.
    pub fn encode(
        &self,
        tokenizer: &Tokenizer,
        reader: TextReader,
        context: usize,
    ) -> Result<LabelledRows> {
        let (pairs, fill) = encoder(tokenizer, reader, context)?;
        let mut table = Table {
            tokens: vec![],
            ends: vec![],
            labels: vec![],
            sources: vec![],
            cut: 0,
            reader,
            fill,
        };
        let mut start = 0;
        for file in &self.files {
            let File { name, source, content, end } = file;
            let before = table.tokens.len();
            let rows = &self.rows[start..*end];
            let encode = |row: &Row| pairs.encode(&row.text, row.second.as_deref());
            for (index, (encoded, row)) in side_by_side(rows, encode).zip(rows).enumerate() {
                let number = index + 1;
                let (tokens, cut) = encoded.map_err(|problem| {
                    refused(name, number, format!("its text can't be encoded ({problem})"))
                })?;
                let class = row.label.class(&self.classes);
                let class = class.ok_or_else(|| refused(name, number, "its label is unknown"))?;
                if tokens.is_empty() {
                    let problem = "its text has no tokens; correct it or remove the row";
                    return Err(refused(name, number, problem));
                }
                table.labels.push(class as i32);
                table.cut += usize::from(cut);
                table.tokens.extend(marked(&tokens).take(context));
                table.ends.push(table.tokens.len());
            }
            table.sources.push(Source {
                name: source.clone(),
                tokens: (table.tokens.len() - before) as u64,
                content: Some(content.clone()),
            });
            start = *end;
        }
        let range = 0..table.ends.len();
        Ok(LabelledRows { table: Arc::new(table), order: None, range })
    }
}

/// What encodes texts for sequences of `context` tokens, and the token that fills them up.
fn encoder(tokenizer: &Tokenizer, reader: TextReader, context: usize) -> Result<(Pairs<'_>, i32)> {
    if context < 4 {
        return Err(Error::Setting {
            what: "model.context",
            value: context.to_string(),
            domain: "at least 4, with room for the tokens around two texts and one of a text",
        });
    }
    let fill = match reader {
        TextReader::Encoder => tokenizer.specials()?.padding,
        TextReader::Decoder { fill, .. } => fill.cast_signed(),
    };
    Ok((tokenizer.pairs(context)?, fill))
}

/// Tokens with [`SECOND`] on those of second texts.
fn marked(tokens: &[(u32, bool)]) -> impl Iterator<Item = u32> + '_ {
    tokens.iter().map(|&(id, second)| if second { id | SECOND } else { id })
}

/// What `make` gives for each of `items`, in their order, made on all cores.
fn side_by_side<T: Sync, R: Send>(
    items: &[T],
    make: impl Fn(&T) -> R + Sync,
) -> impl Iterator<Item = R> {
    let workers = thread::available_parallelism().map_or(1, usize::from);
    let each = items.len().div_ceil(workers).max(1);
    let work = |part: &[T]| part.iter().map(&make).collect::<Vec<R>>();
    threads::side_by_side(items.chunks(each), work).into_iter().flatten()
}

impl LabelledRows {
    /// Number of rows.
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// The files, in the order given.
    pub fn sources(&self) -> &[Source] {
        &self.table.sources
    }

    /// Rows of all files that were cut to the context.
    pub fn cut(&self) -> usize {
        self.table.cut
    }

    /// Tokens of the longest row of all files.
    pub fn longest(&self) -> usize {
        let starts = std::iter::once(0).chain(self.table.ends.iter().copied());
        let lengths = self.table.ends.iter().zip(starts).map(|(end, start)| end - start);
        lengths.max().unwrap_or(0)
    }

    /// Tokens of all files.
    pub fn tokens(&self) -> usize {
        self.table.tokens.len()
    }

    /// The rows without a fraction `holdout` of them (e.g. 0.1), and that part. It's drawn, the same for every seed. One row at
    /// least is trained on.
    ///
    /// # Errors
    /// Where `holdout` is not in [0, 1).
    pub fn split(&self, holdout: f64) -> Result<(Self, Self)> {
        check_holdout(holdout)?;
        let rows = self.table.ends.len();
        let train = ((rows as f64 * (1.0 - holdout)) as usize).clamp(1, rows);
        let order = Some(Permutation::new(rows as u64, HELD_OUT));
        let view = |range| Self { table: self.table.clone(), order: order.clone(), range };
        Ok((view(0..train), view(train..rows)))
    }

    /// Appends row `index` to a batch of sequences of `context` tokens; padding alone where there is none.
    fn push(&self, index: Option<usize>, context: usize, to: &mut TextBatch) {
        let table = &*self.table;
        let how = (table.reader, table.fill);
        let Some(index) = index else { return to.push(&[], IGNORED, context, how) };
        let place = self.range.start + index;
        let place = self.order.as_ref().map_or(place, |it| it.get(place as u64) as usize);
        let start = place.checked_sub(1).map_or(0, |before| table.ends[before]);
        let row = &table.tokens[start..table.ends[place]];
        to.push(row, table.labels[place], context, how);
    }

    fn check(&self, batch: usize, context: usize) -> Result<()> {
        let sizes = [("train.batch", batch), ("model.context", context), ("rows", self.len())];
        match sizes.into_iter().find(|(_, value)| *value == 0) {
            None => Ok(()),
            Some((what, value)) => {
                Err(Error::Setting { what, value: value.to_string(), domain: "at least 1" })
            }
        }
    }
}

impl fmt::Debug for LabelledRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LabelledRows").field("range", &self.range).finish_non_exhaustive()
    }
}

/// B texts, padded to T tokens, and the class of each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextBatch {
    /// Token ids, (B, T) row-major.
    pub tokens: Vec<i32>,
    /// 1 for tokens of second texts, else 0, (B, T). Empty for a decoder.
    pub types: Vec<i32>,
    /// 1 for each token and 0 for padding, (B, T). Empty for a decoder.
    pub documents: Vec<i32>,
    /// Position of each text's last token that isn't padding, (B). Empty for an encoder.
    pub last: Vec<i32>,
    /// Class of each text, (B); [`IGNORED`] where there is none to score.
    pub labels: Vec<i32>,
}

impl TextBatch {
    /// Texts, or pairs of them, to classify in sequences of `context` tokens, and padding behind them up to `batch` sequences.
    ///
    /// # Errors
    /// As [`LabelledTexts::encode`].
    pub fn of(
        texts: &[(&str, Option<&str>)],
        (tokenizer, reader): (&Tokenizer, TextReader),
        context: usize,
        batch: usize,
    ) -> Result<Self> {
        let (pairs, fill) = encoder(tokenizer, reader, context)?;
        let how = (reader, fill);
        let mut found = Self::default();
        for (text, second) in texts {
            let (tokens, _) = pairs.encode(text, *second).map_err(|problem| Error::Tokenizer {
                name: tokenizer.name().to_owned(),
                problem: format!("the text {text:?} can't be encoded ({problem})"),
            })?;
            let row: Vec<u32> = marked(&tokens).take(context).collect();
            found.push(&row, IGNORED, context, how);
        }
        while found.labels.len() < batch {
            found.push(&[], IGNORED, context, how);
        }
        Ok(found)
    }

    /// Appends a sequence of `context` tokens that begins with `row`, for a reader, and with the token that fills it up.
    fn push(&mut self, row: &[u32], label: i32, context: usize, (reader, fill): (TextReader, i32)) {
        let end = self.tokens.len() + context;
        self.tokens.extend(row.iter().map(|token| (token & !SECOND).cast_signed()));
        match reader {
            TextReader::Encoder => {
                self.types.extend(row.iter().map(|token| i32::from(token & SECOND != 0)));
                self.documents.resize(self.tokens.len(), 1);
                self.types.resize(end, 0);
                self.documents.resize(end, 0);
            }
            TextReader::Decoder { padding, .. } => {
                let counts = |token: &u32| Some(*token & !SECOND) != padding;
                // As transformers: the first token, where all are padding.
                let last = row.iter().rposition(counts).unwrap_or(0);
                self.last.push(last as i32);
            }
        }
        self.tokens.resize(end, fill);
        self.labels.push(label);
    }
}

impl Loader<TextBatch> {
    /// A loader over `rows` that has consumed `position` of them. Every epoch takes each row once, in an order of its own.
    ///
    /// # Errors
    /// No rows, a batch or context of 0, a position of 2⁶³ and more.
    pub fn of_texts(rows: LabelledRows, config: LoaderConfig, position: u64) -> Result<Self> {
        rows.check(config.batch, config.context)?;
        check_position(position)?;
        let epoch_len = rows.len() as u64;
        let mut sampler = Sampler { rows, config, position };
        Ok(Self::start(move || Ok(sampler.next()), epoch_len, config.batch, position))
    }
}

/// Makes batch after batch.
#[derive(Clone)]
struct Sampler {
    rows: LabelledRows,
    config: LoaderConfig,
    position: u64,
}

impl Sampler {
    fn next(&mut self) -> TextBatch {
        let LoaderConfig { batch, context, seed } = self.config;
        let mut result = TextBatch::default();
        let count = self.rows.len() as u64;
        for _ in 0..batch {
            let epoch = self.position / count;
            let order = Permutation::new(count, mix(mix(seed) ^ epoch));
            let row = order.get(self.position % count) as usize;
            self.rows.push(Some(row), context, &mut result);
            self.position += 1;
        }
        result
    }
}

/// Rows in order, each once, in batches of which the last is filled up with padding.
#[derive(Clone, Debug)]
pub struct PaddedTexts {
    rows: LabelledRows,
    batch: usize,
    context: usize,
    next: usize,
    /// Rows handed out in all.
    end: usize,
}

impl PaddedTexts {
    /// `rows` in batches of (`batch`, `context`), at most `max_batches` where given.
    ///
    /// # Errors
    /// No rows, a batch or context of 0.
    pub fn new(
        rows: LabelledRows,
        batch: usize,
        context: usize,
        max_batches: Option<usize>,
    ) -> Result<Self> {
        rows.check(batch, context)?;
        let all = rows.len();
        let end = max_batches.map_or(all, |most| all.min(most.saturating_mul(batch)));
        Ok(Self { rows, batch, context, next: 0, end })
    }
}

impl Iterator for PaddedTexts {
    type Item = TextBatch;

    fn next(&mut self) -> Option<TextBatch> {
        if self.next >= self.end {
            return None;
        }
        let mut result = TextBatch::default();
        for row in self.next..self.next + self.batch {
            // Behind the end there is padding.
            self.rows.push((row < self.end).then_some(row), self.context, &mut result);
        }
        self.next += self.batch;
        Some(result)
    }
}
