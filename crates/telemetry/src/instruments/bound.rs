//! Instruments bound to one attribute set. A record takes a few nanoseconds, a lookup by attributes 200 ns.

use std::sync::{Arc, OnceLock};

use opentelemetry::KeyValue;
use opentelemetry::metrics::{BoundCounter, BoundHistogram, Counter, Histogram, Meter};

use crate::attributes::with;
use crate::builders::Instrument;
use crate::catalog::Metric;
use crate::exemplars::{ExemplarRecorder, Exemplars, SeriesId};

/// A histogram that is recorded when an exchange ends, so that each record may leave an exemplar.
#[derive(Debug)]
pub struct ExemplarHistogram<T> {
    histogram: Histogram<T>,
    metric: &'static Metric,
    exemplars: Arc<Exemplars>,
}

/// An [`ExemplarHistogram`] bound to one series.
#[derive(Clone, Debug)]
pub struct BoundExemplarHistogram<T> {
    histogram: BoundHistogram<T>,
    series: SeriesId,
    bounds: &'static [f64],
}

/// An instrument that is bound at its first use, so that unused attribute sets have no points. Every use must pass the
/// same instrument and attributes.
#[derive(Debug)]
pub struct LazyInstrument<B>(OnceLock<B>);

impl<T> Instrument for ExemplarHistogram<T>
where
    Histogram<T>: Instrument,
{
    fn build(metric: &'static Metric, meter: &Meter, exemplars: &Arc<Exemplars>) -> Self {
        let histogram = Histogram::build(metric, meter, exemplars);
        Self { histogram, metric, exemplars: Arc::clone(exemplars) }
    }
}

impl<T> ExemplarHistogram<T> {
    /// Binds to `attributes`, which are sorted by key.
    pub fn bind(&self, attributes: &[KeyValue]) -> BoundExemplarHistogram<T> {
        BoundExemplarHistogram {
            histogram: self.histogram.bind(attributes),
            series: self.exemplars.series(self.metric, attributes),
            bounds: self.metric.buckets,
        }
    }
}

impl BoundExemplarHistogram<f64> {
    pub fn record(&self, value: f64, exemplars: &mut ExemplarRecorder<'_>) {
        self.histogram.record(value);
        exemplars.bucket(self.series, self.bounds, value);
    }
}

impl BoundExemplarHistogram<u64> {
    pub fn record(&self, value: u64, exemplars: &mut ExemplarRecorder<'_>) {
        self.histogram.record(value);
        exemplars.bucket(self.series, self.bounds, value as f64);
    }
}

impl<T> LazyInstrument<BoundExemplarHistogram<T>> {
    pub fn of(
        &self,
        histogram: &ExemplarHistogram<T>,
        base: &[KeyValue],
        own: &[KeyValue],
    ) -> &BoundExemplarHistogram<T> {
        self.0.get_or_init(|| histogram.bind(&with(base, own)))
    }
}

impl LazyInstrument<BoundCounter<u64>> {
    pub fn add(&self, counter: &Counter<u64>, base: &[KeyValue], own: &[KeyValue], value: u64) {
        self.0.get_or_init(|| counter.bind(&with(base, own))).add(value);
    }
}

impl<B> Default for LazyInstrument<B> {
    fn default() -> Self {
        Self(OnceLock::new())
    }
}
