//! What the kernel says of this process, and whether it is on its way out, as instruments.

use std::sync::Arc;

use opentelemetry::metrics::Meter;

use crate::attributes::word;
use crate::catalog::attributes as key;
use crate::catalog::process;
use crate::gauges::Current;

pub fn register(meter: &Meter, current: &Current) {
    let cpu = Arc::clone(current);
    process::CPU_TIME.observe_fraction_counter(meter, move |counter| {
        if let Some(time) = cpu.load().process.cpu {
            for (mode, spent) in [("user", time.user), ("system", time.system)] {
                counter.observe(spent.as_secs_f64(), &[word(key::CPU_MODE, mode)]);
            }
        }
    });
    let memory = Arc::clone(current);
    process::MEMORY.observe_up_down(meter, move |instrument| {
        if let Some(bytes) = memory.load().process.resident {
            instrument.observe(i64::try_from(bytes).unwrap_or(i64::MAX), &[]);
        }
    });
    let limit = Arc::clone(current);
    process::SELF_MEMORY_LIMIT.observe_count_gauge(meter, move |gauge| {
        if let Some(bytes) = limit.load().process.memory_limit {
            gauge.observe(bytes, &[]);
        }
    });
    let cpus = Arc::clone(current);
    process::SELF_CPU_LIMIT.observe_gauge(meter, move |gauge| {
        if let Some(cores) = cpus.load().process.cpu_limit {
            gauge.observe(cores, &[]);
        }
    });
    let draining = Arc::clone(current);
    process::SELF_DRAINING.observe_gauge(meter, move |gauge| {
        gauge.observe(draining.load().draining.as_secs_f64(), &[]);
    });
}
