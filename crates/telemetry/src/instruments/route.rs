//! The instruments of what is told apart by route and vantage alone.

use opentelemetry::metrics::BoundCounter;

use crate::attributes::{of_lane, with, word};
use crate::catalog::attributes as key;
use crate::instruments::network::ConnectionInstruments;
use crate::instruments::set::InstrumentSet;
use tokengauge_measure::load::{Lane, Sign};

#[derive(Debug)]
pub struct RouteInstruments {
    pub started: BoundCounter<u64>,
    pub waiting: BoundCounter<f64>,
    /// From the client, and from the upstream.
    pub messages: [BoundCounter<u64>; 2],
    retries: [BoundCounter<u64>; Sign::ALL.len()],
    pub connections: ConnectionInstruments,
}

impl RouteInstruments {
    /// Signal as 0 from here on.
    pub fn new(family: &InstrumentSet, lane: &Lane) -> Self {
        let base = of_lane(lane);
        Self {
            started: family.started.bind(&base),
            waiting: family.stream_time.bind(&with(&base, &[word(key::STREAM_STATE, "waiting")])),
            messages: ["request", "response"].map(|direction| {
                let own = [word(key::DIRECTION, direction)];
                family.messages.bind(&with(&base, &own))
            }),
            retries: Sign::ALL.map(|sign| {
                let own = [word(key::SIGN, sign.as_str())];
                family.retries.bind(&with(&base, &own))
            }),
            connections: ConnectionInstruments::new(base),
        }
    }

    pub fn record_retry(&self, sign: Sign) {
        let mut counters = self.retries.iter().zip(Sign::ALL);
        if let Some((counter, _)) = counters.find(|(_, known)| *known == sign) {
            counter.add(1);
        }
    }
}
