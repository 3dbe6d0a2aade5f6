//! Instruments whose series are routes and positions: requests, retries, and the connections that exchanges use.

use opentelemetry::KeyValue;
use opentelemetry::metrics::BoundCounter;
use tokengauge_measure::load::{RetrySignal, RouteKey};
use tokengauge_measure::record::Record;
use tokengauge_types::event::ConnectStage;

use crate::attributes::{of_lane, with, word};
use crate::catalog::attributes as key;
use crate::exemplars::ExemplarRecorder;
use crate::instruments::bound::{BoundExemplarHistogram, LazyInstrument};
use crate::instruments::set::InstrumentSet;

#[derive(Debug)]
pub struct RouteInstruments {
    pub started: BoundCounter<u64>,
    pub waiting: BoundCounter<f64>,
    /// Messages from the client, and from the upstream.
    pub messages: [BoundCounter<u64>; 2],
    retries: [BoundCounter<u64>; RetrySignal::ALL.len()],
    pub connections: ConnectionInstruments,
}

impl RouteInstruments {
    /// Binds the counters, which are exported as 0 from now on.
    pub fn new(set: &InstrumentSet, lane: &RouteKey) -> Self {
        let base = of_lane(lane);
        Self {
            started: set.own.started.bind(&base),
            waiting: set.own.stream_time.bind(&with(&base, &[word(key::STREAM_STATE, "waiting")])),
            messages: ["request", "response"].map(|direction| {
                set.own.messages.bind(&with(&base, &[word(key::DIRECTION, direction)]))
            }),
            retries: RetrySignal::ALL
                .map(|sign| set.own.retries.bind(&with(&base, &[word(key::SIGN, sign.as_str())]))),
            connections: ConnectionInstruments::new(base),
        }
    }

    pub fn record_retry(&self, sign: RetrySignal) {
        let mut counters = self.retries.iter().zip(RetrySignal::ALL);
        if let Some((counter, _)) = counters.find(|(_, known)| *known == sign) {
            counter.add(1);
        }
    }
}

/// The instruments of one route's connections. They are bound at their first value, so that no series shows 0 if the
/// kernel reports nothing.
#[derive(Debug)]
pub struct ConnectionInstruments {
    /// The attributes of the route, sorted.
    base: Vec<KeyValue>,
    stages: [LazyInstrument<BoundExemplarHistogram<f64>>; ConnectStage::ALL.len()],
    client: PeerInstruments,
    upstream: PeerInstruments,
}

#[derive(Debug, Default)]
struct PeerInstruments {
    rtt: LazyInstrument<BoundExemplarHistogram<f64>>,
    retransmits: LazyInstrument<BoundCounter<u64>>,
}

impl ConnectionInstruments {
    fn new(base: Vec<KeyValue>) -> Self {
        Self {
            base,
            stages: Default::default(),
            client: PeerInstruments::default(),
            upstream: PeerInstruments::default(),
        }
    }

    pub fn record(
        &self,
        set: &InstrumentSet,
        record: &Record,
        exemplars: &mut ExemplarRecorder<'_>,
    ) {
        for (stage, length) in record.connected.iter().flat_map(|connected| connected.stages()) {
            let mut instruments = self.stages.iter().zip(ConnectStage::ALL);
            if let Some((instrument, _)) = instruments.find(|(_, known)| *known == stage) {
                let own = [word(key::CONNECT_STAGE, stage.as_str())];
                let histogram = instrument.of(&set.own.connect, &self.base, &own);
                histogram.record(length.as_secs_f64(), exemplars);
            }
        }
        let peers = [
            ("client", &self.client, record.network.client),
            ("upstream", &self.upstream, record.network.upstream),
        ];
        for (name, peer, connection) in peers {
            let Some(connection) = connection else {
                continue;
            };
            let own = [word(key::SIDE, name)];
            if let Some(rtt) = connection.rtt {
                let histogram = peer.rtt.of(&set.own.rtt, &self.base, &own);
                histogram.record(rtt.as_secs_f64(), exemplars);
            }
            let retransmits = u64::from(connection.retransmits);
            peer.retransmits.add(&set.own.retransmits, &self.base, &own, retransmits);
        }
    }
}
