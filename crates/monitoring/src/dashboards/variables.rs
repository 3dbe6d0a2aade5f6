//! Dashboard variables.

use serde::Deserialize;
use serde_json::{Value, json};

use super::query::expanded;

/// A dashboard variable whose values come from a query.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Variable {
    pub(super) name: String,
    pub(super) label: String,
    #[serde(default)]
    pub(super) scope: Scope,
    /// Grafana query that lists the values of the variable: `label_values(…)` or `query_result(…)`. The query can
    /// contain the markers of [`super::query`], such as `<fleet>`.
    pub(super) query: String,
    /// Regular expression applied to each result of the query.
    #[serde(default)]
    pub(super) regex: String,
    /// Regular expression for the option "All". If `None`, the expression is `.*`, which also matches series without
    /// the label.
    pub(super) all: Option<String>,
    /// Whether a viewer can select only one value.
    #[serde(default)]
    pub(super) single: bool,
    /// Whether Grafana keeps the order of the query's results. The first value is the default if only one can be
    /// selected.
    #[serde(default)]
    pub(super) in_order: bool,
}

/// Standard variables of a dashboard, which filter its queries. Each scope includes the variables of the scopes before
/// it.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, PartialOrd)]
#[serde(rename_all = "lowercase")]
pub(super) enum Scope {
    /// Variables up to the instance.
    #[default]
    Process,
    /// Variables up to the route.
    Route,
    /// Variables up to the model.
    Call,
}

/// Returns the variable with which a viewer selects a data source. Grafana offers only data sources that support
/// PromQL.
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
    pub(super) fn json(&self, visible: bool) -> Value {
        // The default `.*` matches any label value, including an absent label.
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
            // The value 2 refreshes the variable on every change of the time range.
            "refresh": 2,
            // The value 3 sorts by name, comparing numbers in names by their value. The value 0 does not sort.
            "sort": if self.in_order { 0 } else { 3 },
            // The value 2 hides the variable.
            "hide": if visible { 0 } else { 2 },
            "skipUrlSync": false,
            "multi": !self.single,
            "includeAll": !self.single,
            "allValue": if self.single { Value::Null } else { json!(all) },
            "current": current,
            "options": [],
        })
    }
}
