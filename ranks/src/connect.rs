//! Connects this process with the others that were launched with it.

use std::net::IpAddr;
use std::time::Duration;

use tightrope_core::{Ranks, RanksError};

use crate::agree;
use crate::launched::{Launched, LaunchedError, Launcher, Variables};
use crate::tcp::{Meeting, Secret, Tcp, TcpError};

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

/// The ranks that were launched with this process.
pub struct Connected {
    /// The way to them.
    pub ranks: Box<dyn Ranks>,
    /// Whom this rank has passed over while ranks met; `None` if nobody.
    pub note: Option<String>,
}

/// Connects with the ranks that were launched with this process, and compares versions with them; nothing where it was launched alone.
/// No rank is waited for longer than `time_out`; zero sets no limit. Whatever else must be equal, compare with [`agree()`](crate::agree).
///
/// A rank answers while it waits for others. One that does something else for longer than `time_out`, while others wait for it, is taken to
/// be lost: what one rank writes of a checkpoint has to take less.
///
/// # Errors
/// [`ConnectError`].
pub fn connect(time_out: Duration, insecure: bool) -> Result<Option<Connected>, ConnectError> {
    let Some(launched) = Launched::from_env()?.filter(|launched| launched.count > 1) else {
        return Ok(None);
    };
    let mut connected = carried(&launched, time_out, insecure)?;
    let version = [("version", env!("CARGO_PKG_VERSION"))];
    agree(&mut *connected.ranks, &version).map_err(RanksError::from)?;
    Ok(Some(connected))
}

/// The time that ranks have to find each other, unless their time-out is longer.
const MEETING: Duration = Duration::from_secs(60);

/// The port at which rank 0 listens, where not at the one after MASTER_PORT.
const PORT: &str = "TIGHTROPE_PORT";

/// The place where ranks meet, by PyTorch's variables. torchrun's own store has the port that they name, so ranks take the next one.
fn meeting(
    launched: &Launched,
    variables: &Variables,
    secret: Option<Secret>,
    insecure: bool,
) -> Result<Meeting, LaunchedError> {
    let launcher = launched.launcher;
    let get = |name| variables.get(name).ok_or(LaunchedError::Missing { launcher, name });
    let number = |name, value: &str| {
        let read: Result<u16, _> = value.parse();
        read.map_err(|_| LaunchedError::Number { name, value: value.to_owned() })
    };
    let mut host = get("MASTER_ADDR")?.to_owned();
    let port = match variables.get(PORT) {
        Some(port) => number(PORT, port)?,
        None => {
            let (name, next) = ("MASTER_PORT", number("MASTER_PORT", get("MASTER_PORT")?)?);
            let last = || LaunchedError::Number { name, value: next.to_string() };
            next.checked_add(1).ok_or_else(last)?
        }
    };
    let listen = |address: &str| {
        let (name, value) = (Meeting::LISTEN, address.to_owned());
        address.parse::<IpAddr>().map_err(|_| LaunchedError::Address { name, value })
    };
    let listen = variables.get(Meeting::LISTEN).map(listen).transpose()?;
    // torchrun itself names this machine so that others would reach it. Where it has all ranks, none has to.
    let is_one_machine = launched.local_count == launched.count && launcher == Launcher::Torchrun;
    if is_one_machine && secret.is_none() && !insecure && listen.is_none() {
        host = "127.0.0.1".to_owned();
    }
    Ok(Meeting { host, port, listen, secret, insecure, limit: MEETING })
}

/// The ranks, by whatever carries bytes under this launcher.
fn carried(
    launched: &Launched,
    time_out: Duration,
    insecure: bool,
) -> Result<Connected, ConnectError> {
    let launcher = launched.launcher;
    let instead = match launcher {
        Launcher::Torchrun | Launcher::Variables => {
            let variables = Variables::of_process();
            let meeting = meeting(launched, &variables, Secret::from_env(), insecure)?;
            let meeting = Meeting { limit: meeting.limit.max(time_out), ..meeting };
            let tcp = Tcp::meet((launched.rank, launched.count), &meeting, time_out)?;
            let ignored = Some(tcp.ignored()).filter(|ignored| !ignored.is_empty());
            let note = ignored.map(|ignored| format!("note: rank {}: {ignored}", launched.rank));
            return Ok(Connected { ranks: Box::new(tcp), note });
        }
        Launcher::Slurm { pmi: false } => {
            "Start it with srun --mpi=pmix (srun --mpi=list shows what there is), or with mpirun"
        }
        Launcher::OpenMpi
        | Launcher::Hydra
        | Launcher::Mvapich
        | Launcher::Jsrun
        | Launcher::Flux
        | Launcher::Pals
        | Launcher::Slurm { pmi: true } => {
            #[cfg(unix)]
            {
                let ranks = Box::new(crate::Mpi::open(Some(launched), time_out)?);
                return Ok(Connected { ranks, note: None });
            }
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
        let error = carried(&slurm, Duration::ZERO, false).err().expect("it isn't supported");
        let said = error.to_string();
        assert!(
            said.contains("rank 1 of 4 of Slurm without PMI") && said.contains("--mpi=pmix"),
            "{said}"
        );
    }

    fn place(launcher: Launcher, local_count: usize) -> Launched {
        Launched { launcher, rank: 1, count: 4, local_rank: 1, local_count }
    }

    #[test]
    fn ranks_of_torchrun_meet_next_to_its_own_port() {
        let of = |variables: &[(&str, &str)]| {
            let launched = place(Launcher::Torchrun, 2);
            let met = meeting(&launched, &Variables::new(variables), None, false)?;
            Ok::<_, LaunchedError>((met.host, met.port, met.listen))
        };
        let [host, own] = [("MASTER_ADDR", "node-1"), ("MASTER_PORT", "29500")];
        let named = "node-1".to_owned();
        assert_eq!(of(&[host, own]), Ok((named.clone(), 29501, None)));
        assert_eq!(of(&[host, own, (PORT, "777")]), Ok((named.clone(), 777, None)));
        let any = (Meeting::LISTEN, "0.0.0.0");
        assert_eq!(of(&[host, own, any]), Ok((named, 29501, Some([0, 0, 0, 0].into()))));
        for (variables, expected) in [
            (&[own][..], "torchrun launched this process, and MASTER_ADDR isn't set"),
            (&[host], "MASTER_PORT isn't set"),
            (&[host, ("MASTER_PORT", "65535")], "MASTER_PORT is \"65535\""),
            (&[host, own, (PORT, "any")], "TIGHTROPE_PORT is \"any\", and should be a number"),
            (
                &[host, own, (Meeting::LISTEN, "eth0")],
                "TIGHTROPE_LISTEN is \"eth0\", and should be an address",
            ),
        ] {
            let said = of(variables).unwrap_err().to_string();
            assert!(said.contains(expected), "{said}");
        }
    }

    /// `torchrun --standalone` names the machine by its host name. Who sets variables by hand means what they say.
    #[test]
    fn ranks_of_torchrun_on_one_machine_need_no_secret() {
        let variables = Variables::new(&[("MASTER_ADDR", "node-1"), ("MASTER_PORT", "29500")]);
        let host = |launcher, local_count, secret, insecure| {
            meeting(&place(launcher, local_count), &variables, secret, insecure).unwrap().host
        };
        let secret = || Secret::new(b"known to all");
        assert_eq!(host(Launcher::Torchrun, 4, None, false), "127.0.0.1");
        assert_eq!(host(Launcher::Torchrun, 4, secret(), false), "node-1");
        assert_eq!(host(Launcher::Torchrun, 4, None, true), "node-1");
        assert_eq!(host(Launcher::Torchrun, 2, None, false), "node-1");
        assert_eq!(host(Launcher::Variables, 4, None, false), "node-1");
    }
}
