//! The functions of MPI, found in whichever library there is: that of the standard ABI (MPI 5), or Open MPI 4 and 5.

use std::error::Error as _;
use std::ffi::{c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::{env, fs, iter, process, ptr};

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW, Symbol};

use super::MpiError;
use crate::launched::Launcher;

/// A communicator, datatype, error handler or request: all are pointers, in the standard ABI and in Open MPI.
pub type Handle = *mut c_void;
/// Zero where a call went well.
pub type Status = c_int;

/// Bytes for any text that MPI writes: more than the 8192 of the standard ABI, which are the most.
const TEXT: usize = 1 << 14;

/// How a library names its constants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Abi {
    /// Numbers of the MPI 5 standard.
    Standard,
    /// Addresses of Open MPI's variables.
    OpenMpi,
}

/// Where MPI is looked for, in this order.
const NAMES: [(&str, Abi); 2] = if cfg!(target_os = "macos") {
    [("libmpi_abi.1.dylib", Abi::Standard), ("libmpi.40.dylib", Abi::OpenMpi)]
} else {
    [("libmpi_abi.so.1", Abi::Standard), ("libmpi.so.40", Abi::OpenMpi)]
};

type Text = unsafe extern "C" fn(*mut c_char, *mut c_int) -> Status;
type Flag = unsafe extern "C" fn(*mut c_int) -> Status;
type Number = unsafe extern "C" fn(Handle, *mut c_int) -> Status;
type Begin<T> = unsafe extern "C" fn(T, c_int, Handle, c_int, c_int, Handle, *mut Handle) -> Status;

/// The functions, by the types that mpi.h declares.
pub struct Functions {
    pub init_thread:
        unsafe extern "C" fn(*mut c_int, *mut *mut *mut c_char, c_int, *mut c_int) -> Status,
    pub initialized: Flag,
    pub query_thread: Flag,
    pub finalize: unsafe extern "C" fn() -> Status,
    pub abort: unsafe extern "C" fn(Handle, c_int) -> Status,
    pub comm_dup: unsafe extern "C" fn(Handle, *mut Handle) -> Status,
    pub comm_rank: Number,
    pub comm_size: Number,
    pub comm_set_errhandler: unsafe extern "C" fn(Handle, Handle) -> Status,
    pub error_string: unsafe extern "C" fn(c_int, *mut c_char, *mut c_int) -> Status,
    pub isend: Begin<*const c_void>,
    pub irecv: Begin<*mut c_void>,
    pub iprobe: unsafe extern "C" fn(c_int, c_int, Handle, *mut c_int, *mut c_void) -> Status,
    pub test: unsafe extern "C" fn(*mut Handle, *mut c_int, *mut c_void) -> Status,
}

/// An open library with its constants.
pub struct Api {
    pub functions: Functions,
    pub world: Handle,
    pub byte: Handle,
    pub errors_return: Handle,
    /// `MPI_THREAD_SERIALIZED`.
    pub serialized: c_int,
    /// What it calls itself.
    pub version: String,
    /// Open as long as its functions are known.
    _library: Library,
}

// SAFETY: its handles are constants of MPI's, and MPI is told that threads take turns.
unsafe impl Send for Api {}
// SAFETY: as above; nothing in it changes.
unsafe impl Sync for Api {}

impl Api {
    /// Opens the library that belongs to the launcher, where there's one.
    pub fn open(launcher: Option<Launcher>) -> Result<Self, MpiError> {
        let mut looked = vec![];
        for (path, abi) in candidates() {
            let path = path.display().to_string();
            // Global: plugins of Open MPI 4 look for its functions there.
            // SAFETY: initialisers of an MPI library are those of its vendor.
            let library = match unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_GLOBAL) } {
                Ok(library) => library,
                Err(error) => {
                    looked.push(reason(&path, &error));
                    continue;
                }
            };
            match Self::of(library, abi) {
                Ok(api) if fits(&api.version, launcher) => return Ok(api),
                Ok(api) => {
                    looked.push(format!("{path}: it is {}, and not of the launcher", api.version))
                }
                Err(error) => looked.push(reason(&path, &error)),
            }
        }
        Err(MpiError::NotFound { looked: looked.join("\n  ") })
    }

    fn of(library: Library, abi: Abi) -> Result<Self, libloading::Error> {
        // SAFETY: each name is asked for with the type that mpi.h declares: fields have those types.
        let functions = unsafe {
            Functions {
                init_thread: find(&library, "MPI_Init_thread")?,
                initialized: find(&library, "MPI_Initialized")?,
                query_thread: find(&library, "MPI_Query_thread")?,
                finalize: find(&library, "MPI_Finalize")?,
                abort: find(&library, "MPI_Abort")?,
                comm_dup: find(&library, "MPI_Comm_dup")?,
                comm_rank: find(&library, "MPI_Comm_rank")?,
                comm_size: find(&library, "MPI_Comm_size")?,
                comm_set_errhandler: find(&library, "MPI_Comm_set_errhandler")?,
                error_string: find(&library, "MPI_Error_string")?,
                isend: find(&library, "MPI_Isend")?,
                irecv: find(&library, "MPI_Irecv")?,
                iprobe: find(&library, "MPI_Iprobe")?,
                test: find(&library, "MPI_Test")?,
            }
        };
        // SAFETY: as above.
        let version: Text = unsafe { find(&library, "MPI_Get_library_version")? };
        // SAFETY: MPI permits this call before it is initialised; the text is as long as any of MPI's.
        let version = text(|letters, length| unsafe { version(letters, length) });
        let number = |number: usize| Ok(ptr::without_provenance_mut(number));
        let variable = |name: &str| {
            // SAFETY: only the address is taken: Open MPI's handles are those of these variables.
            unsafe { library.get::<Handle>(name.as_bytes()) }.map(Symbol::as_raw_ptr)
        };
        let constant = |standard: usize, name: &str| match abi {
            Abi::Standard => number(standard),
            Abi::OpenMpi => variable(name),
        };
        Ok(Self {
            functions,
            world: constant(0x101, "ompi_mpi_comm_world")?,
            byte: constant(0x247, "ompi_mpi_byte")?,
            errors_return: constant(0x143, "ompi_mpi_errors_return")?,
            serialized: match abi {
                Abi::Standard => 2048,
                Abi::OpenMpi => 2,
            },
            version: version.lines().next().unwrap_or_default().trim().to_owned(),
            _library: library,
        })
    }

    /// What MPI says of a status that isn't zero.
    pub fn explain(&self, status: Status) -> String {
        // SAFETY: the text is as long as any of MPI's.
        text(|letters, length| unsafe { (self.functions.error_string)(status, letters, length) })
    }
}

/// A function of the library.
///
/// # Safety
/// The function has the type `F`.
unsafe fn find<F: Copy>(library: &Library, name: &str) -> Result<F, libloading::Error> {
    // SAFETY: promised by the caller.
    unsafe { library.get::<F>(name.as_bytes()) }.map(|symbol| *symbol)
}

/// A text that MPI writes.
fn text(write: impl FnOnce(*mut c_char, *mut c_int) -> Status) -> String {
    let mut letters = vec![0_u8; TEXT];
    let mut length = 0;
    if write(letters.as_mut_ptr().cast(), &mut length) != 0 {
        return String::new();
    }
    letters.truncate(usize::try_from(length).unwrap_or_default());
    String::from_utf8_lossy(&letters).trim_end_matches('\0').to_owned()
}

/// Beside the programs that launched this one, beside the launcher on `PATH`, then where the system looks: a launcher and a library of two
/// kinds don't know each other.
fn candidates() -> Vec<(PathBuf, Abi)> {
    let mut programs = ancestors();
    let path = env::var_os("PATH").unwrap_or_default();
    programs.extend(env::split_paths(&path).find(|folder| folder.join("mpirun").is_file()));
    let mut found = vec![];
    for folder in programs {
        for (name, abi) in NAMES {
            let path = folder.join("../lib").join(name);
            if path.is_file() && !found.contains(&(path.clone(), abi)) {
                found.push((path, abi));
            }
        }
    }
    found.extend(NAMES.map(|(name, abi)| (name.into(), abi)));
    found
}

/// Folders of the programs that this process descends from, where the system tells (Linux does): those of a launcher are among the last.
fn ancestors() -> Vec<PathBuf> {
    const GENERATIONS: usize = 8;
    let parent = |process: u32| {
        let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
        status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
    };
    let all = iter::successors(Some(process::id()), |&process| parent(process)).skip(1);
    all.take(GENERATIONS)
        .filter_map(|process| fs::read_link(format!("/proc/{process}/exe")).ok())
        .filter_map(|program| program.parent().map(Path::to_owned))
        .collect()
}

/// Whether a library can be that of the launcher: of another, each process would be alone.
fn fits(version: &str, launcher: Option<Launcher>) -> bool {
    let open_mpi = version.contains("Open MPI");
    match launcher {
        Some(Launcher::OpenMpi) => open_mpi,
        Some(Launcher::Hydra | Launcher::Mvapich | Launcher::Pals) => !open_mpi,
        _ => true,
    }
}

fn reason(path: &str, error: &libloading::Error) -> String {
    // The linker's own words are its source.
    let words = error.source().map_or_else(|| error.to_string(), ToString::to_string);
    if words.starts_with(path) { words } else { format!("{path}: {words}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_of_another_kind_than_the_launcher_is_left_alone() {
        let open = "Open MPI v5.0.11, package: Open MPI";
        let mpich = "MPICH Version:      5.0.2";
        assert!(fits(open, Some(Launcher::OpenMpi)) && !fits(open, Some(Launcher::Hydra)));
        assert!(!fits(mpich, Some(Launcher::OpenMpi)) && fits(mpich, Some(Launcher::Hydra)));
        for version in [open, mpich] {
            assert!(fits(version, None) && fits(version, Some(Launcher::Slurm { pmi: true })));
        }
    }

    #[test]
    fn a_library_without_mpi_is_named_with_what_it_lacks() {
        let library = Library::this();
        let error = Api::of(library, Abi::Standard).err().expect("this program has no MPI");
        let said = reason("libmpi.so", &error);
        assert!(said.starts_with("libmpi.so: ") && said.contains("MPI_Init_thread"), "{said}");
    }
}
