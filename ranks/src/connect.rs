//! Connects this process with the others that were launched with it.

use std::env;
use std::time::Duration;

use tightrope_core::{Ranks, RanksError};

use crate::agree;
use crate::launched::{Launched, LaunchedError, Launcher};
use crate::tcp::{Tcp, TcpError};

/// Why this process can't be connected with the others.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// The environment doesn't say which rank this is.
    #[error(transparent)]
    Launched(#[from] LaunchedError),
    /// The launcher hands out no MPI.
    #[error(
        "{launched}: {launcher} gives processes no MPI, and doesn't say where rank 0 is. {instead}"
    )]
    Unsupported {
        /// Which rank this is.
        launched: String,
        /// Who launched it.
        launcher: Launcher,
        /// What to do.
        instead: &'static str,
    },
    /// The ranks can't meet.
    #[error(transparent)]
    Tcp(#[from] TcpError),
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
/// be lost: what one rank writes of a checkpoint has to take less.
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

/// The port at which rank 0 of torchrun listens, where not at the one after torchrun's own.
const PORT: &str = "TIGHTROPE_PORT";

/// Host and port of rank 0 under torchrun, whose own store has the port that it names.
fn meeting(variable: &dyn Fn(&str) -> Option<String>) -> Result<(String, u16), LaunchedError> {
    let launcher = Launcher::Torchrun;
    let get = |name| variable(name).ok_or(LaunchedError::Missing { launcher, name });
    let number = |name, value: String| {
        let read: Result<u16, _> = value.trim().parse();
        read.map_err(|_| LaunchedError::Number { name, value })
    };
    let host = get("MASTER_ADDR")?;
    let port = match variable(PORT) {
        Some(port) => number(PORT, port)?,
        None => {
            let (name, next) = ("MASTER_PORT", number("MASTER_PORT", get("MASTER_PORT")?)?);
            let last = || LaunchedError::Number { name, value: next.to_string() };
            next.checked_add(1).ok_or_else(last)?
        }
    };
    Ok((host, port))
}

/// The ranks, by whatever carries bytes under this launcher.
fn carried(launched: &Launched, time_out: Duration) -> Result<Box<dyn Ranks>, ConnectError> {
    let launcher = launched.launcher;
    let instead = match launcher {
        Launcher::Torchrun => {
            let (host, port) = meeting(&|name| env::var(name).ok())?;
            let place = (launched.rank, launched.count);
            return Ok(Box::new(Tcp::meet(place, (&host, port), time_out)?));
        }
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
        let slurm = launched(Launcher::Slurm { pmi: false });
        let error = carried(&slurm, Duration::ZERO).err().expect("it isn't supported");
        let said = error.to_string();
        assert!(
            said.contains("rank 1 of 4 of Slurm without PMI") && said.contains("--mpi=pmix"),
            "{said}"
        );
    }

    #[test]
    fn ranks_of_torchrun_meet_next_to_its_own_port() {
        let of = |variables: &[(&str, &str)]| {
            meeting(&|name| {
                let found = variables.iter().find(|(key, _)| *key == name);
                found.map(|(_, value)| (*value).to_owned())
            })
        };
        let [host, own] = [("MASTER_ADDR", "node-1"), ("MASTER_PORT", "29500")];
        assert_eq!(of(&[host, own]), Ok(("node-1".to_owned(), 29501)));
        assert_eq!(of(&[host, own, (PORT, "777")]), Ok(("node-1".to_owned(), 777)));
        for (variables, expected) in [
            (&[own][..], "torchrun launched this process, and MASTER_ADDR isn't set"),
            (&[host], "MASTER_PORT isn't set"),
            (&[host, ("MASTER_PORT", "65535")], "MASTER_PORT is \"65535\""),
            (&[host, own, (PORT, "any")], "TIGHTROPE_PORT is \"any\", and should be a number"),
        ] {
            let said = of(variables).unwrap_err().to_string();
            assert!(said.contains(expected), "{said}");
        }
    }
}
