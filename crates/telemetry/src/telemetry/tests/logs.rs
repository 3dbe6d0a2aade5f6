//! Tests OTLP logs: the proxy's log lines, request records and content events.
//!
//! They contain the right ids, are not exported by default, and are dropped and counted if they cannot be queued.

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use tokengauge_llm::content::CapturedContent;
use tokengauge_measure::record::Outcome;
use tokengauge_types::event::{Ending, RejectReason};
use tracing_subscriber::layer::SubscriberExt;

use super::*;
use crate::catalog;
use crate::logs::{CONTENT_EVENT, EXCEPTION_EVENT, REQUEST_EVENT};

impl Receiver {
    fn logs(&self) -> Vec<LogRecord> {
        let requests = self.seen.try_iter().filter(|seen| seen.path.to_lowercase().contains("log"));
        let requests = requests.map(|seen| ExportLogsServiceRequest::decode(seen.body).unwrap());
        requests
            .flat_map(|request| request.resource_logs)
            .inspect(|of| {
                assert!(find(&of.resource.as_ref().unwrap().attributes, "service.name").is_some());
                assert_eq!(of.schema_url, catalog::RESOURCE_SCHEMA_URL);
            })
            .flat_map(|of| of.scope_logs)
            .inspect(|of| {
                // The lines of the proxy's own log have the scope of the `tracing` bridge.
                let is_ours = of.scope.as_ref().unwrap().name == catalog::SCOPE;
                assert_eq!(of.schema_url, if is_ours { catalog::SCHEMA_URL } else { "" });
            })
            .flat_map(|of| of.log_records)
            .collect()
    }
}

fn find<'a>(attributes: &'a [KeyValue], key: &str) -> Option<&'a Value> {
    let found = attributes.iter().find(|attribute| attribute.key == key)?;
    found.value.as_ref()?.value.as_ref()
}

fn text(value: &str) -> Value {
    Value::StringValue(value.to_owned())
}

/// Starts telemetry that exports only logs.
fn start_logs(address: SocketAddr, further: &[(&str, &str)]) -> (Telemetry, RequestLog) {
    let mut variables = vec![
        ("OTEL_LOGS_EXPORTER", "otlp"),
        ("OTEL_METRICS_EXPORTER", "none"),
        ("OTEL_TRACES_EXPORTER", "none"),
    ];
    variables.extend(further);
    let (telemetry, _) = start(config(address, &variables));
    let request_log = RequestLog::start(None, "0123456789abcdef").unwrap();
    request_log.export_to(telemetry.logs().unwrap().clone());
    (telemetry, request_log)
}

fn with_content() -> Record {
    let mut record = testing::streamed();
    let content = CapturedContent {
        input_messages: Some(
            r#"[{"role":"user","parts":[{"type":"text","content":"Hi"}]}]"#.into(),
        ),
        stop_sequences: vec!["END".into()],
        truncated: true,
        ..CapturedContent::default()
    };
    record.call.as_mut().unwrap().content = Some(content.into());
    record
}

#[test]
fn all_kinds_of_records_arrive_over_both_transports() {
    for protocol in ["http/protobuf", "grpc"] {
        let receiver = Receiver::start(Behaviour::Answer);
        let variables = [
            ("OTEL_EXPORTER_OTLP_LOGS_PROTOCOL", protocol),
            ("OTEL_EXPORTER_OTLP_LOGS_HEADERS", "x-tenant=blue"),
        ];
        let (telemetry, request_log) = start_logs(receiver.address, &variables);
        let layer = telemetry.logs().unwrap().tracing_layer();
        let subscriber = tracing_subscriber::registry().with(layer);
        tracing::subscriber::with_default(subscriber, || {
            self_telemetry::listening("127.0.0.1:1", false);
            tracing::info!(target: "hyper::proto", "not exported");
        });
        request_log.record(&with_content());
        assert!(telemetry.shutdown(DEADLINE), "{protocol}");
        // Records are grouped by scope. The order of the groups varies.
        let mut records = receiver.logs();
        records.sort_by_key(|record| {
            [CONTENT_EVENT, REQUEST_EVENT].iter().position(|name| *name == record.event_name)
        });
        let [own, content, request] = records.try_into().unwrap();

        assert_eq!(own.body.unwrap().value, Some(text("listening")));
        assert_eq!(find(&own.attributes, "address"), Some(&text("127.0.0.1:1")));
        assert_eq!(own.event_name, "", "a log line is not an event");

        for record in [&request, &content] {
            assert_eq!(record.trace_id, b"0123456789abcdef");
            assert_eq!(record.span_id, b"client00");
            assert_eq!(record.time_unix_nano, 1_800_000_002_500_000_000);
        }
        assert_eq!((request.event_name.as_str(), request.severity_number), (REQUEST_EVENT, 9));
        let Some(AnyValue { value: Some(Value::KvlistValue(line)) }) = request.body else {
            panic!("the body is not a map")
        };
        assert_eq!(find(&line.values, "outcome"), Some(&text("ok")));
        assert!(
            !format!("{line:?}").contains("Hi"),
            "a request record contains no prompt or response text"
        );

        assert_eq!((content.event_name.as_str(), content.severity_number), (CONTENT_EVENT, 5));
        let stops = find(&content.attributes, "gen_ai.request.stop_sequences");
        assert!(matches!(stops, Some(Value::ArrayValue(list)) if list.values.len() == 1));
        assert_eq!(find(&content.attributes, "gen_ai.operation.name"), Some(&text("chat")));
        assert_eq!(
            find(&content.attributes, "gen_ai.usage.output_tokens"),
            Some(&Value::IntValue(101))
        );
        let messages = find(&content.attributes, "gen_ai.input.messages");
        assert!(matches!(messages, Some(Value::ArrayValue(_))), "structured: {messages:?}");
        assert!(format!("{messages:?}").contains("Hi"));
    }
}

#[test]
fn a_failed_inference_is_an_exception_event() {
    let failed = |outcome, error| {
        let mut record = testing::streamed();
        (record.outcome, record.error_type) = (outcome, testing::name(error));
        record
    };
    let mut rejected = failed(Outcome::Rejected, "overload");
    rejected.ending = Ending::Rejected(RejectReason::Overload);
    let receiver = Receiver::start(Behaviour::Answer);
    let (telemetry, request_log) = start_logs(receiver.address, &[]);
    for record in [
        failed(Outcome::Error, "rate_limit_exceeded"),
        failed(Outcome::Cancelled, "client_disconnected"),
        rejected,
        // An embeddings call is no inference.
        testing::refused(),
        testing::streamed(),
    ] {
        request_log.record(&record);
    }
    assert!(telemetry.shutdown(DEADLINE));
    let (events, requests): (Vec<_>, Vec<_>) =
        receiver.logs().into_iter().partition(|record| record.event_name == EXCEPTION_EVENT);
    assert_eq!(requests.len(), 5);
    let [event] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!((event.severity_number, event.severity_text.as_str()), (13, "WARN"));
    assert_eq!(event.span_id, b"client00");
    assert_eq!(event.attributes.len(), 1);
    assert_eq!(find(&event.attributes, "exception.type"), Some(&text("rate_limit_exceeded")));
}

#[test]
fn no_logs_are_exported_by_default_and_no_content_without_capture() {
    let receiver = Receiver::start(Behaviour::Answer);
    let (telemetry, _) = start(config(receiver.address, &[]));
    assert!(telemetry.logs().is_none());
    telemetry.record(&testing::streamed());
    assert!(telemetry.shutdown(DEADLINE));
    assert!(receiver.logs().is_empty());

    let receiver = Receiver::start(Behaviour::Answer);
    let (telemetry, request_log) = start_logs(receiver.address, &[]);
    request_log.record(&testing::streamed());
    request_log.record(&testing::plain());
    assert!(telemetry.shutdown(DEADLINE));
    let records = receiver.logs();
    assert_eq!(records.len(), 2);
    assert!(records.iter().all(|record| record.event_name == REQUEST_EVENT));
}

#[test]
fn a_hung_collector_does_not_block_and_drops_are_counted() {
    for protocol in ["http/protobuf", "grpc"] {
        let receiver = Receiver::start(Behaviour::Silent);
        let variables = [
            ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol),
            ("OTEL_BLRP_MAX_QUEUE_SIZE", "2"),
            ("OTEL_BLRP_MAX_EXPORT_BATCH_SIZE", "1"),
        ];
        let (telemetry, request_log) = start_logs(receiver.address, &variables);
        let dropped = |reason| telemetry.metrics_reader.counters().dropped(Signal::Logs, reason);
        request_log.record(&testing::streamed());
        receiver.next();
        for _ in 0..5 {
            request_log.record(&testing::streamed());
        }
        assert_eq!(dropped(DropReason::QueueFull), 3, "{protocol}: two wait");
        let before = clock::now();
        assert!(!telemetry.shutdown(Duration::from_millis(300)));
        assert!(clock::now() - before < Duration::from_secs(5), "{protocol}");
        assert_eq!(
            dropped(DropReason::Shutdown),
            3,
            "{protocol}: one record in flight, two in the queue"
        );
        request_log.record(&with_content());
        assert_eq!(dropped(DropReason::Shutdown), 5, "{protocol}: two more after the shutdown");
        assert!(Format::Text.render(&telemetry.scrape()).contains("tokengauge_self_export_dropped_total{tokengauge_drop_reason=\"queue_full\",tokengauge_signal=\"logs\"} 3"));
    }
}

#[test]
fn counts_records_that_the_collector_rejects() {
    for protocol in ["http/protobuf", "grpc"] {
        let receiver = Receiver::start(Behaviour::RefuseOnce);
        let protocol = ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol);
        let (telemetry, request_log) = start_logs(receiver.address, &[protocol]);
        request_log.record(&testing::streamed());
        assert!(!telemetry.shutdown(DEADLINE));
        let counters = telemetry.metrics_reader.counters();
        assert_eq!(counters.dropped(Signal::Logs, DropReason::Failed), 1, "{protocol:?}");
    }
}

/// The transport retries. A second retry loop in the exporter would multiply the attempts.
#[test]
fn retries_a_failed_export_three_times() {
    for protocol in ["http/protobuf", "grpc"] {
        for (failures, attempts, lost) in [(1, 2, 0), (9, 4, 1)] {
            let receiver = Receiver::start(Behaviour::Busy(failures));
            let protocol = ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol);
            let (telemetry, request_log) = start_logs(receiver.address, &[protocol]);
            request_log.record(&testing::streamed());
            assert_eq!(telemetry.shutdown(DEADLINE), lost == 0, "{protocol:?}");
            let bodies: Vec<_> = receiver.seen.try_iter().map(|seen| seen.body).collect();
            assert_eq!(bodies.len(), attempts, "{protocol:?}");
            assert!(bodies.windows(2).all(|pair| pair[0] == pair[1]), "{protocol:?}");
            let counters = telemetry.metrics_reader.counters();
            assert_eq!(counters.retries(Signal::Logs), attempts as u64 - 1, "{protocol:?}");
            assert_eq!(counters.dropped(Signal::Logs, DropReason::Failed), lost, "{protocol:?}");
        }
    }
}

/// A failed export is logged on the telemetry thread. This log line must not cause another export.
#[test]
fn the_exporters_own_log_lines_are_not_exported() {
    let receiver = Receiver::start(Behaviour::RefuseOnce);
    let (telemetry, request_log) = start_logs(receiver.address, &[]);
    let layer = telemetry.logs().unwrap().tracing_layer();
    let subscriber = tracing_subscriber::registry().with(layer);
    tracing::subscriber::with_default(subscriber, || {
        let _suppressed = Context::enter_telemetry_suppressed_scope();
        self_telemetry::export_failed("logs", "http://c", "rejected");
    });
    request_log.record(&testing::streamed());
    assert!(!telemetry.shutdown(DEADLINE));
    assert_eq!(receiver.logs().len(), 1, "only the request's record is exported");
}
