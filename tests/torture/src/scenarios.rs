//! The scenarios, and how they are tried: case after case, side by side, until their time is over.

mod allocations;
mod devices;
mod faults;
mod flips;
mod infinite;
mod kills;
mod memory;
mod pairs;
mod power;
mod signals;
mod soak;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use crate::chamber::{Case, Chamber, emptied};
use crate::draws::Draws;
use crate::library;
use crate::tally::{Row, Tally, Violation, Wrong};

/// A kind of disturbance.
pub struct Scenario {
    /// Its name.
    pub name: &'static str,
    /// Its part of the time, against the others'.
    share: u32,
    /// Whether it needs a GPU.
    gpu: bool,
    /// Minutes of all scenarios together below which it isn't worth its preparation.
    least: u64,
    /// How many cases there are; none for no end.
    cases: fn(&Chamber) -> Option<u64>,
    /// Tries a case.
    attempt: fn(&mut Case<'_>) -> anyhow::Result<Tally>,
}

/// No end of cases.
fn endless(_: &Chamber) -> Option<u64> {
    None
}

impl Scenario {
    const fn new(
        name: &'static str,
        share: u32,
        attempt: fn(&mut Case<'_>) -> anyhow::Result<Tally>,
    ) -> Self {
        Self { name, share, gpu: false, least: 0, cases: endless, attempt }
    }
}

/// All of them, in the order in which they are tried.
pub const ALL: &[Scenario] = &[
    Scenario::new("kills-at-calls", 4, kills::at_calls),
    Scenario::new("kills-at-any-time", 2, kills::at_any_time),
    Scenario { gpu: true, least: 10, ..Scenario::new("kills-on-gpu", 3, kills::on_gpu) },
    Scenario::new("faults", 6, faults::attempt),
    Scenario::new("lost-power", 4, power::attempt),
    Scenario {
        cases: allocations::cases,
        ..Scenario::new("allocations", 10, allocations::attempt)
    },
    Scenario::new("lost-devices", 1, devices::on_processor),
    Scenario { gpu: true, ..Scenario::new("lost-gpus", 2, devices::on_gpu) },
    Scenario::new("not-finite", 2, infinite::attempt),
    Scenario::new("two-processes", 1, pairs::attempt),
    Scenario::new("signals", 2, signals::attempt),
    Scenario { cases: memory::cases, ..Scenario::new("peak-of-memory", 2, memory::attempt) },
    // Most are to be tried of these; they also get what others leave of their time.
    Scenario::new("flips", 32, flips::attempt),
    Scenario { cases: soak::cases, ..Scenario::new("soak", 2, soak::attempt) },
];

/// Where something is that went wrong more often than this, no more of its folders are kept.
const KEPT: usize = 20;

/// Tries scenarios whose name begins with `only`, in the chamber's time, `jobs` cases side by side; with `case`, that one alone.
pub fn tried(chamber: &Chamber, only: Option<&str>, case: Option<u64>, jobs: usize) -> Vec<Row> {
    let asked = |scenario: &&Scenario| match only {
        Some(only) => scenario.name.starts_with(only),
        None => chamber.time.as_secs() >= 60 * scenario.least,
    };
    let chosen: Vec<&Scenario> = ALL.iter().filter(asked).collect();
    let shares: u32 = chosen.iter().map(|scenario| scenario.share).sum();
    let mut rows = vec![];
    let (begun, mut before) = (Instant::now(), 0);
    for scenario in chosen {
        before += scenario.share;
        // What one leaves of its time is for those after it.
        let end = begun + chamber.time * before / shares;
        let start = Instant::now();
        let tally = scenario.tried(chamber, case, end, jobs);
        let seconds = start.elapsed().as_secs_f64();
        let wrong = tally.violations.len();
        println!("{}: {} tries in {seconds:.0} s, {wrong} went wrong", scenario.name, tally.tries);
        rows.push(Row { name: scenario.name, tally, seconds });
    }
    for scenario in ALL.iter().filter(|scenario| only.is_none() && !asked(scenario)) {
        println!("{} takes {} minutes of all together to be tried", scenario.name, scenario.least);
    }
    rows
}

impl Scenario {
    fn tried(&self, chamber: &Chamber, case: Option<u64>, end: Instant, jobs: usize) -> Tally {
        if self.gpu
            && let Err(why) = library::has_gpu()
        {
            return Tally { not_run: Some(why), ..Tally::default() };
        }
        let cases = (self.cases)(chamber);
        let (next, total) = (AtomicU64::new(0), Mutex::new(Tally::default()));
        let work = || {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let over = Instant::now() >= end && number > 0;
                if cases.is_some_and(|cases| number >= cases) || over {
                    break;
                }
                let kept =
                    total.lock().unwrap_or_else(PoisonError::into_inner).violations.len() < KEPT;
                let tally = self.case(chamber, number, kept);
                *total.lock().unwrap_or_else(PoisonError::into_inner) += tally;
            }
        };
        match case {
            Some(number) => {
                *total.lock().unwrap_or_else(PoisonError::into_inner) +=
                    self.case(chamber, number, true)
            }
            None => std::thread::scope(|scope| (0..jobs).for_each(|_| drop(scope.spawn(work)))),
        }
        total.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tries a case, and says what went wrong, and how to see it again.
    fn case(&self, chamber: &Chamber, number: u64, keep: bool) -> Tally {
        let name = format!("{}-{number}", self.name);
        let draws = Draws::of(chamber.seed, self.name, number);
        let attempt = |dir| {
            let mut case = Case { chamber, number, draws, dir, story: vec![] };
            // The library runs in this process where devices are lost.
            let tally = catch_unwind(AssertUnwindSafe(|| (self.attempt)(&mut case)));
            let tally = tally.unwrap_or_else(|_| {
                Ok(Tally::of(Err(Violation::new(Wrong::Panic, "the library panicked"))))
            });
            tally.map(|tally| (tally, case.story))
        };
        let dir = match emptied(&chamber.work.join("cases"), &name) {
            Ok(dir) => dir,
            Err(error) => return failed(&error),
        };
        let (tally, story) = attempt(dir.clone()).unwrap_or_else(|error| (failed(&error), vec![]));
        if tally.violations.is_empty() {
            // What is left is overwritten the next time.
            let _ = fs::remove_dir_all(&dir);
            return tally;
        }
        let mut report = String::new();
        for violation in &tally.violations {
            report += &format!(
                "{}, case {number}: {:?}: {}\n",
                self.name, violation.wrong, violation.what
            );
        }
        story.iter().for_each(|line| report += &format!("    {line}\n"));
        let kept = chamber.work.join("kept").join(&name);
        let moved = keep && {
            let _ = fs::remove_dir_all(&kept);
            fs::create_dir_all(chamber.work.join("kept")).is_ok() && fs::rename(&dir, &kept).is_ok()
        };
        if moved {
            report += &format!("    its folder is {}\n", kept.display());
        } else {
            let _ = fs::remove_dir_all(&dir);
        }
        let seed = chamber.seed;
        report += &format!(
            "    again: cargo xtask torture --seed {seed} --only {} --case {number}\n",
            self.name
        );
        print!("{report}");
        tally
    }
}

/// A case that the chamber itself failed at.
fn failed(error: &anyhow::Error) -> Tally {
    Tally::of(Err(Violation::new(Wrong::Words, format!("the chamber failed: {error:#}"))))
}

/// Which of `total` things a case tries: all of them before one comes again, in an order that leaves none of their parts for
/// the end.
fn scattered(case: &mut Case<'_>, total: u64) -> u64 {
    let mut draws = Draws::of(case.chamber.seed, "order", total);
    let offset = draws.below(total);
    let coprime = |step: &u64| gcd(*step, total) == 1;
    // About the golden ratio of the whole: neighbours come far from each other.
    let step = (total * 34 / 55 + 1..).find(coprime).unwrap_or(1);
    (offset + (u128::from(case.number) * u128::from(step) % u128::from(total)) as u64) % total
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
