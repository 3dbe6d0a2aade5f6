//! An objective on the page `/slo`. `docs/reference/admin-api.md` documents the fields.

use std::collections::BTreeMap;

use serde::Serialize;

use tokengauge_measure::slo::{self, CountingRules, Scope, Sli};
use tokengauge_types::label::Label;

/// One objective on `/slo`.
#[derive(Debug, Serialize)]
pub struct Objective<'a> {
    name: &'a Label,
    /// The value of the attribute `tokengauge.indicator`.
    indicator: &'static str,
    threshold: Option<Threshold>,
    scope: &'a Scope,
    counting: &'a CountingRules,
    target: f64,
    window_seconds: u64,
    good: u64,
    bad: u64,
    excluded: u64,
    budget: Option<f64>,
    burn: BTreeMap<&'static str, Option<f64>>,
    covered_seconds: u64,
    exhaustion_seconds: Option<u64>,
}

/// The limit between good and bad.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Threshold {
    /// The worst good value.
    value: f64,
    /// The OpenTelemetry unit.
    unit: &'static str,
    /// Whether good values are at most ("up to") or at least ("from") the value.
    good: &'static str,
}

impl<'a> Objective<'a> {
    pub fn of(reading: &'a slo::Reading) -> Self {
        let objective = &reading.objective;
        Self {
            name: &objective.name,
            indicator: objective.indicator.as_str(),
            threshold: threshold(objective.indicator),
            scope: &objective.scope,
            counting: &objective.counting,
            target: objective.target,
            window_seconds: objective.window.as_secs(),
            good: reading.good,
            bad: reading.bad,
            excluded: reading.excluded,
            budget: reading.budget,
            burn: slo::BURN_WINDOWS
                .iter()
                .zip(reading.burn)
                .map(|((name, _), burn)| (*name, burn))
                .collect(),
            covered_seconds: reading.covered.as_secs(),
            exhaustion_seconds: reading.exhaustion.map(|time| time.as_secs()),
        }
    }
}

fn threshold(indicator: Sli) -> Option<Threshold> {
    let time = indicator.longest().map(|within| Threshold {
        value: within.as_secs_f64(),
        unit: "s",
        good: "up to",
    });
    let rate =
        indicator.lowest().map(|from| Threshold { value: from, unit: "{token}/s", good: "from" });
    time.or(rate)
}
