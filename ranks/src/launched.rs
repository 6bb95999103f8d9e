//! `Launched`: which rank this process was launched as, and by whom, from the environment.

use std::env;
use std::fmt::{self, Display, Formatter};

/// The launcher of this process, and the place that it gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launched {
    /// Who launched it.
    pub launcher: Launcher,
    /// Which rank it is, counted from 0.
    pub rank: usize,
    /// How many ranks there are.
    pub count: usize,
    /// Which of the ranks on its machine it is, counted from 0.
    pub local_rank: usize,
    /// How many ranks its machine has.
    pub local_count: usize,
}

/// A program that launches ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launcher {
    /// Open MPI's `mpirun`.
    OpenMpi,
    /// Hydra: `mpirun` of MPICH, Intel MPI and their relatives.
    Hydra,
    /// Slurm's `srun`.
    Slurm {
        /// Whether MPI finds the other ranks through it, by PMI or PMIx.
        pmi: bool,
    },
    /// PyTorch's `torchrun`.
    Torchrun,
}

/// Why the environment doesn't say which rank this is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LaunchedError {
    /// A variable is missing.
    #[error("{launcher} launched this process, and {name} isn't set")]
    Missing {
        /// The launcher.
        launcher: Launcher,
        /// The variable.
        name: &'static str,
    },
    /// A variable is no number.
    #[error("{name} is {value:?}, and should be a number")]
    Number {
        /// The variable.
        name: &'static str,
        /// What it is.
        value: String,
    },
    /// Numbers contradict each other.
    #[error("{launcher} launched this process as {reason}")]
    Contradiction {
        /// The launcher.
        launcher: Launcher,
        /// The contradiction.
        reason: String,
    },
    /// Launchers contradict each other.
    #[error("two launchers contradict each other: this process is {first} and {second}")]
    Launchers {
        /// What one says.
        first: String,
        /// What the other says.
        second: String,
    },
}

impl Display for Launcher {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::OpenMpi => "Open MPI",
            Self::Hydra => "MPICH's Hydra",
            Self::Slurm { pmi: true } => "Slurm",
            Self::Slurm { pmi: false } => "Slurm without PMI",
            Self::Torchrun => "torchrun",
        })
    }
}

impl Display for Launched {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "rank {} of {} of {}", self.rank, self.count, self.launcher)
    }
}

impl Launched {
    /// What the environment of this process says; nothing where no launcher started it.
    ///
    /// # Errors
    /// [`LaunchedError`].
    pub fn from_env() -> Result<Option<Self>, LaunchedError> {
        Self::of(&|name| env::var(name).ok())
    }

    fn of(variable: &dyn Fn(&str) -> Option<String>) -> Result<Option<Self>, LaunchedError> {
        let set = |name: &str| variable(name).is_some();
        let mut found: Vec<Self> = vec![];
        if set("OMPI_COMM_WORLD_RANK") {
            let names = [
                "OMPI_COMM_WORLD_RANK",
                "OMPI_COMM_WORLD_SIZE",
                "OMPI_COMM_WORLD_LOCAL_RANK",
                "OMPI_COMM_WORLD_LOCAL_SIZE",
            ];
            found.push(numbers(variable, Launcher::OpenMpi, names)?);
        }
        if set("PMI_RANK") && set("MPI_LOCALRANKID") {
            let names = ["PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"];
            found.push(numbers(variable, Launcher::Hydra, names)?);
        }
        // Hydra and Open MPI may have been launched by Slurm, whose variables then count machines. A batch script has no step: it's
        // one process, whatever SLURM_NTASKS says.
        if found.is_empty() && set("SLURM_PROCID") && set("SLURM_STEP_ID") {
            found.push(slurm(variable)?);
        }
        if set("RANK") && set("WORLD_SIZE") {
            let names = ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"];
            found.push(numbers(variable, Launcher::Torchrun, names)?);
        }
        for other in found.iter().skip(1) {
            if (other.rank, other.count) != (found[0].rank, found[0].count) {
                let [first, second] = [&found[0], other].map(ToString::to_string);
                return Err(LaunchedError::Launchers { first, second });
            }
        }
        Ok(found.into_iter().next())
    }

    fn checked(self) -> Result<Self, LaunchedError> {
        let Self { launcher, rank, count, local_rank, local_count } = self;
        let reason = if rank >= count {
            format!("rank {rank} of {count}")
        } else if local_rank >= local_count {
            format!("local rank {local_rank} of {local_count}")
        } else if local_count > count {
            format!("one of {count} ranks, {local_count} of them on its machine")
        } else {
            return Ok(self);
        };
        Err(LaunchedError::Contradiction { launcher, reason })
    }
}

fn number(value: &str, name: &'static str) -> Result<usize, LaunchedError> {
    let wrong = || LaunchedError::Number { name, value: value.to_owned() };
    value.trim().parse().map_err(|_| wrong())
}

/// The rank, the count, and both on this machine.
fn numbers(
    variable: &dyn Fn(&str) -> Option<String>,
    launcher: Launcher,
    names: [&'static str; 4],
) -> Result<Launched, LaunchedError> {
    let get = |name| {
        let value = variable(name).ok_or(LaunchedError::Missing { launcher, name })?;
        number(&value, name)
    };
    let [rank, count, local_rank, local_count] = names;
    let (rank, count) = (get(rank)?, get(count)?);
    let (local_rank, local_count) = (get(local_rank)?, get(local_count)?);
    Launched { launcher, rank, count, local_rank, local_count }.checked()
}

fn slurm(variable: &dyn Fn(&str) -> Option<String>) -> Result<Launched, LaunchedError> {
    let pmi = ["PMIX_RANK", "PMI_RANK"].iter().any(|name| variable(name).is_some());
    let launcher = Launcher::Slurm { pmi };
    let either = |names: [&'static str; 2]| {
        let found = names.into_iter().find_map(|name| Some((name, variable(name)?)));
        found.ok_or(LaunchedError::Missing { launcher, name: names[1] })
    };
    let get = |name| number(&either([name, name])?.1, name);
    // A step may have fewer tasks than its job.
    let (name, count) = either(["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"])?;
    let count = number(&count, name)?;
    let (name, list) = either(["SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"])?;
    let node = get("SLURM_NODEID")?;
    let wrong = || LaunchedError::Number { name, value: list.clone() };
    let local_count = of_node(&list, node).ok_or_else(wrong)?;
    let (rank, local_rank) = (get("SLURM_PROCID")?, get("SLURM_LOCALID")?);
    Launched { launcher, rank, count, local_rank, local_count }.checked()
}

/// The number for a node of a list such as `4(x2),3`.
fn of_node(list: &str, mut node: usize) -> Option<usize> {
    for entry in list.split(',') {
        let (tasks, times) = match entry.split_once("(x") {
            Some((tasks, times)) => (tasks, times.strip_suffix(')')?.parse().ok()?),
            None => (entry, 1),
        };
        if node < times {
            return tasks.parse().ok();
        }
        node -= times;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Result<Option<Launched>, LaunchedError> {
        Launched::of(&|name| {
            let found = variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    const OPEN_MPI: [(&str, &str); 4] = [
        ("OMPI_COMM_WORLD_RANK", "5"),
        ("OMPI_COMM_WORLD_SIZE", "8"),
        ("OMPI_COMM_WORLD_LOCAL_RANK", "1"),
        ("OMPI_COMM_WORLD_LOCAL_SIZE", "4"),
    ];
    const HYDRA: [(&str, &str); 4] =
        [("PMI_RANK", "5"), ("PMI_SIZE", "8"), ("MPI_LOCALRANKID", "1"), ("MPI_LOCALNRANKS", "4")];
    const TORCHRUN: [(&str, &str); 4] =
        [("RANK", "5"), ("WORLD_SIZE", "8"), ("LOCAL_RANK", "1"), ("LOCAL_WORLD_SIZE", "4")];
    const SLURM: [(&str, &str); 6] = [
        ("SLURM_PROCID", "5"),
        ("SLURM_NTASKS", "8"),
        ("SLURM_LOCALID", "1"),
        ("SLURM_NODEID", "1"),
        ("SLURM_STEP_TASKS_PER_NODE", "4(x2)"),
        ("SLURM_STEP_ID", "0"),
    ];

    fn fifth(launcher: Launcher) -> Result<Option<Launched>, LaunchedError> {
        Ok(Some(Launched { launcher, rank: 5, count: 8, local_rank: 1, local_count: 4 }))
    }

    #[test]
    fn each_launcher_is_known_by_its_variables() {
        assert_eq!(of(&[]), Ok(None));
        assert_eq!(of(&[("PATH", "/bin"), ("RANK", "1")]), Ok(None));
        assert_eq!(of(&OPEN_MPI), fifth(Launcher::OpenMpi));
        assert_eq!(of(&HYDRA), fifth(Launcher::Hydra));
        assert_eq!(of(&TORCHRUN), fifth(Launcher::Torchrun));
        assert_eq!(of(&SLURM), fifth(Launcher::Slurm { pmi: false }));
        for pmi in ["PMIX_RANK", "PMI_RANK"] {
            let all = [&SLURM[..], &[(pmi, "5")]].concat();
            assert_eq!(of(&all), fifth(Launcher::Slurm { pmi: true }));
        }
    }

    #[test]
    fn a_batch_script_is_one_process() {
        assert_eq!(of(&SLURM[..5]), Ok(None));
    }

    #[test]
    fn mpirun_counts_where_slurm_launched_it() {
        let node = [("SLURM_PROCID", "1"), ("SLURM_NTASKS", "2"), ("SLURM_STEP_ID", "0")];
        assert_eq!(of(&[&HYDRA[..], &node].concat()), fifth(Launcher::Hydra));
        assert_eq!(of(&[&OPEN_MPI[..], &node].concat()), fifth(Launcher::OpenMpi));
    }

    #[test]
    fn launchers_that_agree_are_one() {
        assert_eq!(of(&[&TORCHRUN[..], &OPEN_MPI].concat()), fifth(Launcher::OpenMpi));
    }

    #[test]
    fn contradictions_are_refused() {
        let with = |base: &[(&'static str, &'static str)], name, value| {
            let mut all = vec![(name, value)];
            all.extend(base);
            of(&all).expect_err(value).to_string()
        };
        for (message, expected) in [
            (
                with(&OPEN_MPI, "OMPI_COMM_WORLD_RANK", "8"),
                "Open MPI launched this process as rank 8 of 8",
            ),
            (
                with(&HYDRA, "MPI_LOCALRANKID", "4"),
                "MPICH's Hydra launched this process as local rank 4 of 4",
            ),
            (with(&HYDRA, "MPI_LOCALNRANKS", "9"), "one of 8 ranks, 9 of them on its machine"),
            (
                with(&TORCHRUN, "WORLD_SIZE", "many"),
                "WORLD_SIZE is \"many\", and should be a number",
            ),
            (with(&SLURM, "SLURM_PROCID", "-1"), "SLURM_PROCID is \"-1\", and should be a number"),
            (with(&SLURM, "SLURM_STEP_TASKS_PER_NODE", "4"), "SLURM_STEP_TASKS_PER_NODE is \"4\""),
            (
                of(&[&TORCHRUN[..2], &OPEN_MPI].concat()).unwrap_err().to_string(),
                "torchrun launched this process, and LOCAL_RANK isn't set",
            ),
            (
                of(&[&[("RANK", "4")], &TORCHRUN[1..], &OPEN_MPI].concat())
                    .unwrap_err()
                    .to_string(),
                "this process is rank 5 of 8 of Open MPI and rank 4 of 8 of torchrun",
            ),
        ] {
            assert!(message.contains(expected), "{message}");
        }
    }

    #[test]
    fn tasks_of_nodes_are_read() {
        for (node, tasks) in [(0, Some(4)), (1, Some(4)), (2, Some(3)), (3, None)] {
            assert_eq!(of_node("4(x2),3", node), tasks);
        }
        for list in ["", "x", "4(x2", "4(x),1"] {
            assert_eq!(of_node(list, 0), None, "{list}");
        }
    }
}
