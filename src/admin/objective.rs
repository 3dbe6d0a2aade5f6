//! What `/slo` shows of an objective: what is promised, and how it stands. `docs/admin.md` has the fields.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::label::Label;
use crate::slo::{self, Indicator, Scope};

/// One objective on `/slo`.
#[derive(Debug, Serialize)]
pub struct Objective<'a> {
    name: &'a Label,
    /// As the attribute `tokengauge.indicator` has it.
    indicator: &'static str,
    threshold: Option<Threshold>,
    scope: ScopeView<'a>,
    target: f64,
    window_seconds: u64,
    good: u64,
    bad: u64,
    budget: Option<f64>,
    burn: BTreeMap<&'static str, Option<f64>>,
    covered_seconds: u64,
    exhaustion_seconds: Option<u64>,
}

/// Where good ends and bad begins.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Threshold {
    /// The worst that is good.
    value: f64,
    /// As OpenTelemetry writes it.
    unit: &'static str,
    /// Whether good values lie up to it or from it on.
    good: &'static str,
}

/// Which exchanges count; what is `null` takes all.
#[derive(Debug, Serialize)]
struct ScopeView<'a> {
    route: Option<&'a Label>,
    model: Option<&'a str>,
}

impl<'a> Objective<'a> {
    pub fn of(reading: &'a slo::Reading) -> Self {
        let objective = &reading.objective;
        let Scope { route, model } = &objective.scope;
        Self {
            name: &objective.name,
            indicator: word(objective.indicator),
            threshold: threshold(objective.indicator),
            scope: ScopeView {
                route: route.as_ref(),
                model: model.as_deref(),
            },
            target: objective.target,
            window_seconds: objective.window.as_secs(),
            good: reading.good,
            bad: reading.bad,
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

const fn word(indicator: Indicator) -> &'static str {
    match indicator {
        Indicator::Availability => "availability",
        Indicator::TimeToFirstToken(_) => "time_to_first_token",
        Indicator::OutputRate(_) => "output_rate",
        Indicator::Duration(_) => "duration",
    }
}

fn threshold(indicator: Indicator) -> Option<Threshold> {
    let (value, unit, good) = match indicator {
        Indicator::Availability => return None,
        Indicator::TimeToFirstToken(within) | Indicator::Duration(within) => {
            (within.as_secs_f64(), "s", "up to")
        }
        Indicator::OutputRate(from) => (from, "{token}/s", "from"),
    };
    Some(Threshold { value, unit, good })
}
