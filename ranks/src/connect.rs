//! Connects this process with the others that were launched with it.

use std::time::Duration;

use tightrope_core::{Ranks, RanksError};

use crate::agree;
use crate::launched::{Launched, LaunchedError, Launcher};

/// Why this process can't be connected with the others.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// The environment doesn't say which rank this is.
    #[error(transparent)]
    Launched(#[from] LaunchedError),
    /// The launcher hands out no MPI.
    #[error(
        "{launched}: {launcher} gives processes no MPI, and nothing else carries bytes yet. {instead}"
    )]
    Unsupported {
        /// Which rank this is.
        launched: String,
        /// Who launched it.
        launcher: Launcher,
        /// What to do.
        instead: &'static str,
    },
    /// MPI can't be used.
    #[cfg(unix)]
    #[error(transparent)]
    Mpi(#[from] crate::mpi::MpiError),
    /// MPI isn't looked for on this system.
    #[cfg(not(unix))]
    #[error("{launched}: several processes run on Linux and macOS alone")]
    System {
        /// Which rank this is.
        launched: String,
    },
    /// The other ranks can't be reached, or run another version.
    #[error(transparent)]
    Ranks(#[from] RanksError),
}

/// Connects with the ranks that were launched with this process, and compares versions with them; nothing where it was launched alone.
/// No rank is waited for longer than `time_out`; zero sets no limit. Whatever else must be equal, compare with [`agree()`](crate::agree).
///
/// A rank answers while it waits for others. One that does something else for longer than `time_out`, while others wait for it, is taken to
/// be lost: a checkpoint that one rank writes has to take less.
///
/// # Errors
/// [`ConnectError`].
pub fn connect(time_out: Duration) -> Result<Option<Box<dyn Ranks>>, ConnectError> {
    let Some(launched) = Launched::from_env()?.filter(|launched| launched.count > 1) else {
        return Ok(None);
    };
    let mut ranks = carried(&launched, time_out)?;
    agree(&mut *ranks, &[("version", env!("CARGO_PKG_VERSION"))])?;
    Ok(Some(ranks))
}

/// The ranks, by whatever carries bytes under this launcher.
fn carried(launched: &Launched, time_out: Duration) -> Result<Box<dyn Ranks>, ConnectError> {
    let launcher = launched.launcher;
    let instead = match launcher {
        Launcher::Torchrun => "Start it with mpirun -n N",
        Launcher::Slurm { pmi: false } => {
            "Start it with srun --mpi=pmix (srun --mpi=list shows what there is), or with mpirun"
        }
        Launcher::OpenMpi | Launcher::Hydra | Launcher::Slurm { pmi: true } => {
            #[cfg(unix)]
            return Ok(Box::new(crate::Mpi::open(Some(launched), time_out)?));
            #[cfg(not(unix))]
            {
                let _ = time_out;
                return Err(ConnectError::System { launched: launched.to_string() });
            }
        }
    };
    Err(ConnectError::Unsupported { launched: launched.to_string(), launcher, instead })
}

/// Ends this process, in any case in which it was connected. Where the ranks ended with an error, the others get two seconds to say what
/// they have to say. Then the launcher ends all, a rank that doesn't answer included.
pub fn exit(code: i32) -> ! {
    #[cfg(unix)]
    crate::mpi::abort(code);
    std::process::exit(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launchers_without_mpi_are_refused_with_what_to_do() {
        let launched =
            |launcher| Launched { launcher, rank: 1, count: 4, local_rank: 1, local_count: 4 };
        for (launcher, expected) in [
            (
                Launcher::Torchrun,
                "rank 1 of 4 of torchrun: torchrun gives processes no MPI, and nothing else carries bytes yet. Start it with mpirun",
            ),
            (Launcher::Slurm { pmi: false }, "srun --mpi=pmix"),
        ] {
            let error =
                carried(&launched(launcher), Duration::ZERO).err().expect("it isn't supported");
            assert!(error.to_string().contains(expected), "{error}");
        }
    }
}
