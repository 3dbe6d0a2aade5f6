//! The data model of Prometheus rules.

use crate::alerts::span::Span;

/// Rules that are evaluated sequentially at one interval.
#[derive(Clone, Debug)]
pub struct Group {
    pub name: &'static str,
    pub interval: Span,
    pub rules: Vec<Rule>,
}

#[derive(Clone, Debug)]
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
}

/// A recording rule, named `level:metric:operations`.
#[derive(Clone, Debug)]
pub struct Recording {
    pub record: String,
    pub expr: String,
    pub labels: Vec<(&'static str, String)>,
}

#[derive(Clone, Debug)]
pub struct Alert {
    /// Alert name, and name of the runbook.
    pub name: &'static str,
    pub severity: Severity,
    pub expr: String,
    /// How long the condition must hold before the alert fires (`for`).
    pub hold: Option<Span>,
    /// How long the alert keeps firing after the condition has cleared.
    pub keep_firing_for: Option<Span>,
    /// One-line description of the problem.
    pub summary: String,
    /// Description of the problem, including the measured values.
    pub description: String,
    /// Uid of the dashboard that shows the problem.
    pub dashboard: &'static str,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Severity {
    /// Pages the engineer on call.
    Critical,
    /// Needs attention during working hours.
    Warning,
    /// Informational, without a notification.
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

impl From<Recording> for Rule {
    fn from(recording: Recording) -> Self {
        Self::Record(recording)
    }
}

impl From<Alert> for Rule {
    fn from(alert: Alert) -> Self {
        Self::Alert(alert)
    }
}
