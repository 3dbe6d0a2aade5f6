//! Accepting connections: TCP and Unix sockets, TLS, HTTP/1.1 and HTTP/2, limits, drain.
//!
//! A listener serves until it is told to stop; what is left is a [`Connections`], whose exchanges may finish for a
//! while before they are cut:
//!
//! ```text
//! let connections = listener.serve(service_for, shutdown).await;   // no longer accepting
//! let left = connections.finish(drain).await;                      // those still open when the time was up
//! forwarder.cut();                                                 // what ends from here on was cut by this proxy
//! connections.cut().await;
//! ```

mod connection;
mod exchanges;
mod first;
mod phases;
mod socket;
mod tls;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

pub use self::connection::Handler;
pub use self::tls::Error as TlsError;

use self::connection::Server;
use self::phases::{Phase, Phases};
use self::socket::Socket;
use tokengauge_types::tcp::TcpConnection;

/// One listener.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Config {
    pub address: Address,
    pub tls: Option<Tls>,
    /// Connections open at once; further ones wait in the kernel's backlog.
    pub max_connections: usize,
    /// How long a client may take to send the head of a request, counted from the connection's opening (its TLS
    /// handshake included) or from the end of the last response: so this is also how long a connection may be idle.
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

/// Who is at the other end of a connection.
#[derive(Clone, Debug)]
pub struct Peer {
    /// None behind a Unix socket.
    pub connection: Option<Arc<TcpConnection>>,
    pub tls: bool,
}

/// Why a listener cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot listen on {0}: {1}")]
    Bind(String, io::Error),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("TLS over a Unix socket is not supported")]
    TlsOverUnix,
}

/// An open listener that does not accept yet.
#[derive(Debug)]
pub struct Listener {
    socket: Socket,
    server: Server,
    places: Arc<Semaphore>,
    phases: Arc<Phases>,
}

impl Listener {
    /// Opens the socket. Needs a tokio runtime.
    pub fn bind(config: &Config) -> Result<Self, Error> {
        if config.tls.is_some() && matches!(config.address, Address::Unix(_)) {
            return Err(Error::TlsOverUnix);
        }
        let tls = config.tls.as_ref().map(tls::acceptor).transpose()?;
        Self::open(config, tls)
    }

    /// The same with TLS as the caller has set it up: for certificates that change while it listens.
    pub fn bind_tls(config: &Config, tls: ServerConfig) -> Result<Self, Error> {
        Self::open(config, Some(TlsAcceptor::from(Arc::new(tls))))
    }

    fn open(config: &Config, tls: Option<TlsAcceptor>) -> Result<Self, Error> {
        let Config { address, tls: _, max_connections, head_timeout } = config;
        let socket =
            Socket::bind(address).map_err(|error| Error::Bind(address.to_string(), error))?;
        Ok(Self {
            socket,
            server: Server::new(tls, *head_timeout),
            places: Arc::new(Semaphore::new((*max_connections).min(Semaphore::MAX_PERMITS))),
            phases: Arc::default(),
        })
    }

    /// Where it listens; with port 0 in the configuration, the port that was given. None for a Unix socket.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.socket.local_addr()
    }

    /// Tells how many requests it has refused so far because their head was malformed or too large.
    pub fn refused(&self) -> impl Fn() -> u64 + Send + Sync + 'static {
        let phases = Arc::clone(&self.phases);
        move || phases.refused()
    }

    /// Sees its connections off while it still serves.
    pub fn ebb(&self) -> Ebb {
        Ebb(Arc::clone(&self.phases))
    }

    /// Accepts and serves connections until `shutdown`; what is left then are the connections still open, which end
    /// with the exchange they are at. `service_for` makes the service of one connection.
    pub async fn serve<H: Handler>(
        self,
        handler: H,
        shutdown: impl Future<Output = ()>,
    ) -> Connections {
        let phases = Arc::clone(&self.phases);
        let accepting = self.accept_all(&handler, &phases);
        tokio::select! {
            never = accepting => match never {},
            () = shutdown => {}
        }
        drop(self);
        phases.enter(Phase::Finishing);
        Connections(phases)
    }

    async fn accept_all<H: Handler>(
        &self,
        handler: &H,
        phases: &Arc<Phases>,
    ) -> std::convert::Infallible {
        loop {
            let Ok(place) = Arc::clone(&self.places).acquire_owned().await else {
                // The semaphore is never closed.
                std::future::pending::<()>().await;
                continue;
            };
            match self.socket.accept().await {
                Ok(accepted) => self.server.serve(accepted, handler.clone(), phases.join(), place),
                Err(error) => socket::pause_after(&error).await,
            }
        }
    }
}

/// Sees the connections of a listener off that still accepts. There is no way back.
#[derive(Clone, Debug)]
pub struct Ebb(Arc<Phases>);

impl Ebb {
    /// From here on each connection, those to come included, ends with the exchange that it is at, or else with its
    /// next one. Over HTTP/1.1 the response says `Connection: close`, over HTTP/2 the client gets a `GOAWAY`: none of its
    /// requests is lost on the way.
    pub fn part(&self) {
        self.0.enter(Phase::Parting);
    }

    /// Those that have had an exchange and wait for another are closed; those that have had none may still have one.
    pub fn leave(&self) {
        self.0.enter(Phase::Leaving);
    }
}

/// The connections of a listener that no longer accepts. Dropping this does not end them.
#[derive(Debug)]
#[must_use = "connections go on until they are cut"]
pub struct Connections(Arc<Phases>);

impl Connections {
    /// Those still open.
    pub fn count(&self) -> usize {
        self.0.count()
    }

    /// Waits until all have finished, but at most `limit`; the number still open.
    pub async fn finish(&self, limit: Duration) -> usize {
        match tokio::time::timeout(limit, self.0.empty()).await {
            Ok(()) => 0,
            Err(_) => self.count(),
        }
    }

    /// Ends those still open, and waits until they are gone.
    pub async fn cut(self) {
        self.0.enter(Phase::Cut);
        self.0.empty().await;
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}
