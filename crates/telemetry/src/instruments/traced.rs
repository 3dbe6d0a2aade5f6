//! Histograms of what is known at an exchange's end: each record may leave an exemplar.

use std::sync::Arc;

use opentelemetry::KeyValue;
use opentelemetry::metrics::{BoundHistogram, Histogram};

use crate::exemplars::{Exemplars, Marks, Series};
use crate::names::Metric;

#[derive(Debug)]
pub struct Traced<T> {
    histogram: Histogram<T>,
    metric: &'static Metric,
    exemplars: Arc<Exemplars>,
}

/// The same bound to one series.
#[derive(Clone, Debug)]
pub struct BoundTraced<T> {
    histogram: BoundHistogram<T>,
    series: Series,
    bounds: &'static [f64],
}

impl<T> Traced<T> {
    /// `histogram` is the one of `metric`.
    pub fn new(
        metric: &'static Metric,
        histogram: Histogram<T>,
        exemplars: &Arc<Exemplars>,
    ) -> Self {
        Self { histogram, metric, exemplars: Arc::clone(exemplars) }
    }

    /// `attributes` in the order of their keys.
    pub fn bind(&self, attributes: &[KeyValue]) -> BoundTraced<T> {
        BoundTraced {
            histogram: self.histogram.bind(attributes),
            series: self.exemplars.series(self.metric, attributes),
            bounds: self.metric.buckets,
        }
    }
}

impl BoundTraced<f64> {
    pub fn record(&self, value: f64, marks: &mut Marks<'_>) {
        self.histogram.record(value);
        marks.bucket(self.series, self.bounds, value);
    }
}

impl BoundTraced<u64> {
    pub fn record(&self, value: u64, marks: &mut Marks<'_>) {
        self.histogram.record(value);
        marks.bucket(self.series, self.bounds, value as f64);
    }
}
