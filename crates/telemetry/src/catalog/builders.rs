//! Builds instruments from catalog entries. No other module calls the SDK's builders.

use opentelemetry::metrics::{AsyncInstrument, Counter, Histogram, Meter};

use crate::catalog::Metric;

impl Metric {
    pub fn counter(&self, meter: &Meter) -> Counter<u64> {
        meter.u64_counter(self.name).with_unit(self.unit).with_description(self.description).build()
    }

    /// Builds a counter of fractional amounts, such as seconds or money.
    pub fn fraction_counter(&self, meter: &Meter) -> Counter<f64> {
        meter.f64_counter(self.name).with_unit(self.unit).with_description(self.description).build()
    }

    pub fn histogram(&self, meter: &Meter) -> Histogram<f64> {
        meter
            .f64_histogram(self.name)
            .with_unit(self.unit)
            .with_description(self.description)
            .with_boundaries(self.buckets.to_vec())
            .build()
    }

    /// Builds a histogram of integers.
    pub fn count_histogram(&self, meter: &Meter) -> Histogram<u64> {
        meter
            .u64_histogram(self.name)
            .with_unit(self.unit)
            .with_description(self.description)
            .with_boundaries(self.buckets.to_vec())
            .build()
    }

    pub fn observe_gauge(
        &self,
        meter: &Meter,
        read: impl Fn(&dyn AsyncInstrument<f64>) + Send + Sync + 'static,
    ) {
        meter
            .f64_observable_gauge(self.name)
            .with_unit(self.unit)
            .with_description(self.description)
            .with_callback(read)
            .build();
    }

    pub fn observe_count_gauge(
        &self,
        meter: &Meter,
        read: impl Fn(&dyn AsyncInstrument<u64>) + Send + Sync + 'static,
    ) {
        meter
            .u64_observable_gauge(self.name)
            .with_unit(self.unit)
            .with_description(self.description)
            .with_callback(read)
            .build();
    }

    pub fn observe_counter(
        &self,
        meter: &Meter,
        read: impl Fn(&dyn AsyncInstrument<u64>) + Send + Sync + 'static,
    ) {
        meter
            .u64_observable_counter(self.name)
            .with_unit(self.unit)
            .with_description(self.description)
            .with_callback(read)
            .build();
    }

    /// Builds a counter of fractional amounts whose value is read at collection.
    pub fn observe_fraction_counter(
        &self,
        meter: &Meter,
        read: impl Fn(&dyn AsyncInstrument<f64>) + Send + Sync + 'static,
    ) {
        meter
            .f64_observable_counter(self.name)
            .with_unit(self.unit)
            .with_description(self.description)
            .with_callback(read)
            .build();
    }

    pub fn observe_up_down(
        &self,
        meter: &Meter,
        read: impl Fn(&dyn AsyncInstrument<i64>) + Send + Sync + 'static,
    ) {
        meter
            .i64_observable_up_down_counter(self.name)
            .with_unit(self.unit)
            .with_description(self.description)
            .with_callback(read)
            .build();
    }
}
