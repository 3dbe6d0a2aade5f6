//! What gauges read: one picture of the process, taken once per collection.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::process::ProcessStats;
use crate::request_log;
use tokengauge_measure::cost::TokenPrice;
use tokengauge_measure::drift;
use tokengauge_measure::engine;
use tokengauge_measure::load;
use tokengauge_measure::slo;
use tokengauge_types::label::{Dimension, Label};

/// One moment's state of everything that is read rather than recorded.
#[derive(Clone, Debug, Default)]
pub struct StateSnapshot {
    pub load: load::Reading,
    pub slo: Vec<slo::Reading>,
    /// Of the engines of which something is asked.
    pub backends: Vec<engine::Reading>,
    pub budgets: Vec<BudgetReading>,
    /// What a million output tokens cost on hardware that is paid by the hour.
    pub token_prices: Vec<TokenPrice>,
    pub drift: drift::Reading,
    pub losses: ObserverLosses,
    /// Requests whose head was malformed or too large.
    pub refused_requests: u64,
    /// How often a label value had to be called `other`: [`tokengauge_types::label::CardinalityLimiter::refused`].
    pub label_overflow: Vec<(Dimension, u64)>,
    pub process: ProcessStats,
    /// Since somebody asked for a drain; zero while nobody has.
    pub draining: Duration,
    /// Lines of the request log.
    pub request_log: request_log::LineCounts,
    /// How often a *combination* of admitted values was one too many. Set by the collector.
    pub folded_series: u64,
}

/// What a budget of the configuration allows.
#[derive(Clone, Debug, PartialEq)]
pub struct BudgetReading {
    pub name: Label,
    /// `token`, or a currency.
    pub unit: Label,
    pub limit: f64,
    pub window: Duration,
}

/// What the observer did not see, since the start, and what it still has to look at.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ObserverLosses {
    /// Body bytes that went by unobserved.
    pub bytes: u64,
    /// Exchanges of which at least one body byte went by unobserved.
    pub exchanges: u64,
    /// Bytes that are copied and not yet looked at.
    pub backlog: u64,
}

/// Takes a [`StateSnapshot`]. Called on the telemetry thread and on the admin port's, once per collection; it must not panic
/// and should hold locks only briefly.
#[derive(Clone)]
pub struct SnapshotSource(Arc<dyn Fn() -> StateSnapshot + Send + Sync>);

impl SnapshotSource {
    pub fn new(take: impl Fn() -> StateSnapshot + Send + Sync + 'static) -> Self {
        Self(Arc::new(take))
    }

    pub fn take(&self) -> StateSnapshot {
        (self.0)()
    }
}

impl fmt::Debug for SnapshotSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SnapshotSource")
    }
}
