use std::fs;

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;

/// Files of a drawn system.
struct Tree(TempDir);

impl Tree {
    fn new(files: &[(&str, &str)]) -> Self {
        let tree = Self(tempfile::tempdir().unwrap());
        files.iter().for_each(|(path, text)| tree.write(path, text));
        tree
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.0.path().join(path.trim_start_matches('/'));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn system(&self) -> System<'_> {
        System { root: self.0.path(), process: 42 }
    }

    /// The file that binds, and the bytes that it leaves.
    fn binds(&self) -> Option<(String, u64)> {
        let least = self.system().left().into_iter().next()?;
        Some((least.source, least.free_bytes))
    }
}

const V2: &str = "30 23 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";

#[test]
fn the_least_of_nested_groups_binds_and_pages_of_files_are_free() {
    let tree = Tree::new(&[
        ("proc/self/cgroup", "0::/a.slice/b\n"),
        ("proc/self/mountinfo", V2),
        ("sys/fs/cgroup/a.slice/memory.max", "1000\n"),
        ("sys/fs/cgroup/a.slice/memory.high", "max\n"),
        ("sys/fs/cgroup/a.slice/memory.current", "900\n"),
        ("sys/fs/cgroup/a.slice/memory.stat", "anon 100\ninactive_file 300\n"),
        ("sys/fs/cgroup/a.slice/b/memory.max", "600\n"),
        ("sys/fs/cgroup/a.slice/b/memory.high", "500\n"),
        ("sys/fs/cgroup/a.slice/b/memory.current", "50\n"),
    ]);
    // 1000 − (900 − 300), and not 500 − 50.
    assert_eq!(tree.binds(), Some(("/sys/fs/cgroup/a.slice/memory.max".into(), 400)));
    tree.write("sys/fs/cgroup/a.slice/b/memory.current", "200\n");
    assert_eq!(tree.binds(), Some(("/sys/fs/cgroup/a.slice/b/memory.high".into(), 300)));
    // A group that has less than it uses leaves nothing.
    tree.write("sys/fs/cgroup/a.slice/b/memory.max", "100\n");
    assert_eq!(tree.binds().unwrap().1, 0);
}

#[test]
fn groups_of_version_one_are_found_where_a_container_mounts_them() {
    let mounts = "\
        30 23 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n\
        31 23 0:27 /docker/c1 /sys/fs/cgroup/a\\040b rw master:9 - cgroup cgroup rw,memory\n\
        32 23 0:28 /docker/c1 /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n";
    let tree = Tree::new(&[
        ("proc/self/cgroup", "5:memory:/docker/c1/job\n4:cpu,cpuacct:/docker/c1\n0::/\n"),
        ("proc/self/mountinfo", mounts),
        ("sys/fs/cgroup/a b/memory.limit_in_bytes", "9223372036854771712\n"),
        ("sys/fs/cgroup/a b/memory.usage_in_bytes", "700\n"),
        ("sys/fs/cgroup/a b/job/memory.limit_in_bytes", "9000\n"),
        ("sys/fs/cgroup/a b/job/memory.usage_in_bytes", "600\n"),
        (
            "sys/fs/cgroup/a b/job/memory.stat",
            "inactive_file 1\nhierarchical_memory_limit 9000\ntotal_inactive_file 100\n",
        ),
        ("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "150000\n"),
        ("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"),
    ]);
    let file = |name: &str| format!("/sys/fs/cgroup/a b/job/{name}");
    assert_eq!(tree.binds(), Some((file("memory.limit_in_bytes"), 8500)));
    let quota = tree.system().cpu_quota().unwrap();
    assert_eq!((quota.cores, quota.threads()), (1.5, 1));
    assert_eq!(quota.source, "/sys/fs/cgroup/cpu/cpu.cfs_quota_us");
    tree.write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
    assert_eq!(tree.system().cpu_quota(), None);
    // The limit of a group above those that are mounted.
    let stat = "hierarchical_memory_limit 2000\ntotal_inactive_file 100\n";
    tree.write("sys/fs/cgroup/a b/job/memory.stat", stat);
    assert_eq!(tree.binds(), Some((file("memory.stat"), 1500)));
    // Without a hierarchy, a group above doesn't bind.
    tree.write("sys/fs/cgroup/a b/memory.limit_in_bytes", "800\n");
    assert_eq!(tree.binds().unwrap().1, 100);
    tree.write("sys/fs/cgroup/a b/memory.use_hierarchy", "0\n");
    assert_eq!(tree.binds().unwrap().1, 1500);
}

#[test]
fn a_namespace_that_hides_the_path_is_searched_for_this_process() {
    for (own, root) in [("/", "/../.."), ("/../other", "/"), ("/job", "/docker/c1")] {
        let tree = Tree::new(&[
            ("proc/self/cgroup", &format!("0::{own}\n")),
            ("proc/self/mountinfo", &V2.replace("0:26 / ", &format!("0:26 {root} "))),
            ("sys/fs/cgroup/cgroup.procs", "1\n"),
            ("sys/fs/cgroup/x/cgroup.procs", "421\n4\n"),
            ("sys/fs/cgroup/y/z/cgroup.procs", "7\n42\n"),
            ("sys/fs/cgroup/x/memory.max", "10\n"),
            ("sys/fs/cgroup/x/memory.current", "1\n"),
            ("sys/fs/cgroup/y/memory.max", "100\n"),
            ("sys/fs/cgroup/y/memory.current", "1\n"),
        ]);
        assert_eq!(tree.binds(), Some(("/sys/fs/cgroup/y/memory.max".into(), 99)), "{own} {root}");
    }
}

#[test]
fn resource_limits_count_what_is_used() {
    let limits = |space: &str, data: &str| {
        format!(
            "Limit                     Soft Limit           Hard Limit           Units     \n\
             Max data size             {data:<21}unlimited            bytes     \n\
             Max address space         {space:<21}unlimited            bytes     \n"
        )
    };
    let tree = Tree::new(&[("proc/self/status", "VmSize:\t 1024 kB\nVmData:\t  512 kB\n")]);
    tree.write("proc/self/limits", &limits("unlimited", "unlimited"));
    assert_eq!(tree.binds(), None);
    let gib = (1_u64 << 30).to_string();
    tree.write("proc/self/limits", &limits(&gib, "unlimited"));
    let left = (1 << 30) - (1 << 20);
    assert_eq!(tree.binds(), Some(("RLIMIT_AS (ulimit -v)".into(), left)));
    assert_eq!(tree.system().memory_limits()[0].free_bytes, left - BESIDES_ADDRESSES);
    tree.write("proc/self/limits", &limits(&gib, &gib));
    assert_eq!(tree.system().memory_limits()[1].free_bytes, (1 << 30) - (512 << 10) - BESIDES);
    let kinds: Vec<_> = tree.system().memory_limits().into_iter().map(|it| it.source).collect();
    assert_eq!(kinds, ["RLIMIT_AS (ulimit -v)", "RLIMIT_DATA (ulimit -d)"]);
    let few = (20_u64 << 20).to_string();
    tree.write("proc/self/limits", &limits("unlimited", &few));
    assert_eq!(tree.system().memory_limits()[0].free_bytes, ((20 << 20) - (512 << 10)) / 4 * 3);
    tree.write("proc/self/limits", &limits("4096", "unlimited"));
    assert_eq!(tree.binds().unwrap().1, 0);
}

#[test]
fn nothing_is_limited_where_nothing_can_be_read() {
    let tree = Tree::new(&[]);
    assert_eq!((tree.binds(), tree.system().cpu_quota()), (None, None));
    for damaged in ["", "\n\n", "0::", "::::", "30 23 0:26", "30 23 0:26 / /x rw -"] {
        tree.write("proc/self/cgroup", damaged);
        tree.write("proc/self/mountinfo", damaged);
        assert_eq!((tree.binds(), tree.system().cpu_quota()), (None, None), "{damaged:?}");
    }
}

/// A level of nested groups: limit, usage, pages of files, quota.
type Level = (Option<u64>, u64, u64, Option<u64>);

fn level() -> impl Strategy<Value = Level> {
    let some = |most: u64| proptest::option::of(1..most);
    (some(1 << 40), 0..1u64 << 40, 0..1u64 << 20, some(1_000_000))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Nested groups in either version, of which a container shows those from some level on.
    #[test]
    fn the_least_of_drawn_groups_binds(
        levels in proptest::collection::vec(level(), 1..5),
        hidden in 0..5_usize,
        two in any::<bool>(),
        blank in any::<bool>(),
    ) {
        let name = if blank { "a\\b c" } else { "job" };
        let hidden = hidden.min(levels.len());
        let path = |count: usize| format!("/{}", vec![name; count].join("/"));
        let escaped = path(hidden).replace('\\', "\\134").replace(' ', "\\040");
        let (kind, own) = match two {
            true => ("cgroup2 c rw", format!("0::{}\n", path(levels.len()))),
            false => ("cgroup c rw,cpu,memory", format!("3:cpu,memory:{}\n0::/\n", path(levels.len()))),
        };
        let tree = Tree::new(&[
            ("proc/self/cgroup", &own),
            ("proc/self/mountinfo", &format!("30 23 0:26 {escaped} /cg rw - {kind}\n")),
        ]);
        let (mut least, mut cores) = (None::<u64>, None::<f64>);
        for (index, &(limit, usage, cache, quota)) in levels.iter().enumerate() {
            // The folder of level `index + 1`, below those that are hidden.
            let Some(depth) = (index + 1).checked_sub(hidden) else { continue };
            let write = |file: &str, text: String| tree.write(&format!("cg{}/{file}", path(depth)), &text);
            let of = |unlimited: &str, limit: Option<u64>| limit.map_or(unlimited.to_owned(), |it| it.to_string());
            match two {
                true => {
                    write("memory.max", of("max", limit));
                    write("memory.current", usage.to_string());
                    write("memory.stat", format!("anon 7\ninactive_file {cache}\n"));
                    write("cpu.max", format!("{} 100000\n", of("max", quota)));
                }
                false => {
                    write("memory.limit_in_bytes", of("9223372036854771712", limit));
                    write("memory.usage_in_bytes", usage.to_string());
                    write("memory.stat", format!("inactive_file 9\ntotal_inactive_file {cache}\n"));
                    write("cpu.cfs_quota_us", of("-1", quota));
                    write("cpu.cfs_period_us", "100000\n".into());
                }
            }
            if let Some(limit) = limit {
                let left = limit.saturating_sub(usage.saturating_sub(cache));
                least = Some(least.map_or(left, |least| least.min(left)));
            }
            if let Some(quota) = quota {
                let own = quota as f64 / 1e5;
                cores = Some(cores.map_or(own, |cores| cores.min(own)));
            }
        }
        prop_assert_eq!(tree.binds().map(|(_, free)| free), least);
        prop_assert_eq!(tree.system().cpu_quota().map(|quota| quota.cores), cores);
    }
}
