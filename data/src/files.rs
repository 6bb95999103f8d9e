//! The one place that opens files. Files of a run appear whole or not at all, and none is written through a link, so that a directory
//! that somebody else made can't send what is written elsewhere. Files of others are regular and of bounded length: a pipe or a device under the name
//! of one is refused, and not waited for. A test of the house holds that no other module opens a file.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::{Error, Result, limits};

/// Opens a regular file for reading, through links too: models in the cache of the Hugging Face hub are links.
///
/// # Errors
/// Errors of the system, and a pipe, a device or a folder.
pub fn open_regular(path: &Path) -> io::Result<File> {
    // It may be another one by the time that it's opened, which doesn't wait for a writer.
    if !path.metadata()?.is_file() {
        return Err(io::Error::other(IRREGULAR));
    }
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        options.custom_flags(libc::O_NONBLOCK);
    }
    let file = options.open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other(IRREGULAR)) }
}

/// Reads a regular file of at most `most` bytes: a file that somebody else may have made.
///
/// # Errors
/// As [`open_regular`], and a longer file.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let file = open_regular(path)?;
    let most = limits::raised(most);
    let length = file.metadata()?.len();
    if length > most {
        return Err(io::Error::other(limits::too_long(length, most)));
    }
    let mut bytes = Vec::with_capacity(length as usize);
    // It may grow while it's read.
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::Error::other(limits::too_long(bytes.len() as u64, most)));
    }
    Ok(bytes)
}

/// Reads a regular file of text, as [`read`] does it.
///
/// # Errors
/// As [`read`], and a file that isn't UTF-8.
pub fn read_text(path: &Path, most: u64) -> io::Result<String> {
    String::from_utf8(read(path, most)?)
        .map_err(|error| io::Error::new(ErrorKind::InvalidData, error))
}

/// Reads what the system makes: files of `/proc` and `/sys`.
///
/// # Errors
/// Errors of the system.
pub fn read_system_bytes(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(limits::DESCRIPTION).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads what the system makes as text; bytes that aren't UTF-8 become U+FFFD.
///
/// # Errors
/// As [`read_system_bytes`].
pub fn read_system(path: impl AsRef<Path>) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&read_system_bytes(path)?).into_owned())
}

/// Reads a text of at most `most` bytes from a regular file or a pipe that a writer has open, as a shell makes it of `<(command)`.
///
/// # Errors
/// Errors of the system, a device, a pipe without text, text that is longer or isn't UTF-8.
pub fn read_piped(path: &Path, most: u64) -> io::Result<String> {
    let mut options = OpenOptions::new();
    options.read(true);
    // A pipe without a writer is opened at once, and is empty.
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        options.custom_flags(libc::O_NONBLOCK);
    }
    let file = options.open(path)?;
    let found = file.metadata()?;
    let is_pipe = is_pipe(&found.file_type());
    if !found.is_file() && !is_pipe {
        return Err(io::Error::other(IRREGULAR));
    }
    #[cfg(unix)]
    if is_pipe {
        wait_for_bytes(&file)?;
    }
    let mut text = String::new();
    file.take(most.saturating_add(1)).read_to_string(&mut text)?;
    match text.len() as u64 {
        0 if is_pipe => Err(io::Error::other("it is a pipe, and nothing comes through it")),
        length if length > most => {
            Err(io::Error::other(format!("it has more than {} MiB", most >> 20)))
        }
        _ => Ok(text),
    }
}

fn is_pipe(kind: &fs::FileType) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt as _;
        kind.is_fifo()
    }
    #[cfg(not(unix))]
    {
        let _ = kind;
        false
    }
}

/// Lets reads wait for the writers of a pipe, which has one.
#[cfg(unix)]
fn wait_for_bytes(pipe: &File) -> io::Result<()> {
    use std::os::fd::AsRawFd as _;
    // SAFETY: the descriptor is open as long as the file, and both calls take numbers alone.
    let changed = unsafe {
        let flags = libc::fcntl(pipe.as_raw_fd(), libc::F_GETFL);
        libc::fcntl(pipe.as_raw_fd(), libc::F_SETFL, flags & !libc::O_NONBLOCK)
    };
    if changed < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Makes an empty file for writing in place of what is at `path`. A file with other names isn't written, since a backup may be made of such names: it
/// loses this one.
///
/// # Errors
/// Errors of the system.
pub fn create(path: &Path) -> io::Result<File> {
    if path.metadata().is_ok_and(|found| found.is_file() && has_other_names(&found)) {
        // The link that a user has there stays.
        fs::remove_file(path.canonicalize()?)?;
    }
    File::create(path)
}

/// Makes a file where there is none.
///
/// # Errors
/// Errors of the system, and a file that is there.
pub fn create_new(path: &Path) -> io::Result<File> {
    open(path, OpenOptions::new().write(true).create_new(true))
}

/// Writes a file that a user names, as [`create`] makes it; it may be a pipe or a device.
///
/// # Errors
/// Errors of the system.
pub fn write(path: &Path, bytes: impl AsRef<[u8]>) -> io::Result<()> {
    create(path)?.write_all(bytes.as_ref())
}

/// Puts a copy in the place of a file that has other names, so that what is written to it isn't written to them.
///
/// # Errors
/// Errors of the system; the file is then as it was.
pub fn take_alone(path: &Path) -> io::Result<()> {
    let Ok(mut file) = open(path, OpenOptions::new().read(true)) else { return Ok(()) };
    let found = file.metadata()?;
    if !has_other_names(&found) {
        return Ok(());
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let partial = path.with_file_name(format!(".{name}.partial"));
    let copied = start_new(&partial).and_then(|mut copy| {
        io::copy(&mut file, &mut copy)?;
        copy.set_permissions(found.permissions())?;
        copy.sync_all()?;
        fs::rename(&partial, path)
    });
    if copied.is_err() {
        // The first error is the one that matters.
        let _ = fs::remove_file(&partial);
    }
    copied
}

/// Returns true if a file has other names beside the one that it was found by.
pub fn has_other_names(found: &fs::Metadata) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt as _;
        found.nlink() > 1
    }
    #[cfg(not(unix))]
    {
        let _ = found;
        false
    }
}

/// A folder for what is temporary into which nobody else can put files. Where none can be made, it isn't there.
pub fn temporary_folder() -> PathBuf {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let own = format!("tightrope-{}-{}", std::process::id(), now.as_nanos());
    #[cfg(unix)]
    {
        // SAFETY: the call takes nothing and can't fail.
        let shared = std::env::temp_dir().join(format!("tightrope-{}", unsafe { libc::geteuid() }));
        // Somebody else may have made one of this name, or a link to one of theirs.
        let _ = create_private(&shared);
        let is_folder = shared.symlink_metadata().is_ok_and(|found| found.is_dir());
        if is_folder && make_private(&shared) {
            return shared;
        }
    }
    let own = std::env::temp_dir().join(own);
    // One that can't be made costs the time to make its files again.
    let _ = create_private(&own);
    own
}

/// Makes a folder that nobody else can read or write.
///
/// # Errors
/// Errors of the system, and one that is there.
pub fn create_private(path: &Path) -> io::Result<()> {
    #[cfg_attr(not(unix), expect(unused_mut, reason = "modes are of Unix"))]
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    {
        use std::os::unix::fs::DirBuilderExt as _;
        builder.mode(0o700);
    }
    builder.create(path)
}

/// Returns true if a folder is this user's and no other user can write to it.
#[cfg(unix)]
pub fn is_private(folder: &Path) -> bool {
    mode_of_own(folder).is_some_and(|mode| mode & OTHERS_WRITE == 0)
}

/// Takes away write permission of other users from a folder of this user. Returns true if the folder is private then.
#[cfg(unix)]
pub fn make_private(folder: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    let narrowed = |mode| fs::Permissions::from_mode(mode & 0o7777 & !OTHERS_WRITE);
    mode_of_own(folder).is_some_and(|mode| {
        mode & OTHERS_WRITE == 0 || fs::set_permissions(folder, narrowed(mode)).is_ok()
    })
}

/// Write permission of the group and of all.
#[cfg(unix)]
const OTHERS_WRITE: u32 = 0o022;

/// The mode of a folder that is this user's.
#[cfg(unix)]
fn mode_of_own(folder: &Path) -> Option<u32> {
    use std::os::unix::fs::MetadataExt as _;
    let found = folder.metadata().ok()?;
    // SAFETY: the call takes nothing and can't fail.
    let own = found.uid() == unsafe { libc::geteuid() };
    (found.is_dir() && own).then(|| found.mode())
}

/// Opens a regular file. A link, a pipe or a device under its name is refused, and not waited for.
///
/// # Errors
/// What the system refuses, and what is no regular file.
pub fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    match path.symlink_metadata() {
        Ok(found) if !found.is_file() => return Err(irregular(found.file_type())),
        _ => {}
    }
    // It may be another one by now.
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    }
    let file = options.open(path)?;
    let found = file.metadata()?.file_type();
    if found.is_file() { Ok(file) } else { Err(irregular(found)) }
}

/// Refuses what is a link; what isn't there is none.
///
/// # Errors
/// A link.
pub fn refuse_link(path: &Path) -> Result<()> {
    match path.symlink_metadata() {
        Ok(found) if found.is_symlink() => {
            Err(Error::io("use", path)(irregular(found.file_type())))
        }
        _ => Ok(()),
    }
}

const IRREGULAR: &str = "it is not a regular file";

fn irregular(found: fs::FileType) -> io::Error {
    io::Error::other(if found.is_symlink() {
        "it is a link, and a run follows none in its directory"
    } else {
        IRREGULAR
    })
}

/// Puts a file of these bytes at `path`, in place of what was there. Whatever moment the process or the power ends at, the
/// file is the old one or the new one.
///
/// # Errors
/// What the system refuses; the old file is then as it was.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let partial = path.with_file_name(format!(".{name}.partial"));
    let written = write_new(&partial, bytes)
        .map_err(Error::io("write", &partial))
        .and_then(|()| fs::rename(&partial, path).map_err(Error::io("write", path)));
    if written.is_err() {
        // The first error is the one that matters.
        let _ = fs::remove_file(&partial);
    }
    written?;
    path.parent().map_or(Ok(()), sync_folder)
}

fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = start_new(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Makes a file for writing, in place of one that a killed process left.
fn start_new(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    create_new(path)
}

/// Makes a folder where there is none yet, and those that it is in. The power may go away then, and it's still there.
///
/// # Errors
/// What the system refuses.
pub fn create_folder(path: &Path) -> Result<()> {
    let missing = |folder: &&Path| !folder.as_os_str().is_empty() && !folder.exists();
    // It may be there since a process that ended before it was flushed.
    let above = 1 + path.ancestors().skip(1).take_while(missing).count();
    fs::create_dir_all(path).map_err(Error::io("create", path))?;
    path.ancestors().take(above).filter_map(Path::parent).try_for_each(|folder| {
        match sync_folder(folder) {
            // Who may write there may not be allowed to read, and only what is read can be flushed.
            Err(Error::Io { source, .. }) if source.kind() == ErrorKind::PermissionDenied => Ok(()),
            flushed => flushed,
        }
    })
}

/// Makes the names in a folder durable. Only Unix has a call for it.
///
/// # Errors
/// What the system refuses.
pub fn sync_folder(path: &Path) -> Result<()> {
    // The parent of a name alone is the folder that the process works in.
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    if cfg!(unix) {
        File::open(path).and_then(|folder| folder.sync_all()).map_err(Error::io("flush", path))?;
    }
    Ok(())
}

/// Whether a file system has no locks, as some network file systems haven't.
pub fn has_no_locks(error: &io::Error) -> bool {
    #[cfg(unix)]
    if error.raw_os_error() == Some(libc::ENOLCK) {
        return true;
    }
    error.kind() == ErrorKind::Unsupported
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_nothing_is_left_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.toml");
        replace(&path, b"one").unwrap();
        // What a process left that was killed.
        fs::write(folder.path().join(".a.toml.partial"), "half").unwrap();
        replace(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        let refused = replace(&folder.path().join("none/a.toml"), b"").unwrap_err().to_string();
        assert!(refused.contains("a.toml"), "{refused}");
    }

    #[cfg(unix)]
    #[test]
    fn a_file_system_without_locks_is_no_failure_of_the_disk() {
        for (error, none) in [
            (io::Error::from_raw_os_error(libc::ENOLCK), true),
            (io::Error::from_raw_os_error(libc::EOPNOTSUPP), true),
            (io::Error::from(ErrorKind::Unsupported), true),
            (io::Error::from_raw_os_error(libc::ENOSPC), false),
            (io::Error::from_raw_os_error(libc::EIO), false),
        ] {
            assert_eq!(has_no_locks(&error), none, "{error}");
        }
    }

    #[test]
    fn a_folder_is_made_with_those_that_it_is_in() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b/c");
        create_folder(&path).unwrap();
        create_folder(&path).unwrap();
        assert!(path.is_dir());
        fs::write(folder.path().join("file"), "").unwrap();
        let refused = create_folder(&folder.path().join("file/d")).unwrap_err().to_string();
        assert!(refused.contains("file/d"), "{refused}");
    }

    /// Each of these was read to its end or waited for, under the name of a small file.
    #[cfg(unix)]
    #[test]
    fn pipes_devices_and_endless_files_are_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("config.json");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let zeros = folder.path().join("zeros.json");
        std::os::unix::fs::symlink("/dev/zero", &zeros).unwrap();
        for path in [&*pipe, &zeros, Path::new("/dev/zero"), folder.path()] {
            let refused = read(path, 10).unwrap_err().to_string();
            assert_eq!(refused, IRREGULAR, "{}", path.display());
        }
        // Larger than any memory, and of no block on the disk.
        let sparse = folder.path().join("sparse.json");
        File::create(&sparse).unwrap().set_len(1 << 42).unwrap();
        let refused = read(&sparse, limits::DESCRIPTION).unwrap_err().to_string();
        assert!(refused.contains("TIGHTROPE_MAX_UNPACKED"), "{refused}");
        let small = folder.path().join("small.json");
        fs::write(&small, "12345").unwrap();
        let link = folder.path().join("link.json");
        std::os::unix::fs::symlink(&small, &link).unwrap();
        assert_eq!(read_text(&link, 5).unwrap(), "12345");
        read(&small, 4).unwrap_err();
        assert_eq!(read_piped(&link, 5).unwrap(), "12345");
        for path in [&*pipe, &zeros, &small] {
            read_piped(path, 4).unwrap_err();
        }
    }

    #[cfg(unix)]
    #[test]
    fn settings_come_through_a_pipe_with_a_writer() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        // Both ends, so that opening it waits for nobody.
        let mut both = OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
        both.write_all(b"lr = 1").unwrap();
        let reader = std::thread::spawn({
            let pipe = pipe.clone();
            move || read_piped(&pipe, 100)
        });
        std::thread::sleep(std::time::Duration::from_millis(50));
        drop(both);
        assert_eq!(reader.join().unwrap().unwrap(), "lr = 1");
    }

    /// A backup by `cp -al` has the same files under other names.
    #[cfg(unix)]
    #[test]
    fn a_file_with_other_names_is_replaced_and_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let [own, backup] = ["own", "backup"].map(|name| folder.path().join(name));
        let make = || {
            let _ = fs::remove_file(&own);
            let _ = fs::remove_file(&backup);
            fs::write(&own, "before").unwrap();
            fs::hard_link(&own, &backup).unwrap();
        };
        make();
        write(&own, "after").unwrap();
        assert_eq!(fs::read(&own).unwrap(), b"after");
        assert_eq!(fs::read(&backup).unwrap(), b"before");
        make();
        take_alone(&own).unwrap();
        let mut file = open(&own, OpenOptions::new().append(true)).unwrap();
        file.write_all(b" and after").unwrap();
        assert_eq!(fs::read(&own).unwrap(), b"before and after");
        assert_eq!(fs::read(&backup).unwrap(), b"before");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
        take_alone(&folder.path().join("none")).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn a_folder_that_others_may_write_is_narrowed_or_refused() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cache");
        create_private(&path).unwrap();
        let mode = || path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(), 0o700);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(!is_private(&path));
        assert!(make_private(&path) && is_private(&path));
        assert_eq!(mode(), 0o755);
        assert!(!is_private(&path.join("none")) && !make_private(&path.join("none")));
        create_private(&path).unwrap_err();
        assert!(is_private(&temporary_folder()));
    }

    #[cfg(unix)]
    #[test]
    fn nothing_is_written_through_a_link_or_waits_for_a_pipe() {
        use std::os::unix::fs::symlink;

        let folder = tempfile::tempdir().unwrap();
        let (elsewhere, link) = (folder.path().join("elsewhere"), folder.path().join("link"));
        fs::write(&elsewhere, "theirs").unwrap();
        symlink(&elsewhere, &link).unwrap();
        let append = || OpenOptions::new().append(true).create(true).clone();
        let refused = open(&link, &mut append()).unwrap_err().to_string();
        assert!(refused.contains("link"), "{refused}");
        refuse_link(&link).unwrap_err();
        replace(&link, b"ours").unwrap();
        assert_eq!(fs::read(&elsewhere).unwrap(), b"theirs");
        assert_eq!(fs::read(&link).unwrap(), b"ours");

        let pipe = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        let refused = open(&pipe, &mut append()).unwrap_err().to_string();
        assert!(refused.contains("regular file"), "{refused}");
        open(folder.path(), OpenOptions::new().read(true)).unwrap_err();
    }
}
