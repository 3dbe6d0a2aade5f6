//! Forwards requests to upstreams and streams responses back, unchanged.
//!
//! [`Forwarder`] is a stack of tower services: route and observe → respond → admission → relay.
//! An *exchange* is a request and its response.
//!
//! **Cancellation.** When the client disconnects, hyper drops the future of the request or, later, the response body.
//! Both own the connection to the upstream, which closes at the same time. The closed connection makes an engine stop
//! generating. The observer of the request is dropped too, and reports how the exchange ended.
//!
//! **Retries.** A request is repeated once, on a new connection, if a reused connection ends before any byte of the
//! response. [`Retry`] has the conditions. A request on a new connection is never repeated.

mod admission;
mod body;
mod buffered_body;
mod connect;
mod error;
mod error_responses;
mod forwarder;
mod headers;
mod health;
mod http1;
mod http2;
pub mod identity;
mod limiter;
mod open_sockets;
mod outage;
mod pool;
mod probe;
mod relay;
mod repeat;
mod request;
mod resolver;
mod respond;
mod route;
mod socket;
mod stream;
#[cfg(test)]
mod testing;
mod tunnel;
mod upstream;

use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::body::{BodyError, RelayBody};
pub use self::connect::{ConnectError, SetupError, read_authorities, system_roots};
pub use self::forwarder::{ForwardService, Forwarder};
pub use self::identity::Identity;
pub use self::limiter::ConcurrencyLimit;
pub use self::probe::{HttpProbe, ProbeError};
pub use self::request::Dependencies;
pub use self::resolver::Resolver;
pub use self::route::{RouteConfig, RouteError, RouteMatcher, RouteTable, TraceHeaders};
pub use self::upstream::Upstream;
pub use tokengauge_observe::trace::{Propagation, Propagator};

use tokengauge_listen::HeaderLimits;
use tokengauge_observe::tee::body::ResponseBody;
pub use tokengauge_telemetry::Proxy;
use tokengauge_types::bounded::{DAY, UpTo};
use tokengauge_types::label::Label;

/// The body of every response of the proxy.
pub type ProxyBody = ResponseBody<RelayBody>;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum ShutdownState {
    Serving,
    /// Active requests may finish. Queued requests are rejected.
    Draining,
    /// Active requests are aborted.
    Aborting,
}

/// Configuration of one upstream.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct UpstreamConfig {
    /// Name of the upstream: the key under `upstreams` in the configuration, or `default`.
    pub name: Label,
    pub tls: bool,
    pub host: String,
    pub port: u16,
    /// Path prefix of the upstream URL, such as `/v1`, or empty. Added after the route's prefix is stripped. Does not
    /// end with `/`.
    pub base_path: String,
    pub protocol: Protocol,
    /// Whether the client's `Host` header is forwarded. If false, the upstream's host name is sent instead.
    pub preserve_host: bool,
    /// A PEM file with additional root certificates for this upstream.
    pub ca_file: Option<PathBuf>,
    /// SHA-256 of `ca_file`, so that a changed file counts as a changed configuration. `None` if the file was not read.
    pub ca_digest: Option<[u8; 32]>,
    pub timeouts: Timeouts,
    /// Idle timeout of pooled connections. Must be shorter than the keep-alive timeout of the upstream (5 s for
    /// uvicorn).
    pub idle_timeout: Duration,
    /// Maximum number of idle connections in the pool.
    pub pool_size: usize,
    /// Age after which a connection is not reused. A new connection resolves the host name again.
    pub max_connection_age: Duration,
    pub retry: Retry,
    /// Detects HTTP/2 connections whose network path is dead.
    pub http2_ping: Http2Ping,
    /// HTTP proxy for connections to the upstream. `None` means a direct connection.
    pub proxy: Option<Proxy>,
    /// Resolves host names. If `None`, the system does.
    pub resolver: Option<Resolver>,
    /// Maximum size of the headers of a response.
    pub header_limits: HeaderLimits,
}

/// The HTTP version of connections to the upstream.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// One connection per request. Closing the connection cancels the request.
    #[default]
    Http1,
    /// Many requests per connection. Negotiated by ALPN over TLS. Needs prior knowledge without TLS.
    Http2,
}

/// Which requests are sent a second time if a reused connection ends before the first byte of the response.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Retry {
    /// Requests that are safe to repeat: it is proven that the upstream has read nothing of them, or they are idempotent
    /// by their method or an `Idempotency-Key` header.
    #[default]
    Safe,
    /// All requests.
    Always,
    /// Only requests of which no byte was written.
    Never,
}

/// Pings on HTTP/2 connections to an upstream. They are sent while requests are open and nothing arrives.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Http2Ping {
    /// Time without received data before a ping, and between pings.
    pub interval: Duration,
    /// Maximum time until the answer. When it expires, the requests on the connection fail, and further ones use another
    /// connection.
    pub timeout: Duration,
}

impl Default for Http2Ping {
    /// A dead connection is left after 20 s. Every request on the connection waits for this time, so it must be short.
    /// It must also be longer than a pause of a busy upstream, or than TCP needs to repeat lost packets.
    fn default() -> Self {
        Self { interval: Duration::from_secs(10), timeout: Duration::from_secs(10) }
    }
}

/// Time limits of one request. By default, only connecting has one, because a model may think for a long time.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Timeouts {
    /// DNS, TCP and TLS together.
    #[serde(with = "UpTo::<DAY>")]
    #[schemars(with = "UpTo<DAY>")]
    pub connect: Option<Duration>,
    /// From the start of sending the request to the response headers, so it includes the upload of the body. A
    /// non-streaming response sends its headers when it is complete.
    #[serde(with = "UpTo::<DAY>")]
    #[schemars(with = "UpTo<DAY>")]
    pub response_header: Option<Duration>,
    /// Between two chunks of the response body, or without data in either direction of a WebSocket. A reasoning model
    /// can be silent for minutes.
    #[serde(with = "UpTo::<DAY>")]
    #[schemars(with = "UpTo<DAY>")]
    pub idle: Option<Duration>,
    /// From the request headers to the end of the response or WebSocket. It also ends a response that the client does
    /// not read, at most 1 s later.
    #[serde(with = "UpTo::<DAY>")]
    #[schemars(with = "UpTo<DAY>")]
    pub total: Option<Duration>,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Some(Duration::from_secs(10)),
            response_header: None,
            idle: None,
            total: None,
        }
    }
}

impl UpstreamConfig {
    /// Default idle timeout of pooled connections without TLS. Most self-hosted engines use the server uvicorn, which
    /// closes idle connections after 5 s.
    pub const IDLE_TIMEOUT_PLAIN: Duration = Duration::from_secs(4);
    /// Default idle timeout of pooled connections with TLS. Providers keep idle connections open for 60 s or longer.
    /// Reuse saves the TLS handshake, which takes 2 round trips.
    pub const IDLE_TIMEOUT_TLS: Duration = Duration::from_secs(50);
    /// Default maximum number of idle connections, enough for a burst of requests. When the pool is full, the least
    /// recently used connection is closed.
    pub const POOL_SIZE: usize = 1_024;
    /// Default age after which a connection is not reused. Without this limit, steady traffic would stay on the old
    /// addresses for days after a DNS change. DNS records usually live for 5 minutes, and opening connections at this
    /// interval costs little.
    pub const MAX_CONNECTION_AGE: Duration = Duration::from_secs(300);

    /// Returns an upstream with default settings.
    pub fn new(name: Label, tls: bool, host: &str, port: u16) -> Self {
        Self {
            name,
            tls,
            host: host.to_owned(),
            port,
            base_path: String::new(),
            protocol: Protocol::default(),
            preserve_host: false,
            ca_file: None,
            ca_digest: None,
            timeouts: Timeouts::default(),
            idle_timeout: if tls { Self::IDLE_TIMEOUT_TLS } else { Self::IDLE_TIMEOUT_PLAIN },
            pool_size: Self::POOL_SIZE,
            max_connection_age: Self::MAX_CONNECTION_AGE,
            retry: Retry::default(),
            http2_ping: Http2Ping::default(),
            proxy: None,
            resolver: None,
            header_limits: HeaderLimits::DEFAULT,
        }
    }
}

#[cfg(test)]
mod tests {
    use http::Request;
    use hyper::service::Service;
    use tokengauge_listen::ReceivedBody;

    use super::*;

    /// Limits the memory of one stream, in addition to hyper's buffers. With 5,000 streams, each byte counts 5,000
    /// times.
    #[test]
    fn a_stream_stays_small() {
        let response = size_of::<ProxyBody>();
        let request = size_of::<repeat::SentBody>();
        let connection = size_of::<http1::Http1Connection>();
        let future = size_of::<<ForwardService as Service<Request<ReceivedBody>>>::Future>();
        let sizes = (response, connection, request, future);
        assert!(
            response <= 256 && connection <= 912 && request <= 16 && future <= 256,
            "{sizes:?}"
        );
    }
}
