//! Metrics of token-count mismatch and workload drift.

use crate::catalog::attributes::{
    CALL, ENDED, PROVIDER, REQUEST_MODEL, ROUTE, TOKEN_TYPE, VANTAGE,
};
use crate::catalog::{Kind, Metric, ROW};

pub static COUNTED: Metric = Metric {
    name: "tokengauge.drift.counted",
    unit: "{token}",
    description: "Output tokens as counted here, for calls where reported and counted tokens should agree: complete, the model's own encoding, no tools, nothing hidden.",
    attributes: &[CALL, ENDED],
    ..ROW
};

pub static REPORTED: Metric = Metric {
    name: "tokengauge.drift.reported",
    unit: "{token}",
    description: "Output tokens as reported, for the same calls as tokengauge.drift.counted.",
    attributes: &[CALL, ENDED],
    ..ROW
};

pub static WORKLOAD: Metric = Metric {
    name: "tokengauge.drift.workload",
    kind: Kind::Gauge,
    unit: "1",
    description: "Population stability index of the lengths of prompts (estimated from bytes) or responses (counted) against a baseline: Σ (p − q) × ln(p ÷ q) over the deciles of the baseline, with the ratios p of the latest calls and q of the baseline. 0: unchanged; from 0.1: slight change; from 0.25: large change. Absent with fewer than 200 calls on either side.",
    attributes: &[&[PROVIDER, REQUEST_MODEL, ROUTE, VANTAGE, TOKEN_TYPE]],
    combinations: 2,
    ..ROW
};
