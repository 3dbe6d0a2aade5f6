//! The words passed over the seam from the data path to the observation path, and nothing else.
//!
//! Only allow-listed headers and the path without its query cross (but for the model that a query may name, and a
//! conversation's id in the caller's baggage), so no credential can reach the observer by construction. Words are never
//! lost; body bytes may be, as an explicit [`ObserverEvent::Gap`].

mod headers;
mod who;

pub use headers::{Headers, REQUEST_HEADERS, RESPONSE_HEADERS};
pub use who::CallerIdentity;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::{MonotonicInstant, WallTime};
use crate::label::{Label, Name};
use crate::tcp::TcpConnection;

/// Names one exchange (a request and its response) for the life of the process; given out in order from 1.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(transparent)]
pub struct ExchangeId(pub u64);

impl fmt::Display for ExchangeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Which body bytes belong to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Direction {
    Request,
    Response,
}

/// One happening of one exchange, stamped when it happened.
#[derive(Debug)]
pub struct TimestampedEvent {
    pub exchange: ExchangeId,
    pub at: MonotonicInstant,
    pub word: ObserverEvent,
}

/// What happened. Boxed where large, so that the one that comes with every chunk stays small.
#[derive(Debug)]
pub enum ObserverEvent {
    /// The request's head was received. Always the first word of an exchange.
    RequestHead(Box<RequestHead>),
    /// No place was free under its route's admission limit: the exchange waits for one.
    Queued,
    /// The exchange passed the admission limit (comes right after `Open` where there is none).
    Admitted,
    /// A connection to the upstream is in hand. Said again, followed by another `Sent`, where a connection used again
    /// turned out closed before anything was written, and a new one took its place: the later one counts.
    Connected(Box<ConnectTimings>),
    /// The request's head was handed to the upstream connection.
    RequestHeadSent,
    /// The last byte of the request's body was handed to the upstream connection.
    RequestBodySent,
    /// The response's head was received from the upstream.
    ResponseHead(Box<ResponseHead>),
    /// `len` body bytes went by; they stand in the batch's byte buffer, in order.
    Body { direction: Direction, len: u32, blocked: BackpressureTime },
    /// The body of `direction` ended with trailers.
    Trailers(Direction),
    /// Both sides switched protocols (101): what follows is that protocol's bytes in both directions.
    Upgraded,
    /// The sender of `direction` ended its side of an upgraded connection. The first one is who left.
    Closed(Direction),
    /// `bytes` body bytes went by unobserved, because the observer was behind or out of memory.
    Gap { direction: Direction, bytes: u64 },
    /// The exchange is over. Always the last word of an exchange, and exactly one.
    End(Ending),
}

/// Shorter pauses between handing a frame on and being asked for the next are scheduling, not a slow client.
pub const MIN_BACKPRESSURE: Duration = Duration::from_millis(1);

/// How long the response body had not been polled (the client's side did not take it) before this arrival, in
/// microseconds; saturates at 71 minutes.
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

/// The head of a request, as far as it may be known.
#[derive(Debug)]
pub struct RequestHead {
    /// Wall-clock time at which the head was received: the anchor of every time stamp that leaves the process.
    pub wall: WallTime,
    pub method: http::Method,
    /// The path as the client sent it, without its query.
    pub path: Name,
    /// The model, or Azure's deployment, that the query names: some APIs have no other place for it. Nothing else of the
    /// query crosses, because keys and signatures stand there.
    pub model: Option<Name>,
    /// The `:authority` or `Host` the client asked for.
    pub host: Option<Name>,
    pub version: http::Version,
    pub scheme: Scheme,
    /// The headers of [`REQUEST_HEADERS`] that were there.
    pub headers: Headers,
    /// Content-Length of the request, where given.
    pub length: Option<u64>,
    pub client: Option<std::net::IpAddr>,
    /// The client's connection, where it is one of TCP.
    pub connection: Option<Arc<TcpConnection>>,
    pub route: Arc<RouteFacts>,
    pub trace: TraceContext,
    /// The conversation that the caller's baggage names.
    pub conversation: Option<Name>,
    pub who: CallerIdentity,
    pub cell: Arc<LiveState>,
}

impl RequestHead {
    /// When proxies before this one received the request, by their own word.
    pub fn starts(&self) -> impl Iterator<Item = &str> {
        let names = ["x-request-start", "x-queue-start"];
        names.into_iter().filter_map(|name| self.headers.get(name))
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Scheme {
    Http,
    Https,
}

impl Scheme {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }
}

/// The head of a response.
#[derive(Debug)]
pub struct ResponseHead {
    pub status: u16,
    pub version: http::Version,
    /// The headers of [`RESPONSE_HEADERS`] that were there.
    pub headers: Headers,
    pub length: Option<u64>,
    /// Whether the proxy wrote this answer itself (502, 503, 504 …).
    pub own: bool,
}

/// What the configuration says about the route that an exchange took; made once, shared by all its exchanges.
#[derive(Clone, Debug)]
pub struct RouteFacts {
    pub name: Label,
    pub vantage: ProxyPosition,
    /// The upstream's host and port, for `server.address` and `server.port`.
    pub server_address: Label,
    pub server_port: u16,
    /// Set where the configuration names the provider; else it is inferred.
    pub provider: Option<Label>,
    /// Set where the configuration names the dialect (`openai`, …); else it is detected.
    pub dialect: Option<Label>,
    /// Path prefix that was stripped from the path before it was sent on.
    pub stripped: usize,
    /// What the path was put behind before it was sent on: the path of the upstream's URL, often empty. Detection looks at the path
    /// that the upstream sees.
    pub base_path: Label,
    /// No token-bearing chunk for this long after the first token: a stall.
    pub stall_after: Duration,
    /// No first token for this long: hung.
    pub hung_after: Duration,
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

impl ProxyPosition {
    pub const ALL: [Self; 3] = [Self::Inbound, Self::Outbound, Self::Gateway];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Inbound => "inbound",
            Self::Outbound => "outbound",
            Self::Gateway => "gateway",
        }
    }
}

/// The trace this exchange belongs to. Ids are made when the request is accepted, because the trace header that is
/// sent on may have to carry ours.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct TraceContext {
    pub trace_id: [u8; 16],
    /// The caller's span, where it sent one.
    pub parent: Option<[u8; 8]>,
    /// The caller's decision on sampling, where it sent one; B3 may send it without a span.
    pub parent_sampled: Option<bool>,
    pub server_span: [u8; 8],
    pub client_span: [u8; 8],
    /// The caller's `tracestate`, where it belongs to the parent and is valid; bounded.
    pub state: Option<Box<str>>,
}

/// What it took to have a connection to the upstream.
#[derive(Clone, Debug, Default)]
pub struct ConnectTimings {
    /// Whether a connection that was there was used again: an idle one, or the one that all HTTP/2 streams share.
    pub reused: bool,
    /// WaitingFor that no connecting of this exchange explains: for another exchange that was making the shared HTTP/2
    /// connection, or on an idle connection that turned out closed.
    pub wait: Option<Duration>,
    /// Resolving the name; none of an upstream that is given by its address.
    pub dns: Option<Duration>,
    /// Until the connection was open, over every address that was tried, and with a proxy's tunnel.
    pub tcp: Option<Duration>,
    pub tls: Option<Duration>,
    /// The connection itself: to the upstream, or to the proxy between.
    pub connection: Option<Arc<TcpConnection>>,
}

impl ConnectTimings {
    /// The parts that took place, in order and one after the other: together never more than the stage `connect`.
    pub fn stages(&self) -> impl Iterator<Item = (ConnectStage, Duration)> {
        let parts = [self.wait, self.dns, self.tcp, self.tls];
        ConnectStage::ALL
            .into_iter()
            .zip(parts)
            .filter_map(|(stage, length)| Some((stage, length?)))
    }
}

/// A part of what it takes to have a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ConnectStage {
    Wait,
    Dns,
    Tcp,
    Tls,
}

impl ConnectStage {
    pub const ALL: [Self; 4] = [Self::Wait, Self::Dns, Self::Tcp, Self::Tls];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Wait => "wait",
            Self::Dns => "dns",
            Self::Tcp => "tcp",
            Self::Tls => "tls",
        }
    }
}

/// How an exchange ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ending {
    /// The response was delivered to its end.
    Complete,
    /// The client closed, or reset its stream, before the response's end.
    ClientDisconnected,
    /// The client's request body broke off or was malformed.
    RequestBodyFailed,
    /// The upstream could not be reached, or failed before or during its response.
    UpstreamFailed(UpstreamFailure),
    /// A time limit of this proxy ran out.
    TimedOut(TimeoutKind),
    /// This proxy refused the request: nothing was sent upstream.
    Rejected(RejectReason),
    /// This proxy was shut down before the exchange's end.
    Drained,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum UpstreamFailure {
    /// The name could not be resolved.
    Dns,
    /// No TCP connection: refused, unreachable, reset.
    Connect,
    /// The TLS handshake failed.
    Tls,
    /// Closed or reset before the response's head.
    BeforeResponse,
    /// What came was not HTTP.
    Protocol,
    /// Closed or reset before the body's end.
    MidBody,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TimeoutKind {
    Connect,
    ResponseHeader,
    Idle,
    Total,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RejectReason {
    /// No route fits.
    NoRoute,
    /// The request line, its headers or its body are not acceptable.
    BadRequest,
    /// More exchanges than the route's admission limit allows, and no place in its queue or none in time.
    Overload,
    /// The proxy is shutting down.
    Draining,
}

impl Ending {
    /// Whose fault an unfinished exchange is.
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

impl ErrorSource {
    pub const ALL: [Self; 4] = [Self::None, Self::Client, Self::Upstream, Self::Proxy];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Client => "client",
            Self::Upstream => "upstream",
            Self::Proxy => "proxy",
        }
    }
}

/// The live part of an exchange that both paths look at: whom the response body is waiting for.
#[derive(Debug, Default)]
pub struct LiveState {
    waiting: AtomicU8,
    since: AtomicU64,
}

/// Whom a response body is waiting for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WaitingFor {
    /// The last poll was pending: nothing has come from the upstream since.
    Upstream,
    /// A frame was handed on and the client's side has not asked for the next: back-pressure.
    Client,
}

impl LiveState {
    /// Two relaxed stores: the reader is a sweep every 250 ms that tolerates a torn pair.
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
