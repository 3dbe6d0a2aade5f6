//! Checks the list of what the lean profile leaves out: the panels, rules and runbooks that read metrics or labels which
//! only the full profile has. `docs/reference/telemetry.md` has the list.

use std::collections::{BTreeMap, BTreeSet};

use tokengauge_monitoring::alerts::rule::Rule;
use tokengauge_monitoring::alerts::rules;
use tokengauge_monitoring::dashboards::{self, faults};
use tokengauge_telemetry::catalog::{self, Metric, attributes};

use super::pages::{self, blocks, read};
use super::promql::{selectors, substituted};

#[test]
fn the_telemetry_page_lists_what_the_lean_profile_leaves_out() {
    let page = read("docs/reference/telemetry.md");
    let mut rows = Vec::new();
    for (uid, panels) in panels() {
        let panels: Vec<String> = panels.into_iter().collect();
        rows.push(format!("| `{uid}` | {} |", panels.join("; ")));
    }
    let names = |names: BTreeSet<String>| names.into_iter().collect::<Vec<_>>().join(", ");
    rows.push(format!("| recording rules | {} |", names(recorded())));
    rows.push(format!("| queries of runbooks | {} |", names(runbooks())));
    let missing: Vec<&String> = rows.iter().filter(|row| !page.contains(*row)).collect();
    assert!(missing.is_empty(), "docs/reference/telemetry.md needs the rows\n{rows:#?}");
    let metrics = catalog::metrics().filter(|metric| !metric.is_lean());
    let is_row = |name: &&str| !name.starts_with("gen_ai.") && !name.starts_with("mcp.");
    for name in metrics.map(|metric| metric.name).filter(is_row) {
        let is_listed = page.split("## Lean profile").nth(1).is_some_and(|rest| {
            rest.split("\n### ").next().unwrap().contains(&format!("`{name}`"))
        });
        assert!(is_listed, "docs/reference/telemetry.md, lean profile: `{name}` is not listed");
    }
}

#[test]
fn only_the_alert_on_variants_needs_the_full_profile() {
    let mut lost = BTreeSet::new();
    let recorded = recorded();
    for alert in rules(&tokengauge::config::alert_values(None).unwrap())
        .iter()
        .flat_map(|rules| rules.alerts().cloned().collect::<Vec<_>>())
    {
        if is_lost(&alert.expr) || reads_any(&alert.expr, &recorded) {
            lost.insert(alert.name);
        }
    }
    assert_eq!(lost, BTreeSet::from(["LLMVariantFasterButWorse".to_owned()]));
}

/// Returns whether a query reads a metric or a label that the lean profile leaves out.
fn is_lost(query: &str) -> bool {
    let series: BTreeMap<String, &Metric> = catalog::metrics()
        .flat_map(|metric| {
            let name = metric.prometheus_name();
            ["", "_bucket", "_sum", "_count"].map(|end| (format!("{name}{end}"), metric))
        })
        .collect();
    let needs_identity = ["tokengauge_tenant", "tokengauge_variant", "length_bucket"]
        .iter()
        .any(|label| query.contains(label));
    selectors(query).iter().any(|selector| {
        let metric = selector.name.as_ref().and_then(|name| series.get(name));
        metric.is_some_and(|metric| {
            !metric.is_lean()
                || needs_identity && metric.has(attributes::TENANT) && !metric.is_lean_by_tenant()
        })
    })
}

fn panels() -> BTreeMap<String, BTreeSet<String>> {
    let mut lost: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for dashboard in dashboards::all() {
        let json = dashboard.json();
        for panel in faults::panels(&json) {
            if faults::queries(panel).iter().any(|query| is_lost(&substituted(query))) {
                let title = panel["title"].as_str().unwrap().to_owned();
                lost.entry(dashboard.uid.clone()).or_default().insert(title);
            }
        }
    }
    lost
}

/// Returns the recording rules that have no data, also those that read only such rules.
fn recorded() -> BTreeSet<String> {
    let values = tokengauge::config::alert_values(None).unwrap();
    let all = rules(&values);
    let rules = all.iter().flat_map(|rules| &rules.groups).flat_map(|group| &group.rules);
    let records: Vec<_> = rules
        .filter_map(|rule| match rule {
            Rule::Record(recording) => Some((format!("`{}`", recording.record), rule.expr())),
            Rule::Alert(_) => None,
        })
        .collect();
    let mut lost = BTreeSet::new();
    loop {
        let before = lost.len();
        for (name, expr) in &records {
            if is_lost(expr) || reads_any(expr, &lost) {
                lost.insert(name.clone());
            }
        }
        if lost.len() == before {
            return lost;
        }
    }
}

/// Returns whether a query reads one of these recording rules.
fn reads_any(query: &str, records: &BTreeSet<String>) -> bool {
    let names: BTreeSet<String> =
        selectors(query).into_iter().filter_map(|selector| selector.name).collect();
    records.iter().any(|record| names.contains(record.trim_matches('`')))
}

fn runbooks() -> BTreeSet<String> {
    let mut lost = BTreeSet::new();
    for page in pages::all().iter().filter(|page| page.starts_with("docs/runbooks/")) {
        if blocks(&read(page), "promql").iter().any(|query| is_lost(query)) {
            let name = page.trim_start_matches("docs/runbooks/").trim_end_matches(".md");
            lost.insert(format!("`{name}`"));
        }
    }
    lost
}
