//! Sending on and streaming back, untouched.

use std::path::PathBuf;
use std::time::Duration;

use crate::label::Label;

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
}

/// What is spoken to the upstream.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
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
        Self {
            connect: Some(Duration::from_secs(10)),
            head: None,
            idle: None,
            total: None,
        }
    }
}

impl Config {
    /// Below the 5 s of uvicorn, the server under most self-hosted engines.
    pub const POOL_IDLE_PLAIN: Duration = Duration::from_secs(4);
    /// Vendors' edges keep idle connections for 60 s and more; a TLS handshake saved is 2 round trips.
    pub const POOL_IDLE_TLS: Duration = Duration::from_secs(50);
    /// As many as a burst leaves behind; older ones are closed first.
    pub const POOL_SIZE: usize = 1_024;
}
