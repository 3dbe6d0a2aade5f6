//! Grafana dashboards in classic JSON, importable by Grafana 10.4 to 13.
//!
//! A dashboard consists of rows of panels. Each panel has a title, a unit, a description with its metric and formula,
//! and [queries](query) in PromQL. The builder adds ids, positions, variables, annotations and links. All queries use
//! the data source that the viewer selects, and rates use Grafana's `$__rate_interval`. Missing traffic is shown
//! explicitly: denominators are `> 0`, and an absent value is displayed as "No traffic".

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::Files;

mod dashboard;
pub mod faults;
mod panel;
mod quantile;
pub mod query;
mod render;
mod unit;
mod variables;

mod compare;
mod health;
mod overview;
mod saturation;
mod slo;
mod streaming;
mod workload;

pub use dashboard::Dashboard;
pub use panel::{
    Colour, Panel, bar_gauge, heatmap, stat, state_timeline, table, text, time_series, xy_chart,
};
pub use unit::Unit;
pub use variables::{Scope, Variable};

/// Returns all dashboards.
pub fn all() -> Vec<Dashboard> {
    vec![
        overview::dashboard(),
        slo::dashboard(),
        streaming::dashboard(),
        saturation::dashboard(),
        workload::dashboard(),
        compare::dashboard(),
        health::dashboard(),
    ]
}

/// Returns all dashboards as files.
pub fn files() -> Files {
    let mut files = Files::default();
    for dashboard in all() {
        let json = format!("{:#}\n", sorted(dashboard.json()));
        files.add(format!("{}.json", dashboard.uid()), json);
    }
    files
}

/// Position of a panel in columns and rows.
#[derive(Clone, Copy, Debug)]
struct Place {
    x: u32,
    y: u32,
    width: u32,
    height: u32,
}

impl Place {
    fn json(self) -> Value {
        json!({ "x": self.x, "y": self.y, "w": self.width, "h": self.height })
    }
}

/// Returns a reference to the data source that the viewer selected.
fn datasource() -> Value {
    json!({ "type": "prometheus", "uid": "${datasource}" })
}

/// Merges two JSON objects. Fields of `second` take precedence.
fn merged(mut first: Value, second: Value) -> Value {
    if let (Some(fields), Value::Object(more)) = (first.as_object_mut(), second) {
        fields.extend(more);
    }
    first
}

/// Sorts object keys at every level, so that the output does not depend on the key order of `serde_json`.
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
