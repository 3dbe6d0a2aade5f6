//! Metrics of what moved away from what it was, or from what it should equal: counts from reports, the workload from its
//! baseline.

use crate::catalog::attributes::{
    CALL, ENDED, PROVIDER, REQUEST_MODEL, ROUTE, TOKEN_TYPE, VANTAGE,
};
use crate::catalog::{Kind, Metric, ROW};

pub static COUNTED: Metric = Metric {
    name: "tokengauge.drift.counted",
    unit: "{token}",
    description: "Output tokens as counted here, over calls where reported and counted should agree: complete, the model's own encoding, no tools, nothing hidden.",
    attributes: &[CALL, ENDED],
    ..ROW
};

pub static REPORTED: Metric = Metric {
    name: "tokengauge.drift.reported",
    unit: "{token}",
    description: "Output tokens as reported, over the same calls as tokengauge.drift.counted.",
    attributes: &[CALL, ENDED],
    ..ROW
};

pub static WORKLOAD: Metric = Metric {
    name: "tokengauge.drift.workload",
    kind: Kind::Gauge,
    unit: "1",
    description: "Population stability index of the lengths of prompts (estimated from bytes) or answers (counted) against a baseline: Σ (p − q) × ln(p ÷ q) over the baseline's deciles, of the shares p of the latest calls and q of the baseline. 0 unchanged, from 0.1 commonly read as a slight change, from 0.25 as a great one. Absent with fewer than 200 calls on either side.",
    attributes: &[&[PROVIDER, REQUEST_MODEL, ROUTE, VANTAGE, TOKEN_TYPE]],
    combinations: 2,
    ..ROW
};
