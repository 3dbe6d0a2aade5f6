//! Reads the memory and CPU limits of control groups (cgroups), versions 1 and 2.

use std::fs;
use std::path::{Component, Path, PathBuf};

/// A limit of this size or more means "no limit". In this case, version 1 reports the largest number of whole pages.
const UNLIMITED: u64 = 1 << 60;

/// The lowest limits of the process's cgroup and the parents of that cgroup.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    pub memory: Option<u64>,
    pub cpus: Option<f64>,
}

/// Reads the limits of the current process. `mounted` is the mount of the cgroup file system, normally
/// `/sys/fs/cgroup`. `groups` is the content of `/proc/self/cgroup`, whose lines have the form
/// `number:controllers:path` (cgroups(7)). Version 1 has one folder below the mount for each list of controllers.
/// Version 2 has an empty list of controllers and a single tree.
pub fn limits(mounted: &Path, groups: &str) -> Limits {
    let mut limits = Limits::default();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
            continue;
        };
        for folder in around(&mounted.join(controllers), path) {
            let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
            let memory = read("memory.max").or_else(|| read("memory.limit_in_bytes"));
            limits.memory = lowest(limits.memory, memory.and_then(|text| bytes(&text)));
            let quota = || Some(read("cpu.cfs_quota_us")? + " " + &read("cpu.cfs_period_us")?);
            let quota = read("cpu.max").or_else(quota);
            limits.cpus = lowest(limits.cpus, quota.and_then(|text| cores(&text)));
        }
    }
    limits
}

/// Returns the folders of a cgroup and its parents, up to the mount. Some folders may not exist, because inside a
/// container the mount itself can be the folder of the cgroup.
fn around(mounted: &Path, path: &str) -> Vec<PathBuf> {
    let mut folders = vec![mounted.to_owned()];
    let mut folder = mounted.to_owned();
    for part in Path::new(path).components() {
        if let Component::Normal(name) = part {
            folder.push(name);
            folders.push(folder.clone());
        }
    }
    folders
}

/// Parses a number of bytes. Returns `None` for `max` and very large numbers, which mean "no limit".
fn bytes(text: &str) -> Option<u64> {
    text.trim().parse().ok().filter(|bytes| (1..UNLIMITED).contains(bytes))
}

/// Parses a CPU limit: microseconds of CPU time per period, and the length of the period. Returns a number of cores.
/// Returns `None` for `max` and −1, which mean "no limit".
fn cores(text: &str) -> Option<f64> {
    let (quota, period) = text.trim().split_once(char::is_whitespace)?;
    let [quota, period]: [u32; 2] = [quota.parse().ok()?, period.trim().parse().ok()?];
    (quota > 0 && period > 0).then(|| f64::from(quota) / f64::from(period))
}

fn lowest<T: PartialOrd>(one: Option<T>, other: Option<T>) -> Option<T> {
    match (one, other) {
        (Some(one), Some(other)) => Some(if other < one { other } else { one }),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn the_lowest_limit_of_all_parents_applies() {
        let root = tree(&[
            ("pods/memory.max", "400\n"),
            ("pods/cpu.max", "max 100000\n"),
            ("pods/one/memory.max", "300\n"),
            ("pods/one/cpu.max", "150000 100000\n"),
            ("pods/one/inner/memory.max", "max\n"),
            ("pods/two/memory.max", "1\n"),
        ]);
        let expected = Limits { memory: Some(300), cpus: Some(1.5) };
        assert_eq!(limits(root.path(), "0::/pods/one/inner\n"), expected);
    }

    /// Inside a container, the root of the mount is the container's cgroup.
    #[test]
    fn reads_the_mount_itself_in_a_container() {
        let root = tree(&[("memory.max", "134217728\n"), ("cpu.max", "10000 100000\n")]);
        let expected = Limits { memory: Some(128 << 20), cpus: Some(0.1) };
        assert_eq!(limits(root.path(), "0::/\n"), expected);
        assert_eq!(limits(root.path(), "0::/../../elsewhere\n"), expected);
    }

    #[test]
    fn version_1_has_a_tree_for_each_controller() {
        let root = tree(&[
            ("memory/box/memory.limit_in_bytes", "268435456\n"),
            ("memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("cpu,cpuacct/box/cpu.cfs_quota_us", "200000\n"),
            ("cpu,cpuacct/box/cpu.cfs_period_us", "100000\n"),
            ("cpu,cpuacct/cpu.cfs_quota_us", "-1\n"),
            ("cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
        ]);
        let groups = "9:name=systemd:/box\n4:memory:/box\n2:cpu,cpuacct:/box\n0::/\n";
        let expected = Limits { memory: Some(256 << 20), cpus: Some(2.0) };
        assert_eq!(limits(root.path(), groups), expected);
    }

    #[test]
    fn returns_none_without_a_limit() {
        let root = tree(&[
            ("memory.max", "max\n"),
            ("cpu.max", "max 100000\n"),
            ("memory/memory.limit_in_bytes", "9223372036854771712\n"),
        ]);
        let none = Limits::default();
        assert_eq!(limits(root.path(), "0::/\n4:memory:/\n"), none);
        assert_eq!(limits(root.path(), "nonsense\n0:\n"), none);
        assert_eq!(limits(Path::new("/nowhere"), "0::/\n"), none);
    }
}
