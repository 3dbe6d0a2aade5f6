//! Metrics of the process: usage under the names of the semantic conventions, and limits.

use crate::catalog::attributes::CPU_MODE;
use crate::catalog::{Kind, Metric, ROW};

pub static CPU_TIME: Metric = Metric {
    name: "process.cpu.time",
    unit: "s",
    description: "CPU time of this process. Linux only.",
    attributes: &[&[CPU_MODE]],
    combinations: 2,
    ..ROW
};

pub static MEMORY: Metric = Metric {
    name: "process.memory.usage",
    kind: Kind::UpDownCounter,
    unit: "By",
    description: "Resident memory of this process. Linux only.",
    ..ROW
};

pub static SELF_MEMORY_LIMIT: Metric = Metric {
    name: "tokengauge.self.memory_limit",
    kind: Kind::Gauge,
    unit: "By",
    description: "Memory limit of this process: the lowest limit of its cgroup and the parents of it. Absent without a limit.",
    ..ROW
};

pub static SELF_DRAINING: Metric = Metric {
    name: "tokengauge.self.draining",
    kind: Kind::Gauge,
    unit: "s",
    description: "Time since a drain of this process was requested. 0 without one.",
    ..ROW
};

pub static SELF_CPU_LIMIT: Metric = Metric {
    name: "tokengauge.self.cpu_limit",
    kind: Kind::Gauge,
    unit: "{cpu}",
    description: "Cores that this process may use before the kernel throttles it: the lowest limit of the same cgroups. Absent without a limit.",
    ..ROW
};
