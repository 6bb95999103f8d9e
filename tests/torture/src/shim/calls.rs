//! The calls that are taken the place of, each made by the system's number for it.
//!
//! C's variadic `open` takes its third argument where a function of three finds it, by the calling conventions of x86-64 and
//! AArch64 Linux.

use std::ffi::{c_char, c_int, c_long, c_uint, c_void};

use crate::log::{Entry, bytes, log, path};
use crate::protocol::Call;
use crate::{Fate, count, die, fail, fate, is_last_checkpoint, memory};

/// Descriptors above are files; these are what a process prints to.
const PRINTED: c_int = libc::STDERR_FILENO;

/// Makes a call, or doesn't, and logs what was made. Some touch a file, which another process may have open too. `make` hears
/// whether it's to do a part.
fn made(
    call: Call,
    touches: bool,
    make: impl FnOnce(bool) -> c_long,
    entry: impl FnOnce(c_long) -> Option<Entry<'static>>,
) -> c_long {
    if touches {
        memory::leave_the_files_alone();
    }
    let Some(number) = count() else { return make(false) };
    let fate = fate(call, touches, number);
    if let Fate::Failed(error) = fate {
        fail(error);
        return -1;
    }
    let result = make(matches!(fate, Fate::Part));
    if result >= 0 {
        // SAFETY: `errno` of the thread, which a log that is full must not change.
        let error = unsafe { *libc::__errno_location() };
        entry(result).iter().for_each(|entry| log(&Entry { number, ..*entry }));
        fail(error);
    }
    if let Fate::Last = fate {
        die();
    }
    result
}

fn not_logged(_: c_long) -> Option<Entry<'static>> {
    None
}

/// An entry of a call with descriptors, flags and the like, and paths.
///
/// # Safety
/// The paths are those of the call that is made.
unsafe fn of_paths(
    call: Call,
    result: c_long,
    numbers: [i64; 2],
    [first, second]: [*const c_char; 2],
) -> Option<Entry<'static>> {
    // SAFETY: the entry is dropped before the call that the paths came with is over.
    let paths = unsafe { [path(first), path(second)] };
    Some(Entry { what: call as u32, result, numbers, number: 0, paths, data: &[] })
}

/// As much of `length` as a part of it is.
fn part_of(length: usize, part: bool) -> usize {
    if part { length.div_ceil(2) } else { length }
}

const HERE: c_int = libc::AT_FDCWD;
const NONE: *const c_char = std::ptr::null();

unsafe fn opened(folder: c_int, name: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    let touches = flags & (libc::O_CREAT | libc::O_TRUNC) != 0;
    let numbers = [folder.into(), flags.into()];
    made(
        Call::Open,
        touches,
        // SAFETY: as the caller's.
        |_| unsafe { system!(SYS_openat, folder, name, flags, mode) },
        // SAFETY: the caller's path.
        |result| unsafe { of_paths(Call::Open, result, numbers, [name, NONE]) },
    ) as c_int
}

/// Defines functions of C by what they do.
macro_rules! in_place_of {
    ($($name:ident($($argument:ident: $type:ty),*) -> $out:ty $body:block)*) => {
        $(
            /// # Safety
            /// As C's.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $type),*) -> $out {
                // SAFETY: as C's.
                #[allow(unused_unsafe, reason = "some only call what is safe")]
                unsafe { $body }
            }
        )*
    };
}

/// A call that is made by its number with the function's own arguments.
macro_rules! by_number {
    ($call:expr, $touches:expr, $number:ident($($argument:expr),*)) => {
        // SAFETY: as C's.
        made($call, $touches, |_| unsafe { system!($number, $($argument),*) }, not_logged)
    };
}

in_place_of! {
    open(name: *const c_char, flags: c_int, mode: c_uint) -> c_int {
        opened(HERE, name, flags, mode)
    }
    open64(name: *const c_char, flags: c_int, mode: c_uint) -> c_int {
        opened(HERE, name, flags | libc::O_LARGEFILE, mode)
    }
    openat(folder: c_int, name: *const c_char, flags: c_int, mode: c_uint) -> c_int {
        opened(folder, name, flags, mode)
    }
    openat64(folder: c_int, name: *const c_char, flags: c_int, mode: c_uint) -> c_int {
        opened(folder, name, flags | libc::O_LARGEFILE, mode)
    }
    close(file: c_int) -> c_int {
        let entry = |result| of_paths(Call::Close, result, [file.into(), 0], [NONE; 2]);
        // A descriptor is closed even where closing it fails.
        let mut closed = false;
        let result = made(Call::Close, false, |_| {
            closed = true;
            system!(SYS_close, file)
        }, entry);
        if !closed {
            system!(SYS_close, file);
            fail(libc::EIO);
        }
        result as c_int
    }
    read(file: c_int, to: *mut c_void, length: usize) -> isize {
        made(Call::Read, file > PRINTED, |part| {
            system!(SYS_read, file, to, part_of(length, part))
        }, not_logged) as isize
    }
    pread64(file: c_int, to: *mut c_void, length: usize, at: i64) -> isize {
        made(Call::Read, false, |part| {
            system!(SYS_pread64, file, to, part_of(length, part), at)
        }, not_logged) as isize
    }
    readv(file: c_int, to: *const libc::iovec, parts: c_int) -> isize {
        by_number!(Call::Read, file > PRINTED, SYS_readv(file, to, parts)) as isize
    }
    write(file: c_int, from: *const c_void, length: usize) -> isize {
        written(file, from, length, -1, |length| system!(SYS_write, file, from, length))
    }
    pwrite64(file: c_int, from: *const c_void, length: usize, at: i64) -> isize {
        written(file, from, length, at, |length| {
            system!(SYS_pwrite64, file, from, length, at)
        })
    }
    writev(file: c_int, from: *const libc::iovec, parts: c_int) -> isize {
        // Its first part that isn't empty, as the system may.
        let parts = std::slice::from_raw_parts(from, parts.max(0) as usize);
        match parts.iter().find(|part| part.iov_len > 0) {
            Some(part) => write(file, part.iov_base, part.iov_len),
            None => 0,
        }
    }
    copy_file_range(_from: c_int, _at: *mut i64, _to: c_int, _to_at: *mut i64, _length: usize, _flags: c_uint) -> isize {
        // Copies are then made of calls that are watched.
        fail(libc::ENOSYS);
        -1
    }
    sendfile64(_to: c_int, _from: c_int, _at: *mut i64, _length: usize) -> isize {
        fail(libc::EINVAL);
        -1
    }
    lseek64(file: c_int, by: i64, from: c_int) -> i64 {
        let entry = |result| of_paths(Call::Seek, result, [file.into(), 0], [NONE; 2]);
        made(Call::Seek, true, |_| system!(SYS_lseek, file, by, from), entry)
    }
    ftruncate64(file: c_int, length: i64) -> c_int {
        let entry = |result| of_paths(Call::Truncate, result, [file.into(), length], [NONE; 2]);
        made(Call::Truncate, true, |_| system!(SYS_ftruncate, file, length), entry) as c_int
    }
    ftruncate(file: c_int, length: i64) -> c_int {
        ftruncate64(file, length)
    }
    // What is on the disk doesn't matter here: the log says what would be.
    fsync(file: c_int) -> c_int {
        let entry = |result| of_paths(Call::Sync, result, [file.into(), 0], [NONE; 2]);
        made(Call::Sync, true, |_| 0, entry) as c_int
    }
    fdatasync(file: c_int) -> c_int {
        fsync(file)
    }
    rename(from: *const c_char, to: *const c_char) -> c_int {
        let entry = |result| of_paths(Call::Rename, result, [0; 2], [from, to]);
        let result = made(Call::Rename, true, |_| {
            system!(SYS_renameat2, HERE, from, HERE, to, 0)
        }, entry) as c_int;
        if result == 0 && is_last_checkpoint(path(to)) {
            die();
        }
        result
    }
    unlink(name: *const c_char) -> c_int {
        unlinkat(HERE, name, 0)
    }
    rmdir(name: *const c_char) -> c_int {
        unlinkat(HERE, name, libc::AT_REMOVEDIR)
    }
    unlinkat(folder: c_int, name: *const c_char, flags: c_int) -> c_int {
        let call = if flags & libc::AT_REMOVEDIR == 0 { Call::Unlink } else { Call::Rmdir };
        let entry = |result| of_paths(call, result, [folder.into(), 0], [name, NONE]);
        made(call, true, |_| system!(SYS_unlinkat, folder, name, flags), entry) as c_int
    }
    mkdir(name: *const c_char, mode: c_uint) -> c_int {
        let entry = |result| of_paths(Call::Mkdir, result, [HERE.into(), 0], [name, NONE]);
        made(Call::Mkdir, true, |_| system!(SYS_mkdirat, HERE, name, mode), entry) as c_int
    }
    flock(file: c_int, how: c_int) -> c_int {
        by_number!(Call::Lock, true, SYS_flock(file, how)) as c_int
    }
    statx(folder: c_int, name: *const c_char, flags: c_int, mask: c_uint, to: *mut c_void) -> c_int {
        by_number!(Call::Stat, false, SYS_statx(folder, name, flags, mask, to)) as c_int
    }
    mmap64(at: *mut c_void, length: usize, access: c_int, flags: c_int, file: c_int, from: i64) -> *mut c_void {
        mmap(at, length, access, flags, file, from)
    }
    mmap(at: *mut c_void, length: usize, access: c_int, flags: c_int, file: c_int, from: i64) -> *mut c_void {
        if file < 0 {
            // Memory: that of allocations fails as such, and the runtime takes its own before the program begins.
            return system!(SYS_mmap, at, length, access, flags, file, from) as *mut c_void;
        }
        // -1 is what C calls MAP_FAILED.
        by_number!(Call::Map, false, SYS_mmap(at, length, access, flags, file, from)) as *mut c_void
    }
}

/// Writes, and logs what of it was written: at an offset, or where the file stands.
unsafe fn written(
    file: c_int,
    from: *const c_void,
    length: usize,
    at: i64,
    make: impl FnOnce(usize) -> c_long,
) -> isize {
    let entry = |result: c_long| {
        // SAFETY: the caller's bytes, of which so many were written.
        let data = unsafe { bytes(from, result) };
        let numbers = [file.into(), at];
        let logged = file > PRINTED;
        let paths = [c"", c""];
        logged.then_some(Entry {
            what: Call::Write as u32,
            result,
            numbers,
            number: 0,
            paths,
            data,
        })
    };
    made(Call::Write, file > PRINTED, |part| make(part_of(length, part)), entry) as isize
}

/// The next function of this name: that of the C library.
///
/// # Safety
/// `Function` is its type.
unsafe fn next<Function: Copy>(name: &'static std::ffi::CStr) -> Option<Function> {
    // SAFETY: the name ends with a zero. A pointer to a function is as large as any other.
    unsafe {
        let found = libc::dlsym(libc::RTLD_NEXT, name.as_ptr());
        (!found.is_null()).then(|| std::mem::transmute_copy(&found))
    }
}

type Begin = extern "C" fn(*mut c_void) -> *mut c_void;

in_place_of! {
    opendir(name: *const c_char) -> *mut c_void {
        let real: Option<unsafe extern "C" fn(*const c_char) -> *mut c_void> = next(c"opendir");
        let Some(real) = real else { return std::ptr::null_mut() };
        let result = made(Call::List, false, |_| real(name) as c_long, not_logged);
        if result == -1 { std::ptr::null_mut() } else { result as *mut c_void }
    }
    pthread_create(thread: *mut libc::pthread_t, how: *const libc::pthread_attr_t, begin: Begin, with: *mut c_void) -> c_int {
        type Create = unsafe extern "C" fn(
            *mut libc::pthread_t, *const libc::pthread_attr_t, Begin, *mut c_void,
        ) -> c_int;
        let real: Option<Create> = next(c"pthread_create");
        let Some(real) = real else { return libc::EAGAIN };
        match made(Call::Thread, false, |_| real(thread, how, begin, with).into(), not_logged) {
            -1 => libc::EAGAIN,
            code => code as c_int,
        }
    }
}
