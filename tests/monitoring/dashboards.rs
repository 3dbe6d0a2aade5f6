//! Tests every dashboard: its queries, its links, and its file in the repository.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;
use tokengauge_monitoring::dashboards::{self, faults};
use tokengauge_monitoring::emitted::emitted;

use super::pages::{self, read};
use super::promql::Checker;

/// The files in the repository must match the generator's output.
#[test]
fn files_match_the_generator() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("dashboards");
    let different =
        dashboards::files().differences(&folder, |name| name.ends_with(".json")).unwrap();
    assert_eq!(different, [], "to regenerate: cargo run -- dashboards --out dashboards");
}

#[test]
fn every_panel_is_complete() {
    for dashboard in dashboards::all() {
        assert_eq!(faults::faults(&dashboard.json()), [""; 0], "{}", dashboard.uid);
    }
}

#[test]
fn every_query_parses_and_selects_existing_series() {
    let checker = checker();
    let mut wrong = Vec::new();
    for (place, query) in queries() {
        wrong.extend(checker.dashboard(&query).into_iter().map(|what| format!("{place}: {what}")));
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Metrics for the dashboards and alerts of others, which expect the names of Prometheus client libraries. The panels
/// have CPU time and memory under the names of the semantic conventions.
const OF_CLIENT_LIBRARIES: [&str; 4] = [
    "process_cpu_seconds_total",
    "process_open_fds",
    "process_resident_memory_bytes",
    "process_start_time_seconds",
];

/// A process metric without a panel would never be looked at.
#[test]
fn every_health_metric_has_a_panel() {
    let asked: Vec<String> = queries()
        .into_iter()
        .filter(|(place, _)| place.starts_with("tokengauge-health, "))
        .map(|(_, query)| query)
        .collect();
    let is_asked = |name: &str| asked.iter().any(|query| query.contains(&format!("{name}{{")));
    let mut names = 0;
    for name in emitted().into_keys() {
        // Histograms are shown as quantiles, so their sums and counts need no panel.
        let is_own = name.starts_with("tokengauge_self_") || name.starts_with("process_");
        let is_own = is_own && !OF_CLIENT_LIBRARIES.contains(&name.as_str());
        if is_own && !name.ends_with("_sum") && !name.ends_with("_count") {
            assert!(is_asked(&name), "{name}: no panel of tokengauge-health");
            names += 1;
        }
    }
    assert!(names > 15, "{names}");
}

/// Checks that each link leads to an existing dashboard, sets only variables of that dashboard, and reads only existing
/// columns. Otherwise, a broken link would be found only during an incident.
#[test]
fn every_link_leads_to_a_dashboard_and_passes_its_variables() {
    let all = dashboards::all();
    for dashboard in &all {
        let json = dashboard.json();
        for panel in faults::panels(&json) {
            let text = panel.to_string();
            for link in text.split("\"/d/").skip(1).map(|rest| rest.split('"').next().unwrap()) {
                let uid = link.split(['?', '/']).next().unwrap();
                if uid == "${__data.fields.Dashboard}" {
                    // A test of the rules checks the dashboard of each alert.
                    continue;
                }
                let target = all.iter().find(|dashboard| dashboard.uid == uid);
                let target = target.unwrap_or_else(|| panic!("{link}: no such dashboard"));
                let target = target.json()["templating"].to_string();
                for set in link.split("var-").skip(1) {
                    let name = set.split('=').next().unwrap();
                    assert!(target.contains(&format!("\"name\":\"{name}\"")), "{link}: {name}");
                }
                for field in link.split("__data.fields.").skip(1) {
                    let column = field.split(['}', ':']).next().unwrap();
                    let titles = panel["transformations"].to_string();
                    assert!(titles.contains(&format!(":\"{column}\"")), "{link}: {column}");
                }
            }
        }
    }
}

/// A runbook leads from an alert to one panel. A renamed panel cannot be found during an incident.
#[test]
fn every_panel_of_a_runbook_exists() {
    let mut found = 0;
    for page in pages::all().iter().filter(|page| page.starts_with("docs/runbooks/LLM")) {
        for named in read(page).split("Dashboard `").skip(1) {
            let (uid, rest) = named.split_once('`').unwrap();
            let Some(rest) = rest.strip_prefix(", panel *") else { continue };
            let panel = rest.split('*').next().unwrap();
            let dashboard = dashboards::all().into_iter().find(|dashboard| dashboard.uid == uid);
            let json = dashboard.unwrap_or_else(|| panic!("{page}: {uid}")).json();
            assert!(faults::panels(&json).any(|one| one["title"] == panel), "{page}: {panel}");
            found += 1;
        }
    }
    assert!(found > 15, "{found}");
}

/// An undefined variable has no value. The query then silently matches nothing.
#[test]
fn every_variable_is_defined_and_used() {
    for dashboard in dashboards::all() {
        let json = dashboard.json();
        let variables: BTreeSet<String> = json["templating"]["list"]
            .as_array()
            .unwrap()
            .iter()
            .map(|variable| variable["name"].as_str().unwrap().to_owned())
            .collect();
        let asked: BTreeSet<String> = asked_for(&json.to_string()).collect();
        assert_eq!(asked, variables, "{}: left: used, right: defined", dashboard.uid);
    }
}

/// Returns the names after `$` or in `${…}`, except Grafana's built-in variables.
fn asked_for(text: &str) -> impl Iterator<Item = String> {
    text.split('$').skip(1).filter_map(|rest| {
        let rest = rest.strip_prefix('{').unwrap_or(rest);
        let name: String =
            rest.chars().take_while(|&c| c.is_ascii_alphanumeric() || c == '_').collect();
        let own = name.starts_with("__") || !name.starts_with(|c: char| c.is_ascii_lowercase());
        (!own).then_some(name)
    })
}

/// Labels that the rules in `alerts/` keep in every aggregation.
const KEPT: &[&str] = &["cluster", "k8s_cluster_name", "namespace", "k8s_namespace_name", "job"];

/// Returns a checker that also knows recorded series and the series that Prometheus creates for alerts.
fn checker() -> Checker {
    const OBJECTIVE: &[&str] =
        &["tokengauge_slo", "tokengauge_sli", "sloth_id", "sloth_service", "sloth_slo"];
    let objective = [KEPT, OBJECTIVE].concat();
    let window = [&objective[..], &["sloth_window"]].concat();
    let alert = [KEPT, &["alertname", "alertstate", "severity", "tokengauge_slo"]].concat();
    let mut checker = Checker::new().knows("ALERTS", &alert).knows("ALERTS_FOR_STATE", &alert);
    for name in [
        "slo:objective:ratio",
        "slo:error_budget:ratio",
        "slo:time_period:days",
        "slo:current_burn_rate:ratio",
        "slo:period_burn_rate:ratio",
        "slo:period_coverage:ratio",
        "slo:period_error_budget_remaining:ratio",
        "slo:period_time_to_exhaustion:seconds",
    ] {
        // Derived from a ratio over a window, without the window label.
        checker = checker.knows(name, &objective);
    }
    let call = [
        "instance",
        "tokengauge_position",
        "tokengauge_route",
        "gen_ai_provider_name",
        "gen_ai_request_model",
        "quantity",
    ];
    let replica = [KEPT, &call].concat();
    for name in ["instance:tokengauge_slowdown:ratio", "instance:tokengauge_requests_failed:excess"]
    {
        checker = checker.knows(name, &replica);
    }
    for length in ["5m", "30m", "1h", "2h", "6h", "1d", "3d", "30d"] {
        checker = checker.knows(&format!("slo:sli_error:ratio_rate{length}"), &window);
    }
    checker
}

/// Returns all queries of panels, variables and annotations, with their locations.
fn queries() -> Vec<(String, String)> {
    let mut all = Vec::new();
    for dashboard in dashboards::all() {
        let json = dashboard.json();
        let mut add = |what: &Value, query: &str| {
            let place = format!("{}, {}", dashboard.uid, what.as_str().unwrap_or_default());
            all.push((place, query.to_owned()));
        };
        for panel in faults::panels(&json) {
            for query in faults::queries(panel) {
                add(&panel["title"], query);
            }
        }
        for annotation in json["annotations"]["list"].as_array().unwrap() {
            if let Some(query) = annotation["expr"].as_str() {
                add(&annotation["name"], query);
            }
        }
        for variable in json["templating"]["list"].as_array().unwrap() {
            if variable["type"] == "query" {
                add(&variable["name"], &asked(variable["query"].as_str().unwrap()));
            }
        }
    }
    assert!(!all.is_empty());
    all
}

/// Returns the PromQL of a variable's query. `label_values(SELECTOR, LABEL)` becomes the values of a label of the
/// selected series.
fn asked(query: &str) -> String {
    let inner =
        |function: &str| query.strip_prefix(function).and_then(|rest| rest.strip_suffix(')'));
    if let Some(inner) = inner("label_values(") {
        let (selector, label) = inner.rsplit_once(", ").unwrap();
        return format!("group by ({label}) ({selector})");
    }
    inner("query_result(").unwrap().to_owned()
}
