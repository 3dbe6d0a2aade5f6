//! Creates instruments from catalog entries. No other module uses the SDK's builders.

use opentelemetry::KeyValue;
use opentelemetry::metrics::{
    AsyncInstrument, BoundCounter, BoundHistogram, Counter, Histogram, Meter,
};

use crate::catalog::{Kind, Metric};
use crate::config::Profile;

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

/// A counter or histogram.
#[derive(Clone, Debug)]
pub enum Instrument {
    Count(Counter<u64>),
    /// Counts amounts that are not whole numbers, such as seconds or money.
    Amount(Counter<f64>),
    Histogram(Histogram<f64>),
}

/// An [`Instrument`] that is bound to one series.
#[derive(Clone, Debug)]
pub enum Series {
    /// A series of a metric that is not exported.
    Off,
    Count(BoundCounter<u64>),
    Amount(BoundCounter<f64>),
    Histogram(BoundHistogram<f64>),
}

impl Instrument {
    pub fn new(metric: &'static Metric, meter: &Meter, profile: Profile) -> Self {
        if metric.kind == Kind::Histogram {
            let bounds = metric.buckets.of(profile).to_vec();
            Self::Histogram(build!(metric, meter.f64_histogram(), with_boundaries(bounds)))
        } else if matches!(metric.unit, "s" | "{currency}" | "{unit}") {
            Self::Amount(build!(metric, meter.f64_counter()))
        } else {
            Self::Count(build!(metric, meter.u64_counter()))
        }
    }

    /// Returns the series with `attributes`, which must be sorted by key.
    pub fn bind(&self, attributes: &[KeyValue]) -> Series {
        match self {
            Self::Count(counter) => Series::Count(counter.bind(attributes)),
            Self::Amount(counter) => Series::Amount(counter.bind(attributes)),
            Self::Histogram(histogram) => Series::Histogram(histogram.bind(attributes)),
        }
    }

    pub fn record(&self, value: f64, attributes: &[KeyValue]) {
        match self {
            Self::Count(counter) => counter.add(whole(value), attributes),
            Self::Amount(counter) => counter.add(value, attributes),
            Self::Histogram(histogram) => histogram.record(value, attributes),
        }
    }
}

impl Series {
    #[inline]
    pub fn record(&self, value: f64) {
        match self {
            Self::Off => {}
            Self::Count(counter) => counter.add(whole(value)),
            Self::Amount(counter) => counter.add(value),
            Self::Histogram(histogram) => histogram.record(value),
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a count: not negative, whole, and far below 2⁵³"
)]
const fn whole(count: f64) -> u64 {
    count as u64
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
