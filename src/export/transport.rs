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
use opentelemetry_http::HttpClient;
use opentelemetry_otlp::tonic_types::metadata::MetadataMap;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use prost::Message;
use tonic::client::Grpc;
use tonic::codec::{Codec, CompressionEncoding, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};
use tonic_types::StatusExt;

use crate::export::client::{Client, tonic_config};
use crate::export::config::{Protocol, Signal};
use crate::export::otlp::{BuildError, header_map};

/// The same as the stock exporters': three more attempts, 100 ms before the first, each twice as long as the one before.
const MORE_ATTEMPTS: u32 = 3;
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// Added at random to each pause, so that many proxies do not come back at the same moment.
const MOST_JITTER_MILLIS: u64 = 100;

const USER_AGENT: &str = concat!("tokengauge/", env!("CARGO_PKG_VERSION"));

const EXPORT: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

/// Sends requests of one signal to its collector.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "there is one in the process, and it is not moved"
)]
pub enum Transport {
    Http {
        client: Client,
        endpoint: Uri,
        headers: HeaderMap,
        gzip: bool,
    },
    Grpc {
        client: Grpc<Channel>,
        metadata: MetadataMap,
    },
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
    pub fn new(signal: &Signal) -> Result<Self, BuildError> {
        let endpoint = signal.endpoint.clone().unwrap_or_default();
        let headers = header_map(&signal.headers)?;
        Ok(match signal.protocol {
            Protocol::HttpProtobuf => Self::Http {
                client: Client::new(&signal.tls)?,
                endpoint: endpoint.parse()?,
                headers: with_content(headers, signal.gzip),
                gzip: signal.gzip,
            },
            Protocol::Grpc => {
                let mut to = Endpoint::from_shared(endpoint)?;
                if to.uri().scheme() == Some(&http::uri::Scheme::HTTPS) {
                    to = to.tls_config(tonic_config(&signal.tls)?)?;
                }
                let to = to.user_agent(USER_AGENT)?.timeout(signal.timeout);
                let mut client = Grpc::new(to.connect_lazy());
                if signal.gzip {
                    client = client
                        .send_compressed(CompressionEncoding::Gzip)
                        .accept_compressed(CompressionEncoding::Gzip);
                }
                Self::Grpc {
                    client,
                    metadata: MetadataMap::from_headers(headers),
                }
            }
        })
    }

    /// Sends an `ExportTraceServiceRequest` until it is accepted or refused for good.
    pub async fn send(&self, request: Vec<u8>) -> Result<(), String> {
        let body = self.body(request).map_err(|error| error.to_string())?;
        let mut pause = FIRST_PAUSE;
        for _ in 0..MORE_ATTEMPTS {
            match self.attempt(body.clone()).await {
                Ok(()) => return Ok(()),
                Err(Refused { why, again: None }) => return Err(why),
                Err(Refused {
                    again: Some(at_least),
                    ..
                }) => {
                    let jitter = Duration::from_millis(fastrand::u64(..=MOST_JITTER_MILLIS));
                    tokio::time::sleep(pause.max(at_least) + jitter).await;
                    pause *= 2;
                }
            }
        }
        self.attempt(body).await.map_err(|refused| refused.why)
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

    async fn attempt(&self, body: Bytes) -> Result<(), Refused> {
        let response = match self {
            Self::Http {
                client,
                endpoint,
                headers,
                ..
            } => post(client, endpoint, headers, body).await?,
            Self::Grpc { client, metadata } => call(client.clone(), metadata, body).await?,
        };
        // Any answer that says it was accepted is good enough; what it says more is for the log.
        let partial = ExportTraceServiceResponse::decode(response)
            .ok()
            .and_then(|response| response.partial_success);
        if let Some(partial) = partial.filter(|partial| partial.rejected_spans > 0) {
            tracing::warn!(
                spans = partial.rejected_spans,
                why = partial.error_message,
                "the collector refused some spans"
            );
        }
        Ok(())
    }
}

fn with_content(mut headers: HeaderMap, gzip: bool) -> HeaderMap {
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/x-protobuf"),
    );
    headers
        .entry(header::USER_AGENT)
        .or_insert(HeaderValue::from_static(USER_AGENT));
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
    let response = client.send_bytes(request).await.map_err(|error| Refused {
        why: format!("no answer: {error}"),
        again: Some(Duration::ZERO),
    })?;
    if response.status().is_success() {
        return Ok(response.into_body());
    }
    Err(refused_by_http(response.status(), response.headers()))
}

fn refused_by_http(status: StatusCode, headers: &HeaderMap) -> Refused {
    let asked = headers
        .get(header::RETRY_AFTER)
        .and_then(|value| value.to_str().ok()?.trim().parse().ok());
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
    body: Bytes,
) -> Result<Bytes, Refused> {
    client.ready().await.map_err(|error| Refused {
        why: error.to_string(),
        again: Some(Duration::ZERO),
    })?;
    let mut request = Request::new(body);
    *request.metadata_mut() = metadata.clone();
    let path = PathAndQuery::from_static(EXPORT);
    match client.unary(request, path, Raw).await {
        Ok(response) => Ok(response.into_inner()),
        Err(status) => Err(refused_by_grpc(&status)),
    }
}

fn refused_by_grpc(status: &Status) -> Refused {
    let asked = status
        .get_details_retry_info()
        .and_then(|info| info.retry_delay);
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
    Refused {
        why: format!("gRPC status {:?}: {}", status.code(), status.message()),
        again,
    }
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
    use super::*;
    use tonic_types::ErrorDetails;

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
}
