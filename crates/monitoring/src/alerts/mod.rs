//! Prometheus rules, made from one file of thresholds.
//!
//! PromQL is written as text with real names, and a few marks for what all rules share (`promql::Template`). Each file
//! of rules has a module that says which rules are in it and why; here they are put together and written down.

mod health;
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

/// A file of rules: `alerts/NAME.rules.yaml`.
#[derive(Clone, Debug)]
pub struct Rules {
    pub name: &'static str,
    pub groups: Vec<Group>,
}

/// All rules, by the file that they are in.
pub fn rules(values: &Values) -> Vec<Rules> {
    let rules = |name, groups| Rules { name, groups };
    vec![
        rules("recording", [recording::groups(values), traffic::recordings(values)].concat()),
        rules("slo", slo::groups(values)),
        rules("traffic", traffic::groups(values)),
        rules("health", health::groups(values)),
    ]
}

/// The same rules with every duration divided, so that hours can be rehearsed in minutes.
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

/// The files that these rules are written to.
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

/// Whether a file of that name in the folder of alerts should be one of [`files`].
pub fn is_generated(name: &str) -> bool {
    name.ends_with(".rules.yaml") || name == OPERATORS
}

/// The file with all groups as one object of Prometheus' operator.
const OPERATORS: &str = "prometheusrule.yaml";

/// One file of rules that holds these groups.
pub fn document<'g>(groups: impl IntoIterator<Item = &'g Group>, links: &Links) -> String {
    format!("{HEADER}{}", yaml::groups(groups, links, 0))
}

const HEADER: &str = "\
# Made by `tokengauge alerts` from values.yaml: change thresholds there, and make it again.
";

/// The labels are those by which kube-prometheus' Prometheus selects its rules.
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
