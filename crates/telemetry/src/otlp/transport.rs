//! Sends encoded exports by either transport of OTLP, and again where the protocol says that it may help.
//!
//! What may be sent again, and when, is the OTLP specification's: over HTTP after 429, 502, 503, 504 or no answer, over
//! gRPC after the codes that say so; a time that the collector asks for is kept to. How long all of it may take is the
//! caller's to limit.

use std::io::{self, Write};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes};
use flate2::Compression;
use flate2::write::GzEncoder;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceResponse;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use prost::Message;
use tonic::client::Grpc;
use tonic::codec::{Codec, CompressionEncoding, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::metadata::MetadataMap;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};
use tonic_types::StatusExt;

use crate::config::{Protocol, SignalConfig};
use crate::export_counters::Signal;
use crate::otlp::tls::{Client, tonic_config};
use crate::otlp::{BuildError, header_map};
use crate::self_telemetry;

/// The same as the stock exporters of the SDK: three more attempts, 100 ms before the first, each twice as long as the one before.
const MORE_ATTEMPTS: u32 = 3;
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// Added at random to each pause, so that many proxies do not come back at the same moment.
const MOST_JITTER_MILLIS: u64 = 100;

const USER_AGENT: &str = concat!("tokengauge/", env!("CARGO_PKG_VERSION"));

/// Sends requests of one signal to its collector.
#[derive(Debug)]
pub struct Transport {
    signal: Signal,
    way: Way,
}

#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "there is one for each signal in the process, and they are not moved"
)]
enum Way {
    Http { client: Client, endpoint: Uri, headers: HeaderMap, gzip: bool },
    Grpc { client: Grpc<Channel>, metadata: MetadataMap },
}

/// Why an export was not accepted.
#[derive(Debug)]
pub struct Refused {
    why: String,
    /// Whether to send it again, and no earlier than when.
    again: Option<Duration>,
}

impl Transport {
    /// Must be called inside the runtime that will export.
    pub fn new(signal: Signal, to: &SignalConfig) -> Result<Self, BuildError> {
        let way = match to.protocol {
            Protocol::HttpProtobuf => Way::http(to),
            Protocol::Grpc => Way::grpc(to),
        };
        Ok(Self { signal, way: way? })
    }

    /// Sends an export request of the signal until it is accepted or refused for good.
    pub async fn send(&self, request: Vec<u8>) -> Result<(), String> {
        let body = self.way.body(request).map_err(|error| error.to_string())?;
        let mut pause = FIRST_PAUSE;
        for _ in 0..MORE_ATTEMPTS {
            match self.attempt(body.clone()).await {
                Ok(()) => return Ok(()),
                Err(Refused { why, again: None }) => return Err(why),
                Err(Refused { again: Some(at_least), .. }) => {
                    let jitter = Duration::from_millis(fastrand::u64(..=MOST_JITTER_MILLIS));
                    tokio::time::sleep(pause.max(at_least) + jitter).await;
                    pause *= 2;
                }
            }
        }
        self.attempt(body).await.map_err(|refused| refused.why)
    }

    async fn attempt(&self, body: Bytes) -> Result<(), Refused> {
        let response = match &self.way {
            Way::Http { client, endpoint, headers, .. } => {
                post(client, endpoint, headers, body).await?
            }
            Way::Grpc { client, metadata } => {
                let path = PathAndQuery::from_static(method(self.signal));
                call(client.clone(), metadata, path, body).await?
            }
        };
        if let Some((items, why)) = rejected(self.signal, response) {
            self_telemetry::export_partially_rejected(self.signal.as_str(), items, &why);
        }
        Ok(())
    }
}

impl Way {
    fn http(to: &SignalConfig) -> Result<Self, BuildError> {
        Ok(Self::Http {
            client: Client::new(&to.tls)?,
            endpoint: to.endpoint.as_deref().unwrap_or_default().parse()?,
            headers: with_content(header_map(&to.headers)?, to.gzip),
            gzip: to.gzip,
        })
    }

    fn grpc(to: &SignalConfig) -> Result<Self, BuildError> {
        let mut endpoint = Endpoint::from_shared(to.endpoint.clone().unwrap_or_default())?;
        if endpoint.uri().scheme() == Some(&http::uri::Scheme::HTTPS) {
            endpoint = endpoint.tls_config(tonic_config(&to.tls)?)?;
        }
        let endpoint = endpoint.user_agent(USER_AGENT)?.timeout(to.timeout);
        let mut client = Grpc::new(endpoint.connect_lazy());
        if to.gzip {
            client = client
                .send_compressed(CompressionEncoding::Gzip)
                .accept_compressed(CompressionEncoding::Gzip);
        }
        Ok(Self::Grpc { client, metadata: MetadataMap::from_headers(header_map(&to.headers)?) })
    }

    /// Over gRPC the transport itself compresses.
    fn body(&self, request: Vec<u8>) -> io::Result<Bytes> {
        if !matches!(self, Self::Http { gzip: true, .. }) {
            return Ok(request.into());
        }
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(&request)?;
        Ok(encoder.finish()?.into())
    }
}

const fn method(signal: Signal) -> &'static str {
    match signal {
        Signal::Metrics => "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
        Signal::Traces => "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
    }
}

/// How many spans, or points of metrics, an answer that accepts an export says were refused all the same, and why. Any
/// such answer is good enough; what it says more is for the log.
fn rejected(signal: Signal, response: Bytes) -> Option<(i64, String)> {
    let (items, why) = match signal {
        Signal::Metrics => {
            let partial = ExportMetricsServiceResponse::decode(response).ok()?;
            let partial = partial.partial_success?;
            (partial.rejected_data_points, partial.error_message)
        }
        Signal::Traces => {
            let partial = ExportTraceServiceResponse::decode(response).ok()?;
            let partial = partial.partial_success?;
            (partial.rejected_spans, partial.error_message)
        }
    };
    (items > 0).then_some((items, why))
}

fn with_content(mut headers: HeaderMap, gzip: bool) -> HeaderMap {
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
    headers.entry(header::USER_AGENT).or_insert(HeaderValue::from_static(USER_AGENT));
    if gzip {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    headers
}

async fn post(
    client: &Client,
    endpoint: &Uri,
    headers: &HeaderMap,
    body: Bytes,
) -> Result<Bytes, Refused> {
    let mut request = http::Request::new(body);
    *request.method_mut() = http::Method::POST;
    *request.uri_mut() = endpoint.clone();
    *request.headers_mut() = headers.clone();
    let response = client.send(request).await.map_err(|error| Refused {
        why: format!("no answer: {error}"),
        again: Some(Duration::ZERO),
    })?;
    if response.status().is_success() {
        return Ok(response.into_body());
    }
    Err(refused_by_http(response.status(), response.headers()))
}

fn refused_by_http(status: StatusCode, headers: &HeaderMap) -> Refused {
    let asked =
        headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
    Refused {
        why: format!("HTTP status {status}"),
        again: match status.as_u16() {
            429 | 503 => Some(asked.map_or(Duration::ZERO, Duration::from_secs)),
            502 | 504 => Some(Duration::ZERO),
            _ => None,
        },
    }
}

async fn call(
    mut client: Grpc<Channel>,
    metadata: &MetadataMap,
    path: PathAndQuery,
    body: Bytes,
) -> Result<Bytes, Refused> {
    client
        .ready()
        .await
        .map_err(|error| Refused { why: error.to_string(), again: Some(Duration::ZERO) })?;
    let mut request = Request::new(body);
    *request.metadata_mut() = metadata.clone();
    match client.unary(request, path, Raw).await {
        Ok(response) => Ok(response.into_inner()),
        Err(status) => Err(refused_by_grpc(&status)),
    }
}

fn refused_by_grpc(status: &Status) -> Refused {
    let asked = status.get_details_retry_info().and_then(|info| info.retry_delay);
    let again = match status.code() {
        // The collector says that it will not last by saying when to come back.
        Code::ResourceExhausted => asked,
        Code::Cancelled
        | Code::DeadlineExceeded
        | Code::Aborted
        | Code::OutOfRange
        | Code::Unavailable
        | Code::DataLoss => Some(asked.unwrap_or_default()),
        Code::Ok
        | Code::Unknown
        | Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::FailedPrecondition
        | Code::Unimplemented
        | Code::Internal
        | Code::Unauthenticated => None,
    };
    Refused { why: format!("gRPC status {:?}: {}", status.code(), status.message()), again }
}

/// Messages that are encoded already, and are decoded elsewhere.
#[derive(Clone, Copy, Debug)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsPartialSuccess;
    use opentelemetry_proto::tonic::collector::trace::v1::ExportTracePartialSuccess;
    use tonic_types::ErrorDetails;

    use super::*;

    const AT_ONCE: Option<Duration> = Some(Duration::ZERO);
    const IN_A_MINUTE: Option<Duration> = Some(Duration::from_secs(60));

    #[test]
    fn over_http_four_codes_are_sent_again_and_two_may_say_when() {
        let minute = HeaderMap::from_iter([(header::RETRY_AFTER, "60".parse().unwrap())]);
        for (status, without, with) in [
            (400, None, None),
            (401, None, None),
            (429, AT_ONCE, IN_A_MINUTE),
            (500, None, None),
            (502, AT_ONCE, AT_ONCE),
            (503, AT_ONCE, IN_A_MINUTE),
            (504, AT_ONCE, AT_ONCE),
        ] {
            let code = StatusCode::from_u16(status).unwrap();
            let again = |headers: &HeaderMap| refused_by_http(code, headers).again;
            assert_eq!(again(&HeaderMap::new()), without, "{status}");
            assert_eq!(again(&minute), with, "{status}");
        }
    }

    #[test]
    fn over_grpc_an_exhausted_collector_is_left_alone_unless_it_says_when() {
        let minute = ErrorDetails::with_retry_info(IN_A_MINUTE);
        for (code, without, with) in [
            (Code::Unavailable, AT_ONCE, IN_A_MINUTE),
            (Code::ResourceExhausted, None, IN_A_MINUTE),
            (Code::InvalidArgument, None, None),
            (Code::Unauthenticated, None, None),
        ] {
            let plain = Status::new(code, "no");
            assert_eq!(refused_by_grpc(&plain).again, without, "{code:?}");
            let detailed = Status::with_error_details(code, "no", minute.clone());
            assert_eq!(refused_by_grpc(&detailed).again, with, "{code:?}");
        }
    }

    #[test]
    fn what_a_collector_refused_of_an_export_is_read_for_either_signal() {
        let why = || "too old".to_owned();
        let metrics = ExportMetricsServiceResponse {
            partial_success: Some(ExportMetricsPartialSuccess {
                rejected_data_points: 3,
                error_message: why(),
            }),
        };
        let traces = ExportTraceServiceResponse {
            partial_success: Some(ExportTracePartialSuccess {
                rejected_spans: 4,
                error_message: why(),
            }),
        };
        let read = |signal, body: Vec<u8>| rejected(signal, body.into());
        assert_eq!(read(Signal::Metrics, metrics.encode_to_vec()), Some((3, why())));
        assert_eq!(read(Signal::Traces, traces.encode_to_vec()), Some((4, why())));
        assert_eq!(read(Signal::Metrics, Vec::new()), None);
        assert_eq!(read(Signal::Metrics, b"no protobuf".to_vec()), None);
    }
}
