//! The instruments that have no model label, but the labels route and position: requests, retries and connections.

use std::sync::Arc;

use tokengauge_measure::load::{RetrySignal, RouteKey};

use crate::attributes::route_attributes;
use crate::builders::Series;
use crate::catalog::tokengauge;
use crate::instruments::table::{InstrumentTable, LabelSet, Scope};

/// The instruments of one route. Counters of requests are exported as 0 from the start. Instruments of connections are
/// bound when their first value is recorded. The kernel may report no connection statistics, and zeros would then be
/// wrong.
#[derive(Debug)]
pub struct RouteInstruments {
    pub started: Series,
    pub waiting: Series,
    /// Number of WebSocket messages from the client, and from the upstream.
    pub messages: [Series; 2],
    retries: [(RetrySignal, Series); RetrySignal::ALL.len()],
    /// The metrics of finished requests.
    pub finished: Arc<Scope>,
}

impl RouteInstruments {
    pub fn new(table: &InstrumentTable, route_key: &RouteKey) -> Self {
        let base = route_attributes(route_key);
        let bind = |metric, labels: &[&'static str]| table.bind(metric, &base, labels);
        let retries = RetrySignal::ALL.map(|signal| {
            let counter = bind(&tokengauge::CLIENT_RETRIES, &[signal.as_str()]);
            counter.record(0.0);
            (signal, counter)
        });
        Self {
            started: bind(&tokengauge::REQUESTS_STARTED, &[]),
            waiting: bind(&tokengauge::STREAM_ACTIVE_TIME, &["waiting"]),
            messages: ["request", "response"]
                .map(|direction| bind(&tokengauge::WEBSOCKET_MESSAGES, &[direction])),
            retries,
            finished: Arc::new(table.scope(LabelSet::Route, base.into())),
        }
    }

    pub fn record_retry(&self, signal: RetrySignal) {
        let counter = self.retries.iter().find(|(known, _)| *known == signal);
        counter.into_iter().for_each(|(_, counter)| counter.record(1.0));
    }
}
