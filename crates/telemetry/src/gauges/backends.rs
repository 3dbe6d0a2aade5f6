//! Gauges of the engines behind upstreams, and how asking them went.

use std::sync::Arc;

use opentelemetry::KeyValue;
use opentelemetry::metrics::Meter;

use crate::attributes::{label, sorted, with, word};
use crate::catalog::Metric;
use crate::catalog::attributes as key;
use crate::catalog::backend;
use crate::gauges::Current;
use tokengauge_measure::engine::{Asked, Reading};
use tokengauge_measure::record::Warm;

pub fn register(meter: &Meter, current: &Current) {
    requests(meter, current);
    let gauge = |metric: &Metric, value: fn(&Reading) -> Option<f64>| {
        let current = Arc::clone(current);
        metric.observe_gauge(meter, move |gauge| {
            for reading in &current.load().backends {
                if let Some((value, base)) = value(reading).zip(of_engine(reading)) {
                    gauge.observe(value, &base);
                }
            }
        });
    };
    gauge(&backend::KV_CACHE, |reading| reading.kv_cache);
    gauge(&backend::PREFIX_CACHE, |reading| reading.prefix_cache);
    gauge(&backend::SCRAPE_AGE, |reading| reading.scrape_age);
    let warm = Arc::clone(current);
    backend::WARM_STATE.observe_count_gauge(meter, move |gauge| {
        for reading in &warm.load().backends {
            let Some(now) = reading.warm else {
                continue;
            };
            for state in Warm::ALL {
                let own = [word(key::WARM, state.as_str())];
                gauge.observe(u64::from(state == now), &with(&of_upstream(reading), &own));
            }
        }
    });
    asking(meter, current);
}

fn requests(meter: &Meter, current: &Current) {
    let current = Arc::clone(current);
    backend::REQUESTS.observe_count_gauge(meter, move |gauge| {
        for reading in &current.load().backends {
            let Some(base) = of_engine(reading) else {
                continue;
            };
            for (state, number) in [("waiting", reading.waiting), ("running", reading.running)] {
                if let Some(number) = number {
                    gauge.observe(number, &with(&base, &[word(key::STATE, state)]));
                }
            }
        }
    });
}

fn asking(meter: &Meter, current: &Current) {
    let asked = Arc::clone(current);
    backend::SELF_SCRAPES.observe_counter(meter, move |counter| {
        for reading in &asked.load().backends {
            let numbers = reading.asked.iter().flatten();
            for (how, number) in Asked::ALL.into_iter().zip(numbers) {
                let own = [word(key::ASKED, how.as_str())];
                counter.observe(*number, &with(&of_upstream(reading), &own));
            }
        }
    });
    let implausible = Arc::clone(current);
    backend::SELF_IMPLAUSIBLE.observe_counter(meter, move |counter| {
        for reading in &implausible.load().backends {
            if reading.asked.is_some() {
                counter.observe(reading.implausible, &of_upstream(reading));
            }
        }
    });
}

fn of_upstream(reading: &Reading) -> Vec<KeyValue> {
    vec![label(key::UPSTREAM, &reading.upstream)]
}

/// `None` before an engine was recognised.
fn of_engine(reading: &Reading) -> Option<Vec<KeyValue>> {
    let engine = word(key::ENGINE, reading.engine?.as_str());
    Some(sorted(vec![label(key::UPSTREAM, &reading.upstream), engine]))
}
