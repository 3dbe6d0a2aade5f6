//! What `/slo` shows of an objective.

use crate::label::Label;
use crate::slo;

/// One objective on `/slo`.
#[derive(Debug, serde::Serialize)]
pub struct Objective<'a> {
    name: &'a Label,
    target: f64,
    window_seconds: u64,
    good: u64,
    bad: u64,
    budget: Option<f64>,
    burn: std::collections::BTreeMap<&'static str, Option<f64>>,
    covered_seconds: u64,
    exhaustion_seconds: Option<u64>,
}

impl<'a> Objective<'a> {
    pub fn of(reading: &'a slo::Reading) -> Self {
        Self {
            name: &reading.objective.name,
            target: reading.objective.target,
            window_seconds: reading.objective.window.as_secs(),
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
