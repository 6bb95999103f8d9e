//! `Recovering`: a trainer that outlives its device. The host keeps a copy of what steps change, and on a new
//! device the steps since are made again. They are the same steps on the same data, so no number changes.

use std::error::Error as StdError;
use std::future::Future;
use std::io;

use tightrope_core::{Backend, Cancel, DeviceError, SessionError};
use web_time::Instant;

use crate::{Planned, SampleError, Snapshot, TrainError, Trainer, TrainerConfig};

/// Losses of the device in a row, without getting on, after which it's given up.
const TRIES: usize = 3;
/// Fraction of the time that copies to the host may take.
const COPY_SHARE: f64 = 0.05;
/// Bytes a second that a copy is taken to move before one was timed.
const COPY_RATE: f64 = 0.5e9;
/// Copies of at most this have their memory from the start on, for two: one to hold and one to write. Of larger ones,
/// the second isn't kept for the next time.
const KEPT_BYTES: u64 = 64 << 20;

/// How far a run has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Optimizer steps.
    pub steps: u64,
    /// Samples of the data.
    pub samples: u64,
    /// Tokens.
    pub tokens: u64,
}

impl Done {
    /// One step further.
    fn next(self, config: &TrainerConfig) -> Self {
        Self {
            steps: self.steps + 1,
            samples: self.samples + config.batch as u64,
            tokens: self.tokens + config.tokens() as u64,
        }
    }
}

/// What a run is made from: enough to make it again on another device.
pub trait Origin {
    /// What its calls fail with.
    type Error: From<TrainError>;

    /// Opens a device in place of a lost one. Plans for the first are used on it, so it has to be used alike.
    fn open(&mut self) -> impl Future<Output = Result<Box<dyn Backend>, Self::Error>>;

    /// The host as a device, for a run that offloads to it.
    ///
    /// # Errors
    /// Those of the host.
    fn host(&mut self) -> Result<Option<Box<dyn Backend + Send>>, Self::Error> {
        Ok(None)
    }

    /// Sets what the run began with, and says how far it had come.
    ///
    /// # Errors
    /// Files that don't fit the model, and those of the device.
    fn fill(&mut self, trainer: &mut Trainer) -> Result<Done, Self::Error>;

    /// Queues the step after `at`.
    ///
    /// # Errors
    /// Those of the data and of the device.
    fn queue(
        &mut self,
        trainer: &mut Trainer,
        at: Done,
    ) -> impl Future<Output = Result<(), Self::Error>>;

    /// Hears that the run goes on after the device was `lost`, with this many steps made `again`.
    fn recovered(&mut self, lost: &DeviceError, again: u64);

    /// The device's failure, where that's what `error` is about.
    fn device_error(error: &Self::Error) -> Option<&DeviceError>;
}

/// A run on a device, and its way back from a lost one.
pub struct Recovering<O> {
    /// What it's made from.
    pub origin: O,
    config: TrainerConfig,
    done: Done,
    trainer: Option<Trainer>,
    /// What the first device and its plan are, until they're used.
    first: Option<(Box<dyn Backend>, Planned)>,
    /// The newest copy and where it was taken; without one, the run is made again from its beginning.
    copy: Option<(Snapshot, Done)>,
    /// Memory for the next copies.
    spares: Vec<Snapshot>,
    /// Whether copies are taken.
    copies: bool,
    /// Seconds that the last copy took.
    copy_s: Option<f64>,
    /// Why the last device is gone.
    lost: Option<DeviceError>,
    cancel: Cancel,
}

impl<O: Origin> Recovering<O> {
    /// Allocates and fills a plan on its device. Without `copies`, a run is made again from its beginning: for
    /// devices whose memory is the host's.
    ///
    /// # Errors
    /// Those of the origin and of the device.
    pub async fn start(
        origin: O,
        first: (Box<dyn Backend>, Planned),
        copies: bool,
    ) -> Result<Self, O::Error> {
        let mut run = Self {
            origin,
            config: first.1.config().clone(),
            done: Done::default(),
            trainer: None,
            first: Some(first),
            copy: None,
            spares: vec![],
            copies,
            copy_s: None,
            lost: None,
            cancel: Cancel::default(),
        };
        let bytes = run.attempt(async |_, trainer| Ok(trainer.snapshot_bytes())).await?;
        if copies && bytes <= KEPT_BYTES {
            // When a copy is due depends on how fast steps are; how much memory a run takes shouldn't. The third is
            // what a copy is read through.
            let room = [(); 3].map(|()| Snapshot::with_room(bytes));
            run.spares.extend(room.into_iter().skip(1).flatten());
        }
        Ok(run)
    }

    /// Stops what is computed once `cancel` is requested, as [`Trainer::cancel_by`]. Steps that are replayed on a new device are finished.
    pub fn cancel_by(&mut self, cancel: Cancel) {
        self.trainer.iter_mut().for_each(|trainer| trainer.cancel_by(cancel.clone()));
        self.cancel = cancel;
    }

    /// What is trained and how.
    pub fn config(&self) -> &TrainerConfig {
        &self.config
    }

    /// How far it has come.
    pub fn done(&self) -> Done {
        self.done
    }

    /// Notes that the next step was queued.
    pub fn advance(&mut self) {
        self.done = self.done.next(&self.config);
    }

    /// The device, where it isn't lost.
    pub fn backend(&self) -> Option<&dyn Backend> {
        self.trainer.as_ref().map(|trainer| trainer.session().backend())
    }

    /// Ends the run and gives its device back.
    pub fn into_backend(self) -> Option<Box<dyn Backend>> {
        self.trainer.map(Trainer::into_backend)
    }

    /// Bytes that the device holds for the plan, as [`Backend::allocated_bytes`] measures them.
    pub fn allocated_bytes(&self) -> u64 {
        self.backend().map_or(0, Backend::allocated_bytes)
    }

    /// Bytes of the host's memory that copies take.
    pub fn copied_bytes(&self) -> u64 {
        let spares: u64 = self.spares.iter().map(Snapshot::bytes).sum();
        self.copy.as_ref().map_or(0, |(copy, _)| copy.bytes()) + spares
    }

    /// Does `work` on a device that is ready, again on a new one where it's lost on the way.
    ///
    /// # Errors
    /// What `work` fails with, and a device that is lost too many times in a row.
    pub async fn attempt<T>(
        &mut self,
        mut work: impl AsyncFnMut(&mut O, &mut Trainer) -> Result<T, O::Error>,
    ) -> Result<T, O::Error> {
        let mut losses = 0;
        loop {
            let result = match self.ready().await {
                Ok(mut trainer) => {
                    let result = work(&mut self.origin, &mut trainer).await;
                    self.trainer = Some(trainer);
                    result
                }
                Err(error) => Err(error),
            };
            let Err(error) = &result else { return result };
            let Some(DeviceError::Lost { device, reason }) = O::device_error(error) else {
                return result;
            };
            self.trainer = None;
            losses += 1;
            let (device, reason) = (device.clone(), reason.clone());
            if losses == TRIES {
                let reason =
                    format!("{reason}; it was re-created {TRIES} times without getting on");
                return Err(TrainError::from(DeviceError::Lost { device, reason }).into());
            }
            self.lost = Some(DeviceError::Lost { device, reason });
        }
    }

    /// The trainer. Where it has no device: allocates the plan on a new one, fills it, and makes the steps
    /// since.
    async fn ready(&mut self) -> Result<Trainer, O::Error> {
        if let Some(trainer) = self.trainer.take() {
            return Ok(trainer);
        }
        let (backend, planned) = match self.first.take() {
            Some(first) => first,
            None => {
                let backend = self.origin.open().await?;
                let planned = Planned::new(&self.config, &*backend).map_err(TrainError::from)?;
                (backend, planned)
            }
        };
        let host = if self.config.offload.any() { self.origin.host()? } else { None };
        let mut trainer = match host {
            Some(host) => Trainer::offloading(planned, backend, host)?,
            None => Trainer::new(planned, backend)?,
        };
        let from = match &self.copy {
            Some((copy, done)) => {
                // What steps don't change isn't in the copy.
                if trainer.weights.has_frozen() {
                    self.origin.fill(&mut trainer)?;
                }
                trainer.restore(copy)?;
                *done
            }
            None => self.origin.fill(&mut trainer)?,
        };
        let mut at = from;
        while at.steps < self.done.steps {
            self.origin.queue(&mut trainer, at).await?;
            at = at.next(&self.config);
        }
        // Waits: a device says late that it has no room.
        trainer.outcome().await?;
        self.done = at;
        trainer.cancel_by(self.cancel.clone());
        if let Some(lost) = self.lost.take() {
            self.origin.recovered(&lost, at.steps - from.steps);
        }
        Ok(trainer)
    }

    /// Copies to the host once the steps since the last copy, of `step_s` seconds each, took long enough for
    /// another to be cheap.
    ///
    /// # Errors
    /// A device that is lost again and again.
    pub async fn copy_if_due(&mut self, step_s: f64) -> Result<(), O::Error> {
        let copied = self.copy.as_ref().map_or(0, |(_, done)| done.steps);
        let bytes = self.trainer.as_ref().map_or(0, Trainer::snapshot_bytes);
        let expected = self.copy_s.unwrap_or(bytes as f64 / COPY_RATE);
        let worth = (self.done.steps - copied) as f64 * step_s * COPY_SHARE;
        if self.copies && worth >= expected {
            self.copy().await?;
        }
        Ok(())
    }

    /// Copies to the host at once, if the device can be lost: for changes that no step makes. Returns `false` if the host
    /// has no memory for it.
    ///
    /// # Errors
    /// A device that is lost again and again.
    pub async fn keep(&mut self) -> Result<bool, O::Error> {
        if self.copies { self.copy().await } else { Ok(true) }
    }

    /// Copies what steps change to the host. `false` where the host has no memory for it, and the last copy
    /// stays.
    ///
    /// # Errors
    /// A device that is lost again and again.
    pub async fn copy(&mut self) -> Result<bool, O::Error> {
        let start = Instant::now();
        let mut copy = self.spares.pop().unwrap_or_default();
        let taken = self.attempt(async |_, trainer| Ok(trainer.snapshot(&mut copy).await?)).await?;
        if taken {
            let before = self.copy.replace((copy, self.done));
            if let Some((before, _)) = before
                && before.bytes() <= KEPT_BYTES
            {
                self.spares.push(before);
            }
            self.copy_s = Some(start.elapsed().as_secs_f64());
        }
        Ok(taken)
    }
}

/// The device's failure that is at the bottom of `error`, if one is.
pub fn device_error<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a DeviceError> {
    let mut next = Some(error);
    while let Some(error) = next {
        // Whoever writes a checkpoint hears of the device through the stream of bytes.
        if let Some(inner) = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            return device_error(inner);
        }
        let found = unwrapped(error);
        if found.is_some() {
            return found;
        }
        next = error.source();
    }
    None
}

/// The device's failure in an error that passes its text on as its own, and so isn't its source.
fn unwrapped<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a DeviceError> {
    let train = match error.downcast_ref::<SampleError>() {
        Some(SampleError::Train(error)) => Some(error),
        _ => error.downcast_ref::<TrainError>(),
    };
    let session = match train {
        Some(TrainError::Session(error)) => Some(error),
        _ => error.downcast_ref::<SessionError>(),
    };
    match session {
        Some(SessionError::Device(error)) => Some(error),
        _ => error.downcast_ref::<DeviceError>(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_failure_of_a_device_is_found_however_it_is_wrapped() {
        let lost = || DeviceError::Lost { device: "gpu".to_owned(), reason: "reset".to_owned() };
        let train = || TrainError::from(lost());
        let errors: [Box<dyn StdError>; 5] = [
            Box::new(lost()),
            Box::new(SessionError::from(lost())),
            Box::new(train()),
            Box::new(SampleError::from(train())),
            Box::new(io::Error::other(io::Error::other(train()))),
        ];
        for error in &errors {
            assert_eq!(device_error(&**error), Some(&lost()), "{error:?}");
        }
        assert_eq!(device_error(&io::Error::other("full")), None);
    }
}
