//! NVIDIA's libraries. None is unloaded: threads that they start go on after the last call, as NCCL's do after a communicator that failed.

use libloading::Library;

/// The library of this name, for as long as the process runs.
///
/// # Errors
/// A library that isn't installed, or that doesn't load.
pub fn library(name: &str) -> Result<&'static Library, libloading::Error> {
    // SAFETY: the library's initialisers are NVIDIA's.
    let library = unsafe { Library::new(name) }?;
    Ok(Box::leak(Box::new(library)))
}
