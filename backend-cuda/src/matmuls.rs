//! Matmuls by the device's library or by the engine's own kernels, whichever is faster; and attention by kernels of
//! warpgroups or of warps, where both can.
//!
//! Where a matmul can be made both ways, both are timed once, on the arena of the plan before anything is in it, and the
//! faster one is taken. What was timed is kept on disk, by shape and kernels, in a file for each device and version of the
//! library: a run that goes on makes its matmuls as it did before.

mod choices;

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use tightrope_core::DeviceError;
use tightrope_core::launch::{BINDING_ALIGNMENT, Launches};
use tightrope_core::ops::Gemm;

use crate::driver::{Driver, Recorded, Task};
use crate::library::{Addresses, Algorithm, Library, Multiply, Problem};
use crate::source::Kernel;
pub use choices::{Choices, Tally, Timed};

/// Who makes matmuls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Makers {
    /// The engine's kernels.
    #[default]
    Kernels,
    /// Whichever is faster.
    Fastest,
    /// The library, wherever it can.
    Library,
}

/// Another way to make something: by a matmul of the library and kernels that do with it what the library leaves, or by other
/// kernels alone.
#[derive(Clone, Debug)]
pub struct Way {
    /// For the library, and where its matrices are.
    pub matmul: Option<(Problem, Addresses)>,
    /// The kernels.
    pub after: Vec<Task>,
}

/// Something that kernels make, and that the library or other kernels may.
#[derive(Clone, Debug)]
pub struct Contest {
    /// The kernels' tasks, where it isn't known that another way is faster.
    pub own: Vec<Task>,
    /// At least one.
    pub ways: Vec<Way>,
    /// Where the library's workspace begins.
    pub workspace: u64,
    /// What was timed is kept under this.
    pub key: String,
}

/// The key under which the times of these problems and these kernels are kept.
pub fn key<'a>(problems: impl Iterator<Item = &'a Problem>, own: &[Kernel]) -> String {
    let problems: Vec<String> = problems.map(Problem::to_string).collect();
    format!("{} kernels {:016x}", problems.join(" or "), hashed(own))
}

/// The same where other kernels make what these do, both for such arguments.
pub fn key_of_kernels(own: &[Kernel], others: &[Kernel], arguments: impl Hash) -> String {
    let label = |kernels: &[Kernel]| kernels.last().map(|kernel| kernel.label.clone());
    let [of_own, of_others] = [own, others].map(|kernels| label(kernels).unwrap_or_default());
    format!("{of_own} or {of_others} kernels {:016x}", hashed((own, others, arguments)))
}

fn hashed(of: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

impl Contest {
    /// Which ways are the library's.
    pub fn of_library(&self) -> Vec<bool> {
        self.ways.iter().map(|way| way.matmul.is_some()).collect()
    }

    /// The tasks of a way.
    fn tasks(&self, way: &Way, algorithm: Algorithm) -> Vec<Task> {
        let workspace = self.workspace;
        let matmul = way.matmul.map(|(problem, at)| {
            Task::Matmul(Box::new(Multiply { problem, algorithm, at, workspace }))
        });
        matmul.into_iter().chain(way.after.iter().cloned()).collect()
    }

    /// The tasks of whoever won.
    pub fn tasks_of(self, winner: Option<Winner>) -> Vec<Task> {
        match winner {
            Some(Winner { way, algorithm }) => self.tasks(&self.ways[way], algorithm),
            None => self.own,
        }
    }
}

/// A way that is taken, and the library's algorithm in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Winner {
    /// By position.
    pub way: usize,
    /// How.
    pub algorithm: Algorithm,
}

/// A library and what is known of it.
#[derive(Debug)]
pub struct Matmuls {
    /// The library.
    pub library: Library,
    makers: Makers,
    choices: Choices,
}

/// Replays of what is timed, in turns with those of everything that it's compared to, so that clocks and other users of the
/// device meet all of them alike; and one before them, which brings caches up.
const REPLAYS: usize = 5;
const WARM: usize = 1;

/// Runs of what is timed in a graph: so many that launching it is little of their time, and no more than this.
const MOST_RUNS: usize = 50;
/// Replays of one run by which that is decided; the shortest counts.
const TRIALS: usize = 3;
/// Seconds that a graph is to take.
const GRAPH_SECONDS: f64 = 1e-3;

/// Random numbers of 16 bits that are moderate as bf16 and as f16, and two of them as f32: sign and last bits of what is
/// about 1 in each. A device's power and so its speed depends on what it multiplies.
const ABOUT_ONE: u16 = 0x3f00;
const RANDOM_BITS: u16 = 0x80ff;
const RANDOM_BYTES: usize = 1 << 20;

impl Matmuls {
    /// A library, and what was timed in earlier runs.
    pub fn new(library: Library, makers: Makers) -> Self {
        let choices = Choices::open(library.choices.clone());
        Self { library, makers, choices }
    }

    /// Who makes what was timed on this device, in earlier runs too.
    pub fn tallies(&self) -> Vec<Tally> {
        self.choices.tallies()
    }

    /// Bytes of scratch of an op with these launches, and where in it the library's workspace begins; `apart` are those
    /// that it has where its matmul is made alone. Where all launches make one matmul, they or the library use it.
    pub fn scratch(&self, launches: &Launches, apart: Option<&Launches>) -> (u64, u64) {
        let own = launches.scratch_bytes.next_multiple_of(BINDING_ALIGNMENT);
        let apart_bytes = apart.map_or(0, |apart| apart.scratch_bytes);
        let matmuls = || launches.list.iter().map(|launch| launch.matmul.as_deref());
        let takes = |matmul: &Gemm| Problem::of(matmul, false, |_| 0).is_some();
        let first = matmuls().flatten().next();
        if apart.is_none() && !matmuls().flatten().any(takes) {
            return (launches.scratch_bytes, 0);
        }
        if first.is_some() && matmuls().all(|other| other == first) {
            return (own.max(self.library.workspace).max(apart_bytes), 0);
        }
        (own + self.library.workspace, own)
    }

    /// Who makes what is kept under this key, among ways that are the library's or aren't: one of them, or `None` for the
    /// kernels. Nothing where it has to be timed first.
    pub fn known(&self, key: &str, of_library: &[bool]) -> Option<Option<Winner>> {
        let Timed { own, library } = self.choices.find(key)?;
        let wins = |&(winner, seconds): &(Winner, f64)| {
            of_library.get(winner.way).is_some_and(|&of_library| {
                of_library && self.makers == Makers::Library || seconds < own
            })
        };
        let winner = library.filter(wins);
        Some(winner.map(|(winner, _)| winner))
    }

    /// Times contests, in an arena of so many bytes, which is overwritten, and zeros after.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn time(
        &mut self,
        driver: &mut dyn Driver,
        contests: &[&Contest],
        arena_bytes: u64,
    ) -> Result<(), DeviceError> {
        let mut timed = BTreeMap::new();
        for contest in contests {
            if timed.contains_key(&contest.key) || self.choices.find(&contest.key).is_some() {
                continue;
            }
            if timed.is_empty() {
                fill(driver, arena_bytes)?;
            }
            timed.insert(contest.key.clone(), self.timed(driver, contest)?);
        }
        if !timed.is_empty() {
            driver.clear()?;
            self.choices.add(timed);
        }
        Ok(())
    }

    /// Seconds of the kernels, and of the fastest other way.
    fn timed(&self, driver: &mut dyn Driver, contest: &Contest) -> Result<Timed, DeviceError> {
        let alone = driver.record(&repeated(1, &contest.own))?;
        let mut one = f64::INFINITY;
        for _ in 0..TRIALS {
            one = one.min(driver.seconds(alone)?);
        }
        let runs = (GRAPH_SECONDS / one).ceil().clamp(1.0, MOST_RUNS as f64) as usize;
        driver.forget(0)?;
        let mut candidates = vec![(None, driver.record(&repeated(runs, &contest.own))?)];
        let mut ways = vec![];
        for (index, way) in contest.ways.iter().enumerate() {
            let algorithms = match &way.matmul {
                Some((problem, _)) => driver.algorithms(problem, self.library.workspace)?,
                None => vec![Algorithm::NONE],
            };
            ways.extend(algorithms.into_iter().map(|algorithm| Winner { way: index, algorithm }));
        }
        for winner in ways {
            let tasks = contest.tasks(&contest.ways[winner.way], winner.algorithm);
            // One that the library suggests and can't run is left out; a device that is gone shows in the next call.
            let Ok(recorded) = driver.record(&repeated(runs, &tasks)) else { continue };
            candidates.push((Some(winner), recorded));
        }
        let medians = medians(driver, candidates)?;
        driver.forget(0)?;
        let seconds = |taken: f64| taken / runs as f64;
        let own = medians.iter().find(|(winner, _)| winner.is_none());
        let library = medians.iter().filter_map(|&(winner, taken)| Some((winner?, seconds(taken))));
        let library = library.min_by(|(_, a), (_, b)| a.total_cmp(b));
        Ok(Timed { own: own.map_or(f64::INFINITY, |&(_, taken)| seconds(taken)), library })
    }
}

/// These tasks so many times.
fn repeated(runs: usize, tasks: &[Task]) -> Vec<&Task> {
    (0..runs).flat_map(|_| tasks).collect()
}

/// The median seconds of a replay of each of these, which take turns.
fn medians<T: Copy>(
    driver: &mut dyn Driver,
    candidates: Vec<(T, Recorded)>,
) -> Result<Vec<(T, f64)>, DeviceError> {
    let mut seconds = vec![vec![]; candidates.len()];
    for replay in 0..WARM + REPLAYS {
        for ((_, recorded), seconds) in candidates.iter().zip(&mut seconds) {
            let taken = driver.seconds(*recorded)?;
            if replay >= WARM {
                seconds.push(taken);
            }
        }
    }
    let median = |mut seconds: Vec<f64>| {
        seconds.sort_by(f64::total_cmp);
        seconds[REPLAYS / 2]
    };
    Ok(candidates.into_iter().zip(seconds).map(|((what, _), all)| (what, median(all))).collect())
}

/// Fills the arena with random numbers. They go by the way of everything that the host writes, in the order of the kernels,
/// so that nothing is copied on before it's there.
fn fill(driver: &mut dyn Driver, arena_bytes: u64) -> Result<(), DeviceError> {
    let numbers = random_bytes();
    let first = &numbers[..numbers.len().min(arena_bytes as usize)];
    let from = 0..first.len();
    driver.wait(0)?;
    driver.staging()[from.clone()].copy_from_slice(first);
    driver.copy(from, 0)?;
    driver.repeat(first.len() as u64)?;
    driver.mark(0)?;
    driver.wait(0)
}

fn random_bytes() -> Vec<u8> {
    let mut state = 1u64;
    let numbers = (0..RANDOM_BYTES / size_of::<u16>()).map(|_| {
        // Constants of Knuth's MMIX generator, whose upper bits are the good ones.
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ABOUT_ONE | ((state >> 48) as u16 & RANDOM_BITS)
    });
    numbers.flat_map(u16::to_le_bytes).collect()
}
