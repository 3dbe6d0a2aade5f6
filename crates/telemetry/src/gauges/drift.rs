//! Gauges of the workload's drift.

use std::sync::Arc;

use opentelemetry::metrics::Meter;

use crate::attributes::{of_flow, with, word};
use crate::catalog::attributes as key;
use crate::catalog::drift;
use crate::gauges::Current;
use crate::series_limits::SeriesLimits;
use tokengauge_measure::drift::Direction;

pub(super) fn register(meter: &Meter, current: &Current, bounds: SeriesLimits) {
    let (current, flows) = (Arc::clone(current), bounds.series);
    drift::WORKLOAD.observe_gauge(meter, move |gauge| {
        for reading in current.load().drift.flows.iter().take(flows) {
            let base = of_flow(&reading.flow);
            for (direction, lengths) in Direction::ALL.into_iter().zip(reading.lengths) {
                if let Some(index) = lengths.index {
                    let own = [word(key::TOKEN_TYPE, direction.as_str())];
                    gauge.observe(index, &with(&base, &own));
                }
            }
        }
    });
}
