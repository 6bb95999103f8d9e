//! Checkpoints that a trainer goes on from.

use std::path::PathBuf;

use tightrope::Result;
use tightrope::data::Checkpoint;
use tightrope::data::checkpoint::{Skipped, latest_complete, list};
use tightrope::weights::RUN_SETTINGS;

/// A run or a checkpoint that a trainer goes on from.
pub struct Resumed {
    pub path: PathBuf,
    /// True if its weights must be as the run wrote them, and its model and its frozen weights be the same.
    pub strict: bool,
}

impl Resumed {
    /// The checkpoint at the path, or the newest under it, with notes on those that were passed over.
    ///
    /// # Errors
    /// No checkpoint there, or a damaged one.
    pub fn open(self) -> Result<(Checkpoint, Vec<String>)> {
        if !self.strict {
            return Ok((Checkpoint::open_edited(self.last()?)?, vec![]));
        }
        if !self.path.join("checkpoints").is_dir() {
            return Ok((Checkpoint::open(&self.path)?, vec![]));
        }
        match latest_complete(&self.path) {
            Ok((checkpoint, skipped)) => Ok((checkpoint, notes(&skipped))),
            // The damage of the newest one says more than that none is complete.
            Err(_) => Ok((Checkpoint::open(self.last()?)?, vec![])),
        }
    }

    /// The newest complete checkpoint under a directory that is no run's, or the path itself, with notes on those that were passed
    /// over.
    pub fn newest(self) -> (PathBuf, Vec<String>) {
        if self.path.join(RUN_SETTINGS).exists() {
            return (self.path, vec![]);
        }
        match latest_complete(&self.path) {
            Ok((checkpoint, skipped)) => (checkpoint.path, notes(&skipped)),
            Err(_) => (self.last().unwrap_or_else(|_| self.path.clone()), vec![]),
        }
    }

    /// The newest checkpoint under the path, complete or not, or the path itself if it has none under it.
    ///
    /// # Errors
    /// A folder that can't be read.
    pub fn last(&self) -> Result<PathBuf> {
        let has_some = self.path.join("checkpoints").is_dir();
        let newest = if has_some { list(&self.path)?.pop() } else { None };
        Ok(newest.map_or_else(|| self.path.clone(), |(_, path)| path))
    }
}

fn notes(skipped: &[Skipped]) -> Vec<String> {
    let note = |it: &Skipped| format!("{} was passed over: {}", it.path.display(), it.reason);
    skipped.iter().map(note).collect()
}
