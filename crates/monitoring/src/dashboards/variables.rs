//! Dashboard variables.

use serde::Deserialize;
use serde_json::{Value, json};

use super::query::expanded;

/// A dashboard variable, populated by a query.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Variable {
    pub(super) name: String,
    pub(super) label: String,
    #[serde(default)]
    pub(super) scope: Scope,
    /// A Grafana query: `label_values(…)` or `query_result(…)`, with markers.
    pub(super) query: String,
    /// Regular expression applied to each result of the query.
    #[serde(default)]
    pub(super) regex: String,
    /// Matcher for all values, if it excludes an absent label.
    pub(super) all: Option<String>,
    /// Whether a viewer can select only one value.
    #[serde(default)]
    pub(super) single: bool,
}

/// The standard variables of a dashboard, which filter its queries.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, PartialOrd)]
#[serde(rename_all = "lowercase")]
pub(super) enum Scope {
    /// All variables up to the instance.
    #[default]
    Process,
    /// All variables up to the route.
    Lane,
    /// All variables up to the model.
    Call,
}

/// Returns the variable that selects a Grafana data source that supports PromQL.
pub(super) fn datasource() -> Value {
    json!({
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
        "regex": "",
        "refresh": 1,
        "hide": 0,
        "skipUrlSync": false,
        "multi": false,
        "includeAll": false,
        "allValue": null,
        "current": {},
        "options": [],
    })
}

impl Variable {
    pub(super) fn json(&self) -> Value {
        // Matches any label value, including an absent label.
        let all = self.all.as_deref().unwrap_or(".*");
        let current = if self.single {
            json!({})
        } else {
            json!({ "selected": true, "text": ["All"], "value": ["$__all"] })
        };
        json!({
            "name": self.name,
            "label": self.label,
            "type": "query",
            "datasource": super::datasource(),
            "query": expanded(&self.query),
            "definition": expanded(&self.query),
            "regex": self.regex,
            // Refresh on every change of the time range.
            "refresh": 2,
            // Sort by name, with numeric parts sorted by value.
            "sort": 3,
            "hide": 0,
            "skipUrlSync": false,
            "multi": !self.single,
            "includeAll": !self.single,
            "allValue": if self.single { Value::Null } else { json!(all) },
            "current": current,
            "options": [],
        })
    }
}
