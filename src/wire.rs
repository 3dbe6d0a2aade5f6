//! The words passed over the seam from the data path to the observation path, and nothing else.
//!
//! Only allow-listed headers and the path without its query cross (but for the model that a query may name), so no
//! credential can reach the observer by construction. Words are never lost; body bytes may be, as an explicit [`Word::Gap`].

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::{Moment, Wall};
use crate::label::{Label, Name};

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
pub struct Entry {
    pub exchange: ExchangeId,
    pub at: Moment,
    pub word: Word,
}

/// What happened. Boxed where large, so that the one that comes with every chunk stays small.
#[derive(Debug)]
pub enum Word {
    /// The request's head was received. Always the first word of an exchange.
    Open(Box<Open>),
    /// The exchange passed the admission limit (comes right after `Open` where there is none).
    Admitted,
    /// A connection to the upstream is in hand. Said again, followed by another `Sent`, where a connection used again
    /// turned out closed before anything was written, and a new one took its place: the later one counts.
    Connected(Box<Connected>),
    /// The request's head was handed to the upstream connection.
    Sent,
    /// The last byte of the request's body was handed to the upstream connection.
    RequestEnd,
    /// The response's head was received from the upstream.
    Head(Box<Head>),
    /// `len` body bytes went by; they stand in the batch's byte buffer, in order.
    Arrival {
        direction: Direction,
        len: u32,
        blocked: Blocked,
    },
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
pub const BLOCKED_FROM: Duration = Duration::from_millis(1);

/// How long the response body had not been polled (the client's side did not take it) before this arrival, in
/// microseconds; saturates at 71 minutes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Blocked(pub u32);

impl Blocked {
    pub fn from_duration(time: Duration) -> Self {
        Self(u32::try_from(time.as_micros()).unwrap_or(u32::MAX))
    }

    pub const fn duration(self) -> Duration {
        Duration::from_micros(self.0 as u64)
    }
}

/// The head of a request, as far as it may be known.
#[derive(Debug)]
pub struct Open {
    /// Wall-clock time at which the head was received: the anchor of every time stamp that leaves the process.
    pub wall: Wall,
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
    pub route: Arc<RouteFacts>,
    pub trace: Trace,
    pub cell: Arc<Cell>,
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
pub struct Head {
    pub status: u16,
    pub version: http::Version,
    /// The headers of [`RESPONSE_HEADERS`] that were there.
    pub headers: Headers,
    pub length: Option<u64>,
    /// Whether the proxy wrote this answer itself (502, 503, 504 …).
    pub own: bool,
}

/// Request headers that may cross the seam. None of them can hold a credential.
pub const REQUEST_HEADERS: [&str; 16] = [
    "accept",
    "content-encoding",
    "content-type",
    "idempotency-key",
    "traceparent",
    "tracestate",
    "user-agent",
    "x-amz-target",
    "x-queue-start",
    "x-request-id",
    "x-request-start",
    "x-stainless-lang",
    "x-stainless-retry-count",
    "x-amzn-trace-id",
    "openai-beta",
    "anthropic-version",
];

/// Response headers that may cross the seam.
pub const RESPONSE_HEADERS: [&str; 50] = [
    "anthropic-ratelimit-input-tokens-limit",
    "anthropic-ratelimit-input-tokens-remaining",
    "anthropic-ratelimit-input-tokens-reset",
    "anthropic-ratelimit-output-tokens-limit",
    "anthropic-ratelimit-output-tokens-remaining",
    "anthropic-ratelimit-output-tokens-reset",
    "anthropic-ratelimit-requests-limit",
    "anthropic-ratelimit-requests-remaining",
    "anthropic-ratelimit-requests-reset",
    "anthropic-ratelimit-tokens-limit",
    "anthropic-ratelimit-tokens-remaining",
    "anthropic-ratelimit-tokens-reset",
    "azureml-model-session",
    "content-encoding",
    "content-type",
    "openai-model",
    "openai-processing-ms",
    "retry-after",
    "server",
    "upgrade",
    "x-amzn-bedrock-cache-read-input-token-count",
    "x-amzn-bedrock-cache-write-input-token-count",
    "x-amzn-bedrock-input-token-count",
    "x-amzn-bedrock-invocation-latency",
    "x-amzn-bedrock-output-token-count",
    "x-amzn-errortype",
    "x-compute-type",
    "x-ds-trace-id",
    "x-envoy-upstream-service-time",
    "x-generated-tokens",
    "x-groq-region",
    "x-ms-deployment-name",
    "x-prompt-tokens",
    "x-queue-time",
    "x-ratelimit-limit",
    "x-ratelimit-limit-requests",
    "x-ratelimit-limit-tokens",
    "x-ratelimit-remaining",
    "x-ratelimit-remaining-requests",
    "x-ratelimit-remaining-tokens",
    "x-ratelimit-reset",
    "x-ratelimit-reset-requests",
    "x-ratelimit-reset-tokens",
    "x-request-id",
    "x-tokenlimit-limit",
    "x-tokenlimit-remaining",
    "x-total-time",
    "ratelimit-limit",
    "ratelimit-remaining",
    "ratelimit-reset",
];

/// A few headers from one of the two lists above, in lower case.
#[derive(Clone, Debug, Default)]
pub struct Headers(Vec<(&'static str, Name)>);

impl Headers {
    /// Picks out of `map` the headers named in `allowed`; of a repeated one the first.
    ///
    /// Goes through the headers that came, a dozen as a rule, and not through the list: comparing a name's length with
    /// those in the list costs less than hashing each entry of it.
    pub fn pick(map: &http::HeaderMap, allowed: &'static [&'static str]) -> Self {
        let mut picked = Self::default();
        for (name, value) in map {
            let known = allowed.iter().find(|known| **known == name.as_str());
            let Some(known) = known.filter(|known| picked.get(known).is_none()) else {
                continue;
            };
            if let Some(text) = value.to_str().ok().and_then(Name::new) {
                picked.0.push((known, text));
            }
        }
        picked
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, value)| value.as_str())
    }

    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.0.iter().map(|(name, value)| (*name, value.as_str()))
    }
}

impl FromIterator<(&'static str, Name)> for Headers {
    fn from_iter<I: IntoIterator<Item = (&'static str, Name)>>(items: I) -> Self {
        Self(items.into_iter().collect())
    }
}

/// What the configuration says about the route that an exchange took; made once, shared by all its exchanges.
#[derive(Clone, Debug)]
pub struct RouteFacts {
    pub name: Label,
    pub vantage: Vantage,
    /// The upstream's host and port, for `server.address` and `server.port`.
    pub server_address: Label,
    pub server_port: u16,
    /// Set where the configuration names the provider; else it is inferred.
    pub provider: Option<Label>,
    /// Set where the configuration names the dialect (`openai`, …); else it is detected.
    pub dialect: Option<Label>,
    /// Path prefix that was stripped from the path before it was sent on; detection looks at what is left.
    pub stripped: usize,
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
pub enum Vantage {
    /// Beside the backend: sees every caller of one engine.
    Inbound,
    /// Beside the application: sees every backend one application calls.
    #[default]
    Outbound,
    /// In between, shared.
    Gateway,
}

impl Vantage {
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
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Trace {
    pub trace_id: [u8; 16],
    /// The caller's span, where it sent one.
    pub parent: Option<[u8; 8]>,
    /// The caller's sampled flag, where it sent one.
    pub parent_sampled: Option<bool>,
    pub server_span: [u8; 8],
    pub client_span: [u8; 8],
}

/// What it took to have a connection to the upstream.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Connected {
    /// Whether an idle connection was used again; then the three times are zero.
    pub reused: bool,
    pub dns: Duration,
    pub tcp: Duration,
    pub tls: Duration,
}

/// How an exchange ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ending {
    /// The response was delivered to its end.
    Complete,
    /// The client closed, or reset its stream, before the response's end.
    ClientGone,
    /// The client's request body broke off or was malformed.
    ClientBroke,
    /// The upstream could not be reached, or failed before or during its response.
    UpstreamFailed(Failure),
    /// A time limit of this proxy ran out.
    TimedOut(Limit),
    /// This proxy refused the request: nothing was sent upstream.
    Rejected(Refusal),
    /// This proxy was shut down before the exchange's end.
    Drained,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Failure {
    /// The name could not be resolved.
    Dns,
    /// No TCP connection: refused, unreachable, reset.
    Connect,
    /// The TLS handshake failed.
    Tls,
    /// Closed or reset before the response's head.
    BeforeHead,
    /// What came was not HTTP.
    Protocol,
    /// Closed or reset before the body's end.
    MidBody,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Limit {
    Connect,
    Head,
    Idle,
    Total,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Refusal {
    /// No route fits.
    NoRoute,
    /// The request line, its headers or its body are not acceptable.
    BadRequest,
    /// More exchanges than `limits` allow.
    Overload,
    /// The proxy is shutting down.
    Draining,
}

impl Ending {
    /// Whose fault an unfinished exchange is.
    pub const fn fault(self) -> Fault {
        match self {
            Self::Complete => Fault::None,
            Self::ClientGone
            | Self::ClientBroke
            | Self::Rejected(Refusal::NoRoute | Refusal::BadRequest) => Fault::Client,
            Self::UpstreamFailed(_) | Self::TimedOut(_) => Fault::Upstream,
            Self::Rejected(Refusal::Overload | Refusal::Draining) | Self::Drained => Fault::Proxy,
        }
    }
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Fault {
    None,
    Client,
    Upstream,
    Proxy,
}

impl Fault {
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
pub struct Cell {
    waiting: AtomicU8,
    since: AtomicU64,
}

/// Whom a response body is waiting for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Waiting {
    /// The last poll was pending: nothing has come from the upstream since.
    Upstream,
    /// A frame was handed on and the client's side has not asked for the next: back-pressure.
    Client,
}

impl Cell {
    /// Two relaxed stores: the reader is a sweep every 250 ms that tolerates a torn pair.
    pub fn wait_for(&self, whom: Waiting, since: Moment) {
        self.since.store(since.nanos(), Ordering::Relaxed);
        self.waiting.store(whom as u8, Ordering::Relaxed);
    }

    pub fn waiting(&self) -> (Waiting, Moment) {
        let whom = if self.waiting.load(Ordering::Relaxed) == Waiting::Client as u8 {
            Waiting::Client
        } else {
            Waiting::Upstream
        };
        (whom, Moment::from_nanos(self.since.load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_header_that_can_hold_a_credential_may_cross() {
        for name in REQUEST_HEADERS.iter().chain(&RESPONSE_HEADERS) {
            let forbidden = [
                "authorization",
                "cookie",
                "api-key",
                "x-api-key",
                "x-goog-api-key",
                "x-amz-security-token",
                "proxy-authorization",
            ];
            assert!(!forbidden.contains(name), "{name}");
            assert!(!name.contains("auth") && !name.contains("secret"), "{name}");
        }
    }

    #[test]
    fn of_allowed_headers_the_first_value_is_picked() {
        let mut map = http::HeaderMap::new();
        map.append("X-Request-Id", http::HeaderValue::from_static("first"));
        map.append("x-request-id", http::HeaderValue::from_static("second"));
        map.append("authorization", http::HeaderValue::from_static("secret"));
        map.append("accept", http::HeaderValue::from_static(""));
        let picked = Headers::pick(&map, &REQUEST_HEADERS);
        assert_eq!(picked.get("x-request-id"), Some("first"));
        assert_eq!(picked.0.len(), 1);
    }

    #[test]
    fn an_arrival_stays_small() {
        assert!(
            size_of::<Entry>() <= 48,
            "{} bytes are copied for every chunk",
            size_of::<Entry>()
        );
    }
}
