//! A receiver of OTLP exports over HTTP. It stores only what the demo checks: some values of each span, and the latest
//! value of each counter.

use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{NumberDataPoint, number_data_point};
use opentelemetry_proto::tonic::trace::v1::Span as Received;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use prost::Message;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::cli::demo::load::TraceId;
use tokengauge_types::sync::lock;

/// Maximum number of stored spans, which take about 40 MB. Each recorded request has two spans.
const MAX_SPANS: usize = 2 * tokengauge_simulator::ledger::DEFAULT_CAPACITY;

/// Maximum number of stored counter values, one per label set. The demo has a few hundred, and the SDK allows 2,000 per
/// instrument.
const MAX_SERIES: usize = 50_000;

/// Maximum length of an export in bytes, as in most collectors (4 to 20 MiB).
const MAX_EXPORT_BYTES: usize = 20 << 20;

/// Maximum number of connections. The exporter opens one or two.
const MAX_CONNECTIONS: usize = 16;

/// The values of a span that the demo checks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Span {
    pub server: bool,
    /// Value of `tokengauge.output_tokens.counted`.
    pub counted: Option<u64>,
    /// Value of `gen_ai.usage.output_tokens`.
    pub reported: Option<u64>,
    /// Value of `tokengauge.time_to_first_token`, in seconds.
    pub time_to_first_token: Option<f64>,
}

/// The telemetry received so far.
#[derive(Debug, Default)]
pub struct ReceivedTelemetry {
    spans: HashMap<TraceId, Vec<Span>>,
    span_count: usize,
    /// Number of SERVER spans, including those that were not stored.
    pub server_spans: u64,
    /// Number of spans that were not stored because of [`MAX_SPANS`].
    pub dropped: u64,
    /// The latest value of each counter, by metric name and attributes.
    sums: HashMap<(String, String), f64>,
    pub exports: u64,
}

impl ReceivedTelemetry {
    /// Returns the spans of a trace.
    pub fn spans(&self, trace: &TraceId) -> &[Span] {
        self.spans.get(trace).map_or(&[], Vec::as_slice)
    }

    /// Returns the sum of a counter over all its label sets. `None` if the counter was not received.
    pub fn sum(&self, metric: &str) -> Option<f64> {
        let series = self.sums.iter().filter(|((name, _), _)| name == metric);
        series.map(|(_, value)| *value).reduce(|a, b| a + b)
    }

    fn traces(&mut self, export: ExportTraceServiceRequest) {
        let scopes = export.resource_spans.into_iter().flat_map(|item| item.scope_spans);
        for span in scopes.flat_map(|item| item.spans) {
            self.span(&span);
        }
    }

    fn span(&mut self, received: &Received) {
        let server = received.kind == i32::from(SpanKind::Server);
        self.server_spans += u64::from(server);
        let trace = TraceId::try_from(received.trace_id.as_slice());
        let (Ok(trace), true) = (trace, self.span_count < MAX_SPANS) else {
            self.dropped += 1;
            return;
        };
        self.span_count += 1;
        self.spans.entry(trace).or_default().push(Span {
            server,
            counted: int_attribute(received, "tokengauge.output_tokens.counted"),
            reported: int_attribute(received, "gen_ai.usage.output_tokens"),
            time_to_first_token: float_attribute(received, "tokengauge.time_to_first_token"),
        });
    }

    fn metrics(&mut self, export: ExportMetricsServiceRequest) {
        let scopes = export.resource_metrics.into_iter().flat_map(|item| item.scope_metrics);
        for metric in scopes.flat_map(|item| item.metrics) {
            let Some(Data::Sum(sum)) = metric.data else {
                continue;
            };
            for point in sum.data_points {
                self.point(&metric.name, &point);
            }
        }
    }

    fn point(&mut self, metric: &str, point: &NumberDataPoint) {
        #[expect(
            clippy::cast_precision_loss,
            reason = "a counter of the demo stays far below 2^52"
        )]
        let value = match point.value {
            Some(number_data_point::Value::AsDouble(value)) => value,
            Some(number_data_point::Value::AsInt(value)) => value as f64,
            None => return,
        };
        let series = (metric.to_owned(), series_key(&point.attributes));
        if self.sums.len() < MAX_SERIES || self.sums.contains_key(&series) {
            self.sums.insert(series, value);
        }
    }
}

/// Returns a key for a set of attributes. The order of the attributes does not matter.
fn series_key(attributes: &[KeyValue]) -> String {
    let mut sorted: Vec<_> = attributes.iter().collect();
    sorted.sort_by(|a, b| a.key.cmp(&b.key));
    let mut text = String::new();
    for attribute in sorted {
        let written = write!(text, "{}={:?};", attribute.key, attribute.value);
        // Writing to a `String` cannot fail.
        debug_assert!(written.is_ok());
    }
    text
}

fn attribute<'a>(span: &'a Received, name: &str) -> Option<&'a Value> {
    let found = span.attributes.iter().find(|item| item.key == name)?;
    let AnyValue { value } = found.value.as_ref()?;
    value.as_ref()
}

fn int_attribute(span: &Received, name: &str) -> Option<u64> {
    let Value::IntValue(number) = attribute(span, name)? else {
        return None;
    };
    u64::try_from(*number).ok()
}

fn float_attribute(span: &Received, name: &str) -> Option<f64> {
    let Value::DoubleValue(seconds) = attribute(span, name)? else {
        return None;
    };
    Some(*seconds)
}

/// The received telemetry. The HTTP server and the demo share this value.
#[derive(Clone, Debug, Default)]
pub struct Receiver(Arc<Mutex<ReceivedTelemetry>>);

impl Receiver {
    /// Calls `read` with the telemetry received so far.
    pub fn read<T>(&self, read: impl FnOnce(&ReceivedTelemetry) -> T) -> T {
        read(&lock(&self.0))
    }

    /// Serves `POST /v1/traces` and `POST /v1/metrics` with protobuf bodies until the future is dropped.
    pub async fn serve(self, listener: TcpListener) {
        let mut connections = JoinSet::new();
        loop {
            let full = connections.len() >= MAX_CONNECTIONS;
            tokio::select! {
                Some(_) = connections.join_next() => {}
                Ok((socket, _)) = listener.accept(), if !full => {
                    connections.spawn(self.clone().serve_connection(socket));
                }
                else => return,
            }
        }
    }

    async fn serve_connection(self, socket: TcpStream) {
        let service = service_fn(move |request| {
            let receiver = self.clone();
            async move { Ok::<_, Infallible>(receiver.respond(request).await) }
        });
        let server = hyper::server::conn::http1::Builder::new();
        // After a connection error, the exporter retries or counts a loss. The comparison at the end shows lost data.
        drop(server.serve_connection(TokioIo::new(socket), service).await);
    }

    async fn respond(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let (head, body) = request.into_parts();
        let encoded = head.headers.get(CONTENT_ENCODING).is_some_and(|it| it != "identity");
        let status = match body_of(body).await {
            _ if head.method != Method::POST => StatusCode::METHOD_NOT_ALLOWED,
            _ if encoded => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            None => StatusCode::PAYLOAD_TOO_LARGE,
            Some(body) => self.receive(head.uri.path(), body),
        };
        // An empty protobuf message means that all data was accepted.
        let mut response = Response::new(Full::default());
        *response.status_mut() = status;
        response
            .headers_mut()
            .insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        response
    }

    fn receive(&self, path: &str, body: Bytes) -> StatusCode {
        let mut telemetry = lock(&self.0);
        telemetry.exports += 1;
        let decoded = match path {
            "/v1/traces" => ExportTraceServiceRequest::decode(body).map(|it| telemetry.traces(it)),
            "/v1/metrics" => {
                ExportMetricsServiceRequest::decode(body).map(|it| telemetry.metrics(it))
            }
            _ => return StatusCode::NOT_FOUND,
        };
        if decoded.is_ok() { StatusCode::OK } else { StatusCode::BAD_REQUEST }
    }
}

async fn body_of(body: Incoming) -> Option<Bytes> {
    Some(Limited::new(body, MAX_EXPORT_BYTES).collect().await.ok()?.to_bytes())
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::metrics::v1::{Metric, ResourceMetrics, ScopeMetrics, Sum};
    use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans};

    use super::*;

    impl ReceivedTelemetry {
        /// Creates telemetry for tests.
        pub fn from_parts(
            spans: impl IntoIterator<Item = (TraceId, Span)>,
            sums: impl IntoIterator<Item = (&'static str, f64)>,
        ) -> Self {
            let mut telemetry = Self::default();
            for (trace, span) in spans {
                telemetry.server_spans += u64::from(span.server);
                telemetry.spans.entry(trace).or_default().push(span);
            }
            let series = |(metric, value): (&str, f64)| ((metric.to_owned(), String::new()), value);
            telemetry.sums = sums.into_iter().map(series).collect();
            telemetry
        }
    }

    fn int(key: &str, value: i64) -> KeyValue {
        attribute_of(key, Value::IntValue(value))
    }

    fn attribute_of(key: &str, value: Value) -> KeyValue {
        KeyValue {
            key: key.to_owned(),
            value: Some(AnyValue { value: Some(value) }),
            ..KeyValue::default()
        }
    }

    fn spans(kinds: &[SpanKind]) -> Bytes {
        let span = |kind: &SpanKind| Received {
            trace_id: vec![7; 16],
            kind: i32::from(*kind),
            attributes: vec![
                int("tokengauge.output_tokens.counted", 42),
                int("gen_ai.usage.output_tokens", 43),
                attribute_of("tokengauge.time_to_first_token", Value::DoubleValue(0.25)),
            ],
            ..Received::default()
        };
        let scope = ScopeSpans { spans: kinds.iter().map(span).collect(), ..ScopeSpans::default() };
        let resource = ResourceSpans { scope_spans: vec![scope], ..ResourceSpans::default() };
        ExportTraceServiceRequest { resource_spans: vec![resource] }.encode_to_vec().into()
    }

    fn counter(name: &str, series: &[(i64, i64)]) -> Bytes {
        let point = |(label, value): &(i64, i64)| NumberDataPoint {
            attributes: vec![int("series", *label)],
            value: Some(number_data_point::Value::AsInt(*value)),
            ..NumberDataPoint::default()
        };
        let sum = Sum { data_points: series.iter().map(point).collect(), ..Sum::default() };
        let metric =
            Metric { name: name.to_owned(), data: Some(Data::Sum(sum)), ..Metric::default() };
        let scope = ScopeMetrics { metrics: vec![metric], ..ScopeMetrics::default() };
        let resource = ResourceMetrics { scope_metrics: vec![scope], ..ResourceMetrics::default() };
        ExportMetricsServiceRequest { resource_metrics: vec![resource] }.encode_to_vec().into()
    }

    #[test]
    fn finds_spans_by_trace() {
        let receiver = Receiver::default();
        assert_eq!(
            receiver.receive("/v1/traces", spans(&[SpanKind::Server, SpanKind::Client])),
            StatusCode::OK
        );
        receiver.read(|telemetry| {
            let found = telemetry.spans(&[7; 16]);
            assert_eq!((found.len(), found[0].server, found[1].server), (2, true, false));
            assert_eq!(
                (found[1].counted, found[1].reported, found[1].time_to_first_token),
                (Some(42), Some(43), Some(0.25))
            );
            assert_eq!((telemetry.server_spans, telemetry.dropped), (1, 0));
            assert!(telemetry.spans(&[8; 16]).is_empty());
        });
    }

    #[test]
    fn counts_the_newest_point_of_each_series() {
        let receiver = Receiver::default();
        receiver.receive("/v1/metrics", counter("c", &[(1, 10), (2, 5)]));
        receiver.receive("/v1/metrics", counter("c", &[(1, 12)]));
        receiver.read(|telemetry| {
            assert_eq!(telemetry.sum("c"), Some(17.0));
            assert_eq!(telemetry.sum("d"), None);
        });
    }

    #[test]
    fn rejects_other_requests() {
        let receiver = Receiver::default();
        assert_eq!(receiver.receive("/v1/logs", Bytes::new()), StatusCode::NOT_FOUND);
        assert_eq!(
            receiver.receive("/v1/traces", Bytes::from_static(b"{}")),
            StatusCode::BAD_REQUEST
        );
    }

    #[tokio::test]
    async fn receives_exports_over_http() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let receiver = Receiver::default();
        tokio::spawn(receiver.clone().serve(listener));
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(socket)).await.unwrap();
        tokio::spawn(connection);
        let mut post = async |path: &str, body| {
            let request = Request::post(path).header("host", "x").body(Full::new(body)).unwrap();
            sender.send_request(request).await.unwrap().status()
        };
        assert_eq!(post("/v1/traces", spans(&[SpanKind::Server])).await, StatusCode::OK);
        assert_eq!(post("/v1/metrics", counter("c", &[(1, 3)])).await, StatusCode::OK);
        receiver.read(|telemetry| {
            assert_eq!(
                (telemetry.exports, telemetry.server_spans, telemetry.sum("c")),
                (2, 1, Some(3.0))
            )
        });
    }
}
