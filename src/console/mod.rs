//! The live view of `tokengauge demo` in the terminal: throughput, latency and error budgets.

mod render;

use std::collections::BTreeMap;
use std::time::Duration;

use tokengauge_measure::load;
use tokengauge_measure::slo;

pub use render::{Screen, render, render_lines};

/// The content of the view. An undefined figure is `None`, and shown as `–` instead of 0.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct View {
    /// One row per model, the busiest first.
    pub rows: Vec<Row>,
    /// Totals over all models. Only rates and counts are set, because percentiles cannot be added up.
    pub totals: Row,
    pub budgets: Vec<Budget>,
}

/// The figures of one model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    pub model: String,
    /// Output tokens per second of all streams of this model, over the last 10 s.
    pub output: Option<f64>,
    /// Highest output tokens per second within one second, over the last 5 min.
    pub peak: Option<f64>,
    /// Median output rate of one stream, in tokens per second.
    pub per_stream: Option<f64>,
    /// Median time to first token in seconds.
    pub first_token_p50: Option<f64>,
    pub first_token_p95: Option<f64>,
    /// Number of requests that wait for their first token.
    pub queue: u64,
    pub in_flight: u64,
    pub finished: u64,
    pub failed: u64,
}

/// The error budget of one objective.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Budget {
    pub objective: String,
    pub target: f64,
    pub good: u64,
    pub bad: u64,
    /// Remaining part of the error budget, at most 1. Negative if the budget is overspent.
    pub remaining: Option<f64>,
    /// Burn rate of the error budget over the last 5 min. A rate of 1 spends the budget exactly within its window.
    pub burn_5m: Option<f64>,
    pub burn_1h: Option<f64>,
    pub exhaustion: Option<Duration>,
}

/// One request in flight.
#[derive(Clone, Copy, Debug)]
pub struct Live<'a> {
    /// The model of the request. `None` until the model is known.
    pub model: Option<&'a str>,
    /// Whether the request is still waiting for its first token.
    pub waiting: bool,
}

/// Name of the row for requests without a known model, such as plain HTTP requests.
const UNKNOWN: &str = "(unknown)";

impl View {
    /// Builds the view from the current load, the objectives and the requests in flight.
    pub fn from_readings<'a>(
        load: &load::Reading,
        objectives: &[slo::Reading],
        live: impl IntoIterator<Item = Live<'a>>,
    ) -> Self {
        let mut rows: BTreeMap<&str, Row> = BTreeMap::new();
        for reading in &load.models {
            rows.entry(reading.model_key.model.as_str()).or_default().add(reading);
        }
        for exchange in live {
            let row = rows.entry(exchange.model.unwrap_or(UNKNOWN)).or_default();
            row.in_flight += 1;
            row.queue += u64::from(exchange.waiting);
        }
        let mut rows: Vec<Row> =
            rows.into_iter().map(|(model, row)| Row { model: model.to_owned(), ..row }).collect();
        rows.sort_by(|a, b| b.output.unwrap_or(0.0).total_cmp(&a.output.unwrap_or(0.0)));
        Self {
            totals: Row::total(load, &rows),
            rows,
            budgets: objectives.iter().map(Budget::from_reading).collect(),
        }
    }
}

impl Row {
    /// Adds the figures of one route to the row of its model. Rates and counts are added up. Percentiles cannot be
    /// added up, so the row shows the percentiles of a single busy route.
    fn add(&mut self, reading: &load::ModelReading) {
        let recent = &reading.recent;
        if recent.finished >= self.finished || self.first_token_p50.is_none() {
            let first = recent.time_to_first_token;
            self.first_token_p50 =
                first.map(|percentiles| percentiles.p50).or(self.first_token_p50);
            self.first_token_p95 =
                first.map(|percentiles| percentiles.p95).or(self.first_token_p95);
            self.per_stream =
                recent.output_rate.map(|percentiles| percentiles.p50).or(self.per_stream);
        }
        self.output = sum(self.output, reading.output.latest);
        self.peak = sum(self.peak, reading.output.peak);
        self.finished += recent.finished;
        self.failed += recent.failed;
    }

    fn total(load: &load::Reading, rows: &[Self]) -> Self {
        let in_flight = load.routes.iter().map(|route| route.active.iter().sum::<u64>());
        Self {
            output: rows.iter().fold(None, |total, row| sum(total, row.output)),
            queue: load.routes.iter().map(load::RouteReading::queue_depth).sum(),
            in_flight: in_flight.sum(),
            finished: rows.iter().map(|row| row.finished).sum(),
            failed: rows.iter().map(|row| row.failed).sum(),
            ..Self::default()
        }
    }
}

impl Budget {
    fn from_reading(reading: &slo::Reading) -> Self {
        let burn = |window| {
            let index = slo::BURN_WINDOWS.iter().position(|(name, _)| *name == window)?;
            *reading.burn.get(index)?
        };
        Self {
            objective: reading.objective.name.to_string(),
            target: reading.objective.target,
            good: reading.good,
            bad: reading.bad,
            remaining: reading.budget,
            burn_5m: burn("5m"),
            burn_1h: burn("1h"),
            exhaustion: reading.exhaustion,
        }
    }
}

fn sum(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a + b),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokengauge_measure::load::{
        ActiveStreams, ModelKey, ModelReading, Percentiles, RouteKey, RouteReading, Summary,
        Throughput,
    };
    use tokengauge_types::event::ProxyPosition;
    use tokengauge_types::label::Label;

    fn model(model: &str, route: &str, latest: Option<f64>, finished: u64) -> ModelReading {
        ModelReading {
            model_key: ModelKey {
                provider: Label::from_trusted("p"),
                model: Label::from_trusted(model),
                route: Label::from_trusted(route),
                position: ProxyPosition::Outbound,
            },
            input: Throughput::default(),
            output: Throughput { latest, ..Throughput::default() },
            recent: Summary {
                time_to_first_token: Some(Percentiles {
                    p50: finished as f64,
                    p95: 2.0,
                    ..Percentiles::default()
                }),
                finished,
                failed: 1,
                ..Summary::default()
            },
            streams: ActiveStreams::default(),
        }
    }

    #[test]
    fn merges_routes_of_a_model_and_sorts_by_output() {
        let route_key =
            RouteKey { route: Label::from_trusted("a"), position: ProxyPosition::Outbound };
        let load = load::Reading {
            quotas: Vec::new(),
            routes: vec![RouteReading {
                route_key,
                active: [1, 2, 3, 4],
                backend_waiting: None,
                stalled_streams: [load::StalledStreams::default(); 2],
            }],
            models: vec![
                model("idle", "a", None, 1),
                model("busy", "a", Some(10.0), 5),
                model("busy", "b", Some(5.0), 3),
            ],
            ..load::Reading::default()
        };
        let live = [(Some("busy"), false), (Some("busy"), true), (None, false)]
            .map(|(model, waiting)| Live { model, waiting });
        let view = View::from_readings(&load, &[], live);
        let models: Vec<_> = view.rows.iter().map(|row| row.model.as_str()).collect();
        assert_eq!(models, ["busy", UNKNOWN, "idle"]);
        let busy = &view.rows[0];
        assert_eq!((busy.output, busy.finished, busy.failed), (Some(15.0), 8, 2));
        assert_eq!((busy.in_flight, busy.queue), (2, 1));
        assert_eq!(
            busy.first_token_p50,
            Some(5.0),
            "the burn rate is that of the model with the most requests"
        );
        assert_eq!(view.rows[2].output, None, "an undefined rate is not zero");
        assert_eq!(
            (view.totals.queue, view.totals.in_flight, view.totals.output),
            (3, 10, Some(15.0))
        );
    }

    #[test]
    fn reads_burn_rates_of_their_windows() {
        let objective = slo::Objective {
            name: Label::from_trusted("o"),
            indicator: slo::Sli::Availability,
            target: 0.99,
            window: Duration::from_secs(3_600),
            scope: slo::Scope::default(),
            counting: slo::CountingRules::default(),
        };
        let reading = slo::Reading {
            objective,
            good: 9,
            bad: 1,
            excluded: 0,
            counts: slo::Counts { good: 9, bad: 1 },
            budget: Some(0.5),
            burn: [Some(1.0), Some(2.0), Some(3.0), None, None, None, None],
            covered: Duration::ZERO,
            exhaustion: None,
        };
        let view = View::from_readings(&load::Reading::default(), &[reading], []);
        let budget = &view.budgets[0];
        assert_eq!(
            (budget.burn_5m, budget.burn_1h, budget.remaining),
            (Some(1.0), Some(3.0), Some(0.5))
        );
        assert_eq!(view.totals.output, None);
    }
}
