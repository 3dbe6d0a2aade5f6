//! Listeners for TCP and Unix sockets, with TLS, HTTP/1.1, HTTP/2, connection limits and drain.
//!
//! A listener serves until its `shutdown` future completes. It then returns its open connections as
//! [`Connections`]. The exchanges on these connections may continue for a grace period before the connections
//! are closed:
//!
//! ```no_run
//! # use std::time::Duration;
//! # use tokengauge_listen::{Handler, Listener, Workers};
//! # async fn serve<H: Handler>(listener: Listener, handler: H, workers: Workers, stop: impl Future<Output = ()>) {
//! // Accepts connections until `stop` completes.
//! let connections = listener.serve(handler, workers, stop).await;
//! // Waits for the end of their requests, for at most 30 s.
//! let left = connections.drain(Duration::from_secs(30)).await;
//! println!("{left} connections are aborted");
//! connections.abort().await;
//! # }
//! ```

mod active_exchanges;
mod client_stream;
mod connection;
mod delivery;
mod flush_signal;
mod handler;
mod header_limits;
mod http_settings;
mod limit;
mod log_throttle;
mod open_problems;
mod received_body;
mod replay;
mod request_limit;
mod response_limits;
mod send_timer;
mod service;
mod socket;
mod state;
mod stream_task;
mod timer;
mod tls;
pub mod validity;
pub mod websocket;
pub mod window;
mod workers;
mod write_timeout;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustls::ServerConfig;

pub use self::client_stream::MAX_READ;
pub use self::handler::Handler;
pub use self::header_limits::{HeaderLimits, HeadersTooLarge};
pub use self::received_body::{BodyError, ReceivedBody};
pub use self::socket::{
    bind_tcp, prepare as prepare_socket, prepare_upstream as prepare_upstream_socket,
};
pub use self::tls::{TlsError, TlsReloader};
pub use self::workers::Workers;
pub use self::write_timeout::WriteTimeout;

use self::active_exchanges::ActiveExchanges;
use self::client_stream::ConnectionGuards;
use self::connection::{Client, Server};
use self::limit::Limit;
use self::log_throttle::LogThrottle;
use self::socket::Socket;
use self::state::{ListenerPhase, ListenerState};
use self::tls::Acceptor;
use tokengauge_types::tcp::TcpConnection;

/// Configuration of a listener.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ListenerConfig {
    pub address: Address,
    pub tls: Option<Tls>,
    /// Maximum number of open connections, including WebSockets. At the limit, a new connection replaces an idle one:
    /// among clients with idle connections, the one with the most connections loses its longest idle connection. If no
    /// connection is idle, the new connection waits.
    pub max_connections: usize,
    /// Maximum number of requests in flight, including WebSockets. Further requests get status 503, except up to an
    /// eighth more of clients (IP addresses) with less than an equal share. This limit is needed in addition to
    /// `max_connections`, because an HTTP/2 connection carries many requests.
    pub max_requests: usize,
    /// Time limit for a client to send the headers of an HTTP/1 request. The time starts when the connection is ready,
    /// and for later requests at the first byte. The TLS handshake has the same limit of its own.
    pub head_timeout: Duration,
    /// Time limit for a client that has not sent its whole request body and sends no further byte.
    pub body_timeout: Duration,
    /// Time limit for a client that reads nothing of the data that waits for it. Also applies to WebSockets.
    pub send_timeout: Duration,
    /// How long a connection without a request stays open.
    pub idle_timeout: Duration,
    /// Maximum size of the headers of a request.
    pub headers: HeaderLimits,
    /// Whether the handler answers requests whose headers exceed `headers`. They then have the extension
    /// [`HeadersTooLarge`]. Otherwise, the listener answers with status 431.
    pub marks_large_headers: bool,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Address {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// Paths of the server's certificate chain and private key, both in PEM format.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Tls {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl ListenerConfig {
    /// Default limit of requests in flight. Each request uses two open files: one for the client and one for the
    /// upstream. With the connections to spare of [`MAX_CONNECTIONS`](Self::MAX_CONNECTIONS), idle connections to
    /// upstreams and a reserve, the process needs 20,000 open files, which is a common value of `ulimit -n`.
    pub const MAX_REQUESTS: usize = 8_192;
    /// Default connection limit. It is higher than the request limit, so that a request above that limit still gets a
    /// connection and the status 503. The 503 also ends a loop in which the upstream sends requests back to the proxy.
    pub const MAX_CONNECTIONS: usize = 9_000;
    /// Default time limit for request headers. nginx and hyper have defaults between 30 and 60 s.
    pub const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
    /// Default time limit between two pieces of a request body, the same as in nginx. Responses have no such limit,
    /// because a model may take any time.
    pub const BODY_TIMEOUT: Duration = Duration::from_secs(60);
    /// Default time limit for a client that does not read, the same as nginx's `send_timeout`. A client that reads only
    /// 64 KiB in this time makes progress.
    pub const SEND_TIMEOUT: Duration = Duration::from_secs(60);
    /// Default time after which an idle connection is closed. Load balancers (AWS, Azure, nginx) reuse connections that
    /// were idle for up to 60 s. An earlier close could turn a request that was just sent into a 502.
    pub const IDLE_TIMEOUT: Duration = Duration::from_secs(75);

    pub const fn at(address: Address) -> Self {
        Self {
            address,
            tls: None,
            max_connections: Self::MAX_CONNECTIONS,
            max_requests: Self::MAX_REQUESTS,
            head_timeout: Self::HEAD_TIMEOUT,
            body_timeout: Self::BODY_TIMEOUT,
            send_timeout: Self::SEND_TIMEOUT,
            idle_timeout: Self::IDLE_TIMEOUT,
            headers: HeaderLimits::DEFAULT,
            marks_large_headers: false,
        }
    }
}

/// Pause after a failed `accept`. If the process has no free file descriptor, others must be closed before `accept` can
/// succeed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// The remote end of a client connection.
#[derive(Clone, Debug)]
pub struct Peer {
    /// TCP connection to the client. `None` for a Unix socket, or if the socket has no local address.
    pub connection: Option<Arc<TcpConnection>>,
    pub tls: bool,
}

/// Connections and requests of a listener.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Load {
    /// Number of open connections, including WebSockets.
    pub connections: usize,
    pub max_connections: usize,
    /// Number of requests in flight, including WebSockets.
    pub requests: usize,
    pub max_requests: usize,
    /// Number of requests rejected because their headers were malformed or too large.
    pub refused: u64,
    /// Number of requests answered with 503 because of `max_requests`.
    pub over_limit: u64,
    /// Number of idle connections that were closed to make room for new ones at `max_connections`.
    pub evicted: u64,
}

/// Errors from opening a listener.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    #[error("cannot listen on {0}: {1}{hint}", hint = bind_hint(.1))]
    Bind(String, io::Error),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("TLS over a Unix socket is not supported")]
    TlsOverUnix,
}

/// Returns advice for an address that is in use, with a semicolon before it, and otherwise an empty text.
pub fn bind_hint(error: &io::Error) -> &'static str {
    if error.kind() == io::ErrorKind::AddrInUse {
        "; stop the process that uses this address, or listen on another one"
    } else {
        ""
    }
}

/// An open listening socket that does not accept connections yet.
#[derive(Debug)]
pub struct Listener {
    configured: Address,
    socket: Socket,
    server: Server,
    tls: Option<TlsReloader>,
    connections: Limit,
    state: Arc<ListenerState>,
}

impl Listener {
    /// Opens the listening socket. Must be called within a Tokio runtime.
    pub fn bind(config: &ListenerConfig) -> Result<Self, ListenError> {
        if config.tls.is_some() && matches!(config.address, Address::Unix(_)) {
            return Err(ListenError::TlsOverUnix);
        }
        let Some(files) = &config.tls else {
            return Self::open(config, None);
        };
        let acceptor = Acceptor::new(tls::read(files)?);
        let mut listener = Self::open(config, Some(Arc::clone(&acceptor)))?;
        listener.tls = Some(TlsReloader { files: files.clone(), acceptor });
        Ok(listener)
    }

    /// Opens the listening socket with a TLS configuration from the caller, for example one whose certificates can
    /// change while the listener runs.
    pub fn bind_tls(config: &ListenerConfig, tls: ServerConfig) -> Result<Self, ListenError> {
        Self::open(config, Some(Acceptor::new(tls)))
    }

    fn open(config: &ListenerConfig, tls: Option<Arc<Acceptor>>) -> Result<Self, ListenError> {
        let address = &config.address;
        let socket =
            Socket::bind(address).map_err(|error| ListenError::Bind(address.to_string(), error))?;
        let state = Arc::default();
        Ok(Self {
            configured: address.clone(),
            socket,
            server: Server::new(config, tls, &state),
            tls: None,
            connections: Limit::new(address, config.max_connections),
            state,
        })
    }

    /// Returns the address on which the listener accepts connections, with the port that the kernel assigned if the
    /// configured port is 0. `None` for a Unix socket.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.socket.local_addr()
    }

    /// Returns the configured address. If the configured port is 0, the result has the port that the kernel assigned.
    pub fn address(&self) -> Address {
        self.local_addr().map_or_else(|| self.configured.clone(), Address::Tcp)
    }

    pub const fn has_tls(&self) -> bool {
        self.server.has_tls()
    }

    /// Returns a handle with which the TLS files are read again. `None` if TLS is off or [`bind_tls`](Self::bind_tls)
    /// was used.
    pub fn tls_reloader(&self) -> Option<TlsReloader> {
        self.tls.clone()
    }

    /// Returns a function that reads the current load of the listener.
    pub fn load(&self) -> impl Fn() -> Load + Send + Sync + 'static {
        let (state, requests) = (Arc::clone(&self.state), Arc::clone(self.server.request_limit()));
        let max_connections = self.connections.max();
        move || Load {
            connections: state.count(),
            max_connections,
            requests: requests.in_use(),
            max_requests: requests.max(),
            refused: state.refused.load(Ordering::Relaxed),
            over_limit: state.over_limit.load(Ordering::Relaxed),
            evicted: state.evicted.load(Ordering::Relaxed),
        }
    }

    /// Returns a handle for closing connections gracefully while the listener still accepts new ones.
    pub fn drain(&self) -> ConnectionDrain {
        ConnectionDrain(Arc::clone(&self.state))
    }

    /// Accepts connections until `shutdown` completes, and serves them on `workers`. `handler` creates the service of
    /// each connection. Returns the connections that are still open. Each of these connections ends after its current
    /// request.
    pub async fn serve<H: Handler>(
        self,
        handler: H,
        workers: Workers,
        shutdown: impl Future<Output = ()>,
    ) -> Connections {
        let state = Arc::clone(&self.state);
        let accepting = self.accept_all(&handler, &workers, &state);
        tokio::select! {
            never = accepting => match never {},
            () = shutdown => {}
        }
        drop(self);
        state.enter(ListenerPhase::ClosingAll);
        Connections(state)
    }

    async fn accept_all<H: Handler>(
        &self,
        handler: &H,
        workers: &Workers,
        state: &Arc<ListenerState>,
    ) -> std::convert::Infallible {
        let failures = LogThrottle::default();
        loop {
            match self.socket.accept().await {
                Ok(accepted) => {
                    let permit = self.connections.acquire(|| state.close_longest_waiting()).await;
                    let exchanges = ActiveExchanges::new();
                    let (member, watcher) = state.join(accepted.client(), &exchanges);
                    let (runtime, assignment) = workers.assign();
                    let requests = self.server.request_limit().join(accepted.client());
                    let guards =
                        ConnectionGuards { member, requests, permit, assignment, window: None };
                    let client = Client { guards, exchanges, watcher };
                    self.server.serve(accepted, handler.clone(), client, runtime);
                }
                Err(error) if socket::is_connection_error(&error) => {}
                Err(error) => {
                    if failures.is_due() {
                        let listener = self.address();
                        let message = "cannot accept connections, will retry; if too many files are open, \
                             raise the limit (ulimit -n)";
                        tracing::warn!(%listener, %error, "{message}");
                    }
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

/// Closes the connections of a listener gracefully while the listener still accepts new ones. Draining cannot be
/// undone.
#[derive(Clone, Debug)]
pub struct ConnectionDrain(Arc<ListenerState>);

impl ConnectionDrain {
    /// Closes each connection after its current request, including connections that open later. An idle HTTP/1
    /// connection serves one more request first. No request is lost, because HTTP/1.1 responses carry `Connection:
    /// close` and HTTP/2 clients receive a `GOAWAY`.
    pub fn close_after_exchange(&self) {
        self.0.enter(ListenerPhase::Draining);
    }

    /// Closes idle connections immediately if they have served a request. Other idle connections may serve one request
    /// first.
    pub fn close_idle(&self) {
        self.0.enter(ListenerPhase::ClosingIdle);
    }
}

/// Open connections of a listener that no longer accepts new ones. Dropping this value does not close the connections.
///
/// A WebSocket counts as open until the handler drops its upgraded connection.
#[derive(Debug)]
#[must_use = "connections go on until they are aborted"]
pub struct Connections(Arc<ListenerState>);

impl Connections {
    /// Returns the number of open connections.
    pub fn count(&self) -> usize {
        self.0.count()
    }

    /// Waits until all connections have ended, for at most `limit`. Returns the number of connections that are still
    /// open.
    pub async fn drain(&self, limit: Duration) -> usize {
        match tokio::time::timeout(limit, self.0.empty()).await {
            Ok(()) => 0,
            Err(_) => self.count(),
        }
    }

    /// Closes the remaining connections and waits until all have ended. The handler must close WebSockets itself.
    pub async fn abort(self) {
        self.0.enter(ListenerPhase::Aborting);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_address_in_use_is_reported_with_advice() {
        let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = Address::Tcp(other.local_addr().unwrap());
        let error = Listener::bind(&ListenerConfig::at(address)).unwrap_err().to_string();
        assert!(error.ends_with("or listen on another one"), "{error}");
    }

    #[test]
    fn other_errors_have_no_advice_about_the_address() {
        assert_eq!(bind_hint(&io::Error::from(io::ErrorKind::PermissionDenied)), "");
    }
}
