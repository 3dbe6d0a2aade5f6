//! The text of a query: PromQL with real names, and markers for the matchers that nearly all of them share.
//!
//! | marker | stands for the variables |
//! |---|---|
//! | `<alert>` | job (or none), cluster, namespace; and only alerts of ours |
//! | `<fleet>` | job, cluster, namespace |
//! | `<process>` | these and instance |
//! | `<lane>` | these, vantage and route |
//! | `<call>` | these, provider and model |
//!
//! A marker stands where matchers stand, alone or before others: `tokengauge_tokens_total{<call>,
//! gen_ai_token_type="output"}`. Cluster and namespace have two labels, one by scrape and one by OTLP; a series has one of
//! them, or none, and the matcher of a label that is absent takes the empty alternative.

/// Where a service runs.
const PLACE: &str = "cluster=~\"$cluster|\", k8s_cluster_name=~\"$cluster|\", \
                     namespace=~\"$namespace|\", k8s_namespace_name=~\"$namespace|\"";
/// Matchers of what is told of a service, whichever of its processes told it.
const FLEET: &str = "job=~\"$job\", <place>";
/// Of the alerts that come with this program. An alert has the labels of its expression: the job is there, unless the
/// alert is about something that several share.
const ALERT: &str = "alertname=~\"(LLM|Tokengauge).+\", job=~\"$job|\", <place>";
const PROCESS: &str = "<fleet>, instance=~\"$instance\"";
const LANE: &str = "<process>, tokengauge_vantage=\"$vantage\", tokengauge_route=~\"$route\"";
const CALL: &str = "<lane>, gen_ai_provider_name=~\"$provider\", gen_ai_request_model=~\"$model\"";

/// The query as Grafana gets it: markers replaced, line breaks and indentation folded into single spaces.
pub fn expanded(text: &str) -> String {
    let mut text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    // From the widest marker down: each is written with the next.
    for (marker, matchers) in [
        ("<call>", CALL),
        ("<lane>", LANE),
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
    fn markers_are_replaced_down_to_the_last() {
        let text = expanded("sum(\n    rate(x_total{<call>, a=\"b\"}[5m])\n)");
        assert!(text.starts_with("sum( rate(x_total{job=~\"$job\", "), "{text}");
        assert!(text.contains("gen_ai_request_model=~\"$model\", a=\"b\"}[5m])"));
        for variable in
            ["job", "cluster", "namespace", "instance", "vantage", "route", "provider", "model"]
        {
            assert!(text.contains(&format!("${variable}")), "{variable}: {text}");
        }
        assert!(!text.contains('<'), "{text}");
    }
}
