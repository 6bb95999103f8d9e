//! The order of rows: each once an epoch, and in batches of like length where sequences are in buckets.

use super::sequences::{Sequences, at_least_one};
use crate::Result;
use crate::loader::{Loader, check_position};
use crate::packing::RowBatch;
use crate::permutation::{Permutation, mix};

/// What tells the order of batches from that of the samples in them.
const BATCHES: u64 = 0x6261_7463;

impl Loader<RowBatch> {
    /// A loader over `sequences`, `batch` samples at a time, that has consumed `position` of them. Every epoch takes each once, in an order
    /// of its own that `seed` chooses.
    ///
    /// # Errors
    /// No sequences, a batch of 0, a position of 2⁶³ and more.
    pub fn of_sequences(
        sequences: Sequences,
        batch: usize,
        seed: u64,
        position: u64,
    ) -> Result<Self> {
        at_least_one("rows", sequences.len())?;
        at_least_one("train.batch", batch)?;
        check_position(position)?;
        let count = sequences.len() as u64;
        let mut sampler = Sampler { sequences, batch, seed, position, epoch: None };
        Ok(Self::start(move || Ok(sampler.next()), count, batch, position))
    }
}

impl Sequences {
    /// Share of all positions that is padding, in batches of so many samples as a loader with this seed gives them.
    ///
    /// # Errors
    /// A batch of 0.
    pub fn padding_in_batches(&self, batch: usize, seed: u64) -> Result<f64> {
        at_least_one("train.batch", batch)?;
        if self.buckets().len() == 1 {
            return Ok(self.padding());
        }
        let order = grouped(self, batch, seed, 0);
        // Of two sequences in a sample, the shorter one is padded too.
        let taken: usize = (0..self.len()).flat_map(|sample| self.taken(sample)).sum();
        let all = order.chunks(batch).map(|batch| batch.len() * self.padded_length(batch));
        let all = self.each() * all.sum::<usize>();
        Ok(if all == 0 { 0.0 } else { (all - taken) as f64 / all as f64 })
    }
}

/// Makes batch after batch.
#[derive(Clone)]
struct Sampler {
    sequences: Sequences,
    batch: usize,
    seed: u64,
    position: u64,
    /// Number and order of the epoch that was drawn from last.
    epoch: Option<(u64, Order)>,
}

/// The samples of an epoch.
#[derive(Clone)]
enum Order {
    Drawn(Permutation),
    Grouped(Vec<usize>),
}

impl Sampler {
    fn next(&mut self) -> RowBatch {
        let count = self.sequences.len() as u64;
        let first = self.position;
        self.position += self.batch as u64;
        let drawn: Vec<usize> = (first..self.position)
            .map(|at| match self.order(at / count) {
                Order::Drawn(order) => order.get(at % count) as usize,
                Order::Grouped(order) => order[(at % count) as usize],
            })
            .collect();
        let length = self.sequences.padded_length(&drawn);
        self.sequences.batch(drawn, length)
    }

    fn order(&mut self, epoch: u64) -> &Order {
        if self.epoch.as_ref().is_none_or(|(known, _)| *known != epoch) {
            self.epoch = None;
        }
        let Self { sequences, batch, seed, .. } = self;
        let drawn = || match sequences.buckets().len() {
            1 => (epoch, Order::Drawn(drawn(sequences.len(), *seed, epoch))),
            _ => (epoch, Order::Grouped(grouped(sequences, *batch, *seed, epoch))),
        };
        &self.epoch.get_or_insert_with(drawn).1
    }
}

/// The order in which an epoch draws samples.
fn drawn(count: usize, seed: u64, epoch: u64) -> Permutation {
    Permutation::new(count as u64, mix(mix(seed) ^ epoch))
}

/// The samples of an epoch, where each batch that lies in it alone has samples of like length: those of a bucket, in the order that
/// they're drawn in. What a bucket leaves goes into the first batch of the next longer one; what the longest leaves goes to the two ends,
/// into batches that the epoch shares with its neighbours.
fn grouped(sequences: &Sequences, batch: usize, seed: u64, epoch: u64) -> Vec<usize> {
    let count = sequences.len();
    let order = drawn(count, seed, epoch);
    let buckets = sequences.buckets();
    let mut members: Vec<Vec<usize>> = vec![Vec::new(); buckets.len()];
    for at in 0..count as u64 {
        let sample = order.get(at) as usize;
        let positions = sequences.positions(sample);
        let bucket = buckets.partition_point(|&length| length < positions);
        members[bucket.min(buckets.len() - 1)].push(sample);
    }
    let (mut batches, mut left): (Vec<Vec<usize>>, Vec<usize>) = (Vec::new(), Vec::new());
    for own in members {
        let samples = [std::mem::take(&mut left), own].concat();
        let whole = samples.len() - samples.len() % batch;
        batches.extend(samples[..whole].chunks(batch).map(<[usize]>::to_vec));
        left = samples[whole..].to_vec();
    }
    // Samples of the batch that the epoch before began; all, where that isn't full with them.
    let started = ((u128::from(epoch) * count as u128) % batch as u128) as usize;
    let head = ((batch - started) % batch).min(count);
    while left.len() < head {
        // The last are of the longest bucket.
        left.extend(batches.pop().unwrap_or_default());
    }
    let shuffled = Permutation::new(batches.len().max(1) as u64, mix(mix(seed ^ BATCHES) ^ epoch));
    let tail = left.split_off(head);
    let mut found = left;
    for at in 0..batches.len() as u64 {
        found.append(&mut batches[shuffled.get(at) as usize]);
    }
    found.extend(tail);
    found
}
