//! The instruments that have no model label, but the labels route and position: requests, retries and connections.

use opentelemetry::KeyValue;
use opentelemetry::metrics::BoundCounter;
use tokengauge_measure::load::{RetrySignal, RouteKey};
use tokengauge_measure::record::Record;
use tokengauge_types::event::ConnectStage;

use crate::attributes::{route_attributes, with, word};
use crate::catalog::attributes as key;
use crate::exemplars::ExemplarRecorder;
use crate::instruments::bound::{BoundExemplarHistogram, Labelled};
use crate::instruments::set::InstrumentSet;

/// The instruments of one route. Counters of requests are exported as 0 from the start. Instruments of connections are
/// bound when their first value is recorded. The kernel may report no connection statistics, and zeros would then be
/// wrong.
#[derive(Debug)]
pub struct RouteInstruments {
    /// The attributes of the route, sorted by key.
    base: Vec<KeyValue>,
    pub started: BoundCounter<u64>,
    pub waiting: BoundCounter<f64>,
    /// Number of WebSocket messages from the client, and from the upstream.
    pub messages: [BoundCounter<u64>; 2],
    retries: Labelled<BoundCounter<u64>, { RetrySignal::ALL.len() }>,
    connect_stages: Labelled<BoundExemplarHistogram<f64>, { ConnectStage::ALL.len() }>,
    rtt: Labelled<BoundExemplarHistogram<f64>, 2>,
    retransmits: Labelled<BoundCounter<u64>, 2>,
}

impl RouteInstruments {
    pub fn new(set: &InstrumentSet, route_key: &RouteKey) -> Self {
        let base = route_attributes(route_key);
        let route = Self {
            started: set.own.started.bind(&base),
            waiting: set.own.stream_time.bind(&with(&base, &[word(key::STREAM_STATE, "waiting")])),
            messages: ["request", "response"].map(|direction| {
                set.own.messages.bind(&with(&base, &[word(key::DIRECTION, direction)]))
            }),
            retries: Labelled::default(),
            connect_stages: Labelled::default(),
            rtt: Labelled::default(),
            retransmits: Labelled::default(),
            base,
        };
        route.record_retry(set, None);
        route
    }

    /// Counts a retry. If `signal` is `None`, adds 0 to each counter, so that all counters are exported.
    pub fn record_retry(&self, set: &InstrumentSet, signal: Option<RetrySignal>) {
        let counts =
            RetrySignal::ALL.map(|known| (known.as_str(), Some(u64::from(signal == Some(known)))));
        self.retries.add(&set.own.retries, (&self.base, key::RETRY_SIGNAL), counts);
    }

    pub fn record_connections(
        &self,
        set: &InstrumentSet,
        record: &Record,
        exemplars: &mut ExemplarRecorder<'_>,
    ) {
        if let Some(connected) = &record.connected {
            let length = |stage| connected.stages().find(|(known, _)| *known == stage);
            let stages = ConnectStage::ALL
                .map(|stage| (stage.as_str(), length(stage).map(|(_, length)| length)));
            let series = (self.base.as_slice(), key::CONNECT_STAGE);
            self.connect_stages.record(&set.own.connect, series, stages, exemplars);
        }
        let series = (self.base.as_slice(), key::PEER);
        let peers = [("client", record.network.client), ("upstream", record.network.upstream)];
        let rtt = peers.map(|(name, connection)| (name, connection.and_then(|it| it.rtt)));
        self.rtt.record(&set.own.rtt, series, rtt, exemplars);
        let retransmits =
            peers.map(|(name, connection)| (name, connection.map(|it| u64::from(it.retransmits))));
        self.retransmits.add(&set.own.retransmits, series, retransmits);
    }
}
