//! Plain lines of the demo without a terminal: throughput, latency and queue of each model, and the error budgets.

use std::collections::BTreeMap;
use std::time::Duration;

use tokengauge_measure::load::{self, RequestPhase};
use tokengauge_measure::slo;
use tokengauge_observe::Observer;
use tokengauge_types::label::Name;

/// Text for an undefined value.
const UNDEFINED: &str = "–";

/// The name of a model for requests without a known model, such as plain HTTP requests.
const UNKNOWN: &str = "(unknown)";

/// The figures of one model. An undefined figure is `None`, and shown as `–` instead of 0.
#[derive(Clone, Debug, Default, PartialEq)]
struct Row {
    model: String,
    /// Output tokens per second of all streams of this model, over the last 10 s.
    output: Option<f64>,
    /// Highest output tokens per second within one second, over the last 5 min.
    peak: Option<f64>,
    /// Median output rate of one stream, in tokens per second.
    per_stream: Option<f64>,
    /// Median time to first token in seconds.
    first_token_p50: Option<f64>,
    first_token_p95: Option<f64>,
    /// Number of requests that wait for their first token.
    queue: u64,
    in_flight: u64,
    finished: u64,
    failed: u64,
}

/// One request in flight.
#[derive(Clone, Copy, Debug)]
struct Live<'a> {
    /// The model of the request. `None` until the model is known.
    model: Option<&'a str>,
    /// Whether the request is still waiting for its first token.
    waiting: bool,
}

/// Returns the lines for the current state of the proxy: one per model and one per SLO.
pub fn current(observer: &Observer, since_start: Duration) -> String {
    observer.with_current_state(|requests, at| {
        let (load, objectives) = requests.reading(at);
        let streams = requests.streams(at);
        let live = streams.iter().map(|stream| Live {
            model: stream.model.as_ref().map(Name::as_str),
            waiting: matches!(stream.phase, RequestPhase::Queued | RequestPhase::Waiting),
        });
        render(&rows(&load, live), &objectives, since_start)
    })
}

/// Returns one row per model, the busiest first.
fn rows<'a>(load: &load::Reading, live: impl IntoIterator<Item = Live<'a>>) -> Vec<Row> {
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
    rows
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
}

fn sum(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a + b),
        (one, other) => one.or(other),
    }
}

fn render(rows: &[Row], objectives: &[slo::Reading], since_start: Duration) -> String {
    let at = since_start.as_secs();
    let mut out = String::new();
    for row in rows {
        out.push_str(&format!(
            "t={at}s model={} tps={} peak={} tps_per_stream={} ttft_p50={} ttft_p95={} queue={} in_flight={} finished={} failed={}\n",
            row.model,
            rate(row.output),
            rate(row.peak),
            rate(row.per_stream),
            seconds(row.first_token_p50),
            seconds(row.first_token_p95),
            row.queue,
            row.in_flight,
            row.finished,
            row.failed
        ));
    }
    for reading in objectives {
        out.push_str(&format!(
            "t={at}s objective={} good={} bad={} budget_left={}\n",
            reading.objective.name,
            reading.good,
            reading.bad,
            percent(reading.budget)
        ));
    }
    out
}

fn rate(per_second: Option<f64>) -> String {
    per_second.map_or(UNDEFINED.to_owned(), |rate| {
        if rate < 100.0 { format!("{rate:.1}") } else { format!("{rate:.0}") }
    })
}

/// Formats a time without a space, so that scripts can split a line at spaces.
fn seconds(seconds: Option<f64>) -> String {
    seconds.map_or(UNDEFINED.to_owned(), |seconds| {
        if seconds < 1.0 { format!("{:.0}ms", seconds * 1e3) } else { format!("{seconds:.2}s") }
    })
}

fn percent(share: Option<f64>) -> String {
    share.map_or(UNDEFINED.to_owned(), |share| format!("{:.1}%", share * 100.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokengauge_measure::load::{
        ActiveStreams, ModelKey, ModelReading, Percentiles, Summary, Throughput,
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
        let load = load::Reading {
            models: vec![
                model("idle", "a", None, 1),
                model("busy", "a", Some(10.0), 5),
                model("busy", "b", Some(5.0), 3),
            ],
            ..load::Reading::default()
        };
        let live = [(Some("busy"), false), (Some("busy"), true), (None, false)]
            .map(|(model, waiting)| Live { model, waiting });
        let rows = rows(&load, live);
        let models: Vec<_> = rows.iter().map(|row| row.model.as_str()).collect();
        assert_eq!(models, ["busy", UNKNOWN, "idle"]);
        let busy = &rows[0];
        assert_eq!((busy.output, busy.finished, busy.failed), (Some(15.0), 8, 2));
        assert_eq!((busy.in_flight, busy.queue), (2, 1));
        assert_eq!(busy.first_token_p50, Some(5.0), "of the route with the most requests");
        assert_eq!(rows[2].output, None, "an undefined rate is not zero");
    }

    #[test]
    fn renders_one_line_per_model_and_per_slo() {
        let row = Row {
            model: "sim-fast".to_owned(),
            output: Some(1_234.4),
            peak: Some(1_600.0),
            per_stream: Some(88.26),
            first_token_p50: Some(0.0123),
            first_token_p95: Some(1.5),
            queue: 3,
            in_flight: 14,
            finished: 120,
            failed: 2,
        };
        let idle = Row { model: "idle".to_owned(), ..Row::default() };
        let objective = slo::Objective {
            name: Label::from_trusted("availability"),
            indicator: slo::Sli::Availability,
            target: 0.99,
            window: Duration::from_secs(3_600),
            scope: slo::Scope::default(),
            counting: slo::CountingRules::default(),
        };
        let reading = slo::Reading {
            objective,
            good: 118,
            bad: 2,
            excluded: 0,
            counts: slo::Counts { good: 118, bad: 2 },
            budget: Some(-15.5),
            burn: [None; 7],
            covered: Duration::ZERO,
            exhaustion: None,
        };
        let text = render(&[row, idle], &[reading], Duration::from_secs(7));
        let expected = [
            "t=7s model=sim-fast tps=1234 peak=1600 tps_per_stream=88.3 ttft_p50=12ms ttft_p95=1.50s queue=3 in_flight=14 finished=120 failed=2",
            "t=7s model=idle tps=– peak=– tps_per_stream=– ttft_p50=– ttft_p95=– queue=0 in_flight=0 finished=0 failed=0",
            "t=7s objective=availability good=118 bad=2 budget_left=-1550.0%",
        ];
        assert_eq!(text.lines().collect::<Vec<_>>(), expected);
    }
}
