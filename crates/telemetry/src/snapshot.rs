//! Defines the state that gauges show. A snapshot of this state is taken once per collection of metrics.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::export_counters::SignalCounts;
use crate::line_writer::LineCounts;
use crate::process::ProcessStats;
use tokengauge_measure::cost::TokenPrice;
use tokengauge_measure::drift;
use tokengauge_measure::engine;
use tokengauge_measure::load;
use tokengauge_measure::slo;
use tokengauge_types::label::Label;

/// Values that are read once per collection, and not recorded whenever they change.
#[derive(Clone, Debug, Default)]
pub struct StateSnapshot {
    pub load: load::Reading,
    pub slo: Vec<slo::Reading>,
    /// Backends whose engine metrics are scraped or whose warm-up state is tracked.
    pub backends: Vec<engine::Reading>,
    pub budgets: Vec<BudgetReading>,
    /// Cost of a million output tokens on hardware that is rented by the hour.
    pub token_prices: Vec<TokenPrice>,
    pub drift: drift::Reading,
    pub observer: ObserverHealth,
    /// Whether the observer did not hand its state over in time. The fields above `observer` are then empty, and the
    /// metrics reader uses earlier metrics instead.
    pub is_observer_late: bool,
    /// Number of requests that were rejected because their headers were malformed or too large.
    pub refused_requests: u64,
    pub clients: ClientLoad,
    /// Counters of upstreams.
    pub upstreams: Vec<UpstreamCounts>,
    /// How often a label value was replaced by `other`, by dimension as counted by
    /// [`tokengauge_types::label::CardinalityLimiter::refused`]. The metrics reader adds `series`: how often a new
    /// combination of label values exceeded the limit on series, so that some of its labels were replaced.
    pub label_overflow: Vec<(&'static str, u64)>,
    pub process: ProcessStats,
    /// Time since a drain was requested. Zero if no drain was requested.
    pub draining: Duration,
    /// Result of the last load of the configuration. `None` where nothing is reloaded.
    pub config: Option<ConfigReading>,
    /// Expiry of the certificates in use.
    pub certificates: Vec<CertificateReading>,
    /// Counts of the streams of Envoy. `None` without a listener for them.
    pub envoy: Option<EnvoyCounts>,
    /// Counts of the request log's lines.
    pub request_log: LineCounts,
    /// Counts of the lines of the process's log.
    pub log: LineCounts,
    /// Counts of the OTLP exports. The metrics reader sets this value.
    pub exports: Vec<SignalCounts>,
}

/// Counters of the streams of Envoy since the start of the process.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct EnvoyCounts {
    /// `ext_proc` streams. Each carries one request.
    pub streams: u64,
    /// Messages that Envoy waited to be answered.
    pub answered_messages: u64,
    /// Streams that could not be observed.
    pub refused_streams: u64,
    /// Exchanges of which it is not known how they ended.
    pub unknown_ends: u64,
    /// Requests that only the access log reported.
    pub unobserved_requests: u64,
}

/// Counters of one upstream since the start of the process.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct UpstreamCounts {
    pub upstream: Label,
    /// Pooled connections that could not be reused, because the upstream had closed them.
    pub stale: u64,
    /// Requests that were sent a second time.
    pub retries: u64,
}

/// The last load of the configuration.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ConfigReading {
    /// Whether the configuration and certificates in use are those of the files.
    pub is_current: bool,
    /// Time of the last successful load, in seconds since 1970.
    pub loaded_at: u64,
}

/// The expiry of the certificates in a file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CertificateReading {
    /// Path of the file.
    pub file: Label,
    /// Seconds since 1970.
    pub expires_at: u64,
}

/// A configured cost or token budget.
#[derive(Clone, Debug, PartialEq)]
pub struct BudgetReading {
    pub name: Label,
    /// Unit of the budget: `token`, or a currency code.
    pub unit: Label,
    pub limit: f64,
    pub window: Duration,
}

/// Health of the observer thread: the data that it has lost since the process started, the data that it holds, and its
/// delay.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ObserverHealth {
    /// Number of body bytes that were forwarded but not observed.
    pub lost_bytes: u64,
    /// Number of requests of which at least one body byte was not observed.
    pub unobserved: u64,
    /// Number of requests that their routes exclude from observation.
    pub excluded: u64,
    /// Number of body bytes that were copied for the observer but are not processed yet.
    pub backlog: u64,
    /// Number of bytes in the buffers of all parsers.
    pub held: u64,
    /// Number of panics of the observer thread.
    pub restarts: u64,
    /// Age of the observer's state. Zero unless the observer is overloaded.
    pub age: Duration,
}

/// Client connections and their limit, summed over all listeners.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ClientLoad {
    /// Open connections, including WebSockets.
    pub connections: u64,
    pub connections_limit: u64,
    /// Requests that were answered with 503, because their listener had too many requests in flight.
    pub over_limit: u64,
    /// Idle connections that were closed to make room for new connections, because their listener was full.
    pub evicted: u64,
}

/// A function that takes a [`StateSnapshot`]. The telemetry thread and the admin port call the function once per
/// collection. The function must not panic.
#[derive(Clone)]
pub struct SnapshotSource(Arc<TakeSnapshot>);

/// Calls its argument once with the snapshot.
type TakeSnapshot = dyn Fn(&mut dyn FnMut(StateSnapshot)) + Send + Sync;

impl SnapshotSource {
    /// Creates a source from a function that reads the current state, such as the number of open streams, for each
    /// collection.
    pub fn new(take: impl Fn() -> StateSnapshot + Send + Sync + 'static) -> Self {
        Self::holding(move |collect| collect(take()))
    }

    /// Creates a source from `take`. `take` must call its argument once with the snapshot. Unless the observer is late,
    /// `take` must prevent recordings during the call, so that the collected metrics belong to the same instant as the
    /// snapshot.
    pub fn holding(take: impl Fn(&mut dyn FnMut(StateSnapshot)) + Send + Sync + 'static) -> Self {
        Self(Arc::new(take))
    }

    /// Takes a snapshot and calls `collect` with it.
    pub fn with<T>(&self, collect: impl FnOnce(StateSnapshot) -> T) -> T {
        let mut collect = Some(collect);
        let mut collected = None;
        (self.0)(&mut |snapshot| collected = collect.take().map(|collect| collect(snapshot)));
        collected.expect("a source provides a snapshot")
    }
}

impl fmt::Debug for SnapshotSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SnapshotSource")
    }
}
