//! The command: started with the shim, waited for, and what it said.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process};

use crate::protocol::{CONTROL, Order, PATH, WORDS, Word};
use crate::tally::{Violation, Wrong};

/// How long a command may take before it's said to hang.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// What the shim is told.
#[derive(Clone, Debug, Default)]
pub struct Orders {
    words: [u64; WORDS],
    log: Option<PathBuf>,
}

impl Orders {
    /// Nothing but to count.
    pub fn none() -> Self {
        Self::default()
    }

    /// To do something at a call or an allocation.
    pub fn at(order: Order, at: u64) -> Self {
        Self::none().with(Word::Order, order as u64).with(Word::At, at)
    }

    /// With a word more.
    pub fn with(mut self, word: Word, value: u64) -> Self {
        self.words[word as usize] = value;
        self
    }

    /// With a log in this file.
    pub fn logged(self, log: &Path) -> Self {
        Self { log: Some(log.to_owned()), ..self }
    }

    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes: Vec<u8> = self.words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let path = self.log.as_ref().map(|log| log.as_os_str().as_encoded_bytes().to_vec());
        bytes.extend(path.unwrap_or_default());
        bytes.resize(WORDS * size_of::<u64>() + PATH, 0);
        bytes
    }
}

/// The command and the shim.
#[derive(Clone, Debug)]
pub struct Tightrope {
    /// The binary.
    pub binary: PathBuf,
    /// The library that is loaded into it.
    pub shim: PathBuf,
}

impl Tightrope {
    /// Starts it in `dir`, where the folder `cache` is its cache.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn start(&self, dir: &Path, words: &str, orders: &Orders) -> anyhow::Result<Running> {
        let control = dir.join("control");
        fs::write(&control, orders.to_bytes())?;
        let printed = |name: &str| File::create(dir.join(name));
        let child = Command::new(&self.binary)
            .args(words.split_whitespace())
            .current_dir(dir)
            .env("XDG_CACHE_HOME", dir.join("cache"))
            .env("HOME", dir)
            .env("XDG_RUNTIME_DIR", dir)
            .env("LD_PRELOAD", &self.shim)
            .env(CONTROL, &control)
            // What is said matters, and not where; and a backtrace reads files.
            .env_remove("RUST_BACKTRACE")
            .stdin(Stdio::null())
            .stdout(printed("stdout")?)
            .stderr(printed("stderr")?)
            .spawn()
            .with_context(|| format!("can't start {}", self.binary.display()))?;
        Ok(Running { child, dir: dir.to_owned(), begun: Instant::now(), ended: false })
    }

    /// Runs it to its end.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn run(&self, dir: &Path, words: &str, orders: &Orders) -> anyhow::Result<Ended> {
        self.start(dir, words, orders)?.wait(PATIENCE)
    }
}

/// A command that runs.
pub struct Running {
    child: Child,
    dir: PathBuf,
    /// When it was started.
    pub begun: Instant,
    /// Whether its end was seen: its number may be another's from then on.
    ended: bool,
}

impl Running {
    /// Its number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn has_ended(&mut self) -> anyhow::Result<bool> {
        self.ended = self.child.try_wait()?.is_some();
        Ok(self.ended)
    }

    /// Sends it a signal, where it's still there.
    pub fn signal(&self, signal: Signal) {
        if !self.ended {
            // It may have ended by now; the number is still its own, as nobody has waited for it.
            let _ = kill_process(Pid::from_child(&self.child), signal);
        }
    }

    /// Ends it as SIGKILL does.
    pub fn kill(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
    }

    /// Waits for its end, `patience` at most.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn wait(mut self, patience: Duration) -> anyhow::Result<Ended> {
        let waiting = Instant::now();
        let mut hung = false;
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            if !hung && waiting.elapsed() > patience {
                hung = true;
                self.kill();
            }
            // A run takes tens of milliseconds.
            std::thread::sleep(Duration::from_millis(1));
        };
        #[cfg(unix)]
        let signal = std::os::unix::process::ExitStatusExt::signal(&status);
        let read = |name: &str| fs::read(self.dir.join(name)).unwrap_or_default();
        let text = |name: &str| String::from_utf8_lossy(&read(name)).into_owned();
        let mut words = [0; WORDS];
        for (word, bytes) in words.iter_mut().zip(read("control").chunks_exact(size_of::<u64>())) {
            *word = u64::from_ne_bytes(bytes.try_into()?);
        }
        Ok(Ended {
            code: status.code(),
            signal,
            hung,
            took: self.begun.elapsed(),
            stdout: text("stdout"),
            stderr: text("stderr"),
            words,
        })
    }
}

/// A command that has ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// Its exit code, where no signal ended it.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Whether it had to be ended.
    pub hung: bool,
    /// How long it took.
    pub took: Duration,
    /// What it printed.
    pub stdout: String,
    /// What it said.
    pub stderr: String,
    words: [u64; WORDS],
}

impl Ended {
    /// What the shim says.
    pub fn word(&self, word: Word) -> u64 {
        self.words[word as usize]
    }

    /// Whether it did all that it was asked for.
    pub fn is_done(&self) -> bool {
        self.code == Some(0)
    }

    /// Whether SIGKILL ended it.
    pub fn is_killed(&self) -> bool {
        self.signal == Some(Signal::KILL.as_raw())
    }

    /// What no command may do, whatever happens to it: panic, crash, hang, or fail without words. SIGKILL is none of its doing.
    ///
    /// # Errors
    /// That.
    pub fn check(&self) -> Result<(), Violation> {
        let said = self.stderr.trim_end();
        if self.hung {
            let seconds = self.took.as_secs();
            return Err(Violation::new(Wrong::Hang, format!("it ran for {seconds} s: {said}")));
        }
        if self.stderr.contains("panicked at") {
            return Err(Violation::new(Wrong::Panic, said));
        }
        let wordless =
            |what: &str| Err(Violation::new(Wrong::Words, format!("{what}, and said: {said:?}")));
        match (self.code, self.signal) {
            (Some(0 | 130), _) => Ok(()),
            (Some(1..=3), _) if !self.stderr.contains("error:") => {
                wordless("it failed without a cause")
            }
            (Some(1..=3), _) => Ok(()),
            (None, _) if self.is_killed() => Ok(()),
            (None, Some(signal)) => {
                Err(Violation::new(Wrong::Panic, format!("signal {signal} ended it: {said}")))
            }
            (code, _) => wordless(&format!("it exited with {code:?}")),
        }
    }
}
