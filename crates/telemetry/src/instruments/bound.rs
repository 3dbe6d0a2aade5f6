//! Instruments that are bound to one attribute set in advance. Recording a value then takes a few nanoseconds. A lookup
//! by attributes takes 200 ns.

use std::array;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::metrics::{BoundCounter, BoundHistogram, Counter, Histogram, Meter};

use crate::attributes::{with, word};
use crate::builders::Instrument;
use crate::catalog::{Attribute, Metric};
use crate::exemplars::{ExemplarRecorder, Exemplars, SeriesId};

/// A histogram for values that are known when a request ends. Each value can create an exemplar (a link to the trace).
#[derive(Debug)]
pub struct ExemplarHistogram<T> {
    histogram: Histogram<T>,
    metric: &'static Metric,
    exemplars: Arc<Exemplars>,
}

/// An [`ExemplarHistogram`] that is bound to one series.
#[derive(Clone, Debug)]
pub struct BoundExemplarHistogram<T> {
    histogram: BoundHistogram<T>,
    series: SeriesId,
    bounds: &'static [f64],
}

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
    /// Binds the histogram to `attributes`, which must be sorted by key.
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

/// A histogram that is bound when its first value is recorded, so that unused series are not exported. Each call must
/// pass the same histogram and attributes, because only the first call uses them.
#[derive(Debug)]
pub struct LazyHistogram<T>(OnceLock<BoundExemplarHistogram<T>>);

impl<T> LazyHistogram<T> {
    pub fn get_or_bind(
        &self,
        histogram: &ExemplarHistogram<T>,
        attributes: &[KeyValue],
    ) -> &BoundExemplarHistogram<T> {
        self.0.get_or_init(|| histogram.bind(attributes))
    }
}

impl<T> Default for LazyHistogram<T> {
    fn default() -> Self {
        Self(OnceLock::new())
    }
}

/// Instruments that differ only in the value of one attribute, the label. Each instrument is bound when its first value
/// is recorded, so that unused series are not exported. Each call must pass the same instrument, attributes and labels.
#[derive(Debug)]
pub struct Labelled<B, const N: usize>([OnceLock<B>; N]);

/// A label and the value to record for it. `None` records nothing.
pub type LabelledValue<T> = (&'static str, Option<T>);

impl<B, const N: usize> Labelled<B, N> {
    fn each<T>(
        &self,
        (base, attribute): (&[KeyValue], Attribute),
        values: [LabelledValue<T>; N],
        bind: impl Fn(&[KeyValue]) -> B,
        mut record: impl FnMut(&B, T),
    ) {
        for (slot, (label, value)) in self.0.iter().zip(values) {
            if let Some(value) = value {
                let bind = || bind(&with(base, &[word(attribute, label)]));
                record(slot.get_or_init(bind), value);
            }
        }
    }
}

impl<const N: usize> Labelled<BoundCounter<u64>, N> {
    pub fn add(
        &self,
        counter: &Counter<u64>,
        series: (&[KeyValue], Attribute),
        values: [LabelledValue<u64>; N],
    ) {
        self.each(series, values, |attributes| counter.bind(attributes), BoundCounter::add);
    }
}

impl<const N: usize> Labelled<BoundExemplarHistogram<f64>, N> {
    /// Records durations in seconds.
    pub fn record(
        &self,
        histogram: &ExemplarHistogram<f64>,
        series: (&[KeyValue], Attribute),
        times: [LabelledValue<Duration>; N],
        exemplars: &mut ExemplarRecorder<'_>,
    ) {
        let bind = |attributes: &[KeyValue]| histogram.bind(attributes);
        self.each(series, times, bind, |bound, time| bound.record(time.as_secs_f64(), exemplars));
    }
}

impl<const N: usize> Labelled<BoundExemplarHistogram<u64>, N> {
    pub fn record(
        &self,
        histogram: &ExemplarHistogram<u64>,
        series: (&[KeyValue], Attribute),
        values: [LabelledValue<u64>; N],
        exemplars: &mut ExemplarRecorder<'_>,
    ) {
        let bind = |attributes: &[KeyValue]| histogram.bind(attributes);
        self.each(series, values, bind, |bound, value| bound.record(value, exemplars));
    }
}

impl<B, const N: usize> Default for Labelled<B, N> {
    fn default() -> Self {
        Self(array::from_fn(|_| OnceLock::new()))
    }
}
