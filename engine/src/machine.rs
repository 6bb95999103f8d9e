//! The processor, its memory and this process, as the system describes them.
//!
//! ```
//! use tightrope::machine::{Machine, threads};
//!
//! let machine = Machine::look();
//! println!("{}, {} cores", machine.model, machine.cores);
//! assert_eq!(threads(3), 3);
//! assert_eq!(threads(0), machine.cores);
//! ```

mod limits;
#[cfg(not(target_family = "wasm"))]
mod load;

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;
use tightrope_data::files::read_system;

pub use limits::{CpuQuota, MemoryLimit};
#[cfg(not(target_family = "wasm"))]
pub use load::{Load, is_busy};

use limits::System;

/// What is known of the machine. What the system doesn't tell is left out.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Machine {
    /// Name of the processor.
    pub model: String,
    /// Cores this process may use.
    pub cores: usize,
    /// The least quota of processor time that a control group sets.
    pub cpu_quota: Option<CpuQuota>,
    /// Vector instruction sets.
    pub features: Vec<&'static str>,
    /// Caches that the first core sees, the nearest first.
    pub caches: Vec<Cache>,
    /// Bytes of memory.
    pub memory_bytes: Option<u64>,
    /// Bytes of memory that this process could have now: those that the first limit leaves.
    pub memory_free_bytes: Option<u64>,
    /// Limits on this process's memory, the one that leaves least first.
    pub memory_limits: Vec<MemoryLimit>,
}

/// One cache.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cache {
    /// 1 is the nearest.
    pub level: u32,
    /// `d` for data, `i` for instructions, nothing for both.
    pub kind: &'static str,
    /// Size.
    pub bytes: u64,
}

impl Machine {
    /// Asks the system.
    pub fn look() -> Self {
        let memory_limits = memory_limits();
        Self {
            model: model(),
            cores: cores(),
            cpu_quota: cpu_quota(),
            features: features(),
            caches: caches(Path::new("/sys/devices/system/cpu/cpu0/cache")),
            memory_bytes: memory("MemTotal:"),
            memory_free_bytes: memory_limits.first().map(|limit| limit.free_bytes),
            memory_limits,
        }
    }
}

/// Name of the processor.
pub fn model() -> String {
    let info = read_system("/proc/cpuinfo").unwrap_or_default();
    model_name(&info).unwrap_or(std::env::consts::ARCH).to_owned()
}

fn model_name(info: &str) -> Option<&str> {
    let line = info.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim())
}

/// Vector instruction sets of the processor.
#[cfg(target_arch = "x86_64")]
pub(crate) fn features() -> Vec<&'static str> {
    macro_rules! detected {
        ($($name:tt),+) => {
            [$(($name, is_x86_feature_detected!($name))),+]
        };
    }
    let known = detected!(
        "sse4.2",
        "avx",
        "f16c",
        "fma",
        "avx2",
        "avx512f",
        "avx512bw",
        "avx512cd",
        "avx512dq",
        "avx512vl",
        "avx512vnni",
        "avx512bf16",
        "avx512fp16"
    );
    known.into_iter().filter(|(_, found)| *found).map(|(name, _)| name).collect()
}

/// Vector instruction sets of the processor.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn features() -> Vec<&'static str> {
    vec![]
}

fn caches(folder: &Path) -> Vec<Cache> {
    let read = |path: &Path, name: &str| {
        read_system(path.join(name)).map(|text| text.trim().to_owned()).ok()
    };
    let cache = |path: &Path| {
        Some(Cache {
            level: read(path, "level")?.parse().ok()?,
            kind: match read(path, "type")?.as_str() {
                "Data" => "d",
                "Instruction" => "i",
                _ => "",
            },
            bytes: kibibytes(&read(path, "size")?)?,
        })
    };
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut caches: Vec<Cache> = entries.filter_map(|entry| cache(&entry.path())).collect();
    caches.sort_by_key(|cache| (cache.level, cache.kind));
    caches
}

/// Bytes of `32K`.
fn kibibytes(text: &str) -> Option<u64> {
    Some(text.strip_suffix('K')?.parse::<u64>().ok()? * 1024)
}

fn memory(key: &str) -> Option<u64> {
    listed("/proc/meminfo", key)
}

/// Bytes of a line of a file such as `/proc/meminfo`.
fn listed(file: &str, key: &str) -> Option<u64> {
    kilobytes(field(&read_system(file).ok()?, key)?)
}

/// Bytes of `3060 kB`.
fn kilobytes(text: &str) -> Option<u64> {
    text.strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The source of the limit that is no control group's and no resource limit.
const MACHINE: &str = "the machine";

/// Limits on this process's memory, the one that leaves least first: what the machine has, control groups, and resource limits. Of what
/// all processes share, each rank on this machine has an equal part.
pub fn memory_limits() -> Vec<MemoryLimit> {
    let machine = memory("MemTotal:").zip(memory("MemAvailable:"));
    let machine = machine.map(|(bytes, free_bytes)| MemoryLimit {
        source: MACHINE.to_owned(),
        bytes,
        free_bytes,
        shared: true,
    });
    let mut limits: Vec<_> = machine.into_iter().chain(System::own().memory_limits()).collect();
    for limit in limits.iter_mut().filter(|limit| limit.shared) {
        limit.free_bytes /= ranks_here() as u64;
    }
    limits.sort_by_key(|limit| limit.free_bytes);
    limits
}

/// Bytes of memory that this process could have now: the least that one of its [limits](memory_limits) leaves; `None` if no limit is known.
pub fn free_memory() -> Option<u64> {
    memory_limits().first().map(|limit| limit.free_bytes)
}

/// The limit that leaves the least memory, for people, if it's below the machine's own: `300 MiB free of 1.00 GiB by FILE`.
pub(crate) fn limit_below_machine() -> Option<String> {
    let limit = memory_limits().into_iter().next()?;
    (limit.source != MACHINE).then(|| limit.text())
}

/// The least quota of processor time that a control group sets.
pub fn cpu_quota() -> Option<CpuQuota> {
    System::own().cpu_quota()
}

/// Cores that this process may use, by its affinity and by quotas of processor time.
pub fn cores() -> usize {
    let allowed = std::thread::available_parallelism().map_or(1, usize::from);
    cpu_quota().map_or(allowed, |quota| allowed.min(quota.threads()))
}

/// Largest memory of this process so far, bytes: `VmHWM`, where the system tells it.
pub fn resident_peak() -> Option<u64> {
    listed("/proc/self/status", "VmHWM:")
}

/// Memory of this process now, bytes: `VmRSS`, where the system tells it.
pub fn resident() -> Option<u64> {
    listed("/proc/self/status", "VmRSS:")
}

/// Threads that `asked` comes to: one on every core where none or 0 are asked for. Ranks that share the machine have equal parts of
/// its cores, or those that their launcher gave each.
pub fn threads(asked: usize) -> usize {
    match asked {
        0 => {
            let own = cores();
            let ranks = ranks_here();
            if ranks == 1 { own } else { part(own, cores_of_ranks(own), ranks) }
        }
        threads => threads,
    }
}

/// Cores for one of `ranks` that share `all` of them and of which this one may run on `own`.
fn part(own: usize, all: usize, ranks: usize) -> usize {
    own.min(all / ranks).max(1)
}

/// Cores of all ranks on this machine, of which this one may run on `own`: as many, but where its launcher may run on others too, and
/// so has given each its own.
fn cores_of_ranks(own: usize) -> usize {
    let status = |process: &str| read_system(format!("/proc/{process}/status")).ok();
    let of_launcher = || {
        let this = status("self")?;
        let launcher = status(field(&this, "PPid:")?)?;
        let [own, all] = [&this, &launcher].map(|status| field(status, "Cpus_allowed_list:"));
        (own? != all?).then(|| counted(all?))?
    };
    let of_job = std::env::var("SLURM_CPUS_ON_NODE").ok().and_then(|cores| cores.parse().ok());
    of_launcher().map_or(own, |all: usize| all.min(of_job.unwrap_or(usize::MAX)))
}

/// What follows `key` on its line.
fn field<'a>(status: &'a str, key: &str) -> Option<&'a str> {
    Some(status.lines().find_map(|line| line.strip_prefix(key))?.trim())
}

/// How many cores a list such as `0-3,8` has.
fn counted(list: &str) -> Option<usize> {
    let range = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let [first, last] = [first, last].map(|core| core.parse::<usize>().ok());
        last?.checked_add(1)?.checked_sub(first?)
    };
    list.split(',').map(range).sum()
}

/// Which of the ranks on this machine this process is, counted from 0.
#[cfg(feature = "cuda")]
pub(crate) fn local_rank() -> usize {
    let launched = tightrope_ranks::Launched::from_env();
    launched.ok().flatten().map_or(0, |launched| launched.local_rank)
}

/// Ranks of a run that share this machine's processor.
fn ranks_here() -> usize {
    #[cfg(not(target_family = "wasm"))]
    if let Ok(Some(launched)) = tightrope_ranks::Launched::from_env() {
        return launched.local_count.max(1);
    }
    1
}

/// The cache: rates of devices, compiled kernels. `None` if others can write there too, since the code of a
/// kernel is run.
#[cfg(not(target_family = "wasm"))]
pub fn cache_folder() -> Option<PathBuf> {
    let folder = dirs::cache_dir()?.join("tightrope");
    #[cfg(unix)]
    if folder.exists() && !tightrope_data::files::make_private(&folder) {
        return None;
    }
    Some(folder)
}

/// The folder of compiled kernels: in the cache, or else in a temporary folder of this user.
#[cfg(feature = "cuda")]
pub(crate) fn kernel_folder() -> PathBuf {
    cache_folder().unwrap_or_else(tightrope_data::files::temporary_folder).join("cuda")
}

/// Where Tightrope keeps what it can make again: nowhere in a browser.
#[cfg(target_family = "wasm")]
pub fn cache_folder() -> Option<PathBuf> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_have_parts_of_cores() {
        // Cores of this rank and of all, and ranks.
        for (own, all, ranks, expected) in [
            (64, 64, 4, 16),
            // Bound to a core, a socket, and a socket that others are bound to too.
            (1, 64, 4, 1),
            (32, 64, 2, 32),
            (32, 64, 8, 8),
            (2, 2, 4, 1),
            (7, 7, 2, 3),
        ] {
            assert_eq!(part(own, all, ranks), expected, "{own} of {all} cores, {ranks} ranks");
        }
        assert_eq!(counted("0-63"), Some(64));
        assert_eq!(counted("0,2-5,9"), Some(6));
        assert_eq!(counted("5-2"), None);
        assert_eq!(counted(""), None);
    }

    #[test]
    fn a_processor_by_name() {
        let info = "processor\t: 0\nvendor_id\t: X\nmodel name\t: Example 9000 @ 3 GHz\n";
        assert_eq!(model_name(info), Some("Example 9000 @ 3 GHz"));
        assert_eq!(model_name("processor\t: 0\n"), None);
    }

    #[test]
    fn caches_are_sorted_and_broken_ones_left_out() {
        let dir = tempfile::tempdir().unwrap();
        for (index, level, kind, size) in [
            ("index0", "3", "Unified", "32768K"),
            ("index1", "1", "Data", "48K"),
            ("index2", "x", "Data", "1K"),
        ] {
            let path = dir.path().join(index);
            fs::create_dir(&path).unwrap();
            for (name, text) in [("level", level), ("type", kind), ("size", size)] {
                fs::write(path.join(name), format!("{text}\n")).unwrap();
            }
        }
        assert_eq!(
            caches(dir.path()),
            [
                Cache { level: 1, kind: "d", bytes: 48 << 10 },
                Cache { level: 3, kind: "", bytes: 32 << 20 }
            ]
        );
        assert_eq!(caches(Path::new("/nowhere")), []);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn memory_of_this_process_is_known() {
        assert!(resident_peak().unwrap() > 1 << 20);
    }

    #[test]
    fn this_machine() {
        let machine = Machine::look();
        assert!(machine.cores > 0 && !machine.model.is_empty());
        if let (Some(all), Some(free)) = (machine.memory_bytes, machine.memory_free_bytes) {
            assert!(free <= all);
        }
    }
}
