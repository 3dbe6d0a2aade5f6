//! The admin pages `/stats` and `/slo`. `/stats` shows current gauges and percentiles, for use without Prometheus.
//! `docs/reference/admin-api.md` documents the fields of both pages.

use std::collections::BTreeMap;

use serde::Serialize;

use tokengauge_measure::drift::{self, Direction};
use tokengauge_measure::engine::Reading as BackendReading;
use tokengauge_measure::load::{
    self, ModelKey, Percentiles, RequestPhase, RouteReading, Summary, Throughput,
};
use tokengauge_measure::slo::{self, CountingRules, Scope, Sli};
use tokengauge_measure::timing::OutputRateRange;
use tokengauge_telemetry::request_log::rfc3339;
use tokengauge_types::clock::{MonotonicInstant, WallTime};
use tokengauge_types::event::ProxyPosition;
use tokengauge_types::label::Label;

/// The content of `/stats`.
#[derive(Debug, Serialize)]
pub struct Stats<'a> {
    process: Process,
    routes: Vec<RouteView<'a>>,
    total: Traffic,
    models: Vec<ModelView<'a>>,
    drift: Vec<DriftView<'a>>,
    /// Metrics of the engines.
    backends: &'a [BackendReading],
}

/// The measurements that `/stats` shows.
#[derive(Debug)]
pub struct StatsReading {
    pub at: MonotonicInstant,
    pub load: load::Reading,
    pub drift: drift::Reading,
    pub backends: Vec<BackendReading>,
}

#[derive(Debug, Serialize)]
struct Process {
    version: &'static str,
    started: String,
    uptime_seconds: f64,
}

#[derive(Debug, Serialize)]
struct RouteView<'a> {
    route: &'a Label,
    position: ProxyPosition,
    /// Number of requests in flight, by state.
    in_flight: BTreeMap<&'static str, u64>,
    queue_depth: u64,
    stalled: u64,
}

/// The names of a model on a route.
#[derive(Debug, Serialize)]
struct Names<'a> {
    provider: &'a Label,
    model: &'a Label,
    route: &'a Label,
    position: ProxyPosition,
}

#[derive(Debug, Serialize)]
struct ModelView<'a> {
    #[serde(flatten)]
    names: Names<'a>,
    #[serde(flatten)]
    traffic: Traffic,
}

/// Traffic of one model on one route, or of all models and routes.
#[derive(Debug, Serialize)]
struct Traffic {
    throughput_tokens_per_second: BTreeMap<&'static str, Windows>,
    last_five_minutes: Recent,
}

/// Tokens per second by time window. A window is `None` until the process has run for that long.
type Windows = BTreeMap<&'static str, Option<f64>>;

#[derive(Debug, Serialize)]
struct Recent {
    finished: u64,
    failed: u64,
    time_to_first_token_seconds: Option<Percentiles>,
    output_tokens_per_second: Option<Percentiles>,
    duration_seconds: Option<Percentiles>,
    time_per_output_token_seconds: Option<Percentiles>,
    output_rate_ranges: BTreeMap<&'static str, u64>,
}

#[derive(Debug, Serialize)]
struct DriftView<'a> {
    #[serde(flatten)]
    names: Names<'a>,
    #[serde(flatten)]
    lengths: BTreeMap<&'static str, drift::LengthReading>,
}

impl<'a> Stats<'a> {
    /// `started` is the start of the process.
    pub fn from_reading(reading: &'a StatsReading, started: WallTime) -> Self {
        let StatsReading { at, load, drift, backends } = reading;
        let total = &load.total;
        Self {
            process: Process {
                version: env!("CARGO_PKG_VERSION"),
                started: rfc3339(started.unix_nanos()),
                uptime_seconds: at.since(MonotonicInstant::ZERO).as_secs_f64(),
            },
            routes: load.routes.iter().map(RouteView::from_reading).collect(),
            total: Traffic::from_parts(&total.input, &total.output, &total.recent),
            models: models(load),
            drift: drift.models.iter().map(DriftView::from_reading).collect(),
            backends,
        }
    }
}

fn models<'a>(load: &'a load::Reading) -> Vec<ModelView<'a>> {
    let mut models: Vec<_> = load.models.iter().collect();
    models.sort_by(|a, b| a.model_key.by_name().cmp(&b.model_key.by_name()));
    let view = |reading: &'a load::ModelReading| ModelView {
        names: Names::from_model_key(&reading.model_key),
        traffic: Traffic::from_parts(&reading.input, &reading.output, &reading.recent),
    };
    models.into_iter().map(view).collect()
}

impl<'a> RouteView<'a> {
    fn from_reading(reading: &'a RouteReading) -> Self {
        let counts = RequestPhase::ALL.into_iter().zip(reading.active);
        Self {
            route: &reading.route_key.route,
            position: reading.route_key.position,
            in_flight: counts.map(|(state, count)| (state.as_str(), count)).collect(),
            queue_depth: reading.queue_depth(),
            stalled: reading.stalled_streams.iter().map(|streams| streams.stalled).sum(),
        }
    }
}

impl<'a> Names<'a> {
    const fn from_model_key(model_key: &'a ModelKey) -> Self {
        Self {
            provider: &model_key.provider,
            model: &model_key.model,
            route: &model_key.route,
            position: model_key.position,
        }
    }
}

impl Traffic {
    fn from_parts(input: &Throughput, output: &Throughput, recent: &Summary) -> Self {
        Self {
            throughput_tokens_per_second: BTreeMap::from([
                ("input", windows(input)),
                ("output", windows(output)),
                ("total", windows(&add_throughput(input, output))),
            ]),
            last_five_minutes: Recent::from_summary(recent),
        }
    }
}

/// Adds input and output throughput. The sum has no peak, because input is not streamed.
fn add_throughput(input: &Throughput, output: &Throughput) -> Throughput {
    let sum = |window: fn(&Throughput) -> Option<f64>| Some(window(input)? + window(output)?);
    Throughput {
        latest: sum(|of| of.latest),
        ten_seconds: sum(|of| of.ten_seconds),
        minute: sum(|of| of.minute),
        five_minutes: sum(|of| of.five_minutes),
        peak: None,
    }
}

fn windows(throughput: &Throughput) -> Windows {
    BTreeMap::from([
        ("10s", throughput.ten_seconds),
        ("1m", throughput.minute),
        ("5m", throughput.five_minutes),
        ("peak", throughput.peak),
    ])
}

impl Recent {
    fn from_summary(summary: &Summary) -> Self {
        let ranges = OutputRateRange::ALL
            .into_iter()
            .map(OutputRateRange::as_str)
            .zip(summary.output_rate_ranges);
        Self {
            finished: summary.finished,
            failed: summary.failed,
            time_to_first_token_seconds: summary.time_to_first_token,
            output_tokens_per_second: summary.output_rate,
            duration_seconds: summary.duration,
            time_per_output_token_seconds: summary.time_per_output_token,
            output_rate_ranges: ranges.chain([("voice", summary.voice)]).collect(),
        }
    }
}

impl<'a> DriftView<'a> {
    fn from_reading(reading: &'a drift::ModelDrift) -> Self {
        let lengths = Direction::ALL.into_iter().zip(reading.lengths);
        Self {
            names: Names::from_model_key(&reading.model_key),
            lengths: lengths.map(|(direction, reading)| (direction.as_str(), reading)).collect(),
        }
    }
}

/// One SLO on `/slo`.
#[derive(Debug, Serialize)]
pub struct Objective<'a> {
    name: &'a Label,
    /// All counts and ratios are those of this process.
    covers: &'static str,
    /// The value of the attribute `tokengauge.sli`.
    sli: &'static str,
    threshold: Option<Threshold>,
    scope: &'a Scope,
    counting: &'a CountingRules,
    target: f64,
    window_seconds: u64,
    good: u64,
    bad: u64,
    excluded: u64,
    error_budget_remaining: Option<f64>,
    burn_rate: BTreeMap<&'static str, Option<f64>>,
    window_covered_seconds: u64,
    time_to_exhaustion_seconds: Option<u64>,
}

/// The limit between good and bad.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Threshold {
    /// The worst good value.
    value: f64,
    /// The OpenTelemetry unit.
    unit: &'static str,
    /// "up to" if good values are at most `value`, "from" if they are at least `value`.
    good: &'static str,
}

impl<'a> Objective<'a> {
    pub fn from_reading(reading: &'a slo::Reading) -> Self {
        let objective = &reading.objective;
        Self {
            name: &objective.name,
            covers: "process",
            sli: objective.indicator.as_str(),
            threshold: threshold(objective.indicator),
            scope: &objective.scope,
            counting: &objective.counting,
            target: objective.target,
            window_seconds: objective.window.as_secs(),
            good: reading.good,
            bad: reading.bad,
            excluded: reading.excluded,
            error_budget_remaining: reading.budget,
            burn_rate: slo::BURN_WINDOWS
                .iter()
                .zip(reading.burn)
                .map(|((name, _), burn)| (*name, burn))
                .collect(),
            window_covered_seconds: reading.covered.as_secs(),
            time_to_exhaustion_seconds: reading.exhaustion.map(|time| time.as_secs()),
        }
    }
}

fn threshold(indicator: Sli) -> Option<Threshold> {
    let time = indicator.longest().map(|within| Threshold {
        value: within.as_secs_f64(),
        unit: "s",
        good: "up to",
    });
    let rate =
        indicator.lowest().map(|from| Threshold { value: from, unit: "{token}/s", good: "from" });
    time.or(rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn total_is_undefined_if_input_or_output_is() {
        let throughput = |ten_seconds, minute, peak| Throughput {
            ten_seconds,
            minute,
            peak,
            ..Throughput::default()
        };
        let input = throughput(Some(7.0), Some(1.0), None);
        let output = throughput(Some(3.0), None, Some(9.0));
        let total = add_throughput(&input, &output);
        assert_eq!(total.ten_seconds, Some(10.0));
        assert_eq!((total.minute, total.peak), (None, None));
    }
}
