//! Files of a run: each appears whole or not at all, and none is written through a link, so that a directory that somebody
//! else made can't send what is written elsewhere.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::path::Path;

use crate::{Error, Result};

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

fn irregular(found: fs::FileType) -> io::Error {
    io::Error::other(if found.is_symlink() {
        "it is a link, and a run follows none in its directory"
    } else {
        "it is not a regular file"
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
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = open(path, OpenOptions::new().write(true).create_new(true))?;
    file.write_all(bytes)?;
    file.sync_all()
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
