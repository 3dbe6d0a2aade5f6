//! Creates instruments from catalog entries. No other module uses the SDK's builders.

use std::sync::Arc;

use opentelemetry::metrics::{AsyncInstrument, Counter, Histogram, Meter};

use crate::catalog::{Kind, Metric};
use crate::exemplars::Exemplars;

/// Creates an SDK instrument with the name, unit and description of a metric.
macro_rules! build {
    ($metric:ident, $meter:ident.$builder:ident() $(, $option:ident($value:expr))?) => {
        $meter
            .$builder($metric.name)
            .with_unit($metric.unit)
            .with_description($metric.description)
            $(.$option($value))?
            .build()
    };
}

/// A counter or histogram that is created from its catalog entry.
pub trait Instrument {
    fn build(metric: &'static Metric, meter: &Meter, exemplars: &Arc<Exemplars>) -> Self;
}

impl Instrument for Counter<u64> {
    fn build(metric: &'static Metric, meter: &Meter, _: &Arc<Exemplars>) -> Self {
        build!(metric, meter.u64_counter())
    }
}

/// Counts amounts that are not whole numbers, such as seconds or money.
impl Instrument for Counter<f64> {
    fn build(metric: &'static Metric, meter: &Meter, _: &Arc<Exemplars>) -> Self {
        build!(metric, meter.f64_counter())
    }
}

impl Instrument for Histogram<f64> {
    fn build(metric: &'static Metric, meter: &Meter, _: &Arc<Exemplars>) -> Self {
        build!(metric, meter.f64_histogram(), with_boundaries(metric.buckets.to_vec()))
    }
}

impl Instrument for Histogram<u64> {
    fn build(metric: &'static Metric, meter: &Meter, _: &Arc<Exemplars>) -> Self {
        build!(metric, meter.u64_histogram(), with_boundaries(metric.buckets.to_vec()))
    }
}

/// A number type of metrics that are read at each collection, such as gauges.
pub trait Observed: Sized + 'static {
    /// Registers `read`, which reports the current values of `metric` at each collection.
    fn observe(
        metric: &Metric,
        meter: &Meter,
        read: impl Fn(&dyn AsyncInstrument<Self>) + Send + Sync + 'static,
    );
}

macro_rules! observed {
    ($number:ty, $counter:ident, $gauge:ident) => {
        impl Observed for $number {
            fn observe(
                metric: &Metric,
                meter: &Meter,
                read: impl Fn(&dyn AsyncInstrument<Self>) + Send + Sync + 'static,
            ) {
                if metric.kind == Kind::Gauge {
                    build!(metric, meter.$gauge(), with_callback(read));
                } else {
                    build!(metric, meter.$counter(), with_callback(read));
                }
            }
        }
    };
}

observed!(u64, u64_observable_counter, u64_observable_gauge);
observed!(f64, f64_observable_counter, f64_observable_gauge);
observed!(i64, i64_observable_up_down_counter, i64_observable_gauge);
