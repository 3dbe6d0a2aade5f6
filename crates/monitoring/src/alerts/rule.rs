//! Rules as Prometheus knows them.

use crate::alerts::span::Span;

/// Rules that are evaluated one after the other, at one interval.
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

/// A series that is computed ahead: `level:metric:operations`.
#[derive(Clone, Debug)]
pub struct Recording {
    pub record: String,
    pub expr: String,
    pub labels: Vec<(&'static str, String)>,
}

#[derive(Clone, Debug)]
pub struct Alert {
    /// Also the name of its runbook.
    pub name: &'static str,
    pub severity: Severity,
    pub expr: String,
    /// How long it must hold before it fires (`for`).
    pub hold: Option<Span>,
    /// How long it goes on firing after it has ceased to hold.
    pub keep_firing_for: Option<Span>,
    /// What is wrong, in a line.
    pub summary: String,
    /// What is wrong, with the values that say so.
    pub description: String,
    /// The uid of the dashboard that shows it.
    pub dashboard: &'static str,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Severity {
    /// Somebody is woken.
    Critical,
    /// Somebody looks at it in working hours.
    Warning,
    /// Good to know; nobody is told.
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
