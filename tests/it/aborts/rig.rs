//! Runs a proxy with the observer and exporter of the real program, and collects the data that it exports for one
//! exchange.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use tokengauge_measure::record::Record;
use tokengauge_measure::slo::Objective;
use tokengauge_observe::{InFlightRequests, Observer, ObserverSettings, Sinks};
use tokengauge_telemetry::prometheus::Format;
use tokengauge_telemetry::{Instruments, SnapshotSource, StateSnapshot, Telemetry};
use tokengauge_types::label::{CardinalityLimiter, CardinalityLimits};

use super::table::Facts;
use crate::support::collector::Collector;
use crate::support::{Proxy, Setup, within};

/// Timeout of a flush. Every flush takes less than a tenth of it.
const FLUSH: Duration = Duration::from_secs(20);

const SERVER: i32 = 2;
const CLIENT: i32 = 3;

pub struct Rig {
    pub proxy: Proxy,
    pub observer: Arc<Observer>,
    telemetry: Arc<Telemetry>,
    collector: Collector,
}

impl Rig {
    pub async fn start(setup: Setup) -> Self {
        let collector = Collector::start().await;
        let endpoint = format!("http://{}/v1/traces", collector.address);
        Self::with(setup, Vec::new(), collector, Some(endpoint)).await
    }

    /// Starts a proxy that does not export spans.
    pub async fn unexported(setup: Setup) -> Self {
        Self::judged(setup, Vec::new()).await
    }

    /// Starts a proxy with SLOs that does not export spans.
    pub async fn judged(setup: Setup, objectives: Vec<Objective>) -> Self {
        Self::with(setup, objectives, Collector::start().await, None).await
    }

    async fn with(
        setup: Setup,
        objectives: Vec<Objective>,
        collector: Collector,
        endpoint: Option<String>,
    ) -> Self {
        let (config, problems) =
            tokengauge_telemetry::TelemetryConfig::from_env(|name| match name {
                "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT" => endpoint.clone(),
                _ => None,
            });
        assert!(problems.is_empty());
        let observing = Arc::<OnceLock<Weak<Observer>>>::default();
        let current = Arc::clone(&observing);
        let readings = SnapshotSource::new(move || {
            let observer = current.get().and_then(Weak::upgrade);
            let read = |observer: Arc<Observer>| {
                observer.with_current_state(|requests, now| requests.snapshot(now))
            };
            observer.map_or_else(StateSnapshot::default, read)
        });
        let (instruments, metrics) =
            Instruments::new(&config, CardinalityLimits::default(), readings);
        let telemetry = Arc::new(Telemetry::start(config, metrics).unwrap());
        let spans = Arc::clone(&telemetry);
        let sinks =
            Sinks { instruments, record: Box::new(move |record: &Record| spans.record(record)) };
        let limiter = Arc::new(CardinalityLimiter::new(CardinalityLimits::default(), []));
        let proxy = setup.start().await;
        let requests =
            InFlightRequests::new(ObserverSettings::with_objectives(objectives), limiter, sinks);
        let observer = Arc::new(Observer::start(Arc::clone(&proxy.channel), requests).unwrap());
        observing.set(Arc::downgrade(&observer)).unwrap();
        Self { proxy, observer, telemetry, collector }
    }

    /// Returns all metrics in the text format.
    pub fn metrics(&self) -> String {
        Format::Text.render(&self.telemetry.scrape())
    }

    /// Waits until every exchange has ended. Returns all exported spans, and all metrics in the text format.
    pub async fn told(self) -> (Vec<Span>, String) {
        let Self { proxy, observer, telemetry, collector } = self;
        within("the exchanges' ends", async {
            while proxy.channel.open_exchanges() > 0 {
                tokio::task::yield_now().await;
            }
        })
        .await;
        assert_eq!(observer.with_current_state(|requests, _| requests.in_flight()), 0);
        let metrics = Format::Text.render(&telemetry.scrape());
        let ending = tokio::task::spawn_blocking(move || {
            observer.stop(Duration::from_secs(30));
            telemetry.shutdown(FLUSH)
        });
        assert!(ending.await.unwrap(), "all data was delivered");
        (collector.spans(), metrics)
    }
}

/// Returns the facts of the only exchange, as its spans and metrics report them.
pub fn facts((spans, metrics): &(Vec<Span>, String)) -> Facts {
    let of_kind = |kind| spans.iter().filter(move |span| span.kind == kind);
    let server = of_kind(SERVER).next().expect("a SERVER span");
    let client = of_kind(CLIENT).next();
    if let Some(client) = client {
        assert_eq!(client.trace_id, server.trace_id);
        assert_eq!(client.parent_span_id, server.span_id);
        assert_eq!(client.end_time_unix_nano, server.end_time_unix_nano);
        assert!(client.start_time_unix_nano >= server.start_time_unix_nano);
        for both in ["tokengauge.outcome", "tokengauge.error_source"] {
            assert_eq!(attribute(client, both), attribute(server, both));
        }
    }
    let durations = moved(metrics, "http_server_request_duration_seconds_count");
    assert_eq!(durations.len(), 1, "expected one duration: {durations:?}");
    let finished = moved(metrics, "tokengauge_requests_finished_total");
    let [finished] = finished.as_slice() else {
        panic!("expected one finished request: {finished:?}");
    };
    let span = client.unwrap_or(server);
    Facts {
        status: attribute(span, "http.response.status_code"),
        outcome: attribute(span, "tokengauge.outcome").unwrap(),
        error_source: attribute(span, "tokengauge.error_source").unwrap(),
        error: attribute(span, "error.type"),
        stage: label(finished, "tokengauge_stage"),
        tokens: attribute(span, "tokengauge.output_tokens.counted"),
        usage: attribute(span, "gen_ai.usage.output_tokens"),
        complete: attribute(span, "tokengauge.complete"),
        finish: attribute(span, "gen_ai.response.finish_reasons"),
        spans: spans.len(),
    }
}

/// Returns the series of `name` that are not 0. Each of them must be 1.
fn moved<'a>(metrics: &'a str, name: &str) -> Vec<&'a str> {
    let series = metrics
        .lines()
        .filter(|line| line.split('{').next() == Some(name) && !line.ends_with(" 0"));
    series.inspect(|line| assert!(line.ends_with(" 1"), "{line}")).collect()
}

fn label(series: &str, key: &str) -> String {
    let (_, rest) = series.split_once(&format!("{key}=\"")).unwrap();
    rest.split('"').next().unwrap().to_owned()
}

fn attribute(span: &Span, key: &str) -> Option<String> {
    let mut found = span.attributes.iter().filter(|it| it.key == key);
    let value = found.next()?.value.as_ref()?.value.as_ref()?;
    assert!(found.next().is_none(), "duplicate attribute {key}");
    Some(shown(value))
}

fn shown(value: &Value) -> String {
    match value {
        Value::StringValue(text) => text.clone(),
        Value::IntValue(number) => number.to_string(),
        Value::ArrayValue(values) => {
            let texts = values.values.iter().flat_map(|value| &value.value);
            texts.map(shown).collect::<Vec<_>>().join(" ")
        }
        other @ (Value::BoolValue(_)
        | Value::DoubleValue(_)
        | Value::KvlistValue(_)
        | Value::BytesValue(_)
        | Value::StringValueStrindex(_)) => panic!("{other:?}"),
    }
}
