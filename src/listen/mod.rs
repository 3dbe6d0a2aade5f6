//! Accepting connections: TCP and Unix sockets, TLS, HTTP/1.1 and HTTP/2, limits, drain.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// One listener.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Config {
    pub address: Address,
    pub tls: Option<Tls>,
    /// Connections open at once; further ones wait in the kernel's backlog.
    pub max_connections: usize,
    /// How long a client may take from its first byte to the end of a request's head.
    pub head_timeout: Duration,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Address {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// PEM files of the server's certificate chain and key.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Tls {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl Config {
    /// Two file descriptors per stream: half of a common `ulimit -n` of 20,000, less what else is open.
    pub const MAX_CONNECTIONS: usize = 8_192;
    /// What nginx and hyper take as their defaults lies between 30 and 60 s.
    pub const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

    pub const fn at(address: Address) -> Self {
        Self {
            address,
            tls: None,
            max_connections: Self::MAX_CONNECTIONS,
            head_timeout: Self::HEAD_TIMEOUT,
        }
    }
}
