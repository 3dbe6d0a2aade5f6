//! Histograms of what is known at an exchange's end: each record may leave an exemplar.

use std::sync::Arc;

use opentelemetry::KeyValue;
use opentelemetry::metrics::{BoundHistogram, Histogram};

use crate::catalog::Metric;
use crate::exemplars::{ExemplarRecorder, Exemplars, SeriesId};

#[derive(Debug)]
pub struct ExemplarHistogram<T> {
    histogram: Histogram<T>,
    metric: &'static Metric,
    exemplars: Arc<Exemplars>,
}

/// The same bound to one series.
#[derive(Clone, Debug)]
pub struct BoundExemplarHistogram<T> {
    histogram: BoundHistogram<T>,
    series: SeriesId,
    bounds: &'static [f64],
}

impl<T> ExemplarHistogram<T> {
    /// `histogram` is the one of `metric`.
    pub fn new(
        metric: &'static Metric,
        histogram: Histogram<T>,
        exemplars: &Arc<Exemplars>,
    ) -> Self {
        Self { histogram, metric, exemplars: Arc::clone(exemplars) }
    }

    /// `attributes` in the order of their keys.
    pub fn bind(&self, attributes: &[KeyValue]) -> BoundExemplarHistogram<T> {
        BoundExemplarHistogram {
            histogram: self.histogram.bind(attributes),
            series: self.exemplars.series(self.metric, attributes),
            bounds: self.metric.buckets,
        }
    }
}

impl BoundExemplarHistogram<f64> {
    pub fn record(&self, value: f64, marks: &mut ExemplarRecorder<'_>) {
        self.histogram.record(value);
        marks.bucket(self.series, self.bounds, value);
    }
}

impl BoundExemplarHistogram<u64> {
    pub fn record(&self, value: u64, marks: &mut ExemplarRecorder<'_>) {
        self.histogram.record(value);
        marks.bucket(self.series, self.bounds, value as f64);
    }
}
