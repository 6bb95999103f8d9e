//! Rows as sequences: one in each, or packed.

use std::sync::Arc;

use super::dataset::Rows;
use crate::buckets::{BucketCount, bucket_lengths};
use crate::packing::{Packing, RowBatch};
use crate::{Error, Result};

/// Rows laid out in sequences of T tokens. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Sequences {
    rows: Rows,
    packing: Arc<Packing>,
    numbers: Arc<[f32]>,
    /// Lengths by which samples are put into batches, the longest last: T.
    buckets: Arc<[usize]>,
    /// Lengths that batches are padded to, the longest last: T.
    padded: Arc<[usize]>,
}

impl Sequences {
    /// A sequence for each of `rows`, two of which are a sample of preferences; or as few as hold them where they are `packed`. A row takes one position less than its
    /// tokens, as the last is a target alone; of a longer one than T positions the first T are read.
    ///
    /// # Errors
    /// Sequences of no tokens.
    pub fn new(rows: Rows, seq_len: usize, packed: bool) -> Result<Self> {
        at_least_one("model.context", seq_len)?;
        let positions = |row| rows.tokens(row).saturating_sub(1).clamp(1, seq_len);
        let positions: Vec<usize> = (0..rows.len()).map(positions).collect();
        let lay = if packed { Packing::new } else { Packing::apart };
        let packing = Arc::new(lay(&positions, seq_len)?);
        let buckets: Arc<[usize]> = [seq_len].into();
        Ok(Self { packing, rows, numbers: Arc::default(), padded: buckets.clone(), buckets })
    }

    /// In batches of like length: each epoch of a [`Loader`](crate::Loader) puts samples of a bucket into a batch, and shuffles
    /// batches among each other. How many lengths there are is `count`; packed rows have one.
    pub fn in_buckets(self, count: BucketCount) -> Self {
        if self.packing.sequences().iter().any(|rows| rows.len() > 1) {
            return self;
        }
        let lengths: Vec<usize> = (0..self.len()).map(|sample| self.positions(sample)).collect();
        let buckets: Arc<[usize]> = bucket_lengths(&lengths, self.packing.seq_len(), count).into();
        Self { padded: buckets.clone(), buckets, ..self }
    }

    /// The lengths by which samples are put into batches, the longest last: T.
    pub fn buckets(&self) -> &[usize] {
        &self.buckets
    }

    /// With batches padded to these lengths and T. Which samples a batch has stays as it is.
    pub fn padded_to(self, lengths: &[usize]) -> Self {
        let seq_len = self.packing.seq_len();
        let mut padded: Vec<usize> = lengths.iter().copied().filter(|&it| it < seq_len).collect();
        padded.sort_unstable();
        padded.push(seq_len);
        Self { padded: padded.into(), ..self }
    }

    /// Positions that each sequence of a sample takes.
    pub(super) fn taken(&self, sample: usize) -> impl Iterator<Item = usize> + '_ {
        let (each, most) = (self.rows.each(), self.packing.seq_len());
        (sample * each..(sample + 1) * each).map(move |sequence| {
            let rows = self.packing.sequences().get(sequence).map_or(&[][..], Vec::as_slice);
            rows.iter().map(|&row| self.rows.tokens(row).saturating_sub(1).clamp(1, most)).sum()
        })
    }

    /// Positions that a sample takes: of two sequences, those of the longer one.
    pub(super) fn positions(&self, sample: usize) -> usize {
        self.taken(sample).max().unwrap_or(0)
    }

    /// Sequences of a sample.
    pub(super) fn each(&self) -> usize {
        self.rows.each()
    }

    /// The length that a batch of these samples is padded to.
    pub(super) fn padded_length(&self, samples: &[usize]) -> usize {
        let longest = samples.iter().map(|&sample| self.positions(sample)).max().unwrap_or(0);
        let holds = self.padded.iter().find(|&&length| length >= longest);
        holds.copied().unwrap_or(self.packing.seq_len())
    }

    /// With a number for each sequence of [`Chats::rows`](super::Chats::rows), which batches give. Rows aren't packed.
    pub fn with_numbers(self, numbers: Arc<[f32]>) -> Self {
        Self { numbers, ..self }
    }

    /// Number of samples: sequences, or pairs of them.
    pub fn len(&self) -> usize {
        self.packing.sequences().len() / self.rows.each()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows.len() / self.rows.each()
    }

    /// Share of all positions that is padding.
    pub fn padding(&self) -> f64 {
        self.packing.padding()
    }

    /// The numbers of these samples, by index, in sequences of `length`; padding behind the last.
    pub(super) fn batch(
        &self,
        samples: impl IntoIterator<Item = usize>,
        length: usize,
    ) -> RowBatch {
        let (most, each) = (self.packing.seq_len() + 1, self.rows.each());
        let sequences = samples.into_iter().flat_map(|sample| sample * each..(sample + 1) * each);
        let sequences: Vec<usize> = sequences.collect();
        let number = |&sequence: &usize| {
            let place = self.rows.place(sequence);
            place.and_then(|place| self.numbers.get(place)).copied().unwrap_or_default()
        };
        RowBatch {
            numbers: match self.numbers.is_empty() {
                true => Vec::new(),
                false => sequences.iter().map(number).collect(),
            },
            ..self.packing.batch_of(length, sequences, |row| self.rows.get(row).take(most))
        }
    }

    /// All in order, each once, in batches of which the last is filled up with padding; at most `most` batches where given.
    ///
    /// # Errors
    /// A batch of none.
    pub fn batches(
        &self,
        batch: usize,
        most: Option<usize>,
    ) -> Result<impl Iterator<Item = RowBatch> + use<>> {
        at_least_one("train.micro_batch", batch)?;
        let batches = self.len().div_ceil(batch);
        let own = self.clone();
        let batches = 0..most.map_or(batches, |most| most.min(batches));
        Ok(batches
            .map(move |index| own.batch(index * batch..(index + 1) * batch, own.packing.seq_len())))
    }
}

pub(super) fn at_least_one(what: &'static str, value: usize) -> Result<()> {
    if value > 0 {
        return Ok(());
    }
    Err(Error::Setting { what, value: value.to_string(), domain: "at least 1" })
}
