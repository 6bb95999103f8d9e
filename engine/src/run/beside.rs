//! A checkpoint that is written while training goes on, from a copy in the host's memory.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use anyhow::anyhow;
use tightrope_data::Manifest;

use super::saved::unwritten;
use crate::checkpoint::Copied;
use crate::error::{Error, Result};

/// Writes one checkpoint at a time.
pub(super) struct Beside {
    /// Whether the host has room for a copy of what this rank writes.
    pub has_room: bool,
    /// Bytes of a copy of what all ranks hold, where it has room for it.
    pub room_for_all: Option<u64>,
    thread: Option<JoinHandle<Written>>,
    /// What the last copy was in.
    memory: Vec<u8>,
}

/// The copy's memory, and what there is to tell.
type Written = (Vec<u8>, Result<Vec<String>>);

/// A checkpoint that is to be written.
pub(super) struct Job {
    /// The run directory.
    pub dir: PathBuf,
    /// Tensors.
    pub copied: Copied,
    /// How far the run has come.
    pub manifest: Manifest,
    /// Newest checkpoints that stay.
    pub keep: usize,
    /// Files besides.
    pub extra: Vec<(String, Vec<u8>)>,
    /// Metrics, which are to be on the disk before the checkpoint is.
    pub metrics: Option<Arc<File>>,
}

impl Job {
    fn run(self) -> Written {
        let Self { dir, copied, manifest, keep, extra, metrics } = self;
        let mut notes = vec![];
        if let Some(Err(error)) = metrics.map(|file| file.sync_data()) {
            notes.push(format!("warning: the metrics can't be flushed: {error}"));
        }
        let step = manifest.step;
        let written = match copied.write(&dir, (manifest, keep), extra) {
            Ok(saved) => {
                notes.extend(saved.left.iter().map(|error| format!("warning: {error}")));
                Ok(notes)
            }
            Err(error) => Err(unwritten(error, &dir, step)),
        };
        (copied.into_memory(), written)
    }
}

impl Beside {
    /// Where the host has room for these copies.
    pub fn new(has_room: bool, room_for_all: Option<u64>) -> Self {
        Self { has_room, room_for_all, thread: None, memory: vec![] }
    }

    /// Memory for the next copy.
    pub fn take_memory(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.memory)
    }

    /// Begins to write. None may be being written.
    ///
    /// # Errors
    /// A system without another thread.
    pub fn begin(&mut self, job: Job) -> Result<()> {
        let thread = Builder::new().name("checkpoint".to_owned()).spawn(move || job.run());
        let refused =
            |error| Error::failed(anyhow!("no thread to write a checkpoint: {error}"), FEWER);
        self.thread = Some(thread.map_err(refused)?);
        Ok(())
    }

    /// What there is to tell of a checkpoint that was written meanwhile; nothing where one is still being written.
    ///
    /// # Errors
    /// What kept it from being written.
    pub fn poll(&mut self) -> Result<Vec<String>> {
        match self.thread.as_ref().is_some_and(JoinHandle::is_finished) {
            true => self.finish(),
            false => Ok(vec![]),
        }
    }

    /// As [`Beside::poll`], once it's written.
    ///
    /// # Errors
    /// What kept it from being written.
    pub fn finish(&mut self) -> Result<Vec<String>> {
        let Some(thread) = self.thread.take() else { return Ok(vec![]) };
        let (memory, written) = thread.join().map_err(|_| {
            Error::failed(anyhow!("the thread that writes checkpoints has panicked"), "report it")
        })?;
        self.memory = memory;
        written
    }
}

const FEWER: &str = "end other processes, or raise their limit (`ulimit -u`)";

impl Drop for Beside {
    fn drop(&mut self) {
        // A run that ends for another reason leaves a whole checkpoint behind; what is to be told of it has no listener.
        let _ = self.finish();
    }
}
