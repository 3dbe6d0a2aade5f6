//! Tests exports to OTLP receivers on loopback that accept, reject, never respond or are down.

use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver as Inbox, Sender as Outbox, channel};

use bytes::{BufMut, Bytes, BytesMut};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use opentelemetry_proto::tonic::collector::logs::v1::{
    ExportLogsPartialSuccess, ExportLogsServiceResponse,
};
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsPartialSuccess, ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point;
use prost::Message;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::prometheus::Format;

mod connections;
mod limits;
mod logs;
use crate::RequestLog;
use crate::catalog;
use crate::config::BatchConfig;
use crate::instruments::Instruments;
use crate::sampling::SamplingDecision;
use crate::snapshot::{SnapshotSource, StateSnapshot};
use crate::testing;
use tokengauge_types::clock;
use tokengauge_types::error::WithCauses;
use tokengauge_types::label::{CardinalityLimiter, CardinalityLimits};

/// Time limit for all operations on loopback, long enough for a busy machine.
const DEADLINE: Duration = Duration::from_secs(30);

#[derive(Clone, Copy)]
enum Behaviour {
    Answer,
    /// Rejects the first export with an error after which no retry is allowed.
    RefuseOnce,
    /// Rejects the first export with an error after which a retry is allowed.
    BusyOnce,
    /// Rejects that many attempts with a retryable error.
    Busy(u32),
    /// Accepts each export except for three items.
    RejectItems,
    /// Accepts connections and requests, and never responds.
    Silent,
    /// Never responds on the first connection, as if its path had failed. Later connections work.
    SilentFirst,
}

struct Seen {
    path: String,
    headers: http::HeaderMap,
    /// Body without the prefix of five bytes that gRPC adds.
    body: Bytes,
    peer: Peer,
}

/// The connection of an export.
#[derive(Clone, Debug, Default)]
struct Peer {
    /// Number of connections before this one.
    connection: usize,
    /// The client's certificate.
    certificate: Option<Vec<u8>>,
}

/// An OTLP receiver for HTTP and gRPC. The content type of a request shows its transport.
struct Receiver {
    address: SocketAddr,
    seen: Inbox<Seen>,
    _runtime: Runtime,
}

impl Receiver {
    fn start(behaviour: Behaviour) -> Self {
        Self::with(behaviour, None)
    }

    fn with(behaviour: Behaviour, tls: Option<TlsAcceptor>) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let (outbox, seen) = channel();
        let refusals = match behaviour {
            Behaviour::Answer
            | Behaviour::Silent
            | Behaviour::SilentFirst
            | Behaviour::RejectItems => 0,
            Behaviour::RefuseOnce | Behaviour::BusyOnce => 1,
            Behaviour::Busy(times) => times,
        };
        let refusals = Arc::new(AtomicU32::new(refusals));
        runtime.spawn(async move {
            for connection in 0.. {
                let (stream, _) = listener.accept().await.unwrap();
                let behaviour = match (matches!(behaviour, Behaviour::SilentFirst), connection) {
                    (true, 0) => Behaviour::Silent,
                    (true, _) => Behaviour::Answer,
                    (false, _) => behaviour,
                };
                let peer = Peer { connection, certificate: None };
                let state = Connection { behaviour, outbox: outbox.clone(), peer };
                tokio::spawn(serve(stream, tls.clone(), state, Arc::clone(&refusals)));
            }
        });
        Self { address, seen, _runtime: runtime }
    }

    fn next(&self) -> Seen {
        self.seen.recv_timeout(DEADLINE).expect("an export arrives")
    }

    /// Returns all metrics and traces received so far.
    fn all(&self) -> (Vec<ExportMetricsServiceRequest>, Vec<ExportTraceServiceRequest>) {
        let (mut metrics, mut traces) = (Vec::new(), Vec::new());
        for seen in self.seen.try_iter() {
            if seen.path.to_lowercase().contains("metrics") {
                metrics.push(ExportMetricsServiceRequest::decode(seen.body).unwrap());
            } else if seen.path.to_lowercase().contains("trace") {
                traces.push(ExportTraceServiceRequest::decode(seen.body).unwrap());
            }
        }
        (metrics, traces)
    }
}

#[derive(Clone)]
struct Connection {
    behaviour: Behaviour,
    outbox: Outbox<Seen>,
    peer: Peer,
}

/// Serves one connection until the client disconnects.
async fn serve(
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    mut state: Connection,
    refusals: Arc<AtomicU32>,
) {
    let builder = auto::Builder::new(TokioExecutor::new());
    let service = |state: Connection| {
        hyper::service::service_fn(move |request| {
            answer(request, state.clone(), Arc::clone(&refusals))
        })
    };
    match tls {
        None => drop(builder.serve_connection(TokioIo::new(stream), service(state)).await),
        Some(tls) => {
            if let Ok(stream) = tls.accept(stream).await {
                let certificates = stream.get_ref().1.peer_certificates();
                state.peer.certificate = certificates.and_then(|all| Some(all.first()?.to_vec()));
                drop(builder.serve_connection(TokioIo::new(stream), service(state)).await);
            }
        }
    }
}

type Answer = Result<Response<BoxBody<Bytes, std::convert::Infallible>>, std::convert::Infallible>;

async fn answer(
    request: Request<Incoming>,
    Connection { behaviour, outbox, peer }: Connection,
    refusals: Arc<AtomicU32>,
) -> Answer {
    let (head, body) = request.into_parts();
    let Ok(body) = body.collect().await else { std::future::pending().await };
    let grpc = head
        .headers
        .get("content-type")
        .is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
    let mut body = body.to_bytes();
    if grpc {
        drop(body.split_to(5));
    }
    let mut message = Vec::new();
    if matches!(behaviour, Behaviour::RejectItems) {
        message = rejection(head.uri.path());
    }
    let seen = Seen { path: head.uri.path().to_owned(), headers: head.headers, body, peer };
    outbox.send(seen).ok();
    if matches!(behaviour, Behaviour::Silent) {
        std::future::pending::<()>().await;
    }
    let left =
        refusals.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
    let (status, grpc_status) = match (left, behaviour) {
        (Err(_), _) => (200, "0"),
        (Ok(_), Behaviour::BusyOnce | Behaviour::Busy(_)) => (503, "14"),
        (Ok(_), _) => (400, "3"),
    };
    let mut bytes = BytesMut::new();
    let response = Response::builder();
    if !grpc {
        bytes.put_slice(&message);
        return Ok(response.status(status).body(Full::new(bytes.freeze()).boxed()).unwrap());
    }
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(message.len()).unwrap());
    bytes.put_slice(&message);
    let trailers = http::HeaderMap::from_iter([(
        "grpc-status".parse().unwrap(),
        grpc_status.parse().unwrap(),
    )]);
    let body = Full::new(bytes.freeze()).with_trailers(std::future::ready(Some(Ok(trailers))));
    Ok(response.header("content-type", "application/grpc").body(body.boxed()).unwrap())
}

/// Returns the response of a collector that accepts an export except for three items.
fn rejection(path: &str) -> Vec<u8> {
    let error_message = "too old".to_owned();
    let path = path.to_lowercase();
    if path.contains("trace") {
        let partial = ExportTracePartialSuccess { rejected_spans: 3, error_message };
        ExportTraceServiceResponse { partial_success: Some(partial) }.encode_to_vec()
    } else if path.contains("metrics") {
        let partial = ExportMetricsPartialSuccess { rejected_data_points: 3, error_message };
        ExportMetricsServiceResponse { partial_success: Some(partial) }.encode_to_vec()
    } else {
        let partial = ExportLogsPartialSuccess { rejected_log_records: 3, error_message };
        ExportLogsServiceResponse { partial_success: Some(partial) }.encode_to_vec()
    }
}

fn config(address: SocketAddr, further: &[(&str, &str)]) -> TelemetryConfig {
    let endpoint = format!("http://{address}");
    let (config, problems) = TelemetryConfig::from_env(|name| {
        let given =
            further.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        given.or_else(|| (name == "OTEL_EXPORTER_OTLP_ENDPOINT").then(|| endpoint.clone()))
    });
    assert!(problems.is_empty(), "{problems:?}");
    config
}

fn start(config: TelemetryConfig) -> (Telemetry, Arc<Instruments>) {
    let (instruments, metrics_reader) = Instruments::new(
        &config,
        CardinalityLimits::default(),
        SnapshotSource::new(StateSnapshot::default),
    );
    (Telemetry::start(config, metrics_reader).unwrap(), instruments)
}

/// Returns the sum over all series of one counter in an export.
fn counted(request: &ExportMetricsServiceRequest, name: &str) -> Option<i64> {
    let mut metrics =
        request.resource_metrics.iter().flat_map(|of| &of.scope_metrics).flat_map(|of| &of.metrics);
    let metric = metrics.find(|metric| metric.name == name)?;
    let Some(Data::Sum(sum)) = &metric.data else { panic!("{name} is not a sum") };
    let values = sum.data_points.iter().map(|point| match point.value {
        Some(number_data_point::Value::AsInt(value)) => value,
        other => panic!("{other:?}"),
    });
    Some(values.sum())
}

fn lost(telemetry: &Telemetry, reason: DropReason) -> u64 {
    telemetry.metrics_reader.counters().dropped(Signal::Traces, reason)
}

fn arrives_over(protocol: &str) {
    let receiver = Receiver::start(Behaviour::Answer);
    let (telemetry, instruments) = start(config(
        receiver.address,
        &[
            ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol),
            ("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=blue"),
            ("OTEL_RESOURCE_ATTRIBUTES", "service.instance.id=pod-1"),
        ],
    ));
    instruments.record_start(&testing::route());
    telemetry.record(&testing::streamed());
    assert!(telemetry.shutdown(DEADLINE), "everything was delivered");
    let seen: Vec<_> = receiver.seen.try_iter().collect();
    assert_eq!(seen.len(), 2);
    for seen in &seen {
        assert_eq!(seen.headers["x-tenant"], "blue");
    }
    let of = |word: &str| {
        let mut of = seen.iter();
        of.find(|seen| seen.path.to_lowercase().contains(word)).unwrap()
    };
    let metrics = ExportMetricsServiceRequest::decode(of("metrics").body.clone()).unwrap();
    assert_eq!(counted(&metrics, "tokengauge.requests.started"), Some(1));
    for of in &metrics.resource_metrics {
        assert_eq!(of.schema_url, catalog::RESOURCE_SCHEMA_URL);
        assert!(of.scope_metrics.iter().all(|of| of.schema_url == catalog::SCHEMA_URL));
    }
    let traces = of("trace");
    let agent = traces.headers["user-agent"].to_str().unwrap();
    assert!(agent.starts_with("tokengauge/"), "{agent}");
    two_spans(&ExportTraceServiceRequest::decode(traces.body.clone()).unwrap());
}

/// Asserts that an export contains the two spans of one exchange, with the resource of this process.
fn two_spans(traces: &ExportTraceServiceRequest) {
    let [of] = traces.resource_spans.as_slice() else { panic!("{traces:?}") };
    let resource: Vec<_> =
        of.resource.as_ref().unwrap().attributes.iter().map(|kv| kv.key.as_str()).collect();
    for key in ["service.name", "service.version", "service.instance.id", "telemetry.sdk.name"] {
        assert!(resource.contains(&key), "{key}");
    }
    assert_eq!(of.scope_spans[0].scope.as_ref().unwrap().name, "tokengauge");
    assert_eq!(of.scope_spans[0].schema_url, catalog::SCHEMA_URL);
    assert_eq!(of.schema_url, catalog::RESOURCE_SCHEMA_URL);
    let [server, client] = of.scope_spans[0].spans.as_slice() else { panic!("{traces:?}") };
    assert_eq!((server.kind, client.kind), (2, 3));
    assert_eq!(
        (server.parent_span_id.as_slice(), &client.parent_span_id),
        (b"parent00".as_slice(), &server.span_id)
    );
    assert_eq!(server.trace_id, b"0123456789abcdef");
    assert_eq!(client.end_time_unix_nano - client.start_time_unix_nano, 2_500_000_000);
}

#[test]
fn metrics_and_spans_arrive_over_http() {
    arrives_over("http/protobuf");
}

#[test]
fn metrics_and_spans_arrive_over_grpc() {
    arrives_over("grpc");
}

/// Returns the trace and span ids of CLIENT spans, and the ids in the exemplars of the time to first token.
fn linked(receiver: &Receiver) -> [Vec<(Vec<u8>, Vec<u8>)>; 2] {
    let (metrics, traces) = receiver.all();
    let spans = traces
        .iter()
        .flat_map(|request| &request.resource_spans)
        .flat_map(|of| &of.scope_spans)
        .flat_map(|of| &of.spans);
    let spans = spans
        .filter(|span| span.kind == 3)
        .map(|span| (span.trace_id.clone(), span.span_id.clone()));
    let last = metrics.last().unwrap();
    let mut metrics = last.resource_metrics[0].scope_metrics[0].metrics.iter();
    let metric = metrics.find(|metric| metric.name == "gen_ai.server.time_to_first_token").unwrap();
    let Some(Data::Histogram(histogram)) = &metric.data else { panic!("{metric:?}") };
    let exemplars = histogram
        .data_points
        .iter()
        .flat_map(|point| &point.exemplars)
        .map(|exemplar| (exemplar.trace_id.clone(), exemplar.span_id.clone()));
    [spans.collect(), exemplars.collect()]
}

#[test]
fn exemplars_refer_to_exported_spans() {
    for protocol in ["http/protobuf", "grpc"] {
        for (sampler, number) in [("always_on", 1), ("always_off", 0)] {
            let receiver = Receiver::start(Behaviour::Answer);
            let (telemetry, instruments) = start(config(
                receiver.address,
                &[("OTEL_EXPORTER_OTLP_PROTOCOL", protocol), ("OTEL_TRACES_SAMPLER", sampler)],
            ));
            let record = testing::streamed();
            instruments
                .record_end(&record, &CardinalityLimiter::new(CardinalityLimits::default(), []));
            telemetry.record(&record);
            assert!(telemetry.shutdown(DEADLINE));
            let [spans, exemplars] = linked(&receiver);
            assert_eq!(spans, exemplars, "{protocol} {sampler}");
            assert_eq!(spans.len(), number, "{protocol} {sampler}");
            let text = Format::OpenMetrics.render(&telemetry.scrape());
            assert_eq!(text.contains(" # {trace_id="), number > 0);
        }
    }
}

#[test]
fn exports_metrics_at_each_interval_and_spans_when_a_batch_is_full() {
    let receiver = Receiver::start(Behaviour::Answer);
    let interval = ("OTEL_METRIC_EXPORT_INTERVAL", "20");
    let (telemetry, _instruments) = start(config(
        receiver.address,
        &[
            interval,
            ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "2"),
            ("OTEL_BSP_SCHEDULE_DELAY", "3600000"),
        ],
    ));
    telemetry.record(&testing::streamed());
    let mut missing = vec!["/v1/metrics", "/v1/traces", "/v1/metrics"];
    while !missing.is_empty() {
        let path = receiver.next().path;
        if let Some(place) = missing.iter().position(|missing| *missing == path) {
            missing.remove(place);
        }
    }
    assert!(telemetry.shutdown(DEADLINE));
}

#[test]
fn compresses_if_configured() {
    for (protocol, header) in [("http/protobuf", "content-encoding"), ("grpc", "grpc-encoding")] {
        let receiver = Receiver::start(Behaviour::Answer);
        let gzip = ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip");
        let (telemetry, _) =
            start(config(receiver.address, &[("OTEL_EXPORTER_OTLP_PROTOCOL", protocol), gzip]));
        telemetry.record(&testing::streamed());
        assert!(telemetry.shutdown(DEADLINE));
        for seen in [receiver.next(), receiver.next()] {
            assert_eq!(seen.headers[header], "gzip");
            assert_eq!(seen.body[..2], [0x1f, 0x8b], "{protocol} {}", seen.path);
        }
    }
}

#[test]
fn shutdown_ends_in_time_if_the_collector_hangs() {
    for protocol in ["http/protobuf", "grpc"] {
        let receiver = Receiver::start(Behaviour::Silent);
        let batch = ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "2");
        let (telemetry, _) =
            start(config(receiver.address, &[("OTEL_EXPORTER_OTLP_PROTOCOL", protocol), batch]));
        telemetry.record(&testing::streamed());
        receiver.next();
        telemetry.record(&testing::streamed());
        let bound = Duration::from_millis(300);
        let before = clock::now();
        assert!(!telemetry.shutdown(bound));
        let took = clock::now() - before;
        assert!(took < Duration::from_secs(5), "{protocol}: {took:?}");
        assert_eq!(
            lost(&telemetry, DropReason::Shutdown),
            4,
            "{protocol}: two spans in flight, two in the queue"
        );
        telemetry.record(&testing::streamed());
        assert_eq!(
            lost(&telemetry, DropReason::Shutdown),
            6,
            "{protocol}: two more after the shutdown"
        );
        assert!(!telemetry.shutdown(bound), "a second shutdown has the same result");
        assert!(Format::Text.render(&telemetry.scrape()).contains("tokengauge_self_export_dropped_total{tokengauge_drop_reason=\"shutdown\",tokengauge_signal=\"traces\"} 6"));
    }
}

#[test]
fn an_export_without_response_times_out() {
    let receiver = Receiver::start(Behaviour::Silent);
    let limits = [("OTEL_EXPORTER_OTLP_TIMEOUT", "50"), ("OTEL_METRIC_EXPORT_INTERVAL", "20")];
    let (telemetry, _) = start(config(receiver.address, &limits));
    // A second export can only arrive after the first one has timed out.
    receiver.next();
    receiver.next();
    assert!(!telemetry.shutdown(DEADLINE));
}

#[test]
fn counts_spans_dropped_while_the_collector_is_down() {
    // The port is bound but has no listener. Connections are refused, and no other process can use the port.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let address = socket.local_addr().unwrap();
    let (telemetry, _) = start(config(address, &[("OTEL_EXPORTER_OTLP_TIMEOUT", "200")]));
    telemetry.record(&testing::streamed());
    assert!(!telemetry.shutdown(DEADLINE));
    assert_eq!(lost(&telemetry, DropReason::Failed), 2);
    let text = Format::Text.render(&telemetry.scrape());
    assert!(text.contains("tokengauge_self_export_requests_total{tokengauge_result=\"failed\",tokengauge_signal=\"metrics\"} 1"), "{text}");
}

#[test]
fn metrics_recover_with_the_next_export() {
    let receiver = Receiver::start(Behaviour::RefuseOnce);
    let interval = ("OTEL_METRIC_EXPORT_INTERVAL", "20");
    let (telemetry, instruments) =
        start(config(receiver.address, &[interval, ("OTEL_TRACES_EXPORTER", "none")]));
    instruments.record_start(&testing::route());
    receiver.next();
    instruments.record_start(&testing::route());
    assert!(telemetry.shutdown(DEADLINE), "the last export is delivered");
    let (metrics, _) = receiver.all();
    let last = metrics.last().unwrap();
    assert_eq!(
        counted(last, "tokengauge.requests.started"),
        Some(2),
        "the rejected values are in the next export"
    );
    assert_eq!(counted(last, "tokengauge.self.export.dropped"), Some(1));
}

#[test]
fn items_that_the_collector_rejects_are_dropped_and_counted() {
    for protocol in ["http/protobuf", "grpc"] {
        let receiver = Receiver::start(Behaviour::RejectItems);
        let variables = [("OTEL_EXPORTER_OTLP_PROTOCOL", protocol), ("OTEL_LOGS_EXPORTER", "otlp")];
        let (telemetry, _) = start(config(receiver.address, &variables));
        telemetry.record(&testing::streamed());
        let request_log = RequestLog::start(None, "0123456789abcdef").unwrap();
        request_log.export_to(telemetry.logs().unwrap().clone());
        request_log.record(&testing::streamed());
        assert!(telemetry.shutdown(DEADLINE), "{protocol}: the exports are accepted");
        for signal in Signal::ALL {
            let counters = telemetry.metrics_reader.counters();
            let dropped = DropReason::ALL.map(|reason| counters.dropped(signal, reason));
            assert_eq!(dropped, [0, 0, 3, 0, 0], "{protocol} {signal:?}");
        }
    }
}

#[test]
fn deltas_of_a_failed_export_are_kept_for_the_next() {
    for protocol in ["http/protobuf", "grpc"] {
        // The first export fails after three retries.
        let receiver = Receiver::start(Behaviour::Busy(4));
        let (telemetry, instruments) = start(config(
            receiver.address,
            &[
                ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol),
                ("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "delta"),
                ("OTEL_METRIC_EXPORT_INTERVAL", "50"),
                ("OTEL_TRACES_EXPORTER", "none"),
            ],
        ));
        instruments.record_start(&testing::route());
        let refused: Vec<_> = (0..4).map(|_| receiver.next().body).collect();
        assert!(refused.windows(2).all(|pair| pair[0] == pair[1]), "retries");
        instruments.record_start(&testing::route());
        assert!(telemetry.shutdown(DEADLINE), "{protocol}");
        let (metrics, _) = receiver.all();
        let first = ExportMetricsServiceRequest::decode(refused[0].clone()).unwrap();
        assert_eq!(metrics[0], first, "{protocol}: the failed one is first");
        let started: i64 =
            metrics.iter().filter_map(|it| counted(it, "tokengauge.requests.started")).sum();
        assert_eq!(started, 2, "{protocol}");
        let counters = telemetry.metrics_reader.counters();
        assert_eq!(counters.retries(Signal::Metrics), 3, "{protocol}");
        let dropped = DropReason::ALL.map(|reason| counters.dropped(Signal::Metrics, reason));
        assert_eq!(dropped, [0; DropReason::ALL.len()], "{protocol}");
    }
}

#[test]
fn retries_spans_only_after_retryable_errors() {
    for (behaviour, protocol, delivered) in [
        (Behaviour::BusyOnce, "http/protobuf", true),
        (Behaviour::BusyOnce, "grpc", true),
        (Behaviour::RefuseOnce, "http/protobuf", false),
        (Behaviour::RefuseOnce, "grpc", false),
    ] {
        let receiver = Receiver::start(behaviour);
        let (telemetry, _) = start(config(
            receiver.address,
            &[("OTEL_EXPORTER_OTLP_PROTOCOL", protocol), ("OTEL_METRICS_EXPORTER", "none")],
        ));
        telemetry.record(&testing::streamed());
        assert_eq!(telemetry.shutdown(DEADLINE), delivered, "{protocol}");
        let (_, traces) = receiver.all();
        assert_eq!(traces.len(), if delivered { 2 } else { 1 }, "{protocol}");
        assert!(traces.windows(2).all(|pair| pair[0] == pair[1]));
        let failed = if delivered { 0 } else { 2 };
        assert_eq!(lost(&telemetry, DropReason::Failed), failed, "{protocol}");
    }
}

#[test]
fn retries_metrics_after_retryable_errors() {
    for protocol in ["http/protobuf", "grpc"] {
        let receiver = Receiver::start(Behaviour::BusyOnce);
        let (telemetry, _) = start(config(
            receiver.address,
            &[("OTEL_EXPORTER_OTLP_PROTOCOL", protocol), ("OTEL_TRACES_EXPORTER", "none")],
        ));
        assert!(telemetry.shutdown(DEADLINE), "{protocol}");
        let (metrics, _) = receiver.all();
        assert_eq!(metrics.len(), 2, "{protocol}");
        assert_eq!(metrics[0], metrics[1], "{protocol}");
    }
}

#[test]
fn a_full_queue_drops_and_counts() {
    let counters = Arc::new(ExportCounters::default());
    let batch = BatchConfig { queue: 4, size: 3, ..BatchConfig::SPANS };
    let queue = Queue::new(Signal::Traces, batch, Arc::clone(&counters));
    let spans = span::encode_spans(&testing::streamed(), None, SamplingDecision::default());
    for span in spans.iter().cycle().take(6) {
        queue.offer(span.clone(), span.len());
    }
    assert_eq!(queue.refusal(), Some(DropReason::QueueFull));
    assert_eq!(counters.dropped(Signal::Traces, DropReason::QueueFull), 2);
    assert_eq!([queue.take().len(), queue.take().len(), queue.take().len()], [3, 1, 0]);
    assert_eq!(queue.refusal(), None);
    queue.offer(spans[0].clone(), spans[0].len());
    assert_eq!(queue.take().len(), 1, "the queue accepts items again");
}

#[test]
fn exports_only_sampled_traces() {
    let receiver = Receiver::start(Behaviour::Answer);
    let (telemetry, _) = start(config(
        receiver.address,
        &[("OTEL_TRACES_SAMPLER", "always_off"), ("OTEL_METRICS_EXPORTER", "none")],
    ));
    telemetry.record(&testing::streamed());
    telemetry.record(&testing::refused());
    assert!(telemetry.shutdown(DEADLINE));
    let (_, traces) = receiver.all();
    let spans: Vec<_> = traces
        .iter()
        .flat_map(|request| &request.resource_spans)
        .flat_map(|of| &of.scope_spans)
        .flat_map(|of| &of.spans)
        .collect();
    assert_eq!(spans.len(), 2, "only the spans of the failed exchange are exported");
    assert!(
        spans.iter().all(|span| {
            span.attributes.iter().any(|kv| kv.key == "tokengauge.sampling.reason")
        })
    );
}

#[test]
fn without_an_endpoint_nothing_is_exported() {
    let (telemetry, instruments) = start(TelemetryConfig::default());
    instruments.record_start(&testing::route());
    telemetry.record(&testing::streamed());
    assert!(Format::Text.render(&telemetry.scrape()).contains("tokengauge_requests_started_total{tokengauge_position=\"outbound\",tokengauge_route=\"default\"} 1"));
    assert!(telemetry.shutdown(Duration::ZERO));
    assert_eq!(DropReason::ALL.map(|reason| lost(&telemetry, reason)), [0; DropReason::ALL.len()]);
}

#[test]
fn invalid_exporter_settings_fail_the_start() {
    let unused = StdListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for (variable, value, part) in [
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/nowhere/ca.pem", "/nowhere/ca.pem"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "a%20b=1", "a b"),
    ] {
        for protocol in ["http/protobuf", "grpc"] {
            let mut config =
                config(unused, &[(variable, value), ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)]);
            config.metrics.endpoint =
                config.metrics.endpoint.map(|url| url.replace("http://", "https://"));
            let (_, metrics_reader) = Instruments::new(
                &config,
                CardinalityLimits::default(),
                SnapshotSource::new(StateSnapshot::default),
            );
            let error = Telemetry::start(config, metrics_reader).unwrap_err();
            let message = WithCauses(&error).to_string();
            assert_eq!(message.matches(part).count(), 1, "{message}");
        }
    }
}

#[test]
fn mutual_tls_works_on_both_transports() {
    let folder = tempfile::tempdir().unwrap();
    let acceptor = Authority::new(folder.path()).server(folder.path());
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (ca, key, certificate) = (file("ca.pem"), file("client-key.pem"), file("client.pem"));
    for protocol in ["http/protobuf", "grpc"] {
        let trust = [
            ("OTEL_EXPORTER_OTLP_CERTIFICATE", ca.as_str()),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol),
        ];
        let identity = [
            ("OTEL_EXPORTER_OTLP_CLIENT_KEY", key.as_str()),
            ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", certificate.as_str()),
        ];
        for (variables, delivered) in
            [([&trust[..], &identity].concat(), true), (trust.to_vec(), false)]
        {
            let receiver = Receiver::with(Behaviour::Answer, Some(acceptor.clone()));
            let mut config = config(receiver.address, &variables);
            for signal in [&mut config.metrics, &mut config.traces] {
                signal.timeout = Duration::from_secs(10);
                let url = signal.endpoint.take().unwrap();
                signal.endpoint = Some(url.replace("http://127.0.0.1", "https://localhost"));
            }
            let (telemetry, _) = start(config);
            telemetry.record(&testing::streamed());
            assert_eq!(telemetry.shutdown(DEADLINE), delivered, "{protocol}");
            let (metrics, traces) = receiver.all();
            let one = usize::from(delivered);
            assert_eq!((metrics.len(), traces.len()), (one, one), "{protocol}");
        }
    }
}

/// A CA that issues certificates for clients and servers.
struct Authority {
    certificate: rcgen::Certificate,
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
}

impl Authority {
    /// Creates a CA, and writes its certificate to `folder`.
    fn new(folder: &std::path::Path) -> Self {
        use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        std::fs::write(folder.join("ca.pem"), certificate.pem()).unwrap();
        Self { certificate, issuer: Issuer::new(params, key) }
    }

    fn issue(&self, name: &str) -> (rcgen::Certificate, rcgen::KeyPair) {
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
        (params.signed_by(&key, &self.issuer).unwrap(), key)
    }

    /// Writes a new client certificate and its key to `folder`. Returns the certificate.
    fn renew_client(&self, folder: &std::path::Path) -> Vec<u8> {
        let (client, key) = self.issue("client");
        std::fs::write(folder.join("client.pem"), client.pem()).unwrap();
        std::fs::write(folder.join("client-key.pem"), key.serialize_pem()).unwrap();
        client.der().to_vec()
    }

    /// Writes a client certificate to `folder`. Returns a server that requires client certificates.
    fn server(&self, folder: &std::path::Path) -> TlsAcceptor {
        self.renew_client(folder);
        let (server, server_key) = self.issue("localhost");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = rustls::RootCertStore::empty();
        roots.add(self.certificate.der().clone()).unwrap();
        let verifier = rustls::server::WebPkiClientVerifier::builder_with_provider(
            Arc::new(roots),
            Arc::clone(&provider),
        );
        let key = rustls::pki_types::PrivateKeyDer::Pkcs8(server_key.serialize_der().into());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier.build().unwrap())
            .with_single_cert(vec![server.der().clone()], key)
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        TlsAcceptor::from(Arc::new(config))
    }
}
