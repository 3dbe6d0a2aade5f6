//! What an exchange's connections tell: the parts of connecting, round-trip times and retransmits, by route and side.

use opentelemetry::KeyValue;
use opentelemetry::metrics::BoundCounter;

use crate::attributes::word;
use crate::catalog::attributes as key;
use crate::exemplars::ExemplarRecorder;
use crate::instruments::exemplar_histogram::BoundExemplarHistogram;
use crate::instruments::lazy::LazyInstrument;
use crate::instruments::set::InstrumentSet;
use tokengauge_measure::record::Record;
use tokengauge_types::event::ConnectStage;

/// The instruments of one route's connections. Bound when there is something to tell: where the kernel cannot be asked,
/// no series says 0.
#[derive(Debug)]
pub struct ConnectionInstruments {
    /// What tells the route apart, sorted.
    base: Vec<KeyValue>,
    stages: [LazyInstrument<BoundExemplarHistogram<f64>>; ConnectStage::ALL.len()],
    client: Side,
    upstream: Side,
}

#[derive(Debug, Default)]
struct Side {
    rtt: LazyInstrument<BoundExemplarHistogram<f64>>,
    retransmits: LazyInstrument<BoundCounter<u64>>,
}

impl ConnectionInstruments {
    pub fn new(base: Vec<KeyValue>) -> Self {
        Self {
            base,
            stages: Default::default(),
            client: Side::default(),
            upstream: Side::default(),
        }
    }

    pub fn record(
        &self,
        family: &InstrumentSet,
        record: &Record,
        marks: &mut ExemplarRecorder<'_>,
    ) {
        for (stage, length) in record.connected.iter().flat_map(|connected| connected.stages()) {
            let mut slots = self.stages.iter().zip(ConnectStage::ALL);
            if let Some((slot, _)) = slots.find(|(_, known)| *known == stage) {
                let own = [word(key::CONNECT_STAGE, stage.as_str())];
                slot.of(&family.connect, &self.base, &own).record(length.as_secs_f64(), marks);
            }
        }
        let sides = [
            ("client", &self.client, record.network.client),
            ("upstream", &self.upstream, record.network.upstream),
        ];
        for (name, side, connection) in sides {
            let Some(connection) = connection else {
                continue;
            };
            let own = [word(key::SIDE, name)];
            if let Some(rtt) = connection.rtt {
                side.rtt.of(&family.rtt, &self.base, &own).record(rtt.as_secs_f64(), marks);
            }
            let retransmits = u64::from(connection.retransmits);
            side.retransmits.add(&family.retransmits, &self.base, &own, retransmits);
        }
    }
}
