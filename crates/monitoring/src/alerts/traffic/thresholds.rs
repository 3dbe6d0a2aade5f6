//! Thresholds of traffic alerts. The file of default values documents the meaning and the reason of each threshold.

use serde::Deserialize;

use crate::alerts::number::{Factor, Share};

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutputRate {
    pub min_streams: u64,
    pub min_reference_streams: u64,
    pub drop_to: Share,
    pub anomaly_deviations: Factor,
    pub anomaly_band: Share,
    pub collapse_streams: u64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Latency {
    pub first_token_ratio: Factor,
    pub first_token_seconds: Factor,
    pub first_token_min_calls: u64,
    pub first_token_min_reference_calls: u64,
    pub queue_depth: u64,
    pub queue_ratio: Factor,
    pub queue_seconds: Factor,
    pub stalls_per_stream: Share,
    pub min_stalls: u64,
    pub stalled_now_share: Share,
    pub min_stalled_now: u64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Provider {
    pub down_share: Share,
    pub error_share: Share,
    pub limited_share: Share,
    pub min_failed: u64,
    pub quota_share: Share,
    pub quota_min_calls: u64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quality {
    pub truncated_share: Share,
    pub min_truncated: u64,
    pub count_drift: Share,
    pub count_drift_min_tokens: u64,
    pub variant_rate: Factor,
    pub variant_ratio: Factor,
    pub variant_share: Share,
    pub variant_min_answers: u64,
    pub workload_index: Factor,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Money {
    pub cost_ratio: Factor,
    pub cost_per_hour: Factor,
    pub budget_used: Share,
}
