//! Events that the data path sends to the observation path.
//!
//! Events carry only allow-listed headers and the path without its query. Two values are exceptions: the model that a
//! query may name, and the conversation id in the client's baggage. Credentials therefore cannot reach the observer.
//! Events are never lost. Body bytes may be dropped, which an explicit [`ObserverEvent::Gap`] records.

mod headers;

pub use headers::{Headers, REQUEST_HEADERS, RESPONSE_HEADERS};

use std::fmt;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::{MonotonicInstant, WallTime};
use crate::label::{Label, Name};
use crate::label_values;
use crate::tcp::TcpConnection;

/// Process-wide id of one exchange (a request and its response). Ids are assigned in order from 1.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(transparent)]
pub struct ExchangeId(pub u64);

impl fmt::Display for ExchangeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The body that a chunk belongs to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Direction {
    Request,
    Response,
}

/// One event of one exchange, with the timestamp at which the event occurred.
#[derive(Debug)]
pub struct TimestampedEvent {
    pub exchange: ExchangeId,
    pub at: MonotonicInstant,
    pub event: ObserverEvent,
}

/// Observed event. Large variants are boxed, so that `Body`, which occurs once per chunk, stays small.
#[derive(Debug)]
pub enum ObserverEvent {
    /// The proxy received the request headers. Always the first event of an exchange.
    RequestHead(Box<RequestHead>),
    /// The concurrency limit of the route had no free permit, so the request waits in the queue.
    Queued,
    /// The request passed the concurrency limit. Follows the first event immediately if the route has no limit.
    Admitted,
    /// A connection to the upstream is available. The event can occur twice, each time followed by another
    /// `RequestHeadSent`. This happens if a reused connection was already closed before any write, and a new connection
    /// replaces it. The later event counts.
    Connected(Box<ConnectTimings>),
    /// The proxy passed the request headers to the upstream connection.
    RequestHeadSent,
    /// The proxy passed the last byte of the request body to the upstream connection.
    RequestBodySent,
    /// The proxy received the response headers from the upstream.
    ResponseHead(Box<ResponseHead>),
    /// The proxy read `len` body bytes. The byte buffer of the batch holds these bytes in order. Request bytes can
    /// precede `Connected`, because a body is read ahead while its exchange waits.
    Body { direction: Direction, len: u32, blocked: BackpressureTime },
    /// The body of `direction` ended with trailers.
    Trailers(Direction),
    /// Both peers switched protocols (status 101). The following bytes in both directions belong to the new protocol.
    Upgraded,
    /// The sender of `direction` closed its side of an upgraded connection. The first `Closed` event identifies the
    /// peer that closed the connection.
    Closed(Direction),
    /// The observer did not receive `bytes` body bytes, because the observer lagged or reached its memory limit.
    Gap { direction: Direction, bytes: u64 },
    /// The exchange ended. Always the last event of an exchange, exactly once.
    End(Ending),
}

/// Minimum pause between the delivery of a frame and the next poll that counts as backpressure. Shorter pauses are
/// scheduling delays, not a slow client.
pub const MIN_BACKPRESSURE: Duration = Duration::from_millis(1);

/// Time in microseconds during which the client side did not poll the response body before this chunk. Saturates at 71
/// minutes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct BackpressureTime(pub u32);

impl BackpressureTime {
    pub fn from_duration(time: Duration) -> Self {
        Self(u32::try_from(time.as_micros()).unwrap_or(u32::MAX))
    }

    pub const fn duration(self) -> Duration {
        Duration::from_micros(self.0 as u64)
    }
}

/// Request line and headers, limited to the fields that the observer may read.
#[derive(Debug)]
pub struct RequestHead {
    /// Wall-clock time at which the proxy received the request headers. Every exported timestamp is computed from this
    /// time.
    pub wall: WallTime,
    pub method: http::Method,
    /// The path as the client sent it, without the query.
    pub path: Name,
    /// The model or Azure deployment named in the query, because some APIs have no other field for it. No other part of
    /// the query reaches the observer, because queries can contain keys and signatures.
    pub model: Option<Name>,
    /// The `:authority` or `Host` that the client sent.
    pub host: Option<Name>,
    pub version: http::Version,
    pub scheme: Scheme,
    /// The headers of [`REQUEST_HEADERS`] that the request contains.
    pub headers: Headers,
    /// `Content-Length` of the request, if present.
    pub length: Option<u64>,
    pub client: Option<std::net::IpAddr>,
    /// The client's connection if it uses TCP.
    pub connection: Option<Arc<TcpConnection>>,
    pub route: Arc<RouteFacts>,
    pub trace: TraceContext,
    /// The conversation id from the client's baggage.
    pub conversation: Option<Name>,
    pub identity: CallerIdentity,
    pub live_state: Arc<LiveState>,
}

impl RequestHead {
    /// Returns the receive times that earlier proxies reported in `X-Request-Start` and `X-Queue-Start`.
    pub fn starts(&self) -> impl Iterator<Item = &str> {
        let names = ["x-request-start", "x-queue-start"];
        names.into_iter().filter_map(|name| self.headers.get(name))
    }
}

/// Client identity read from the configured headers, hashed if configured. The client supplies these values and the
/// proxy does not verify them.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct CallerIdentity {
    /// The account that the request belongs to, such as a customer or a team.
    pub tenant: Option<Name>,
    /// The conversation or run that the request belongs to. Never a metric attribute, because the number of sessions is
    /// unbounded.
    pub session: Option<Name>,
    /// The variant that the request uses: a prompt version, a model version, or an arm of an A/B test.
    pub variant: Option<Name>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Scheme {
    Http,
    Https,
}

label_values!(Scheme {
    Http = "http",
    Https = "https",
});

/// Status and headers of a response.
#[derive(Debug)]
pub struct ResponseHead {
    pub status: u16,
    pub version: http::Version,
    /// The headers of [`RESPONSE_HEADERS`] that the response contains.
    pub headers: Headers,
    pub length: Option<u64>,
    /// Whether the proxy generated this response (502, 503, 504 …).
    pub from_proxy: bool,
}

/// Configuration of the route that an exchange uses. Created once and shared by all exchanges of the route.
#[derive(Clone, Debug)]
pub struct RouteFacts {
    pub name: Label,
    pub position: ProxyPosition,
    /// Host of the upstream, exported as `server.address`. `server_port` is exported as `server.port`.
    pub server_address: Label,
    pub server_port: u16,
    /// The configured provider. If `None`, the provider is inferred.
    pub provider: Option<Label>,
    /// The provider that response headers revealed first. The observer sets it once, so that calls that fail without
    /// such headers have the same provider as calls that succeed.
    pub learned_provider: OnceLock<Label>,
    /// The configured API format (`openai`, …). If `None`, the API format is detected.
    pub dialect: Option<Label>,
    /// Length in bytes of the path prefix that the proxy strips before it forwards the request.
    pub stripped: usize,
    /// Path of the upstream's URL, which the proxy prepends before it forwards the request. Often empty. Detection
    /// reads the path that the upstream receives.
    pub base_path: Label,
    /// A stream without a token-bearing chunk for this long after the first token is stalled.
    pub stall_after: Duration,
    /// A stream without a first token for this long is reported as having no first token.
    pub hung_after: Duration,
}

impl RouteFacts {
    /// Continues with the provider that `previous` learned, if both routes have the same upstream.
    pub fn keep_learned_provider(&self, previous: &Self) {
        let is_same = self.server_address == previous.server_address
            && self.server_port == previous.server_port;
        if let Some(provider) = previous.learned_provider.get().filter(|_| is_same) {
            self.learned_provider.get_or_init(|| provider.clone());
        }
    }
}

/// Where in the call's way this proxy stands: an instrumented app, a sidecar and a gateway all see the same call, and
/// panels pick one.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    Deserialize,
    Eq,
    Hash,
    PartialEq,
    Serialize,
    schemars::JsonSchema,
    clap::ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub enum ProxyPosition {
    /// Beside the backend: sees every caller of one engine.
    Inbound,
    /// Beside the application: sees every backend one application calls.
    #[default]
    Outbound,
    /// In between, shared.
    Gateway,
}

label_values!(ProxyPosition {
    Inbound = "inbound",
    Outbound = "outbound",
    Gateway = "gateway",
});

/// Trace context of an exchange. The proxy creates the ids when it accepts the request, because the forwarded trace
/// header may have to contain them.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct TraceContext {
    pub trace_id: [u8; 16],
    /// The client's span id, if the client sent one.
    pub parent: Option<[u8; 8]>,
    /// The client's sampling decision, if the client sent one. B3 can send the decision without a span.
    pub parent_sampled: Option<bool>,
    pub server_span: [u8; 8],
    pub client_span: [u8; 8],
    /// The client's `tracestate`, if it belongs to the parent and is valid. The length is bounded.
    pub state: Option<Box<str>>,
}

/// Timings of the connection to the upstream.
#[derive(Clone, Debug, Default)]
pub struct ConnectTimings {
    /// Whether the proxy reused an open connection: an idle connection, or the HTTP/2 connection that all streams
    /// share.
    pub reused: bool,
    /// Wait that is not part of this exchange's own connection attempt. The exchange waited for another exchange that
    /// was opening the shared HTTP/2 connection, or for an idle connection that turned out to be closed.
    pub wait: Option<Duration>,
    /// Duration of DNS resolution. `None` if the upstream is configured by IP address.
    pub dns: Option<Duration>,
    /// Time until the connection was open. Includes every address that was tried, and the tunnel of an HTTP proxy.
    pub tcp: Option<Duration>,
    pub tls: Option<Duration>,
    /// The TCP connection to the upstream, or to the HTTP proxy in front of the upstream.
    pub connection: Option<Arc<TcpConnection>>,
}

impl ConnectTimings {
    /// Returns the stages that occurred, in order. Stages do not overlap, so their sum never exceeds the stage
    /// `connect`.
    pub fn stages(&self) -> impl Iterator<Item = (ConnectStage, Duration)> {
        let parts = [self.wait, self.dns, self.tcp, self.tls];
        ConnectStage::ALL
            .into_iter()
            .zip(parts)
            .filter_map(|(stage, length)| Some((stage, length?)))
    }
}

/// A stage of connection setup.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ConnectStage {
    Wait,
    Dns,
    Tcp,
    Tls,
}

label_values!(ConnectStage {
    Wait = "wait",
    Dns = "dns",
    Tcp = "tcp",
    Tls = "tls",
});

/// Outcome of an exchange.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ending {
    /// The proxy delivered the complete response.
    Complete,
    /// The client closed the connection or reset its stream before the end of the response.
    ClientDisconnected,
    /// The client's request body was truncated or malformed.
    RequestBodyFailed,
    /// The upstream was unreachable, or failed before or during its response.
    UpstreamFailed(UpstreamFailure),
    /// A timeout of this proxy expired.
    TimedOut(TimeoutKind),
    /// This proxy rejected the request and sent nothing upstream.
    Rejected(RejectReason),
    /// This proxy shut down before the exchange ended.
    Drained,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum UpstreamFailure {
    /// The host name could not be resolved.
    Dns,
    /// No TCP connection: the connection was refused or reset, or the address was unreachable.
    Connect,
    /// The TLS handshake failed.
    Tls,
    /// The upstream closed or reset the connection before it sent response headers.
    BeforeResponse,
    /// The upstream sent data that is not valid HTTP.
    Protocol,
    /// The upstream closed or reset the connection before the end of the response body.
    MidBody,
}

label_values!(UpstreamFailure {
    Dns = "dns",
    Connect = "connect",
    Tls = "tls",
    BeforeResponse = "before_head",
    Protocol = "protocol",
    MidBody = "mid_body",
});

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TimeoutKind {
    Connect,
    ResponseHeader,
    Idle,
    Total,
}

label_values!(TimeoutKind {
    Connect = "connect",
    ResponseHeader = "head",
    Idle = "idle",
    Total = "total",
});

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RejectReason {
    /// No route matches the request.
    NoRoute,
    /// The request line, the headers or the body are invalid.
    BadRequest,
    /// The route's concurrency limit was reached. The queue was full, or no permit became free within the queue
    /// timeout.
    Overload,
    /// The proxy is shutting down.
    Draining,
}

label_values!(RejectReason {
    NoRoute = "no_route",
    BadRequest = "bad_request",
    Overload = "overload",
    Draining = "draining",
});

impl Ending {
    /// Returns the error source of an exchange that did not complete.
    pub const fn fault(self) -> ErrorSource {
        match self {
            Self::Complete => ErrorSource::None,
            Self::ClientDisconnected
            | Self::RequestBodyFailed
            | Self::Rejected(RejectReason::NoRoute | RejectReason::BadRequest) => {
                ErrorSource::Client
            }
            Self::UpstreamFailed(_) | Self::TimedOut(_) => ErrorSource::Upstream,
            Self::Rejected(RejectReason::Overload | RejectReason::Draining) | Self::Drained => {
                ErrorSource::Proxy
            }
        }
    }
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ErrorSource {
    None,
    Client,
    Upstream,
    Proxy,
}

label_values!(ErrorSource {
    None = "none",
    Client = "client",
    Upstream = "upstream",
    Proxy = "proxy",
});

/// State of an exchange that the data path and the observation path share: the peer that the response body waits for.
#[derive(Debug, Default)]
pub struct LiveState {
    waiting: AtomicU8,
    since: AtomicU64,
}

/// The peer that a response body waits for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WaitingFor {
    /// The last poll was pending: no data has arrived from the upstream since then.
    Upstream,
    /// The proxy delivered a frame and the client side has not polled for the next frame (backpressure).
    Client,
}

impl LiveState {
    /// Records the peer that the body waits for. Uses two relaxed stores, because the only reader is a sweep every 250
    /// ms that tolerates a torn pair.
    pub fn wait_for(&self, whom: WaitingFor, since: MonotonicInstant) {
        self.since.store(since.nanos(), Ordering::Relaxed);
        self.waiting.store(whom as u8, Ordering::Relaxed);
    }

    pub fn waiting(&self) -> (WaitingFor, MonotonicInstant) {
        let whom = if self.waiting.load(Ordering::Relaxed) == WaitingFor::Client as u8 {
            WaitingFor::Client
        } else {
            WaitingFor::Upstream
        };
        (whom, MonotonicInstant::from_nanos(self.since.load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arrival_stays_small() {
        assert!(
            size_of::<TimestampedEvent>() <= 48,
            "{} bytes are copied for every chunk",
            size_of::<TimestampedEvent>()
        );
    }
}
