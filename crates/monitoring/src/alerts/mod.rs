//! Prometheus rules, generated from YAML definitions and one file of thresholds.
//!
//! Each rules file has a YAML definition, which contains the rules and documents their reasons. PromQL
//! expressions use real metric names. Placeholders stand for thresholds and for the parts that all rules share
//! (see `template`). This module combines the definitions and writes the rules files.

mod promql;
pub mod rule;
pub mod span;
mod template;
pub mod values;
mod yaml;

use rule::{Alert, Group, Rule};
use span::Divisor;
use values::{Links, Values};

use crate::Files;

/// A rules file: `alerts/NAME.rules.yaml`.
#[derive(Clone, Debug)]
pub struct Rules {
    pub name: &'static str,
    pub groups: Vec<Group>,
}

impl Rules {
    /// Returns the alerts, without the recording rules.
    pub fn alerts(&self) -> impl Iterator<Item = &Alert> {
        let rules = self.groups.iter().flat_map(|group| &group.rules);
        rules.filter_map(|rule| match rule {
            Rule::Alert(alert) => Some(alert),
            Rule::Record(_) => None,
        })
    }
}

/// Returns all rules, grouped by file.
pub fn rules(values: &Values) -> Vec<Rules> {
    let rules = |(name, text)| Rules { name, groups: template::groups(text, values) };
    let definitions = [
        ("recording", include_str!("recording.yaml")),
        ("slo", include_str!("slo.yaml")),
        ("traffic", include_str!("traffic.yaml")),
        ("health", include_str!("health.yaml")),
    ];
    definitions.map(rules).into()
}

/// Divides every duration in the rules by `by`. A failover test that takes hours can then run in minutes.
pub fn divided(mut all: Vec<Rules>, by: Divisor) -> Vec<Rules> {
    let groups = all.iter_mut().flat_map(|rules| &mut rules.groups);
    for group in groups {
        group.interval = by.of(group.interval);
        for rule in &mut group.rules {
            let expr = rule.expr_mut();
            *expr = promql::divided(expr, by);
            if let Rule::Alert(alert) = rule {
                alert.hold = alert.hold.map(|span| by.of(span));
                alert.keep_firing_for = alert.keep_firing_for.map(|span| by.of(span));
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

/// Name of the file that contains all groups as one `PrometheusRule` object of the Prometheus Operator.
const OPERATORS: &str = "prometheusrule.yaml";

/// Returns a rules file that contains these groups.
pub fn document<'g>(groups: impl IntoIterator<Item = &'g Group>, links: &Links) -> String {
    format!("{HEADER}{}", yaml::groups(groups, links, 0))
}

const HEADER: &str = "\
# Made by `tokengauge alerts` from values.yaml: change thresholds there, and make it again.
";

/// Start of the `PrometheusRule` object. Its labels match the rule selector of the Prometheus in
/// kube-prometheus.
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
