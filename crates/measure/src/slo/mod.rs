//! SLOs, error budgets and burn rates. Arithmetic only; time is passed in as `at`.
//!
//! Each SLO that covers a request judges it once: at its end, or when a time limit passes. Only good and bad verdicts
//! count. SLOs on the throughput of the system judge minutes instead of requests. `docs/how-to/slos.md` defines what
//! counts and why.

mod budget;
mod counting;
mod coverage;
mod deadline;
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
pub use deadline::{Deadline, DeadlineEvent};
pub use indicator::{Sli, SliKind};
pub use ledger::SloTracker;
pub use preset::{Preset, PresetObjective};
pub use scope::{Scope, Subject};
pub use slices::SLICE;
pub use state::{CorruptState, Restored, SloState};
pub use verdict::WeightedVerdict;

use tokengauge_types::label::Label;

/// Service level objective: a minimum ratio of good events over a rolling window. An event is usually a request.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Objective {
    /// Unique name; the value of the `tokengauge.slo` attribute.
    pub name: Label,
    pub indicator: Sli,
    /// Minimum ratio of good events, above 0 and below 1, for example 0.995.
    pub target: f64,
    /// Length of the rolling window of the error budget: 1 h to 90 d.
    #[serde(serialize_with = "seconds")]
    pub window: Duration,
    pub scope: Scope,
    pub counting: CountingRules,
}

/// Windows of the burn rates, shortest first.
pub const BURN_WINDOWS: [(&str, Duration); 7] = [
    ("5m", Duration::from_secs(300)),
    ("30m", Duration::from_secs(1_800)),
    ("1h", Duration::from_secs(3_600)),
    ("2h", Duration::from_secs(7_200)),
    ("6h", Duration::from_secs(21_600)),
    ("1d", Duration::from_secs(86_400)),
    ("3d", Duration::from_secs(259_200)),
];

/// State of one SLO at one instant. Times are serialised in seconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reading {
    pub objective: Objective,
    /// Good events since the process start, for counters that never decrease.
    pub good: u64,
    pub bad: u64,
    /// Events in scope since the process start that count neither as good nor as bad.
    pub excluded: u64,
    /// Events in the rolling window.
    pub counts: Counts,
    /// Remaining ratio of the window's error budget: 1 if untouched, 0 if spent, negative if overspent. See
    /// [`Counts::budget`]. `None` without events in the window.
    pub budget: Option<f64>,
    /// Burn rates in the order of [`BURN_WINDOWS`]: ratio of bad events in the window ÷ (1 − target). `None` without
    /// events, and until the process has observed nearly the whole window.
    pub burn: [Option<f64>; BURN_WINDOWS.len()],
    /// Observed part of the rolling window.
    #[serde(serialize_with = "seconds")]
    pub covered: Duration,
    /// Time until the budget is spent, at the burn rate of the last hour or of its observed part. `None` if the burn
    /// rate is 1 or less, or if the budget is already spent.
    #[serde(serialize_with = "some_seconds")]
    pub exhaustion: Option<Duration>,
}

fn seconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}

fn some_seconds<S: Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    time.map(|time| time.as_secs_f64()).serialize(serializer)
}
