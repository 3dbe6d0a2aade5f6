//! Prometheus names and labels of the series that the program exports.

use std::collections::{BTreeMap, BTreeSet};

use tokengauge_telemetry::catalog::{self, Metric};
use tokengauge_telemetry::prometheus::{self, label_name};

/// Series names with the labels of each series. A histogram has three series: buckets, sum and count.
pub type Emitted = BTreeMap<String, BTreeSet<String>>;

/// Labels that are not in the metric catalog. Prometheus or a collector adds them, some of them from resource
/// attributes.
pub const TARGET_LABELS: &[&str] =
    &["job", "instance", "cluster", "namespace", "k8s_cluster_name", "k8s_namespace_name"];

/// Returns all series of the metric catalog.
pub fn emitted() -> Emitted {
    catalog::metrics().flat_map(series).collect()
}

fn series(metric: &Metric) -> Vec<(String, BTreeSet<String>)> {
    let (name, kind) = (metric.prometheus_name(), metric.kind.prometheus());
    let labels: BTreeSet<String> =
        metric.attributes().map(|attribute| label_name(attribute.key)).collect();
    match kind {
        prometheus::Kind::Counter | prometheus::Kind::Gauge => vec![(name, labels)],
        prometheus::Kind::Histogram => {
            let mut bounded = labels.clone();
            bounded.insert("le".into());
            vec![
                (format!("{name}_bucket"), bounded),
                (format!("{name}_sum"), labels.clone()),
                (format!("{name}_count"), labels),
            ]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_exposed_name() {
        let emitted = emitted();
        for name in [
            "tokengauge_tokens_total",
            "tokengauge_stream_active_time_seconds_total",
            "tokengauge_active_requests",
            "tokengauge_slo_error_budget_remaining_ratio",
            "tokengauge_request_output_token_rate_per_second_bucket",
            "tokengauge_time_to_first_token_seconds_sum",
        ] {
            assert!(emitted.contains_key(name), "{name}");
        }
        let has = |series: &str, label: &str| emitted[series].contains(label);
        assert!(has("tokengauge_time_to_first_token_seconds_bucket", "le"));
        assert!(!has("tokengauge_time_to_first_token_seconds_count", "le"));
        assert!(has("tokengauge_tokens_total", "gen_ai_request_model"));
    }
}
