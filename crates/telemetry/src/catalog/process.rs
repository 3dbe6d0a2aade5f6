//! What the process takes, by the standard's names, and what it may take.

use crate::catalog::attributes::CPU_MODE;
use crate::catalog::{Kind, Metric, ROW};

pub static CPU_TIME: Metric = Metric {
    name: "process.cpu.time",
    unit: "s",
    description: "CPU time that this process has used, by the kernel's word. Absent where it says nothing.",
    attributes: &[&[CPU_MODE]],
    combinations: 2,
    ..ROW
};

pub static MEMORY: Metric = Metric {
    name: "process.memory.usage",
    kind: Kind::UpDownCounter,
    unit: "By",
    description: "Memory of this process that is resident, by the kernel's word. Absent where it says nothing.",
    ..ROW
};

pub static SELF_MEMORY_LIMIT: Metric = Metric {
    name: "tokengauge.self.memory_limit",
    kind: Kind::Gauge,
    unit: "By",
    description: "Memory at which the kernel ends this process: the lowest limit of its cgroup and of those around it. Absent where there is none.",
    ..ROW
};

pub static SELF_DRAINING: Metric = Metric {
    name: "tokengauge.self.draining",
    kind: Kind::Gauge,
    unit: "s",
    description: "For how long this process has been drained, since somebody asked for it. 0 while nobody has.",
    ..ROW
};

pub static SELF_CPU_LIMIT: Metric = Metric {
    name: "tokengauge.self.cpu_limit",
    kind: Kind::Gauge,
    unit: "{cpu}",
    description: "Cores that this process may use at once before the kernel holds it back, likewise.",
    ..ROW
};
