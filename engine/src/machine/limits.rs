//! Limits on the memory and the processor of this process, below what the machine has: control groups (both versions, and all groups
//! on the path to the root) and resource limits.

use std::path::{Path, PathBuf};

use serde::Serialize;
use tightrope_data::files::read_system;

use super::{field, kilobytes};
use crate::units::human_bytes;

mod groups;

use groups::{Controller, Group, Version};

/// A limit on memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MemoryLimit {
    /// The file or the resource limit that sets it.
    pub source: String,
    /// The limit, bytes.
    pub bytes: u64,
    /// Bytes of it that are left.
    pub free_bytes: u64,
    /// True if all processes of a control group share it; false for a limit of each process.
    pub shared: bool,
}

impl MemoryLimit {
    /// The limit for people: `300 MiB free of 1.00 GiB by FILE`.
    pub fn text(&self) -> String {
        let [bytes, free] = [self.bytes, self.free_bytes].map(human_bytes);
        format!("{free} free of {bytes} by {}", self.source)
    }
}

/// A limit on processor time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CpuQuota {
    /// The file that sets it.
    pub source: String,
    /// Cores that the quota amounts to.
    pub cores: f64,
}

impl CpuQuota {
    /// Threads that the quota keeps busy, at least 1.
    pub(super) fn threads(&self) -> usize {
        (self.cores as usize).max(1)
    }
}

/// A file system that has `/proc` and control groups: the system's, or one that a test made.
#[derive(Clone, Copy, Debug)]
pub(super) struct System<'a> {
    root: &'a Path,
    process: u32,
}

impl System<'_> {
    /// This process in the system that it runs in.
    pub(super) fn own() -> Self {
        // A browser's tab has no number.
        let process = if cfg!(target_family = "wasm") { 0 } else { std::process::id() };
        Self { root: Path::new("/"), process }
    }

    fn path(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// A file's text; `None` if it can't be read. Bytes that aren't UTF-8 are replaced.
    fn text(&self, path: &Path) -> Option<String> {
        read_system(self.path(path)).ok()
    }

    /// The file's first number; `None` for `max` and whatever else isn't a number.
    fn number(&self, path: &Path) -> Option<u64> {
        self.text(path)?.split_whitespace().next()?.parse().ok()
    }

    /// The number after `key` in a file of lines `key number`.
    fn listed(&self, path: &Path, key: &str) -> Option<u64> {
        let text = self.text(path)?;
        let mut lines = text.lines().filter_map(|line| line.split_once(' '));
        lines.find(|(name, _)| *name == key)?.1.trim().parse().ok()
    }

    /// Memory limits of this process. Of what each leaves, a part is kept back for what a run takes besides its plan: beyond these limits
    /// allocations fail, or the kernel ends the process.
    pub(super) fn memory_limits(&self) -> Vec<MemoryLimit> {
        let mut limits = self.left();
        for limit in &mut limits {
            let besides = match &*limit.source {
                ADDRESS_SPACE => BESIDES_ADDRESSES,
                // A small model takes little besides.
                _ => BESIDES.min(limit.free_bytes / 4),
            };
            limit.free_bytes = limit.free_bytes.saturating_sub(besides);
        }
        limits
    }

    /// Memory limits of this process and what they leave, the least first.
    fn left(&self) -> Vec<MemoryLimit> {
        let groups = self.groups(Controller::Memory);
        let mut limits: Vec<_> = groups.iter().flat_map(|group| self.group_limits(group)).collect();
        limits.extend(self.resource_limits());
        limits.sort_by_key(|limit| limit.free_bytes);
        limits
    }

    fn group_limits(&self, group: &Group) -> Vec<MemoryLimit> {
        let file = |name: &str| group.folder.join(name);
        let (usage, inactive) = match group.version {
            Version::One => ("memory.usage_in_bytes", "total_inactive_file"),
            Version::Two => ("memory.current", "inactive_file"),
        };
        let Some(usage) = self.number(&file(usage)) else { return vec![] };
        // The kernel drops such pages of files before it refuses memory.
        let cache = self.listed(&file("memory.stat"), inactive).unwrap_or(0);
        let used = usage.saturating_sub(cache);
        let limit = |name: &str, bytes: u64| MemoryLimit {
            source: file(name).display().to_string(),
            bytes,
            free_bytes: bytes.saturating_sub(used),
            shared: true,
        };
        let limits = match group.version {
            Version::One => {
                let (own, stat) = ("memory.limit_in_bytes", "memory.stat");
                let limit = self.number(&file(own));
                // Groups above those that are mounted here have limits too.
                let above = self.listed(&file(stat), "hierarchical_memory_limit");
                let less = |&above: &u64| limit.is_none_or(|limit| above < limit);
                [(own, limit), (stat, above.filter(less))]
            }
            // Above `memory.high` each allocation waits until as much was reclaimed.
            Version::Two => {
                ["memory.max", "memory.high"].map(|name| (name, self.number(&file(name))))
            }
        };
        let set = limits.into_iter().filter_map(|(name, bytes)| Some((name, bytes?)));
        // Without a limit, version 1 has one of nearly 2⁶³ bytes.
        set.filter(|(_, bytes)| *bytes < UNLIMITED)
            .map(|(name, bytes)| limit(name, bytes))
            .collect()
    }

    fn resource_limits(&self) -> Vec<MemoryLimit> {
        let limits = self.text(Path::new("/proc/self/limits")).unwrap_or_default();
        let status = self.text(Path::new("/proc/self/status")).unwrap_or_default();
        let known =
            [("Max address space", "VmSize:", ADDRESS_SPACE), ("Max data size", "VmData:", DATA)];
        let limit = |(name, used, source): (&str, &str, &str)| {
            let bytes: u64 = field(&limits, name)?.split_whitespace().next()?.parse().ok()?;
            let free_bytes = bytes.saturating_sub(kilobytes(field(&status, used)?)?);
            Some(MemoryLimit { source: source.to_owned(), bytes, free_bytes, shared: false })
        };
        known.into_iter().filter_map(limit).collect()
    }

    /// The least quota of processor time.
    pub(super) fn cpu_quota(&self) -> Option<CpuQuota> {
        let groups = self.groups(Controller::Cpu);
        let quota = |group: &Group| {
            let file = |name: &str| group.folder.join(name);
            let (name, quota, period) = match group.version {
                Version::One => {
                    let [quota, period] = ["cpu.cfs_quota_us", "cpu.cfs_period_us"];
                    (quota, self.number(&file(quota))?, self.number(&file(period))?)
                }
                Version::Two => {
                    let text = self.text(&file("cpu.max"))?;
                    let mut words = text.split_whitespace();
                    let mut number = || words.next()?.parse().ok();
                    ("cpu.max", number()?, number()?)
                }
            };
            let cores = quota as f64 / period as f64;
            let source = file(name).display().to_string();
            (period > 0).then_some(CpuQuota { source, cores })
        };
        let quotas = groups.iter().filter_map(quota);
        quotas.min_by(|a, b| a.cores.total_cmp(&b.cores))
    }
}

/// No machine has this much memory, bytes.
const UNLIMITED: u64 = 1 << 60;

/// Resource limits, for people.
const ADDRESS_SPACE: &str = "RLIMIT_AS (ulimit -v)";
const DATA: &str = "RLIMIT_DATA (ulimit -d)";

/// Bytes that a run takes besides its plan, at most.
const BESIDES: u64 = 32 << 20;
/// Addresses that it takes besides: each of its threads reserves 64 MiB for a heap of its own.
const BESIDES_ADDRESSES: u64 = 192 << 20;

#[cfg(test)]
mod tests;
