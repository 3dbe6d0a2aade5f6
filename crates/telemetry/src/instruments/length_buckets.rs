//! What a call's length changes: its rates and its times, told apart by bands of lengths where the configuration asks.

use opentelemetry::KeyValue;

use crate::attributes::{with, word};
use crate::catalog::attributes as key;
use crate::exemplars::ExemplarRecorder;
use crate::instruments::exemplar_histogram::BoundExemplarHistogram;
use crate::instruments::lazy::LazyInstrument;
use crate::instruments::set::InstrumentSet;
use tokengauge_measure::record::{Bands, LengthBand};
use tokengauge_measure::timing::Points;

/// The instruments of ended calls of one series that one model answered, in one pair of bands.
#[derive(Debug)]
pub struct LengthBucketInstruments {
    base: Vec<KeyValue>,
    output_rate: LazyInstrument<BoundExemplarHistogram<f64>>,
    total_rate: LazyInstrument<BoundExemplarHistogram<f64>>,
    /// head, byte, event, token, visible.
    points: [LazyInstrument<BoundExemplarHistogram<f64>>; 5],
}

impl LengthBucketInstruments {
    /// Without bands, the attributes are those of `base` alone.
    pub fn new(base: &[KeyValue], bands: Bands) -> Self {
        let Bands { input, output } = bands;
        let own = [(key::INPUT_BAND, input), (key::OUTPUT_BAND, output)];
        let own = own
            .into_iter()
            .filter_map(|(key, band)| Some(word(key, band.map(LengthBand::as_str)?)));
        Self {
            base: with(base, &own.collect::<Vec<_>>()),
            output_rate: LazyInstrument::default(),
            total_rate: LazyInstrument::default(),
            points: Default::default(),
        }
    }

    /// Output TPS.
    pub fn output_rate(&self, family: &InstrumentSet, rate: f64, marks: &mut ExemplarRecorder<'_>) {
        self.output_rate.of(&family.output_rate, &self.base, &[]).record(rate, marks);
    }

    /// Total TPS.
    pub fn total_rate(&self, family: &InstrumentSet, rate: f64, marks: &mut ExemplarRecorder<'_>) {
        self.total_rate.of(&family.total_rate, &self.base, &[]).record(rate, marks);
    }

    /// The clock points that occurred, each as time since accept.
    pub fn points(
        &self,
        family: &InstrumentSet,
        points: &Points,
        marks: &mut ExemplarRecorder<'_>,
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
                slot.of(&family.time_to, &self.base, &[word(key::POINT, name)]).record(time, marks);
            }
        }
    }
}
