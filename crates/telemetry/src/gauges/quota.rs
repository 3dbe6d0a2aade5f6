//! Gauges of what is left of vendors' limits.

use std::sync::Arc;

use opentelemetry::KeyValue;
use opentelemetry::metrics::Meter;

use crate::attributes::{label, sorted, with, word};
use crate::catalog::attributes as key;
use crate::catalog::{Metric, quota};
use crate::gauges::Current;
use crate::series_limits::SeriesLimits;
use tokengauge_measure::load::{Flow, Limited, QuotaReading};

pub fn register(meter: &Meter, current: &Current, bounds: SeriesLimits) {
    let gauge =
        |metric: &Metric, value: fn(&QuotaReading) -> Option<u64>, told: fn(Limited) -> bool| {
            let current = Arc::clone(current);
            let named = metric.has(key::LIMITED);
            let most = bounds.series * Limited::ALL.len();
            metric.observe_count_gauge(meter, move |gauge| {
                let snapshot = current.load();
                let readings = snapshot.load.quotas.iter().take(most);
                for reading in readings.filter(|reading| told(reading.limited)) {
                    if let Some(value) = value(reading) {
                        gauge.observe(value, &attributes(reading, named));
                    }
                }
            });
        };
    let is_requests = |limited| limited == Limited::Requests;
    let is_tokens = |limited| limited != Limited::Requests;
    gauge(&quota::QUOTA_REQUESTS_REMAINING, |reading| reading.allowance.remaining, is_requests);
    gauge(&quota::QUOTA_REQUESTS_LIMIT, |reading| reading.allowance.limit, is_requests);
    gauge(&quota::QUOTA_TOKENS_REMAINING, |reading| reading.allowance.remaining, is_tokens);
    gauge(&quota::QUOTA_TOKENS_LIMIT, |reading| reading.allowance.limit, is_tokens);
    let (current, most) = (Arc::clone(current), bounds.series * Limited::ALL.len());
    quota::QUOTA_RESET.observe_gauge(meter, move |gauge| {
        for reading in current.load().load.quotas.iter().take(most) {
            if let Some(reset) = reading.allowance.reset {
                gauge.observe(reset.as_secs_f64(), &attributes(reading, true));
            }
        }
    });
}

/// `named`: with what is limited, where the metric does not say so.
fn attributes(reading: &QuotaReading, named: bool) -> Vec<KeyValue> {
    let Flow { provider, model, route, vantage } = &reading.flow;
    let base = sorted(vec![
        label(key::PROVIDER, provider),
        label(key::REQUEST_MODEL, model),
        label(key::ROUTE, route),
        word(key::VANTAGE, vantage.as_str()),
    ]);
    let limited = named.then(|| word(key::LIMITED, reading.limited.as_str()));
    with(&base, limited.as_slice())
}
