//! `Launched`: which rank this process was launched as, and by whom, from the environment.

mod launcher;
#[cfg(test)]
mod tests;
mod variables;

use std::fmt::{self, Display, Formatter};

pub use launcher::Launcher;

use launcher::{Signature, UNSUPPORTED};
pub(crate) use variables::Variables;

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
    /// A variable is no address.
    #[error("{name} is {value:?}, and should be an address")]
    Address {
        /// The variable.
        name: &'static str,
        /// Its value.
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
    /// A launcher by which ranks can't meet.
    #[error(
        "{name} launched this process as one of several ({variables}), and ranks can't meet by it. {instead}"
    )]
    Unsupported {
        /// The launcher.
        name: &'static str,
        /// Its variables.
        variables: String,
        /// The remedy.
        instead: &'static str,
    },
    /// Variables of a launcher that isn't known.
    #[error(
        "a launcher that isn't known started this process as one of several: {variables}. \
         Start ranks with mpirun, srun or torchrun; where this process is to train alone, unset them"
    )]
    Unknown {
        /// Its variables.
        variables: String,
    },
}

impl Display for Launched {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "rank {} of {} of {}", self.rank, self.count, self.launcher)
    }
}

impl Launched {
    /// The place of this process by its environment; `None` where no launcher started it.
    ///
    /// # Errors
    /// [`LaunchedError`].
    pub fn from_env() -> Result<Option<Self>, LaunchedError> {
        Self::of(&Variables::of_process())
    }

    fn of(variables: &Variables) -> Result<Option<Self>, LaunchedError> {
        let mut found: Option<Place> = None;
        for signature in launcher::signatures(variables) {
            found = Some(match found {
                None => Place::of(signature, variables)?,
                Some(inner) => inner.within(signature, variables)?,
            });
        }
        if found.as_ref().is_none_or(|place| place.count == 1) {
            refuse_others(variables)?;
        }
        found.map(|place| place.launched(variables)).transpose()
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

/// A rank and how many there are, as a launcher says it.
struct Place {
    launcher: Launcher,
    rank: usize,
    count: usize,
    /// Says which of the ranks on its machine it is.
    local: Signature,
}

impl Display for Place {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "rank {} of {} of {}", self.rank, self.count, self.launcher)
    }
}

impl Place {
    fn of(signature: Signature, variables: &Variables) -> Result<Self, LaunchedError> {
        let (rank, count) = signature.place(variables)?;
        Ok(Self { launcher: signature.launcher, rank, count, local: signature })
    }

    /// This place, given by a launcher that another one started. The outer one may count ranks too, or what starts them.
    fn within(self, outer: Signature, variables: &Variables) -> Result<Self, LaunchedError> {
        // Within a job of Slurm, mpirun starts its daemons by it: on all machines of the job, even where there are fewer ranks.
        let counts_daemons =
            self.launcher.has_daemons() && outer.launcher.is_manager() && self.count > 1;
        if counts_daemons {
            return Ok(self);
        }
        let outer = Self::of(outer, variables)?;
        let agree = (outer.rank, outer.count) == (self.rank, self.count);
        if agree && self.launcher.is_torch() {
            // A script that exports these variables may not know which ranks share a machine.
            let by = if outer.launcher.has_mpi() { outer.launcher } else { self.launcher };
            return Ok(Self { launcher: by, ..outer });
        }
        if agree || (self.launcher.is_torch() && self.is_of_agent(&outer, variables)?) {
            return Ok(self);
        }
        let [first, second] = [&self, &outer].map(ToString::to_string);
        Err(LaunchedError::Launchers { first, second })
    }

    /// True if `outer` is the place of an agent, which starts the ranks of a machine. torchrun numbers agents anew.
    fn is_of_agent(&self, outer: &Self, variables: &Variables) -> Result<bool, LaunchedError> {
        let (_, each) = self.local.local(self.count, variables)?;
        let each = each.max(1);
        let (agent, agents) = (self.rank / each, self.count.div_ceil(each));
        if self.launcher != Launcher::Torchrun {
            return Ok((outer.rank, outer.count) == (agent, agents));
        }
        let agents = variables.number("GROUP_WORLD_SIZE").unwrap_or(Ok(agents))?;
        Ok(outer.count == agents)
    }

    fn launched(self, variables: &Variables) -> Result<Launched, LaunchedError> {
        let Self { launcher, rank, count, local } = self;
        let (local_rank, local_count) = local.local(count, variables)?;
        Launched { launcher, rank, count, local_rank, local_count }.checked()
    }
}

/// Refuses a process that a launcher started as one of several, of those by which ranks can't meet and of those that aren't known: it
/// would train alone.
fn refuse_others(variables: &Variables) -> Result<(), LaunchedError> {
    let several = |count: &str| variables.count(count).is_none_or(|count| count > 1);
    for other in UNSUPPORTED {
        let is_set = variables.get(other.rank).is_some();
        if is_set && other.count.is_none_or(several) {
            let names = [Some(other.rank), other.count];
            let variables = variables.shown(names.into_iter().flatten());
            return Err(LaunchedError::Unsupported {
                name: other.name,
                variables,
                instead: other.instead,
            });
        }
    }
    match variables.unknown() {
        Some(variables) => Err(LaunchedError::Unknown { variables }),
        None => Ok(()),
    }
}
