//! Control groups of this process: `/proc/self/cgroup` names them, and `/proc/self/mountinfo` says where they're mounted
//! (cgroups(7), `proc_pid_mountinfo(5)`).

use std::ffi::OsString;
use std::fs;
use std::path::{Component, Path, PathBuf};

use tightrope_data::files::read_system_bytes;

use super::System;

/// A resource that control groups limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Controller {
    Memory,
    Cpu,
}

impl Controller {
    fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Cpu => "cpu",
        }
    }
}

/// Version of the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    One,
    Two,
}

/// The folder of a control group, as this process sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) version: Version,
    pub(super) folder: PathBuf,
}

/// A mounted hierarchy.
#[derive(Debug, PartialEq, Eq)]
struct Mount {
    version: Version,
    /// The group that is shown at `point`.
    root: PathBuf,
    point: PathBuf,
}

/// Groups that are searched for this process, where its path says nothing.
const SEARCHED: usize = 4096;

impl System<'_> {
    /// Groups of this process whose limits bind it, from its own to the one that is mounted. Both versions may be mounted; a controller is
    /// in one of them.
    pub(super) fn groups(&self, controller: Controller) -> Vec<Group> {
        let read = |file: &str| read_system_bytes(self.path(Path::new(file))).unwrap_or_default();
        let (own, mounted) = (read("/proc/self/cgroup"), read("/proc/self/mountinfo"));
        let mut groups = vec![];
        for mount in lines(&mounted).filter_map(|line| mount(line, controller)) {
            let path = lines(&own).find_map(|line| path_in(line, mount.version, controller));
            let Some(folder) = path.and_then(|path| self.folder(&mount, &path)) else { continue };
            let mut folders =
                folder.ancestors().take_while(|folder| folder.starts_with(&mount.point));
            let own = folders.next();
            // A group without it counts no memory of those below.
            let counts =
                |folder: &&Path| self.number(&folder.join("memory.use_hierarchy")) != Some(0);
            let bind = own.into_iter().chain(folders.take_while(counts));
            let version = mount.version;
            groups.extend(bind.map(|folder| Group { version, folder: folder.to_owned() }));
        }
        groups
    }

    /// The folder of the group at `path` of a hierarchy; `None` where the mount doesn't show it.
    fn folder(&self, mount: &Mount, path: &Path) -> Option<PathBuf> {
        let is_plain = |path: &Path| !path.components().any(|part| part == Component::ParentDir);
        if is_plain(path)
            && is_plain(&mount.root)
            && let Ok(rest) = path.strip_prefix(&mount.root)
        {
            // A group that was removed has no files; those above it do.
            return Some(if rest.as_os_str().is_empty() {
                mount.point.clone()
            } else {
                mount.point.join(rest)
            });
        }
        // A namespace of control groups hides where the mount begins, or where this process is.
        let mut folders = vec![mount.point.clone()];
        let mut searched = 0;
        while let Some(folder) = folders.get(searched).filter(|_| searched < SEARCHED).cloned() {
            searched += 1;
            let processes = self.text(&folder.join("cgroup.procs")).unwrap_or_default();
            if processes.lines().any(|process| process.parse() == Ok(self.process)) {
                return Some(folder);
            }
            let entries = fs::read_dir(self.path(&folder)).into_iter().flatten().flatten();
            let below = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
            folders.extend(below.map(|entry| folder.join(entry.file_name())));
        }
        None
    }
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|&byte| byte == b'\n')
}

/// Path of this process in a hierarchy, by a line `number:controllers:path` of `/proc/self/cgroup`.
fn path_in(line: &[u8], version: Version, controller: Controller) -> Option<PathBuf> {
    let mut parts = line.splitn(3, |&byte| byte == b':');
    let (number, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
    let found = match version {
        Version::One => {
            controllers.split(|&byte| byte == b',').any(|name| name == controller.name().as_bytes())
        }
        Version::Two => number == b"0" && controllers.is_empty(),
    };
    let path = path.strip_suffix(b" (deleted)").unwrap_or(path);
    found.then(|| as_path(path.to_vec()))
}

/// The hierarchy of a line of `/proc/self/mountinfo`; `None` if it's another file system or has another controller.
fn mount(line: &[u8], controller: Controller) -> Option<Mount> {
    let mut words = line.split(|&byte| byte == b' ');
    let (root, point) = (words.nth(3)?, words.next()?);
    // Optional fields end at a dash.
    words.find(|word| *word == b"-")?;
    let (kind, _source, options) = (words.next()?, words.next()?, words.next()?);
    let version = match kind {
        b"cgroup2" => Version::Two,
        b"cgroup" => {
            let mut options = options.split(|&byte| byte == b',');
            options.find(|name| *name == controller.name().as_bytes())?;
            Version::One
        }
        _ => return None,
    };
    let [root, point] = [root, point].map(|path| as_path(unescaped(path)));
    Some(Mount { version, root, point })
}

/// A path whose blanks and backslashes are written as three octal digits.
fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut bytes = vec![];
    let mut rest = text;
    while let Some((&first, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|_| first == b'\\');
        let octal = digits.and_then(|digits| {
            digits.iter().try_fold(0u8, |value, digit| match digit {
                b'0'..=b'7' => value.checked_mul(8)?.checked_add(digit - b'0'),
                _ => None,
            })
        });
        bytes.push(octal.unwrap_or(first));
        rest = if octal.is_some() { &after[3..] } else { after };
    }
    bytes
}

#[cfg(unix)]
fn as_path(bytes: Vec<u8>) -> PathBuf {
    use std::os::unix::ffi::OsStringExt;
    OsString::from_vec(bytes).into()
}

#[cfg(not(unix))]
fn as_path(bytes: Vec<u8>) -> PathBuf {
    OsString::from(String::from_utf8_lossy(&bytes).into_owned()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn octal_digits_of_paths_are_read() {
        assert_eq!(unescaped(br"/a\040b\134c\011"), b"/a b\\c\t");
        assert_eq!(unescaped(br"/a\04"), br"/a\04");
        assert_eq!(unescaped(br"/a\999"), br"/a\999");
        assert_eq!(unescaped(br"/a\777b"), br"/a\777b");
        assert_eq!(unescaped(b""), b"");
    }

    #[test]
    fn a_mount_is_known_by_its_kind_and_controller() {
        let two = b"31 23 0:28 / /sys/fs/cgroup rw,nosuid shared:4 master:1 - cgroup2 cgroup2 rw";
        let one = br"35 31 0:32 /docker/a /sys/fs/my\040group rw - cgroup memory rw,cpuacct,memory";
        let mount = |line: &[u8]| mount(line, Controller::Memory);
        let expected = |version, root: &str, point: &str| {
            Some(Mount { version, root: root.into(), point: point.into() })
        };
        assert_eq!(mount(two), expected(Version::Two, "/", "/sys/fs/cgroup"));
        assert_eq!(mount(one), expected(Version::One, "/docker/a", "/sys/fs/my group"));
        // `cpuacct` isn't `cpu`, and a file system may be mounted with an option of that name.
        assert_eq!(super::mount(one, Controller::Cpu), None);
        assert_eq!(mount(b"36 31 0:33 / /mnt rw - tmpfs memory rw,memory"), None);
        assert_eq!(mount(b"35 31 0:32 / /sys"), None);
    }

    #[test]
    fn a_path_may_hold_colons() {
        let path = |line: &[u8], version| path_in(line, version, Controller::Memory);
        assert_eq!(path(b"4:cpu,memory:/a:b", Version::One), Some("/a:b".into()));
        assert_eq!(path(b"4:cpu,memory:/a:b", Version::Two), None);
        assert_eq!(path(b"0::/user.slice (deleted)", Version::Two), Some("/user.slice".into()));
        assert_eq!(path(b"9:name=memory:/x", Version::One), None);
        assert_eq!(path(b"", Version::Two), None);
    }
}
