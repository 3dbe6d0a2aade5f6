//! Dashboards for Grafana: classic JSON, which 10.4 to 13 import.
//!
//! A dashboard is written as rows of panels; each panel has a title, a unit, a description that names its metric and its
//! formula, and [queries](query) in PromQL. The builder does the rest: ids, places, variables, annotations, links. All
//! queries ask the data source that the viewer chose, rates are over Grafana's `$__rate_interval`, and what cannot be
//! said for want of traffic is said to be that: denominators are `> 0`, and an absent number reads "No traffic".

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

/// All of them.
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

/// All of them, as files.
pub fn files() -> Files {
    let mut files = Files::default();
    for dashboard in all() {
        let json = format!("{:#}\n", sorted(dashboard.json()));
        files.add(format!("{}.json", dashboard.uid()), json);
    }
    files
}

/// Where a panel stands, in columns and rows.
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

/// The data source that the viewer chose.
fn datasource() -> Value {
    json!({ "type": "prometheus", "uid": "${datasource}" })
}

/// Both objects' fields; the second one's win.
fn merged(mut first: Value, second: Value) -> Value {
    if let (Some(fields), Value::Object(more)) = (first.as_object_mut(), second) {
        fields.extend(more);
    }
    first
}

/// By name at every level, whatever order `serde_json` was built to keep: the same text comes out of every build.
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
