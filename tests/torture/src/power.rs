//! Power that goes away: what was written is logged, and a disk is made as it may be found afterwards.
//!
//! What was flushed is there. Of the rest, a file system may have kept anything (Pillai et al., "All file systems are not created
//! equal", 2014): see [`disk::Habit`].

pub mod disk;
pub mod log;
