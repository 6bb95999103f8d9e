//! A run of very many steps that saves again and again: what it holds of descriptors, memory and disk doesn't grow.

use std::fs;
use std::iter;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::process::Signal;

use crate::chamber::{Case, Chamber};
use crate::command::{Orders, PATIENCE};
use crate::results::{RUN, files};
use crate::tally::{Tally, Verdict, Violation, Well, Wrong};

/// How long it runs for each minute that the chamber has.
const PART: u32 = 30;
/// Its checkpoint of this step exists before what it holds is looked at: by then it has planned, saved and pruned.
const SETTLED: u64 = 40;
/// How often it's looked at.
const LOOKS: u32 = 200;
/// How often its folder is walked for one look, at most.
const WALKS: usize = 20;
/// Bytes that memory may be more at the end than when it had settled.
const MORE_MEMORY: u64 = 4 << 20;

/// One.
pub fn cases(_: &Chamber) -> Option<u64> {
    Some(1)
}

/// What a process holds.
#[derive(Clone, Copy, Debug)]
struct Held {
    descriptors: u64,
    resident: u64,
    /// Bytes of its folder, but for what records steps and samples.
    disk: u64,
}

impl Held {
    fn by(id: u32, run: &Path) -> anyhow::Result<Self> {
        let process = Path::new("/proc").join(id.to_string());
        let pages = fs::read_to_string(process.join("statm"))?;
        let pages: u64 = pages.split(' ').nth(1).unwrap_or_default().parse()?;
        let records = |path: &Path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name == "metrics.jsonl" || name.starts_with("events.") || name.ends_with(".txt")
        };
        // A folder that goes away while it's walked fails the walk, and a file may go away after it.
        let walked = iter::repeat_with(|| files(run)).take(WALKS).find_map(Result::ok);
        let walked = walked.context("the run's folder changed during each walk through it")?;
        let kept = walked.into_iter().filter(|path| !records(path));
        Ok(Self {
            descriptors: fs::read_dir(process.join("fd"))?.count() as u64,
            resident: pages * 4096,
            disk: kept.filter_map(|path| fs::metadata(path).ok()).map(|found| found.len()).sum(),
        })
    }
}

/// Runs for its part of the time, and is asked to end.
pub fn attempt(case: &mut Case<'_>) -> anyhow::Result<Tally> {
    let chamber = case.chamber;
    case.begin(&chamber.configurations[0])?;
    let words = chamber.configurations[0].kind.fresh().replace("--steps 10", "--steps 100000000");
    let mut running = chamber.tightrope.start(&case.dir, &words, &Orders::none())?;
    let run = case.dir.join(RUN);
    let begun = Instant::now();
    // How long that takes depends on what else the machine does.
    while !has_settled(&run) && begun.elapsed() < PATIENCE && !running.has_ended()? {
        std::thread::sleep(Duration::from_millis(20));
    }
    let settled = has_settled(&run);
    let time = (chamber.time / PART).max(Duration::from_secs(4));
    let mut held = vec![];
    for _ in 0..LOOKS {
        std::thread::sleep(time / LOOKS);
        if running.has_ended()? {
            break;
        }
        held.push(Held::by(running.id(), &run)?);
    }
    running.signal(Signal::TERM);
    let ended = running.wait(PATIENCE)?;
    case.tell(&words, &ended);
    let verdict = ended.check().and_then(|()| match ended.code {
        Some(130) if settled => stays(&held),
        Some(130) => Err(Violation::new(Wrong::Hang, format!("no checkpoint of step {SETTLED}"))),
        code => Err(Violation::new(Wrong::Lost, format!("it ended by itself: {code:?}"))),
    });
    case.story.push(format!("{:?} … {:?}", held.first(), held.last()));
    Ok(Tally::of(verdict))
}

/// Whether a checkpoint of step [`SETTLED`] or of a later one is there.
fn has_settled(run: &Path) -> bool {
    let folders = fs::read_dir(run.join("checkpoints")).into_iter().flatten().flatten();
    let names = folders.map(|folder| folder.file_name().to_string_lossy().into_owned());
    let steps = names.filter_map(|name| name.strip_prefix("step-")?.parse::<u64>().ok());
    steps.max().is_some_and(|step| step >= SETTLED)
}

/// Whether the last half of what was held is no more than the quarter before: at its least, since a checkpoint that is being
/// written takes some of each.
fn stays(held: &[Held]) -> Verdict {
    let (settled, rest) = held.split_at(held.len() / 2);
    let settled = &settled[settled.len() / 2..];
    let least = |held: &[Held], of: fn(&Held) -> u64| held.iter().map(of).min().unwrap_or(0);
    for (what, of, more) in [
        ("descriptors", (|held| held.descriptors) as fn(&Held) -> u64, 0),
        ("bytes of memory", |held| held.resident, MORE_MEMORY),
        // In a short run, another one may never be seen without.
        ("bytes on the disk", |held| held.disk, least(settled, |held| held.disk)),
    ] {
        let (before, after) = (least(settled, of), least(rest, of));
        if after > before + more {
            let what = format!("from {before} to {after} {what}");
            return Err(Violation::new(Wrong::Silent, what));
        }
    }
    Ok(Well::Identical)
}
