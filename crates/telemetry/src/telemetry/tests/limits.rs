//! Tests that export requests stay below the size that collectors accept.

use std::collections::BTreeMap;

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::metrics::v1::Metric;
use tokengauge_llm::content::CapturedContent;
use tokengauge_types::label::Label;

use super::*;
use crate::otlp::metrics;

/// The lowest limit that can be set.
const LIMIT: usize = TelemetryConfig::MIN_REQUEST_BYTES;

/// Number of calls. Their spans, log records and metrics are each many times larger than the limit.
const CALLS: usize = 64;

fn limited(address: SocketAddr, protocol: &str) -> TelemetryConfig {
    let limit = LIMIT.to_string();
    config(
        address,
        &[
            ("TOKENGAUGE_OTLP_MAX_REQUEST_BYTES", &limit),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol),
            ("OTEL_LOGS_EXPORTER", "otlp"),
        ],
    )
}

/// Records calls of different models and tenants.
fn record_calls(instruments: &Instruments) {
    let limiter = CardinalityLimiter::new(CardinalityLimits::default(), []);
    for number in 0..CALLS {
        let mut record = testing::streamed();
        let call = record.call.as_mut().unwrap();
        call.series.model = Label::from_trusted(["a", "b", "c", "d"][number % 4]);
        call.series.tenant = Some(limiter.admit(
            tokengauge_types::label::Dimension::Tenant,
            &testing::name(&format!("tenant-{}", number / 4)).unwrap(),
        ));
        instruments.record_end(&record, &limiter);
    }
}

#[test]
fn requests_of_every_signal_stay_within_the_limit_and_lose_nothing() {
    for protocol in ["http/protobuf", "grpc"] {
        let receiver = Receiver::start(Behaviour::Answer);
        let (telemetry, instruments) = start(limited(receiver.address, protocol));
        let request_log = RequestLog::start(None, "0123456789abcdef").unwrap();
        request_log.export_to(telemetry.logs().unwrap().clone());
        record_calls(&instruments);
        for _ in 0..CALLS {
            telemetry.record(&testing::streamed());
            request_log.record(&testing::streamed());
        }
        assert!(telemetry.shutdown(DEADLINE), "{protocol}");
        let (mut spans, mut logs, mut ends) = (0, 0, 0);
        for Seen { path, body, .. } in receiver.seen.try_iter() {
            assert!(body.len() <= LIMIT, "{protocol} {path}: {}", body.len());
            let path = path.to_lowercase();
            if path.contains("trace") {
                let request = ExportTraceServiceRequest::decode(body).unwrap();
                spans += request.resource_spans[0].scope_spans[0].spans.len();
            } else if path.contains("logs") {
                let request = ExportLogsServiceRequest::decode(body).unwrap();
                logs += request.resource_logs[0].scope_logs[0].log_records.len();
            } else {
                let request = ExportMetricsServiceRequest::decode(body).unwrap();
                ends += counted(&request, "tokengauge.requests.finished").unwrap_or(0);
            }
        }
        assert_eq!((spans, logs), (2 * CALLS, CALLS), "{protocol}");
        assert_eq!(ends, i64::try_from(CALLS).unwrap(), "{protocol}");
        for signal in Signal::ALL {
            let counters = telemetry.metrics_reader.counters();
            let dropped = DropReason::ALL.map(|reason| counters.dropped(signal, reason));
            assert_eq!(dropped, [0; DropReason::ALL.len()], "{protocol} {signal:?}");
        }
    }
}

/// Returns the metrics of export requests by name, each with all its data points in order.
fn merged(bodies: &[Bytes]) -> BTreeMap<String, Vec<u8>> {
    let mut all: BTreeMap<String, Metric> = BTreeMap::new();
    for body in bodies {
        let mut request = ExportMetricsServiceRequest::decode(body.clone()).unwrap();
        let [resource] = request.resource_metrics.as_mut_slice() else { panic!("{request:?}") };
        assert!(has_key(&resource.resource.as_ref().unwrap().attributes, "service.name"));
        let [scope] = resource.scope_metrics.as_mut_slice() else { panic!("{resource:?}") };
        assert_eq!(scope.scope.as_ref().unwrap().name, "tokengauge");
        for metric in scope.metrics.drain(..) {
            match all.get_mut(&metric.name) {
                None => drop(all.insert(metric.name.clone(), metric)),
                Some(known) => append(known, metric),
            }
        }
    }
    all.into_iter().map(|(name, metric)| (name, metric.encode_to_vec())).collect()
}

fn has_key(attributes: &[KeyValue], key: &str) -> bool {
    attributes.iter().any(|attribute| attribute.key == key)
}

fn append(known: &mut Metric, more: Metric) {
    match (known.data.as_mut().unwrap(), more.data.unwrap()) {
        (Data::Gauge(known), Data::Gauge(more)) => known.data_points.extend(more.data_points),
        (Data::Sum(known), Data::Sum(more)) => known.data_points.extend(more.data_points),
        (Data::Histogram(known), Data::Histogram(more)) => {
            known.data_points.extend(more.data_points);
        }
        (known, more) => panic!("{known:?} {more:?}"),
    }
}

#[test]
fn split_metrics_are_the_same_data_points() {
    let (telemetry, instruments) = start(TelemetryConfig::default());
    record_calls(&instruments);
    let snapshot = telemetry.metrics_reader.collect();
    let whole = metrics::requests(&snapshot, usize::MAX);
    assert_eq!((whole.bodies.len(), whole.too_large), (1, 0));
    let parts = metrics::requests(&snapshot, LIMIT);
    assert!(parts.bodies.len() > 10, "{}", parts.bodies.len());
    assert!(parts.bodies.iter().all(|part| part.len() <= LIMIT));
    assert_eq!(parts.too_large, 0);
    assert_eq!(merged(&parts.bodies), merged(&whole.bodies));
}

#[test]
fn data_points_that_are_larger_than_a_request_are_counted() {
    let (telemetry, instruments) = start(TelemetryConfig::default());
    record_calls(&instruments);
    let snapshot = telemetry.metrics_reader.collect();
    let whole = metrics::requests(&snapshot, usize::MAX);
    let none = metrics::requests(&snapshot, 1);
    let points: usize = snapshot.metrics().map(points).sum();
    assert_eq!((none.bodies.len(), none.too_large), (0, points));
    assert!(merged(&whole.bodies).len() < points);
}

/// Returns the number of data points of a metric.
fn points(metric: &opentelemetry_sdk::metrics::data::Metric) -> usize {
    use opentelemetry_sdk::metrics::data::{AggregatedMetrics, MetricData};
    fn count<T>(data: &MetricData<T>) -> usize {
        match data {
            MetricData::Gauge(data) => data.data_points().count(),
            MetricData::Sum(data) => data.data_points().count(),
            MetricData::Histogram(data) => data.data_points().count(),
            MetricData::ExponentialHistogram(data) => data.data_points().count(),
        }
    }
    match metric.data() {
        AggregatedMetrics::F64(data) => count(data),
        AggregatedMetrics::U64(data) => count(data),
        AggregatedMetrics::I64(data) => count(data),
    }
}

#[test]
fn an_item_that_is_larger_than_a_request_is_dropped_alone_and_counted() {
    for protocol in ["http/protobuf", "grpc"] {
        let receiver = Receiver::start(Behaviour::Answer);
        let (telemetry, _) = start(limited(receiver.address, protocol));
        let request_log = RequestLog::start(None, "0123456789abcdef").unwrap();
        request_log.export_to(telemetry.logs().unwrap().clone());
        let mut record = testing::streamed();
        let text = "long ".repeat(LIMIT);
        let messages =
            format!(r#"[{{"role":"user","parts":[{{"type":"text","content":"{text}"}}]}}]"#);
        let content =
            CapturedContent { input_messages: Some(messages), ..CapturedContent::default() };
        record.call.as_mut().unwrap().content = Some(Box::new(content));
        for record in [&record, &testing::streamed()] {
            telemetry.record(record);
            request_log.record(record);
        }
        assert!(telemetry.shutdown(DEADLINE), "{protocol}");
        // The span and the content event of the first call are too large.
        for (signal, expected) in [(Signal::Traces, 1), (Signal::Logs, 1), (Signal::Metrics, 0)] {
            let counters = telemetry.metrics_reader.counters();
            let dropped = DropReason::ALL.map(|reason| counters.dropped(signal, reason));
            assert_eq!(dropped, [0, 0, 0, expected, 0], "{protocol} {signal:?}");
        }
        let (_, traces) = receiver.all();
        let spans: usize =
            traces.iter().map(|it| it.resource_spans[0].scope_spans[0].spans.len()).sum();
        assert_eq!(spans, 3, "{protocol}");
    }
}
