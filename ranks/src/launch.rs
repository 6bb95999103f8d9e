//! Starts the ranks of a run on this machine, by the `mpirun` that is found, and leaves none behind.
//!
//! A launcher ends all ranks at once when one is lost, before the others have said what they saw. So each rank runs in a shell that keeps
//! its exit status from the launcher, until all have ended or have had time to.

use std::ffi::OsStr;
use std::io;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};
use std::{env, fs, thread};

use crate::launched::Launcher;
use crate::marked::Mark;
use crate::tcp::Secret;

/// What runs a rank: `$0` is the launch's folder, `$1` this process. The rank's status is told in its file. A rank that ended well tells its
/// launcher so; one that failed waits for the others, as long as this process lives.
const SHELL: &str = r#"launch=$1
shift
rank=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}
TIGHTROPE_LAUNCH_RANK=$rank "$@"
code=$?
echo $code > "$0/$rank.new" && mv "$0/$rank.new" "$0/$rank"
while [ $code != 0 ] && [ ! -e "$0/end" ] && kill -0 "$launch"; do sleep 0.1; done 2> /dev/null
exit $code"#;

/// How often ranks are looked at.
const LOOK: Duration = Duration::from_millis(20);
/// What ranks have beyond their time-out to say what they saw.
const GRACE: Duration = Duration::from_secs(5);
/// What the last ranks have to end after others have failed, who have told them by then.
const OTHERS: Duration = Duration::from_secs(3);
/// What a launcher has to end.
const END: Duration = Duration::from_secs(3);

/// A launcher that was found.
#[derive(Clone, Debug)]
pub struct Launch {
    mpirun: PathBuf,
    launcher: Launcher,
}

/// Names the folder where ranks tell how they ended, to the ranks themselves.
pub const FOLDER: &str = "TIGHTROPE_LAUNCH_FOLDER";

/// How a rank's process ended, by what its shell wrote into the folder; nothing while it runs, or after it ended well.
pub fn ended(folder: &Path, rank: usize) -> Option<String> {
    let code = fs::read_to_string(folder.join(rank.to_string())).ok()?.trim().parse().ok()?;
    (code != 0).then(|| format!("its process has ended by {}", how(code)))
}

/// How a run of several ranks ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Zero where all ranks ended well; else the exit code of the one that failed first, 128 and more for signals.
    pub code: i32,
    /// The rank that failed first, and how.
    pub first: Option<(usize, String)>,
}

/// Why ranks can't be started.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// There's no launcher.
    #[error(
        "no mpirun was found {place}. Install Open MPI or MPICH 5: pip install mpich has all that it takes"
    )]
    NotFound {
        /// Where it was looked for.
        place: String,
    },
    /// There's a launcher of another kind.
    #[error("{} is neither Open MPI's nor MPICH's: it calls itself {version:?}", mpirun.display())]
    Unknown {
        /// The launcher.
        mpirun: PathBuf,
        /// What it says.
        version: String,
    },
    /// The system refuses something.
    #[error("can't start {}: {error}", mpirun.display())]
    System {
        /// The launcher.
        mpirun: PathBuf,
        /// What the system says.
        error: io::Error,
    },
}

impl Launch {
    /// Finds `mpirun` in `bin` of a folder, such as one that wheels were installed to, or on `PATH`.
    ///
    /// # Errors
    /// [`LaunchError`].
    pub fn find(folder: Option<&Path>) -> Result<Self, LaunchError> {
        let path = env::var_os("PATH").unwrap_or_default();
        let folders = match folder {
            Some(folder) => vec![folder.join("bin")],
            None => env::split_paths(&path).collect(),
        };
        let mut found = folders.iter().map(|folder| folder.join("mpirun"));
        let Some(mpirun) = found.find(|mpirun| mpirun.is_file()) else {
            let place = folder
                .map_or("on PATH".to_owned(), |folder| format!("in {}/bin", folder.display()));
            return Err(LaunchError::NotFound { place });
        };
        let output = Command::new(&mpirun).arg("--version").stdin(Stdio::null()).output();
        let output =
            output.map_err(|error| LaunchError::System { mpirun: mpirun.clone(), error })?;
        let version = String::from_utf8_lossy(&output.stdout).into_owned();
        let launcher =
            if ["Open MPI", "OpenRTE", "prterun"].iter().any(|name| version.contains(name)) {
                Launcher::OpenMpi
            } else if version.contains("HYDRA")
                || version.contains("MPICH")
                || version.contains("Intel(R) MPI")
            {
                Launcher::Hydra
            } else {
                let version = version.lines().next().unwrap_or_default().to_owned();
                return Err(LaunchError::Unknown { mpirun, version });
            };
        Ok(Self { mpirun, launcher })
    }

    /// Runs a command as so many ranks, with this process's output, and waits for them. Where one fails, the others have their `time_out`
    /// and a little more to name it. When `stop` is set, all are asked to end by SIGTERM, and get as long. Then they are killed.
    ///
    /// # Errors
    /// [`LaunchError`].
    pub fn run(
        &self,
        count: usize,
        command: &Command,
        time_out: Duration,
        stop: &AtomicBool,
    ) -> Result<Ended, LaunchError> {
        let system = |error| LaunchError::System { mpirun: self.mpirun.clone(), error };
        let mark = Mark::new();
        let folder = Folder::new().map_err(system)?;
        let mut mpirun = self.command(count, command, &folder.0);
        mark.on(&mut mpirun);
        mpirun.env(FOLDER, &folder.0);
        // Ranks that meet by TCP prove that they're of this launch.
        if Secret::from_env().is_none() {
            mpirun.env(Secret::VARIABLE, Secret::random().map_err(system)?);
        }
        let child = mpirun.spawn().map_err(system)?;
        let mut running = Running { child, mark, folder, count };
        let status = running.wait(time_out + GRACE, stop).map_err(system)?;
        let first = running.failed();
        let code = match first {
            Some((_, code)) => code,
            None => status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(1),
        };
        let first = first.map(|(rank, code)| (rank, how(code)));
        Ok(Ended { code, first })
    }

    fn command(&self, count: usize, command: &Command, folder: &Path) -> Command {
        let mut mpirun = Command::new(&self.mpirun);
        let count = count.to_string();
        match self.launcher {
            Launcher::OpenMpi => {
                // Bound to a core, a rank's threads would share it.
                mpirun.args([
                    "--host",
                    &format!("localhost:{count}"),
                    "--bind-to",
                    "none",
                    "-n",
                    &count,
                ]);
                // SAFETY: it asks who the user is.
                if unsafe { libc::geteuid() } == 0 {
                    mpirun.arg("--allow-run-as-root");
                }
            }
            _ => {
                mpirun.args(["-launcher", "fork", "-hosts", "localhost", "-n", &count]);
            }
        }
        let own = std::process::id().to_string();
        mpirun.args(["sh", "-c", SHELL].map(OsStr::new)).arg(folder).arg(own);
        mpirun.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => mpirun.env(name, value),
                None => mpirun.env_remove(name),
            };
        }
        if let Some(folder) = command.get_current_dir() {
            mpirun.current_dir(folder);
        }
        // A group of its own: Ctrl+C is for this process, which passes it on.
        mpirun.stdin(Stdio::null()).process_group(0);
        #[cfg(target_os = "linux")]
        // SAFETY: between fork and exec it makes one system call, which asks for a signal when this thread is gone.
        unsafe {
            mpirun.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            });
        }
        mpirun
    }
}

/// As a shell's user says it.
fn how(code: i32) -> String {
    match code {
        ..=128 => format!("exit code {code}"),
        _ => format!("signal {}", code - 128),
    }
}

/// Where ranks tell how they ended. Removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> io::Result<Self> {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let name = format!("tightrope-launch-{}-{}", std::process::id(), since.as_nanos());
        let folder = env::temp_dir().join(name);
        let mut builder = fs::DirBuilder::new();
        #[cfg(unix)]
        {
            use std::os::unix::fs::DirBuilderExt as _;
            builder.mode(0o700);
        }
        builder.create(&folder)?;
        Ok(Self(folder))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // One that stays holds a few bytes in a folder for what is temporary.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Ranks that were started. None is left when dropped.
struct Running {
    child: Child,
    mark: Mark,
    folder: Folder,
    count: usize,
}

impl Running {
    /// Waits for the launcher, and ends ranks where it's time.
    fn wait(&mut self, grace: Duration, stop: &AtomicBool) -> io::Result<ExitStatus> {
        let mut asked = false;
        let mut limit: Option<Instant> = None;
        let mut failed = 0;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            if stop.load(Ordering::Relaxed) && !asked {
                asked = true;
                limit = limit.or(Some(Instant::now() + grace));
                self.mark.signal(libc::SIGTERM, true);
            }
            let ended = self.ended();
            let now_failed = ended.iter().filter(|(.., code)| *code != 0).count();
            if now_failed > failed {
                failed = now_failed;
                limit = Some(Instant::now() + if failed == 1 { grace } else { OTHERS });
            }
            let all = failed > 0 && ended.len() == self.count;
            if all || limit.is_some_and(|limit| Instant::now() > limit) {
                fs::write(self.folder.0.join("end"), "")?;
                return self.end();
            }
            thread::sleep(LOOK);
        }
    }

    /// Ends the launcher, which ends its ranks.
    fn end(&mut self) -> io::Result<ExitStatus> {
        for signal in [0, libc::SIGTERM, libc::SIGKILL] {
            let process = i32::try_from(self.child.id()).unwrap_or_default();
            // SAFETY: a signal to a child that hasn't been waited for.
            unsafe { libc::kill(process, signal) };
            let since = Instant::now();
            while since.elapsed() < END {
                if let Some(status) = self.child.try_wait()? {
                    return Ok(status);
                }
                thread::sleep(LOOK);
            }
        }
        self.child.wait()
    }

    /// Ranks that have ended: when, which, and with which code.
    fn ended(&self) -> Vec<(SystemTime, usize, i32)> {
        let read = |rank: usize| {
            let file = self.folder.0.join(rank.to_string());
            let code = fs::read_to_string(&file).ok()?.trim().parse().ok()?;
            Some((fs::metadata(&file).and_then(|data| data.modified()).ok()?, rank, code))
        };
        (0..self.count).filter_map(read).collect()
    }

    /// The rank that failed first, and its code.
    fn failed(&self) -> Option<(usize, i32)> {
        let failed = self.ended().into_iter().filter(|(.., code)| *code != 0);
        failed.min().map(|(_, rank, code)| (rank, code))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let since = Instant::now();
        while self.mark.signal(libc::SIGKILL, false) > 0 && since.elapsed() < END {
            thread::sleep(LOOK);
        }
        // It has ended by now, or was killed here.
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_a_process_ended_is_said_once_it_has() {
        let folder = Folder::new().unwrap();
        for (written, said) in
            [("0", None), ("", None), ("1", Some("exit code 1")), ("137\n", Some("signal 9"))]
        {
            fs::write(folder.0.join("2"), written).unwrap();
            let said = said.map(|said| format!("its process has ended by {said}"));
            assert_eq!(ended(&folder.0, 2), said, "{written}");
        }
        assert_eq!(ended(&folder.0, 1), None);
        let path = folder.0.clone();
        drop(folder);
        assert!(!path.exists());
    }

    /// A launcher that starts one rank, which writes its secret beside it.
    #[test]
    fn each_launch_hands_out_a_secret_of_its_own() {
        use std::os::unix::fs::PermissionsExt as _;

        let folder = Folder::new().unwrap();
        fs::create_dir(folder.0.join("bin")).unwrap();
        let mpirun = folder.0.join("bin/mpirun");
        let said = folder.0.join("said");
        let script = "#!/bin/sh\n[ \"$1\" = --version ] && exec echo HYDRA\n\
            while [ \"$1\" != sh ]; do shift; done\nPMI_RANK=0 exec \"$@\"\n";
        fs::write(&mpirun, script).unwrap();
        fs::set_permissions(&mpirun, fs::Permissions::from_mode(0o755)).unwrap();
        let secret = || {
            let mut command = Command::new("sh");
            command.args(["-c", "printf %s \"$TIGHTROPE_SECRET\" > \"$0\""]).arg(&said);
            let launch = Launch::find(Some(&folder.0)).unwrap();
            let ended = launch.run(1, &command, Duration::ZERO, &AtomicBool::new(false)).unwrap();
            assert_eq!(ended, Ended { code: 0, first: None });
            fs::read_to_string(&said).unwrap()
        };
        let secrets = [secret(), secret()];
        for secret in &secrets {
            assert!(secret.len() == 64 && secret.bytes().all(|byte| byte.is_ascii_hexdigit()));
        }
        assert_ne!(secrets[0], secrets[1]);
    }

    #[test]
    fn a_folder_without_mpirun_and_one_of_another_kind_are_refused() {
        let folder = Folder::new().unwrap();
        let error = Launch::find(Some(&folder.0)).unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("no mpirun was found in {}/bin.", folder.0.display())),
            "{error}"
        );
        fs::create_dir(folder.0.join("bin")).unwrap();
        // A program that is there, and says something else.
        std::os::unix::fs::symlink("/bin/echo", folder.0.join("bin/mpirun")).unwrap();
        let error = Launch::find(Some(&folder.0)).unwrap_err().to_string();
        assert!(error.contains("is neither Open MPI's nor MPICH's"), "{error}");
    }
}
