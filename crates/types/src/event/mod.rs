//! Events that the data path (which forwards traffic) sends to the observer thread (which measures it). An *exchange*
//! is a request and its response.
//!
//! An event contains only allow-listed headers and the path without its query. There are three exceptions: a model that
//! the query names, the conversation id in the client's baggage header, and the ids of a session and a sub-agent.
//! Credentials therefore cannot reach the observer. The events of an observed request are never lost. Body bytes can be
//! dropped, and an explicit [`ObserverEvent::Gap`] records each loss.

mod ending;
mod headers;
mod session;
mod user_agent;

pub use ending::{Ending, ErrorSource, RejectReason, TimedResponse, TimeoutKind, UpstreamFailure};
pub use headers::{Headers, MCP_SESSION, REQUEST_HEADERS, RESPONSE_HEADERS};
pub use session::{MAX_SESSION_BYTES, SessionRule, SessionSignal, SessionSource, ValueHasher};
pub use user_agent::UserAgent;

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

/// Id of an exchange (a request and its response). The process numbers exchanges in order, starting at 1.
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
    /// Returns who sends in this direction: `client` or `upstream`.
    pub const fn sender(self) -> &'static str {
        match self {
            Self::Request => "client",
            Self::Response => "upstream",
        }
    }
}

/// An event of a request or its response, and the time at which it occurred.
#[derive(Debug)]
pub struct TimestampedEvent {
    pub exchange: ExchangeId,
    pub at: MonotonicInstant,
    pub event: ObserverEvent,
}

/// An observed event. Large variants are boxed to keep every event small, because `Body` occurs once per chunk.
#[derive(Debug)]
pub enum ObserverEvent {
    /// The proxy received the request headers. This is always the first event of an exchange.
    RequestHead(Box<RequestHead>),
    /// The request waits in the queue, because the route's concurrency limit had no free permit.
    Queued,
    /// The route's concurrency limit admitted the request. If the route has no limit, this event immediately follows
    /// `RequestHead`.
    Admitted,
    /// A connection to the upstream is available. `RequestHeadSent` follows. Both events occur again if a reused
    /// connection was already closed, so that a new connection replaces it before any byte was sent. The later events
    /// count.
    Connected(Box<ConnectTimings>),
    /// Like `Connected`, for an open connection that the request reuses without a wait. The usual case is not boxed.
    ConnectionReused(Option<Arc<TcpConnection>>),
    /// The proxy passed the request headers to the upstream connection.
    RequestHeadSent,
    /// The proxy passed the last byte of the request body to the upstream connection.
    RequestBodySent,
    /// The proxy received the response headers from the upstream.
    ResponseHead(Box<ResponseHead>),
    /// The proxy read `len` body bytes. The buffer that is delivered with the events contains these bytes in order.
    /// Request bytes can precede `Connected`, because the body is already read while the request waits.
    Body { direction: Direction, len: u32, blocked: BackpressureTime },
    /// The body of `direction` ended with trailers.
    Trailers(Direction),
    /// The client and the upstream switched protocols (status 101), for example to WebSocket. Later bytes in both
    /// directions belong to the new protocol.
    Upgraded,
    /// The client or the upstream closed its side of an upgraded connection. The first `Closed` event shows who closed
    /// the connection.
    Closed(Direction),
    /// `bytes` body bytes did not reach the observer, because it was too slow or its memory limit was reached.
    Gap { direction: Direction, bytes: u64 },
    /// A gateway in the path reported its own token count of the response. At most once per exchange.
    GatewayUsage(Box<GatewayUsage>),
    /// The exchange ended. This is the last event of every exchange.
    End(Ending),
}

/// Tokens of a call as counted by a gateway, such as Envoy's AI filter.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct GatewayUsage {
    /// All input, including cached tokens.
    pub input: Option<u64>,
    /// All output, including reasoning.
    pub output: Option<u64>,
}

impl ObserverEvent {
    /// Time in which the client did not read, which only a response body reports.
    #[inline]
    pub fn backpressure(&self) -> Duration {
        if let Self::Body { blocked, .. } = self { blocked.duration() } else { Duration::ZERO }
    }
}

impl From<ConnectTimings> for ObserverEvent {
    fn from(timings: ConnectTimings) -> Self {
        match timings {
            ConnectTimings { reused: true, wait: None, connection, .. } => {
                Self::ConnectionReused(connection)
            }
            _ => Self::Connected(Box::new(timings)),
        }
    }
}

/// Shortest wait for the client that counts as backpressure, measured from the delivery of a body frame to the next
/// poll. A shorter wait is a scheduling delay and not caused by a slow client.
pub const MIN_BACKPRESSURE: Duration = Duration::from_millis(1);

/// Time before a chunk in which the client side did not ask for more of the response body. In microseconds, at most 71
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

/// The request line and headers, reduced to the fields that the observer may read.
#[derive(Debug)]
pub struct RequestHead {
    /// Wall-clock time at which the proxy received the request headers. All exported timestamps of the request are this
    /// time plus a duration.
    pub wall: WallTime,
    pub method: http::Method,
    /// The path that the client sent, without the query. Truncated to the maximum length of a [`Name`].
    pub path: Name,
    /// The complete path, which the listener limits to 64 KiB. `None` if `path` is not truncated.
    pub whole_path: Option<Box<str>>,
    /// The model or Azure deployment that the query names. Some APIs have no other field for the model. The rest of the
    /// query does not reach the observer, because queries can contain keys and signatures.
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
    /// How a session in the request body is recorded.
    pub session_rule: SessionRule,
    pub body_wait: Arc<BodyWaitState>,
}

impl RequestHead {
    /// Returns the complete path that the client sent, without the query.
    pub fn sent_path(&self) -> &str {
        self.whole_path.as_deref().unwrap_or(self.path.as_str())
    }

    /// Returns the values of `X-Request-Start` and `X-Queue-Start`, the receive times that earlier proxies report.
    pub fn starts(&self) -> impl Iterator<Item = &str> {
        let names = ["x-request-start", "x-queue-start"];
        names.into_iter().filter_map(|name| self.headers.get(name))
    }
}

/// The caller's identity, read from the configured headers, and for the session also from what clients send without
/// configuration. Optionally hashed. The proxy does not verify these values, because clients supply them.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct CallerIdentity {
    /// The account that the request belongs to, such as a customer or a team.
    pub tenant: Option<Name>,
    /// The conversation or run that the request belongs to. Never a metric attribute, because each session would create
    /// new series.
    pub session: Option<Name>,
    /// Where the session was found.
    pub session_source: Option<SessionSource>,
    /// Id of the sub-agent that sent the request, if a coding agent reports one.
    pub sub_agent: Option<Name>,
    /// The variant that the request uses: a prompt version, a model version, or an arm of an A/B test.
    pub variant: Option<Name>,
}

label_enum! {
    #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
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
    /// Whether the proxy, not the upstream, generated this response (502, 503, 504 …).
    pub from_proxy: bool,
}

/// Settings of a route that the observer needs. All requests of a route share one `RouteFacts`.
#[derive(Clone, Debug)]
pub struct RouteFacts {
    pub name: Label,
    pub position: ProxyPosition,
    /// Host of the upstream, exported as `server.address`.
    pub server_address: Label,
    /// Port of the upstream, exported as `server.port`.
    pub server_port: u16,
    /// The configured provider. If `None`, tokengauge infers the provider.
    pub provider: Option<Label>,
    pub learned_provider: LearnedProvider,
    /// The configured API format, such as `openai`. If `None`, tokengauge detects the API format.
    pub dialect: Option<Label>,
    /// Length in bytes of the path prefix that the proxy strips before it forwards the request.
    pub stripped: usize,
    /// Path of the upstream's URL, often empty. The proxy prepends this path to the path of each request. The API
    /// format is detected from the resulting path.
    pub base_path: Label,
    /// Stall threshold. A stream that has produced a token is stalled if no token follows for this long.
    pub inter_token_after: Duration,
    /// First-token threshold. A stream that has no token after this time is reported as waiting for its first token.
    pub first_token_after: Duration,
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
    /// Default stall threshold. A reader notices a pause of this length: at 15 tokens per second, the stream is then 30
    /// tokens late.
    pub const INTER_TOKEN_AFTER: Duration = Duration::from_secs(2);
    /// Default first-token threshold. Clients with a short timeout give up after this time.
    pub const FIRST_TOKEN_AFTER: Duration = Duration::from_secs(30);

    /// Returns the settings of an outbound route to `host` and `port`. All other settings have their defaults.
    pub fn for_upstream(name: &str, host: &str, port: u16) -> Self {
        Self {
            name: Label::from_trusted(name),
            position: ProxyPosition::Outbound,
            server_address: Label::from_trusted(host),
            server_port: port,
            provider: None,
            learned_provider: LearnedProvider::default(),
            dialect: None,
            stripped: 0,
            base_path: Label::from_trusted(""),
            inter_token_after: Self::INTER_TOKEN_AFTER,
            first_token_after: Self::FIRST_TOKEN_AFTER,
        }
    }

    /// Copies the inferred provider from `previous`, the same route before a configuration reload, if the upstream is
    /// unchanged.
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
        /// The proxy runs next to the backend, and observes all callers of one engine.
        Inbound = "inbound",
        /// The proxy runs next to the application, and observes all backends that the application calls.
        #[default]
        Outbound = "outbound",
        /// The proxy runs between both, and several applications and backends share it.
        Gateway = "gateway",
        /// Envoy forwards the requests, and sends a copy. Set by the listener, not by a setting.
        #[serde(skip)]
        #[value(skip)]
        Envoy = "envoy",
    }
}

/// Trace context of a request. The proxy creates its span ids when it accepts the request, because the trace header
/// that it sends upstream may contain these ids.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct TraceContext {
    pub trace_id: [u8; 16],
    /// The client's span id, if the client sent one.
    pub parent: Option<[u8; 8]>,
    /// The client's sampling decision. `None` if the client sent none. A B3 header can contain a decision without a
    /// span id.
    pub parent_sampled: Option<bool>,
    pub server_span: [u8; 8],
    pub client_span: [u8; 8],
    /// The client's `tracestate` header, of limited length. `None` if the header is invalid or does not belong to
    /// `parent`.
    pub state: Option<Box<str>>,
}

/// How a request got its connection to the upstream, and how long each step took.
#[derive(Clone, Debug, Default)]
pub struct ConnectTimings {
    /// Whether the proxy reused an open connection. This is an idle HTTP/1.1 connection, or an HTTP/2 connection that
    /// several requests share.
    pub reused: bool,
    /// Time that the request waited for a connection that it did not open. Either another request was opening a shared
    /// HTTP/2 connection, or a reused idle connection turned out to be closed.
    pub wait: Option<Duration>,
    /// Duration of DNS resolution. `None` if the configuration has an IP address, not a host name.
    pub dns: Option<Duration>,
    /// Time to open the TCP connection. Includes failed attempts at other addresses, and the tunnel through an HTTP
    /// proxy.
    pub tcp: Option<Duration>,
    pub tls: Option<Duration>,
    /// The TCP connection to the upstream, or to the HTTP proxy in front of the upstream.
    pub connection: Option<Arc<TcpConnection>>,
}

impl ConnectTimings {
    /// Returns the timings of a request that reuses a connection without a wait.
    pub fn reused() -> Self {
        Self { reused: true, ..Self::default() }
    }

    /// Returns the stages that occurred, in order. Stages do not overlap, so the sum of their durations never exceeds
    /// the duration of the stage `connect`.
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

/// Whether the body of an open response waits for the client or the upstream. The data path writes this state for the
/// observer.
#[derive(Debug, Default)]
pub struct BodyWaitState {
    waiting: AtomicU8,
    since: AtomicU64,
}

/// Who has to act before the response body can continue.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WaitingFor {
    /// The proxy asked the upstream for more of the body, and no data has arrived since then.
    Upstream,
    /// The proxy delivered body data, and the client side has not asked for more (backpressure).
    Client,
}

impl BodyWaitState {
    /// Records who the response body waits for, and since when. The two values are not stored atomically. The observer,
    /// the only reader, tolerates this and reads every 250 ms.
    pub fn set_waiting_for(&self, peer: WaitingFor, since: MonotonicInstant) {
        self.since.store(since.nanos(), Ordering::Relaxed);
        self.waiting.store(peer as u8, Ordering::Relaxed);
    }

    pub fn waiting(&self) -> (WaitingFor, MonotonicInstant) {
        let peer = if self.waiting.load(Ordering::Relaxed) == WaitingFor::Client as u8 {
            WaitingFor::Client
        } else {
            WaitingFor::Upstream
        };
        (peer, MonotonicInstant::from_nanos(self.since.load(Ordering::Relaxed)))
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
