//! Rates and times of calls, labelled by length buckets if the configuration enables them.

use opentelemetry::KeyValue;

use crate::attributes::{with, word};
use crate::catalog::attributes as key;
use crate::exemplars::ExemplarRecorder;
use crate::instruments::bound::BoundExemplarHistogram;
use crate::instruments::bound::LazyInstrument;
use crate::instruments::set::InstrumentSet;
use tokengauge_measure::record::{LengthBucket, LengthBuckets};
use tokengauge_measure::timing::Timestamps;

/// The instruments of finished calls of one series, response model, and pair of length buckets.
#[derive(Debug)]
pub struct LengthBucketInstruments {
    base: Vec<KeyValue>,
    output_rate: LazyInstrument<BoundExemplarHistogram<f64>>,
    total_rate: LazyInstrument<BoundExemplarHistogram<f64>>,
    /// Times to head, byte, event, token and visible, in this order.
    points: [LazyInstrument<BoundExemplarHistogram<f64>>; 5],
}

impl LengthBucketInstruments {
    /// Creates the instruments. Without buckets, `base` is the whole attribute set.
    pub fn new(base: &[KeyValue], bands: LengthBuckets) -> Self {
        let LengthBuckets { input, output } = bands;
        let own = [(key::INPUT_BAND, input), (key::OUTPUT_BAND, output)];
        let own = own
            .into_iter()
            .filter_map(|(key, band)| Some(word(key, band.map(LengthBucket::as_str)?)));
        Self {
            base: with(base, &own.collect::<Vec<_>>()),
            output_rate: LazyInstrument::default(),
            total_rate: LazyInstrument::default(),
            points: Default::default(),
        }
    }

    /// Records the output rate in tokens per second.
    pub fn output_rate(
        &self,
        set: &InstrumentSet,
        rate: f64,
        exemplars: &mut ExemplarRecorder<'_>,
    ) {
        self.output_rate.of(&set.own.output_rate, &self.base, &[]).record(rate, exemplars);
    }

    /// Records the total rate in tokens per second.
    pub fn total_rate(&self, set: &InstrumentSet, rate: f64, exemplars: &mut ExemplarRecorder<'_>) {
        self.total_rate.of(&set.own.total_rate, &self.base, &[]).record(rate, exemplars);
    }

    /// Records each reached timestamp as the time since accept.
    pub fn points(
        &self,
        set: &InstrumentSet,
        points: &Timestamps,
        exemplars: &mut ExemplarRecorder<'_>,
    ) {
        let occurred = [
            ("head", points.head),
            ("byte", points.byte),
            ("event", points.event),
            ("token", points.token),
            ("visible", points.visible),
        ];
        for (slot, (name, at)) in self.points.iter().zip(occurred) {
            if let Some(at) = at {
                let time = at.since(points.accept).as_secs_f64();
                slot.of(&set.own.time_to, &self.base, &[word(key::POINT, name)])
                    .record(time, exemplars);
            }
        }
    }
}
