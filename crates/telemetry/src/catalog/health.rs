//! Metrics of the proxy's own health: what it did not see, refused, dropped, and how late it was.

use crate::catalog::attributes::{
    ANOMALY, DIMENSION, DROP_REASON, OMISSION, PART, RESULT, SIGNAL, VERSION,
};
use crate::catalog::{Kind, Metric, ROW, backend, process};
use tokengauge_llm::frame::Anomaly;
use tokengauge_types::label::Dimension;

/// From a timer's own grain to what a stopped process brings.
const DELAYS: &[f64] =
    &[0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.5, 2.5, 5.5, 10.5, 60.5];

/// Every metric of the proxy's own health.
pub static ALL: &[&Metric] = &[
    &SELF_LOST,
    &SELF_UNOBSERVED,
    &SELF_BACKLOG,
    &SELF_ANOMALIES,
    &SELF_OVERFLOW,
    &SELF_REFUSED,
    &SELF_EXPORTS,
    &SELF_DROPPED,
    &SELF_LEFT_OUT,
    &SELF_LOGGED,
    &SELF_UNLOGGED,
    &backend::SELF_SCRAPES,
    &backend::SELF_IMPLAUSIBLE,
    &SELF_DELAY,
    &process::CPU_TIME,
    &process::MEMORY,
    &process::SELF_MEMORY_LIMIT,
    &process::SELF_CPU_LIMIT,
    &process::SELF_DRAINING,
    &SELF_BUILD,
];

pub static SELF_LOST: Metric = Metric {
    name: "tokengauge.self.observer.lost",
    unit: "By",
    description: "Body bytes that passed unobserved. They reached their destination all the same.",
    ..ROW
};

pub static SELF_UNOBSERVED: Metric = Metric {
    name: "tokengauge.self.observer.unobserved",
    unit: "{exchange}",
    description: "Exchanges of which at least one body byte passed unobserved.",
    ..ROW
};

pub static SELF_BACKLOG: Metric = Metric {
    name: "tokengauge.self.observer.backlog",
    kind: Kind::Gauge,
    unit: "By",
    description: "Bytes copied and not yet looked at.",
    ..ROW
};

pub static SELF_ANOMALIES: Metric = Metric {
    name: "tokengauge.self.anomalies",
    unit: "{anomaly}",
    description: "What was odd in what went by.",
    attributes: &[&[ANOMALY]],
    combinations: Anomaly::ALL.len(),
    ..ROW
};

pub static SELF_OVERFLOW: Metric = Metric {
    name: "tokengauge.self.label_overflow",
    unit: "{value}",
    description: "How often a label value had to be called other because its dimension was full.",
    attributes: &[&[DIMENSION]],
    combinations: Dimension::ALL.len() + 1,
    ..ROW
};

pub static SELF_REFUSED: Metric = Metric {
    name: "tokengauge.self.requests.refused",
    unit: "{request}",
    description: "Requests that never became an exchange: their head was malformed or too large (more than 100 lines, or 400 KB).",
    ..ROW
};

pub static SELF_EXPORTS: Metric = Metric {
    name: "tokengauge.self.export.requests",
    unit: "{request}",
    description: "OTLP export requests. Retries of a request are not counted.",
    attributes: &[&[SIGNAL, RESULT]],
    combinations: 6,
    ..ROW
};

pub static SELF_DROPPED: Metric = Metric {
    name: "tokengauge.self.export.dropped",
    unit: "{item}",
    description: "Spans, log records or collections of metrics that were never delivered. Cumulative metrics recover on the next export.",
    attributes: &[&[SIGNAL, DROP_REASON]],
    combinations: 9,
    ..ROW
};

pub static SELF_LEFT_OUT: Metric = Metric {
    name: "tokengauge.self.content.left_out",
    unit: "{part}",
    description: "What content capture left out: messages and parts that were not understood, and calls that were captured in part (beyond the bound, or not seen).",
    attributes: &[&[OMISSION]],
    combinations: 2,
    ..ROW
};

pub static SELF_LOGGED: Metric = Metric {
    name: "tokengauge.self.request_log.written",
    unit: "{line}",
    description: "Lines of the request log that were written. 0 where it is off.",
    ..ROW
};

pub static SELF_UNLOGGED: Metric = Metric {
    name: "tokengauge.self.request_log.dropped",
    unit: "{line}",
    description: "Lines of the request log that were never written.",
    attributes: &[&[DROP_REASON]],
    combinations: 3,
    ..ROW
};

pub static SELF_DELAY: Metric = Metric {
    name: "tokengauge.self.delay",
    kind: Kind::Histogram,
    unit: "s",
    description: "By how much this proxy's own turns came late: a blocked runtime, a stopped process, a machine without cores to spare. What reaches 100 ms on the runtime is taken out of stalls.",
    attributes: &[&[PART]],
    buckets: DELAYS,
    combinations: 2,
};

pub static SELF_BUILD: Metric = Metric {
    name: "tokengauge.self.build",
    kind: Kind::Gauge,
    unit: "{build}",
    description: "Always 1.",
    attributes: &[&[VERSION]],
    ..ROW
};
