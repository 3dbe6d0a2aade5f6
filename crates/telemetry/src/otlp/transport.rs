//! Sends encoded export requests over OTLP/HTTP or OTLP/gRPC, and retries where the protocol allows it.
//!
//! Retries follow the OTLP specification. Over HTTP, a request is retried after status 429, 502, 503 or 504, and after
//! a network error. Over gRPC, a request is retried after the status codes that the specification lists. If the
//! collector requests a delay, the retry waits that long. The caller limits the total time.

use std::error::Error;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes};
use flate2::Compression;
use flate2::write::GzEncoder;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use prost::Message;
use tokio::sync::watch;
use tokio::time::timeout;
use tonic::client::Grpc;
use tonic::codec::{Codec, CompressionEncoding, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::metadata::MetadataMap;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};
use tonic_types::StatusExt;

use crate::config::{ExportHeaders, Protocol, SignalConfig, TelemetryConfig};
use crate::export_counters::{DropReason, ExportCounters, Signal};
use crate::otlp::dialer::Dialer;
use crate::otlp::http_client::{HttpClient, TlsError, tonic_config};
use crate::self_telemetry;
use tokengauge_types::clock::{self, WallTime};
use tokengauge_types::error::WithCauses;

/// Number of retries after the first attempt, as in the SDK's exporters. The first retry waits 100 ms, and each further
/// retry waits twice as long as the previous one.
const RETRIES: u32 = 3;
const FIRST_DELAY: Duration = Duration::from_millis(100);

/// Maximum random addition to each delay, in milliseconds. Without this jitter, many proxies would retry at the same
/// time.
const MAX_JITTER_MILLIS: u64 = 100;

const USER_AGENT: &str = concat!("tokengauge/", env!("CARGO_PKG_VERSION"));

/// Why an exporter cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("\"{0}\" is not a valid HTTP header")]
    Header(String),
    #[error(transparent)]
    Endpoint(#[from] http::uri::InvalidUri),
    #[error(transparent)]
    Grpc(#[from] tonic::transport::Error),
    #[error(transparent)]
    Logs(#[from] opentelemetry_otlp::ExporterBuildError),
}

/// Sends export requests of one signal (logs, metrics or traces) to its collector. Logs only the first failure and the
/// recovery, not each attempt.
#[derive(Debug)]
pub struct Transport {
    signal: Signal,
    /// Time limit of one export, including all retries.
    pub limit: Duration,
    /// Maximum size in bytes of a request, before compression.
    max_bytes: usize,
    config: SignalConfig,
    connection: Connection,
    /// Changes when the certificate and key files must be read again.
    reloads: watch::Receiver<()>,
    counters: Arc<ExportCounters>,
    /// The collector's URL, for the log.
    endpoint: String,
    /// Number of failed exports since the last successful one.
    failures: u64,
}

/// Number of consecutive failed exports after which a new connection is opened. The old connection may be dead without a
/// sign of it: a path that drops all packets looks like a slow collector.
const FAILURES_PER_CONNECTION: u64 = 2;

/// Reason why a collector did not accept an export.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// Was not sent, because collectors reject a request of this size.
    #[error("the request is too large")]
    TooLarge,
    #[error("{message}")]
    Failed {
        message: String,
        /// Minimum time to wait before a retry. `None` if the collector will not accept this export later either.
        retry_after: Option<Duration>,
    },
}

impl ExportError {
    /// Creates the error for an export that can be retried at any later time.
    fn temporary(message: String) -> Self {
        Self::Failed { message, retry_after: Some(Duration::ZERO) }
    }

    pub fn permanent(message: String) -> Self {
        Self::Failed { message, retry_after: None }
    }

    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::TooLarge => None,
            Self::Failed { retry_after, .. } => *retry_after,
        }
    }
}

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a process has one per signal and never moves it")]
enum Connection {
    Http { client: HttpClient, endpoint: Uri, headers: HeaderMap, gzip: bool },
    Grpc { client: Grpc<Channel>, metadata: MetadataMap },
}

impl Transport {
    /// Creates the transport of a signal, or returns `None` if the signal is not exported. Must be called inside the tokio
    /// runtime that will run the exports.
    ///
    /// # Errors
    /// Fails if a header, the URL or a certificate file cannot be used.
    pub fn new(
        signal: Signal,
        config: &TelemetryConfig,
        reloads: watch::Receiver<()>,
        counters: &Arc<ExportCounters>,
    ) -> Result<Option<Self>, BuildError> {
        let Some(exported) = config.exported(signal) else { return Ok(None) };
        let batch_timeout = match signal {
            Signal::Logs => config.log_batch.timeout,
            Signal::Metrics => Duration::MAX,
            Signal::Traces => config.span_batch.timeout,
        };
        Ok(Some(Self {
            signal,
            limit: exported.timeout.min(batch_timeout),
            max_bytes: config.max_request_bytes,
            config: exported.clone(),
            connection: Connection::new(exported)?,
            reloads,
            counters: Arc::clone(counters),
            endpoint: exported.shown_endpoint().unwrap_or_default(),
            failures: 0,
        }))
    }

    /// Returns the URL of the collector. Its query can contain an API key.
    pub fn url(&self) -> &str {
        self.config.endpoint.as_deref().unwrap_or_default()
    }

    /// Sends an encoded export request, including retries, within the time limit. Counts and logs the result.
    pub async fn export(&mut self, request: Bytes) -> Result<(), ExportError> {
        if request.len() > self.max_bytes {
            return Err(ExportError::TooLarge);
        }
        // An error means that the sender is gone at the end of the process.
        if self.reloads.has_changed().unwrap_or(false) {
            self.reloads.mark_unchanged();
            self.renew_connection();
        }
        let exported = match timeout(self.limit, self.send(request)).await {
            Ok(exported) => exported,
            Err(_) => Err(ExportError::temporary(format!("no response within {:?}", self.limit))),
        };
        self.counters.count_export(self.signal, exported.is_ok());
        if let Err(problem) = &exported {
            if self.failures == 0 {
                let problem = problem.to_string();
                self_telemetry::export_failed(self.signal.as_str(), &self.endpoint, &problem);
            }
            self.failures += 1;
            if problem.retry_after().is_some()
                && self.failures.is_multiple_of(FAILURES_PER_CONNECTION)
            {
                self.renew_connection();
            }
        } else if self.failures > 0 {
            self_telemetry::export_recovered(self.signal.as_str(), self.failures);
            self.failures = 0;
        }
        exported
    }

    /// Opens a new connection for the next export, with the present content of certificate and key files. If a file
    /// cannot be used, the previous connection and its credentials stay in use. A reload has logged the reason already.
    fn renew_connection(&mut self) {
        if let Ok(connection) = Connection::new(&self.config) {
            self.connection = connection;
        }
    }

    /// Sends an export request, and retries after temporary errors. Returns an error if the collector rejects the
    /// request or all attempts fail. Counts retries, and items that the collector rejects from an accepted request.
    async fn send(&self, request: Bytes) -> Result<(), ExportError> {
        let body = self
            .connection
            .body(request)
            .map_err(|error| ExportError::permanent(error.to_string()))?;
        let mut delay = FIRST_DELAY;
        for _ in 0..RETRIES {
            let attempted = self.attempt(body.clone()).await;
            let Err(ExportError::Failed { retry_after: Some(at_least), .. }) = attempted else {
                return attempted;
            };
            let jitter = Duration::from_millis(fastrand::u64(..=MAX_JITTER_MILLIS));
            tokio::time::sleep(delay.max(at_least) + jitter).await;
            delay *= 2;
            self.counters.count_retry(self.signal);
        }
        self.attempt(body).await
    }

    async fn attempt(&self, body: Bytes) -> Result<(), ExportError> {
        let response = match &self.connection {
            Connection::Http { client, endpoint, headers, .. } => {
                post(client, endpoint, headers, body).await?
            }
            Connection::Grpc { client, metadata } => {
                call(client.clone(), metadata, grpc_method(self.signal), body).await?
            }
        };
        if let Some((items, message)) = rejected_items(response) {
            self_telemetry::export_partially_rejected(self.signal.as_str(), items, &message);
            let items = usize::try_from(items).unwrap_or_default();
            self.counters.count_dropped(self.signal, DropReason::Rejected, items);
        }
        Ok(())
    }
}

impl Connection {
    fn new(config: &SignalConfig) -> Result<Self, BuildError> {
        match config.protocol {
            Protocol::HttpProtobuf => Self::http(config),
            Protocol::Grpc => Self::grpc(config),
        }
    }

    fn http(config: &SignalConfig) -> Result<Self, BuildError> {
        let mut headers = header_map(&config.headers)?;
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        headers.entry(header::USER_AGENT).or_insert(HeaderValue::from_static(USER_AGENT));
        if config.gzip {
            headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        let proxy = config.proxy.as_ref().filter(|_| !config.uses_tls());
        if let Some(authorization) = proxy.and_then(|proxy| proxy.authorization.as_ref()) {
            headers.insert(header::PROXY_AUTHORIZATION, authorization.clone());
        }
        Ok(Self::Http {
            client: HttpClient::new(config)?,
            endpoint: config.endpoint.as_deref().unwrap_or_default().parse()?,
            headers,
            gzip: config.gzip,
        })
    }

    fn grpc(config: &SignalConfig) -> Result<Self, BuildError> {
        let mut client = Grpc::new(channel(config)?);
        if config.gzip {
            client = client
                .send_compressed(CompressionEncoding::Gzip)
                .accept_compressed(CompressionEncoding::Gzip);
        }
        let metadata = MetadataMap::from_headers(header_map(&config.headers)?);
        Ok(Self::Grpc { client, metadata })
    }

    /// Compresses the request for HTTP if gzip is configured. For gRPC, tonic compresses the request.
    fn body(&self, request: Bytes) -> io::Result<Bytes> {
        if !matches!(self, Self::Http { gzip: true, .. }) {
            return Ok(request);
        }
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(&request)?;
        Ok(encoder.finish()?.into())
    }
}

/// Creates a gRPC channel with the configured TLS. The channel connects when it is first used.
pub(super) fn channel(config: &SignalConfig) -> Result<Channel, BuildError> {
    let mut endpoint = Endpoint::from_shared(config.endpoint.clone().unwrap_or_default())?;
    if endpoint.uri().scheme() == Some(&http::uri::Scheme::HTTPS) {
        endpoint = endpoint.tls_config(tonic_config(&config.tls)?)?;
    }
    let endpoint = endpoint
        .user_agent(USER_AGENT)?
        .timeout(config.timeout)
        .http2_keep_alive_interval(MIN_PING_INTERVAL.max(config.timeout / 2))
        .keep_alive_timeout(PING_TIMEOUT);
    // gRPC always needs a tunnel, because HTTP/1 proxies do not forward it.
    Ok(endpoint.connect_with_connector_lazy(Dialer::new(config, true)))
}

/// Minimum time between two HTTP/2 pings. Pings are sent only during an export, and at most two per export: gRPC servers
/// close a connection after more than two pings without data in between (`keepalive.EnforcementPolicy` of grpc-go).
const MIN_PING_INTERVAL: Duration = Duration::from_secs(5);

/// Maximum time until a ping is answered. The connection is then closed, and the next export opens a new one.
const PING_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) fn header_map(headers: &ExportHeaders) -> Result<HeaderMap, BuildError> {
    let mut map = HeaderMap::new();
    for (name, value) in &headers.0 {
        let header = HeaderName::try_from(name.as_str())
            .ok()
            .zip(HeaderValue::try_from(value.as_str()).ok());
        let (key, value) = header.ok_or_else(|| BuildError::Header(name.clone()))?;
        map.insert(key, value);
    }
    Ok(map)
}

fn grpc_method(signal: Signal) -> PathAndQuery {
    PathAndQuery::from_static(match signal {
        Signal::Logs => "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
        Signal::Metrics => "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
        Signal::Traces => "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
    })
}

/// Returns the number of items that the collector rejected from an accepted request, and the collector's reason. The
/// responses of the three signals differ only in the name of the number. After a malformed response, all items count as
/// accepted.
fn rejected_items(response: Bytes) -> Option<(i64, String)> {
    let partial = ExportTraceServiceResponse::decode(response).ok()?.partial_success?;
    (partial.rejected_spans > 0).then_some((partial.rejected_spans, partial.error_message))
}

async fn post(
    client: &HttpClient,
    endpoint: &Uri,
    headers: &HeaderMap,
    body: Bytes,
) -> Result<Bytes, ExportError> {
    let mut request = http::Request::new(body);
    *request.method_mut() = http::Method::POST;
    *request.uri_mut() = endpoint.clone();
    *request.headers_mut() = headers.clone();
    let response = client
        .send(request)
        .await
        .map_err(|error| ExportError::temporary(format!("no response: {}", WithCauses(&*error))))?;
    if response.status().is_success() {
        return Ok(response.into_body());
    }
    Err(http_failure(response.status(), response.headers()))
}

fn http_failure(status: StatusCode, headers: &HeaderMap) -> ExportError {
    let value = headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok());
    let requested = value.and_then(|value| requested_delay(value, clock::wall_now()));
    ExportError::Failed {
        message: format!("HTTP status {status}"),
        retry_after: match status.as_u16() {
            429 | 503 => Some(requested.unwrap_or_default()),
            502 | 504 => Some(Duration::ZERO),
            _ => None,
        },
    }
}

/// Returns the delay that a `Retry-After` header requests as seconds or as a date (RFC 9110, section 10.2.3).
fn requested_delay(value: &str, now: WallTime) -> Option<Duration> {
    let value = value.trim();
    if let Ok(seconds) = value.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = httpdate::parse_http_date(value).ok()?;
    Some(date.duration_since(now.system_time()).unwrap_or_default())
}

async fn call(
    mut client: Grpc<Channel>,
    metadata: &MetadataMap,
    path: PathAndQuery,
    body: Bytes,
) -> Result<Bytes, ExportError> {
    client.ready().await.map_err(|error| ExportError::temporary(WithCauses(&error).to_string()))?;
    let mut request = Request::new(body);
    *request.metadata_mut() = metadata.clone();
    match client.unary(request, path, BytesCodec).await {
        Ok(response) => Ok(response.into_inner()),
        Err(status) => Err(grpc_failure(&status)),
    }
}

fn grpc_failure(status: &Status) -> ExportError {
    let requested = status.get_details_retry_info().and_then(|info| info.retry_delay);
    let retry_after = match status.code() {
        // Temporary only if the response contains a retry delay, so the error is not retried without one.
        Code::ResourceExhausted => requested,
        Code::Cancelled
        | Code::DeadlineExceeded
        | Code::Aborted
        | Code::OutOfRange
        | Code::Unavailable
        | Code::DataLoss => Some(requested.unwrap_or_default()),
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
    let mut message = format!("gRPC status {:?}: {}", status.code(), status.message());
    if let Some(cause) = status.source() {
        message = format!("{message}: {}", WithCauses(cause));
    }
    ExportError::Failed { message, retry_after }
}

/// A gRPC codec that passes messages as bytes, because requests are already encoded and responses are decoded later.
#[derive(Clone, Copy, Debug)]
struct BytesCodec;

impl Codec for BytesCodec {
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

impl Encoder for BytesCodec {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(item);
        Ok(())
    }
}

impl Decoder for BytesCodec {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::logs::v1::{
        ExportLogsPartialSuccess, ExportLogsServiceResponse,
    };
    use opentelemetry_proto::tonic::collector::metrics::v1::{
        ExportMetricsPartialSuccess, ExportMetricsServiceResponse,
    };
    use opentelemetry_proto::tonic::collector::trace::v1::ExportTracePartialSuccess;
    use tonic_types::ErrorDetails;

    use super::*;

    const AT_ONCE: Option<Duration> = Some(Duration::ZERO);
    const IN_A_MINUTE: Option<Duration> = Some(Duration::from_secs(60));

    #[test]
    fn http_retries_four_statuses_and_two_set_the_delay() {
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
            let retry_after = |headers: &HeaderMap| http_failure(code, headers).retry_after();
            assert_eq!(retry_after(&HeaderMap::new()), without, "{status}");
            assert_eq!(retry_after(&minute), with, "{status}");
        }
    }

    #[test]
    fn retry_after_is_a_number_of_seconds_or_a_date() {
        let now = WallTime::from_unix_nanos(1_800_000_000_500_000_000);
        for (value, expected) in [
            ("120", Some(Duration::from_secs(120))),
            (" 0 ", Some(Duration::ZERO)),
            ("Fri, 15 Jan 2027 08:00:30 GMT", Some(Duration::from_millis(29_500))),
            ("Friday, 15-Jan-27 08:00:30 GMT", Some(Duration::from_millis(29_500))),
            ("Fri Jan 15 08:00:30 2027", Some(Duration::from_millis(29_500))),
            ("Fri, 15 Jan 2027 07:00:00 GMT", Some(Duration::ZERO)),
            ("soon", None),
            ("-1", None),
        ] {
            assert_eq!(requested_delay(value, now), expected, "{value}");
        }
    }

    #[test]
    fn grpc_retries_resource_exhausted_only_with_retry_info() {
        let minute = ErrorDetails::with_retry_info(IN_A_MINUTE);
        for (code, without, with) in [
            (Code::Unavailable, AT_ONCE, IN_A_MINUTE),
            (Code::ResourceExhausted, None, IN_A_MINUTE),
            (Code::InvalidArgument, None, None),
            (Code::Unauthenticated, None, None),
        ] {
            let plain = Status::new(code, "no");
            assert_eq!(grpc_failure(&plain).retry_after(), without, "{code:?}");
            let detailed = Status::with_error_details(code, "no", minute.clone());
            assert_eq!(grpc_failure(&detailed).retry_after(), with, "{code:?}");
        }
    }

    #[test]
    fn reads_partial_success_of_each_signal() {
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
        let logs = ExportLogsServiceResponse {
            partial_success: Some(ExportLogsPartialSuccess {
                rejected_log_records: 5,
                error_message: why(),
            }),
        };
        let read = |body: Vec<u8>| rejected_items(body.into());
        assert_eq!(read(metrics.encode_to_vec()), Some((3, why())));
        assert_eq!(read(traces.encode_to_vec()), Some((4, why())));
        assert_eq!(read(logs.encode_to_vec()), Some((5, why())));
        assert_eq!(read(Vec::new()), None);
        assert_eq!(read(b"no protobuf".to_vec()), None);
    }
}
