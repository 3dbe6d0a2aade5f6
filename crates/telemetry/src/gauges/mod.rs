//! Gauges, and counters that others keep: read from the snapshot that the collector took just before.

use std::sync::Arc;

use arc_swap::ArcSwap;
use opentelemetry::metrics::{AsyncInstrument, Meter};

use crate::attributes::{label, of_flow, of_lane, sorted, with, word};
use crate::catalog::attributes as key;
use crate::catalog::{Metric, health, tokengauge};
use crate::series_limits::SeriesLimits;
use crate::snapshot::StateSnapshot;
use opentelemetry::KeyValue;
use tokengauge_measure::load::{State, Throughput};
use tokengauge_measure::slo::{BURN_WINDOWS, Reading};
use tokengauge_measure::timing::Awaited;

mod backends;
mod drift;
mod process;
mod quota;
pub mod spending;

/// The snapshot of the collection that is going on.
pub type Current = Arc<ArcSwap<StateSnapshot>>;

pub fn register(meter: &Meter, current: &Current, bounds: SeriesLimits) {
    load(meter, current, bounds);
    drift::register(meter, current, bounds);
    quota::register(meter, current, bounds);
    objectives(meter, current);
    backends::register(meter, current);
    spending::register(meter, current);
    observer(meter, current);
    process::register(meter, current);
    health::SELF_BUILD.observe_count_gauge(meter, |gauge| {
        gauge.observe(1, &[KeyValue::new(key::VERSION.key, env!("CARGO_PKG_VERSION"))]);
    });
}

fn load(meter: &Meter, current: &Current, bounds: SeriesLimits) {
    let (active, lanes) = (Arc::clone(current), bounds.lanes);
    tokengauge::ACTIVE_REQUESTS.observe_up_down(meter, move |instrument| {
        for reading in active.load().load.lanes.iter().take(lanes) {
            let base = of_lane(&reading.lane);
            for (state, count) in State::ALL.into_iter().zip(reading.active) {
                let count = i64::try_from(count).unwrap_or(i64::MAX);
                instrument.observe(count, &with(&base, &[word(key::STATE, state.as_str())]));
            }
        }
    });
    let depth = Arc::clone(current);
    tokengauge::QUEUE_DEPTH.observe_count_gauge(meter, move |gauge| {
        for reading in depth.load().load.lanes.iter().take(lanes) {
            let bound = word(key::BOUND, reading.bound().as_str());
            let attributes = with(&of_lane(&reading.lane), &[bound]);
            gauge.observe(reading.queue_depth(), &attributes);
        }
    });
    let stalled = Arc::clone(current);
    tokengauge::STREAM_STALLED.observe_count_gauge(meter, move |gauge| {
        for reading in stalled.load().load.lanes.iter().take(lanes) {
            let base = of_lane(&reading.lane);
            for (awaited, silence) in Awaited::ALL.into_iter().zip(reading.silence) {
                let attributes = with(&base, &[word(key::AWAITED, awaited.as_str())]);
                gauge.observe(silence.stalled, &attributes);
            }
        }
    });
    let idle = Arc::clone(current);
    tokengauge::STREAM_IDLE.observe_gauge(meter, move |gauge| {
        for reading in idle.load().load.lanes.iter().take(lanes) {
            let base = of_lane(&reading.lane);
            for (awaited, silence) in Awaited::ALL.into_iter().zip(reading.silence) {
                if let Some(longest) = silence.longest {
                    let attributes = with(&base, &[word(key::AWAITED, awaited.as_str())]);
                    gauge.observe(longest.as_secs_f64(), &attributes);
                }
            }
        }
    });
    let (current, flows) = (Arc::clone(current), bounds.series);
    tokengauge::THROUGHPUT.observe_gauge(meter, move |gauge| {
        for flow in current.load().load.flows.iter().take(flows) {
            let base = of_flow(&flow.flow);
            throughput(gauge, &base, "input", &flow.input);
            throughput(gauge, &base, "output", &flow.output);
        }
    });
}

fn throughput(
    gauge: &dyn AsyncInstrument<f64>,
    base: &[KeyValue],
    direction: &'static str,
    rates: &Throughput,
) {
    for (window, rate) in [
        ("10s", rates.ten_seconds),
        ("1m", rates.minute),
        ("5m", rates.five_minutes),
        ("peak", rates.peak),
    ] {
        if let Some(rate) = rate {
            let own = [word(key::TOKEN_TYPE, direction), word(key::WINDOW, window)];
            gauge.observe(rate, &with(base, &own));
        }
    }
}

fn objectives(meter: &Meter, current: &Current) {
    let events = Arc::clone(current);
    tokengauge::SLO_EVENTS.observe_counter(meter, move |counter| {
        for reading in &events.load().slo {
            let base = of_objective(reading);
            for (result, count) in [("good", reading.good), ("bad", reading.bad)] {
                counter.observe(count, &with(&base, &[word(key::RESULT, result)]));
            }
        }
    });
    let gauge = |metric: &Metric, value: fn(&Reading) -> Option<f64>| {
        let current = Arc::clone(current);
        metric.observe_gauge(meter, move |gauge| {
            for reading in &current.load().slo {
                if let Some(value) = value(reading) {
                    gauge.observe(value, &of_objective(reading));
                }
            }
        });
    };
    gauge(&tokengauge::SLO_OBJECTIVE, |reading| Some(reading.objective.target));
    gauge(&tokengauge::SLO_THRESHOLD, |reading| {
        Some(reading.objective.indicator.longest()?.as_secs_f64())
    });
    gauge(&tokengauge::SLO_RATE_THRESHOLD, |reading| reading.objective.indicator.lowest());
    gauge(&tokengauge::SLO_BUDGET, |reading| reading.budget);
    gauge(&tokengauge::SLO_COVERED, |reading| Some(reading.covered.as_secs_f64()));
    gauge(&tokengauge::SLO_EXHAUSTION, |reading| Some(reading.exhaustion?.as_secs_f64()));
    let current = Arc::clone(current);
    tokengauge::SLO_BURN.observe_gauge(meter, move |gauge| {
        for reading in &current.load().slo {
            let base = of_objective(reading);
            for ((window, _), burn) in BURN_WINDOWS.into_iter().zip(reading.burn) {
                if let Some(burn) = burn {
                    gauge.observe(burn, &with(&base, &[word(key::WINDOW, window)]));
                }
            }
        }
    });
}

fn of_objective(reading: &Reading) -> Vec<KeyValue> {
    sorted(vec![
        label(key::SLO, &reading.objective.name),
        word(key::INDICATOR, reading.objective.indicator.as_str()),
    ])
}

fn observer(meter: &Meter, current: &Current) {
    let lost = Arc::clone(current);
    health::SELF_LOST.observe_counter(meter, move |counter| {
        counter.observe(lost.load().losses.bytes, &[]);
    });
    let unobserved = Arc::clone(current);
    health::SELF_UNOBSERVED.observe_counter(meter, move |counter| {
        counter.observe(unobserved.load().losses.exchanges, &[]);
    });
    let backlog = Arc::clone(current);
    health::SELF_BACKLOG.observe_count_gauge(meter, move |gauge| {
        gauge.observe(backlog.load().losses.backlog, &[]);
    });
    let refused = Arc::clone(current);
    health::SELF_REFUSED.observe_counter(meter, move |counter| {
        counter.observe(refused.load().refused_requests, &[]);
    });
    let written = Arc::clone(current);
    health::SELF_LOGGED.observe_counter(meter, move |counter| {
        counter.observe(written.load().request_log.written, &[]);
    });
    let unlogged = Arc::clone(current);
    health::SELF_UNLOGGED.observe_counter(meter, move |counter| {
        for (reason, lines) in unlogged.load().request_log.dropped {
            counter.observe(lines, &[word(key::DROP_REASON, reason.as_str())]);
        }
    });
    let overflow = Arc::clone(current);
    health::SELF_OVERFLOW.observe_counter(meter, move |counter| {
        let snapshot = overflow.load();
        for (dimension, refused) in &snapshot.label_overflow {
            counter.observe(*refused, &[word(key::DIMENSION, dimension.as_str())]);
        }
        counter.observe(snapshot.folded_series, &[word(key::DIMENSION, "series")]);
    });
}
