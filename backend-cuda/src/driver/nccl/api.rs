//! The calls of NCCL that exchanges take: those of the library, where it is installed, or those that stand for it.

use std::ffi::{CStr, c_char, c_int, c_void};

use libloading::Library;

use crate::driver::loaded;

/// Names of the library.
const NAMES: &[&str] = &["libnccl.so.2", "libnccl.so"];

/// The oldest version that registers buffers (`ncclCommRegister`), as [`Api::version`] gives it.
const OLDEST: c_int = 21_900;

/// `ncclResult_t`: zero where a call went well.
pub type Status = c_int;
/// `ncclUint8`.
pub const BYTE: c_int = 1;
/// `ncclStatGpuMemTotal`.
const TOTAL_MEMORY: c_int = 3;

/// What the library made and knows the inside of: a communicator, a registration; and a stream.
pub type Made = *mut c_void;

/// `ncclUniqueId`, which is passed as it is.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UniqueId(pub [u8; Self::BYTES]);

impl UniqueId {
    /// `NCCL_UNIQUE_ID_BYTES`.
    pub const BYTES: usize = 128;
}

pub type Version = unsafe extern "C" fn(*mut c_int) -> Status;
pub type GetId = unsafe extern "C" fn(*mut UniqueId) -> Status;
/// The communicator, how many ranks there are, the id, and which rank this is.
pub type Init = unsafe extern "C" fn(*mut Made, c_int, UniqueId, c_int) -> Status;
pub type End = unsafe extern "C" fn(Made) -> Status;
pub type AsyncError = unsafe extern "C" fn(Made, *mut Status) -> Status;
pub type Group = unsafe extern "C" fn() -> Status;
/// Buffer, how many elements, of which type, to which rank, communicator, stream.
pub type Send = unsafe extern "C" fn(*const c_void, usize, c_int, c_int, Made, Made) -> Status;
/// As [`Send`].
pub type Receive = unsafe extern "C" fn(*mut c_void, usize, c_int, c_int, Made, Made) -> Status;
/// Communicator, buffer, bytes, and the registration.
pub type Register = unsafe extern "C" fn(Made, *mut c_void, usize, *mut Made) -> Status;
pub type Deregister = unsafe extern "C" fn(Made, Made) -> Status;
/// Communicator, which figure, the figure.
pub type MemoryStats = unsafe extern "C" fn(Made, c_int, *mut u64) -> Status;
pub type Words = unsafe extern "C" fn(Status) -> *const c_char;
pub type LastWords = unsafe extern "C" fn(Made) -> *const c_char;

/// The calls.
pub struct Api {
    pub version: Version,
    pub get_id: GetId,
    pub init: Init,
    pub destroy: End,
    pub abort: End,
    pub async_error: AsyncError,
    pub group_start: Group,
    pub group_end: Group,
    pub send: Send,
    pub receive: Receive,
    pub register: Register,
    pub deregister: Deregister,
    /// Later versions have it.
    pub memory_stats: Option<MemoryStats>,
    pub words: Words,
    pub last_words: LastWords,
}

impl Api {
    /// The library's calls.
    ///
    /// # Errors
    /// In words, where none is installed, or one that is too old.
    pub fn open() -> Result<Self, String> {
        let mut problem = String::new();
        for name in NAMES {
            match loaded::library(name) {
                Ok(library) => return Self::of(library, name),
                Err(error) => problem = error.to_string(),
            }
        }
        Err(format!(
            "NCCL, by which GPUs send to each other, is not installed ({problem}); `pip install nvidia-nccl-cu13` (or -cu12) has it, and \
             LD_LIBRARY_PATH names its folder"
        ))
    }

    fn of(library: &'static Library, name: &str) -> Result<Self, String> {
        // SAFETY: nccl.h of NCCL 2.19 to 2.32 declares it as the type does, which takes a number's place.
        let version: Version = unsafe { library.get(b"ncclGetVersion") }
            .map(|symbol| *symbol)
            .map_err(|error| format!("{name} is another library: {error}"))?;
        let mut number = 0;
        // SAFETY: a number is written.
        unsafe { version(&mut number) };
        suits(number)?;
        Self::with(library, version).map_err(|error| format!("{name} lacks a call: {error}"))
    }

    fn with(library: &'static Library, version: Version) -> Result<Self, libloading::Error> {
        // SAFETY: nccl.h of NCCL 2.19 to 2.32 declares each function as the field's type does.
        unsafe {
            Ok(Self {
                version,
                get_id: *library.get(b"ncclGetUniqueId")?,
                init: *library.get(b"ncclCommInitRank")?,
                destroy: *library.get(b"ncclCommDestroy")?,
                abort: *library.get(b"ncclCommAbort")?,
                async_error: *library.get(b"ncclCommGetAsyncError")?,
                group_start: *library.get(b"ncclGroupStart")?,
                group_end: *library.get(b"ncclGroupEnd")?,
                send: *library.get(b"ncclSend")?,
                receive: *library.get(b"ncclRecv")?,
                register: *library.get(b"ncclCommRegister")?,
                deregister: *library.get(b"ncclCommDeregister")?,
                memory_stats: library.get(b"ncclCommMemStats").ok().map(|symbol| *symbol),
                words: *library.get(b"ncclGetErrorString")?,
                last_words: *library.get(b"ncclGetLastError")?,
            })
        }
    }

    /// Its version in words.
    pub fn name(&self) -> String {
        let mut number = 0;
        // SAFETY: a number is written.
        unsafe { (self.version)(&mut number) };
        format!("NCCL {}", numbered(number))
    }

    /// An id for a communicator, by which its ranks find each other.
    ///
    /// # Errors
    /// The library's words.
    pub fn unique_id(&self) -> Result<UniqueId, String> {
        let mut id = UniqueId([0; UniqueId::BYTES]);
        // SAFETY: an id is written.
        self.checked(unsafe { (self.get_id)(&mut id) }, "ncclGetUniqueId")?;
        Ok(id)
    }

    /// Bytes of the device that a communicator holds, where the library says.
    pub fn bytes(&self, communicator: Made) -> Option<u64> {
        let mut bytes = 0;
        // SAFETY: the library made the communicator, and writes a number.
        let status = unsafe { self.memory_stats?(communicator, TOTAL_MEMORY, &mut bytes) };
        (status == 0).then_some(bytes)
    }

    /// The library's words for what went wrong, with its reason where it has one.
    pub fn checked(&self, status: Status, call: &str) -> Result<(), String> {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: the library gives a text for every number, and for its last error.
        let [words, last] = unsafe {
            [(self.words)(status), (self.last_words)(std::ptr::null_mut())].map(|words| {
                let words = (!words.is_null()).then(|| CStr::from_ptr(words).to_string_lossy());
                words.unwrap_or_default().trim().to_owned()
            })
        };
        let because = if last.is_empty() { last } else { format!(": {last}") };
        Err(format!("{} refuses {call}: {words}{because}", self.name()))
    }
}

/// What is wrong with a version.
fn suits(number: c_int) -> Result<(), String> {
    if number >= OLDEST {
        return Ok(());
    }
    Err(format!(
        "NCCL {} is installed, and 2.19 or later is needed: `pip install --upgrade nvidia-nccl-cu12`, and name its folder in LD_LIBRARY_PATH",
        numbered(number)
    ))
}

/// A version as `NCCL_VERSION` makes its number, in words.
fn numbered(number: c_int) -> String {
    // From 2.9 on, the minor number has two digits.
    let (major, minor) = match number >= 10_000 {
        true => (number / 10_000, number % 10_000 / 100),
        false => (number / 1_000, number % 1_000 / 100),
    };
    format!("{major}.{minor}.{}", number % 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_and_old_ones_refused() {
        assert_eq!([2_708, 21_903, 23_203].map(numbered), ["2.7.8", "2.19.3", "2.32.3"]);
        assert_eq!(suits(21_903), Ok(()));
        let said = suits(21_805).unwrap_err();
        assert!(said.contains("NCCL 2.18.5 is installed, and 2.19"), "{said}");
    }
}
