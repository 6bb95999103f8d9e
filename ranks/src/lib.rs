//! The processes of a run: who carries bytes between them, and who launches them.
//!
//! | module | holds |
//! |---|---|
//! | `transport` | messages, as threads, TCP and MPI carry them |
//! | `carrier` | exchanges and gathers made of messages; who is late, and why a rank ends |
//! | `message` | headers and control messages |
//! | `threads` | ranks that are threads of one process |
//! | `tcp` | ranks that are processes, over TCP, where a launcher brings no MPI; who may join them |
//! | `inflow` | how much a peer may send |
//! | `mpi` | ranks that are processes, over the MPI library that is found when the program runs |
//! | `launched` | who launched this process, and as which rank |
//! | `guard` | stays beside a rank and says how it ended, where its launcher doesn't |
//! | `agree` | compares what must be equal on all ranks |
//! | `launch` | starts the ranks of a run on this machine |
//! | `marked` | finds the processes of a launch, wherever they went |
//!
//! Nothing of MPI is needed to build this. Slurm without PMI isn't supported: [`connect`] says so.

mod agree;
mod carrier;
mod connect;
#[cfg(unix)]
mod guard;
mod inflow;
#[cfg(unix)]
mod launch;
mod launched;
#[cfg(unix)]
mod marked;
mod message;
#[cfg(unix)]
mod mpi;
mod pause;
mod tcp;
mod threads;
mod transport;

pub use agree::{AgreeError, agree};
pub use connect::{ConnectError, Connected, connect, exit};
#[cfg(unix)]
pub use guard::{GUARDED, stand_by};
#[cfg(unix)]
pub use launch::{Ended, Launch, LaunchError};
pub use launched::{Launched, LaunchedError, Launcher};
#[cfg(unix)]
pub use mpi::{Mpi, MpiError};
pub use tcp::{Ignored, Meeting, Secret, Tcp, TcpError};
pub use threads::Threads;
