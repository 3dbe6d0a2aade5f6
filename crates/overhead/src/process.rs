//! CPU time and memory of a process and its descendants, from `/proc`.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Sub;

use serde::Serialize;

/// Seconds of CPU time since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Cpu {
    /// Time on a CPU by the scheduler's statistics, exact to the nanosecond. Without the threads that have ended.
    pub scheduled_s: f64,
    /// User and system time, which the kernel counts in ticks of 10 ms on most machines.
    pub user_s: f64,
    pub system_s: f64,
}

impl Sub for Cpu {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            scheduled_s: self.scheduled_s - earlier.scheduled_s,
            user_s: self.user_s - earlier.user_s,
            system_s: self.system_s - earlier.system_s,
        }
    }
}

/// Bytes of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Memory {
    pub rss: u64,
    /// Like RSS, but pages that several processes share count in part for each.
    pub pss: u64,
}

/// Returns the sum of a process and its descendants.
pub fn cpu(process: u32) -> Cpu {
    let mut total = Cpu::default();
    for process in family(process) {
        if let Some(stat) = stat(process) {
            total.user_s += stat.user_s;
            total.system_s += stat.system_s;
        }
        let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
        for thread in threads {
            let statistics =
                fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
            total.scheduled_s += scheduled(&statistics).unwrap_or_default();
        }
    }
    total
}

/// Returns the sum of a process and its descendants.
pub fn memory(process: u32) -> Memory {
    let mut total = Memory::default();
    for process in family(process) {
        let text = fs::read_to_string(format!("/proc/{process}/smaps_rollup")).unwrap_or_default();
        total.rss += kilobytes(&text, "Rss:").unwrap_or_default() * 1024;
        total.pss += kilobytes(&text, "Pss:").unwrap_or_default() * 1024;
    }
    total
}

struct Stat {
    parent: u32,
    user_s: f64,
    system_s: f64,
}

fn stat(process: u32) -> Option<Stat> {
    parse_stat(&fs::read_to_string(format!("/proc/{process}/stat")).ok()?)
}

/// Reads the fields after the name of the program, which can contain spaces and parentheses.
fn parse_stat(text: &str) -> Option<Stat> {
    let (_, fields) = text.rsplit_once(") ")?;
    let fields: Vec<&str> = fields.split(' ').collect();
    let seconds = |index: usize| -> Option<f64> {
        Some(fields.get(index)?.parse::<f64>().ok()? / ticks_per_second())
    };
    Some(Stat {
        parent: fields.get(1)?.parse().ok()?,
        user_s: seconds(11)?,
        system_s: seconds(12)?,
    })
}

#[expect(clippy::cast_precision_loss, reason = "a small number")]
fn ticks_per_second() -> f64 {
    rustix::param::clock_ticks_per_second() as f64
}

/// The first field is the time on a CPU in nanoseconds.
fn scheduled(text: &str) -> Option<f64> {
    Some(text.split(' ').next()?.parse::<f64>().ok()? / 1e9)
}

fn kilobytes(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Returns the process and its descendants: nginx and HAProxy have worker processes.
fn family(root: u32) -> Vec<u32> {
    let mut children = BTreeMap::<u32, Vec<u32>>::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(process) = entry.file_name().to_str().and_then(|it| it.parse().ok()) else {
            continue;
        };
        if let Some(stat) = stat(process) {
            children.entry(stat.parent).or_default().push(process);
        }
    }
    descendants(root, &children)
}

fn descendants(root: u32, children: &BTreeMap<u32, Vec<u32>>) -> Vec<u32> {
    let mut found = vec![root];
    let mut next = 0;
    while let Some(process) = found.get(next) {
        found.extend(children.get(process).into_iter().flatten());
        next += 1;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_program_does_not_shift_fields() {
        let line = "42 (a ) b) S 7 42 42 0 -1 4194560 1 0 0 0 250 50 0 0 20 0 1 0 9 1 1";
        let stat = parse_stat(line).unwrap();
        assert_eq!(stat.parent, 7);
        assert!((stat.user_s / stat.system_s - 5.0).abs() < 1e-9);
    }

    #[test]
    fn a_family_has_all_generations() {
        let children = BTreeMap::from([(1, vec![2, 3]), (3, vec![4]), (5, vec![6])]);
        assert_eq!(descendants(1, &children), [1, 2, 3, 4]);
    }

    #[test]
    fn schedstat_is_in_nanoseconds_and_smaps_in_kilobytes() {
        assert_eq!(scheduled("1500000000 12 3\n"), Some(1.5));
        assert_eq!(kilobytes("Rss:     2048 kB\nPss:  1000 kB\n", "Pss:"), Some(1_000));
    }

    #[test]
    fn this_process_uses_cpu_and_memory() {
        let mut sum = 0_u64;
        for number in 0..20_000_000_u64 {
            sum = std::hint::black_box(sum ^ number);
        }
        assert!(cpu(std::process::id()).scheduled_s > 0.0, "{sum}");
        assert!(memory(std::process::id()).pss > 100_000);
    }
}
