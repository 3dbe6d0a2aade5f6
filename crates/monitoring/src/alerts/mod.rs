//! Prometheus rules, generated from one file of thresholds.
//!
//! PromQL is written as text with real names and a few placeholders for the parts that all rules share
//! (`promql::Template`). Each rules file has a module that defines its rules and documents the reasons. This module
//! combines the rules and writes the files.

mod health;
pub mod number;
mod promql;
mod recording;
pub mod rule;
mod slo;
pub mod span;
pub mod traffic;
pub mod values;
mod yaml;

use rule::{Group, Rule};
use span::Divisor;
use values::{Links, Values};

use crate::Files;

/// A rules file: `alerts/NAME.rules.yaml`.
#[derive(Clone, Debug)]
pub struct Rules {
    pub name: &'static str,
    pub groups: Vec<Group>,
}

/// Returns all rules, grouped by file.
pub fn rules(values: &Values) -> Vec<Rules> {
    let rules = |name, groups| Rules { name, groups };
    vec![
        rules("recording", [recording::groups(values), traffic::recordings(values)].concat()),
        rules("slo", slo::groups(values)),
        rules("traffic", traffic::groups(values)),
        rules("health", health::groups(values)),
    ]
}

/// Divides every duration of the rules, so that a failover test of hours runs in minutes.
pub fn divided(mut all: Vec<Rules>, by: Divisor) -> Vec<Rules> {
    let groups = all.iter_mut().flat_map(|rules| &mut rules.groups);
    for group in groups {
        group.interval = by.of(group.interval);
        for rule in &mut group.rules {
            match rule {
                Rule::Record(recording) => recording.expr = promql::divided(&recording.expr, by),
                Rule::Alert(alert) => {
                    alert.expr = promql::divided(&alert.expr, by);
                    alert.hold = alert.hold.map(|span| by.of(span));
                    alert.keep_firing_for = alert.keep_firing_for.map(|span| by.of(span));
                }
            }
        }
    }
    all
}

/// Returns the files that contain these rules.
pub fn files(all: &[Rules], links: &Links) -> Files {
    let mut files = Files::default();
    for Rules { name, groups } in all {
        files.add(format!("{name}.rules.yaml"), document(groups, links));
    }
    let groups = all.iter().flat_map(|rules| &rules.groups);
    let spec = yaml::groups(groups, links, 1);
    files.add(OPERATORS, format!("{HEADER}{PROMETHEUS_RULE}{spec}"));
    files
}

/// Returns whether a file name in the alerts folder belongs to [`files`].
pub fn is_generated(name: &str) -> bool {
    name.ends_with(".rules.yaml") || name == OPERATORS
}

/// The file that contains all groups as one object of the Prometheus Operator.
const OPERATORS: &str = "prometheusrule.yaml";

/// Returns a rules file that contains these groups.
pub fn document<'g>(groups: impl IntoIterator<Item = &'g Group>, links: &Links) -> String {
    format!("{HEADER}{}", yaml::groups(groups, links, 0))
}

const HEADER: &str = "\
# Made by `tokengauge alerts` from values.yaml: change thresholds there, and make it again.
";

/// The labels match the rule selector of the Prometheus in kube-prometheus.
const PROMETHEUS_RULE: &str = "\
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: tokengauge
  labels:
    app.kubernetes.io/name: tokengauge
    prometheus: k8s
    role: alert-rules
spec:
";
