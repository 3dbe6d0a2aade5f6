//! The state that gauges read, taken once per collection.

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

/// Values that are read at each collection, not recorded when they change.
#[derive(Clone, Debug, Default)]
pub struct StateSnapshot {
    pub load: load::Reading,
    pub slo: Vec<slo::Reading>,
    /// Engines whose metrics are scraped or whose warm-up is tracked.
    pub backends: Vec<engine::Reading>,
    pub budgets: Vec<BudgetReading>,
    /// Cost of a million output tokens on hardware that is paid by the hour.
    pub token_prices: Vec<TokenPrice>,
    pub drift: drift::Reading,
    pub losses: ObserverLosses,
    /// Requests whose headers were malformed or too large.
    pub refused_requests: u64,
    /// Number of times that a label value was replaced by `other`:
    /// [`tokengauge_types::label::CardinalityLimiter::refused`].
    pub label_overflow: Vec<(Dimension, u64)>,
    pub process: ProcessStats,
    /// Time since a drain was requested. Zero without one.
    pub draining: Duration,
    /// Lines of the request log.
    pub request_log: request_log::LineCounts,
    /// Number of times that a *combination* of admitted values exceeded its limit. Set by the metrics reader.
    pub folded_series: u64,
}

/// A configured budget.
#[derive(Clone, Debug, PartialEq)]
pub struct BudgetReading {
    pub name: Label,
    /// Unit of the budget: `token`, or a currency code.
    pub unit: Label,
    pub limit: f64,
    pub window: Duration,
}

/// Data that the observer lost since the start, and its backlog.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ObserverLosses {
    /// Body bytes that passed unobserved.
    pub bytes: u64,
    /// Exchanges with at least one unobserved body byte.
    pub exchanges: u64,
    /// Body bytes that were copied but not yet processed.
    pub backlog: u64,
}

/// Takes a [`StateSnapshot`]. The telemetry thread and the admin port call it once per collection. The closure must not
/// panic, and should hold locks only briefly.
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
