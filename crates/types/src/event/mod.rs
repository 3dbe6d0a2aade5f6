//! Events that the data path (which forwards traffic) sends to the observer thread (which measures it).
//!
//! An event contains only allow-listed headers and the path without its query. There are two exceptions: a model that
//! the query names, and the conversation id in the client's baggage header. Credentials therefore cannot reach the
//! observer. Events are never lost. Body bytes can be dropped, and an explicit [`ObserverEvent::Gap`] records each
//! loss.

mod headers;

pub use headers::{Headers, REQUEST_HEADERS, RESPONSE_HEADERS};

use std::fmt;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use clap::ValueEnum;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::clock::{MonotonicInstant, WallTime};
use crate::label::{Label, Name};
use crate::label_enum;
use crate::tcp::TcpConnection;

/// Id of one exchange (a request and its response). The process assigns ids in order, starting at 1.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(transparent)]
pub struct ExchangeId(pub u64);

impl fmt::Display for ExchangeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Whether a chunk belongs to the request body or to the response body.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Direction {
    Request,
    Response,
}

impl Direction {
    /// Returns the peer that sends in this direction: `client` or `upstream`.
    pub const fn sender(self) -> &'static str {
        match self {
            Self::Request => "client",
            Self::Response => "upstream",
        }
    }
}

/// One event of one exchange, and the time at which it occurred.
#[derive(Debug)]
pub struct TimestampedEvent {
    pub exchange: ExchangeId,
    pub at: MonotonicInstant,
    pub event: ObserverEvent,
}

/// An observed event. Large variants are boxed, so that `Body`, which occurs once per chunk, stays small.
#[derive(Debug)]
pub enum ObserverEvent {
    /// The proxy received the request headers. Always the first event of an exchange.
    RequestHead(Box<RequestHead>),
    /// The concurrency limit of the route had no free permit, so the request waits in the queue.
    Queued,
    /// The route's concurrency limit admitted the request. Follows `RequestHead` immediately if the route has no limit.
    Admitted,
    /// A connection to the upstream is available. The event can occur twice, each time followed by `RequestHeadSent`: a
    /// reused connection was already closed, and a new connection replaces it before any byte was sent. The later event
    /// counts.
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
    /// The sender of `direction` closed its side of an upgraded connection. The first `Closed` event shows which peer
    /// closed the connection.
    Closed(Direction),
    /// The observer did not receive `bytes` body bytes, because it lagged or reached its memory limit.
    Gap { direction: Direction, bytes: u64 },
    /// The exchange ended. This is the last event of every exchange.
    End(Ending),
}

/// Minimum time from the delivery of a frame to the next poll. Only a longer time counts as backpressure, because a
/// shorter one is a scheduling delay and not caused by a slow client.
pub const MIN_BACKPRESSURE: Duration = Duration::from_millis(1);

/// Time in microseconds before this chunk during which the client side did not poll the response body. Saturates at 71
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

/// Request line and headers, reduced to the fields that the observer may read.
#[derive(Debug)]
pub struct RequestHead {
    /// Wall-clock time at which the proxy received the request headers. All exported timestamps of the exchange are
    /// this time plus a duration.
    pub wall: WallTime,
    pub method: http::Method,
    /// The path as the client sent it, without the query, and cut for telemetry.
    pub path: Name,
    /// The whole path, if `path` is cut. The listener limits its length to 64 KiB.
    pub whole_path: Option<Box<str>>,
    /// The model or Azure deployment named in the query, because some APIs have no other field for it. No other part of
    /// the query reaches the observer: queries can contain keys and signatures.
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
    /// The client's connection. `None` if it is not a TCP connection.
    pub connection: Option<Arc<TcpConnection>>,
    pub route: Arc<RouteFacts>,
    pub trace: TraceContext,
    /// The conversation id from the client's baggage.
    pub conversation: Option<Name>,
    pub identity: CallerIdentity,
    pub live_state: Arc<LiveState>,
}

impl RequestHead {
    /// Returns the path as the client sent it, without the query.
    pub fn sent_path(&self) -> &str {
        self.whole_path.as_deref().unwrap_or(self.path.as_str())
    }

    /// Returns the receive times that earlier proxies reported in `X-Request-Start` and `X-Queue-Start`.
    pub fn starts(&self) -> impl Iterator<Item = &str> {
        let names = ["x-request-start", "x-queue-start"];
        names.into_iter().filter_map(|name| self.headers.get(name))
    }
}

/// The caller's identity, read from the configured headers and hashed if configured. Clients supply these values, and
/// the proxy does not verify them.
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

label_enum! {
    #[derive(Clone, Copy, Debug, Eq, PartialEq)]
    pub enum Scheme {
        Http = "http",
        Https = "https",
    }
}

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

/// Configuration of the exchange's route. All exchanges of a route share one value.
#[derive(Clone, Debug)]
pub struct RouteFacts {
    pub name: Label,
    pub position: ProxyPosition,
    /// Host of the upstream. Exported as `server.address`, and `server_port` as `server.port`.
    pub server_address: Label,
    pub server_port: u16,
    /// The configured provider. If `None`, tokengauge infers the provider.
    pub provider: Option<Label>,
    pub learned_provider: LearnedProvider,
    /// The configured API format, such as `openai`. If `None`, tokengauge detects the API format.
    pub dialect: Option<Label>,
    /// Length in bytes of the path prefix that the proxy strips before it forwards the request.
    pub stripped: usize,
    /// Path of the upstream's URL, often empty. The proxy prepends it before it forwards the request. Detection of the
    /// API uses the resulting path.
    pub base_path: Label,
    /// Stall threshold: a stream is stalled if it has had a first token but no token for this long.
    pub stall_after: Duration,
    /// First-token threshold: a stream that is older than this and has no token is reported as waiting for its first
    /// token.
    pub hung_after: Duration,
}

/// The provider of a route, as far as the observer has found it out. Each value is set once.
#[derive(Clone, Debug, Default)]
pub struct LearnedProvider {
    /// The provider that the host of the upstream shows.
    pub by_host: OnceLock<Option<Label>>,
    /// The provider that response headers revealed first. Calls that fail without such headers therefore have the same
    /// provider as calls that succeed.
    pub by_headers: OnceLock<Label>,
}

impl RouteFacts {
    /// Default stall threshold, a pause that a reader notices. At a modest 15 tokens per second, the stream is then 30
    /// tokens late.
    pub const STALL_AFTER: Duration = Duration::from_secs(2);
    /// Default first-token threshold: the shorter of common client timeouts.
    pub const HUNG_AFTER: Duration = Duration::from_secs(30);

    /// Returns the facts of an outbound route to `host` and `port` for which nothing else is configured.
    pub fn to(name: &str, host: &str, port: u16) -> Self {
        Self {
            name: Label::known(name),
            position: ProxyPosition::Outbound,
            server_address: Label::known(host),
            server_port: port,
            provider: None,
            learned_provider: LearnedProvider::default(),
            dialect: None,
            stripped: 0,
            base_path: Label::known(""),
            stall_after: Self::STALL_AFTER,
            hung_after: Self::HUNG_AFTER,
        }
    }

    /// Continues with the provider that `previous` learned, if both routes have the same upstream.
    pub fn keep_learned_provider(&self, previous: &Self) {
        let is_same = self.server_address == previous.server_address
            && self.server_port == previous.server_port;
        if let Some(provider) = previous.learned_provider.by_headers.get().filter(|_| is_same) {
            self.learned_provider.by_headers.get_or_init(|| provider.clone());
        }
    }
}

label_enum! {
    /// Position of this proxy between client and backend. Several proxies (sidecar, gateway) and an instrumented
    /// application can observe the same call. Dashboards therefore select one position.
    #[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Hash, JsonSchema, PartialEq, Serialize, ValueEnum)]
    #[serde(rename_all = "lowercase")]
    pub enum ProxyPosition {
        /// Next to the backend: observes all callers of one engine.
        Inbound = "inbound",
        /// Next to the application: observes all backends that the application calls.
        #[default]
        Outbound = "outbound",
        /// Between both: shared by several applications and backends.
        Gateway = "gateway",
    }
}

/// Trace context of an exchange. The proxy creates the span ids when it accepts the request, because the forwarded
/// trace header may have to contain them.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct TraceContext {
    pub trace_id: [u8; 16],
    /// The client's span id, if the client sent one.
    pub parent: Option<[u8; 8]>,
    /// The client's sampling decision, if the client sent one. A B3 header can contain the decision without a span id.
    pub parent_sampled: Option<bool>,
    pub server_span: [u8; 8],
    pub client_span: [u8; 8],
    /// The client's `tracestate`, if it is valid and belongs to `parent`. Its length is bounded.
    pub state: Option<Box<str>>,
}

/// How the exchange got its connection to the upstream, and the time that each step took.
#[derive(Clone, Debug, Default)]
pub struct ConnectTimings {
    /// Whether the proxy reused an open connection: an idle HTTP/1.1 connection, or the HTTP/2 connection that all
    /// streams share.
    pub reused: bool,
    /// Time that the exchange waited for connections that it did not open: another exchange was opening the shared
    /// HTTP/2 connection, or a reused idle connection turned out to be closed.
    pub wait: Option<Duration>,
    /// Duration of DNS resolution. `None` if the upstream is configured by IP address.
    pub dns: Option<Duration>,
    /// Time until the TCP connection was open. Includes all addresses that were tried, and the tunnel through an HTTP
    /// proxy.
    pub tcp: Option<Duration>,
    pub tls: Option<Duration>,
    /// The TCP connection to the upstream, or to the HTTP proxy in front of the upstream.
    pub connection: Option<Arc<TcpConnection>>,
}

impl ConnectTimings {
    /// Returns the stages that occurred, in order. Stages do not overlap, so their sum never exceeds the duration of
    /// the stage `connect`.
    pub fn stages(&self) -> impl Iterator<Item = (ConnectStage, Duration)> {
        let parts = [self.wait, self.dns, self.tcp, self.tls];
        ConnectStage::ALL
            .into_iter()
            .zip(parts)
            .filter_map(|(stage, length)| Some((stage, length?)))
    }
}

label_enum! {
    /// A stage of connection setup.
    #[derive(Clone, Copy, Debug, Eq, PartialEq)]
    pub enum ConnectStage {
        Wait = "wait",
        Dns = "dns",
        Tcp = "tcp",
        Tls = "tls",
    }
}

/// How an exchange ended.
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

label_enum! {
    #[derive(Clone, Copy, Debug, Eq, PartialEq)]
    pub enum UpstreamFailure {
        /// The host name could not be resolved.
        Dns = "dns",
        /// No TCP connection: the connection was refused or reset, or the address was unreachable.
        Connect = "connect",
        /// The TLS handshake failed.
        Tls = "tls",
        /// The upstream closed or reset the connection before it sent response headers.
        BeforeResponse = "before_head",
        /// The upstream sent data that is not valid HTTP.
        Protocol = "protocol",
        /// The upstream closed or reset the connection before the end of the response body.
        MidBody = "mid_body",
    }
}

label_enum! {
    #[derive(Clone, Copy, Debug, Eq, PartialEq)]
    pub enum TimeoutKind {
        Connect = "connect",
        ResponseHeader = "head",
        Idle = "idle",
        Total = "total",
    }
}

label_enum! {
    #[derive(Clone, Copy, Debug, Eq, PartialEq)]
    pub enum RejectReason {
        /// No route matches the request.
        NoRoute = "no_route",
        /// The request line, the headers or the body are invalid.
        BadRequest = "bad_request",
        /// The route's concurrency limit was reached. The queue was full, or no permit became free within the queue
        /// timeout.
        Overload = "overload",
        /// The proxy is shutting down.
        Draining = "draining",
        /// The request came from this proxy itself: the address of an upstream leads back to the proxy.
        Loop = "loop",
    }
}

impl Ending {
    /// Returns the peer that caused the end of an exchange, or `ErrorSource::None` for a complete exchange.
    pub const fn fault(self) -> ErrorSource {
        match self {
            Self::Complete => ErrorSource::None,
            Self::ClientDisconnected
            | Self::RequestBodyFailed
            | Self::Rejected(RejectReason::NoRoute | RejectReason::BadRequest) => {
                ErrorSource::Client
            }
            Self::UpstreamFailed(_) | Self::TimedOut(_) => ErrorSource::Upstream,
            Self::Rejected(
                RejectReason::Overload | RejectReason::Draining | RejectReason::Loop,
            )
            | Self::Drained => ErrorSource::Proxy,
        }
    }
}

label_enum! {
    #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
    pub enum ErrorSource {
        None = "none",
        Client = "client",
        Upstream = "upstream",
        Proxy = "proxy",
    }
}

/// State of an open exchange that the data path writes and the observer reads: the peer for which the response body
/// waits.
#[derive(Debug, Default)]
pub struct LiveState {
    waiting: AtomicU8,
    since: AtomicU64,
}

/// The peer for which a response body waits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WaitingFor {
    /// The proxy polled the upstream's body, and no data has arrived since then.
    Upstream,
    /// The proxy delivered a frame, and the client side has not polled for the next one (backpressure).
    Client,
}

impl LiveState {
    /// Records the peer for which the body waits. Uses two relaxed stores. The only reader is the observer, every 250
    /// ms, and it tolerates a `waiting` and a `since` from different calls.
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
