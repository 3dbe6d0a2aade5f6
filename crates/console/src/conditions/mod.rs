//! What is wrong at the moment, in words.
//!
//! Each rule has the meaning and the limits of the alert whose runbook it names, but looks at the last minute instead of
//! several, because a person who looks at the console wants to see a change at once.

mod budgets;
mod latency;
mod load;
mod providers;

use std::collections::BTreeMap;

use crate::document::{Condition, Filter, Severity, Text};
use crate::readings::Readings;

/// Minimum number of events for a condition, as in the alerts. Fewer say nothing about a share or a percentile.
const MIN_EVENTS: u64 = 5;

/// A condition that a rule has found.
#[derive(Debug)]
struct Finding {
    id: String,
    severity: Severity,
    text: String,
    /// When the condition began, if the readings show it.
    since_unix_ms: Option<u64>,
    runbook: &'static str,
    view: &'static str,
    filter: Filter,
}

/// Finds conditions and remembers since when they last.
#[derive(Debug, Default)]
pub struct ConditionTracker {
    /// Start of each condition that held at the last update.
    since: BTreeMap<Text, u64>,
}

impl ConditionTracker {
    /// Returns the conditions that hold, worst first.
    pub fn update(&mut self, readings: &Readings) -> Vec<Condition> {
        let now = readings.recorded.at_unix_ms;
        let found = budgets::find(readings)
            .into_iter()
            .chain(latency::find(readings))
            .chain(load::find(readings))
            .chain(providers::find(readings));
        let mut conditions: Vec<_> = found.map(|finding| self.condition(finding, now)).collect();
        self.since = conditions.iter().map(|it| (Text::clone(&it.id), it.since_unix_ms)).collect();
        conditions.sort_by(|a, b| {
            (a.severity, a.since_unix_ms, &a.id).cmp(&(b.severity, b.since_unix_ms, &b.id))
        });
        conditions
    }

    fn condition(&self, finding: Finding, now: u64) -> Condition {
        let Finding { id, severity, text, since_unix_ms, runbook, view, filter } = finding;
        let id = Text::from(id);
        let seen = self.since.get(&id).copied();
        let since = seen.unwrap_or(now).min(since_unix_ms.unwrap_or(now));
        Condition {
            id,
            severity,
            text: text.into(),
            since_unix_ms: since,
            runbook: Some(runbook.into()),
            view: view.into(),
            filter,
        }
    }
}

/// Formats a time, such as `4.2 s` or `350 ms`.
fn time(seconds: f64) -> String {
    if seconds >= 100.0 {
        format!("{seconds:.0} s")
    } else if seconds >= 1.0 {
        format!("{} s", short(seconds))
    } else {
        format!("{:.0} ms", seconds * 1_000.0)
    }
}

/// Formats a number with at most one decimal.
fn short(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map(str::to_owned).unwrap_or(text)
}

/// Formats a share, such as `12 %`.
fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

#[cfg(test)]
mod tests;
