//! Checks dashboards for missing units, titles or descriptions, and for queries of series that the program does not
//! export.
//!
//! The checks read the JSON that Grafana gets. PromQL syntax and the labels of each metric are checked only in tests,
//! because only the tests have a PromQL parser.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::emitted::emitted;

/// Prefixes of the metric names in the catalog. Names with other prefixes, such as `ALERTS` or recorded series,
/// are not checked.
const METRIC_PREFIXES: &[&str] = &["tokengauge_", "gen_ai_", "http_", "process_"];

/// Returns the faults of a dashboard, one sentence each.
pub fn faults(dashboard: &Value) -> Vec<String> {
    let known = vocabulary();
    let mut found = Vec::new();
    for panel in panels(dashboard) {
        let title = text(panel, "/title");
        let mut fault = |what: &str| found.push(format!("panel {title:?}: {what}"));
        if title.is_empty() {
            fault("no title");
        }
        if text(panel, "/type") == "row" {
            continue;
        }
        if text(panel, "/description").is_empty() {
            fault("no description");
        }
        if text(panel, "/type") == "text" {
            continue;
        }
        if text(panel, "/fieldConfig/defaults/unit").is_empty() {
            fault("no unit");
        }
        let queries = queries(panel);
        if queries.is_empty() {
            fault("no query");
        }
        for query in queries {
            if has_marker(query) {
                fault(&format!("unknown marker: {query}"));
            }
            for word in
                words(query).filter(|word| has_catalog_prefix(word) && !known.contains(*word))
            {
                fault(&format!("{word} is neither a metric nor a label"));
            }
        }
    }
    found
}

/// Returns all panels, including those in collapsed rows.
pub fn panels(dashboard: &Value) -> impl Iterator<Item = &Value> {
    array(dashboard, "/panels")
        .flat_map(|panel| std::iter::once(panel).chain(array(panel, "/panels")))
}

/// Returns the queries of a panel.
pub fn queries(panel: &Value) -> Vec<&str> {
    array(panel, "/targets").map(|target| text(target, "/expr")).collect()
}

fn array<'a>(value: &'a Value, path: &str) -> impl Iterator<Item = &'a Value> {
    (value.pointer(path).and_then(Value::as_array)).into_iter().flatten()
}

fn text<'a>(value: &'a Value, path: &str) -> &'a str {
    let found = value.pointer(path).and_then(Value::as_str);
    found.unwrap_or_default().trim()
}

/// Returns the names of all exported series and labels.
fn vocabulary() -> BTreeSet<String> {
    emitted().into_iter().flat_map(|(name, labels)| std::iter::once(name).chain(labels)).collect()
}

fn has_catalog_prefix(word: &str) -> bool {
    METRIC_PREFIXES.iter().any(|prefix| word.starts_with(prefix))
}

/// Returns whether the query contains an unexpanded marker, such as `<call>`: a lower-case word between `<` and `>`.
/// Comparisons contain no such word.
fn has_marker(query: &str) -> bool {
    query.split('<').skip(1).any(|rest| {
        rest.split_once('>').is_some_and(|(word, _)| word.chars().all(|c| c.is_ascii_lowercase()))
    })
}

/// Returns the words of a query outside quotation marks.
fn words(query: &str) -> impl Iterator<Item = &str> {
    query
        .split('"')
        .step_by(2)
        .flat_map(|part| part.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != ':'))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn panel(change: impl FnOnce(&mut Value)) -> Vec<String> {
        let mut panel = json!({
            "title": "T", "description": "d", "type": "stat",
            "fieldConfig": { "defaults": { "unit": "s" } },
            "targets": [{ "expr": "sum(tokengauge_active_requests{job=~\"$job\"})" }],
        });
        change(&mut panel);
        // The panel is in a collapsed row, because the check could overlook faults there.
        faults(&json!({ "panels": [{ "title": "R", "type": "row", "panels": [panel] }] }))
    }

    #[test]
    fn accepts_a_complete_panel() {
        assert_eq!(panel(|_| {}), [""; 0]);
    }

    #[test]
    fn finds_each_fault() {
        for (path, value, expected) in [
            ("/title", json!(" "), "no title"),
            ("/description", json!(""), "no description"),
            ("/fieldConfig/defaults/unit", json!(""), "no unit"),
            ("/fieldConfig", json!(null), "no unit"),
            ("/targets", json!([]), "no query"),
            (
                "/targets/0/expr",
                json!("tokengauge_active_request"),
                "tokengauge_active_request is neither a metric nor a label",
            ),
            (
                "/targets/0/expr",
                json!("sum by (tokengauge_rout) (tokengauge_active_requests)"),
                "tokengauge_rout is neither a metric nor a label",
            ),
            (
                "/targets/0/expr",
                json!("tokengauge_active_requests{<routes>}"),
                "unknown marker: tokengauge_active_requests{<routes>}",
            ),
        ] {
            let found = panel(|panel| *panel.pointer_mut(path).unwrap() = value);
            assert_eq!(found.len(), 1, "{path}: {found:?}");
            assert!(found[0].ends_with(expected), "{found:?}");
        }
    }

    #[test]
    fn quoted_text_is_not_a_name() {
        let query = "label_replace(tokengauge_active_requests, \"x\", \"tokengauge_nothing\", \"job\", \"\")";
        let found = panel(|panel| *panel.pointer_mut("/targets/0/expr").unwrap() = json!(query));
        assert_eq!(found, [""; 0]);
    }
}
