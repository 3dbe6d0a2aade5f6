//! Query templates: PromQL with real names, and markers for the matchers that nearly all queries share.
//!
//! | marker | matched variables |
//! |---|---|
//! | `<alert>` | job (or none), cluster, namespace; only alerts of this project |
//! | `<fleet>` | job, cluster, namespace |
//! | `<process>` | as `<fleet>`, and instance |
//! | `<route>` | as `<process>`, position and route |
//! | `<call>` | as `<route>`, provider and model |
//!
//! `<firing>` selects the firing alerts of this project. Its value is the time since which the condition holds, in
//! seconds since the epoch. The label `dashboard` is the uid of the dashboard for the alert.
//!
//! A marker replaces matchers, alone or before other matchers: `tokengauge_tokens_total{<call>,
//! gen_ai_token_type="output"}`. Cluster and namespace each have two labels, one for scraped and one for OTLP series. A
//! series has one of the two labels or neither. The empty alternative in the matcher allows the absent label.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use crate::alerts::{self, Rules};

/// Matchers for the location of a service.
const PLACE: &str = "cluster=~\"$cluster|\", k8s_cluster_name=~\"$cluster|\", \
                     namespace=~\"$namespace|\", k8s_namespace_name=~\"$namespace|\"";
/// Matchers for all processes of a service.
const FLEET: &str = "job=~\"$job\", <place>";
/// Matchers for the alerts of this project. An alert has the labels of its expression. Alerts that cover several jobs
/// have no label `job`, which the matcher allows.
const ALERT: &str = "alertname=~\"(LLM|Tokengauge).+\", job=~\"$job|\", <place>";
const PROCESS: &str = "<fleet>, instance=~\"$instance\"";
const ROUTE: &str = "<process>, tokengauge_position=\"$position\", tokengauge_route=~\"$route\"";
const CALL: &str = "<route>, gen_ai_provider_name=~\"$provider\", gen_ai_request_model=~\"$model\"";

/// Firing alerts by name and severity. The value is the time since which the condition holds.
const FIRING: &str = "min by (alertname, severity) (ALERTS_FOR_STATE{<alert>} \
                      and ignoring (alertstate) ALERTS{alertstate=\"firing\", <alert>})";

/// Firing alerts with an additional label `dashboard`, the dashboard that the rule of the alert names.
static FIRING_WITH_DASHBOARD: LazyLock<String> = LazyLock::new(|| {
    let mut alerts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for alert in alerts::rules(&alerts::values::defaults()).iter().flat_map(Rules::alerts) {
        alerts.entry(alert.dashboard.clone()).or_default().push(alert.name.clone());
    }
    alerts.iter().fold(FIRING.to_owned(), |query, (dashboard, names)| {
        let names = names.join("|");
        format!(
            "label_replace({query}, \"dashboard\", \"{dashboard}\", \"alertname\", \"{names}\")"
        )
    })
});

/// Expands the markers of a query. Also replaces line breaks and indentation with single spaces.
pub fn expanded(text: &str) -> String {
    let mut text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    // The widest marker is expanded first, because its definition contains the next marker.
    for (marker, matchers) in [
        ("<firing>", FIRING_WITH_DASHBOARD.as_str()),
        ("<call>", CALL),
        ("<route>", ROUTE),
        ("<process>", PROCESS),
        ("<fleet>", FLEET),
        ("<alert>", ALERT),
        ("<place>", PLACE),
    ] {
        text = text.replace(marker, matchers);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaces_all_markers() {
        let text = expanded("sum(\n    rate(x_total{<call>, a=\"b\"}[5m])\n)");
        assert!(text.starts_with("sum( rate(x_total{job=~\"$job\", "), "{text}");
        assert!(text.contains("gen_ai_request_model=~\"$model\", a=\"b\"}[5m])"));
        for variable in
            ["job", "cluster", "namespace", "instance", "position", "route", "provider", "model"]
        {
            assert!(text.contains(&format!("${variable}")), "{variable}: {text}");
        }
        assert!(!text.contains('<'), "{text}");
    }
}
