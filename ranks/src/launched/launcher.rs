//! The launchers that are known, each with the variables that it sets.

use std::fmt::{self, Display, Formatter};

use super::{LaunchedError, Variables};

/// A program that launches ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launcher {
    /// PyTorch's `torchrun`.
    Torchrun,
    /// One that sets PyTorch's variables: Kubeflow's PyTorchJob, Azure ML, deepspeed, Ray.
    Variables,
    /// Open MPI's `mpirun`.
    OpenMpi,
    /// Hydra: `mpirun` of MPICH, Intel MPI and their relatives.
    Hydra,
    /// MVAPICH's `mpirun_rsh`.
    Mvapich,
    /// IBM's `jsrun`, of LSF.
    Jsrun,
    /// Flux's `flux run`.
    Flux,
    /// HPE Cray's PALS: its `mpiexec`.
    Pals,
    /// Slurm's `srun`.
    Slurm {
        /// True if MPI finds the other ranks through it, by PMI or PMIx.
        pmi: bool,
    },
}

impl Display for Launcher {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Torchrun => "torchrun",
            Self::Variables => "a launcher that sets RANK and WORLD_SIZE",
            Self::OpenMpi => "Open MPI",
            Self::Hydra => "MPICH's Hydra",
            Self::Mvapich => "MVAPICH's mpirun_rsh",
            Self::Jsrun => "IBM's jsrun",
            Self::Flux => "Flux",
            Self::Pals => "Cray PALS",
            Self::Slurm { pmi: true } => "Slurm",
            Self::Slurm { pmi: false } => "Slurm without PMI",
        })
    }
}

impl Launcher {
    /// True if it sets PyTorch's variables, by which ranks meet over TCP.
    pub(super) fn is_torch(self) -> bool {
        matches!(self, Self::Torchrun | Self::Variables)
    }

    /// True if ranks find each other by MPI.
    pub(super) fn has_mpi(self) -> bool {
        !self.is_torch() && self != Self::Slurm { pmi: false }
    }

    /// True if it starts a daemon on each machine, which starts the ranks there.
    pub(super) fn has_daemons(self) -> bool {
        matches!(self, Self::OpenMpi | Self::Hydra | Self::Mvapich)
    }

    /// True if it hands out machines, on which other launchers may start ranks.
    pub(super) fn is_manager(self) -> bool {
        matches!(self, Self::Slurm { .. } | Self::Flux | Self::Pals)
    }
}

/// A launcher that is known, and how its variables are read.
#[derive(Clone, Copy)]
pub(super) struct Signature {
    pub(super) launcher: Launcher,
    /// A variable that is set for each process that it started.
    mark: &'static str,
    /// The variable of the rank.
    rank: &'static str,
    /// Variables of how many ranks there are, of which the first that is set counts.
    counts: &'static [&'static str],
    local: Local,
}

/// Variables with the rank of a process on its machine and the number of ranks there.
#[derive(Clone, Copy)]
enum Local {
    /// Variables of both; of the number, the first that is set.
    Numbers(&'static str, &'static [&'static str]),
    /// As PyTorch's: without them, a process has a machine of its own.
    Torch,
    /// The variable of the rank. Ranks are spread evenly over as many machines as the other says.
    Even(&'static str, &'static str),
    /// As Slurm's lists of tasks by machine.
    Slurm,
}

/// The launchers that are known. One within which others start ranks comes after them.
///
/// | launcher | documented by |
/// |---|---|
/// | torchrun | PyTorch, "torchrun (Elastic Launch)", environment variables |
/// | jsrun | IBM Spectrum LSF, Job Step Manager |
/// | Open MPI | Open MPI, "Environment variables that Open MPI sets" |
/// | Hydra | MPICH and Intel MPI: `hydra_pmi_proxy` |
/// | MVAPICH | MVAPICH2 user guide, `mpirun_rsh` |
/// | Flux | `flux-environment(7)` |
/// | PALS | HPE Cray, `mpiexec(1)`; flux-coral2, `flux-shell-cray-pals(1)` |
/// | Slurm | `srun(1)`, output environment variables |
const KNOWN: [Signature; 8] = [
    Signature {
        launcher: Launcher::Variables,
        mark: "RANK",
        rank: "RANK",
        counts: &["WORLD_SIZE"],
        local: Local::Torch,
    },
    // It sets Open MPI's variables too.
    Signature {
        launcher: Launcher::Jsrun,
        mark: "JSM_NAMESPACE_RANK",
        rank: "JSM_NAMESPACE_RANK",
        counts: &["JSM_NAMESPACE_SIZE"],
        local: Local::Numbers("JSM_NAMESPACE_LOCAL_RANK", &["JSM_NAMESPACE_LOCAL_SIZE"]),
    },
    Signature {
        launcher: Launcher::OpenMpi,
        mark: "OMPI_COMM_WORLD_RANK",
        rank: "OMPI_COMM_WORLD_RANK",
        counts: &["OMPI_COMM_WORLD_SIZE"],
        local: Local::Numbers("OMPI_COMM_WORLD_LOCAL_RANK", &["OMPI_COMM_WORLD_LOCAL_SIZE"]),
    },
    Signature {
        launcher: Launcher::Hydra,
        mark: "MPI_LOCALRANKID",
        rank: "PMI_RANK",
        counts: &["PMI_SIZE"],
        local: Local::Numbers("MPI_LOCALRANKID", &["MPI_LOCALNRANKS"]),
    },
    Signature {
        launcher: Launcher::Mvapich,
        mark: "MV2_COMM_WORLD_RANK",
        rank: "MV2_COMM_WORLD_RANK",
        counts: &["MV2_COMM_WORLD_SIZE"],
        local: Local::Numbers("MV2_COMM_WORLD_LOCAL_RANK", &["MV2_COMM_WORLD_LOCAL_SIZE"]),
    },
    Signature {
        launcher: Launcher::Flux,
        mark: "FLUX_TASK_RANK",
        rank: "FLUX_TASK_RANK",
        counts: &["FLUX_JOB_SIZE"],
        local: Local::Even("FLUX_TASK_LOCAL_ID", "FLUX_JOB_NNODES"),
    },
    Signature {
        launcher: Launcher::Pals,
        mark: "PALS_RANKID",
        rank: "PALS_RANKID",
        counts: &["PMI_SIZE", "PALS_SIZE"],
        local: Local::Numbers("PALS_LOCAL_RANKID", &["PALS_LOCAL_SIZE", "PMI_LOCAL_SIZE"]),
    },
    Signature {
        launcher: Launcher::Slurm { pmi: true },
        mark: "SLURM_STEP_ID",
        rank: "SLURM_PROCID",
        // A step may have fewer tasks than its job.
        counts: &["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"],
        local: Local::Slurm,
    },
];

/// A launcher by which ranks can't meet.
pub(super) struct Unsupported {
    pub(super) name: &'static str,
    /// The variable of the rank, or of what stands for it.
    pub(super) rank: &'static str,
    /// The variable of how many there are; `None` where none says it.
    pub(super) count: Option<&'static str>,
    /// The remedy.
    pub(super) instead: &'static str,
}

const MPIRUN: &str = "Start ranks with mpirun, srun --mpi=pmix or torchrun";

/// Launchers by which ranks can't meet. A process that one of them started as one of several would train alone.
pub(super) const UNSUPPORTED: &[Unsupported] = &[
    Unsupported {
        name: "Kubeflow's Trainer",
        rank: "PET_NODE_RANK",
        count: Some("PET_NNODES"),
        instead: "Start it with: torchrun --no-python tightrope train …",
    },
    Unsupported {
        name: "AWS SageMaker",
        rank: "SM_CURRENT_HOST",
        count: Some("SM_HOSTS"),
        instead: "Choose a distribution that starts ranks: torch_distributed, or mpi",
    },
    Unsupported {
        name: "JAX's cluster",
        rank: "JAX_PROCESS_ID",
        count: Some("JAX_NUM_PROCESSES"),
        instead: MPIRUN,
    },
    Unsupported {
        name: "JAX's cluster",
        rank: "JAX_PROCESS_INDEX",
        count: Some("JAX_PROCESS_COUNT"),
        instead: MPIRUN,
    },
    Unsupported {
        name: "Google's Cloud TPU",
        rank: "TPU_WORKER_ID",
        count: Some("TPU_WORKER_HOSTNAMES"),
        instead: MPIRUN,
    },
    Unsupported {
        name: "Horovod",
        rank: "HOROVOD_RANK",
        count: Some("HOROVOD_SIZE"),
        instead: MPIRUN,
    },
    Unsupported {
        name: "PaddlePaddle",
        rank: "PADDLE_TRAINER_ID",
        count: Some("PADDLE_TRAINERS_NUM"),
        instead: MPIRUN,
    },
    Unsupported { name: "IBM's poe", rank: "MP_CHILD", count: Some("MP_PROCS"), instead: MPIRUN },
    Unsupported { name: "Cray's aprun", rank: "ALPS_APP_PE", count: None, instead: MPIRUN },
];

/// Steps of Slurm from this number on are no `srun`: batch scripts, interactive shells and containers (`slurm/slurm.h`).
const FIRST_SPECIAL_STEP: usize = 0xffff_fff0;

/// The launchers whose variables are set: those that others started first, and last those that started them.
pub(super) fn signatures(variables: &Variables) -> Vec<Signature> {
    let found = KNOWN.iter().filter_map(|signature| {
        let launcher = signature.launcher.found(signature.mark, variables)?;
        Some(Signature { launcher, ..*signature })
    });
    found.collect()
}

impl Launcher {
    /// This launcher as the variables tell it; `None` where they aren't its own.
    fn found(self, mark: &str, variables: &Variables) -> Option<Self> {
        let is_set = |name: &str| variables.get(name).is_some();
        let is_slurm = || {
            let step = variables.count("SLURM_STEP_ID");
            is_set("SLURM_PROCID") && step.is_some_and(|step| step < FIRST_SPECIAL_STEP)
        };
        let is_found = match self {
            // `RANK` alone may be anybody's. A number of processes, or where they meet, is PyTorch's.
            Self::Torchrun | Self::Variables => {
                let several = variables.count("WORLD_SIZE").is_some_and(|count| count > 1);
                several || (is_set(mark) && (is_set("WORLD_SIZE") || is_set("MASTER_ADDR")))
            }
            Self::Hydra => is_set(mark) && is_set("PMI_RANK"),
            // A batch script, and a shell that `salloc` gives, is one process, whatever SLURM_NTASKS says.
            Self::Slurm { .. } => is_slurm(),
            // Slurm and Flux set its variables for Cray's MPI.
            Self::Pals => is_set(mark) && !is_slurm() && !is_set("FLUX_TASK_RANK"),
            _ => is_set(mark),
        };
        let pmi = || ["PMIX_RANK", "PMI_RANK", "PALS_RANKID"].into_iter().any(is_set);
        is_found.then(|| match self {
            Self::Variables if is_set("TORCHELASTIC_RUN_ID") => Self::Torchrun,
            Self::Slurm { .. } => Self::Slurm { pmi: pmi() },
            launcher => launcher,
        })
    }
}

impl Signature {
    /// The rank, and how many there are.
    pub(super) fn place(&self, variables: &Variables) -> Result<(usize, usize), LaunchedError> {
        Ok((self.number(variables, self.rank)?, self.first(variables, self.counts)?))
    }

    /// The rank among those of its machine, and how many there are.
    pub(super) fn local(
        &self,
        count: usize,
        variables: &Variables,
    ) -> Result<(usize, usize), LaunchedError> {
        match self.local {
            Local::Numbers(rank, counts) => {
                Ok((self.number(variables, rank)?, self.first(variables, counts)?))
            }
            Local::Torch => self.local_of_torch(variables),
            Local::Even(rank, machines) => {
                let machines = self.number(variables, machines)?.max(1);
                Ok((self.number(variables, rank)?, count.div_ceil(machines)))
            }
            Local::Slurm => self.local_of_slurm(variables),
        }
    }

    fn number(&self, variables: &Variables, name: &'static str) -> Result<usize, LaunchedError> {
        let missing = LaunchedError::Missing { launcher: self.launcher, name };
        variables.number(name).unwrap_or(Err(missing))
    }

    /// The first variable that is set.
    fn first(&self, variables: &Variables, names: &[&'static str]) -> Result<usize, LaunchedError> {
        let set = names.iter().find(|name| variables.get(name).is_some()).or(names.first());
        self.number(variables, set.copied().unwrap_or_default())
    }

    /// A process has a machine of its own where nothing is said, as Kubeflow starts them. deepspeed has a name of its own for the number.
    fn local_of_torch(&self, variables: &Variables) -> Result<(usize, usize), LaunchedError> {
        const COUNTS: [&str; 2] = ["LOCAL_WORLD_SIZE", "LOCAL_SIZE"];
        let rank = variables.number("LOCAL_RANK").transpose()?.unwrap_or(0);
        let is_counted = COUNTS.iter().any(|name| variables.get(name).is_some());
        let count = if is_counted || rank > 0 { self.first(variables, &COUNTS)? } else { 1 };
        Ok((rank, count))
    }

    fn local_of_slurm(&self, variables: &Variables) -> Result<(usize, usize), LaunchedError> {
        let names = ["SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"];
        let found = names.into_iter().find_map(|name| Some((name, variables.get(name)?)));
        let missing = LaunchedError::Missing { launcher: self.launcher, name: names[0] };
        let (name, list) = found.ok_or(missing)?;
        let node = self.number(variables, "SLURM_NODEID")?;
        let wrong = || LaunchedError::Number { name, value: list.to_owned() };
        let count = of_node(list, node).ok_or_else(wrong)?;
        Ok((self.number(variables, "SLURM_LOCALID")?, count))
    }
}

/// The number for a node of a list such as `4(x2),3`.
pub(super) fn of_node(list: &str, mut node: usize) -> Option<usize> {
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
