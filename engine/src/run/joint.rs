//! A checkpoint that all ranks write, each what it holds: from a copy while training goes on, or before it does.
//!
//! | phase | who | what |
//! |---|---|---|
//! | begin | rank 0 | makes the files in their full length; all look whether they see them |
//! | write | all | each its ranges, and flushes them |
//! | check | all | each reads a part of the tensors back, whoever wrote them, and hashes it |
//! | publish | rank 0 | writes the other files, and gives the checkpoint its name |
//!
//! Ranks agree on each phase before the next one begins. So nothing is published that isn't on the disk, and a rank that can't write
//! is named by all.

use std::fs::File;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use anyhow::anyhow;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tightrope_data::Manifest;
use tightrope_data::checkpoint::{Begun, Cuts, Part};
use tightrope_nn::{Shard, Trainer};

use super::Run;
use super::origin::Origin;
use super::saved::unwritten;
use crate::checkpoint::{CheckpointError, Given, cuts, write_own};
use crate::error::{Error, Result};
use crate::units::human_bytes;

/// The checkpoint that ranks write together, if they do now.
#[derive(Default)]
pub(super) struct Joint {
    in_flight: Option<InFlight>,
    /// Whether a rank has told all that it failed.
    all_know: bool,
    /// Whether it was this one.
    has_failed: bool,
    /// What the last copy was in.
    memory: Vec<u8>,
    /// Whether it's said that rank 0 writes for all.
    is_noted: bool,
}

/// What all ranks are at.
struct InFlight {
    /// For what is said of it.
    of: Of,
    cuts: Arc<Cuts>,
    phase: Phase,
    publishes: Option<Publishes>,
}

/// Which checkpoint it is.
#[derive(Clone)]
struct Of {
    /// The run directory, where this rank knows it.
    dir: PathBuf,
    step: u64,
}

enum Phase {
    Writing(Work<Wrote>),
    Checking(Work<Hashes>),
    Publishing(Work<Result<Vec<String>>>),
}

impl Phase {
    fn is_done(&self) -> bool {
        match self {
            Self::Writing(work) => work.is_done(),
            Self::Checking(work) => work.is_done(),
            Self::Publishing(work) => work.is_done(),
        }
    }
}

/// This rank's part, the memory that it was copied to, and its hashes.
type Wrote = (Part, Vec<u8>, Hashes);
/// Of what was written, or of tensors that were read back.
type Hashes = std::result::Result<Vec<u64>, CheckpointError>;

/// What is done, or is being done by a thread.
enum Work<T> {
    Done(T),
    By(JoinHandle<T>),
}

impl<T: Send + 'static> Work<T> {
    fn begin(work: impl FnOnce() -> T + Send + 'static) -> Result<Self> {
        let refused = |error| {
            let message = anyhow!("no thread to write a checkpoint: {error}");
            Error::failed(message, "end other processes, or raise their limit (`ulimit -u`)")
        };
        let thread = Builder::new().name("checkpoint".to_owned()).spawn(work);
        thread.map(Self::By).map_err(refused)
    }

    fn is_done(&self) -> bool {
        match self {
            Self::Done(_) => true,
            Self::By(thread) => thread.is_finished(),
        }
    }

    fn finish(self) -> Result<T> {
        match self {
            Self::Done(done) => Ok(done),
            Self::By(thread) => thread.join().map_err(|_| {
                let message = "the thread that writes checkpoints has panicked";
                Error::failed(anyhow!(message), "report it")
            }),
        }
    }
}

/// What rank 0 needs to give a checkpoint its name.
struct Publishes {
    begun: Begun,
    dir: PathBuf,
    manifest: Manifest,
    /// Newest checkpoints that stay.
    keep: usize,
    extra: Vec<(String, Vec<u8>)>,
    /// Metrics, which are to be on the disk before the checkpoint is.
    metrics: Option<Arc<File>>,
}

impl Publishes {
    fn run(self, cuts: &Cuts, hashes: &[u64]) -> Result<Vec<String>> {
        let Self { begun, dir, manifest, keep, extra, metrics } = self;
        let mut notes = vec![];
        if let Some(Err(error)) = metrics.map(|file| file.sync_data()) {
            notes.push(format!("warning: the metrics can't be flushed: {error}"));
        }
        let step = manifest.step;
        let saved = begun.publish(&dir, manifest, cuts, hashes, extra, keep);
        let saved = saved.map_err(|error| unwritten(error.into(), &dir, step))?;
        notes.extend(saved.left.iter().map(|error| format!("warning: {error}")));
        Ok(notes)
    }
}

/// Where rank 0 has begun a checkpoint.
#[derive(Serialize, Deserialize)]
struct Place {
    /// Of a path that isn't UTF-8, one that nobody finds.
    folder: String,
    token: String,
}

impl<'a> Run<'a> {
    /// Whether ranks hold shards, so that each gives a checkpoint its own.
    pub(super) fn gives_parts(&self) -> bool {
        self.is_joined() && self.config().shard != Shard::Nothing
    }

    /// Writes a checkpoint together with the other ranks: `overlapped` with training, where each has room for a copy of what it holds.
    /// `false` where not all of them see the run's directory.
    pub(super) async fn save_jointly(&mut self, overlapped: bool) -> Result<bool> {
        let step = self.done().steps;
        let adapters = self.saved.base.is_some();
        let ranks = async |_: &mut Origin<'a>, trainer: &mut Trainer| {
            Ok((trainer.rank(), cuts(trainer, adapters)))
        };
        let (rank, cuts) = self.inner.attempt(ranks).await?;
        let cuts = Arc::new(cuts);
        let dir = self.home.as_ref().map(|home| home.dir().to_owned());
        let mut of = Of { dir: dir.clone().unwrap_or_default(), step };
        let (begun, place) = match dir.filter(|_| rank == 0).map(|dir| begin(&dir, step, &cuts)) {
            Some(Ok((begun, place))) => (Some(begun), Ok(Some(place))),
            Some(Err(error)) => (None, Err(unwritten(error.into(), &of.dir, step))),
            None => (None, Ok(None)),
        };
        let places = self.told(&of, "where a checkpoint goes", place).await?;
        let Some(Some(Place { folder, token })) = places.into_iter().next() else {
            // The run has no directory.
            self.checkpointed = Some(step);
            return Ok(true);
        };
        let folder = Path::new(&folder);
        if self.home.is_none() {
            of.dir = folder.ancestors().nth(2).unwrap_or(folder).to_owned();
        }
        let part = Part::open(folder, &token, &cuts, rank);
        let figures =
            [part.is_some(), overlapped && self.beside.has_room].map(|so| f64::from(u8::from(so)));
        let said = self.figures("whether all see a checkpoint", &figures).await?;
        let all = |which: usize| said.iter().all(|figures| figures.get(which) == Some(&1.0));
        let Some(part) = part.filter(|_| all(0)) else {
            let sees = said.iter().map(|figures| figures.first() == Some(&1.0));
            self.note_unseen(&of, sees.collect());
            return Ok(false);
        };
        let publishes = self.publishes(begun, &of).await?;
        let writing = self.writing(&of, &cuts, part, all(1)).await?;
        let overlaps = matches!(writing, Work::By(_));
        let phase = Phase::Writing(writing);
        self.joint.in_flight = Some(InFlight { of, cuts, phase, publishes });
        self.checkpointed = Some(step);
        if !overlaps {
            self.end_joint().await?;
        }
        Ok(true)
    }

    /// What rank 0 publishes once all is written.
    async fn publishes(&mut self, begun: Option<Begun>, of: &Of) -> Result<Option<Publishes>> {
        let Some(begun) = begun else { return Ok(None) };
        let (done, saved) = (self.done(), &self.saved);
        let manifest = async |origin: &mut Origin<'a>, trainer: &mut Trainer| {
            Ok(saved.manifest(trainer, &*origin.data, done).await?)
        };
        let manifest = self.inner.attempt(manifest).await?;
        let extra = self.saved.extra(self.data());
        let metrics = self.home.as_ref().and_then(|home| home.metrics_file());
        let (dir, keep) = (of.dir.clone(), self.saved.keep);
        Ok(Some(Publishes { begun, dir, manifest, keep, extra, metrics }))
    }

    /// Writes this rank's part: from a copy, where all ranks have one.
    async fn writing(
        &mut self,
        of: &Of,
        cuts: &Arc<Cuts>,
        mut part: Part,
        overlapped: bool,
    ) -> Result<Work<Wrote>> {
        if overlapped {
            let joint = &mut self.joint;
            let copy = async |_: &mut Origin<'a>, trainer: &mut Trainer| {
                match Given::new(trainer, cuts, std::mem::take(&mut joint.memory)).await {
                    // The way to the other ranks is lost with the device.
                    Err(CheckpointError::Train(error)) => Err(error.into()),
                    copied => Ok(copied),
                }
            };
            let (mut given, copied) = match self.inner.attempt(copy).await? {
                Ok(given) => (given, Ok(())),
                Err(error) => (None, Err(unwritten(error, &of.dir, of.step))),
            };
            let copied = copied.map(|()| given.is_some());
            let copied = self.told(of, "a copy of a checkpoint", copied).await?;
            if let Some(given) = given.take_if(|_| copied.iter().all(|&copied| copied)) {
                let cuts = Arc::clone(cuts);
                return Work::begin(move || {
                    let written = given.write(&mut part, &cuts);
                    (part, given.into_memory(), written)
                });
            }
            // Less is free, on one of them, than when it was planned.
            self.beside.has_room = false;
        }
        let write = async |_: &mut Origin<'a>, trainer: &mut Trainer| match write_own(
            trainer, &mut part, cuts,
        ) {
            Err(CheckpointError::Train(error)) => Err(error.into()),
            written => Ok(written),
        };
        let written = self.inner.attempt(write).await?;
        Ok(Work::Done((part, vec![], written)))
    }

    /// Goes on with a checkpoint that ranks write while training goes on, where all have come to the end of a phase.
    pub(super) async fn poll_joint(&mut self) -> Result<()> {
        let Some(InFlight { phase, .. }) = &self.joint.in_flight else { return Ok(()) };
        let done = f64::from(u8::from(phase.is_done()));
        let said = self.figures("whether a checkpoint is written", &[done]).await?;
        if said.concat().iter().all(|&done| done == 1.0) {
            self.advance_joint().await?;
        }
        Ok(())
    }

    /// Waits for a checkpoint that ranks write.
    pub(super) async fn end_joint(&mut self) -> Result<()> {
        while self.joint.in_flight.is_some() {
            self.advance_joint().await?;
        }
        Ok(())
    }

    /// As `ended`. Where a checkpoint failed because the run's directory is gone, all ranks write into another one.
    pub(super) async fn ended_joint(&mut self, ended: Result<()>) -> Result<()> {
        let Err(error) = ended else { return Ok(()) };
        if !std::mem::take(&mut self.joint.all_know) {
            return Err(error);
        }
        let is_gone = self.home.as_ref().is_some_and(|home| !home.is_there());
        let is_gone = [f64::from(u8::from(is_gone))];
        let said = self.figures("whether the directory is gone", &is_gone).await?;
        if said.concat().contains(&1.0) {
            self.find_home().await?;
            // Only the first rank has a directory.
            self.save_at_home().await?;
        }
        if self.joint.has_failed {
            // A launcher would end the others as soon as this one ends, before they have named it.
            let reason = error.message();
            let tell = async |trainer: &mut Trainer| {
                trainer.tell_failed(&reason);
                Ok(())
            };
            self.with_trainer(tell).await?;
        }
        Err(error)
    }

    /// Waits for this rank's end of a phase, agrees on it with the others, and begins the next one.
    async fn advance_joint(&mut self) -> Result<()> {
        let Some(InFlight { of, cuts, phase, publishes }) = self.joint.in_flight.take() else {
            return Ok(());
        };
        let failed = |error| unwritten(error, &of.dir, of.step);
        // It isn't there unless all of this ends well.
        let checkpointed = self.checkpointed.take();
        match phase {
            Phase::Writing(work) => {
                let (part, memory, written) = work.finish()?;
                self.joint.memory = memory;
                let written = self.told(&of, "what was written", written.map_err(failed)).await?;
                let checked = Arc::clone(&cuts);
                let check = move || Ok(part.check(&checked, &written)?);
                let phase = Phase::Checking(Work::begin(check)?);
                self.joint.in_flight = Some(InFlight { of, cuts, phase, publishes });
            }
            Phase::Checking(work) => {
                let hashes = work.finish()?.map_err(failed);
                let hashes = self.told(&of, "what was read back", hashes).await?.concat();
                let publishing = match publishes {
                    Some(publishes) => {
                        let cuts = Arc::clone(&cuts);
                        Work::begin(move || publishes.run(&cuts, &hashes))?
                    }
                    None => Work::Done(Ok(vec![])),
                };
                let phase = Phase::Publishing(publishing);
                self.joint.in_flight = Some(InFlight { of, cuts, phase, publishes: None });
            }
            Phase::Publishing(work) => {
                let (notes, published) = match work.finish()? {
                    Ok(notes) => (notes, Ok(())),
                    Err(error) => (vec![], Err(error)),
                };
                self.inner.origin.notes.extend(notes);
                self.told(&of, "that a checkpoint is published", published).await?;
            }
        }
        self.checkpointed = checkpointed;
        Ok(())
    }

    /// Says once that rank 0 writes what the others can't.
    fn note_unseen(&mut self, of: &Of, sees: Vec<bool>) {
        if self.home.is_none() || std::mem::replace(&mut self.joint.is_noted, true) {
            return;
        }
        let unseeing = sees.iter().enumerate().filter(|(_, sees)| !**sees);
        let unseeing: Vec<String> = unseeing.map(|(rank, _)| format!("rank {rank}")).collect();
        let copy = match self.beside.room_for_all {
            Some(bytes) => format!(", from a copy of {} in its memory", human_bytes(bytes)),
            None => String::new(),
        };
        self.inner.origin.notes.push(format!(
            "note: {} can't open files in `{}`, so that rank 0 writes checkpoints for all{copy}: a directory that all ranks see takes less",
            unseeing.join(", "),
            of.dir.display()
        ));
    }

    /// What each rank gives, in the order of ranks; the failure of the first that fails.
    async fn told<T: Serialize + DeserializeOwned>(
        &mut self,
        of: &Of,
        what: &str,
        own: Result<T>,
    ) -> Result<Vec<T>> {
        let text = match &own {
            Ok(own) => json!({ "given": own }),
            Err(error) => {
                let causes: Vec<String> =
                    [error.message()].into_iter().chain(error.causes()).collect();
                json!({ "failed": causes.join(": ") })
            }
        };
        let text = text.to_string().into_bytes();
        let tell = async |_: &mut Origin<'a>, trainer: &mut Trainer| {
            Ok(trainer.bytes_of_ranks(what, text.clone())?)
        };
        let said = self.inner.attempt(tell).await?;
        let said: Vec<Value> =
            said.iter().map(|said| serde_json::from_slice(said).unwrap_or_default()).collect();
        self.joint.all_know = said.iter().any(|said| said["failed"].is_string());
        self.joint.has_failed = own.is_err();
        own?;
        let read = |(rank, said): (usize, Value)| {
            let given = serde_json::from_value(said["given"].clone());
            given.map_err(|_| {
                let why = said["failed"].as_str().unwrap_or("what it says isn't understood");
                let help =
                    "see what that rank says; then go on from the last checkpoint with --resume";
                Error::failed(anyhow!("rank {rank}: {why}, and step {} isn't saved", of.step), help)
            })
        };
        said.into_iter().enumerate().map(read).collect()
    }

    async fn figures(&mut self, what: &str, own: &[f64]) -> Result<Vec<Vec<f64>>> {
        let tell = async |_: &mut Origin<'a>, trainer: &mut Trainer| {
            Ok(trainer.figures_of_ranks(what, own.to_vec())?)
        };
        self.inner.attempt(tell).await
    }
}

/// Makes the files of a checkpoint under the run directory `dir`.
fn begin(dir: &Path, step: u64, cuts: &Cuts) -> tightrope_data::Result<(Begun, Place)> {
    // Another one each time: it's of keys that the system has drawn.
    let drawn = || RandomState::new().build_hasher().finish();
    let token = format!("{:016x}{:016x}", drawn(), drawn());
    let begun = Begun::new(dir, step, cuts, &token)?;
    // Ranks of another working directory look at the same place.
    let folder = std::path::absolute(begun.folder()).unwrap_or_else(|_| begun.folder().to_owned());
    let folder = folder.to_string_lossy().into_owned();
    Ok((begun, Place { folder, token }))
}

impl Drop for Joint {
    fn drop(&mut self) {
        // Without the other ranks a checkpoint isn't finished, unless it's being published; nobody hears how that ended.
        match self.in_flight.take().map(|in_flight| in_flight.phase) {
            Some(Phase::Writing(work)) => drop(work.finish()),
            Some(Phase::Checking(work)) => drop(work.finish()),
            Some(Phase::Publishing(work)) => drop(work.finish()),
            None => {}
        }
    }
}
