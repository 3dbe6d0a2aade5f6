//! Reads statistics of this process: CPU time, memory, and the limits of its container.
//!
//! The statistics come from `/proc` and the cgroup file system. They are read once per collection of metrics, never on
//! the data path. A value that the system does not provide is `None`: on systems other than Linux, in a sandbox without
//! `/proc`, or if no limit is set.

mod cgroup;

use std::fs;
use std::path::Path;
use std::time::Duration;

/// Current statistics of this process.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProcessStats {
    pub cpu: Option<CpuTime>,
    /// Resident memory in bytes (`VmRSS`).
    pub resident: Option<u64>,
    /// When the process started, in seconds since 1970.
    pub started: Option<f64>,
    /// Number of open file descriptors, including sockets.
    pub open_files: Option<u64>,
    /// Memory limit in bytes, beyond which the kernel kills the process. This is the lowest limit of the process's
    /// cgroup and its parents.
    pub memory_limit: Option<u64>,
    /// Number of CPU cores beyond which the kernel throttles the process. This is the lowest limit of the process's
    /// cgroup and its parents.
    pub cpu_limit: Option<f64>,
}

/// CPU time of all threads since the start of the process.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CpuTime {
    pub user: Duration,
    /// Time that the kernel spent on behalf of the process.
    pub system: Duration,
}

impl ProcessStats {
    /// Reads the current statistics.
    pub fn read() -> Self {
        let text = |path: &str| fs::read_to_string(path).ok();
        let limits = text("/proc/self/cgroup")
            .map(|groups| cgroup::limits(Path::new("/sys/fs/cgroup"), &groups))
            .unwrap_or_default();
        let (stat, ticks) = (text("/proc/self/stat").unwrap_or_default(), ticks_per_second());
        Self {
            cpu: ticks.and_then(|ticks| cpu_time(&stat, ticks)),
            started: ticks.and_then(|ticks| started(&stat, &text("/proc/stat")?, ticks)),
            open_files: open_files(),
            resident: text("/proc/self/status").and_then(|status| resident(&status)),
            memory_limit: limits.memory,
            cpu_limit: limits.cpus,
        }
    }
}

/// Returns the maximum number of file descriptors of this process. `None` without a limit, or if the system is not
/// Linux.
pub fn open_file_limit() -> Option<u64> {
    #[cfg(target_os = "linux")]
    return rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    #[cfg(not(target_os = "linux"))]
    None
}

/// Raises the limit on open files and sockets from the soft limit to the hard limit. Container runtimes start processes
/// with a soft limit of 1,024, for old programs that call `select`. With this limit, 1,024 connections to the proxy
/// would be enough to make the kubelet's probes fail.
pub fn raise_open_file_limit() {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let Rlimit { current: _, maximum } = getrlimit(Resource::Nofile);
        let raised = Rlimit { current: maximum, maximum };
        // If the change is not permitted, the limit stays as it is.
        setrlimit(Resource::Nofile, raised).ok();
    }
}

/// Returns the number of clock ticks per second, the unit of CPU time in `/proc/self/stat`. The value is 100 on nearly
/// all systems.
fn ticks_per_second() -> Option<u32> {
    #[cfg(target_os = "linux")]
    return u32::try_from(rustix::param::clock_ticks_per_second()).ok();
    #[cfg(not(target_os = "linux"))]
    None
}

/// Parses the CPU time in the 14th and 15th field of `/proc/PID/stat` (proc_pid_stat(5)). The second field is the
/// program's name in parentheses, which can itself contain blanks and parentheses. Fields are therefore counted from
/// the last closing parenthesis.
fn cpu_time(stat: &str, ticks_per_second: u32) -> Option<CpuTime> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace().skip(11);
    let mut next = || {
        let ticks: u32 = fields.next()?.parse().ok()?;
        (ticks_per_second > 0)
            .then(|| Duration::from_secs_f64(f64::from(ticks) / f64::from(ticks_per_second)))
    };
    Some(CpuTime { user: next()?, system: next()? })
}

/// Computes the start time of the process in seconds since 1970. The 22nd field of `/proc/PID/stat` counts ticks from
/// the start of the machine, which is the line `btime` of `/proc/stat`.
fn started(stat: &str, machine: &str, ticks_per_second: u32) -> Option<f64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let ticks: f64 = fields.split_ascii_whitespace().nth(19)?.parse().ok()?;
    let booted = machine.lines().find_map(|line| line.strip_prefix("btime "))?;
    let booted: f64 = booted.trim().parse().ok()?;
    (ticks_per_second > 0).then(|| booted + ticks / f64::from(ticks_per_second))
}

/// Returns the number of open file descriptors, except the one that is open to read the list.
fn open_files() -> Option<u64> {
    let files = fs::read_dir("/proc/self/fd").ok()?.count();
    u64::try_from(files).ok()?.checked_sub(1)
}

/// Parses `VmRSS` in `/proc/PID/status` and returns bytes. The kernel writes the value in units of 1,024 bytes.
fn resident(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|it| it.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1_024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_cpu_time_after_any_process_name() {
        let stat = "7 (a) b ((c) S 1 7 7 0 -1 4194560 11 0 0 0 250 150 3 4 20 0 9 0 100 1 2";
        let expected =
            CpuTime { user: Duration::from_millis(2_500), system: Duration::from_millis(1_500) };
        assert_eq!(cpu_time(stat, 100), Some(expected));
        assert_eq!(cpu_time(stat, 0), None);
        assert_eq!(cpu_time("7 (a) S 1 7", 100), None);
        assert_eq!(cpu_time("", 100), None);
    }

    #[test]
    fn computes_the_start_from_ticks_since_boot() {
        let stat = "7 (a) b ((c) S 1 7 7 0 -1 4194560 11 0 0 0 250 150 3 4 20 0 9 0 150 1 2";
        let machine = "cpu  1 2\nbtime 1700000000\nprocesses 9\n";
        assert_eq!(started(stat, machine, 100), Some(1_700_000_001.5));
        assert_eq!(started(stat, machine, 0), None);
        assert_eq!(started(stat, "cpu 1\n", 100), None);
        assert_eq!(started("7 (a) S 1", machine, 100), None);
    }

    #[test]
    fn resident_memory_is_in_bytes() {
        let status = "Name:\ta\nVmHWM:\t  9000 kB\nVmRSS:\t  8192 kB\nThreads:\t2\n";
        assert_eq!(resident(status), Some(8 << 20));
        assert_eq!(resident("Name:\ta\n"), None);
        assert_eq!(resident("VmRSS:\t many kB\n"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn reads_its_own_statistics() {
        let before = ProcessStats::read();
        let resident = before.resident.unwrap();
        assert!((1 << 20..1 << 40).contains(&resident), "{resident}");
        let now = tokengauge_types::clock::wall_now().system_time();
        let now = now.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
        let started = before.started.unwrap();
        assert!((now - 86_400.0..now + 1.0).contains(&started), "{started} {now}");
        let open = before.open_files.unwrap();
        assert!(open >= 3, "standard input, output and error: {open}");
        let total = |it: ProcessStats| it.cpu.map(|cpu| cpu.user + cpu.system).unwrap();
        let mut sum = 0_u64;
        while total(ProcessStats::read()) < total(before) + Duration::from_millis(20) {
            sum = sum.wrapping_add((0..10_000_u64).sum());
        }
        assert!(sum > 0);
        if let Some(limit) = before.memory_limit {
            assert!(limit >= resident, "{limit}");
        }
    }
}
