//! One process a run directory: a file that it holds locked while it trains, with its name.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use anyhow::{Context as _, anyhow};
use tightrope_data::files::{has_no_locks, has_other_names, open, read_system, take_alone};

use crate::error::{Error, Help as _, Result};

/// Name of the file in a run directory.
pub(super) const FILE_NAME: &str = "run.lock";

/// Holds a run directory for this process: a notebook that goes on with a run may still have the one before. The system unlocks
/// it when the process ends, however it does.
pub(super) struct Lock {
    _held: Arc<Held>,
}

/// What this process holds, by its file.
static HELD: Mutex<Vec<(PathBuf, Weak<Held>)>> = Mutex::new(Vec::new());

struct Held {
    _file: File,
    /// The file to remove in the end, where the file system has no locks and its being there is the lock.
    path: Option<PathBuf>,
}

impl Lock {
    /// Takes the run directory `dir`.
    ///
    /// # Errors
    /// One that another process trains in, and one that can't be written.
    pub(super) fn take(dir: &Path) -> Result<Self> {
        let path = dir.canonicalize().unwrap_or_else(|_| dir.to_owned()).join(FILE_NAME);
        let mut all = HELD.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|(_, held)| held.strong_count() > 0);
        let own = all.iter().find(|(own, _)| *own == path && path.exists());
        if let Some(held) = own.and_then(|(_, held)| held.upgrade()) {
            return Ok(Self { _held: held });
        }
        let cannot = || format!("can't lock `{}`", path.display());
        const NEXT: &str = "give --out a directory that can be written";
        let open = || open(&path, OpenOptions::new().read(true).write(true).create(true));
        let mut file = open().with_context(cannot).help(NEXT)?;
        let mut holder = String::new();
        // A name is text.
        let _ = file.read_to_string(&mut holder);
        let holder = Holder::parse(&holder);
        let locks = match file.try_lock() {
            Ok(()) => true,
            Err(TryLockError::WouldBlock) => return Err(taken(dir, holder.as_ref())),
            Err(TryLockError::Error(error)) if has_no_locks(&error) => false,
            Err(TryLockError::Error(error)) => return Err(error).with_context(cannot).help(NEXT),
        };
        // The lock of a run whose files are a backup's too: what the backup has stays as it is.
        if file.metadata().is_ok_and(|found| has_other_names(&found)) {
            file = take_alone(&path).and_then(|()| open()).with_context(cannot).help(NEXT)?;
            match file.try_lock() {
                Err(TryLockError::WouldBlock) => return Err(taken(dir, holder.as_ref())),
                Err(TryLockError::Error(error)) if !has_no_locks(&error) => {
                    return Err(error).with_context(cannot).help(NEXT);
                }
                _ => {}
            }
        }
        if !locks && holder.as_ref().is_some_and(Holder::may_live) {
            return Err(taken(dir, holder.as_ref()));
        }
        file.set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| file.write_all(Holder::own().to_text().as_bytes()))
            .with_context(cannot)
            .help(NEXT)?;
        let held = Arc::new(Held { _file: file, path: (!locks).then(|| path.clone()) });
        all.push((path, Arc::downgrade(&held)));
        Ok(Self { _held: held })
    }
}

/// Refuses a run directory that another process trains in. Takes nothing, and makes no file.
///
/// # Errors
/// One that is taken.
pub(super) fn refuse_taken(dir: &Path) -> Result<()> {
    // One that can't be opened is refused, by its name, when the directory is taken.
    let file = open(&dir.join(FILE_NAME), OpenOptions::new().read(true));
    let Ok(mut file) = file else { return Ok(()) };
    let mut holder = String::new();
    // A name is text.
    let _ = file.read_to_string(&mut holder);
    let holder = Holder::parse(&holder);
    let is_taken = match file.try_lock_shared() {
        Ok(()) => false,
        Err(TryLockError::WouldBlock) => true,
        Err(TryLockError::Error(_)) => holder.as_ref().is_some_and(Holder::may_live),
    };
    if is_taken { Err(taken(dir, holder.as_ref())) } else { Ok(()) }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            // Whoever finds it sees that its process is gone.
            let _ = fs::remove_file(path);
        }
    }
}

fn taken(dir: &Path, holder: Option<&Holder>) -> Error {
    let shown = dir.display();
    let who = match holder {
        Some(Holder { host, process }) => format!("process {process} on `{host}`"),
        None => "another process".to_owned(),
    };
    Error::usage(
        anyhow!("{who} is training in `{shown}`"),
        format!(
            "wait until it ends, or start another run; if it has ended, remove `{shown}/{FILE_NAME}`"
        ),
    )
}

/// The process that holds a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Holder {
    host: String,
    process: u32,
}

impl Holder {
    fn own() -> Self {
        Self { host: host(), process: process::id() }
    }

    fn to_text(&self) -> String {
        format!("{} {}\n", self.process, self.host)
    }

    fn parse(text: &str) -> Option<Self> {
        let (process, host) = text.trim_end().split_once(' ')?;
        Some(Self { host: host.to_owned(), process: process.parse().ok()? })
    }

    /// Whether it may be there still: what runs on another host isn't known.
    fn may_live(&self) -> bool {
        let here = self.host == host();
        let processes = Path::new("/proc");
        let gone = here
            && processes.join("self").exists()
            && !processes.join(self.process.to_string()).exists();
        !gone && *self != Self::own()
    }
}

/// The name of this machine.
fn host() -> String {
    let found = read_system("/proc/sys/kernel/hostname");
    let found = found.ok().or_else(|| std::env::var("HOSTNAME").ok());
    let found = found.or_else(|| std::env::var("COMPUTERNAME").ok());
    found.map_or_else(|| "this machine".to_owned(), |name| name.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;

    #[test]
    fn a_directory_is_held_until_the_last_run_of_the_process_lets_go() {
        let dir = tempfile::tempdir().unwrap();
        let another = || File::open(dir.path().join(FILE_NAME)).unwrap().try_lock().is_ok();
        let first = Lock::take(dir.path()).unwrap();
        let next = Lock::take(dir.path()).unwrap();
        drop(first);
        assert!(!another());
        drop(next);
        assert!(another());
        let refused = taken(dir.path(), Some(&Holder::own()));
        assert_eq!(refused.kind(), Kind::Usage);
        let said = refused.message();
        assert!(said.contains(&format!("process {} on `", process::id())), "{said}");
    }

    #[test]
    fn a_process_that_is_gone_holds_nothing() {
        let gone = Holder { process: u32::MAX, ..Holder::own() };
        assert!(!gone.may_live());
        assert!(Holder { host: "elsewhere".to_owned(), ..gone.clone() }.may_live());
        assert!(Holder { process: 1, ..gone.clone() }.may_live());
        assert_eq!(Holder::parse(&gone.to_text()), Some(gone.clone()));
        assert_eq!(Holder::parse(""), None);
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(FILE_NAME), gone.to_text()).unwrap();
        Lock::take(dir.path()).unwrap();
    }
}
