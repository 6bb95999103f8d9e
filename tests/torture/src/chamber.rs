//! What scenarios share: the command, the runs that were made without disturbance, and a folder for each case.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use anyhow::Context as _;

use crate::command::{Ended, Orders, Tightrope};
use crate::configurations::{Configuration, Extent, KINDS, Kind, RESUME, STEPS};
use crate::device::Disturbance;
use crate::draws::Draws;
use crate::library;
use crate::results::{self, RUN, Results};
use crate::tally::{Verdict, Violation, Well, Wrong};

/// What scenarios share.
pub struct Chamber {
    /// The command.
    pub tightrope: Tightrope,
    /// The folder of everything.
    pub work: PathBuf,
    /// What everything is drawn by.
    pub seed: u64,
    /// The time that there is.
    pub time: Duration,
    /// Runs on the processor.
    pub configurations: Vec<Configuration>,
    /// Runs on a GPU, once they're asked for; or why there are none.
    on_gpu: OnceLock<Result<Vec<Configuration>, String>>,
    /// What runs come to on devices of this process, by their names, once that was seen.
    undisturbed: Mutex<BTreeMap<&'static str, Arc<Undisturbed>>>,
}

/// A run in this process whose device stays.
pub struct Undisturbed {
    /// Calls of its device.
    pub calls: u64,
    /// What it came to.
    pub results: Results,
}

impl Chamber {
    /// A chamber in `work`.
    ///
    /// # Errors
    /// Runs that fail without any disturbance.
    pub fn new(
        tightrope: Tightrope,
        work: PathBuf,
        seed: u64,
        time: Duration,
    ) -> anyhow::Result<Self> {
        let configurations = made(&tightrope, &work, false)?;
        let (on_gpu, undisturbed) = (OnceLock::new(), Mutex::default());
        Ok(Self { tightrope, work, seed, time, configurations, on_gpu, undisturbed })
    }

    /// Runs on a GPU, made when they're first asked for: that takes a minute, in which the device is measured.
    ///
    /// # Errors
    /// Where there's no GPU, or a run fails without any disturbance.
    pub fn on_gpu(&self) -> anyhow::Result<&[Configuration]> {
        let make = || {
            library::has_gpu()?;
            made(&self.tightrope, &self.work, true).map_err(|error| format!("{error:#}"))
        };
        match self.on_gpu.get_or_init(make) {
            Ok(configurations) => Ok(configurations),
            Err(why) => anyhow::bail!("{why}"),
        }
    }

    /// What a run of this kind comes to in this process, in the folder of a case.
    ///
    /// # Errors
    /// A run that fails without any disturbance.
    pub fn undisturbed(&self, kind: Kind, case: &Case<'_>) -> anyhow::Result<Arc<Undisturbed>> {
        let mut seen = self.undisturbed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = seen.get(kind.name) {
            return Ok(Arc::clone(found));
        }
        let dir = emptied(&case.dir, "undisturbed")?;
        results::copy(&self.configurations[0].begin, &dir)?;
        let what = Rc::<Disturbance>::default();
        let came = library::run(&kind, &dir, &what)?;
        anyhow::ensure!(came.failed.is_none(), "undisturbed, it fails: {:?}", came.failed);
        let found = Undisturbed { calls: what.calls.get(), results: Results::of(&dir, STEPS)? };
        let found = Arc::new(found);
        seen.insert(kind.name, Arc::clone(&found));
        Ok(found)
    }
}

/// Makes the runs on the processor, or those on a GPU, and tells how long they are.
fn made(tightrope: &Tightrope, work: &Path, gpu: bool) -> anyhow::Result<Vec<Configuration>> {
    let kinds = KINDS.into_iter().filter(|kind| kind.gpu == gpu);
    kinds
        .map(|kind| {
            let made = Configuration::make(kind, tightrope, &work.join("runs"));
            let made = made.with_context(|| format!("without any disturbance, {}", kind.name))?;
            let told = |extent: &Extent| {
                let Extent { calls, allocations, took, .. } = extent;
                format!(
                    "{:.0} ms, {calls} calls, {allocations} allocations",
                    took.as_secs_f64() * 1e3
                )
            };
            println!("{}: {}; from half-way {}", kind.name, told(&made.whole), told(&made.rest));
            Ok(made)
        })
        .collect()
}

/// One case of a scenario.
pub struct Case<'a> {
    /// What it shares with others.
    pub chamber: &'a Chamber,
    /// Its number.
    pub number: u64,
    /// Its draws.
    pub draws: Draws,
    /// Its folder, empty at first.
    pub dir: PathBuf,
    /// What it does, for whoever reads of what went wrong.
    pub story: Vec<String>,
}

impl Case<'_> {
    /// Runs the command to its end, and tells it.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn run(&mut self, words: &str, orders: &Orders) -> anyhow::Result<Ended> {
        let ended = self.chamber.tightrope.run(&self.dir, words, orders)?;
        self.tell(words, &ended);
        Ok(ended)
    }

    /// Tells that a command ended.
    pub fn tell(&mut self, words: &str, ended: &Ended) {
        let Ended { code, signal, .. } = ended;
        let said: Vec<&str> =
            ended.stderr.lines().filter(|line| noteworthy(line)).take(6).collect();
        self.story.push(format!("`tightrope {words}`: code {code:?}, signal {signal:?}; {said:?}"));
    }

    /// Puts what a new run of this configuration needs into the folder.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn begin(&self, configuration: &Configuration) -> anyhow::Result<()> {
        results::copy(&configuration.begin, &self.dir)
    }

    /// Puts a run that was ended half-way into the folder.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn half_way(&self, configuration: &Configuration) -> anyhow::Result<()> {
        results::copy(&configuration.half, &self.dir)
    }

    /// Goes on with the run in the folder, undisturbed, and holds it against what it must come to: it may not be refused, and no
    /// checkpoint that is there may be passed over. `said` is what commands said before.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn goes_on(
        &mut self,
        configuration: &Configuration,
        said: &str,
    ) -> anyhow::Result<Verdict> {
        let newest = results::saved(&self.dir).last().copied();
        let ended = self.resume(configuration)?;
        Ok(ended.check().and_then(|()| {
            let lost = |what: &str| {
                let saved = newest.map_or("none".to_owned(), |step| format!("step {step}"));
                let said = ended.stderr.trim_end();
                Err(Violation::new(Wrong::Lost, format!("{what}; saved was {saved}: {said}")))
            };
            if !ended.is_done() {
                return lost("it doesn't go on");
            }
            if ended.stderr.contains("was passed over") {
                return lost("a checkpoint is damaged");
            }
            let said = format!("{said}{}", ended.stderr);
            configuration.results.hold(&self.dir, &said).map(|()| Well::Identical)
        }))
    }

    /// As [`Case::goes_on`], where a refusal with its cause will do. Of losses, those after step `since` are held.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn goes_on_or_says_why(
        &mut self,
        configuration: &Configuration,
        since: u64,
    ) -> anyhow::Result<Verdict> {
        let ended = self.resume(configuration)?;
        Ok(ended.check().and_then(|()| {
            if !ended.is_done() {
                return Ok(Well::Refused);
            }
            let results = &configuration.results;
            results.hold_since(since, &self.dir, &ended.stderr).map(|()| Well::Identical)
        }))
    }

    /// Resumes the run, or starts it where there is none yet.
    fn resume(&mut self, configuration: &Configuration) -> anyhow::Result<Ended> {
        let begun = self.dir.join(RUN).join("run.toml").exists();
        let words = if begun { RESUME.to_owned() } else { configuration.kind.fresh() };
        self.run(&words, &Orders::none())
    }
}

/// Whether a line says what went wrong, and not how far it has come.
fn noteworthy(line: &str) -> bool {
    let begins = ["error", "warning", "note", "  because", "help", "thread", "stopped"];
    begins.iter().any(|word| line.starts_with(word)) || line.contains("panicked")
}

/// A folder of this name under `parent`, empty.
///
/// # Errors
/// What the system refuses.
pub fn emptied(parent: &Path, name: &str) -> anyhow::Result<PathBuf> {
    let dir = parent.join(name);
    match fs::remove_dir_all(&dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("can't empty {}", dir.display()));
        }
        _ => {}
    }
    fs::create_dir_all(&dir).with_context(|| format!("can't make {}", dir.display()))?;
    Ok(dir)
}
