//! The instruments of what is told apart by route and vantage alone.

use opentelemetry::metrics::BoundCounter;

use crate::instruments::attributes::{of_lane, with, word};
use crate::instruments::family::Family;
use crate::instruments::network::Connections;
use crate::names::attributes as key;
use tokengauge_measure::load::{Lane, Sign};

#[derive(Debug)]
pub struct LaneCounters {
    pub started: BoundCounter<u64>,
    pub waiting: BoundCounter<f64>,
    /// From the client, and from the upstream.
    pub messages: [BoundCounter<u64>; 2],
    retries: [BoundCounter<u64>; Sign::ALL.len()],
    pub connections: Connections,
}

impl LaneCounters {
    /// Exported as 0 from here on.
    pub fn new(family: &Family, lane: &Lane) -> Self {
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
            connections: Connections::new(base),
        }
    }

    pub fn retried(&self, sign: Sign) {
        let mut counters = self.retries.iter().zip(Sign::ALL);
        if let Some((counter, _)) = counters.find(|(_, known)| *known == sign) {
            counter.add(1);
        }
    }
}
