//! The way out: `HTTPS_PROXY`, `http_proxy`, `ALL_PROXY` and `NO_PROXY`, by curl's rules.

use std::net::IpAddr;

use super::Secret;

/// Which proxy to use for which upstream.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Proxy {
    /// For upstreams over TLS.
    pub https: Option<ProxyAddress>,
    /// For upstreams in plain text.
    pub http: Option<ProxyAddress>,
    /// Hosts that are reached directly.
    pub no_proxy: Vec<Pattern>,
}

/// One HTTP proxy, to be asked with `CONNECT`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ProxyAddress {
    pub host: String,
    pub port: u16,
    /// Whether the proxy itself is spoken to over TLS.
    pub tls: bool,
    /// `user:password`, percent-decoded, for `Proxy-Authorization: Basic`.
    pub credentials: Option<Secret>,
}

/// One entry of `NO_PROXY`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Pattern {
    /// `*`: every host.
    Any,
    /// A domain and everything below it, in lower case without leading or trailing dot.
    Domain { suffix: String, port: Option<u16> },
    /// Addresses whose first `bits` are those of `network`; only for hosts that are IP addresses.
    Network {
        network: IpAddr,
        bits: u8,
        port: Option<u16>,
    },
}
