//! One upstream: its settings, its connections and new connections.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::sync::Semaphore;

use super::connect::{self, Connector};
use super::health::UpstreamHealth;
use super::http1::Http1Connection;
use super::pool::Pool;
use super::repeat::{MAX_KEPT_TOTAL, SentBody};
use super::{Config, Protocol};
use tokengauge_types::clock;
use tokengauge_types::event::ConnectTimings;
use tokengauge_types::tcp::TcpConnection;

pub type Http2 = http2::SendRequest<SentBody>;

/// The HTTP/2 connection that all streams share, and its TCP connection.
type Shared = (Http2, Option<Arc<TcpConnection>>);

/// One upstream: its settings and connections. All exchanges with the upstream share this value.
#[derive(Debug)]
pub struct Upstream {
    pub(super) config: Config,
    pub(super) connector: Connector,
    /// Value of the `Host` header, unless the client's `Host` is preserved.
    pub(super) host: HeaderValue,
    pub(super) pool: Arc<Pool>,
    /// The HTTP/2 connection that all streams share. The lock is held while connecting, so that a burst of requests
    /// opens only one connection.
    http2: tokio::sync::Mutex<Option<Shared>>,
    /// Budget in bytes for request bodies that are kept for a second attempt.
    pub(super) kept_bytes: Arc<Semaphore>,
    pub(super) health: Arc<UpstreamHealth>,
}

/// A connection that is ready for a request.
pub enum Channel {
    Http1(Box<Http1Connection>),
    Http2(Http2),
}

impl Upstream {
    pub fn new(config: Config) -> Result<Arc<Self>, connect::SetupError> {
        let health = UpstreamHealth::new(config.name.clone());
        Self::with_health(config, health)
    }

    /// Creates an upstream that continues the counters of an earlier one with the same name.
    pub(super) fn with_health(
        config: Config,
        health: Arc<UpstreamHealth>,
    ) -> Result<Arc<Self>, connect::SetupError> {
        let connector = Connector::new(&config)?;
        let host = connect::host_header(&config)?;
        Ok(Arc::new(Self {
            pool: Arc::new(Pool::new(&config, Arc::clone(&health))),
            config,
            connector,
            host,
            http2: tokio::sync::Mutex::default(),
            kept_bytes: Arc::new(Semaphore::new(MAX_KEPT_TOTAL)),
            health,
        }))
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns whether requests are sent to an HTTP proxy instead of the upstream. For `https`, the proxy opens a
    /// tunnel instead.
    pub(super) fn is_behind_plain_proxy(&self) -> bool {
        !self.config.tls && self.connector.proxy.is_some()
    }

    pub(super) fn proxy_authorization(&self) -> Option<&HeaderValue> {
        let proxy = self.connector.proxy.as_ref().filter(|_| !self.config.tls)?;
        proxy.authorization.as_ref()
    }

    /// Opens a new HTTP/1.1 connection, or returns the shared HTTP/2 connection.
    pub(super) async fn connect(&self) -> Result<(Channel, ConnectTimings), connect::Error> {
        match self.config.protocol {
            Protocol::Http1 => {
                let (stream, connected) = self.connector.connect().await?;
                let connection = Http1Connection::handshake(stream, &connected).await?;
                Ok((Channel::Http1(connection), connected))
            }
            Protocol::Http2 => self.connect_http2().await,
        }
    }

    async fn connect_http2(&self) -> Result<(Channel, ConnectTimings), connect::Error> {
        let (mut shared, wait) = self.shared().await;
        if let Some((sender, connection)) = &*shared
            && !sender.is_closed()
        {
            let connected = ConnectTimings {
                reused: true,
                wait,
                connection: connection.clone(),
                ..ConnectTimings::default()
            };
            return Ok((Channel::Http2(sender.clone()), connected));
        }
        let (stream, connected) = self.connector.connect().await?;
        let connected = ConnectTimings { wait, ..connected };
        if self.config.tls && !stream.chose_http2() {
            let connection = Http1Connection::handshake(stream, &connected).await?;
            return Ok((Channel::Http1(connection), connected));
        }
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .initial_stream_window_size(HTTP2_STREAM_WINDOW)
            .initial_connection_window_size(HTTP2_CONNECTION_WINDOW)
            .keep_alive_interval(HTTP2_PING)
            .handshake(TokioIo::new(stream))
            .await?;
        tokio::spawn(connection);
        *shared = Some((sender.clone(), connected.connection.clone()));
        Ok((Channel::Http2(sender), connected))
    }

    /// Locks the shared HTTP/2 connection. Also returns how long the request waited for another request to open the
    /// connection.
    async fn shared(&self) -> (tokio::sync::MutexGuard<'_, Option<Shared>>, Option<Duration>) {
        if let Ok(shared) = self.http2.try_lock() {
            return (shared, None);
        }
        let begun = clock::now();
        let shared = self.http2.lock().await;
        (shared, Some(clock::now() - begun))
    }
}

/// Flow-control window of one HTTP/2 stream, in bytes. The window of the connection is many times larger, so that a
/// slow reader of one stream does not stop the others.
const HTTP2_STREAM_WINDOW: u32 = 1024 * 1024;
const HTTP2_CONNECTION_WINDOW: u32 = 64 * 1024 * 1024;
/// Interval of HTTP/2 pings. A dead network path is detected after this interval and hyper's ping timeout of 20 s.
const HTTP2_PING: Duration = Duration::from_secs(30);
