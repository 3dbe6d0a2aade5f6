//! SLOs that burn their error budgets.

use super::{Finding, MIN_EVENTS, short};
use crate::document::{Filter, Severity};
use crate::readings::Readings;
use tokengauge_measure::slo::{self, BURN_WINDOWS};

/// Pairs of windows, and the burn rate above which both must be, as in the alerts `LLMErrorBudgetBurnFast` and
/// `LLMErrorBudgetBurnSlow`. The last row applies while a young process covers only 5 min.
const LIMITS: [(&str, &str, f64, Severity); 5] = [
    ("1h", "5m", 14.4, Severity::Critical),
    ("6h", "30m", 6.0, Severity::Critical),
    ("1d", "2h", 3.0, Severity::Warning),
    ("3d", "6h", 1.0, Severity::Warning),
    ("5m", "5m", 14.4, Severity::Warning),
];

pub fn find(readings: &Readings) -> Vec<Finding> {
    readings.slos.iter().filter_map(finding).collect()
}

fn finding(reading: &slo::Reading) -> Option<Finding> {
    if reading.counts.bad < MIN_EVENTS {
        return None;
    }
    let burn = |name: &str| {
        let place = BURN_WINDOWS.iter().position(|(window, _)| *window == name)?;
        reading.burn.get(place).copied().flatten()
    };
    let exceeds = |(long, short, limit, _): &&(&str, &str, f64, Severity)| {
        let above = |window| burn(window).is_some_and(|rate| rate > *limit);
        above(long) && above(short)
    };
    let (window, _, _, severity) = LIMITS.iter().find(exceeds)?;
    let rate = burn(window)?;
    let name = reading.objective.name.as_str();
    let runbook = match severity {
        Severity::Critical => "LLMErrorBudgetBurnFast",
        Severity::Warning => "LLMErrorBudgetBurnSlow",
    };
    let left = reading.budget.map_or_else(String::new, |left| {
        format!(", {} of the budget left", super::percent(left.max(0.0)))
    });
    Some(Finding {
        id: format!("slo:{name}"),
        severity: *severity,
        text: format!(
            "SLO {name}: burns its error budget {} × too fast over {window}{left}",
            short(rate)
        ),
        since_unix_ms: None,
        runbook,
        view: "slos",
        filter: Filter { slo: Some(reading.objective.name.shared()), ..Filter::default() },
    })
}
