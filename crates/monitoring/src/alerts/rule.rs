//! The data model of Prometheus rules.

use indexmap::IndexMap;
use serde::Deserialize;

use crate::alerts::span::Span;

/// A group of rules that Prometheus evaluates sequentially at one interval.
#[derive(Clone, Debug)]
pub struct Group {
    pub name: String,
    pub interval: Span,
    pub rules: Vec<Rule>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Rule {
    Record(Recording),
    Alert(Alert),
}

impl Rule {
    pub fn expr(&self) -> &str {
        match self {
            Self::Record(recording) => &recording.expr,
            Self::Alert(alert) => &alert.expr,
        }
    }

    pub(super) fn expr_mut(&mut self) -> &mut String {
        match self {
            Self::Record(recording) => &mut recording.expr,
            Self::Alert(alert) => &mut alert.expr,
        }
    }
}

/// A recording rule. Its name has the form `level:metric:operations`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recording {
    pub record: String,
    pub expr: String,
    #[serde(default)]
    pub labels: IndexMap<String, String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Alert {
    /// Name of the alert. Its runbook has the same name.
    #[serde(rename = "alert")]
    pub name: String,
    pub severity: Severity,
    pub expr: String,
    /// Time for which the condition must hold before the alert fires (`for`). If `None`, the alert fires at once.
    #[serde(rename = "for")]
    pub pending_for: Option<Span>,
    /// Time for which the alert keeps firing after the condition has cleared.
    pub keep_firing_for: Option<Span>,
    /// One-line description of the problem.
    pub summary: String,
    /// Description of the problem, including the measured values.
    pub description: String,
    /// Uid of the dashboard that shows the problem.
    pub dashboard: String,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The alert pages the engineer on call.
    Critical,
    /// The problem needs attention during working hours.
    Warning,
    /// The alert is informational and sends no notification.
    Info,
}

impl Severity {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::Warning => "warning",
            Self::Info => "info",
        }
    }
}
