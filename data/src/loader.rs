//! Batches of windows: shuffled for training, in order for evaluation.

use std::sync::mpsc::{self, Receiver};
use std::thread::{self, JoinHandle};

use crate::permutation::{Permutation, mix};
use crate::{Error, Result, Tokens};

/// Batches made ahead of the training thread.
const AHEAD: usize = 3;

/// The target that a loss leaves out.
pub const IGNORED: i32 = -1;

/// B windows of T tokens, and for each token the one that follows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Token ids, (B, T) row-major.
    pub inputs: Vec<i32>,
    /// The next token's id for each input, (B, T); [`IGNORED`] where there is none to score.
    pub targets: Vec<i32>,
    /// Position of the first row: the number of windows that came before this batch.
    pub index: u64,
}

/// What a [`Loader`] yields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoaderConfig {
    /// Windows per batch (B).
    pub batch: usize,
    /// Tokens per window (T).
    pub context: usize,
    /// Chooses the order of the windows.
    pub seed: u64,
}

/// An endless, shuffled and resumable stream of training batches: of tokens, or of images
/// ([`crate::ImageBatch`]).
///
/// The order follows from seed and epoch, so the number of windows or images consumed is the whole state: a
/// loader made at position n continues one that has consumed n.
/// Batches are made ahead on a thread, or on demand where threads can't be started.
pub struct Loader<B = Batch> {
    source: Producer<B>,
    epoch_len: u64,
    batch: u64,
    position: u64,
}

enum Producer<B> {
    Thread { batches: Receiver<Result<B>>, thread: JoinHandle<()> },
    Inline(Box<dyn FnMut() -> Result<B> + Send>),
    Stopped,
}

impl Loader<Batch> {
    /// A loader over `tokens` that has consumed `position` windows. Every epoch cuts the tokens into windows of T
    /// without overlap, from an offset below T of its own, and takes them in an order of its own.
    ///
    /// # Errors
    /// A batch or context of 0, a stream shorter than one window, a position of 2⁶³ and more.
    pub fn new(tokens: Tokens, config: LoaderConfig, position: u64) -> Result<Self> {
        Self::of_rows(tokens, config, vec![], position)
    }

    /// The same for a process that has a part of each batch: of the rows that `own` says aren't its own nothing is read, and they are 0.
    ///
    /// # Errors
    /// As [`Loader::new`].
    pub fn of_rows(
        tokens: Tokens,
        config: LoaderConfig,
        own: Vec<bool>,
        position: u64,
    ) -> Result<Self> {
        let mut sampler = Sampler::new(tokens, (config, own), position)?;
        let windows = sampler.windows;
        Ok(Self::start(move || sampler.next(), windows, config.batch, position))
    }
}

impl<B: Send + 'static> Loader<B> {
    /// A loader of what `make` gives, in epochs of `epoch_len` and batches of `batch`.
    pub(crate) fn start(
        make: impl FnMut() -> Result<B> + Clone + Send + 'static,
        epoch_len: u64,
        batch: usize,
        position: u64,
    ) -> Self {
        let (sender, batches) = mpsc::sync_channel(AHEAD);
        let mut ahead = make.clone();
        let started = thread::Builder::new().name("tightrope-loader".to_owned()).spawn(move || {
            loop {
                let batch = ahead();
                let last = batch.is_err();
                // The loader was dropped, or the error is the last thing it hears.
                if sender.send(batch).is_err() || last {
                    return;
                }
            }
        });
        let source = match started {
            Ok(thread) => Producer::Thread { batches, thread },
            Err(_) => Producer::Inline(Box::new(make)),
        };
        Self { source, epoch_len, batch: batch as u64, position }
    }

    /// The next batch.
    ///
    /// # Errors
    /// A file that shrank or an id of 2³¹ and more; after an error, every call fails.
    #[expect(clippy::should_implement_trait, reason = "endless and fallible, so not an Iterator")]
    pub fn next(&mut self) -> Result<B> {
        let stopped = |problem: &str| {
            Err(Error::LoaderStopped { problem: problem.to_owned(), position: self.position })
        };
        let result = match &mut self.source {
            Producer::Thread { batches, .. } => {
                batches.recv().unwrap_or_else(|_| stopped("its thread panicked"))
            }
            Producer::Inline(make) => make(),
            Producer::Stopped => stopped("it failed before"),
        };
        match result {
            Ok(_) => self.position += self.batch,
            Err(_) => self.source = Producer::Stopped,
        }
        result
    }

    /// Windows or images handed out so far: what a checkpoint stores and [`Loader::new`] takes.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Windows or images in one epoch.
    pub fn epoch_len(&self) -> u64 {
        self.epoch_len
    }
}

impl<B> Drop for Loader<B> {
    fn drop(&mut self) {
        if let Producer::Thread { batches, thread } =
            std::mem::replace(&mut self.source, Producer::Stopped)
        {
            // Closing the channel ends the thread at its next send.
            drop(batches);
            let _ = thread.join();
        }
    }
}

/// Makes batch after batch.
#[derive(Clone)]
struct Sampler {
    tokens: Tokens,
    config: LoaderConfig,
    own: Vec<bool>,
    windows: u64,
    position: u64,
    epoch: Epoch,
    scratch: Vec<i32>,
}

/// Order and offset of one epoch.
#[derive(Clone)]
struct Epoch {
    number: u64,
    order: Permutation,
    offset: usize,
}

impl Sampler {
    fn new(
        tokens: Tokens,
        (config, own): (LoaderConfig, Vec<bool>),
        position: u64,
    ) -> Result<Self> {
        let LoaderConfig { batch, context, seed } = config;
        check_sizes(&tokens, batch, context, context.saturating_add(1))?;
        check_position(position)?;
        let windows = windows_in_epoch(tokens.len(), context);
        let epoch = Epoch::new(position / windows, windows, tokens.len(), context, seed);
        Ok(Self { tokens, config, own, windows, position, epoch, scratch: vec![0; context + 1] })
    }

    fn next(&mut self) -> Result<Batch> {
        let LoaderConfig { batch, context, seed } = self.config;
        let mut result = Batch {
            inputs: Vec::with_capacity(batch * context),
            targets: Vec::with_capacity(batch * context),
            index: self.position,
        };
        for row in 0..batch {
            let number = self.position / self.windows;
            if number != self.epoch.number {
                self.epoch = Epoch::new(number, self.windows, self.tokens.len(), context, seed);
            }
            if is_own(&self.own, row) {
                let window = self.epoch.order.get(self.position % self.windows) as usize;
                let start = self.epoch.offset + window * context;
                self.tokens.read(start..start + context + 1, &mut self.scratch)?;
            } else {
                self.scratch.fill(0);
            }
            result.inputs.extend_from_slice(&self.scratch[..context]);
            result.targets.extend_from_slice(&self.scratch[1..]);
            self.position += 1;
        }
        Ok(result)
    }
}

impl Epoch {
    fn new(number: u64, windows: u64, tokens: usize, context: usize, seed: u64) -> Self {
        let key = mix(mix(seed) ^ number);
        let spare = tokens - windows as usize * context;
        let offsets = spare.min(context) as u64;
        // The high half of a 64 x 64-bit product: uniform below `offsets` to within 2⁻⁶⁴ of it.
        let offset = ((u128::from(mix(key)) * u128::from(offsets)) >> 64) as usize;
        Self { number, order: Permutation::new(windows, key), offset }
    }
}

/// Windows of `context` (T) tokens that an epoch of a [`Loader`] takes from this number of `tokens`: one less than fit, so that every offset below
/// T leaves room for all of them.
pub fn windows_in_epoch(tokens: usize, context: usize) -> u64 {
    (tokens / context.max(1)).saturating_sub(1).max(1) as u64
}

/// Whether a row of a batch is read, where a process has those that `own` says, or all.
pub(crate) fn is_own(own: &[bool], row: usize) -> bool {
    // A browser's tab shares no batch.
    cfg!(target_family = "wasm") || own.get(row).is_none_or(|&own| own)
}

/// Refuses a position that no run reaches.
pub(crate) fn check_position(position: u64) -> Result<()> {
    if position <= i64::MAX as u64 {
        return Ok(());
    }
    Err(Error::Setting {
        what: "data position",
        value: position.to_string(),
        domain: "below 2⁶³; the checkpoint it came from is damaged",
    })
}

fn check_sizes(tokens: &Tokens, batch: usize, context: usize, needed: usize) -> Result<()> {
    for (what, value) in [("train.batch", batch), ("model.context", context)] {
        if value == 0 {
            return Err(Error::Setting { what, value: value.to_string(), domain: "at least 1" });
        }
    }
    let had = tokens.len();
    if had < needed {
        return Err(Error::TooShort { had, needed, context });
    }
    if batch.checked_mul(context).is_none_or(|n| n > isize::MAX as usize / 4) {
        return Err(Error::Setting {
            what: "train.batch",
            value: batch.to_string(),
            domain: "small enough for a batch to fit the address space",
        });
    }
    Ok(())
}

/// Held-out data in order: windows of T without overlap, so that every token but the first is a
/// target once. The last batch is filled up with [`IGNORED`] targets (inputs 0).
#[derive(Clone, Debug)]
pub struct Windows {
    tokens: Tokens,
    batch: usize,
    context: usize,
    next: usize,
    /// Windows handed out in all.
    end: usize,
}

impl Windows {
    /// Windows over `tokens` in batches of (`batch`, `context`), at most `max_batches` where given.
    ///
    /// # Errors
    /// A batch or context of 0, or fewer than 2 tokens.
    pub fn new(
        tokens: Tokens,
        batch: usize,
        context: usize,
        max_batches: Option<usize>,
    ) -> Result<Self> {
        check_sizes(&tokens, batch, context, 2)?;
        let all = (tokens.len() - 1).div_ceil(context);
        let end = max_batches.map_or(all, |most| all.min(most.saturating_mul(batch)));
        Ok(Self { tokens, batch, context, next: 0, end })
    }

    /// Targets that will be scored over all batches.
    pub fn scored(&self) -> usize {
        (self.end * self.context).min(self.tokens.len() - 1)
    }
}

impl Iterator for Windows {
    type Item = Result<Batch>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next == self.end {
            return None;
        }
        let rows = self.batch.min(self.end - self.next);
        let start = self.next * self.context;
        let count = (rows * self.context).min(self.tokens.len() - 1 - start);
        let index = self.next as u64;
        self.next += rows;
        let mut ids = vec![0; count + 1];
        if let Err(e) = self.tokens.read(start..start + count + 1, &mut ids) {
            self.next = self.end;
            return Some(Err(e));
        }
        let mut targets = ids[1..].to_vec();
        targets.resize(self.batch * self.context, IGNORED);
        ids.truncate(count);
        ids.resize(self.batch * self.context, 0);
        Some(Ok(Batch { inputs: ids, targets, index }))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = (self.end - self.next).div_ceil(self.batch);
        (left, Some(left))
    }
}

impl ExactSizeIterator for Windows {}

#[cfg(test)]
mod tests;
