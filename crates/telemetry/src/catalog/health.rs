//! Metrics of the proxy's own health: data that it lost, rejected or dropped, and its delays.

use crate::catalog::attributes::{
    ANOMALY, DIMENSION, DROP_REASON, OMISSION, PART, RESULT, SIGNAL, VERSION,
};
use crate::catalog::{Kind, Metric, ROW, backend, process};
use tokengauge_llm::frame::ParseError;
use tokengauge_types::label::Dimension;

/// Buckets from the resolution of a timer to the delay after the process was stopped.
const DELAYS: &[f64] =
    &[0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.5, 2.5, 5.5, 10.5, 60.5];

/// All metrics of the proxy's own health.
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
    description: "Body bytes that were not observed. They were forwarded nevertheless.",
    ..ROW
};

pub static SELF_UNOBSERVED: Metric = Metric {
    name: "tokengauge.self.observer.unobserved",
    unit: "{exchange}",
    description: "Requests with at least one unobserved body byte.",
    ..ROW
};

pub static SELF_BACKLOG: Metric = Metric {
    name: "tokengauge.self.observer.backlog",
    kind: Kind::Gauge,
    unit: "By",
    description: "Bytes copied and not yet processed.",
    ..ROW
};

pub static SELF_ANOMALIES: Metric = Metric {
    name: "tokengauge.self.anomalies",
    unit: "{anomaly}",
    description: "Parse errors in traffic.",
    attributes: &[&[ANOMALY]],
    combinations: ParseError::ALL.len(),
    ..ROW
};

pub static SELF_OVERFLOW: Metric = Metric {
    name: "tokengauge.self.label_overflow",
    unit: "{value}",
    description: "How often a label value was replaced by other because its dimension was full.",
    attributes: &[&[DIMENSION]],
    combinations: Dimension::ALL.len() + 1,
    ..ROW
};

pub static SELF_REFUSED: Metric = Metric {
    name: "tokengauge.self.requests.refused",
    unit: "{request}",
    description: "Requests rejected before routing: their headers were malformed or too large (more than 100 lines, or 400 KB).",
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
    description: "Content that was not captured: messages and parts of an unknown form, and calls captured in part (beyond the limit, or not observed).",
    attributes: &[&[OMISSION]],
    combinations: 2,
    ..ROW
};

pub static SELF_LOGGED: Metric = Metric {
    name: "tokengauge.self.request_log.written",
    unit: "{line}",
    description: "Lines written to the request log. 0 if it is off.",
    ..ROW
};

pub static SELF_UNLOGGED: Metric = Metric {
    name: "tokengauge.self.request_log.dropped",
    unit: "{line}",
    description: "Lines of the request log that were dropped.",
    attributes: &[&[DROP_REASON]],
    combinations: 3,
    ..ROW
};

pub static SELF_DELAY: Metric = Metric {
    name: "tokengauge.self.delay",
    kind: Kind::Histogram,
    unit: "s",
    description: "Scheduling delay of this proxy: a blocked runtime, a stopped process, or a machine without spare cores. Runtime delays of 100 ms and more are excluded from stalls.",
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
