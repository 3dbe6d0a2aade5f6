//! Objectives, budgets, burn rates: arithmetic only, `at` passed in.
//!
//! An exchange is judged once, at its end, by every objective in whose scope it is; only good and bad verdicts go into
//! the books. Objectives on the throughput of the system judge slices of time instead. `docs/slo.md` says what counts,
//! and why.

mod budget;
mod counting;
mod coverage;
#[cfg(test)]
pub(crate) mod example;
mod indicator;
mod ledger;
mod preset;
mod scope;
mod slices;
mod state;
mod verdict;

use std::time::Duration;

use serde::{Serialize, Serializer};

pub use budget::Counts;
pub use counting::{CountingRules, Exclusion};
pub use indicator::Sli;
pub use ledger::SloTracker;
pub use preset::{Preset, PresetObjective};
pub use scope::{Scope, Subject};
pub use slices::SLICE;
pub use state::{CorruptState, Restored, SloState};
pub use verdict::WeightedVerdict;

use tokengauge_types::label::Label;

/// A promise: so many of the exchanges in scope shall be good, over a rolling window.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Objective {
    /// Unique; the value of the `tokengauge.slo` attribute.
    pub name: Label,
    pub indicator: Sli,
    /// The share that shall be good, above 0 and below 1.
    pub target: f64,
    /// The rolling window of the budget: 1 h to 90 d.
    #[serde(serialize_with = "seconds")]
    pub window: Duration,
    pub scope: Scope,
    pub counting: CountingRules,
}

/// The windows over which burn rates are told, shortest first.
pub const BURN_WINDOWS: [(&str, Duration); 7] = [
    ("5m", Duration::from_secs(300)),
    ("30m", Duration::from_secs(1_800)),
    ("1h", Duration::from_secs(3_600)),
    ("2h", Duration::from_secs(7_200)),
    ("6h", Duration::from_secs(21_600)),
    ("1d", Duration::from_secs(86_400)),
    ("3d", Duration::from_secs(259_200)),
];

/// One objective at one moment. Serialised, times are in seconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reading {
    pub objective: Objective,
    /// Events since the start of the process, for counters that only rise.
    pub good: u64,
    pub bad: u64,
    /// Exchanges in scope since the start of the process that were neither.
    pub excluded: u64,
    /// Events in the rolling window.
    pub counts: Counts,
    /// The share of the window's budget that is left: 1 untouched, 0 spent, below 0 overspent. `None` without events.
    pub budget: Option<f64>,
    /// Burn rate = share of bad events in the window ÷ (1 − target), in the order of [`BURN_WINDOWS`]. `None` before
    /// the window is covered, and where it holds no event.
    pub burn: [Option<f64>; BURN_WINDOWS.len()],
    /// How much of the rolling window has been observed.
    #[serde(serialize_with = "seconds")]
    pub covered: Duration,
    /// When the budget will be spent if it goes on burning as in the last hour (or what is covered of it). `None` where
    /// it does not burn faster than it is earned, or is spent already.
    #[serde(serialize_with = "some_seconds")]
    pub exhaustion: Option<Duration>,
}

fn seconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}

fn some_seconds<S: Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    time.map(|time| time.as_secs_f64()).serialize(serializer)
}
