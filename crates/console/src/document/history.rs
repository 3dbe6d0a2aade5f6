//! The last 15 minutes.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Text;

/// The last 15 minutes in intervals of 5 s, per group.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct History {
    /// Number of the oldest interval: floor(Unix time ÷ `interval_seconds`).
    pub first_interval: u64,
    /// Number of the newest interval, which is complete.
    pub last_interval: u64,
    /// Groups beyond `max_groups`, whose calls are not in the history.
    pub groups_left_out: u64,
    /// Before this instant nothing is known, because the process did not run. `null` if the whole window is known.
    pub gap_before_unix_ms: Option<u64>,
    pub groups: Vec<Group>,
    /// Number of each interval, oldest first, and the highest burn rate of all SLOs and windows at its end. Intervals
    /// without a burn rate are left out.
    pub burn_rates: Vec<(u64, f64)>,
}

/// API calls with the same names, and their history.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Group {
    pub id: u64,
    pub provider: Text,
    pub model: Text,
    pub route: Text,
    pub tenant: Option<Text>,
    pub variant: Option<Text>,
    /// Intervals with their numbers, oldest first. Intervals without an event are left out.
    pub intervals: Vec<(u64, Arc<Interval>)>,
}

/// Events of one group in one interval. An absent key means no event.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(default)]
pub struct Interval {
    /// API calls that ended.
    #[serde(skip_serializing_if = "is_zero")]
    pub finished: u64,
    /// Calls that failed, by source of the error. Calls that the client cancelled are not errors.
    #[serde(skip_serializing_if = "ErrorCounts::is_zero")]
    pub errors: ErrorCounts,
    /// Part of the failed calls: the provider responded with 429.
    #[serde(skip_serializing_if = "is_zero")]
    pub rate_limited: u64,
    /// Part of the failed calls: the provider responded with 401 or 403.
    #[serde(skip_serializing_if = "is_zero")]
    pub credentials_rejected: u64,
    /// Calls that the client cancelled.
    #[serde(skip_serializing_if = "is_zero")]
    pub cancelled: u64,
    /// Input tokens that providers reported for calls that ended.
    #[serde(skip_serializing_if = "is_zero")]
    pub input_tokens: u64,
    /// Part of the input that was read from a cache.
    #[serde(skip_serializing_if = "is_zero")]
    pub cached_input_tokens: u64,
    /// Output tokens when they arrived: of streams when they were generated, of other calls with the response.
    #[serde(skip_serializing_if = "is_zero")]
    pub output_tokens: u64,
    /// Part of `output_tokens` that was estimated, because no tokenizer of the model is available.
    #[serde(skip_serializing_if = "is_zero")]
    pub estimated_output_tokens: u64,
    /// Time to first token of streams that ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttft: Option<HistogramData>,
    /// Inter-token latency: one value per generated token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub itl: Option<HistogramData>,
    /// Output tokens per second of streams that ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<HistogramData>,
    /// Duration of calls that succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration: Option<HistogramData>,
    /// Calls in flight at the end of the interval.
    #[serde(skip_serializing_if = "is_zero")]
    pub in_flight: u64,
    /// Calls that wait for a permit or for a first token at the end of the interval.
    #[serde(skip_serializing_if = "is_zero")]
    pub queue_depth: u64,
    /// Stalled streams at the end of the interval.
    #[serde(skip_serializing_if = "is_zero")]
    pub stalled: u64,
    /// Sums of the stages of calls that ended.
    #[serde(skip_serializing_if = "StageSums::is_zero")]
    pub stages: StageSums,
    /// Cost of calls that ended, in the currency of `now.cost_per_hour`.
    #[serde(skip_serializing_if = "is_no_cost")]
    pub cost: f64,
    /// Part of `cost` that follows from counted or estimated tokens, because the provider reported none.
    #[serde(skip_serializing_if = "is_no_cost")]
    pub estimated_cost: f64,
}

/// Failed calls by source of the error.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(default)]
pub struct ErrorCounts {
    pub client: u64,
    pub upstream: u64,
    pub proxy: u64,
}

impl ErrorCounts {
    pub fn is_zero(&self) -> bool {
        *self == Self::default()
    }
}

/// Seconds in each stage. `first_token` includes the stages `first_byte` and `first_event` of the request log.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(default)]
pub struct StageSums {
    pub admission: f64,
    pub connect: f64,
    pub upload: f64,
    pub headers: f64,
    pub first_token: f64,
    pub reasoning: f64,
    pub decode: f64,
    pub tail: f64,
}

impl StageSums {
    pub fn is_zero(&self) -> bool {
        *self == Self::default()
    }
}

/// An OpenTelemetry exponential histogram: bucket i counts values in (2^(i/8), 2^((i+1)/8)].
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct HistogramData {
    /// Always 3: eight buckets per power of two.
    pub scale: i32,
    /// Number of values.
    pub count: u64,
    pub sum: f64,
    /// Number of values that are 0.
    pub zero: u64,
    /// Index and count of each bucket that is not empty, sorted by index.
    pub buckets: Vec<(i32, u64)>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(value: &u64) -> bool {
    *value == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_no_cost(value: &f64) -> bool {
    *value <= 0.0
}
