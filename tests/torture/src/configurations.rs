//! The runs that are tortured: each was made once without any disturbance, to have what others are held against.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};

use crate::command::{Ended, Orders, Tightrope};
use crate::protocol::{Order, Word};
use crate::results::{self, RUN, Results};

/// Steps of a run.
pub const STEPS: u64 = 10;
/// The last checkpoint of a run that was ended half-way.
pub const HALF_WAY: u64 = 6;

/// Flags of every run: a model that takes a moment, saved at every other step so that checkpoints are pruned.
const TINY: &str = "--data text.txt --layers 1 --channels 16 --heads 2 --context 16 --batch 4 --steps 10 --threads 1 \
    --save-every 2 --log-every 1 --eval-every 5 --sample-every 5 --set model.dropout=0.1";

/// A kind of run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Its name.
    pub name: &'static str,
    /// Its flags, besides those of every run.
    words: &'static str,
    /// Whether it's on a GPU.
    pub gpu: bool,
}

/// All of them.
pub const KINDS: [Kind; 7] = [
    Kind { name: "f32", words: "--device cpu", gpu: false },
    Kind {
        name: "f16",
        words: "--device cpu --precision f16 --optimizer lion --micro-batch 2",
        gpu: false,
    },
    Kind {
        name: "lora",
        words: "--device cpu --lora-rank 2 --family llama --hidden 32",
        gpu: false,
    },
    Kind {
        name: "state of 8 bits",
        words: "--device cpu --set memory.optimizer_bits=8",
        gpu: false,
    },
    Kind {
        name: "by loss",
        words: "--device cpu --keep 1 --set run.keep_best=true --patience 9 --eval-every 3",
        gpu: false,
    },
    Kind { name: "wgpu", words: "--device wgpu --precision bf16", gpu: true },
    Kind { name: "offload", words: "--device wgpu --offload optimizer", gpu: true },
];

impl Kind {
    /// What starts a run of it.
    pub fn fresh(&self) -> String {
        format!("train --out {RUN} {TINY} {}", self.words)
    }

    /// The settings of a run of it, as `--set` takes them: for the library.
    pub fn flags(&self) -> impl Iterator<Item = &'static str> {
        TINY.split_whitespace().chain(self.words.split_whitespace())
    }
}

/// What goes on with a run.
pub const RESUME: &str = "train --resume a";

/// How much a command does when nothing disturbs it.
#[derive(Clone, Debug, Default)]
pub struct Extent {
    /// Calls.
    pub calls: u64,
    /// Allocations.
    pub allocations: u64,
    /// Time.
    pub took: Duration,
    /// The log of it.
    pub log: PathBuf,
    /// The folder that it ran in, as it was before.
    pub from: PathBuf,
    /// That folder.
    pub dir: PathBuf,
}

/// A kind of run that was made without any disturbance.
#[derive(Clone, Debug)]
pub struct Configuration {
    /// What it is.
    pub kind: Kind,
    /// What it came to.
    pub results: Results,
    /// A folder with what a new run needs.
    pub begin: PathBuf,
    /// A folder with a run that was ended half-way.
    pub half: PathBuf,
    /// Of the whole run.
    pub whole: Extent,
    /// Of going on half-way.
    pub rest: Extent,
}

impl Configuration {
    /// Makes the runs of a kind, in folders under `folder`.
    ///
    /// # Errors
    /// Runs that don't end as they should without any disturbance.
    pub fn make(kind: Kind, tightrope: &Tightrope, folder: &Path) -> anyhow::Result<Self> {
        let folder = folder.join(kind.name.replace(' ', "-"));
        let [begin, warm, whole, half, rest] =
            ["begin", "warm", "whole", "half", "rest"].map(|name| folder.join(name));
        fs::create_dir_all(begin.join("cache"))?;
        fs::write(begin.join("text.txt"), text())?;
        // Measures the device, once for all.
        results::copy(&begin, &warm)?;
        undisturbed(tightrope, &warm, &kind.fresh(), Orders::none())?;
        fs::remove_dir_all(begin.join("cache"))?;
        results::copy(&warm.join("cache"), &begin.join("cache"))?;

        let (whole_extent, _) = measured(tightrope, &begin, &whole, &kind.fresh(), &folder)?;
        let found = Results::of(&whole, STEPS)?;
        end_half_way(tightrope, (&begin, &half), kind)?;
        let (rest_extent, ended) = measured(tightrope, &half, &rest, RESUME, &folder)?;
        found.hold(&rest, &ended.stderr).map_err(|violation| {
            anyhow::anyhow!("undisturbed, it goes on differently: {}", violation.what)
        })?;
        let (whole, rest) = (whole_extent, rest_extent);
        Ok(Self { kind, results: found, begin, half, whole, rest })
    }
}

/// Makes a copy of `begin` with a run whose last checkpoint is that of [`HALF_WAY`]: it's killed as that has its name.
///
/// # Errors
/// A run that was not.
fn end_half_way(
    tightrope: &Tightrope,
    (begin, half): (&Path, &Path),
    kind: Kind,
) -> anyhow::Result<()> {
    results::copy(begin, half)?;
    let killed = Orders::at(Order::KillAfterCheckpoint, HALF_WAY);
    let ended = tightrope.run(half, &kind.fresh(), &killed)?;
    let last = results::saved(half).last().copied();
    ensure!(
        ended.is_killed() && last == Some(HALF_WAY),
        "it was to be killed after the checkpoint of step {HALF_WAY}, but its last is {last:?}: {}",
        ended.stderr
    );
    Ok(())
}

/// The text that is trained on.
fn text() -> String {
    (0..100).map(|n| format!("{n} and {} make {}\n", n + 1, 2 * n + 1)).collect()
}

fn undisturbed(
    tightrope: &Tightrope,
    dir: &Path,
    words: &str,
    orders: Orders,
) -> anyhow::Result<Ended> {
    let ended = tightrope.start(dir, words, &orders)?.wait(Duration::from_secs(120))?;
    ensure!(ended.is_done(), "undisturbed, `{words}` failed: {}", ended.stderr);
    Ok(ended)
}

/// Runs a command in `dir`, a copy of `from`, and says how much it does.
fn measured(
    tightrope: &Tightrope,
    from: &Path,
    dir: &Path,
    words: &str,
    folder: &Path,
) -> anyhow::Result<(Extent, Ended)> {
    results::copy(from, dir)?;
    let name = dir.file_name().context("a folder's name")?.to_string_lossy();
    let log = folder.join(format!("{name}.log"));
    let ended = undisturbed(tightrope, dir, words, Orders::none().logged(&log))?;
    let (calls, allocations) = (ended.word(Word::Calls), ended.word(Word::Allocations));
    ensure!(calls > 50 && allocations > 50, "the shim counts nothing: {calls}, {allocations}");
    let (from, dir) = (from.to_owned(), dir.to_owned());
    Ok((Extent { calls, allocations, took: ended.took, log, from, dir }, ended))
}
