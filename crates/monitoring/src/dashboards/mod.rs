//! Grafana dashboards in classic JSON, importable by Grafana 10.4 to 13.
//!
//! A YAML file defines the rows and panels of each dashboard. `Dashboard`, `Row` and `Panel` document the keys.
//! Only the comparison dashboard is defined in code, because each of its queries occurs many times.
//!
//! Queries are PromQL with [markers](query). The code adds ids, positions, variables, annotations and links.
//! All queries use the data source that the viewer selects, and rates use Grafana's `$__rate_interval`. Missing
//! traffic is shown explicitly. Denominators must be `> 0`, and an absent value is displayed as "No traffic".

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::Files;

mod compare;
mod dashboard;
pub mod faults;
mod json;
mod panel;
pub mod query;
mod variables;

pub use dashboard::Dashboard;
use variables::Variable;

const DEFINITIONS: [&str; 6] = [
    include_str!("overview.yaml"),
    include_str!("slo.yaml"),
    include_str!("streaming.yaml"),
    include_str!("saturation.yaml"),
    include_str!("workload.yaml"),
    include_str!("health.yaml"),
];

/// Returns all dashboards.
pub fn all() -> Vec<Dashboard> {
    DEFINITIONS.map(embedded).into_iter().chain([compare::dashboard()]).collect()
}

fn standard_variables() -> impl Iterator<Item = Variable> {
    embedded::<Vec<Variable>>(include_str!("variables.yaml")).into_iter()
}

/// Parses a YAML definition that is embedded in the program. A test ensures that all definitions are valid.
fn embedded<T: DeserializeOwned>(text: &str) -> T {
    serde_saphyr::from_str(text).expect("embedded definitions are valid")
}

/// Returns all dashboards as files.
pub fn files() -> Files {
    let mut files = Files::default();
    for dashboard in all() {
        let json = format!("{:#}\n", sorted(dashboard.json()));
        files.add(format!("{}.json", dashboard.uid), json);
    }
    files
}

/// Returns a reference to the data source that the viewer selected.
fn datasource() -> Value {
    json!({ "type": "prometheus", "uid": "${datasource}" })
}

/// Sorts the keys of objects at every level, so that the output does not depend on the key order of
/// `serde_json`.
fn sorted(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let by_name: BTreeMap<String, Value> = fields.into_iter().collect();
            let fields: Map<String, Value> =
                by_name.into_iter().map(|(name, value)| (name, sorted(value))).collect();
            Value::Object(fields)
        }
        Value::Array(values) => values.into_iter().map(sorted).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value,
    }
}
