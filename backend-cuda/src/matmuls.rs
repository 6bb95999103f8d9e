//! Matmuls by the device's library or by the engine's own kernels, whichever is faster.
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

use crate::driver::{Driver, Task};
use crate::library::{Addresses, Algorithm, Library, Multiply, Problem};
use crate::source::Kernel;
pub use choices::{Choices, Timed};

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

/// A way to make something with the library: a matmul, and kernels that do with it what the library leaves.
#[derive(Clone, Debug)]
pub struct Way {
    /// For the library.
    pub problem: Problem,
    /// Where its matrices are.
    pub at: Addresses,
    /// What comes after the matmul.
    pub after: Vec<Task>,
}

/// Something with a matmul in it that kernels make, and the library may.
#[derive(Clone, Debug)]
pub struct Contest {
    /// The kernels' tasks, where it isn't known that the library is faster.
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
    let mut hasher = DefaultHasher::new();
    own.hash(&mut hasher);
    let problems: Vec<String> = problems.map(Problem::to_string).collect();
    format!("{} kernels {:016x}", problems.join(" or "), hasher.finish())
}

impl Contest {
    /// The tasks of a way.
    fn tasks(&self, way: &Way, algorithm: Algorithm) -> Vec<Task> {
        let &Way { problem, at, .. } = way;
        let workspace = self.workspace;
        let matmul = Task::Matmul(Box::new(Multiply { problem, algorithm, at, workspace }));
        [&[matmul][..], &way.after].concat()
    }

    /// The tasks of whoever won.
    pub fn tasks_of(self, winner: Option<Winner>) -> Vec<Task> {
        match winner {
            Some(Winner { way, algorithm }) => self.tasks(&self.ways[way], algorithm),
            None => self.own,
        }
    }
}

/// A way of the library that is taken, and its algorithm.
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

/// Times that a task runs, and the first of them that count: what comes before brings clocks and caches up.
const RUNS: usize = 6;
const WARM: usize = 2;

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

    /// Who makes what is kept under this key, among so many ways of the library: one of them, or `None` for the kernels.
    /// Nothing where it has to be timed first.
    pub fn known(&self, key: &str, ways: usize) -> Option<Option<Winner>> {
        let Timed { own, library } = self.choices.find(key)?;
        let wins = |seconds: f64| self.makers == Makers::Library || seconds < own;
        let winner = library.filter(|&(winner, seconds)| wins(seconds) && winner.way < ways);
        Some(winner.map(|(winner, _)| winner))
    }

    /// Times contests. The whole allocation is overwritten, and zeros after.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn time(
        &mut self,
        driver: &mut dyn Driver,
        contests: &[&Contest],
    ) -> Result<(), DeviceError> {
        let mut timed = BTreeMap::new();
        for contest in contests {
            if timed.contains_key(&contest.key) || self.choices.find(&contest.key).is_some() {
                continue;
            }
            if timed.is_empty() {
                driver.fill(&random_bytes())?;
            }
            let own = best(driver, &contest.own)?;
            let mut library: Option<(Winner, f64)> = None;
            for (index, way) in contest.ways.iter().enumerate() {
                for algorithm in driver.algorithms(&way.problem, self.library.workspace)? {
                    // One that the library suggests and can't run is left out; a device that is gone shows in the next call.
                    let tasks = contest.tasks(way, algorithm);
                    let Ok(seconds) = best(driver, &tasks) else { continue };
                    if library.is_none_or(|(_, fastest)| seconds < fastest) {
                        library = Some((Winner { way: index, algorithm }, seconds));
                    }
                }
            }
            timed.insert(contest.key.clone(), Timed { own, library });
        }
        if !timed.is_empty() {
            driver.fill(&[0])?;
            self.choices.add(timed);
        }
        Ok(())
    }
}

/// Seconds that tasks take, at best.
fn best(driver: &mut dyn Driver, tasks: &[Task]) -> Result<f64, DeviceError> {
    let mut least = f64::INFINITY;
    for run in 0..RUNS {
        let seconds = driver.seconds(tasks)?;
        if run >= WARM {
            least = least.min(seconds);
        }
    }
    Ok(least)
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
