//! What the kernel says of this process: CPU time, memory, and the limits of the container around it.
//!
//! Read once per collection of metrics, by who collects: some files of `/proc` and of the cgroup file system, never on the
//! data path. What a system does not tell (another one than Linux, a sandbox without `/proc`, no limit) is absent.

mod cgroup;

use std::fs;
use std::path::Path;
use std::time::Duration;

/// The process, now.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProcessStats {
    pub cpu: Option<CpuTime>,
    /// Bytes of memory that are resident (`VmRSS`).
    pub resident: Option<u64>,
    /// Bytes at which the kernel ends the process: the lowest limit of its cgroup and of those around it.
    pub memory_limit: Option<u64>,
    /// Cores that it may use at once; beyond them it is throttled. Likewise the lowest.
    pub cpu_limit: Option<f64>,
}

/// CPU time that all threads have used since the process began.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CpuTime {
    pub user: Duration,
    /// In the kernel, on behalf of the process.
    pub system: Duration,
}

impl ProcessStats {
    /// Asks the kernel.
    pub fn read() -> Self {
        let text = |path: &str| fs::read_to_string(path).ok();
        let limits = text("/proc/self/cgroup")
            .map(|groups| cgroup::limits(Path::new("/sys/fs/cgroup"), &groups))
            .unwrap_or_default();
        Self {
            cpu: text("/proc/self/stat").and_then(|stat| cpu_time(&stat, ticks_per_second()?)),
            resident: text("/proc/self/status").and_then(|status| resident(&status)),
            memory_limit: limits.memory,
            cpu_limit: limits.cpus,
        }
    }
}

/// Raises how many files and sockets this process may have open to what it may raise it to. Container runtimes begin processes with
/// 1,024, for the sake of programs that call `select`: that many connections to the proxy's port would keep the kubelet's probes
/// out of the other one.
pub fn raise_open_file_limit() {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let Rlimit { current: _, maximum } = getrlimit(Resource::Nofile);
        let raised = Rlimit { current: maximum, maximum };
        // Where that is not allowed, it stays as it is.
        setrlimit(Resource::Nofile, raised).ok();
    }
}

/// In what `/proc/self/stat` counts CPU time: 100 a second nearly everywhere.
fn ticks_per_second() -> Option<u32> {
    #[cfg(target_os = "linux")]
    return u32::try_from(rustix::param::clock_ticks_per_second()).ok();
    #[cfg(not(target_os = "linux"))]
    None
}

/// The 14th and 15th field of `/proc/PID/stat` (proc_pid_stat(5)). The second is the program's name in parentheses and
/// may hold anything, so they are counted from the last one that closes.
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

/// `VmRSS` of `/proc/PID/status`, which the kernel always tells in units of 1,024 bytes.
fn resident(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|it| it.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1_024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_found_behind_any_name() {
        let stat = "7 (a) b ((c) S 1 7 7 0 -1 4194560 11 0 0 0 250 150 3 4 20 0 9 0 100 1 2";
        let expected =
            CpuTime { user: Duration::from_millis(2_500), system: Duration::from_millis(1_500) };
        assert_eq!(cpu_time(stat, 100), Some(expected));
        assert_eq!(cpu_time(stat, 0), None);
        assert_eq!(cpu_time("7 (a) S 1 7", 100), None);
        assert_eq!(cpu_time("", 100), None);
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
    fn this_very_process_has_vitals() {
        let before = ProcessStats::read();
        let resident = before.resident.unwrap();
        assert!((1 << 20..1 << 40).contains(&resident), "{resident}");
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
