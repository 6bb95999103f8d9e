//! The processes of a run: who carries bytes between them, and who launches them.
//!
//! | module | holds |
//! |---|---|
//! | `transport` | messages, as threads and MPI carry them |
//! | `carrier` | exchanges and gathers made of messages; who is late, and why a rank ends |
//! | `message` | headers and control messages |
//! | `threads` | ranks that are threads of one process |
//! | `mpi` | ranks that are processes, over the MPI library that is found when the program runs |
//! | `launched` | who launched this process, and as which rank |
//! | `agree` | compares what must be equal on all ranks |
//! | `launch` | starts the ranks of a run on this machine |
//! | `marked` | finds the processes of a launch, wherever they went |
//!
//! Nothing of MPI is needed to build this. Launchers that don't bring MPI aren't supported yet: [`connect`] says so.

mod agree;
mod carrier;
mod connect;
#[cfg(unix)]
mod launch;
mod launched;
#[cfg(unix)]
mod marked;
mod message;
#[cfg(unix)]
mod mpi;
mod pause;
mod threads;
mod transport;

pub use agree::agree;
pub use connect::{ConnectError, connect, exit};
#[cfg(unix)]
pub use launch::{Ended, Launch, LaunchError};
pub use launched::{Launched, LaunchedError, Launcher};
#[cfg(unix)]
pub use mpi::{Mpi, MpiError};
pub use threads::Threads;
