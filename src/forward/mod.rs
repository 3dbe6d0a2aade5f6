//! Sending on and streaming back, untouched.
//!
//! **What a dropped future means.** hyper drops the future that answers a request, and later the response's body, as
//! soon as it sees that the client is gone. Both own the connection to the upstream, so it is closed in the same
//! moment; that is what makes an engine stop generating. The observer is dropped with them and says how the exchange ended.
//!
//! **What is repeated.** Nothing that wrote a byte. hyper gives a request back where its idle connection turned out
//! closed before anything was written, and only then a new connection gets it, once.

mod admission;
mod answer;
mod body;
mod connect;
mod exchange;
mod forwarder;
mod headers;
mod http1;
pub mod identity;
mod probe;
mod proxy;
mod query;
mod route_table;
mod stream;
mod trace;
mod tunnel;
mod upstream;

use std::path::PathBuf;
use std::time::Duration;

use self::admission::BufferedBody;
pub use self::body::RelayBody;
pub use self::connect::SetupError;
pub use self::forwarder::{Client, ForwardService, Forwarder, Parts};
pub use self::identity::Identity;
pub use self::probe::{HttpProbe, ProbeError};
pub use self::proxy::Proxy;
pub use self::route_table::RouteTable;
pub use self::trace::{Carried, Propagation, Propagator, Sample};
pub use self::upstream::Upstream;

use tokengauge_observe::tee::body::{RequestBody, ResponseBody};
use tokengauge_types::label::Label;

/// The body of every response this proxy gives.
pub type Answer = ResponseBody<RelayBody>;

/// The body of every request it sends.
type Upload = RequestBody<BufferedBody>;

/// One upstream.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Config {
    /// The key under `upstreams`, or `default`.
    pub name: Label,
    pub tls: bool,
    pub host: String,
    pub port: u16,
    /// Prepended to the path (after stripping); empty or starting with `/`, without a trailing one.
    pub base_path: String,
    pub protocol: Protocol,
    /// Whether the client's `Host` is sent on; else the upstream's own host is.
    pub keep_host: bool,
    /// A PEM file of further root certificates for this upstream.
    pub ca_file: Option<PathBuf>,
    pub timeouts: Timeouts,
    /// How long an idle connection is kept for re-use. Below the upstream's own keep-alive: uvicorn's is 5 s.
    pub pool_idle: Duration,
    /// Idle connections kept at most.
    pub pool_size: usize,
    /// What it is reached through; `None` is directly.
    pub proxy: Option<Proxy>,
}

/// What is spoken to the upstream.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    Eq,
    PartialEq,
    serde::Deserialize,
    serde::Serialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// One connection per stream; closing it cancels the request.
    #[default]
    Http1,
    /// By ALPN over TLS, else with prior knowledge.
    Http2,
}

/// Time limits of one exchange; `None` is no limit. A proxy must not cut a thinking model, so only connecting is limited
/// unless the user asks for more.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Timeouts {
    /// DNS, TCP and TLS together.
    pub connect: Option<Duration>,
    /// From the request sent to the response's head.
    pub head: Option<Duration>,
    /// Between two frames of the response's body.
    pub idle: Option<Duration>,
    /// From the request's head to the response's end.
    pub total: Option<Duration>,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { connect: Some(Duration::from_secs(10)), head: None, idle: None, total: None }
    }
}

impl Config {
    /// Below the 5 s of uvicorn, the server under most self-hosted engines.
    pub const POOL_IDLE_PLAIN: Duration = Duration::from_secs(4);
    /// Vendors' edges keep idle connections for 60 s and more; a TLS handshake saved is 2 round trips.
    pub const POOL_IDLE_TLS: Duration = Duration::from_secs(50);
    /// As many as a burst leaves behind; older ones are closed first.
    pub const POOL_SIZE: usize = 1_024;

    /// An upstream with the defaults of everything but its name and address.
    pub fn to(name: Label, tls: bool, host: &str, port: u16) -> Self {
        Self {
            name,
            tls,
            host: host.to_owned(),
            port,
            base_path: String::new(),
            protocol: Protocol::default(),
            keep_host: false,
            ca_file: None,
            timeouts: Timeouts::default(),
            pool_idle: if tls { Self::POOL_IDLE_TLS } else { Self::POOL_IDLE_PLAIN },
            pool_size: Self::POOL_SIZE,
            proxy: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a stream holds besides hyper's buffers; a chat with 5,000 streams pays each byte 5,000 times.
    #[test]
    fn what_a_stream_holds_stays_small() {
        let sizes = (size_of::<Answer>(), size_of::<http1::Http1Connection>(), size_of::<Upload>());
        assert!(sizes.0 <= 256 && sizes.1 <= 1024 && sizes.2 <= 72, "{sizes:?}");
    }
}
